"""Measures a device's peaks while nothing else uses it, and says of others why they do not count."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import torch

from ..records.code import MachineLoad
from ..records.run import Peaks
from .device.gpu_watch import find_sharing
from .device.machine import Driver, load_since, read_counters

TRIES = 2
"""Number of times that peaks are measured, if the first ones do not count."""

DELAYED = 0.1
"""If the process waits for a core for this share of its time, the measured peaks of a processor are too low."""

LOOK_S = 0.3
"""Seconds for which the processor is looked at before its peaks are measured, which takes ten times as long."""

LEAST_FLOPS_PER_LANE = 0.25
"""FLOPs of float32 in a cycle of a thread, per lane of its vectors, that every processor reaches.

A multiply-add in each cycle would be 2; two threads share the units of a core, and a library may use half of the lanes.
"""

NO_FASTER = "its cache was no faster than its memory"


def measure_undisturbed(
    measure: Callable[[], Peaks], clock_hz: float | None, lanes: int | None
) -> tuple[Peaks | None, str]:
    """The peaks of a processor; or ``None``, and why what was measured does not count.

    Args:
        measure: measures them, with torch's number of threads.
        clock_hz: the clock of the processor; ``None`` if it is unknown.
        lanes: the float32 values in one of its vectors; ``None`` if it is unknown.
    """
    doubt = doubt_load(_measure_load())
    peaks: Peaks | None = None
    for _ in range(0 if doubt else TRIES):
        before = read_counters()
        peaks = measure()
        doubt = doubt_load(load_since(before, 1)) or doubt_peaks(peaks, clock_hz, lanes)
        if not doubt:
            return peaks, ""
    if peaks is not None and doubt == NO_FASTER:  # twice, and nothing else was there
        return replace(peaks, cache_bandwidth=None), ""
    return None, doubt


def measure_unshared(measure: Callable[[], Peaks], driver: Driver | None) -> tuple[Peaks | None, str]:
    """The peaks of a GPU; or ``None``, and why what was measured does not count: another process used it meanwhile.

    Args:
        measure: measures them.
        driver: the driver's view of the GPU. Without one, and if it does not tell processes apart, they count.
    """
    begin_us = time.time_ns() // 1000
    peaks = measure()
    sharing = find_sharing(driver, begin_us, begin_us) if driver is not None else None
    if sharing is None or not sharing.others_share:
        return peaks, ""
    most = sharing.others[0]
    return None, f"another process used the GPU {sharing.others_share:.0%} of the time ({most.name}, pid {most.pid})"


def doubt_load(load: MachineLoad) -> str:
    """Why what a process measured under this load does not count; empty if it does."""
    if load.delayed_share < DELAYED:
        return ""
    return f"the machine was busy: it waited for a core {load.delayed_share:.0%} of the time"


def doubt_peaks(peaks: Peaks, clock_hz: float | None, lanes: int | None) -> str:
    """Why the peaks of a processor cannot be right; empty if nothing says so. See :func:`measure_undisturbed`."""
    rate, threads = peaks.matmul_flops.get("float32", 0.0), peaks.threads or 1
    if clock_hz and lanes and rate < LEAST_FLOPS_PER_LANE * lanes * clock_hz * threads:
        return (
            f"{rate / 1e9:.1f} GFLOP/s is too little for {threads} thread{'s' * (threads > 1)} with vectors of {lanes} "
            f"floats at {clock_hz / 1e9:.1f} GHz"
        )
    if peaks.cache_bandwidth is not None and peaks.cache_bandwidth <= peaks.memory_bandwidth:
        return NO_FASTER
    return ""


def _measure_load() -> MachineLoad:
    """The load of the machine while all threads work for a moment."""
    matrix = torch.ones(256, 256)
    begin_s, before = time.monotonic(), read_counters()
    while time.monotonic() - begin_s < LOOK_S:
        torch.mm(matrix, matrix)
    return load_since(before, 1)

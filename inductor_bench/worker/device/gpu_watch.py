"""Asks the driver about a GPU while a program's steps are measured: its clock, and its use by other programs.

Programs on one GPU run in turn, so the profile of each program shows the GPU idle while kernels of another one run.
Peaks count only if they are measured while nothing else uses the device; if not, the reason is recorded.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from ...messages.observed import PROCESS_MARK
from ...records.base import OtherProcess
from ...records.code import MachineLoad
from ...records.evidence import ClockSample, GpuSharing
from ...records.run import Peaks
from .machine import Driver, find_parents, load_since, own_bytes, read_counters, read_process_name

CLOCKS_S = 0.1
"""Seconds between two readings of a GPU's clock."""

MARK_DIGITS = 32
"""Number of hexadecimal digits of one mark in ``PROCESS_MARK``."""


class GpuWatch:
    """Reads the clock of a GPU during the steps, and between the parts of their measurement how the GPU is shared.

    Without a driver it reads nothing. No reading waits for the GPU.
    """

    def __init__(self) -> None:
        self.clocks: list[ClockSample] = []
        self.next_clock_s = math.inf
        """The time on the host's clock at which reading the GPU's clock begins."""
        self._driver: Driver | None = None
        self._begin_us = self._steady_us = 0

    def set_driver(self, driver: Driver | None) -> None:
        """Sets the driver that is asked from now on."""
        self._driver = driver
        self.next_clock_s = math.inf if driver is None else 0.0

    def restart(self) -> None:
        """Forgets the clocks, because step numbers begin again."""
        self.clocks = []

    def begin(self) -> None:
        """Notes that the measured steps begin here."""
        self._begin_us = self._steady_us = time.time_ns() // 1000

    def begin_window(self) -> None:
        """Notes that the timed window begins here: from now on no work of the observation lies between the steps."""
        self._steady_us = time.time_ns() // 1000
        self._begin_us = self._begin_us or self._steady_us

    def read_clock(self, number: int, arrived_s: float) -> None:
        """Reads the clock in the step of this number, at most every :data:`CLOCKS_S` seconds."""
        assert self._driver is not None
        mhz = self._driver.clock_mhz()
        self.next_clock_s = math.inf if mhz is None else arrived_s + CLOCKS_S
        if mhz is not None:
            self.clocks.append(ClockSample(number, mhz, self._driver.throttles()))

    def sharing(self) -> GpuSharing | None:
        """Returns how the GPU was shared since the steps began; ``None`` without a driver, and before they began."""
        if self._driver is None or not self._begin_us:
            return None
        return find_sharing(self._driver, self._begin_us, self._steady_us)


def find_sharing(driver: Driver, begin_us: int, steady_us: int) -> GpuSharing:
    """Returns what the driver says of all processes on a GPU.

    The ids of processes count only if this process is among them: otherwise they are those of another container.

    Args:
        driver: the driver's view of the GPU.
        begin_us: the begin of the time in which other processes count, in microseconds since the epoch.
        steady_us: the begin of the time in which this program ran nothing but steps.
    """
    shares, busy = driver.busy_by_process(begin_us), driver.busy_since(steady_us)
    held = {one.pid: one.memory_bytes for one in driver.compute_processes()}
    pids, used = dict.fromkeys((*(shares or {}), *held)), driver.used_bytes()
    if os.getpid() not in pids:
        pids, shares, held = {}, None, {}
    family = {pid for pid in pids if is_family(pid)}
    others = (
        OtherProcess(pid, read_process_name(pid), held.get(pid), None if shares is None else shares.get(pid, 0.0))
        for pid in pids
        if pid not in family
    )
    named = sum(size or 0 for pid, size in held.items() if pid != os.getpid())
    own = held.get(os.getpid()) or own_bytes()
    return GpuSharing(
        others=tuple(sorted(others, key=lambda one: -(one.busy or 0.0))),
        own_busy=None if shares is None else math.fsum(shares.get(pid, 0.0) for pid in family),
        busy=busy,
        held_bytes=None if used is None else max(used - driver.drawing_bytes() - named - own, 0),
    )


def is_family(pid: int) -> bool:
    """Whether a process belongs to this program, or was started by the same process of this tool as the program."""
    own = os.getpid()
    line = (pid, *find_parents(pid))
    mark = os.environ.get(PROCESS_MARK, "")[-2 * MARK_DIGITS :][:MARK_DIGITS]
    return own in line or (bool(mark) and any(mark in _find_mark(one) for one in line))


def _find_mark(pid: int) -> str:
    """Returns the mark of a process; empty if it has none, or belongs to another user."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    begin = f"{PROCESS_MARK}=".encode()
    return next((one[len(begin) :].decode(errors="replace") for one in variables if one.startswith(begin)), "")


TRIES = 2
"""Maximum number of times that peaks are measured, if earlier ones do not count."""

DELAYED = 0.1
"""If the process waits for a core for this share of its time, the measured peaks of a processor are too low."""

LOOK_S = 0.3
"""Seconds for which the processor is looked at before its peaks are measured, which takes ten times as long."""

LEAST_FLOPS_PER_LANE = 0.25
"""FLOPs of float32 in a cycle of a thread, per lane of its vectors, that every processor reaches.

A multiply-add in each cycle would be 2; two threads share the units of a core, and a library may use half of the lanes.
"""

NO_FASTER = "its cache was no faster than its memory"


def measure_cpu_peaks_undisturbed(
    measure: Callable[[], Peaks], clock_hz: float | None, lanes: int | None
) -> tuple[Peaks | None, str]:
    """Returns the peaks of a processor; or ``None``, and why the measured peaks do not count.

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
        return replace(peaks, cache_bandwidth=None, cache_roofs=()), ""
    return None, doubt


def measure_gpu_peaks_unshared(measure: Callable[[], Peaks], driver: Driver | None) -> tuple[Peaks | None, str]:
    """Returns the peaks of a GPU; or ``None``, and why they do not count: another process used the GPU meanwhile.

    Args:
        measure: measures them.
        driver: the driver's view of the GPU. Without a driver, and if it does not tell processes apart, the peaks
            count.
    """
    begin_us = time.time_ns() // 1000
    peaks = measure()
    sharing = find_sharing(driver, begin_us, begin_us) if driver is not None else None
    if sharing is None or not sharing.others_share:
        return peaks, ""
    most = sharing.others[0]
    return None, f"another process used the GPU {sharing.others_share:.0%} of the time ({most.name}, pid {most.pid})"


def doubt_load(load: MachineLoad) -> str:
    """Returns why measurements under this load do not count; empty if they count."""
    if load.delayed_share < DELAYED:
        return ""
    return f"the machine was busy: it waited for a core {load.delayed_share:.0%} of the time"


def doubt_peaks(peaks: Peaks, clock_hz: float | None, lanes: int | None) -> str:
    """Returns why the peaks of a processor cannot be right; empty if they may be right."""
    rate, threads = peaks.matmul_flops.get("float32", 0.0), peaks.threads or 1
    if clock_hz and lanes and rate < LEAST_FLOPS_PER_LANE * lanes * clock_hz * threads:
        return (
            f"{rate / 1e9:.1f} GFLOP/s is too little for {threads} thread{'s' * (threads > 1)} with vectors of {lanes} "
            f"floats at {clock_hz / 1e9:.1f} GHz"
        )
    fastest = peaks.find_cache_bandwidth(0)
    if fastest is not None and fastest <= peaks.memory_bandwidth:
        return NO_FASTER
    return ""


def _measure_load() -> MachineLoad:
    """Measures the load of the machine while all threads work for a moment."""
    matrix = torch.ones(256, 256)
    begin_s, before = time.monotonic(), read_counters()
    while time.monotonic() - begin_s < LOOK_S:
        torch.mm(matrix, matrix)
    return load_since(before, 1)

"""What Nsight Compute says of a kernel, from the raw page that it prints as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence

from ...records.tuning import HardwareCounters

TIME = "gpu__time_duration.sum"
DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum")
DRAM_SHARE = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
REASONS = (
    *("barrier", "branch_resolving", "dispatch_stall", "drain", "imc_miss", "lg_throttle", "long_scoreboard"),
    *("math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction", "short_scoreboard", "sleeping"),
    *("tex_throttle", "wait"),
)
READY = ("selected", "not_selected")
"""States of warps that wait for nothing: one issues, the others could."""

OF_HOPPER = "gmma"
"""A reason that other architectures do not have; Nsight Compute refuses what it does not know."""

WAITS = {
    "barrier": "other warps at a barrier",
    "branch_resolving": "branches",
    "drain": "writes at the end",
    "gmma": "other warps of a matrix product",
    "imc_miss": "constants",
    "lg_throttle": "the queue to global memory",
    "long_scoreboard": "global memory",
    "math_pipe_throttle": "arithmetic units",
    "membar": "memory fences",
    "mio_throttle": "the queue to shared memory",
    "no_instruction": "instructions",
    "short_scoreboard": "shared memory",
    "tex_throttle": "the texture queue",
    "wait": "fixed latencies",
}
"""What warps wait for, by NVIDIA's names of the stalls; others are said as they are."""

_UNITS = {"byte": 1.0, "second": 1.0, "s": 1.0, "%": 0.01}
_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "n": 1e-9}
_SCALES = {prefix + unit: scale * size for unit, size in _UNITS.items() for prefix, scale in _PREFIXES.items()}


def metrics_for(capability: str | None) -> tuple[str, ...]:
    """The metrics to ask for on a GPU of that compute capability."""
    reasons = (*REASONS, *READY, *((OF_HOPPER,) if capability == "9.0" else ()))
    return (TIME, *DRAM, DRAM_SHARE, OCCUPANCY, *(STALL.format(reason) for reason in reasons))


def read_counters(text: str) -> HardwareCounters | None:
    """The counters in what Nsight Compute printed, among whatever else was printed; ``None`` where there are none."""
    kernels = list(_read_rows(text))
    if not kernels:
        return None
    times = [kernel.get(TIME) for kernel in kernels]
    moved = [kernel.get(metric) for metric in DRAM for kernel in kernels]
    waits = _weighted_stalls(kernels)
    return HardwareCounters(
        device_kernels=len(kernels),
        dram_bytes=_sum(moved),
        dram_share=_mean(kernels, DRAM_SHARE),
        occupancy=_mean(kernels, OCCUPANCY),
        stalls=dict(sorted(waits.items(), key=lambda item: -item[1])),
        time_s=_sum(times),
    )


def _read_rows(text: str) -> Iterator[dict[str, float]]:
    """The metrics of each device kernel, in bytes, seconds and shares of 1.

    Below the names stand the units, in a line of their own without an ``ID``.
    """
    names: list[str] = []
    scales: list[float] = []
    for line in text.splitlines():
        cells = next(csv.reader([line])) if line.startswith('"') else [""]
        if cells[0] == "ID":
            names, scales = cells, []
        elif names and len(cells) == len(names):
            if not cells[0]:
                scales = [_SCALES.get(unit, 1.0) for unit in cells]
            elif scales:
                yield dict(_numbers(names, cells, scales))


def _numbers(names: Sequence[str], cells: Sequence[str], scales: Sequence[float]) -> Iterator[tuple[str, float]]:
    for name, cell, scale in zip(names, cells, scales, strict=True):
        if "__" in name:
            try:
                yield name, float(cell.replace(",", "")) * scale
            except ValueError:  # "n/a", or nothing: not counted
                continue


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if values and len(known) == len(values) else None


def _mean(kernels: Sequence[Mapping[str, float]], metric: str) -> float | None:
    """The mean over the kernels that have the metric, weighted by their times."""
    known = [(kernel[metric], kernel.get(TIME, 0.0)) for kernel in kernels if metric in kernel]
    total = sum(time for _, time in known)
    if not known or not total:
        return known[0][0] if len(known) == 1 else None
    return sum(value * time for value, time in known) / total


def _weighted_stalls(kernels: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The share of warps' time by what they waited for, of kernels that issued anything."""
    shares: list[dict[str, float]] = []
    for kernel in kernels:
        found = {
            reason: kernel[STALL.format(reason)]
            for reason in (*REASONS, *READY, OF_HOPPER)
            if STALL.format(reason) in kernel
        }
        total = sum(found.values())
        if total:
            waits = {reason: value / total for reason, value in found.items() if value and reason not in READY}
            shares.append({**waits, TIME: kernel.get(TIME, 0.0)})
    reasons = {reason for each in shares for reason in each} - {TIME}
    every = [{**dict.fromkeys(reasons, 0.0), **each} for each in shares]
    means = {reason: _mean(every, reason) for reason in reasons}
    return {reason: mean for reason, mean in means.items() if mean is not None}

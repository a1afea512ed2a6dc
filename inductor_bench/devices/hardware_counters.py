"""Reads the hardware counters of a kernel from the raw page that Nsight Compute prints as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence

from ..records.base import sum_known
from ..records.retune import HardwareCounters

TIME = "gpu__time_duration.sum"
DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum")
DRAM_SHARE = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALL_REASONS = (
    *("barrier", "branch_resolving", "dispatch_stall", "drain", "imc_miss", "lg_throttle", "long_scoreboard"),
    *("math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction", "short_scoreboard", "sleeping"),
    *("tex_throttle", "wait"),
)
READY = ("selected", "not_selected")
"""States of warps that do not wait: ``selected`` warps issue an instruction, ``not_selected`` warps could issue one."""

HOPPER_STALL = "gmma"
"""A stall reason that only Hopper has. On other architectures Nsight Compute refuses the metric."""

STALL_WORDS = {
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
"""Stall reasons in words, by NVIDIA's names. Reports use NVIDIA's name of any other reason."""

_UNITS = {"byte": 1.0, "second": 1.0, "s": 1.0, "%": 0.01}
_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "n": 1e-9}
_SCALES = {prefix + unit: scale * size for unit, size in _UNITS.items() for prefix, scale in _PREFIXES.items()}


def list_metrics(capability: str | None) -> tuple[str, ...]:
    """Returns the metrics to request on a GPU of this compute capability."""
    reasons = (*STALL_REASONS, *READY, *((HOPPER_STALL,) if capability == "9.0" else ()))
    return (TIME, *DRAM, DRAM_SHARE, OCCUPANCY, *(STALL.format(reason) for reason in reasons))


def read_counters(text: str) -> HardwareCounters | None:
    """Reads the counters from the output of Nsight Compute, which may hold other lines too.

    Returns:
        The counters, summed or averaged over all device kernels; ``None`` if the output holds no counters.
    """
    kernels = [row for _, row in read_named_rows(text)]
    if not kernels:
        return None
    times = [kernel.get(TIME) for kernel in kernels]
    moved = [kernel.get(metric) for metric in DRAM for kernel in kernels]
    waits = _average_stalls(kernels)
    return HardwareCounters(
        device_kernels=len(kernels),
        dram_bytes=sum_known(moved),
        dram_share=_average_metric(kernels, DRAM_SHARE),
        occupancy=_average_metric(kernels, OCCUPANCY),
        stalls=dict(sorted(waits.items(), key=lambda item: -item[1])),
        time_s=sum_known(times),
    )


def read_named_rows(text: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Yields the name and the metrics of each device kernel."""
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
                kernel = dict(zip(names, cells, strict=True)).get("Kernel Name", "")
                yield kernel, dict(_parse_cells(names, cells, scales))


def _parse_cells(names: Sequence[str], cells: Sequence[str], scales: Sequence[float]) -> Iterator[tuple[str, float]]:
    for name, cell, scale in zip(names, cells, scales, strict=True):
        if "__" in name:
            try:
                yield name, float(cell.replace(",", "")) * scale
            except ValueError:  # "n/a" or an empty cell
                continue


def _average_metric(kernels: Sequence[Mapping[str, float]], metric: str) -> float | None:
    """The mean of a metric over the kernels that have it, weighted by their times."""
    known = [(kernel[metric], kernel.get(TIME, 0.0)) for kernel in kernels if metric in kernel]
    total = sum(time for _, time in known)
    if not known or not total:
        return known[0][0] if len(known) == 1 else None
    return sum(value * time for value, time in known) / total


def _average_stalls(kernels: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The share of the warps' time by stall reason, averaged over the kernels that issued instructions."""
    shares: list[dict[str, float]] = []
    for kernel in kernels:
        found = {
            reason: kernel[STALL.format(reason)]
            for reason in (*STALL_REASONS, *READY, HOPPER_STALL)
            if STALL.format(reason) in kernel
        }
        total = sum(found.values())
        if total:
            waits = {reason: value / total for reason, value in found.items() if value and reason not in READY}
            shares.append({**waits, TIME: kernel.get(TIME, 0.0)})
    reasons = {reason for each in shares for reason in each} - {TIME}
    complete = [{**dict.fromkeys(reasons, 0.0), **each} for each in shares]
    means = {reason: _average_metric(complete, reason) for reason in reasons}
    return {reason: mean for reason, mean in means.items() if mean is not None}

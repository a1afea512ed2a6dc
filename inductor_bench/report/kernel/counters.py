"""Formats the hardware counters of a kernel as phrases."""

from __future__ import annotations

from collections.abc import Iterator

from ... import units
from ...devices.hardware_counters import STALL_WORDS
from ...records.tuning import HardwareCounters, MeasuredKernel

MOST_STALLS = 3  # largest number of stall reasons in the line
LEAST_STALL = 0.03  # smallest share of the warps' time of a stall reason in the line


def counter_words(kernel: MeasuredKernel) -> Iterator[str]:
    """Yields the phrases of the line about a kernel's hardware counters."""
    counters = kernel.counters
    if counters is None:
        return
    if counters.dram_bytes is not None:
        moved = kernel.work.moved_bytes
        estimate = f" ({counters.dram_bytes / moved:.2f} of the estimate)" if moved else ""
        yield f"{units.size(counters.dram_bytes)} DRAM{estimate}"
    if counters.dram_share is not None:
        yield f"{units.whole_percent(counters.dram_share)} of DRAM throughput"
    if counters.occupancy is not None:
        yield f"{units.whole_percent(counters.occupancy)} achieved occupancy"
    stalls = ", ".join(_stalls(counters))
    if stalls:
        yield f"warps wait for {stalls}"
    if counters.device_kernels > 1:
        yield f"{counters.device_kernels} device kernels"


def _stalls(counters: HardwareCounters) -> Iterator[str]:
    for reason, share in list(counters.stalls.items())[:MOST_STALLS]:
        if share >= LEAST_STALL:
            yield f"{STALL_WORDS.get(reason, reason.replace('_', ' '))} {units.whole_percent(share)}"

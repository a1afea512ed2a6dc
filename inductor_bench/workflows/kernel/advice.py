"""Advice on the measurement of a kernel: what makes it doubtful, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...analysis.statistics import CONFIDENCE, find_drift
from ...records.tuning import MeasuredKernel, Tuning

FEWEST_SAMPLES = 9
SPREAD = 0.05
CLOCK_SPREAD = 0.05
BUSY_MARGIN = 0.5
"""Maximum load average above the number of CPUs that this tool's own compilations may cause."""


def advise(kernel: MeasuredKernel) -> list[str]:
    """Advice on a measurement, one sentence for each problem; empty for a sound measurement."""
    return [*_judge_outputs(kernel), *_judge_device(kernel), *_judge_times(kernel), *filter(None, [kernel.no_counters])]


def _judge_outputs(kernel: MeasuredKernel) -> Iterator[str]:
    if kernel.checked is False:
        yield f"its outputs are not those of the reference: {kernel.check_message}"
    elif "NaN" in kernel.check_message:
        yield kernel.check_message


def _judge_device(kernel: MeasuredKernel) -> Iterator[str]:
    if "busy" in kernel.method or "no graph" in kernel.method:
        yield kernel.method.split("; ")[-1]
    if "gaps" in kernel.method:
        yield "torch.profiler sees no kernels here, so the gap between two launches, up to 0.5 µs, is in every time"
    if kernel.shared_device:
        yield f"{kernel.shared_device}: its times are mixed with these, so measure again when it is over"
    clock = kernel.clock
    if clock.throttled:
        at = f" to {clock.clock_mhz:,.0f} MHz" if clock.clock_mhz else ""
        yield f"the GPU's clock was held back{at} by its {' and '.join(clock.throttled)}: cool, it may take less time"
    change = clock.clock_change
    if change is not None and abs(change) > CLOCK_SPREAD:
        way = "rose" if change > 0 else "sank"
        yield f"the GPU's clock {way} by {abs(change):.0%} from the cold to the warm times: measure again"


def _judge_times(kernel: MeasuredKernel) -> Iterator[str]:
    for state, timing in (("cold", kernel.cold), ("warm", kernel.warm)):
        if timing is None:
            continue
        drift = find_drift(timing.samples_s)
        wide = (timing.high_s - timing.low_s) / timing.median_s if timing.median_s else 0.0
        if drift.sure:
            way = "rose" if drift.change > 0 else "sank"
            yield f"the {state} time {way} by {abs(drift.change):.0%} while it was measured: measure again"
        elif wide > SPREAD:
            yield f"the {CONFIDENCE:.0%} interval of the {state} time is {wide:.0%} wide: measure again"
        elif timing.samples < FEWEST_SAMPLES:
            yield f"the {state} time rests on {timing.samples} samples only: measure again to be sure"


OF_A_BUSY_MACHINE = "says nothing about an idle one"


def busy_notes(axes: Mapping[str, Any], method: str, load: float, processors: int) -> list[str]:
    """Notes on a tuning on a busy machine, which slows variants with more threads most.

    Args:
        axes: the fields that the tuning varied.
        method: the timing method of the kernel's own measurement, just before.
        load: the machine's load average.
        processors: the number of its CPUs.
    """
    shared = " and ".join(name for name in ("threads", "schedule") if name in axes)
    if "busy" in method:
        why = method.rpartition("unreliable: ")[2]
    elif load > processors + BUSY_MARGIN:
        why = f"the machine is busy, load {load:.1f} on {processors} CPUs"
    else:
        return []
    return [f"{why}: which {shared} won {OF_A_BUSY_MACHINE}"] if shared else []


def is_of_busy_machine(tuning: Tuning) -> bool:
    """Whether a tuning has a note of :func:`busy_notes`."""
    return any(note.endswith(OF_A_BUSY_MACHINE) for note in tuning.notes)

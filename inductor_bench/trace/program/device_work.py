"""Measures the device's work in the profiled steps of a program."""

from __future__ import annotations

from dataclasses import dataclass

from ...records.traced.program import ProgramTrace
from ..intervals import spans, union_length
from .reader import Markers
from .steps import find_window, without_first


@dataclass(frozen=True)
class StepWork:
    """The device's work in one step.

    Attributes:
        time_s: the sum of the durations in seconds.
        launches: the number of activities.
        busy_time_s: the seconds in which at least one activity runs.
    """

    time_s: float
    launches: float
    busy_time_s: float


def measure_work(program: ProgramTrace, markers: Markers) -> StepWork | None:
    """The mean work of the profiled steps; ``None`` where the trace holds no whole step or no device activity."""
    window = find_window(program, markers)
    if window is None:
        return None
    window = without_first(window)
    begin, end = window.bounds[0], window.bounds[-1]
    events = [one for one in program.trace.device_events if begin <= one.start_s < end]
    if not events or end <= begin:
        return None
    inside = [(start, min(stop, end)) for start, stop in spans(events)]
    return StepWork(
        time_s=sum(stop - start for start, stop in inside) / window.steps,
        launches=len(events) / window.steps,
        busy_time_s=union_length(inside) / window.steps,
    )

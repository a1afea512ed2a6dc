"""The durations on the device of each profiled step, in all and by the name of the event."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field

from ...records.traced.program import ProgramTrace
from .reader import Markers
from .steps import find_window


@dataclass
class StepDurations:
    """The device's work that the host launched in one step, in seconds.

    Overlapping activities count each for itself: the sum is work, and no stretch of time.
    """

    total_s: float = 0.0
    by_name: dict[str, float] = field(default_factory=lambda: defaultdict(float))


def step_durations(program: ProgramTrace, markers: Markers) -> list[StepDurations]:
    """The durations of each whole step of a trace, in order; empty where it holds none.

    A kernel belongs to the step in which it was launched, also where it runs later.
    """
    window = find_window(program, markers)
    if window is None:
        return []
    steps = [StepDurations() for _ in range(window.steps)]
    for event in program.trace.device_events:
        if event.kind != "kernel":
            continue
        launched_s = event.start_s if event.launch_start_s is None else event.launch_start_s
        place = bisect_right(window.marks, launched_s) - 1
        if 0 <= place < len(steps):
            steps[place].total_s += event.duration_s
            steps[place].by_name[event.name] += event.duration_s
    return steps

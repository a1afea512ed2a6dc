"""Cuts a program's trace into steps, and finds the calls of compiled graphs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ...records.traced.program import GraphCall, ProgramTrace, StepWindow
from .reader import Markers


def find_window(program: ProgramTrace, markers: Markers) -> StepWindow | None:
    """All whole steps of a trace; ``None`` if it holds fewer than two boundaries, or no time passes between them."""
    ops = [op for op in program.trace.host_ops if op.name.startswith(markers.boundary)]
    if len(ops) < 2:
        return None
    thread = Counter(op.thread for op in ops).most_common(1)[0][0]
    marks = tuple(op.start_s for op in ops)
    bounds = _device_bounds(program, marks)
    return StepWindow(thread, marks, bounds) if bounds[0] < bounds[-1] else None


def without_first(window: StepWindow) -> StepWindow:
    """The window without its first step, unless no time passes in the others.

    The device can still do work in it that was launched before the profile, and that the trace does not show.
    """
    if window.steps < 2 or window.bounds[1] == window.bounds[-1]:
        return window
    return replace(window, marks=window.marks[1:], bounds=window.bounds[1:])


def _device_bounds(program: ProgramTrace, marks: tuple[float, ...]) -> tuple[float, ...]:
    """For each boundary of the host the end of all device events that were launched before it, or itself if later."""
    events = program.trace.device_events
    launched = sorted(
        (event.start_s if event.launch_start_s is None else event.launch_start_s, event.start_s + event.duration_s)
        for event in events
    )
    bounds, place, latest = [], 0, float("-inf")
    for mark in marks:
        while place < len(launched) and launched[place][0] < mark:
            latest = max(latest, launched[place][1])
            place += 1
        bounds.append(max(mark, latest))
    return tuple(bounds)


def find_graph_calls(program: ProgramTrace, markers: Markers) -> tuple[GraphCall, ...]:
    """The calls of compiled graphs, in order."""
    calls = []
    for index, op in enumerate(program.trace.host_ops):
        number = op.name.removeprefix(markers.graph_call)
        if number != op.name and number.isdecimal():
            calls.append(GraphCall(int(number), index, op.start_s, op.start_s + op.duration_s, op.thread))
    return tuple(calls)

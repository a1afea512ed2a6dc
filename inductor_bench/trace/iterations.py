"""Splits a trace into the runs of the module that it shows.

The sequence of outermost calls repeats itself from run to run; the repetition decides. On a GPU a device
synchronisation ends each run, so that each unit of the repetition must start after one; further synchronisations and
other work may precede and follow. On a CPU there are no synchronisations. A generated kernel always belongs to a run.

A trace without a repetition is one run: all of its calls, less the allocations of inputs at its start and the
harness's own arithmetic (``torch.median`` of its timings) at its end.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..records.traced.trace import Iteration, Trace
from .hierarchy import is_compiled_kernel, top_of_each
from .periods import Repetition, find_repetition

_SUMMARY = ("aten::empty", "aten::to", "aten::lift_fresh", "aten::detach_", "aten::median")
"""The operators that Inductor's harness calls after the last run, to summarise its timings."""

_ALLOCATIONS = frozenset({"aten::randn", "aten::rand", "aten::randint", "aten::zeros", "aten::as_strided"})
"""The operators that Inductor's harness calls before the first run, to make inputs."""


@dataclass(frozen=True, slots=True)
class _Call:
    """An outermost call on the module's thread, or a device activity in a trace without host operators."""

    name: str
    start_s: float
    end_s: float
    compiled: bool
    works: bool  # it is a device activity or launched one


def split_iterations(trace: Trace, expected: int | None = None) -> tuple[Iteration, ...]:
    """The runs of the module in ``trace``, in order.

    Args:
        trace: as ``read_trace`` returns it.
        expected: the number of runs, where it is known. Only with it can runs on a CPU that differ from each other be
            separated. A trace that does not hold so many runs is split as if the number were unknown.

    Returns:
        One run that spans all calls where no repetition is found; no runs for a trace without events. ``top_ops`` of a
        run are the operators that it called, ``device_events`` the activities that it launched.
    """
    tops = top_of_each(trace)
    calls = _list_calls(trace, tops)
    if not calls:
        return ()
    relevant = calls[: _find_summary(calls)] or calls
    ranges = None
    if expected != 1:
        ranges = _split_calls(relevant, trace, expected) or (expected and _split_calls(relevant, trace, None)) or None
    return _build(trace, tops, calls, ranges or [_span_all(relevant, trace)])


def _list_calls(trace: Trace, tops: Sequence[int]) -> list[_Call]:
    working = {tops[event.host_op] for event in trace.device_events if event.host_op >= 0}
    outermost = [index for index, top in enumerate(tops) if top == index]
    threads = Counter(trace.host_ops[index].thread for index in outermost)
    if not threads:
        return [
            _Call(event.name, event.start_s, event.start_s + event.duration_s, False, True)
            for event in trace.device_events
        ]
    thread = threads.most_common(1)[0][0]
    ops = [(index, trace.host_ops[index]) for index in outermost if trace.host_ops[index].thread == thread]
    return [
        _Call(op.name, op.start_s, op.start_s + op.duration_s, is_compiled_kernel(op), index in working)
        for index, op in ops
    ]


def _find_summary(calls: Sequence[_Call]) -> int:
    """The index at which the harness's own arithmetic begins; the number of calls where there is none."""
    names = [call.name for call in calls[-64:]]
    offset = len(calls) - len(names)
    for place in range(len(names) - len(_SUMMARY), -1, -1):
        if tuple(names[place : place + len(_SUMMARY)]) == _SUMMARY:
            after = calls[offset + place :]
            return len(calls) if any(call.compiled or call.works for call in after) else offset + place
    return len(calls)


def _split_calls(calls: Sequence[_Call], trace: Trace, expected: int | None) -> list[tuple[int, int]] | None:
    """The range of calls of each run, or ``None`` where the runs cannot be determined."""
    numbers: dict[str, int] = {}
    tokens = [numbers.setdefault(call.name, len(numbers)) for call in calls]
    marked = [call.compiled for call in calls]
    if trace.synchronizations:
        segments = _cut(calls, trace.synchronizations)
        starts = [False] * len(calls)
        for start, _ in segments:
            starts[start] = True
        found = find_repetition(tokens, marked, starts, expected, trace.truncated)
        if found:
            return _units(found, 0)
        alike = _choose_segments(calls, segments, expected)
        if alike or not expected:
            return alike
    found = find_repetition(tokens, marked, None, expected, trace.truncated)
    first = _trim(calls, 0, len(calls))[0]
    if first and not any(marked) and not (found and found.stop > first):  # the repetition lies within the inputs
        found = find_repetition(tokens[first:], marked[first:], None, expected, trace.truncated)
        found = found and Repetition(found.start + first, found.length, found.count, found.slack)
    if found:
        return _units(found, _choose_phase(calls, found))
    return _split_at_anchors(tokens, marked, expected) if expected else None


def _units(found: Repetition, shift: int) -> list[tuple[int, int]]:
    first = found.start + shift
    return [(first + unit * found.length, first + (unit + 1) * found.length) for unit in range(found.count)]


def _choose_phase(calls: Sequence[_Call], found: Repetition) -> int:
    """The shift of the units where calls before or after the repetition happen to continue it.

    A repetition at the start of the trace begins with a run. Elsewhere a run follows the longest pause, because the
    caller works between two runs. The shifted units must hold every generated kernel.
    """
    compiled = [index for index, call in enumerate(calls) if call.compiled]
    shifts = [
        shift
        for shift in range(found.slack + 1)
        if not compiled or (found.start + shift <= compiled[0] and compiled[-1] < found.stop + shift)
    ] or [0]
    if found.start == 0 or len(shifts) == 1:
        return shifts[0]

    def pause(shift: int) -> float:
        places = [found.start + shift + unit * found.length for unit in range(1, found.count)]
        return sum(calls[place].start_s - calls[place - 1].end_s for place in places)

    return max(shifts, key=pause)


def _cut(calls: Sequence[_Call], synchronizations: Sequence[float]) -> list[tuple[int, int]]:
    """The ranges of calls between consecutive synchronisations, without empty ranges."""
    segments: list[tuple[int, int]] = []
    last = -1
    for index, call in enumerate(calls):
        segment = bisect_right(synchronizations, call.start_s)
        if segment == last:
            segments[-1] = (segments[-1][0], index + 1)
        else:
            segments.append((index, index + 1))
        last = segment
    return segments


def _choose_segments(
    calls: Sequence[_Call], segments: Sequence[tuple[int, int]], expected: int | None
) -> list[tuple[int, int]] | None:
    """The segments that are runs although they differ in detail, or the single segment that did any work."""
    compiled = any(call.compiled for call in calls)
    working = [
        segment
        for segment in segments
        if any(call.compiled if compiled else call.works for call in calls[slice(*segment)])
    ]
    if expected is not None:
        return working if len(working) == expected else None
    if len(working) == 1:
        return [_trim(calls, *working[0])]
    made = [tuple(call.name for call in calls[slice(*segment)] if call.compiled) for segment in working]
    if not any(made):
        return None
    usual, count = Counter(made).most_common(1)[0]
    return [segment for segment, names in zip(working, made, strict=True) if names == usual] if count > 1 else None


def _split_at_anchors(tokens: list[int], marked: list[bool], expected: int) -> list[tuple[int, int]] | None:
    """Runs that differ slightly: each run holds one call of the first kernel that is called ``expected`` times."""
    counts = Counter(token for token, mark in zip(tokens, marked, strict=True) if mark)
    anchors: dict[int, list[int]] = {token: [] for token, count in counts.items() if count == expected}
    for index, token in enumerate(tokens):
        if token in anchors:
            anchors[token].append(index)
    if not anchors:
        return None
    places = min(anchors.values())
    lead = 0
    while lead < places[0] and len({tokens[place - lead - 1] for place in places}) == 1:
        lead += 1
    starts = [place - lead for place in places]
    usual = Counter(after - before for before, after in itertools.pairwise(starts))
    length = usual.most_common(1)[0][0] if usual else len(tokens)
    last_made = max(index for index, mark in enumerate(marked) if mark)
    end = min(len(tokens), max(starts[-1] + length, last_made + 1))
    return list(zip(starts, [*starts[1:], end], strict=True))


def _span_all(calls: Sequence[_Call], trace: Trace) -> tuple[int, int]:
    if trace.synchronizations and any(call.works for call in calls):
        segments = _cut(calls, trace.synchronizations)
        compiled = any(call.compiled for call in calls)
        working = [
            segment
            for segment in segments
            if any(call.compiled if compiled else call.works for call in calls[slice(*segment)])
        ]
        return _trim(calls, working[0][0], working[-1][1])
    return _trim(calls, 0, len(calls))


def _trim(calls: Sequence[_Call], start: int, stop: int) -> tuple[int, int]:
    """The range without the allocations of inputs at its start, unless it holds nothing else."""
    first = start
    while first < stop and calls[first].name in _ALLOCATIONS:
        first += 1
    return (first, stop) if first < stop else (start, stop)


def _build(
    trace: Trace, tops: Sequence[int], calls: Sequence[_Call], ranges: Sequence[tuple[int, int]]
) -> tuple[Iteration, ...]:
    begun = [_lower_bound(calls, start, trace.synchronizations) for start, _ in ranges]
    stops = [calls[stop].start_s if stop < len(calls) else float("inf") for _, stop in ranges]
    firsts = [calls[start].start_s for start, _ in ranges]
    ops: list[list[int]] = [[] for _ in ranges]
    for index, top in enumerate(tops):
        if top == index:
            run = bisect_right(firsts, trace.host_ops[index].start_s) - 1
            if run >= 0 and trace.host_ops[index].start_s < stops[run]:
                ops[run].append(index)
    events: list[list[int]] = [[] for _ in ranges]
    for index, event in enumerate(trace.device_events):
        moment = event.launch_start_s
        if moment is None and event.host_op >= 0:
            moment = trace.host_ops[event.host_op].start_s
        run = bisect_right(firsts if moment is None else begun, event.start_s if moment is None else moment) - 1
        if run >= 0 and (event.start_s if moment is None else moment) < stops[run]:
            events[run].append(index)
    # Of runs that begin in the same moment, all calls and events belong to the last one.
    runs = [(called, launched) for called, launched in zip(ops, events, strict=True) if called or launched]
    return tuple(_iteration(trace, top_ops, device_events) for top_ops, device_events in runs)


def _lower_bound(calls: Sequence[_Call], start: int, synchronizations: Sequence[float]) -> float:
    """The time in seconds from which launches belong to the run that starts with call ``start``."""
    after = bisect_left(synchronizations, calls[start].start_s)
    bound = synchronizations[after - 1] if after else calls[start].start_s
    return max(bound, calls[start - 1].end_s) if start and after else bound


def _iteration(trace: Trace, top_ops: list[int], device_events: list[int]) -> Iteration:
    spans = [(op.start_s, op.start_s + op.duration_s) for op in (trace.host_ops[index] for index in top_ops)]
    spans += [(e.start_s, e.start_s + e.duration_s) for e in (trace.device_events[index] for index in device_events)]
    return Iteration(
        start_s=min(start for start, _ in spans),
        end_s=max(end for _, end in spans),
        top_ops=tuple(top_ops),
        device_events=tuple(device_events),
    )

"""Splits a trace into the runs of the module that it shows.

The sequence of outermost calls repeats from run to run, and this repetition shows the runs. On a GPU a device
synchronisation ends each run, so that each unit of the repetition must start after one; further synchronisations and
other work may precede and follow. On a CPU there are no synchronisations. A generated kernel always belongs to a run.

A trace without a repetition is one run: all of its calls, less the allocations of inputs at its start and the
harness's own arithmetic (``torch.median`` of its timings) at its end.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..records.traced import HostOp, Iteration, Trace

# Finds the repetition in a sequence of calls: a prefix, the same unit several times, a suffix.
#
# It works on tokens, one whole number per call.


_MOST_LENGTHS = 5000
"""The largest number of candidate lengths of a unit. More tokens add no candidates."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """``count`` equal units of ``length`` tokens each, the first of them at index ``start``.

    The units can be shifted by up to ``slack`` tokens and are still equal to each other.
    """

    start: int
    length: int
    count: int
    slack: int

    @property
    def stop(self) -> int:
        return self.start + self.length * self.count


def find_repetition(
    tokens: Sequence[int],
    marked: Sequence[bool],
    starts: Sequence[bool] | None = None,
    expected: int | None = None,
    partial: bool = False,
) -> Repetition | None:
    """Returns the repetition with the shortest unit whose copies contain every marked token.

    Args:
        tokens: one number per call; equal numbers are equal calls.
        marked: for each call, whether it must belong to a unit, and not to the prefix or the suffix.
        starts: for each call, whether a unit other than the first may start there; ``None`` allows every start.
        expected: the number of units, if it is known.
        partial: whether the prefix and the suffix may hold marked tokens of an incomplete unit.

    Returns:
        ``None`` if no unit repeats in such a way.
    """
    text = np.asarray(tokens, dtype=np.int64)
    marks = np.flatnonzero(np.asarray(marked, dtype=bool))
    best: Repetition | None = None
    for length in _list_candidate_lengths(text, marks):
        start, run = _find_longest_run(text, length)
        found = _count_units(start, run, length, expected)
        if found is None:
            continue
        found = _align(found, starts)
        if found is None or not _has_all_launches(found, marks, partial):
            continue
        if len(marks):
            return found
        if best is None or found.length * found.count > best.length * best.count:
            best = found
    return best if best is not None and 2 * best.length * best.count >= len(text) else None


def _list_candidate_lengths(text: NDArray[np.int64], marks: NDArray[np.intp]) -> Iterator[int]:
    """Returns possible lengths of a unit, shortest first: distances between occurrences of a token that each unit
    holds."""
    most = len(text) // 2
    if len(marks):
        counts = Counter(text[marks].tolist())
        rarest = min(counts, key=lambda token: counts[token])
        places = marks[text[marks] == rarest]
        yield from (int(gap) for gap in places[1:] - places[0] if gap <= most)
        return
    lengths: set[int] = set()
    for token, count in Counter(text.tolist()).most_common():
        if count < 2 or len(lengths) > _MOST_LENGTHS:
            break
        places = np.flatnonzero(text == token)
        lengths.update(int(gap) for gap in places[1:] - places[0] if gap <= most)
    yield from sorted(lengths)


def _find_longest_run(text: NDArray[np.int64], length: int) -> tuple[int, int]:
    """Returns start and size of the longest run of tokens with the period ``length``; the size is 0 if there is
    none."""
    equal = np.concatenate(([False], text[:-length] == text[length:], [False]))
    edges = np.flatnonzero(equal[1:] != equal[:-1])
    if len(edges) == 0:
        return 0, 0
    extents = edges[1::2] - edges[::2]
    longest = int(np.argmax(extents))
    return int(edges[2 * longest]), int(extents[longest]) + length


def _count_units(start: int, run: int, length: int, expected: int | None) -> Repetition | None:
    count = run // length
    if count < 2 or (expected is not None and not 1 <= expected <= count):
        return None
    if expected is not None:
        length *= count // expected
        count = expected
    return Repetition(start, length, count, run - length * count)


def _align(found: Repetition, starts: Sequence[bool] | None) -> Repetition | None:
    """Shifts the units so that each unit after the first starts at an allowed position."""
    if starts is None:
        return found
    for shift in range(found.slack + 1):
        start = found.start + shift
        if all(starts[start + unit * found.length] for unit in range(1, found.count)) and (
            found.count > 1 or starts[start]
        ):
            return Repetition(start, found.length, found.count, 0)
    return None


def _has_all_launches(found: Repetition, marks: NDArray[np.intp], partial: bool) -> bool:
    """Whether some shift by at most ``slack`` tokens makes the units contain every marked token."""
    if len(marks) == 0:
        return True
    before, after = int(marks[0]), int(marks[-1])
    if partial:
        return before > found.start - found.length and after < found.stop + found.slack + found.length
    return found.start - 1 < before and after < found.stop + found.slack and after - before < found.stop - found.start


# The nesting of host operations, and which of them are operators or launches of compiled kernels.
#
# ``rows.read_trace`` sorts an enclosing operation before the operations that it encloses; this file relies on it.


_OPERATOR = re.compile(r"\w+::[\w.]+")
_COMPILED = re.compile(r"(graph_\d+_)?cpp_|triton_")


def is_operator(name: str) -> bool:
    """Whether a host operation is a dispatcher operator (``aten::mm``, ``mkldnn::_linear_pointwise``)."""
    return _OPERATOR.fullmatch(name) is not None


def is_compiled_kernel(op: HostOp) -> bool:
    """Whether a host operation launches a kernel that Inductor generated, or the user's own Triton kernel."""
    return op.kernel_file is not None or op.kernel_kwargs is not None or _COMPILED.match(op.name) is not None


def find_top_operators(trace: Trace) -> tuple[int, ...]:
    """Returns for each host operation the index of the outermost operation around it, or its own; -1 for
    annotations."""
    ops = trace.host_ops
    enclosing = {op.parent for op in ops}
    tops: list[int] = []
    for index, op in enumerate(ops):
        above = tops[op.parent] if op.parent >= 0 else -1
        if above < 0 and (index not in enclosing or is_operator(op.name) or is_compiled_kernel(op)):
            above = index
        tops.append(above)
    return tuple(tops)


def list_children(trace: Trace) -> tuple[tuple[int, ...], ...]:
    """Returns for each host operation the indices of the operations directly inside it, in order."""
    lists: list[list[int]] = [[] for _ in trace.host_ops]
    for index, op in enumerate(trace.host_ops):
        if op.parent >= 0:
            lists[op.parent].append(index)
    return tuple(map(tuple, lists))


_SUMMARY = ("aten::empty", "aten::to", "aten::lift_fresh", "aten::detach_", "aten::median")
"""The operators that Inductor's harness calls after the last run, to summarise its timings."""

_ALLOCATIONS = frozenset({"aten::randn", "aten::rand", "aten::randint", "aten::zeros", "aten::as_strided"})
"""The operators that Inductor's harness calls before the first run, to make inputs."""


@dataclass(frozen=True, slots=True)
class _OuterCall:
    """An outermost call on the module's thread, or a device activity in a trace without host operators."""

    name: str
    start_s: float
    end_s: float
    compiled: bool
    works: bool  # it is a device activity or launched one


def split_iterations(trace: Trace, expected: int | None = None) -> tuple[Iteration, ...]:
    """Returns the runs of the module in ``trace``, in order.

    Args:
        trace: as ``read_trace`` returns it.
        expected: the number of runs, if it is known. Runs on a CPU that differ from each other can be separated only if
            the number is known. A trace that does not hold so many runs is split as if the number were unknown.

    Returns:
        One run that spans all calls if no repetition is found; no runs for a trace without events. ``top_ops`` of a
        run are the operators that it called, ``device_events`` the activities that it launched.
    """
    tops = find_top_operators(trace)
    calls = _list_calls(trace, tops)
    if not calls:
        return ()
    relevant = calls[: _find_summary(calls)] or calls
    ranges = None
    if expected != 1:
        ranges = _split_calls(relevant, trace, expected) or (expected and _split_calls(relevant, trace, None)) or None
    return _build(trace, tops, calls, ranges or [_span_all(relevant, trace)])


def _list_calls(trace: Trace, tops: Sequence[int]) -> list[_OuterCall]:
    working = {tops[event.host_op] for event in trace.device_events if event.host_op >= 0}
    outermost = [index for index, top in enumerate(tops) if top == index]
    threads = Counter(trace.host_ops[index].thread for index in outermost)
    if not threads:
        return [
            _OuterCall(event.name, event.start_s, event.start_s + event.duration_s, False, True)
            for event in trace.device_events
        ]
    thread = threads.most_common(1)[0][0]
    ops = [(index, trace.host_ops[index]) for index in outermost if trace.host_ops[index].thread == thread]
    return [
        _OuterCall(op.name, op.start_s, op.start_s + op.duration_s, is_compiled_kernel(op), index in working)
        for index, op in ops
    ]


def _find_summary(calls: Sequence[_OuterCall]) -> int:
    """Returns the index at which the harness's own arithmetic begins; the number of calls if there is none."""
    names = [call.name for call in calls[-64:]]
    offset = len(calls) - len(names)
    for place in range(len(names) - len(_SUMMARY), -1, -1):
        if tuple(names[place : place + len(_SUMMARY)]) == _SUMMARY:
            after = calls[offset + place :]
            return len(calls) if any(call.compiled or call.works for call in after) else offset + place
    return len(calls)


def _split_calls(calls: Sequence[_OuterCall], trace: Trace, expected: int | None) -> list[tuple[int, int]] | None:
    """Returns the range of calls of each run, or ``None`` if the runs cannot be determined."""
    numbers: dict[str, int] = {}
    tokens = [numbers.setdefault(call.name, len(numbers)) for call in calls]
    marked = [call.compiled for call in calls]
    if trace.synchronizations:
        segments = _split_at_synchronizations(calls, trace.synchronizations)
        starts = [False] * len(calls)
        for start, _ in segments:
            starts[start] = True
        found = find_repetition(tokens, marked, starts, expected, trace.truncated)
        if found:
            return _list_units(found, 0)
        alike = _choose_segments(calls, segments, expected)
        if alike or not expected:
            return alike
    found = find_repetition(tokens, marked, None, expected, trace.truncated)
    first = _trim(calls, 0, len(calls))[0]
    if first and not any(marked) and not (found and found.stop > first):  # the repetition lies within the inputs
        found = find_repetition(tokens[first:], marked[first:], None, expected, trace.truncated)
        found = found and Repetition(found.start + first, found.length, found.count, found.slack)
    if found:
        return _list_units(found, _choose_phase(calls, found))
    return _split_at_anchors(tokens, marked, expected) if expected else None


def _list_units(found: Repetition, shift: int) -> list[tuple[int, int]]:
    first = found.start + shift
    return [(first + unit * found.length, first + (unit + 1) * found.length) for unit in range(found.count)]


def _choose_phase(calls: Sequence[_OuterCall], found: Repetition) -> int:
    """Returns by how many tokens to shift the units, if calls before or after the repetition continue it by chance."""
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


def _split_at_synchronizations(calls: Sequence[_OuterCall], synchronizations: Sequence[float]) -> list[tuple[int, int]]:
    """Returns the ranges of calls between consecutive synchronisations, without empty ranges."""
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


def _working(calls: Sequence[_OuterCall], segments: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the segments that ran compiled code; if nothing is compiled, those that did any work."""
    compiled = any(call.compiled for call in calls)
    return [one for one in segments if any(call.compiled if compiled else call.works for call in calls[slice(*one)])]


def _choose_segments(
    calls: Sequence[_OuterCall], segments: Sequence[tuple[int, int]], expected: int | None
) -> list[tuple[int, int]] | None:
    """Returns the segments that are runs although they differ in detail, or the single segment that did any work."""
    working = _working(calls, segments)
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
    """Splits runs that differ slightly: each holds one call of the first kernel that is called ``expected`` times."""
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


def _span_all(calls: Sequence[_OuterCall], trace: Trace) -> tuple[int, int]:
    if trace.synchronizations and any(call.works for call in calls):
        working = _working(calls, _split_at_synchronizations(calls, trace.synchronizations))
        return _trim(calls, working[0][0], working[-1][1])
    return _trim(calls, 0, len(calls))


def _trim(calls: Sequence[_OuterCall], start: int, stop: int) -> tuple[int, int]:
    """Returns the range without the allocations of inputs at its start, unless it holds nothing else."""
    first = start
    while first < stop and calls[first].name in _ALLOCATIONS:
        first += 1
    return (first, stop) if first < stop else (start, stop)


def _build(
    trace: Trace, tops: Sequence[int], calls: Sequence[_OuterCall], ranges: Sequence[tuple[int, int]]
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
    return tuple(_make_iteration(trace, top_ops, device_events) for top_ops, device_events in runs)


def _lower_bound(calls: Sequence[_OuterCall], start: int, synchronizations: Sequence[float]) -> float:
    """Returns the time in seconds from which launches belong to the run that starts with call ``start``."""
    after = bisect_left(synchronizations, calls[start].start_s)
    bound = synchronizations[after - 1] if after else calls[start].start_s
    return max(bound, calls[start - 1].end_s) if start and after else bound


def _make_iteration(trace: Trace, top_ops: list[int], device_events: list[int]) -> Iteration:
    spans = [(op.start_s, op.start_s + op.duration_s) for op in (trace.host_ops[index] for index in top_ops)]
    spans += [(e.start_s, e.start_s + e.duration_s) for e in (trace.device_events[index] for index in device_events)]
    return Iteration(
        start_s=min(start for start, _ in spans),
        end_s=max(end for _, end in spans),
        top_ops=tuple(top_ops),
        device_events=tuple(device_events),
    )

"""Makes the timeline of one profiled step, for a picture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ...records.program import HOST_LANE, IDLE, MOST_INTERVALS, Interval, Timeline
from ...records.traced.program import Work
from .parts import Steps
from .sweep import Span, divide

VISIBLE = 1 / 4000
"""The share of a step below which a gap between two intervals of one kind and label cannot be seen."""


def lanes_of(steps: Steps, host_works: Sequence[Work], rank: int | None = None) -> Timeline:
    """The last profiled step: the host's lane, and a lane for each stream of the device.

    Args:
        steps: the profiled steps.
        host_works: the graphs and operators of the threads that cross the boundaries and call graphs.
        rank: the rank of the process.
    """
    start, end = steps.window.bounds[-2], steps.window.bounds[-1]
    lanes: dict[str, list[Interval]] = defaultdict(list)
    lanes[HOST_LANE] = list(_host_lane(steps, host_works, start, end))
    if not steps.on_host:
        for work in steps.works:
            if work.end_s > start and work.start_s < end:
                lanes[work.lane].append(_interval(work, steps, start, end))
    gap = VISIBLE * (end - start)
    intervals = [one for lane in lanes.values() for one in _joined(lane, gap)]
    while len(intervals) > MOST_INTERVALS:
        gap *= 2
        intervals = [one for lane in lanes.values() for one in _joined(lane, gap) if one.end_s - one.start_s >= gap / 8]
    return Timeline(end - start, tuple(intervals), rank)


def _interval(work: Work, steps: Steps, start_s: float, end_s: float) -> Interval:
    begin, stop = max(work.start_s, start_s) - start_s, min(work.end_s, end_s) - start_s
    name = steps.names.get(work.graph) if work.graph is not None else None
    label = work.label or (name.label if name else f"graph {work.graph}")
    return Interval(work.lane, begin, stop, work.kind, label)


def _host_lane(steps: Steps, works: Sequence[Work], start_s: float, end_s: float) -> Iterator[Interval]:
    spans = [Span(work.start_s, work.end_s, 0) for work in works]
    pauses = divide(spans, start_s, end_s)[1]
    found = [_interval(work, steps, start_s, end_s) for work in works if work.end_s > start_s and work.start_s < end_s]
    for pause in pauses:
        found += (
            Interval(HOST_LANE, one.start_s - start_s, one.end_s - start_s, IDLE, one.label)
            for one in steps.timeline.between(pause.start_s, pause.end_s)
        )
    yield from sorted(found, key=lambda one: one.start_s)


def _joined(lane: Sequence[Interval], gap_s: float) -> Iterator[Interval]:
    """A lane, with neighbours of one kind and label joined where the gap between them is at most ``gap_s``."""
    last: Interval | None = None
    for one in lane:
        alike = last is not None and (last.kind, last.label) == (one.kind, one.label)
        if last is not None and alike and one.start_s - last.end_s <= gap_s:
            last = Interval(last.lane, last.start_s, max(last.end_s, one.end_s), last.kind, last.label)
            continue
        if last is not None:
            yield last
        last = one
    if last is not None:
        yield last

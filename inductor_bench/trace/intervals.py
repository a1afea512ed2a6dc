"""Arithmetic on time intervals in seconds: busy time as a union, and the gaps in it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from statistics import median

from ..records.traced.trace import DeviceEvent, Gaps

_RESOLUTION_S = 0.5e-9
"""Shortest gap in seconds. A trace counts whole nanoseconds, so that a shorter gap is the rounding of a float."""


def merge(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The union of ``(start, end)`` pairs as disjoint pairs in order; drops pairs that end before they start."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(interval for interval in intervals if interval[1] >= interval[0]):
        if merged and start <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def union_length(intervals: Iterable[tuple[float, float]]) -> float:
    """The total time that the intervals cover; overlapping parts count once."""
    return math.fsum(end - start for start, end in merge(intervals))


def spans(events: Iterable[DeviceEvent]) -> list[tuple[float, float]]:
    """The ``(start, end)`` of each event, in the order given."""
    return [(event.start_s, event.start_s + event.duration_s) for event in events]


def busy_time(events: Iterable[DeviceEvent]) -> dict[int, float]:
    """The busy seconds of each device by its index; activities that overlap on several streams count once."""
    return {device: union_length(spans(found)) for device, found in _by_device(events).items()}


def gaps(events: Iterable[DeviceEvent]) -> Gaps:
    """The gaps between the first and the last activity of each device, summarised over all devices."""
    return _summarise(pause for on_device in _by_device(events).values() for pause in _pauses(spans(on_device)))


def gaps_between(intervals: Iterable[tuple[float, float]]) -> Gaps:
    """The gaps between the first and the last interval: stretches that no interval covers."""
    return _summarise(_pauses(intervals))


def _pauses(intervals: Iterable[tuple[float, float]]) -> Iterator[float]:
    busy = merge(intervals)
    for (_, end), (start, _) in itertools.pairwise(busy):
        if start - end > _RESOLUTION_S:
            yield start - end


def _summarise(pauses: Iterable[float]) -> Gaps:
    found = list(pauses)
    if not found:
        return Gaps(count=0, median_s=0.0, longest_s=0.0)
    return Gaps(count=len(found), median_s=median(found), longest_s=max(found))


def _by_device(events: Iterable[DeviceEvent]) -> dict[int, list[DeviceEvent]]:
    groups: dict[int, list[DeviceEvent]] = {}
    for event in events:
        groups.setdefault(event.device, []).append(event)
    return groups

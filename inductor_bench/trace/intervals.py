"""Arithmetic on time intervals: busy time as a union, and the gaps in it. Pure functions, seconds throughout."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from statistics import median

from ..records.traced.trace import DeviceEvent, Gaps

# A trace counts whole nanoseconds. Half of one is the rounding of a float, not idle time.
_RESOLUTION_S = 0.5e-9


def merge(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The union of ``(start, end)`` pairs as disjoint ones in order; those that end before they start are dropped."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(interval for interval in intervals if interval[1] >= interval[0]):
        if merged and start <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def union_length(intervals: Iterable[tuple[float, float]]) -> float:
    """The time that at least one of the intervals covers."""
    return math.fsum(end - start for start, end in merge(intervals))


def spans(events: Iterable[DeviceEvent]) -> list[tuple[float, float]]:
    """The ``(start, end)`` of each event, in the order given."""
    return [(event.start_s, event.start_s + event.duration_s) for event in events]


def busy_time(events: Iterable[DeviceEvent]) -> dict[int, float]:
    """Per device, the time in which anything ran on it: activities that overlap on several streams count once."""
    return {device: union_length(spans(found)) for device, found in _by_device(events).items()}


def gaps(events: Iterable[DeviceEvent]) -> Gaps:
    """The idle stretches between the first and the last activity of each device, all devices together."""
    return _summarise(pause for on_device in _by_device(events).values() for pause in _pauses(spans(on_device)))


def gaps_between(intervals: Iterable[tuple[float, float]]) -> Gaps:
    """The stretches between the first and the last interval that none of them covers."""
    return _summarise(_pauses(intervals))


def _pauses(intervals: Iterable[tuple[float, float]]) -> Iterator[float]:
    busy = merge(intervals)
    for (_, end), (start, _) in itertools.pairwise(busy):
        if start - end > _RESOLUTION_S:
            yield start - end


def _summarise(pauses: Iterable[float]) -> Gaps:
    found = list(pauses)
    if not found:
        return Gaps(count=0, total_s=0.0, median_s=0.0, longest_s=0.0)
    return Gaps(count=len(found), total_s=math.fsum(found), median_s=median(found), longest_s=max(found))


def _by_device(events: Iterable[DeviceEvent]) -> dict[int, list[DeviceEvent]]:
    groups: dict[int, list[DeviceEvent]] = {}
    for event in events:
        groups.setdefault(event.device, []).append(event)
    return groups

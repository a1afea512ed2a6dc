"""Gives each moment of a stretch of time to one of the spans that cover it, or to none."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """``priority``: the smallest one wins."""

    start_s: float
    end_s: float
    priority: int


class Pause(NamedTuple):
    """A stretch without any span. ``following`` is the index of the span that ends it, or -1."""

    start_s: float
    end_s: float
    following: int


def divide(spans: Sequence[Span], start_s: float, end_s: float) -> tuple[list[float], list[Pause]]:
    """The seconds that each span gets between ``start_s`` and ``end_s``, and the pauses.

    A moment belongs to the span of the smallest priority that covers it; of several to the one that began first.
    The seconds and the pauses add up to ``end_s - start_s``. Time is O(n·log n).
    """
    given = [0.0] * len(spans)
    pauses: list[Pause] = []
    active: list[tuple[int, float, int]] = []
    now = start_s

    def advance(until: float, following: int) -> None:
        nonlocal now
        while now < until:
            while active and spans[active[0][2]].end_s <= now:
                heapq.heappop(active)
            if not active:
                pauses.append(Pause(now, until, following))
                now = until
                return
            owner = active[0][2]
            stop = min(until, spans[owner].end_s)
            given[owner] += stop - now
            now = stop

    for index in _in_order(spans):
        one = spans[index]
        if one.start_s >= end_s:
            advance(end_s, index)
            break
        advance(one.start_s, index)
        if one.end_s > now:
            heapq.heappush(active, (one.priority, one.start_s, index))
    advance(end_s, -1)
    return given, pauses


def _in_order(spans: Sequence[Span]) -> Iterable[int]:
    return sorted(range(len(spans)), key=lambda index: spans[index].start_s)

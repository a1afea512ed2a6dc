"""What the plots place where, worked out without a drawing library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..records.run import ModuleRecord
from . import palette
from .ranking import idle_name, module_time_s


class Segment(NamedTuple):
    """A piece of a bar; ``start`` and ``share`` are of the graph's time, ``time_s`` is in seconds."""

    title: str
    start: float
    share: float
    colour: str
    time_s: float


class Point(NamedTuple):
    """A numbered point on the canvas, in pixels."""

    x: float
    y: float
    number: int


def segments(module: ModuleRecord) -> list[Segment]:
    """One graph's bar: its categories, the largest first, then idle (or host) time."""
    # A profiler can stretch the busy time beyond the wall time; shares are of the longer one.
    whole = module_time_s(module)
    parts = [(total.time_s, total.name.title, palette.COLOURS[total.name]) for total in module.categories]
    parts.sort(reverse=True)
    if module.wall_time_s and module.idle is not None:
        parts.append((module.idle.time_s, idle_name(module), palette.IDLE))
    bar, start = [], 0.0
    for seconds, title, colour in parts:
        share = seconds / whole if whole else 0.0
        bar.append(Segment(title, start, share, colour, seconds))
        start += share
    return bar


def spread(centres: Sequence[float], widths: Sequence[float], low: float, high: float, gap: float) -> list[float]:
    """Where labels go that stand side by side between ``low`` and ``high``: as near to their centres as they can.

    Args:
        centres: where each would like to be, in ascending order.
        widths: how wide each is; together with the gaps they must fit.
        low, high: the room.
        gap: between two of them.
    """
    places: list[float] = []
    edge = low
    for centre, width in zip(centres, widths, strict=True):
        left = max(edge, centre - width / 2)
        places.append(left)
        edge = left + width + gap
    edge = high
    for index in reversed(range(len(places))):
        places[index] = min(places[index], edge - widths[index])
        edge = places[index] - gap
    return [left + width / 2 for left, width in zip(places, widths, strict=True)]


def neighbours(points: Sequence[Point], across: float, along: float) -> list[list[Point]]:
    """The points in groups in which each lies within ``across`` by ``along`` pixels of another one."""
    groups: list[list[Point]] = []
    for point in sorted(points):
        near = [g for g in groups if any(abs(o.x - point.x) < across and abs(o.y - point.y) < along for o in g)]
        for group in near:
            groups.remove(group)
        groups.append([*(other for group in near for other in group), point])
    return groups

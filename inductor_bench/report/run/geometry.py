"""What the plots place where, worked out without a drawing library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...records.run import ModuleRecord
from ..text import palette
from ..text.ranking import idle_name, module_time_s

MARGIN = 3.0
GAPS = (4.0, 12.0)
"""Pixels around a label, and how far it can be from its marks."""


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


class Box(NamedTuple):
    """A rectangle on the canvas, in pixels; the bottom is the smaller ordinate."""

    left: float
    bottom: float
    right: float
    top: float

    def covered(self, other: Box) -> float:
        """The area that both have."""
        across = min(self.right, other.right) - max(self.left, other.left)
        along = min(self.top, other.top) - max(self.bottom, other.bottom)
        return max(across, 0.0) * max(along, 0.0)


def around(marks: Sequence[Box], width: float, height: float) -> list[Box]:
    """Where a label of these marks can go: above them, at their right, at their left, below; the nearest first."""
    left, bottom = min(mark.left for mark in marks), min(mark.bottom for mark in marks)
    right, top = max(mark.right for mark in marks), max(mark.top for mark in marks)
    x, y = (left + right - width) / 2, (bottom + top - height) / 2
    corners = [
        corner
        for gap in GAPS
        for corner in ((x, top + gap), (right + gap, y), (left - gap - width, y), (x, bottom - gap - height))
    ]
    return [Box(left, bottom, left + width, bottom + height) for left, bottom in corners]


def beside(curve: Sequence[tuple[float, float]], width: float, height: float) -> list[Box]:
    """Where the name of a rising curve can go: at the right of each of its points."""
    corners = [(x + 7, y + 4) for x, y in curve]
    return [Box(left, bottom, left + width, bottom + height) for left, bottom in corners]


def best_place(places: Sequence[Box], room: Box, taken: Sequence[Box]) -> Box:
    """The first of the places that lies in the room and on nothing that is taken, or else the one that comes nearest
    to that."""

    def badness(place: Box) -> float:
        near = Box(place.left - MARGIN, place.bottom - MARGIN, place.right + MARGIN, place.top + MARGIN)
        outside = place.covered(place) - place.covered(room)
        return outside + sum(near.covered(other) for other in taken)

    return min(places, key=badness)


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

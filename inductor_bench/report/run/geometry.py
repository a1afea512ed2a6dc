"""Computes positions of bars and labels in the plots, without a drawing library."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...analysis.step_costs import category_totals, module_time_s
from ...records.module import ModuleRecord
from ...records.run import Run
from ..text import palette
from ..text.ranking import idle_name

MARGIN = 3.0
"""Free pixels around a label."""

GAPS = (4.0, 12.0)
"""Possible distances in pixels of a label from its marks."""


class Segment(NamedTuple):
    """A piece of a bar. ``start`` and ``share`` are shares of the graph's time; ``time_s`` is in seconds."""

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
    """A rectangle on the canvas, in pixels; ``bottom`` is smaller than ``top``."""

    left: float
    bottom: float
    right: float
    top: float

    def covered(self, other: Box) -> float:
        """Returns the area of the intersection."""
        across = min(self.right, other.right) - max(self.left, other.left)
        along = min(self.top, other.top) - max(self.bottom, other.bottom)
        return max(across, 0.0) * max(along, 0.0)


def around(marks: Sequence[Box], width: float, height: float) -> list[Box]:
    """Returns possible places for a label of these marks: above, right, left, below; the nearest first."""
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
    """Returns possible places for the name of a rising curve: to the right of each of its points."""
    corners = [(x + 7, y + 4) for x, y in curve]
    return [Box(left, bottom, left + width, bottom + height) for left, bottom in corners]


def best_place(places: Sequence[Box], room: Box, taken: Sequence[Box]) -> Box:
    """Returns the first place that is inside ``room`` and covers nothing in ``taken``; otherwise the place with the
    smallest overlap."""

    def badness(place: Box) -> float:
        near = Box(place.left - MARGIN, place.bottom - MARGIN, place.right + MARGIN, place.top + MARGIN)
        outside = place.covered(place) - place.covered(room)
        return outside + sum(near.covered(other) for other in taken)

    return min(places, key=badness)


def segments(module: ModuleRecord) -> list[Segment]:
    """Returns the bar of one graph: its categories, the largest first, then idle (or host) time."""
    # The profiler can make the busy time longer than the wall time. Shares refer to the longer one.
    whole = module_time_s(module)
    parts = [(total.time_s, total.name.title, palette.category_colour(total.name)) for total in module.categories]
    parts.sort(reverse=True)
    idle = module.times.idle
    if module.times.wall_time_s and idle is not None:
        parts.append((idle.time_s, idle_name(module), palette.IDLE))
    return _bar(parts, whole)


def step_segments(run: Run, module: ModuleRecord) -> list[Segment]:
    """Returns the bar of one graph in the program's step: its categories, the largest first."""
    totals = category_totals(run, module)
    whole = sum(total.time_s for total in totals)
    return _bar([(total.time_s, total.name.title, palette.category_colour(total.name)) for total in totals], whole)


def _bar(parts: Iterable[tuple[float, str, str]], whole: float) -> list[Segment]:
    bar, start = [], 0.0
    for seconds, title, colour in parts:
        share = seconds / whole if whole else 0.0
        bar.append(Segment(title, start, share, colour, seconds))
        start += share
    return bar


def spread(centres: Sequence[float], widths: Sequence[float], low: float, high: float, gap: float) -> list[float]:
    """Places labels side by side between ``low`` and ``high``, as near to their centres as possible.

    Args:
        centres: the wanted position of each label, in ascending order.
        widths: the width of each label; the sum with the gaps must fit.
        low, high: the limits of the room.
        gap: the smallest distance between two labels.

    Returns:
        The position of each label's centre.
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
    """Groups points: each point of a group lies within ``across`` by ``along`` pixels of another point of the group."""
    groups: list[list[Point]] = []
    for point in sorted(points):
        near = [g for g in groups if any(abs(o.x - point.x) < across and abs(o.y - point.y) < along for o in g)]
        for group in near:
            groups.remove(group)
        groups.append([*(other for group in near for other in group), point])
    return groups

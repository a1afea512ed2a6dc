"""What a timeline shows: its lanes, the colours of its intervals, and their legend. Pure functions of records."""

from __future__ import annotations

from collections.abc import Iterable

from ....records.program import COLLECTIVE, COPY, EAGER, GRAPH, HOST_LANE, IDLE, OPTIMIZER, Interval, Timeline
from ...text import names, palette

MOST_GRAPHS_NAMED = 4
_KIND_NAMES = {
    EAGER: "eager operators",
    OPTIMIZER: "optimizer",
    COLLECTIVE: "collectives",
    COPY: "copies",
    IDLE: "waiting, Python",
}


def lanes_of(timeline: Timeline) -> list[str]:
    """The lanes from top to bottom: the host, then the device's streams by their first interval."""
    found = dict.fromkeys(one.lane for one in sorted(timeline.intervals, key=lambda one: one.start_s))
    return sorted(found, key=lambda lane: lane != HOST_LANE)


def interval_colour(one: Interval, colour_of: dict[str, str]) -> str:
    """The colour of an interval; ``colour_of`` has those of the graphs by label."""
    return colour_of.get(one.label, palette.PARTS[GRAPH]) if one.kind == GRAPH else palette.part_colour(one.kind)


def legend_of(intervals: Iterable[Interval], colour_of: dict[str, str]) -> list[tuple[str, str]]:
    """The entries of a legend for these intervals: ``(name, colour)``."""
    kinds = {one.kind for one in intervals}
    graphs = [(names.end(names.clean(label), 28), colour) for label, colour in colour_of.items()]
    named = graphs if len(graphs) <= MOST_GRAPHS_NAMED else [("compiled graphs", palette.PARTS[GRAPH])]
    kinds_shown = [*(kind for kind in _KIND_NAMES if kind in kinds), *sorted(kinds - {GRAPH, *_KIND_NAMES})]
    others = [(_KIND_NAMES.get(kind) or names.clean(kind), palette.part_colour(kind)) for kind in kinds_shown]
    return [*(named if GRAPH in kinds else []), *others]

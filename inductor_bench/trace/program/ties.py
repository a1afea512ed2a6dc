"""Ties the device events of compiled graphs to kernels and call sites, those of CUDA graphs' replays too."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...records.code.source import ModuleSource
from ...records.program import COPY
from ...records.traced.activity import Activity
from ...records.traced.program import GraphCall, ProgramTrace
from ...records.traced.trace import DeviceEvent, Iteration, Trace
from ..alignment import align_calls
from ..attribution import attribute_activities
from .owners import Owner, Owners


@dataclass(frozen=True)
class KnownGraph:
    """What is known of a compiled graph beside the program.

    Attributes:
        source: its module.
        launches: the activities of one run of the module by itself, in order; empty where it was not run.
    """

    source: ModuleSource
    launches: tuple[Activity, ...] = ()


def tie_events(
    program: ProgramTrace,
    calls: Sequence[GraphCall],
    owners: Sequence[Owner],
    units: Owners,
    graphs: Mapping[int, KnownGraph],
) -> dict[int, Activity]:
    """The activity of each device event of a graph call whose graph is known, by the index of the event."""
    launched: dict[int, list[int]] = defaultdict(list)
    replayed: dict[int, list[int]] = defaultdict(list)
    for index, owner in enumerate(owners):
        if owner.call >= 0 and owner.kind != COPY:
            (replayed if owner.replayed else launched)[owner.call].append(index)
    tops = _tops_by_call(units)
    found: dict[int, Activity] = {}
    for graph, known in graphs.items():
        mine = [number for number, call in enumerate(calls) if call.graph == graph]
        iterations = [
            Iteration(calls[number].start_s, calls[number].end_s, tuple(tops[number]), tuple(launched[number]))
            for number in mine
        ]
        activities = attribute_activities(program.trace, iterations, known.source)
        places = [place for one in iterations for place in one.device_events]
        found.update(zip(places, activities, strict=True))
        order = _Replays(known)
        for number in mine:
            found.update(order.tie(program, replayed[number]))
    return found


def host_activities(
    program: ProgramTrace, calls: Sequence[GraphCall], units: Owners, graph: int, source: ModuleSource
) -> tuple[Activity, ...]:
    """On a CPU the outermost operators of a graph's calls as activities; kernels that were not recorded are absent."""
    tops = _tops_by_call(units)
    iterations = [
        Iteration(call.start_s, call.end_s, tuple(tops[number]), ())
        for number, call in enumerate(calls)
        if call.graph == graph
    ]
    return attribute_activities(program.trace, iterations, source)


def _tops_by_call(units: Owners) -> dict[int, list[int]]:
    tops: dict[int, list[int]] = defaultdict(list)
    for index, top in enumerate(units.tops):
        if top == index and units.in_call[index] >= 0:
            tops[units.in_call[index]].append(index)
    return tops


class _Replays:
    """Ties replayed events to the launches of the module by itself, by their order.

    A replay repeats the launches in the order in which the module made them.
    """

    def __init__(self, known: KnownGraph) -> None:
        self._known = known
        self._launches = known.launches
        self._names = [one.name for one in known.launches]
        self._kinds = [one.kind for one in known.launches]
        self._pairs: dict[tuple[str, ...], list[int | None]] = {}

    def tie(self, program: ProgramTrace, places: Sequence[int]) -> Iterable[tuple[int, Activity]]:
        """The activities of the replayed events of one graph call, which are sorted by start."""
        if not places:
            return
        events = [program.trace.device_events[place] for place in places]
        if not self._launches:
            yield from zip(places, self._by_module(events), strict=True)
            return
        names = tuple(event.name for event in events)
        pairs = self._pairs.get(names)
        if pairs is None:
            pairs = self._pairs[names] = self._fill(align_calls(self._names, names), [one.kind for one in events])
        for place, event, launch in zip(places, events, pairs, strict=True):
            if launch is not None:
                known = self._launches[launch]
                yield place, replace(known, name=event.name, duration_s=event.duration_s, event=event)

    def _fill(self, pairs: list[int | None], kinds: Sequence[str]) -> list[int | None]:
        """Also pairs launches of other names between two pairs, where their kinds are the same one after the other.

        A library may choose another kernel in the program than in the module by itself.
        """
        bounds = [(-1, -1), *((at, launch) for at, launch in enumerate(pairs) if launch is not None)]
        bounds.append((len(pairs), len(self._kinds)))
        for (at, launch), (next_at, next_launch) in itertools.pairwise(bounds):
            if list(kinds[at + 1 : next_at]) == self._kinds[launch + 1 : next_launch]:
                pairs[at + 1 : next_at] = range(launch + 1, next_launch)
        return pairs

    def _by_module(self, events: Sequence[DeviceEvent]) -> tuple[Activity, ...]:
        """Ties by the calls in the module's text, where the module was not run by itself."""
        alone = tuple(event._replace(host_op=-1, launch_start_s=None) for event in events)
        first, last = events[0].start_s, events[-1].start_s
        run = Iteration(first, last, (), tuple(range(len(alone))))
        return attribute_activities(Trace((), alone, (), ()), [run], self._known.source)

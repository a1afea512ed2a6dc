"""Makes the works of a program's steps: each device event, on a CPU each stretch of the host, with who did it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...records.program import COLLECTIVE, EAGER, GRAPH, HOST_LANE, OPTIMIZER
from ...records.traced.activity import Activity
from ...records.traced.program import GraphCall, ProgramTrace, StepWindow, Work
from ..reading.rows import collector_paused
from .hosts import DATA_LOADING_RANGE, HostTimeline
from .lookup import RangesByThread
from .owners import Owners, unit_name
from .reader import Markers
from .steps import find_graph_calls, find_window, without_first
from .ties import KnownGraph, host_activities, tie_events

FUSED_OPTIMIZER = "::FusedOptimizerTensorListMetadata<"
"""A part of the name of each kernel that updates parameters for an optimizer with ``fused=True``. (2.11)"""


@dataclass(frozen=True)
class ProgramWorks:
    """The steps of a profile.

    Attributes:
        window: the steps that count.
        calls: all calls of compiled graphs, also those outside the window.
        works: all works, also those outside the window, by start.
        host_works: the graphs and operators of the threads that cross the boundaries and call graphs; on a CPU the same
            as ``works``.
        activities: the activities of each known graph within the window.
        timeline: what the host did.
        tops: for each host operator the outermost eager operator around it, or -1.
        optimizer_calls: the number of calls of each optimizer within the window.
    """

    window: StepWindow
    calls: tuple[GraphCall, ...]
    works: tuple[Work, ...]
    host_works: tuple[Work, ...]
    activities: Mapping[int, tuple[Activity, ...]]
    timeline: HostTimeline
    tops: Sequence[int]
    optimizer_calls: Mapping[str, int]


def find_works(
    program: ProgramTrace, markers: Markers, graphs: Mapping[int, KnownGraph], *, on_host: bool
) -> ProgramWorks | None:
    """The works of a program; ``None`` where the trace holds no whole step.

    Args:
        program: its trace.
        markers: the names of the observer's ranges.
        graphs: what is known of the compiled graphs, by their numbers.
        on_host: whether the device is the host itself.
    """
    with collector_paused():
        return _find_works(program, markers, graphs, on_host)


def _find_works(
    program: ProgramTrace, markers: Markers, graphs: Mapping[int, KnownGraph], on_host: bool
) -> ProgramWorks | None:
    window = find_window(program, markers)
    if window is None:
        return None
    calls = find_graph_calls(program, markers)
    units = Owners(program, calls)
    tops = units.eager_tops
    # In a backward pass on a device the main thread waits, without an operator, for the thread that calls the graphs.
    threads = {window.thread} if on_host else {window.thread, *(call.thread for call in calls)}
    host_works = tuple(_host_works(program, calls, units, threads))
    if on_host:
        works = host_works
        activities = {
            number: host_activities(
                program, [call for call in calls if window.launched(call.start_s)], units, number, one
            )
            for number, one in ((number, known.source) for number, known in graphs.items())
        }
    else:
        window = without_first(window)
        works = _device_works(program, calls, units, graphs)
        activities = _by_graph(works, window)
    return ProgramWorks(
        window=window,
        calls=calls,
        works=works,
        host_works=host_works,
        activities=activities,
        timeline=HostTimeline(program, window.thread, tops, markers.boundary),
        tops=tops,
        optimizer_calls=_count_optimizers(units, window),
    )


def _device_works(
    program: ProgramTrace, calls: Sequence[GraphCall], units: Owners, graphs: Mapping[int, KnownGraph]
) -> tuple[Work, ...]:
    owners = units.all()
    tied = tie_events(program, calls, owners, units, graphs)
    works = []
    first = min((event.device for event in program.trace.device_events), default=0)
    for index, (event, owner) in enumerate(zip(program.trace.device_events, owners, strict=True)):
        launch = program.runtime[owner.launch] if owner.launch >= 0 else None
        works.append(
            Work(
                kind=owner.kind,
                label=owner.label,
                start_s=event.start_s,
                end_s=event.start_s + event.duration_s,
                launch_start_s=launch.start_s if launch else event.start_s,
                launch_end_s=launch.end_s if launch else event.start_s,
                graph=calls[owner.call].graph if owner.call >= 0 else None,
                call=owner.call,
                replayed=owner.replayed,
                op=owner.op,
                event=index,
                lane=f"stream {event.stream}"
                if event.device == first
                else f"device {event.device} stream {event.stream}",
                moved_bytes=event.moved_bytes,
                is_fused=FUSED_OPTIMIZER in event.name,
                activity=tied.get(index),
            )
        )
    return tuple(works)


def _host_works(
    program: ProgramTrace, calls: Sequence[GraphCall], units: Owners, threads: Collection[str]
) -> Iterator[Work]:
    """The calls of graphs and the outermost operators of these threads, without those that load data."""
    loading = RangesByThread(
        (one.thread, one.start_s, one.end_s, 0)
        for one in program.annotations
        if one.name.startswith(DATA_LOADING_RANGE)
    )
    number_of = {call.op: number for number, call in enumerate(calls)}
    for index, op in enumerate(program.trace.host_ops):
        number = number_of.get(index, -1)
        alone = units.tops[index] == index and units.in_call[index] < 0
        if op.thread not in threads or not (number >= 0 or alone):
            continue
        end = op.start_s + op.duration_s
        work = Work(EAGER, unit_name(op.name), op.start_s, end, op.start_s, end, op=index, lane=HOST_LANE)
        if number >= 0:
            yield replace(work, kind=GRAPH, label="", graph=calls[number].graph, call=number, op=-1)
        elif op.name.startswith(("c10d::", "_c10d_functional::")):
            yield replace(work, kind=COLLECTIVE, label=op.name.partition("::")[2].rstrip("_"))
        elif loading.find(op.thread, op.start_s) < 0:
            optimizer = units.optimizer_at(op.thread, op.start_s)
            yield replace(work, kind=OPTIMIZER, label=optimizer) if optimizer else work


def _by_graph(works: Sequence[Work], window: StepWindow) -> dict[int, tuple[Activity, ...]]:
    found: dict[int, list[Activity]] = defaultdict(list)
    for work in works:
        if work.activity is not None and work.graph is not None and window.launched(work.launch_start_s):
            found[work.graph].append(work.activity)
    return {graph: tuple(activities) for graph, activities in found.items()}


def _count_optimizers(units: Owners, window: StepWindow) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for name, one in units.optimizers:
        if window.launched(one.start_s) and one.name.startswith("Optimizer.step#"):
            counts[name] += 1
    return dict(counts)

"""Makes the works of a program's steps: each device event with its kernel, and what the host did at each moment."""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from ..records.code import ModuleSource
from ..records.run import (
    ALLOCATING,
    BACKWARD,
    COLLECTIVE,
    COPY,
    COPYING,
    CPU_OPERATORS,
    DATA_LOADING,
    DISPATCHING,
    EAGER,
    GRAPH,
    GUARDS,
    HOST_LANE,
    LAUNCHING,
    MOST_INTERVALS,
    OPTIMIZER,
    OPTIMIZING,
    PYTHON,
    SYNCHRONISING,
    KernelSpans,
)
from ..records.traced import (
    Activity,
    DeviceEvent,
    GraphCall,
    HostActivity,
    HostOp,
    Iteration,
    ProgramTrace,
    StepWindow,
    Trace,
    Work,
)
from .attribution import align_calls, attribute_activities
from .program_trace import (
    NODE,
    Markers,
    Owner,
    Owners,
    RangesByThread,
    find_graph_calls,
    find_window,
    leave_out_first_step,
    name_unit,
)
from .rows import collector_paused

# Finds what the host did at each moment of a program's trace, in the words that name idle parts.


_SYNCHRONISING = re.compile(r"\w*Synchronize|\w*QueueFinish")
_ALLOCATING = re.compile(
    r"(?:cuda|hip)(?:Malloc|Free|HostAlloc|HostFree|HostRegister|HostUnregister)\w*"
    r"|cuMem(?:Alloc|Create|Map|Unmap|Release|SetAccess|AddressReserve|AddressFree)\w*"
)
_READS = ("aten::item", "aten::_local_scalar_dense")
"""Operators that read a value. If the value lies on the device, they call the device's runtime and wait."""

_GUARDS = ("TorchDynamo Cache Lookup", "Torch-Compiled Region", "Pregraph bytecode")
DATA_LOADING_RANGE = "enumerate(DataLoader)#"
_OPTIMIZER_RANGE = "Optimizer."
_COMPUTES_NOTHING = re.compile(
    r"aten::(?:\w*view\w*|\w*reshape\w*|expand\w*|permute|transpose|t|slice|select|narrow|split\w*|chunk|unbind|as_strided"
    r"|detach_?|alias|squeeze|unsqueeze|flatten|unflatten|\w*empty\w*|to|_to_copy|contiguous|lift_fresh|resolve_\w+"
    r"|result_type|size|stride|item|is_\w+|set_|resize_|movedim|swapaxes|diagonal|real|imag|broadcast\w*|unfold"
    r"|_local_scalar_dense|set_data|requires_grad_)"
)
"""Operators that make views or empty tensors, or read sizes. If they launch nothing, they do not count as computation
of the host."""


class _Span(NamedTuple):
    """A stretch of one thread. An empty label leaves the label of the stretch around it."""

    start_s: float
    end_s: float
    label: str
    op: int = -1
    lasting: bool = False  # its label is used for everything in it
    graph: int = -1
    alone: str = ""  # its label if no stretch around it has one


class HostTimeline:
    """The activities of the thread of the steps; while it recorded nothing, those of the threads of the backward.

    Args:
        program: the trace.
        thread: the thread that crosses the boundaries.
        units: the outermost operators and the graph calls around operators.
        calls: the calls of compiled graphs.
        boundary: the name of the boundaries' ranges, which are no activity.

    """

    def __init__(
        self, program: ProgramTrace, thread: str, units: Owners, calls: Sequence[GraphCall], boundary: str
    ) -> None:
        backward = {op.thread for op in program.trace.host_ops if op.name.startswith(NODE)} - {thread}
        spans = _HostSpans(program, units, calls, boundary)
        self._main = _Thread(spans.of(thread))
        self._others = [_Thread(spans.of(other)) for other in sorted(backward)]

    def between(self, start_s: float, end_s: float) -> Iterator[HostActivity]:
        """Returns the host's activities in a stretch of time, in order and without holes."""
        for one in self._main.between(start_s, end_s):
            if one.label != PYTHON or not self._others:
                yield one
                continue
            yield from _find_first_active(self._others, one.start_s, one.end_s)


def _find_first_active(threads: Sequence[_Thread], start_s: float, end_s: float) -> Iterator[HostActivity]:
    for one in threads[0].between(start_s, end_s):
        if one.label == PYTHON and len(threads) > 1:
            yield from _find_first_active(threads[1:], one.start_s, one.end_s)
        else:
            yield one


class _Thread:
    """The activities of one thread, disjoint and in order; times without an activity are Python."""

    def __init__(self, spans: Iterable[_Span]) -> None:
        self._activities = list(_flatten_spans(spans))
        self._ends = [one.end_s for one in self._activities]

    def between(self, start_s: float, end_s: float) -> Iterator[HostActivity]:
        now = start_s
        for place in range(bisect_right(self._ends, start_s), len(self._ends)):
            one = self._activities[place]
            if one.start_s >= end_s:
                break
            if one.start_s > now:
                yield HostActivity(now, one.start_s, PYTHON)
                now = one.start_s
            is_whole = one.start_s == now and one.end_s <= end_s
            yield one if is_whole else HostActivity(now, min(one.end_s, end_s), one.label, one.op, one.graph)
            now = one.end_s
        if now < end_s:
            yield HostActivity(now, end_s, PYTHON)


class _HostSpans:
    """The stretches of threads with what they are: operators, ranges, and calls of the device's runtime."""

    def __init__(self, program: ProgramTrace, units: Owners, calls: Sequence[GraphCall], boundary: str) -> None:
        self._program, self._units, self._boundary = program, units, boundary
        self._eager_tops, self._graphs = units.eager_tops, _list_graphs_within(program, calls)
        self._called: dict[str, list[float]] = defaultdict(list)
        for one in program.runtime:
            self._called[one.thread].append(one.start_s)
        self._pageable = {
            event.correlation: SYNCHRONISING if "DtoH" in event.name else COPYING
            for event in program.trace.device_events
            if event.kind == "memcpy" and "Pageable" in event.name
        }

    def of(self, thread: str) -> list[_Span]:
        """Returns the stretches of one thread, sorted, an enclosing one first."""
        found = [
            self._operator(index)
            for index, op in enumerate(self._program.trace.host_ops)
            if op.thread == thread and not op.name.startswith(self._boundary)
        ]
        for one in self._program.annotations:
            if one.thread == thread:
                label = _label_range(one.name)
                found.append(_Span(one.start_s, one.end_s, label, lasting=label == DATA_LOADING))
        for one in self._program.runtime:
            if one.thread == thread:
                label = self._pageable.get(one.correlation, _label_runtime_call(one.name))
                found.append(_Span(one.start_s, one.end_s, label, alone=LAUNCHING))
        return sorted(found, key=lambda span: (span.start_s, -span.end_s))

    def _operator(self, index: int) -> _Span:
        op = self._program.trace.host_ops[index]
        end_s = op.start_s + op.duration_s
        graph = self._graphs.get(index, -1)
        waits = op.name in _READS and self._launches(op.thread, op.start_s, end_s)
        label = SYNCHRONISING if waits else self._label(index, op, graph >= 0)
        return _Span(op.start_s, end_s, label, self._eager_tops[index], waits, graph)

    def _label(self, index: int, op: HostOp, has_graph: bool) -> str:
        label = _label_operator(op.name)
        if label == GUARDS:
            return GUARDS
        if has_graph:
            return LAUNCHING
        if label == BACKWARD:
            return BACKWARD
        if label == CPU_OPERATORS and not self._launches(op.thread, op.start_s, op.start_s + op.duration_s):
            return CPU_OPERATORS
        top = self._units.tops[index]
        if self._units.in_call[index] >= 0 or self._units.optimizer_at(op.thread, op.start_s):
            return ""
        return "" if top >= 0 and self._program.trace.host_ops[top].name.startswith(NODE) else DISPATCHING

    def _launches(self, thread: str, start_s: float, end_s: float) -> bool:
        """Whether a thread calls the device's runtime in a stretch of time."""
        called = self._called.get(thread, ())
        return bisect_left(called, start_s) < bisect_left(called, end_s)


@lru_cache(maxsize=4096)
def _label_operator(name: str) -> str:
    """Returns what an operator or a range is by its name; that of a CPU's operator only if it launches nothing."""
    if name.startswith(_GUARDS):
        return GUARDS
    if name.startswith(NODE):
        return BACKWARD
    computes = "::" in name and not name.startswith("c10d") and not _COMPUTES_NOTHING.fullmatch(name)
    return CPU_OPERATORS if computes else ""


def _list_graphs_within(program: ProgramTrace, calls: Sequence[GraphCall]) -> dict[int, int]:
    """Returns the graph of each call's range and of the operators around it, by the index of the operator."""
    found: dict[int, int] = {}
    for call in calls:
        above = call.op
        while above >= 0 and above not in found:
            found[above] = call.graph
            above = program.trace.host_ops[above].parent
    return found


def _label_range(name: str) -> str:
    if name.startswith(DATA_LOADING_RANGE):
        return DATA_LOADING
    if name.startswith(_OPTIMIZER_RANGE):
        return OPTIMIZING
    return GUARDS if name.startswith(_GUARDS) else ""


def _label_runtime_call(name: str) -> str:
    """Returns what a call of the runtime is; empty for a launch, which is a part of the operation that it launches."""
    if _SYNCHRONISING.fullmatch(name):
        return SYNCHRONISING
    return ALLOCATING if _ALLOCATING.fullmatch(name) else ""


def _flatten_spans(spans: Iterable[_Span]) -> Iterator[HostActivity]:
    """Returns the innermost label at each time. ``spans`` are sorted, an enclosing one first."""
    open_spans: list[_Span] = []
    now = float("-inf")
    for span in itertools.chain(spans, [_Span(math.inf, math.inf, "")]):
        while open_spans:
            top = open_spans[-1]
            until = min(top.end_s, span.start_s)
            if until > now:
                if top.label:
                    yield HostActivity(now, until, top.label, top.op, top.graph)
                now = until
            if top.end_s > span.start_s:
                break
            open_spans.pop()
        now = max(now, span.start_s)
        around = open_spans[-1] if open_spans else None
        if around is not None:
            span = _clip_span(around, span)
        elif not span.label and span.alone:
            span = span._replace(label=span.alone)
        open_spans.append(span)


def _clip_span(around: _Span, span: _Span) -> _Span:
    """Returns a span with what it takes from the one around it, and cut at the end of that one."""
    return _Span(
        span.start_s,
        min(span.end_s, around.end_s),
        around.label if around.lasting else span.label or around.label or span.alone,
        span.op if span.op >= 0 else around.op,
        around.lasting or span.lasting,
        span.graph if span.graph >= 0 else around.graph,
    )


# Ties the device events of compiled graphs to kernels and call sites, those of CUDA graphs' replays too.


@dataclass(frozen=True)
class KnownGraph:
    """What is known of a compiled graph from outside the program."""

    source: ModuleSource  # its module
    # the activities of one run of the module by itself, in order; empty if it was not run
    launches: tuple[Activity, ...] = ()


def tie_events(
    program: ProgramTrace,
    calls: Sequence[GraphCall],
    owners: Sequence[Owner],
    units: Owners,
    graphs: Mapping[int, KnownGraph],
) -> dict[int, Activity]:
    """Returns the activity of each device event of a graph call whose graph is known, by the index of the event."""
    launched: dict[int, list[int]] = defaultdict(list)
    replayed: dict[int, list[int]] = defaultdict(list)
    for index, owner in enumerate(owners):
        if owner.call >= 0 and owner.kind != COPY:
            (replayed if owner.replayed else launched)[owner.call].append(index)
    tops = _find_top_operators_by_call(units)
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


def list_host_activities(
    program: ProgramTrace, calls: Sequence[GraphCall], units: Owners, graph: int, source: ModuleSource
) -> tuple[Activity, ...]:
    """Returns on a CPU the outermost operators of a graph's calls as activities. Unrecorded kernels are missing."""
    tops = _find_top_operators_by_call(units)
    iterations = [
        Iteration(call.start_s, call.end_s, tuple(tops[number]), ())
        for number, call in enumerate(calls)
        if call.graph == graph
    ]
    return attribute_activities(program.trace, iterations, source)


def _find_top_operators_by_call(units: Owners) -> dict[int, list[int]]:
    tops: dict[int, list[int]] = defaultdict(list)
    for index, top in enumerate(units.tops):
        if top == index and units.in_call[index] >= 0:
            tops[units.in_call[index]].append(index)
    return tops


class _Replays:
    """Ties replayed events to the launches of the module's own run, by their order.

    A replay repeats the launches in the order in which the module made them.
    """

    def __init__(self, known: KnownGraph) -> None:
        self._known = known
        self._launches = known.launches
        self._names = [one.name for one in known.launches]
        self._kinds = [one.kind for one in known.launches]
        self._pairs: dict[tuple[str, ...], list[int | None]] = {}
        self._alone: dict[tuple[tuple[str, str], ...], tuple[Activity, ...]] = {}

    def tie(self, program: ProgramTrace, places: Sequence[int]) -> Iterable[tuple[int, Activity]]:
        """Returns the activities of the replayed events of one graph call, which are sorted by start."""
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
        """Also pairs launches of other names between two pairs, if their sequences of kinds are equal."""
        bounds = [(-1, -1), *((at, launch) for at, launch in enumerate(pairs) if launch is not None)]
        bounds.append((len(pairs), len(self._kinds)))
        for (at, launch), (next_at, next_launch) in itertools.pairwise(bounds):
            if list(kinds[at + 1 : next_at]) == self._kinds[launch + 1 : next_launch]:
                pairs[at + 1 : next_at] = range(launch + 1, next_launch)
        return pairs

    def _by_module(self, events: Sequence[DeviceEvent]) -> tuple[Activity, ...]:
        """Ties events by the calls in the module's text, if the module was not run outside of the program."""
        alone = tuple(event._replace(host_op=-1, launch_start_s=None) for event in events)
        names = tuple((event.name, event.kind) for event in events)
        if names not in self._alone:
            run = Iteration(events[0].start_s, events[-1].start_s, (), tuple(range(len(alone))))
            self._alone[names] = attribute_activities(Trace((), alone, (), ()), [run], self._known.source)
        return tuple(
            Activity(0, event.name, event.kind, event.duration_s, one.call, one.kernel, None, -1, None, event=event)
            for one, event in zip(self._alone[names], alone, strict=True)
        )


# Makes the works of a program's steps: each device event, on a CPU each stretch of the host, with its owner.


FUSED_OPTIMIZER = "::FusedOptimizerTensorListMetadata<"
"""A part of the name of each kernel that updates parameters for an optimizer with ``fused=True``. (torch 2.11)"""


@dataclass(frozen=True)
class ProgramWorks:
    """The calls and the device works of the profiled steps, and the owner of each work."""

    window: StepWindow  # the steps that count
    calls: tuple[GraphCall, ...]  # all calls of compiled graphs, also those outside the window
    works: tuple[Work, ...]  # all works, also those outside the window, by start
    # the graphs and operators of the threads that cross the boundaries and call graphs; on a CPU the same as ``works``
    host_works: tuple[Work, ...]
    activities: Mapping[int, tuple[Activity, ...]]  # the activities of each known graph within the window
    timeline: HostTimeline  # what the host did
    tops: Sequence[int]  # for each host operator the outermost eager operator around it, or -1
    optimizer_calls: Mapping[str, Sequence[float]]  # the host's time of each call of each optimizer within the window

    def weigh_activities(self) -> dict[int, float]:
        """The weight of the step of each activity, by the activity's ``id``; empty if all steps count alike."""
        if not self.window.weights:
            return {}
        launched = ((work.activity, work.launch_start_s) for work in self.works)  # on a CPU works have no activity
        found = {id(one): self.window.weigh(at_s) for one, at_s in launched if one is not None}
        for graph, own in self.activities.items():
            inside = (call.start_s for call in self.calls if call.graph == graph)
            starts = [start_s for start_s in inside if self.window.contains_host_time(start_s)]
            new = (one for one in own if id(one) not in found)
            found |= {id(one): self.window.weigh(starts[one.iteration]) for one in new}
        return found


def find_works(
    program: ProgramTrace, markers: Markers, graphs: Mapping[int, KnownGraph], *, on_host: bool
) -> ProgramWorks | None:
    """Returns the works of a program; ``None`` if the trace holds no whole step.

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
    host_works = tuple(_list_host_works(program, calls, units, threads))
    if on_host:
        works = host_works
        activities = {
            number: list_host_activities(
                program, [call for call in calls if window.contains_host_time(call.start_s)], units, number, one
            )
            for number, one in ((number, known.source) for number, known in graphs.items())
        }
    else:
        window = leave_out_first_step(window)
        works = _list_device_works(program, calls, units, graphs)
        activities = _group_by_graph(works, window)
    return ProgramWorks(
        window=window,
        calls=calls,
        works=works,
        host_works=host_works,
        activities=activities,
        timeline=HostTimeline(program, window.thread, units, calls, markers.boundary),
        tops=tops,
        optimizer_calls=_list_optimizer_calls(units, window),
    )


def _list_device_works(
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
                is_pageable=event.kind == "memcpy" and "Pageable" in event.name,
                activity=tied.get(index),
            )
        )
    return tuple(works)


def _list_host_works(
    program: ProgramTrace, calls: Sequence[GraphCall], units: Owners, threads: Collection[str]
) -> Iterator[Work]:
    """Returns the calls of graphs and the outermost operators of these threads, without those that load data."""
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
        work = Work(EAGER, name_unit(op.name), op.start_s, end, op.start_s, end, op=index, lane=HOST_LANE)
        if number >= 0:
            yield replace(work, kind=GRAPH, label="", graph=calls[number].graph, call=number, op=-1)
        elif op.name.startswith(("c10d::", "_c10d_functional::")):
            yield replace(work, kind=COLLECTIVE, label=op.name.partition("::")[2].rstrip("_"))
        elif loading.find(op.thread, op.start_s) < 0:
            optimizer = units.optimizer_at(op.thread, op.start_s)
            yield replace(work, kind=OPTIMIZER, label=optimizer) if optimizer else work


def _group_by_graph(works: Sequence[Work], window: StepWindow) -> dict[int, tuple[Activity, ...]]:
    found: dict[int, list[Activity]] = defaultdict(list)
    for work in works:
        if work.activity is not None and work.graph is not None and window.contains_host_time(work.launch_start_s):
            found[work.graph].append(work.activity)
    return {graph: tuple(activities) for graph, activities in found.items()}


def _list_optimizer_calls(units: Owners, window: StepWindow) -> dict[str, list[float]]:
    calls: dict[str, list[float]] = defaultdict(list)
    for name, one in units.optimizers:
        if window.contains_host_time(one.start_s) and one.name.startswith("Optimizer.step#"):
            calls[name].append(one.start_s)
    return dict(calls)


def find_kernel_spans(
    found: ProgramWorks, slugs: Mapping[int, str], host_ops: Sequence[HostOp], *, on_host: bool
) -> Iterator[KernelSpans]:
    """Returns when the kernels of compiled graphs ran in the last step; on a CPU the outermost operators of the graphs.

    Args:
        found: the works of the profile.
        slugs: the module of each graph, by its number.
        host_ops: the operators of the trace.
        on_host: whether the device is the host itself.
    """
    start_s, end_s = found.window.bounds[-2:]
    if on_host:
        calls = [
            (number, HOST_LANE, one.name, host_ops[one.instance].start_s, one.duration_s)
            for number, activities in found.activities.items()
            for one in activities
        ]
    else:
        calls = [
            (work.graph, work.lane, work.activity.name, work.start_s, work.duration_s)
            for work in found.works
            if work.graph is not None and work.activity is not None
        ]
    inside = sorted((call for call in calls if start_s <= call[3] < end_s), key=lambda call: -call[4])[:MOST_INTERVALS]
    spans: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for number, lane, name, at_s, duration_s in sorted(inside, key=lambda call: call[3]):
        begin_s = round(at_s - start_s, 9)
        spans.setdefault((slugs.get(number, ""), name, lane), []).append((begin_s, round(begin_s + duration_s, 9)))
    yield from (KernelSpans(*key, tuple(times)) for key, times in spans.items())

"""The ledger of a step: parts that add up to its wall time, the kernels in it, and its timeline."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..records.evidence import CallPlace, ObservedOptimizer
from ..records.module import Kernel
from ..records.run import (
    COLLECTIVE,
    COPY,
    COPYING,
    CPU_OPERATORS,
    EAGER,
    GRAPH,
    HOST_LANE,
    IDLE,
    MOST_INTERVALS,
    OPTIMIZER,
    OTHERS,
    QUEUED,
    SYNCHRONISING,
    HostStretch,
    Interval,
    Part,
    SummedOperator,
    Timeline,
)
from ..records.traced import Activity, GraphCall, StepWindow, Work
from ..trace.program_works import HostTimeline
from .call_work import classify
from .host_time import HostShares, name_idle_parts
from .kernel_aggregation import KernelIdentity, OwnTime, StepUse

# Assigns each moment of a stretch of time to one of the spans that cover it, or to none.


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


def divide_time(spans: Sequence[Span], start_s: float, end_s: float) -> tuple[list[float], list[Pause]]:
    """The seconds that each span gets between ``start_s`` and ``end_s``, and the pauses.

    A moment belongs to the covering span with the smallest priority; among equal priorities, to the span that began
    first. The seconds and the pauses add up to ``end_s - start_s``. Time is O(n·log n).
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

    for index in _sort_spans(spans):
        one = spans[index]
        if one.start_s >= end_s:
            advance(end_s, index)
            break
        advance(one.start_s, index)
        if one.end_s > now:
            heapq.heappush(active, (one.priority, one.start_s, index))
    advance(end_s, -1)
    return given, pauses


def _sort_spans(spans: Sequence[Span]) -> Iterable[int]:
    return sorted(range(len(spans)), key=lambda index: spans[index].start_s)


# Makes the parts of a program's step from its works: disjoint, and together as long as the step.
#
# The parts add up to the unprofiled step. The device's busy time comes from the profile, because the profiler only
# slows the host. Collectives that wait for a slower host are shortened first. The rest of the unprofiled step is idle
# time, which is divided in the same proportions as the profiled idle time. If the host is the device, all parts of the
# profiled step are scaled by one factor.


ROUNDING = 1e-9
"""The largest difference of sums that counts as a rounding error, as a share of the step."""

SMALL = 0.002
"""The share of the step below which eager parts are merged."""

WITH_LINES = frozenset({SYNCHRONISING, CPU_OPERATORS, COPYING})
"""The kinds of host work whose line a profile shows, because each is one operator and not the time between several."""

SMALL_IDLE = 0.01
"""Idle parts of one label that take less than this share of the step are merged, even if their lines differ."""

_PRIORITIES = {COLLECTIVE: 1, COPY: 2}
_NO_PLACE = CallPlace()


class GraphName(NamedTuple):
    """The name of a compiled graph. ``slug`` is ``None`` if no file describes it; the rest as in ``Part``."""

    label: str
    slug: str | None
    refusal: str = ""
    writes_inputs: bool = False


@dataclass(frozen=True)
class Steps:
    """The profiled steps of one process, and what is known of them. ``window`` has their weights in all means."""

    step_time_s: float  # of a typical unprofiled step
    window: StepWindow  # the profiled steps that count
    works: Sequence[Work]  # what the device did, or the host if it is the device
    calls: Sequence[GraphCall]  # the calls of compiled graphs
    timeline: HostTimeline  # what the host did
    names: Mapping[int, GraphName]  # the compiled graphs by number
    places: Mapping[int, CallPlace] = field(default_factory=dict)  # the places of outermost operators, by their index
    # the host's time of each call of each optimizer in the window
    optimizer_calls: Mapping[str, Sequence[float]] = field(default_factory=dict)
    on_host: bool = False  # whether the device is the host itself
    host: HostShares | None = None  # what the host did in steps without the profiler; ``None`` without samples
    optimizers: Mapping[str, ObservedOptimizer] = field(default_factory=dict)  # what is known of optimizers, by name
    dtypes: Mapping[int, str] = field(default_factory=dict)  # the type of outermost operators, by their index
    is_cut: bool = False  # whether the trace lost the last of the profiled steps, because it was too large


@dataclass(frozen=True)
class Ledger:
    """The parts of a step, and in seconds the device's busy time in it and the time of a profiled step."""

    parts: tuple[Part, ...]
    busy_time_s: float
    profiled_step_time_s: float
    cut_s: float = 0.0  # the seconds by which the profiled collectives were shortened to fit the unprofiled step
    host: tuple[HostStretch, ...] = ()  # the sampled idle time; empty if the profile divides it


class _PartKey(NamedTuple):
    kind: str
    label: str
    graph: str | None = None
    place: CallPlace = _NO_PLACE
    refusal: str = ""
    writes_inputs: bool = False


@dataclass
class _Sums:
    """Sums over the window, with the weights of its steps."""

    time_s: float = 0.0
    device_time_s: float = 0.0
    launches: float = 0.0
    moved_bytes: float | None = 0.0
    fused_s: float = 0.0
    pageable_s: float = 0.0
    dtypes: set[str] = field(default_factory=set)
    # the weights of the steps of the calls, by the call
    operators: dict[int, float] = field(default_factory=dict)  # without an operator: the launch, as a negative number
    graph_calls: dict[int, float] = field(default_factory=dict)
    replays: dict[int, float] = field(default_factory=dict)


def make_ledger(steps: Steps) -> Ledger:
    """The ledger of the steps: parts whose times add up to ``step_time_s``, the longest first."""
    window = steps.window
    intervals = [Span(work.start_s, work.end_s, _PRIORITIES.get(work.kind, 0)) for work in steps.works]
    start, end = window.bounds[0], window.bounds[-1]
    given, pauses = divide_time(intervals, start, end)
    parts, profiled_s = list(_list_working_parts(steps, given)), window.step_time_s
    cut_s = 0.0
    if steps.on_host:
        scale = steps.step_time_s / profiled_s
        busy = scale * math.fsum(part.time_s for part in parts)
    else:
        busy = math.fsum(part.time_s for part in parts)
        parts = _remove_waits(parts, steps.step_time_s)
        cut_s = busy - math.fsum(part.time_s for part in parts)
        busy -= cut_s
        scale = min(1.0, steps.step_time_s / busy) if busy else 1.0
    parts = [replace(part, time_s=part.time_s * scale) for part in parts]
    parts = _merge_small(parts, steps.step_time_s)
    idle_s = steps.step_time_s - math.fsum(part.time_s for part in parts)  # the idle time of all screens
    host = tuple(_list_sampled_parts(steps, pauses, idle_s))
    parts += (
        _make_host_parts(host, steps, idle_s)
        if host
        else name_idle_parts(_list_idle_parts(steps, pauses, idle_s), steps.host)
    )
    shared = [replace(part, share=part.time_s / steps.step_time_s) for part in parts]
    shared.sort(key=lambda part: (-part.time_s, part.label, part.module))
    return Ledger(tuple(shared), busy, profiled_s, cut_s, host)


def _remove_waits(parts: list[Part], step_time_s: float) -> list[Part]:
    """Shortens the collectives if the profiled step is busy for longer than the unprofiled step takes."""
    exposed = math.fsum(part.time_s for part in parts if part.kind == COLLECTIVE)
    excess = math.fsum(part.time_s for part in parts) - step_time_s
    if excess <= 0 or not exposed:
        return parts
    left = max(0.0, exposed - excess) / exposed
    return [_shorten_part(part, part.time_s * (1 - left)) if part.kind == COLLECTIVE else part for part in parts]


def _shorten_part(part: Part, wait_s: float) -> Part:
    device_s = None if part.device_time_s is None else part.device_time_s - wait_s
    return replace(part, time_s=part.time_s - wait_s, device_time_s=device_s)


def _list_working_parts(steps: Steps, given: Sequence[float]) -> Iterator[Part]:
    sums: dict[_PartKey, _Sums] = defaultdict(_Sums)
    # the same sums by what the key is made of, because a key is made and compared slowly
    known: dict[object, _Sums] = {}
    for work, time_s in zip(steps.works, given, strict=True):
        weight = steps.window.weigh(work.launch_start_s)
        if not weight and not time_s:
            continue
        alike = work.kind, work.label, work.graph, work.op if work.kind in (EAGER, COPY) else -1
        if alike not in known:
            known[alike] = sums[_make_part_key(work, steps)]
        one = known[alike]
        one.time_s += time_s * steps.window.weigh_on_device(work.start_s)
        if weight:
            one.device_time_s += weight * work.duration_s
            one.launches += weight
            one.fused_s += weight * work.duration_s * work.is_fused
            one.pageable_s += weight * work.duration_s * work.is_pageable
            one.dtypes.add(steps.dtypes.get(work.op, ""))
            is_known = one.moved_bytes is not None and work.moved_bytes is not None
            one.moved_bytes = (one.moved_bytes or 0) + weight * (work.moved_bytes or 0) if is_known else None
            one.operators[work.op if work.op >= 0 else -2 - round(work.launch_start_s * 1e9)] = weight
            if work.replayed:
                one.replays[work.call] = weight
    for number, call in enumerate(steps.calls):
        if weight := steps.window.weigh(call.start_s):
            sums[_make_graph_key(call.graph, steps)].graph_calls[number] = weight
    count = steps.window.step_count
    for key, one in sums.items():
        optimizer = steps.optimizers.get(key.label) if key.kind == OPTIMIZER else None
        fused = key.kind == OPTIMIZER and 2 * one.fused_s > one.device_time_s
        yield Part(
            kind=key.kind,
            label=key.label,
            calls=_count_calls(key, one, steps) / count,
            time_s=one.time_s / count,
            share=0.0,
            device_time_s=None if steps.on_host else one.device_time_s / count,
            replays=math.fsum(one.replays.values()) / count if key.kind == GRAPH else 0.0,
            launches=0.0 if steps.on_host else one.launches / count,
            graph=key.graph,
            module=key.place.module,
            source=key.place.source,
            refusal=key.refusal,
            writes_inputs=key.writes_inputs,
            moved_bytes=one.moved_bytes / count if key.kind == COPY and one.moved_bytes is not None else None,
            pageable_s=one.pageable_s / count,
            is_fused=fused or (optimizer is not None and optimizer.is_fused),
            defined_in=optimizer.module if optimizer is not None else "",
            dtype=_has_only(one.dtypes) if key.kind == EAGER else "",
        )


def _has_only(words: Collection[str]) -> str:
    return next(iter(words)) if len(words) == 1 else ""


def _make_part_key(work: Work, steps: Steps) -> _PartKey:
    if work.kind == GRAPH and work.graph is not None:
        return _make_graph_key(work.graph, steps)
    place = steps.places.get(work.op, _NO_PLACE) if work.kind in (EAGER, COPY) and work.op >= 0 else _NO_PLACE
    return _PartKey(work.kind, work.label, None, place)


def _make_graph_key(graph: int, steps: Steps) -> _PartKey:
    name = steps.names.get(graph, GraphName(f"graph {graph}", None))
    return _PartKey(GRAPH, name.label, name.slug, refusal=name.refusal, writes_inputs=name.writes_inputs)


def _count_calls(key: _PartKey, one: _Sums, steps: Steps) -> float:
    if key.kind == GRAPH:
        return math.fsum(one.graph_calls.values())
    if key.kind == OPTIMIZER and key.label in steps.optimizer_calls:
        return math.fsum(map(steps.window.weigh, steps.optimizer_calls[key.label]))
    return math.fsum(one.operators.values()) if key.kind in (EAGER, OPTIMIZER) else one.launches


def _merge_small(parts: Iterable[Part], step_time_s: float) -> list[Part]:
    """Joins small eager parts by operator. Parts that are still small go into one part, which names each operator."""
    kept: list[Part] = []
    small: dict[str, list[Part]] = defaultdict(list)
    for part in parts:
        if part.kind == EAGER and part.time_s < SMALL * step_time_s:
            small[part.label].append(part)
        else:
            kept.append(part)
    tiny: list[Part] = []
    for label, group in small.items():
        joined = _join(group, label)
        (tiny if joined.time_s < SMALL * step_time_s else kept).append(joined)
    if not tiny:
        return kept
    summed = tuple(SummedOperator(part.label, part.calls, part.time_s) for part in tiny)
    return [*kept, replace(_join(tiny, OTHERS), summed=summed)]


def _join(parts: Sequence[Part], label: str) -> Part:
    """Joins several parts into one. A field in which they differ becomes unknown."""
    places = {(part.module, part.source) for part in parts}
    module, source = places.pop() if len(places) == 1 and label != OTHERS else ("", None)
    times = [part.device_time_s for part in parts if part.device_time_s is not None]
    return Part(
        kind=EAGER,
        label=label,
        calls=sum(part.calls for part in parts),
        time_s=math.fsum(part.time_s for part in parts),
        share=0.0,
        device_time_s=math.fsum(times) if times else None,
        launches=sum(part.launches for part in parts),
        module=module,
        source=source,
        dtype=_has_only({part.dtype for part in parts}) if label != OTHERS else "",
    )


def _list_idle_parts(steps: Steps, pauses: Sequence[Pause], idle_s: float) -> list[Part]:
    """Divides the unprofiled step's idle time in proportion to the profiled idle time of each label and line."""
    if idle_s <= ROUNDING * steps.step_time_s:
        return []
    times: dict[tuple[str, CallPlace], float] = defaultdict(float)
    counts: dict[tuple[str, CallPlace], float] = defaultdict(float)
    for pause in pauses:
        seen = set()
        for key, time_s in _divide_pause(steps, pause):
            times[key] += time_s
            seen.add(key)
        for key in seen:
            counts[key] += steps.window.weigh_on_device(pause.start_s)
    whole = math.fsum(times.values())
    if not whole:
        times, whole = defaultdict(float, {(QUEUED, _NO_PLACE): 1.0}), 1.0
    return [
        Part(
            kind=IDLE,
            label=label,
            calls=counts[label, place] / steps.window.step_count,
            time_s=idle_s * time_s / whole,
            share=0.0,
            module=place.module,
            source=place.source,
        )
        for (label, place), time_s in times.items()
        if time_s > 0
    ]


CERTAIN = 2.0
"""If samples and profile differ by more than this many standard errors of the samples, the samples count."""


def _list_sampled_parts(steps: Steps, pauses: Sequence[Pause], idle_s: float) -> Iterator[HostStretch]:
    """Yields the idle time as the samples divide it; nothing if there are too few samples.

    On a device the samples show all idle time but the gaps between launched kernels. These gaps keep their profiled
    time if the samples leave about as much: they are the device's own, and the profiler does not make them longer.
    """
    host = steps.host
    if host is None or idle_s <= ROUNDING * steps.step_time_s or not host.is_enough(idle_s):
        return
    seen_s, queued_s = math.fsum(one.time_s for one in host.stretches), 0.0
    if host.sees_device:
        reasons = (reason for pause in pauses for reason in _divide_pause(steps, pause))
        queued_s = math.fsum(time_s for (label, _), time_s in reasons if label == QUEUED) / steps.window.step_count
        share = min(1.0, seen_s / steps.step_time_s)
        error_s = steps.step_time_s * math.sqrt(share * (1 - share) / host.every)
        if abs(idle_s - seen_s - queued_s) > CERTAIN * error_s:
            queued_s = max(0.0, idle_s - seen_s)
    scale = (idle_s - min(queued_s, idle_s)) / seen_s
    yield from (replace(one, time_s=one.time_s * scale) for one in host.stretches)


def _make_host_parts(host: Sequence[HostStretch], steps: Steps, idle_s: float) -> list[Part]:
    """The parts of sampled idle time: one for each label, function and line, and for each label one of the others."""
    parts: list[Part] = []
    rest: dict[str, Part] = {}
    for one in host:
        part = Part(IDLE, one.label, 0.0, one.time_s, 0.0, samples=one.samples)
        if one.time_s < SMALL_IDLE * steps.step_time_s:
            other = rest.get(one.label, replace(part, time_s=0.0, samples=0))
            rest[one.label] = replace(part, time_s=part.time_s + other.time_s, samples=part.samples + other.samples)
        else:
            parts.append(replace(part, source=one.source, function=one.function))
    parts += rest.values()
    queued_s = idle_s - math.fsum(part.time_s for part in parts)
    if queued_s > ROUNDING * steps.step_time_s:
        return [*parts, Part(IDLE, QUEUED, 0.0, queued_s, 0.0)]
    if parts:
        longest = max(range(len(parts)), key=lambda place: parts[place].time_s)
        parts[longest] = replace(parts[longest], time_s=parts[longest].time_s + queued_s)
    return parts


def _divide_pause(steps: Steps, pause: Pause) -> Iterator[tuple[tuple[str, CallPlace], float]]:
    """The labels of a pause with their seconds, times the weights of the steps."""
    until, weigh = pause.end_s, steps.window.weigh_span
    if not steps.on_host and pause.following >= 0:
        launched = steps.works[pause.following].launch_end_s
        until = min(pause.end_s, max(pause.start_s, launched))
    for one in steps.timeline.between(pause.start_s, until):
        place = steps.places.get(one.op, _NO_PLACE) if one.label in WITH_LINES else _NO_PLACE
        yield (one.label, place), weigh(one.start_s, one.end_s)
    if until < pause.end_s:
        yield (QUEUED, _NO_PLACE), weigh(until, pause.end_s)


# What each kernel of a compiled module costs in one step of the program.


def sum_step_kernels(
    activities: Mapping[str, Iterable[Activity]], steps: int, weights: Mapping[int, float] = {}
) -> dict[tuple[str, KernelIdentity], StepUse]:
    """The use of each kernel in one step.

    Args:
        activities: the activities of all calls of each module in the profiled steps, by the module's slug.
        steps: the number of profiled steps.
        weights: the weight of each activity's step, by the activity's ``id``; 1 if it is missing.
    """
    calls: dict[tuple[str, KernelIdentity], float] = defaultdict(float)
    times: dict[tuple[str, KernelIdentity], float] = defaultdict(float)
    for slug, found in activities.items():
        for activity in found:
            key, weight = (slug, make_activity_key(activity)), weights.get(id(activity), 1.0)
            calls[key] += weight
            times[key] += weight * activity.duration_s
    return {key: StepUse(calls[key] / steps, times[key] / steps) for key in calls}


def make_activity_key(activity: Activity) -> KernelIdentity:
    """Returns the key of an activity's kernel. The row that ``aggregate_kernels`` makes from it has the same key."""
    if activity.kernel is not None and activity.kind == "kernel":
        return classify(activity), activity.name, activity.kernel.kernel_id
    return classify(activity), activity.name, (activity.operator or "").replace("::", ".", 1)


def read_own_time(kernel: Kernel) -> OwnTime:
    """The calls and time of a kernel's row in its module's own run."""
    return OwnTime(make_kernel_key(kernel), kernel.calls, kernel.time_s, kernel.line is None)


def make_kernel_key(kernel: Kernel) -> KernelIdentity:
    """The key of a kernel's row."""
    own = kernel.line is not None
    return kernel.category, kernel.name, kernel.kernel_id if own else kernel.operator or ""


def find_uses(
    slug: str,
    rows: Sequence[OwnTime],
    parts: Sequence[Part],
    uses: Mapping[tuple[str, KernelIdentity], StepUse],
    *,
    estimate: bool,
) -> list[StepUse]:
    """Finds the use of each of a module's kernels in one step.

    Args:
        slug: the module.
        rows: its kernels.
        parts: the ledger of the step.
        uses: the uses that the trace shows.
        estimate: whether the trace may lack kernels that ran, as on a CPU. Such kernels get the time of the module's
            own run, multiplied by the module's calls. All kernels of the module are then scaled to fit into the time of
            its part, because they run one after the other.
    """
    uses = _add_substitutes(slug, rows, uses)
    own = [part for part in parts if part.graph == slug]
    calls = sum(part.calls for part in own) if estimate else 0.0
    every = [
        uses.get((slug, row.key)) or StepUse(calls * row.calls, calls * row.time_s, estimated=calls > 0) for row in rows
    ]
    room_s, whole_s = sum(part.time_s for part in own), sum(use.time_s for use in every)
    if not estimate or whole_s <= room_s:
        return every
    return [use._replace(time_s=use.time_s * room_s / whole_s) for use in every]


def _add_substitutes(
    slug: str, rows: Sequence[OwnTime], uses: Mapping[tuple[str, KernelIdentity], StepUse]
) -> dict[tuple[str, KernelIdentity], StepUse]:
    """Returns the uses.

    A library kernel that the module's own run did not launch counts for a kernel that it launched.
    """
    found = dict(uses)
    rows = sorted(rows, key=lambda row: -row.time_s)
    known = {row.key for row in rows}
    for (other, (category, name, operator)), use in uses.items():
        if other != slug or not operator or (category, name, operator) in known:
            continue
        alike = [row.key for row in rows if row.of_library and (row.key[0], row.key[2]) == (category, operator)]
        if alike:
            target = slug, next((key for key in alike if (slug, key) not in found), alike[0])
            before = found.get(target, StepUse(0.0, 0.0))
            found[target] = StepUse(before.calls + use.calls, before.time_s + use.time_s)
    return found


# Makes the timeline of one profiled step, for a picture.


VISIBLE = 1 / 4000
"""The share of a step below which a gap between two intervals of one kind and label cannot be seen."""


def make_timeline(steps: Steps, host_works: Sequence[Work], rank: int | None = None) -> Timeline:
    """The last profiled step: the host's lane, and a lane for each stream of the device.

    Args:
        steps: the profiled steps.
        host_works: the graphs and operators of the threads that cross the boundaries and call graphs.
        rank: the rank of the process.
    """
    start, end = steps.window.bounds[-2], steps.window.bounds[-1]
    lanes: dict[str, list[Interval]] = defaultdict(list)
    lanes[HOST_LANE] = list(_make_host_lane(steps, host_works, start, end))
    if not steps.on_host:
        for work in steps.works:
            if work.end_s > start and work.start_s < end:
                lanes[work.lane].append(_make_interval(work, steps, start, end))
    gap = VISIBLE * (end - start)
    intervals = [one for lane in lanes.values() for one in _join_intervals(lane, gap)]
    while len(intervals) > MOST_INTERVALS:
        gap *= 2
        intervals = [
            one for lane in lanes.values() for one in _join_intervals(lane, gap) if one.end_s - one.start_s >= gap / 8
        ]
    return Timeline(end - start, tuple(intervals), rank)


def _make_interval(work: Work, steps: Steps, start_s: float, end_s: float) -> Interval:
    begin, stop = max(work.start_s, start_s) - start_s, min(work.end_s, end_s) - start_s
    name = steps.names.get(work.graph) if work.graph is not None else None
    label = work.label or (name.label if name else f"graph {work.graph}")
    return Interval(work.lane, begin, stop, work.kind, label)


def _make_host_lane(steps: Steps, works: Sequence[Work], start_s: float, end_s: float) -> Iterator[Interval]:
    spans = [Span(work.start_s, work.end_s, 0) for work in works]
    pauses = divide_time(spans, start_s, end_s)[1]
    found = [
        _make_interval(work, steps, start_s, end_s) for work in works if work.end_s > start_s and work.start_s < end_s
    ]
    for pause in pauses:
        found += (
            Interval(HOST_LANE, one.start_s - start_s, one.end_s - start_s, IDLE, one.label)
            for one in steps.timeline.between(pause.start_s, pause.end_s)
        )
    yield from sorted(found, key=lambda one: one.start_s)


def _join_intervals(lane: Sequence[Interval], gap_s: float) -> Iterator[Interval]:
    """Joins neighbours of one kind and label in a lane if the gap between them is at most ``gap_s``."""
    last: Interval | None = None
    for one in lane:
        alike = last is not None and (last.kind, last.label) == (one.kind, one.label)
        if last is not None and alike and one.start_s - last.end_s <= gap_s:
            last = Interval(last.lane, last.start_s, max(last.end_s, one.end_s), last.kind, last.label)
            continue
        if last is not None:
            yield last
        last = one
    if last is not None:
        yield last

"""Makes the parts of a program's step from its works: disjoint, and together as long as the step.

The unprofiled step is the measure. The device's busy time is taken from the profile, because the profiler slows the
host only; a collective that waits for a slower host is cut first. The rest of the unprofiled step is idle time, divided
as the profiled idle time is. Where the host is the device, all parts of the profiled step are scaled alike.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from ...records.code.source import SourceLine
from ...records.program import (
    COLLECTIVE,
    COPY,
    EAGER,
    GRAPH,
    IDLE,
    OPTIMIZER,
    OTHERS,
    QUEUED,
    SYNCHRONISING,
    Part,
    SummedOperator,
)
from ...records.traced.program import GraphCall, HostActivity, StepWindow, Work
from .sweep import Pause, Span, divide

ROUNDING = 1e-9
"""The share of the step up to which a difference of sums is one of their rounding."""

SMALL = 0.002
"""The share of the step below which eager parts are merged."""

_PRIORITIES = {COLLECTIVE: 1, COPY: 2}


class Timeline(Protocol):
    """What the host did; see ``trace.program.hosts``."""

    def between(self, start_s: float, end_s: float) -> Iterator[HostActivity]: ...


class GraphName(NamedTuple):
    """The name of a compiled graph. ``slug`` is ``None`` where no file describes it; ``refusal`` as in ``Part``."""

    label: str
    slug: str | None
    refusal: str = ""


class Place(NamedTuple):
    """Where in the user's program an operator was called."""

    module: str = ""
    source: SourceLine | None = None


@dataclass(frozen=True)
class Steps:
    """The profiled steps of one process, and what is known of them.

    Attributes:
        step_time_s: the mean unprofiled step.
        window: the profiled steps that count.
        works, calls, timeline: what the trace shows.
        names: the compiled graphs by number.
        places: the places of outermost operators, by their index.
        optimizer_calls: the number of calls of each optimizer in the window.
        on_host: whether the device is the host itself.
    """

    step_time_s: float
    window: StepWindow
    works: Sequence[Work]
    calls: Sequence[GraphCall]
    timeline: Timeline
    names: Mapping[int, GraphName]
    places: Mapping[int, Place] = field(default_factory=dict)
    optimizer_calls: Mapping[str, int] = field(default_factory=dict)
    on_host: bool = False


@dataclass(frozen=True)
class Ledger:
    """The parts of a step, and in seconds the device's busy time in it and the time of a profiled step."""

    parts: tuple[Part, ...]
    busy_time_s: float
    profiled_step_time_s: float


class _Key(NamedTuple):
    kind: str
    label: str
    graph: str | None = None
    place: Place = Place()
    refusal: str = ""


@dataclass
class _Sums:
    """Sums over the window."""

    time_s: float = 0.0
    device_time_s: float = 0.0
    launches: int = 0
    moved_bytes: int | None = 0
    fused_s: float = 0.0
    operators: set[int] = field(default_factory=set)  # without an operator: the launch, as a negative number
    graph_calls: set[int] = field(default_factory=set)
    replays: set[int] = field(default_factory=set)


def account(steps: Steps) -> Ledger:
    """The ledger of the steps: parts whose times add up to ``step_time_s``, the longest first."""
    window = steps.window
    intervals = [Span(work.start_s, work.end_s, _PRIORITIES.get(work.kind, 0)) for work in steps.works]
    start, end = window.bounds[0], window.bounds[-1]
    given, pauses = divide(intervals, start, end)
    parts, profiled_s = list(_working_parts(steps, given)), (end - start) / window.steps
    if steps.on_host:
        scale = steps.step_time_s / profiled_s
        busy = scale * math.fsum(part.time_s for part in parts)
    else:
        parts = _without_waits(parts, steps.step_time_s)
        busy = math.fsum(part.time_s for part in parts)
        scale = min(1.0, steps.step_time_s / busy) if busy else 1.0
    parts = [replace(part, time_s=part.time_s * scale) for part in parts]
    parts = _merge_small(parts, steps.step_time_s)
    parts += _idle_parts(steps, pauses, steps.step_time_s - math.fsum(part.time_s for part in parts))
    shared = [replace(part, share=part.time_s / steps.step_time_s) for part in parts]
    shared.sort(key=lambda part: (-part.time_s, part.label, part.module))
    return Ledger(tuple(shared), busy, profiled_s)


def _without_waits(parts: list[Part], step_time_s: float) -> list[Part]:
    """The parts with shorter collectives, where the profiled step is busy for longer than the unprofiled one takes.

    A collective waits for the last rank. The profiler slows the host of that rank, so that the wait is longer. What is
    cut is waited, and not hidden: the collective's device time becomes as much shorter.
    """
    exposed = math.fsum(part.time_s for part in parts if part.kind == COLLECTIVE)
    excess = math.fsum(part.time_s for part in parts) - step_time_s
    if excess <= 0 or not exposed:
        return parts
    left = max(0.0, exposed - excess) / exposed
    return [_shortened(part, part.time_s * (1 - left)) if part.kind == COLLECTIVE else part for part in parts]


def _shortened(part: Part, wait_s: float) -> Part:
    device_s = None if part.device_time_s is None else part.device_time_s - wait_s
    return replace(part, time_s=part.time_s - wait_s, device_time_s=device_s)


def _working_parts(steps: Steps, given: Sequence[float]) -> Iterator[Part]:
    sums: dict[_Key, _Sums] = defaultdict(_Sums)
    for work, time_s in zip(steps.works, given, strict=True):
        counted = steps.window.launched(work.launch_start_s)
        if not counted and not time_s:
            continue
        one = sums[_key(work, steps)]
        one.time_s += time_s
        if counted:
            one.device_time_s += work.duration_s
            one.launches += 1
            one.fused_s += work.duration_s * work.is_fused
            known = one.moved_bytes is not None and work.moved_bytes is not None
            one.moved_bytes = (one.moved_bytes or 0) + (work.moved_bytes or 0) if known else None
            one.operators.add(work.op if work.op >= 0 else -2 - round(work.launch_start_s * 1e9))
            if work.replayed:
                one.replays.add(work.call)
    for number, call in enumerate(steps.calls):
        if steps.window.launched(call.start_s):
            sums[_graph_key(call.graph, steps)].graph_calls.add(number)
    count = steps.window.steps
    for key, one in sums.items():
        yield Part(
            kind=key.kind,
            label=key.label,
            calls=_calls(key, one, steps) / count,
            time_s=one.time_s / count,
            share=0.0,
            device_time_s=None if steps.on_host else one.device_time_s / count,
            replays=len(one.replays) / count if key.kind == GRAPH else 0.0,
            launches=0.0 if steps.on_host else one.launches / count,
            graph=key.graph,
            module=key.place.module,
            source=key.place.source,
            refusal=key.refusal,
            moved_bytes=one.moved_bytes / count if key.kind == COPY and one.moved_bytes is not None else None,
            is_fused=key.kind == OPTIMIZER and 2 * one.fused_s > one.device_time_s,
        )


def _key(work: Work, steps: Steps) -> _Key:
    if work.kind == GRAPH and work.graph is not None:
        return _graph_key(work.graph, steps)
    place = steps.places.get(work.op, Place()) if work.kind in (EAGER, COPY) and work.op >= 0 else Place()
    return _Key(work.kind, work.label, None, place)


def _graph_key(graph: int, steps: Steps) -> _Key:
    name = steps.names.get(graph, GraphName(f"graph {graph}", None))
    return _Key(GRAPH, name.label, name.slug, refusal=name.refusal)


def _calls(key: _Key, one: _Sums, steps: Steps) -> int:
    if key.kind == GRAPH:
        return len(one.graph_calls)
    if key.kind == OPTIMIZER:
        return steps.optimizer_calls.get(key.label, 0) or len(one.operators)
    return len(one.operators) if key.kind == EAGER else one.launches


def _merge_small(parts: Iterable[Part], step_time_s: float) -> list[Part]:
    """Joins small eager parts by their operator, and what is still small into one part, which names each of them."""
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
    """One part for several; what they do not share is unknown."""
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
    )


def _idle_parts(steps: Steps, pauses: Sequence[Pause], idle_s: float) -> list[Part]:
    """The idle time of the unprofiled step, in proportion to the profiled idle time of each label and line."""
    if idle_s <= ROUNDING * steps.step_time_s:
        return []
    times: dict[tuple[str, Place], float] = defaultdict(float)
    counts: Counter[tuple[str, Place]] = Counter()
    for pause in pauses:
        reasons = list(_reasons(steps, pause))
        for key, time_s in reasons:
            times[key] += time_s
        counts.update({key for key, _ in reasons})
    whole = math.fsum(times.values())
    if not whole:
        times, counts, whole = defaultdict(float, {(QUEUED, Place()): 1.0}), Counter({(QUEUED, Place()): 0}), 1.0
    return [
        Part(
            kind=IDLE,
            label=label,
            calls=counts[label, place] / steps.window.steps,
            time_s=idle_s * time_s / whole,
            share=0.0,
            module=place.module,
            source=place.source,
        )
        for (label, place), time_s in times.items()
        if time_s > 0
    ]


def _reasons(steps: Steps, pause: Pause) -> Iterator[tuple[tuple[str, Place], float]]:
    """The labels of a pause with their seconds.

    After the host's call that launched the next work the device is idle by itself; before it the host is the reason.
    """
    until = pause.end_s
    if not steps.on_host and pause.following >= 0:
        launched = steps.works[pause.following].launch_end_s
        until = min(pause.end_s, max(pause.start_s, launched))
    for one in steps.timeline.between(pause.start_s, until):
        place = steps.places.get(one.op, Place()) if one.label == SYNCHRONISING else Place()
        yield (one.label, place), one.end_s - one.start_s
    if until < pause.end_s:
        yield (QUEUED, Place()), pause.end_s - until

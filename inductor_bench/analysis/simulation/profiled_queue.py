"""Makes the queue of the profiled steps from a program's trace: what the host did in order, and what it launched."""

from __future__ import annotations

import itertools
import math
import operator
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from ...records.run import ALLOCATING, COPY
from ...records.traced import ProgramTrace, Range, Work
from ...trace.iterations import is_compiled_kernel
from ...trace.program_trace import Markers
from ...trace.program_works import ProgramWorks
from .queue import BOUNDARY, LAUNCH, WAIT, HostAction, HostPiece, QueuedWork, StepQueue

_WAITS = re.compile(r"(?:cuda|hip|cu)(Device|Stream|Event|Ctx)Synchronize\w*")
_FREES = re.compile(
    r"(?:cuda|hip)(?:Free(?!Async)|HostFree|HostUnregister)\w*|cuMem(?:Free|HostUnregister)(?!Async)\w*"
)
"""Calls that wait until the device is idle before they free memory."""

_COPIES_AT_ONCE = re.compile(r"(?:cuda|hip|cu)Memcpy(?!\w*Async)\w*")
"""Calls that return only when the copy is done."""

_OF_DEVICE = re.compile(r"(?:cuda|hip)DeviceSynchronize")
_STREAM_WAITS = re.compile(r"(?:cuda|hip|cu)StreamWaitEvent\w*")

SOON_S = 3e-6
"""Seconds by which a task may end after the call that waited for it, because the two have different clocks."""

QUEUED_S = 4e-6
"""The longest gap between two tasks of a stream that counts as a gap of the stream itself."""

LAUNCHED_S = 12e-6
"""The longest delay from a launch to its task that counts as the delay of the launch itself."""

BLOCKED_S = 50e-6
"""Shortest launch that can wait for room in the device's queue of launches."""

MANY_QUEUED = 256
"""The number of launched tasks from which the queue of launches can be full."""

HICCUP, FEW = 1.5, 0.25
"""Steps that take this many times as long as the median step do not count if they are at most this share of the
steps."""

KERNEL_RANGES = 25
"""The range of a generated kernel costs as much as this many other ranges, because Inductor describes the kernel in
Python at each launch under the profiler. With this number a range cost 2.9 to 5.7 µs in five recorded host-bound
programs (H100, H200); if all ranges cost the same, 3.2 to 33.5 µs."""

WORK_RANGES = 0.3
"""The profiler's cost for the launch of a replay, for each of its works, in recorded ranges. The launch of a replay of
300 kernels took 370 µs with the profiler, and about 30 µs without it (H200, ``scripts/benchmark_simulation.py``)."""

RETURN_S = 5e-6
"""The longest time of a waiting call itself, without the wait."""


@dataclass(frozen=True)
class ProfiledQueue:
    """The queue of the profiled steps, the work of the trace for each of its works, and each graph call's actions."""

    queue: StepQueue
    works: tuple[Work, ...]  # the work of the trace for each work of the queue
    calls: Mapping[int, range]  # the actions of each graph call, by its number


class _HostEvent(NamedTuple):
    """A call of the host: a launch with its works, a wait, or a boundary."""

    start_s: float
    end_s: float
    kind: str
    name: str = ""
    work_indices: tuple[int, ...] = ()
    op: int = -1


def build_profiled_queue(program: ProgramTrace, found: ProgramWorks, markers: Markers) -> ProfiledQueue:
    """The queue of a program's profiled steps.

    Args:
        program: the trace.
        found: its works.
        markers: the names of the observer's ranges.
    """
    return _Builder(program, found, markers).build()


class _Offsets(NamedTuple):
    """Seconds until a work's begin: from its launch's begin, its launch's end, and its stream's previous work."""

    after_s: float
    late_s: float
    behind_s: float


class _Builder:
    def __init__(self, program: ProgramTrace, found: ProgramWorks, markers: Markers) -> None:
        self.window, self.timeline = found.window, found.timeline
        inside = (work for work in found.works if self.window.contains_host_time(work.launch_start_s))
        self.works = sorted(inside, key=lambda work: (work.launch_start_s, work.start_s))
        by_start = {call.start_s: call for call in reversed(program.runtime) if call.correlation >= 0}
        self.names = [_name(by_start.get(work.launch_start_s)) for work in self.works]
        threads = {self.window.thread, *(call.thread for call in found.calls)}
        threads |= {call.thread for work in self.works if (call := by_start.get(work.launch_start_s))}
        self.calls, self.events = found.calls, program.trace.device_events
        self.runtime = [call for call in program.runtime if call.thread in threads]
        costs = [
            (op.start_s, KERNEL_RANGES if is_compiled_kernel(op) else 1)
            for op in program.trace.host_ops
            if op.thread in threads
        ]
        costs += [(call.start_s, 1) for call in self.runtime]
        costs += [(one.start_s, 1) for one in program.annotations if one.thread in threads]
        costs.sort()
        self.recorded = [start_s for start_s, _ in costs]
        self.ranges = [0, *itertools.accumulate(cost for _, cost in costs)]
        self.tops = _Tops(program, found)
        bounds = [(call.start_s, number) for number, call in enumerate(self.calls)]
        bounds += [(call.end_s, -1) for call in self.calls]
        bounds.sort()
        self.call_bounds = [moment_s for moment_s, _ in bounds]
        self.called = [-1, *(number for _, number in bounds)]
        self.lanes = {lane: number for number, lane in enumerate(dict.fromkeys(work.lane for work in self.works))}
        self.ends = [work.end_s for work in self.works]
        self.launches = [work.launch_start_s for work in self.works]
        self.by_lane: dict[int, list[int]] = defaultdict(list)
        for place, work in enumerate(self.works):
            self.by_lane[self.lanes[work.lane]].append(place)

    def build(self) -> ProfiledQueue:
        actions: list[HostAction] = []
        starts: list[float] = []
        now = self.window.marks[0]
        for event in self._events():
            starts.append(event.start_s)
            pieces = tuple(self._pieces(now, event.start_s))
            now = max(now, event.end_s)
            actions.extend(self._actions(event, pieces))
            starts += [event.start_s] * (len(actions) - len(starts))
        calls = {
            number: range(bisect_left(starts, call.start_s), bisect_left(starts, call.end_s))
            for number, call in enumerate(self.calls)
            if self.window.contains_host_time(call.start_s)
        }
        queue = StepQueue(tuple(actions), tuple(self._queued()), self._leave_hiccups_out())
        return ProfiledQueue(queue, tuple(self.works), calls)

    def _leave_hiccups_out(self) -> tuple[float, ...]:
        """Weighs the few steps that took much longer than the others with 0, such as when the profiler empties its
        buffers."""
        times = [end - start for start, end in pairwise(self.window.bounds)]
        longer = [time_s > HICCUP * median(times) for time_s in times]
        return tuple(map(float, map(operator.not_, longer))) if 0 < sum(longer) <= FEW * len(times) else ()

    # The host.

    def _events(self) -> list[_HostEvent]:
        events = [_HostEvent(mark, mark, BOUNDARY) for mark in self.window.marks[1:]]
        place = 0
        while place < len(self.works):
            first = self.works[place]
            stop = place + 1
            while stop < len(self.works) and self.works[stop].launch_start_s == first.launch_start_s:
                stop += 1
            name = self.names[place]
            events.append(
                _HostEvent(first.launch_start_s, first.launch_end_s, LAUNCH, name, tuple(range(place, stop)), first.op)
            )
            place = stop
        waits = [
            call
            for call in self.runtime
            if _WAITS.fullmatch(call.name) and self.window.contains_host_time(call.start_s)
        ]
        # The profiler itself synchronises at times, to empty its buffers.
        whole = [call for call in waits if _OF_DEVICE.fullmatch(call.name)]
        events += [
            _HostEvent(call.start_s, call.end_s, WAIT, call.name, (), self.tops.at(call))
            for call in waits
            if len(whole) >= self.window.step_count or call not in whole
        ]
        frees = (call for call in self.runtime if _FREES.fullmatch(call.name) and self._has_waited(call))
        events += [_HostEvent(call.start_s, call.end_s, WAIT, call.name, (), self.tops.at(call)) for call in frees]
        return sorted(events, key=lambda event: (event.start_s, event.kind == BOUNDARY))

    def _has_waited(self, call: Range) -> bool:
        """Whether all works launched before a call had ended when it returned, and one of them ended during it."""
        if not self.window.contains_host_time(call.start_s):
            return False
        last = max(self.ends[: bisect_left(self.launches, call.start_s)], default=-math.inf)
        return call.start_s < last <= call.end_s + SOON_S

    def _pieces(self, start_s: float, end_s: float) -> Iterator[HostPiece]:
        if end_s <= start_s:
            return
        for one in self.timeline.between(start_s, end_s):
            for begin_s, until_s, call in self._by_call(one.start_s, one.end_s):
                first, last = bisect_left(self.recorded, begin_s), bisect_left(self.recorded, until_s)
                events = self.ranges[last] - self.ranges[first]
                yield HostPiece(until_s - begin_s, events, one.label, one.op, call)

    def _by_call(self, start_s: float, end_s: float) -> Iterator[tuple[float, float, int]]:
        """The parts of a stretch of time, each with the graph call that it is in."""
        first, last = bisect_right(self.call_bounds, start_s), bisect_left(self.call_bounds, end_s)
        for place, (begin_s, until_s) in enumerate(pairwise([start_s, *self.call_bounds[first:last], end_s]), first):
            yield begin_s, until_s, self.called[place]

    def _actions(self, event: _HostEvent, pieces: tuple[HostPiece, ...]) -> Iterator[HostAction]:
        took, call = event.end_s - event.start_s, self.called[bisect_right(self.call_bounds, event.start_s)]
        ranges = max(1.0, WORK_RANGES * len(event.work_indices))
        if event.kind == BOUNDARY:
            yield HostAction(BOUNDARY, pieces)
        elif event.kind == WAIT:
            yield self._wait(event, pieces)._replace(call=call)
        elif (last := self._blocking(event)) is not None:
            end = self.ends[last]
            yield HostAction(LAUNCH, pieces, min(took, RETURN_S), event.work_indices, call=call, own_events=ranges)
            yield HostAction(WAIT, (), 0.0, (last,), max(0.0, event.end_s - end), event.op, call=call)
        else:
            yield HostAction(LAUNCH, pieces, took, event.work_indices, call=call, own_events=ranges)

    def _wait(self, event: _HostEvent, pieces: tuple[HostPiece, ...]) -> HostAction:
        took = event.end_s - event.start_s
        waited = self._waited(event)
        blocked = max((self.ends[place] for place in waited if self.ends[place] > event.start_s), default=None)
        label = ALLOCATING if _FREES.fullmatch(event.name) else ""
        if blocked is None:
            return HostAction(WAIT, pieces, took, waited, min(took, RETURN_S), event.op, label)
        own = min(took, RETURN_S, max(0.0, event.end_s - blocked))
        return HostAction(WAIT, pieces, own, waited, max(0.0, event.end_s - blocked), event.op, label)

    def _waited(self, event: _HostEvent) -> tuple[int, ...]:
        """The works for which a call waits: the last ones of the streams that it can have waited for."""
        kind = _WAITS.fullmatch(event.name)
        last = []
        for places in self.by_lane.values():
            place = bisect_left(places, bisect_left(self.launches, event.start_s)) - 1
            if place >= 0:
                last.append(places[place])
        done = [place for place in last if self.ends[place] <= event.end_s + SOON_S]
        if kind is None or kind[1] in ("Device", "Ctx"):
            return tuple(done)
        if kind[1] == "Event":
            until = bisect_left(self.launches, event.start_s)
            ended = [place for place in range(until) if event.start_s < self.ends[place] <= event.end_s + SOON_S]
            return (max(ended, key=lambda place: self.ends[place]),) if ended else ()
        blocking = [place for place in done if self.ends[place] > event.start_s]
        if blocking:
            return (max(blocking, key=lambda place: self.ends[place]),)
        return (max(done),) if done else ()

    def is_pageable(self, work: Work) -> bool:
        return work.kind == COPY and "Pageable" in self.events[work.event].name

    def _blocking(self, event: _HostEvent) -> int | None:
        """The work that a launch waits for: its own copy, or room in the device's queue.

        The host waits for copies of pageable memory, and for those of calls that return when they are done.
        """
        last = event.work_indices[-1]
        work = self.works[last]
        at_once = self.is_pageable(work) or (work.kind == COPY and _COPIES_AT_ONCE.fullmatch(event.name))
        if at_once and event.end_s >= work.end_s - SOON_S:
            return last
        took = event.end_s - event.start_s
        if took < BLOCKED_S:
            return None
        begun = bisect_right(self.ends, event.start_s)
        if event.work_indices[0] - begun < MANY_QUEUED:
            return None
        place = bisect_right(self.ends, event.end_s) - 1
        return place if begun <= place < event.work_indices[0] else None

    # The works.

    def _queued(self) -> Iterator[QueuedWork]:
        rows = list(self._offsets())
        latency = _compute_typical([one.after_s for one in rows if one.late_s < LAUNCHED_S], LAUNCHED_S)
        gap = _compute_typical([one.behind_s for one in rows if 0 <= one.behind_s < QUEUED_S], 0.0)
        waits = self._other_streams()
        for place, (work, one) in enumerate(zip(self.works, rows, strict=True)):
            own_latency, own_gap = min(one.after_s, latency), min(one.behind_s, gap)
            if one.behind_s <= QUEUED_S:
                own_gap = one.behind_s
            elif one.late_s <= LAUNCHED_S or one.after_s <= one.behind_s:
                own_latency = one.after_s
            elif not any(self.ends[other] >= work.start_s - QUEUED_S for other in waits[place]):
                own_gap = one.behind_s
            lane = self.lanes[work.lane]
            yield QueuedWork(lane, work.duration_s, own_latency, max(own_gap, 0.0), waits[place])

    def _offsets(self) -> Iterator[_Offsets]:
        ends: dict[str, float] = {}
        for work in self.works:
            start = work.start_s
            yield _Offsets(
                start - work.launch_start_s, start - work.launch_end_s, start - ends.get(work.lane, -math.inf)
            )
            ends[work.lane] = work.end_s

    def _other_streams(self) -> list[tuple[int, ...]]:
        """Finds the works of other streams after which a work begins: those that had ended by the stream's wait."""
        waits: list[tuple[int, ...]] = [()] * len(self.works)
        if len(self.by_lane) < 2:
            return waits
        for call in self.runtime:
            if not _STREAM_WAITS.fullmatch(call.name) or not self.window.contains_host_time(call.start_s):
                continue
            place = bisect_left(self.launches, call.start_s)
            if place < len(self.works):
                lane = self.lanes[self.works[place].lane]
                others = [self._ended(other, place) for other in self.by_lane if other != lane]
                waits[place] = tuple(dict.fromkeys([*waits[place], *(one for one in others if one >= 0)]))
        return waits

    def _ended(self, lane: int, place: int) -> int:
        """Finds a stream's last work that was launched before a work, and had ended when that work began; or -1."""
        places = self.by_lane[lane]
        for number in range(bisect_left(places, place) - 1, -1, -1):
            if self.ends[places[number]] <= self.works[place].start_s + SOON_S:
                return places[number]
        return -1


def _compute_typical(values: Sequence[float], otherwise: float) -> float:
    return median(values) if values else otherwise


def _name(call: Range | None) -> str:
    return call.name if call else ""


class _Tops:
    """The outermost eager operator around a call of the runtime."""

    def __init__(self, program: ProgramTrace, found: ProgramWorks) -> None:
        self._ops = program.trace.host_ops
        self._by_thread: dict[str, list[int]] = defaultdict(list)
        for index, top in enumerate(found.tops):
            if top == index:
                self._by_thread[self._ops[index].thread].append(index)
        self._starts = {
            thread: [self._ops[index].start_s for index in places] for thread, places in self._by_thread.items()
        }

    def at(self, call: Range) -> int:
        """The index of the operator around a call; -1 if there is none."""
        place = bisect_right(self._starts.get(call.thread, []), call.start_s) - 1
        if place < 0:
            return -1
        op = self._ops[self._by_thread[call.thread][place]]
        return self._by_thread[call.thread][place] if call.start_s <= op.start_s + op.duration_s else -1

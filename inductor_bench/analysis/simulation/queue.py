"""Simulates a step as a queue: the host launches works, streams run them in order, and the host waits for some.

A question is a change of the queue's inputs. The answer is the difference of two simulated steps. Pure functions.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

# The queue: what the host does in order, and the works that it launches.


LAUNCH, WAIT, BOUNDARY = "launch", "wait", "boundary"
"""Kinds of calls after the host's own work: launch tasks, wait for tasks, or end a step."""


class HostPiece(NamedTuple):
    """A stretch of the host's own work, in the words of the idle parts."""

    time_s: float
    events: int = 0  # the number of ranges that the profiler recorded in it; one that costs more counts as several
    label: str = ""
    op: int = -1  # the outermost operator that synchronised; else -1
    call: int = -1  # the graph call that it is a part of, by its number; else -1
    is_known: bool = False  # whether it takes this time without the profiler

    @property
    def times(self) -> PieceTimes:
        """Its time, with the profiler or without it."""
        return PieceTimes(0.0, 0, self.time_s) if self.is_known else PieceTimes(self.time_s, self.events)


class PieceTimes(NamedTuple):
    """Times of the host: with the profiler, which recorded some ranges in them, and those known without it."""

    slowed_s: float
    events: float
    known_s: float = 0.0


class PieceColumns(NamedTuple):
    """Many :class:`PieceTimes`, an array for each field."""

    slowed_s: np.ndarray[Any, Any]
    events: np.ndarray[Any, Any]
    known_s: np.ndarray[Any, Any]

    @classmethod
    def of(cls, times: Sequence[PieceTimes]) -> PieceColumns:
        """The same times as arrays, one for each field."""
        return cls(*(np.array([one[field] for one in times], float) for field in range(3)))


def _make_columns(times_s: Sequence[float], events: Sequence[float], is_known: Sequence[bool]) -> PieceColumns:
    known = np.array(is_known, bool)
    return PieceColumns(np.where(known, 0.0, times_s), np.where(known, 0.0, events), np.where(known, times_s, 0.0))


class HostAction(NamedTuple):
    """The host's own work, and the call that follows it."""

    kind: str
    pieces: tuple[HostPiece, ...]  # the host's work before the call
    own_s: float = 0.0  # the time of the call itself, without waiting
    work_indices: tuple[int, ...] = ()  # the works that it launches or waits for
    return_s: float = 0.0  # from the end of the last work that it waits for until the host continues
    op: int = -1  # the outermost operator around a call that waits; else -1
    label: str = ""  # what a call that waits does, in the words of the idle parts; empty for synchronising
    call: int = -1  # the graph call that the call itself is a part of, by its number; else -1
    is_known: bool = False  # whether the call itself takes this time without the profiler
    own_events: float = 1.0  # the number of ranges that the profiler recorded in the call itself, as in ``HostPiece``

    @property
    def own(self) -> PieceTimes:
        """The times of the call itself."""
        return PieceTimes(0.0, 0, self.own_s) if self.is_known else PieceTimes(self.own_s, self.own_events)


class QueuedWork(NamedTuple):
    """A work of the device. It begins at the latest of three moments."""

    lane: int  # its stream
    duration_s: float
    latency_s: float  # after the begin of the call that launches it
    gap_s: float  # after the end of the work before it in its stream
    after: tuple[int, ...] = ()  # works of other streams after whose end it begins


@dataclass(frozen=True)
class StepQueue:
    """The profiled steps. The first action follows a boundary, and the last one is a boundary."""

    actions: tuple[HostAction, ...]
    works: tuple[QueuedWork, ...]  # in the order of their launches
    weights: tuple[float, ...] = ()  # of each step in the mean; 0 if it does not count; empty if all have the same

    @property
    def steps(self) -> int:
        return sum(action.kind == BOUNDARY for action in self.actions)

    @cached_property
    def times(self) -> tuple[PieceColumns, PieceColumns]:
        """``before`` and ``own`` of all actions, which are asked for with many hosts."""
        pieces = [piece for action in self.actions for piece in action.pieces]
        each = _make_columns(
            [piece.time_s for piece in pieces], [piece.events for piece in pieces], [piece.is_known for piece in pieces]
        )
        numbers = np.repeat(np.arange(len(self.actions)), [len(action.pieces) for action in self.actions])
        before = (np.bincount(numbers, column, len(self.actions)) for column in each)
        own = _make_columns(
            [action.own_s for action in self.actions],
            [action.own_events for action in self.actions],
            [action.is_known for action in self.actions],
        )
        return PieceColumns(*before), own

    @cached_property
    def rows(self) -> _RowColumns:
        """The part of a simulation's rows that is the same for each host."""
        return _RowColumns(self)


# The host without the profiler.


LEAST_HOST = 0.1
"""The smallest share of a stretch of the host's profiled time that remains without the profiler."""


class HostModel(NamedTuple):
    """Converts the host's profiled times to times without the profiler, which slows the host with each range."""

    event_cost_s: float = 0.0  # seconds of each recorded range
    scale: float = 1.0
    known_scale: float = 1.0  # of the times that are known without the profiler

    def time_of(self, times: PieceTimes) -> float:
        """The host's time without the profiler."""
        time_s, events, known_s = times
        slowed_s = self.scale * max(LEAST_HOST * time_s, time_s - self.event_cost_s * events)
        return slowed_s + self.known_scale * known_s

    def times_of(self, times: PieceColumns) -> np.ndarray[Any, Any]:
        """The host's times without the profiler, for many times, in their order."""
        time_s, events, known_s = times
        slowed_s = self.scale * np.maximum(LEAST_HOST * time_s, time_s - self.event_cost_s * events)
        return slowed_s + self.known_scale * known_s


AS_PROFILED = HostModel()
AT_ONCE = HostModel(scale=0.0, known_scale=0.0)
"""A host that takes no time."""


def compute_host_time_s(queue: StepQueue, host: HostModel) -> float:
    """The host's own time in a step, without waiting."""
    before, own = queue.times
    return math.fsum(host.times_of(before) + host.times_of(own)) / queue.steps


# Runs the queue.


MOST_PASSES = 6
"""The number of times that the profiled steps are simulated one after the other, until their time stays the same."""

STEADY = 1e-4
"""The share of the steps' time by which two passes may differ."""


class SimulatedSteps(NamedTuple):
    """The seconds of each step that counts, once their times stay the same."""

    steps_s: tuple[float, ...]
    weights: tuple[float, ...] = ()  # of each of them; empty if all have the same

    @property
    def mean_s(self) -> float:
        """The mean step, with the weights."""
        if not self.weights:
            return math.fsum(self.steps_s) / len(self.steps_s)
        return math.fsum(map(operator.mul, self.weights, self.steps_s)) / math.fsum(self.weights)


def simulate(queue: StepQueue, host: HostModel = AS_PROFILED) -> SimulatedSteps:
    """The steps' times on the device's clock: a step ends with the last work that was launched in it.

    The steps are repeated until they take the same time. If a wait for a work comes before its launch, it waits for the
    work of the previous repetition. O(passes x works).
    """
    return compile_queue(queue, host).run()


_Row = tuple[int, float, float, float, float, int, tuple[int, ...]]
"""Lane, host's time before and in the call, latency, gap, place, and the works to wait for.

Lane -1 waits, lane -2 ends a step. A call's time before is -1 for further works of the same launch.
"""


@dataclass(frozen=True)
class CompiledQueue:
    """A queue with the times of one host, ready to run with several durations of its works."""

    rows: tuple[_Row, ...]
    durations: tuple[float, ...]  # of each work
    lanes: int
    weights: tuple[float, ...] = ()  # of each step in the mean, as in the queue

    def run(self, factors: Mapping[int, float] = {}) -> SimulatedSteps:
        """The steps' times if the durations of some works, by their numbers, are multiplied by factors."""
        durations = list(self.durations)
        for place, factor in factors.items():
            durations[place] *= factor
        state = _QueueState([0.0] * len(durations), [0.0] * self.lanes)
        bounds, last = [0.0], math.inf
        for _ in range(MOST_PASSES):
            first = bounds[-1]
            bounds = [first, *_pass(self.rows, durations, state)]
            time_s = bounds[-1] - first
            if abs(time_s - last) <= STEADY * time_s:
                break
            last = time_s
        steps = [end - start for start, end in pairwise(bounds)]
        if not self.weights:
            return SimulatedSteps(tuple(steps))
        counted = [(time_s, weight) for time_s, weight in zip(steps, self.weights, strict=True) if weight]
        return SimulatedSteps(*map(tuple, zip(*counted, strict=True)))


@dataclass
class _QueueState:
    ends: list[float]  # of each work
    lanes: list[float]  # the end of the last work of each stream
    host_s: float = 0.0
    latest_s: float = 0.0


def compile_queue(queue: StepQueue, host: HostModel = AS_PROFILED) -> CompiledQueue:
    """The queue with the times of a host."""
    return CompiledQueue(
        tuple(queue.rows.of(host)),
        tuple(work.duration_s for work in queue.works),
        1 + max((work.lane for work in queue.works), default=0),
        queue.weights,
    )


class _RowColumns:
    """The rows of a queue, without the times that differ between hosts."""

    def __init__(self, queue: StepQueue) -> None:
        # of each row: action, lane, whether it is its action's first, gap, place, works to wait for, and its latency
        # in three parts: the rest, and how much of it lies in a call of which time
        rows: list[tuple[int, int, bool, float, int, tuple[int, ...], float, float, float]] = []
        for number, action in enumerate(queue.actions):
            if action.kind == LAUNCH and action.work_indices:
                for nth, place in enumerate(action.work_indices):
                    work = queue.works[place]
                    inside = min(work.latency_s, action.own_s)
                    rest, of = work.latency_s - inside, action.own_s if inside else 1.0
                    rows.append((number, work.lane, not nth, work.gap_s, place, work.after, rest, inside, of))
            elif action.kind == BOUNDARY:
                rows.append((number, -2, True, 0.0, -1, (), 0.0, 0.0, 1.0))
            else:
                rows.append((number, -1, True, 0.0, -1, action.work_indices, action.return_s, 0.0, 1.0))
        columns = list(zip(*rows, strict=True)) or [()] * 9
        self._action, self._first = np.array(columns[0], int), np.array(columns[2], bool)
        self._lane, self._gap, self._place, self._after = columns[1], columns[3], columns[4], columns[5]
        self._rest, self._inside, self._of = (np.array(column, float) for column in columns[6:])
        self._times = queue.times

    def of(self, host: HostModel) -> Iterator[_Row]:
        """The rows with the times of a host."""
        before, own = (host.times_of(times)[self._action] for times in self._times)
        latency = self._rest + self._inside * own / self._of
        before = np.where(self._first, before, -1.0)
        return zip(
            self._lane,
            before.tolist(),
            own.tolist(),
            latency.tolist(),
            self._gap,
            self._place,
            self._after,
            strict=True,
        )


def _pass(rows: Sequence[_Row], durations: Sequence[float], state: _QueueState) -> list[float]:
    ends, lanes, now, latest = state.ends, state.lanes, state.host_s, state.latest_s
    called = now
    bounds = []
    for lane, before, own, latency, gap, place, after in rows:
        if lane >= 0:
            if before >= 0:
                called = now + before
                now = called + own
            start = called + latency
            queued = lanes[lane] + gap
            if queued > start:
                start = queued
            for other in after:
                if ends[other] > start:
                    start = ends[other]
            ends[place] = lanes[lane] = end = start + durations[place]
            if end > latest:
                latest = end
        else:
            now += before + own
            for other in after:
                if ends[other] + latency > now:
                    now = ends[other] + latency
            if lane == -2:
                bounds.append(now if now > latest else latest)
    state.host_s, state.latest_s = now, latest
    return bounds


# Questions: the same queue with other inputs.


def scale_durations(queue: StepQueue, factors: Mapping[int, float]) -> StepQueue:
    """The queue in which the durations of works, by their numbers, are multiplied by factors."""
    works = list(queue.works)
    for place, factor in factors.items():
        works[place] = works[place]._replace(duration_s=works[place].duration_s * factor)
    return replace(queue, works=tuple(works))


def scale_gaps(queue: StepQueue, factor: float) -> StepQueue:
    """The queue in which the gaps between works are multiplied by a factor."""
    return replace(queue, works=tuple(work._replace(gap_s=work.gap_s * factor) for work in queue.works))


def remove_tasks(queue: StepQueue, places: Collection[int]) -> StepQueue:
    """Removes these works, and the calls that launched only them. Nothing waits for them any more."""
    gone = frozenset(places)
    kept = [place for place in range(len(queue.works)) if place not in gone]
    new = {place: number for number, place in enumerate(kept)}
    works = (queue.works[place] for place in kept)
    actions = []
    for action in queue.actions:
        left = tuple(new[place] for place in action.work_indices if place in new)
        dropped = action.kind == LAUNCH and bool(action.work_indices) and not left
        actions.append(action._replace(work_indices=left, own_s=0.0 if dropped else action.own_s))
    return replace(
        queue,
        actions=tuple(actions),
        works=tuple(work._replace(after=tuple(new[place] for place in work.after if place in new)) for work in works),
    )


def remove_host_time(queue: StepQueue, shares: Mapping[int, Mapping[int, float]]) -> StepQueue:
    """The queue without a part of the host's work.

    Args:
        queue: the queue.
        shares: the share that goes, 0 to 1, of each piece of each action, by their numbers.
    """
    actions = list(queue.actions)
    for number, gone in shares.items():
        pieces = (_shorten_piece(piece, gone.get(place, 0.0)) for place, piece in enumerate(actions[number].pieces))
        actions[number] = actions[number]._replace(pieces=tuple(pieces))
    return replace(queue, actions=tuple(actions))


def _shorten_piece(piece: HostPiece, share: float) -> HostPiece:
    left = max(0.0, 1 - share)
    return piece._replace(time_s=piece.time_s * left, events=round(piece.events * left))


def remove_waits(queue: StepQueue, numbers: Collection[int]) -> StepQueue:
    """The queue whose host does not wait in these actions."""
    actions = (
        action._replace(work_indices=(), return_s=0.0) if number in numbers and action.kind == WAIT else action
        for number, action in enumerate(queue.actions)
    )
    return replace(queue, actions=tuple(actions))


class Replay(NamedTuple):
    """Actions, by their numbers, that one launch of a CUDA graph replaces, and what that launch costs the host."""

    actions: range
    launch_s: float
    gap_s: float  # between two works of the graph
    latency_s: float  # until the first work begins


def replay_as_graphs(queue: StepQueue, replays: Sequence[Replay]) -> StepQueue:
    """The queue in which each replay launches the works of its actions at once. A wait in it stays where it is.

    Between these actions only the work of the host before the first call stays. The replays do not overlap.
    """
    actions, works = list(queue.actions), list(queue.works)
    for one in replays:
        launches = [number for number in one.actions if actions[number].kind == LAUNCH and actions[number].work_indices]
        if not launches:
            continue
        places = tuple(place for number in launches for place in actions[number].work_indices)
        for number in launches[1:]:
            actions[number] = HostAction(WAIT, ())
        for number in one.actions:
            if launches[0] < number <= launches[-1]:
                actions[number] = actions[number]._replace(pieces=())
        actions[launches[0]] = actions[launches[0]]._replace(work_indices=places, own_s=one.launch_s, is_known=True)
        for number, place in enumerate(places):
            latency = one.latency_s if not number else 0.0
            works[place] = works[place]._replace(latency_s=latency, gap_s=min(works[place].gap_s, one.gap_s))
    return replace(queue, actions=tuple(actions), works=tuple(works))

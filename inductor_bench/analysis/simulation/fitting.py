"""Fits the host of a queue to the unprofiled step, and computes what a change of the queue saves of that step."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from .queue import (
    AT_ONCE,
    WAIT,
    CompiledQueue,
    HostAction,
    HostModel,
    PieceColumns,
    PieceTimes,
    SimulatedSteps,
    StepQueue,
    compile_queue,
    compute_host_time_s,
    scale_durations,
    scale_gaps,
    simulate,
)

# Fits the host to the unprofiled step, and answers questions.


TYPICAL_COST_S = 4e-6
"""What a recorded range costs the host in seconds, if the device hides the cost. In recorded host-bound programs it
took 2.9 to 5.7 µs."""

MOST_COST_S = 200e-6
"""The most that a recorded range can cost."""

FITTED = 2e-3
"""How much a fitted step may differ from the measured step, as a share of it."""

MOST_SCALE = 4.0
"""How much slower the host may be without the profiler than with it, because the profiled steps were other steps."""

DEVICE_BOUND = 0.95
"""The device alone explains a step if it fills at least this share of the step."""

ROUGHLY = 0.03
"""How much a fitted step may differ from the measured step if the device explains it, as a share of it."""

OFF = 0.25
"""The least uncertainty, as a share of the saving. Of 114 changes that were really made on H200s, 113 were within it or
0.25 ms (``scripts/benchmark_simulation.py``)."""

_ROUNDS = 24


@dataclass(frozen=True)
class FittedQueue:
    """A queue with the host of the unprofiled step. There is one queue for each way to explain that step."""

    queue: StepQueue
    step_time_s: float  # the unprofiled step
    hosts: tuple[HostModel, ...]  # the likeliest first
    compiled: tuple[CompiledQueue, ...]  # with each of them, and at last with a host that takes no time
    unchanged: tuple[SimulatedSteps, ...]  # the steps of each

    @property
    def residual_s(self) -> float:
        """Returns how much shorter the simulated step is than the measured one; negative if it is longer."""
        return self.step_time_s - self.unchanged[0].mean_s


class TimedCalls(NamedTuple):
    """The calls of a graph, and the time of one call."""

    numbers: Collection[int]  # as in ``HostPiece.call``
    time_s: float  # on the host's clock, without the profiler


class SimulatedSaving(NamedTuple):
    """What a change saves of the step, in seconds."""

    time_s: float
    uncertainty_s: float
    device_s: float  # if the host took no time


def fit(
    queue: StepQueue,
    step_time_s: float,
    collectives: Collection[int] = (),
    host_step_s: float | None = None,
    calls: Collection[TimedCalls] = (),
) -> FittedQueue:
    """Fits the host, so that the unchanged steps take the time of an unprofiled one. Durations of works stay. There are
    two explanations of how the profiler slows the host: by a constant for each range that it records, or by one factor
    everywhere. If the device alone takes longer than the step, the profiler also made the gaps between works longer,
    and collectives, which waited for another rank's slowed host.

    Args:
        queue: the profiled steps.
        step_time_s: the time of an unprofiled step.
        collectives: the works that may be shortened.
        host_step_s: the median unprofiled step on the host's clock. One that is clearly shorter is the host's own time:
            the host runs ahead of the device and waits for nothing.
        calls: those of each graph. Their times do not count if the device explains the step, so that the host may have
            waited in them.
    """
    queue = _shorten_collectives(_shorten_gaps(queue, step_time_s), step_time_s, collectives)
    if calls and simulate(queue, AT_ONCE).mean_s < DEVICE_BOUND * step_time_s:
        fitted = _fit_host(_use_known_calls(queue, calls), step_time_s, host_step_s)
        if abs(fitted.residual_s) <= ROUGHLY * step_time_s:
            return fitted
    return _fit_host(queue, step_time_s, host_step_s)


def _fit_host(queue: StepQueue, step_time_s: float, host_step_s: float | None) -> FittedQueue:
    if host_step_s and host_step_s < DEVICE_BOUND * step_time_s:
        fitted = _fit_queue(_HostAlone(queue, host_step_s), queue, step_time_s)
        if abs(fitted.residual_s) <= ROUGHLY * step_time_s:
            return fitted
    return _fit_queue(_Fit(queue, step_time_s), queue, step_time_s)


def _fit_queue(searched: _Fit, queue: StepQueue, step_time_s: float) -> FittedQueue:
    hosts = tuple(dict.fromkeys((searched.by_events(), searched.by_scale())))
    compiled = tuple(compile_queue(queue, host) for host in (*hosts, AT_ONCE))
    return FittedQueue(queue, step_time_s, hosts, compiled, tuple(one.run() for one in compiled))


def _use_known_calls(queue: StepQueue, calls: Collection[TimedCalls]) -> StepQueue:
    """Returns the queue in which these calls take the host's time without the profiler."""
    actions = list(queue.actions)
    for numbers, time_s in calls:
        places = _find_places(actions, numbers)
        if any(actions[place].kind == WAIT and actions[place].work_indices for place in places):
            continue  # the call waits for the device: its time is not the host's own
        called = len({actions[place].call for place in places if actions[place].call in numbers})
        profiled = [times for place in places for times in _find_times(actions[place], numbers)]
        host = _scale_host(profiled, time_s * called)
        for place in places:
            actions[place] = _use_known_time(actions[place], numbers, host)
    return replace(queue, actions=tuple(actions))


def _find_places(actions: Sequence[HostAction], calls: Collection[int]) -> list[int]:
    return [
        number
        for number, action in enumerate(actions)
        if action.call in calls or any(piece.call in calls for piece in action.pieces)
    ]


def _find_times(action: HostAction, calls: Collection[int]) -> Iterator[PieceTimes]:
    yield from (piece.times for piece in action.pieces if piece.call in calls)
    if action.call in calls:
        yield action.own


def _scale_host(profiled: Sequence[PieceTimes], wanted_s: float) -> HostModel:
    """Returns the host that needs the wanted time for these pieces, or the nearest possible time."""

    columns = PieceColumns.of(profiled)

    def time_of(cost_s: float, scale: float = 1.0) -> float:
        return math.fsum(HostModel(cost_s, scale).times_of(columns))

    off_s = FITTED * wanted_s
    if time_of(0.0) < wanted_s - off_s:  # the host is slower without the profiler; one program that sleeps did this
        return HostModel(0.0, solve_increasing(lambda scale: time_of(0.0, scale), wanted_s, 1.0, MOST_SCALE, off_s))
    cost_s = -solve_increasing(lambda cost: time_of(-cost), wanted_s, -MOST_COST_S, 0.0, off_s)
    if time_of(cost_s) <= wanted_s + off_s:
        return HostModel(cost_s)
    return HostModel(cost_s, solve_increasing(lambda scale: time_of(cost_s, scale), wanted_s, 0.0, 1.0, off_s))


def _use_known_time(action: HostAction, calls: Collection[int], host: HostModel) -> HostAction:
    """Returns the action in which the parts of these calls have the times of a host, marked as known."""
    pieces = tuple(
        piece._replace(time_s=host.time_of(piece.times), is_known=True) if piece.call in calls else piece
        for piece in action.pieces
    )
    if action.call not in calls:
        return action._replace(pieces=pieces)
    return action._replace(pieces=pieces, own_s=host.time_of(action.own), is_known=True)


def _shorten_gaps(queue: StepQueue, step_time_s: float) -> StepQueue:
    if simulate(queue, AT_ONCE).mean_s <= step_time_s:
        return queue

    def time_of(factor: float) -> float:
        return simulate(scale_gaps(queue, factor), AT_ONCE).mean_s

    return scale_gaps(queue, solve_increasing(time_of, step_time_s, 0.0, 1.0, FITTED * step_time_s))


def _shorten_collectives(queue: StepQueue, step_time_s: float, places: Collection[int]) -> StepQueue:
    compiled = compile_queue(queue, AT_ONCE)
    if not places or compiled.run().mean_s <= (1 + FITTED) * step_time_s:
        return queue

    def time_of(factor: float) -> float:
        return compiled.run(dict.fromkeys(places, factor)).mean_s

    factor = solve_increasing(time_of, step_time_s, 0.0, 1.0, FITTED * step_time_s)
    return scale_durations(queue, dict.fromkeys(places, factor))


class _Fit:
    """Looks for hosts with which the steps take a given time."""

    def __init__(self, queue: StepQueue, step_time_s: float) -> None:
        self._queue, self._wanted_s = queue, step_time_s
        self._profiled_s, self._device_s = simulate(queue).mean_s, simulate(queue, AT_ONCE).mean_s
        # Where the device explains the step, what the profiled host adds to it is no reason for a faster host.
        explained = self._device_s >= DEVICE_BOUND * step_time_s
        self._off_s = (ROUGHLY if explained else FITTED) * step_time_s

    def by_events(self) -> HostModel:
        """Finds the most typical host that explains the step if each recorded range has the same cost."""
        typical = self._time_of(TYPICAL_COST_S)
        if abs(typical - self._wanted_s) <= self._off_s:
            return HostModel(TYPICAL_COST_S)
        if typical < self._wanted_s:
            if self._profiled_s < self._wanted_s - self._off_s:
                return self.by_scale()
            return HostModel(-self._solve(lambda cost: self._time_of(-cost), -TYPICAL_COST_S, 0.0))
        cost = -self._solve(lambda cost: self._time_of(-cost), -MOST_COST_S, -TYPICAL_COST_S)
        if self._time_of(cost) <= self._wanted_s + self._off_s:
            return HostModel(cost)
        return HostModel(cost, self._solve(lambda scale: self._time_of(cost, scale), 0.0, 1.0))

    def by_scale(self) -> HostModel:
        """Finds the host that is faster by one factor.

        It may be slower than with the profiler only in a host-bound step.
        """
        is_slower = self._profiled_s < self._wanted_s and self._device_s < DEVICE_BOUND * self._profiled_s
        most = MOST_SCALE if is_slower else 1.0
        return HostModel(0.0, self._solve(lambda scale: self._time_of(0.0, scale), 0.0, most))

    def _time_of(self, cost_s: float, scale: float = 1.0) -> float:
        return simulate(self._queue, HostModel(cost_s, scale)).mean_s

    def _solve(self, function: Callable[[float], float], low: float, high: float) -> float:
        return solve_increasing(function, self._wanted_s, low, high, self._off_s)


class _HostAlone(_Fit):
    """Looks for hosts whose own work takes a given time."""

    def __init__(self, queue: StepQueue, host_step_s: float) -> None:
        self._queue, self._wanted_s, self._off_s = queue, host_step_s, FITTED * host_step_s
        self._profiled_s, self._device_s = self._time_of(0.0), 0.0

    def _time_of(self, cost_s: float, scale: float = 1.0) -> float:
        return compute_host_time_s(self._queue, HostModel(cost_s, scale))


def solve_increasing(function: Callable[[float], float], wanted: float, low: float, high: float, off: float) -> float:
    """Finds the argument between ``low`` and ``high`` at which a growing function is within ``off`` of ``wanted``.

    If a range of arguments fits, returns about the largest; if none fits, the bound whose value is nearer.
    """
    below, above = function(low) - wanted, function(high) - wanted
    if above <= off:
        return high
    if below > off:
        return low
    if below >= -off:
        below, above, off = below - 3 * off / 4, above - 3 * off / 4, off / 4
        wanted += 3 * off
    is_slow = False
    for _ in range(_ROUNDS):
        width = high - low
        share = 0.5 if is_slow else min(max(below / (below - above), 0.05), 0.95)
        middle = low + width * share
        value = function(middle) - wanted
        if abs(value) <= off / 2:
            return middle
        if value < 0:
            low, below = middle, value
        else:
            high, above = middle, value
        is_slow = high - low > width / 2  # the function is curved, so its chord says little
    return low


def compute_saving(fitted: FittedQueue, changed: StepQueue) -> SimulatedSaving:
    """Computes what a change saves that turns the step's queue into this queue."""
    hosts = (*fitted.hosts, AT_ONCE)
    return _compute_one_saving(fitted, [simulate(changed, host) for host in hosts])


def compute_saving_of_durations(fitted: FittedQueue, factors: Mapping[int, float]) -> SimulatedSaving:
    """Computes what a change saves that multiplies the durations of some works (given by number) by factors."""
    return _compute_one_saving(fitted, [one.run(factors) for one in fitted.compiled])


def _compute_one_saving(fitted: FittedQueue, changed: Sequence[SimulatedSteps]) -> SimulatedSaving:
    savings = [before.mean_s - after.mean_s for before, after in zip(fitted.unchanged, changed, strict=True)]
    *likely, device_s = savings
    least, most = min(likely), max(likely)
    each = [a - b for a, b in zip(fitted.unchanged[0].steps_s, changed[0].steps_s, strict=True)]
    spread = _compute_spread(each, fitted.unchanged[0].weights) / math.sqrt(len(each))
    residual = abs(likely[0]) * abs(fitted.residual_s) / fitted.step_time_s
    uncertainty = max(most - likely[0], likely[0] - least) + spread + residual
    return SimulatedSaving(likely[0], max(uncertainty, abs(likely[0]) * OFF), device_s)


def _compute_spread(values: Sequence[float], weights: Sequence[float]) -> float:
    """The standard deviation of values that have these weights, all the same if there are none; 0 of one value."""
    if len(values) < 2:
        return 0.0
    weights = weights or [1.0] * len(values)
    whole = math.fsum(weights)
    mean = math.fsum(map(operator.mul, weights, values)) / whole
    squares = math.fsum(weight * (value - mean) ** 2 for weight, value in zip(weights, values, strict=True))
    return math.sqrt(squares / whole * len(values) / (len(values) - 1))

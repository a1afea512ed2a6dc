"""Runs the program's steps with its variants in turn, and times them.

Steps alternate within one process, so that all variants see the same memory, clocks and data. A variant keeps its turn
for a few steps; on a device the first of them does not count, because the work of the step before it still runs.
"""

from __future__ import annotations

import functools
import math
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ....devices.table import find_device
from ....messages.observed import CHECKING, ORIGINAL, SETTLING, TRIED, TriedVariants, VariantSample, VariantState
from ....records.evidence import DONE, FAILED, TIMING
from ...device.machine import Counters, load_since, read_counters
from ...upstream.graph_variants import count_collectives
from ..alternation import AlternatingSteps
from ..boundaries import Boundaries, CalledGraphs, Graph
from ..schedule import StepPlan
from ..step_measurement import describe_error, find_number, make_empty_steps
from ..step_observer import StepMeasurement, StepObserver
from ..step_recording import Moment, compute_times, has_passed, wait_for
from .gradients import GradientNotes
from .settings import VariantSettings
from .turns import Turns

WARM_STEPS = 4
"""Steps of each variant before the timed ones: its backward graph compiles, and CUDA graphs warm up, are recorded, and
replayed."""

COMPILING_STEPS = 2
"""Steps of each variant in a process that only compiles: what an optimizer's first step changes compiles again."""

APART = 3
"""The largest number of variants' turns between two turns of the original, so that each variant runs soon before or
after the original."""

SAVE_S = 5.0
"""Seconds after which the samples until then are written, in case the process is ended."""


@dataclass(frozen=True)
class PlannedStep:
    """The variant that one step runs, and whether the step is timed."""

    variant: int
    is_timed: bool


def order_of(turn: int, variants: Sequence[int]) -> list[int]:
    """Returns the order of the original and the variants in one round.

    Each round begins with another variant, and every second one runs backwards, so that drifts cancel.
    """
    if not variants:
        return [ORIGINAL]
    place = turn % len(variants)
    turned = [*variants[place:], *variants[:place]]
    if turn % 2:
        turned.reverse()
    found = []
    for count, number in enumerate(turned):
        found += [ORIGINAL, number] if count % APART == 0 else [number]
    return found


def schedule_of(variants: Sequence[int], samples: int, *, runs_on_host: bool) -> list[PlannedStep]:
    """Returns all steps after the comparison of what the variants compute.

    The length of turns varies, so that a program whose steps are of several kinds, in a fixed order, runs each variant
    in each kind.

    Args:
        variants: their numbers, without the original.
        samples: the number of timed steps of each.
        runs_on_host: whether no work of one step may still run in the next one.
    """
    held, lead = (2, 0) if runs_on_host else (4, 1)
    turns = [PlannedStep(number, False) for number in (ORIGINAL, *variants) for _ in range(WARM_STEPS)]
    lengths = random.Random(0)  # all ranks make the same schedule
    count, left = 0, samples
    while left > 0:
        timed = min(left, held - lead + lengths.randrange(2))
        for number in order_of(count, variants):
            turns += [PlannedStep(number, step >= lead) for step in range(lead + timed)]
        count, left = count + 1, left - timed
    return turns


def count_samples(step_s: float, time_s: float, least: int, most: int) -> int:
    """Returns the number of timed steps for a time, within limits."""
    return max(1, least, min(most, math.ceil(time_s / max(step_s, 1e-6))))


@dataclass(frozen=True)
class TrialStep:
    """One timed step, whose end the device may not have reached."""

    variant: int
    place: int
    begin: Moment
    end: Moment
    kind: int


class VariantTrial(AlternatingSteps[TriedVariants]):
    """The trial of one process.

    Args:
        folder: the folder of the capture.
        graphs: the graphs of the process.
        turns: its variants.
        gradients: the notes on the gradients of its first steps.
    """

    def __init__(self, folder: Path, graphs: CalledGraphs, turns: Turns, gradients: GradientNotes) -> None:
        seen = make_empty_steps()
        ranks, world = (find_number(name) or 1 for name in ("LOCAL_WORLD_SIZE", "WORLD_SIZE"))
        super().__init__(folder, graphs, TriedVariants(seen.pid, "", SETTLING, seen.rank, ranks, world), TRIED)
        self._turns, self._gradients = turns, gradients
        self._schedule: list[PlannedStep] = []
        self._timed: list[TrialStep] = []
        self._done: list[VariantSample] = []
        self._begun: tuple[PlannedStep, Moment] | None = None
        self._saved_s = 0.0
        self._counters: Counters | None = None  # before the first step of the schedule

    @property
    def is_complete(self) -> bool:
        return self.found.state in (DONE, FAILED)

    @property
    def is_settling(self) -> bool:
        """Whether the trial has not decided anything yet."""
        return self._plan is None

    def _forget(self) -> None:
        self._turns.activate(self._turns.held)
        self._turns.check = None
        self._schedule, self._timed, self._done, self._begun, self._counters = [], [], [], None, None

    def _may_settle(self) -> bool:
        return self._gradients.is_complete or not self._turns.optimizers.are_known

    def _make_plan(self, begin: int) -> StepPlan:
        request = self._turns.request
        return StepPlan(begin, count_samples(self._step_s, request.timed_s, request.least, request.most))

    def _go_on(self, place: int, number: int, arrived_s: float, *, noisy: bool) -> None:
        kind = self._turns.take_kind()
        if not self.found.collectives:
            self._note_collectives(place)
        if place == 0:
            self._begin_checks()
            return
        if not self._schedule:
            self._make_schedule()
        self._end_step(place - 1, number, arrived_s, kind, noisy=noisy)
        if place > len(self._schedule):
            self._note_collectives(place)
            self._complete(DONE)
            return
        self._begin_step(self._schedule[place - 1], number)

    def _note_collectives(self, place: int) -> None:
        """Notes the number of collectives, which shows whether all ranks change their variants at the same step."""
        count, begin = count_collectives(), self._plan.begin if self._plan else None
        known = self.found.collectives if count is None else (*self.found.collectives, (place, count))
        self.found = replace(self.found, begin=begin, collectives=known)

    def _begin_checks(self) -> None:
        self._turns.refuse_optimizers()
        if self._turns.request.checks:
            from .checks import check_graph

            self._turns.check, self._turns.watches = check_graph, True
        self._write(CHECKING)

    def _make_schedule(self) -> None:
        """Makes the schedule of the steps from here on.

        Every rank plans steps for all variants, also for failed ones, so that the ranks' turns stay the same.
        """
        assert self._plan is not None and self._plan.end is not None
        if self._turns.request.only_compiles:
            alive = [one.number for one in self._turns.alive]
            self._schedule = [PlannedStep(number, False) for number in alive for _ in range(COMPILING_STEPS)]
        elif self._turns.request.alternates:
            alone = self._coordinator.decides and not self._coordinator.lead
            variants = [one.number for one in (self._turns.alive if alone else self._turns.settings[1:])]
            on_host = find_device(self._clock.device).runs_on_host
            self._schedule = schedule_of(variants, self._plan.end if variants else 0, runs_on_host=on_host)
        else:
            self._schedule = [PlannedStep(self._turns.held, False)] * WARM_STEPS
            self._schedule += [PlannedStep(self._turns.held, True)] * self._plan.end
        alone = not self._turns.request.alternates and find_device(self._clock.device).runs_on_host
        self._counters = read_counters(with_others=alone)
        self._write(TIMING)

    # The steps

    def _begin_step(self, turn: PlannedStep, number: int) -> None:
        """Begins a step. The change from one variant to the next belongs to no step."""
        turns = self._turns
        if turn.variant not in (ORIGINAL, *(one.number for one in turns.alive)):
            turn = PlannedStep(turns.held, False)
        if turn.variant != turns.variant:
            self._read_memory(turns.active)
            turns.activate(turn.variant)
            self._reset_memory()
        self._begun = turn, self._clock.read(number, time.perf_counter())

    def _end_step(self, place: int, number: int, arrived_s: float, kind: int, *, noisy: bool) -> None:
        begun, self._begun = self._begun, None
        if begun is None:
            return
        turn, begin = begun
        failed = self._turns.settings[turn.variant].failure
        if turn.is_timed and not noisy and not failed and number == begin.number + 1:
            self._timed.append(TrialStep(turn.variant, place, begin, self._clock.read(number, arrived_s), kind))
        if time.perf_counter() - self._saved_s > SAVE_S:
            self._collect()
            self._write(self.found.state)

    def _collect(self) -> None:
        """Reads the times of the steps that the device has passed."""
        passed = [one for one in self._timed if has_passed([one.end])]
        self._timed = self._timed[len(passed) :]
        for one in passed:
            time_s = compute_times([one.begin, one.end]).steps_s[0]
            self._done.append(VariantSample(one.variant, time_s, one.place, one.kind))

    def _read_memory(self, settings: VariantSettings) -> None:
        if find_device(self._clock.device).runs_on_host:
            return
        from ...device.runtimes import find_runtime

        peak = find_runtime(self._clock.device).peak_memory_bytes()
        if peak is not None and any(one.variant == settings.number for one in self._timed[-1:]):
            settings.peak_memory_bytes = max(peak, settings.peak_memory_bytes or 0)

    def _reset_memory(self) -> None:
        if not find_device(self._clock.device).runs_on_host:
            from ...device.runtimes import find_runtime

            find_runtime(self._clock.device).reset_peak_memory()

    # The end

    def _complete(self, state: str) -> None:
        self._read_memory(self._turns.active)
        self._turns.end()
        if self._timed:
            wait_for([self._timed[-1].end])
        self._collect()
        self._write(state)

    def discard(self) -> None:
        """Removes the file of what is known, because another observation replaces this one."""
        self._path.unlink(missing_ok=True)

    def fail(self, error: BaseException) -> None:
        """Ends the trial because of an error in the trial itself."""
        self._turns.end()
        self.found = replace(self.found, error=describe_error(error))
        self._write(FAILED)

    def finish(self, boundaries: Boundaries) -> None:
        """Ends the trial with the program; the steps that were timed until then are kept."""
        raised = getattr(sys, "last_value", None)
        if raised is not None and self._turns.variant != ORIGINAL:
            self._turns.active.fail(f"the program ended in its step: {describe_error(raised)}")
        self._complete(self.found.state)

    def _write(self, state: str) -> None:
        turns = self._turns
        self._save(
            replace(
                self.found,
                state=state,
                samples=tuple(self._done),
                kind_sizes=tuple(turns.kind_sizes.values()),
                checks=tuple(turns.checks),
                variants=tuple(map(_describe_variant_state, turns.settings)),
                digests=tuple(self._gradients.digests),
                notes=tuple(turns.notes),
                load=load_since(self._counters, len(self._done)) if self._counters and self._done else None,
            )
        )
        self._saved_s = time.perf_counter()


def _describe_variant_state(settings: VariantSettings) -> VariantState:
    refused = settings.refused
    return VariantState(
        settings.number,
        settings.compile_s,
        settings.peak_memory_bytes,
        () if settings.failure and refused else tuple(settings.applied),
        tuple(refused),
        settings.failure,
        settings.graphs,
    )


class VariantObserver(StepObserver):
    """The observation of one process.

    The pattern of calls is that of Dynamo's graphs, because each variant has graphs of Inductor of its own. The graphs
    of the original show which device is used, and whether the program trains.

    Args:
        turns: the variants.
        measure: makes the measurement.
        on_done: as in ``StepObserver``.
    """

    def __init__(
        self, turns: Turns, measure: Callable[[CalledGraphs], VariantTrial], on_done: Callable[[], None]
    ) -> None:
        self._turns = turns
        self._trial: VariantTrial

        def make(graphs: CalledGraphs) -> StepMeasurement:
            self._trial = measure(graphs)
            return self._trial

        super().__init__(make, on_done)
        turns.note_call = self._note_call

    def leave(self) -> None:
        """Ends the observation, and removes its result: those of the compiled program replace it."""
        super().leave()
        self._trial.discard()

    def note_change(self) -> None:
        """Notes a change as ``StepObserver`` does.

        Compilations of variants leave the pattern of the program's calls as it is.
        """
        self._measurement.is_noisy = True
        if self._trial.is_settling:
            self._pattern.forget()

    def _records_graph(self) -> None:
        if self._turns.variant == ORIGINAL:
            self._graphs.note_cuda_graph()
        self.note_change()

    def _around_call(self, original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        by_id, turns = self._graphs.by_id, self._turns

        @functools.wraps(original)
        def call(compiled: Any, inputs: Any) -> Any:
            if turns.variant == turns.held and id(compiled) not in by_id:
                self._add(compiled)
            return original(compiled, inputs)

        return call

    def _note_call(self, number: int, arguments: Sequence[Any]) -> None:
        if self.is_done or not self._boundaries.searches_pattern:
            self._turns.note_call = None
            return
        self._search(Graph(number, 0, _first_parameter(arguments)), arguments)

    def _trains(self) -> bool:
        return self._graphs.trains(range(len(self._graphs.records)))


def _first_parameter(arguments: Sequence[Any]) -> int | None:
    import torch

    return next((place for place, one in enumerate(arguments) if isinstance(one, torch.nn.Parameter)), None)

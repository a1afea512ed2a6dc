"""In which order the variants of a program take turns, and how many of their steps are timed."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest
import torch

from inductor_bench.messages.observed import ORIGINAL, SETTLING, TriedVariants, VariantsRequest
from inductor_bench.worker.capture.alternation import AlternatingSteps
from inductor_bench.worker.capture.boundaries import Boundaries, CalledGraphs, Pattern
from inductor_bench.worker.capture.schedule import StepPlan
from inductor_bench.worker.capture.variants.trial import (
    APART,
    WARM_STEPS,
    PlannedStep,
    count_samples,
    order_of,
    schedule_of,
)
from inductor_bench.worker.capture.variants.turns import InputShapes, Turns, VariantGraph


@pytest.mark.parametrize("variants", [1, 2, 3, 7])
def test_each_round_has_each_variant_once_and_the_original_near_each(variants: int) -> None:
    numbers = range(1, variants + 1)
    for count in range(2 * variants):
        order = order_of(count, numbers)
        turns = Counter(order)
        assert [turns[number] for number in numbers] == [1] * variants
        places = [place for place, number in enumerate(order) if number == ORIGINAL]
        assert all(min(abs(place - own) for own in places) <= APART for place in range(len(order)))


def test_over_all_rounds_no_variant_stands_earlier_than_another() -> None:
    sums: Counter[int] = Counter()
    for count in range(12):
        for place, number in enumerate(one for one in order_of(count, range(1, 7)) if one):
            sums[number] += place
    assert max(sums.values()) - min(sums.values()) <= 12


def test_steps_before_the_timed_ones_warm_each_variant_up() -> None:
    schedule = schedule_of([1, 2], 6, runs_on_host=True)
    warm = 3 * WARM_STEPS
    assert not any(turn.is_timed for turn in schedule[:warm])
    assert Counter(turn.variant for turn in schedule[:warm]) == {0: WARM_STEPS, 1: WARM_STEPS, 2: WARM_STEPS}
    assert Counter(turn.variant for turn in schedule[warm:]) == {0: 6, 1: 6, 2: 6}
    assert all(turn.is_timed for turn in schedule[warm:])


def test_on_a_device_the_first_step_of_a_turn_does_not_count() -> None:
    schedule = schedule_of([1], 60, runs_on_host=False)[2 * WARM_STEPS :]
    turns = [list(turn) for _, turn in itertools.groupby(schedule, lambda step: step.variant)]
    assert all([step.is_timed for step in turn] == [False] + [True] * (len(turn) - 1) for turn in turns)
    assert sum(turn.is_timed for turn in schedule if turn.variant == 1) == 60


@pytest.mark.parametrize("sizes", range(2, 13))
@pytest.mark.parametrize("runs_on_host", [True, False])
def test_each_variant_runs_each_size_of_a_fixed_order(sizes: int, *, runs_on_host: bool) -> None:
    met = {
        (step.variant, place % sizes)
        for place, step in enumerate(schedule_of([1, 2], 96, runs_on_host=runs_on_host))
        if step.is_timed
    }
    assert met == set(itertools.product(range(3), range(sizes)))


def test_without_variants_the_original_is_warmed_up_only() -> None:
    assert schedule_of([], 0, runs_on_host=True) == [PlannedStep(ORIGINAL, False)] * WARM_STEPS


@pytest.mark.parametrize(("step_s", "samples"), [(1.0, 10), (0.1, 30), (0.001, 100), (0.0, 100)])
def test_the_number_of_timed_steps_follows_from_their_time_within_limits(step_s: float, samples: int) -> None:
    assert count_samples(step_s, 3.0, 10, 100) == samples


def test_a_call_has_the_number_of_its_shapes_whether_these_are_static_or_dynamic() -> None:
    weight, short, long = torch.nn.Parameter(torch.ones(2, 2)), torch.ones(3, 2), torch.ones(5, 2)
    static, dynamic = InputShapes("0", [weight, short]), InputShapes("0", [7, weight, short])  # 7: a symbol
    assert static.number([weight, short]) == dynamic.number([3, weight, short])
    assert dynamic.number([5, weight, long]) == InputShapes("0", [weight, long]).number([weight, long])
    assert dynamic.number([3, weight, short]) != dynamic.number([5, weight, long])
    assert static.number([weight, short]) != InputShapes("1", [weight, short]).number([weight, short])
    with torch.no_grad():
        found: dict[int, tuple[int, ...]] = {}
        without = InputShapes("0", [weight, short], found).number([weight, short])
    assert without + 1 == static.number([weight, short]) and found == {without: (3, 2)}


def test_a_step_has_the_sizes_of_its_calls(tmp_path: Path) -> None:
    turns, shapes = Turns(VariantsRequest((), True), tmp_path), dict[int, tuple[int, ...]]()
    turns._sizes = shapes

    def add(size: int, tensor: torch.Tensor) -> torch.Tensor:
        return tensor + size

    dynamic = [InputShapes(name, [7, torch.ones(7, 2)], shapes) for name in ("0", "1")]  # 7: a symbol
    calls = [turns._dispatcher(VariantGraph(0, "0", add, [add], shapes=one)) for one in dynamic]
    kinds = []
    for size in (3, 5, 3):
        for call in calls:
            call(size, torch.ones(size, 2))
        kinds.append(turns.take_kind())
    assert kinds[0] == kinds[2] != kinds[1]
    assert [list(turns.kind_sizes[kind].sizes) for kind in kinds[:2]] == [[3, 2] * 2, [5, 2] * 2]


def test_a_step_that_compiles_does_not_say_how_many_steps_are_timed(tmp_path: Path) -> None:
    class Steps(AlternatingSteps[TriedVariants]):
        is_complete = False
        plans: list[float] = []  # noqa: RUF012

        def _forget(self) -> None: ...

        def _make_plan(self, begin: int) -> StepPlan:
            self.plans.append(self._step_s)
            return StepPlan(begin, 1)

        def _go_on(self, *_: object, **__: object) -> None: ...

    steps = Steps(tmp_path, CalledGraphs(), TriedVariants(1, "", SETTLING), ".tried.json")
    boundaries = Boundaries(lambda _: None, lambda: None, Pattern())
    now_s = 1000.0
    for number, (step_s, is_noisy) in enumerate([(0.0, True), (30.0, True), *[(0.01, False), (0.03, False)] * 6]):
        now_s, steps.is_noisy = now_s + step_s, is_noisy
        steps.cross_boundary(number, boundaries, now_s, other_profiler=False, cycle_s=None)
    assert steps.plans == pytest.approx([0.02])

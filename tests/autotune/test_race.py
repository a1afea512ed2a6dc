"""The race on a pretended device: who wins, what it costs, and what happens to those that die."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from inductor_bench.autotune.methods import RacePlan, RaceResult, run_race

Device = Callable[[int], float | None]


def noisy(true: Sequence[float], noise: float, seed: int) -> Device:
    source, clock = random.Random(seed), [1.0]

    def sample(candidate: int) -> float:
        clock[0] *= 1 + 0.002 * source.gauss(0, 1)
        return clock[0] * true[candidate] * (1 + noise * source.gauss(0, 1))

    return sample


def run(count: int, device: Device, default: int = 0, plan: RacePlan | None = None) -> tuple[RaceResult, list[int]]:
    """The result, and how often each candidate was sampled."""
    spent = [0] * count
    conversation = run_race(count, default, plan)
    order = next(conversation)
    while True:
        for candidate in order:
            spent[candidate] += 1
        try:
            order = conversation.send([device(candidate) for candidate in order])
        except StopIteration as end:
            return end.value, spent


def test_the_fastest_wins_and_slow_ones_cost_little() -> None:
    true = [100e-6, 300e-6, 80e-6, 150e-6, 81e-6, 120e-6, 200e-6, 95e-6]
    result, spent = run(8, noisy(true, 0.003, seed=1))
    assert (result.best, result.contender, result.verdict) == (2, 2, "faster")
    assert spent[1] == spent[3] == spent[6] == 3
    assert result.runners[1].place == "dropped" and result.runners[1].behind == pytest.approx(300 / 80, rel=0.02)
    assert result.runners[0].place == result.runners[2].place == "final"
    ratio = result.runners[2].ratio
    assert ratio is not None and ratio.low < ratio.median < ratio.high
    assert ratio.median == pytest.approx(0.8, rel=0.01)


def test_an_undecided_race_goes_on_as_long_as_its_plan_says() -> None:
    asked: list[int] = []

    def goes_on() -> bool:
        asked.append(1)
        return len(asked) < 3

    plan = RacePlan(final_rounds=20, most_final_rounds=40)
    for one, rounds in ((plan, 40), (replace(plan, goes_on=goes_on), 80)):
        result, _ = run(2, noisy([50e-6, 50e-6], 0.2, seed=1), plan=one)
        assert (result.verdict, len(result.runners[1].samples)) == ("undecided", rounds)
    asked.clear()
    decided, _ = run(2, noisy([50e-6, 25e-6], 0.01, seed=1), plan=replace(plan, goes_on=goes_on))
    assert (decided.verdict, len(decided.runners[1].samples), asked) == ("faster", 20, [])


def test_it_never_ends_above_the_default() -> None:
    for seed in range(100):
        source = random.Random(seed)
        true = [50e-6, *(50e-6 * source.uniform(0.97, 2.0) for _ in range(9))]
        result, _ = run(10, noisy(true, 0.01, seed))
        assert true[result.best] <= true[0], seed


def test_the_best_of_many_equals_is_not_called_faster() -> None:
    wins = sum(run(40, noisy([50e-6] * 40, 0.01, seed))[0].best != 0 for seed in range(300))
    assert wins <= 3


def test_a_gap_of_two_percent_is_found_among_many() -> None:
    true = [50e-6] * 12 + [49e-6]
    found = sum(run(13, noisy(true, 0.004, seed))[0].best == 12 for seed in range(200))
    assert found >= 180


def test_the_default_may_stand_anywhere_and_alone() -> None:
    result, _ = run(1, noisy([1e-5], 0.01, seed=1))
    assert (result.best, result.contender, result.verdict) == (0, None, "same")
    assert len(result.runners[0].samples) == RacePlan().final_rounds
    result, _ = run(3, noisy([9e-6, 9e-6, 3e-5], 0.001, seed=1), default=2)
    assert result.best in (0, 1) and result.verdict == "faster"


def test_who_dies_is_lost_and_the_others_run_on() -> None:
    device = noisy([50e-6, 20e-6, 40e-6, 45e-6], 0.003, seed=5)
    seen = []

    def sample(candidate: int) -> float | None:
        seen.append(candidate)
        return None if candidate == 1 and seen.count(1) > 4 else device(candidate)

    result, _ = run(4, sample)
    assert result.runners[1].place == "lost" and len(result.runners[1].samples) == 1  # of the final rounds
    assert seen.count(1) == RacePlan().first_rounds + RacePlan().final_rounds, "it is timed no more afterwards"
    assert result.best == 2


def test_without_a_default_there_is_no_verdict() -> None:
    result, _ = run(2, lambda candidate: None if candidate == 0 else 1e-5)
    assert (result.best, result.verdict) == (0, "undecided")
    assert result.runners[0].place == "lost"


def test_where_all_others_die_nothing_is_called_the_same() -> None:
    true = [50e-6, 20e-6, 22e-6, 40e-6]
    asked = [0] * 4

    def sample(candidate: int) -> float | None:
        asked[candidate] += 1
        return None if candidate in (1, 2) and asked[candidate] > RacePlan().first_rounds else true[candidate]

    result, _ = run(4, sample)
    assert [runner.place for runner in result.runners] == ["final", "lost", "lost", "dropped"]
    assert (result.best, result.contender, result.verdict) == (0, None, "undecided")


def test_an_open_verdict_gets_more_rounds() -> None:
    device = noisy([50e-6, 49.4e-6], 0.02, seed=3)
    _, spent = run(2, device)
    assert spent[0] == RacePlan().first_rounds + RacePlan().most_final_rounds


def test_every_second_round_runs_backwards() -> None:
    conversation = run_race(3)
    assert next(conversation) == (0, 1, 2, 2, 1, 0, 0, 1, 2), "three rounds in one request"

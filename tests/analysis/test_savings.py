"""What a program saves, from steps that alternate: pairs, intervals and verdicts."""

from __future__ import annotations

import random

import pytest

from inductor_bench.analysis.statistics import (
    CONFIDENCE,
    VERDICT_CONFIDENCE,
    TimedStep,
    compute_median_interval,
    device_confirms,
    judge_processes,
    measure_saving,
)
from inductor_bench.records.retune import MOST_TIMED, NO_DIFFERENCE, SAVES, SLOWER, UNDECIDED
from inductor_bench.worker.capture.pin_comparison import PROFILED_COUNTS, TIMED_COUNTS, count_steps, is_tuned


def alternate(own_s: float, tuned_s: float, count: int, noise: float = 0.0, drift: float = 0.0) -> list[TimedStep]:
    """Steps in the order of a comparison, with noise and a drift as shares of a step."""
    chance = random.Random(7)
    samples = []
    for place in range(count):
        tuned = is_tuned(place)
        time_s = (tuned_s if tuned else own_s) * (1 + noise * chance.uniform(-1, 1) + drift * place / count)
        samples.append(TimedStep(tuned, time_s))
    return samples


def test_a_saving_is_the_median_of_neighbours_differences() -> None:
    saving = measure_saving(alternate(10e-3, 9e-3, 40, noise=0.01))
    assert saving is not None
    assert saving.saving_s == pytest.approx(1e-3, rel=0.1)
    assert saving.low_s <= saving.saving_s <= saving.high_s
    assert saving.own_s == pytest.approx(10e-3, rel=0.01)
    assert saving.tuned_s == pytest.approx(9e-3, rel=0.01)
    assert (saving.pairs, saving.verdict) == (20, SAVES)


@pytest.mark.parametrize("noise", [0.0, 0.005, 0.05])
def test_equal_steps_have_no_difference(noise: float) -> None:
    for count in (24, 40, 120):
        saving = measure_saving(alternate(10e-3, 10e-3, count, noise))
        assert saving is not None and saving.verdict == NO_DIFFERENCE


def test_a_drift_is_no_difference() -> None:
    """Steps that become 20% slower in the course of the comparison."""
    saving = measure_saving(alternate(10e-3, 10e-3, 80, drift=0.2))
    assert saving is not None and saving.verdict == NO_DIFFERENCE


def test_slower_steps_are_said() -> None:
    saving = measure_saving(alternate(10e-3, 10.2e-3, 40, noise=0.002))
    assert saving is not None and saving.verdict == SLOWER


def test_few_steps_decide_nothing() -> None:
    saving = measure_saving(alternate(10e-3, 5e-3, 8))
    assert saving is not None and (saving.pairs, saving.verdict) == (4, UNDECIDED)
    assert measure_saving([TimedStep(False, 1.0), TimedStep(False, 1.0)]) is None


def test_a_saving_of_which_only_the_shown_interval_is_sure_is_undecided() -> None:
    differences = [1e-3] * 15 + [-1e-3] * 4
    samples = [TimedStep(tuned, time) for one in differences for tuned, time in ((False, 10e-3 + one), (True, 10e-3))]
    shown = compute_median_interval(differences, CONFIDENCE)
    surer = compute_median_interval(differences, VERDICT_CONFIDENCE)
    assert shown[0] > 0 > surer[0], "the example is one"
    saving = measure_saving(samples)
    assert saving is not None and (saving.low_s, saving.verdict) == (pytest.approx(shown[0]), UNDECIDED)


@pytest.mark.parametrize("sign", [1, -1])
def test_pairs_and_medians_that_say_the_opposite_decide_nothing(sign: int) -> None:
    """The steps have two levels. Eight of ten pairs are 1 ms faster, and the median step is 20 ms longer."""
    pairs = [(10e-3, 9e-3), (31e-3, 30e-3), (31e-3, 30e-3), (10e-3, 9e-3), (10e-3, 30e-3)] * 12
    samples = [
        TimedStep(tuned, time_s) for pair in pairs for tuned, time_s in zip((False, True), pair[::sign], strict=True)
    ]
    saving = measure_saving(samples)
    assert saving is not None and saving.verdict == UNDECIDED and saving.saving_s == pytest.approx(sign * 1e-3)
    assert saving.low_s > 0 if sign > 0 else saving.high_s < 0, "the pairs by themselves would decide"


@pytest.mark.parametrize("period", [2, 4, 8])
@pytest.mark.parametrize("phase", [0, 1, 3])
def test_work_in_some_steps_only_is_no_saving(period: int, phase: int) -> None:
    chance = random.Random(3)
    times = [10e-3 * (1.2 if place % period == phase % period else 1) + chance.gauss(0, 1e-5) for place in range(96)]
    saving = measure_saving([TimedStep(is_tuned(place), time_s) for place, time_s in enumerate(times)])
    assert saving is not None and saving.verdict == NO_DIFFERENCE


def test_the_fewest_steps_are_enough_for_a_verdict() -> None:
    """Even if the first profiled step does not count."""
    assert count_steps(step_s=10.0) == (TIMED_COUNTS[0], PROFILED_COUNTS[0])
    assert [count_steps(10e-3, asked)[0] for asked in (1.0, 30.0, 3600.0)] == [100, 3000, MOST_TIMED]
    for count, first in ((TIMED_COUNTS[0], 0), (PROFILED_COUNTS[0], 1)):
        samples = [TimedStep(is_tuned(place), 9e-3 if is_tuned(place) else 10e-3) for place in range(first, count)]
        saving = measure_saving(samples)
        assert saving is not None and saving.verdict == SAVES


def test_processes_need_one_sign_and_a_percent() -> None:
    saves = judge_processes([10.0, 10.1], [9.5, 9.4])
    assert saves is not None and saves.verdict == SAVES and saves.low_s == pytest.approx(0.5)
    mixed = judge_processes([10.0, 9.4], [9.5, 9.5])
    assert mixed is not None and mixed.verdict == NO_DIFFERENCE
    overlapping = judge_processes([10.0, 11.0], [9.5, 10.5])
    assert overlapping is not None and overlapping.verdict == NO_DIFFERENCE, "processes differ by more than the pins"
    small = judge_processes([10.0, 10.0], [9.99, 9.98])
    assert small is not None and small.verdict == NO_DIFFERENCE
    by_chance = judge_processes([0.747, 0.806], [0.8068, 0.8078])
    assert by_chance is not None and by_chance.verdict == NO_DIFFERENCE, "one pair differs by 60, the other by 1"
    alone = judge_processes([10.0], [9.0])
    assert alone is not None and alone.verdict == UNDECIDED
    assert judge_processes([], []) is None


@pytest.mark.parametrize(
    ("step", "device", "is_borne_out"),
    [
        (([0.776, 0.777], [0.807, 0.808]), ([0.742, 0.743], [0.741, 0.742]), False),
        (([10.0, 10.1], [9.5, 9.4]), ([9.0, 9.0], [8.9, 8.9]), False),
        (([10.0, 10.1], [9.5, 9.4]), ([9.0, 9.0], [8.5, 8.5]), True),
        (([9.5, 9.4], [10.0, 10.1]), ([8.5, 8.5], [9.0, 9.0]), True),
        (([10.0, 10.0], [10.0, 10.0]), ([8.5, 8.5], [9.0, 9.0]), True),
    ],
)
def test_the_device_bears_a_difference_between_processes_out(
    step: tuple[list[float], list[float]], device: tuple[list[float], list[float]], is_borne_out: bool
) -> None:
    """The first is the LLM decode of ``scripts/programs`` on an H200, whose step differed by the host's pace."""
    saving = judge_processes(*step)
    assert saving is not None
    assert device_confirms(saving, judge_processes(*device)) == is_borne_out
    assert device_confirms(saving, None)

"""Statistics by simulation: what intervals cover, how often equals are called unequal, how often a gap is found."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from inductor_bench.analysis.statistics import (
    VERDICT_CONFIDENCE,
    compute_median_interval,
    compute_paired_ratio,
    count_needed_samples,
    find_drift,
    find_smallest_effect,
    find_verdict,
    summarize,
)
from inductor_bench.records.retune import Ratio

TRIALS = 2000


def normal(source: random.Random, spread: float) -> float:
    return 1.0 + spread * source.gauss(0, 1)


def tailed(source: random.Random, spread: float) -> float:
    """Mostly close, sometimes much longer, as times are on a machine that is shared."""
    return 1.0 + spread * source.expovariate(1.0) * (8 if source.random() < 0.1 else 1)


def median_of(draw: object, spread: float) -> float:
    source = random.Random(99)
    return statistics.median(draw(source, spread) for _ in range(200_001))  # type: ignore[operator]


@pytest.mark.parametrize("draw", [normal, tailed])
@pytest.mark.parametrize("count", [9, 15, 20, 31])
def test_an_interval_covers_the_median_as_often_as_it_says(draw: object, count: int) -> None:
    source, true = random.Random(count), median_of(draw, 0.05)
    covered = 0
    for _ in range(TRIALS):
        low, high = compute_median_interval([draw(source, 0.05) for _ in range(count)])  # type: ignore[operator]
        covered += low <= true <= high
    error = 3 * math.sqrt(0.05 * 0.95 / TRIALS)
    assert covered / TRIALS >= 0.95 - error


def test_an_interval_leaves_out_what_it_can() -> None:
    assert compute_median_interval(list(range(15))) == (3, 11)  # 96.5%; one less on either side covers 88.2%
    assert compute_median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert compute_median_interval([4.0]) == (4.0, 4.0)


def test_how_many_samples_a_verdict_needs() -> None:
    needed = count_needed_samples(VERDICT_CONFIDENCE)
    assert 2 * 0.5**needed <= 1 - VERDICT_CONFIDENCE < 2 * 0.5 ** (needed - 1)
    sure = Ratio(0.5, 0.49, 0.51, needed)
    assert find_verdict(sure) == "faster"
    assert find_verdict(Ratio(0.5, 0.49, 0.51, needed - 1)) == "undecided"


def trial(source: random.Random, gap: float, noise: float, drift: float, count: int = 20) -> str:
    """Pairs of samples with noise of their own on a clock that wanders for both."""
    ones, others = [], []
    clock = 1.0
    for _ in range(count):
        clock *= 1 + drift * source.gauss(0, 1)
        ones.append(clock * (1 - gap) * math.exp(noise * source.gauss(0, 1)))
        others.append(clock * math.exp(noise * source.gauss(0, 1)))
    return find_verdict(compute_paired_ratio(ones, others))


@pytest.mark.parametrize("noise", [0.002, 0.01, 0.05, 0.2])
def test_a_config_is_hardly_ever_faster_than_itself(noise: float) -> None:
    source = random.Random(1)
    verdicts = [trial(source, 0.0, noise, drift=0.02) for _ in range(TRIALS)]
    assert verdicts.count("faster") / TRIALS <= 0.01
    assert verdicts.count("slower") / TRIALS <= 0.01


@pytest.mark.parametrize("noise", [0.002, 0.005, 0.01])
def test_a_gap_of_two_percent_is_found_however_the_clock_wanders(noise: float) -> None:
    source = random.Random(2)
    verdicts = [trial(source, 0.02, noise, drift=0.02) for _ in range(TRIALS)]
    assert verdicts.count("faster") / TRIALS >= 0.9
    assert verdicts.count("slower") == 0


def test_equals_are_called_the_same_if_there_is_little_noise() -> None:
    source = random.Random(3)
    verdicts = [trial(source, 0.0, 0.003, drift=0.02) for _ in range(TRIALS)]
    assert verdicts.count("same") / TRIALS >= 0.95


def test_nothing_is_rounded_up_into_a_win() -> None:
    assert find_verdict(Ratio(0.995, 0.994, 0.996, 20)) == "same"  # reliably faster, but by less than 1%
    assert find_verdict(Ratio(0.98, 0.97, 1.001, 20)) == "undecided"
    assert find_verdict(Ratio(1.02, 1.01, 1.03, 20)) == "slower"
    assert find_smallest_effect(4e-6) == 0.03
    assert find_verdict(Ratio(0.98, 0.975, 0.985, 20), find_smallest_effect(4e-6)) == "same"


def test_a_summary_keeps_the_samples_in_order() -> None:
    timing = summarize([3e-6, 1e-6, 2e-6])
    assert timing.samples_s == (3e-6, 1e-6, 2e-6)
    assert (timing.median_s, timing.min_s, timing.samples) == (2e-6, 1e-6, 3)
    assert timing.mad_s == pytest.approx(1e-6)


def test_pairs_belong_together() -> None:
    assert compute_paired_ratio([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]).median == 2.0
    with pytest.raises(ValueError, match="shorter"):
        compute_paired_ratio([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="no pairs"):
        compute_paired_ratio([1.0], [0.0])


def test_a_drift_is_seen_and_noise_is_not() -> None:
    source = random.Random(4)
    throttled = [1.0 + 0.01 * number + 0.002 * source.gauss(0, 1) for number in range(15)]
    assert find_drift(throttled).sure and find_drift(throttled).change > 0.08
    steady = [find_drift([tailed(source, 0.05) for _ in range(15)]).sure for _ in range(TRIALS)]
    assert sum(steady) / TRIALS < 0.01
    assert not find_drift([1.0, 2.0]).sure

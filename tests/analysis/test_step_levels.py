"""Levels of step times, found by a test on ranks, and the time of a step."""

from __future__ import annotations

import itertools
import random
import statistics

import pytest

from inductor_bench.analysis.statistics import (
    _compute_errors_of_prefixes,
    compute_typical_time,
    find_change,
    find_groups,
    find_level,
    vary_widely,
)


def noisy(level_s: float, count: int, seed: int = 0) -> list[float]:
    draw = random.Random(seed)
    return [level_s * (1 + 0.01 * draw.gauss(0, 1)) for _ in range(count)]


def test_a_change_of_level_is_found_at_its_step() -> None:
    times = noisy(47e-3, 15) + noisy(57e-3, 35, 1)
    assert find_change(times) == 15
    before, after = find_level(times, 2), find_level(times, 40)
    assert (before.begin, before.end, after.begin, after.end) == (0, 15, 15, 50)
    assert before.time_s == pytest.approx(47e-3, rel=0.01) and after.time_s == pytest.approx(57e-3, rel=0.01)


def test_two_changes_leave_the_level_of_the_place() -> None:
    times = noisy(10e-3, 20) + noisy(20e-3, 20, 1) + noisy(22e-3, 20, 2)
    assert (find_level(times, 30).begin, find_level(times, 30).end) == (20, 40)


@pytest.mark.parametrize(
    "times",
    [
        noisy(10e-3, 50),
        [10e-3, 15e-3] * 25,
        [10e-3 + 0.1e-3 * number for number in range(50)],
        [*noisy(10e-3, 49), 100e-3],
        noisy(10e-3, 25) + noisy(10.2e-3, 25, 1),
        [10e-3] * 4 + [20e-3] * 4,
        [10e-3] * 30,
    ],
    ids=["noise", "alternating", "drift", "one long step", "two percent", "too few", "equal"],
)
def test_what_is_no_change_of_level(times: list[float]) -> None:
    assert find_change(times) is None


def test_the_change_between_exactly_equal_times_is_found() -> None:
    """The sums of the distances are 0 then, or with their rounding errors a little less."""
    for low, high in itertools.product((0.1, 0.3, 0.7), (1.1, 1.3, 2.9)):
        for first in range(5, 26):
            assert find_change([low] * first + [high] * (30 - first)) in (first, None)


def test_noise_hardly_ever_looks_like_a_change() -> None:
    assert sum(find_change(noisy(10e-3, 50, seed)) is not None for seed in range(500)) == 0


def test_one_long_step_does_not_move_the_time_of_a_step() -> None:
    assert compute_typical_time([10e-3] * 20 + [200e-3]) == 10e-3


def test_steps_of_two_kinds_have_a_mean() -> None:
    assert len(find_groups([10e-3, 15e-3] * 10)) == 2 and compute_typical_time([10e-3, 15e-3] * 10) == pytest.approx(
        12.5e-3
    )


# milliseconds of the program of a loader whose workers are waited for, on an H200
STALLS = (
    *(16.7, 11.0, 9.0, 7.4, 6.6, 7.6, 76.2, 7.1, 42.6, 7.7, 43.2, 12.5, 36.3, 41.4, 6.8, 39.6, 7.7, 38.1, 28.9, 16.4),
    *(30.7, 12.7, 55.2, 8.4, 7.3, 7.1, 73.4, 11.5, 33.9, 14.7, 31.0, 15.4, 53.3, 9.1, 60.4, 7.6, 68.1, 8.2, 65.6, 8.9),
)


def test_steps_that_vary_widely_have_a_mean() -> None:
    times = [time_ms / 1e3 for time_ms in STALLS]
    assert len(find_groups(times)) == 1 and vary_widely(times)
    assert (
        compute_typical_time(times) == pytest.approx(statistics.mean(times)) and statistics.median(times) < 0.7 * 25e-3
    )
    assert not vary_widely([10e-3] * 15 + [200e-3] * 4), "fewer than a quarter of the steps are long"


def test_a_few_steps_that_settle_are_not_the_level_of_most() -> None:
    """As on an H200: the first step before a profile, and the first ones after it, of 3854 steps of 0.3 ms."""
    times = [5.72e-3, 0.82e-3, 0.39e-3, *noisy(0.3e-3, 800)]
    found = find_level(times, None)
    assert found.time_s == pytest.approx(0.3e-3, rel=0.01) and found.end == len(times)


def test_most_steps_have_the_longest_level_wherever_it_lies() -> None:
    times = noisy(3e-3, 10) + noisy(2e-3, 12, 1) + noisy(1e-3, 90, 2)
    assert (find_level(times, 11).begin, find_level(times, 11).end) == (10, 22)
    assert (find_level(times, None).begin, find_level(times, None).end) == (22, 112)
    drifting = [time_s * (1 + number // 20) for number, time_s in enumerate(noisy(1e-3, 100))]
    assert find_level(drifting, None).end - find_level(drifting, None).begin >= 67, "no level of a few of the steps"


def test_a_place_behind_the_last_step_counts_as_the_last() -> None:
    assert find_level([1.0, 2.0], 2).time_s == 1.5


@pytest.mark.parametrize(
    "values", [[3.0], [1.0, 1.0], [5.0, 1.0, 4.0, 1.0, 3.0, 9.0, 2.0, 6.0, 5.0], noisy(10e-3, 40, 7)]
)
def test_each_prefix_has_the_sum_of_its_distances_to_its_median(values: list[float]) -> None:
    """One after the other they take a time that grows with the square: minutes for 20,000 steps of 50 µs."""
    wanted = [0.0]
    for end in range(1, len(values) + 1):
        median = statistics.median(values[:end])
        wanted.append(sum(abs(value - median) for value in values[:end]))
    assert _compute_errors_of_prefixes(values) == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_a_change_of_level_is_found_among_very_many_steps() -> None:
    times = [*noisy(50e-6, 12000, 1), *noisy(75e-6, 8000, 2)]
    found = find_change(times)
    assert found is not None and abs(found - 12000) <= 2

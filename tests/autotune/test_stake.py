"""What kernels can win, in which order they are tuned, and when a search is no longer worth its time."""

from __future__ import annotations

import pytest

from inductor_bench.autotune.methods import FEW, NEGLIGIBLE, Pruning, TuningPriority, find_least


def test_a_kernel_can_win_what_its_roof_leaves_and_half_its_time_without_a_roof() -> None:
    assert TuningPriority(1e-3, 2e-4).largest_gain_s == pytest.approx(2.3e-4)
    assert TuningPriority(1e-3).largest_gain_s == pytest.approx(5.3e-4)
    assert TuningPriority(1e-3, 2e-3).largest_gain_s == 1e-3, "no more than its time"
    assert TuningPriority(1e-3, 2e-4).left_s(0.9) == pytest.approx(1.3e-4)
    assert TuningPriority(1e-3, 2e-4).left_s(0.5) == pytest.approx(2.5e-5), "faster than its roof, which is not exact"


def test_a_library_call_comes_before_a_kernel_that_can_win_a_thousandth_of_it() -> None:
    call = TuningPriority(1e-2, is_library_call=True)
    assert TuningPriority(1e-3).rank > call.rank > TuningPriority(1e-5).rank


def test_of_many_kernels_those_are_left_that_can_win_next_to_nothing_together() -> None:
    large, small = [TuningPriority(1e-3)] * FEW, [TuningPriority(1e-6)] * 40
    least_s = find_least([*large, *small, TuningPriority(1.0, is_library_call=True)])
    assert small[0].largest_gain_s < least_s <= large[0].largest_gain_s
    left_s = sum(stake.largest_gain_s for stake in small)
    assert left_s <= NEGLIGIBLE * sum(stake.largest_gain_s for stake in [*large, *small])
    assert find_least(small[:FEW]) == 0.0, "few kernels are all tuned to the end"


def test_a_search_ends_if_little_is_left_or_little_was_gained() -> None:
    ends = Pruning(TuningPriority(1e-3, 2e-4), least_s=5e-5).ends
    assert not ends(1.0, 0.96) and not ends(0.9, 0.895), "little was gained, and much is left"
    assert not ends(1.0, 1.0), "nothing was gained, and the neighbours of the default may gain much"
    assert ends(0.88, 0.86), "little was gained, and little is left"
    assert not ends(1.0, 0.86), "much was gained"
    assert ends(1.0, 0.80), "next to nothing is left"
    ends = Pruning(TuningPriority(1e-3, 1e-4), least_s=5e-5).ends
    assert ends(1.0, 1.0) and not ends(1.0, 0.999), "neighbours of a default that nothing beats gain less often"
    assert not Pruning(TuningPriority(1e-3, 2e-4), 0.0).ends(1.0, 0.5), "one of few kernels is tuned to the end"

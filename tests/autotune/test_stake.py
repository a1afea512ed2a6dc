"""What kernels can win, in which order they are tuned, and when a search is no longer worth its time."""

from __future__ import annotations

from functools import partial

import pytest

from inductor_bench.autotune.stake import FEW, NEGLIGIBLE, Pruning, Stake, find_least


def test_a_kernel_can_win_what_its_roof_leaves_and_half_its_time_without_a_roof() -> None:
    assert Stake(1e-3, 2e-4).most_s == pytest.approx(2.3e-4)
    assert Stake(1e-3).most_s == pytest.approx(5.3e-4)
    assert Stake(1e-3, 2e-3).most_s == 1e-3, "no more than its time"
    assert Stake(1e-3, 2e-4).left_s(0.9) == pytest.approx(1.3e-4) and Stake(1e-3, 2e-4).left_s(0.5) == 0.0


def test_a_library_call_comes_before_a_kernel_that_can_win_a_thousandth_of_it() -> None:
    call = Stake(1e-2, is_library_call=True)
    assert Stake(1e-3).rank > call.rank > Stake(1e-5).rank


def test_of_many_kernels_those_are_left_that_can_win_next_to_nothing_together() -> None:
    large, small = [Stake(1e-3)] * FEW, [Stake(1e-6)] * 40
    least_s = find_least([*large, *small, Stake(1.0, is_library_call=True)])
    assert small[0].most_s < least_s <= large[0].most_s
    left_s = sum(stake.most_s for stake in small)
    assert left_s <= NEGLIGIBLE * sum(stake.most_s for stake in [*large, *small])
    assert find_least(small[:FEW]) == 0.0, "few kernels are all tuned to the end"


def test_a_search_ends_where_little_is_left_or_little_was_gained() -> None:
    pruning = Pruning(Stake(1e-3, 2e-4), least_s=1e-5)
    for are_neighbours in (False, True):
        ends = partial(pruning.ends, are_neighbours=are_neighbours)
        assert not ends(1.0, 1.0), "nothing was gained: the neighbours of the default may gain"
        assert not ends(1.0, 0.9) and ends(1.0, 0.77)
        assert ends(0.9, 0.895) is are_neighbours, "0.125 ms are left, which neighbours may win"
        assert ends(0.82, 0.815), "little is left"
        assert not Pruning(Stake(1e-3, 2e-4), 0.0).ends(1.0, 0.5, are_neighbours=are_neighbours)

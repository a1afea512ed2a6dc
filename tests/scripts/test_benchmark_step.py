"""The comparison of the tool's steps with the program's own times, on made-up ends of steps."""

from __future__ import annotations

import pytest

from scripts.benchmark_step import check_times

ENDS = [10.0, 20.0, 30.0, 40.0, 50.0, 95.0, 105.0]
"""The program's steps take 10 s each, only step 5 takes 45 s."""


def test_the_same_steps_are_compared_without_the_first_and_the_last() -> None:
    # The tool's window is step 1 to step 5; its own work is in the program's step 5.
    found = check_times("step", 1, [10.4, 10.1, 10.1, 10.1, 10.0], ENDS)
    assert found.reached and found.words.startswith("10100.000 ms, 1.0100 of the program's own 10000.000 ms")
    assert "the same 3 steps" in found.words


@pytest.mark.parametrize(("first", "times"), [(1, [10.0, 10.3, 10.0]), (4, [10.0, 10.0, 10.0]), (1, [10.0, 10.0])])
def test_other_times_and_too_few_steps_miss_the_target(first: int, times: list[float]) -> None:
    assert not check_times("step", first, times, ENDS).reached

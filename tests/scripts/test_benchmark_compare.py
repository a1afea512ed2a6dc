"""The comparisons of a program with itself under a random load: what counts as a false verdict, and the load."""

from __future__ import annotations

import sys
import threading

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

import benchmark_compare
from accuracy import load


class Busy:
    """A process that only counts."""

    alive = 0

    def __init__(self, _: object) -> None:
        Busy.alive += 1

    def kill(self) -> None:
        Busy.alive -= 1

    def wait(self) -> None: ...


def test_the_load_comes_from_its_seed_and_ends_with_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load.subprocess, "Popen", Busy)
    monkeypatch.setattr(load, "SHORTEST_S", 0.0)
    monkeypatch.setattr(load, "LONGEST_S", 0.0)
    found = []
    for _ in range(2):
        with load.random_load(7, most=8) as numbers:
            while len(numbers) < 20:
                threading.Event().wait(0.001)
        found.append(numbers[:20])
        assert Busy.alive == 0
    assert found[0] == found[1] and set(found[0]) <= set(range(9)) and len(set(found[0])) > 3


@pytest.mark.parametrize(
    ("line", "is_false"),
    [
        ("B is 6.7% slower: a step takes 3.57 ms in A and 3.81 ms in B", True),
        ("Parts that differ beyond noise: aten.reshape -8.3 ms (2 → 0 calls).", True),
        ("aten.reshape   8.30 ms   0 s   -8.30 ms   -2.3%  faster", True),
        ("Undecided: a step takes 3.57 ms in A and 3.81 ms in B", False),
    ],
)
def test_what_a_comparison_of_a_program_with_itself_must_not_say(line: str, is_false: bool) -> None:
    assert bool(benchmark_compare.CERTAIN.search(line)) is is_false

"""The verdict on a step from whole processes of two versions of a program."""

from __future__ import annotations

import itertools
import random
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from inductor_bench.analysis.optimization.step_proof import A, B, prove_step
from inductor_bench.analysis.statistics import compute_shift
from inductor_bench.records.base import Failure
from inductor_bench.records.code import MachineLoad
from inductor_bench.records.optimization import KEPT_SIZES, MODE_BITS, TIMED, KindSizes, StepDigest, Trial, TrialVariant

SIZES = {11: 0.004, 12: 0.008, 13: 0.020}
"""The seconds of a step of each kind."""


def make_process(side: str, times_s: Sequence[float], kinds: Sequence[int] = (1,), **fields: object) -> Trial:
    variant = TrialVariant(side, tuple(times_s), tuple(range(len(times_s))), tuple(kinds))
    return replace(Trial(f"01-{side}", TIMED, False, (side,), (variant,), device="cpu"), **fields)  # type: ignore[arg-type]


def make_side(side: str, step_s: float, count: int, scatter: float = 0.01, seed: int = 0) -> list[Trial]:
    """Processes whose levels scatter by this share."""
    draw = random.Random(f"{side} {seed}")
    levels = [step_s * draw.gauss(1, scatter) for _ in range(count)]
    return [make_process(side, [level * draw.gauss(1, 0.02) for _ in range(40)]) for level in levels]


def serve(side: str, count: int, factors: dict[int, float], numbers: dict[int, int], seed: int = 0) -> list[Trial]:
    """Processes of a service with requests of three sizes, in any order."""
    draw, found = random.Random(f"{side} {seed}"), []
    for _ in range(count):
        sizes = draw.choices(list(SIZES), (3, 2, 1), k=90)
        level = draw.gauss(1, 0.01)
        times = [SIZES[size] * factors.get(size, 1.0) * level for size in sizes]
        found.append(make_process(side, times, [numbers.get(size, size) for size in sizes]))
    return found


def test_a_clear_difference_needs_few_processes_and_equal_sides_stay_undecided() -> None:
    found = prove_step(make_side(A, 0.010, 3), make_side(B, 0.007, 3))
    assert found is not None and found.verdict == "faster" and found.low_s is not None and found.high_s is not None
    assert found.low_s < -0.003 < found.high_s < 0 and found.b_s == pytest.approx(found.a_s + found.delta_s)
    equal = prove_step(make_side(A, 0.010, 6), make_side(B, 0.010, 6))
    assert equal is not None and equal.verdict == "undecided"
    same = prove_step(make_side(A, 0.010, 12, 0.001), make_side(B, 0.010, 12, 0.001))
    assert same is not None and same.verdict == "same"


def test_of_equal_sides_at_most_a_hundredth_is_called_different() -> None:
    verdicts = Counter(
        found.verdict
        for seed in range(400)
        if (found := prove_step(make_side(A, 0.01, 4 + seed % 5, 0.03, seed), make_side(B, 0.01, 5, 0.03, seed)))
    )
    assert verdicts["faster"] + verdicts["slower"] <= 4, verdicts


def test_processes_with_two_levels_are_not_called_different() -> None:
    wrong, draw = 0, random.Random(7)
    for _ in range(500):
        levels = [[0.01 * draw.choice((1.0, 1.05)) * draw.gauss(1, 0.003) for _ in range(3)] for _ in range(2)]
        a, b = ([make_process(name, [one] * 8) for one in side] for name, side in zip((A, B), levels, strict=True))
        found = prove_step(a, b)
        wrong += found is not None and found.verdict != "undecided"
    assert wrong <= 10


def test_sides_that_scatter_differently_are_not_called_different() -> None:
    wrong = 0
    for seed in range(300):
        found = prove_step(make_side(A, 0.01, 3, 0.10, seed), make_side(B, 0.01, 9, 0.01, seed))
        wrong += found is not None and found.verdict in ("faster", "slower")
    assert wrong <= 6


def test_single_disturbed_processes_do_not_hide_a_difference() -> None:
    a, b = make_side(A, 0.010, 12), make_side(B, 0.0085, 12)
    b[3] = make_process(B, [0.030] * 40)
    found = prove_step(a, b)
    assert found is not None and found.verdict == "faster" and found.delta_s == pytest.approx(-0.0015, rel=0.15)


def test_processes_beside_others_do_not_count_if_enough_are_left() -> None:
    loads = [MachineLoad(1, 2, time_s=1.0, cpu_time_s=1.0, **{what: 1.0}) for what in ("others_s", "waited_s")]  # type: ignore[arg-type]
    busy = [replace(trial, load=load) for trial, load in zip(make_side(B, 0.030, 2), loads, strict=True)]
    found = prove_step(make_side(A, 0.010, 4), [*make_side(B, 0.007, 3), *busy])
    assert found is not None and len(found.b_steps_s) == 3 and found.verdict == "faster"
    assert found.notes == ("2 of the 9 processes do not count, because other processes used the cores meanwhile",)
    few = prove_step(make_side(A, 0.010, 4), [*make_side(B, 0.007, 2), *busy])
    assert few is not None and len(few.b_steps_s) == 4 and few.verdict == "undecided"
    assert few.notes == ("other processes used the cores during 2 of the 8 processes",)


@pytest.mark.parametrize("numbers", [{}, {11: 21, 12: 22, 13: 23}], ids=["same kinds", "other kinds"])
def test_steps_of_several_sizes_are_compared_size_by_size(numbers: dict[int, int]) -> None:
    found = prove_step(serve(A, 6, {}, {}), serve(B, 6, {11: 0.7}, numbers))
    assert found is not None and [kind.verdict for kind in found.kinds] == ["faster", "undecided", "undecided"]
    assert found.kinds[0].delta_s == pytest.approx(-0.0012, rel=0.1)
    assert sum(kind.share for kind in found.kinds) == pytest.approx(1.0)
    assert found.delta_s == pytest.approx(sum(kind.share * kind.delta_s for kind in found.kinds), rel=0.2)
    assert ("paired with those of A in the order of their times" in " ".join(found.notes)) == bool(numbers)


@pytest.mark.parametrize(
    ("sizes", "names"),
    [
        (((2, 176), (2, 192, 2), (2, 208, 64)), ["size 176", "size 192", "sizes 64, 208"]),
        (((176,), (192, 176, 176), (208,)), [""] * 3),  # the first one has no size of its own
        (((176,), (192,)), [""] * 3),  # the sizes of a kind are unknown
        (((176,), (192,), (208,) * KEPT_SIZES), [""] * 3),  # perhaps not all are kept
        (((176,), (192,), (1, 2, 3, 4)), [""] * 3),  # too many
    ],
)
def test_kinds_of_a_b_without_gradients_are_those_of_a_and_have_the_names_of_their_sizes(
    sizes: Sequence[tuple[int, ...]], names: list[str]
) -> None:
    recording, without = ({kind: (kind << MODE_BITS) + mode for kind in SIZES} for mode in (True, False))
    named = tuple(KindSizes(recording[kind], own) for kind, own in zip(SIZES, sizes, strict=False))
    a = [replace(trial, kind_sizes=named) for trial in serve(A, 6, {}, recording)]
    found = prove_step(a, serve(B, 6, {11: 0.7}, without))
    assert found is not None and "in the order of their times" not in " ".join(found.notes)
    assert [kind.name for kind in found.kinds] == names


def test_kinds_without_counterparts_leave_the_mean_over_all_steps() -> None:
    times = [0.004, 0.008, 0.020] * 20
    a = [make_process(A, times, [11, 12, 13] * 20) for _ in range(6)]
    b = [make_process(B, [0.5 * one for one in times], [21]) for _ in range(6)]
    found = prove_step(a, b)
    assert found is not None and not found.kinds and "the mean over all timed steps is compared" in found.notes[0]
    assert found.a_s == pytest.approx(statistics.fmean(times))


@pytest.mark.parametrize(
    ("ours", "theirs", "difference", "note"),
    [
        ((1.0, 1.0), 0.5, "the norm of the gradients differs in 20 of the first 20 steps", ""),
        ((1.0, 1.0), 1.0, "", "the gradients and losses of 20 steps of the optimizer agree"),
        ((1.0, 1.01), 0.5, "", "gradients were not compared: A's processes do not agree with each other"),
        ((1.0,), 0.5, "", ""),
    ],
    ids=["other gradients", "equal gradients", "no seed", "one process of A"],
)
def test_gradients_are_compared_if_processes_repeat_each_other(
    ours: Sequence[float], theirs: float, difference: str, note: str
) -> None:
    def with_norms(side: str, norms: Sequence[float]) -> list[Trial]:
        digests = [tuple(StepDigest(step, norm, (norm,), 1.0) for step in range(20)) for norm in norms]
        return [
            replace(trial, digests=one) for trial, one in zip(make_side(side, 0.01, len(norms)), digests, strict=True)
        ]

    found = prove_step(with_norms(A, ours), with_norms(B, (theirs, theirs)))
    assert found is not None and found.difference.startswith(difference) and bool(found.difference) == bool(difference)
    assert "; ".join(found.notes).startswith(note) and bool(found.notes) == bool(note)


def test_steps_that_are_rarely_long_decide_against_the_median() -> None:
    b = [make_process(B, [0.01 * (3 if place % 10 == 9 else 1) for place in range(40)]) for _ in range(12)]
    found = prove_step(make_side(A, 0.010, 12, 0.001), b)
    assert found is not None and found.verdict == "undecided"
    assert found.notes[0].startswith("by the mean of all steps B is 20")
    assert found.notes[0].endswith(": 48 of B's 480 steps take far longer, 30.0 ms in the median")
    turned = prove_step([replace(one, slugs=(A,)) for one in b], make_side(B, 0.010, 12, 0.001))
    assert turned is not None and "48 of A's 480 steps take far longer" in turned.notes[0]


def test_few_processes_have_no_interval_and_a_failed_one_does_not_count() -> None:
    failed = replace(make_process(B, []), failure=Failure("optimize", "exit", "the program ended"))
    found = prove_step(make_side(A, 0.010, 2), [*make_side(B, 0.005, 2), failed])
    assert found is not None and (found.low_s, found.high_s, found.verdict) == (None, None, "undecided")
    assert found.failure == "B: the program ended"
    assert prove_step(make_side(A, 0.010, 2), [failed]) is None


def test_the_interval_of_ranks_is_the_exact_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all orders of six and six samples, those whose interval leaves out 0 are as rare as promised."""
    monkeypatch.setattr("inductor_bench.analysis.statistics.RANKED", 6)
    outside = 0
    for places in itertools.combinations(range(12), 6):
        ours = [float(place) for place in places]
        theirs = [float(place) for place in range(12) if place not in places]
        shift = compute_shift(ours, theirs, 0.99)
        outside += shift.low > 0 or shift.high < 0
    assert 0 < outside <= 0.01 * 924

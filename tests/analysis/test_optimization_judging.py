"""What the samples of variants prove: pairs, placebos, processes of their own, and the band of gradients and losses."""

import math
import random
from dataclasses import replace

import pytest
from tried_programs import DrawnProgram

from inductor_bench.analysis.optimization.judging import (
    LEAST_PAIRS,
    compute_placebo_logarithm,
    describe_digest_difference,
    estimate_scatter,
    judge_alone,
    judge_variant,
    pair_logarithms,
    predict_saving,
    scatter_alone,
    seems_faster,
    split_into_turns,
)
from inductor_bench.analysis.optimization.row_verdicts import judge_lost_gain
from inductor_bench.analysis.optimization.trial_plans import TrialCandidate, TrialPlan
from inductor_bench.analysis.statistics import compute_student_quantile
from inductor_bench.records.optimization import (
    FASTER,
    LOST,
    ORIGINAL,
    PLACEBO,
    SAME,
    SLOWER,
    UNDECIDED,
    MeasuredGain,
    StepDigest,
    Trial,
    TrialVariant,
    VariantCheck,
)


def trials_of(program: DrawnProgram, *slugs: str, count: int = 2, alternates: bool = True) -> list[Trial]:
    candidates = [TrialCandidate(PLACEBO)] * alternates + [TrialCandidate(slug) for slug in slugs]
    plans = [TrialPlan(f"{number}", "prove", tuple(candidates), alternates, 6.0, 24) for number in range(count)]
    return [program.run(plan) for plan in plans]


@pytest.mark.parametrize(
    ("freedom", "confidence", "known"), [(1, 0.95, 12.706), (4, 0.999, 8.610), (8, 0.99, 3.355), (15, 0.95, 2.131)]
)
def test_quantiles_of_student_are_those_of_tables(freedom: int, confidence: float, known: float) -> None:
    assert compute_student_quantile(freedom, confidence) == pytest.approx(known, abs=5e-4)


def test_a_turn_is_in_one_pair_and_meets_its_nearest_neighbour() -> None:
    variant = TrialVariant("a", (2.0, 4.0, 8.0), (1, 4, 9))
    base = TrialVariant(ORIGINAL, (1.0, 2.0, 4.0), (0, 3, 8))
    assert pair_logarithms(variant, base) == pytest.approx([math.log(2.0)] * 3)
    assert pair_logarithms(variant, TrialVariant(ORIGINAL, (1.0,), (0,))) == pytest.approx([math.log(2.0)])


def test_steps_that_follow_each_other_are_one_sample() -> None:
    variant = TrialVariant("a", (1.0, 2.0, 3.0, 5.0, 7.0), (1, 2, 3, 8, 9))
    assert split_into_turns(variant) == [(2.0, 2.0), (8.5, 6.0)]
    assert split_into_turns(TrialVariant("a")) == []


@pytest.mark.parametrize("saving", [0.02, 0.05])
def test_a_true_gain_lies_in_its_interval(saving: float) -> None:
    hits = 0
    for seed in range(40):
        found = judge_variant(trials_of(DrawnProgram(seed, {"a": saving}), "a", count=4), "a")
        assert found is not None
        hits += found.low <= saving <= found.high
        assert found.verdict in (FASTER, UNDECIDED)
    assert hits >= 39


def test_what_makes_the_step_longer_is_slower() -> None:
    found = judge_variant(trials_of(DrawnProgram(0, {"a": -0.05}), "a", count=4), "a")
    assert found is not None and found.verdict == SLOWER and found.share < -0.04


def test_one_process_decides_nothing() -> None:
    found = judge_variant(trials_of(DrawnProgram(0, {"a": 0.3}), "a", count=1), "a")
    assert found is not None and found.verdict == UNDECIDED and found.share == pytest.approx(0.3, abs=0.02)


def test_what_does_not_beat_the_placebo_is_no_gain() -> None:
    """Both processes show 3%, and the placebo of one shows as much."""
    program = DrawnProgram(0, {"a": 0.03}, between=0.0)
    honest, disturbed = trials_of(program, "a")
    slow = {one.slug: tuple(1.04 * time_s for time_s in one.times_s) for one in disturbed.variants}
    variants = tuple(
        one if one.slug != PLACEBO else TrialVariant(PLACEBO, slow[PLACEBO], one.places) for one in disturbed.variants
    )
    trials = [honest, Trial(**{**vars(disturbed), "variants": variants})]
    found = judge_variant(trials, "a")
    assert found is not None and found.verdict == UNDECIDED and found.placebo > 0.03
    assert not seems_faster(found, alternated=True)


def test_processes_that_disagree_decide_nothing() -> None:
    faster, slower = trials_of(DrawnProgram(0, {"a": 0.1}), "a", count=1), trials_of(DrawnProgram(1, {"a": -0.1}), "a")
    found = judge_variant([*faster, *slower], "a")
    assert found is not None and found.verdict == UNDECIDED


def test_few_steps_decide_nothing() -> None:
    program = DrawnProgram(0, {"a": 0.3}, most=5)
    found = judge_variant(trials_of(program, "a"), "a")
    assert found is not None and found.samples < LEAST_PAIRS and found.verdict == UNDECIDED


def test_a_drift_and_long_steps_do_not_hide_a_gain() -> None:
    program = DrawnProgram(3, {"a": 0.05}, drift=0.5, outliers=0.2)
    found = judge_variant(trials_of(program, "a", count=4), "a")
    assert found is not None and found.verdict == FASTER and found.share == pytest.approx(0.05, abs=0.02)


def test_a_placebo_that_failed_says_nothing() -> None:
    (trial,) = trials_of(DrawnProgram(0), "a", count=1)
    assert compute_placebo_logarithm(trial) is not None
    failed = tuple(TrialVariant(PLACEBO, failure="x") if one.slug == PLACEBO else one for one in trial.variants)
    assert compute_placebo_logarithm(Trial(**{**vars(trial), "variants": failed})) is None
    assert estimate_scatter([]).reach(2, 0.99) == math.inf


def test_processes_of_their_own_are_judged_by_their_scatter() -> None:
    program = DrawnProgram(0, {"a": 0.3, "b": 0.01}, levels=0.01)
    trials = [
        trial
        for name in (ORIGINAL, "a", "b", "b", "a", ORIGINAL) * 2
        for trial in trials_of(program, name, count=1, alternates=False)
    ]
    large, small = judge_alone(trials, "a"), judge_alone(trials, "b")
    assert large is not None and large.verdict == FASTER and large.low < 0.3 < large.high
    assert small is not None and small.verdict == UNDECIDED
    assert judge_alone(trials, "c") is None


def digests(seed: int, factor: float = 1.0, steps: int = 50) -> tuple[StepDigest, ...]:
    draw = random.Random(seed)
    return tuple(
        StepDigest(step, factor * draw.uniform(0.999, 1.001), (1.0, 2.0), 2.0 / (1 + step)) for step in range(steps)
    )


def test_gradients_within_the_band_of_the_original_agree() -> None:
    assert describe_digest_difference([digests(0), digests(1)], digests(2)) == ""
    assert describe_digest_difference([], digests(2)) == "" and describe_digest_difference([digests(0)], ()) == ""


def test_gradients_beyond_the_band_differ() -> None:
    said = describe_digest_difference([digests(0), digests(1)], digests(2, 1.1))
    assert said.startswith("the norm of the gradients differs in 20 of the first 20 steps")


def test_later_steps_of_a_chaotic_training_may_part() -> None:
    parted = [
        replace(one, norm=one.norm * 1.3, loss=(one.loss or 0.0) * 1.04) if one.step > 60 else one
        for one in digests(2, steps=200)
    ]
    assert describe_digest_difference([digests(0, steps=200)] * 2, parted) == ""


def test_a_training_that_converges_elsewhere_differs() -> None:
    worse = [replace(one, loss=(one.loss or 0.0) + 0.1) if one.step > 20 else one for one in digests(2, steps=200)]
    assert "the mean loss of 180 later steps is" in describe_digest_difference([digests(0, steps=200)] * 2, worse)


def test_a_loss_that_is_no_number_differs() -> None:
    wrong = [replace(one, loss=math.nan) for one in digests(2)]
    assert "the loss differs in 20 of the first 20 steps" in describe_digest_difference([digests(0), digests(1)], wrong)


def test_a_parameter_without_gradient_differs() -> None:
    dropped = [replace(one, sums=(0.0, 2.0)) for one in digests(2)]
    said = describe_digest_difference([digests(0)], dropped)
    assert said == "the gradient of parameter 0 has a norm of 0 instead of 1"


def test_a_difference_counts_beyond_what_the_original_differs_from_itself() -> None:
    assert VariantCheck("0/0", 1, 1, 3.0, 0.1).differs
    assert not VariantCheck("0/0", 1, 1, 3.0, 2.0).differs
    assert not VariantCheck("0/0", 1, 1, 0.5, 0.1).differs
    assert not VariantCheck("0/0", 0, 0, 9.0, 0.1, is_compared=False).differs


# Processes of their own on several GPUs


def alone(name: str, slug: str, gpu: str, log: float) -> Trial:
    return Trial(name, "prove", False, (slug,), (TrialVariant(slug, (math.exp(log),), (0,)),), gpu=gpu)


def test_levels_of_gpus_are_no_scatter() -> None:
    """Two GPUs, one slower by half, and settings that save a tenth: nothing is left but chance."""
    trials = [
        alone(f"{gpu}{slug}", slug, gpu, level + saving)
        for gpu, level in (("0", 0.0), ("1", 0.5))
        for slug, saving in ((ORIGINAL, 0.0), ("a", -0.1), ("b", -0.2))
    ]
    scatter = scatter_alone(trials)
    assert scatter.variance == pytest.approx(0.0, abs=1e-12) and scatter.freedom == 6 - 2 - 3 + 1
    gain = judge_alone(trials, "a")
    assert gain is not None and gain.share == pytest.approx(-math.expm1(-0.1)) and gain.verdict == FASTER


def test_gpus_that_share_no_setting_are_not_compared() -> None:
    trials = [alone("1", ORIGINAL, "0", 0.0), alone("2", "a", "1", -0.1)]
    assert judge_alone(trials, "a") is None and scatter_alone(trials).freedom == 0


def test_a_gain_on_one_gpu_alone_is_none() -> None:
    values = [(ORIGINAL, "0", 0.0), ("a", "0", -0.3), (ORIGINAL, "1", 0.0), ("a", "1", 0.05)]
    many = [alone(f"{turn}{slug}{gpu}", slug, gpu, log) for turn in range(9) for slug, gpu, log in values]
    gain = judge_alone(many, "a")
    assert gain is not None and gain.share > 0.1 and gain.verdict == UNDECIDED


def test_one_gpu_is_judged_as_before() -> None:
    """The interval by hand: two processes of each, two degrees of freedom."""
    trials = [alone("1", ORIGINAL, "", 0.01), alone("2", "a", "", -0.2), alone("3", "a", "", -0.22)]
    trials.append(alone("4", ORIGINAL, "", -0.01))
    gain = judge_alone(trials, "a")
    reach = compute_student_quantile(2, 1 - 0.001 / 3) * math.sqrt((2 * 0.01**2 + 2 * 0.01**2) / 2)
    assert gain is not None and (gain.low, gain.high) == pytest.approx(
        (-math.expm1(-0.21 + reach), -math.expm1(-0.21 - reach))
    )


def alternated(name: str, **logs: float) -> Trial:
    """A process in which variants took turns, each with one time."""
    variants = tuple(TrialVariant(slug, (math.exp(log),), (place,)) for place, (slug, log) in enumerate(logs.items()))
    return Trial(name, "prove", True, tuple(logs), variants)


@pytest.mark.parametrize(
    ("turns", "whole", "most"), [(0, 3, 0.97), (3, 0, 0.97), (6, 0, 0.97), (2, 2, 0.99), (2, 1, 1.0)]
)
def test_a_new_process_saves_what_was_predicted_in_19_of_20_searches(turns: int, whole: int, most: float) -> None:
    """Processes with equal settings differ by 8%, far more than the interval of a proof in turns says."""
    draw, hits, searches = random.Random(7), 0, 1000
    for _ in range(searches):
        own = [draw.gauss(0, 0.08) for _ in range(turns)]
        proofs = [alternated(f"t{place}", original=log, a=log - 0.5) for place, log in enumerate(own)]
        logs = [(name, log + draw.gauss(0, 0.08)) for name, log in [(ORIGINAL, 0.0), ("a", -0.5)] * whole]
        runs = [alone(f"{place}", name, "", log) for place, (name, log) in enumerate(logs)]
        gain = judge_alone(runs, "a") if whole else judge_variant(proofs, "a")
        assert gain is not None
        expected = predict_saving([*proofs, *runs], "a", gain, runs)
        assert expected is not None
        saved = -math.expm1(-0.5 + draw.gauss(0, 0.08) - draw.gauss(0, 0.08))
        hits += expected[0] <= saved <= expected[1]
    assert 0.93 <= hits / searches <= most


def test_few_processes_predict_nothing() -> None:
    runs = trials_of(DrawnProgram(0, {"a": 0.3}), "a", count=2)
    gain = judge_variant(runs, "a")
    assert gain is not None and predict_saving(runs, "a", gain) is None, "both variants share their two processes"
    more = [*runs, *trials_of(DrawnProgram(1, {"a": 0.3}), "a", count=1)]
    low, high = predict_saving(more, "a", gain) or (1.0, 0.0)
    assert low < 0.3 < high


def test_a_process_that_the_search_ended_predicts_nothing() -> None:
    values = [(ORIGINAL, 0.01), ("a", -0.4), (ORIGINAL, -0.01), ("a", -0.42)]
    runs = [alone(f"{place}", name, "", log) for place, (name, log) in enumerate(values)]
    gain = judge_alone(runs, "a")
    assert gain is not None
    ended = [replace(alone("5", "a", "", 2.0), late=True), replace(alternated("6", original=3.0, a=0.0), late=True)]
    assert predict_saving([*runs, *ended], "a", gain, runs) == predict_saving(runs, "a", gain, runs) is not None


@pytest.mark.parametrize(
    ("share", "high", "placebo", "verdict", "state"),
    [
        (0.119, 0.9, 0.527, UNDECIDED, UNDECIDED),
        (-0.03, 0.9, 0.1, UNDECIDED, UNDECIDED),
        (0.004, 0.9, 0.003, UNDECIDED, LOST),
        (-0.03, 0.9, 0.01, UNDECIDED, LOST),
        (0.004, 0.008, 0.05, UNDECIDED, LOST),
        (0.001, 0.002, 0.1, SAME, LOST),
        (-0.05, -0.01, 0.1, SLOWER, LOST),
    ],
)
def test_a_row_is_no_faster_only_if_no_saving_can_hide_in_the_noise(
    share: float, high: float, placebo: float, verdict: str, state: str
) -> None:
    gain = MeasuredGain(share, -0.9, high, 0.02, 0.02 * (1 - share), 1, 24, placebo, verdict)
    assert judge_lost_gain(gain)["state"] == state

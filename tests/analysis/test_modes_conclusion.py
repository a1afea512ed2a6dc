"""What a comparison of modes says: intervals over processes, verdicts, when compilation pays, the row to take."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from mode_rows import comparison, found, row

from inductor_bench.analysis.mode_conclusion import (
    DECIDING,
    NOISE,
    SHOWN,
    LogInterval,
    compute_geometric_interval,
    decide_step_verdict,
    write_lines,
)
from inductor_bench.records.base import Failure
from inductor_bench.records.comparison import AGREES, DIFFERS, Agreement, ModeSet

EAGER = row("eager", [0.100, 0.101, 0.099, 0.100])
DEFAULT = row("default", [0.050, 0.0501, 0.0499, 0.050], 10.0, codes=("a",))
TUNED = row("max-autotune", [0.040, 0.0401, 0.0399, 0.040], 30.0, codes=("b",))


def test_the_interval_is_that_of_student_on_logarithms() -> None:
    found = compute_geometric_interval([1.0, 1.0, math.e, math.e], SHOWN)
    assert found is not None and found.mean == pytest.approx(math.exp(0.5))
    assert math.log(found.high) == pytest.approx(0.5 + 3.182 * math.sqrt(1 / 3) / 2)  # t of three degrees
    assert compute_geometric_interval([1.0], SHOWN) is None


def test_the_interval_holds_the_mean_as_often_as_it_says() -> None:
    source, held = random.Random(17), 0
    for _ in range(2000):
        interval = compute_geometric_interval([math.exp(source.gauss(0, 0.05)) for _ in range(4)], DECIDING)
        assert interval is not None
        held += interval.low <= 1 <= interval.high
    assert held / 2000 == pytest.approx(0.99, abs=0.007)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("noise", [0.01, 0.2, 0.3, NOISE])
def test_the_interval_of_few_ratios_holds_what_is_true_as_often_as_it_says(noise: float, count: int) -> None:
    source, held = random.Random(17), 0
    for _ in range(6000):
        ratios = [math.exp(source.gauss(0, noise) - source.gauss(0, noise)) for _ in range(count)]
        interval = compute_geometric_interval(ratios, DECIDING, NOISE * math.sqrt(2))
        assert interval is not None
        held += interval.low <= 1 <= interval.high
    assert 0.985 <= held / 6000 < 0.9985, "two intervals keep it together"


def test_few_processes_are_taken_to_differ_by_a_limited_noise() -> None:
    alone = compute_geometric_interval([1.0, 1.1], DECIDING)
    assert alone is not None and math.log(alone.high / alone.mean) == pytest.approx(3.291 * NOISE / math.sqrt(2))
    wild = compute_geometric_interval([1.0, 3.0], DECIDING)
    assert wild is not None and math.log(wild.high / wild.mean) == pytest.approx(3.291 * math.log(3) / 2)
    calm = compute_geometric_interval([1.0, 1.001], DECIDING)
    assert calm is not None and math.log(calm.high / calm.mean) == pytest.approx(70.731 * math.log(1.001) / 2)


def test_two_rounds_of_a_noisy_machine_tell_a_mode_that_is_seven_times_as_fast() -> None:
    """The LLM decode of ``scripts/programs`` on an H200, whose host sets the pace of three of four rows."""
    on_gpu = {"device": "cuda"}
    eager = row("eager", [6.62e-3, 5.26e-3], **on_gpu)
    default = row("default", [4.21e-3, 3.79e-3], 17.2, codes=("a",), **on_gpu)
    graphs = row("reduce-overhead", [0.763e-3, 0.824e-3], 17.5, codes=("a",), replays=1, **on_gpu)
    tuned = row("max-autotune-no-cudagraphs", [4.12e-3, 2.45e-3], 52.2, codes=("b",), **on_gpu)
    winner = comparison(eager, default, graphs, tuned).winner
    assert winner is not None and (winner.name, winner.decided, winner.equals) == ("reduce-overhead", True, ())


def test_two_rounds_on_a_cpu_whose_load_changes_tell_no_mode_from_another() -> None:
    """Two processes of a row ran beside eight busy ones, those of the other row did not: both are the same program."""
    rounds = [row("eager", [31e-3, 33e-3]), row("default", [7.1e-3, 6.4e-3], 5.0, codes=("a",))]
    ratio = found(comparison(*rounds), "default").figures
    assert ratio is not None and ratio.to_eager is not None and ratio.to_eager.verdict == "undecided"


def test_rows_of_equal_code_whose_kernels_have_other_configs_are_not_the_same() -> None:
    first = row("default", [10e-3, 10.1e-3, 9.9e-3, 10e-3], 5.0, codes=("a",), configs="x")
    other = row("max-autotune", [7e-3, 7.1e-3, 6.9e-3, 7e-3], 9.0, codes=("a",), configs="y")
    figures = found(comparison(first, other), "max-autotune").figures
    assert figures is not None and figures.same_code_as == "", "their difference is no noise"


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((0.9, 0.85, 0.95), "faster"),
        ((1.1, 1.05, 1.15), "slower"),
        ((0.995, 0.993, 0.997), "same"),
        ((0.9, 0.7, 1.1), "undecided"),
        ((0.992, 0.98, 0.999), "undecided"),
    ],
)
def test_a_verdict_needs_an_interval_and_an_effect(interval: tuple[float, float, float], verdict: str) -> None:
    assert decide_step_verdict(LogInterval(*interval)) == verdict


def test_the_fastest_row_wins_and_its_longer_compilation_pays() -> None:
    compared = comparison(EAGER, DEFAULT, TUNED)
    assert compared.winner is not None
    assert (compared.winner.name, compared.winner.fastest, compared.winner.equals) == ("max-autotune",) * 2 + ((),)
    assert compared.winner.lines == ('torch.compile(model, mode="max-autotune")',)
    figures = found(compared, "max-autotune").figures
    assert figures is not None and figures.to_eager is not None
    assert figures.to_eager.ratio == pytest.approx(0.4, rel=1e-3) and figures.to_eager.verdict == "faster"
    assert figures.pays_after == pytest.approx(30 / 0.060, rel=1e-3)
    assert (figures.cheaper, figures.pays_after_cheaper) == ("default", pytest.approx(20 / 0.010, rel=1e-2))
    assert figures.recompile_time_s == 1.0


def test_of_rows_with_the_same_code_the_plainer_one_wins_though_the_other_is_reliably_faster_than_eager() -> None:
    noisy = row("default", [0.05, 0.14, 0.05, 0.06], 10.0, codes=("a",))
    same = row("max-autotune-no-cudagraphs", [0.05, 0.0502, 0.0498, 0.05], 10.0, codes=("a",))
    compared = comparison(EAGER, noisy, same)
    ratios = [one.figures.to_eager for one in compared.rows[1:] if one.figures is not None]
    assert [ratio is not None and ratio.verdict == "faster" for ratio in ratios] == [False, True]
    assert compared.winner is not None and compared.winner.name == "default"


def test_within_noise_the_shorter_compilation_wins() -> None:
    noisy = row("max-autotune", [0.049, 0.0505, 0.0488, 0.0502], 30.0, codes=("b",))
    winner = comparison(EAGER, DEFAULT, noisy).winner
    assert winner is not None
    assert (winner.name, winner.fastest, winner.equals) == ("default", "max-autotune", ("default",))


def test_noise_that_hides_a_large_difference_leaves_it_undecided() -> None:
    wild = comparison(EAGER, row("default", [0.02, 0.09, 0.03, 0.08], 10.0, codes=("a",))).winner
    assert wild is not None and (wild.name, wild.fastest, wild.decided) == ("eager", "default", False)
    calm = comparison(EAGER, row("default", [0.0995, 0.1, 0.0985, 0.1], 10.0, codes=("a",))).winner
    assert calm is not None and (calm.name, calm.fastest, calm.decided) == ("eager", "default", True)


def test_a_row_that_is_reliably_faster_than_eager_precedes_one_that_only_may_be() -> None:
    wild = row("default", [0.034, 0.070, 0.104, 0.101], 15.0, codes=("a",))
    winner = comparison(EAGER, wild, TUNED).winner
    assert winner is not None and (winner.name, winner.equals, winner.decided) == ("max-autotune", ("default",), True)


def test_of_nearly_equal_compilations_the_plainer_row_wins() -> None:
    other = row("reduce-overhead", [0.0499, 0.0501, 0.0500, 0.0498], 8.0, codes=("b",))
    winner = comparison(EAGER, DEFAULT, other).winner
    assert winner is not None and winner.name == "default"


def test_where_no_mode_is_reliably_faster_the_program_stays_uncompiled() -> None:
    slow = row("default", [0.099, 0.102, 0.098, 0.101], 10.0, codes=("a",))
    compared = comparison(EAGER, slow)
    assert compared.winner is not None and (compared.winner.name, compared.winner.lines) == ("eager", ())
    figures = found(compared, "default").figures
    assert figures is not None and figures.pays_after is None


def test_a_drift_of_the_machine_cancels() -> None:
    drift = [1.0, 1.2, 1.4, 1.6]
    eager = row("eager", [0.100 * one for one in drift])
    compiled = row("default", [0.080 * one for one in drift], 10.0, codes=("a",))
    figures = found(comparison(eager, compiled), "default").figures
    assert figures is not None and figures.to_eager is not None
    assert figures.to_eager.verdict == "faster" and figures.to_eager.high == pytest.approx(0.8)


def test_the_same_code_is_never_faster_than_itself() -> None:
    twin = row("max-autotune", [0.040, 0.0401, 0.0399, 0.040], 9.0, codes=("a",))
    compared = comparison(EAGER, DEFAULT, twin)
    figures = found(compared, "max-autotune").figures
    assert figures is not None and figures.same_code_as == "default"
    assert compared.winner is not None and compared.winner.name == "default"
    graphs = row("reduce-overhead", [0.040, 0.0401, 0.0399, 0.040], 9.0, codes=("a",), replays=1)
    winner = comparison(EAGER, DEFAULT, graphs).winner
    assert winner is not None and winner.name == "reduce-overhead", "CUDA graphs replay the same code faster"
    switched = row(ModeSet("default", ("tf32",)), [0.040, 0.0401, 0.0399, 0.040], 9.0, codes=("a",))
    winner = comparison(EAGER, DEFAULT, switched).winner
    assert winner is not None and winner.name == "default + tf32", "a switch acts on the libraries"


def test_a_row_with_other_outputs_or_a_failure_never_wins() -> None:
    wrong = replace(Agreement(DIFFERS, 0.5))
    differing = row("max-autotune", [0.010] * 4, 30.0, codes=("b",), agreement=wrong)
    winner = comparison(EAGER, DEFAULT, differing).winner
    assert winner is not None and winner.name == winner.fastest == "default"
    failed = replace(TUNED, failure=Failure("mode", "timeout", "it hung"))
    winner = comparison(EAGER, DEFAULT, failed).winner
    assert winner is not None and winner.name == "default"
    agreeing = row("max-autotune", [0.010] * 4, 30.0, codes=("b",), agreement=Agreement(AGREES, 1e-6))
    winner = comparison(EAGER, DEFAULT, agreeing).winner
    assert winner is not None and winner.name == "max-autotune"


def test_one_round_or_one_row_gives_no_advice() -> None:
    first = [replace(one, processes=one.processes[:1]) for one in (EAGER, DEFAULT)]
    assert comparison(*first).winner is None
    assert comparison(EAGER).winner is None
    without_eager = comparison(DEFAULT, TUNED).winner
    assert without_eager is not None and without_eager.name == "max-autotune"


@pytest.mark.parametrize(
    ("settings", "lines"),
    [
        (ModeSet("eager"), ()),
        (
            ModeSet("default", ("tf32", "freezing"), {"A": "1"}),
            (
                "export A=1 TORCHINDUCTOR_FREEZING=1",
                'torch.set_float32_matmul_precision("high")',
                'torch.compile(model, mode="default")',
            ),
        ),
        (
            ModeSet("default", options={"epilogue_fusion": "false", "max_fusion_size": "8"}),
            ('torch.compile(model, options={"epilogue_fusion": False, "max_fusion_size": 8})',),
        ),
    ],
)
def test_the_lines_to_type(settings: ModeSet, lines: tuple[str, ...]) -> None:
    assert write_lines(settings) == lines


def test_a_value_with_spaces_is_typed_in_quotes() -> None:
    assert write_lines(ModeSet("eager", environment={"OMP_PLACES": "{0} {1}"})) == ("export OMP_PLACES='{0} {1}'",)


def test_a_row_that_failed_in_a_later_round_pays_after_the_steps_of_its_own_rounds() -> None:
    eager = row("eager", [1.00, 1.01, 0.40, 0.40])
    failed = replace(row("default", [0.80, 0.808], 10.0, codes=("a",)), failure=Failure("mode", "exit", "killed"))
    figures = found(comparison(eager, failed), "default").figures
    assert figures is not None and figures.pays_after is not None and figures.pays_after > 10 / 0.2


def test_flags_of_the_cpp_compiler_act_outside_of_the_generated_code() -> None:
    settings = ModeSet("default", options={"cpp.enable_unsafe_math_opt_flag": "true"})
    compared = comparison(EAGER, DEFAULT, row(settings, [0.040, 0.0401, 0.0399, 0.040], 9.0, codes=("a",)))
    figures = found(compared, settings.name).figures
    assert figures is not None and figures.same_code_as == ""
    assert compared.winner is not None and compared.winner.name == settings.name

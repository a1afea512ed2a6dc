"""The search for faster settings, over programs whose steps are drawn."""

import contextlib
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tried_programs import DrawnProgram, menu_row, searched

from inductor_bench.analysis.optimization.judging import LOOKS
from inductor_bench.analysis.optimization.row_verdicts import NO_TIME_FOR, NOT_RUN, is_faster
from inductor_bench.analysis.optimization.search import CLEARLY, MOST_FINALISTS, NOT_COMBINED, OptimizationSearch
from inductor_bench.analysis.optimization.search_rounds import MOST_AGAIN
from inductor_bench.analysis.optimization.step_mix import find_mix
from inductor_bench.analysis.optimization.trial_plans import (
    CompileAhead,
    ProcessCosts,
    TrialCandidate,
    TrialPlan,
    compute_round_time_s,
    have_conflict,
)
from inductor_bench.records.base import Failure
from inductor_bench.records.optimization import (
    COMBINE,
    COMPILED,
    CONFIRM,
    DIFFERS,
    EMPTY_CACHES,
    FAILED,
    INDUCTOR,
    KEPT,
    LOADER,
    LOST,
    NOT_YET,
    OPTIMIZER,
    ORIGINAL,
    PLACEBO,
    PROVE,
    REDUNDANT,
    SCREEN,
    SHARED_CACHES,
    SUMS,
    UNDECIDED,
    UNPROVEN,
    UNTRIED,
    MenuRow,
    ProgramSetting,
    Trial,
    TrialVariant,
)

ROWS = [menu_row(f"row-{number}") for number in range(6)]


def states(search: OptimizationSearch) -> dict[str, str]:
    return {row.slug: row.state for row in search.rows}


def test_menus_that_change_nothing_have_no_winner() -> None:
    """120 searches, whose steps scatter, drift and are disturbed together, and whose processes differ."""
    kinds: list[dict[str, float]] = [
        {},
        {"between": 0.005},
        {"scatter": 0.03, "between": 0.002},
        {"drift": 0.2},
        {"held": 3, "shared": 0.02},
        {"slow_host": 0.3, "between": 0.005},
    ]
    won = [
        (kind, seed)
        for kind in kinds
        for seed in range(20)
        if searched(DrawnProgram(seed, **kind), ROWS).winner is not None  # type: ignore[arg-type]
    ]
    assert not won


@pytest.mark.parametrize(("saving", "least"), [(0.01, 16), (0.02, 19), (0.03, 20)])
def test_planted_gains_are_found(saving: float, least: int) -> None:
    found = [searched(DrawnProgram(seed, {"row-3": saving}), ROWS).winner for seed in range(20)]
    assert sum(one is not None and one.slugs == ("row-3",) for one in found) >= least
    for one in found:
        assert one is None or one.gain.low <= saving <= one.gain.high


@pytest.mark.parametrize("share", [0.1, 0.2])
def test_a_saving_is_proven_although_the_host_is_slower_in_some_processes(share: float) -> None:
    """What relieves the host saves more in them, which is no reason to doubt it."""
    rows = [*ROWS, *(menu_row(f"further-{number}") for number in range(6))]
    searches = [searched(DrawnProgram(seed, {"row-3": 0.15}, slow_host=share), rows) for seed in range(20)]
    won = [search.winner for search in searches if search.winner is not None]
    assert len(won) >= 19 and all(one.slugs == ("row-3",) for one in won)
    assert sum(one.gain.low <= 0.15 <= one.gain.high for one in won) >= len(won) - 1
    told = [note for search in searches for note in search.notes if "does not count" in note]
    assert told and all("the original's step took" in note for note in told)


KINDS = (1.0, 2.0, 6.0)
"""The times of three sizes of requests, as multiples of the shortest."""


@pytest.mark.parametrize(("kinds", "true"), [(KINDS, 0.3 / 9), (KINDS[::-1], 0.3 * 6 / 9)])
def test_a_saving_of_one_kind_of_step_counts_with_the_time_of_this_kind(kinds: Sequence[float], true: float) -> None:
    search = searched(DrawnProgram(1, {"a": 0.3}, kinds=kinds, start_s=5.0, most=400), [menu_row("a")])
    assert search.winner is not None
    assert search.winner.gain.low <= true <= search.winner.gain.high
    assert search.winner.gain.share == pytest.approx(true, rel=0.15)
    assert any("33% take" in note for note in search.notes)
    (said,) = [note for note in search.notes if note.startswith("saved by kind of step")]
    by_kind = [float(one) for one in re.findall(r": ([-\d.]+)%", said)]
    assert by_kind.pop(sorted(kinds).index(kinds[0])) == pytest.approx(30, abs=1)
    assert len(by_kind) == 2 and max(map(abs, by_kind)) < 1


@pytest.mark.parametrize("kinds", [(6.0, 5.0, 4.0, 3.0, 2.0, 1.0), (4.0, 1.5, 3.6, 1.4, 3.2, 1.2)])
@pytest.mark.parametrize("saving", [0.0, 0.15])
def test_kinds_in_a_fixed_order_are_compared_with_each_other(kinds: Sequence[float], saving: float) -> None:
    program = DrawnProgram(1, {"a": saving}, kinds=kinds, is_cyclic=True, start_s=5.0, most=400)
    search = searched(program, [menu_row("a")])
    assert bool(search.winner) == bool(saving)
    assert search.winner is None or search.winner.gain.low <= saving <= search.winner.gain.high


def test_kinds_that_do_not_repeat_are_no_kinds() -> None:
    program = DrawnProgram(1, {"a": 0.15}, kinds=[1.0] * 5000, is_cyclic=True, scatter=0.02, start_s=5.0, most=400)
    search = searched(program, [menu_row("a")])
    assert search.winner is not None and search.winner.gain.low <= 0.15 <= search.winner.gain.high
    assert not any("several kinds" in note for note in search.notes)


def test_a_variant_whose_steps_are_of_other_kinds_is_not_compared() -> None:
    search = searched(DrawnProgram(1, {"a": 0.4}, kinds=KINDS, is_cyclic=True, own_kinds=["a"]), [menu_row("a")])
    assert search.winner is None and search.rows[0].state == FAILED and "round of equal work" in search.rows[0].reason


def test_processes_of_an_earlier_version_have_no_kinds_and_are_compared_as_they_are() -> None:
    program = DrawnProgram(1, {"a": 0.15}, kinds=KINDS, is_cyclic=True, start_s=5.0, most=400)
    search = OptimizationSearch([menu_row("a")], program.step_s, 3600.0)
    plans = search.plans()
    asked = next(plans)
    with contextlib.suppress(StopIteration):
        while True:
            trials = [program.run(plan) for plan in asked]
            if len(search.trials) < 2:
                trials = [
                    replace(trial, variants=tuple(replace(one, kinds=()) for one in trial.variants)) for trial in trials
                ]
            asked = plans.send(trials)
    assert all(one.times_s for trial in search.trials[:2] for one in trial.variants)


def test_steps_of_several_kinds_prove_nothing_where_there_is_nothing() -> None:
    rows = [menu_row(name) for name in "abcdef"]
    programs = (DrawnProgram(seed, kinds=KINDS, start_s=5.0) for seed in range(20))
    assert not any(searched(program, rows, 1200.0).winner for program in programs)


def test_what_noise_hides_is_measured_again_as_long_as_it_may_be_judged_and_there_is_time() -> None:
    """Of ten searches with a saving that the noise hides, none ends with time and a judgement left."""
    decided = 0
    for seed in range(10):
        search = searched(DrawnProgram(seed, {"row-1": 0.03}, between=0.02), ROWS[:3])
        still = [row for row in search.rows if row.state in (UNDECIDED, UNPROVEN)]
        assert all(f"judged {LOOKS} times, which is the most" in row.reason for row in still)
        decided += search.winner is not None
    assert decided >= 2
    short = [searched(DrawnProgram(seed, between=0.02), ROWS[:3], budget_s=200.0) for seed in range(5)]
    still = [row for search in short for row in search.rows if row.state in (UNDECIDED, UNPROVEN)]
    assert still and all(row.needs_time for row in still), "a longer search goes on with them"


def test_what_compiles_for_long_has_a_process_of_its_own() -> None:
    rows = [*ROWS[:3], *(menu_row(name) for name in ("max_autotune_gemm", "coordinate_descent_tuning"))]
    program = DrawnProgram(0)
    searched(program, rows)
    ranked = [plan.slugs for plan in program.asked if plan.purpose == SCREEN]
    assert ranked == [
        ("placebo", "row-0", "row-1", "row-2"),
        ("placebo", "max_autotune_gemm"),
        ("placebo", "coordinate_descent_tuning"),
    ]


def test_a_claim_rests_on_fresh_processes() -> None:
    program = DrawnProgram(0, {"row-3": 0.1})
    search = searched(program, ROWS)
    assert search.winner is not None and search.winner.gain.processes >= 2
    asked = [(plan.purpose, plan.slugs) for plan in program.asked]
    assert asked[0] == (SCREEN, ("placebo", *(row.slug for row in ROWS)))
    assert [purpose for purpose, _ in asked[1:3]] == [PROVE] * 2 and all("row-3" in slugs for _, slugs in asked[1:3])
    assert asked[-4:] == [(CONFIRM, (name,)) for name in ("row-3", ORIGINAL, ORIGINAL, "row-3")]
    assert [plan.cold for plan in program.asked][-4:] == [True, True, False, False]


def test_winners_are_combined_and_each_is_taken_out() -> None:
    program = DrawnProgram(0, {"row-1": 0.1, "row-4": 0.05})
    search = searched(program, ROWS)
    assert search.winner is not None and search.winner.slugs == ("row-1", "row-4")
    assert search.winner.gain.share == pytest.approx(1 - 0.9 * 0.95, abs=0.01)
    owns = {row.slug: row.own.share for row in search.rows if row.own is not None}
    assert owns == pytest.approx({"row-1": 0.1, "row-4": 0.05}, abs=0.01)
    steps = [time_s / search.winner.gain.before_s for _, time_s in search.winner.steps]
    assert steps == pytest.approx([0.9, 0.9 * 0.95], abs=0.01)
    (combined, _) = [plan.slugs for plan in program.asked if plan.purpose == COMBINE][:2]
    assert combined == ("placebo", "row-1", "row-1+row-4", "row-4")


def test_what_adds_nothing_to_the_others_is_left_out() -> None:
    search = searched(DrawnProgram(0, {"row-1": 0.1, "row-4": 0.05}, {("row-1", "row-4"): -1 / 0.95 + 1}), ROWS)
    assert search.winner is not None and search.winner.slugs == ("row-1",)
    assert states(search)["row-4"] == REDUNDANT


def test_a_combination_that_fails_leaves_the_better_setting() -> None:
    program = DrawnProgram(0, {"row-1": 0.1, "row-4": 0.05})
    run = program.run

    def failing(plan: TrialPlan) -> Trial:
        trial = run(plan)
        failed = TrialVariant("row-1+row-4", failure="overwritten")
        return replace(trial, variants=tuple(failed if one.slug == failed.slug else one for one in trial.variants))

    program.run = failing  # type: ignore[method-assign]
    search = searched(program, ROWS)
    assert search.winner is not None and search.winner.slugs == ("row-1",)
    assert [row.reason for row in search.rows if row.state == REDUNDANT] == [
        "together with row-1 it fails: overwritten"
    ]


def test_a_setting_that_is_set_by_a_better_one_is_not_combined() -> None:
    rows = [menu_row("fast", setting="x"), menu_row("faster", setting="x"), menu_row("other")]
    search = searched(DrawnProgram(0, {"fast": 0.05, "faster": 0.1}), rows)
    assert search.winner is not None and search.winner.slugs == ("faster",)
    assert states(search)["fast"] == REDUNDANT


def test_two_ways_of_an_optimizer_exclude_each_other() -> None:
    fused, foreach = (
        MenuRow(name, name, (ProgramSetting(OPTIMIZER, name, "True"),), "optimizer", SUMS, True, "")
        for name in ("fused", "foreach")
    )
    assert have_conflict(fused, foreach) and not have_conflict(fused, menu_row("a"))


def test_a_variant_with_wrong_numbers_is_never_advised() -> None:
    for seed in range(20):
        search = searched(DrawnProgram(seed, {"row-1": 0.3, "row-2": 0.05}, wrong=("row-1",)), ROWS)
        assert states(search)["row-1"] == DIFFERS
        assert search.winner is not None and search.winner.slugs == ("row-2",)


def test_a_result_whose_gradients_differ_is_not_advised() -> None:
    rows = [*ROWS[:2], menu_row("sums", numbers=SUMS)]
    search = searched(DrawnProgram(0, {"row-1": 0.1, "sums": 0.2}, loss_differs=("sums",)), rows)
    assert states(search)["sums"] == DIFFERS
    assert search.winner is not None and search.winner.slugs == ("row-1",)
    nothing = searched(DrawnProgram(0, {"row-1": 0.1}, loss_differs=("row-1",)), rows)
    assert nothing.winner is None and states(nothing)["row-1"] == DIFFERS


def test_a_variant_that_fails_is_a_row_with_its_reason() -> None:
    search = searched(DrawnProgram(0, {"row-2": 0.1}, failures={"row-0": "no such kernel"}), ROWS)
    failed = next(row for row in search.rows if row.slug == "row-0")
    assert (failed.state, failed.reason) == (FAILED, "no such kernel")
    assert search.winner is not None and search.winner.slugs == ("row-2",)


def test_a_variant_that_ends_the_process_does_not_take_the_others_with_it() -> None:
    search = searched(DrawnProgram(0, {"row-2": 0.1}, dies=("row-0", "row-4")), ROWS)
    assert [row.slug for row in search.rows if row.state == FAILED] == ["row-0", "row-4"]
    assert search.winner is not None and search.winner.slugs == ("row-2",)


def test_a_proof_goes_on_without_a_variant_that_ends_its_process() -> None:
    program = DrawnProgram(0, {"row-0": 0.2, "row-2": 0.1}, kills={"row-0": PROVE})
    search = searched(program, ROWS)
    assert [row.slug for row in search.rows if row.state == FAILED] == ["row-0"]
    assert search.winner is not None and search.winner.slugs == ("row-2",)


def test_what_could_not_be_compared_is_not_advised() -> None:
    search = searched(DrawnProgram(0, {"row-2": 0.1}, is_compared=False), ROWS)
    assert search.winner is None and states(search)["row-2"] == UNPROVEN


def test_memory_of_the_result_beyond_the_limit_is_refused() -> None:
    program = DrawnProgram(0, {"row-1": 0.2, "row-2": 0.1}, memory={"row-1": 60 * 10**9})
    run = program.run

    def larger(plan: TrialPlan) -> Trial:
        trial = run(plan)
        if plan.slugs != ("row-1+row-2",):
            return trial
        variants = tuple(replace(one, peak_memory_bytes=80 * 10**9) for one in trial.variants)
        return replace(trial, variants=variants)

    program.run = larger  # type: ignore[method-assign]
    search = searched(program, ROWS, max_memory_bytes=70 * 10**9)
    assert search.winner is not None and search.winner.slugs == ("row-1",)
    assert states(search)["row-2"] == FAILED


def test_a_process_that_dies_for_no_known_reason_is_divided() -> None:
    program = DrawnProgram(0, {"row-2": 0.1})
    run = program.run

    def dying(plan: TrialPlan) -> Trial:
        trial = run(plan)
        return replace(trial, variants=()) if "row-5" in plan.slugs else trial

    program.run = dying  # type: ignore[method-assign]
    search = searched(program, ROWS)
    assert [row.slug for row in search.rows if row.state == FAILED] == ["row-5"]
    assert search.winner is not None and search.winner.slugs == ("row-2",)


def test_memory_beyond_the_limit_is_refused() -> None:
    program = DrawnProgram(0, {"row-1": 0.2, "row-2": 0.1}, memory={"row-1": 80 * 10**9})
    search = searched(program, ROWS, max_memory_bytes=70 * 10**9)
    assert states(search)["row-1"] == FAILED
    assert search.winner is not None and search.winner.slugs == ("row-2",)


def test_rows_that_cannot_alternate_take_turns_as_processes() -> None:
    rows = [menu_row("a"), menu_row("loader", alternates=False), menu_row("threads", alternates=False)]
    program = DrawnProgram(0, {"loader": 0.3}, levels=0.005)
    search = searched(program, rows)
    assert search.winner is not None and search.winner.slugs == ("loader",)
    assert states(search) == {"a": LOST, "loader": KEPT, "threads": LOST}
    alone = [plan.slugs[0] for plan in program.asked if plan.purpose == SCREEN and not plan.alternates]
    assert alone == [ORIGINAL, "loader", "threads", ORIGINAL]
    assert [plan.slugs[0] for plan in program.asked if plan.purpose == PROVE][:4] == [
        *(ORIGINAL, "loader", "loader", ORIGINAL)
    ]


def test_rows_of_both_kinds_are_combined() -> None:
    rows = [menu_row("a"), menu_row("loader", alternates=False)]
    search = searched(DrawnProgram(0, {"loader": 0.3, "a": 0.2}, levels=0.002), rows, 7200.0)
    assert search.winner is not None and set(search.winner.slugs) == {"a", "loader"}
    assert search.winner.gain.share == pytest.approx(1 - 0.7 * 0.8, abs=0.02)


def seconds_of(text: str) -> float:
    """A duration as a report writes it, in seconds."""
    minutes, _, seconds = text.rpartition("min")
    return 60 * float(minutes or 0) + float(seconds.strip().removesuffix("s").strip() or 0)


def test_processes_of_its_own_that_had_no_time_say_what_they_take() -> None:
    rows = [menu_row("loader", alternates=False)]
    (row,) = searched(DrawnProgram(0, {"loader": 0.3}), rows, 20.0).rows
    assert row.state == UNTRIED and row.needs_time and "takes 3 separate processes of about 18.8 s each" in row.reason


def test_what_had_no_time_says_so() -> None:
    rows = [menu_row(f"row-{number}") for number in range(40)]
    search = searched(DrawnProgram(0), rows, 310.0)
    late = [row for row in search.rows if row.state == UNTRIED]
    assert late and len({row.reason for row in late}) == 1 and all(row.needs_time for row in late)
    found = re.fullmatch(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+?)", re.escape(NO_TIME_FOR)), late[0].reason)
    assert found is not None
    *needed_s, left_s = (seconds_of(found[name]) for name in ("ranking", "proof", "confirming", "left"))
    assert left_s == pytest.approx(310.0 - search.spent_s, abs=1.0) and sum(needed_s) > left_s and min(needed_s) > 0
    assert search.spent_s <= 310.0
    hurried = searched(compiling_program(0, {"row-0": 0.1}), rows[:8], 25.0)
    assert hurried.winner is None and states(hurried)["row-0"] == UNPROVEN


def test_the_time_that_is_left_is_computed_from_the_step_that_was_measured() -> None:
    """A RUN on a busy machine had six times the step: its proofs would take more time than there is."""
    program = compiling_program(1, {}, 6.0, step_s=0.1)
    plans = OptimizationSearch(ROWS[:4], 0.63, 240.0, ahead=CompileAhead(0, 6.0)).plans()
    asked = next(plans)
    with pytest.raises(StopIteration):
        while True:
            asked = plans.send([program.run(plan) for plan in asked])
    assert {slug for plan in program.asked for slug in plan.slugs} >= {row.slug for row in ROWS[:4]}


def test_a_proof_of_few_rows_takes_less_time_than_the_ranking_of_all() -> None:
    rows = [menu_row(f"row-{number}") for number in range(8)]
    program = compiling_program(0, {"row-2": 0.1, "row-5": 0.05})
    search = searched(program, rows, 220.0)
    assert search.winner is not None and search.winner.slugs == ("row-2",)
    assert [plan.slugs for plan in program.asked if plan.purpose == PROVE] == [("placebo", "row-2")] * 2
    assert states(search)["row-5"] == UNPROVEN


# The best first


def compiling_program(seed: int, savings: dict[str, float], compile_s: float = 10.0, **more: Any) -> DrawnProgram:
    """A program whose processes start for 10 s, and compile what none has compiled."""
    return DrawnProgram(seed, savings, compile_s=compile_s, cached=0.1, start_s=10.0, check_s=2.0, **more)


def promising_rows(group: str = "cudagraphs") -> list[MenuRow]:
    """Rows of which one promises much; ``loader`` is a group whose rows are claimed without a whole run."""
    graphs = replace(menu_row("cudagraphs"), group=group, bound=0.6)
    return [*(menu_row(f"row-{number}") for number in range(8)), graphs]


def test_what_promises_most_is_ranked_and_proven_before_others_are_ranked() -> None:
    program = compiling_program(0, {"cudagraphs": 0.5, "row-3": 0.1})
    search = searched(program, promising_rows())
    first = [(plan.purpose, plan.slugs) for plan in program.asked[:4]]
    alone = ("placebo", "cudagraphs")
    assert first[:3] == [(SCREEN, alone), (CONFIRM, ("cudagraphs",)), (PROVE, alone)]
    assert first[3][0] == SCREEN and "row-3" in first[3][1] and "cudagraphs" not in first[3][1]
    assert search.winner is not None and search.winner.slugs == ("cudagraphs", "row-3")


def test_a_short_time_ends_with_the_large_saving_that_is_promised() -> None:
    """Five minutes, of a program that compiles for 30 s and takes 80 s until its step is known."""
    for seed in range(5):
        program = compiling_program(seed, {"cudagraphs": 0.5, "row-3": 0.02}, 30.0)
        search = searched(program, promising_rows(), 300.0, spent_s=80.0, ahead=CompileAhead(0, 30.0))
        assert search.winner is not None and search.winner.slugs == ("cudagraphs",)


def test_a_row_is_not_looked_at_more_often_because_its_proof_began_early() -> None:
    program = compiling_program(0, {"cudagraphs": 0.12}, between=0.2)
    searched(program, promising_rows(), 7200.0)
    looks = [plan for plan in program.asked if plan.purpose == PROVE and "cudagraphs" in plan.slugs]
    assert len(looks) <= 2 * LOOKS


def test_a_proof_that_began_early_proves_nothing_where_there_is_nothing() -> None:
    """Rows that promise much, ranked by so much noise that each is proven at once."""
    rows = [replace(row, group="loader") for row in promising_rows()]
    kinds: list[dict[str, float]] = [{"between": 0.1}, {"between": 0.2, "held": 3, "shared": 0.1}]
    found = [
        (program := compiling_program(seed, {}, **kind), searched(program, rows, budget_s))  # type: ignore[arg-type]
        for kind in kinds
        for seed in range(12)
        for budget_s in (300.0, 1200.0)
    ]
    early = [one for one, _ in found if PROVE in [plan.purpose for plan in one.asked[:3]]]
    assert len(early) > 5
    claims = [search.winner is not None or any(plan.purpose == CONFIRM for plan in one.asked) for one, search in found]
    assert not any(claims)


@pytest.mark.parametrize(("budget_s", "least"), [(180.0, 14), (300.0, 34)])
def test_a_short_time_first_ends_what_the_best_setting_needs(budget_s: float, least: int) -> None:
    """40 searches in nine settings, of which two save something, in which noise hides much."""
    found = 0
    for seed in range(40):
        draw = random.Random(seed)
        rows = [replace(row, bound=draw.uniform(0.05, 0.6)) for row in promising_rows()]
        best, second = draw.sample([row.slug for row in rows], 2)
        savings = {best: draw.choice([0.1, 0.2, 0.3]), second: 0.05}
        program = compiling_program(seed, savings, draw.choice([5.0, 15.0]), between=0.02, scatter=0.03)
        search = searched(program, rows, budget_s, ahead=CompileAhead(0, program.compile_s))
        assert {row.slug for row in search.rows if is_faster(row.proven)} <= savings.keys()
        found += search.winner is not None and search.winner.is_confirmed and best in search.winner.slugs
    assert found >= least


@pytest.mark.parametrize(("budget_s", "slugs"), [(180.0, ("cudagraphs",)), (280.0, ("cudagraphs", "row-0"))])
def test_the_search_goes_on_after_the_whole_runs_of_the_best_setting(budget_s: float, slugs: tuple[str, ...]) -> None:
    """The result stays as it is if there is no time to combine it with another setting."""
    *others, graphs = promising_rows("loader")
    program = compiling_program(0, {"cudagraphs": 0.4, "row-0": 0.3})
    search = searched(program, [graphs, *others[:2]], budget_s)
    asked = [plan.purpose for plan in program.asked]
    assert asked[:6] == [SCREEN, PROVE, CONFIRM, CONFIRM, SCREEN, PROVE]
    assert set(asked[6:]) == ({COMBINE, CONFIRM} if len(slugs) > 1 else set())
    assert search.winner is not None and search.winner.is_confirmed and search.winner.slugs == slugs
    assert [slug for slug, state in states(search).items() if state == KEPT] == list(slugs)
    row = next(row for row in search.rows if row.slug == "row-0")
    assert is_faster(row.proven) and (row.state == KEPT or row.needs_time)


def count_processes(program: DrawnProgram, purpose: str) -> int:
    return sum(plan.purpose == purpose for plan in program.asked)


def test_a_row_that_was_ranked_alone_proves_nothing_where_there_is_nothing() -> None:
    """400 searches whose ranking is the first process of the proof."""
    kinds: list[dict[str, float]] = [
        {"between": 0.1},
        {"between": 0.1, "drift": 0.2},
        {"between": 0.1, "held": 3, "shared": 0.02},
        {"between": 0.2, "held": 3, "shared": 0.1},
        {"between": 0.1, "slow_host": 0.3},
    ]
    searches = (searched(DrawnProgram(seed, **kind), ROWS[:1]) for kind in kinds for seed in range(80))  # type: ignore[arg-type]
    rows = [search.rows[0] for search in searches]
    assert sum(row.screened is not None and row.screened.share >= CLEARLY for row in rows) > 80
    assert not [row for row in rows if is_faster(row.proven)]


@pytest.mark.parametrize(
    ("rows", "saving", "between", "lanes", "proofs", "processes"),
    [
        (1, 0.3, 0.001, 1, 1, 2),  # the ranking is the first process
        (1, 0.3, 0.03, 1, 2, 3),  # the first two do not suffice
        (1, 0.05, 0.001, 1, 2, 2),  # it does not clearly save much
        (2, 0.3, 0.001, 1, 2, 2),  # the ranking chose between two settings
        (1, 0.3, 0.001, 2, 2, 2),  # a second process takes no time there
    ],
)
def test_the_proof_begins_with_a_ranking_that_chose_nothing(
    rows: int, saving: float, between: float, lanes: int, proofs: int, processes: int
) -> None:
    program = DrawnProgram(1, {"row-0": saving}, between=between)
    (row, *_) = searched(program, ROWS[:rows], lanes=lanes).rows
    assert row.proven is not None and is_faster(row.proven)
    assert (count_processes(program, PROVE), row.proven.processes) == (proofs, processes)


def test_what_excludes_a_proven_setting_that_saves_more_is_not_proven() -> None:
    *others, graphs = promising_rows()
    rows = [*others[:3], replace(others[3], settings=graphs.settings), *others[4:], graphs]
    program = compiling_program(0, {"cudagraphs": 0.5, "row-3": 0.2})
    search = searched(program, rows)
    assert not [plan for plan in program.asked if plan.purpose == PROVE and "row-3" in plan.slugs]
    assert (states(search)["cudagraphs"], states(search)["row-3"]) == (KEPT, REDUNDANT)


def test_what_there_is_no_time_to_combine_is_left_to_a_longer_search() -> None:
    program = compiling_program(0, {"cudagraphs": 0.5, "row-3": 0.3}, 30.0)
    found = searched(program, promising_rows("loader"), 1200.0)
    assert found.winner is not None and found.winner.slugs == ("cudagraphs", "row-3")
    begun = next(plan for plan in program.asked if plan.purpose == COMBINE)
    search = OptimizationSearch(promising_rows("loader"), program.step_s, 1200.0)
    plans, program = search.plans(), compiling_program(0, {"cudagraphs": 0.5, "row-3": 0.3}, 30.0)
    asked = next(plans)
    with pytest.raises(StopIteration):
        while True:
            trials = [program.run(plan) for plan in asked]
            if len(search.trials) == int(begun.name[:2]) - 2:  # the last proof took all the time that was left
                trials = [replace(trial, time_s=1200.0) for trial in trials]
            asked = plans.send(trials)
    assert search.winner is not None and search.winner.slugs == ("cudagraphs",)
    row = next(row for row in search.rows if row.slug == "row-3")
    assert (row.state, row.reason) == (UNPROVEN, NOT_COMBINED)


def test_only_the_best_are_proven() -> None:
    rows = [menu_row(f"row-{number}") for number in range(8)]
    search = searched(DrawnProgram(0, {row.slug: 0.02 * number + 0.02 for number, row in enumerate(rows)}), rows)
    unproven = [row.slug for row in search.rows if row.state == UNPROVEN]
    assert unproven == ["row-0", "row-1"][: len(rows) - MOST_FINALISTS]


def test_a_row_with_a_reason_is_not_tried() -> None:
    rows = [MenuRow(**{**vars(ROWS[0]), "reason": "denied"}), ROWS[1]]
    program = DrawnProgram(0, {"row-0": 0.5})
    search = searched(program, rows)
    assert states(search)["row-0"] == UNTRIED and all("row-0" not in plan.slugs for plan in program.asked)


def test_the_same_answers_lead_to_the_same_questions() -> None:
    plans = [DrawnProgram(5, {"row-1": 0.1, "row-4": 0.05}) for _ in range(2)]
    for program in plans:
        searched(program, ROWS)
    assert plans[0].asked == plans[1].asked


# Several devices


def test_more_devices_conclude_the_same_in_fewer_rounds() -> None:
    rows = [*(menu_row(f"row-{number}") for number in range(10)), menu_row("loader", alternates=False)]
    menus = [{"row-1": 0.1, "row-4": 0.05, "row-7": 0.08, "loader": 0.3}, {"row-1": 0.1, "row-9": 0.05}, {}]
    rounds, spent_s = {1: 0, 2: 0, 4: 0}, {1: 0.0, 2: 0.0, 4: 0.0}
    for seed in range(5):
        for savings in menus:
            concluded = []
            for lanes in rounds:
                program = DrawnProgram(seed, savings, levels=0.01)
                search = searched(program, rows, 7200.0, lanes=lanes)
                assert {row.slug for row in search.rows if row.state == KEPT} == set(savings)
                concluded.append({slug: LOST if one == UNDECIDED else one for slug, one in states(search).items()})
                rounds[lanes], spent_s[lanes] = rounds[lanes] + program.rounds, spent_s[lanes] + search.spent_s
            assert concluded[0] == concluded[1] == concluded[2]
    assert rounds[1] >= 1.8 * rounds[2] and rounds[2] >= rounds[4]
    assert spent_s[1] >= 1.8 * spent_s[2]


@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_processes_of_their_own_have_no_winner_where_there_is_none(lanes: int) -> None:
    rows = [*ROWS, menu_row("loader", alternates=False)]
    kinds: list[dict[str, float]] = [{}, {"between": 0.005}, {"held": 3, "shared": 0.02}, {"slower": 0.5}]
    won = [
        seed
        for kind in kinds
        for seed in range(10)
        if searched(DrawnProgram(seed, **kind), rows, lanes=lanes).winner is not None  # type: ignore[arg-type]
    ]
    assert not won


def test_each_device_has_at_most_one_process_of_a_round() -> None:
    rows = [
        *(menu_row(f"row-{number}") for number in range(21)),
        *(menu_row(f"own-{i}", alternates=False) for i in "abc"),
    ]
    program = DrawnProgram(0, {"row-3": 0.1, "own-b": 0.2, "row-9": 0.1}, levels=0.002)
    search = OptimizationSearch(rows, program.step_s, 36000.0, lanes=3)
    plans = search.plans()
    asked = next(plans)
    with pytest.raises(StopIteration):
        while True:
            assert [plan.lane for plan in asked] == list(range(len(asked))) and len(asked) <= 3
            asked = plans.send([program.run(plan) for plan in asked])
    assert search.winner is not None and set(search.winner.slugs) == {"row-3", "row-9", "own-b"}
    assert len({plan.name for plan in program.asked}) == len(program.asked)
    screened = [len(plan.slugs) - 1 for plan in program.asked if plan.purpose == SCREEN and plan.alternates]
    assert screened == [7, 7, 7]


def test_answers_decide_whichever_came_first() -> None:
    """The processes of a round end in any order; a search that is given the same trials concludes the same."""
    savings = {"row-1": 0.1, "row-4": 0.05}
    program = DrawnProgram(0, savings)
    search = searched(program, ROWS, lanes=2)
    known = {trial.name: trial for trial in search.trials}
    again = OptimizationSearch(ROWS, program.step_s, 3600.0, lanes=2)
    plans = again.plans()
    asked = next(plans)
    with pytest.raises(StopIteration):
        while True:
            ended = {plan.name: known[plan.name] for plan in reversed(asked)}
            asked = plans.send([ended[plan.name] for plan in asked])
    assert again.rows == search.rows and again.winner == search.winner and again.spent_s == search.spent_s


def test_a_comparison_stays_on_one_device() -> None:
    """A device that is slower by half is no gain, and none is lost."""
    rows = [menu_row("a", alternates=False), menu_row("b", alternates=False)]
    search = searched(DrawnProgram(3, {"b": 0.1}, levels=0.002, slower=0.5), rows, 7200.0, lanes=2)
    assert search.winner is not None and search.winner.slugs == ("b",)
    assert search.winner.gain.share == pytest.approx(0.1, abs=0.01)


def test_what_two_devices_ran_one_after_the_other_takes_the_time_of_both() -> None:
    trials = [Trial("1", SCREEN, True, (), time_s=3.0, gpu="0"), Trial("2", SCREEN, True, (), time_s=4.0, gpu="0")]
    assert compute_round_time_s(trials) == 7.0
    assert compute_round_time_s([trials[0], replace(trials[1], gpu="1")]) == 4.0


# Whole runs


def trainer(seed: int, **more: Any) -> DrawnProgram:
    """A program that takes as long as transformers' Trainer did on an H100: 14 s to start, and 40 s to compile."""
    times: dict[str, Any] = {"step_s": 0.044, "compile_s": 40.0, "cached": 0.04, "start_s": 14.0, "check_s": 4.0}
    return DrawnProgram(seed, **{"savings": {"cudagraphs": 0.54}, **times, **more})


def confirmed(program: DrawnProgram) -> list[tuple[str, bool]]:
    return [(plan.slugs[0], plan.cold) for plan in program.asked if plan.purpose == CONFIRM]


@pytest.mark.parametrize(
    ("budget_s", "from_start", "runs", "seeds"),
    [
        (180.0, NOT_YET, [], range(3)),
        (250.0, SHARED_CACHES, [("cudagraphs", False), (ORIGINAL, False)], range(3)),
        (330.0, EMPTY_CACHES, [("cudagraphs", True), (ORIGINAL, True)], range(3)),
        (420.0, EMPTY_CACHES, [("cudagraphs", True), (ORIGINAL, True)], (0, 2)),
        (
            420.0,
            EMPTY_CACHES,
            [("cudagraphs", True), (ORIGINAL, True), (ORIGINAL, False), ("cudagraphs", False)],
            (1,),  # the first two do not agree with the proof
        ),
    ],
)
def test_a_result_runs_from_the_start_as_far_as_there_is_time(
    budget_s: float, from_start: str, runs: list[tuple[str, bool]], seeds: Sequence[int]
) -> None:
    for seed in seeds:
        program = trainer(seed)
        search = searched(program, promising_rows("loader"), budget_s, ahead=CompileAhead(0, 40.0))
        assert search.winner is not None and search.winner.slugs == ("cudagraphs",)
        assert (search.winner.from_start, confirmed(program)) == (from_start, runs)
        assert search.spent_s <= 1.05 * budget_s and states(search)["cudagraphs"] == KEPT
        assert (search.winner.alone is None) == (from_start == NOT_YET)
        times_s = (search.winner.compile_time_s, search.winner.original_compile_time_s)
        alike = from_start == EMPTY_CACHES  # caches that others filled say nothing of what the settings cost
        assert times_s == ((40.0, 40.0) if alike else (None, None))
        assert search.winner.pays_after == (0.0 if alike else None)


@pytest.mark.parametrize(
    ("kind", "setting", "changes"),
    [
        (OPTIMIZER, "fused", False),
        (LOADER, "pin_memory", False),
        (OPTIMIZER, COMPILED, True),
        (INDUCTOR, "cpp_wrapper", True),
    ],
)
def test_what_compiles_nothing_has_no_cost_of_compilation(kind: str, setting: str, changes: bool) -> None:
    row = replace(menu_row("row", setting=setting), settings=(ProgramSetting(kind, setting, "True"),))
    search = searched(trainer(0, savings={"row": 0.5}), [row], 600.0, ahead=CompileAhead(0, 40.0))
    assert search.winner is not None
    assert search.winner.from_start == (EMPTY_CACHES if changes else SHARED_CACHES)
    assert search.winner.pays_after == (0.0 if changes else None)
    assert search.rows[0].compile_time_s == (40.0 if changes else None)


def test_a_compilation_with_empty_caches_is_not_compared_with_one_with_shared_caches() -> None:
    """The first run with empty caches takes so long that the original has no time for them."""
    program = trainer(0)
    run = program.run

    def slow(plan: TrialPlan) -> Trial:
        trial = run(plan)
        return replace(trial, time_s=trial.time_s + 30.0 * plan.cold)

    program.run = slow  # type: ignore[method-assign]
    search = searched(program, promising_rows("loader"), 363.0, ahead=CompileAhead(0, 40.0))
    assert confirmed(program) == [("cudagraphs", True), (ORIGINAL, False)]
    assert search.winner is not None and search.winner.from_start == SHARED_CACHES
    found = search.winner
    assert (found.compile_time_s, found.original_compile_time_s, found.pays_after) == (None, None, None)


@pytest.mark.parametrize("is_slow_again", [True, False])
def test_new_processes_on_a_machine_that_became_slower_do_not_count(is_slow_again: bool) -> None:
    program = trainer(0)
    run, slow = program.run, []

    def slower(plan: TrialPlan) -> Trial:
        trial = run(plan)
        if plan.purpose == CONFIRM and (is_slow_again or len(slow) < 4):
            slow.append(plan)
            longer = 4.0 if plan.slugs == (ORIGINAL,) else 20.0
            variants = [replace(one, times_s=tuple(longer * time for time in one.times_s)) for one in trial.variants]
            return replace(trial, variants=tuple(variants))
        return trial

    program.run = slower  # type: ignore[method-assign]
    search = searched(program, promising_rows("loader"), 420.0 if is_slow_again else 900.0, ahead=CompileAhead(0, 40.0))
    assert search.winner is not None and states(search)["cudagraphs"] == KEPT
    said = [note for note in search.notes if note.startswith("the new processes do not count: the original's step")]
    if is_slow_again:
        assert search.winner.from_start == NOT_YET and search.winner.alone is None and len(said) == 1
        assert search.winner.missing_s and 4 < len(confirmed(program)) < 4 + 2 * MOST_AGAIN
    else:
        assert search.winner.from_start == SHARED_CACHES and not said and len(confirmed(program)) == 6
        assert search.winner.alone is not None and search.winner.alone.share == pytest.approx(0.54, abs=0.05)
        assert search.winner.compile_time_s is None, "the cold processes do not count"


def test_new_processes_that_are_always_slower_count_at_last() -> None:
    program = trainer(0)
    run = program.run

    def slower(plan: TrialPlan) -> Trial:
        trial = run(plan)
        longer = 2.0 if plan.purpose == CONFIRM else 1.0
        variants = [replace(one, times_s=tuple(longer * time for time in one.times_s)) for one in trial.variants]
        return replace(trial, variants=tuple(variants))

    program.run = slower  # type: ignore[method-assign]
    search = searched(program, promising_rows("loader"), 3000.0, ahead=CompileAhead(0, 40.0))
    assert search.winner is not None and search.winner.alone is not None
    assert len(confirmed(program)) == 2 + 2 * MOST_AGAIN == search.winner.alone.processes


def test_a_rows_own_compilation_is_not_that_of_the_whole_program_with_empty_caches() -> None:
    costs = ProcessCosts()
    beside = TrialVariant("row", compile_time_s=9.0)
    costs.note_times([Trial("1", SCREEN, True, ("row",), (beside,))])
    costs.note_times([Trial("2", CONFIRM, False, ("row",), (replace(beside, compile_time_s=26.0),), cold=True)])
    assert costs.first_s("row") == 9.0


def test_runs_from_the_start_are_expected_to_take_what_they_take() -> None:
    program = trainer(0)
    search = OptimizationSearch(promising_rows(), program.step_s, 600.0, ahead=CompileAhead(0, 40.0))
    plans, expected = search.plans(), []
    asked = next(plans)
    with pytest.raises(StopIteration):
        while True:
            trials = [program.run(plan) for plan in asked]
            if asked[0].purpose == CONFIRM:
                name, cold = asked[0].slugs[0], asked[0].cold
                expected.append((search._first_runs_s([name], cold=cold), trials[0].time_s))
            asked = plans.send(trials)
    assert len(expected) == 3
    for expected_s, took_s in expected[1:]:  # before the first nothing has told what the caches leave
        assert 0.8 * took_s < expected_s < 1.25 * took_s


@pytest.mark.parametrize("budget_s", [240.0, 600.0])
def test_no_process_runs_long_after_the_time_of_the_search(budget_s: float) -> None:
    """A program whose steps are not found from its start would run forever."""
    program = trainer(0)
    search = OptimizationSearch(promising_rows(), program.step_s, budget_s, ahead=CompileAhead(0, 40.0))
    plans = search.plans()
    asked = next(plans)
    with pytest.raises(StopIteration):
        while True:
            for plan in asked:
                assert plan.limit_s is not None
                assert plan.only_compiles or search.spent_s + plan.limit_s == pytest.approx(1.2 * budget_s)
            asked = plans.send([program.run(plan) for plan in asked])


@pytest.mark.parametrize(("steps", "state"), [(0, UNTRIED), (3, UNTRIED), (60, LOST)])
def test_a_row_whose_process_the_search_itself_ended_has_not_failed(steps: int, state: str) -> None:
    """Its steps count if they are enough to compare."""
    program = DrawnProgram(0, scatter=0.001, outliers=0.0)
    run = program.run

    def late(plan: TrialPlan) -> Trial:
        failure = Failure("optimize", "timeout", "over")
        trial = replace(run(plan), time_s=plan.limit_s or 0.0, late=True, failure=failure)
        cut = (replace(one, times_s=one.times_s[:steps], places=one.places[:steps]) for one in trial.variants)
        return replace(trial, variants=tuple(cut) if steps else ())

    program.run = late  # type: ignore[method-assign]
    search = searched(program, ROWS[:1], 240.0)
    (row,) = search.rows
    assert row.state == state and len(program.asked) == 1
    assert row.needs_time == (state == UNTRIED)
    assert state == LOST or row.reason == "over; give a longer --budget"


def test_nothing_is_started_once_the_search_may_not_take_longer() -> None:
    """The first process of a proof takes all of the time that is left: its second one would have none."""
    program = DrawnProgram(0, {"row-0": 0.3})
    run = program.run

    def slow(plan: TrialPlan) -> Trial:
        trial = run(plan)
        return replace(trial, time_s=plan.limit_s) if plan.purpose == PROVE and plan.limit_s is not None else trial

    program.run = slow  # type: ignore[method-assign]
    search = searched(program, ROWS, 600.0)
    assert [plan.purpose for plan in program.asked] == [SCREEN, PROVE] and search.spent_s == pytest.approx(720.0)
    assert states(search)["row-0"] == UNPROVEN and search.winner is None
    assert not searched(DrawnProgram(0), ROWS, 240.0, spent_s=300.0).trials, "the breakdown took all of the time"


def test_what_may_change_numbers_is_not_claimed_before_its_losses_were_compared() -> None:
    rows = [replace(row, numbers=SUMS) if row.slug == "cudagraphs" else row for row in promising_rows()]
    search = searched(trainer(0), rows, 180.0, ahead=CompileAhead(0, 40.0))
    row = next(row for row in search.rows if row.slug == "cudagraphs")
    assert search.winner is None and row.state == UNPROVEN and row.proven is not None
    assert row.reason.startswith("alone it is faster, but it changes the order of sums,")
    search = searched(trainer(0), rows, 300.0, ahead=CompileAhead(0, 40.0))
    assert search.winner is not None and search.winner.from_start == SHARED_CACHES


def test_cuda_graphs_are_not_claimed_without_a_run_from_the_start() -> None:
    search = searched(trainer(0), promising_rows(), 180.0, ahead=CompileAhead(0, 40.0))
    row = next(row for row in search.rows if row.slug == "cudagraphs")
    assert search.winner is None and row.proven is not None
    assert (row.state, row.reason) == (UNPROVEN, NOT_RUN)


def test_cuda_graphs_run_from_the_start_before_anything_is_proven_of_them() -> None:
    """With gradients that accumulate they end in an error in a whole run, and in no process that changes over."""
    program = trainer(0, kills={"cudagraphs": CONFIRM})
    search = searched(program, promising_rows(), 600.0, ahead=CompileAhead(0, 40.0))
    row = next(row for row in search.rows if row.slug == "cudagraphs")
    assert search.winner is None and (row.state, row.proven) == (FAILED, None)
    assert row.reason == "a new process that starts with it fails: the process died"
    asked = [plan.purpose for plan in program.asked]
    assert asked[:2] == [SCREEN, CONFIRM] and SCREEN in asked[2:] and asked.count(CONFIRM) == 1


def test_what_fails_from_the_start_is_not_run_again() -> None:
    program = DrawnProgram(0, {"row-1": 0.3}, kills={"row-1": CONFIRM})
    search = searched(program, ROWS)
    assert states(search)["row-1"] == FAILED and search.winner is None
    assert [plan.slugs for plan in program.asked if plan.purpose == CONFIRM] == [("row-1",)]


def test_a_run_from_the_start_before_the_proof_counts() -> None:
    program = trainer(0)
    search = searched(program, promising_rows(), 260.0, ahead=CompileAhead(0, 40.0))
    assert search.winner is not None and search.winner.alone is not None
    assert search.winner.from_start == SHARED_CACHES and search.winner.alone.processes == 2
    assert confirmed(program) == [("cudagraphs", False), (ORIGINAL, False)]


def test_what_was_not_compared_is_not_claimed_without_a_run_from_the_start() -> None:
    search = searched(trainer(0, is_compared=False), promising_rows(), 180.0, ahead=CompileAhead(0, 40.0))
    assert search.winner is None and states(search)["cudagraphs"] == UNPROVEN


def test_a_longer_time_limit_only_runs_the_result_from_the_start() -> None:
    first = trainer(0)
    short = searched(first, promising_rows("loader"), 180.0, ahead=CompileAhead(0, 40.0))
    assert short.winner is not None and short.winner.missing_s is not None
    needed_s = short.spent_s + 1.1 * short.winner.missing_s
    for longer_s in (needed_s, 1200.0):
        again = trainer(0)
        search = searched(again, promising_rows("loader"), 180.0, ahead=CompileAhead(0, 40.0), confirming_s=longer_s)
        assert again.asked[: len(first.asked)] == first.asked
        assert {plan.purpose for plan in again.asked[len(first.asked) :]} == {CONFIRM}
        assert search.winner is not None and search.winner.from_start == EMPTY_CACHES
        assert search.spent_s <= longer_s


def test_a_search_that_is_stopped_claims_what_was_proven_until_then() -> None:
    rows = [*promising_rows("loader")[:4], promising_rows("loader")[-1]]
    for count, claims in ((1, False), (2, True), (3, True)):
        program = trainer(0)
        search = OptimizationSearch(rows, program.step_s, 1200.0, ahead=CompileAhead(0, 40.0))
        plans = search.plans()
        asked = next(plans)
        for _ in range(count):
            asked = plans.send([program.run(plan) for plan in asked])
        plans.close()
        search.stop()
        assert (search.winner is not None) == claims
        assert search.winner is None or (search.winner.slugs, search.winner.from_start) == (("cudagraphs",), NOT_YET)


def test_what_failed_from_the_start_is_not_claimed_by_a_search_that_is_stopped() -> None:
    program = trainer(0, kills={"cudagraphs": CONFIRM})
    rows = promising_rows("loader")[-1:]
    search = OptimizationSearch(rows, program.step_s, 1200.0, ahead=CompileAhead(0, 40.0))
    plans = search.plans()
    asked = next(plans)
    while asked[0].slugs != ("cudagraphs",):
        asked = plans.send([program.run(plan) for plan in asked])
    with pytest.raises(StopIteration):
        plans.send([program.run(plan) for plan in asked])
    search.stop()
    assert search.winner is None and states(search)["cudagraphs"] == FAILED


@pytest.mark.parametrize(
    ("other", "slugs"),
    [({}, ("row-1", "row-2")), ({"numbers": SUMS}, ("row-1",)), ({"alternates": False}, ("row-1",))],
)
def test_settings_are_claimed_together_if_they_were_measured_together(
    other: dict[str, Any], slugs: tuple[str, ...]
) -> None:
    rows = [menu_row("row-1"), replace(menu_row("row-2"), **other)]
    program = DrawnProgram(0, {"row-1": 0.3, "row-2": 0.2}, levels=0.002)
    search = searched(program, rows, 3600.0, confirming_s=0.0)
    assert search.winner is not None and search.winner.slugs == slugs and not confirmed(program)
    assert search.winner.gain.share == pytest.approx(1 - 0.7 * (0.8 if len(slugs) == 2 else 1.0), abs=0.02)
    assert states(search)["row-2"] == (KEPT if len(slugs) == 2 else UNPROVEN)


def test_a_process_that_had_few_of_the_kinds_says_nothing_of_a_variant() -> None:
    program = DrawnProgram(1, kinds=KINDS, is_cyclic=True, most=400)
    plan = TrialPlan("1", PROVE, (TrialCandidate(PLACEBO), TrialCandidate("a")), True, 6.0, 48)
    mix = find_mix([program.run(plan)])
    assert mix is not None
    few = mix.even_out(DrawnProgram(1, kinds=KINDS[:1], is_cyclic=True).run(plan))
    assert [(one.times_s, one.failure) for one in few.variants] == [((), "")] * 3

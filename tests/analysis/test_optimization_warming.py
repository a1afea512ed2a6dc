"""What a search compiles ahead, in how many processes, and what that leaves to the processes that are timed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import step_runs
from tried_programs import DrawnProgram, menu_row, searched

from inductor_bench.analysis.optimization.trial_plans import CompileAhead, compute_round_time_s, plan_processes_ahead
from inductor_bench.records.optimization import CONFIRM, KEPT, PROVE, SCREEN, WARMING, Trial
from inductor_bench.records.run import Run

ROWS = [menu_row(f"row-{number}") for number in range(8)]


def compiled_ahead(program: DrawnProgram) -> list[tuple[str, ...]]:
    return [plan.slugs for plan in program.asked if plan.only_compiles]


def test_the_variants_of_the_ranking_are_divided_among_processes() -> None:
    program = DrawnProgram(0, {"row-3": 0.2}, cached=0.1)
    search = searched(program, ROWS, ahead=CompileAhead(4))
    first = program.asked[:6]
    assert [plan.purpose for plan in first] == [*[WARMING] * 5, SCREEN]
    assert [plan.name for plan in first] == ["01-warm", "02-warm", "03-warm", "04-warm", "05-warm", "06-screen"]
    assert first[0].slugs == ("placebo",) and first[0].beside == 1, "with the original, on a quiet device"
    assert [len(plan.slugs) for plan in first[1:5]] == [2, 2, 2, 2]
    assert {slug for plan in first[:5] for slug in plan.slugs} == set(first[5].slugs)
    assert len(compiled_ahead(program)) == 5, "the proof finds its variants compiled"
    assert search.winner is not None and search.winner.slugs == ("row-3",)
    assert all(row.compile_time_s == program.compile_s for row in search.rows), "a cold compilation"


def test_what_is_compiled_ahead_decides_nothing() -> None:
    savings = {"row-3": 0.2, "row-5": 0.1}
    found = [searched(DrawnProgram(1, savings), ROWS, ahead=CompileAhead(count)) for count in (0, 4)]
    assert [row.state for row in found[0].rows] == [row.state for row in found[1].rows]
    assert [row.slug for row in found[1].rows if row.state == KEPT] == ["row-3", "row-5"]


def test_a_process_that_dies_costs_nothing_but_its_time() -> None:
    program = DrawnProgram(0, {"row-3": 0.2}, dies_ahead=("row-3",))
    search = searched(program, ROWS, ahead=CompileAhead(4))
    died = [trial for trial in search.trials if trial.failure]
    assert [trial.purpose for trial in died] == [WARMING] and "row-3" in died[0].slugs
    assert search.winner is not None and search.winner.slugs == ("row-3",)
    assert len(compiled_ahead(program)) == 5, "it is not tried again"


def test_a_variant_whose_compilation_times_kernels_is_compiled_where_it_has_the_device_alone() -> None:
    tuned = menu_row("tuned", setting="max_autotune_gemm")
    program = DrawnProgram(0)
    searched(program, [*ROWS[:4], tuned], ahead=CompileAhead(4))
    assert [slugs for slugs in compiled_ahead(program) if "tuned" in slugs] == []
    assert ("placebo", "tuned") in [plan.slugs for plan in program.asked if plan.purpose == SCREEN]


def test_a_combination_is_compiled_ahead_if_enough_of_it_is_new() -> None:
    two = DrawnProgram(0, {"row-0": 0.2, "row-1": 0.1})
    searched(two, ROWS, ahead=CompileAhead(4))
    assert not [slugs for slugs in compiled_ahead(two) if any("+" in slug for slug in slugs)]
    four = DrawnProgram(0, {f"row-{number}": 0.2 - 0.03 * number for number in range(4)})
    searched(four, ROWS, ahead=CompileAhead(4))
    joint = [slug for slugs in compiled_ahead(four) for slug in slugs if "+" in slug]
    assert len(joint) > 2 and len(set(joint)) == len(joint)


def test_two_rows_are_compiled_where_they_are_timed() -> None:
    program = DrawnProgram(0, {"row-0": 0.2})
    searched(program, ROWS[:1], ahead=CompileAhead(4))
    assert not compiled_ahead(program)
    searched(program, ROWS, ahead=CompileAhead(1))
    assert not compiled_ahead(program), "a single process compiles no faster than the one that is timed"


def test_what_compiles_in_a_few_seconds_is_compiled_where_it_is_timed() -> None:
    quick, slow = DrawnProgram(0), DrawnProgram(0)
    searched(quick, ROWS, ahead=CompileAhead(4, 4.0))
    searched(slow, ROWS, ahead=CompileAhead(4, 6.0))
    assert not compiled_ahead(quick), "six rows fewer save 24 s, and two rounds of processes cost 30 s"
    assert len(compiled_ahead(slow)) == 5


def test_each_device_compiles_its_own_rows_and_one_of_them_the_placebo() -> None:
    program = DrawnProgram(0, {"row-3": 0.2})
    searched(program, ROWS, lanes=2, ahead=CompileAhead(2))
    alone, *ahead = [plan for plan in program.asked if plan.only_compiles]
    timed = {plan.lane: set(plan.slugs) for plan in program.asked if plan.purpose == SCREEN}
    assert [plan.lane for plan in ahead] == [0, 0, 1, 1] and {plan.beside for plan in ahead} == {2}
    assert all(set(plan.slugs) <= timed[plan.lane] for plan in ahead)
    assert sorted(slug for plan in ahead for slug in plan.slugs) == sorted(row.slug for row in ROWS)
    assert alone.slugs == ("placebo",)


def test_compiling_ahead_is_spent_time_and_ends_in_time() -> None:
    program = DrawnProgram(0, seconds=60.0)
    search = searched(program, ROWS, 1200.0, ahead=CompileAhead(4, 30.0))
    assert search.spent_s == 60.0 * program.rounds, "four at once take the time of one"
    limits = [plan.limit_s for plan in program.asked if plan.only_compiles]
    assert limits == pytest.approx([0.7 * 1200.0, *[0.7 * 1140.0] * 4])
    program = DrawnProgram(0)
    searched(program, ROWS, 160.0, ahead=CompileAhead(4, 30.0))
    assert not compiled_ahead(program), "112 s are too few for two processes that compile for 30 s or more"


def test_processes_that_only_compile_run_beside_each_other() -> None:
    trials = [Trial(str(number), WARMING, True, (), time_s=3.0 + number, gpu="0") for number in range(3)]
    assert compute_round_time_s(trials) == 5.0


@pytest.mark.parametrize(
    ("processes", "compile_s", "budget_s", "rows"),
    [
        (0, 30.0, 1200.0, 8),
        (0, 40.0, 400.0, 2),  # one after the other, with time for proofs and whole runs
        (0, 300.0, 400.0, 1),
        (4, 40.0, 400.0, 4),  # the original and the placebo, and then the rows in four processes
        (4, 40.0, 600.0, 8),
    ],
)
def test_the_ranking_takes_as_many_rows_as_there_is_time_to_prove(
    processes: int, compile_s: float, budget_s: float, rows: int
) -> None:
    program = DrawnProgram(0, start_s=15.0, compile_s=compile_s, cached=0.1, check_s=2.0)
    searched(program, ROWS, budget_s, ahead=CompileAhead(processes, compile_s))
    assert len(next(plan for plan in program.asked if plan.purpose == SCREEN).slugs) - 1 == rows


def test_what_promises_most_is_ranked_where_it_is_compiled_and_the_others_are_compiled_ahead() -> None:
    graphs = replace(menu_row("cudagraphs"), group="cudagraphs", bound=0.6)
    program = DrawnProgram(0, {"cudagraphs": 0.5}, start_s=10.0, compile_s=20.0, cached=0.1, check_s=1.0)
    searched(program, [*ROWS, graphs], ahead=CompileAhead(4, 20.0))
    assert [plan.purpose for plan in program.asked[:8]] == [SCREEN, CONFIRM, PROVE, *[WARMING] * 4, SCREEN]
    assert program.asked[0].slugs == ("placebo", "cudagraphs")
    assert all("placebo" not in plan.slugs for plan in program.asked[3:7]), "the first process has compiled it"


def test_a_proof_is_expected_to_take_what_the_ranking_compiled_and_not_a_cold_compilation() -> None:
    savings = {f"row-{number}": 0.2 for number in range(6)}
    program = DrawnProgram(0, savings, cached=0.05, start_s=10.0, check_s=1.0)
    searched(program, ROWS, 300.0, ahead=CompileAhead(4))
    assert len(next(plan for plan in program.asked if plan.purpose == PROVE).slugs) == 4
    assert program.asked[-1].purpose == CONFIRM


def test_cores_memory_and_ranks_limit_the_processes() -> None:
    cpu = step_runs.cpu()
    cpu = replace(cpu, environment=replace(cpu.environment, host=replace(cpu.environment.host, memory_bytes=1 << 40)))
    assert [plan_processes_ahead(cpu, cores, 1).number for cores in (2, 7, 8, 16, 32, 192)] == [0, 0, 2, 4, 8, 8]
    assert [plan_processes_ahead(cpu, 32, lanes).number for lanes in (2, 4, 8)] == [4, 2, 0]
    assert plan_processes_ahead(cpu, 4, 1).obstacle == "there are 4 cores, and 8 are needed"
    assert plan_processes_ahead(cpu, 32, 8).obstacle == "there are 32 cores for 8 GPUs, and 64 are needed"
    assert cpu.program is not None and len(cpu.program.ranks) == 1
    ranks = replace(cpu, program=replace(cpu.program, ranks=cpu.program.ranks * 2))
    assert plan_processes_ahead(ranks, 32, 1) == (0, "the program has several processes")


def test_on_a_gpu_run_as_many_processes_as_its_memory_holds_beside_each_other() -> None:
    run = step_runs.transformer()
    facts = replace(run.environment.device, accelerator_memory_bytes=100 << 30)
    run = replace(run, environment=replace(run.environment, device=facts))

    def with_peaks(forward: int | None, backward: int | None) -> Run:
        peaks = zip(run.modules, (forward, backward), strict=True)
        return replace(run, modules=tuple(replace(module, peak_memory_bytes=peak) for module, peak in peaks))

    unknown = plan_processes_ahead(with_peaks(None, None), 64, 1)
    assert unknown == (0, "the RUN does not say how much memory the program takes")
    assert plan_processes_ahead(with_peaks(1 << 20, 1 << 20), 64, 1) == (8, "")
    estimated = plan_processes_ahead(with_peaks(1 << 29, 1 << 29), 64, 1)
    assert estimated.number == 6, "twelve blocks forward and backward: 12 GiB"
    assert plan_processes_ahead(with_peaks(4 << 30, 4 << 30), 64, 1).obstacle.endswith("two would not fit into memory")

    def with_peak(peak: int) -> Run:
        assert run.program is not None
        known = with_peaks(4 << 30, 4 << 30)
        return replace(known, program=replace(run.program, peak_memory_bytes=peak))

    assert plan_processes_ahead(with_peak(15 << 30), 64, 1) == (5, ""), "measured, and not estimated"
    assert plan_processes_ahead(with_peak(50 << 30), 64, 1).number == 0


def test_a_search_says_why_nothing_was_compiled_ahead() -> None:
    ahead = CompileAhead(0, 30.0)
    ahead.obstacle = "there are 4 cores, and 8 are needed"
    (note,) = searched(DrawnProgram(0), ROWS, ahead=ahead).notes
    assert note.endswith("not ahead in several processes: there are 4 cores, and 8 are needed")
    (note,) = searched(DrawnProgram(0), ROWS, 160.0, ahead=CompileAhead(4, 30.0)).notes
    assert note.endswith(": 2 min 40 s were left, too few for further processes")
    assert not searched(DrawnProgram(0), ROWS, ahead=CompileAhead(4, 30.0)).notes
    assert not searched(DrawnProgram(0), ROWS, ahead=CompileAhead(4, 3.0)).notes, "it would not have paid"

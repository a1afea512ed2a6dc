"""What kernels and graphs cost: in the program's step if it was profiled, else in one iteration."""

from __future__ import annotations

from dataclasses import replace

import pytest
import run_builder as build
import step_runs

from inductor_bench.analysis import step_costs
from inductor_bench.analysis.batch_aggregation import list_retunes
from inductor_bench.analysis.findings.finding import list_program_words
from inductor_bench.analysis.findings.next_commands import next_commands
from inductor_bench.analysis.findings.step_phrases import name_line
from inductor_bench.analysis.step_costs import calls_differ, compute_weight_s, compute_whole_time_s, find_pace_setter
from inductor_bench.records.base import Category
from inductor_bench.records.code import SourceLine
from inductor_bench.records.run import COPY, IDLE, Run

PROGRAMS = ["transformer", "decode", "host_paced", "distributed", "cpu"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_parts_of_a_step_add_up_to_it(name: str) -> None:
    run: Run = getattr(step_runs, name)()
    program = step_costs.find_step(run)
    assert program is not None
    assert sum(part.share for part in program.parts) == pytest.approx(1)
    assert compute_whole_time_s(run) == program.step_time_s
    assert step_costs.sum_part_times_s(run, *{part.kind for part in program.parts}) == pytest.approx(
        program.step_time_s
    )


def test_without_a_step_a_kernel_costs_what_one_iteration_costs() -> None:
    run = build.mixnet()
    module = replace(run.modules[0], program_calls=7)
    kernel = module.kernels[0]
    cost = step_costs.compute_cost(run, module, kernel)
    assert cost == step_costs.Cost(kernel.calls, kernel.time_s, kernel.roof.gain_limit_s, 7)
    assert (
        step_costs.find_graph_use(run, module) == step_costs.GraphUse()
        and step_costs.compute_alone_ratio(run, kernel) is None
    )
    assert not step_costs.host_sets_pace(run) and step_costs.list_step_factors(
        run, module.label, kernel.kernel_id, kernel.category
    ) == (
        1,
        1,
    )


def test_a_step_time_without_a_profile_is_no_currency() -> None:
    run = step_runs.transformer()
    assert run.program is not None
    run = replace(run, program=replace(run.program, parts=()))
    assert step_costs.find_step(run) is None and step_costs.compute_idle_share(run) == 0
    assert compute_whole_time_s(run) == pytest.approx(0.72e-3 * 3)


def test_a_cost_in_the_step_has_the_gain_limit_of_all_its_calls() -> None:
    run = step_runs.transformer()
    backward = run.modules[1]
    kernel = next(kernel for kernel in backward.kernels if kernel.roof.gain_limit_s)
    cost = step_costs.compute_cost(run, backward, kernel)
    assert cost.calls == 12 * kernel.calls and cost.repeats == 1
    assert cost.time_s == kernel.step_time_s and cost.time_s == pytest.approx(
        12 * kernel.time_s * 1.1167 / 1.26, rel=1e-3
    )
    assert cost.gain_limit_s == pytest.approx(12 * (kernel.roof.gain_limit_s or 0))
    assert kernel.roof.peak_share is not None
    assert cost.gain_limit_s == pytest.approx(cost.time_s * (1 - kernel.roof.peak_share)), (
        "both of the time in the step"
    )


def test_a_kernel_that_the_step_does_not_run_costs_nothing() -> None:
    run = step_runs.transformer()
    kernel = replace(run.modules[0].kernels[0], step_calls=None, step_time_s=None)
    assert step_costs.compute_cost(run, run.modules[0], kernel) == step_costs.Cost(0, 0, 0)


def test_graphs_weigh_what_they_take_of_the_step() -> None:
    run = step_runs.transformer()
    forward, backward = run.modules
    assert compute_weight_s(run, forward) == pytest.approx(6.7e-3) and compute_weight_s(run, backward) == pytest.approx(
        13.4e-3
    )
    assert not calls_differ(replace(run, modules=(replace(forward, program_calls=3), backward)))
    use = step_costs.find_graph_use(step_runs.decode(), step_runs.decode().modules[0])
    assert use.replayed and use.calls == use.replays == 1
    assert not step_costs.find_graph_use(run, forward).replayed


def test_categories_in_the_step_are_sums_of_its_kernels() -> None:
    run = step_runs.transformer()
    totals = step_costs.sum_by_category(run, run.modules[0])
    assert sum(total.time_s for total in totals) == pytest.approx(6.7e-3)
    assert sum(total.share for total in totals) == pytest.approx(1)
    assert totals[0].wall_share == pytest.approx(totals[0].time_s / 30e-3)
    old = build.mixnet()
    assert step_costs.sum_by_category(old, old.modules[0]) is old.modules[0].categories


def test_the_host_sets_the_pace_of_a_device_that_is_idle() -> None:
    assert (
        step_costs.host_sets_pace(step_runs.host_paced())
        and step_costs.compute_idle_share(step_runs.host_paced()) > 0.2
    )
    assert not step_costs.host_sets_pace(step_runs.transformer()) and not step_costs.host_sets_pace(step_runs.decode())
    cpu = step_runs.cpu()
    assert (
        step_costs.runs_on_host(cpu) and step_costs.compute_idle_share(cpu) > 0.1 and not step_costs.host_sets_pace(cpu)
    )


def test_idle_labels_are_summed_over_lines() -> None:
    run = step_runs.host_paced()
    assert list(step_costs.sum_idle_by_label(run))[:2] == ["launching", "Python"]
    assert sum(step_costs.sum_idle_by_label(run).values()) == pytest.approx(step_costs.sum_part_times_s(run, IDLE))
    assert step_costs.sum_part_times_s(run, COPY) == 0


@pytest.mark.parametrize(("ratio", "far"), [(None, False), (1.0, False), (0.76, False), (0.74, True), (1.26, True)])
def test_times_that_differ_by_more_than_a_quarter_are_far_off(ratio: float | None, far: bool) -> None:
    assert step_costs.is_far_off(ratio) is far


def test_the_time_by_itself_is_compared_per_call() -> None:
    run = step_runs.decode()
    assert step_costs.compute_alone_ratio(run, run.modules[0].kernels[0]) == pytest.approx(0.378 / 0.63)


def test_a_retune_row_is_turned_into_the_step() -> None:
    run = step_runs.transformer()
    kernel = run.modules[0].kernels[0]
    calls, time = step_costs.list_step_factors(run, "Block.forward", kernel.kernel_id, kernel.category)
    assert calls == 12 and time == pytest.approx((kernel.step_time_s or 0) / kernel.time_s)
    assert step_costs.list_step_factors(run, "Block.forward", "of a library call", Category.EXTERN_CONV) == (12, 12)
    alike = [one for one in run.modules[0].kernels if one.category == kernel.category]
    time = sum(one.step_time_s or 0.0 for one in alike) / sum(one.time_s for one in alike)
    found = step_costs.list_step_factors(run, "Block.forward", "of a library call", kernel.category)
    assert found == (12, pytest.approx(time)) and time != 12
    assert step_costs.list_step_factors(run, "another graph", kernel.kernel_id, kernel.category) == (1, 1)


def test_the_next_commands_fit_the_pace() -> None:
    for run, order in ((step_runs.host_paced(), "calls"), (step_runs.transformer(), "gain")):
        assert f"inductor-bench report runs/x --sort {order}" in [one.command for one in next_commands(run, "runs/x")]
    assert list_retunes(step_runs.transformer()) is None


def test_the_next_commands_name_the_interpreter_of_the_record() -> None:
    run = step_runs.transformer()
    module = run.modules[0]
    written = replace(module, kernels=(replace(module.kernels[0], file="kernels/a.py"), *module.kernels[1:]))
    for path, word in ((None, "python"), ("/else where/python", "'/else where/python'")):
        again = replace(run, request=replace(run.request, python=path), modules=(written, *run.modules[1:]))
        assert f"{word} runs/x/kernels/a.py" in [one.command for one in next_commands(again, "runs/x")]
        assert list_program_words(again.request).startswith(f"{word} {run.request.target}")


def test_the_rank_that_waits_least_in_collectives_sets_the_pace() -> None:
    program = step_runs.distributed().program
    assert program is not None
    waits, works = program.ranks
    assert find_pace_setter(program.ranks) is works and find_pace_setter([works, waits]) is works
    assert find_pace_setter([replace(waits, step_time_s=9e-3), works]).rank == waits.rank
    assert find_pace_setter([replace(works, parts=()), waits]) is waits


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("loss = net(x)", "app/train.py:57"),
        ("def main():", "app/train.py:57 main"),
        ("async def main():", "app/train.py:57 main"),
        ("@torch.compile", "app/train.py:57 main"),
        ("", "app/train.py:57"),
    ],
)
def test_a_function_stands_beside_its_first_line_which_is_not_the_line_that_ran(code: str, words: str) -> None:
    assert name_line(SourceLine("/home/user/app/train.py", 57, "main", code)) == words
    assert name_line(None) == ""

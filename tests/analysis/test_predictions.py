"""What a recorded step would save, in the words of its record: kernels, parts, idle time, launches as one graph."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from functools import cache
from statistics import median

import pytest
import run_builder
import step_runs
from inline import change

from inductor_bench.analysis.findings.finding import KernelPlace, RemovedWork
from inductor_bench.analysis.findings.first_line import write_first_line
from inductor_bench.analysis.findings.next_commands import next_commands
from inductor_bench.analysis.findings.rule_table import find_saving_s, list_findings
from inductor_bench.analysis.ledger import GraphName, Steps, make_ledger
from inductor_bench.analysis.optimization.menu import make_menu
from inductor_bench.analysis.optimization.step_facts import StepFacts
from inductor_bench.analysis.simulation.fitting import SimulatedSaving
from inductor_bench.analysis.simulation.predictions import (
    REPLAYED_GAP_S,
    SLOW_GAP_S,
    QueuedStep,
    Simulator,
    add_predictions,
    compute_replay_gap_s,
)
from inductor_bench.analysis.simulation.profiled_queue import build_profiled_queue
from inductor_bench.analysis.step_costs import is_worth_faster_kernels, replay_limit_s
from inductor_bench.records.base import Category
from inductor_bench.records.module import ModuleRecord
from inductor_bench.records.run import (
    DATA_LOADING,
    GRAPH,
    IDLE,
    LAUNCHING,
    OPTIMIZER,
    PYTHON,
    QUEUED,
    SYNCHRONISING,
    HostStretch,
    HostWork,
    Part,
    Program,
    RankSteps,
    Run,
)
from inductor_bench.trace.program_trace import read_program_trace
from inductor_bench.trace.program_works import find_works
from tests.support.program_traces import MARKERS
from tests.trace.test_program_h200 import PROGRAMS, graph_of

KERNELS = 4


def with_program(run: Run, **fields: object) -> Run:
    assert run.program is not None
    return replace(run, program=replace(run.program, **fields))  # type: ignore[arg-type]


@cache
def recorded(name: str) -> tuple[Run, QueuedStep]:
    """The run of a recorded program with its ledger and its most expensive kernels, and its queue."""
    folder = PROGRAMS / name
    seen = json.loads(gzip.decompress((folder / "steps.json.gz").read_bytes()))
    graphs = {int(file.name.split(".")[0]): graph_of(file) for file in folder.glob("[0-9].py.gz")}
    trace = read_program_trace(folder / "steps.trace.json.gz", MARKERS)
    found = find_works(trace, MARKERS, graphs, on_host=False)
    assert found is not None
    step_s = median(seen["step_times_s"])
    names = {number: GraphName(f"graph-{number}", f"graph-{number}") for number in range(8)}
    optimizers = found.optimizer_calls
    ledger = make_ledger(
        Steps(step_s, found.window, found.works, found.calls, found.timeline, names, optimizer_calls=optimizers)
    )
    ranks = (RankSteps(None, 1, "cuda", (step_s,), step_s, ledger.busy_time_s, parts=ledger.parts),)
    program = Program(step_s, (step_s,), "optimizer", ledger.busy_time_s, ledger.parts, ranks=ranks)
    modules = tuple(_module(number, found.activities[number], found.window.step_count) for number in found.activities)
    host = seen.get("host_step_times_s")
    slugs = {number: f"graph-{number}" for number in range(8)}
    queue = build_profiled_queue(trace, found, MARKERS)
    graph_of_call = [call.graph for call in found.calls]
    queued = QueuedStep(queue, step_s, median(host) if host else None, slugs, graph_of_call, {}, {})
    return replace(run_builder.run(name, modules, peaks=run_builder.H200), program=program), queued


def _module(number: int, activities: tuple, steps: int) -> ModuleRecord:  # type: ignore[type-arg]
    """A module with the most expensive Triton kernels of a graph; each would take half the time at its roof."""
    times: dict[tuple[str, str], list[float]] = {}
    for one in activities:
        if one.kernel is not None and one.kind == "kernel":
            times.setdefault((one.name, one.kernel.kernel_id), []).append(one.duration_s)
    rows = []
    for (name, kernel_id), found in sorted(times.items(), key=lambda item: -sum(item[1]))[:KERNELS]:
        calls, time_s = len(found) / steps, sum(found) / steps
        row = run_builder.kernel(name, Category.POINTWISE, round(calls) or 1, time_s)
        roof = replace(row.roof, gain_limit_s=time_s / 2)
        rows.append(replace(row, kernel_id=kernel_id, line=1, roof=roof, step_calls=row.calls, step_time_s=time_s))
    return run_builder.module(f"graph-{number}", rows, 1e-3, run_builder.H200, slug=f"graph-{number}")


@cache
def simulator_of(name: str) -> Simulator:
    run, step = recorded(name)
    return Simulator(step, step.fitted(), run)


def part_of(name: str, kind: str, label: str) -> Part:
    program = recorded(name)[0].program
    assert program is not None
    return next(part for part in program.parts if (part.kind, part.label) == (kind, label))


def predicted(name: str) -> Run:
    run, step = recorded(name)
    return add_predictions(run, step, simulator_of(name).fitted)


def test_kernels_of_replays_save_the_step_what_they_save_the_device() -> None:
    run = predicted("decode")
    kernels = [kernel for module in run.modules for kernel in module.kernels]
    assert len(kernels) == KERNELS
    for kernel in kernels:
        saving = kernel.saving
        assert saving.step_saving_s == pytest.approx((kernel.step_time_s or 0) / 2, rel=0.05)
        assert saving.device_saving_s == pytest.approx(saving.step_saving_s, rel=0.05)
    assert is_worth_faster_kernels(run)


def test_kernels_behind_a_busy_host_save_nothing_until_the_host_is_faster() -> None:
    run = predicted("breaks")
    kernels = [kernel for module in run.modules for kernel in module.kernels if kernel.saving.device_saving_s]
    assert kernels and not is_worth_faster_kernels(run)
    for kernel in kernels:
        assert kernel.saving.step_saving_s is not None and kernel.saving.device_saving_s is not None
        assert kernel.saving.step_saving_s < 0.1 * kernel.saving.device_saving_s
    lead = write_first_line(run)
    assert lead is not None and lead.text.endswith("Faster kernels shorten the step only once the host is faster")
    assert not [one for one in next_commands(run, "RUN") if "--autotune" in one.command]


def test_a_loader_beside_the_step_saves_its_time_within_the_uncertainty_of_the_profilers_cost() -> None:
    part = part_of("breaks", IDLE, DATA_LOADING)
    saving = simulator_of("breaks").saving(RemovedWork(idle=(part,)))
    assert 0.1e-3 < saving.time_s < part.time_s * 1.2
    assert saving.time_s + saving.uncertainty_s > part.time_s * 0.8, "the profiler's cost may be the same everywhere"


def test_waits_that_go_never_make_the_step_longer() -> None:
    waiting = Part(IDLE, SYNCHRONISING, 1, 1e-4, 0.02)
    assert simulator_of("breaks").saving(RemovedWork(idle=(waiting,))).time_s >= 0


def test_a_part_that_goes_takes_its_launches_along() -> None:
    for name in ("breaks", "graphs"):
        program = recorded(name)[0].program
        assert program is not None
        part = next(part for part in program.parts if part.kind == OPTIMIZER)
        saving = simulator_of(name).saving(RemovedWork(parts=(part,)))
        assert saving.device_s == pytest.approx(part.device_time_s, rel=0.35)
        assert saving.time_s > 0


MEASURED = 0.463, 0.545
"""What mode='reduce-overhead' really saved of the step of this program, BERT in transformers' Trainer, in three
searches on H100s and an H200."""


@cache
def trainer(graph_time_s: float | None = None) -> tuple[Run, QueuedStep]:
    """The recorded Trainer step, whose graphs were profiled in the program, so that no replay was measured."""
    run, step = recorded("trainer")
    labels = {"graph-2": "forward", "graph-3": "backward"}
    rows = [run_builder.module(label, [TINY], 12e-3, slug=slug) for slug, label in labels.items()]
    modules = tuple(change(one, method="live", graph_time_s=graph_time_s) for one in rows)
    return replace(run, modules=modules), step


TINY = run_builder.kernel("triton_poi_fused_0", Category.POINTWISE, 1, 1e-3)
GRAPHS = RemovedWork(graphs=("graph-2", "graph-3"))


def saving_in_trainer(changed: Run | None = None, graph_time_s: float | None = None) -> SimulatedSaving:
    run, step = trainer(graph_time_s)
    return Simulator(step, simulator_of("trainer").fitted, changed or run).saving(GRAPHS)


def test_replays_that_were_not_measured_save_of_the_recorded_step_what_they_really_save() -> None:
    whole_s, saving = trainer()[1].step_time_s, saving_in_trainer()
    assert MEASURED[0] <= saving.time_s / whole_s <= MEASURED[1]
    assert saving.uncertainty_s > saving_in_trainer(graph_time_s=5e-3).uncertainty_s, "a measurement says more"


def test_the_gap_of_a_replay_is_that_of_its_module_by_itself() -> None:
    assert compute_replay_gap_s(360e-6, 258e-6, 301) == pytest.approx(0.29e-6)
    assert compute_replay_gap_s(500e-6, 350e-6, 8) == REPLAYED_GAP_S, "too few gaps"
    assert compute_replay_gap_s(250e-6, 258e-6, 301) == 0.0
    assert compute_replay_gap_s(5e-3, 258e-6, 301) == SLOW_GAP_S, "something disturbed it"


def test_a_module_whose_replay_has_small_gaps_saves_more() -> None:
    run, step = trainer(5e-3)
    launches, busy_s = 400, 4e-3
    savings = []
    for gap_s in (0.3e-6, 2.3e-6):
        graph_time_s = busy_s + 15e-6 + gap_s * (launches - 1)
        rows = [change(one, graph_time_s=graph_time_s, busy_time_s=busy_s, launches=launches) for one in run.modules]
        fast = Simulator(step, simulator_of("trainer").fitted, replace(run, modules=tuple(rows)))
        savings.append(fast.saving(GRAPHS).device_s)
    assert savings[0] > savings[1]


def test_unmeasured_graphs_are_the_first_finding_of_the_recorded_step_and_what_is_tried_first() -> None:
    run, step = trainer()
    found = add_predictions(run, step, simulator_of("trainer").fitted)
    first, lead = list_findings(found)[0], write_first_line(found)
    assert first.kind == "cuda-graphs-unused" and first.prediction is not None
    assert "are launched kernel by kernel, 847 launches a step: try mode='reduce-overhead'" in first.text
    assert lead is not None and "Could save: CUDA graphs 4" in lead.text
    assert "host-pace" not in {one.kind for one in list_findings(found)}
    rows = {row.slug: row for row in make_menu(StepFacts(found))}
    saving = first.prediction
    assert rows["cudagraphs"].bound == pytest.approx((saving.saving_s + saving.uncertainty_s) / step.step_time_s)


@pytest.mark.parametrize("stands_in_the_way", ["dynamic", "mode", "not recorded", "one launch", "refused", "writes"])
def test_graphs_that_cannot_be_replayed_are_not_advised_without_a_measurement(stands_in_the_way: str) -> None:
    run, _ = trainer()
    assert run.program is not None
    assert "cuda-graphs-unused" in {one.kind for one in list_findings(run)}
    parts = run.program.parts
    changed = {
        "dynamic": replace(run, modules=tuple(replace(one, dynamic=True) for one in run.modules)),
        "mode": replace(run, request=replace(run.request, mode="reduce-overhead")),
        "not recorded": replace(run, modules=tuple(change(one, method="-p") for one in run.modules)),
        "one launch": with_program(run, parts=tuple(replace(one, launches=one.calls) for one in parts)),
        "writes": with_program(run, parts=tuple(replace(one, writes_inputs=one.kind == GRAPH) for one in parts)),
        "refused": with_program(
            run, parts=tuple(replace(one, refusal="cpu device (x)" if one.kind == GRAPH else "") for one in parts)
        ),
    }[stands_in_the_way]
    assert "cuda-graphs-unused" not in {one.kind for one in list_findings(changed)}


def test_replays_of_small_graphs_that_save_nothing_are_not_advised() -> None:
    run, step = recorded("breaks")
    slugs = tuple(module.slug for module in run.modules)
    assert simulator_of("breaks").saving(RemovedWork(graphs=slugs)).time_s < 0.05 * step.step_time_s
    assert "cuda-graphs-unused" not in {one.kind for one in list_findings(predicted("breaks"))}


def test_a_host_that_does_less_saves_no_more_than_the_device_waits_for_it() -> None:
    run, _ = trainer()
    assert run.program is not None
    busy = tuple(replace(one, label=QUEUED) if one.kind == IDLE else one for one in run.program.parts)
    waits = replace(next(one for one in busy if one.kind == IDLE), label=LAUNCHING, time_s=6e-3)
    saving = saving_in_trainer(with_program(run, parts=(*busy, waits)))
    assert saving.time_s == pytest.approx(6e-3) and saving.uncertainty_s >= 6e-3


def test_replays_save_no_more_than_launches_take_by_samples() -> None:
    run, step = trainer()
    assert run.program is not None
    parts = [replace(one, time_s=0.1 * one.time_s) if one.label == LAUNCHING else one for one in run.program.parts]
    python = Part(IDLE, PYTHON, 1, 0.4 * step.step_time_s, 0.4)
    sampled = HostWork((HostStretch(PYTHON, "main", python.time_s, 80),), 80, 200, 20, 0.0, 0.0, 0.0, 10)
    less = with_program(run, parts=(*parts, python), host=sampled)
    assert saving_in_trainer(less).time_s == pytest.approx(replay_limit_s(less, GRAPHS.graphs))


def test_findings_are_in_the_order_of_what_they_save() -> None:
    run = predicted("breaks")
    advice = [one for one in list_findings(run) if one.level == "advice"]
    assert advice and all(one.prediction is not None for one in advice if one.assumed != RemovedWork())
    savings = [find_saving_s(one, run) for one in advice if one.kind != "host-pace"]
    assert savings == sorted(savings, reverse=True)
    assert len({one.id for one in list_findings(run)}) == len(list_findings(run))


def test_ids_do_not_depend_on_times() -> None:
    run = step_runs.host_paced()
    assert run.program is not None
    parts = tuple(replace(part, time_s=part.time_s * 1.01) for part in run.program.parts)
    longer = replace(run, program=replace(run.program, parts=parts, step_time_s=run.program.step_time_s * 1.01))
    assert {one.id for one in list_findings(run)} == {one.id for one in list_findings(longer)}


def test_a_setting_that_can_be_tried_is_in_the_record() -> None:
    run = add_predictions(step_runs.cpu(), None, None)
    assert run.program is not None and all(one.device_saving_s is None for one in run.program.predictions)
    changes = {
        (one.kind, change.setting, change.value)
        for one in list_findings(step_runs.transformer())
        for change in one.changes
    }
    assert ("eager-optimizer", "AdamW.fused", "True") in changes
    waits = [one for one in list_findings(step_runs.transformer()) if one.kind == "synchronisations"]
    assert waits[0].changes[0].kind == "line" and waits[0].changes[0].source == step_runs.line(47)


def test_works_of_a_kernel_are_found_by_its_row() -> None:
    run, _ = recorded("decode")
    kernel = run.modules[0].kernels[0]
    one = RemovedWork(kernels=((KernelPlace(run.modules[0].slug, kernel.name), 1.0),))
    alike = sum(other.step_time_s or 0.0 for other in run.modules[0].kernels if other.name == kernel.name)
    saving = simulator_of("decode").saving(one)
    assert saving.time_s >= 0.95 * alike

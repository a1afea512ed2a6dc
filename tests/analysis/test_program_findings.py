"""Findings about a program's step: each speaks on its evidence, is silent without it, and none of them misleads."""

from __future__ import annotations

from dataclasses import replace

import pytest
import run_builder as build
import step_runs
from finding_examples import SMALL_GRAPHS
from inline import change

from inductor_bench.analysis.findings.finding import ADVICE, CAUTION, FINE, NOTE, Finding, RemovedWork
from inductor_bench.analysis.findings.first_line import write_first_line
from inductor_bench.analysis.findings.next_commands import write_trial_command
from inductor_bench.analysis.findings.rule_table import STEP_RULES, find_saving_s, list_findings
from inductor_bench.analysis.findings.step_phrases import describe_step
from inductor_bench.analysis.optimization.menu import make_menu
from inductor_bench.analysis.optimization.step_facts import StepFacts
from inductor_bench.records.code import CompilePhase, MachineLoad, SourceLine
from inductor_bench.records.run import (
    ALLOCATING,
    COLLECTIVE,
    COPY,
    DATA_LOADING,
    DISPATCHING,
    EAGER,
    GRAPH,
    GRAPH_INPUTS,
    IDLE,
    LAUNCHING,
    MARKS,
    OPTIMIZER,
    PYTHON,
    QUEUED,
    SYNCHRONISING,
    CallStretch,
    Capture,
    ClockReading,
    HostStretch,
    HostWork,
    Part,
    Prediction,
    Program,
    Run,
    StepKind,
)

MISLEADING = {"launch-bound", "host-bound", "cuda-graph", "gaps", "host-share", "busy-machine"}
"""Findings that rest on a run of the graph alone, which says nothing about waiting in the program."""


def the(run: Run, kind: str) -> Finding:
    found = [finding for finding in list_findings(run) if finding.kind == kind]
    assert len(found) == 1, f"{kind}: {found}"
    return found[0]


def kinds(run: Run, level: str = "") -> set[str]:
    return {finding.kind for finding in list_findings(run) if not level or finding.level == level}


def lead(run: Run) -> str:
    found = write_first_line(run)
    assert found is not None and found.kind == "step"
    return found.text


def with_program(run: Run, **fields: object) -> Run:
    assert run.program is not None
    return replace(run, program=replace(run.program, **fields))  # type: ignore[arg-type]


def with_parts(parts: list[Part], step_s: float = 10e-3, **fields: object) -> Run:
    """A program on a GPU of these parts, without compiled modules."""
    found = step_runs.program(parts, step_s=step_s, **fields)
    return replace(build.run("p", [], peaks=build.H200), program=found)


@pytest.mark.parametrize("name", ["transformer", "decode", "host_paced", "distributed", "cpu"])
def test_no_module_run_by_itself_speaks_about_waiting_in_the_program(name: str) -> None:
    run: Run = getattr(step_runs, name)()
    idle = tuple(change(module, busy_share=0.2, graph_time_s=1e-5) for module in run.modules)
    assert not MISLEADING & kinds(replace(run, modules=idle))
    assert MISLEADING & kinds(replace(run, modules=idle, program=None))


def test_a_busy_program_is_bound_by_its_device() -> None:
    assert lead(step_runs.transformer()) == (
        "30.0 ms a step (optimizer steps; 20 timed): GPU-bound, busy 95%: Block.backward 45%, Block.forward 22%, "
        "AdamW 17%, eager operators 10%, copies 1%, idle 5% (1.50 ms; Python 2%, launching 2%). "
        "Could save: generated kernels at their peaks 2.3% (upper bound)"
    )


def test_a_host_that_sets_the_pace_is_named_with_its_work() -> None:
    assert lead(step_runs.host_paced()) == (
        "19.8 ms a step (optimizer steps; 20 timed): the host sets the pace, GPU busy 76%: idle 24% (4.80 ms; "
        "launching 8%, Python 8%), backward 41%, forward 21%, SGD 14%"
    )
    kernels = [finding for finding in list_findings(step_runs.host_paced()) if finding.kernels]
    assert kernels and all(find_saving_s(finding, step_runs.host_paced()) == 0 for finding in kernels), (
        "they win nothing now"
    )
    assert "host-pace" not in kinds(step_runs.host_paced()), "other findings name what the device waits for"


def test_the_first_line_of_other_programs() -> None:
    assert lead(step_runs.decode()).startswith(
        "0.730 ms a step (found in the pattern of compiled calls; 20 timed): GPU-bound"
    )
    assert lead(step_runs.cpu()) == (
        "9.50 ms a step (optimizer steps; 20 timed): forward 64%, SGD 13%, eager operators 3%, idle 20% "
        "(1.90 ms; Python)"
    )
    assert step_runs.cpu().program is not None
    (rank,) = step_runs.cpu().program.ranks
    for times, said in ((2.9, False), (77, True)):
        slowed = with_program(step_runs.cpu(), ranks=(replace(rank, profiled_step_time_s=times * rank.step_time_s),))
        words = ". The profiled steps took 731 ms, 77 times as long as the timed ones (9.50 ms): all parts are scaled "
        assert (words in lead(slowed)) is said
    marked = with_program(step_runs.decode(), step_source=MARKS)
    assert "(marked by the program; 20 timed)" in lead(marked)
    many = with_parts([Part(GRAPH, f"graph{i}", 1, 1.52e-3, 0) for i in range(6)])
    assert "graph3 15%, 2 more 30%, idle 9% (0.880 ms; Python)" in lead(many)


def test_times_of_a_busy_machine_promise_no_saving() -> None:
    idle = step_runs.cpu()
    kernels = {one.slug: tuple(change(kernel, gain_limit_s=5e-4) for kernel in one.kernels) for one in idle.modules}
    idle = replace(idle, modules=tuple(change(one, kernels=kernels[one.slug]) for one in idle.modules))
    load = MachineLoad(20, 2, 6.0, 0.2, 0.1, 0.9, 0.0, 40)
    busy = replace(idle, modules=tuple(change(one, wall_load=load) for one in idle.modules))
    assert "Could save: generated C++" in lead(idle) and "Could save" not in lead(busy)


def test_cuda_graphs_in_use_are_never_advised() -> None:
    run = step_runs.decode()
    assert the(run, "cuda-graphs-in-use").text == "CUDA graphs replay decode (each call)"
    assert not any("reduce-overhead" in finding.text for finding in list_findings(run)) and "reduce-" not in lead(run)
    some = [replace(run.program.parts[0], calls=4, replays=3)] if run.program else []
    assert "3 of 4 calls" in the(with_parts(some, step_s=0.7e-3), "cuda-graphs-in-use").text


def test_cuda_graphs_are_advised_if_the_host_sets_the_pace_and_a_replay_is_faster() -> None:
    run = step_runs.host_paced()
    found = the(run, "cuda-graphs-unused")
    assert "7.50 ms instead of 8.64 ms (backward) and 3.70 ms instead of 4.32 ms (forward)" in found.text
    assert found.gain_s == pytest.approx(4.8e-3), "no more than the device waits for the host"
    slower = tuple(change(module, graph_time_s=module.times.wall_time_s) for module in run.modules)
    assert "cuda-graphs-unused" not in kinds(replace(run, modules=slower))
    assert "cuda-graphs-unused" not in kinds(replace(run, request=replace(run.request, mode="reduce-overhead")))
    assert "cuda-graphs-unused" not in kinds(step_runs.transformer()), "the host is no limit"


def test_a_refusal_is_reported_with_its_reason_and_nothing_is_advised() -> None:
    run = step_runs.host_paced()
    assert run.program is not None
    parts = tuple(replace(p, refusal="cpu device (x)" if p.kind == GRAPH else "") for p in run.program.parts)
    refused = with_program(run, parts=parts)
    assert the(refused, "cuda-graphs-refused").text == (
        "Inductor uses no CUDA graphs for backward and forward although they were asked for: x lies on the CPU; move "
        "it to the device before the call"
    )
    assert "cuda-graphs-unused" not in kinds(refused)


def test_copies_of_inputs_have_bytes_and_time() -> None:
    found = the(step_runs.decode(), "replay-inputs")
    assert found.text.startswith("4 copies of 410 kB bring inputs to CUDA graphs, 20.0 µs (2.7%) a step")
    unknown = with_parts([Part(COPY, GRAPH_INPUTS, 4, 1e-3, 0)])
    assert the(unknown, "replay-inputs").text.startswith("4 copies bring inputs")
    assert "replay-inputs" not in kinds(with_parts([Part(COPY, "host to device", 4, 1e-3, 0)]))


def test_eager_regions_worth_compiling() -> None:
    run = step_runs.transformer()
    assert the(run, "eager-optimizer").text.startswith("AdamW runs eagerly and takes 5.10 ms (17.0%) of a step in 221")
    text = the(run, "eager-operators").text
    assert "aten.cross_entropy_loss 6.3% (project/train.py:41)" in text and text.endswith(
        "loss together with the model"
    )
    assert "eager-operators" not in kinds(step_runs.distributed()), "1% is not worth it"
    assert "eager-optimizer" not in kinds(step_runs.decode())
    assert run.program is not None
    parts = tuple(replace(part, is_fused=part.kind == OPTIMIZER) for part in run.program.parts)
    fused = replace(run, program=replace(run.program, parts=parts))
    assert "eager-optimizer" not in kinds(fused), "it moves no more bytes than its compiled step would"


def test_operators_that_are_differentiated_twice_are_not_to_be_compiled() -> None:
    """As in a physics-informed network: its function calls ``torch.autograd.grad(…, create_graph=True)``."""
    inner, other = step_runs.line(18), step_runs.line(30)
    again = [
        Part(EAGER, "AddmmBackward0", 6, 0.5e-3, 0, source=inner),
        Part(EAGER, "TanhBackwardBackward0", 2, 0.5e-3, 0, source=inner),
    ]
    found = the(with_parts(again, step_s=4e-3), "eager-operators")
    assert found.level == NOTE and "compile the" not in found.text
    assert found.text.startswith(
        "eager operators whose gradient is differentiated again take 1.00 ms (25.0%) of a step (TanhBackwardBackward0 "
        "12.5% (project/train.py:18))"
    )
    custom = Part(EAGER, "FusedScaleBackwardBackward", 2, 1e-3, 0, source=other)
    assert the(with_parts([custom], step_s=4e-3), "eager-operators").level == ADVICE, "a function of the program's own"
    loss = Part(EAGER, "aten::huber_loss", 1, 1e-3, 0, source=other)
    advice = the(with_parts([*again, loss], step_s=4e-3), "eager-operators")
    assert advice.level == ADVICE and advice.text.startswith("eager operators take 1.00 ms (25.0%)")
    assert "TanhBackward" not in advice.text and "AddmmBackward" not in advice.text
    menu = make_menu(StepFacts(with_parts([*again, loss], step_s=4e-3)))
    tried = [row.slug for row in menu if row.group == "functions"]
    assert tried == ["compile-loss-huber_loss"], "the function of both lines is not compiled"


def test_advice_about_eager_parts_can_be_followed() -> None:
    def optimizer(*names: str, defined_in: str = "torch.optim.x") -> str:
        parts = [Part(OPTIMIZER, name, 1, 1e-3, 0, defined_in=defined_in) for name in names]
        return the(with_parts(parts, step_s=4e-3), "eager-optimizer").text

    for other in ("", "bitsandbytes.optim.adamw"):
        assert optimizer("AdamW", defined_in=other).endswith("compile its step (torch.compile(optimizer.step))")
    assert optimizer("SGD").endswith("compile its step (torch.compile(optimizer.step)), or pass fused=True")
    assert not optimizer("Adagrad").endswith("or pass fused=True")
    adagrad = Part(OPTIMIZER, "Adagrad", 1, 1e-3, 0, defined_in="torch.optim.adagrad")
    (rank,) = step_runs.program([adagrad], step_s=4e-3).ranks
    on_a_cpu = with_parts([adagrad], step_s=4e-3, ranks=(replace(rank, device="cpu"),))
    assert the(on_a_cpu, "eager-optimizer").text.endswith("or pass fused=True")
    assert optimizer("RMSprop").endswith("compile its step (torch.compile(optimizer.step))"), "it has no fused form"
    assert optimizer("SGD", "RMSprop").endswith("compile their step (torch.compile(optimizer.step))")
    data, recurrent = Part(EAGER, "aten::randn", 1, 2e-3, 0), Part(EAGER, "aten::lstm", 1, 1e-3, 0)
    assert "eager-operators" not in kinds(with_parts([data, recurrent], step_s=4e-3))
    line = replace(step_runs.line(7), code="loss = step(torch.zeros(8), model)")
    zeros = Part(EAGER, "aten::zeros", 1, 1e-3, 0, source=line)
    text = the(with_parts([data, zeros], step_s=4e-3), "eager-operators").text
    assert text.startswith("eager operators take 1.00 ms (25.0%) of a step") and text.endswith(
        "function that calls them"
    )


def test_waiting_has_its_line() -> None:
    assert "around synchronisations at project/train.py:47:" in the(step_runs.transformer(), "synchronisations").text
    two = [Part(IDLE, SYNCHRONISING, 1, 1e-3, 0, source=step_runs.line(n)) for n in (3, 5)]
    text = the(with_parts(two), "synchronisations").text
    assert "project/train.py:3 1.00 ms (10.0%) and project/train.py:5 1.00 ms (10.0%)" in text
    assert "1.10 ms (5.6%) of a step while data is loaded" in the(step_runs.host_paced(), "data-loading").text
    assert "the driver allocates" in the(with_parts([Part(IDLE, ALLOCATING, 1, 1e-3, 0)]), "allocations").text


@pytest.mark.parametrize(
    ("code", "reports"),
    [
        ("print(loss.item())", True),
        ("running_loss += loss.item()", True),
        ("writer.add_scalar('loss', loss.item(), step)", True),
        ("counts = mask.sum(0).tolist()", False),
        ("if gap.item() > limit:", False),
        ("tokens = x[mask]", False),
        ("", False),
    ],
)
def test_to_read_less_often_is_advised_only_for_what_a_line_reports(code: str, reports: bool) -> None:
    """In a mixture of experts the value decides which expert computes what."""
    line = replace(step_runs.line(47), code=code)
    text = the(with_parts([Part(IDLE, SYNCHRONISING, 1, 1e-3, 0, source=line)]), "synchronisations").text
    assert "1.00 ms (10.0%)" in text and ("less often" in text) is reports


def test_no_worker_is_advised_what_only_workers_have() -> None:
    assert "prefetch_factor" not in the(step_runs.host_paced(), "data-loading").text, "an error with num_workers=0"


@pytest.mark.parametrize(("cores", "advised"), [(8, True), (4, False)])
def test_workers_are_advised_only_if_the_step_leaves_them_cores(cores: int, advised: bool) -> None:
    run = step_runs.cpu()
    assert run.program is not None
    waits = Part(IDLE, DATA_LOADING, 1, 2e-3, 2e-3 / run.program.step_time_s)
    run = with_program(run, parts=(*run.program.parts, waits))
    environment = replace(run.environment, host=replace(run.environment.host, cpu_count=cores))
    modules = tuple(replace(module, threads=4) for module in run.modules)
    found = the(replace(run, environment=environment, modules=modules), "data-loading")
    assert ("more num_workers" in found.text) is advised and bool(found.changes) is advised
    assert ("uses all of them (4 threads)" in found.text) is not advised


def test_a_program_that_is_one_graph_is_not_told_to_compile_more_of_it() -> None:
    graph, launching = Part(GRAPH, "g", 1, 7.5e-3, 0), Part(IDLE, LAUNCHING, 9, 2e-3, 0)
    alone = the(with_parts([graph, launching]), "host-pace")
    assert "one graph" not in alone.text and alone.level == NOTE
    for more in (replace(graph, label="head", time_s=0.0), Part(EAGER, "aten::mul", 40, 0.0, 0)):
        found = the(with_parts([graph, launching, more]), "host-pace")
        assert "compile more of the step as one graph" in found.text and found.level == ADVICE


def test_replays_are_not_advised_for_graphs_whose_sizes_are_symbols() -> None:
    """Inductor records one graph for each size: a program with a new one in each step would only record."""
    run = step_runs.host_paced()
    symbols = tuple(replace(module, dynamic=True) for module in run.modules)
    assert "cuda-graphs-unused" not in kinds(replace(run, modules=symbols))


def test_gradients_that_accumulate_keep_replays_from_being_advised() -> None:
    run = step_runs.host_paced()
    calls = CallStretch(("forward", "backward"), ("forward", "backward"), 4.0, 4e-3, 3e-3)
    found = the(with_program(run, stretches=(calls,)), "cuda-graphs-unused")
    assert found.level == CAUTION and found.assumed == RemovedWork()
    assert "mode='reduce-overhead' fails with gradients that accumulate, here over 4 calls" in found.text
    once = the(with_program(run, stretches=(replace(calls, repetitions=1.0),)), "cuda-graphs-unused")
    several = replace(run.program.parts[2], calls=4) if run.program else None
    each = with_program(run, stretches=(calls,), parts=(*run.program.parts, several))  # type: ignore[union-attr]
    assert once.level == ADVICE == the(each, "cuda-graphs-unused").level


def test_an_input_that_is_new_each_time_is_not_to_be_marked_as_static() -> None:
    assert "mark_static" not in the(step_runs.decode(), "replay-inputs").text


def test_faster_kernels_are_not_ruled_out_where_nothing_says_that_they_win_nothing() -> None:
    """A diffusion loop whose attention takes 4.9 ms above its roof, and whose device is idle for 3 ms."""
    assert "Faster kernels" not in lead(step_runs.host_paced())


def test_gaps_between_launched_kernels_are_not_the_hosts() -> None:
    run = with_parts([Part(GRAPH, "g", 1, 8e-3, 0, 8e-3, 0, 1000), Part(IDLE, QUEUED, 90, 2e-3, 0)])
    assert "GPU-bound, busy 80%: g 80%, idle 20% (2.00 ms; between kernels)" in lead(run)
    assert the(run, "kernel-gaps").gain_s == pytest.approx(2e-3)
    assert "host-pace" not in kinds(run) and "kernel-gaps" not in kinds(step_runs.host_paced())


def test_graphs_that_are_entered_often_for_little_work_are_named() -> None:
    found = the(with_parts([*SMALL_GRAPHS]), "small-graphs")
    assert found.text.startswith("a step enters Block.forward 24 times, on average for 0.100 ms of the device's work,")
    assert found.gain_s == pytest.approx(0.7e-3) and found.modules == ("block-forward",)


@pytest.mark.parametrize(
    "parts",
    [
        [SMALL_GRAPHS[0]],
        [SMALL_GRAPHS[0], replace(SMALL_GRAPHS[1], label=LAUNCHING)],
        [SMALL_GRAPHS[0], replace(SMALL_GRAPHS[1], time_s=0.05e-3)],
        [replace(SMALL_GRAPHS[0], calls=4), SMALL_GRAPHS[1]],
        [replace(SMALL_GRAPHS[0], time_s=6e-3, device_time_s=6e-3), SMALL_GRAPHS[1]],
        [replace(SMALL_GRAPHS[0], device_time_s=None), SMALL_GRAPHS[1]],
        [*SMALL_GRAPHS, Part(GRAPH, "head", 30, 6e-3, 0, 12e-3)],
    ],
    ids=[
        *("no idle time", "no guards", "short guards", "few calls"),
        *("long calls", "unknown device time", "most calls are long"),
    ],
)
def test_graphs_are_not_blamed_without_the_evidence_of_many_calls_and_guards(parts: list[Part]) -> None:
    assert "small-graphs" not in kinds(with_parts(parts))


def test_a_backward_graph_is_not_blamed_for_guards() -> None:
    run = step_runs.transformer()
    (backward,) = (part for part in run.program.parts if part.label == "Block.backward") if run.program else ()
    often = replace(backward, calls=100, time_s=5e-3, device_time_s=5e-3)
    assert "small-graphs" in kinds(with_parts([often, SMALL_GRAPHS[1]]))
    modules = tuple(replace(one, role="backward") for one in run.modules if one.slug == backward.graph)
    assert "small-graphs" not in kinds(replace(with_parts([often, SMALL_GRAPHS[1]]), modules=modules))


def test_graphs_on_a_cpu_are_not_blamed_for_guards() -> None:
    program = with_parts([*SMALL_GRAPHS], device="cpu").program
    assert "small-graphs" not in kinds(replace(step_runs.cpu(), program=program))


def test_equal_graph_breaks_are_told_once_with_what_dynamo_hints_at() -> None:
    why = "Unsupported Tensor.item() call Hint: Set `torch._dynamo.config.capture_scalar_outputs = True`."
    capture = Capture(graph_breaks=(f"/x/train.py:3: {why}", f"/x/train.py:5: {why}"))
    run = replace(step_runs.host_paced(), capture=capture)
    found = the(run, "graph-breaks")
    assert found.text.startswith(
        "2 graph breaks: /x/train.py:3 and /x/train.py:5: Unsupported Tensor.item() call. Dynamo's hint: Set "
        "`torch._dynamo.config.capture_scalar_outputs = True`"
    )
    assert [change.setting for change in found.changes] == ["torch._dynamo.config.capture_scalar_outputs"]
    assert write_trial_command(run, found, "runs/a") == "inductor-bench optimize runs/a"
    own = replace(run, capture=Capture(graph_breaks=("/x/train.py:3: print",)))
    assert "hint" not in the(own, "graph-breaks").text and not the(own, "graph-breaks").changes


def test_graph_breaks_have_the_cost_of_python_between_graphs() -> None:
    capture = Capture(graph_breaks=("model.py:3: print",))
    text = the(replace(step_runs.host_paced(), capture=capture), "graph-breaks").text
    assert text.endswith("Python and guards, between graphs and elsewhere, cost 2.10 ms (10.6%) of a step")
    old = replace(build.mixnet(), capture=capture)
    assert the(old, "graph-breaks").text == "1 graph break: model.py:3: print"


def test_a_cold_first_step() -> None:
    found = the(step_runs.transformer(), "first-step")
    assert found.level == "note" and found.text.startswith("the first step took 14.2 s, as long as 473 settled steps")
    assert "first-step" not in kinds(with_program(step_runs.transformer(), first_step_time_s=None))
    assert "first-step" not in kinds(with_program(step_runs.transformer(), first_step_time_s=31e-3))


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ([10e-3, 15e-3] * 10, "in groups, 10 of about 10.0 ms and 10 of about 15.0 ms"),
        ([10e-3 + 0.1e-3 * i for i in range(20)], "become longer, from 10.2 ms to"),
        ([12e-3 - 0.1e-3 * i for i in range(20)], "become shorter"),
        ([10e-3 + 1e-3 * ((i * 7) % 5) for i in range(20)], "from 10.0 ms to 14.0 ms, the middle half"),
        ([10e-3 + 0.05e-3 * ((i * 7) % 5) for i in range(20)], ""),
        ([10e-3] * 19 + [30e-3], ""),
        ([10e-3, 30e-3, 20e-3], ""),
    ],
)
def test_steps_that_differ(times: list[float], words: str) -> None:
    run = with_program(step_runs.transformer(), step_times_s=tuple(times))
    assert ("unsteady-steps" in kinds(run)) is bool(words)
    assert not words or words in the(run, "unsteady-steps").text


def test_steps_of_a_few_kinds_are_told_apart() -> None:
    run = step_runs.transformer()
    first, second, *_ = run.modules
    labels = (f"{first.label} (tokens[1] = 8)", f"{second.label} (tokens[1] = 8)")
    modules = tuple(replace(one, label=label) for one, label in zip((first, second), labels, strict=True))
    run = replace(run, modules=(*modules, *run.modules[2:]))
    kinds_of_steps = (
        StepKind(12, 4e-3, (first.slug, second.slug)),
        StepKind(8, 6e-3, (first.slug,)),
        StepKind(5, 5e-3),
    )
    times = (4e-3,) * 12 + (6e-3,) * 8
    run = with_program(run, step_times_s=times, step_kinds=kinds_of_steps)
    assert the(run, "unsteady-steps").text == (
        "the timed steps are of 3 kinds: 12 of 4.00 ms (Block.forward and Block.backward (tokens[1] = 8)), 8 of 6.00 "
        "ms (Block.forward (tokens[1] = 8)) and 5 of 5.00 ms (no graph); the figures are means over this mix"
    )
    assert run.program is not None
    assert " a step on average (optimizer steps; 20 timed, of 3 kinds)" in describe_step(run.program)
    profiled = with_program(run, step_kinds=tuple(replace(kind, profiled=2) for kind in kinds_of_steps))
    assert profiled.program is not None
    assert " a step (optimizer steps; 20 timed, of 3 kinds, each weighted by its profiled steps)" in describe_step(
        profiled.program
    )
    assert the(profiled, "unsteady-steps").text.endswith(
        "; the figures are means over the profiled steps; the mean of all timed steps is 4.80 ms"
    )
    (rank,) = profiled.program.ranks
    for times in (0.5, 2):  # only as the longer one does the rank with weights set the pace
        weighed = replace(rank, rank=1, step_time_s=times * rank.step_time_s, step_weights=(1.0,))
        said = describe_step(replace(profiled.program, ranks=(rank, weighed)))
        assert ("each weighted by its profiled steps" in said) == (times < 1)
    alike = tuple(replace(kind, time_s=4e-3) for kind in kinds_of_steps)
    assert "kinds" not in the(with_program(run, step_kinds=alike), "unsteady-steps").text, "they take the same time"


def test_steps_of_another_level_than_the_profile_are_told_with_their_time() -> None:
    times = (47e-3,) * 15 + (57e-3,) * 35
    run = with_program(step_runs.transformer(), step_times_s=times, step_time_s=47e-3, level=(0, 15))
    assert the(run, "unsteady-steps").text == (
        "the step's time changes: 47.0 ms for 15 steps, 57.0 ms for the 35 after them; "
        "the figures describe the 15 steps"
    )
    assert run.program is not None
    assert describe_step(run.program) == "47.0 ms a step (optimizer steps; 15 of 50 timed, the others took 57.0 ms)"


@pytest.mark.parametrize(
    ("mhz", "limits", "words"),
    [
        (1980, (), ", at the same clock (1980 MHz)"),
        (1410, ("power cap",), ", when the clock was 1410 instead of 1980 MHz: power cap"),
        (1410, (), ", when the clock was 1410 instead of 1980 MHz;"),
    ],
)
def test_a_level_has_the_clock_for_a_cause_only_if_it_changed(mhz: int, limits: tuple[str, ...], words: str) -> None:
    times, clocks = (47e-3,) * 15 + (57e-3,) * 35, (ClockReading(3, 1980), ClockReading(30, mhz, limits))
    run = with_program(step_runs.transformer(), step_times_s=times, step_time_s=47e-3, level=(0, 15), clocks=clocks)
    assert words in the(run, "unsteady-steps").text


def test_many_other_steps_are_a_caution() -> None:
    for count, level in ((9, NOTE), (10, CAUTION)):
        run = with_program(step_runs.transformer(), step_times_s=(30e-3,) * 50, other_steps=(StepKind(count, 81e-3),))
        assert the(run, "other-steps").level == level


@pytest.mark.parametrize(
    ("other", "words", "in_first_line"),
    [
        (StepKind(30, 81e-3, ("forward",), 200, pooled=12), "had other sizes", "had other sizes"),
        (StepKind(30, 81e-3, ("forward",), 200), "had other sizes", "had other sizes"),
        (StepKind(30, 81e-3, ("evaluate",), 200, sizes=(8,)), "called other graphs", "ran other calls"),
        (StepKind(30, 81e-3, (), 200, pooled=12), "had other graphs or sizes", "were of other kinds"),
        (StepKind(30, 81e-3, ("forward",), 200, interrupted=True), "ran other calls", "ran other calls"),
    ],
)
def test_other_steps_differ_from_the_timed_ones_in_graphs_or_in_sizes(
    other: StepKind, words: str, in_first_line: str
) -> None:
    timed = StepKind(170, 30e-3, ("forward",), 200, sizes=(64,), profiled=4)
    run = with_program(step_runs.transformer(), step_kinds=(timed,), other_steps=(other,))
    assert the(run, "other-steps").text.startswith(f"30 steps {words} than the timed steps (")
    assert run.program is not None and f"; 30 of 200 steps {in_first_line} and took" in describe_step(run.program)


def test_other_steps_that_take_much_of_the_time_stand_in_the_first_line() -> None:
    """As in a reinforcement learning program, whose rollouts come before every 32nd update."""
    rollouts = StepKind(2, 34.8e-3, (), 98)
    run = with_program(step_runs.transformer(), step_times_s=(2e-3,) * 600, step_time_s=2e-3, other_steps=(rollouts,))
    assert run.program is not None
    assert describe_step(run.program) == (
        "2.00 ms a step (optimizer steps; 600 timed; 2 of 98 steps ran other calls and took 34.8 ms each, 27% of the "
        "time)"
    )
    assert the(run, "other-steps").level == CAUTION
    for few in (replace(rollouts, time_s=8e-3), replace(rollouts, among=None)):
        seldom = with_program(run, other_steps=(few,))
        assert seldom.program is not None and "other calls" not in describe_step(seldom.program)
        assert the(seldom, "other-steps").level == NOTE


def test_the_first_line_tells_the_loops_of_a_step() -> None:
    stretches = (
        CallStretch(("a",), ("forward",), 1, 2.7e-3, 2.6e-3),
        CallStretch(("b", "c"), ("forward-2", "forward-3"), 24, 0.684e-3, 0.6e-3),
    )
    run = with_program(step_runs.transformer(), step_time_s=19.3e-3, stretches=stretches)
    assert run.program is not None
    words = describe_step(run.program)
    assert words.endswith(" = forward 2.70 ms + 24 x (forward-2 + forward-3) 0.684 ms + 0.184 ms between")


def test_what_limits_the_figures() -> None:
    run = with_program(step_runs.transformer(), step_times_s=(30e-3, 31e-3), notes=("one rank died",))
    assert the(run, "few-steps").text == "only 2 steps could be timed: the figures are uncertain"
    assert the(run, "step-note").text == "one rank died"
    program = run.program
    assert program is not None
    loose = with_program(run, ranks=(replace(program.ranks[0], tied_share=0.97),))
    assert the(loose, "untied").text.startswith("for 3.0% of the compiled graphs' device time")
    assert "untied" not in kinds(run)


def test_collectives_and_uneven_ranks() -> None:
    run = step_runs.distributed()
    assert the(run, "collectives").text.startswith(
        "collectives take 1.40 ms (17.5%) of a step while nothing is computed (exposed), and 2.60 ms beside "
        "computation: start"
    )
    assert the(run, "uneven-ranks").text == (
        "rank 0 waits for rank 1: exposed collectives take 2.80 ms of the step of rank 0, and 1.40 ms of the step of "
        "rank 1, whose device works 6.10 ms instead of 4.70 ms: give rank 1 less work"
    )
    hidden = with_parts([Part(GRAPH, "g", 1, 9e-3, 0), Part(COLLECTIVE, "AllReduce", 1, 0.1e-3, 0, 4e-3)])
    assert the(hidden, "collectives").level == "note"
    assert not {"collectives", "uneven-ranks"} & kinds(step_runs.transformer())


def of_ranks(*ranks: list[Part]) -> Run:
    """A program of ranks with steps of 10 ms, the first of which is the ledger's."""
    found = [step_runs.program(parts, step_s=10e-3).ranks[0] for parts in ranks]
    numbered = tuple(replace(rank, rank=number, pid=number) for number, rank in enumerate(found))
    return with_program(with_parts(ranks[0], step_s=10e-3), ranks=numbered)


def test_a_rank_that_is_awaited_for_its_host_is_not_told_to_work_less() -> None:
    work, waits = Part(GRAPH, "g", 1, 2e-3, 0), Part(COLLECTIVE, "AllReduce", 1, 8e-3, 0, 9e-3)
    awaited = [work, replace(waits, time_s=0.5e-3), Part(IDLE, LAUNCHING, 9, 7.5e-3, 0)]
    run = of_ranks(awaited, [work, waits])
    assert the(run, "uneven-ranks").text == (
        "rank 1 waits for rank 0: exposed collectives take 8.00 ms of the step of rank 1, and 0.500 ms of the step of "
        "rank 0, whose device works 2.00 ms and is idle 7.50 ms: the host of rank 0 is late, not its device; because "
        "rank 1 waits, the time of the host of rank 1 is not known"
    )
    assert the(of_ranks(awaited, [work, waits], awaited), "uneven-ranks").text.startswith(
        "rank 1 waits for rank 0: exposed"
    )
    gaps = of_ranks([*awaited[:2], Part(IDLE, QUEUED, 9, 7.5e-3, 0)], [work, waits])
    assert the(gaps, "uneven-ranks").text.endswith("works 2.00 ms and is idle 7.50 ms"), "no reason is known"


def test_collectives_win_nothing_while_the_host_sets_the_pace_unless_a_simulation_says_so() -> None:
    parts = [Part(GRAPH, "g", 1, 5e-3, 0), Part(COLLECTIVE, "AllReduce", 1, 1e-3, 0, 1e-3)]
    idle = with_parts([*parts, Part(IDLE, LAUNCHING, 9, 4e-3, 0)], step_s=10e-3)
    found = the(idle, "collectives")
    assert found.level == "advice" and find_saving_s(found, idle) == 0.0
    assert find_saving_s(the(busy := with_parts(parts, step_s=6e-3), "collectives"), busy) == 1e-3
    predicted = (Prediction(found.key, found.kind, 0.4e-3, 0.1e-3, 1e-3),)
    assert (
        find_saving_s(the(simulated := with_program(idle, predictions=predicted), "collectives"), simulated) == 0.4e-3
    )


def test_what_gathers_gradients_is_not_told_to_be_compiled() -> None:
    loss = Part(EAGER, "aten::to", 1, 1e-3, 0, source=step_runs.line(7))
    gradients = Part(EAGER, "AccumulateGrad", 9, 2e-3, 0)
    others = Part(EAGER, "other eager operators", 9, 0.4e-3, 0)
    text = the(with_parts([gradients, loss, others], step_s=10e-3), "eager-operators").text
    assert text.startswith("eager operators take 3.40 ms (34.0%) of a step, most of all aten.to 10.0%")
    assert "other eager" not in text and text.endswith(
        "compile the function that calls them; 2.00 ms of this time gathers gradients or parameters "
        "(AccumulateGrad), and stays eager"
    )
    assert "eager-operators" not in kinds(with_parts([gradients, others], step_s=10e-3))
    line = replace(step_runs.line(7), code="loss = F.cross_entropy(model(x).float(), y)")
    ours = the(with_parts([replace(loss, source=line), others], step_s=10e-3), "eager-operators").text
    assert ours.endswith("compile the loss together with the model"), "a conversion on the loss's line is of the loss"
    theirs = replace(step_runs.line(7), file="/usr/lib/python3/site-packages/accelerate/accelerator.py")
    packaged = the(with_parts([replace(loss, source=theirs), others], step_s=10e-3), "eager-operators").text
    assert packaged.endswith(
        "which is in an installed package: inductor-bench optimize tries this without changing the package"
    )


def test_kernels_far_off_by_themselves_have_what_is_known_to_differ() -> None:
    found = the(step_runs.decode(), "alone-less")
    assert found.level == "caution" and len(found.kernels) == 5
    assert "take over 25% less time when their graphs run alone than in the program" in found.text
    run = step_runs.host_paced()
    slow = tuple(step_runs.in_step(module, 1, 0.5) for module in run.modules)
    assert "the cause was not measured" in the(step_runs.of_step(replace(run, modules=slow)), "alone-more").text
    small = change(run.modules[0].kernels[0], moved_bytes=1e6, step_calls=4, step_time_s=1.0)
    cached = replace(run, modules=(replace(run.modules[0], kernels=(small,)),))
    assert "the data of a call fits into L2 (" in the(cached, "alone-less").text
    symbols = replace(run, modules=(replace(cached.modules[0], dynamic=True),))
    assert "with the sizes of its first compilation" in the(symbols, "alone-less").text
    cpu = step_runs.cpu()
    shorter = (step_runs.in_step(cpu.modules[0], 2, 2.0), *cpu.modules[1:])
    assert "was not measured" in the(replace(cpu, modules=shorter), "alone-less").text
    load = MachineLoad(20, 2, 6.0, 0.2, 0.1, 0.9, 0.0, 40)
    busy = replace(cpu, modules=tuple(change(module, wall_load=load) for module in shorter))
    assert the(busy, "alone-less").text.endswith(": how long each kernel waited for a core was not measured")
    assert cpu.program is not None
    ranks = tuple(replace(rank, load=replace(load, others_s=0.2)) for rank in cpu.program.ranks)
    stepped = replace(cpu, modules=shorter, program=replace(cpu.program, ranks=ranks))
    assert the(stepped, "alone-less").text.endswith(": how long each kernel waited for a core was not measured")
    mixed = (shorter[0], step_runs.in_step(cpu.modules[1], 1, 0.5), *shorter[2:])
    busy = replace(cpu, modules=tuple(change(module, wall_load=load) for module in mixed))
    found = the(busy, "alone-less")
    assert "take over 25% less or more time when their graphs run alone than in the program" in found.text
    assert "alone-more" not in kinds(busy)
    assert {place.slug for place in found.kernels} == {module.slug for module in mixed[:2]}


def test_a_program_without_a_profile_says_what_its_graphs_say() -> None:
    run = build.mixnet()
    timed = replace(run, program=Program(62e-3, (62e-3,) * 3, MARKS))
    old, new = write_first_line(run), write_first_line(timed)
    few = {found.kind for found in list_findings(timed)} - {found.kind for found in list_findings(run)}
    assert old is not None and new is not None and few == {"few-steps"}
    lead = "62.0 ms a step (marked by the program; 3 timed), not profiled; its graphs by themselves: "
    assert new == replace(old, text=lead + old.text)
    told = write_first_line(with_program(timed, unprofiled="it takes 7 steps; run 4 more"))
    assert told is not None and "not profiled (it takes 7 steps; run 4 more); its graphs by themselves: " in told.text
    stepless = write_first_line(replace(run, capture=replace(run.capture, no_steps="no step was recognised")))
    lead = "no step was timed (no step was recognised); its graphs by themselves: "
    assert stepless == replace(old, text=lead + old.text)


def test_rules_about_the_step_are_silent_without_one() -> None:
    step_kinds = {kind for rule in STEP_RULES for kind in rule.kinds}
    for name in ("mixnet", "densenet", "cpu", "empty", "hostile"):
        assert not step_kinds & kinds(getattr(build, name)())
    spoken = set().union(*(kinds(getattr(step_runs, name)()) for name in ("transformer", "decode", "host_paced")))
    assert {"eager-optimizer", "first-step", "cuda-graphs-in-use"} <= spoken & step_kinds


def test_python_alone_is_what_an_unlabelled_rest_is() -> None:
    assert f"; {PYTHON})" in lead(with_parts([Part(GRAPH, "g", 1, 9.5e-3, 0)]))


PHASES = (CompilePhase("compilers of kernels", 8.5), CompilePhase("Dynamo", 5.0), CompilePhase("AOTAutograd", 0.5))


def compiled(run: Run, eager_s: float | None = None) -> Run:
    return replace(with_program(run, eager_step_time_s=eager_s), capture=Capture(compile_phases=PHASES))


def test_compilation_is_reported_by_phase_with_the_next_command() -> None:
    run = compiled(step_runs.transformer())
    text = the(run, "compile-time").text
    assert the(run, "compile-time").level == NOTE
    assert text.startswith(
        "compilation with empty caches took 14.0 s: compilers of kernels 61% and Dynamo 36%. --eager"
    )
    asked = replace(compiled(run), request=replace(run.request, eager=True))
    for other in (asked, compiled(step_runs.decode())):  # steps of a pattern cannot be timed without compilation
        assert "--eager" not in the(other, "compile-time").text
    assert "compile-time" not in kinds(replace(run, capture=Capture(compile_phases=PHASES[2:])))
    assert "against-eager" not in kinds(run)


def test_a_compilation_of_an_earlier_run_is_said_to_be_one() -> None:
    run = compiled(step_runs.transformer())
    whole, part = "compiled earlier, 2026-11-25: ", "compiled earlier (1 of 4 modules, 2026-11-25): "
    for earlier, begins in ((4, whole), (1, part)):
        capture = Capture(
            compile_phases=PHASES, structured=4, compiled_earlier=earlier, compiled_at="2026-11-25T10:00:00+00:00"
        )
        text = the(replace(run, capture=capture), "compile-time").text
        assert text.startswith(f"{begins}compilation with empty caches took 14.0 s: compilers of kernels 61%")


def test_compilation_pays_off_after_some_steps_or_never() -> None:
    run = step_runs.transformer()
    faster = the(compiled(run, 0.054), "against-eager")
    assert faster.level == FINE and faster.text == (
        "in one run of each a compiled step is 1.80x faster than an eager one (30.0 ms, eager 54.0 ms): the 14.0 s of "
        "compilation, with empty caches, pays off after about 590 steps"
    )
    assert lead(compiled(run, 0.054)).startswith(
        "30.0 ms a step (optimizer steps; 20 timed; 1.80x faster than eager): "
    )
    slower = the(compiled(run, 0.02), "against-eager")
    assert slower.level == CAUTION and "takes longer than an eager one (30.0 ms, eager 20.0 ms)" in slower.text
    assert slower.text.endswith(
        "at these times the 14.0 s of compilation, with empty caches, does not pay off"
    ) and "eager: 20.0 ms)" in lead(compiled(run, 0.02))
    equal = the(compiled(run, 0.0303), "against-eager")
    assert "show no difference (30.0 ms, eager 30.3 ms; steps vary by " in equal.text and equal.level == CAUTION
    varying = with_program(run, step_times_s=(0.02, 0.03, 0.04) * 6)
    assert "show no difference" in the(compiled(varying, 0.04), "against-eager").text, "within the spread of the steps"
    assert "no measurable difference to eager" in lead(compiled(run, 0.0303))
    kinds_of_steps = tuple(StepKind(10, time_s, share=0.5, profiled=1) for time_s in (0.02, 0.03))
    mixed = with_program(run, step_times_s=(0.02, 0.03) * 10, step_time_s=0.03, step_kinds=kinds_of_steps)
    assert (
        "is 2.00x faster than an eager one (25.0 ms, eager 50.0 ms)" in the(compiled(mixed, 0.05), "against-eager").text
    )
    known = the(with_program(run, eager_step_time_s=0.054), "against-eager").text
    assert known.endswith("(30.0 ms, eager 54.0 ms)"), "how long compilation took is unknown"


@pytest.mark.parametrize(
    ("samples", "other_s", "said"),
    [
        (2, 10e-3, ""),
        (3, 9e-3, "; from 3 of 17 samples: 0.702 ms to 4.65 ms)"),
        (1, 3e-3, "; from 1 of 17 samples)"),  # it came late, as during a call that keeps the interpreter
        (5, 4.8e-3, "; from 5 of 17 samples: 0.903 ms to 3.61 ms)"),
        (5, 9e-3, "; from 5 of 17 samples)"),  # another one came late
        (12, 0.4e-3, "; from 12 of 17 samples: 1.33 ms to 2.40 ms)"),  # all idle time
        (17, 0.0, "; from 17 of 17 samples: 1.63 ms to 2.00 ms)"),
        (0, 0.0, ")"),  # of an older record
    ],
)
def test_a_finding_from_samples_says_how_certain_they_are(samples: int, other_s: float, said: str) -> None:
    source = SourceLine("serve.py", 77, "handle", "")
    stretches = HostStretch(PYTHON, "handle", 2e-3, samples, source), HostStretch(LAUNCHING, "", other_s, 17 - samples)
    host = HostWork(stretches, 17, 200, 700, 0.0, 0.0, 0.0, 0)
    part = Part(IDLE, PYTHON, 0, 2e-3, 0, source=source, function="handle", samples=samples)
    run = with_program(step_runs.cpu(), parts=(Part(GRAPH, "g", 1, 8e-3, 0), part), step_time_s=20e-3, host=host)
    found = [one.text for one in list_findings(run) if one.kind == "host-python"]
    begin = f"no operator runs for 2.00 ms (10.0%{said} of a step while the host "
    assert [text.startswith(begin) for text in found] == [True] * bool(said), found


WAIT = HostStretch(SYNCHRONISING, "", 2e-3, 0, SourceLine("/home/user/project/train.py", 41, "train", "print(loss)"))
"""A wait during which the device works, so that none of its idle time is in it."""


def test_a_wait_that_makes_the_host_late_is_reported_if_the_step_is_shorter_without_it() -> None:
    parts = [Part(GRAPH, "g", 1, 8e-3, 0), Part(IDLE, LAUNCHING, 9, 2e-3, 0)]
    unknown = the(with_parts(parts, waits=(WAIT,)), "synchronisations")
    assert unknown.level == NOTE, "nothing was simulated"
    for seconds, level in ((1.5e-3, ADVICE), (0.01e-3, None)):
        predictions = (Prediction(unknown.key, unknown.kind, seconds, 0.1e-3),)
        found = [
            one
            for one in list_findings(with_parts(parts, waits=(WAIT,), predictions=predictions))
            if one.kind == "synchronisations"
        ]
        assert [one.level for one in found] == ([level] if level else [])
    assert "waits for the device at project/train.py:41, and launches the next work too late" in unknown.text
    assert unknown.text.endswith("Read what is only reported less often, or after the next step is launched")


def test_a_reduction_in_each_of_several_backward_passes_may_be_one() -> None:
    modules = [replace(module, role=module.slug) for module in step_runs.host_paced().modules]
    passes, reduced = Part(GRAPH, "backward", 4, 4e-3, 0, graph="backward"), Part(COLLECTIVE, "AllReduce", 8, 4e-3, 0)

    def text(*parts: Part) -> str:
        run = replace(with_parts([*parts, Part(GRAPH, "g", 1, 2e-3, 0)]), modules=tuple(modules))
        return the(run, "collectives").text

    assert "8 reductions follow 4 backward passes of a step; DistributedDataParallel.no_sync()" in text(passes, reduced)
    assert "no_sync" not in text(replace(passes, calls=1), reduced)
    assert "bucket_cap_mb" in text(replace(passes, calls=1), replace(reduced, calls=1))
    hidden = replace(reduced, calls=1, device_time_s=20e-3)
    assert "bucket_cap_mb" not in text(replace(passes, calls=1), hidden)


def test_the_checks_of_anomaly_detection_are_no_eager_operators_to_compile() -> None:
    graph = Part(GRAPH, "g", 1, 8e-3, 0)
    run = with_parts([graph, Part(EAGER, "aten::_is_any_true", 24, 1e-3, 0), Part(EAGER, "aten::isnan", 24, 1e-3, 0)])
    assert the(run, "anomaly-mode").gain_s == pytest.approx(2e-3) and "eager-operators" not in kinds(run)
    own = with_parts([graph, Part(EAGER, "aten::isnan", 24, 2e-3, 0)])
    assert "anomaly-mode" not in kinds(own), "a program may look for NaN by itself"


def test_copies_of_eager_operators_have_their_lines() -> None:
    copy = Part(COPY, "device to device", 24, 1e-3, 0, source=step_runs.line(45))
    found = the(with_parts([Part(GRAPH, "g", 1, 9e-3, 0), copy]), "copies")
    assert found.gain_s == pytest.approx(1e-3) and "made by project/train.py:45" in found.text


def test_a_program_that_recompiles_all_the_time_is_told_that_first() -> None:
    text = "/app/train.py:3 f: tensor 'x' size mismatch at index 0. expected 8, actual 16"
    run = replace(step_runs.host_paced(), capture=Capture(recompiles=(text,) * 5))
    assert run.program is not None
    run = replace(run, program=replace(run.program, parts=()))
    found = write_first_line(run)
    assert found is not None and found.kind == "recompiles" and "not profiled; 5 recompilations" in found.text
    assert "launch-bound" not in kinds(run)


def test_a_line_that_only_reports_goes_with_all_that_it_does() -> None:
    line = SourceLine("/home/user/project/train.py", 41, "train", "print(loss)")
    parts = [
        Part(GRAPH, "g", 1, 8e-3, 0),
        Part(EAGER, "aten::isfinite", 2, 0.1e-3, 0, source=line),
        Part(IDLE, DISPATCHING, 2, 0.5e-3, 0, source=line),
        Part(IDLE, SYNCHRONISING, 2, 0.4e-3, 0, source=line),
    ]
    assumed = the(with_parts(parts), "synchronisations").assumed
    assert [part.label for part in assumed.parts] == ["aten::isfinite"]
    assert [part.label for part in assumed.idle] == [SYNCHRONISING, DISPATCHING]
    decides = [replace(part, source=replace(line, code="if loss.item() > 3:")) for part in parts[1:]]
    assert not the(with_parts([parts[0], *decides]), "synchronisations").assumed.parts

"""Programs recorded on H200s: a decode loop and a training that replay CUDA graphs, and a training with graph breaks.

``graphs`` is ``scripts/programs/graphs.py`` with ``BACKENDS=ATEN``: all profiled steps, without the arguments that
nothing reads and with process and thread ids of their own, and one run of each module by itself.
"""

from __future__ import annotations

import gzip
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import run_builder as build
from recorded_ranks import DDP, FSDP, Training, count_by_hand, rank_of

from inductor_bench.analysis.call_work import count_eager_bytes, find_operators
from inductor_bench.analysis.findings.rule_table import list_findings
from inductor_bench.analysis.host_time import LineKinds
from inductor_bench.analysis.kernel_aggregation import compute_tied_share, is_tied
from inductor_bench.analysis.layer_times import DividedSteps, GraphLayers, compute_layer_share, sum_times_by_layer
from inductor_bench.analysis.ledger import GraphName, Ledger, Steps, make_ledger
from inductor_bench.analysis.program_step import find_waits
from inductor_bench.analysis.step_costs import compute_exposed_s, compute_work_s, find_idle_s, find_pace_setter
from inductor_bench.records.code import LayerMap, LayerShare, ModuleSource
from inductor_bench.records.evidence import BOUNDARY, CallPlace, ObservedSteps
from inductor_bench.records.run import COLLECTIVE, COPY, GRAPH, KINDS, OPTIMIZER, OPTIMIZER_STEPS, Part, Program
from inductor_bench.report.document import Document
from inductor_bench.report.run.step_document import rank_section
from inductor_bench.report.terminal import render_text
from inductor_bench.source.module_reader import read_module
from inductor_bench.source.user_program import UserFiles
from inductor_bench.store import codec
from inductor_bench.trace.attribution import attribute_activities
from inductor_bench.trace.iterations import split_iterations
from inductor_bench.trace.program_trace import read_program_trace
from inductor_bench.trace.program_works import KnownGraph, ProgramWorks, find_kernel_spans, find_works
from inductor_bench.trace.rows import read_trace
from inductor_bench.trace.stored_traces import pair_calls, read_user_calls
from tests.support.h200 import FOLDER
from tests.support.program_traces import MARKERS

PROGRAMS = FOLDER / "programs"


def observed(name: str) -> ObservedSteps:
    return codec.decode(ObservedSteps, json.loads(gzip.decompress((PROGRAMS / name / "steps.json.gz").read_bytes())))


def graph_of(file: Path) -> KnownGraph:
    """A graph, with the launches of its own run if these were kept."""
    source = read_module(gzip.decompress(file.read_bytes()).decode())
    recorded = file.with_name(f"{file.name.split('.')[0]}.trace.json.gz")
    if not recorded.is_file():
        return KnownGraph(source)
    trace = read_trace(recorded)
    return KnownGraph(source, attribute_activities(trace, split_iterations(trace, expected=1), source))


def works_of(name: str) -> ProgramWorks:
    graphs = {int(file.name.split(".")[0]): graph_of(file) for file in (PROGRAMS / name).glob("[0-9].py.gz")}
    program = read_program_trace(PROGRAMS / name / "steps.trace.json.gz", MARKERS)
    found = find_works(program, MARKERS, graphs, on_host=False)
    assert found is not None
    return found


def places_of(name: str) -> dict[int, CallPlace]:
    """The places of the outermost operators; none without a step with stacks."""
    program = read_program_trace(PROGRAMS / name / "steps.trace.json.gz", MARKERS)
    stacks, files = PROGRAMS / name / "lines.trace.json.gz", UserFiles((PROGRAMS / name,))
    lines = read_program_trace(stacks, MARKERS, frames=True) if stacks.is_file() else None
    calls = pair_calls(program, works_of(name).tops, read_user_calls(lines, MARKERS), MARKERS) if lines else {}
    return {op: CallPlace(call.module, files.find(call)) for op, call in calls.items()}


def ledger_of(name: str) -> Ledger:
    found, seen = works_of(name), observed(name)
    steps = Steps(
        step_time_s=seen.window_s / len(seen.step_times_s),
        window=found.window,
        works=found.works,
        calls=found.calls,
        timeline=found.timeline,
        names={number: GraphName(f"graph-{number}", f"graph-{number}") for number in range(8)},
        places=places_of(name),
        optimizer_calls=found.optimizer_calls,
    )
    return make_ledger(steps)


def part_of(ledger: Ledger, kind: str, label: str) -> Part:
    (part,) = (part for part in ledger.parts if (part.kind, part.label) == (kind, label))
    return part


def busy_by_hand(name: str) -> float:
    """Seconds of a profiled step in which the device works: a sweep over the raw events, with none of the tool's code.

    As in the ledger, the first profiled step does not count, and a step ends with the work that was launched in it.
    """
    text = gzip.decompress((PROGRAMS / name / "steps.trace.json.gz").read_bytes())
    events = json.loads(text)["traceEvents"]
    called = {e["args"].get("correlation"): e["ts"] for e in events if e["cat"] == "cuda_runtime"}
    device = [event for event in events if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
    marks = sorted(event["ts"] for event in events if event["name"].startswith(BOUNDARY))
    start, end = (
        max([mark, *(e["ts"] + e["dur"] for e in device if called.get(e["args"]["correlation"], e["ts"]) < mark)])
        for mark in (marks[1], marks[-1])
    )
    busy, until = 0.0, start
    for event in sorted(device, key=lambda event: event["ts"]):
        stop = min(end, event["ts"] + event["dur"])
        busy += max(0.0, stop - max(until, event["ts"]))
        until = max(until, stop)
    return busy / (len(marks) - 2) / 1e6


@pytest.mark.parametrize("name", ["decode", "breaks", "graphs"])
def test_parts_add_up_and_every_event_has_one_owner(name: str) -> None:
    ledger, found = ledger_of(name), works_of(name)
    assert math.fsum(part.share for part in ledger.parts) == pytest.approx(1, abs=1e-9)
    assert [work.event for work in found.works] == list(range(len(found.works)))
    assert compute_tied_share(found) == 1


def test_each_replay_is_the_module_launch_by_launch() -> None:
    found = works_of("decode")
    graph = graph_of(PROGRAMS / "decode" / "0.py.gz")
    replays = [work for work in found.works if work.kind == "graph"]
    assert {work.replayed for work in replays} == {True} and len(replays) == 4 * len(graph.launches)
    for start in range(0, len(replays), len(graph.launches)):
        for work, launch in zip(replays[start:], graph.launches, strict=False):
            assert work.activity is not None and is_tied(work)
            assert (work.activity.call, work.activity.kernel) == (launch.call, launch.kernel)
            assert work.activity.name == launch.name


def test_the_sums_after_a_reduction_of_rows_and_columns_are_calls_of_the_wrapper() -> None:
    found = works_of("norms")
    assert compute_tied_share(found) == 1
    sums = [
        (work.call, work.activity.call.target, work.activity.call.index)
        for work in found.works
        if work.activity is not None and work.activity.operator == "aten::sum" and work.activity.call is not None
    ]
    backwards = [number for number, call in enumerate(found.calls) if call.graph == 1]
    assert len(backwards) > 1 and sums == [
        (number, call.target, call.index)
        for number in backwards
        for call in graph_of(PROGRAMS / "norms" / "1.py.gz").source.calls
        if call.target in ("workspace_0.sum", "workspace_1.sum")
    ], "over the rows of two layer norms, for weight and bias"
    assert len(sums) == 4 * len(backwards)


NOTED = re.compile(r"^( +)(?:(\w+)\.run\(.*\bworkspace_\d|(\w+) = workspace_\d+\[)", re.MULTILINE)


def with_handle(line: re.Match[str]) -> str:
    return line.expand(rf"\1# [Provenance debug handles] \2\3:{line.start()}\n\g<0>")


def layers_of(source: ModuleSource, direction: str) -> GraphLayers:
    """The layers of a graph if torch notes the nodes of all handles: one module."""
    share = LayerShare("Net", direction, -1, 1.0)
    return GraphLayers(LayerMap(kernels={call.handle: (share,) for call in source.calls if call.handle}), direction)


@pytest.mark.parametrize(("noted", "share"), [(False, 0.5595), (True, 1.0)])
def test_all_time_of_layer_norms_has_a_module_if_reductions_of_rows_and_columns_have_handles(
    noted: bool, share: float
) -> None:
    """torch gives them none; what the observed process adds is in ``tests/worker/test_noted_nodes.py``."""
    graphs = {}
    for number in (0, 1):
        text = gzip.decompress((PROGRAMS / "norms" / f"{number}.py.gz").read_bytes()).decode()
        graphs[number] = KnownGraph(read_module(NOTED.sub(with_handle, text) if noted else text))
    found = find_works(
        read_program_trace(PROGRAMS / "norms" / "steps.trace.json.gz", MARKERS), MARKERS, graphs, on_host=False
    )
    assert found is not None
    layers = {number: layers_of(graph.source, ("forward", "backward")[number]) for number, graph in graphs.items()}
    steps = Steps(1.0, found.window, found.works, found.calls, found.timeline, {})
    rows = sum_times_by_layer(DividedSteps(steps, found.activities, layers)).layers
    assert compute_layer_share([row for row in rows if row.direction == "forward"]) == 1
    assert compute_layer_share([row for row in rows if row.direction == "backward"]) == pytest.approx(share, abs=1e-4)


def test_a_decode_step_is_one_replay_and_its_inputs() -> None:
    ledger = ledger_of("decode")
    graph = part_of(ledger, "graph", "graph-0")
    assert (graph.calls, graph.replays) == (1, 1) and graph.share > 0.95
    inputs = part_of(ledger, "copy", "inputs of a CUDA graph")
    assert inputs.calls == 1 and inputs.launches == 1
    assert not [part for part in ledger.parts if part.label == "synchronising" and part.share > 0.001]


def test_forward_and_backward_of_a_training_step_are_replays_tied_to_kernels_and_calls() -> None:
    ledger, found = ledger_of("graphs"), works_of("graphs")
    for number in (0, 1):
        graph = part_of(ledger, "graph", f"graph-{number}")
        launches = graph_of(PROGRAMS / "graphs" / f"{number}.py.gz").launches
        assert (graph.calls, graph.replays, graph.launches) == (1, 1, len(launches)), "nothing but one replay"
        works = [work for work in found.works if work.kind == "graph" and work.graph == number]
        whole = sum(work.duration_s for work in works)
        assert all(work.replayed for work in works)
        assert sum(work.duration_s for work in works if is_tied(work)) >= 0.995 * whole
        placed = [
            (work.activity, work.duration_s) for work in works if work.activity and work.activity.call is not None
        ]
        assert sum(duration_s for _, duration_s in placed) >= 0.995 * whole
        kernels = [(one.kernel.name, one.name) for one, _ in placed if one.kernel]
        assert kernels and all(kernel == name for kernel, name in kernels), "a generated kernel is that of its name"


def test_the_ledger_of_replays_is_the_one_counted_by_hand() -> None:
    ledger, seen = ledger_of("graphs"), observed("graphs")
    step_s = seen.window_s / len(seen.step_times_s)
    assert math.fsum(part.time_s for part in ledger.parts) == pytest.approx(step_s, rel=0.01)
    assert ledger.busy_time_s == pytest.approx(busy_by_hand("graphs"), rel=0.005)
    assert 0.97 < ledger.busy_time_s / step_s < 0.98


def test_inputs_of_the_replays_are_copied_and_a_fused_optimizer_is_a_part() -> None:
    ledger = ledger_of("graphs")
    inputs = part_of(ledger, "copy", "inputs of a CUDA graph")
    assert (inputs.calls, inputs.launches) == (2, 2), "the tokens of the forward and the gradient of the loss"
    optimizer = part_of(ledger, "optimizer", "AdamW")
    assert (optimizer.calls, optimizer.launches) == (1, 4), "three fused kernels and the counters of steps"
    (eager,) = (part for part in ledger.parts if part.kind == "eager")
    assert eager.launches == 1, "the gradient of the loss: one fill"


def test_copies_reads_and_data_loading_have_their_lines() -> None:
    ledger = ledger_of("breaks")
    text = (PROGRAMS / "breaks" / "breaks.py").read_text().splitlines()
    lines = {part.source.line for part in ledger.parts if part.label == "synchronising" and part.source}
    assert any(".item()" in text[line - 1] for line in lines)
    waits = list(find_waits(works_of("breaks"), places_of("breaks"), None, LineKinds({}), {}))
    assert any(one.source is not None and ".item()" in text[one.source.line - 1] for one in waits)
    assert all(one.time_s > 0 and not one.function for one in waits)
    (copy,) = (part for part in ledger.parts if part.label == "host to device")
    assert copy.source is not None and ".to(" in text[copy.source.line - 1]
    assert part_of(ledger, "idle", "data loading").share > 0.3
    assert part_of(ledger, "optimizer", "Adam").calls == 1
    assert [part.calls for part in ledger.parts if part.kind == "graph"] == [1] * 4


def test_eager_operators_stand_between_the_graph_calls_of_a_step() -> None:
    program = read_program_trace(PROGRAMS / "breaks" / "steps.trace.json.gz", MARKERS)
    works = works_of("breaks")
    found = find_operators(program, works.works, works.calls, *works.window.marks[-2:])
    assert found.graphs == (4, 5, 6, 7), "two forwards and two backwards"
    batch, squares = 4 * 256 * 2048, 2 * 4 * 256 * 2048
    between = count_eager_bytes(found, (), 9e12)
    assert between == {0: batch + 4, 1: 1, 2: squares + 12}, "the copy of a batch, a condition, the loss"
    assert count_eager_bytes(found, [(1, batch), (2, batch)], 9e12) == {0: 4, 1: 1, 2: 12}


@pytest.mark.parametrize("name", ["decode", "breaks"])
def test_the_kernels_of_a_timeline_are_those_of_graphs_in_its_step(name: str) -> None:
    found = works_of(name)
    start_s, end_s = found.window.bounds[-2:]
    kernels = list(find_kernel_spans(found, {number: f"graph-{number}" for number in range(8)}, (), on_host=False))
    known = [work for work in found.works if work.activity is not None and start_s <= work.start_s < end_s]
    assert known and sum(len(one.spans_s) for one in kernels) == len(known)
    spans = [span for one in kernels for span in one.spans_s]
    assert all(0 <= begin < end for begin, end in spans)
    assert math.fsum(end - begin for begin, end in spans) == pytest.approx(
        math.fsum(work.duration_s for work in known), rel=1e-3
    )
    assert {one.lane for one in kernels} == {work.lane for work in known}
    assert {one.name for one in kernels} == {work.activity.name for work in known if work.activity}


# DDP on two H100s and FSDP2 on two H200s, as recorded: owners, parts, ties, collectives, the rank that is awaited.


TRAININGS = [pytest.param(DDP, id="ddp"), pytest.param(FSDP, id="fsdp")]
RANKS = (0, 1)


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("rank", RANKS)
def test_every_device_event_of_a_rank_has_a_part_and_the_parts_are_the_step(training: Training, rank: int) -> None:
    found = rank_of(training, rank)
    assert [work.event for work in found.works.works] == list(range(len(found.works.works)))
    counted = [work for work in found.works.works if found.works.window.contains_host_time(work.launch_start_s)]
    assert (
        counted
        and {work.kind for work in counted} <= set(KINDS)
        and all(w.label or w.graph is not None for w in counted)
    )
    parts = found.steps.parts
    assert sum(part.launches for part in parts) * found.steps.profiled_steps == pytest.approx(len(counted))
    assert math.fsum(part.share for part in parts) == pytest.approx(1, abs=1e-9)
    step_s = compute_work_s(found.steps) + compute_exposed_s(found.steps) + find_idle_s(found.steps)
    assert step_s == pytest.approx(found.steps.step_time_s), "work, exposed and idle add up to the step"


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("rank", RANKS)
def test_the_graphs_of_a_rank_are_tied(training: Training, rank: int) -> None:
    found = rank_of(training, rank).steps
    assert found.tied_share is not None and found.tied_share >= 0.995
    graphs = {part.label: part.calls for part in found.parts if part.kind == GRAPH}
    assert graphs == dict.fromkeys(training.graphs, 12), "each of 12 blocks calls each graph once"
    assert [(part.label, part.calls) for part in found.parts if part.kind == OPTIMIZER] == [("AdamW", 1)]


@pytest.mark.parametrize("training", TRAININGS)
def test_one_profiled_module_ties_the_kernels_of_all_ranks(training: Training) -> None:
    assert rank_of(training, 1, text=0).steps == rank_of(training, 1).steps


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("rank", RANKS)
def test_collectives_are_exposed_and_hidden_as_their_intervals_are(training: Training, rank: int) -> None:
    steps, seen = rank_of(training, rank).steps, count_by_hand(training, rank)
    collectives = [part for part in steps.parts if part.kind == COLLECTIVE]
    assert {part.label for part in collectives} == (
        {"AllReduce"} if training is DDP else {"AllGather", "ReduceScatter"}
    )
    assert sum(part.calls for part in collectives) == seen.collectives
    assert steps.profiled_step_time_s == pytest.approx(seen.profiled_s, rel=1e-6)
    hidden = sum(part.hidden_s for part in collectives)
    assert hidden == pytest.approx(seen.collectives_s - seen.exposed_s, rel=0.01, abs=20e-6)
    copies = sum(part.time_s for part in steps.parts if part.kind == COPY)
    assert compute_work_s(steps) - copies == pytest.approx(seen.work_s, rel=1e-3)
    cut_s = max(0.0, seen.busy_s - steps.step_time_s)
    assert compute_exposed_s(steps) == pytest.approx(seen.exposed_s - cut_s, rel=0.01), (
        "what the profiler adds to the wait is cut"
    )
    assert (steps.busy_time_s or 0) == pytest.approx(min(seen.busy_s, steps.step_time_s), rel=1e-6)


@pytest.mark.parametrize("training", TRAININGS)
def test_the_rank_that_the_other_waits_for_sets_the_pace(training: Training) -> None:
    first, second = (rank_of(training, rank).steps for rank in RANKS)
    assert first.step_time_s == pytest.approx(second.step_time_s, rel=0.01)
    assert find_pace_setter([first, second]) is first and find_pace_setter([second, first]) is first
    assert compute_exposed_s(first) < 0.1 * first.step_time_s and compute_exposed_s(second) > 0.5 * second.step_time_s
    assert compute_work_s(first) < compute_work_s(second) < 1.3 * compute_work_s(first), (
        "kernels beside a waiting collective take longer"
    )
    assert find_idle_s(first) > 0.5 * first.step_time_s and find_idle_s(second) == 0


@pytest.mark.parametrize("training", TRAININGS)
def test_the_report_names_the_rank_that_is_awaited_and_does_not_blame_its_device(training: Training) -> None:
    first, second = (rank_of(training, rank).steps for rank in RANKS)
    program = Program(first.step_time_s, first.step_times_s, OPTIMIZER_STEPS, parts=first.parts, ranks=(first, second))
    run = replace(build.run("training", [], peaks=build.H200), program=program)
    (uneven,) = (finding.text for finding in list_findings(run) if finding.kind == "uneven-ranks")
    assert uneven.startswith("rank 1 waits for rank 0: ") and "the host of rank 0 is late, not its device" in uneven
    copied = [finding.text for finding in list_findings(run) if finding.kind == "gradient-copies"]
    assert [re.findall(r"in (\d+) copies", text) for text in copied] == ([["149"]] if training is DDP else [])
    text = render_text(Document("", blocks=(rank_section(run),)), 100)
    assert text.startswith("2 ranks; rank 0 sets the pace")
    assert "100%" not in text, "a rank that waits is not busy"

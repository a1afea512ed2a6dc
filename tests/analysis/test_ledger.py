"""The ledger of a program's step, from built traces: one rule each, and parts that always add up."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from inductor_bench.analysis.host_time import HostShares
from inductor_bench.analysis.ledger import GraphName, Ledger, Span, Steps, divide_time, make_ledger, make_timeline
from inductor_bench.analysis.program_step import _list_doubts
from inductor_bench.records.code import SourceLine
from inductor_bench.records.evidence import CallPlace
from inductor_bench.records.run import HOST_LANE, MOST_INTERVALS, OTHERS, PYTHON, SLEEPING, HostStretch, Part
from inductor_bench.trace.program_trace import read_program_trace
from inductor_bench.trace.program_works import find_works
from tests.support.program_traces import BACKWARD, MARKERS, ProgramTraceBuilder


def ledger_of(
    built: ProgramTraceBuilder,
    folder: Path,
    step_us: float = 100.0,
    *,
    on_host: bool = False,
    line_of: str = "",
    host: HostShares | None = None,
    weights: tuple[float, ...] = (),
) -> Ledger:
    """The ledger of a built trace; operators named ``line_of`` are called on line 5."""
    program = read_program_trace(built.write(folder / "trace.json"), MARKERS)
    found = find_works(program, MARKERS, {}, on_host=on_host)
    assert found is not None
    line = CallPlace("Net", SourceLine("train.py", 5, "step", "loss.item()"))
    ops = enumerate(program.trace.host_ops)
    steps = Steps(
        step_time_s=step_us / 1e6,
        window=replace(found.window, weights=weights),
        works=found.works,
        calls=found.calls,
        timeline=found.timeline,
        names={0: GraphName("forward", "forward")},
        places={index: line for index, op in ops if op.name == line_of},
        optimizer_calls=found.optimizer_calls,
        on_host=on_host,
        host=host,
    )
    ledger = make_ledger(steps)
    assert math.fsum(part.share for part in ledger.parts) == pytest.approx(1.0, abs=1e-9)
    assert math.fsum(part.time_s for part in ledger.parts) == pytest.approx(step_us / 1e6, abs=1e-15)
    assert all(part.time_s >= 0 for part in ledger.parts)
    return ledger


def times(ledger: Ledger) -> dict[tuple[str, str], float]:
    """Microseconds by kind and label."""
    return {(part.kind, part.label): round(part.time_s * 1e6, 6) for part in ledger.parts}


def part_of(ledger: Ledger, label: str) -> Part:
    (part,) = (part for part in ledger.parts if part.label == label)
    return part


def stepped(count: int = 2) -> ProgramTraceBuilder:
    """Boundaries every 100 microseconds; the first step is dropped from a device's ledger."""
    built = ProgramTraceBuilder()
    for number in range(count + 1):
        built.boundary(number, 100.0 * number)
    return built


def test_moments_go_to_the_smallest_priority_and_the_earliest_start() -> None:
    spans = [Span(0, 10, 1), Span(2, 6, 0), Span(4, 8, 0), Span(12, 14, 2)]
    given, pauses = divide_time(spans, 1, 20)
    assert given == [3, 4, 2, 2]
    assert [(one.start_s, one.end_s, one.following) for one in pauses] == [(10, 12, 3), (14, 20, -1)]


def test_random_intervals_are_divided_without_rest() -> None:
    drawn = random.Random(0)
    for _ in range(200):
        starts = [drawn.uniform(-5, 25) for _ in range(drawn.randrange(30))]
        spans = [Span(start, start + drawn.choice([0, drawn.uniform(0, 8)]), drawn.randrange(3)) for start in starts]
        given, pauses = divide_time(spans, 0, 20)
        assert math.fsum(given) + math.fsum(one.end_s - one.start_s for one in pauses) == pytest.approx(20)
        for one in pauses:
            middle = (one.start_s + one.end_s) / 2
            assert not any(span.start_s < middle < span.end_s for span in spans)


def test_a_step_of_the_device_ends_with_the_work_that_was_launched_in_it(tmp_path: Path) -> None:
    built = stepped()
    for step in (0, 100):
        built.launch("kernel", 10 + step, 50 + step, 80)  # runs beyond the boundary of the host
    ledger = ledger_of(built, tmp_path)
    assert times(ledger) == {("eager", "kernel"): 80, ("idle", "between kernels"): 20}
    assert ledger.busy_time_s == pytest.approx(80e-6)
    assert ledger.profiled_step_time_s == pytest.approx(100e-6)


@pytest.mark.parametrize("on_host", [True, False])
def test_each_step_counts_with_its_weight(tmp_path: Path, on_host: bool) -> None:
    """Of two kinds of steps, each profiled once, the second one makes three of four timed steps."""
    built, first = stepped(2 if on_host else 3), 0 if on_host else 100  # on a device the first step does not count
    for name, at, took in (("short", first + 10, 20), ("long", first + 110, 30), ("long", first + 150, 30)):
        built.graph(0, at - 5, 2)
        op = built.op(f"aten::{name}", at, took)
        if not on_host:
            built.launch(name, at + 1, at + 4, took, external=op)
    ledger = ledger_of(built, tmp_path, on_host=on_host, weights=(0.5, 1.5))
    assert ledger.profiled_step_time_s == pytest.approx(100e-6)
    found = times(ledger)
    assert (found["eager", "aten::short"], found["eager", "aten::long"]) == (5, 45)
    counts = [part_of(ledger, name).calls for name in ("aten::short", "aten::long", "forward")]
    assert counts == [0.25, 1.5, 1.75]


@pytest.mark.parametrize("on_host", [True, False])
def test_idle_time_before_the_first_operator_of_a_step_has_the_weight_of_this_step(
    tmp_path: Path, on_host: bool
) -> None:
    """The short step is nine of ten timed ones. The long one begins with 100 µs of Python."""
    built, first = ProgramTraceBuilder(), 0 if on_host else 1
    for number, at in enumerate((-50.0, 0.0, 100.0, 300.0)[1 - first :]):
        built.boundary(number, at)
    for at, took in ((0.6, 39.4), (60.5, 38.5), (200, 40), (260.5, 39.4)):
        op = built.op("aten::x", at, took)
        if not on_host:
            built.launch("k", at + 0.1, at + 0.2, took - 0.2, external=op)
    for at in (40, 240):
        built.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, 20)
    found = times(ledger_of(built, tmp_path, 110.0, on_host=on_host, weights=(1.8, 0.2)))
    assert (found["idle", "data loading"], found["idle", "Python"]) == (pytest.approx(20), pytest.approx(11.95))


def test_compute_hides_collectives_and_these_hide_copies(tmp_path: Path) -> None:
    built = stepped()
    for step in (0, 100):
        op = built.op("aten::mm", 1 + step, 6)
        built.launch("gemm", 2 + step, 10 + step, 40, external=op)
        built.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 20 + step, 30 + step, 40, stream=9)
        built.launch("Memcpy HtoD (Pinned -> Device)", 30 + step, 60 + step, 20, stream=11, category="gpu_memcpy")
    ledger = ledger_of(built, tmp_path)
    assert times(ledger)["eager", "aten::mm"] == 40
    assert times(ledger)["collective", "AllReduce"] == 20
    assert times(ledger)["copy", "host to device"] == 10
    collective = part_of(ledger, "AllReduce")
    assert collective.device_time_s == pytest.approx(40e-6) and collective.hidden_s == pytest.approx(20e-6)
    assert collective.calls == collective.launches == 1


def test_work_belongs_to_graph_optimizer_or_operator(tmp_path: Path) -> None:
    built = stepped()
    for step in (0, 100):
        built.graph(0, 1 + step, 10)
        built.launch("triton_poi_0", 2 + step, 20 + step, 10)
        built.annotation("Optimizer.step#AdamW.step", 12 + step, 10)
        op = built.op("aten::_fused_adamw_", 13 + step, 6)
        built.launch("multi_tensor", 14 + step, 30 + step, 10, external=op)
        node = built.op("autograd::engine::evaluate_function: MmBackward0", 5 + step, 9, BACKWARD)
        inner = built.op("aten::mm", 6 + step, 6, BACKWARD)
        built.launch("gemm", 7 + step, 40 + step, 10, external=inner, tid=BACKWARD)
        assert node < inner
    ledger = ledger_of(built, tmp_path)
    found = times(ledger)
    assert found["graph", "forward"] == found["optimizer", "AdamW"] == found["eager", "MmBackward0"] == 10
    assert part_of(ledger, "forward").calls == part_of(ledger, "AdamW").calls == 1
    assert part_of(ledger, "forward").graph == "forward"


def test_a_graph_without_a_file_has_a_number(tmp_path: Path) -> None:
    built = stepped()
    built.graph(3, 101, 10)
    built.launch("triton_poi_0", 102, 120, 10)
    part = part_of(ledger_of(built, tmp_path), "graph 3")
    assert part.graph is None and part.kind == "graph"


def test_copies_before_a_replay_are_its_inputs(tmp_path: Path) -> None:
    built = stepped()
    for step in (0, 100):
        built.graph(0, 1 + step, 30)
        op = built.op("aten::_foreach_copy_", 2 + step, 5)
        built.launch("multi_tensor_copy", 3 + step, 10 + step, 5, external=op)
        correlation = built.runtime("cudaGraphLaunch", 10 + step, 5)
        built.device("triton_poi_0", 20 + step, 10, correlation)
        built.device("triton_poi_1", 31 + step, 10, correlation)
    ledger = ledger_of(built, tmp_path)
    found = times(ledger)
    assert found["copy", "inputs of a CUDA graph"] == 5 and found["graph", "forward"] == 20
    part = part_of(ledger, "forward")
    assert (part.calls, part.replays, part.launches) == (1, 1, 2)
    assert found["idle", "between kernels"] > 1  # the gap within the replay is not the host's


def test_a_cuda_graph_of_the_program_itself_is_one_part(tmp_path: Path) -> None:
    built = stepped()
    for start in (1, 101, 141):
        correlation = built.runtime("cudaGraphLaunch", start, 5)
        built.device("first", start + 10, 10, correlation)
        built.device("second", start + 20, 10, correlation)
    part = part_of(ledger_of(built, tmp_path), "replay of a CUDA graph")
    assert (part.kind, part.calls, part.launches, part.time_s) == ("eager", 2, 4, pytest.approx(40e-6))


@pytest.mark.parametrize(
    ("name", "category", "label"),
    [
        ("cudaStreamSynchronize", "runtime", "synchronising"),
        ("cudaMalloc", "runtime", "allocating"),
        ("cudaHostAlloc", "runtime", "allocating"),
        ("cudaLaunchKernel", "runtime", "launching"),
        ("aten::item", "op", "dispatching"),  # of a value on the host
        ("aten::view", "op", "dispatching"),
        ("aten::cumsum", "op", "CPU operators"),  # launches nothing
        ("autograd::engine::evaluate_function: MulBackward0", "op", "backward"),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "annotation", "data loading"),
        ("TorchDynamo Cache Lookup", "op", "guards"),
        ("Torch-Compiled Region: 0/0", "annotation", "guards"),
        ("ProfilerStep#3", "annotation", "Python"),
        ("Optimizer.step#SGD.step", "annotation", "optimizer"),
    ],
)
def test_idle_time_is_what_the_host_did(name: str, category: str, label: str, tmp_path: Path) -> None:
    built = stepped()
    built.launch("kernel", 101, 110, 10)
    getattr(built, category)(name, 120, 50)
    built.launch("kernel", 172, 174, 10)
    found = times(ledger_of(built, tmp_path))
    assert found["idle", label] >= 50
    assert sum(found.values()) == pytest.approx(100)


def test_the_innermost_range_counts_and_reading_a_value_lasts(tmp_path: Path) -> None:
    built = stepped()
    built.launch("kernel", 100.6, 103, 2)
    built.op("aten::item", 110, 40)
    built.runtime("cudaMemcpyAsync", 112, 10)
    built.annotation("enumerate(DataLoader)#x", 155, 20)
    built.op("aten::stack", 160, 10)
    built.runtime("cudaFree", 180, 5)
    ledger = ledger_of(built, tmp_path, line_of="aten::item")
    found = times(ledger)
    assert found["idle", "synchronising"] == 40 and found["idle", "data loading"] == 20
    assert found["idle", "allocating"] == 5
    part = part_of(ledger, "synchronising")
    assert part.source is not None and part.source.line == 5 and part.module == "Net"


def test_a_backward_thread_counts_while_the_main_thread_records_nothing(tmp_path: Path) -> None:
    built = stepped()
    built.launch("kernel", 100.6, 103, 2)
    built.op("autograd::engine::evaluate_function: MmBackward0", 110, 40, BACKWARD)
    built.runtime("cudaMalloc", 120, 10, BACKWARD)
    built.runtime("cudaStreamSynchronize", 130, 5)
    found = times(ledger_of(built, tmp_path))
    assert found["idle", "allocating"] == 10 and found["idle", "synchronising"] == 5
    assert found["idle", "backward"] == 25 and found["idle", "launching"] == 2


def test_operators_of_the_host_are_told_from_those_that_launch(tmp_path: Path) -> None:
    built = stepped()
    built.launch("kernel", 100.6, 103, 2)
    built.op("aten::linear", 110, 20)
    built.op("aten::addmm", 112, 16)  # computes on the host
    built.op("aten::mul", 140, 20)
    built.runtime("cudaLaunchKernel", 145, 10)
    built.graph(0, 165, 20)
    built.op("aten::t", 170, 5)
    ledger = ledger_of(built, tmp_path, line_of="aten::linear")
    found = times(ledger)
    assert found["idle", "CPU operators"] == 20 and found["idle", "dispatching"] == 20
    assert found["idle", "launching"] == 22, "with the launch outside of operators"
    line = part_of(ledger, "CPU operators").source
    assert line is not None and line.line == 5


def test_a_copy_from_pageable_memory_holds_the_host(tmp_path: Path) -> None:
    built = stepped()
    built.op("aten::copy_", 110, 60)
    correlation = built.runtime("cudaMemcpyAsync", 112, 50)
    built.device("Memcpy HtoD (Pageable -> Device)", 158, 4, correlation, category="gpu_memcpy")
    found = times(ledger_of(built, tmp_path))
    assert found["idle", "copying pageable memory"] == 46 and found["idle", "dispatching"] == 10


def test_idle_time_is_that_of_the_unprofiled_step(tmp_path: Path) -> None:
    built = stepped()
    built.launch("kernel", 101, 110, 40)
    built.op("aten::view", 160, 10)
    found = times(ledger_of(built, tmp_path, step_us=60))
    assert found["eager", "kernel"] == 40
    assert sum(time for (kind, _), time in found.items() if kind == "idle") == pytest.approx(20)


def test_a_busy_time_beyond_the_step_is_scaled(tmp_path: Path) -> None:
    built = stepped()
    built.launch("kernel", 101, 110, 80)
    ledger = ledger_of(built, tmp_path, step_us=50)
    assert times(ledger) == {("eager", "kernel"): 50}
    assert ledger.busy_time_s == pytest.approx(80e-6)


def test_on_a_cpu_the_profiler_slows_all_parts_alike(tmp_path: Path) -> None:
    built = stepped()
    for step in (0, 100):
        built.op("aten::mm", 10 + step, 60)
    ledger = ledger_of(built, tmp_path, step_us=50, on_host=True)
    found = times(ledger)
    assert found["eager", "aten::mm"] == pytest.approx(30), "60 of 100 profiled microseconds, of 50"
    assert sum(time for (kind, _), time in found.items() if kind == "idle") == pytest.approx(20)
    assert ledger.busy_time_s == pytest.approx(30e-6) and ledger.profiled_step_time_s == pytest.approx(100e-6)


def test_on_a_cpu_no_collective_is_cut_before_all_parts_are_shortened(tmp_path: Path) -> None:
    built = stepped()
    for step in (0, 100):
        built.op("aten::mm", 10 + step, 40)
        built.op("c10d::allreduce_", 50 + step, 50)
    ledger = ledger_of(built, tmp_path, step_us=60, on_host=True)
    found = times(ledger)
    assert found["collective", "allreduce"] == pytest.approx(30) and found["eager", "aten::mm"] == pytest.approx(24)
    assert ledger.busy_time_s == pytest.approx(54e-6)


def test_a_collective_that_waits_longer_under_the_profiler_is_cut_first(tmp_path: Path) -> None:
    built = stepped()
    for step in (0, 100):
        built.launch("kernel", 1 + step, 10 + step, 30)
        built.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 2 + step, 40 + step, 50, stream=9)
    ledger = ledger_of(built, tmp_path, step_us=60)
    assert times(ledger) == {("eager", "kernel"): 30, ("collective", "AllReduce"): 30}
    assert ledger.busy_time_s == pytest.approx(60e-6)
    reduced = part_of(ledger, "AllReduce")
    assert reduced.device_time_s == pytest.approx(30e-6)
    assert reduced.hidden_s == pytest.approx(0), "a wait hides nothing"
    assert ledger.cut_s == pytest.approx(20e-6)
    (note,) = _list_doubts(ledger, 60e-6, None)
    assert "20.0 µs longer" in note
    assert times(ledger_of(built, tmp_path, step_us=20)) == {("eager", "kernel"): 20, ("collective", "AllReduce"): 0}


def test_only_what_computation_covers_is_hidden_of_a_collective_that_waits(tmp_path: Path) -> None:
    built = stepped()
    for step in (0, 100):
        built.launch("kernel", 1 + step, 10 + step, 30)
        built.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 2 + step, 30 + step, 65, stream=9)
    reduced = part_of(ledger_of(built, tmp_path, step_us=60), "AllReduce")
    assert (reduced.time_s, reduced.hidden_s) == (pytest.approx(30e-6), pytest.approx(10e-6))


def test_small_operators_are_merged(tmp_path: Path) -> None:
    built = stepped()
    for number in range(20):
        op = built.op(f"aten::op{number % 10}", 101 + 3 * number, 2.5)
        built.launch(f"k{number}", 101 + 3 * number, 103 + 3 * number, 0.05, external=op)
    big = built.op("aten::mm", 170, 4)
    built.launch("gemm", 171, 175, 10, external=big)
    ledger = ledger_of(built, tmp_path)
    assert {part.label for part in ledger.parts if part.kind == "eager"} == {"aten::mm", OTHERS}
    others = part_of(ledger, OTHERS)
    assert others.calls == 20 and others.launches == 20
    assert [(one.label, one.calls) for one in others.summed] == [(f"aten::op{number}", 2) for number in range(10)]
    assert sum(one.time_s for one in others.summed) == pytest.approx(others.time_s), "each of them is named"


def test_on_a_cpu_operators_and_graphs_are_the_busy_time(tmp_path: Path) -> None:
    built = stepped()
    for step in (0, 100):
        built.annotation("enumerate(DataLoader)#x", 1 + step, 9)
        built.op("aten::stack", 2 + step, 5)
        built.op("CompiledFunction", 15 + step, 30)
        built.graph(0, 20 + step, 20)
        built.op("aten::mm", 25 + step, 5)
        built.op("aten::linear", 50 + step, 10)
        built.op("aten::addmm", 51 + step, 8)
        built.annotation("Optimizer.step#SGD.step", 70 + step, 20)
        built.op("aten::_foreach_add_", 75 + step, 10)
    ledger = ledger_of(built, tmp_path, on_host=True)
    found = times(ledger)
    assert found["graph", "forward"] == 20 and found["eager", "aten::linear"] == 10
    assert found["optimizer", "SGD"] == 10 and found["idle", "data loading"] == 9
    assert found["idle", "launching"] == pytest.approx(10)  # CompiledFunction around the graph
    assert part_of(ledger, "forward").device_time_s is None and part_of(ledger, "forward").calls == 1
    assert ledger.busy_time_s == pytest.approx(40e-6)


def test_a_timeline_has_the_host_and_each_stream(tmp_path: Path) -> None:
    built = stepped()
    for number in range(3):
        op = built.op("aten::mm", 101 + 20 * number, 5)
        built.launch("gemm", 102 + 20 * number, 110 + 20 * number, 10, external=op, stream=7 + number)
    program = read_program_trace(built.write(tmp_path / "trace.json"), MARKERS)
    found = find_works(program, MARKERS, {}, on_host=False)
    assert found is not None
    steps = Steps(1e-4, found.window, found.works, found.calls, found.timeline, {})
    timeline = make_timeline(steps, found.host_works, 1)
    assert timeline.time_s == pytest.approx(100e-6) and timeline.rank == 1
    assert {one.lane for one in timeline.intervals} == {HOST_LANE, "stream 7", "stream 8", "stream 9"}
    host = [one for one in timeline.intervals if one.lane == HOST_LANE]
    assert host[0].start_s == 0 and host[-1].end_s == pytest.approx(timeline.time_s)
    assert [one.label for one in host if one.kind == "eager"] == ["aten::mm"] * 3


def test_a_timeline_of_many_events_stays_small(tmp_path: Path) -> None:
    built = ProgramTraceBuilder()
    for number in (0, 1, 2):
        built.boundary(number, 20_000.0 * number)
    for number in range(8000):
        built.launch(f"k{number}", 20_001 + number * 2, 20_002 + number * 2, 1)
    program = read_program_trace(built.write(tmp_path / "trace.json"), MARKERS)
    found = find_works(program, MARKERS, {}, on_host=False)
    assert found is not None
    steps = Steps(2e-2, found.window, found.works, found.calls, found.timeline, {})
    assert 0 < len(make_timeline(steps, found.host_works).intervals) <= MOST_INTERVALS


def shares(*stretches: tuple[str, str, float, int], sees_device: bool = True) -> HostShares:
    """Label, function, microseconds of a step and samples of each stretch; 1,000 samples altogether."""
    lines = (SourceLine("app.py", number, "main", "") for number in range(1, 100))
    found = (
        HostStretch(label, function, time_us / 1e6, count, next(lines)) for label, function, time_us, count in stretches
    )
    return HostShares(tuple(found), 1000, sees_device)


def half_busy(folder: Path, host: HostShares | None, queued: float = 0.0, step_us: float = 100.0) -> Ledger:
    """A step whose device works for 50 microseconds, and waits ``queued`` ones between launched kernels."""
    built = stepped()
    for step in (0, 100):
        built.launch("kernel", 1 + step, 6 + step, 30)
        built.launch("kernel", 10 + step, 36 + queued + step, 20)
    return ledger_of(built, folder, step_us, host=host)


def test_samples_divide_the_idle_time_of_the_unprofiled_step(tmp_path: Path) -> None:
    host = shares((PYTHON, "tokenize", 30, 300), (SLEEPING, "time.sleep", 19, 190), (PYTHON, "small", 0.5, 5))
    ledger = half_busy(tmp_path, host)
    idle = [part for part in ledger.parts if part.kind == "idle" and part.label != "between kernels"]
    assert [(part.label, part.function, part.source and part.source.line) for part in idle] == [
        (PYTHON, "tokenize", 1),
        (SLEEPING, "time.sleep", 2),
        (PYTHON, "", None),
    ]
    assert [part.samples for part in idle] == [300, 190, 5]
    scale = (50 - 1) / 49.5  # a launch before each first kernel is 1 microsecond of the profile
    assert [part.time_s * 1e6 / scale for part in idle] == pytest.approx([30, 19, 0.5], rel=0.15)
    assert math.fsum(one.time_s for one in ledger.host) == pytest.approx(math.fsum(part.time_s for part in idle))


def test_gaps_between_kernels_keep_their_time_where_the_samples_agree(tmp_path: Path) -> None:
    ledger = half_busy(tmp_path, shares((PYTHON, "f", 36, 360)), queued=10)
    profiled = times(half_busy(tmp_path, None, queued=10))["idle", "between kernels"]
    assert times(ledger)["idle", "between kernels"] == pytest.approx(profiled)
    ledger = half_busy(tmp_path, shares((PYTHON, "f", 5, 50)), queued=10)
    assert times(ledger)["idle", "between kernels"] == pytest.approx(45), "the host was ahead in most of the idle time"


def test_few_samples_leave_the_profile_to_divide(tmp_path: Path) -> None:
    few = half_busy(tmp_path, shares((PYTHON, "f", 30, 11)))
    assert times(few) == times(half_busy(tmp_path, None)) and few.host == ()


def test_three_samples_name_what_the_profile_has_a_kind_for(tmp_path: Path) -> None:
    named = half_busy(tmp_path, shares((PYTHON, "f", 20, 2), (PYTHON, "g", 10, 1), (SLEEPING, "time.sleep", 9, 1)))
    python = {part.function: part.time_s for part in named.parts if part.label == PYTHON}
    whole_s = part_of(half_busy(tmp_path, None), PYTHON).time_s
    assert python == {"f": pytest.approx(2 / 3 * whole_s), "g": pytest.approx(1 / 3 * whole_s)}
    assert not any(part.samples for part in named.parts), "the time comes from the profile"
    assert all(part.function == "" for part in half_busy(tmp_path, shares((PYTHON, "f", 20, 2))).parts)


def test_on_a_cpu_samples_only_divide_the_time_without_operators(tmp_path: Path) -> None:
    built = stepped()
    for step in (0, 100):
        built.op("aten::mm", 1 + step, 60)
    host = shares((PYTHON, "f", 3, 30), (SLEEPING, "time.sleep", 1, 10), sees_device=False)
    found = times(ledger_of(built, tmp_path, on_host=True, host=host))
    assert found == {("eager", "aten::mm"): 60, ("idle", PYTHON): 30, ("idle", SLEEPING): 10}


def test_parts_that_samples_divide_add_up_at_random(tmp_path: Path) -> None:
    drawn = random.Random(3)
    for _ in range(30):
        kinds = [(drawn.choice((PYTHON, SLEEPING)), f"f{number}", drawn.uniform(0.01, 20), 9) for number in range(12)]
        half_busy(tmp_path, shares(*kinds), queued=drawn.uniform(0, 20), step_us=drawn.uniform(50.5, 200))

"""Any events of a trace: they are read or refused in words, and the parts of a step add up to the step."""

from __future__ import annotations

import gzip
import json
import math
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import drawn_records
from hypothesis import assume, example, given
from hypothesis import strategies as st
from program_traces import BACKWARD, MAIN, MARKERS, ProgramTraceBuilder

from inductor_bench.analysis.ledger import GraphName, Span, Steps, divide_time, make_ledger
from inductor_bench.errors import InductorBenchError
from inductor_bench.records.run import IDLE
from inductor_bench.records.traced import Trace
from inductor_bench.trace.iterations import split_iterations
from inductor_bench.trace.program_trace import (
    compute_busy_time,
    compute_union_length,
    gaps,
    merge_intervals,
    read_program_trace,
)
from inductor_bench.trace.program_works import find_works
from inductor_bench.trace.rows import read_trace

LIMIT_S = 1e10
"""Above every time that a trace can hold, in seconds."""

odd_numbers = st.sampled_from(
    [math.nan, math.inf, -math.inf, 1e308, -1.0, 5e-324, 4e15, 10**400, 2**63, "12", "x", None]
)
microseconds = st.one_of(st.integers(0, 60), st.floats(0, 60).map(lambda x: round(x, 3)), odd_numbers, st.floats())
names = st.sampled_from(
    ["aten::mm", "triton_poi_fused_0", "graph_0_cpp_fused_1", "cudaLaunchKernel", "cudaDeviceSynchronize", "", "\ud800"]
)
categories = st.sampled_from(
    [
        "cpu_op",
        "kernel",
        "gpu_memcpy",
        "gpu_memset",
        "cuda_runtime",
        "cuda_driver",
        "user_annotation",
        "python_function",
    ]
)
identifiers = st.one_of(st.integers(0, 4), odd_numbers)
arguments = st.dictionaries(
    st.sampled_from(["External id", "correlation", "device", "stream", "grid", "Input Dims", "bytes", "kernel_file"]),
    st.one_of(
        identifiers, st.lists(st.one_of(st.integers(-1, 9), st.lists(st.integers(-1, 9), max_size=2)), max_size=3)
    ),
    max_size=4,
)
event = st.fixed_dictionaries(
    {"ph": st.sampled_from(["X", "X", "X", "i", 1]), "cat": categories, "name": names},
    optional={
        "ts": microseconds,
        "dur": microseconds,
        "pid": identifiers,
        "tid": identifiers,
        "args": st.one_of(arguments, drawn_records.any_json),
    },
)
events = st.lists(st.one_of(event, event, event, drawn_records.any_json), max_size=12)


def written(data: Any, folder: str, packed: bool = False) -> Path:
    path = Path(folder) / "trace.json"
    text = json.dumps(data).encode()
    path.write_bytes(gzip.compress(text) if packed else text)
    return path


def check(trace: Trace) -> None:
    """What every reader of a trace relies on."""
    for found in (trace.host_ops, trace.device_events):
        assert all(0 <= one.duration_s < LIMIT_S and 0 <= one.start_s < LIMIT_S for one in found)
        assert all(before.start_s <= after.start_s for before, after in pairwise(found))
    for index, op in enumerate(trace.host_ops):
        assert -1 <= op.parent < index
        if op.parent >= 0:
            around = trace.host_ops[op.parent]
            assert around.thread == op.thread and around.start_s <= op.start_s
    assert all(-1 <= one.host_op < len(trace.host_ops) for one in trace.device_events)


@given(events, st.booleans())
@example([{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0}] * 2, False)
def test_any_events_make_a_sound_trace_or_are_refused_in_words(found: list[Any], packed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            trace = read_trace(written({"traceEvents": found}, folder, packed))
        except InductorBenchError as error:
            assert "trace.json" in error.message
            return
    check(trace)
    for iteration in split_iterations(trace):
        assert iteration.start_s <= iteration.end_s
        assert all(0 <= op < len(trace.host_ops) for op in iteration.top_ops)
        assert all(0 <= one < len(trace.device_events) for one in iteration.device_events)
    busy, pauses = compute_busy_time(trace.device_events), gaps(trace.device_events)
    assert all(0 <= value < math.inf for value in (*busy.values(), pauses.median_s, pauses.longest_s))


@given(st.one_of(drawn_records.any_json, st.fixed_dictionaries({"traceEvents": drawn_records.any_json})))
def test_a_file_that_is_no_trace_is_refused_in_words(data: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            check(read_trace(written(data, folder)))
        except InductorBenchError as error:
            assert "trace.json" in error.message


@given(events, st.data())
def test_a_trace_that_is_cut_short_or_damaged_gives_its_whole_events(found: list[Any], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = written({"traceEvents": found}, folder, data.draw(st.booleans()))
        whole = path.read_bytes()
        place = data.draw(st.integers(0, len(whole)))
        path.write_bytes(
            whole[:place] + data.draw(st.binary(max_size=3)) + whole[place + data.draw(st.integers(0, 9)) :]
        )
        try:
            check(read_trace(path))
        except InductorBenchError as error:
            assert "trace.json" in error.message


instants = st.one_of(st.integers(0, 100), st.floats(0, 100).map(lambda x: round(x, 3)))
lengths = st.one_of(st.integers(0, 40), st.floats(0, 40).map(lambda x: round(x, 3)), st.just(1e6))
actions = st.lists(
    st.tuples(
        st.sampled_from(["op", "graph", "kernel", "copy", "collective", "annotation", "late kernel"]),
        instants,
        lengths,
        st.sampled_from([MAIN, BACKWARD]),
        st.integers(0, 2),
    ),
    max_size=14,
)


def built(
    bounds: list[float], drawn: list[tuple[str, float, float, int, int]], *, on_host: bool
) -> ProgramTraceBuilder:
    builder = ProgramTraceBuilder()
    for number, place in enumerate(sorted(bounds)):
        builder.boundary(number, place)
    for what, ts, dur, thread, number in drawn:
        if what == "op":
            builder.op(("aten::mm", "aten::add", "c10d::allreduce_")[number], ts, dur, thread)
        elif what == "graph":
            builder.graph(number, ts, dur, thread)
        elif what == "annotation":
            builder.annotation(
                ("Optimizer.step#AdamW.step", "enumerate(DataLoader)#x", "mine")[number], ts, dur, thread
            )
        elif not on_host:
            correlation = builder.runtime("cudaLaunchKernel", ts, 1, thread, external=number)
            later = ts + (1e5 if what == "late kernel" else number)
            name, category = {
                "copy": ("Memcpy HtoD", "gpu_memcpy"),
                "collective": ("ncclDevKernel_AllReduce", "kernel"),
            }.get(what, ("triton_poi_fused_0", "kernel"))
            builder.device(name, later, dur, correlation, 7 + number, category)
    return builder


@given(
    st.lists(instants, min_size=1, max_size=5), actions, st.booleans(), st.sampled_from([1e-9, 1e-5, 3e-4, 1.0, 1e4])
)
@example([0, 0], [], True, 1.0)
@example([0, 1, 1], [("kernel", 0, 5, MAIN, 0)], False, 1.0)
def test_the_parts_of_a_step_add_up_to_it_whatever_its_events_are(
    bounds: list[float], drawn: list[tuple[str, float, float, int, int]], on_host: bool, step_s: float
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        builder = built(bounds, drawn, on_host=on_host)
        trace = read_program_trace(written({"traceEvents": builder.events}, folder), MARKERS)
    check(trace.trace)
    works = find_works(trace, MARKERS, {}, on_host=on_host)
    if works is None:
        return
    ledger = make_ledger(
        Steps(
            step_time_s=step_s,
            window=works.window,
            works=works.works,
            calls=works.calls,
            timeline=works.timeline,
            names={0: GraphName("forward", "forward")},
            optimizer_calls=works.optimizer_calls,
            on_host=on_host,
        )
    )
    whole = math.fsum(part.time_s for part in ledger.parts)
    assert math.isclose(whole, step_s, rel_tol=1e-6)
    assert math.isclose(math.fsum(part.share for part in ledger.parts), 1, rel_tol=1e-6)
    assert all(part.time_s >= -1e-9 * step_s and part.calls >= 0 for part in ledger.parts)
    assert 0 <= ledger.busy_time_s < math.inf
    idle_share = math.fsum(part.share for part in ledger.parts if part.kind == IDLE)
    assert math.isclose(min(1.0, ledger.busy_time_s / step_s), 1 - idle_share, abs_tol=1e-6)


spans = st.lists(st.builds(Span, instants, instants, st.integers(0, 2)), max_size=12)


@given(spans, instants, instants)
def test_each_moment_of_a_stretch_belongs_to_one_span_or_to_a_pause(
    found: list[Span], start: float, end: float
) -> None:
    assume(start <= end)
    given_s, pauses = divide_time(found, start, end)
    assert all(seconds >= 0 for seconds in given_s)
    assert math.isclose(math.fsum(given_s) + sum(one.end_s - one.start_s for one in pauses), end - start, abs_tol=1e-9)
    assert all(before.end_s <= after.start_s for before, after in pairwise(pauses))
    covered = [(max(one.start_s, start), min(one.end_s, end)) for one in found]
    assert math.isclose(math.fsum(given_s), compute_union_length(covered), abs_tol=1e-9)


@given(st.lists(st.tuples(instants, instants), max_size=12))
@example([(1, 0)])
def test_the_union_of_intervals_is_disjoint_in_order_and_covers_each(found: list[tuple[float, float]]) -> None:
    merged = merge_intervals(found)
    assert all(before[1] < after[0] for before, after in pairwise(merged))
    for start, end in found:
        assert start > end or any(low <= start and end <= high for low, high in merged)
    assert merge_intervals(merged) == merged
    assert compute_union_length(found) <= math.fsum(end - start for start, end in found if end >= start) + 1e-9

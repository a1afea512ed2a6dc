"""What compilation took, by phase: from timed events by hand, and from a structured trace that holds some."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inductor_bench.records.code import (
    AOT_AUTOGRAD,
    AUTOTUNING,
    CODE_GENERATION,
    CUDA_GRAPHS,
    DYNAMO,
    KERNELS,
    LOWERING,
    total_s,
)
from inductor_bench.source.compile_log import CompileClock
from inductor_bench.source.structured_trace import read_structured_trace

Row = tuple[float, str, str]
"""The second, ``B`` or ``E``, and the name of an event."""

TRAINING: list[Row] = [
    (0.0, "B", "dynamo"),
    (0.5, "B", "entire_frame_compile"),
    (1.5, "B", "backend_compile"),
    (2.0, "B", "aot_trace_joint_graph"),
    (3.0, "E", "aot_trace_joint_graph"),
    (3.0, "B", "_recursive_joint_graph_passes"),
    (3.2, "E", "_recursive_joint_graph_passes"),
    (3.2, "B", "inductor_compile"),
    (4.0, "B", "mm_template_autotuning"),
    (4.1, "B", "async_compile.wait"),
    (5.1, "E", "async_compile.wait"),
    (6.0, "E", "mm_template_autotuning"),
    (6.0, "B", "code_gen"),
    (6.5, "B", "async_compile.wait"),
    (9.5, "E", "async_compile.wait"),
    (9.5, "E", "code_gen"),
    (9.5, "E", "inductor_compile"),
    (9.5, "E", "backend_compile"),
    (9.5, "B", "build_guards"),
    (9.75, "E", "build_guards"),
    (9.75, "E", "entire_frame_compile"),
    (10.0, "E", "dynamo"),
    (20.0, "B", "CachingAutotuner.benchmark_all_configs"),
    (20.25, "E", "CachingAutotuner.benchmark_all_configs"),
    (30.0, "B", "CUDAGraphNode.record"),
    (30.125, "E", "CUDAGraphNode.record"),
]


def times(rows: list[Row]) -> dict[str, float]:
    clock = CompileClock()
    for now_s, side, name in rows:
        clock.take({"name": name, "ts": 1.7e15 + now_s * 1e6, "ph": side, "args": {}, "cat": "dynamo_timed"})
    return {phase.name: pytest.approx(phase.time_s, abs=1e-6) for phase in clock.phases()}


def test_each_moment_counts_for_the_innermost_phase() -> None:
    assert times(TRAINING) == {
        KERNELS: 3.0,
        AUTOTUNING: 2.25,
        DYNAMO: 2.0,
        AOT_AUTOGRAD: 1.5,
        LOWERING: 1.0,
        CODE_GENERATION: 0.5,
        CUDA_GRAPHS: 0.125,
    }
    assert list(times(TRAINING))[:3] == [KERNELS, AUTOTUNING, DYNAMO], "the longest first"


def test_what_belongs_to_no_compilation_takes_no_time() -> None:
    assert times([(0.0, "B", "fullgraph_capture"), (1.0, "B", "build_guards"), (9.0, "E", "fullgraph_capture")]) == {}
    assert times([(0.0, "B", "dynamo"), (1e-7, "E", "dynamo")]) == {}, "too short to be told"
    clock = CompileClock()
    clock.take({"name": "dynamo", "ts": 1.0, "ph": "B"})
    for damaged in (float("nan"), float("inf"), -1.0, 10**400, "1", None):
        clock.take({"name": "dynamo", "ts": damaged, "ph": "E"})
    assert clock.phases() == ()
    clock = CompileClock()
    for event in (None, [], {"ph": "i", "name": "fx_graph_cache_disabled", "ts": 1}, {"ph": "B", "name": "dynamo"}):
        clock.take(event)
    assert clock.phases() == ()


def test_a_part_without_an_end_ends_with_the_part_around_it() -> None:
    rows: list[Row] = [
        (0.0, "B", "dynamo"),
        (1.0, "B", "backend_compile"),
        (3.0, "E", "dynamo"),
        (9.0, "E", "code_gen"),
    ]
    assert times(rows) == {AOT_AUTOGRAD: 2.0, DYNAMO: 1.0}


def test_a_trace_tells_the_phases_of_the_process_that_compiled_longest(tmp_path: Path) -> None:
    for rank, seconds in ((0, 2.0), (1, 3.5)):
        lines = []
        for now_s, side in ((10.0, "B"), (10.0 + seconds, "E")):
            event = {"name": "dynamo", "ts": now_s * 1e6, "ph": side, "args": {}}
            lines += [
                f'V1123 11:25:50.84500{rank} 24156 torch/_dynamo/utils.py:2350] {{"chromium_event": {{}}}}',
                *(f"\t{line}" for line in json.dumps(event, indent=0).splitlines()),
            ]
        (tmp_path / f"dedicated_log_torch_trace_rank_{rank}_abc.log").write_text("\n".join(lines) + "\n")
    (phase,) = read_structured_trace(tmp_path).compile_phases
    assert phase.name == DYNAMO and phase.time_s == pytest.approx(3.5) and total_s([phase]) == phase.time_s

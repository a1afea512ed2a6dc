"""The shares of DRAM in the modules of a captured program, and what becomes of them in the record."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from h200 import activities_of, iterations_of, source_of, text_of, trace_of

from inductor_bench.analysis.kernel_aggregation import steady_iterations
from inductor_bench.analysis.traffic import EagerOperator, EagerOperators
from inductor_bench.records.code import Details
from inductor_bench.records.evidence import DONE, GraphCallTouches, ObservedGraph, ObservedSteps, ObservedTouches
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.records.run import Capture, Environment, Peaks, Run
from inductor_bench.source.labels import ModuleLabel
from inductor_bench.store import codec
from inductor_bench.store.folder import RunFolder
from inductor_bench.store.run_files import load_details
from inductor_bench.workflows.modules.module_analysis import (
    AttributedModule,
    describe_buffers,
    describe_module,
    lay_out_step,
    with_dram_shares,
    with_roofs,
)
from inductor_bench.workflows.modules.module_profiling import ProfiledModule
from inductor_bench.workflows.modules.program_run import CapturedProgram, FoundModule, read_touches

NAME = "gpu_kinds/0_forward"
PEAKS = Peaks(
    "a GPU", 1e12, {"float16": 1e14, "float32": 1e13}, cache_bytes=1 << 30, cache_bandwidth=4e12, launch_floor_s=1e-9
)
PLACES = tuple((1000 * number, 8) for number in range(1, 20))
CALL = GraphCallTouches(0, PLACES[:10], PLACES)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    (tmp_path / "traces").mkdir()
    return RunFolder(tmp_path)


@pytest.fixture
def module(tmp_path: Path) -> AttributedModule:
    path = tmp_path / "forward.py"
    path.write_text(text_of(f"{NAME}.py"))
    iterations, activities = iterations_of(NAME), activities_of(NAME)
    found = FoundModule(path, path.read_text())
    label, details = ModuleLabel("forward", "forward"), Details(threads=3)
    profiled = ProfiledModule(found, label, source_of(NAME), "-p", "", None, None, details=details)
    return AttributedModule(
        profiled, trace_of(NAME), iterations, steady_iterations(activities, len(iterations)), activities
    )


def captured_with(module: AttributedModule, *calls: GraphCallTouches) -> CapturedProgram:
    path = os.path.realpath(module.profiled.module.path)
    steps = ObservedSteps(7, "cuda", DONE, graphs=(ObservedGraph(path), ObservedGraph("")))
    touches = {7: ObservedTouches(calls)} if calls else {}
    return CapturedProgram((module.profiled.module,), Capture(), steps=(steps,), touches=touches)


def test_the_shares_of_a_program_reach_the_details_and_the_record(module: AttributedModule, folder: RunFolder) -> None:
    (found,) = with_dram_shares([module], captured_with(module, CALL), PEAKS, folder, {})
    shares = found.profiled.details.dram_shares
    assert shares.keys() == {str(site.index) for site in module.profiled.source.calls}
    assert 0.1 < fmean(shares.values()) < 0.6, "a cache of 1 GiB holds it in every step; what is written goes on"
    assert load_details(folder, "forward") == replace(module.profiled.details, dram_shares=shares)

    kernels = describe_module(found, folder, {}).kernels
    known = [kernel for kernel in kernels if kernel.work.moved_bytes is not None]
    assert known and all(0 < kernel.dram_bytes <= kernel.work.moved_bytes for kernel in known)
    assert all(kernel.dram_bytes is None for kernel in describe_module(module, folder, {}).kernels)


def test_a_graph_call_between_evicts_the_weights_and_dram_limits_the_kernels(
    module: AttributedModule, folder: RunFolder
) -> None:
    other = GraphCallTouches(1, ((1, 1 << 31),), ())  # a graph without a file
    (found,) = with_dram_shares([module], captured_with(module, CALL, other), PEAKS, folder, {})
    assert max(found.profiled.details.dram_shares.values()) > 0.6
    record = describe_module(found, folder, {})
    run = Run(1, "", "", "", "", "", "", BreakdownRequest("", "script"), Environment(), modules=(record,))
    (judged,) = with_roofs(run, PEAKS).modules
    assert "memory" in {kernel.roof.bound for kernel in judged.kernels}
    alone = with_roofs(replace(run, modules=(describe_module(module, folder, {}),)), PEAKS).modules[0]
    assert "memory" not in {kernel.roof.bound for kernel in alone.kernels}


def test_without_an_observed_step_or_a_known_cache_nothing_changes(module: AttributedModule, folder: RunFolder) -> None:
    observed = captured_with(module, CALL)
    for captured, peaks in (
        (captured_with(module), PEAKS),
        (observed, None),
        (observed, replace(PEAKS, cache_bytes=None)),
    ):
        assert with_dram_shares([module], captured, peaks, folder, {}) == [module]
    assert not list(folder.traces.iterdir())


def test_eager_bytes_stand_before_the_graph_call_of_their_number(module: AttributedModule) -> None:
    path = str(module.profiled.module.path)
    buffers = {path: describe_buffers(module.profiled.module.text, module.profiled.source)}
    step = lay_out_step([path], ObservedTouches((CALL, CALL)), buffers, {1: 5, 2: 6})
    assert [getattr(item, "size", "graph") for item in step] == ["graph", 5, "graph", 6]


def test_eager_operators_evict_what_the_graphs_left_in_the_cache(module: AttributedModule, folder: RunFolder) -> None:
    operators = EagerOperators((0,), (EagerOperator(1, 1.0, (1 << 31,)),))
    (found,) = with_dram_shares([module], captured_with(module, CALL), PEAKS, folder, {7: operators})
    assert fmean(found.profiled.details.dram_shares.values()) > 0.6
    for eager in ({8: operators}, {7: replace(operators, graphs=(0, 0))}, {7: replace(operators, graphs=(1,))}):
        (kept,) = with_dram_shares([module], captured_with(module, CALL), PEAKS, folder, eager)
        assert fmean(kept.profiled.details.dram_shares.values()) < 0.6, "of another process or another order"


def test_a_damaged_file_of_touches_counts_as_missing(tmp_path: Path) -> None:
    (tmp_path / "7.touches.json").write_text(json.dumps(codec.encode(ObservedTouches((CALL,)))))
    (tmp_path / "8.touches.json").write_text('{"calls": [')
    assert read_touches(tmp_path) == {7: ObservedTouches((CALL,))}

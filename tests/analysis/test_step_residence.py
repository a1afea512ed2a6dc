"""The shares of DRAM in the modules of a captured program, and what becomes of them in the record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from h200 import activities_of, iterations_of, source_of, text_of, trace_of

from inductor_bench.analysis.analyse import ModuleFacts, ModuleInStep, describe_module
from inductor_bench.analysis.call_work import EagerOperator, EagerOperators
from inductor_bench.analysis.evidence_files import AttributedModule, EvidenceFiles
from inductor_bench.analysis.kernel_aggregation import find_steady_iterations
from inductor_bench.analysis.residence import compute_shares_in_step, describe_buffers, lay_out_step
from inductor_bench.records.code import Details
from inductor_bench.records.evidence import (
    DONE,
    Evidence,
    GraphCallTouches,
    ModuleEvidence,
    ObservedGraph,
    ObservedSteps,
    ObservedTouches,
    StepEvidence,
)
from inductor_bench.records.module import Kernel, Method
from inductor_bench.records.run import Peaks
from inductor_bench.store import codec
from inductor_bench.store.folder import RunFolder
from inductor_bench.workflows.modules.observed_files import read_touches

NAME = "gpu_kinds/0_forward"
PEAKS = Peaks(
    "a GPU", 1e12, {"float16": 1e14, "float32": 1e13}, cache_bytes=1 << 30, cache_bandwidth=4e12, launch_floor_s=1e-9
)
PLACES = tuple((1000 * number, 8) for number in range(1, 20))
CALL = GraphCallTouches(0, PLACES[:10], PLACES)


class Files(EvidenceFiles):
    """The files of one module without a folder."""

    def text(self, slug: str) -> str:
        return text_of(f"{NAME}.py")


FILES = Files(RunFolder(Path("nowhere")))
MODULE = ModuleEvidence("forward", "forward", "forward.py", measurement=Method("-p"))


@pytest.fixture
def attributed() -> AttributedModule:
    iterations, activities = iterations_of(NAME), activities_of(NAME)
    steady = find_steady_iterations(activities, len(iterations))
    details = Details(threads=3)
    return AttributedModule(MODULE, source_of(NAME), details, {}, trace_of(NAME), iterations, steady, activities)


def observed(*calls: GraphCallTouches) -> Evidence:
    steps = ObservedSteps(7, "cuda", DONE, graphs=(ObservedGraph(""), ObservedGraph("")))
    process = StepEvidence(steps, ("forward", ""), touches=ObservedTouches(calls) if calls else None)
    return Evidence((MODULE,), (process,))


def shares_of(*calls: GraphCallTouches, eager: Mapping[int, EagerOperators] | None = None) -> Mapping[int, float]:
    return compute_shares_in_step(observed(*calls), FILES, PEAKS, eager or {})["forward"]


def kernels_of(attributed: AttributedModule, shares: Mapping[int, float]) -> tuple[Kernel, ...]:
    step = ModuleInStep("forward", 1e-3, dram_shares=shares)
    return describe_module(attributed, ModuleFacts(peaks=PEAKS, step=step)).kernels


def test_the_shares_of_a_program_reach_the_record(attributed: AttributedModule) -> None:
    shares = shares_of(CALL)
    assert shares.keys() == {site.index for site in attributed.source.calls}
    assert 0.1 < fmean(shares.values()) < 0.6, "a cache of 1 GiB holds it in every step; what is written goes on"
    known = [kernel for kernel in kernels_of(attributed, shares) if kernel.work.moved_bytes is not None]
    assert known and all(0 < kernel.dram_bytes <= kernel.work.moved_bytes for kernel in known)  # type: ignore[operator]
    assert all(kernel.dram_bytes is None for kernel in kernels_of(attributed, {}))


def test_a_run_of_an_earlier_format_keeps_its_shares_with_the_details(attributed: AttributedModule) -> None:
    shares = {str(site): share for site, share in shares_of(CALL).items()}
    earlier = replace(attributed, details=replace(attributed.details, dram_shares=shares))
    assert kernels_of(earlier, {}) == kernels_of(attributed, shares_of(CALL))


def test_a_graph_call_between_evicts_the_weights_and_dram_limits_the_kernels(attributed: AttributedModule) -> None:
    other = GraphCallTouches(1, ((1, 1 << 31),), ())  # a graph without a file
    shares = shares_of(CALL, other)
    assert max(shares.values()) > 0.6
    assert "memory" in {kernel.roof.bound for kernel in kernels_of(attributed, shares)}
    assert "memory" not in {kernel.roof.bound for kernel in kernels_of(attributed, {})}


def test_without_an_observed_step_or_a_known_cache_there_are_no_shares() -> None:
    seen = observed(CALL)
    for evidence, peaks in ((observed(), PEAKS), (seen, None), (seen, replace(PEAKS, cache_bytes=None))):
        assert compute_shares_in_step(evidence, FILES, peaks, {}) == {}


def test_eager_bytes_stand_before_the_graph_call_of_their_number() -> None:
    buffers = {"forward": describe_buffers(FILES.text("forward"), source_of(NAME))}
    step = lay_out_step(["forward"], ObservedTouches((CALL, CALL)), buffers, {1: 5, 2: 6})
    assert [getattr(item, "size", "graph") for item in step] == ["graph", 5, "graph", 6]


def test_eager_operators_evict_what_the_graphs_left_in_the_cache() -> None:
    operators = EagerOperators((0,), (EagerOperator(1, 1.0, (1 << 31,)),))
    assert fmean(shares_of(CALL, eager={7: operators}).values()) > 0.6
    for eager in ({8: operators}, {7: replace(operators, graphs=(0, 0))}, {7: replace(operators, graphs=(1,))}):
        assert fmean(shares_of(CALL, eager=eager).values()) < 0.6, "of another process or another order"


def test_a_damaged_file_of_touches_counts_as_missing(tmp_path: Path) -> None:
    (tmp_path / "7.touches.json").write_text(json.dumps(codec.encode(ObservedTouches((CALL,)))))
    (tmp_path / "8.touches.json").write_text('{"calls": [')
    assert read_touches(tmp_path) == {7: ObservedTouches((CALL,))}

"""Kernels are judged by their time in the program's step, if the step runs them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import run_builder as build
import step_runs
from quiet_runs import run_of, with_kernel

from inductor_bench.analysis.kernel_aggregation import StepUse, judge_in_step
from inductor_bench.analysis.ledger import read_own_time
from inductor_bench.analysis.roofline import find_refuted_roofs, leave_out_bounds, list_rates
from inductor_bench.analysis.step_costs import compute_alone_ratio, compute_cost
from inductor_bench.records.base import Category as C
from inductor_bench.records.batch_record import DONE, BatchModel
from inductor_bench.records.module import Kernel, LeastWork, RooflineResult, ShapeGroup
from inductor_bench.records.request import ModelRequest
from inductor_bench.records.run import Peaks, Run
from inductor_bench.store.digest import read_digest
from inductor_bench.store.folder import RunFolder

PEAKS = Peaks("made-up", 4e12, {}, cache_bytes=50_000_000, cache_bandwidth=1e13, launch_floor_s=1e-6)
READER = build.kernel("triton_red_fused_sum_0", C.REDUCTION, 2, 20e-6, moved_bytes=8e7)
"""Two calls of 40 MB: 10 µs each by themselves, out of the cache."""


def judged(kernel: Kernel) -> tuple[Run, Kernel]:
    used = kernel.step_calls is not None and kernel.step_time_s is not None
    use = StepUse(kernel.step_calls or 0.0, kernel.step_time_s or 0.0) if used else None
    roof = judge_in_step(read_own_time(kernel), use, kernel.work, kernel.shapes, kernel.dram_bytes, PEAKS)
    kernel = replace(kernel, roof=roof)
    module = replace(build.module("forward", [], 1e-3), device="cuda", kernels=(kernel,))
    program = step_runs.program(step_runs.transformer().program.parts[:1], step_s=20e-3)  # type: ignore[union-attr]
    return build.run("readers", [module], program=program), kernel


def test_rates_and_gains_are_those_of_the_calls_in_the_step() -> None:
    run, kernel = judged(replace(READER, step_calls=12.0, step_time_s=12 * 20e-6, dram_bytes=8e7))
    assert kernel.step_slowdown == pytest.approx(2) and compute_alone_ratio(run, kernel) == pytest.approx(0.5)
    assert kernel.roof.bandwidth == pytest.approx(2e12), "40 MB in 20 µs"
    assert (kernel.roof.bound, kernel.roof.peak_share) == ("memory", pytest.approx(0.5))
    cost = compute_cost(run, run.modules[0], kernel)
    assert cost.gain_limit_s == pytest.approx(12 * 10e-6) and cost.time_s == pytest.approx(12 * 20e-6)


def test_the_bytes_of_dram_in_the_step_fit_its_time_and_not_the_time_by_itself() -> None:
    """By itself the kernel reads 40 MB in 5 µs from the cache, which DRAM cannot serve; in the program it can."""
    fast = replace(READER, time_s=10e-6, dram_bytes=8e7)
    _, alone = judged(fast)
    _, inside = judged(replace(fast, step_calls=2.0, step_time_s=40e-6))
    assert (alone.roof.bound, inside.roof.bound) == ("cache", "memory")


@pytest.mark.parametrize("use", [{}, {"step_calls": 0.0, "step_time_s": 0.0}])
def test_a_kernel_that_the_step_does_not_run_is_judged_by_its_own_run(use: dict[str, float]) -> None:
    _, kernel = judged(replace(READER, **use))
    assert kernel.step_slowdown is None
    assert (kernel.roof.bandwidth, kernel.roof.gain_limit_s) == (pytest.approx(4e12), pytest.approx(12e-6))


def test_the_shapes_of_a_library_kernel_are_slower_by_the_same_ratio() -> None:
    shapes = (
        ShapeGroup("[1024,1024]", 1, 15e-6, 1.0, moved_bytes=6e7, dram_bytes=6e7),
        ShapeGroup("[512,512]", 1, 5e-6, 1.0, moved_bytes=2e7, dram_bytes=2e7),
    )
    kernel = replace(READER, category=C.EXTERN_ATEN, work=LeastWork(8e7), shapes=shapes)
    _, alone = judged(kernel)
    _, inside = judged(replace(kernel, step_calls=2.0, step_time_s=40e-6))
    assert alone.roof.gain_limit_s == 0 and alone.roof.peak_share == 1
    assert inside.roof.peak_share == pytest.approx(0.5) and inside.roof.gain_limit_s == pytest.approx(20e-6)


def test_a_batch_reads_the_same_gain_of_the_step_from_the_record(tmp_path: Path) -> None:
    run, kernel = judged(replace(READER, step_calls=12.0, step_time_s=12 * 20e-6, dram_bytes=8e7))
    RunFolder(tmp_path).save(run)
    found = read_digest(BatchModel(ModelRequest("readers", name="readers"), DONE), RunFolder(tmp_path).record)
    (row,) = found.graphs[0].kernels
    cost = compute_cost(run, run.modules[0], kernel)
    assert (row.gain_limit_s, row.time_s, row.calls) == (pytest.approx(cost.gain_limit_s), cost.time_s, cost.calls)
    assert row.peak_share == kernel.roof.peak_share


# Peaks that a kernel exceeds bound no kernel, in a run and in its batch.


CACHE = build.H200.cache_bandwidth or 0.0
BEYOND = {"bound": "cache", "peak_share": None, "gain_limit_s": 0.0, "bandwidth": 1.3 * CACHE}


def roofs(run: Run) -> frozenset[tuple[str, str]]:
    return find_refuted_roofs(list_rates(run.modules), run.peaks)


def kernels(run: Run) -> tuple[Kernel, ...]:
    return tuple(kernel for module in leave_out_bounds(run.modules, roofs(run)) for kernel in module.kernels)


def beside(run: Run, bound: str) -> Run:
    """The run with one more kernel in its first graph, at half of its roof."""
    module, *rest = run.modules
    other = replace(module.kernels[0], name="other", roof=RooflineResult(CACHE / 2, None, 0.5, bound, 1e-4))
    return replace(run, modules=(replace(module, kernels=(*module.kernels, other)), *rest))


def test_a_kernel_beyond_a_peak_takes_its_bound_from_all_kernels() -> None:
    run = beside(with_kernel(time_s=4e-3, **BEYOND), "cache")
    assert roofs(run) == {("cache", "")}
    found = kernels(run)[-1].roof
    assert (found.bound, found.peak_share, found.gain_limit_s, found.bandwidth) == ("cache", None, None, CACHE / 2)


def test_other_roofs_stay() -> None:
    run = beside(with_kernel(time_s=4e-3, **BEYOND), "memory")
    assert kernels(run)[-1] == run.modules[0].kernels[-1]


def test_a_kernel_that_takes_hardly_any_time_refutes_nothing() -> None:
    assert not roofs(with_kernel(time_s=1e-6, **BEYOND))
    assert not roofs(with_kernel(time_s=4e-3, **{**BEYOND, "bandwidth": 1.05 * CACHE}))


def test_a_run_without_peaks_has_nothing_to_refute() -> None:
    assert not roofs(replace(run_of(*with_kernel(time_s=4e-3, **BEYOND).modules), peaks=None))

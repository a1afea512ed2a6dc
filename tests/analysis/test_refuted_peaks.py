"""Peaks that a kernel exceeds bound no kernel, in a run and in its batch."""

from __future__ import annotations

from dataclasses import replace

import run_builder as build
from quiet_runs import run_of, with_kernel

from inductor_bench.analysis.roofline import find_refuted_roofs, leave_out_bounds, list_rates
from inductor_bench.records.module import Kernel, RooflineResult
from inductor_bench.records.run import Run

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

"""The real thing on a real GPU: one program with many kinds of kernels, captured once, its record held against the
harness's own text and against what is known of the program."""

from __future__ import annotations

from pathlib import Path

import pytest
from p_text import disagreements, read_p_text

from inductor_bench.analysis.step_costs import compute_cost
from inductor_bench.records.base import Category
from inductor_bench.records.module import Kernel, ModuleRecord
from inductor_bench.records.run import Run
from inductor_bench.store.folder import RunFolder

pytestmark = pytest.mark.gpu

TRITON = {
    Category.POINTWISE,
    Category.REDUCTION,
    Category.PERSISTENT_REDUCTION,
    Category.SPLIT_SCAN,
    Category.FOREACH,
    Category.COMBO,
    Category.COOPERATIVE_REDUCTION,
    Category.TEMPLATE,
    Category.USER_TRITON,
}
LIBRARY = {Category.EXTERN_GEMM, Category.EXTERN_ATTENTION, Category.EXTERN_ATEN}


@pytest.fixture(scope="module")
def run(gpu_run: Path) -> Run:
    return RunFolder(gpu_run).load()


def kernels_of(run: Run) -> list[tuple[ModuleRecord, Kernel]]:
    return [(module, kernel) for module in run.modules for kernel in module.kernels]


def test_every_graph_is_measured_and_both_channels_agree(run: Run) -> None:
    assert run.failures == ()
    assert run.capture.printed == run.capture.structured == len(run.modules) == 11
    assert run.capture.disagreement == ""
    assert {module.role for module in run.modules} == {"forward", "backward", "inference"}
    assert sum(module.dynamic for module in run.modules) == 1


def test_every_kind_of_kernel_is_named_and_none_is_other(run: Run) -> None:
    found = {kernel.category for _, kernel in kernels_of(run)}
    assert found >= TRITON | LIBRARY
    assert Category.OTHER not in found


def test_times_agree_with_the_harness_within_one_percent(run: Run, gpu_run: Path) -> None:
    alone = [module for module in run.modules if module.measurement.method == "-p"]
    assert alone
    for module in alone:
        assert module.outputs.log is not None
        report = read_p_text((gpu_run / module.outputs.log).read_text())
        assert disagreements(module, report, tolerance=0.01) == [], module.label


def test_integer_inputs_are_profiled_with_their_real_values(run: Run) -> None:
    methods = {module.label: module.measurement.method for module in run.modules}
    assert methods["Block.forward · forward"] == methods["Block.forward · backward"] == "live"
    assert "-p" in methods.values()
    assert all(module.measurement.method_reason for module in run.modules if module.measurement.method == "live")


def test_library_kernels_have_their_call_shapes_and_flops(run: Run) -> None:
    for module, kernel in kernels_of(run):
        if kernel.category in LIBRARY:
            assert kernel.operator, f"{module.label}: {kernel.name}"
            assert kernel.shapes and all(shape.shapes for shape in kernel.shapes)
        if kernel.category is Category.EXTERN_GEMM:
            assert kernel.work.flops and kernel.work.flops > 0


def test_triton_kernels_have_launch_facts_and_origins(run: Run) -> None:
    for module, kernel in kernels_of(run):
        if kernel.category in TRITON:
            where = f"{module.label}: {kernel.name}"
            assert kernel.compiled.config["num_warps"] in (1, 2, 4, 8, 16, 32), where
            assert kernel.compiled.registers and kernel.compiled.spills is not None, where
            assert kernel.launch.grid and kernel.launch.block, where
            assert kernel.kernel_id and kernel.file and kernel.line, where
    lines = [line for _, kernel in kernels_of(run) for line in kernel.origin.source_lines]
    assert any(line.file.endswith("gpu_kinds.py") and line.function == "forward" for line in lines)


def test_shares_are_shares(run: Run) -> None:
    assert run.peaks is not None and run.peaks.launch_floor_s is not None
    for module in run.modules:
        assert module.times.busy_share is not None and 0 < module.times.busy_share <= 1
        assert sum(kernel.share for kernel in module.kernels) == pytest.approx(1)
        assert sum(total.wall_share or 0 for total in module.categories) <= 1 + 1e-9
        for kernel in module.kernels:
            assert kernel.roof.peak_share is None or 0 <= kernel.roof.peak_share <= 1
            cost = compute_cost(run, module, kernel)
            assert cost.gain_limit_s is None or 0 <= cost.gain_limit_s <= cost.time_s * (1 + 1e-9)


def test_traces_are_small_and_compressed(gpu_run: Path, run: Run) -> None:
    for module in run.modules:
        assert module.outputs.trace is not None
        data = (gpu_run / module.outputs.trace).read_bytes()
        assert data[:2] == b"\x1f\x8b" and len(data) < 10_000_000

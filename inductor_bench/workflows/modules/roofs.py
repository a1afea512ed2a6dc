"""Adds measured peaks to a run, with the rates, shares of peak and gain limits that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...analysis.roofline import Judgement, Work, judge_groups
from ...devices.table import device_of
from ...records.category import Category
from ...records.run import Kernel, ModuleRecord, Peaks, Run, ShapeGroup

UNJUDGED = frozenset({Category.COLLECTIVE, Category.MEMSET})
"""Links have roofs of their own, which are not measured; what a memset writes need not reach the memory at all."""

TRANSFER = "Memcpy"
"""What the profiler calls copies that no kernel does; their engines have roofs of their own, too."""


def with_roofs(run: Run, peaks: Peaks | None) -> Run:
    """The run judged against ``peaks``; without peaks only its rates are set."""
    return replace(run, peaks=peaks, modules=tuple(_judge_module(module, peaks) for module in run.modules))


def _judge_module(module: ModuleRecord, peaks: Peaks | None) -> ModuleRecord:
    fits = peaks is not None and (peaks.launch_floor_s is not None) == device_of(module.device).has_launch_floor
    in_tf32 = _categories_in_tf32(module)
    kernels = tuple(_judge_kernel(kernel, peaks if fits else None, in_tf32) for kernel in module.kernels)
    return replace(module, kernels=kernels)


def _categories_in_tf32(module: ModuleRecord) -> frozenset[Category]:
    """The categories whose float32 products may use TF32, by torch's switches or by a kernel that did."""
    proven = (kernel.category for kernel in module.kernels if kernel.dtype == "tf32")
    return frozenset(Category if module.tf32 and device_of(module.device).has_tf32 else proven)


def _judge_kernel(kernel: Kernel, peaks: Peaks | None, in_tf32: frozenset[Category]) -> Kernel:
    if kernel.flops and kernel.dtype == "float32" and kernel.category in in_tf32:
        kernel = replace(kernel, dtype="tf32")
    unjudged = kernel.category in UNJUDGED or kernel.name.startswith(TRANSFER) or kernel.unjudged
    found: Judgement = judge_groups(_works(kernel), None if unjudged else peaks)
    return replace(
        kernel,
        bandwidth=found.bandwidth,
        flop_rate=found.flop_rate,
        peak_share=found.peak_share,
        bound=found.bound,
        gain_limit_s=found.gain_limit_s,
    )


def _works(kernel: Kernel) -> Sequence[Work]:
    if not kernel.shapes:
        return [_work(kernel, kernel.calls, kernel.dtype)]
    # A kernel is judged as its part of an operator call; kernels of one part share its bytes and FLOPs.
    return [_work(group, group.operator_calls, kernel.dtype) for group in kernel.shapes]


def _work(measured: Kernel | ShapeGroup, calls: float, dtype: str | None) -> Work:
    moved, dram = measured.moved_bytes, measured.dram_bytes
    cached = max(0.0, moved - dram) if moved is not None and dram is not None else None
    return Work(measured.time_s, calls, moved, measured.flops, dtype, dram_bytes=dram, cache_bytes=cached)

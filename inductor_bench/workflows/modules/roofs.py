"""Adds measured peaks to a run, with the rates, shares of peak and gain limits that follow from them.

A kernel that the program's step runs is judged by the time of its calls there, as its bytes of DRAM are those of the
step; else by their time in the module's own run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...analysis.roofline import TimedWork, judge_groups
from ...devices.table import device_of
from ...records.category import Category
from ...records.kernel import Kernel, Work
from ...records.module import ModuleRecord
from ...records.run import Peaks, Run

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
    proven = (kernel.category for kernel in module.kernels if kernel.work.dtype == "tf32")
    return frozenset(Category if module.tf32 and device_of(module.device).has_tf32 else proven)


def _judge_kernel(kernel: Kernel, peaks: Peaks | None, in_tf32: frozenset[Category]) -> Kernel:
    if kernel.work.flops and kernel.work.dtype == "float32" and kernel.category in in_tf32:
        kernel = replace(kernel, work=replace(kernel.work, dtype="tf32"))
    unjudged = kernel.category in UNJUDGED or kernel.name.startswith(TRANSFER) or kernel.unjudged
    return replace(kernel, roof=judge_groups(_works(kernel), None if unjudged else peaks))


def _works(kernel: Kernel) -> Sequence[TimedWork]:
    slowdown = kernel.step_slowdown or 1.0
    if not kernel.shapes:
        return [_timed(kernel.time_s * slowdown, kernel.calls, kernel.work, kernel.dram_bytes)]
    # A kernel is judged as its part of an operator call; kernels of one part share its bytes and FLOPs.
    dtype = kernel.work.dtype
    return [
        _timed(
            group.time_s * slowdown, group.operator_calls, Work(group.moved_bytes, group.flops, dtype), group.dram_bytes
        )
        for group in kernel.shapes
    ]


def _timed(time_s: float, calls: float, work: Work, dram_bytes: float | None) -> TimedWork:
    known = work.moved_bytes is not None and dram_bytes is not None
    cached = max(0.0, (work.moved_bytes or 0.0) - (dram_bytes or 0.0)) if known else None
    return TimedWork(time_s, calls, work, dram_bytes=dram_bytes, cache_bytes=cached)

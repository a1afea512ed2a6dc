"""Runs in which a group of kernels tells what no single one does: products, attention, a float32 island."""

from __future__ import annotations

from dataclasses import replace

import run_builder as build
import step_runs

from inductor_bench.records.base import Category
from inductor_bench.records.code import SourceLine
from inductor_bench.records.module import Kernel, ShapeGroup
from inductor_bench.records.run import EAGER, GRAPH, Part, Run

PEAK = build.H200.matmul_flops["bfloat16"]
_SHORT = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "tf32": "f32"}


def product(
    rows: int, inner: int, columns: int, share: float, *, name: str = "", batch: int = 0, dtype: str = "bfloat16"
) -> Kernel:
    """A kernel of one product at a share of its peak. ``batch`` is 0 for two matrices."""
    short, before = _SHORT[dtype], f"{batch}," if batch else ""
    shapes = f"{short}[{before}{rows},{inner}] {short}[{before}{inner},{columns}] {short}[{before}{rows},{columns}]"
    flops = 2.0 * max(1, batch) * rows * inner * columns
    time_s = flops / (share * build.H200.matmul_flops[dtype])
    return build.kernel(
        name or f"nvjet_sm90_{batch}_{rows}_{inner}_{columns}_{dtype}",
        Category.EXTERN_GEMM,
        1,
        time_s,
        flops=flops,
        dtype=dtype,
        operator="aten.bmm" if batch else "aten.mm",
        shapes=(ShapeGroup(shapes, 1, time_s, 1.0, flops),),
    )


def softmax(
    time_s: float = 0.4e-3,
    code: str = "probabilities = scores.softmax(-1)",
    aten_ops: tuple[str, ...] = ("aten._softmax",),
) -> Kernel:
    """A generated kernel of a softmax."""
    line = SourceLine("/home/user/project/attention.py", 31, "forward", code)
    return build.kernel(
        "triton_per_fused__softmax_2",
        Category.PERSISTENT_REDUCTION,
        1,
        time_s,
        moved_bytes=1e9,
        aten_ops=aten_ops,
        source_lines=(line,),
    )


def run_with(*kernels: Kernel, label: str = "forward", parts: tuple[Part, ...] = (), more_s: float = 0.0) -> Run:
    """A step of one graph, a backward or a forward one, of these kernels, and other parts."""
    module = build.module(label, list(kernels), sum(one.time_s for one in kernels) * 1.01, build.H200)
    whole_s = sum(one.time_s for one in kernels)
    graph = Part(GRAPH, label, 1, whole_s, 0, whole_s, 0, len(kernels), label)
    step_s = whole_s + sum(part.time_s for part in parts) + more_s
    program = step_runs.program([graph, *parts], step_s=step_s)
    return step_runs.of_step(
        build.run("p", [step_runs.in_step(module, 1)], peaks=build.H200, program=replace(program, other_steps=()))
    )


def unaligned(share: float = 0.35, name: str = "", aligned: float = 0.88) -> Run:
    """A feed-forward layer of a width of 2730 = 8 * 1024 / 3, beside aligned products."""
    slow = product(8192, 2730, 1024, share, name=name)
    return run_with(slow, product(8192, 1024, 3072, aligned), product(8192, 1024, 1024, aligned))


def small_batch(rows: int = 4, label: str = "backward") -> Run:
    """A layer with few rows."""
    return run_with(product(rows, 4096, 4096, 0.01), product(4096, 4096, 4096, 0.9), label=label)


def float32_loss(dtype: str = "float32") -> Run:
    """A model in bfloat16 whose loss is computed in float32 outside of the graph."""
    loss = Part(EAGER, "aten::cross_entropy_loss", 1, 0.2e-3, 0, 0.2e-3, 0, 4, source=step_runs.line(41), dtype=dtype)
    return run_with(product(8192, 4096, 4096, 0.8), parts=(loss,))


def slow_attention(share: float = 0.17, shapes: str = "bf16[2,8,4096,16] bf16[2,8,4096,16] bf16[2,8,4096,16]") -> Run:
    """Attention with heads of 16 by cuDNN."""
    flops = 4.0 * 2 * 8 * 4096 * 4096 * 16
    time_s = flops / (share * PEAK)
    attention = build.kernel(
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16",
        Category.EXTERN_ATTENTION,
        1,
        time_s,
        flops=flops,
        dtype="bfloat16",
        operator="aten._scaled_dot_product_cudnn_attention",
        shapes=(ShapeGroup(shapes, 1, time_s, 1.0, flops),),
    )
    return run_with(attention, product(8192, 1024, 1024, 0.88))


def decomposed(code: str = "probabilities = scores.softmax(-1)", *more_ops: str) -> Run:
    """Attention of twelve heads as two products in TF32 and a softmax."""
    scores = product(512, 64, 512, 0.4, batch=96, dtype="tf32")
    values = product(512, 512, 64, 0.4, batch=96, dtype="tf32")
    return run_with(
        scores, softmax(code=code, aten_ops=("aten._softmax", *more_ops)), values, product(4096, 768, 3072, 0.8)
    )

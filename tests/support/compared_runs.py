"""Makes pairs of runs by hand: a program's run, and the same with one thing changed, whose step changes by as much."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import run_builder as build
import step_runs as steps
from inline import change

from inductor_bench.records.base import Category as C
from inductor_bench.records.code import SourceLine
from inductor_bench.records.module import Kernel, ModuleRecord, ShapeGroup
from inductor_bench.records.run import COPY, EAGER, GRAPH, IDLE, LAUNCHING, OPTIMIZER, SYNCHRONISING, Part, Run

CONFIG = {"XBLOCK": 512, "num_warps": 4}
OTHER_CONFIG = {"XBLOCK": 1024, "num_warps": 8}
Rows = list[Kernel]


def triton(name: str, time_s: float, nodes: tuple[str, ...], **fields: object) -> Kernel:
    """A generated kernel of one call; ``nodes`` are those of the graph, which give its operators."""
    values: dict[str, object] = {
        "line": 7,
        "source_nodes": nodes,
        "aten_ops": tuple(f"aten.{node.rstrip('_0123456789')}" for node in nodes),
        "source_lines": (SourceLine("/home/user/model.py", 7 + len(nodes), "forward", ""),),
        "config": CONFIG,
        "samples_s": tuple(time_s * (1 + 0.001 * (i % 3 - 1)) for i in range(12)),
        "file": f"kernels/{name}.py",
        "family_id": f"family of {name}",
        **fields,
    }
    return build.kernel(name, C.POINTWISE, 1, time_s, **values)


def library(name: str, operator: str, time_s: float, calls: float = 2, **fields: object) -> Kernel:
    """A library's kernel of one operator."""
    values: dict[str, object] = {
        "operator": operator,
        "aten_ops": (operator,),
        "dtype": "float32",
        "flops": 1e9,
        "shapes": (ShapeGroup("f32[512,512] f32[512,512]", calls, time_s),),
        "samples_s": tuple(time_s * (1 + 0.001 * (i % 3 - 1)) for i in range(12)),
        **fields,
    }
    return build.kernel(name, C.EXTERN_GEMM, calls, time_s, **values)


def kernels() -> Rows:
    return [
        library("nvjet_sm90_tst_64x8", "aten.mm", 2.0e-3),
        triton("triton_red_fused_layer_norm_0", 0.8e-3, ("layer_norm", "mean", "var")),
        triton("triton_poi_fused_gelu_mul_sigmoid_tanh_1", 1.2e-3, ("gelu", "mul", "sigmoid", "tanh")),
        triton("triton_poi_fused_relu_2", 0.5e-3, ("relu",)),
    ]


def parts() -> list[Part]:
    return [
        Part(OPTIMIZER, "AdamW", 1, 1.0e-3, 0, 1.0e-3, 0, 20),
        Part(EAGER, "aten::embedding", 1, 0.4e-3, 0, 0.4e-3, 0, 2, source=steps.line(23)),
        Part(EAGER, "other eager operators", 6, 0.02e-3, 0, 0.02e-3, 0, 6),
        Part(COPY, "host to device", 1, 0.2e-3, 0, 0.2e-3, 0, 1),
        Part(IDLE, LAUNCHING, 10, 0.3e-3, 0),
        Part(IDLE, SYNCHRONISING, 1, 0.1e-3, 0, source=steps.line(40)),
    ]


def run(rows: Rows | None = None, others: list[Part] | None = None, *, longer: float = 1.0, **fields: object) -> Run:
    """A run whose step is its kernels, its other parts and 50 µs of the graph outside of them.

    Args:
        rows: the kernels of the graph ``forward``.
        others: the other parts.
        longer: the factor of all times.
        fields: of the run.
    """
    scaled = [
        replace(row, time_s=row.time_s * longer, samples_s=tuple(sample * longer for sample in row.samples_s))
        for row in rows or kernels()
    ]
    found = [replace(part, time_s=part.time_s * longer) for part in (parts() if others is None else others)]
    products = {name: bool(fields.pop(name, False)) for name in ("tf32", "bf16")}
    module = build.module("forward", scaled, 6e-3, build.H200, slug="forward", **products)
    graph_s = sum(row.time_s for row in scaled) + 50e-6 * longer
    found.append(Part(GRAPH, "forward", 1, graph_s, 0, graph_s, 0, 8, "forward"))
    step_s = sum(part.time_s for part in found)
    program = steps.program(found, step_s=step_s)
    return steps.of_step(build.run("train", [steps.in_step(module, 1)], peaks=build.H200, program=program, **fields))


def changed(name: str, **fields: object) -> Rows:
    """The kernels, of which one has other fields."""
    return [change(row, **fields) if row.name == name else row for row in kernels()]


def replaced(name: str, *others: Kernel) -> Rows:
    """The kernels, of which one is replaced by others."""
    return [other for row in kernels() for other in (others if row.name == name else (row,))]


def without_step(one: Run) -> Run:
    """The run as one in which no step was found."""
    return replace(one, program=None)


def each_module(one: Run, edit: Callable[[ModuleRecord], ModuleRecord]) -> Run:
    return replace(one, modules=tuple(map(edit, one.modules)))

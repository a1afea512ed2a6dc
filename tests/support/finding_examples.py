"""A run for each kind of finding, from which ``docs/findings.md`` takes its example."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import kernel_groups as groups
import run_builder as build
import step_runs
from inline import change
from quiet_runs import quiet, run_of, with_kernel

from inductor_bench.records.base import Category
from inductor_bench.records.code import CompiledFunction, CompilePhase, MachineLoad
from inductor_bench.records.module import ModuleRecord
from inductor_bench.records.run import (
    ALLOCATING,
    COLLECTING,
    COLLECTIVE,
    COPY,
    CPU_OPERATORS,
    EAGER,
    FOR_LOCK,
    GRAPH,
    GUARDS,
    IDLE,
    LAUNCHING,
    PYTHON,
    QUEUED,
    Capture,
    Part,
    Run,
    StepKind,
)
from inductor_bench.worker.capture.boundaries import LongerLoop
from inductor_bench.worker.capture.step_measurement import around
from inductor_bench.workflows.single_run import NO_PATTERN

PHASES = (CompilePhase("compilers of kernels", 8.5), CompilePhase("Dynamo", 5.0), CompilePhase("AOTAutograd", 0.5))


def _program(run: Run, **fields: object) -> Run:
    assert run.program is not None
    return replace(run, program=replace(run.program, **fields))  # type: ignore[arg-type]


def _transformer(**fields: object) -> Run:
    return _program(step_runs.transformer(), **fields)


def _parts(*parts: Part) -> Run:
    program = step_runs.program(list(parts), step_s=10e-3)
    return replace(build.run("p", [], peaks=build.H200), program=program)


def _refused() -> Run:
    run = step_runs.host_paced()
    assert run.program is not None
    reason = "skipping cudagraphs due to mutated inputs (2 instances)"
    parts = tuple(replace(part, refusal=reason if part.kind == GRAPH else "") for part in run.program.parts)
    return _program(run, parts=parts)


def _untied() -> Run:
    run = step_runs.transformer()
    assert run.program is not None
    return _program(run, ranks=(replace(run.program.ranks[0], tied_share=0.97),))


def _shorter_calls() -> Run:
    run = step_runs.host_paced()
    modules = tuple(step_runs.in_step(module, 1, 0.5) for module in run.modules)
    return step_runs.of_step(replace(run, modules=modules))


def _compiled(**fields: object) -> Run:
    return replace(_transformer(**fields), capture=Capture(compile_phases=PHASES))


def _slow_guards() -> Run:
    run = _parts(
        Part(GRAPH, "UNet.forward", 1, 8e-3, 0, 8e-3, 0, 400, "unet-forward"), Part(IDLE, GUARDS, 1, 0.6e-3, 0)
    )
    return replace(
        run, capture=Capture(functions=(CompiledFunction("/home/user/project/unet.py:88 forward", 0, 4183),))
    )


def _captured(**fields: object) -> Run:
    return run_of(quiet(), capture=Capture(1, 1, **fields))  # type: ignore[arg-type]


def _short() -> Run:
    module: ModuleRecord = quiet()
    kernels = [build.kernel(f"triton_poi_fused_add_{i}", Category.POINTWISE, 24, 72e-6) for i in range(5)]
    return run_of(change(module, kernels=tuple(kernels), wall_time_s=0.4e-3, busy_time_s=0.36e-3))


def _one_thread() -> Run:
    return run_of(replace(build.cpu().modules[1], threads=1), environment=build.GPU)


def _busy_machine() -> Run:
    cpu = build.cpu()
    load = MachineLoad(20, 2, 4.1, 0.2, 0.1, 0.12, 0.0, 40)
    return replace(cpu, modules=tuple(change(module, wall_load=load) for module in cpu.modules))


def _busy_step() -> Run:
    cpu, load = step_runs.cpu(), MachineLoad(20, 2, 6.0, 0.2, 0.1, 0.9, 0.0, 40)
    return replace(cpu, modules=tuple(change(module, wall_load=load) for module in cpu.modules))


def _longer_profile() -> Run:
    run = step_runs.cpu()
    assert run.program is not None
    ranks = tuple(replace(rank, profiled_step_time_s=1.39 * rank.step_time_s) for rank in run.program.ranks)
    return _program(run, ranks=ranks)


def _slow_peaks() -> Run:
    assert build.H200.cache_bandwidth
    kernel = {"bound": "cache", "peak_share": None, "bandwidth": 1.71 * build.H200.cache_bandwidth}
    return with_kernel(time_s=4e-3, **kernel)


_CONVOLUTION = {"category": Category.EXTERN_CONV, "bound": "cache", "peak_share": 0.01, "gain_limit_s": 0.99e-3}
_ADDEND = {"category": Category.COPY, "name": "Memcpy DtoD (Device -> Device)", "operator": "aten.addmm", "calls": 12}
_SIZES = "/home/user/project/train.py:3 f: tensor 'x' size mismatch at index 0. expected 8, actual 16"
PAGEABLE = Part(COPY, "host to device", 2, 1.2e-3, 0, 1.5e-3, 0, 2, source=step_runs.line(30), pageable_s=1.5e-3)
"""A part of a step that copies its batch from pageable memory."""

_LIMITED = CompiledFunction("/home/user/project/train.py:3 f", 8, reached_limit=True)

GRADIENT_COPIES = (
    Part(EAGER, "AccumulateGrad", 149, 0.6e-3, 0),
    Part(COPY, "device to device", 149, 0.5e-3, 0),
    Part(COLLECTIVE, "AllReduce", 14, 2e-3, 0, 3e-3),
)
"""The parts of a DDP training that copies its gradients out of the buckets."""

ANOMALIES = (
    Part(GRAPH, "backward", 1, 8e-3, 0, 8e-3, 0, 60, "backward"),
    Part(EAGER, "aten::_is_any_true", 24, 0.4e-3, 0),
    Part(EAGER, "aten::isnan", 24, 0.3e-3, 0),
)
"""The parts of a program under autograd's anomaly detection."""

PACED = (
    Part(GRAPH, "encode", 2, 4e-3, 0, 4e-3, 0, 60, "encode"),
    Part(GRAPH, "decode", 1, 4e-3, 0, 4e-3, 0, 40, "decode"),
    Part(IDLE, LAUNCHING, 3, 1.6e-3, 0),
    Part(IDLE, GUARDS, 3, 0.4e-3, 0),
)
"""The parts of a program that launches two graphs kernel by kernel."""

SMALL_GRAPHS = (
    Part(GRAPH, "Block.forward", 24, 2.4e-3, 0, 2.4e-3, 0, 96, "block-forward"),
    Part(IDLE, GUARDS, 24, 0.7e-3, 0),
)
"""The parts of a program that compiles its blocks one by one."""


def _idle(label: str, function: str, line: int) -> Run:
    """A run whose host does one thing for 1 of 10 ms."""
    return _parts(Part(IDLE, label, 0, 1e-3, 0, source=step_runs.line(line), function=function))


EXAMPLES: dict[str, Callable[[], Run]] = {
    "cpu-operators": lambda: _idle(CPU_OPERATORS, "torch.cumsum", 31),
    "host-waits": lambda: _idle(FOR_LOCK, "Condition.wait", 52),
    "garbage-collection": lambda: _idle(COLLECTING, "collate", 28),
    "host-python": lambda: _idle(PYTHON, "update_averages", 61),
    "host-pace": lambda: _parts(*PACED),
    "synchronisations": step_runs.transformer,
    "data-loading": step_runs.host_paced,
    "allocations": lambda: _parts(Part(IDLE, ALLOCATING, 1, 1e-3, 0)),
    "small-graphs": lambda: _parts(*SMALL_GRAPHS),
    "slow-guards": _slow_guards,
    "kernel-gaps": lambda: _parts(Part(GRAPH, "g", 1, 8e-3, 0, 8e-3, 0, 1000), Part(IDLE, QUEUED, 90, 2e-3, 0)),
    "cuda-graphs-unused": step_runs.host_paced,
    "cuda-graphs-refused": _refused,
    "cuda-graphs-in-use": step_runs.decode,
    "replay-inputs": step_runs.decode,
    "eager-optimizer": step_runs.transformer,
    "eager-operators": step_runs.transformer,
    "anomaly-mode": lambda: _parts(*ANOMALIES),
    "collectives": step_runs.distributed,
    "gradient-copies": lambda: _parts(*GRADIENT_COPIES),
    "uneven-ranks": step_runs.distributed,
    "unsteady-steps": lambda: _transformer(step_times_s=(28e-3, 35e-3) * 10),
    "other-steps": lambda: _transformer(other_steps=(StepKind(3, 81e-3),)),
    "busy-step": _busy_step,
    "shared-gpu": step_runs.shared,
    "few-steps": lambda: _transformer(step_times_s=(30e-3, 31e-3)),
    "longer-profile": _longer_profile,
    "untied": _untied,
    "longer-loop": lambda: _transformer(notes=around(LongerLoop(59, 12, 12))),
    "step-note": lambda: _transformer(notes=(NO_PATTERN,)),
    "alone-less": step_runs.decode,
    "alone-more": _shorter_calls,
    "against-eager": lambda: _compiled(eager_step_time_s=0.054),
    "compile-time": _compiled,
    "first-step": step_runs.transformer,
    "launch-bound": build.densenet,
    "host-bound": lambda: run_of(quiet(busy_share=0.2, launches=5.0)),
    "cuda-graph": lambda: run_of(quiet(graph_time_s=4.8e-3)),
    "gaps": lambda: run_of(quiet(busy_share=0.8)),
    "host-share": build.cpu,
    "below-memory-limit": build.mixnet,
    "below-compute-limit": lambda: with_kernel(bound="compute", peak_share=0.4, gain_limit_s=0.6e-3),
    "few-blocks": lambda: with_kernel(grid=(16, 2, 1)),
    "layout-copies": build.mixnet,
    "library-below-limit": lambda: with_kernel(**_CONVOLUTION),
    "hotspot": lambda: with_kernel(category=Category.EXTERN_ATEN, operator="aten.sort", time_s=2e-3),
    "attention-below-limit": groups.slow_attention,
    "decomposed-attention": groups.decomposed,
    "unaligned-products": groups.unaligned,
    "small-products": groups.small_batch,
    "float32-island": groups.float32_loss,
    "pageable-copies": lambda: _parts(PAGEABLE),
    "host-copies": lambda: with_kernel(category=Category.COPY, name="Memcpy DtoH (Device -> Pinned)"),
    "copies": lambda: with_kernel(**{**_ADDEND, "operator": "aten.copy_"}),
    "copied-addends": lambda: with_kernel(**_ADDEND),
    "padded-products": lambda: with_kernel(padded_sides=((50257, 50264),)),
    "full-float32": lambda: with_kernel(category=Category.EXTERN_GEMM, name="ampere_sgemm_128x64_nn"),
    "short-kernels": _short,
    "spills": lambda: with_kernel(spills=64),
    "other": lambda: with_kernel(category=Category.OTHER),
    "unsteady-kernels": lambda: with_kernel(samples_s=(1e-3, 2e-3, 1e-3, 2e-3, 1e-3)),
    "graph-breaks": build.cpu,
    "recompiles": lambda: _captured(recompiles=(_SIZES,) * 3),
    "recompile-limit": lambda: _captured(recompiles=(_SIZES,) * 8, functions=(_LIMITED,)),
    "capture": lambda: run_of(quiet(), capture=Capture(1, 2, "1 printed, 2 in the trace")),
    "threads": _one_thread,
    "no-peaks": build.without_peaks,
    "beyond-peaks": _slow_peaks,
    "noise": lambda: run_of(quiet(wall_samples_s=(5e-3, 6e-3) * 5)),
    "busy-over-wall": lambda: run_of(quiet(busy_time_s=5.4e-3)),
    "outliers": lambda: run_of(quiet(steady_iterations=tuple(range(7)))),
    "few-samples": lambda: run_of(quiet(wall_samples_s=(5e-3, 5e-3))),
    "profiler-overhead": lambda: run_of(quiet(profiled_time_s=7.9e-3)),
    "method": lambda: run_of(quiet(method="live", method_reason="it is frozen")),
    "note": lambda: run_of(quiet(notes=("the trace is truncated; only complete events are counted",))),
    "fine": lambda: run_of(quiet()),
}
"""The runs by the kind that one of their findings has."""

FIRST_LINES: dict[str, Callable[[], Run]] = {
    "step": step_runs.transformer,
    "parts": build.mixnet,
    "busy-machine": _busy_machine,
}
"""The runs by the kind of their first line."""

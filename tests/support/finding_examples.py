"""A run for each kind of finding, from which ``docs/findings.md`` takes its example, and the thresholds of its rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import kernel_groups as groups
import run_builder as build
import step_runs
from inline import change
from quiet_runs import quiet, run_of, with_kernel

from inductor_bench.analysis import roofline
from inductor_bench.analysis import statistics as levels
from inductor_bench.analysis.findings import (
    compile_findings,
    doubts,
    finding,
    kernel_findings,
    product_findings,
    program_findings,
    step_findings,
)
from inductor_bench.analysis.step_costs import EQUAL_STEPS, FAR_OFF, SLOWED
from inductor_bench.records import evidence
from inductor_bench.records.base import Category
from inductor_bench.records.code import CompiledFunction, CompilePhase, MachineLoad
from inductor_bench.records.module import ModuleRecord
from inductor_bench.records.request import BreakdownRequest
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
    OPTIMIZER,
    PYTHON,
    QUEUED,
    Capture,
    Part,
    Run,
    StepKind,
)
from inductor_bench.worker.capture.boundaries import LongerLoop
from inductor_bench.worker.capture.step_measurement import describe_longer_loop
from inductor_bench.workflows.single_run import NO_PATTERN


class Example(NamedTuple):
    """What is checked of a kind of finding; its sentence is that of ``docs/findings.md``."""

    run: Callable[[], Run]  # a run that has it
    gain_s: float = 0.0  # what acting on it gains of this run at most, in seconds
    says: tuple[str, ...] = ()  # what its section has to say, made from the thresholds of its rule
    without: tuple[Callable[[], Run], ...] = ()  # runs that are nearly the same and do not have it


def share(value: float) -> str:
    """A threshold as the page writes it: ``70%``, ``0.05%``."""
    return f"{100 * value:g}%"


def microseconds(value: float) -> str:
    return f"{1e6 * value:g} µs"


LEAST, LEAST_GAIN = share(finding.LEAST_SHARE), share(finding.LEAST_GAIN)
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


def _serves(*parts: Part, backward_calls: int = 0) -> Run:
    """A service whose graph was compiled for training; ``backward_calls`` is the number of calls of its backward."""
    run = step_runs.host_paced()
    forward, backward = (change(run.modules[0], label=role, slug=role, role=role) for role in ("forward", "backward"))
    called = Part(GRAPH, "forward", 1, 2e-3, 0, 2e-3, 0, 12, "forward")
    program = step_runs.program([called, *parts], step_s=4e-3)
    modules = (change(forward, program_calls=900), change(backward, program_calls=backward_calls))
    return replace(run, modules=modules, program=program)


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

_GATHERED = Part(EAGER, "AccumulateGrad", 149, 0.6e-3, 0)
_COPIES = Part(COPY, "device to device", 149, 0.5e-3, 0)
_REDUCED = Part(COLLECTIVE, "AllReduce", 14, 2e-3, 0, 3e-3)  # a DDP training that copies its gradients out of buckets

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


EXAMPLES: dict[str, Example] = {
    "cpu-operators": Example(
        lambda: _idle(CPU_OPERATORS, "torch.cumsum", 31),
        gain_s=0.001,
        says=(LEAST, share(step_findings.UNSURE_SHARE), f"{SLOWED:g} times"),
    ),
    "host-waits": Example(lambda: _idle(FOR_LOCK, "Condition.wait", 52), gain_s=0.001, says=(LEAST,)),
    "garbage-collection": Example(lambda: _idle(COLLECTING, "collate", 28), gain_s=0.001, says=(LEAST,)),
    "host-python": Example(
        lambda: _idle(PYTHON, "update_averages", 61), gain_s=0.001, says=(share(step_findings.PYTHON_SHARE),)
    ),
    "host-pace": Example(lambda: _parts(*PACED), gain_s=0.002, says=(LEAST,)),
    "synchronisations": Example(step_runs.transformer, gain_s=0.0004, says=(LEAST,)),
    "data-loading": Example(
        step_runs.host_paced, gain_s=0.0011, says=(LEAST, share(step_findings.UNSURE_SHARE), f"{SLOWED:g} times")
    ),
    "allocations": Example(lambda: _parts(Part(IDLE, ALLOCATING, 1, 1e-3, 0)), gain_s=0.001, says=(LEAST,)),
    "small-graphs": Example(
        lambda: _parts(*SMALL_GRAPHS),
        gain_s=0.0007,
        says=(f"{program_findings.MANY_CALLS} times", microseconds(program_findings.SHORT_CALL_S), LEAST),
    ),
    "slow-guards": Example(
        _slow_guards, gain_s=0.0006, says=(share(compile_findings.GUARDS_SHARE), f"{SLOWED:g} times")
    ),
    "kernel-gaps": Example(
        lambda: _parts(Part(GRAPH, "g", 1, 8e-3, 0, 8e-3, 0, 1000), Part(IDLE, QUEUED, 90, 2e-3, 0)),
        gain_s=0.002,
        says=(share(program_findings.GAPS), microseconds(program_findings.LONGEST_GAP_S)),
    ),
    "cuda-graphs-unused": Example(step_runs.host_paced, gain_s=0.0048, says=(LEAST, share(finding.GRAPH_GAIN))),
    "cuda-graphs-refused": Example(_refused, gain_s=0.0016),
    "cuda-graphs-in-use": Example(step_runs.decode),
    "replay-inputs": Example(step_runs.decode, gain_s=2e-05, says=(LEAST,)),
    "eager-optimizer": Example(step_runs.transformer, gain_s=0.0051, says=(share(compile_findings.WORTH_COMPILING),)),
    "eager-operators": Example(step_runs.transformer, gain_s=0.003, says=(share(compile_findings.WORTH_COMPILING),)),
    "unused-gradients": Example(
        _serves,
        without=(
            lambda: _serves(backward_calls=900),
            lambda: _serves(Part(OPTIMIZER, "AdamW", 1, 1e-3, 0)),
            lambda: _serves(Part(EAGER, "AddmmBackward0", 1, 1e-4, 0)),
        ),
    ),
    "anomaly-mode": Example(lambda: _parts(*ANOMALIES), gain_s=0.0007),
    "collectives": Example(step_runs.distributed, gain_s=0.0014, says=(LEAST, share(step_findings.EXPOSED))),
    "gradient-copies": Example(
        lambda: _parts(_GATHERED, _COPIES, _REDUCED),
        gain_s=0.0005,
        without=(
            lambda: _parts(_GATHERED, _COPIES),
            lambda: _parts(_GATHERED, replace(_COPIES, calls=140), _REDUCED),
            lambda: _parts(_GATHERED, replace(_COPIES, label="host to device"), _REDUCED),
            lambda: _parts(_GATHERED, replace(_COPIES, time_s=0.05e-3), _REDUCED),
            lambda: _parts(_COPIES, _REDUCED),
            lambda: _parts(_GATHERED, _COPIES, replace(_REDUCED, label="AllGather")),
        ),
    ),
    "uneven-ranks": Example(step_runs.distributed, says=(share(step_findings.UNEVEN),)),
    "unsteady-steps": Example(
        lambda: _transformer(step_times_s=(28e-3, 35e-3) * 10),
        says=(
            share(levels.LEAST_CHANGE),
            share(levels.APART),
            share(evidence.DIFFERENT_TIMES),
            f"2 to {step_findings.MOST_NAMED_KINDS} kinds",
            share(step_findings.DRIFT),
            share(step_findings.SPREAD),
        ),
    ),
    "other-steps": Example(lambda: _transformer(other_steps=(StepKind(3, 81e-3),)), says=(share(step_findings.OFTEN),)),
    "busy-step": Example(_busy_step, says=(share(doubts.DELAYED),)),
    "shared-gpu": Example(step_runs.shared, says=(share(evidence.OTHERS_BUSY), share(roofline.UNNAMED_BUSY))),
    "few-steps": Example(
        lambda: _transformer(step_times_s=(30e-3, 31e-3)), says=(f"Fewer than {step_findings.FEW_STEPS} steps",)
    ),
    "longer-profile": Example(_longer_profile, says=(f"{step_findings.LONGER_PROFILE:g} times",)),
    "untied": Example(_untied, says=(share(step_findings.UNTIED),)),
    "longer-loop": Example(lambda: _transformer(notes=describe_longer_loop(LongerLoop(59, 12, 12)))),
    "step-note": Example(lambda: _transformer(notes=(NO_PATTERN,))),
    "alone-less": Example(step_runs.decode, says=(share(FAR_OFF), LEAST)),
    "alone-more": Example(_shorter_calls, says=(share(FAR_OFF), LEAST)),
    "against-eager": Example(lambda: _compiled(eager_step_time_s=0.054), says=(share(EQUAL_STEPS),)),
    "compile-time": Example(
        _compiled, says=(f"{program_findings.LEAST_COMPILATION_S:g} second", share(program_findings.LEAST_PHASE))
    ),
    "first-step": Example(step_runs.transformer, says=(f"{step_findings.COLD:g} times",)),
    "launch-bound": Example(
        build.densenet,
        gain_s=0.0027,
        says=(
            share(finding.LAUNCH_BOUND),
            microseconds(finding.LONG_WAIT_S),
            f"at least {compile_findings.STORM} times",
        ),
    ),
    "host-bound": Example(
        lambda: run_of(quiet(busy_share=0.2, launches=5.0)),
        gain_s=0.00408,
        says=(share(finding.LAUNCH_BOUND), microseconds(finding.LONG_WAIT_S)),
    ),
    "cuda-graph": Example(
        lambda: run_of(quiet(graph_time_s=4.8e-3)),
        gain_s=0.0003,
        says=(share(finding.LAUNCH_BOUND), share(finding.GRAPH_GAIN), LEAST),
        without=(
            lambda: run_of(quiet(graph_time_s=5.08e-3)),
            lambda: run_of(quiet(graph_time_s=4.8e-3), request=BreakdownRequest("x", "timm", mode="reduce-overhead")),
        ),
    ),
    "gaps": Example(lambda: run_of(quiet(busy_share=0.8)), gain_s=0.00102, says=(share(finding.GAPS), LEAST)),
    "host-share": Example(build.cpu, gain_s=0.001835, says=(share(finding.HOST_SHARE),)),
    "below-memory-limit": Example(
        build.mixnet, gain_s=0.002007, says=(share(finding.FAR_FROM_ROOF), LEAST, LEAST_GAIN)
    ),
    "below-compute-limit": Example(
        lambda: with_kernel(bound="compute", peak_share=0.4, gain_limit_s=0.6e-3), gain_s=0.0006
    ),
    "few-blocks": Example(
        lambda: with_kernel(grid=(16, 2, 1)),
        gain_s=0.0007576,
        says=(share(kernel_findings.NARROW), microseconds(finding.SHORT_S), LEAST),
        without=(
            lambda: with_kernel(grid=(128, 1, 1)),
            lambda: with_kernel(grid=(16, 1, 1), category=Category.EXTERN_GEMM),
        ),
    ),
    "layout-copies": Example(build.mixnet, gain_s=0.009091, says=(LEAST,)),
    "library-below-limit": Example(
        lambda: with_kernel(**_CONVOLUTION),
        gain_s=0.00099,
        says=(
            share(finding.FAR_FROM_ROOF / 2),
            LEAST_GAIN,
            share(2 * finding.LEAST_SHARE),
            share(kernel_findings.SHARE_UNTUNED),
        ),
    ),
    "hotspot": Example(
        lambda: with_kernel(category=Category.EXTERN_ATEN, operator="aten.sort", time_s=2e-3),
        gain_s=0.002,
        says=(share(kernel_findings.HOTSPOT),),
    ),
    "attention-below-limit": Example(
        groups.slow_attention,
        gain_s=0.0001117,
        says=(
            share(product_findings.SLOW),
            share(2 * finding.LEAST_SHARE),
            share(product_findings.USUALLY_SLOW),
            f"heads of {product_findings.USUAL_HEADS} or more",
        ),
    ),
    "decomposed-attention": Example(groups.decomposed, gain_s=0.0002217, says=(share(product_findings.DECOMPOSED),)),
    "unaligned-products": Example(groups.unaligned, gain_s=0.0001049, says=(share(product_findings.SLOWER), LEAST)),
    "small-products": Example(
        groups.small_batch,
        gain_s=1.745e-05,
        says=(
            f"at most {product_findings.SMALL}",
            share(product_findings.SMALL_TIME),
            f"at least {product_findings.SEVERAL_CALLS} times",
            share(product_findings.MOSTLY_SMALL),
        ),
    ),
    "float32-island": Example(groups.float32_loss, gain_s=0.0001, says=(share(product_findings.ISLAND),)),
    "pageable-copies": Example(lambda: _parts(PAGEABLE), gain_s=0.0015, says=(LEAST,)),
    "host-copies": Example(
        lambda: with_kernel(category=Category.COPY, name="Memcpy DtoH (Device -> Pinned)"), gain_s=0.001
    ),
    "copies": Example(
        lambda: with_kernel(**{**_ADDEND, "operator": "aten.copy_"}),
        gain_s=0.001,
        says=(share(kernel_findings.COPIES),),
    ),
    "copied-addends": Example(
        lambda: with_kernel(**_ADDEND),
        gain_s=0.001,
        says=(LEAST,),
        without=(
            lambda: with_kernel(**{**_ADDEND, "operator": "aten.copy_"}),
            lambda: with_kernel(**{**_ADDEND, "name": "Memcpy HtoD (Pinned -> Device)"}),
            lambda: with_kernel(**{**_ADDEND, "category": Category.EXTERN_GEMM}),
            lambda: with_kernel(**{**_ADDEND, "time_s": 1e-5}),
        ),
    ),
    "padded-products": Example(
        lambda: with_kernel(padded_sides=((50257, 50264),)),
        gain_s=0.001,
        says=(LEAST,),
        without=(lambda: with_kernel(padded_sides=((50257, 50264),), time_s=1e-5), with_kernel),
    ),
    "full-float32": Example(
        lambda: with_kernel(category=Category.EXTERN_GEMM, name="ampere_sgemm_128x64_nn"),
        gain_s=0.0005,
        says=(share(5 * finding.LEAST_SHARE),),
    ),
    "short-kernels": Example(
        _short, gain_s=0.00036, says=("20 launches", microseconds(finding.SHORT_S), share(finding.SHORT_TIME))
    ),
    "spills": Example(lambda: with_kernel(spills=64), says=(LEAST,)),
    "other": Example(lambda: with_kernel(category=Category.OTHER), says=(share(finding.LEAST_SHARE / 2),)),
    "unsteady-kernels": Example(
        lambda: with_kernel(samples_s=(1e-3, 2e-3, 1e-3, 2e-3, 1e-3)),
        says=(share(kernel_findings.UNSTEADY), LEAST, share(finding.SHORT_TIME)),
    ),
    "graph-breaks": Example(build.cpu, says=(LEAST,)),
    "recompiles": Example(lambda: _captured(recompiles=(_SIZES,) * 3)),
    "recompile-limit": Example(lambda: _captured(recompiles=(_SIZES,) * 8, functions=(_LIMITED,))),
    "capture": Example(lambda: run_of(quiet(), capture=Capture(1, 2, "1 printed, 2 in the trace"))),
    "threads": Example(_one_thread),
    "no-peaks": Example(build.without_peaks),
    "beyond-peaks": Example(_slow_peaks, says=(share(roofline.BEYOND - 1), share(roofline.BEYOND_TIME))),
    "noise": Example(lambda: run_of(quiet(wall_samples_s=(5e-3, 6e-3) * 5)), says=(share(doubts.NOISE),)),
    "busy-over-wall": Example(lambda: run_of(quiet(busy_time_s=5.4e-3))),
    "outliers": Example(
        lambda: run_of(quiet(steady_iterations=tuple(range(7)))),
        says=(share(doubts.OUTLIERS), share(doubts.MANY_OUTLIERS)),
    ),
    "few-samples": Example(
        lambda: run_of(quiet(wall_samples_s=(5e-3, 5e-3))), says=(f"Fewer than {doubts.FEW_SAMPLES} ",)
    ),
    "profiler-overhead": Example(
        lambda: run_of(quiet(profiled_time_s=7.9e-3)), says=(f"{doubts.PROFILER_SLOWDOWN:g} times",)
    ),
    "method": Example(lambda: run_of(quiet(method="live", method_reason="it is frozen"))),
    "note": Example(lambda: run_of(quiet(notes=("the trace is truncated; only complete events are counted",)))),
    "fine": Example(lambda: run_of(quiet())),
}
"""The examples by the kind of their finding."""

FIRST_LINES: dict[str, Example] = {
    "step": Example(step_runs.transformer),
    "parts": Example(build.mixnet),
    "busy-machine": Example(
        _busy_machine,
        says=(
            share(doubts.DELAYED),
            share(doubts.OTHERS),
            f"{doubts.FASTEST} times",
            f"{doubts.SWITCHED} times",
            share(doubts.SCATTER),
        ),
    ),
}
"""The examples by the kind of their first line."""

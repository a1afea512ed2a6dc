"""Makes records of runs with a program's step, by hand: numbers like those of real programs on an H200 and on a CPU."""

from __future__ import annotations

from dataclasses import replace

import run_builder as build
from inline import change

from inductor_bench.analysis.findings.finding import RemovedWork
from inductor_bench.analysis.findings.rule_table import list_findings
from inductor_bench.records.base import Category as C
from inductor_bench.records.base import OtherProcess
from inductor_bench.records.code import SourceLine
from inductor_bench.records.module import ModuleRecord, StepSaving
from inductor_bench.records.run import (
    COLLECTIVE,
    COPY,
    DATA_LOADING,
    EAGER,
    GRAPH,
    GRAPH_INPUTS,
    GUARDS,
    HOST_LANE,
    IDLE,
    LAUNCHING,
    OPTIMIZER,
    OPTIMIZER_STEPS,
    PATTERN,
    PYTHON,
    SYNCHRONISING,
    Interval,
    OtherWork,
    Part,
    Peaks,
    Prediction,
    Program,
    RankSteps,
    Run,
    Timeline,
)


def line(number: int, file: str = "/home/user/project/train.py") -> SourceLine:
    return SourceLine(file, number, "step", "")


def program(parts: list[Part], *, step_s: float, steps: int = 20, device: str = "cuda", **fields: object) -> Program:
    """Makes a program of one process. Parts are given with seconds; idle time fills up the step as Python."""
    rest = step_s - sum(part.time_s for part in parts)
    if rest > 1e-9:
        parts = [*parts, Part(IDLE, PYTHON, 0.0, rest, 0.0)]
    shared = tuple(sorted((replace(p, share=p.time_s / step_s) for p in parts), key=lambda part: -part.time_s))
    times = tuple(step_s * (1 + 0.004 * ((i * 7) % 5 - 2)) for i in range(steps))
    busy = sum(part.time_s for part in shared if part.kind != IDLE)
    rank = RankSteps(None, 4711, device, times, step_s, busy, step_s * 1.1, 3, 1.0, shared, "traces/step.trace.json.gz")
    values: dict[str, object] = {
        "step_source": OPTIMIZER_STEPS,
        "busy_time_s": busy,
        "parts": shared,
        "first_step_time_s": 14.2,
        "settled_after": 6,
        "steps": 40,
        "ranks": (rank,),
        **fields,
    }
    return Program(step_s, times, **values)  # type: ignore[arg-type]


def in_step(module: ModuleRecord, calls: float, longer: float = 1.0, peaks: Peaks | None = build.H200) -> ModuleRecord:
    """The module whose kernels take ``longer`` times as long per call in the program, in so many calls of the graph."""
    kernels = tuple(
        replace(
            one,
            step_calls=one.calls * calls,
            step_time_s=one.time_s * calls * longer,
            roof=build.roofed(replace(one, time_s=one.time_s * longer), peaks).roof if peaks else one.roof,
        )
        for one in module.kernels
    )
    return replace(module, kernels=kernels, program_calls=round(14 * calls))


def of_step(run: Run) -> Run:
    """The run whose kernels have their share of the step."""
    step_s = run.program.step_time_s if run.program else 0.0
    modules = tuple(
        replace(m, kernels=tuple(replace(k, step_share=(k.step_time_s or 0.0) / step_s) for k in m.kernels))
        for m in run.modules
    )
    return replace(run, modules=modules)


def _block(label: str, scale: float, **fields: object) -> ModuleRecord:
    rows = [
        ("sm90_xmma_gemm_bf16bf16_tn", C.EXTERN_GEMM, 4, 0.42e-3, {"flops": 3.1e11 * scale, "dtype": "bfloat16"}),
        ("flash_fwd_kernel", C.EXTERN_ATTENTION, 1, 0.11e-3, {}),
        ("triton_red_fused_native_layer_norm_0", C.REDUCTION, 2, 0.05e-3, {"moved_bytes": 1.1e8 * scale}),
        ("triton_poi_fused_gelu_1", C.POINTWISE, 1, 0.04e-3, {"moved_bytes": 1.6e8 * scale}),
        ("triton_poi_fused_add_2", C.POINTWISE, 2, 0.01e-3, {"moved_bytes": 3e7 * scale}),
    ]
    kernels = [build.kernel(name, c, n, t * scale, **more) for name, c, n, t, more in rows]  # type: ignore[arg-type]
    slug = label.lower().replace(".", "-")
    return build.module(label, kernels, 0.72e-3 * scale, build.H200, slug=slug, **fields)


def transformer() -> Run:
    """Builds blocks compiled one by one with an eager embedding, loss and AdamW: busy for 95% of a 30 ms step."""
    forward, backward = _block("Block.forward", 1.0), _block("Block.backward", 2.0)
    parts = [
        Part(GRAPH, "Block.backward", 12, 13.4e-3, 0, 13.4e-3, 0, 240, "block-backward"),
        Part(GRAPH, "Block.forward", 12, 6.7e-3, 0, 6.7e-3, 0, 120, "block-forward"),
        Part(OPTIMIZER, "AdamW", 1, 5.1e-3, 0, 5.1e-3, 0, 221, defined_in="torch.optim.adamw"),
        Part(EAGER, "aten::cross_entropy_loss", 1, 1.9e-3, 0, 1.9e-3, 0, 4, source=line(41)),
        Part(EAGER, "aten::embedding", 1, 0.6e-3, 0, 0.6e-3, 0, 2, module="Embedding", source=line(23)),
        Part(EAGER, "aten::_foreach_norm", 1, 0.5e-3, 0, 0.5e-3, 0, 30, source=line(44)),
        Part(COPY, "host to device", 2, 0.3e-3, 0, 0.3e-3, 0, 2, source=line(30)),
        Part(IDLE, LAUNCHING, 30, 0.5e-3, 0),
        Part(IDLE, SYNCHRONISING, 1, 0.4e-3, 0, source=line(47)),
    ]
    modules = [in_step(forward, 12, 6.7 / 12 / 0.63), in_step(backward, 12, 13.4 / 12 / 1.26)]
    return of_step(build.run("transformer", modules, peaks=build.H200, program=program(parts, step_s=30e-3)))


def decode() -> Run:
    """Builds an LLM's decode loop whose graphs are replayed, found by its pattern: 0.73 ms a token, busy for 90%."""
    module = change(_block("decode", 0.6), graph_time_s=0.39e-3, wall_time_s=2.45e-3, busy_share=0.25)
    parts = [
        Part(GRAPH, "decode", 1, 0.63e-3, 0, 0.63e-3, 1, 9, "decode"),
        Part(COPY, GRAPH_INPUTS, 4, 0.02e-3, 0, 0.02e-3, 0, 4, moved_bytes=4.1e5),
        Part(EAGER, "aten::argmax", 1, 0.02e-3, 0, 0.02e-3, 0, 1, source=line(88, "/srv/llm/generate.py")),
        Part(IDLE, SYNCHRONISING, 1, 0.03e-3, 0, source=line(90, "/srv/llm/generate.py")),
    ]
    found = program(parts, step_s=0.73e-3, step_source=PATTERN, first_step_time_s=31.0)
    return of_step(build.run("decode", [in_step(module, 1, 0.63 / 0.378)], peaks=build.H200, program=found))


def host_paced() -> Run:
    """Builds a training script whose host sets the pace: the device works 15.0 of 19.8 ms."""
    forward = change(_block("forward", 6.0), graph_time_s=3.7e-3)
    backward = change(_block("backward", 12.0), graph_time_s=7.5e-3)
    parts = [
        Part(GRAPH, "backward", 1, 8.2e-3, 0, 8.2e-3, 0, 20, "backward"),
        Part(GRAPH, "forward", 1, 4.1e-3, 0, 4.1e-3, 0, 10, "forward"),
        Part(OPTIMIZER, "SGD", 1, 2.7e-3, 0, 2.7e-3, 0, 12, defined_in="torch.optim.sgd"),
        Part(IDLE, DATA_LOADING, 1, 1.1e-3, 0),
        Part(IDLE, LAUNCHING, 9, 1.6e-3, 0),
        Part(IDLE, GUARDS, 3, 0.6e-3, 0),
    ]
    modules = [in_step(forward, 1, 4.1 / 3.78), in_step(backward, 1, 8.2 / 7.56)]
    return of_step(build.run("host-paced", modules, peaks=build.H200, program=program(parts, step_s=19.8e-3)))


def shared() -> Run:
    """The same beside another program on its GPU."""
    run = host_paced()
    assert run.program is not None
    others = OtherWork(0.35, (OtherProcess(1234, "python", 9 << 30, 0.35),))
    return replace(run, program=replace(run.program, others=others))


def simulated() -> Run:
    """The same with predictions: the host's time goes for the most part, and faster kernels win nothing."""
    run = host_paced()
    assert run.program is not None
    predictions = [
        Prediction(
            one.key,
            one.kind,
            0.0 if one.kernels else 0.9 * one.gain_s,
            0.05 * one.gain_s,
            one.gain_s if one.kernels else 0.0,
            one.changes,
        )
        for one in list_findings(run)
        if one.assumed != RemovedWork()
    ]
    predictions.append(Prediction("generated-kernels-0", "generated-kernels", 0.0, 0.0, 0.4e-3))
    modules = tuple(
        replace(
            module,
            kernels=tuple(
                replace(one, saving=StepSaving(0.0, 0.01e-3, one.roof.gain_limit_s)) for one in module.kernels
            ),
        )
        for module in run.modules
    )
    predictions.sort(key=lambda one: -one.saving_s)
    return replace(run, modules=modules, program=replace(run.program, predictions=tuple(predictions)))


def distributed() -> Run:
    """Builds DDP training on two ranks, the second of which works longer and waits less."""
    slow = [
        Part(GRAPH, "forward", 1, 6.0e-3, 0, 6.0e-3, 0, 10, "forward"),
        Part(EAGER, "aten::mul", 4, 0.1e-3, 0, 0.1e-3, 0, 4),
        Part(COLLECTIVE, "AllReduce", 3, 1.4e-3, 0, 4.0e-3, 0, 3),
    ]
    fast = [replace(slow[0], time_s=4.6e-3), slow[1], replace(slow[2], time_s=2.8e-3)]
    first, second = program(fast, step_s=8.0e-3).ranks[0], program(slow, step_s=8.0e-3).ranks[0]
    ranks = (replace(first, rank=0), replace(second, rank=1, pid=4712, step_time_s=8.02e-3))
    found = replace(program(slow, step_s=8.0e-3), ranks=ranks)
    module = in_step(_block("forward", 9.0), 1, 6.0 / 5.67)
    return of_step(build.run("distributed", [module], peaks=build.H200, program=found))


def cpu() -> Run:
    """Builds a CPU program: a compiled graph, an eager optimizer and Python."""
    old = build.cpu()
    parts = [
        Part(GRAPH, old.modules[0].label, 2, 6.1e-3, 0, None, 0, 0, old.modules[0].slug),
        Part(OPTIMIZER, "SGD", 1, 1.2e-3, 0),
        Part(EAGER, "aten::nll_loss", 1, 0.3e-3, 0, source=line(12)),
    ]
    modules = [in_step(old.modules[0], 2, peaks=None), *old.modules[1:]]
    return of_step(replace(old, modules=tuple(modules), program=program(parts, step_s=9.5e-3, device="cpu")))


def timeline() -> Timeline:
    """Builds a timeline of a step with a host lane and two streams."""
    rows = [
        (HOST_LANE, 0.0, 1.1e-3, IDLE, DATA_LOADING),
        (HOST_LANE, 1.1e-3, 3.0e-3, GRAPH, "forward"),
        (HOST_LANE, 3.0e-3, 6.5e-3, GRAPH, "backward"),
        (HOST_LANE, 6.5e-3, 8.0e-3, OPTIMIZER, "SGD"),
        (HOST_LANE, 8.0e-3, 19.8e-3, IDLE, SYNCHRONISING),
        ("stream 7", 1.2e-3, 5.3e-3, GRAPH, "forward"),
        ("stream 7", 5.4e-3, 13.6e-3, GRAPH, "backward"),
        ("stream 7", 13.7e-3, 16.4e-3, OPTIMIZER, "SGD"),
        ("stream 20", 9.0e-3, 12.0e-3, COLLECTIVE, "AllReduce"),
        ("stream 7", 18.0e-3, 18.4e-3, COPY, "host to device"),
    ]
    return Timeline(19.8e-3, tuple(Interval(*row) for row in rows))

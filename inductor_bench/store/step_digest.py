"""Turns the compared figures of a record into those of the program's step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..records.batches.results import OUTSIDE, GraphResult, KernelResult, StepResult
from ..records.category import Category
from ..records.program import COLLECTIVE, COPY, EAGER, GRAPH, IDLE, OPTIMIZER, QUEUED, Program
from .formats import codec

_CATEGORIES = {
    COLLECTIVE: Category.COLLECTIVE,
    COPY: Category.COPY,
    **dict.fromkeys((GRAPH, EAGER, OPTIMIZER), Category.EXTERN_ATEN),
}


def step_in(data: Mapping[str, Any]) -> Program | None:
    """The program of a decoded record; ``None`` where no step was profiled.

    Raises:
        InductorBenchError: the record is damaged.
    """
    if data.get("program") is None:
        return None
    program = codec.decode(Program, data["program"])
    return program if program.parts else None


def kernels_in_step(kernels: Sequence[KernelResult], data: Sequence[Mapping[str, Any]]) -> tuple[KernelResult, ...]:
    """The kernels that run in the step, with their costs in it; ``data`` are the same kernels of the record."""
    rows = [
        _in_step(kernel, row) for kernel, row in zip(kernels, data, strict=True) if row.get("step_time_s") is not None
    ]
    return tuple(row for row in rows if row.time_s)


def _in_step(kernel: KernelResult, data: Mapping[str, Any]) -> KernelResult:
    calls, time_s = float(data["step_calls"] or 0.0), float(data["step_time_s"])
    more = calls / kernel.calls if kernel.calls else 0.0
    gain_s, moved, flops = kernel.limit.gain_limit_s, kernel.work.moved_bytes, kernel.work.flops
    return kernel._replace(
        calls=calls,
        time_s=time_s,
        limit=kernel.limit._replace(gain_limit_s=None if gain_s is None else gain_s * more),
        work=kernel.work._replace(
            moved_bytes=None if moved is None else moved * more,
            flops=None if flops is None else flops * more,
        ),
        step=StepResult(calls, time_s, None if data["step_share"] is None else float(data["step_share"])),
    )


def graph_in_step(graph: GraphResult, slug: str, program: Program) -> GraphResult:
    """The graph with its use in the step. Its busy share is the program's, because the host serves all graphs."""
    parts = [part for part in program.parts if part.kind == GRAPH and part.graph == slug]
    times: dict[Category, float] = defaultdict(float)
    for kernel in graph.kernels:
        times[kernel.category] += kernel.time_s
    return replace(
        graph,
        time_s=sum(part.time_s for part in parts),
        busy_share=_busy_share(program),
        launches=sum(part.launches for part in parts),
        idle_s=None,
        categories=tuple(times.items()),
        host_idle_share=_host_idle_share(program),
    )


def outside_of_graphs(graphs: Sequence[GraphResult], slugs: Sequence[str], program: Program) -> Iterator[GraphResult]:
    """A row for the rest of the step, so that the rows add up to it; nothing where nothing is left."""
    rest = [part for part in program.parts if part.kind != GRAPH or part.graph not in slugs]
    times: dict[Category, float] = defaultdict(float)
    for part in rest:
        if part.kind != IDLE:
            times[_CATEGORIES.get(part.kind, Category.OTHER)] += part.time_s
    if rest:
        yield GraphResult(
            OUTSIDE,
            graphs[0].device if graphs else "cuda",
            sum(part.time_s for part in rest),
            None,
            _busy_share(program),
            sum(part.launches for part in rest),
            sum(part.time_s for part in rest if part.kind == IDLE),
            tuple(times.items()),
            (),
            _host_idle_share(program),
        )


def _busy_share(program: Program) -> float:
    idle = sum(part.time_s for part in program.parts if part.kind == IDLE)
    return 1 - idle / program.step_time_s if program.step_time_s else 0.0


def _host_idle_share(program: Program) -> float:
    idle = sum(part.time_s for part in program.parts if part.kind == IDLE and part.label != QUEUED)
    return idle / program.step_time_s if program.step_time_s else 0.0

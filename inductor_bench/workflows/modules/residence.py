"""Predicts for the modules of a program which of their bytes come from DRAM, from the calls of one observed step."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from ...analysis.traffic.kernel_bytes import fit_uses
from ...analysis.traffic.residence import EagerBytes, GraphCall, dram_shares, step_traffic
from ...messages.steps import ObservedSteps, ObservedTouches
from ...records.code.buffers import ModuleBuffers
from ...records.code.source import ModuleSource
from ...source.static.buffers import read_buffers

Shares = dict[int, float]
"""DRAM's bytes per byte that a call site touches, by the index of the call site."""


def describe_buffers(text: str, source: ModuleSource) -> ModuleBuffers:
    """The buffers of a module's calls. A generated kernel touches of a large buffer what Inductor counts.

    Raises:
        InductorBenchError: the text is not a compiled module.
    """
    counts = {kernel.name: kernel.moved_bytes for kernel in source.kernels}
    found = read_buffers(text, source)
    calls = zip(source.calls, found.calls, strict=True)
    fitted = (fit_uses(uses, counts.get(call.kernel or "")) if uses is not None else None for call, uses in calls)
    return replace(found, calls=tuple(fitted))


def lay_out_step(
    paths: Sequence[str],
    touches: ObservedTouches,
    modules: Mapping[str, ModuleBuffers],
    eager_bytes: Mapping[int, int] | None = None,
) -> tuple[GraphCall | EagerBytes, ...]:
    """The step of a program, in its order.

    Args:
        paths: the real path of the module of each graph.
        touches: the graph calls of the step.
        modules: the buffers of each module, by its real path. The arguments and results of other graphs are bytes that
            nothing else touches.
        eager_bytes: the bytes of the eager operators before the graph call of a number; those after the last call have
            the next number.
    """
    step: list[GraphCall | EagerBytes] = []
    eager = dict(eager_bytes or {})
    for number, call in enumerate(touches.calls):
        step += [EagerBytes(size) for size in [eager.get(number, 0)] if size]
        path = paths[call.graph] if call.graph < len(paths) else ""
        if path in modules:
            inputs, outputs = (tuple(address for address, _ in places) for places in (call.inputs, call.outputs))
            step.append(GraphCall(path, modules[path], inputs, outputs))
        else:
            step.append(EagerBytes(sum(size for _, size in (*call.inputs, *call.outputs))))
    step += [EagerBytes(size) for size in [eager.get(len(touches.calls), 0)] if size]
    return tuple(step)


def predict_dram_shares(
    steps: ObservedSteps,
    touches: ObservedTouches,
    modules: Mapping[str, tuple[str, ModuleSource]],
    cache_bytes: int,
) -> dict[Hashable, Shares]:
    """The shares of the call sites of each module that the step calls, by the module's real path.

    Args:
        steps: the observed steps of a process.
        touches: the graph calls of one of these steps.
        modules: text and facts of each module, by its real path.
        cache_bytes: the size of the device's cache.

    Raises:
        InductorBenchError: a text is not a compiled module.
    """
    buffers = {path: describe_buffers(text, source) for path, (text, source) in modules.items()}
    paths = [os.path.realpath(graph.path) if graph.path else "" for graph in steps.graphs]
    step = lay_out_step(paths, touches, buffers)
    return dram_shares(step, step_traffic(step, cache_bytes))

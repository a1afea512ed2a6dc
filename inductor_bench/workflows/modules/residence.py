"""Predicts for the modules of a program which of their bytes come from DRAM, from the calls of one observed step."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from ...analysis.traffic.eager import EagerOperators, eager_bytes
from ...analysis.traffic.kernel_bytes import fit_uses
from ...analysis.traffic.residence import (
    DEVICE_CACHE,
    HOST_CACHE,
    EagerBytes,
    GraphCall,
    dram_shares,
    step_traffic,
)
from ...devices.table import device_of
from ...errors import InductorBenchError
from ...messages.steps import ObservedSteps, ObservedTouches
from ...records.code.buffers import ModuleBuffers
from ...records.code.source import ModuleSource
from ...records.run import Peaks
from ...source.module.reader import read_module
from ...source.static.buffers import read_buffers
from ...store.evidence import save_details
from ...store.folder import RunFolder
from .analysis import AttributedModule
from .program import CapturedProgram


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
    eager: Mapping[int, int] | None = None,
) -> tuple[GraphCall | EagerBytes, ...]:
    """The step of a program, in its order.

    Args:
        paths: the real path of the module of each graph.
        touches: the graph calls of the step.
        modules: the buffers of each module, by its real path. The arguments and results of other graphs are bytes that
            nothing else touches.
        eager: the bytes of the eager operators before the graph call of a number; those after the last call have
            the next number.
    """
    step: list[GraphCall | EagerBytes] = []
    eager = eager or {}
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


def bytes_between(touches: ObservedTouches, eager: EagerOperators | None, peaks: Peaks) -> dict[int, int]:
    """The bytes of eager operators for :func:`lay_out_step`.

    Args:
        touches: the graph calls of one step.
        eager: the eager operators of another step; they count only where it called the same graphs in the same order.
        peaks: the peaks of the device.
    """
    if eager is None or eager.graphs != tuple(call.graph for call in touches.calls):
        return {}
    known = [place for call in touches.calls for place in (*call.inputs, *call.outputs)]
    return eager_bytes(eager, known, max(peaks.memory_bandwidth, peaks.cache_bandwidth or 0.0))


def predict_dram_shares(
    steps: ObservedSteps,
    touches: ObservedTouches,
    modules: Mapping[str, ModuleBuffers],
    cache_bytes: int,
    eager: Mapping[int, int],
) -> dict[Hashable, dict[int, float]]:
    """DRAM's bytes per byte that a call site touches, by the real path of its module and its index.

    Args:
        steps: the observed steps of a process.
        touches: the graph calls of one of these steps.
        modules: the buffers of each module, by its real path.
        cache_bytes: the size of the device's cache.
        eager: the bytes of eager operators; see :func:`lay_out_step`.
    """
    paths = [os.path.realpath(graph.path) if graph.path else "" for graph in steps.graphs]
    step = lay_out_step(paths, touches, modules, eager)
    rules = HOST_CACHE if device_of(steps.device or "cuda").runs_on_host else DEVICE_CACHE
    return dram_shares(step, step_traffic(step, cache_bytes, rules))


def with_dram_shares(
    attributed: Sequence[AttributedModule],
    captured: CapturedProgram,
    peaks: Peaks | None,
    folder: RunFolder,
    eager: Mapping[int, EagerOperators],
) -> list[AttributedModule]:
    """The modules with the shares of the program's step in their details, which are stored again.

    They stay as they are where no step was observed, or the size of the cache is unknown. ``eager`` holds the eager
    operators of a step by the id of its process.
    """
    seen = [(steps, captured.touches[steps.pid]) for steps in captured.steps if steps.pid in captured.touches]
    if not seen or peaks is None or peaks.cache_bytes is None:
        return list(attributed)
    known = {module.profiled.module.path: module.profiled.source for module in attributed}
    buffers: dict[str, ModuleBuffers] = {}
    for module in captured.modules:
        with suppress(InductorBenchError):  # its bytes count, but not where they come from
            found = describe_buffers(module.text, known.get(module.path) or read_module(module.text))
            buffers |= dict.fromkeys(module.real_paths, found)
    steps, touches = seen[0]
    between = bytes_between(touches, eager.get(steps.pid), peaks)
    shares = predict_dram_shares(steps, touches, buffers, peaks.cache_bytes, between)
    by_module = [[shares[path] for path in one.profiled.module.real_paths if path in shares] for one in attributed]
    return [_with_shares(one, next(iter(found), {}), folder) for one, found in zip(attributed, by_module, strict=True)]


def _with_shares(module: AttributedModule, shares: Mapping[int, float], folder: RunFolder) -> AttributedModule:
    profiled = module.profiled
    details = replace(profiled.details, dram_shares={str(site): share for site, share in shares.items()})
    save_details(folder, profiled.label.slug, details)
    return replace(module, profiled=replace(profiled, details=details))

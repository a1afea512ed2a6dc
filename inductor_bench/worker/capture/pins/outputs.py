"""Compares what a compiled graph computes with and without the pins, for the same inputs and random state."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from inductor_bench.messages.comparison import ComparedOutputs

from ...device.protocol import DeviceRuntime
from ...device.runtimes import runtime_of
from ...upstream.inductor import clone_input
from ..differences import relative_difference, tolerance_of
from ..steps.results import words_of
from .kernels import PinnedKernel
from .process import PinnedKernels, launcher_errors

NOISE_FACTOR = 4.0
"""A graph that does not repeat its own outputs may differ by this factor of that."""

UNREPEATABLE = 0.1
"""Relative difference between two calls without the pins from which a tensor is not compared. cuDNN's attention returns
a seed and an offset that it does not write where it drops nothing."""

BLAME_S = 20.0
"""Maximum seconds of the search for the kernels that change the outputs of one graph."""

Call = Callable[[Any, Any], Any]


class OutputCheck:
    """The comparison of all graphs of one step.

    Attributes:
        found: the outcome of each graph.
        dropped: ids of the kernels whose pins change the outputs.
    """

    def __init__(self, pinned: PinnedKernels, device: str) -> None:
        self.found: list[ComparedOutputs] = []
        self.dropped: list[str] = []
        self._pinned, self._runtime = pinned, runtime_of(device)
        self._seen: set[str] = set()

    def call(self, path: str, original: Call, compiled: Any, inputs: Any) -> Any:
        """Calls a graph for the program without the pins, after it was compared by calls with copies of the inputs."""
        if path in self._seen:
            return original(compiled, inputs)
        self._seen.add(path)
        reason = _why_not(inputs)
        if reason:
            self.found.append(ComparedOutputs(path, reason=reason))
            return original(compiled, inputs)
        try:
            found = self._compare(path, lambda: _run_copy(original, compiled, inputs, self._runtime))
        except torch.OutOfMemoryError:
            found = ComparedOutputs(path, reason="no memory for a copy of the graph's inputs")
        except launcher_errors() as error:
            traceback.print_exc()
            found = ComparedOutputs(path, reason=f"a call with a copy of the graph's inputs failed: {words_of(error)}")
        finally:
            self._pinned.use(False)
        self.found.append(found)
        return original(compiled, inputs)

    def _compare(self, path: str, run: Callable[[], list[Any]]) -> ComparedOutputs:
        """Runs a graph without the pins twice and with them, and drops the kernels that change its outputs."""
        own, again = run(), run()

        def compare(pins: PinnedKernel | PinnedKernels) -> ComparedOutputs:
            pins.use(True)
            try:
                return _worst(path, run(), again, own)
            except torch.OutOfMemoryError:
                raise
            except launcher_errors() as error:
                traceback.print_exc()
                return ComparedOutputs(path, math.inf, reason=f"a graph failed with the configs: {words_of(error)}")
            finally:
                pins.use(False)

        found = compare(self._pinned)
        if found.is_equal:
            return found
        begin_s = time.perf_counter()
        for kernel in self._pinned.kernels[:]:
            if time.perf_counter() - begin_s > BLAME_S:
                break
            if kernel.state().kernel_id not in self.dropped and not compare(kernel).is_equal:
                self._drop(kernel)
        return compare(self._pinned) if self.dropped else found

    def _drop(self, kernel: PinnedKernel) -> None:
        """Drops a kernel, also where other graphs launch it."""
        dropped = kernel.state().kernel_id
        self._pinned.kernels[:] = [one for one in self._pinned.kernels if one.state().kernel_id != dropped]
        self.dropped.append(dropped)


def _why_not(inputs: Iterable[Any]) -> str:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return "the program is distributed, and other processes would have to repeat a graph's collectives"
    if any(isinstance(value, torch.Tensor) and value.layout != torch.strided for value in inputs):
        return "an input is not strided"
    return ""


def _run_copy(original: Call, compiled: Any, inputs: Sequence[Any], runtime: DeviceRuntime) -> list[Any]:
    """Calls a graph with copies of its inputs; returns them and the results. The random state stays as it is."""
    copies = [clone_input(value) for value in inputs]
    with torch.no_grad(), runtime.preserve_random_state():
        result = original(compiled, list(copies))
    return [*copies, *_leaves(result)]


def _leaves(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]


def _worst(path: str, tuned: Sequence[Any], again: Sequence[Any], own: Sequence[Any]) -> ComparedOutputs:
    """The worst tensor, by its difference relative to its tolerance."""
    worst, tensors, unrepeatable = ComparedOutputs(path), 0, 0
    for one, repeated, reference in zip(tuned, again, own, strict=True):
        if not isinstance(reference, torch.Tensor) or reference.numel() == 0:
            continue
        noise = relative_difference(repeated, reference)
        if noise > UNREPEATABLE:
            unrepeatable += 1
            continue
        tensors += 1
        tolerance = max(tolerance_of(reference.dtype), NOISE_FACTOR * noise)
        found = ComparedOutputs(path, relative_difference(one, reference), noise, tolerance)
        if tensors == 1 or found.difference * worst.tolerance > worst.difference * found.tolerance:
            worst = found
    return ComparedOutputs(path, worst.difference, worst.own_difference, worst.tolerance, tensors, unrepeatable)

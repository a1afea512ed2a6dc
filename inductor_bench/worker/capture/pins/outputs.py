"""Compares what a compiled graph computes with and without the pins, for the same inputs and random state."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from inductor_bench.messages.comparison import ComparedOutputs

from ...device.runtimes import runtime_of
from ...upstream.inductor import clone_input
from .kernels import PinnedKernel
from .process import PinnedKernels

TOLERANCES = {torch.float64: 1e-6, torch.float32: 2e-3, torch.float16: 3e-2, torch.bfloat16: 6e-2}
"""Relative differences by element type that rounding explains after all kernels of a graph. A wrong kernel changes its
tensors by much more; a single kernel's candidates are held to the tolerances of standalone files before."""

COARSE_TOLERANCE = 0.2
"""The same for 8-bit types."""

NOISE_FACTOR = 4.0
"""A graph that does not repeat its own outputs may differ by this factor of that."""

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
        """Calls a graph for the program, without the pins, after calls of copies with them."""
        if path in self._seen:
            return original(compiled, inputs)
        self._seen.add(path)
        reason = _why_not(inputs)
        if reason:
            self.found.append(ComparedOutputs(path, reason=reason))
            return original(compiled, inputs)
        try:
            tuned = self._run(True, original, compiled, inputs)
            again = self._run(False, original, compiled, inputs)
        except torch.OutOfMemoryError:
            self.found.append(ComparedOutputs(path, reason="no memory for a copy of the graph's inputs"))
            return original(compiled, inputs)
        kept = [clone_input(value) for value in inputs]
        passed = list(inputs)
        result = original(compiled, inputs)
        own = [*passed, *_leaves(result)]
        self._judge(path, tuned, again, own, lambda: self._run(None, original, compiled, kept))
        return result

    def _run(self, tuned: bool | None, original: Call, compiled: Any, inputs: Sequence[Any]) -> list[Any]:
        """Calls a graph with copies of its inputs; returns them and the results. ``None`` leaves the pins as they are.

        The random state afterwards is that before.
        """
        copies = [clone_input(value) for value in inputs]
        passed = list(copies)
        with torch.no_grad(), self._runtime.preserve_random_state():
            if tuned is not None:
                self._pinned.use(tuned)
            try:
                result = original(compiled, passed)
            finally:
                if tuned is not None:
                    self._pinned.use(False)
            return [*copies, *_leaves(result)]

    def _judge(
        self, path: str, tuned: list[Any], again: list[Any], own: list[Any], rerun: Callable[[], list[Any]]
    ) -> None:
        found = _compare(path, tuned, again, own)
        self.found.append(found)
        if found.is_equal:
            return
        begin_s = time.perf_counter()
        for kernel in self._pinned.kernels[:]:
            if time.perf_counter() - begin_s > BLAME_S:
                break
            kernel.use(True)
            alone = rerun()
            kernel.use(False)
            if not _compare(path, alone, again, own).is_equal:
                self._drop(kernel)

    def _drop(self, kernel: PinnedKernel) -> None:
        self._pinned.kernels.remove(kernel)
        self.dropped.append(kernel.state().kernel_id)


def _why_not(inputs: Iterable[Any]) -> str:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return "another process would have to repeat the graph's collectives"
    if any(isinstance(value, torch.Tensor) and value.layout != torch.strided for value in inputs):
        return "an input is not strided"
    return ""


def _leaves(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]


def _compare(path: str, tuned: Sequence[Any], again: Sequence[Any], own: Sequence[Any]) -> ComparedOutputs:
    """The worst tensor, by its difference relative to its tolerance."""
    worst, tensors = ComparedOutputs(path), 0
    for one, repeated, reference in zip(tuned, again, own, strict=True):
        if not isinstance(reference, torch.Tensor) or reference.numel() == 0:
            continue
        tensors += 1
        noise = _difference(repeated, reference)
        tolerance = max(_tolerance(reference), NOISE_FACTOR * noise)
        found = ComparedOutputs(path, _difference(one, reference), noise, tolerance)
        if tensors == 1 or found.difference * worst.tolerance > worst.difference * found.tolerance:
            worst = found
    return ComparedOutputs(path, worst.difference, worst.own_difference, worst.tolerance, tensors)


def _tolerance(tensor: torch.Tensor) -> float:
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return 0.0
    dtype = tensor.dtype.to_real() if tensor.is_complex() else tensor.dtype
    return TOLERANCES.get(dtype, COARSE_TOLERANCE)


def _difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """The norm of the difference relative to the norm of ``other``; the share of differing whole numbers.

    Infinite where only one of the tensors is finite at some place.
    """
    one, other = one.detach(), other.detach()
    if not (other.is_floating_point() or other.is_complex()):
        return float((one != other).float().mean())
    finite = torch.isfinite(other)
    if not torch.equal(finite, torch.isfinite(one)):
        return float("inf")
    wide = torch.complex128 if other.is_complex() else torch.float32 if other.element_size() <= 4 else torch.float64
    first, second = (torch.where(finite, each, torch.zeros_like(each)).to(wide) for each in (one, other))
    size = float(torch.linalg.vector_norm(second))
    apart = float(torch.linalg.vector_norm(first - second))
    return apart / size if size else (float("inf") if apart else 0.0)

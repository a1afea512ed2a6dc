"""Compares what a compiled graph computes with and without the pins, for the same inputs and random state."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from ...messages.observed import ComparedOutputs
from ..device.runtime import DeviceRuntime
from ..device.runtimes import runtime_of
from ..upstream.inductor import clone_input
from ..upstream.pinning import launcher_errors
from .output_comparison import are_meaningless, relative_difference, tolerance_of
from .pinned import PinnedKernel, PinnedKernels
from .step_measurement import words_of

NOISE_FACTOR = 4.0
"""Outputs may differ by this factor of what two calls of the graph itself differ by."""

UNREPEATABLE = 0.1
"""Relative difference between two calls without the pins from which a tensor is not compared. cuDNN's attention returns
a seed and an offset that it does not write where it drops nothing."""

NOISE_ONLY = 0.5
"""Relative difference by which other roundings move a tensor that is nothing but rounding errors."""

ROUNDING_FACTOR = 10.0
"""Such a tensor may differ by this factor of what other roundings make of it: a wrong kernel changes it by orders of
magnitude."""

FLIPPED = 0.01
"""Largest share of whole numbers that rounding may change."""

TF32_EPS = 2.0**-10
"""The distance of 1 to the next number in TF32, in which a GPU may compute products of float32."""

NO_NUMBERS = "a graph's outputs hold no finite number, with the configs and without"

BLAME_S = 20.0
"""Maximum seconds of the search for the kernels that change the outputs of one graph."""

Call = Callable[[Any, Any], Any]
Run = Callable[..., list[Any]]
"""Runs a graph with copies of its inputs, which are rounded otherwise with ``coarsest``; see ``_run_copy``."""


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
            found = self._compare(path, partial(_run_copy, original, compiled, inputs, self._runtime), len(inputs))
        except torch.OutOfMemoryError:
            found = ComparedOutputs(path, reason="no memory for a copy of the graph's inputs")
        except launcher_errors() as error:
            traceback.print_exc()
            found = ComparedOutputs(path, reason=f"a call with a copy of the graph's inputs failed: {words_of(error)}")
        finally:
            self._pinned.use(False)
        self.found.append(found)
        return original(compiled, inputs)

    def _compare(self, path: str, run: Run, inputs: int) -> ComparedOutputs:
        """Runs a graph without the pins twice and with them, and drops the kernels that change its outputs."""
        own, again = run(), run()
        rounding = Rounding(run, own)

        def compare(pins: PinnedKernel | PinnedKernels) -> ComparedOutputs:
            pins.use(True)
            try:
                tuned = run()
            except torch.OutOfMemoryError:
                raise
            except launcher_errors() as error:
                traceback.print_exc()
                return ComparedOutputs(path, math.inf, reason=f"a graph failed with the configs: {words_of(error)}")
            finally:
                pins.use(False)
            return worst_tensor(path, tuned, [again], own, rounding)[0]

        found = compare(self._pinned)
        if found.is_equal:
            return ComparedOutputs(path, reason=NO_NUMBERS) if are_meaningless(own[inputs:]) else found
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


class Rounding:
    """How far the outputs of a graph move where its inputs are rounded otherwise, once that is asked.

    The mean of a batch norm's centred input is nothing but rounding errors: in a step of mixnet_l, other configs moved
    such means by 1.3 of their norm.

    Args:
        run: runs the graph.
        own: what it read and returned.
        alike: the places of values whose sizes can be compared: gradients for the same outputs.
    """

    def __init__(self, run: Run, own: Sequence[Any], alike: Collection[int] = ()) -> None:
        self._run, self._own, self._alike = run, own, alike
        self._moved: Sequence[float] | None = None

    def explains(self, place: int, difference: float, *, whole: bool) -> bool:
        """Whether the difference of a tensor is no larger than what rounding makes.

        Args:
            place: the place of the tensor.
            difference: its relative difference; of whole numbers the share that differs.
            whole: whether it holds whole numbers, such as masks and indices, which may flip where values are close.
        """
        if self._moved is None:
            self._moved = self._move()
        moved = self._moved[place]
        if math.isinf(difference) or math.isinf(moved):
            return False
        if whole:
            return difference <= min(NOISE_FACTOR * moved, FLIPPED)
        if moved >= NOISE_ONLY:
            return difference <= ROUNDING_FACTOR * moved or self._is_small(place, difference)
        return difference <= min(NOISE_FACTOR * moved, NOISE_ONLY if moved > UNREPEATABLE else UNREPEATABLE)

    def _is_small(self, place: int, difference: float) -> bool:
        """Whether the difference of a gradient is nothing beside the size of all gradients."""
        if place not in self._alike:
            return False
        tensors = [value for value in map(self._own.__getitem__, self._alike) if isinstance(value, torch.Tensor)]
        elements = sum(value.numel() for value in tensors)
        usual = math.hypot(*map(_norm, tensors)) / math.sqrt(elements)
        own = self._own[place]
        return difference * _norm(own) / math.sqrt(own.numel()) <= tolerance_of(own.dtype) * usual

    def _move(self) -> Sequence[float]:
        try:
            rounded = self._run(coarsest=_coarsest_eps(self._own))
        except torch.OutOfMemoryError:
            raise
        except launcher_errors():
            traceback.print_exc()
            return [0.0] * len(self._own)
        return [_moved(one, other) for one, other in zip(rounded, self._own, strict=True)]


def _norm(value: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(value.detach(), dtype=torch.float32)) if value.is_floating_point() else 0.0


def _moved(one: Any, other: Any) -> float:
    if not isinstance(other, torch.Tensor) or one.shape != other.shape:
        return 0.0
    return relative_difference(one, other)


def _coarsest_eps(values: Iterable[Any]) -> float:
    """The largest distance of 1 to the next number among the element types in which a graph computes."""
    tensors = [value for value in values if isinstance(value, torch.Tensor) and value.is_floating_point()]
    found = [torch.finfo(value.dtype).eps for value in tensors if value.itemsize > 1]
    if any(value.is_cuda for value in tensors):
        # A program that sets ``fp32_precision`` may not read ``allow_tf32``.
        libraries: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)  # type: ignore[attr-defined]
        found += [TF32_EPS] * any(one.fp32_precision == "tf32" for one in libraries)
    return max(found, default=0.0)


def _run_copy(
    original: Call, compiled: Any, inputs: Sequence[Any], runtime: DeviceRuntime, *, coarsest: float | None = None
) -> list[Any]:
    """Calls a graph with copies of its inputs; returns them and the results. The random state stays as it is."""
    copies = [clone_input(value) for value in inputs]
    with torch.no_grad(), runtime.preserve_random_state():
        if coarsest is not None:
            for value in copies:
                round_otherwise(value, coarsest)
        result = original(compiled, list(copies))
    return [*copies, *_leaves(result)]


def round_otherwise(value: Any, coarsest: float) -> None:
    """Makes half of a tensor's real numbers, at random, smaller by a unit of their last bit.

    Tensors of several dimensions, which autocast and TF32 convert, change by a unit of the coarsest type of the graph.
    No element grows, so that what indexes or is a share stays in its range. Other values stay as they are.
    """
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.itemsize == 1:
        return
    if value.numel() == 0:
        return
    extent = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    flat = value.as_strided((extent,), (1,), value.storage_offset())
    random = torch.Generator(value.device).manual_seed(0)
    unit = max(torch.finfo(value.dtype).eps, coarsest if value.dim() > 1 else 0.0)
    flat.mul_(torch.empty_like(flat).bernoulli_(0.5, generator=random).mul_(-unit).add_(1))


def _leaves(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]


def worst_tensor(
    path: str,
    tuned: Sequence[Any],
    again: Sequence[Sequence[Any]],
    own: Sequence[Any],
    rounding: Rounding,
    tolerances: Callable[[torch.dtype], float] = tolerance_of,
) -> tuple[ComparedOutputs, int]:
    """The worst tensor, by its difference relative to its tolerance, and its place.

    Args:
        path: the path of the graph.
        tuned: what the graph reads and returns with a change.
        again: the same without, of each further run.
        own: the same of the first run without.
        rounding: what other roundings make of the same inputs.
        tolerances: the difference that is tolerated by element type.
    """
    worst, tensors, unrepeatable, rounded, where = ComparedOutputs(path), 0, 0, 0, 0
    for place, (one, reference, *repeated) in enumerate(zip(tuned, own, *again, strict=True)):
        if not isinstance(reference, torch.Tensor) or reference.numel() == 0:
            continue
        noise = max(_difference(value, reference) for value in repeated)
        if noise > UNREPEATABLE:
            unrepeatable += 1
            continue
        difference = _difference(one, reference)
        tolerance = max(tolerances(reference.dtype), NOISE_FACTOR * noise)
        if difference > tolerance and rounding.explains(place, difference, whole=not reference.is_floating_point()):
            rounded += 1
            continue
        tensors += 1
        found = ComparedOutputs(path, difference, noise, tolerance)
        if tensors == 1 or found.excess > worst.excess:
            worst, where = found, place
    return replace(worst, tensors=tensors, unrepeatable=unrepeatable, rounding=rounded), where


def _difference(one: Any, reference: torch.Tensor) -> float:
    """The relative difference; infinite where the shapes differ, which may depend on values, or where one is none."""
    fits = isinstance(one, torch.Tensor) and one.shape == reference.shape
    return relative_difference(one, reference) if fits else math.inf

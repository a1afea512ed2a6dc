"""Compares the first outputs of a compiled program with those of the same program without compilation.

The reference comes from the same process, inputs, weights and random state, before anything is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from ...records.comparison import AGREES, DIFFERS, UNKNOWN, Agreement
from ..device.runtime import DeviceRuntime
from ..upstream.inductor import clone_input

# The difference of two tensors that should be equal, and how large a difference rounding explains.


TOLERANCES = {torch.float64: 1e-6, torch.float32: 2e-3, torch.float16: 3e-2, torch.bfloat16: 6e-2}
"""The largest relative differences, by element type, that rounding explains after all kernels of a graph. A wrong
kernel changes its tensors by much more; a single kernel's candidates are held to the tolerances of standalone files
before."""

EDIT_TOLERANCES = {torch.float64: 1e-10, torch.float32: 5e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""The relative differences for an edited kernel, in which a small term may be missing. Sums in another order, and other
roundings of 16-bit results, differ by less. A larger difference counts as rounding only if other roundings of the
graph's inputs change its outputs by as much."""

COARSE_TOLERANCE = 0.2
"""The relative difference that rounding explains for 8-bit types."""

CHUNK_ELEMENTS = 1 << 25
"""Maximum number of elements that are compared at once, because they are compared in double precision."""


def find_tolerance(dtype: torch.dtype, *, edited: bool = False) -> float:
    """The relative difference that rounding explains for tensors of a type; 0 for whole numbers.

    Args:
        dtype: the type.
        edited: whether a kernel was edited, in place of another config of the same code.
    """
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0
    known = EDIT_TOLERANCES if edited else TOLERANCES
    return known.get(dtype.to_real() if dtype.is_complex else dtype, COARSE_TOLERANCE)


def find_coarsest_eps(values: Iterable[Any]) -> float:
    """The largest distance of 1 to the next number among the types of tensors; 0 if none has 16 bits or more."""
    tensors = (value for value in values if isinstance(value, torch.Tensor) and value.is_floating_point())
    return max((torch.finfo(value.dtype).eps for value in tensors if value.itemsize > 1), default=0.0)


def are_meaningless(outputs: Iterable[Any]) -> bool:
    """Whether no real or complex tensor among outputs holds a finite number, although one has elements.

    If two calls then return the same outputs, this proves nothing.
    """
    tensors = [each for each in outputs if isinstance(each, torch.Tensor) and each.numel()]
    numbers = [each for each in tensors if each.is_floating_point() or each.is_complex()]
    return bool(numbers) and not any(bool(torch.isfinite(each).any()) for each in numbers)


def compute_relative_difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """Computes the norm of the difference relative to the norm of ``other``; for whole numbers the share that differs.

    It is infinite if only one of the tensors is finite at some place, or if their infinities differ.
    """
    one, other = one.detach(), other.detach()
    if not (other.is_floating_point() or other.is_complex()):
        return float((one != other).double().mean()) if other.numel() else 0.0
    if other.is_complex():
        one, other = torch.view_as_real(one.resolve_conj()), torch.view_as_real(other.resolve_conj())
    apart = size = 0.0
    for first, second in zip(*(each.reshape(-1).split(CHUNK_ELEMENTS) for each in (one, other)), strict=True):
        first, second = first.double(), second.double()
        finite = torch.isfinite(second)
        kinds = [torch.nan_to_num(torch.where(finite, 0.0, each), 1.0, 2.0, 3.0) for each in (first, second)]
        if not torch.equal(finite, torch.isfinite(first)) or not torch.equal(*kinds):
            return math.inf
        first, second = (torch.where(finite, each, 0.0) for each in (first, second))
        apart += float((first - second).square().sum())
        size += float(second.square().sum())
    if not apart:
        return 0.0
    return math.sqrt(apart / size) if size else math.inf


TF32_TOLERANCE = 1e-2
"""The relative difference that rounding explains if matrix products of float32 are computed in TF32."""

MEANINGLESS = "they hold no finite number, with compilation and without; choose other inputs or weights"
"""Why equal outputs prove nothing."""

Call = Callable[..., Any]


class OutputComparison:
    """The outputs of an uncompiled function, and the first outputs of its compiled form.

    Args:
        function: the uncompiled function; its buffers are restored after it ran.
        inputs, keywords: its arguments, which stay as they are.
        runtime: of its device.
        autocast: the context in which the function runs.
        precision: the type that autocast computes in; ``None`` for that of each output.
        tf32: whether the compiled form may compute in TF32. The reference does not.
    """

    def __init__(
        self,
        function: Call,
        inputs: Any,
        keywords: Any,
        runtime: DeviceRuntime,
        *,
        autocast: AbstractContextManager[Any],
        precision: torch.dtype | None = None,
        tf32: bool = False,
    ) -> None:
        self._precision, self._tf32 = precision, tf32
        self._outputs: list[torch.Tensor] | None = None
        self._error = ""
        with _restore_buffers(function), autocast, torch.no_grad():
            try:
                with runtime.preserve_random_state():
                    self._reference = _run(function, inputs, keywords)
                with runtime.preserve_random_state():
                    torch.rand(1)
                    torch.manual_seed(torch.initial_seed() + 1)
                    again = _run(function, inputs, keywords)
            except (RuntimeError, TypeError, ValueError) as error:
                self._error = f"it cannot run without compilation: {type(error).__name__}"
                return
        if self._difference(again)[0] != AGREES:
            self._error = "it draws random numbers, which compiled code draws in another order"

    def keeping_first_outputs(self, compiled: Call) -> Call:
        """Returns the compiled form as a function that keeps its first outputs."""

        def call(*inputs: Any, **keywords: Any) -> Any:
            output = compiled(*inputs, **keywords)
            if self._outputs is None:
                self._outputs = _list_tensors(output)
            return output

        return call

    def result(self) -> Agreement:
        """Returns the comparison, after the compiled form ran."""
        if self._error or self._outputs is None:
            return Agreement(UNKNOWN, reason=self._error or "it did not run")
        state, error, reason = self._difference(self._outputs)
        if state == AGREES and are_meaningless(self._reference):
            return Agreement(UNKNOWN, reason=MEANINGLESS)
        return Agreement(state, error, reason)

    def _difference(self, outputs: list[torch.Tensor]) -> tuple[str, float | None, str]:
        if len(outputs) != len(self._reference):
            return DIFFERS, None, f"{len(outputs)} output tensors instead of {len(self._reference)}"
        worst, reason = 0.0, ""
        for index, (found, expected) in enumerate(zip(outputs, self._reference, strict=True)):
            if found.shape != expected.shape or found.dtype != expected.dtype:
                return DIFFERS, None, f"output {index} has another shape or type"
            difference = compute_relative_difference(found, expected)
            if math.isinf(difference):
                return DIFFERS, None, f"output {index} has NaN or infinity in other elements than without compilation"
            if difference > self._tolerance(expected.dtype):
                reason = reason or f"output {index} by more than rounding explains"
            worst = max(worst, difference)
        return (DIFFERS if reason else AGREES), worst, reason

    def _tolerance(self, dtype: torch.dtype) -> float:
        if self._precision is not None and dtype.is_floating_point:
            dtype = self._precision
        return TF32_TOLERANCE if self._tf32 and dtype == torch.float32 else find_tolerance(dtype)


def _run(function: Call, inputs: Any, keywords: Any) -> list[torch.Tensor]:
    copied = torch.utils._pytree.tree_map(clone_input, (inputs, keywords))
    return _list_tensors(function(*copied[0], **copied[1]))


def _list_tensors(output: Any) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(output)
    return [leaf.detach().clone() for leaf in leaves if isinstance(leaf, torch.Tensor)]


@contextmanager
def _restore_buffers(function: Call) -> Iterator[None]:
    buffers = list(function.buffers()) if isinstance(function, torch.nn.Module) else []
    kept = [buffer.clone() for buffer in buffers]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in zip(buffers, kept, strict=True):
                buffer.copy_(value)

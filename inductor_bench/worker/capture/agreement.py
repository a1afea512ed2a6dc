"""Compares the first outputs of a compiled program with those of the same program without compilation.

The reference comes from the same process, inputs, weights and random state, before anything is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from inductor_bench.records.modes.comparison import AGREES, DIFFERS, UNKNOWN, Agreement

from ..device.protocol import DeviceRuntime
from ..upstream.inductor import clone_input

TOLERANCES = {"float64": 1e-6, "float32": 1e-3, "float16": 1e-2, "bfloat16": 5e-2}
"""The largest relative root-mean-square difference that counts as agreement, by the type of the computation. It is
that of a whole model, in which the roundings of its kernels add up. Other types have the last one."""

TF32_TOLERANCE = 1e-2
"""The same where products of float32 are computed in TF32."""

CHUNK_ELEMENTS = 1 << 25

Call = Callable[..., Any]


class Comparison:
    """The outputs of an uncompiled function, and the first outputs of its compiled form.

    Args:
        function: the uncompiled function; its buffers are restored after it ran.
        inputs, keywords: its arguments, which stay as they are.
        runtime: of its device.
        precision: the context in which the function runs, such as autocast.
        dtype: the type of autocast; empty for that of each output.
        tf32: whether the compiled form may compute in TF32, and the reference does not.
    """

    def __init__(
        self,
        function: Call,
        inputs: Any,
        keywords: Any,
        runtime: DeviceRuntime,
        *,
        precision: AbstractContextManager[Any],
        dtype: str = "",
        tf32: bool = False,
    ) -> None:
        self._dtype, self._tf32 = dtype, tf32
        self._outputs: list[torch.Tensor] | None = None
        self._error = ""
        with _buffers_restored(function), precision, torch.no_grad():
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

    def noting(self, compiled: Call) -> Call:
        """The compiled form, whose first outputs are kept."""

        def call(*inputs: Any, **keywords: Any) -> Any:
            output = compiled(*inputs, **keywords)
            if self._outputs is None:
                self._outputs = _tensors(output)
            return output

        return call

    def result(self) -> Agreement:
        """The comparison, once the compiled form ran."""
        if self._error or self._outputs is None:
            return Agreement(UNKNOWN, reason=self._error or "it did not run")
        state, error, reason = self._difference(self._outputs)
        return Agreement(state, error, reason)

    def _difference(self, outputs: list[torch.Tensor]) -> tuple[str, float | None, str]:
        if len(outputs) != len(self._reference):
            return DIFFERS, None, f"{len(outputs)} output tensors instead of {len(self._reference)}"
        worst, reason = 0.0, ""
        for index, (found, expected) in enumerate(zip(outputs, self._reference, strict=True)):
            if found.shape != expected.shape or found.dtype != expected.dtype:
                return DIFFERS, None, f"output {index} has another shape or type"
            if not (found.is_floating_point() or found.is_complex()):
                if not torch.equal(found, expected):
                    reason = reason or f"output {index}, of whole numbers, is not equal"
                continue
            error = relative_error(found, expected)
            if not error <= self._tolerance(expected.dtype):
                reason = reason or f"output {index} differs"
            worst = max(worst, error) if not math.isnan(error) else math.inf
        shown = worst if math.isfinite(worst) else None
        if shown is None:
            reason = "not-a-number or infinity stands at other places"
        return (DIFFERS if reason else AGREES), shown, reason

    def _tolerance(self, dtype: torch.dtype) -> float:
        name = self._dtype or str(dtype).removeprefix("torch.")
        if self._tf32 and name == "float32":
            return TF32_TOLERANCE
        return TOLERANCES.get(name, TOLERANCES["bfloat16"])


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The root mean square of the difference, divided by that of ``expected``; NaN where only one is finite."""
    if found.is_complex():
        found, expected = torch.view_as_real(found.resolve_conj()), torch.view_as_real(expected.resolve_conj())
    difference = size = 0.0
    parts = zip(found.reshape(-1).split(CHUNK_ELEMENTS), expected.reshape(-1).split(CHUNK_ELEMENTS), strict=True)
    for one, other in parts:
        finite = torch.isfinite(other)
        if not torch.equal(torch.isfinite(one), finite):
            return math.nan
        one, other = one[finite].double(), other[finite].double()
        difference += float((one - other).square().sum())
        size += float(other.square().sum())
    if difference == 0:
        return 0.0
    return math.sqrt(difference / size) if size else math.inf


def _run(function: Call, inputs: Any, keywords: Any) -> list[torch.Tensor]:
    copied = torch.utils._pytree.tree_map(clone_input, (inputs, keywords))
    return _tensors(function(*copied[0], **copied[1]))


def _tensors(output: Any) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(output)
    return [leaf.detach().clone() for leaf in leaves if isinstance(leaf, torch.Tensor)]


@contextmanager
def _buffers_restored(function: Call) -> Iterator[None]:
    buffers = list(function.buffers()) if isinstance(function, torch.nn.Module) else []
    kept = [buffer.clone() for buffer in buffers]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in zip(buffers, kept, strict=True):
                buffer.copy_(value)

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
from .differences import are_meaningless, relative_difference, tolerance_of

TF32_TOLERANCE = 1e-2
"""Relative difference that rounding explains where products of float32 are computed in TF32."""

MEANINGLESS = "they hold no finite number, with compilation and without; choose other inputs or weights"
"""Why outputs that are the same say nothing."""

Call = Callable[..., Any]


class OutputComparison:
    """The outputs of an uncompiled function, and the first outputs of its compiled form.

    Args:
        function: the uncompiled function; its buffers are restored after it ran.
        inputs, keywords: its arguments, which stay as they are.
        runtime: of its device.
        autocast: the context in which the function runs.
        precision: the type that autocast computes in; ``None`` for that of each output.
        tf32: whether the compiled form may compute in TF32, and the reference does not.
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
        with _buffers_restored(function), autocast, torch.no_grad():
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
            difference = relative_difference(found, expected)
            if math.isinf(difference):
                return DIFFERS, None, f"not-a-number or infinity stands at other places in output {index}"
            if difference > self._tolerance(expected.dtype):
                reason = reason or f"output {index} by more than rounding explains"
            worst = max(worst, difference)
        return (DIFFERS if reason else AGREES), worst, reason

    def _tolerance(self, dtype: torch.dtype) -> float:
        if self._precision is not None and dtype.is_floating_point:
            dtype = self._precision
        return TF32_TOLERANCE if self._tf32 and dtype == torch.float32 else tolerance_of(dtype)


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

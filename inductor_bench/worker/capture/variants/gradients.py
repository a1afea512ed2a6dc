"""Notes the gradients of the program's first optimizer steps, and the losses that they come from.

They serve to compare two processes of one program, also with gradient accumulation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ....records.optimization import StepDigest
from ...upstream.observing import call_before_optimizer_steps


class GradientNotes:
    """The gradients of a number of optimizer steps.

    Args:
        steps: the number of steps.
    """

    def __init__(self, steps: int) -> None:
        self.digests: list[StepDigest] = []
        self._steps = steps
        self._losses: list[Any] = []
        self._end: Callable[[], None] = lambda: None

    @property
    def is_complete(self) -> bool:
        """Whether all steps were noted."""
        return len(self.digests) >= self._steps

    def listen(self) -> None:
        """Begins to note; ``torch`` has been imported. (torch 2.9, 2.13)"""
        if not self._steps:
            return
        import torch

        original = torch.Tensor.backward

        @functools.wraps(original)
        def backward(tensor: Any, *arguments: Any, **keywords: Any) -> Any:
            if not self.is_complete and tensor.numel() == 1:
                self._losses.append(tensor.detach().clone())
            return original(tensor, *arguments, **keywords)  # type: ignore[no-untyped-call]

        torch.Tensor.backward = backward  # type: ignore[assignment]
        stop = call_before_optimizer_steps(self._note)

        def end() -> None:
            stop()
            torch.Tensor.backward = original  # type: ignore[method-assign]

        self._end = end

    def _note(self, optimizer: Any) -> None:
        import torch

        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        with torch.no_grad():
            norms = [_compute_norm(one.grad) for one in parameters]
            losses = [float(one) for one in self._losses]
        self._losses = []
        total = sum(norm**2 for norm in norms) ** 0.5
        loss = sum(losses) / len(losses) if losses else None
        self.digests.append(StepDigest(len(self.digests), total, tuple(norms), loss))
        if self.is_complete:
            self._end()


def _compute_norm(gradient: Any) -> float:
    if gradient is None:
        return 0.0
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    return float(values.double().norm())

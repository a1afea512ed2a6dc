"""Calls of library operators as the profiler recorded them, and their costs."""

from __future__ import annotations

from dataclasses import dataclass

from .trace import TensorArguments


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One call in a trace. ``name`` is the dispatcher's name (``aten::addmm``), ``device`` a device type."""

    name: str
    arguments: TensorArguments
    device: str  # "cuda", "cpu", "xpu"


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """The work of one call, independent of the kernels that do it.

    Attributes:
        flops: the FLOPs of matrix products, convolutions and attention; a multiply-add counts as two. ``None`` for an
            operator without them, or where they cannot be counted.
        moved_bytes: every input read once plus every output written once; 0 for a view; ``None`` where unknown.
        dtype: the element type of the arithmetic, in torch's spelling.
        reason: the reason why a figure is missing; empty where none is. An operator without matrix products has no
            ``flops`` and needs no reason.
    """

    flops: int | None = None
    moved_bytes: int | None = None
    dtype: str | None = None
    reason: str = ""

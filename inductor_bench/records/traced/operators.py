"""What a call of a library operator costs: the question (as the profiler recorded the call) and the answer."""

from __future__ import annotations

from dataclasses import dataclass

from .trace import TensorArguments


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One call as a trace recorded it. ``name`` is the dispatcher's (``aten::addmm``), ``device`` a device type."""

    name: str
    arguments: TensorArguments
    device: str  # "cuda", "cpu", "xpu"


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """What one such call has to do, whichever kernels do it.

    ``flops`` counts a multiply-add as two and matrix products only (convolutions, attention); ``None`` where the
    operator has none or none can be counted. ``moved_bytes`` is every input read once and every output written once;
    0 for a view; ``None`` where unknown. ``dtype`` is the element type that the arithmetic works on, in torch's
    spelling. ``reason`` says why a figure is missing, and is empty where nothing is: an operator without a matrix
    product has no ``flops`` and needs no reason.
    """

    flops: int | None = None
    moved_bytes: int | None = None
    dtype: str | None = None
    reason: str = ""

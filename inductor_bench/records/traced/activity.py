"""Attributed activities: the step in memory between a trace and the aggregation."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..code.source import CallSite, KernelDefinition
from .trace import DeviceEvent, TensorArguments


@dataclass(frozen=True, slots=True)
class Activity:
    """One device event, or on a CPU one outermost operator, of one iteration.

    Attributes:
        iteration: index of the iteration.
        name: the name of the device event, the kernel or the library operator.
        kind: ``kernel``, ``memcpy`` or ``memset``.
        duration_s: duration in seconds.
        call: the call site in the compiled module.
        kernel: the kernel of the module that ran.
        operator: the library operator by the profiler's name, for example ``aten::convolution``.
        instance: a number that all activities of one operator call share.
        arguments: the arguments of the outermost operator.
        config: the launch configuration of a Triton kernel.
        event: the device event.
        inner: name and arguments of the innermost operator, where it differs from the outermost and was recorded.
    """

    iteration: int
    name: str
    kind: str
    duration_s: float
    call: CallSite | None
    kernel: KernelDefinition | None
    operator: str | None
    instance: int
    arguments: TensorArguments | None
    config: dict[str, int] = field(default_factory=dict)
    event: DeviceEvent | None = None
    inner: tuple[str, TensorArguments] | None = None

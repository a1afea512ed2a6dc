"""Something that ran, attributed: the step between a trace and the aggregation. Lives in memory only, never on disk."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..code.source import CallSite, KernelDefinition
from .trace import DeviceEvent, TensorArguments


@dataclass(frozen=True, slots=True)
class Activity:
    """One device event, or on a CPU one outermost operator, of one iteration.

    ``call`` is the call site of the compiled module, ``kernel`` the kernel of the module that ran, ``operator`` the
    library operator as the profiler names it (``aten::convolution``). ``instance`` is the same number for all
    activities of one operator call. ``arguments`` are those of the outermost operator; ``inner`` is the innermost one
    that launched it, by name and arguments, where that is another and was recorded.
    """

    iteration: int
    name: str
    kind: str  # "kernel", "memcpy" or "memset"
    duration_s: float
    call: CallSite | None
    kernel: KernelDefinition | None
    operator: str | None
    instance: int
    arguments: TensorArguments | None
    config: dict[str, int] = field(default_factory=dict)
    event: DeviceEvent | None = None
    inner: tuple[str, TensorArguments] | None = None

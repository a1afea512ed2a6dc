"""The contents of a trace of torch.profiler: of one compiled module, and of a whole program. Times are seconds."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from .code import CallSite, KernelDefinition

# The contents of a Chrome trace of the PyTorch profiler that the aggregation needs. Times are seconds.


@dataclass(frozen=True, slots=True)
class TensorArguments:
    """The recorded inputs of one host operator: parallel tuples with one entry per argument."""

    dims: tuple[Any, ...]  # sizes and strides in elements; ``()`` for a scalar, a tuple of tuples for a tensor list
    strides: tuple[Any, ...]  # sizes and strides in elements; ``()`` for a scalar, a tuple of tuples for a tensor list
    types: tuple[str, ...]  # the profiler's names, for example ``c10::Half``, ``float``, ``Scalar``, ``TensorList``
    concrete: tuple[str, ...]  # the scalars as text


class HostOp(NamedTuple):
    """One operator on the host. ``parent`` is the index of the enclosing operator on the same thread, or -1."""

    name: str
    start_s: float
    duration_s: float
    thread: str
    external_id: int
    parent: int
    arguments: TensorArguments | None = None
    kernel_file: str | None = None
    kernel_hash: str | None = None
    kernel_kwargs: str | None = None  # as recorded: "XBLOCK=16,YBLOCK=64"
    num_warps: int | None = None
    num_stages: int | None = None


class DeviceEvent(NamedTuple):
    """One activity on a device. ``host_op`` is the index of the innermost operator around its launch, or -1."""

    name: str
    kind: str  # "kernel", "memcpy" or "memset"
    start_s: float
    duration_s: float
    device: int
    stream: int
    correlation: int
    host_op: int
    launch_start_s: float | None = None
    registers: int | None = None
    shared_memory_bytes: int | None = None
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    occupancy: float | None = None  # estimated achieved occupancy, 0 to 1
    moved_bytes: int | None = None  # the size of a copy or memset


@dataclass(frozen=True, slots=True)
class TraceDevice:
    """A device in the header of a trace."""

    index: int
    name: str
    compute_capability: str
    multiprocessors: int | None
    memory_bytes: int | None


@dataclass(frozen=True)
class Trace:
    """The events of a trace. ``synchronizations`` are the start times, on the host, of device synchronisations."""

    host_ops: tuple[HostOp, ...]
    device_events: tuple[DeviceEvent, ...]
    synchronizations: tuple[float, ...]
    devices: tuple[TraceDevice, ...]
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Iteration:
    """One run of the module in a trace. ``top_ops`` and ``device_events`` are indices into the trace's tuples."""

    start_s: float
    end_s: float
    top_ops: tuple[int, ...]  # outermost operators, in call order
    device_events: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Gaps:
    """The number of idle stretches between the activities of one iteration, and their median and maximum in seconds."""

    count: int
    median_s: float
    longest_s: float


# Calls of library operators as the profiler recorded them, and their costs.


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One call in a trace. ``name`` is the dispatcher's name (``aten::addmm``), ``device`` a device type."""

    name: str
    arguments: TensorArguments
    device: str  # "cuda", "cpu", "xpu"


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """The work of one call, independent of the kernels that do it."""

    # the FLOPs of matrix products, convolutions and attention; a multiply-add counts as two. ``None`` for an operator
    # without them, or if they cannot be counted
    flops: int | None = None
    # every input read once plus every output written once; 0 for a view; ``None`` if unknown
    moved_bytes: int | None = None
    dtype: str | None = None  # the element type of the arithmetic, in torch's spelling
    # the reason why a figure is missing; empty if none is. An operator without matrix products has no ``flops`` and
    # needs no reason.
    reason: str = ""
    # on a CPU: the time of the call if float32 products are computed in bfloat16, divided by its time in float32, both
    # timed by themselves; ``None`` if it was not timed
    bfloat16_ratio: float | None = None


# Attributed activities: the step in memory between a trace and the aggregation.


@dataclass(frozen=True, slots=True)
class Activity:
    """One device event, or on a CPU one outermost operator, of one iteration."""

    iteration: int  # index of the iteration
    name: str  # the name of the device event, the kernel or the library operator
    kind: str  # ``kernel``, ``memcpy`` or ``memset``
    duration_s: float  # duration in seconds
    call: CallSite | None  # the call site in the compiled module
    kernel: KernelDefinition | None  # the kernel of the module that ran
    operator: str | None  # the library operator by the profiler's name, for example ``aten::convolution``
    instance: int  # a number that all activities of one operator call share
    arguments: TensorArguments | None  # the arguments of the outermost operator
    config: dict[str, int] = field(default_factory=dict)  # the launch configuration of a Triton kernel
    event: DeviceEvent | None = None  # the device event
    # name and arguments of the innermost operator, if it differs from the outermost and was recorded
    inner: tuple[str, TensorArguments] | None = None


# The contents of a whole program's trace: beside a :class:`Trace` what the host did, and who did each device event's
# work. Times are seconds after the first decoded event.


class Range(NamedTuple):
    """A stretch of one thread: an annotation, a call of the device's runtime or driver, or a Python function.

    ``correlation`` is the number that a launch shares with its device events; -1 if there is none.
    """

    name: str
    start_s: float
    duration_s: float
    thread: str
    correlation: int = -1

    @property
    def end_s(self) -> float:
        return self.start_s + self.duration_s


@dataclass(frozen=True)
class ProgramTrace:
    """A trace of a program. Ranges are sorted by start; of equal starts the longer comes first."""

    # operators and device events. Calls of compiled graphs and boundaries of steps are host operators here.
    trace: Trace
    annotations: tuple[Range, ...]  # ranges of ``record_function``
    runtime: tuple[Range, ...]  # calls of the device's runtime and driver
    frames: tuple[Range, ...]  # Python functions and ``nn.Module`` calls; empty unless the reader was asked for them
    sequences: tuple[int, ...]  # the autograd sequence number of each host operator, or -1
    # for each host operator the number of the forward's thread if it runs in a backward, else 0
    forward_threads: tuple[int, ...]
    origin_ns: int  # the time of second 0 on the file's own clock


class GraphCall(NamedTuple):
    """One call of a compiled graph.

    ``graph`` is its number in the observation, ``op`` the index of its range, and ``in_backward`` says whether a node
    of autograd made the call.
    """

    graph: int
    op: int
    start_s: float
    end_s: float
    thread: str
    in_backward: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """One device event of a program, on a CPU one stretch of a host thread, and who did it."""

    kind: str  # a kind of :data:`..run.KINDS`, without ``idle``
    label: str  # the operator, the optimizer, the collective or the direction of a copy; empty for a graph
    start_s: float  # when it ran
    end_s: float  # when it ran
    launch_start_s: float  # the host's call that launched it; its own start if that is unknown
    launch_end_s: float  # the host's call that launched it; its own start if that is unknown
    graph: int | None = None  # the number of the compiled graph; ``None`` for other work
    call: int = -1  # the index of the graph's call; -1 for other work
    replayed: bool = False  # whether a CUDA graph's replay launched it
    op: int = -1  # the index of the outermost eager operator, or -1
    event: int = -1  # the index of the device event; -1 on a CPU
    lane: str = ""  # where it ran, for a picture
    moved_bytes: int | None = None  # the size of a copy; ``None`` if it is unknown
    is_fused: bool = False  # whether it is a kernel of torch's fused optimizers
    is_pageable: bool = False  # whether it copies from or to pageable memory of the host
    activity: Activity | None = None  # the call site and kernel, if they are known

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True)
class StepWindow:
    """Whole steps of a profile."""

    thread: str  # the thread that crossed the boundaries
    marks: tuple[float, ...]  # the host's times of the boundaries
    bounds: tuple[float, ...]  # the device's: the work that step k launched lies before ``bounds[k + 1]``
    # the weight of each step, with a mean of 1, so that each kind of steps counts as often as among the timed steps;
    # empty if all steps count alike
    weights: tuple[float, ...] = ()

    @property
    def step_count(self) -> int:
        return len(self.marks) - 1

    @property
    def step_time_s(self) -> float:
        """The mean time of a profiled step on the device's clock, with the weights of the steps."""
        if not self.weights:
            return (self.bounds[-1] - self.bounds[0]) / self.step_count
        steps = zip(self.weights, pairwise(self.bounds), strict=True)
        return math.fsum(weight * (end - start) for weight, (start, end) in steps) / self.step_count

    def contains_host_time(self, time_s: float) -> bool:
        """Whether the host's time ``time_s`` is within the window."""
        return self.marks[0] <= time_s < self.marks[-1]

    def weigh(self, time_s: float) -> float:
        """The weight of the step that contains the host's time ``time_s``; 0 outside of the window."""
        if not self.contains_host_time(time_s):
            return 0.0
        return self.weights[bisect_right(self.marks, time_s) - 1] if self.weights else 1.0

    def weigh_span(self, start_s: float, end_s: float) -> float:
        """The seconds between two times of the device, those in each step times the weight of the step."""
        if not self.weights:
            return end_s - start_s
        cuts = (start_s, *(bound_s for bound_s in self.bounds if start_s < bound_s < end_s), end_s)
        return math.fsum(self.weigh_on_device(begin) * (end - begin) for begin, end in pairwise(cuts))

    def weigh_on_device(self, time_s: float) -> float:
        """The weight of the step that contains the device's time ``time_s``, or of the step next to it."""
        place = bisect_right(self.bounds, time_s) - 1
        return self.weights[min(max(place, 0), self.step_count - 1)] if self.weights else 1.0


class HostActivity(NamedTuple):
    """What the host did in a stretch of time, in the words of the idle parts.

    ``op`` is the outermost eager operator around it, and ``graph`` the compiled graph that it launched, each or -1.
    """

    start_s: float
    end_s: float
    label: str
    op: int = -1
    graph: int = -1


class UserCall(NamedTuple):
    """Where the user's program called an operator, as a trace with Python stacks shows it."""

    module: str = ""  # the class of the innermost ``nn.Module`` around the call; empty if there is none
    # the file of the innermost function outside of torch, relative to a folder of ``sys.path``; may be empty
    file: str = ""
    # the line on which that function begins; of a function that was running when the profile began, the line on which
    # it was then
    line: int = 0
    function: str = ""  # its name
    # the names of the functions and module classes that it called, outermost first; that of the operator comes last if
    # no Python function called it
    called: tuple[str, ...] = ()
    # when the outermost of the Python functions began that it called: operators with the same time are of one call;
    # ``None`` if it called none
    begun_s: float | None = None

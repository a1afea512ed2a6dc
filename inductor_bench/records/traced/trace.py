"""The contents of a Chrome trace of the PyTorch profiler that the aggregation needs. Times are seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class TensorArguments:
    """The recorded inputs of one host operator: parallel tuples with one entry per argument.

    Attributes:
        dims, strides: sizes and strides in elements; ``()`` for a scalar, a tuple of tuples for a tensor list.
        types: the profiler's names, for example ``c10::Half``, ``float``, ``Scalar``, ``TensorList``.
        concrete: the scalars as text.
    """

    dims: tuple[Any, ...]
    strides: tuple[Any, ...]
    types: tuple[str, ...]
    concrete: tuple[str, ...]


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
    """A trace. ``synchronizations`` are the start times, on the host, of device synchronisations."""

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

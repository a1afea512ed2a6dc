"""What a Chrome trace of the PyTorch profiler holds, reduced to what the aggregation needs. Times in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class TensorArguments:
    """The recorded inputs of one host operator, parallel tuples, one entry per argument.

    ``dims`` and ``strides`` are ``()`` for scalars; a tensor list is a tuple of tuples. ``types`` are the
    profiler's names (``c10::Half``, ``float``, ``Scalar``, ``TensorList``); ``concrete`` the scalars as text.
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
    kernel_num_gb: float | None = None
    kernel_flop: float | None = None


class DeviceEvent(NamedTuple):
    """One activity on a device. ``host_op`` is the index of the innermost operator that launched it, or -1."""

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
    moved_bytes: int | None = None  # of a copy or memset


@dataclass(frozen=True, slots=True)
class TraceDevice:
    """A device as the trace's header describes it."""

    index: int
    name: str
    compute_capability: str
    multiprocessors: int | None
    memory_bytes: int | None


@dataclass(frozen=True)
class Trace:
    """A whole trace. ``synchronizations`` are the start times of device synchronisations on the host."""

    host_ops: tuple[HostOp, ...]
    device_events: tuple[DeviceEvent, ...]
    synchronizations: tuple[float, ...]
    devices: tuple[TraceDevice, ...]
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Iteration:
    """One run of the module inside a trace: index ranges are into ``Trace.host_ops`` and ``device_events``."""

    start_s: float
    end_s: float
    top_ops: tuple[int, ...]  # outermost operators, in call order
    device_events: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Gaps:
    """Idle stretches of the device between the activities of one iteration."""

    count: int
    total_s: float
    median_s: float
    longest_s: float

"""Requests about a worker's process and its device."""

from __future__ import annotations

from dataclasses import dataclass

from ..devices.nvidia.architectures import Architecture
from ..records.device_use import DeviceUse
from ..records.run import Environment
from .request import Request

COMPILES_TRITON = "INDUCTOR_BENCH_COMPILES_TRITON"
"""Environment variable of a worker that only compiles Triton kernels: it imports the compiler before its first request,
and leaves its core to processes that time.
"""

LAUNCHES_TRITON = "INDUCTOR_BENCH_LAUNCHES_TRITON"
"""Environment variable of a worker that times Triton kernels: it imports their launcher before its first request."""

LAUNCH_GAP = "INDUCTOR_BENCH_LAUNCH_GAP"
"""Environment variable of workers that share a GPU: the file with the gap between two launches, which the first of them
that is ready measures for all."""


@dataclass(frozen=True)
class TellEnvironment(Request[Environment]):
    """Requests the environment in which the process measures."""


@dataclass(frozen=True)
class FindDeviceUse(Request[DeviceUse | None]):
    """Requests the use of the GPU by other jobs. The answer is ``None`` where the driver does not report it."""


@dataclass(frozen=True)
class GetReady(Request[None]):
    """Lets the process do what it does once before it times kernels on a GPU."""


@dataclass(frozen=True)
class StartCompilers(Request[None]):
    """Starts the processes in which Inductor compiles the choices of library calls, and imports its compiler.

    Attributes:
        sharers: the number of workers that divide Inductor's processes among them.
    """

    sharers: int = 1


@dataclass(frozen=True)
class TellArchitecture(Request[Architecture]):
    """Requests the architecture of the GPU."""


@dataclass(frozen=True)
class Versions:
    """The versions of the packages that compile Triton kernels."""

    torch: str
    triton: str


@dataclass(frozen=True)
class Pretend(Request[Versions]):
    """Lets the process compile kernels for a GPU that the machine lacks."""

    architecture: Architecture

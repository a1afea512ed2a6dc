"""Requests about the process of a worker and its device."""

from __future__ import annotations

from dataclasses import dataclass

from ..devices.nvidia.architectures import Architecture
from ..records.device_use import DeviceUse
from ..records.run import Environment
from .request import Request


@dataclass(frozen=True)
class TellEnvironment(Request[Environment]):
    """Asks what the process measures with."""


@dataclass(frozen=True)
class FindDeviceUse(Request[DeviceUse | None]):
    """Asks what other jobs do on the GPU. The answer is ``None`` where the driver does not tell."""


@dataclass(frozen=True)
class TellArchitecture(Request[Architecture]):
    """Asks for the architecture of the GPU."""


@dataclass(frozen=True)
class Versions:
    """The versions of what compiles Triton kernels."""

    torch: str
    triton: str


@dataclass(frozen=True)
class Pretend(Request[Versions]):
    """Lets the process compile for a GPU that is not here."""

    architecture: Architecture

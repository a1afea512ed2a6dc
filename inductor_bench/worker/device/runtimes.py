"""The runtime of each kind of device. Every measurement begins by asking for one, and is refused here if at all."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from inductor_bench.devices.cpu import CPU
from inductor_bench.devices.table import device_of
from inductor_bench.errors import InductorBenchError

from .accelerator import AcceleratorRuntime
from .cpu import CpuRuntime
from .nvidia import NvidiaRuntime
from .protocol import DeviceRuntime

NVIDIA_RUNTIME = NvidiaRuntime()
RUNTIMES: Mapping[str, DeviceRuntime] = {runtime.device.type: runtime for runtime in (CpuRuntime(), NVIDIA_RUNTIME)}
"""By torch's name of the device type."""


def runtime_of(kind: str) -> DeviceRuntime:
    """The runtime of a device type, whether or not such a device is here.

    Raises:
        InductorBenchError: what torch calls so here is a device that is not measured.
    """
    runtime = RUNTIMES.get(kind) or AcceleratorRuntime(device_of(kind))
    runtime.check_support()
    return runtime


def open_device(name: str) -> tuple[DeviceRuntime, torch.device]:
    """A device that is here, by its type or its name, such as ``cuda:1``, and its runtime.

    Raises:
        InductorBenchError: it is not here, or is not measured.
    """
    try:
        place = torch.device(name)
    except RuntimeError as error:
        raise InductorBenchError(f"{name} is no device", "give cpu, cuda or cuda:N") from error
    runtime = runtime_of(place.type)
    runtime.check_presence(place)
    return runtime, place


def best_device_type() -> str:
    """The type of the device that a program runs on where none is asked for."""
    present = (runtime.device for runtime in RUNTIMES.values() if runtime.is_present())
    return next((device.type for device in present if not device.runs_on_host), CPU.type)

"""The table of device runtimes. Every measurement gets its runtime here, which refuses unsupported devices."""

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
"""The runtimes, by torch's name of the device type."""


def runtime_of(kind: str) -> DeviceRuntime:
    """The runtime of a device type, with or without such a device on this machine.

    Raises:
        InductorBenchError: this torch uses the name for an unsupported device.
    """
    runtime = RUNTIMES.get(kind) or AcceleratorRuntime(device_of(kind))
    runtime.check_support()
    return runtime


def open_device(name: str) -> tuple[DeviceRuntime, torch.device]:
    """The runtime of a device, and the device, by its type or its name, such as ``cuda:1``.

    Raises:
        InductorBenchError: the device is missing or unsupported.
    """
    try:
        place = torch.device(name)
    except RuntimeError as error:
        raise InductorBenchError(f"{name} is no device", "give cpu, cuda or cuda:N") from error
    runtime = runtime_of(place.type)
    runtime.check_presence(place)
    return runtime, place


def best_device_type() -> str:
    """The type of the device that a program runs on by default: an accelerator that is present, otherwise the CPU."""
    present = (runtime.device for runtime in RUNTIMES.values() if runtime.is_present())
    return next((device.type for device in present if not device.runs_on_host), CPU.type)

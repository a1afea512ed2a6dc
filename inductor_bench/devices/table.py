"""The kinds of devices that are measured, and how to find one by what a record says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..records.run import Environment, Peaks
from .accelerator import Accelerator
from .cpu import CPU
from .nvidia.device import NVIDIA
from .protocol import Device

DEVICES: Mapping[str, Device] = {device.type: device for device in (CPU, NVIDIA)}
"""By torch's name of the device type."""


def device_of(name: str | None) -> Device:
    """The kind of a device by its type or its name, such as ``cuda:1``; of an unknown type, an accelerator."""
    kind = (name or "").partition(":")[0]
    return DEVICES.get(kind) or Accelerator(kind)


def common_device(names: Iterable[str]) -> Device:
    """The kind of device that words about several modules fit: the CPU only where all of them run there."""
    devices = [device_of(name) for name in names]
    accelerators = (device for device in devices if not device.runs_on_host)
    return next(accelerators, devices[0] if devices else Accelerator(""))


def best_device(environment: Environment) -> Device:
    """What is measured in an environment where no device is asked for."""
    return NVIDIA if environment.accelerator else CPU


def device_of_peaks(peaks: Peaks) -> Device:
    """The kind of device that peaks were measured on, as far as they tell: by the time of an empty kernel."""
    timed = peaks.launch_floor_s is not None
    return next(device for device in DEVICES.values() if device.has_launch_floor == timed)

"""The table of the kinds of devices that are measured, and functions that find a kind from a record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..records.run import Environment, Peaks
from .nvidia import NVIDIA
from .protocol import CPU, Accelerator, Device

DEVICES: Mapping[str, Device] = {device.type: device for device in (CPU, NVIDIA)}
"""The kinds of devices by torch's name of the device type."""


def find_device(name: str | None) -> Device:
    """Returns the kind of a device by its type or its name, such as ``cuda:1``.

    An unknown type gives an :class:`Accelerator` with default properties.
    """
    kind = (name or "").partition(":")[0]
    return DEVICES.get(kind) or Accelerator(kind)


def find_common_device(names: Iterable[str]) -> Device:
    """Returns the kind of device for texts about several modules: the CPU only if all modules run on the CPU."""
    devices = [find_device(name) for name in names]
    accelerators = (device for device in devices if not device.runs_on_host)
    return next(accelerators, devices[0] if devices else Accelerator(""))


def find_best_device(environment: Environment) -> Device:
    """Returns the kind of device that is measured by default: the GPU if there is one, otherwise the CPU."""
    return NVIDIA if environment.device.accelerator else CPU


def find_device_of_peaks(peaks: Peaks) -> Device:
    """Returns the kind of device that peaks were measured on. Only peaks of a GPU hold the time of an empty kernel."""
    timed = peaks.launch_floor_s is not None
    return next(device for device in DEVICES.values() if device.has_launch_floor == timed)

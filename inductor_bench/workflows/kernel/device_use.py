"""A GPU that another job uses is measured on only where the user insists."""

from __future__ import annotations

from collections.abc import Callable

from ...analysis.device_use import describe_use
from ...errors import InductorBenchError
from ...messages.machine import FindDeviceUse
from ...records.device_use import DeviceUse

LOOK_S = 60.0


class DeviceInUseError(InductorBenchError):
    """Nothing can be measured on the GPU, whatever the kernel."""


def look_for_others(ask: Callable[[FindDeviceUse, float], DeviceUse | None], force: bool) -> str:
    """Which other job uses the worker's GPU; empty where none does, or where it cannot be told.

    Args:
        ask: asks the worker that is about to measure.
        force: whether to measure all the same.

    Raises:
        DeviceInUseError: one does, and nobody insists.
    """
    found = ask(FindDeviceUse(), LOOK_S)
    others = describe_use(found) if found else ""
    if others and not force:
        raise DeviceInUseError(
            f"{others}; its times would be mixed with yours",
            "wait for it, choose another GPU with CUDA_VISIBLE_DEVICES, or measure anyway with --force",
        )
    return others

"""Refuses to measure on a GPU that another job uses, unless the user insists."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ...analysis.device_use import describe_use
from ...errors import InductorBenchError
from ...messages.machine import FindDeviceUse
from ...records.device_use import DeviceUse
from ...store.device_turn import TURN, WAITING

DEVICE_USE_S = 60.0
"""Limit in seconds for the worker's answer."""


class DeviceInUseError(InductorBenchError):
    """Another job uses the GPU, so that no kernel is measured on it."""


def find_other_job(ask: Callable[[FindDeviceUse, float], DeviceUse | None], force: bool) -> str:
    """A description of the job that uses the worker's GPU; empty where there is none or it is unknown.

    Args:
        ask: sends a request, with a limit in seconds, to the worker that is about to measure.
        force: whether the user insists on the measurement.

    Raises:
        DeviceInUseError: another job uses the GPU, and ``force`` is false.
    """
    found = ask(FindDeviceUse(), DEVICE_USE_S)
    others = describe_use(found) if found else ""
    if others and not force:
        raise DeviceInUseError(
            f"{others}; its times would be mixed with yours",
            "wait for it, choose another GPU with CUDA_VISIBLE_DEVICES, or measure anyway with --force",
        )
    return others


def kernel_environment(folder: Path) -> dict[str, str]:
    """The environment of workers with a scratch folder.

    A parent that shares the GPU with other jobs holds its turn for the whole request, so that the workers do not wait
    for these.
    """
    environment = {"TRITON_CACHE_DIR": str(folder / "triton"), **os.environ}
    return {name: value for name, value in environment.items() if name not in (TURN, WAITING)}

"""Which devices a batch measures on: every GPU that this process may use, or the CPU."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from ..errors import UsageError
from ..launch.jobs import CPU
from ..records.batch import ModelRequest


def find_devices(asked: Sequence[str], jobs: int | None, requests: Sequence[ModelRequest]) -> tuple[str, ...]:
    """The devices, one model at a time on each.

    Args:
        asked: those that were named; none for all that there are.
        jobs: the most models at once.
        requests: the models; where all are for the CPU no GPU is needed.

    Raises:
        UsageError: a device is not there or is named twice, or there are more jobs than devices.
    """
    if len(set(asked)) < len(asked):
        raise UsageError("--devices names a device twice", "two models on one device would share its time")
    there = () if requests and all(request.device == CPU for request in requests) else visible_gpus()
    if asked and there:
        strange = [device for device in asked if device not in there]
        if strange:
            raise UsageError(f"there is no GPU {strange[0]}", f"there are {', '.join(there)}; --device cpu is the CPU")
    elif asked and list(asked) != [CPU]:
        raise UsageError(f"there is no GPU {asked[0]}", "leave --devices away to measure on the CPU")
    devices = tuple(asked) or there or (CPU,)
    if jobs is not None and jobs > len(devices):
        raise UsageError(
            f"--jobs {jobs} with {len(devices)} device{'s' * (len(devices) > 1)}: models would share its time",
            "take no more jobs than devices",
        )
    return devices[:jobs]


def visible_gpus() -> tuple[str, ...]:
    """The GPUs that CUDA would use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return tuple(name for part in visible.split(",") if (name := part.strip()) and name != "-1")
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(listed.stdout.split()) if listed.returncode == 0 else ()

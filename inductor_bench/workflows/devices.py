"""Chooses the devices of a batch: every GPU that this process may use, or the CPU."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..devices.cpu import CPU
from ..devices.nvidia.visible import visible_gpus
from ..errors import UsageError
from ..launch.cores import jobs_at_once
from ..launch.jobs import is_host
from ..records.batches.batch import ModelRequest


def find_devices(asked: Sequence[str], requests: Sequence[ModelRequest]) -> tuple[str, ...]:
    """The devices on which models are timed, one model at a time on each.

    Args:
        asked: the requested devices; empty for all devices.
        requests: the models; a batch of models for the CPU needs no GPU.

    Raises:
        UsageError: a device is missing or requested twice.
    """
    if len(set(asked)) < len(asked):
        raise UsageError("--devices names a device twice", "two models on one device would share its time")
    there = () if requests and all(is_host(request.device) for request in requests) else visible_gpus()
    if asked and there:
        strange = [device for device in asked if device not in there]
        if strange:
            raise UsageError(f"there is no GPU {strange[0]}", f"there are {', '.join(there)}; --device cpu is the CPU")
    elif not all(map(is_host, asked)):
        raise UsageError(f"there is no GPU {asked[0]}", "leave --devices away to measure on the CPU")
    return tuple(asked) or there or (CPU.type,)


def find_jobs_at_once(devices: Sequence[str], cores: int, models: int, jobs: int | None, overlap: bool | None) -> int:
    """The number of models that overlap on each device.

    Args:
        devices: the devices of the batch.
        cores: the number of cores of this machine.
        models: the number of models.
        jobs: maximum number of models at once; ``None`` for no maximum.
        overlap: whether models overlap; ``None`` for an overlap where there are enough cores.

    Raises:
        UsageError: ``jobs`` exceeds the number of models that can run at once.
    """
    at_once = 1 if overlap is False else jobs_at_once(cores, devices)
    if overlap and not any(map(is_host, devices)):
        at_once = max(2, at_once)
    most = len(devices) * at_once
    if jobs is not None and jobs > most:
        number = f"{len(devices)} device{'s' * (len(devices) > 1)}"
        raise UsageError(
            f"--jobs {jobs} with {number}: models would share their time", f"take no more jobs than {most}"
        )
    return min(at_once, math.ceil(min(models, jobs or models) / len(devices)))

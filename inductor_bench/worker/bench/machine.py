"""Answers the parent's requests about this machine, and those that get the worker ready for it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from inductor_bench.devices.nvidia.architectures import Architecture
from inductor_bench.messages import machine
from inductor_bench.messages.request import Request
from inductor_bench.records.device_use import DeviceUse
from inductor_bench.records.run import Environment

from ..device.exclusive import exclusive
from ..device.nvml import driver_of_current_gpu
from ..device.runtimes import NVIDIA_RUNTIME
from ..device.use import find_use
from .computed import draw_ahead
from .outputs import compare_ahead


def environment(_: machine.TellEnvironment) -> Environment:
    from ..device.environment import describe_environment

    return describe_environment()


def device_use(_: machine.FindDeviceUse) -> DeviceUse | None:
    driver = driver_of_current_gpu()
    return find_use(driver) if driver is not None else None


def pretend(request: machine.Pretend) -> machine.Versions:
    from ..upstream.triton import pretend_gpu

    return machine.Versions(**pretend_gpu(request.architecture))


def architecture(_: machine.TellArchitecture) -> Architecture:
    return NVIDIA_RUNTIME.architecture()


def get_ready(_: machine.GetReady) -> None:
    from ..upstream.inductor import import_triton_launcher
    from ..upstream.triton import hash_compiler

    with ThreadPoolExecutor(1) as host:
        drawn = host.submit(draw_ahead)
        import_triton_launcher()
        hashed = host.submit(hash_compiler)
        NVIDIA_RUNTIME.get_ready()
        with exclusive():
            compare_ahead(torch.device("cuda"))
        drawn.result()
        hashed.result()


def start_compilers(request: machine.StartCompilers) -> None:
    from ..upstream.inductor import import_compiler, share_compilers

    share_compilers(request.sharers)
    import_compiler()


MACHINE_ANSWERS: dict[type[Request[Any]], Callable[[Any], Any]] = {
    machine.TellEnvironment: environment,
    machine.FindDeviceUse: device_use,
    machine.TellArchitecture: architecture,
    machine.GetReady: get_ready,
    machine.StartCompilers: start_compilers,
    machine.Pretend: pretend,
}
"""The function that answers each request."""

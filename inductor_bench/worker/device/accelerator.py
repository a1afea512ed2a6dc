"""The runtime of device types without a file of their own, such as ``xpu``.

Modules run on them and are profiled. Roofs and standalone kernels are not measured.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from inductor_bench.devices.protocol import Device
from inductor_bench.errors import InductorBenchError
from inductor_bench.records.run import Environment
from inductor_bench.source.standalone.harness.arguments import Arguments

from ..peaks.roofs import Roofs
from .protocol import Bind, Timer


class AcceleratorRuntime:
    """A device type, through the functions that all of torch's device modules have.

    Args:
        device: the facts of the device type.
    """

    captures_graphs = False

    def __init__(self, device: Device) -> None:
        self.device = device

    def is_present(self) -> bool:
        return self._torch() is not None and bool(self._torch().is_available())

    def check_support(self) -> None:
        return

    def check_presence(self, place: torch.device) -> None:
        if not self.is_present():
            raise InductorBenchError(f"no {self.device.type} device is available to this torch", "give cpu or cuda")

    def name(self, place: torch.device) -> str:
        return str(self._torch().get_device_name(place))

    def describe(self, environment: Environment) -> Environment:
        return environment

    def synchronize(self) -> None:
        self._torch().synchronize()

    def reset_peak_memory(self) -> None:
        return

    def peak_memory_bytes(self) -> int | None:
        return None

    def capture_graph(self, run: Callable[[], Any]) -> Callable[[], None]:
        raise RuntimeError(f"graphs are not captured on a {self.device.type} device")

    def preserve_random_state(self) -> AbstractContextManager[None]:
        numbers = range(self._torch().device_count())
        return torch.random.fork_rng(devices=numbers, device_type=self.device.type)

    def measure_roofs(self, place: torch.device) -> Roofs:
        raise InductorBenchError(f"no way to measure the peaks of a {self.device.type} device is known")

    def measure_call(self, launch: dict[str, Any], arguments: Arguments, bind: Bind, **how: Any) -> dict[str, Any]:
        raise InductorBenchError(f"no way to time a kernel on a {self.device.type} device is known")

    def make_timer(self, launch: dict[str, Any], arguments: Arguments, bind: Bind, **how: Any) -> Timer:
        raise InductorBenchError(f"no way to time a kernel on a {self.device.type} device is known")

    def _torch(self) -> Any:
        """Torch's module for devices of this type; ``None`` where this torch has none."""
        return getattr(torch, self.device.type, None)

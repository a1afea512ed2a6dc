"""The protocol of device runtimes: what a worker can do with any kind of device. ``runtimes`` lists them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from inductor_bench.devices.protocol import Device
from inductor_bench.records.run import Environment
from inductor_bench.source.standalone.harness.arguments import Arguments

from ..peaks.roofs import Roofs

Bind = Callable[[Arguments], Callable[[], Any]]


class Timer(Protocol):
    """Samples a kernel and its variants with one set of arguments, as the harness of standalone files does."""

    @property
    def method(self) -> str:
        """The method of timing, as the harness names it."""

    @property
    def retaken(self) -> int:
        """Number of attempts that were repeated, because the host was late with a launch."""

    def bind(self, bind: Bind) -> Any:
        """The call of a kernel with the arguments of the timer."""

    def run_first(self, call: Any, state: str) -> None:
        """Runs a call once in a state (``cold`` or ``warm``), unless it has run. :meth:`get_ready` does so, too."""

    def get_ready(self, call: Any, state: str) -> None:
        """Does what the first sample of a call in a state would do before it is timed."""

    def warm(self, call: Any) -> float:
        """Seconds of one call with the kernel's data in the caches."""

    def cold(self, call: Any) -> float:
        """Seconds of one call with the kernel's data out of the caches."""


class DeviceRuntime(Protocol):
    """The operations of a worker on one kind of device, through torch."""

    device: Device

    captures_graphs: bool
    """Whether launches can be captured as one graph and replayed."""

    def is_present(self) -> bool:
        """Whether torch sees such a device."""

    def check_support(self) -> None:
        """Raises an error for a device that this tool does not support under this name.

        Raises:
            InductorBenchError: this torch uses the name for an unsupported device.
        """

    def check_presence(self, place: torch.device) -> None:
        """Raises an error for a missing device.

        Raises:
            InductorBenchError: the device is missing.
        """

    def name(self, place: torch.device) -> str:
        """The name of one device."""

    def describe(self, environment: Environment) -> Environment:
        """The environment with the facts of such a device, if there is one. No exception is raised."""

    def synchronize(self) -> None:
        """Waits for the end of all launched work."""

    def reset_peak_memory(self) -> None:
        """Resets the peak of :meth:`peak_memory_bytes`."""

    def peak_memory_bytes(self) -> int | None:
        """The peak memory in bytes since the reset; ``None`` where it is unknown."""

    def capture_graph(self, run: Callable[[], Any]) -> Callable[[], None]:
        """Captures the launches of a call as a graph, and returns a function that replays it.

        Raises:
            RuntimeError, AssertionError: the call cannot be captured.
        """

    def preserve_random_state(self) -> AbstractContextManager[None]:
        """A context that restores the random states of the host and of all such devices at its end."""

    def measure_roofs(self, place: torch.device) -> Roofs:
        """Measures the roofs of one device.

        Raises:
            InductorBenchError: the roofs of such a device cannot be measured.
        """

    def measure_call(self, launch: dict[str, Any], arguments: Arguments, bind: Bind, **how: Any) -> dict[str, Any]:
        """Times a kernel alone, as its standalone file does; returns ``cold``, ``warm`` and ``method``.

        Args:
            launch: the encoded ``Launch``.
            arguments: the arguments for the launch.
            bind: makes the timed call from the arguments.
            how: further options of the file (``moved``, ``reset``, ``kept``), for a GPU only.
        """

    def make_timer(self, launch: dict[str, Any], arguments: Arguments, bind: Bind, **how: Any) -> Timer:
        """Makes a timer that samples a kernel and its variants; its arguments are those of :meth:`measure_call`."""

"""What a worker does with a device, whatever its kind. One file of this room has each; ``runtimes`` finds it."""

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


class DeviceRuntime(Protocol):
    """A kind of device in the hands of torch."""

    device: Device

    captures_graphs: bool
    """Whether launches can be captured as one graph and replayed."""

    def is_present(self) -> bool:
        """Whether torch sees such a device."""

    def check_support(self) -> None:
        """Raises: InductorBenchError: what torch calls so here is a device that is not measured."""

    def check_presence(self, place: torch.device) -> None:
        """Raises: InductorBenchError: there is no such device here."""

    def name(self, place: torch.device) -> str:
        """The name of one device."""

    def describe(self, environment: Environment) -> Environment:
        """The environment with the facts of such a device, as far as there is one. Nothing is raised."""

    def synchronize(self) -> None:
        """Waits until everything that was launched has ended."""

    def reset_peak_memory(self) -> None:
        """Begins a new count for :meth:`peak_memory_bytes`."""

    def peak_memory_bytes(self) -> int | None:
        """The most memory that was taken since; ``None`` where it is not counted."""

    def capture_graph(self, run: Callable[[], Any]) -> Callable[[], None]:
        """Captures what a call launches; returns what replays it.

        Raises:
            RuntimeError, AssertionError: it cannot be captured.
        """

    def kept_random_state(self) -> AbstractContextManager[None]:
        """Puts the random states of the host and of all such devices back at its end."""

    def measure_roofs(self, place: torch.device) -> Roofs:
        """Measures what one device reaches. Raises: InductorBenchError: no way to measure it is known."""

    def measure_call(self, launch: dict[str, Any], arguments: Arguments, bind: Bind, **how: Any) -> dict[str, Any]:
        """Times a kernel by itself, as its standalone file does: ``cold``, ``warm`` and ``method``.

        Args:
            launch: the encoded ``Launch``.
            arguments: made for it.
            bind: turns arguments into the call to be timed.
            how: what else the file says of its launches (``moved``, ``reset``, ``kept``); on a GPU only.
        """

    def make_timer(self, launch: dict[str, Any], arguments: Arguments, bind: Bind, **how: Any) -> Any:
        """What times a kernel and its variants in turn, sample by sample; arguments as of :meth:`measure_call`."""

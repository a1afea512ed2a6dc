"""The protocol of the variants of a kernel in any language."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Protocol

from ...messages.kernels import Change, Facts, Numbered
from ...messages.request import Request
from ...records.tuning import Config
from ..methods import Method
from ..search import Space


class Variants(Space, Protocol):
    """The variants of one kernel."""

    @property
    def device(self) -> str:
        """The type of the kernel's device."""

    @property
    def axes(self) -> Mapping[str, tuple[Any, ...]]:
        """The values of each field that can be varied."""

    def change(self, config: Config) -> Change:
        """The change that a worker makes to the kernel for a configuration.

        Raises:
            InductorBenchError: the kernel cannot be changed to the configuration.
        """

    def compile_request(self, config: Config) -> Numbered[Any] | None:
        """The compile pool's request for a configuration; ``None`` where the timing worker compiles it."""

    def family(self, config: Config) -> str:
        """The template of a configuration; empty where it has none. One template's times are of one order."""

    def opening_requests(self, number: int) -> Sequence[Request[Any]]:
        """The requests to a worker between the load of the file under this number and the first variant."""

    def save_refusal(self, config: Config) -> str:
        """The reason why a configuration cannot be saved as a file; empty where it can."""

    def notes(self, method: Method) -> list[str]:
        """Notes for the user on the configurations that the method could choose from."""


Questions = Generator[Numbered[Any], Any, Variants]
"""The way to the variants of a kernel: yields requests about the kernel, and receives the worker's answers."""

FindVariants = Callable[[Facts], Questions]
"""Finds the variants of a kernel from the worker's facts.

Raises:
    InductorBenchError: the kernel has no variants.
"""

"""The protocol of the variants of a kernel in any language."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..devices.protocol import CPU
from ..errors import InductorBenchError
from ..messages.job_requests import WorkerRequest
from ..messages.kernel_requests import Numbered, VariantChange, VariantFacts
from ..records.retune import Config
from .methods import Space, TuningMethod


class Variants(Space, Protocol):
    """The variants of one kernel."""

    @property
    def device(self) -> str:
        """The type of the kernel's device."""

    @property
    def axes(self) -> Mapping[str, tuple[Any, ...]]:
        """The values of each field that can be varied."""

    def change(self, config: Config) -> VariantChange:
        """The change that a worker makes to the kernel for a configuration.

        Raises:
            InductorBenchError: the kernel cannot be changed to the configuration.
        """

    def compile_request(self, config: Config) -> Numbered[Any] | None:
        """The compile pool's request for a configuration; ``None`` if the timing worker compiles it."""

    def family(self, config: Config) -> str:
        """The template of a configuration; empty if it has none. One template's times are of one order."""

    def opening_requests(self, number: int) -> Sequence[WorkerRequest[Any]]:
        """The requests to a worker between the load of the file under this number and the first variant."""

    def save_refusal(self, config: Config) -> str:
        """The reason why a configuration cannot be saved as a file; empty if it can."""

    def notes(self, method: TuningMethod) -> list[str]:
        """Notes for the user on the configurations that the method could choose from."""


Questions = Generator[Numbered[Any], Any, Variants]
"""A generator that finds the variants of a kernel: it yields requests about the kernel, and receives the worker's
answers."""

FindVariants = Callable[[VariantFacts], Questions]
"""Finds the variants of a kernel from the worker's facts.

Raises:
    InductorBenchError: the kernel has no variants.
"""


# The search space of kernels on the CPU, and that of kernels without variants.


Axes = dict[str, tuple[Any, ...]]
"""The values of each field that can be varied."""


class CpuSpace:
    """The search space of a kernel on the CPU: the combinations of independent axes."""

    device = CPU.type
    now: Config
    axes: Axes

    def listed_by_default(self) -> list[Config]:
        """An empty list: Inductor has one configuration for a kernel on the CPU."""
        return []

    def listed_by_max_autotune(self) -> list[Config]:
        """Every change of one axis, because max-autotune lists nothing for the CPU."""
        return self.neighbours(self.now)

    def neighbours(self, config: Config) -> list[Config]:
        """Every configuration that differs from ``config`` on one axis."""
        return [
            {**config, name: value}
            for name, values in self.axes.items()
            for value in values
            if value != config.get(name)
        ]

    def nearest_first(self, config: Config) -> Iterator[Config]:
        """Every combination of all axes except ``config``, those with fewest changes first."""
        every: list[Config] = [dict(config)]
        for name, values in self.axes.items():
            every = [{**one, name: value} for one in every for value in values]
        others = (one for one in every if one != config)
        return iter(sorted(others, key=lambda one: sum(one[name] != config[name] for name in self.axes)))

    def compile_request(self, config: Config) -> Numbered[Any] | None:
        return None

    def family(self, config: Config) -> str:
        return ""

    def opening_requests(self, number: int) -> Sequence[WorkerRequest[Any]]:
        return ()

    def save_refusal(self, config: Config) -> str:
        return ""

    def notes(self, method: TuningMethod) -> list[str]:
        return []


@dataclass(frozen=True)
class FixedKernel(CpuSpace):
    """The space of a kernel without variants. ``no_variants_reason`` is the message for the user."""

    no_variants_reason: str
    now: Config = field(default_factory=dict)
    axes: Axes = field(default_factory=dict)

    def change(self, config: Config) -> VariantChange:
        raise InductorBenchError(self.no_variants_reason)

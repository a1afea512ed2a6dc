"""The search space of kernels on the CPU, and that of kernels without variants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...devices.cpu import CPU
from ...errors import InductorBenchError
from ...messages.kernels import Change, Numbered
from ...messages.request import Request
from ...records.tuning import Config
from ..methods import Method

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

    def around(self, config: Config) -> Iterator[Config]:
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

    def opening_requests(self, number: int) -> Sequence[Request[Any]]:
        return ()

    def save_refusal(self, config: Config) -> str:
        return ""

    def notes(self, method: Method) -> list[str]:
        return []


@dataclass(frozen=True)
class FixedKernel(CpuSpace):
    """The space of a kernel without variants. ``no_variants_reason`` is the message for the user."""

    no_variants_reason: str
    now: Config = field(default_factory=dict)
    axes: Axes = field(default_factory=dict)

    def change(self, config: Config) -> Change:
        raise InductorBenchError(self.no_variants_reason)

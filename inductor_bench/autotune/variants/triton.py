"""The variants of a Triton kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...devices.nvidia.device import NVIDIA
from ...messages.kernels import (
    Ask,
    Binary,
    Change,
    CompileTriton,
    Facts,
    ListTritonConfigs,
    Numbered,
    TritonConfigs,
    Vary,
)
from ...messages.request import Request
from ...records.tuning import Config
from ..methods import Method
from .cpu import Axes
from .triton_grid import grid, is_sound, neighbours


def find_triton_variants(facts: Facts, ask: Ask, wide: bool) -> TritonVariants:
    """The variants of a Triton kernel, whose configurations a worker lists."""
    return triton_variants(ask(ListTritonConfigs))


def triton_variants(found: TritonConfigs) -> TritonVariants:
    """The variants of a Triton kernel with these configurations."""
    return TritonVariants(found.now, found.default, found.max, found.ladders, found.fixed_elements, found.limits)


@dataclass(frozen=True)
class TritonVariants:
    """Block sizes, warps and stages of a Triton kernel.

    Attributes:
        now: the configuration that the model ran, or else the first that Inductor tries.
        default: those that Inductor tries.
        max: those that it tries with max-autotune.
        ladders: the values of each field that can be varied, in order.
        fixed_elements: of a block, in directions that no field gives.
        limits: what cannot be varied, and why.
    """

    device = NVIDIA.type

    now: Config
    default: tuple[Config, ...]
    max: tuple[Config, ...]
    ladders: dict[str, tuple[int, ...]]
    fixed_elements: int = 1
    limits: str = ""

    @property
    def why_none(self) -> str:
        return self.limits or "nothing of this Triton kernel can be varied"

    @property
    def axes(self) -> Axes:
        return {
            name: (self.now[name], *(value for value in values if value != self.now[name]))
            for name, values in self.ladders.items()
        }

    @property
    def same_candidate_set(self) -> bool:
        """Whether max-autotune tries nothing that is not tried without it."""
        return all(config in self.default for config in self.max)

    def listed_by_default(self) -> list[Config]:
        """Those that Inductor tries, beside the present one."""
        return [config for config in unique(self.default) if config != self.now]

    def listed_by_max_autotune(self) -> list[Config]:
        """Those that Inductor tries with and without max-autotune, beside the present one."""
        return [config for config in unique([*self.default, *self.max]) if config != self.now]

    def neighbours(self, config: Config) -> list[Config]:
        """The configurations one step of Inductor's coordinate descent away."""
        return [one for one in neighbours(config, self.ladders) if is_sound(one, self.fixed_elements)]

    def around(self, config: Config) -> Iterator[Config]:
        """Those that Inductor lists, then all that give threads enough to do and not too much, the nearest first."""
        every = [*self.listed_by_max_autotune(), *grid(config, self.ladders, self.fixed_elements)]
        return (one for one in unique(every) if one != self.now)

    def change(self, config: Config) -> Change:
        return {"config": config}

    def building(self, config: Config) -> Numbered[Binary]:
        return partial(CompileTriton, config=config, read=False)

    def is_built(self, config: Config) -> bool:
        return False

    def opening(self, number: int) -> Sequence[Request[Any]]:
        """A file may hold several configurations, of which it would run whichever it finds fastest."""
        return (Vary(number, of=number, change=self.change(self.now)),)

    def why_unsaved(self, config: Config) -> str:
        return ""

    def notes(self, method: Method) -> list[str]:
        """What there was to choose from."""
        notes = [f"what else could vary: {self.limits}"] if self.limits else []
        if method.ends_with_list and self.same_candidate_set:
            count = len(self.default)
            tried = "the one config that it" if count == 1 else f"the {count} configs that it"
            notes.append(f"same candidate set: max-autotune tries {tried} tries by default; coordesc tries others")
        return notes


def unique(configs: Iterable[Config]) -> list[Config]:
    """The configurations, each once, whatever the order of their fields."""
    found: dict[frozenset[tuple[str, Any]], Config] = {}
    for config in configs:
        found.setdefault(frozenset(config.items()), config)
    return list(found.values())

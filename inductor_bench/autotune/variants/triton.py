"""The variants of a Triton kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...devices.nvidia.device import NVIDIA
from ...messages.kernels import (
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
from .protocol import Questions
from .triton_grid import grid, is_sound, neighbours


def find_triton_variants(facts: Facts, wide: bool) -> Questions:
    """The variants of a Triton kernel, from the configurations that the worker lists."""
    return triton_variants(facts.triton or (yield ListTritonConfigs))


def triton_variants(found: TritonConfigs) -> TritonVariants:
    """The variants of a Triton kernel, from the configurations that a worker listed."""
    return TritonVariants(found.now, found.default, found.max, found.ladders, found.fixed_elements, found.limits)


@dataclass(frozen=True)
class TritonVariants:
    """Variants of a Triton kernel: block sizes, numbers of warps and of stages.

    Attributes:
        now: the configuration that the model ran, where it is known; otherwise the first that Inductor tries.
        default: the configurations that Inductor tries without max-autotune.
        max: the configurations that Inductor tries with max-autotune.
        ladders: the values of each field that can be varied, in ascending order.
        fixed_elements: the elements of a block in the directions that no field sets.
        limits: the fields that cannot be varied, and the reason; empty where all can.
    """

    device = NVIDIA.type

    now: Config
    default: tuple[Config, ...]
    max: tuple[Config, ...]
    ladders: dict[str, tuple[int, ...]]
    fixed_elements: int = 1
    limits: str = ""

    @property
    def no_variants_reason(self) -> str:
        return self.limits or "nothing of this Triton kernel can be varied"

    @property
    def axes(self) -> Axes:
        return {
            name: (self.now[name], *(value for value in values if value != self.now[name]))
            for name, values in self.ladders.items()
        }

    @property
    def same_candidate_set(self) -> bool:
        """Whether Inductor tries all of max-autotune's configurations without max-autotune too."""
        return all(config in self.default for config in self.max)

    def listed_by_default(self) -> list[Config]:
        """The configurations that Inductor tries without max-autotune, except ``now``."""
        return [config for config in unique(self.default) if config != self.now]

    def listed_by_max_autotune(self) -> list[Config]:
        """The configurations that Inductor tries with or without max-autotune, except ``now``."""
        return [config for config in unique([*self.default, *self.max]) if config != self.now]

    def neighbours(self, config: Config) -> list[Config]:
        """The configurations one step of Inductor's coordinate descent away."""
        return [one for one in neighbours(config, self.ladders) if is_sound(one, self.fixed_elements)]

    def around(self, config: Config) -> Iterator[Config]:
        """The configurations that Inductor lists, then all other sound configurations, the nearest first."""
        every = [*self.listed_by_max_autotune(), *grid(config, self.ladders, self.fixed_elements)]
        return (one for one in unique(every) if one != self.now)

    def change(self, config: Config) -> Change:
        return Change(config)

    def compile_request(self, config: Config) -> Numbered[Binary]:
        return partial(CompileTriton, config=config, read=False)

    def family(self, config: Config) -> str:
        return ""

    def opening_requests(self, number: int) -> Sequence[Request[Any]]:
        """One request, which pins the kernel to ``now``: a file with several configurations would choose among them."""
        return (Vary(number, of=number, change=self.change(self.now)),)

    def save_refusal(self, config: Config) -> str:
        return ""

    def notes(self, method: Method) -> list[str]:
        notes = [f"what else could vary: {self.limits}"] if self.limits else []
        if method.ends_with_list and self.same_candidate_set:
            count = len(self.default)
            tried = "the one config that it" if count == 1 else f"the {count} configs that it"
            notes.append(f"same candidate set: max-autotune tries {tried} tries by default; coordesc tries others")
        return notes


def unique(configs: Iterable[Config]) -> list[Config]:
    """The configurations without duplicates; the order of their fields does not matter."""
    found: dict[frozenset[tuple[str, Any]], Config] = {}
    for config in configs:
        found.setdefault(frozenset(config.items()), config)
    return list(found.values())

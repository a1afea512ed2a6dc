"""What can be varied of a kernel, by what it is written in."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..errors import InductorBenchError
from ..records.tuning import Config
from ..source.cpp_variants import default_config, variant_axes, vary
from ..source.triton_grid import grid, neighbours

Axes = dict[str, tuple[Any, ...]]


@dataclass(frozen=True)
class FixedKernel:
    """A kernel that stays as it is; ``why_none`` says why."""

    why_none: str
    now: Config = field(default_factory=dict)
    axes: Axes = field(default_factory=dict)

    def change(self, config: Config) -> dict[str, Any]:
        raise InductorBenchError(self.why_none)


@dataclass(frozen=True)
class CppVariants:
    """Threads, schedules, flags and vector widths of a C++ kernel."""

    source: str
    cpp: dict[str, Any]
    now: Config
    axes: Axes
    why_none: str = "nothing of this C++ kernel can be varied on this machine"

    def change(self, config: Config) -> dict[str, Any]:
        source, cpp = vary(self.source, self.cpp, config)
        return {"source": source, "cpp": cpp}


@dataclass(frozen=True)
class ThreadVariants:
    """The threads of a library call."""

    now: Config
    axes: Axes
    why_none: str = "there is one CPU here, so that a library call has no other way to run"

    def change(self, config: Config) -> dict[str, Any]:
        return {"threads": config["threads"]}


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

    def propose(self, method: str) -> list[Config]:
        """The configurations to try beside the present one: ``default``, ``max`` or ``exhaustive``, each with those
        before it."""
        sets = [self.default]
        if method != "default":
            sets.append(self.max)
        if method == "exhaustive":
            sets.append(tuple(grid(self.now, self.ladders, self.fixed_elements)))
        return [config for config in unique(itertools.chain.from_iterable(sets)) if config != self.now]

    def neighbours(self, config: Config) -> list[Config]:
        """The configurations one step of Inductor's coordinate descent away."""
        return neighbours(config, self.ladders)

    def change(self, config: Config) -> dict[str, Any]:
        return {"config": config}


Variants = FixedKernel | CppVariants | ThreadVariants


def find_variants(facts: dict[str, Any]) -> Variants:
    """The variants of a kernel of which a worker told these facts."""
    recorded = facts["recorded"]
    if facts["language"] == "cpp":
        source, cpp = facts["source"], recorded["cpp"]
        axes = variant_axes(source, cpp, facts["processors"], facts["vector_widths"])
        return CppVariants(source, cpp, default_config(source, cpp), axes)
    if facts["language"] == "operator" and facts["device"] == "cpu":
        now = recorded.get("threads") or facts["processors"]
        powers = [2**exponent for exponent in range(facts["processors"].bit_length())]
        counts = tuple(dict.fromkeys([now, *(each for each in powers if each <= facts["processors"])]))
        return ThreadVariants({"threads": now}, {"threads": counts} if len(counts) > 1 else {})
    return FixedKernel("kernels on a GPU are timed here, not yet retuned")


def triton_variants(found: dict[str, Any]) -> TritonVariants:
    """The variants of a Triton kernel of which a worker told these candidates."""
    return TritonVariants(
        now=found["now"],
        default=tuple(found["default"]),
        max=tuple(found["max"]),
        ladders={field: tuple(values) for field, values in found["ladders"].items()},
        fixed_elements=found["fixed_elements"],
        limits=found["limits"],
    )


def unique(configs: Iterable[Config]) -> list[Config]:
    """The configurations, each once, whatever the order of their fields."""
    found: dict[frozenset[tuple[str, Any]], Config] = {}
    for config in configs:
        found.setdefault(frozenset(config.items()), config)
    return list(found.values())

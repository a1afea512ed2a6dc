"""What can be varied of a kernel, by what it is written in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..devices.cpu import CPU
from ..devices.nvidia.device import NVIDIA
from ..devices.table import device_of
from ..errors import InductorBenchError
from ..records.tuning import Config
from .cpp_variants import default_config, variant_axes, vary
from .triton_grid import grid, is_sound, neighbours

Axes = dict[str, tuple[Any, ...]]
Request = dict[str, Any]


class CpuSpace:
    """The search space of a kernel on the CPU, of which some axes can be varied, each by itself."""

    device = CPU.type
    now: Config
    axes: Axes

    def propose(self, method: str) -> list[Config]:
        """Nothing by ``default``, and for ``max`` every change of one axis."""
        return self.neighbours(self.now) if method == "max" else []

    def neighbours(self, config: Config) -> list[Config]:
        """Every configuration that differs on one axis."""
        return [
            {**config, name: value}
            for name, values in self.axes.items()
            for value in values
            if value != config.get(name)
        ]

    def around(self, config: Config) -> Iterator[Config]:
        """Every combination of all axes, those with fewest changes first."""
        every: list[Config] = [dict(config)]
        for name, values in self.axes.items():
            every = [{**one, name: value} for one in every for value in values]
        others = (one for one in every if one != config)
        return iter(sorted(others, key=lambda one: sum(one[name] != config[name] for name in self.axes)))

    def building(self, config: Config) -> Request | None:
        return None

    def is_built(self, config: Config) -> bool:
        return False

    def opening(self, number: int) -> Sequence[Request]:
        return ()

    def why_unsaved(self, config: Config) -> str:
        return ""

    def notes(self, method: str) -> list[str]:
        return []


@dataclass(frozen=True)
class FixedKernel(CpuSpace):
    """A kernel that stays as it is; ``why_none`` says why."""

    why_none: str
    now: Config = field(default_factory=dict)
    axes: Axes = field(default_factory=dict)

    def change(self, config: Config) -> dict[str, Any]:
        raise InductorBenchError(self.why_none)


@dataclass(frozen=True)
class CppVariants(CpuSpace):
    """Threads, schedules, flags and vector widths of a C++ kernel."""

    source: str
    cpp: dict[str, Any]
    now: Config
    axes: Axes
    why_none: str = "nothing of this C++ kernel can be varied on this machine"

    def change(self, config: Config) -> dict[str, Any]:
        source, cpp = vary(self.source, self.cpp, config)
        return {"source": source, "cpp": cpp}

    def building(self, config: Config) -> Request | None:
        return {"do": "build", "change": self.change(config)}


@dataclass(frozen=True)
class ThreadVariants(CpuSpace):
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

    def propose(self, method: str) -> list[Config]:
        """Those that Inductor tries by ``default``, or with ``max``-autotune, beside the present one."""
        listed = [*self.default, *(self.max if method == "max" else ())]
        return [config for config in unique(listed) if config != self.now]

    def neighbours(self, config: Config) -> list[Config]:
        """The configurations one step of Inductor's coordinate descent away."""
        return [one for one in neighbours(config, self.ladders) if is_sound(one, self.fixed_elements)]

    def around(self, config: Config) -> Iterator[Config]:
        """Those that Inductor lists, then all that give threads enough to do and not too much, the nearest first."""
        every = [*self.propose("max"), *grid(config, self.ladders, self.fixed_elements)]
        return (one for one in unique(every) if one != self.now)

    def change(self, config: Config) -> dict[str, Any]:
        return {"config": config}

    def building(self, config: Config) -> Request | None:
        return {"do": "compiled", "config": config, "read": False}

    def is_built(self, config: Config) -> bool:
        return False

    def opening(self, number: int) -> Sequence[Request]:
        """A file may hold several configurations, of which it would run whichever it finds fastest."""
        return ({"do": "vary", "number": number, "of": number, "change": self.change(self.now)},)

    def why_unsaved(self, config: Config) -> str:
        return ""

    def notes(self, method: str) -> list[str]:
        """What there was to choose from."""
        notes = [f"what else could vary: {self.limits}"] if self.limits else []
        if method == "max" and self.same_candidate_set:
            count = len(self.default)
            tried = "the one config that it" if count == 1 else f"the {count} configs that it"
            notes.append(f"same candidate set: max-autotune tries {tried} tries by default; coordesc tries others")
        return notes


@dataclass(frozen=True)
class LibraryVariants:
    """Ways to make a library call on a GPU: as it is, by an algorithm that cuDNN searches for, by Inductor's templates.

    Attributes:
        now: as it is.
        max: the others that max-autotune chooses from.
        wide: those that it adds where it searches exhaustively.
        limits: what cannot be tried, and why.
    """

    now: Config
    max: tuple[Config, ...]
    wide: tuple[Config, ...] = ()
    limits: str = ""
    device = NVIDIA.type
    axes: Axes = field(default_factory=dict)

    def propose(self, method: str) -> list[Config]:
        """Nothing by ``default``."""
        return list(self.max) if method == "max" else []

    def neighbours(self, config: Config) -> list[Config]:
        return []

    def around(self, config: Config) -> Iterator[Config]:
        return iter(self.wide)

    def change(self, config: Config) -> dict[str, Any]:
        if is_library_call(config):
            return {"cudnn_benchmark": config.get("cudnn_benchmark", False)}
        return {"config": config}

    def building(self, config: Config) -> Request | None:
        return None

    def is_built(self, config: Config) -> bool:
        """Max-autotune's are compiled as soon as they are listed."""
        return config in self.max

    def opening(self, number: int) -> Sequence[Request]:
        return [{"do": "candidates", "number": number, "wide": bool(self.wide)}]

    def why_unsaved(self, config: Config) -> str:
        """Empty where a file can say that it is to be run in this configuration."""
        if is_library_call(config):
            return ""
        return (
            "the winner is Inductor's own: a model compiled with mode='max-autotune-no-cudagraphs' has it as a kernel"
        )

    def notes(self, method: str) -> list[str]:
        left = "; only cudnn.benchmark was left to try" if all(map(is_library_call, self.max)) else ""
        return [self.limits + left] if self.limits else []


def is_library_call(config: Config) -> bool:
    """Whether this is the call itself, and not another in its place."""
    return config["backend"] == "aten" and "call" not in config


Variants = FixedKernel | CppVariants | ThreadVariants | TritonVariants | LibraryVariants


def find_variants(facts: dict[str, Any], candidates: Callable[[], dict[str, Any]]) -> Variants:
    """The variants of a kernel of which a worker told these facts; ``candidates`` asks it what else there is."""
    recorded = facts["recorded"]
    if facts["language"] == "cpp":
        source, cpp = facts["source"], recorded["cpp"]
        axes = variant_axes(source, cpp, facts["processors"], facts["vector_widths"])
        return CppVariants(source, cpp, default_config(source, cpp), axes)
    if facts["language"] == "operator" and device_of(facts["device"]).runs_on_host:
        now = recorded.get("threads") or facts["processors"]
        powers = [2**exponent for exponent in range(facts["processors"].bit_length())]
        counts = tuple(dict.fromkeys([now, *(each for each in powers if each <= facts["processors"])]))
        return ThreadVariants({"threads": now}, {"threads": counts} if len(counts) > 1 else {})
    if facts["language"] == "triton":
        return triton_variants(candidates())
    return library_variants(candidates())


def library_variants(found: dict[str, Any]) -> LibraryVariants | FixedKernel:
    """The variants of a library call on a GPU of which a worker told these candidates."""
    if not found["max"]:
        return FixedKernel(found["limits"])
    return LibraryVariants(found["now"], tuple(found["max"]), tuple(found["wide"]), found["limits"])


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

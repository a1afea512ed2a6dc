"""The variants of a library call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...devices.nvidia.device import NVIDIA
from ...devices.table import device_of
from ...messages.kernels import Ask, Change, Facts, LibraryConfigs, ListLibraryConfigs, Numbered
from ...messages.request import Request
from ...records.tuning import Config
from ..methods import Method
from .cpu import Axes, CpuSpace, FixedKernel
from .protocol import Variants


def find_library_variants(facts: Facts, ask: Ask, wide: bool) -> Variants:
    """The variants of a library call; with ``wide`` also those that Inductor's exhaustive search adds."""
    if device_of(facts.device).runs_on_host:
        return thread_variants(facts)
    return library_variants(ask(partial(ListLibraryConfigs, wide=wide)))


def thread_variants(facts: Facts) -> ThreadVariants:
    """The variants of a library call on a CPU."""
    now = facts.recorded.get("threads") or facts.processors
    powers = [2**exponent for exponent in range(facts.processors.bit_length())]
    counts = tuple(dict.fromkeys([now, *(each for each in powers if each <= facts.processors)]))
    return ThreadVariants({"threads": now}, {"threads": counts} if len(counts) > 1 else {})


def library_variants(found: LibraryConfigs) -> LibraryVariants | FixedKernel:
    """The variants of a library call on a GPU that can be made in these ways."""
    if not found.max:
        return FixedKernel(found.limits)
    return LibraryVariants(found.now, found.max, found.wide, found.limits)


@dataclass(frozen=True)
class ThreadVariants(CpuSpace):
    """The threads of a library call."""

    now: Config
    axes: Axes
    why_none: str = "there is one CPU here, so that a library call has no other way to run"

    def change(self, config: Config) -> Change:
        return {"threads": config["threads"]}


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

    def listed_by_default(self) -> list[Config]:
        """None: by default the call is made as it is."""
        return []

    def listed_by_max_autotune(self) -> list[Config]:
        return list(self.max)

    def neighbours(self, config: Config) -> list[Config]:
        return []

    def around(self, config: Config) -> Iterator[Config]:
        return iter(self.wide)

    def change(self, config: Config) -> Change:
        if is_library_call(config):
            return {"cudnn_benchmark": config.get("cudnn_benchmark", False)}
        return {"config": config}

    def building(self, config: Config) -> Numbered[Any] | None:
        return None

    def is_built(self, config: Config) -> bool:
        """Max-autotune's are compiled as soon as they are listed."""
        return config in self.max

    def opening(self, number: int) -> Sequence[Request[Any]]:
        return [ListLibraryConfigs(number, bool(self.wide))]

    def why_unsaved(self, config: Config) -> str:
        """Empty where a file can say that it is to be run in this configuration."""
        if is_library_call(config):
            return ""
        return (
            "the winner is Inductor's own: a model compiled with mode='max-autotune-no-cudagraphs' has it as a kernel"
        )

    def notes(self, method: Method) -> list[str]:
        left = "; only cudnn.benchmark was left to try" if all(map(is_library_call, self.max)) else ""
        return [self.limits + left] if self.limits else []


def is_library_call(config: Config) -> bool:
    """Whether this is the call itself, and not another in its place."""
    return config["backend"] == "aten" and "call" not in config

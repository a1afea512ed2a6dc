"""The variants of a library call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...devices.nvidia.device import NVIDIA
from ...devices.table import device_of
from ...messages.kernels import Change, Facts, LibraryConfigs, ListLibraryConfigs, Numbered
from ...messages.request import Request
from ...records.tuning import Config
from ..methods import Method
from .cpu import Axes, CpuSpace, FixedKernel
from .protocol import Questions


def find_library_variants(facts: Facts, wide: bool) -> Questions:
    """The variants of a library call; ``wide`` includes Inductor's exhaustive choices."""
    if device_of(facts.device).runs_on_host:
        return thread_variants(facts)
    return library_variants((yield partial(ListLibraryConfigs, wide=wide)))


def thread_variants(facts: Facts) -> ThreadVariants:
    """The variants of a library call on a CPU: the recorded number of threads, and the powers of two."""
    now = facts.recorded.threads or facts.processors
    powers = [2**exponent for exponent in range(facts.processors.bit_length())]
    counts = tuple(dict.fromkeys([now, *(each for each in powers if each <= facts.processors)]))
    return ThreadVariants({"threads": now}, {"threads": counts} if len(counts) > 1 else {})


def library_variants(found: LibraryConfigs) -> LibraryVariants | FixedKernel:
    """The variants of a library call on a GPU, from the configurations that a worker listed."""
    if not found.max:
        return FixedKernel(found.limits)
    return LibraryVariants(found.now, found.max, found.wide, found.limits)


@dataclass(frozen=True)
class ThreadVariants(CpuSpace):
    """Variants of a library call on the CPU: numbers of threads."""

    now: Config
    axes: Axes
    no_variants_reason: str = "there is one CPU here, so that a library call has no other way to run"

    def change(self, config: Config) -> Change:
        return Change(threads=config["threads"])


@dataclass(frozen=True)
class LibraryVariants:
    """Variants of a library call on a GPU: the call itself, cuDNN's search for an algorithm, and Inductor's templates.

    Attributes:
        now: the configuration of the file.
        max: the other configurations that max-autotune chooses from.
        wide: the configurations that Inductor's exhaustive search adds.
        limits: the reason why some configurations cannot be tried; empty where all can.
    """

    now: Config
    max: tuple[Config, ...]
    wide: tuple[Config, ...] = ()
    limits: str = ""
    device = NVIDIA.type
    axes: Axes = field(default_factory=dict)

    def listed_by_default(self) -> list[Config]:
        """An empty list: by default Inductor makes the call itself."""
        return []

    def listed_by_max_autotune(self) -> list[Config]:
        return list(self.max)

    def neighbours(self, config: Config) -> list[Config]:
        return []

    def around(self, config: Config) -> Iterator[Config]:
        return iter(self.wide)

    def change(self, config: Config) -> Change:
        if is_library_call(config):
            return Change(cudnn_benchmark=config.get("cudnn_benchmark", False))
        return Change(config)

    def compile_request(self, config: Config) -> Numbered[Any] | None:
        return None

    def family(self, config: Config) -> str:
        return str(config.get("template", ""))

    def opening_requests(self, number: int) -> Sequence[Request[Any]]:
        return [ListLibraryConfigs(number, bool(self.wide))]

    def save_refusal(self, config: Config) -> str:
        """The reason why this configuration cannot be saved as a file; empty where it can."""
        if is_library_call(config):
            return ""
        return (
            "the winner is Inductor's own: a model compiled with mode='max-autotune-no-cudagraphs' has it as a kernel"
        )

    def notes(self, method: Method) -> list[str]:
        suffix = "; only cudnn.benchmark was left to try" if all(map(is_library_call, self.max)) else ""
        return [self.limits + suffix] if self.limits else []


def is_library_call(config: Config) -> bool:
    """Whether the configuration makes the call itself, with or without cuDNN's search."""
    return config["backend"] == "aten" and "call" not in config

"""The variants of a kernel, by its language: Triton, library call or C++."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..devices.nvidia import ELEMENTS_OF_THREAD, NVIDIA, THREADS_OF_WARP
from ..devices.table import device_of
from ..messages.kernel_requests import (
    Ask,
    Binary,
    Build,
    CompileTriton,
    KernelFacts,
    LibraryConfigs,
    ListLibraryConfigs,
    ListTritonConfigs,
    Numbered,
    TritonConfigs,
    VariantChange,
    Vary,
)
from ..messages.request import WorkerRequest
from ..records.tuning import Config
from .cpp_edits import default_config, variant_axes, vary
from .methods import TuningMethod
from .variant_protocol import Axes, CpuSpace, FixedKernel, Questions, Variants

# Computes configurations of a Triton kernel that Inductor does not list: neighbours, and the grid of all sound ones.
#
# A ladder holds the possible values of one field of a configuration, in ascending order.


Ladders = Mapping[str, Sequence[int]]

MOST_ELEMENTS = 1 << 20
"""Triton's limit for the elements of a block."""

MOST_COMBINATIONS = 20_000
"""Maximum number of configurations in a grid."""
_REACH = {"NUM_STAGES": 2}  # two steps: three stages may be faster than one even where two are slower


def neighbours(config: Config, ladders: Ladders) -> list[Config]:
    """The configurations one step of Inductor's coordinate descent away from ``config``."""
    found = []
    for key, values in _including(config, ladders).items():
        place, reach = values.index(config[key]), _REACH.get(key, 1)
        near = [*values[place + 1 : place + 1 + reach], *values[max(place - reach, 0) : place]]
        found += [{**config, key: value} for value in near]
    return found


def grid(now: Config, ladders: Ladders, fixed_elements: int = 1) -> list[Config]:
    """Every sound combination of the ladders' values except ``now``.

    The configurations nearest to ``now`` come first, so that a budget leaves out the farthest.

    Args:
        now: the present configuration.
        ladders: the ladders of the fields to vary.
        fixed_elements: the elements of a block in the directions that no field sets.
    """
    kept = _narrowed(now, _including(now, ladders))
    every = [{**now, **dict(zip(kept, values, strict=True))} for values in itertools.product(*kept.values())]
    sound = [config for config in every if config != now and is_sound(config, fixed_elements)]
    return sorted(sound, key=lambda config: sum(_steps(kept[field], now[field], config[field]) for field in kept))


def is_sound(config: Config, fixed_elements: int = 1) -> bool:
    """Whether every thread has at least one element and at most as many as its registers hold.

    Returns true for a configuration without block sizes.
    """
    blocks: list[int] = [value for field, value in config.items() if field.endswith("BLOCK")]
    if not blocks and fixed_elements == 1:
        return True
    elements, threads = math.prod(blocks) * fixed_elements, int(config["num_warps"]) * THREADS_OF_WARP
    busy = elements >= threads or threads == THREADS_OF_WARP
    return busy and elements <= min(threads * ELEMENTS_OF_THREAD, MOST_ELEMENTS)


def _including(config: Config, ladders: Ladders) -> dict[str, list[int]]:
    """The ladders of the configuration's fields, extended by the configuration's own values."""
    return {field: sorted({*values, config[field]}) for field, values in ladders.items() if field in config}


def _narrowed(now: Config, ladders: Ladders) -> dict[str, list[int]]:
    """The ladders, cut to ``MOST_COMBINATIONS`` combinations: the longest loses its end far from ``now`` first."""
    kept = {field: list(values) for field, values in ladders.items()}
    while math.prod(map(len, kept.values())) > MOST_COMBINATIONS:
        field, longest = max(kept.items(), key=lambda item: len(item[1]))
        place = longest.index(now[field])
        kept[field] = longest[1:] if place > len(longest) - 1 - place else longest[:-1]
    return kept


def _steps(values: Sequence[int], one: int, other: int) -> int:
    return abs(list(values).index(one) - list(values).index(other))


# The variants of a Triton kernel.


def find_triton_variants(facts: KernelFacts, wide: bool) -> Questions:
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

    def change(self, config: Config) -> VariantChange:
        return VariantChange(config)

    def compile_request(self, config: Config) -> Numbered[Binary]:
        return partial(CompileTriton, config=config, read=False)

    def family(self, config: Config) -> str:
        return ""

    def opening_requests(self, number: int) -> Sequence[WorkerRequest[Any]]:
        """One request, which pins the kernel to ``now``: a file with several configurations would choose among them."""
        return (Vary(number, of=number, change=self.change(self.now)),)

    def save_refusal(self, config: Config) -> str:
        return ""

    def notes(self, method: TuningMethod) -> list[str]:
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


# The variants of a library call.


def find_library_variants(facts: KernelFacts, wide: bool) -> Questions:
    """The variants of a library call; ``wide`` includes Inductor's exhaustive choices."""
    if device_of(facts.device).runs_on_host:
        return thread_variants(facts)
    return library_variants((yield partial(ListLibraryConfigs, wide=wide)))


def thread_variants(facts: KernelFacts) -> ThreadVariants:
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

    def change(self, config: Config) -> VariantChange:
        return VariantChange(threads=config["threads"])


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

    def change(self, config: Config) -> VariantChange:
        if is_library_call(config):
            return VariantChange(cudnn_benchmark=config.get("cudnn_benchmark", False))
        return VariantChange(config)

    def compile_request(self, config: Config) -> Numbered[Any] | None:
        return None

    def family(self, config: Config) -> str:
        return str(config.get("template", ""))

    def opening_requests(self, number: int) -> Sequence[WorkerRequest[Any]]:
        return [ListLibraryConfigs(number, bool(self.wide))]

    def save_refusal(self, config: Config) -> str:
        """The reason why this configuration cannot be saved as a file; empty where it can."""
        if is_library_call(config):
            return ""
        return (
            "the winner is Inductor's own: a model compiled with mode='max-autotune-no-cudagraphs' has it as a kernel"
        )

    def notes(self, method: TuningMethod) -> list[str]:
        suffix = "; only cudnn.benchmark was left to try" if all(map(is_library_call, self.max)) else ""
        return [self.limits + suffix] if self.limits else []


def is_library_call(config: Config) -> bool:
    """Whether the configuration makes the call itself, with or without cuDNN's search."""
    return config["backend"] == "aten" and "call" not in config


# The variants of a C++ kernel.


def find_cpp_variants(facts: KernelFacts, wide: bool) -> Questions:
    """The variants of a C++ kernel, all of which come from its text: nothing is asked, and ``wide`` is unused."""
    yield from ()
    cpp = facts.recorded.cpp
    axes = variant_axes(facts.source, cpp, facts.processors, facts.vector_widths)
    return CppVariants(facts.source, cpp, default_config(facts.source, cpp), axes)


@dataclass(frozen=True)
class CppVariants(CpuSpace):
    """Variants of a C++ kernel: numbers of threads, OpenMP schedules, compiler flags and vector widths.

    Attributes:
        source: the C++ text.
        cpp: the file's ``RECORDED["cpp"]``.
    """

    source: str
    cpp: dict[str, Any]
    now: Config
    axes: Axes
    no_variants_reason: str = "nothing of this C++ kernel can be varied on this machine"

    def change(self, config: Config) -> VariantChange:
        source, cpp = vary(self.source, self.cpp, config)
        return VariantChange(source=source, cpp=cpp)

    def compile_request(self, config: Config) -> Numbered[None]:
        return partial(Build, change=self.change(config))


# Finds the variants of a kernel by its language.


LANGUAGES: dict[str, Callable[[KernelFacts, bool], Questions]] = {
    "cpp": find_cpp_variants,
    "operator": find_library_variants,
    "triton": find_triton_variants,
}
"""The finder of variants for each language. Its arguments are those of :func:`search_variants`."""


def search_variants(facts: KernelFacts, wide: bool = False) -> Questions:
    """The way to the variants of a kernel.

    Args:
        facts: the worker's facts of the kernel.
        wide: whether Inductor's exhaustive choices for a library call are included.
    """
    return LANGUAGES[facts.language](facts, wide)


def find_variants(facts: KernelFacts, ask: Ask, wide: bool = False) -> Variants:
    """The variants of a kernel.

    Args:
        facts: the worker's facts of the kernel.
        ask: sends the worker a request about the kernel, and returns the answer.
        wide: whether Inductor's exhaustive choices for a library call are included.
    """
    questions, answer = search_variants(facts, wide), None
    while True:
        try:
            answer = ask(questions.send(answer))
        except StopIteration as end:
            variants: Variants = end.value
            return variants

"""The variants of a kernel, by its language: Triton, library call or C++."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..devices.nvidia import ELEMENTS_OF_THREAD, NVIDIA, THREADS_OF_WARP
from ..devices.table import find_device
from ..errors import InductorBenchError
from ..messages.job_requests import WorkerRequest
from ..messages.kernel_requests import (
    Ask,
    Binary,
    Build,
    CompileTriton,
    LibraryConfigs,
    ListLibraryConfigs,
    ListTritonConfigs,
    Numbered,
    TritonConfigs,
    VariantChange,
    VariantFacts,
    Vary,
)
from ..records.retune import Config
from ..source.generated_text import read_threads
from .methods import Axes, CpuSpace, FixedKernel, Questions, TuningMethod, Variants, answer_each

# Changes the text of a C++ kernel to other threads, OpenMP schedules, compiler flags and vector widths.
#
# A variant is the changed source text with its compile options. A variant of source text in an unknown form may compute
# wrong outputs, so callers compare the outputs of each variant with the kernel's own before they use it.


SCHEDULES = ("static", "static,1", "dynamic,1", "guided")
"""OpenMP schedules; the first is the compilers' default."""

FLAGS: dict[str, dict[str, Any]] = {
    "default": {},
    "contract": {"cpp.enable_floating_point_contract_flag": "fast"},
    "unsafe-math": {"cpp.enable_unsafe_math_opt_flag": True},
    "unroll": {},
}
"""The settings of ``torch._inductor.config`` for each named set of compiler flags. (torch 2.11, 2.13)"""

MOST_THREADS = 1024

_UNROLL = '#pragma GCC optimize("unroll-loops")\n'
_SHARED_LOOP = re.compile(r"#pragma omp for(?P<clauses>[^\n]*)")
_PARALLEL = re.compile(r"#pragma omp parallel(?! for)(?P<clauses>[^\n]*)")
_REGION = re.compile(r"#pragma omp parallel\b(?![^\n]*num_threads)")
_NUMBER = r"(?:static_cast<int64_t>\()?{}L?L?\)?"
_TILED = re.compile(r"transpose_mxn|std::array<[^>]*>|Welford|CascadeSumHelper|alignas")


class UnfitVariantError(InductorBenchError):
    """The source cannot be changed in this way; the message says why."""


def default_config(source: str, recorded: Mapping[str, Any]) -> Config:
    """The configuration of the unchanged source; ``recorded`` is the file's ``RECORDED["cpp"]``."""
    config: Config = {"threads": recorded.get("literal_threads") or recorded.get("threads") or 1}
    if recorded.get("vector_bits"):
        config["vector_bits"] = recorded["vector_bits"]
    if _SHARED_LOOP.search(source):
        found = re.search(r"#pragma omp for[^\n]*schedule\(([^)]*)\)", source)
        config["schedule"] = found.group(1).replace(" ", "") if found else SCHEDULES[0]
    config["flags"] = recorded.get("flags") or "default"
    return config


def list_variant_axes(source: str, recorded: Mapping[str, Any], processors: int, widths: Sequence[int]) -> Axes:
    """The values of each field that can be varied, the present value first.

    Args:
        source: the C++ text.
        recorded: the file's ``RECORDED["cpp"]``.
        processors: the number of CPUs that may be used.
        widths: the processor's vector widths in bits.
    """
    now = default_config(source, recorded)
    axes: Axes = {}
    if _PARALLEL.search(source):
        powers = [2**exponent for exponent in range(processors.bit_length()) if 2**exponent <= processors]
        axes["threads"] = _put_first(now["threads"], [*powers, processors])
    if "schedule" in now and now["threads"] > 1:
        axes["schedule"] = _put_first(now["schedule"], SCHEDULES)
    axes["flags"] = _put_first(now["flags"], FLAGS)
    if "vector_bits" in now and not _TILED.search(source):
        axes["vector_bits"] = _put_first(now["vector_bits"], [bits for bits in widths if bits < now["vector_bits"]])
    return {name: values for name, values in axes.items() if len(values) > 1}


def _put_first(value: Any, others: Sequence[Any] | Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys([value, *others]))


def make_variant_source(source: str, recorded: Mapping[str, Any], config: Config) -> tuple[str, dict[str, Any]]:
    """The source text and the ``RECORDED["cpp"]`` of a configuration.

    Raises:
        UnfitVariantError: this source cannot be changed to the configuration.
    """
    now, changed = default_config(source, recorded), dict(recorded)
    _check(config)
    if config["threads"] != now["threads"]:
        source = _set_threads(source, recorded, config["threads"])
        changed["threads"] = config["threads"]
        changed["literal_threads"] = config["threads"] if recorded.get("literal_threads") else None
    if config.get("schedule") != now.get("schedule"):
        source = _set_schedule(source, config["schedule"])
    if config.get("vector_bits") != now.get("vector_bits"):
        source = _set_lanes(source, now["vector_bits"] // 32, config["vector_bits"] // 32)
        changed["vector_bits"] = config["vector_bits"]
    if config["flags"] != now["flags"]:
        source = source.replace(_UNROLL, "")
        source = (_UNROLL if config["flags"] == "unroll" else "") + source
        changed["flags"], changed["options"] = config["flags"], FLAGS[config["flags"]]
    return source, changed


def _check(config: Config) -> None:
    """Checks the values of a configuration, which a record may hold that was edited."""
    threads, bits = config.get("threads"), config.get("vector_bits", 256)
    if type(threads) is not int or not 1 <= threads <= MOST_THREADS:
        raise UnfitVariantError(f"{threads!r} is no number of threads")
    if config.get("flags") not in FLAGS:
        raise UnfitVariantError(f"{config.get('flags')!r} are no flags of a configuration")
    if type(bits) is not int or bits < 0 or bits % 32:
        raise UnfitVariantError(f"{bits!r} is no width of vectors")


def fix_threads(source: str, threads: int) -> str:
    """Writes the source's number of threads at each parallel region, so that the process's own number does not count.

    Arrays per thread have room for these threads only.
    """
    return _REGION.sub(lambda match: f"{match[0]} num_threads({threads})", source)


def _set_threads(source: str, recorded: Mapping[str, Any], threads: int) -> str:
    """The source for another number of threads, with its arrays per thread resized."""
    literal = recorded.get("literal_threads")
    if not literal:
        return source
    per_thread = set(re.findall(r"\b(\w+_arr)\[tid\]", source))
    source = re.sub(
        rf"\b(\w+_arr)\[{literal}\]",
        lambda match: f"{match[1]}[{threads}]" if match[1] in per_thread else match[0],
        source,
    )
    lines = source.split("\n")
    for number, line in enumerate(lines):
        if re.search(rf"\bint i = 0; i < {literal}; i\+\+", line):
            body = "\n".join(lines[number + 1 : number + 4])
            if any(f"{name}[i]" in body for name in per_thread):
                lines[number] = line.replace(f"i < {literal}", f"i < {threads}")
    source = re.sub(rf"\btid < {literal}\b", f"tid < {threads}", "\n".join(lines))
    source = re.sub(rf"\bnum_threads\({literal}\)", f"num_threads({threads})", source)
    source = re.sub(rf"\b(int num_threads? = ){literal};", rf"\g<1>{threads};", source)
    remaining = read_threads([source])
    if remaining not in (None, threads):
        raise UnfitVariantError(f"it is written for {remaining} threads in a way that cannot be changed")
    return source


def _set_schedule(source: str, schedule: str) -> str:
    def write(match: re.Match[str]) -> str:
        clauses = re.sub(r"\s*schedule\([^)]*\)", "", match["clauses"])
        return f"#pragma omp for{clauses}" + (f" schedule({schedule})" if schedule != SCHEDULES[0] else "")

    return _SHARED_LOOP.sub(write, source)


def _set_lanes(source: str, lanes: int, fewer: int) -> str:
    """The source with vectors of ``fewer`` floats instead of vectors of ``lanes`` floats."""
    if _TILED.search(source):
        raise UnfitVariantError("it works on tiles of whole vectors")
    number = _NUMBER.format(lanes)
    source, steps = re.subn(rf"(\+=\s*){number}(\))", rf"\g<1>static_cast<int64_t>({fewer}L)\g<2>", source)
    source = re.sub(rf"(,\s*)static_cast<int64_t>\({lanes}\)(\))", rf"\g<1>static_cast<int64_t>({fewer})\g<2>", source)
    if not steps:
        raise UnfitVariantError(f"it has no loop in steps of {lanes}")
    return source


# Computes configurations of a Triton kernel that Inductor does not list: neighbours, and the grid of all sound ones.
#
# A ladder holds the possible values of one field of a configuration, in ascending order.


Ladders = Mapping[str, Sequence[int]]

MOST_ELEMENTS = 1 << 20
"""Triton's limit for the elements of a block."""

MOST_COMBINATIONS = 20_000
"""Maximum number of configurations in a grid."""
_REACH = {"NUM_STAGES": 2}  # two steps: three stages may be faster than one even if two are slower


def list_neighbours(config: Config, ladders: Ladders) -> list[Config]:
    """Returns the configurations that are one step of Inductor's coordinate descent away from ``config``."""
    found = []
    for key, values in _add_config_values(config, ladders).items():
        place, reach = values.index(config[key]), _REACH.get(key, 1)
        near = [*values[place + 1 : place + 1 + reach], *values[max(place - reach, 0) : place]]
        found += [{**config, key: value} for value in near]
    return found


def list_grid(now: Config, ladders: Ladders, fixed_elements: int = 1) -> list[Config]:
    """Every sound combination of the ladders' values except ``now``.

    The configurations nearest to ``now`` come first, so that a budget leaves out the farthest.

    Args:
        now: the present configuration.
        ladders: the ladders of the fields to vary.
        fixed_elements: the elements of a block in the directions that no field sets.
    """
    kept = _narrow_ladders(now, _add_config_values(now, ladders))
    every = [{**now, **dict(zip(kept, values, strict=True))} for values in itertools.product(*kept.values())]
    sound = [config for config in every if config != now and is_sound(config, fixed_elements)]
    return sorted(sound, key=lambda config: sum(_list_steps(kept[field], now[field], config[field]) for field in kept))


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


def _add_config_values(config: Config, ladders: Ladders) -> dict[str, list[int]]:
    """The ladders of the configuration's fields, extended by the configuration's own values."""
    return {field: sorted({*values, config[field]}) for field, values in ladders.items() if field in config}


def _narrow_ladders(now: Config, ladders: Ladders) -> dict[str, list[int]]:
    """Cuts the ladders to ``MOST_COMBINATIONS`` combinations.

    The longest ladder first loses its end far from ``now``.
    """
    kept = {field: list(values) for field, values in ladders.items()}
    while math.prod(map(len, kept.values())) > MOST_COMBINATIONS:
        field, longest = max(kept.items(), key=lambda item: len(item[1]))
        place = longest.index(now[field])
        kept[field] = longest[1:] if place > len(longest) - 1 - place else longest[:-1]
    return kept


def _list_steps(values: Sequence[int], one: int, other: int) -> int:
    return abs(list(values).index(one) - list(values).index(other))


# The variants of a Triton kernel.


def find_triton_variants(facts: VariantFacts, wide: bool) -> Questions:
    """The variants of a Triton kernel, from the configurations that the worker lists."""
    return triton_variants(facts.triton or (yield ListTritonConfigs))


def triton_variants(found: TritonConfigs) -> TritonVariants:
    """The variants of a Triton kernel, from the configurations that a worker listed."""
    return TritonVariants(**vars(found))


@dataclass(frozen=True)
class TritonVariants(TritonConfigs):
    """Variants of a Triton kernel: block sizes, numbers of warps and of stages."""

    device = NVIDIA.type

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

    def listed_by_max_autotune(self) -> list[Config]:
        """The configurations that Inductor tries with or without max-autotune, except ``now``."""
        return [config for config in keep_unique([*self.default, *self.max]) if config != self.now]

    def neighbours(self, config: Config) -> list[Config]:
        """The configurations one step of Inductor's coordinate descent away."""
        return [one for one in list_neighbours(config, self.ladders) if is_sound(one, self.fixed_elements)]

    def nearest_first(self, config: Config) -> Iterator[Config]:
        """The configurations that Inductor lists, then all other sound configurations, the nearest first."""
        every = [*self.listed_by_max_autotune(), *list_grid(config, self.ladders, self.fixed_elements)]
        return (one for one in keep_unique(every) if one != self.now)

    def change(self, config: Config) -> VariantChange:
        return VariantChange(config)

    def compile_request(self, config: Config) -> Numbered[Binary]:
        return partial(CompileTriton, config=config, read=False)

    def family(self, config: Config) -> str:
        return ""

    def opening_requests(self, number: int) -> Sequence[WorkerRequest[Any]]:
        """Returns a request that pins the kernel to ``now``: a file with several configurations would choose one."""
        return (Vary(number, of=number, change=self.change(self.now)),)

    def save_refusal(self, config: Config) -> str:
        return ""

    def notes(self, method: TuningMethod) -> list[str]:
        notes = [f"the search is limited: {self.limits}"] if self.limits else []
        if method.ends_with_list and self.same_candidate_set:
            count = len(self.default)
            tried = "the one config" if count == 1 else f"the {count} configs"
            notes.append(f"max-autotune tries only {tried} of the default mode; coordesc tries others")
        return notes


def keep_unique(configs: Iterable[Config]) -> list[Config]:
    """The configurations without duplicates; the order of their fields does not matter."""
    found: dict[frozenset[tuple[str, Any]], Config] = {}
    for config in configs:
        found.setdefault(frozenset(config.items()), config)
    return list(found.values())


# The variants of a library call.


def find_library_variants(facts: VariantFacts, wide: bool) -> Questions:
    """The variants of a library call; ``wide`` includes Inductor's exhaustive choices."""
    if find_device(facts.device).runs_on_host:
        return list_thread_variants(facts)
    return library_variants((yield partial(ListLibraryConfigs, wide=wide)))


def list_thread_variants(facts: VariantFacts) -> ThreadVariants:
    """The variants of a library call on a CPU: the recorded number of threads, and the powers of two."""
    now = facts.recorded.threads or facts.processors
    powers = [2**exponent for exponent in range(facts.processors.bit_length())]
    counts = tuple(dict.fromkeys([now, *(each for each in powers if each <= facts.processors)]))
    return ThreadVariants({"threads": now}, {"threads": counts} if len(counts) > 1 else {})


def library_variants(found: LibraryConfigs) -> LibraryVariants | FixedKernel:
    """The variants of a library call on a GPU, from the configurations that a worker listed."""
    if not found.max:
        return FixedKernel(found.limits)
    return LibraryVariants(**vars(found))


@dataclass(frozen=True)
class ThreadVariants(CpuSpace):
    """Variants of a library call on the CPU: numbers of threads."""

    now: Config
    axes: Axes
    no_variants_reason: str = "this machine has one CPU, so there is no other way to run a library call"

    def change(self, config: Config) -> VariantChange:
        return VariantChange(threads=config["threads"])


@dataclass(frozen=True)
class LibraryVariants(LibraryConfigs):
    """Variants of a library call on a GPU: the call itself, cuDNN's search for an algorithm, Inductor's templates."""

    device = NVIDIA.type
    axes: Axes = field(default_factory=dict)

    def listed_by_max_autotune(self) -> list[Config]:
        return list(self.max)

    def neighbours(self, config: Config) -> list[Config]:
        return []

    def nearest_first(self, config: Config) -> Iterator[Config]:
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
        """The reason why this configuration cannot be saved as a file; empty if it can."""
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


def find_cpp_variants(facts: VariantFacts, wide: bool) -> Questions:
    """Finds the variants of a C++ kernel. All come from its text, so no worker is asked, and ``wide`` is unused."""
    yield from ()
    cpp = facts.recorded.cpp
    axes = list_variant_axes(facts.source, cpp, facts.processors, facts.vector_widths)
    return CppVariants(facts.source, cpp, default_config(facts.source, cpp), axes)


@dataclass(frozen=True)
class CppVariants(CpuSpace):
    """Variants of a C++ kernel: numbers of threads, OpenMP schedules, compiler flags and vector widths."""

    source: str  # the C++ text
    cpp: dict[str, Any]  # the file's ``RECORDED["cpp"]``
    now: Config
    axes: Axes
    no_variants_reason: str = "nothing of this C++ kernel can be varied on this machine"

    def change(self, config: Config) -> VariantChange:
        source, cpp = make_variant_source(self.source, self.cpp, config)
        return VariantChange(source=source, cpp=cpp)

    def compile_request(self, config: Config) -> Numbered[None]:
        return partial(Build, change=self.change(config))


# Finds the variants of a kernel by its language.


LANGUAGES: dict[str, Callable[[VariantFacts, bool], Questions]] = {
    "cpp": find_cpp_variants,
    "operator": find_library_variants,
    "triton": find_triton_variants,
}
"""The function that finds variants, for each language. It takes the same arguments as :func:`search_variants`."""


def search_variants(facts: VariantFacts, wide: bool = False) -> Questions:
    """Returns the generator that finds the variants of a kernel.

    Args:
        facts: the worker's facts of the kernel.
        wide: whether Inductor's exhaustive choices for a library call are included.
    """
    return LANGUAGES[facts.language](facts, wide)


def find_variants(facts: VariantFacts, ask: Ask, wide: bool = False) -> Variants:
    """The variants of a kernel.

    Args:
        facts: the worker's facts of the kernel.
        ask: sends the worker a request about the kernel, and returns the answer.
        wide: whether Inductor's exhaustive choices for a library call are included.
    """
    return answer_each(search_variants(facts, wide), ask)

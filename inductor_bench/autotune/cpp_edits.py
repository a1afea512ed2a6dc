"""Changes the text of a C++ kernel to other threads, OpenMP schedules, compiler flags and vector widths.

A variant is the changed source text with its compile options. A variant of source text in an unknown form may compute
wrong outputs, so callers compare the outputs of each variant with the kernel's own before they use it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InductorBenchError
from ..records.tuning import Config
from ..source.kernel_text import read_threads
from .variant_protocol import Axes

SCHEDULES = ("static", "static,1", "dynamic,1", "guided")
"""OpenMP schedules; the first is the compilers' default."""

FLAGS: dict[str, dict[str, Any]] = {
    "default": {},
    "contract": {"cpp.enable_floating_point_contract_flag": "fast"},
    "unsafe-math": {"cpp.enable_unsafe_math_opt_flag": True},
    "unroll": {},
}
"""The settings of ``torch._inductor.config`` for each named set of compiler flags. (2.11, 2.13)"""

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


def variant_axes(source: str, recorded: Mapping[str, Any], processors: int, widths: Sequence[int]) -> Axes:
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
        axes["threads"] = _first(now["threads"], [*powers, processors])
    if "schedule" in now and now["threads"] > 1:
        axes["schedule"] = _first(now["schedule"], SCHEDULES)
    axes["flags"] = _first(now["flags"], FLAGS)
    if "vector_bits" in now and not _TILED.search(source):
        axes["vector_bits"] = _first(now["vector_bits"], [bits for bits in widths if bits < now["vector_bits"]])
    return {name: values for name, values in axes.items() if len(values) > 1}


def _first(value: Any, others: Sequence[Any] | Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys([value, *others]))


def vary(source: str, recorded: Mapping[str, Any], config: Config) -> tuple[str, dict[str, Any]]:
    """The source text and the ``RECORDED["cpp"]`` of a configuration.

    Raises:
        UnfitVariantError: this source cannot be changed to the configuration.
    """
    now, changed = default_config(source, recorded), dict(recorded)
    _check(config)
    if config["threads"] != now["threads"]:
        source = _with_threads(source, recorded, config["threads"])
        changed["threads"] = config["threads"]
        changed["literal_threads"] = config["threads"] if recorded.get("literal_threads") else None
    if config.get("schedule") != now.get("schedule"):
        source = _with_schedule(source, config["schedule"])
    if config.get("vector_bits") != now.get("vector_bits"):
        source = _with_lanes(source, now["vector_bits"] // 32, config["vector_bits"] // 32)
        changed["vector_bits"] = config["vector_bits"]
    if config["flags"] != now["flags"]:
        source = source.replace(_UNROLL, "")
        source = (_UNROLL if config["flags"] == "unroll" else "") + source
        changed["flags"], changed["options"] = config["flags"], FLAGS[config["flags"]]
    return source, changed


def _check(config: Config) -> None:
    """Checks the values of a configuration, which a record may hold that was edited.

    Raises:
        UnfitVariantError: a value is missing or impossible.
    """
    threads, bits = config.get("threads"), config.get("vector_bits", 256)
    if type(threads) is not int or not 1 <= threads <= MOST_THREADS:
        raise UnfitVariantError(f"{threads!r} is no number of threads")
    if config.get("flags") not in FLAGS:
        raise UnfitVariantError(f"{config.get('flags')!r} are no flags of a configuration")
    if type(bits) is not int or bits < 0 or bits % 32:
        raise UnfitVariantError(f"{bits!r} is no width of vectors")


def with_fixed_threads(source: str, threads: int) -> str:
    """The source with its number of threads at each parallel region, whatever the process's own number is.

    Arrays per thread have room for these threads only.
    """
    return _REGION.sub(lambda match: f"{match[0]} num_threads({threads})", source)


def _with_threads(source: str, recorded: Mapping[str, Any], threads: int) -> str:
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


def _with_schedule(source: str, schedule: str) -> str:
    def write(match: re.Match[str]) -> str:
        clauses = re.sub(r"\s*schedule\([^)]*\)", "", match["clauses"])
        return f"#pragma omp for{clauses}" + (f" schedule({schedule})" if schedule != SCHEDULES[0] else "")

    return _SHARED_LOOP.sub(write, source)


def _with_lanes(source: str, lanes: int, fewer: int) -> str:
    """The source with vectors of ``fewer`` floats in the place of vectors of ``lanes`` floats."""
    if _TILED.search(source):
        raise UnfitVariantError("it works on tiles of whole vectors")
    number = _NUMBER.format(lanes)
    source, steps = re.subn(rf"(\+=\s*){number}(\))", rf"\g<1>static_cast<int64_t>({fewer}L)\g<2>", source)
    source = re.sub(rf"(,\s*)static_cast<int64_t>\({lanes}\)(\))", rf"\g<1>static_cast<int64_t>({fewer})\g<2>", source)
    if not steps:
        raise UnfitVariantError(f"it has no loop in steps of {lanes}")
    return source

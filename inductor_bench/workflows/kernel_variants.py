"""What can be varied of a kernel, by what it is written in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..errors import InductorBenchError
from ..records.tuning import Config
from ..source.cpp_variants import default_config, variant_axes, vary

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

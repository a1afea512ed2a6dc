"""The variants of a C++ kernel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from ...messages.kernels import Build, Change, Facts, Numbered
from ...records.tuning import Config
from .cpp_text import default_config, variant_axes, vary
from .cpu import Axes, CpuSpace
from .protocol import Questions


def find_cpp_variants(facts: Facts, wide: bool) -> Questions:
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

    def change(self, config: Config) -> Change:
        source, cpp = vary(self.source, self.cpp, config)
        return Change(source=source, cpp=cpp)

    def compile_request(self, config: Config) -> Numbered[None]:
        return partial(Build, change=self.change(config))

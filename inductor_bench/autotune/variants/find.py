"""The variants of a kernel, by what it is written in."""

from __future__ import annotations

from collections.abc import Callable

from ...messages.kernels import Ask, Facts
from .cpp import find_cpp_variants
from .library import find_library_variants
from .protocol import Variants
from .triton import find_triton_variants

LANGUAGES: dict[str, Callable[[Facts, Ask, bool], Variants]] = {
    "cpp": find_cpp_variants,
    "operator": find_library_variants,
    "triton": find_triton_variants,
}
"""By the language of a kernel, what finds its variants: of its facts, what asks its worker for more, and whether the
wide list of library choices is wanted."""


def find_variants(facts: Facts, ask: Ask, wide: bool = False) -> Variants:
    """The variants of a kernel.

    Args:
        facts: what a worker told of it.
        ask: asks that worker what else there is.
        wide: whether Inductor's exhaustive list is wanted, for a library call.
    """
    return LANGUAGES[facts.language](facts, ask, wide)

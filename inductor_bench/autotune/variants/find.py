"""Finds the variants of a kernel by its language."""

from __future__ import annotations

from collections.abc import Callable

from ...messages.kernels import Ask, Facts
from .cpp import find_cpp_variants
from .library import find_library_variants
from .protocol import Questions, Variants
from .triton import find_triton_variants

LANGUAGES: dict[str, Callable[[Facts, bool], Questions]] = {
    "cpp": find_cpp_variants,
    "operator": find_library_variants,
    "triton": find_triton_variants,
}
"""The finder of variants for each language. Its arguments are those of :func:`search_variants`."""


def search_variants(facts: Facts, wide: bool = False) -> Questions:
    """The way to the variants of a kernel.

    Args:
        facts: the worker's facts of the kernel.
        wide: whether Inductor's exhaustive choices for a library call are included.
    """
    return LANGUAGES[facts.language](facts, wide)


def find_variants(facts: Facts, ask: Ask, wide: bool = False) -> Variants:
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

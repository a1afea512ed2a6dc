"""How likely two kernels of different code do the same work: by their origin, their operator, their names and text."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Mapping

from .sides import SideKernel

Sources = Mapping[tuple[str, str], str]
"""The texts of kernels by the label of their graph and their name; a kernel whose text is unknown is missing."""

_NUMBER = re.compile(r"_\d+$")
_KIND = re.compile(r"^(?:triton_[a-z]{3}|triton|cpp)_(?:fused_+)?")
FAMILY = 0.95
"""Likeness from which on kernels of one family lie, which differ in sizes only."""


def is_library(side: SideKernel) -> bool:
    """Whether a kernel belongs to a call of a library, and not to the module's text."""
    return side.kernel.line is None and side.kernel.operator is not None


def has_same_configs(a: SideKernel, b: SideKernel) -> bool:
    """Whether both sides ran in the same configs equally often. An unknown config is no other config."""
    shares = _config_shares(a), _config_shares(b)
    return not shares[0] or not shares[1] or shares[0] == shares[1]


def _config_shares(side: SideKernel) -> dict[frozenset[tuple[str, int]], float]:
    """The share of the runs in each config, of those whose config is known."""
    found = Counter(frozenset(one.compiled.config.items()) for one in side.runs if one.compiled.config)
    return {config: count / sum(found.values()) for config, count in found.items()}


def has_other_precision(a: SideKernel, b: SideKernel) -> bool:
    """Whether both compute products of float32, one of them in TF32."""
    works = (a.kernel.work, b.kernel.work)
    return a.tf32 != b.tf32 and all(work.dtype == "tf32" or (work.dtype == "float32" and work.flops) for work in works)


def name_words(name: str) -> frozenset[str]:
    """The words in the name of a generated kernel: those of the operators that it computes."""
    return frozenset(_KIND.sub("", _NUMBER.sub("", name)).split("_")) - {""}


def shared_work(a: SideKernel, b: SideKernel) -> float:
    """The share of the smaller kernel's origin that the other one has, too, 0 to 1.

    A kernel of a library shares work with kernels of the same operator, and with generated ones that compute it.
    """
    first, second = a.kernel, b.kernel
    if is_library(a) and is_library(b):
        return float(first.operator == second.operator) * (0.5 + 0.5 * _jaccard(_shapes(a), _shapes(b)))
    if is_library(a) or is_library(b):
        library, generated = (first, second) if is_library(a) else (second, first)
        return float(library.operator in generated.origin.aten_ops)
    for one, other in _origins(a, b):
        if one and other:
            return len(one & other) / min(len(one), len(other))
    return 0.0


def likeness(a: SideKernel, b: SideKernel, a_texts: Sources, b_texts: Sources) -> float:
    """How alike two kernels are, 0 to 1: the mean over what is known of both."""
    if is_library(a) or is_library(b):
        return shared_work(a, b) if is_library(a) and is_library(b) else 0.0
    found = [_jaccard(one, other) for one, other in _origins(a, b) if one and other]
    found.append(float(a.kernel.category == b.kernel.category))
    texts = a_texts.get((a.graph, a.kernel.name)), b_texts.get((b.graph, b.kernel.name))
    if texts[0] and texts[1]:
        found.append(text_likeness(texts[0], texts[1]))
    mean = sum(found) / len(found)
    related = a.kernel.family_id and a.kernel.family_id == b.kernel.family_id
    return FAMILY + (1 - FAMILY) * mean if related else mean


def text_likeness(a: str, b: str) -> float:
    """The share of lines that two texts have in common, 0 to 1, wherever in the text they stand."""
    lines = _lines(a), _lines(b)
    whole = sum(lines[0].values()) + sum(lines[1].values())
    return 2 * sum((lines[0] & lines[1]).values()) / whole if whole else 1.0


@functools.lru_cache(maxsize=4096)
def _lines(text: str) -> Counter[str]:
    return Counter(line.strip() for line in text.splitlines() if line.strip())


def _origins(a: SideKernel, b: SideKernel) -> list[tuple[frozenset[str], frozenset[str]]]:
    """What is known of the origin of both, the most exact first."""
    first, second = a.kernel.origin, b.kernel.origin
    lines = [frozenset(f"{line.file}:{line.line}" for line in one.source_lines) for one in (first, second)]
    return [
        (frozenset(first.source_nodes), frozenset(second.source_nodes)),
        (frozenset(first.aten_ops), frozenset(second.aten_ops)),
        (lines[0], lines[1]),
        (name_words(a.kernel.name), name_words(b.kernel.name)),
    ]


def _shapes(side: SideKernel) -> frozenset[str]:
    return frozenset(group.shapes for kernel in side.runs for group in kernel.shapes)


def _jaccard(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / len(a | b) if a or b else 1.0

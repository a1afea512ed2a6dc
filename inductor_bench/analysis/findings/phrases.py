"""Phrases that findings share: lists, plurals, names of graphs, short paths."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...records.run import ModuleRecord

_PATH = re.compile(r"(?:/[^/\s:]+)+/(?P<tail>[^/\s:]+/[^/\s:]+)(?=:\d)")


def listed(words: list[str], most: int = 4) -> str:
    """``a``, ``a and b``, ``a, b and c``, or ``a, b, c, d and 7 more``."""
    if len(words) > most:
        words = [*words[:most], f"{len(words) - most} more"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def plural(number: float, noun: str) -> str:
    """``1 kernel``, ``2 kernels``, ``1 graph break``."""
    return f"{number:,.0f} {noun}{'' if number == 1 else 's'}"


def labels(modules: Iterable[ModuleRecord]) -> str:
    """The graphs' names in one phrase."""
    return listed([module.label for module in modules])


def slugs(modules: Iterable[ModuleRecord]) -> tuple[str, ...]:
    """The graphs' slugs, each once."""
    return tuple(dict.fromkeys(module.slug for module in modules))


def short_paths(text: str) -> str:
    """``text`` with each ``/long/path/to/file.py:12`` cut to its folder and file: ``to/file.py:12``."""
    return _PATH.sub(lambda match: match.group("tail"), text)

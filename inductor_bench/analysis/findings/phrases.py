"""Formats phrases that findings share: lists, plurals, names of graphs, short paths."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ... import units
from ...records.module import ModuleRecord

_BEFORE_LINE = re.compile(r"(?<![^\s:])[^\s:]+(?=:\d)")
"""A word that a line number follows. Only the start of a word begins a match, so that the search takes linear time."""

_OPENING = re.compile(r"""^["'`(\[{<,;=|]+|["'`(\[{<,;=|](?=/)""")
_FOLDER_AND_FILE = re.compile(r"(?<=[^/]/)/*(?P<tail>[^/]+/+[^/]+)$")


def join_words(words: list[str], most: int = 4, last: str = "and") -> str:
    """Joins words: ``a``, ``a and b``, ``a, b and c``, or ``a, b, c, d and 7 more`` for more than ``most`` words.

    ``last`` is the conjunction.
    """
    if len(words) > most:
        words = [*words[:most], f"{len(words) - most} more"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}" if words else ""


def plural(number: float, noun: str) -> str:
    """Returns the number with the noun in singular or plural: ``1 kernel``, ``2 kernels``, ``1 graph break``."""
    return f"{number:,.0f} {noun}{'' if number == 1 else 's'}"


def labels(modules: Iterable[ModuleRecord]) -> str:
    """Joins the labels of the graphs in one phrase."""
    return join_words([module.label for module in modules])


def slugs(modules: Iterable[ModuleRecord]) -> tuple[str, ...]:
    """Returns the distinct slugs of the graphs."""
    return tuple(dict.fromkeys(module.slug for module in modules))


def replay_words(module: ModuleRecord) -> str:
    """Compares a replay as one CUDA graph with the wall time: ``1.20 ms instead of 1.50 ms (forward)``."""
    times = module.times
    return f"{units.seconds(times.graph_time_s)} instead of {units.seconds(times.wall_time_s)} ({module.label})"


def short_paths(text: str) -> str:
    """Shortens each path with a line number in ``text`` to its folder and file: ``to/file.py:12``. Keeps addresses."""
    return _BEFORE_LINE.sub(lambda match: _short_path(match[0]), text)


def _short_path(word: str) -> str:
    """Shortens the path at the end of a word, and keeps the quotes and brackets before it."""
    begin = max((match.end() for match in _OPENING.finditer(word)), default=0)
    found = None if word.startswith("//", begin) else _FOLDER_AND_FILE.search(word, begin)
    return word[:begin] + found["tail"] if found else word

"""A finding, and the phrases that findings share. The rules are in ``*_rules.py``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ...records.run import ModuleRecord, Run

ADVICE, CAUTION, NOTE, FINE = "advice", "caution", "note", "fine"

_PATH = re.compile(r"(?:/[^/\s:]+)+/(?P<tail>[^/\s:]+/[^/\s:]+)(?=:\d)")


class KernelPlace(NamedTuple):
    """A kernel of one graph: the graph's slug and the kernel's full name."""

    slug: str
    name: str


@dataclass(frozen=True)
class Finding:
    """One statement about the program, derived from the record.

    ``kind`` is for programs. ``text`` is a whole sentence without a full stop; it names graphs, but not kernels:
    those are in ``kernels``, the most important first, so that a table can refer to its rows. ``modules`` holds the
    slugs of the graphs concerned, none where it is about the whole run. ``level`` is ``advice`` (something can be
    done), ``caution`` (a figure is less certain than it looks), ``note`` (for completeness) or ``fine``.
    ``gain_s`` is what could be won at most in the program that was captured, in seconds: the order of advice.
    """

    kind: str
    text: str
    modules: tuple[str, ...] = ()
    kernels: tuple[KernelPlace, ...] = ()
    level: str = ADVICE
    gain_s: float = 0.0


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


def command_again(run: Run, option: str = "", replaces: str = "", *, elsewhere: bool = False) -> str:
    """The command of this run, with another option if one is given; empty where the command cannot be parsed.

    ``elsewhere`` lets the new run have a folder of its own; otherwise it replaces this one.
    """
    try:
        words = shlex.split(run.command)
    except ValueError:
        return ""
    if "breakdown" not in words[:3] or not words[0].endswith("inductor-bench"):
        return ""
    verb = words.index("breakdown")
    split = words.index("--") if "--" in words else len(words)
    options, rest = words[verb + 1 : split], words[split:]
    for dropped in (replaces, *(("-o", "--output") if elsewhere else ())):
        options = _without(options, dropped) if dropped else options
    if elsewhere:
        options = [word for word in options if word != "--force"]
    elif any(word == "-o" or word.startswith("--out") for word in options) and "--force" not in options:
        options = ["--force", *options]
    # Before the arguments of the program, and after the target, which is what a reader looks for.
    return shlex.join([*words[: verb + 1], *options, *shlex.split(option), *rest])


def _without(words: list[str], option: str) -> list[str]:
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word == option:
            skip = True
        elif not word.startswith(f"{option}="):
            kept.append(word)
    return kept

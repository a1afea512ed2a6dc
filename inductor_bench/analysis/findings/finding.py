"""A finding: one statement about a run. The functions that make findings are in ``rules``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

ADVICE, CAUTION, NOTE, FINE = "advice", "caution", "note", "fine"
"""The levels, in the order in which findings are listed."""


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
    done), ``caution`` (something is wrong, or a figure is less certain than it looks), ``note`` (for completeness) or
    ``fine``. ``gain_s`` is what could be won at most in the program that was captured, in seconds: the order of advice.
    """

    kind: str
    text: str
    modules: tuple[str, ...] = ()
    kernels: tuple[KernelPlace, ...] = ()
    level: str = ADVICE
    gain_s: float = 0.0

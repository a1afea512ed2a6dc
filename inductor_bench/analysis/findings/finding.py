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

    Attributes:
        kind: a fixed name, for programs that read findings.
        text: a whole sentence without a full stop. It names graphs; the kernels are in ``kernels``.
        modules: slugs of the graphs concerned; empty for a finding about the whole run.
        kernels: the kernels concerned, the most important first, so that a table can refer to its rows.
        level: ``advice`` (the user can act on it), ``caution`` (something is wrong, or a figure is less certain than it
            looks), ``note`` (additional information) or ``fine`` (a check without a problem).
        gain_s: largest possible saving in the captured program, in seconds. It determines the order of advice.
    """

    kind: str
    text: str
    modules: tuple[str, ...] = ()
    kernels: tuple[KernelPlace, ...] = ()
    level: str = ADVICE
    gain_s: float = 0.0

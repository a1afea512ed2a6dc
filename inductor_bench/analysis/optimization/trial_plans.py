"""The processes that a search asks for, and the names of the variants in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...records.optimization import OPTIMIZER, ORIGINAL, MenuRow, ProgramSetting


@dataclass(frozen=True)
class TrialCandidate:
    """A variant of the program that a process is to run."""

    slug: str
    settings: tuple[ProgramSetting, ...] = ()


@dataclass(frozen=True)
class TrialPlan:
    """A process that is to be run."""

    name: str  # of its files
    purpose: str  # as in ``Trial``
    candidates: tuple[TrialCandidate, ...]  # the variants beside the original; a single one if nothing alternates
    alternates: bool
    timed_s: float  # seconds of timed steps of each variant
    least: int  # the least number of timed steps of each
    losses: int = 0  # the number of optimizer steps whose gradients are kept
    cold: bool = False  # whether it compiles with empty caches

    @property
    def slugs(self) -> tuple[str, ...]:
        """The names of the variants."""
        return tuple(one.slug for one in self.candidates)


def conflict(a: MenuRow, b: MenuRow) -> bool:
    """Whether two rows cannot be combined: they set the same thing, or both say how an optimizer steps."""
    names = [{(one.kind, one.setting) for one in row.settings} for row in (a, b)]
    optimizers = all(any(one.kind == OPTIMIZER for one in row.settings) for row in (a, b))
    return bool(names[0] & names[1]) or optimizers


def name_of(slugs: Sequence[str]) -> str:
    """The name of the variant with these rows."""
    return "+".join(slugs) or ORIGINAL


def without(slugs: Sequence[str], slug: str) -> tuple[str, ...]:
    """These rows without one."""
    return tuple(one for one in slugs if one != slug)


def prefixes(slugs: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The first row, the first two, …"""
    return (tuple(slugs[:count]) for count in range(1, len(slugs) + 1))

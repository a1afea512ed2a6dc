"""The processes that a search asks for, and the names of the variants in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...records.optimization import OPTIMIZER, ORIGINAL, WARMING, MenuRow, ProgramSetting

AT_ONCE = 8
"""The most rows that share a process in the ranking."""


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
    lane: int = 0  # the place of its device among those of the search
    beside: int = 1  # the number of processes that run at once on its device; more than 1 if they only compile
    limit_s: float | None = None  # seconds after which it is ended; ``None`` for no limit

    @property
    def slugs(self) -> tuple[str, ...]:
        """The names of the variants."""
        return tuple(one.slug for one in self.candidates)

    @property
    def only_compiles(self) -> bool:
        """Whether it compiles ahead, and nothing is timed."""
        return self.purpose == WARMING


def have_conflict(a: MenuRow, b: MenuRow) -> bool:
    """Whether two rows cannot be combined: they set the same thing, or both say how an optimizer steps."""
    names = [{(one.kind, one.setting) for one in row.settings} for row in (a, b)]
    optimizers = all(any(one.kind == OPTIMIZER for one in row.settings) for row in (a, b))
    return bool(names[0] & names[1]) or optimizers


def name_of(slugs: Sequence[str]) -> str:
    """The name of the variant with these rows."""
    return "+".join(slugs) or ORIGINAL


def leave_out(slugs: Sequence[str], slug: str) -> tuple[str, ...]:
    """These rows without one."""
    return tuple(one for one in slugs if one != slug)


def list_prefixes(slugs: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The first row, the first two, …"""
    return (tuple(slugs[:count]) for count in range(1, len(slugs) + 1))


def split_slugs(slugs: Sequence[str]) -> list[tuple[str, ...]]:
    """The combinations that say what each of these rows does beside the others: the first ones, and all but one."""
    return list(dict.fromkeys([*list_prefixes(slugs), *(leave_out(slugs, slug) for slug in slugs)]))


# What runs where, if there are several devices.


def deal(slugs: Sequence[str], lanes: int, at_once: int = AT_ONCE) -> list[list[str]]:
    """The rows of each process of the ranking: the first rows come first, and each device gets as many as another."""
    found: list[list[str]] = []
    for begin in range(0, len(slugs), at_once * lanes):
        block = slugs[begin : begin + at_once * lanes]
        found += [list(block[lane::lanes]) for lane in range(min(lanes, len(block)))]
    return found


def plan_screening_turns(slugs: Sequence[str], lanes: int) -> list[list[str]]:
    """For each device the rows that it runs in turn with the original.

    Several rows run between two runs of the original. If there are more devices than rows, some run a row once more.
    """
    found = []
    for lane in range(lanes):
        own = slugs[lane::lanes] or [slugs[lane % len(slugs)]]
        turn = [ORIGINAL, *own, *([ORIGINAL] if lanes == 1 or len(own) > 1 else [])]
        found.append(turn if lane < len(slugs) else turn[::-1])
    return found


def alternate_names(names: Sequence[str], lanes: int) -> list[list[str]]:
    """The rounds in which all of these names run at least twice, and as often on each device: A B B A.

    Every second device runs them backwards. Each device runs all of them, because a comparison stays on one device.
    """
    backwards = names[::-1]
    if lanes == 1:
        return [[name] for name in (*names, *backwards)]
    return [[(backwards if lane % 2 else names)[place] for lane in range(lanes)] for place in range(len(names))]


def list_first_runs(turns: Sequence[Sequence[str]]) -> list[list[bool]]:
    """For each process of such rounds, whether it is the first with its name."""
    seen: set[str] = set()
    found = []
    for turn in turns:
        found.append([name not in {*seen, *turn[:lane]} for lane, name in enumerate(turn)])
        seen.update(turn)
    return found

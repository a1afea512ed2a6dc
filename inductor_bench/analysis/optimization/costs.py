"""What processes of a program take, as far as earlier ones tell, and which rows are worth their time first."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from ...records.optimization import ORIGINAL, PLACEBO, WARMING, MenuRow, Trial

USUAL_SHARES = {
    **{"cudagraphs": 0.8, "optimizer": 0.7, "functions": 0.4, "cpp-wrapper": 0.3, "freezing": 0.3, "layout": 0.3},
    **{"loader": 0.8, "allocator": 0.5, "dynamic": 0.1, "threads": 0.5, "convolutions": 0.2, "attention": 0.3},
    **{"max-autotune": 0.2, "memory": 0.3, "kernels": 0.1, "padding": 0.1, "tf32": 0.6, "reduced-precision": 0.1},
    **{"bf16": 0.6},
}
"""The part of its bound that a row is expected to save, by group; in other groups the whole bound. A bound is the
largest possible saving: CUDA graphs end nearly all waits for launches, but kernels far from their limits mostly stay
far from them."""

COSTLY, COSTS_MORE = ("max-autotune", "cpp-wrapper"), 4.0
"""Groups whose rows compile for minutes, and how many other rows could be ranked in that time."""

CACHED = 0.15
"""Share of a compilation that is left when its graphs come from a cache (measured: 0.02 to 0.13)."""

START_S = 15.0
"""The estimated seconds until a program runs and its steps are found, before any process has shown it."""

TIMED_SHARE = 1.6
"""Seconds of steps for one timed second: the first step of a turn does not count, and the original has more turns."""

START_VARIANTS = 4
"""The number of variants whose comparison and steps take as long as the program's start (measured: 4 to 6)."""


def compute_expected_share(row: MenuRow) -> float:
    """The share of the step that a row may be expected to save; what the user adds comes first."""
    if row.group not in USUAL_SHARES:
        return 1.0 if row.bound is None else row.bound
    return USUAL_SHARES[row.group] * (1.0 if row.bound is None else row.bound)


def sort_by_worth(rows: Iterable[MenuRow]) -> list[MenuRow]:
    """Rows in the order in which they are tried: what may save most for its time comes first."""
    return sorted(rows, key=lambda row: -compute_expected_share(row) / (COSTS_MORE if row.group in COSTLY else 1.0))


class ProcessCosts:
    """What processes take.

    Args:
        compile_s: seconds in which the program's own graphs compile; 0 if that is unknown.
    """

    def __init__(self, compile_s: float = 0.0) -> None:
        self._usual_s = compile_s
        self._timed: list[Trial] = []
        self._cold_s: dict[str, float] = {}
        self._first_s: dict[str, float] = {}  # with the caches of the search
        self._cached_s: dict[str, float] = {}  # in the last process that found it in a cache

    def note_times(self, trials: Iterable[Trial]) -> None:
        """Notes what processes took. The longest compilation of a variant was a cold one."""
        for trial in trials:
            for one in trial.variants:
                if one.slug in self._cold_s and not trial.cold:
                    self._cached_s[one.slug] = one.compile_time_s
                self._cold_s[one.slug] = max(one.compile_time_s, self._cold_s.get(one.slug, 0.0))
                if not trial.cold:
                    self._first_s[one.slug] = max(one.compile_time_s, self._first_s.get(one.slug, 0.0))
            if trial.purpose != WARMING:
                self._timed.append(trial)

    def first_s(self, slug: str) -> float | None:
        """Seconds in which a variant was first compiled, with the caches of the search."""
        return self._first_s.get(slug) or None

    def new_s(self) -> float:
        """Seconds in which a variant compiles that no process has compiled."""
        known = [time_s for slug, time_s in self._cold_s.items() if slug != ORIGINAL and time_s]
        return statistics.median(known) if known else self._usual_s

    def compile_s(self, slug: str) -> float:
        """Seconds in which a variant compiles, or is taken from the cache."""
        return CACHED * self._cold_s[slug] if slug in self._cold_s else self.new_s()

    def turns_s(self, slugs: Sequence[str], timed_s: float, *, cached: bool = False) -> float:
        """Seconds of a process in which these variants take turns with the original and the placebo.

        Args:
            slugs: the variants, without both.
            timed_s: seconds of timed steps of each.
            cached: whether other processes compile all of them before.
        """
        names = [ORIGINAL, PLACEBO, *slugs]
        compiled_s = CACHED * self.new_s() * len(names) if cached else math.fsum(map(self.compile_s, names))
        return self._rest_s(len(names)) + compiled_s + TIMED_SHARE * timed_s * len(names)

    def usual_process_s(self, purpose: str) -> float:
        """Seconds of a process with one variant from its start to its end."""
        known = [trial for trial in self._timed if not trial.alternates]
        alike = [trial.time_s for trial in known if trial.purpose == purpose]
        if known:
            return statistics.median(alike or [trial.time_s for trial in known])
        return self._rest_s(1) + self.compile_s(ORIGINAL)

    def one_variant_process_s(self, slug: str, stepped_s: float, *, cold: bool) -> float:
        """Seconds of a process that runs a variant from the program's start: its start, its compilation, its steps.

        Args:
            slug: the variant.
            stepped_s: seconds of its steps.
            cold: whether it compiles with empty caches; else they have all of its graphs.
        """
        compiled_s = self._cold_s.get(slug, self.new_s())
        if not cold:
            compiled_s = self._cached_s.get(slug, CACHED * compiled_s)
        alike = [trial for trial in self._timed if not trial.alternates and trial.failure is None]
        known = [_rest_of(trial) for trial in alike if trial.cold == cold]
        return (statistics.median(known) if known else self._rest_s(1, cold=cold)) + compiled_s + stepped_s

    def _rest_s(self, variants: int, *, cold: bool = False) -> float:
        """Seconds of a process with so many variants in which it neither compiles nor is timed.

        With empty caches it is the longest one known, because part of a compilation is seen by no variant.
        """
        known = [
            _rest_of(trial) / (START_VARIANTS + len(trial.slugs) + 1)
            for trial in self._timed
            if trial.alternates and trial.failure is None
        ]
        typical = max if cold else statistics.median
        return (typical(known) if known else START_S / START_VARIANTS) * (START_VARIANTS + variants)


def _rest_of(trial: Trial) -> float:
    """Seconds of a process in which it neither compiled nor ran steps. Steps whose gradients are kept count, too."""
    stepped_s = math.fsum(time_s for one in trial.variants for time_s in one.times_s)
    count = sum(len(one.times_s) for one in trial.variants)
    noted_s = len(trial.digests) * stepped_s / count if count else 0.0
    return max(0.0, trial.time_s - trial.compile_time_s - stepped_s - noted_s)


def time_of_round(trials: Sequence[Trial]) -> float:
    """Seconds of processes that ran at once; those of one device ran one after the other, unless they only compiled."""
    times_s: defaultdict[str, float] = defaultdict(float)
    for trial in trials:
        before_s = times_s[trial.gpu]
        times_s[trial.gpu] = max(before_s, trial.time_s) if trial.purpose == WARMING else before_s + trial.time_s
    return max(times_s.values(), default=0.0)

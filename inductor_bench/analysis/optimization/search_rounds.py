"""Rounds of processes that a search for settings asks for, the time that they take, and what they say of rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from ...records.optimization import (
    CONFIRM,
    FAILED,
    ORIGINAL,
    PLACEBO,
    UNPROVEN,
    MenuRow,
    OptimizedProgram,
    Trial,
    TrialVariant,
)
from .costs import time_of_round
from .judging import compute_original_step_s
from .row_states import compute_proven_share, find_fault, is_faster
from .trial_plans import TrialCandidate, TrialPlan, name_of
from .warming import CompileAhead

SCREENING = 0.5
"""After this share of the time no further row that needs a separate process is ranked."""

USUAL_S = 1200.0
"""The time limit for which the timed seconds below are meant."""

SCREENED_S, CLEAR_S, PROVEN_S = 2.5, 1.0, 6.0
"""Seconds of timed steps of each variant in one process: to rank, to prove what clearly saves much, and to prove."""

SHORT_STEP_S, LEAST = 0.1, 48
"""A step of up to this time is timed at least this many times in a process; a longer step half as often."""

LATE_SHARE = 0.2
"""By how much a search with all of its processes may exceed its time, as a share of this time."""

FEWEST_LOSSES, MOST_LOSSES, LOSSES_S = 50, 200, 20.0
"""The number of optimizer steps whose gradients are kept, and about how long they take."""

Answer = TypeVar("Answer")
Asking = Generator[tuple[TrialPlan, ...], Sequence[Trial], Answer]
"""Asks for rounds of trials, and returns an answer."""

Questions = Asking[None]


class TimeIsOver(Exception):
    """No process may be started any more."""


class SearchRounds:
    """The state of a search. ``rows`` and ``winner`` can be read at any time.

    Args:
        rows: the menu. Rows whose state is ``untried`` and that have no reason are tried.
        step_time_s: the step of the program in its RUN; what the original takes here replaces it.
        budget_s: the seconds after which nothing new is begun.
        spent_s: seconds that were spent before.
        max_memory_bytes: the memory that a variant may take; ``None`` for no limit.
        lanes: the number of devices.
        ahead: what is compiled ahead; nothing by default.
        confirming_s: the seconds after which no run from the program's start is begun; ``budget_s`` by default.
    """

    def __init__(
        self,
        rows: Sequence[MenuRow],
        step_time_s: float,
        budget_s: float,
        spent_s: float = 0.0,
        max_memory_bytes: int | None = None,
        lanes: int = 1,
        ahead: CompileAhead | None = None,
        confirming_s: float | None = None,
    ) -> None:
        self._rows = {row.slug: row for row in rows}
        self._step_s, self._budget_s, self._before_s = step_time_s, budget_s, spent_s
        self._max_memory_bytes, self._lanes = max_memory_bytes, lanes
        self._confirming_limit_s = budget_s if confirming_s is None else confirming_s
        self._ahead = ahead or CompileAhead()
        self._rounds_s: list[float] = []
        self._looks: Counter[str] = Counter()  # at the proof of each row
        self.trials: list[Trial] = []
        self.winner: OptimizedProgram | None = None
        self.notes: list[str] = []

    @property
    def rows(self) -> tuple[MenuRow, ...]:
        """The menu with what is known by now."""
        return tuple(self._rows.values())

    @property
    def spent_s(self) -> float:
        """Seconds that the search has taken."""
        return self._before_s + math.fsum(self._rounds_s)

    @property
    def _proven(self) -> list[str]:
        return [row.slug for row in self.rows if is_faster(row.proven) and row.state == UNPROVEN]

    def _share(self, slug: str) -> float:
        return compute_proven_share(self._rows[slug])

    def _set(self, slug: str, **fields: object) -> None:
        self._rows[slug] = replace(self._rows[slug], **fields)  # type: ignore[arg-type]

    def _ask(
        self,
        purpose: str,
        candidates: Sequence[Iterable[TrialCandidate]],
        *,
        alternates: bool,
        timed_s: float = SCREENED_S,
        losses: int = 0,
        cold: Sequence[bool] = (),
    ) -> Asking[Sequence[Trial]]:
        """Asks for a round: a process with each of these groups of candidates, the first on the first device.

        Raises:
            TimeIsOver: the search may not take longer.
        """
        groups = [[*([TrialCandidate(PLACEBO)] if alternates else []), *group] for group in candidates]
        if alternates:
            yield from self._compile_ahead(groups)
        limit_s = (1 + LATE_SHARE) * (self._budget_s + self._later_s(purpose)) - self.spent_s
        if limit_s <= 0:
            raise TimeIsOver
        plans = tuple(
            TrialPlan(
                f"{len(self.trials) + lane + 1:02}-{purpose}",
                purpose,
                tuple(group),
                alternates,
                self._timed_s(timed_s),
                self._least,
                losses,
                bool(cold) and cold[lane],
                lane,
                limit_s=limit_s,
            )
            for lane, group in enumerate(groups)
        )
        trials = yield plans
        self._note_round(trials)
        return trials

    def _compile_ahead(self, groups: Sequence[Sequence[TrialCandidate]]) -> Questions:
        """Asks for processes that compile what no process has compiled, if there is time and reason for them."""
        while plans := self._ahead.plans(groups, len(self.trials) + 1, self._left_s()):
            trials = yield plans
            self._note_round(trials)

    def _note_round(self, trials: Sequence[Trial]) -> None:
        self.trials += trials
        self._ahead.note_compile_times(trials)
        self._rounds_s.append(time_of_round(trials))
        self._step_s = compute_original_step_s(self.trials) or self._step_s

    def _candidate(self, *slugs: str) -> TrialCandidate:
        """The variant with the settings of these rows; without any the original."""
        settings = tuple(setting for slug in slugs for setting in self._rows[slug].settings)
        return TrialCandidate(name_of(slugs), settings)

    @property
    def _least(self) -> int:
        """The least number of timed steps of each variant in a process."""
        return LEAST if self._step_s <= SHORT_STEP_S else LEAST // 2

    def _timed_s(self, usual_s: float) -> float:
        """Seconds of timed steps of each variant, for those of a search with the usual time."""
        return usual_s * min(4.0, max(0.2, self._budget_s / USUAL_S))

    def _turns_s(self, slugs: Sequence[str], usual_s: float = PROVEN_S, *, cached: bool = False) -> float:
        """Seconds that a process with these variants may be expected to take."""
        timed_s = max(self._timed_s(usual_s), self._least * self._step_s)
        return self._ahead.costs.turns_s(slugs, timed_s, cached=cached)

    def _rounds_s_of(
        self, turns: Sequence[Sequence[str]], places: Iterable[int], colds: Sequence[Sequence[bool]] = ()
    ) -> float:
        """Seconds of some of these rounds, each as long as its longest process."""
        return math.fsum(
            max(
                self._first_runs_s([name], cold=bool(colds) and colds[place][lane])
                for lane, name in enumerate(turns[place])
            )
            for place in places
        )

    def _first_runs_s(self, names: Iterable[str], *, cold: bool) -> float:
        """Seconds in which each of these runs once from the program's start, one after the other."""
        return math.fsum(
            self._ahead.costs.one_variant_process_s(name, self._stepped_s(name), cold=cold) for name in names
        )

    def _stepped_s(self, name: str) -> float:
        """Seconds of the steps of such a run: those whose gradients are kept, and those that are timed."""
        saved = [self._share(slug) for slug in name.split("+") if slug in self._rows]
        step_s = self._step_s * math.prod(1 - share for share in saved)
        return self._losses * step_s + max(self._timed_s(SCREENED_S), self._least * step_s)

    @property
    def _losses(self) -> int:
        return int(min(MOST_LOSSES, max(FEWEST_LOSSES, LOSSES_S / self._step_s)))

    def _has_time(self, purpose: str, needed_s: float, share: float = 1.0) -> bool:
        """Whether processes of a purpose that need so many seconds end within this share of the search's time."""
        return needed_s <= self._left_s(share) + self._later_s(purpose)

    def _later_s(self, purpose: str) -> float:
        """Seconds after the search's time in which processes of a purpose may still run."""
        return self._confirming_limit_s - self._budget_s if purpose == CONFIRM else 0.0

    def _left_s(self, share: float = 1.0) -> float:
        """Seconds that are left of this share of the search's time."""
        return self._before_s + share * (self._budget_s - self._before_s) - self.spent_s

    def _rounds(self, processes: int) -> int:
        """The number of rounds in which so many processes run."""
        return math.ceil(processes / self._lanes)

    def _note_variant(self, slug: str, found: TrialVariant) -> None:
        """Notes what a variant needed, and ends its row if it failed or its numbers differ."""
        compiled_s = self._ahead.costs.first_s(slug) if self._rows[slug].changes_compilation else None
        self._set(slug, compile_time_s=compiled_s, peak_memory_bytes=found.peak_memory_bytes)
        self._set(slug, **find_fault(self._rows[slug], found, self._max_memory_bytes))

    def _run_alone(
        self, purpose: str, names: Sequence[str], *, losses: int = 0, cold: Sequence[bool] = ()
    ) -> Questions:
        """Runs rows, or the original, each from the start of a process to its end, and each on another device."""
        asked = [[self._candidate(*([] if name == ORIGINAL else name.split("+")))] for name in names]
        trials = yield from self._ask(purpose, asked, alternates=False, losses=losses, cold=cold)
        for trial, name in zip(trials, names, strict=True):
            if name in self._rows:
                found = trial.variant(name)
                if found is not None:
                    self._note_variant(name, found)
                elif trial.failure is not None and not trial.late:
                    self._set(name, state=FAILED, reason=trial.failure.message)

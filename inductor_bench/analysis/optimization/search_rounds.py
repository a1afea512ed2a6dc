"""The rounds of processes of a search for settings: their plans, their times, and their results for the rows.

The last rounds are whole runs: new processes with the proven settings on from the first step, in turn with the
original.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from ... import units
from ...records.optimization import (
    CONFIRM,
    DIFFERS,
    EMPTY_CACHES,
    FAILED,
    INDUCTOR,
    KEPT,
    LOST,
    NOT_YET,
    NOTHING,
    ORIGINAL,
    PLACEBO,
    REDUNDANT,
    SHARED_CACHES,
    SLOWER,
    UNPROVEN,
    MeasuredGain,
    MenuRow,
    OptimizedProgram,
    Trial,
    TrialVariant,
)
from .judging import (
    LOOKS,
    OTHER_LEVEL,
    compute_original_step_s,
    describe_digest_difference,
    find_variant_needs,
    judge_alone,
    predict_saving,
)
from .row_verdicts import NOT_RUN, compute_proven_share, find_fault, is_faster
from .step_mix import StepMix, find_mix
from .trial_plans import (
    CompileAhead,
    TrialCandidate,
    TrialPlan,
    alternate_names,
    compute_round_time_s,
    leave_out,
    list_first_runs,
    name_variant,
)

SCREENING = 0.5
"""After this share of the time no further row that needs a separate process is ranked."""

USUAL_S = 1200.0
"""The time limit for which the timed seconds below are meant."""

SCREENED_S, CLEAR_S, PROVEN_S = 2.5, 1.0, 6.0
"""Seconds of timed steps of each variant in one process: to rank, to prove a row that clearly saves much, to prove."""

MOST_KINDS = 3
"""The largest number of kinds of steps for each of which further steps are timed."""

SHORT_STEP_S, LEAST = 0.1, 48
"""A step of up to this time is timed at least this many times in a process; a longer step half as often."""

LATE_SHARE = 0.2
"""By how much a search with all of its processes may exceed its time, as a share of this time."""

FEWEST_LOSSES, MOST_LOSSES, LOSSES_S = 50, 200, 20.0
"""The number of optimizer steps whose gradients are kept, and about how long they take in a search of
:data:`USUAL_S`; they take less in a shorter search."""

Answer = TypeVar("Answer")
Asking = Generator[tuple[TrialPlan, ...], Sequence[Trial], Answer]
"""Asks for rounds of trials, and returns an answer."""

Questions = Asking[None]


class TimeIsOver(Exception):
    """No process may be started any more."""


FROM_START = ("cudagraphs",)
"""Groups whose rows are only claimed after a whole run. If gradients accumulate or outputs are kept,
a program fails with CUDA graphs from its first step, but not if it switches to them within a process."""

OTHER_START = 1.5
"""If the original's step in new processes is longer or shorter than in the proofs by more than this factor, the new
processes run again, because something else may have slowed the machine meanwhile."""

MOST_AGAIN = 3
"""The number of times that they run again."""

FAILS = "a new process that starts with it fails: {said}"
NO_LOSSES = (
    "alone it is faster, but it changes the {numbers}, and no time was left to compare its losses in a new process "
    "with the original's; give a longer --budget"
)
NOT_COMBINED = "alone it is faster, but no time was left to combine it with the other settings; give a longer --budget"

Combined = tuple[Sequence[str], MeasuredGain | None, tuple[tuple[str, float], ...]]
"""Rows that are kept, their common saving if that was measured, and the step after each row."""


class SearchRounds:
    """The state of a search. ``rows`` and ``winner`` can be read at any time.

    Args:
        rows: the menu. Rows whose state is ``untried`` and that have no reason are tried.
        step_time_s: the step of the program in its RUN; the original's step in this search replaces it.
        budget_s: the seconds after which nothing new is begun.
        spent_s: seconds that were spent before.
        max_memory_bytes: the memory that a variant may take; ``None`` for no limit.
        lanes: the number of devices.
        ahead: the variants that are compiled ahead; none by default.
        confirming_s: the seconds after which no whole run is begun; ``budget_s`` by default.
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
        self._alone: set[str] = set()  # rows whose ranking is the first process of their proof
        self.trials: list[Trial] = []
        self._mix: StepMix | None = None  # the kinds of steps, if there are several
        self._measured: list[Trial] = []  # the trials with all of their steps, if these are of several kinds
        self.winner: OptimizedProgram | None = None
        self.notes: list[str] = []
        self._combined: Combined | None = None  # what the whole runs run
        self._confirmed: tuple[OptimizedProgram, list[MenuRow]] | None = None  # after its whole runs the search went on

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
        return self._note_round(trials)

    def _compile_ahead(self, groups: Sequence[Sequence[TrialCandidate]]) -> Questions:
        """Asks for processes that compile what no process has compiled, if there is time and reason for them."""
        while plans := self._ahead.plans(groups, len(self.trials) + 1, self._left_s()):
            trials = yield plans
            self._note_round(trials)

    def _note_round(self, trials: Sequence[Trial]) -> Sequence[Trial]:
        """Notes what processes measured. Returns it; rounds stand for the steps if these are of several kinds."""
        self._ahead.note_compile_times(trials)
        self._rounds_s.append(compute_round_time_s(trials))
        if self._mix is None and (mix := find_mix(trials)) is not None:
            self._mix, self._measured = mix, list(self.trials)
            self.trials = list(map(mix.even_out, self.trials))
            self.notes.append(mix.describe())
        if self._mix is not None:
            self._measured += trials
            trials = list(map(self._mix.even_out, trials))
        self.trials += trials
        self._step_s = compute_original_step_s(self.trials) or self._step_s
        return trials

    def _candidate(self, *slugs: str) -> TrialCandidate:
        """The variant with the settings of these rows; without any the original."""
        settings = tuple(setting for slug in slugs for setting in self._rows[slug].settings)
        return TrialCandidate(name_variant(slugs), settings)

    @property
    def _least(self) -> int:
        """The least number of timed steps of each variant in a process."""
        kinds = min(len(self._mix.groups), MOST_KINDS) if self._mix is not None else 1
        return kinds * (LEAST if self._step_s <= SHORT_STEP_S else LEAST // 2)

    def _timed_s(self, usual_s: float) -> float:
        """Scales the usual seconds of timed steps of each variant to the time of this search."""
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
        """Seconds of one whole run of each of these, one after the other."""
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
        losses_s = LOSSES_S * min(1.0, self._budget_s / USUAL_S)
        return int(min(MOST_LOSSES, max(FEWEST_LOSSES, losses_s / self._step_s)))

    def _has_time(self, purpose: str, needed_s: float, share: float = 1.0) -> bool:
        """Whether processes of a purpose that need ``needed_s`` seconds end within this share of the search's time."""
        return needed_s <= self._left_s(share) + self._later_s(purpose)

    def _later_s(self, purpose: str) -> float:
        """Seconds after the search's time in which processes of a purpose may still run."""
        return self._confirming_limit_s - self._budget_s if purpose == CONFIRM else 0.0

    def _left_s(self, share: float = 1.0) -> float:
        """Seconds that are left of this share of the search's time."""
        return self._before_s + share * (self._budget_s - self._before_s) - self.spent_s

    def _rounds(self, processes: int) -> int:
        """Returns the number of rounds that this number of processes needs."""
        return math.ceil(processes / self._lanes)

    def _note_variant(self, slug: str, found: TrialVariant) -> None:
        """Notes the time and memory that a variant needed. Ends its row if it failed or its numbers differ."""
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

    def _run_first(self, slugs: Sequence[str]) -> Questions:
        """Makes one whole run of each row of :data:`FROM_START` before any of them is proven."""
        for slug in slugs:
            known = any(trial.purpose == CONFIRM and trial.slugs == (slug,) for trial in self.trials)
            needed_s = self._first_runs_s([slug], cold=False)
            if known or self._rows[slug].group not in FROM_START or not self._has_time(CONFIRM, needed_s):
                continue
            yield from self._run_alone(CONFIRM, [slug], losses=self._losses)
            if self._rows[slug].state == FAILED:
                self._set(slug, reason=FAILS.format(said=self._rows[slug].reason))

    # The result as the user would run it.

    def _confirm(
        self, kept: Sequence[str], gain: MeasuredGain | None, steps: tuple[tuple[str, float], ...]
    ) -> Asking[list[str]]:
        """Runs the program with the result and without in turn, if there is time; returns the rows that have to go."""
        full = name_variant(kept)
        alone = [slug for slug in kept if not self._rows[slug].alternates and len(kept) > 1]
        names = [full, ORIGINAL, *(name_variant(leave_out(kept, slug)) for slug in alone)]
        ran = yield from self._run_in_turn(names, alone, gain or self._rows[kept[0]].proven)
        trials = [trial for trial in ran if not trial.late]
        failed = next((trial.failure for trial in trials if trial.slugs == (full,) and trial.failure), None)
        if failed is not None:
            return self._give_up(kept, FAILED, FAILS.format(said=failed.message))
        if not {(name,) for name in names} <= {trial.slugs for trial in trials}:
            self._agree(kept, gain, steps)
            return []
        differs = self._compare_digests(trials, full)
        if differs:
            changing = [slug for slug in kept if self._rows[slug].numbers != NOTHING]
            return self._give_up(changing or kept, DIFFERS, differs)
        timed = trials if alone else (yield from self._take_usual_runs(trials, full))
        whole = judge_alone(timed, full, noise=self.trials)
        if alone and whole is None:
            self._agree(kept, gain, steps)
            return []
        if whole is not None and whole.verdict == SLOWER:
            said = f"in new processes that start with it the step is {units.percent(-whole.share)} longer"
            return self._give_up(kept, LOST, said)
        memory = find_variant_needs(trials, full)[1]
        if self._max_memory_bytes is not None and memory is not None and memory > self._max_memory_bytes:
            limit = units.size(self._max_memory_bytes)
            said = f"with it the result takes {units.size(memory)} of memory, more than {limit}"
            return self._give_up(kept[-1:], FAILED, said)
        unchecked = [slug for slug in kept if not self._is_compared(slug, trials)]
        if unchecked:
            return self._give_up(unchecked, UNPROVEN, "it is faster, but its results could not be compared")
        for slug in alone:
            own = judge_alone(trials, full, name_variant(leave_out(kept, slug)), self.trials)
            self._set(slug, own=own)
            if not is_faster(own):
                return self._give_up([slug], REDUNDANT, "together with the others it saves nothing more")
        if alone:
            gain = whole
        elif gain is None:
            gain = self._rows[kept[0]].proven
            self._set(kept[0], own=gain)
        self._keep_if_faster(kept, gain, steps, whole, trials, timed)
        return []

    def _run_in_turn(
        self, names: Sequence[str], alone: Sequence[str], proven: MeasuredGain | None
    ) -> Asking[Sequence[Trial]]:
        """Runs separate processes, A B B A, the first of each with empty caches; more processes if they alone decide.

        All use shared caches if there is only time for these, or if the settings change nothing that is compiled. No
        process begins that would not end in time; only the first two may end a little later. The first processes of
        each kind begin together or not at all, and so do the further ones unless they alone decide.
        The process that may fail comes first, and ends the others if it fails. If it already ran before any proof, that
        run counts as one with shared caches. On one device A and B suffice if they agree with the proof, and A B B too.
        """
        full = (names[0],)
        before = [one for one in self.trials if one.purpose == CONFIRM and one.slugs == full and not one.failure]
        found, begun = list[Trial](), len(self.trials)
        turns = alternate_names(names, self._lanes if alone else min(self._lanes, 2))
        colds, is_cold = list_first_runs(turns), self._changes_compilation(names[0])
        for place, turn in enumerate(turns):
            places = range(place, len(names) if place < len(names) else place + 1 if alone else len(turns))
            is_cold = is_cold and self._has_time(CONFIRM, self._rounds_s_of(turns, places, colds))
            cold = colds[place] if is_cold else ()
            if before and tuple(turn) == full and not any(cold):
                found.append(before.pop())
                continue
            is_first = sum(map(len, turns[:place])) < len(names)
            late_s = LATE_SHARE * self._budget_s if is_first and not alone else 0.0
            if not is_cold and not self._has_time(CONFIRM, self._rounds_s_of(turns, places) - late_s):
                break
            yield from self._run_alone(CONFIRM, turn, losses=self._losses, cold=cold)
            ran = [*found, *self.trials[begun:]]
            if any(trial.slugs == full and trial.failure for trial in ran):
                break
            if not alone and self._confirms(ran, names[0], proven):
                break
        for _ in range(LOOKS - 1 if alone else 0):
            trials = [*found, *self.trials[begun:]]
            gains = [judge_alone(trials, names[0], name, self.trials) for name in names[1:]]
            if all(is_faster(gain) for gain in gains) or not self._has_time(
                CONFIRM, self._rounds_s_of(turns, range(len(turns)))
            ):
                break
            for turn in turns:
                yield from self._run_alone(CONFIRM, turn)
        return [*found, *self.trials[begun:]]

    def _changes_compilation(self, name: str) -> bool:
        """Whether a variant changes what is compiled, so that its compilation with empty caches says something."""
        return any(self._rows[slug].changes_compilation for slug in name.split("+"))

    def _confirms(self, trials: Sequence[Trial], full: str, proven: MeasuredGain | None) -> bool:
        """Whether the whole runs of one GPU save what was proven, and their gradients and losses agree."""
        timed = [trial for trial in trials if not trial.late]
        whole = judge_alone(timed, full, noise=self.trials)
        if whole is None or proven is None or self._compare_digests(timed, full):
            return False
        apart = abs(math.log((1 - whole.share) / (1 - proven.share)))
        return proven.low <= whole.share <= proven.high and apart <= OTHER_LEVEL

    def _take_usual_runs(self, trials: Sequence[Trial], full: str) -> Asking[Sequence[Trial]]:
        """Returns the whole runs if the original's step takes about as long in them as in the proofs.

        If it does not, result and original run again, up to :data:`MOST_AGAIN` times. If it never does, the difference
        is the program's own, and all runs count. Returns nothing if there is no time for that.
        """
        proofs_s = compute_original_step_s(trial for trial in self.trials if trial.purpose != CONFIRM)
        every, starts_s = list(trials), compute_original_step_s(trials)
        for again in range(MOST_AGAIN + 1):
            if proofs_s is None or starts_s is None or 1 / OTHER_START <= starts_s / proofs_s <= OTHER_START:
                return trials
            if again == MOST_AGAIN:
                break
            begun = len(self.trials)
            if self._has_time(CONFIRM, self._first_runs_s([ORIGINAL, full], cold=False)):
                with suppress(TimeIsOver):
                    for name in (full, ORIGINAL):
                        yield from self._run_alone(CONFIRM, [name])
            trials = [trial for trial in self.trials[begun:] if not trial.late and trial.failure is None]
            if len(trials) < 2 or compute_original_step_s(trials) is None:
                took, usual = units.seconds(starts_s), units.seconds(proofs_s)
                self.notes.append(
                    f"the new processes do not count: the original's step took {took} in them, before {usual}"
                )
                return []
            every, starts_s = [*every, *trials], compute_original_step_s(trials)
        return every

    # Results without whole runs.

    def stop(self) -> None:
        """Claims the rows on which processes agree so far, after the search was stopped from outside."""
        if self.winner is None:
            self._agree(*(self._combined or (self._proven, None, ())))
        self._keep_confirmed()

    def _has_confirmed(self, slugs: Sequence[str]) -> bool:
        """Whether an earlier result with whole runs has all of these rows."""
        return not slugs or (self._confirmed is not None and set(slugs) <= set(self._confirmed[0].slugs))

    def _keep_confirmed(self) -> None:
        """Keeps an earlier result with whole runs if no later one has them."""
        if self._confirmed is None:
            return
        winner, rows = self._confirmed
        if self.winner is not None and self.winner.is_confirmed and self.winner is not winner:
            return
        for row in self.rows:
            if row.state == KEPT:
                self._set(row.slug, state=UNPROVEN, reason=NOT_RUN)
        self.winner = winner
        self._rows |= {row.slug: row for row in rows}

    def _agree(self, kept: Sequence[str], gain: MeasuredGain | None, steps: tuple[tuple[str, float], ...]) -> None:
        """Claims the rows on which processes agree, if there was no time for whole runs with them.

        A row is claimed only if its numbers were compared and agree. Several rows are claimed if they were measured
        together and memory has no limit; otherwise only the best row. Rows of :data:`FROM_START` are not claimed.
        """
        left = [slug for slug in kept if self._rows[slug].state == UNPROVEN]
        same = [slug for slug in left if self._rows[slug].numbers == NOTHING and self._is_compared(slug, ())]
        sure = [slug for slug in same if self._rows[slug].group not in FROM_START]
        for slug in left:
            losses = NO_LOSSES.format(numbers=self._rows[slug].numbers)
            self._set(slug, reason=NOT_COMBINED if slug in sure else NOT_RUN if slug in same else losses)
        together = sure == list(kept) and all(self._rows[slug].alternates for slug in sure)
        if not (together and is_faster(gain)) or (len(sure) > 1 and self._max_memory_bytes is not None):
            sure = sorted(sure, key=self._share)[-1:]
            gain = self._rows[sure[0]].proven if sure else None
            steps = ()
        if gain is None or not is_faster(gain):
            return
        for slug in sure:
            self._set(slug, state=KEPT, reason="")
        if len(sure) == 1:
            self._set(sure[0], own=gain)
        cold = self._changes_compilation(name_variant(sure))
        missing_s = self._first_runs_s([ORIGINAL, name_variant(sure)], cold=cold)
        steps = steps or ((sure[-1], gain.after_s),)
        expected = predict_saving(self.trials, name_variant(sure), gain)
        self.winner = OptimizedProgram(
            tuple(sure), gain, steps, expected=expected, from_start=NOT_YET, missing_s=missing_s
        )

    def _compare_digests(self, trials: Sequence[Trial], full: str) -> str:
        originals = [trial.digests for trial in trials if trial.slugs == (ORIGINAL,)]
        changed = [trial.digests for trial in trials if trial.slugs == (full,)]
        return next(filter(None, (describe_digest_difference(originals, one) for one in changed)), "")

    def _is_compared(self, slug: str, trials: Sequence[Trial]) -> bool:
        """Whether outputs, gradients or losses with a row were compared, if it can change them."""
        row = self._rows[slug]
        if row.numbers == NOTHING and not any(one.kind == INDUCTOR for one in row.settings):
            return True
        found = [one for trial in self.trials for one in trial.variants if slug in one.slug.split("+")]
        checked = any(check.is_compared for one in found for check in one.checks)
        return checked or any(trial.digests for trial in trials if slug in trial.slugs[0].split("+"))

    def _give_up(self, slugs: Sequence[str], state: str, reason: str) -> list[str]:
        for slug in slugs:
            self._set(slug, state=state, reason=reason)
        return list(slugs)

    def _keep_if_faster(
        self,
        kept: Sequence[str],
        gain: MeasuredGain | None,
        steps: tuple[tuple[str, float], ...],
        whole: MeasuredGain | None,
        trials: Sequence[Trial],
        timed: Sequence[Trial],
    ) -> None:
        """Makes the result from its whole runs; ``timed`` are those whose times count."""
        if gain is None or not is_faster(gain):
            self._give_up(kept, UNPROVEN, "together the gain is not certain")
            return
        for slug in kept:
            self._set(slug, state=KEPT, reason="")
        if whole is not None and whole.share <= 0:
            took = f"{units.seconds(whole.before_s)} and {units.seconds(whole.after_s)}"
            self.notes.append(
                f"in new processes that start with the settings the step is not shorter: {took}, the medians of "
                f"{whole.processes} processes"
            )
        full = name_variant(kept)
        ours, theirs = (find_variant_needs(trials, name) for name in (full, ORIGINAL))
        names = {(full,), (ORIGINAL,)}
        is_cold = names <= {trial.slugs for trial in timed if trial.cold}
        compiled_s, original_s = (ours[0], theirs[0]) if is_cold else (None, None)  # else their caches differed
        changes = self._changes_compilation(full)
        saved_s = min(one.before_s - one.after_s for one in (gain, whole) if one is not None)
        longer_s = compiled_s - original_s if compiled_s is not None and original_s is not None else None
        pays = max(0.0, longer_s / saved_s) if longer_s is not None and changes and saved_s > 0 else None
        compared = max((len(trial.digests) for trial in trials if trial.slugs == (full,)), default=0)
        said = f"{compared} steps of the optimizer: gradients and losses agree with the original's" if compared else ""
        self.winner = OptimizedProgram(
            slugs=tuple(kept),
            gain=gain,
            steps=steps or tuple([(slug, gain.after_s) for slug in kept][-1:]),
            peak_memory_bytes=ours[1],
            original_peak_memory_bytes=theirs[1],
            compile_time_s=compiled_s,
            original_compile_time_s=original_s,
            pays_after=pays,
            alone=whole,
            expected=predict_saving(self.trials, full, whole or gain, timed if whole else ()),
            losses=said,
            from_start=NOT_YET if not timed else EMPTY_CACHES if is_cold else SHARED_CACHES,
            missing_s=None if timed else self._first_runs_s([ORIGINAL, name_variant(kept)], cold=False),
        )

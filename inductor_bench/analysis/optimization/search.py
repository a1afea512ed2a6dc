"""Decides which processes of a program are run to find the settings that make it faster, and what they prove.

First all rows of the menu are ranked. What seems faster gets fresh processes: a claim never rests on samples by which
it was chosen. What is proven is combined, and each setting is taken out of the combination once: it stays if that makes
the step longer. In the end the program runs from its start with what is left, as the user would run it.

The search starts nothing: it is a generator that asks for a round of trials, which may run at once on several devices,
and is sent what they measured, in the order in which it asked. The same answers lead to the same questions, so that a
search that was interrupted goes on from its trials.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from ... import units
from ...records.optimization import (
    COMBINE,
    CONFIRM,
    DIFFERS,
    FAILED,
    INDUCTOR,
    KEPT,
    LOST,
    NOTHING,
    ORIGINAL,
    PLACEBO,
    PROVE,
    RANKS,
    REDUNDANT,
    SAME,
    SCREEN,
    SLOWER,
    UNDECIDED,
    UNPROVEN,
    UNTRIED,
    MeasuredGain,
    MenuRow,
    OptimizedProgram,
    Trial,
    TrialVariant,
)
from .judging import (
    LOOKS,
    digests_differ,
    failed_variant,
    judge,
    judge_alone,
    lacks_memory,
    latest_compile_s,
    needs_of,
    process_gains,
    seems_faster,
    time_of_process,
    time_of_round,
    waterfall,
)
from .row_states import fault_of, is_faster, lost, needed, proven_share
from .trial_plans import (
    TrialCandidate,
    TrialPlan,
    conflict,
    deal,
    in_turn,
    name_of,
    prefixes,
    screening_turns,
    without,
)
from .warming import CompileAhead

COSTLY = ("max-autotune", "cpp-wrapper")
"""Groups whose rows compile for minutes: they are ranked after all others."""

MOST_FINALISTS = 6
"""The most rows that are proven; the ranking chooses them."""

SCREENING = 0.5
"""The share of the time after which no further row is ranked."""

USUAL_S = 1200.0
"""The time limit for which the timed seconds below are meant."""

SCREENED_S, PROVEN_S = 2.5, 6.0
"""Seconds of timed steps of each variant in one process: to rank, and to prove."""

SHORT_STEP_S, LEAST = 0.1, 48
"""Steps up to this time are timed at least so often in a process, longer ones half as often."""

FEWEST_LOSSES, MOST_LOSSES, LOSSES_S = 50, 200, 20.0
"""The number of optimizer steps whose gradients are kept, and about how long they take."""

NO_TIME = "no time was left for it: a longer --budget tries it"
NO_PROOF = "it seemed faster, and no time was left to prove it: a longer --budget does"
TOO_MANY = f"it seemed faster; only the {MOST_FINALISTS} best were proven"


Answer = TypeVar("Answer")
Asking = Generator[tuple[TrialPlan, ...], Sequence[Trial], Answer]
"""Asks for rounds of trials, and returns an answer."""

Questions = Asking[None]


class OptimizationSearch:
    """The state of a search. ``rows`` and ``winner`` can be read at any time.

    Args:
        rows: the menu. Rows whose state is ``untried`` and that have no reason are tried.
        step_time_s: the step of the program.
        budget_s: the seconds after which nothing new is begun.
        spent_s: seconds that were spent before.
        max_memory_bytes: the memory that a variant may take; ``None`` for no limit.
        lanes: the number of devices.
        ahead: what is compiled ahead; nothing by default.
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
    ) -> None:
        self._rows = {row.slug: row for row in rows}
        self._step_s, self._budget_s, self._before_s = step_time_s, budget_s, spent_s
        self._max_memory_bytes, self._lanes = max_memory_bytes, lanes
        self._ahead = ahead or CompileAhead()
        self._rounds_s: list[float] = []
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

    def plans(self) -> Questions:
        """The trials to run: rounds of at most one for each device, or of those that only compile."""
        tried = [row for row in self.rows if row.state == UNTRIED and not row.reason]
        for row in tried:
            self._set(row.slug, reason=NO_TIME)
        tried.sort(key=lambda row: (row.group in COSTLY, -(math.inf if row.bound is None else row.bound)))
        yield from self._screen([row.slug for row in tried if row.alternates])
        yield from self._screen_alone([row.slug for row in tried if not row.alternates])
        finalists = self._choose_finalists()
        yield from self._prove([slug for slug in finalists if self._rows[slug].alternates])
        yield from self._prove_alone([slug for slug in finalists if not self._rows[slug].alternates])
        proven = [slug for slug in finalists if is_faster(self._rows[slug].proven)]
        yield from self._conclude(self._without_conflicts(proven))

    def _set(self, slug: str, **fields: object) -> None:
        self._rows[slug] = replace(self._rows[slug], **fields)  # type: ignore[arg-type]

    def _ask(
        self,
        purpose: str,
        candidates: Sequence[Iterable[TrialCandidate]],
        *,
        alternates: bool,
        timed_s: float | None = None,
        losses: int = 0,
        cold: Sequence[bool] = (),
    ) -> Asking[Sequence[Trial]]:
        """Asks for a round: a process with each of these groups of candidates, the first on the first device."""
        groups = [[*([TrialCandidate(PLACEBO)] if alternates else []), *group] for group in candidates]
        if alternates:
            yield from self._compile_ahead(groups, SCREENING if purpose == SCREEN else 1.0)
        factor = min(4.0, max(0.2, self._budget_s / USUAL_S))
        least = LEAST if self._step_s <= SHORT_STEP_S else LEAST // 2
        plans = tuple(
            TrialPlan(
                f"{len(self.trials) + lane + 1:02}-{purpose}",
                purpose,
                tuple(group),
                alternates,
                (timed_s or SCREENED_S) * factor,
                least,
                losses,
                bool(cold) and cold[lane],
                lane,
            )
            for lane, group in enumerate(groups)
        )
        trials = yield plans
        self._note_round(trials)
        return trials

    def _compile_ahead(self, groups: Sequence[Sequence[TrialCandidate]], share: float) -> Questions:
        """Asks for processes that compile what no process has compiled, if there is time and reason for them."""
        while plans := self._ahead.plans(groups, len(self.trials) + 1, self._left_s(share)):
            trials = yield plans
            self._note_round(trials)
            self._ahead.round_s = self._rounds_s[-1]

    def _note_round(self, trials: Sequence[Trial]) -> None:
        self.trials += trials
        self._ahead.note_compile_times(trials)
        self._rounds_s.append(time_of_round(trials))

    def _candidate(self, *slugs: str) -> TrialCandidate:
        """The variant with the settings of these rows; without any the original."""
        settings = tuple(setting for slug in slugs for setting in self._rows[slug].settings)
        return TrialCandidate(name_of(slugs), settings)

    def _has_time(
        self, purpose: str, rounds: int = 1, share: float = 1.0, slugs: Sequence[str] = (), ahead_s: float = 0.0
    ) -> bool:
        """Whether so many rounds of processes with these rows end within this share of the search's time."""
        compile_s = [latest_compile_s(self.trials, slug) for slug in slugs]
        return ahead_s + rounds * time_of_process(self.trials, purpose, compile_s) <= self._left_s(share)

    def _left_s(self, share: float = 1.0) -> float:
        """Seconds that are left of this share of the search's time."""
        return self._before_s + share * (self._budget_s - self._before_s) - self.spent_s

    def _rounds(self, processes: int) -> int:
        """The number of rounds in which so many processes run."""
        return math.ceil(processes / self._lanes)

    # Ranking.

    def _screen(self, slugs: Sequence[str]) -> Questions:
        groups = deal(slugs, self._lanes, self._ahead.rows_at_once(self._left_s(SCREENING)))
        while groups and self._has_time(SCREEN, share=SCREENING, ahead_s=self._ahead.round_s):
            now, groups = groups[: self._lanes], groups[self._lanes :]
            asked = [map(self._candidate, group) for group in now]
            trials = yield from self._ask(SCREEN, asked, alternates=True)
            again = [
                part for trial, group in zip(trials, now, strict=True) for part in self._screen_again(trial, group)
            ]
            groups = again + groups

    def _screen_again(self, trial: Trial, group: list[str]) -> list[list[str]]:
        """Notes what became of the rows of a process; returns those that have to run once more, by process."""
        missing = self._note_screened(trial, group)
        if not missing:
            return []
        if len(missing) < len(group):
            return [missing]
        if len(group) > 1 and not (trial.failure and trial.failure.kind == RANKS):
            return [group[: len(group) // 2], group[len(group) // 2 :]]  # perhaps each half needs no more than there is
        for slug in group:
            self._set(slug, state=FAILED, reason=failed_variant(trial).failure)
        return []

    def _note_screened(self, trial: Trial, group: Sequence[str]) -> list[str]:
        """Notes what became of each row; returns those that have to run once more."""
        missing = []
        for slug in group:
            found = trial.variant(slug)
            if found is None or not (found.failure or found.times_s or any(one.differs for one in found.checks)):
                missing.append(slug)
            elif found.failure and len(group) > 1 and lacks_memory(found.failure):
                missing.append(slug)  # the others took it, perhaps
            else:
                self._note_variant(slug, found)
                if self._rows[slug].state == UNTRIED:
                    self._rank(slug, judge([trial], slug), alternated=True)
        return missing

    def _rank(self, slug: str, gain: MeasuredGain | None, *, alternated: bool) -> None:
        fast = {"state": UNPROVEN, "reason": NO_PROOF} if seems_faster(gain, alternated=alternated) else lost(gain)
        self._set(slug, screened=gain, **fast)

    def _note_variant(self, slug: str, found: TrialVariant) -> None:
        """Notes what a variant needed, and ends its row if it failed or its numbers differ."""
        self._set(slug, compile_time_s=self._ahead.compile_s(slug), peak_memory_bytes=found.peak_memory_bytes)
        self._set(slug, **fault_of(self._rows[slug], found, self._max_memory_bytes))

    def _screen_alone(self, slugs: Sequence[str]) -> Questions:
        """Ranks the rows that cannot change within a process: A B C D A, or a part of them on each device."""
        if not slugs or not self._has_time(SCREEN, 3 if self._lanes == 1 else 2, SCREENING):
            return
        turns = screening_turns(slugs, self._lanes)
        for place in range(max(map(len, turns))):
            names = [turn[place] for turn in turns if place < len(turn)]
            is_last = all(name == ORIGINAL for name in names)
            if is_last or self._has_time(SCREEN, 2, SCREENING + 0.1):
                yield from self._run_alone(SCREEN, names)
        trials = [trial for trial in self.trials if trial.purpose == SCREEN]
        for slug in slugs:
            if self._rows[slug].state == UNTRIED and any(trial.variant(slug) for trial in trials):
                self._rank(slug, judge_alone(trials, slug), alternated=False)

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
                elif trial.failure is not None:
                    self._set(name, state=FAILED, reason=trial.failure.message)

    def _choose_finalists(self) -> list[str]:
        """The rows that seem fastest."""
        found = [row for row in self.rows if row.state == UNPROVEN and row.screened is not None]
        found.sort(key=lambda row: -(row.screened.share if row.screened else 0.0))
        for row in found[MOST_FINALISTS:]:
            self._set(row.slug, reason=TOO_MANY)
        return [row.slug for row in found[:MOST_FINALISTS]]

    # Proofs from fresh processes.

    def _prove(self, slugs: Sequence[str]) -> Questions:
        for look in range(LOOKS):
            slugs = [slug for slug in slugs if self._rows[slug].state == UNPROVEN and not self._is_decided(slug)]
            slugs = self._fitting(slugs) if look == 0 else slugs
            jobs = self._jobs(slugs)
            if not slugs or (look and not self._has_time(PROVE, self._rounds(len(jobs)), 0.75)):
                return
            yield from self._prove_once(jobs)
            for slug in slugs:
                if self._rows[slug].state == UNPROVEN:
                    self._set(slug, proven=self._judge_fresh(PROVE, slug))
                    self._note_proof(slug, is_last=look + 1 == LOOKS)
            self._without_conflicts([slug for slug in slugs if self._rows[slug].state == UNPROVEN])

    def _fitting(self, slugs: Sequence[str]) -> Sequence[str]:
        """The first rows whose proof there is time for."""
        for count in range(len(slugs), 0, -1):
            jobs = self._jobs(slugs[:count])
            if self._has_time(PROVE, self._rounds(len(jobs)), slugs=jobs[0]):
                return slugs[:count]
        return ()

    def _jobs(self, slugs: Sequence[str]) -> list[list[str]]:
        """The processes of a look: two with each row, or more if there are more devices; devices share the rows."""
        parts = min(max(1, self._lanes // 2), len(slugs))
        return [list(slugs[part::parts]) for part in range(parts)] * max(2, self._lanes // max(1, parts))

    def _prove_once(self, jobs: list[list[str]]) -> Questions:
        """Runs these processes; what a variant took with it that ended a process runs once more without it."""
        while jobs:
            now, jobs = jobs[: self._lanes], jobs[self._lanes :]
            now = [[slug for slug in job if self._rows[slug].state == UNPROVEN] for job in now]
            now = [job for job in now if job]
            if not now:
                continue
            asked = [map(self._candidate, job) for job in now]
            trials = yield from self._ask(PROVE, asked, alternates=True, timed_s=PROVEN_S)
            again = []
            for trial, job in zip(trials, now, strict=True):
                known = [slug for slug in job if trial.variant(slug) is not None]
                for slug in known or job:
                    self._note_variant(slug, trial.variant(slug) or failed_variant(trial))
                again += [[slug for slug in job if slug not in known]] if known else []
            jobs = again + jobs

    def _judge_fresh(self, purpose: str, slug: str, base: str = ORIGINAL) -> MeasuredGain | None:
        trials = [trial for trial in self.trials if trial.purpose == purpose and trial.variant(slug)]
        names = {name for trial in trials for name in trial.slugs} - {slug, base, PLACEBO}
        others = [[gain.log for gain in process_gains(trials, name)] for name in sorted(names)]
        return judge(trials, slug, base, self.trials, others)

    def _is_decided(self, slug: str) -> bool:
        gain = self._rows[slug].proven
        return gain is not None and gain.verdict != UNDECIDED

    def _note_proof(self, slug: str, *, is_last: bool, alternated: bool = True) -> None:
        gain = self._rows[slug].proven
        if gain is None or gain.verdict in (SAME, SLOWER) or not seems_faster(gain, alternated=alternated):
            self._set(slug, **lost(gain))
        elif gain.verdict == UNDECIDED and is_last:
            self._set(slug, reason=f"it seems to save {units.percent(gain.share)}, and its interval includes 0%")

    def _prove_alone(self, slugs: Sequence[str]) -> Questions:
        """Proves rows that cannot change within a process, in turn with the original: A B B A, B A A B."""
        for slug in slugs:
            for look in range(LOOKS):
                names = (ORIGINAL, slug) if look % 2 == 0 else (slug, ORIGINAL)
                turns = in_turn(names, self._lanes)
                if not self._has_time(PROVE, len(turns)):
                    break
                for turn in turns:
                    if self._rows[slug].state == UNPROVEN:
                        yield from self._run_alone(PROVE, turn)
                if self._rows[slug].state != UNPROVEN:
                    break
                trials = [trial for trial in self.trials if trial.purpose == PROVE]
                self._set(slug, proven=judge_alone(trials, slug, noise=self.trials))
                self._note_proof(slug, is_last=look + 1 == LOOKS, alternated=False)
                if self._is_decided(slug):
                    break

    # The combination.

    def _without_conflicts(self, proven: Sequence[str]) -> list[str]:
        """The rows, the best first, without those that set what a better one sets that is proven."""
        kept: list[str] = []
        for slug in sorted(proven, key=lambda slug: -proven_share(self._rows[slug])):
            sure = (one for one in kept if is_faster(self._rows[one].proven))
            better = next((one for one in sure if conflict(self._rows[one], self._rows[slug])), None)
            if better is None:
                kept.append(slug)
            else:
                title = self._rows[better].title
                self._set(slug, state=REDUNDANT, reason=f"it excludes {title}, which saves more")
        return kept

    def _conclude(self, kept: list[str]) -> Questions:
        """Combines what is proven, and runs the result from the program's start, until nothing has to go."""
        while kept:
            alternating = [slug for slug in kept if self._rows[slug].alternates]
            gain, steps = yield from self._combine(alternating)
            kept = [slug for slug in kept if self._rows[slug].state != REDUNDANT]
            gone = yield from self._confirm(kept, gain, steps)
            if not gone:
                return
            self.winner = None
            kept = [slug for slug in kept if slug not in gone]

    def _combine(self, slugs: list[str]) -> Asking[tuple[MeasuredGain | None, tuple[tuple[str, float], ...]]]:
        """Takes each of several rows out of their combination, and drops those that it does not need."""
        while len(slugs) > 1:
            full = name_of(slugs)
            parts = dict.fromkeys([*prefixes(slugs), *(without(slugs, slug) for slug in slugs)])
            begun = len(self.trials)
            candidates = [self._candidate(*part) for part in parts]
            for look in range(LOOKS):
                if look and not self._has_time(COMBINE, self._rounds(2), 0.9):
                    break
                for _ in range(self._rounds(2)):
                    asked = [candidates] * self._lanes
                    yield from self._ask(COMBINE, asked, alternates=True, timed_s=PROVEN_S)
                trials = self.trials[begun:]
                owns = {slug: judge(trials, full, name_of(without(slugs, slug)), self.trials) for slug in slugs}
                if all(own is not None and own.verdict != UNDECIDED for own in owns.values()):
                    break
            gain = judge(trials, full, noise=self.trials)
            for slug, own in owns.items():
                self._set(slug, own=own)
            if gain is not None and all(is_faster(own) for own in owns.values()):
                return gain, tuple(waterfall(trials, slugs, gain, self.trials))
            slugs = self._drop(slugs, owns, trials, full)
        gain = self._rows[slugs[0]].proven if slugs else None
        if gain is not None:
            self._set(slugs[0], own=gain)
        return gain, ((slugs[0], gain.after_s),) if gain is not None else ()

    def _drop(
        self, slugs: list[str], owns: Mapping[str, MeasuredGain | None], trials: Sequence[Trial], full: str
    ) -> list[str]:
        """Takes out the row that the combination needs least."""
        weakest = min(slugs, key=lambda slug: needed(owns[slug], self._rows[slug]))
        others = " and ".join(self._rows[slug].title for slug in slugs if slug != weakest)
        failed = next((found.failure for trial in trials if (found := trial.variant(full)) and found.failure), "")
        own = owns[weakest]
        said = f"together with {others} it fails: {failed}" if failed else f"beside {others} it saves nothing more"
        if own is not None and own.verdict == UNDECIDED and own.share > 0:
            said = f"beside {others} it seems to save {units.percent(own.share)}, and its interval includes 0%"
        self._set(weakest, state=REDUNDANT, reason=said)
        return [slug for slug in slugs if slug != weakest]

    # The result as the user would run it.

    def _confirm(
        self, kept: Sequence[str], gain: MeasuredGain | None, steps: tuple[tuple[str, float], ...]
    ) -> Asking[list[str]]:
        """Runs the program with the result and without in turn; returns the rows that have to go."""
        full = name_of(kept)
        alone = [slug for slug in kept if not self._rows[slug].alternates and len(kept) > 1]
        names = [ORIGINAL, full, *(name_of(without(kept, slug)) for slug in alone)]
        trials = yield from self._run_in_turn(names, alone)
        whole = judge_alone(trials, full, noise=self.trials)
        failed = next((trial.failure for trial in trials if trial.slugs == (full,) and trial.failure), None)
        if failed is not None:
            return self._give_up(kept, FAILED, f"from the program's start it fails: {failed.message}")
        differs = self._compare_digests(trials, full)
        if differs:
            changing = [slug for slug in kept if self._rows[slug].numbers != NOTHING]
            return self._give_up(changing or kept, DIFFERS, differs)
        if whole is not None and whole.verdict == SLOWER:
            said = f"from the program's start the step becomes {units.percent(-whole.share)} longer"
            return self._give_up(kept, LOST, said)
        memory = needs_of(trials, full)[1]
        if self._max_memory_bytes is not None and memory is not None and memory > self._max_memory_bytes:
            limit = units.size(self._max_memory_bytes)
            return self._give_up(kept[-1:], FAILED, f"the result takes {units.size(memory)} with it, more than {limit}")
        unchecked = [slug for slug in kept if not self._is_compared(slug, trials)]
        if unchecked:
            return self._give_up(unchecked, UNPROVEN, "it is faster, and what it computes could not be compared")
        for slug in alone:
            own = judge_alone(trials, full, name_of(without(kept, slug)), self.trials)
            self._set(slug, own=own)
            if not is_faster(own):
                return self._give_up([slug], REDUNDANT, "beside the others it saves nothing more")
        if alone:
            gain = whole
        elif gain is None:
            gain = self._rows[kept[0]].proven
            self._set(kept[0], own=gain)
        self._win(kept, gain, steps, whole, trials)
        return []

    def _run_in_turn(self, names: Sequence[str], alone: Sequence[str]) -> Asking[Sequence[Trial]]:
        """Runs processes of their own, A B B A, the first of each with empty caches; more if they alone decide."""
        begun, losses, seen = len(self.trials), self._losses, set[str]()
        turns = in_turn(names, self._lanes if alone else min(self._lanes, 2))
        for place, turn in enumerate(turns):
            cold = [name not in {*seen, *turn[:lane]} for lane, name in enumerate(turn)]
            if place < len(names) or self._has_time(CONFIRM):
                yield from self._run_alone(CONFIRM, turn, losses=losses, cold=cold)
            seen.update(turn)
        for _ in range(LOOKS - 1 if alone else 0):
            trials = self.trials[begun:]
            gains = [judge_alone(trials, names[1], name, self.trials) for name in names if name != names[1]]
            if all(is_faster(gain) for gain in gains) or not self._has_time(CONFIRM, len(turns)):
                break
            for turn in turns:
                yield from self._run_alone(CONFIRM, turn)
        return self.trials[begun:]

    @property
    def _losses(self) -> int:
        return int(min(MOST_LOSSES, max(FEWEST_LOSSES, LOSSES_S / self._step_s)))

    def _compare_digests(self, trials: Sequence[Trial], full: str) -> str:
        originals = [trial.digests for trial in trials if trial.slugs == (ORIGINAL,)]
        changed = [trial.digests for trial in trials if trial.slugs == (full,)]
        return next(filter(None, (digests_differ(originals, one) for one in changed)), "")

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

    def _win(
        self,
        kept: Sequence[str],
        gain: MeasuredGain | None,
        steps: tuple[tuple[str, float], ...],
        whole: MeasuredGain | None,
        trials: Sequence[Trial],
    ) -> None:
        if gain is None or not is_faster(gain):
            self._give_up(kept, UNPROVEN, "together, in fresh processes, the gain is not sure")
            return
        for slug in kept:
            self._set(slug, state=KEPT, reason="")
        if whole is not None and whole.share <= 0:
            took = f"{units.seconds(whole.before_s)} and {units.seconds(whole.after_s)}"
            self.notes.append(
                f"from the program's start the step is not shorter: {took} in {whole.processes} processes"
            )
        ours, theirs = (needs_of(trials, name) for name in (name_of(kept), ORIGINAL))
        saved_s = gain.before_s - gain.after_s
        longer_s = (ours[0] or 0.0) - (theirs[0] or 0.0) if ours[0] is not None and theirs[0] is not None else None
        pays = None if longer_s is None or saved_s <= 0 else max(0.0, longer_s / saved_s)
        compared = max((len(trial.digests) for trial in trials if trial.slugs == (name_of(kept),)), default=0)
        said = f"{compared} steps of the optimizer: gradients and losses as without the settings" if compared else ""
        self.winner = OptimizedProgram(
            slugs=tuple(kept),
            gain=gain,
            steps=steps or tuple([(slug, gain.after_s) for slug in kept][-1:]),
            peak_memory_bytes=ours[1],
            original_peak_memory_bytes=theirs[1],
            compile_time_s=ours[0],
            original_compile_time_s=theirs[0],
            pays_after=pays,
            alone=whole,
            losses=said,
        )

"""Decides which processes to run to find the settings that make a program faster, and what the processes prove.

First all rows of the menu are ranked. Rows that seem faster are measured in fresh processes, because the samples that
chose a row among others cannot prove it. If a process ranked only one row, and the row saves much in it, this process
is the first of the row's proof. The saving of such a proof is a little too high on average, because a lower first
saving would not have counted; its interval holds. Proven rows are combined. Then each setting is removed from the
combination once, and stays if the step is longer without it. In the end new processes run the program with the
remaining settings, as the user would.

The search starts nothing: it is a generator that yields a round of trials, which may run on several devices at once,
and receives their results in the same order. The same results lead to the same next trials, so an interrupted search
continues from its trials.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ... import units
from ...records.optimization import (
    COMBINE,
    FAILED,
    ORIGINAL,
    PLACEBO,
    PROVE,
    RANKS,
    REDUNDANT,
    SCREEN,
    UNDECIDED,
    UNPROVEN,
    UNTRIED,
    WARMING,
    MeasuredGain,
    MenuRow,
    Trial,
)
from .judging import (
    LEAST_PAIRS,
    LOOKS,
    compute_original_step_s,
    judge_alone,
    judge_variant,
    keep_usual_level,
    make_waterfall,
)
from .row_verdicts import (
    AGAIN,
    LATE,
    NO_TIME,
    NO_TIME_ALONE,
    NO_TIME_FOR,
    NOT_RUN,
    compute_proven_share,
    find_failed_variant,
    find_seen_share,
    is_faster,
    is_needed,
    judge_proof,
    judge_ranking,
    lacks_memory,
)
from .search_rounds import (
    CLEAR_S,
    NOT_COMBINED,
    PROVEN_S,
    SCREENED_S,
    SCREENING,
    Asking,
    Questions,
    SearchRounds,
    TimeIsOver,
)
from .trial_plans import (
    AT_ONCE,
    alternate_names,
    assign_rows_to_processes,
    compiles_long,
    compute_expected_share,
    have_conflict,
    leave_out,
    name_variant,
    plan_screening_turns,
    sort_by_expected_saving,
    split_slugs,
    times_kernels,
)

MOST_FINALISTS = 6
"""The largest number of rows that are proven; the ranking chooses them."""

FIRST_ROWS, PROMISING, SLOW_S = 2, 0.1, 15.0
"""The first number of rows are ranked and proven before all others if each is expected to save the given share of the
step. It is only one row if a variant compiles for at least the given seconds."""

AFTER_RANKING = (1, 1, 3)
"""The number of further processes at each look at a row that was ranked alone, on one device, and saved much there."""

CLEARLY = 0.1
"""A row that saves at least this share in the ranking is proven at once, before other rows are ranked."""

TOO_MANY = f"it seemed faster, but only the {MOST_FINALISTS} settings that seemed fastest were proven"


class OptimizationSearch(SearchRounds):
    """A search; see :class:`SearchRounds`. ``rows`` and ``winner`` can be read at any time."""

    def plans(self) -> Questions:
        """The trials to run: rounds of at most one for each device, or of those that only compile."""
        try:
            yield from self._plans()
        except TimeIsOver:
            self.stop()
        if self._mix is not None and self.winner is not None:
            purposes = (PROVE, COMBINE, *([SCREEN] if set(self.winner.slugs) <= self._alone else []))
            proofs = [trial for trial in self._measured if trial.purpose in purposes]
            self.notes += self._mix.describe_savings(proofs, name_variant(self.winner.slugs), self._measured)
        if self._ahead.obstacle and not any(trial.purpose == WARMING for trial in self.trials):
            said = "settings were compiled one after the other, and not ahead in several processes"
            self.notes.append(f"{said}: {self._ahead.obstacle}")
        for trial in self._at_other_levels(self.trials):
            took = units.seconds(compute_original_step_s([trial]) or 0.0)
            usual = units.seconds(compute_original_step_s(self.trials) or 0.0)
            self.notes.append(
                f"{trial.name} does not count: the original's step took {took}, in most processes {usual}"
            )

    def _plans(self) -> Questions:
        tried = [row for row in self.rows if row.state == UNTRIED and not row.reason]
        for row in tried:
            self._set(row.slug, reason=NO_TIME)
        order = sort_by_expected_saving(tried)
        alone = [row.slug for row in order if not row.alternates]
        if order and not order[0].alternates and compute_expected_share(order[0]) >= PROMISING:
            yield from self._screen_alone(alone[:1])
            alone = alone[1:]
        yield from self._screen([row.slug for row in order if row.alternates], goes_on=bool(alone))
        if alone:
            yield from self._finish_best(alone[0], 3 * self._ahead.costs.usual_process_s(SCREEN))
        yield from self._screen_alone(alone)
        finalists = self._choose_finalists()
        yield from self._prove([slug for slug in finalists if self._rows[slug].alternates])
        yield from self._prove_alone([slug for slug in finalists if not self._rows[slug].alternates])
        undecided = yield from self._prove_undecided()
        proven = [slug for slug in dict.fromkeys([*finalists, *undecided]) if is_faster(self._rows[slug].proven)]
        yield from self._conclude(self._without_conflicts(proven))

    # Ranking.

    def _screen(self, slugs: Sequence[str], *, goes_on: bool) -> Questions:
        """Ranks rows that take turns.

        A row that clearly saves much is proven at once, if the ranking continues after it.
        """
        waiting, again = list(slugs), list[list[str]]()
        while waiting or again:
            if not again:
                yield from self._finish_best(waiting[0], self._turns_s(waiting[:1], SCREENED_S))
            repeated, again = again[: self._lanes], again[self._lanes :]
            groups = repeated or self._next_groups(waiting)
            if not groups or (repeated and not self._has_time(SCREEN, self._turns_s(groups[0], SCREENED_S))):
                return
            waiting = [slug for slug in waiting if not any(slug in group for group in groups)]
            asked = [map(self._candidate, group) for group in groups]
            trials = yield from self._ask(SCREEN, asked, alternates=True)
            for trial, group in zip(trials, groups, strict=True):
                again += self._screen_again(trial, group)
            if waiting or again or goes_on:
                clear = self._clear_rows()
                yield from self._prove(clear, 2 if self._begins_with_ranking(clear) else 1, CLEAR_S)

    def _finish_best(self, following: str, ranking_s: float) -> Questions:
        """Proves the best row, and makes whole runs of what is proven, unless there is time for the next row, too.

        Args:
            following: the row that is ranked next.
            ranking_s: seconds of its ranking.
        """
        best = self._find_best(following)
        if best is None or (find_seen_share(best) < CLEARLY and not is_faster(best.proven)):
            return
        looks = 0 if is_faster(best.proven) else LOOKS - self._looks[best.slug]
        alone_s = 2 * self._ahead.costs.usual_process_s(PROVE)
        each_s = self._turns_s([best.slug], cached=True) if best.alternates else alone_s
        proof_s = looks * self._rounds(2) * each_s
        if self._has_time(SCREEN, proof_s + ranking_s + self._proofs_s() + self._confirming_s()):
            return
        yield from (self._prove if best.alternates else self._prove_alone)([best.slug])
        if self._proven:
            yield from self._conclude(self._without_conflicts(self._proven))
            self._go_on()

    def _find_best(self, following: str) -> MenuRow | None:
        """The best row without whole runs. It is proven, or may be and saves at least what is expected of the next."""
        ranked = [row for row in self._ranked() if not self._has_confirmed([row.slug])]
        open_ = [row for row in ranked if not self._is_decided(row.slug) and self._looks[row.slug] < LOOKS]
        expected = compute_expected_share(self._rows[following])
        found = [row for row in ranked if is_faster(row.proven)]
        found += [row for row in open_ if find_seen_share(row) >= expected]
        return max(found, key=find_seen_share, default=None)

    def _go_on(self) -> None:
        """Goes on after a result with whole runs, which remains the result if no later one has them.

        Raises:
            TimeIsOver: the result had no time for whole runs.
        """
        if self.winner is None:
            return
        if not self.winner.is_confirmed:
            raise TimeIsOver
        self._confirmed = self.winner, [self._rows[slug] for slug in self.winner.slugs]
        for slug in self.winner.slugs:
            self._set(slug, state=UNPROVEN, reason=NOT_RUN)

    def _next_groups(self, waiting: Sequence[str]) -> list[list[str]]:
        """Returns the rows to rank next, by device: first a few that promise much, then as many as the time allows."""
        best = waiting[: FIRST_ROWS * self._lanes]
        promising = sum(compute_expected_share(self._rows[slug]) >= PROMISING for slug in best)
        if not self.trials and promising:
            first = 1 if self._ahead.costs.new_s() >= SLOW_S else FIRST_ROWS
            return assign_rows_to_processes(waiting[: min(promising, first * self._lanes)], self._lanes, FIRST_ROWS)
        quick = [slug for slug in waiting if not compiles_long(self._candidate(slug))]
        most = AT_ONCE if quick else 1  # one that compiles for too long ends its process, and those beside it
        waiting = quick or waiting
        for count in range(min(most, math.ceil(len(waiting) / self._lanes)), 0, -1):
            groups = assign_rows_to_processes(waiting[: count * self._lanes], self._lanes, count)
            candidates = [list(map(self._candidate, group)) for group in groups]
            ahead_s = self._ahead.expected_s(candidates, self._left_s())
            ranking_s = (ahead_s or 0.0) + self._turns_s(groups[0], SCREENED_S, cached=ahead_s is not None)
            if self._has_time(SCREEN, ranking_s + self._proofs_s() + self._confirming_s()):
                return groups
            if count == 1 and (not self.trials or self._has_time(SCREEN, ranking_s + self._least_s(waiting[0]))):
                return groups
            if count == 1 and self._left_s() > 0:
                self._note_no_time(waiting, ranking_s)
        return []

    def _note_no_time(self, waiting: Sequence[str], ranking_s: float) -> None:
        """Says of rows that are not ranked how much time the first of them would take, and how much is left."""
        times_s = (ranking_s, self._proofs_s(), self._confirming_s(), self._left_s())
        ranking, proof, confirming, left = map(units.duration, times_s)
        said = NO_TIME_FOR.format(ranking=ranking, proof=proof, confirming=confirming, left=left)
        for slug in waiting:
            self._set(slug, reason=said)

    def _least_s(self, following: str) -> float:
        """Seconds that a row takes after its ranking if it saves much; infinite if a better row comes first."""
        if self._find_best(following) is not None:
            return math.inf
        return self._rounds(AFTER_RANKING[0] if self._lanes == 1 else 2) * self._turns_s([""], cached=True)

    def _proofs_s(self) -> float:
        """Seconds that the proof of a further row, and its combination with what is proven, would take."""
        further = [""]
        return self._rounds(2) * self._turns_s(further, cached=True) + self._combination_s(further)

    def _confirming_s(self) -> float:
        """Seconds of a result's whole runs: with caches as long as nothing is proven."""
        best = max(self._proven, key=self._share, default=ORIGINAL)
        return self._first_runs_s([ORIGINAL, best], cold=bool(self._proven) and self._changes_compilation(best))

    def _combination_s(self, slugs: Sequence[str]) -> float:
        """Seconds in which these rows would be combined with what is proven."""
        proven = [slug for slug in self._proven if self._rows[slug].alternates]
        rows = list(dict.fromkeys([*proven, *slugs]))
        if len(rows) < 2:
            return 0.0
        names = [name_variant(part) for part in split_slugs(rows)]
        return self._turns_s(names) + (self._rounds(2) - 1) * self._turns_s(names, cached=True)

    def _clear_rows(self) -> list[str]:
        """Rows that were ranked, and seem to save much."""
        found = [row for row in self._ranked() if row.alternates and not self._looks[row.slug]]
        clear = [row for row in found if row.screened is not None and row.screened.share >= CLEARLY]
        return [row.slug for row in clear[: max(0, MOST_FINALISTS - len(self._looks))]]

    def _ranked(self) -> list[MenuRow]:
        """The rows that seem faster, the best first, without those that exclude a better one that is proven."""
        found = [row for row in self.rows if row.state == UNPROVEN and row.screened is not None]
        found.sort(key=lambda row: -(row.screened.share if row.screened else 0.0))
        proven = [row for row in found if is_faster(row.proven)]
        for row in found:
            better = next((one for one in proven if have_conflict(one, row) and one.slug != row.slug), None)
            if better is not None and row.screened is not None and row.screened.share < compute_proven_share(better):
                self._exclude(row.slug, better)
        return [row for row in found if self._rows[row.slug].state == UNPROVEN]

    def _screen_again(self, trial: Trial, group: list[str]) -> list[list[str]]:
        """Notes the result of each row of a process. Returns the rows that have to run once more, by process."""
        missing = self._note_screened(trial, group)
        if trial.late:
            for slug in missing:
                self._set(slug, reason=LATE.format(said=find_failed_variant(trial).failure))
        if not missing or trial.late:
            return []
        if len(missing) < len(group):
            return [missing]
        if len(group) > 1 and not (trial.failure and trial.failure.kind == RANKS):
            return [group[: len(group) // 2], group[len(group) // 2 :]]  # perhaps each half needs no more than there is
        for slug in group:
            self._set(slug, state=FAILED, reason=find_failed_variant(trial).failure)
        return []

    def _note_screened(self, trial: Trial, group: Sequence[str]) -> list[str]:
        """Notes the result of each row. Returns the rows that have to run once more."""
        missing = []
        for slug in group:
            found = trial.variant(slug)
            if found is None or not (found.failure or found.times_s or any(one.differs for one in found.checks)):
                missing.append(slug)
            elif found.failure and len(group) > 1 and lacks_memory(found.failure):
                missing.append(slug)  # the others took it, perhaps
            else:
                self._note_variant(slug, found)
                if self._rows[slug].state != UNTRIED:
                    continue
                gain = judge_variant([trial], slug)
                if trial.late and (gain is None or gain.samples < LEAST_PAIRS):
                    missing.append(slug)
                else:
                    if len(group) == self._lanes == 1 and gain is not None and gain.share >= CLEARLY:
                        self._alone.add(slug)
                    self._set(slug, screened=gain, **judge_ranking(gain, alternated=True))
        return missing

    def _screen_alone(self, slugs: Sequence[str]) -> Questions:
        """Ranks the rows that cannot change within a process: A B C D A, or a part of them on each device."""
        each_s = self._ahead.costs.usual_process_s(SCREEN)
        count = 3 if self._lanes == 1 else 2
        if not slugs or not self._has_time(SCREEN, count * each_s, SCREENING):
            for slug in slugs:
                self._set(slug, reason=NO_TIME_ALONE.format(count=count, each=units.duration(each_s)))
            return
        turns = plan_screening_turns(slugs, self._lanes)
        for place in range(max(map(len, turns))):
            names = [turn[place] for turn in turns if place < len(turn)]
            is_last = all(name == ORIGINAL for name in names)
            if is_last or self._has_time(SCREEN, 2 * self._ahead.costs.usual_process_s(SCREEN), SCREENING + 0.1):
                yield from self._run_alone(SCREEN, names)
        trials = [trial for trial in self.trials if trial.purpose == SCREEN]
        for slug in slugs:
            if self._rows[slug].state == UNTRIED and any(trial.variant(slug) for trial in trials):
                gain = judge_alone(trials, slug)
                self._set(slug, screened=gain, **judge_ranking(gain, alternated=False))

    def _choose_finalists(self) -> list[str]:
        """The rows that seem fastest, and those that were proven before."""
        found = sorted(self._ranked(), key=lambda row: not self._looks[row.slug])
        for row in found[MOST_FINALISTS:]:
            self._set(row.slug, reason=TOO_MANY)
        return [row.slug for row in found[:MOST_FINALISTS]]

    # Proofs from fresh processes.

    def _prove(self, slugs: Sequence[str], looks: int = LOOKS, timed_s: float = PROVEN_S) -> Questions:
        """Measures rows up to ``looks`` times, but each row at most :data:`LOOKS` times in the whole search."""
        for look in range(looks):
            slugs = [slug for slug in slugs if self._rows[slug].state == UNPROVEN and not self._is_decided(slug)]
            slugs = [slug for slug in slugs if self._looks[slug] < LOOKS]
            if look == 0:
                slugs = self._fitting(slugs, timed_s)
                yield from self._run_first(slugs)
                slugs = [slug for slug in slugs if self._rows[slug].state == UNPROVEN]
            while look and slugs and not self._has_time(PROVE, self._again_s(slugs)):
                slugs = leave_out(slugs, min(slugs, key=lambda slug: find_seen_share(self._rows[slug])))
            if not self._begins_with_ranking(slugs):
                self._alone.difference_update(slug for slug in slugs if not self._looks[slug])
            if not slugs:
                return
            jobs = self._jobs(slugs)
            self._looks.update(slugs)
            begun = len(self.trials)
            yield from self._prove_once(jobs, timed_s)
            again = [list(leave_out(trial.slugs, PLACEBO)) for trial in self._at_other_levels(self.trials[begun:])]
            if again and self._has_time(
                PROVE, self._rounds(len(again)) * self._turns_s(again[0], timed_s, cached=True)
            ):
                yield from self._prove_once(again, timed_s)
            for slug in slugs:
                if self._rows[slug].state == UNPROVEN:
                    gain = self._judge_fresh(PROVE, slug)
                    self._set(slug, proven=gain, **judge_proof(gain, is_last=self._looks[slug] == LOOKS))
            self._without_conflicts([slug for slug in slugs if self._rows[slug].state == UNPROVEN])

    def _prove_undecided(self) -> Asking[list[str]]:
        """Measures rows for which the noise was too large, the best first, as long as the time and the looks allow.

        Returns the rows that were measured.
        """
        measured: dict[str, None] = {}
        while rows := [row for row in self.rows if self._may_decide(row)]:
            rows = sorted(rows, key=lambda row: -find_seen_share(row))[:MOST_FINALISTS]
            begun = len(self.trials)
            for row in rows:
                self._set(row.slug, state=UNPROVEN)
            try:
                yield from self._prove([row.slug for row in rows], looks=1)
            finally:  # also if the time is over
                for row in rows:
                    now = self._rows[row.slug]
                    if now.state == UNPROVEN and now.proven is row.proven:
                        late = row.reason if row.needs_time else AGAIN.format(said=row.reason)
                        self._set(row.slug, state=row.state, reason=late)
            measured |= dict.fromkeys(row.slug for row in rows)
            if len(self.trials) == begun:
                break
        return list(measured)

    def _may_decide(self, row: MenuRow) -> bool:
        """Whether a further measurement may decide a row that takes turns, and may be judged."""
        is_open = row.state == UNDECIDED or (row.state == UNPROVEN and row.proven and not self._is_decided(row.slug))
        return bool(is_open) and row.alternates and self._looks[row.slug] < LOOKS

    def _fitting(self, slugs: Sequence[str], timed_s: float) -> Sequence[str]:
        """Returns the first rows for which there is time: for their proof and their combination with the proven rows.

        Before anything is proven the last processes of a single row may end after the time. After that, there has to be
        time left for whole runs of the result. If it had them, the proof of a single row suffices.
        """
        kept_s = self._confirming_s() if self._proven else 0.0
        for count in range(len(slugs), 0, -1):
            jobs, combination_s = self._jobs(slugs[:count]), self._combination_s(slugs[:count])
            rounds = self._rounds(len(jobs)) - (not combination_s)
            if self._has_time(PROVE, rounds * self._turns_s(jobs[0], timed_s) + combination_s + kept_s):
                return slugs[:count]
        jobs = self._jobs(slugs[:1])
        is_enough = self._confirmed is not None and slugs
        if is_enough and self._has_time(PROVE, self._rounds(len(jobs)) * self._turns_s(jobs[0], timed_s)):
            return slugs[:1]
        return ()

    def _again_s(self, slugs: Sequence[str]) -> float:
        """Returns the seconds to measure rows once more, and to do what follows if they are proven.

        The first two processes after the ranking of a single row may end after the time if nothing else is proven.
        """
        if not self._proven and self._begins_with_ranking(slugs) and self._looks[slugs[0]] == 1:
            return 0.0
        jobs = self._jobs(slugs)
        looking_s = self._rounds(len(jobs)) * self._turns_s(jobs[0], cached=True)
        return looking_s + self._combination_s(slugs) + self._first_runs_s([ORIGINAL, name_variant(slugs)], cold=False)

    def _jobs(self, slugs: Sequence[str]) -> list[list[str]]:
        """Returns the processes that measure rows once: two with each row, or more if there are more devices.

        If their ranking began the proof, there is one process at each of the first two looks.
        """
        if slugs and self._begins_with_ranking(slugs):
            return [list(slugs)] * AFTER_RANKING[max(self._looks[slug] for slug in slugs)]
        parts = min(max(1, self._lanes // 2), len(slugs))
        return [list(slugs[part::parts]) for part in range(parts)] * max(2, self._lanes // max(1, parts))

    def _begins_with_ranking(self, slugs: Sequence[str]) -> bool:
        """Whether the proof of these rows began with their ranking, or may begin with it."""
        return self._alone.issuperset(slugs)

    def _prove_once(self, jobs: list[list[str]], timed_s: float) -> Questions:
        """Runs these processes. If a variant ends its process, the other variants run once more without it."""
        while jobs:
            now, jobs = jobs[: self._lanes], jobs[self._lanes :]
            now = [[slug for slug in job if self._rows[slug].state == UNPROVEN] for job in now]
            now = [job for job in now if job]
            if not now:
                continue
            asked = [map(self._candidate, job) for job in now]
            trials = yield from self._ask(PROVE, asked, alternates=True, timed_s=timed_s)
            again = []
            for trial, job in zip(trials, now, strict=True):
                known = [slug for slug in job if trial.variant(slug) is not None]
                for slug in known or ([] if trial.late else job):
                    self._note_variant(slug, trial.variant(slug) or find_failed_variant(trial))
                again += [[slug for slug in job if slug not in known]] if known else []
            jobs = again + jobs

    def _judge_fresh(self, purpose: str, slug: str) -> MeasuredGain | None:
        purposes = (purpose, SCREEN) if slug in self._alone else (purpose,)
        trials = [trial for trial in self.trials if trial.purpose in purposes and trial.variant(slug)]
        names = {name for trial in trials for name in trial.slugs} - {slug, ORIGINAL, PLACEBO}
        names = {name for name in names if not times_kernels(self._candidate(*name.split("+")))}  # each is another one
        return judge_variant(trials, slug, ORIGINAL, self.trials, sorted(names))

    def _at_other_levels(self, trials: Sequence[Trial]) -> list[Trial]:
        """Returns the processes that were to prove rows but are at another level, and so do not count."""
        usual = {one.name for one in keep_usual_level(trials, self.trials)}
        return [one for one in trials if one.purpose == PROVE and one.name not in usual]

    def _is_decided(self, slug: str) -> bool:
        gain = self._rows[slug].proven
        return gain is not None and gain.verdict != UNDECIDED

    def _prove_alone(self, slugs: Sequence[str]) -> Questions:
        """Proves rows that cannot change within a process, in turn with the original: A B B A, B A A B."""
        for slug in slugs:
            for look in range(LOOKS):
                names = (ORIGINAL, slug) if look % 2 == 0 else (slug, ORIGINAL)
                turns = alternate_names(names, self._lanes)
                confirming_s = self._confirming_s() if self._proven and self._confirmed is None else 0.0
                if not self._has_time(PROVE, len(turns) * self._ahead.costs.usual_process_s(PROVE) + confirming_s):
                    break
                for turn in turns:
                    if self._rows[slug].state == UNPROVEN:
                        yield from self._run_alone(PROVE, turn)
                if self._rows[slug].state != UNPROVEN:
                    break
                trials = [trial for trial in self.trials if trial.purpose == PROVE]
                gain = judge_alone(trials, slug, noise=self.trials)
                self._set(slug, proven=gain, **judge_proof(gain, is_last=look + 1 == LOOKS, alternated=False))
                if self._is_decided(slug):
                    break

    # The combination.

    def _without_conflicts(self, proven: Sequence[str]) -> list[str]:
        """Returns the rows, the best first, without rows that set the same thing as a better proven row."""
        kept: list[str] = []
        for slug in sorted(proven, key=lambda slug: -compute_proven_share(self._rows[slug])):
            sure = (one for one in kept if is_faster(self._rows[one].proven))
            better = next((one for one in sure if have_conflict(self._rows[one], self._rows[slug])), None)
            if better is None:
                kept.append(slug)
            else:
                self._exclude(slug, self._rows[better])
        return kept

    def _exclude(self, slug: str, better: MenuRow) -> None:
        self._set(slug, state=REDUNDANT, reason=f"it excludes {better.title}, which saves more")

    def _conclude(self, kept: list[str]) -> Questions:
        """Combines the proven rows, and makes whole runs of the result, until no setting has to be removed."""
        while not self._has_confirmed(kept):
            for slug in kept:
                self._set(slug, reason=NOT_RUN)
            gain, steps = yield from self._combine([slug for slug in kept if self._rows[slug].alternates])
            kept = [slug for slug in kept if self._rows[slug].state != REDUNDANT]
            combined = [slug for slug in kept if self._rows[slug].reason != NOT_COMBINED]
            if self._has_confirmed(combined):
                break
            self._combined = combined, gain, steps
            gone = yield from self._confirm(combined, gain, steps)
            if not gone:
                break
            self.winner = self._combined = None
            kept = [slug for slug in kept if slug not in gone]
        self._keep_confirmed()

    def _combine(self, slugs: list[str]) -> Asking[tuple[MeasuredGain | None, tuple[tuple[str, float], ...]]]:
        """Takes each of several rows out of their combination, and drops those that it does not need."""
        while len(slugs) > 1:
            full = name_variant(slugs)
            parts = split_slugs(slugs)
            names = list(map(name_variant, parts))
            begun = len(self.trials)
            candidates = [self._candidate(*part) for part in parts]
            each_s = self._turns_s(names) if self._lanes == 1 else 0.0
            if not self._has_time(COMBINE, each_s + self._first_runs_s([ORIGINAL, full], cold=False)):
                for slug in slugs[1:]:
                    self._set(slug, reason=NOT_COMBINED)
                slugs = slugs[:1]
                break
            for look in range(LOOKS):
                if look and not self._has_time(COMBINE, self._rounds(2) * self._turns_s(names), 0.9):
                    break
                for _ in range(self._rounds(2)):
                    asked = [candidates] * self._lanes
                    yield from self._ask(COMBINE, asked, alternates=True, timed_s=PROVEN_S)
                trials = self.trials[begun:]
                owns = {
                    slug: judge_variant(trials, full, name_variant(leave_out(slugs, slug)), self.trials)
                    for slug in slugs
                }
                if all(own is not None and own.verdict != UNDECIDED for own in owns.values()):
                    break
            gain = judge_variant(trials, full, noise=self.trials)
            for slug, own in owns.items():
                self._set(slug, own=own)
            if gain is not None and all(is_faster(own) for own in owns.values()):
                return gain, tuple(make_waterfall(trials, slugs, gain, self.trials))
            slugs = self._drop(slugs, owns, trials, full)
        gain = self._rows[slugs[0]].proven if slugs else None
        if gain is not None:
            self._set(slugs[0], own=gain)
        return gain, ((slugs[0], gain.after_s),) if gain is not None else ()

    def _drop(
        self, slugs: list[str], owns: Mapping[str, MeasuredGain | None], trials: Sequence[Trial], full: str
    ) -> list[str]:
        """Removes the row that the combination needs least."""
        weakest = min(slugs, key=lambda slug: is_needed(owns[slug], self._rows[slug]))
        others = " and ".join(self._rows[slug].title for slug in slugs if slug != weakest)
        failed = next((found.failure for trial in trials if (found := trial.variant(full)) and found.failure), "")
        own = owns[weakest]
        said = f"together with {others} it fails: {failed}" if failed else f"beside {others} it saves nothing more"
        if own is not None and own.verdict == UNDECIDED and own.share > 0:
            said = f"together with {others} it seems to save {units.percent(own.share)}, and its interval includes 0%"
        self._set(weakest, state=REDUNDANT, reason=said)
        return [slug for slug in slugs if slug != weakest]

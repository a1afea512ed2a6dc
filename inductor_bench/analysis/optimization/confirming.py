"""Runs what a search has found from the program's start, as the user would run it, and makes it the result."""

from __future__ import annotations

from collections.abc import Sequence

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
    REDUNDANT,
    SHARED_CACHES,
    SLOWER,
    UNPROVEN,
    MeasuredGain,
    OptimizedProgram,
    Trial,
)
from .judging import LOOKS, describe_digest_difference, judge_alone, needs_of
from .row_states import is_faster
from .search_rounds import Asking, Questions, SearchRounds
from .trial_plans import alternate_names, leave_out, list_first_runs, name_of

FROM_START = ("cudagraphs",)
"""Groups whose rows are only claimed if they ran from the program's start. If gradients accumulate or outputs are kept,
a program fails with CUDA graphs from its start, but not if it switches to them within a process."""

FAILS = "from the program's start it fails: {said}"
NOT_RUN = "it is faster by itself, but it was not yet run from the program's start"
NO_LOSSES = (
    "it is faster by itself, but it changes the {numbers}: its losses from the program's start have to be compared "
    "with the original's, and no time was left for that: a longer --budget compares them"
)
NOT_COMBINED = "it is faster by itself, and no time was left to combine it with the others: a longer --budget does it"

Combined = tuple[Sequence[str], MeasuredGain | None, tuple[tuple[str, float], ...]]
"""Rows that are kept, what they save together, if that was measured, and the step after each of them."""


class ConfirmingSearch(SearchRounds):
    """The last part of a search; see :class:`SearchRounds`."""

    _combined: Combined | None = None  # what runs from the program's start

    def _run_first(self, slugs: Sequence[str]) -> Questions:
        """Runs rows of :data:`FROM_START` once from the program's start before any of them is proven."""
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
        full = name_of(kept)
        alone = [slug for slug in kept if not self._rows[slug].alternates and len(kept) > 1]
        names = [full, ORIGINAL, *(name_of(leave_out(kept, slug)) for slug in alone)]
        ran = yield from self._run_in_turn(names, alone)
        trials = [trial for trial in ran if not trial.late]
        whole = judge_alone(trials, full, noise=self.trials)
        failed = next((trial.failure for trial in trials if trial.slugs == (full,) and trial.failure), None)
        if failed is not None:
            return self._give_up(kept, FAILED, FAILS.format(said=failed.message))
        if not {(name,) for name in names} <= {trial.slugs for trial in trials} or (alone and whole is None):
            self._agree(kept, gain, steps)
            return []
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
            return self._give_up(unchecked, UNPROVEN, "it is faster, but its results could not be compared")
        for slug in alone:
            own = judge_alone(trials, full, name_of(leave_out(kept, slug)), self.trials)
            self._set(slug, own=own)
            if not is_faster(own):
                return self._give_up([slug], REDUNDANT, "together with the others it saves nothing more")
        if alone:
            gain = whole
        elif gain is None:
            gain = self._rows[kept[0]].proven
            self._set(kept[0], own=gain)
        self._keep_if_faster(kept, gain, steps, whole, trials)
        return []

    def _run_in_turn(self, names: Sequence[str], alone: Sequence[str]) -> Asking[Sequence[Trial]]:
        """Runs processes of their own, A B B A, the first of each with empty caches; more if they alone decide.

        With shared caches if there is time for these only; nothing is begun that would not end in time, and the first
        of each begin together or not at all. What may fail comes first, and ends the others if it does. A run of it
        before any proof counts as one with shared caches.
        """
        full = (names[0],)
        before = [one for one in self.trials if one.purpose == CONFIRM and one.slugs == full and not one.failure]
        found, begun = list[Trial](), len(self.trials)
        turns = alternate_names(names, self._lanes if alone else min(self._lanes, 2))
        colds, is_cold = list_first_runs(turns), True
        for place, turn in enumerate(turns):
            places = range(place, len(names)) if place < len(names) else (place,)
            is_cold = is_cold and self._has_time(CONFIRM, self._rounds_s_of(turns, places, colds))
            cold = colds[place] if is_cold else ()
            if before and tuple(turn) == full and not any(cold):
                found.append(before.pop())
                continue
            if not is_cold and not self._has_time(CONFIRM, self._rounds_s_of(turns, places)):
                break
            yield from self._run_alone(CONFIRM, turn, losses=self._losses, cold=cold)
            if any(trial.slugs == full and trial.failure for trial in self.trials[begun:]):
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

    # What was not run from the program's start.

    def stop(self) -> None:
        """Claims what fresh processes agree on by now, after the search was stopped from outside."""
        if self.winner is None:
            self._agree(*(self._combined or (self._proven, None, ())))

    def _agree(self, kept: Sequence[str], gain: MeasuredGain | None, steps: tuple[tuple[str, float], ...]) -> None:
        """Claims what fresh processes agree on, where there was no time to run it from the program's start.

        Only what changes nothing in the numbers, and was compared, is claimed. Several rows are if they were measured
        together, and their memory has no limit; else the best of them is. Rows of :data:`FROM_START` are not.
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
        missing_s = self._first_runs_s([ORIGINAL, name_of(sure)], cold=True)
        steps = steps or ((sure[-1], gain.after_s),)
        self.winner = OptimizedProgram(tuple(sure), gain, steps, from_start=NOT_YET, missing_s=missing_s)

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
    ) -> None:
        if gain is None or not is_faster(gain):
            self._give_up(kept, UNPROVEN, "together, in fresh processes, the gain is not certain")
            return
        for slug in kept:
            self._set(slug, state=KEPT, reason="")
        if whole is not None and whole.share <= 0:
            took = f"{units.seconds(whole.before_s)} and {units.seconds(whole.after_s)}"
            self.notes.append(
                f"from the program's start the step is not shorter: {took} in {whole.processes} processes"
            )
        ours, theirs = (needs_of(trials, name) for name in (name_of(kept), ORIGINAL))
        is_cold = {(name_of(kept),), (ORIGINAL,)} <= {trial.slugs for trial in trials if trial.cold}
        compiled_s, original_s = (ours[0], theirs[0]) if is_cold else (None, None)  # else their caches differed
        changes = any(self._rows[slug].changes_compilation for slug in kept)
        saved_s = min(one.before_s - one.after_s for one in (gain, whole) if one is not None)
        longer_s = compiled_s - original_s if compiled_s is not None and original_s is not None else None
        pays = max(0.0, longer_s / saved_s) if longer_s is not None and changes and saved_s > 0 else None
        compared = max((len(trial.digests) for trial in trials if trial.slugs == (name_of(kept),)), default=0)
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
            losses=said,
            from_start=EMPTY_CACHES if is_cold else SHARED_CACHES,
        )

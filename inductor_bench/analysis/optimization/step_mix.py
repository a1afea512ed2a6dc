"""Steps of several kinds: a service's requests have several sizes, and come in any order.

Such steps are not compared one by one. Each variant's steps are summed up in rounds, in which each kind has the same
share as in the program. The ratio of two rounds is that of the time for all requests.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from ... import units
from ...records.optimization import ORIGINAL, Trial, TrialVariant
from .judging import judge_variant

ALIKE = 1.05
"""Kinds count as one if their steps take as long, up to this ratio."""

LEAST_STEPS, LEAST_SHARE = 6, 0.05
"""The least number and the least share of the original's steps in a group of kinds. A smaller group joins the one whose
steps take about as long, because each round needs a step of each group."""

REPEATS = 4
"""The least mean number of the original's steps of a kind. If kinds are not repeated, single steps are compared."""

LEAST_ALIKE = 0.8
"""The least share of the original's time in groups of kinds that a variant, or all variants of a process, have."""

OTHER_KINDS = (
    "its steps are of other kinds (graphs or sizes) than the original's, so they cannot be compared; let a step be a "
    "round of equal work, and mark its end with inductor_bench.step()"
)


class KindOfStep(NamedTuple):
    """Kinds of steps that take about as long, and the original's steps of these kinds."""

    kinds: tuple[int, ...]
    times_s: tuple[float, ...]

    @property
    def typical_s(self) -> float:
        return statistics.median(self.times_s)

    def joined(self, other: KindOfStep) -> KindOfStep:
        """Returns both as one."""
        return KindOfStep(self.kinds + other.kinds, self.times_s + other.times_s)


@dataclass(frozen=True)
class StepMix:
    """What steps a program has. The first process of a search that has several kinds decides it for all."""

    groups: tuple[KindOfStep, ...]  # the shortest steps first

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """The share of each group among the steps."""
        counts = [len(one.times_s) for one in self.groups]
        return tuple(count / sum(counts) for count in counts)

    @cached_property
    def parts_s(self) -> tuple[float, ...]:
        """The seconds of the original's mean step that belong to each group."""
        return tuple(share * one.typical_s for share, one in zip(self.shares, self.groups, strict=True))

    def describe(self) -> str:
        """Names the kinds, and says what a step's time is in this search; without a full stop."""
        parts = [
            f"{units.whole_percent(share)} take {units.seconds(one.typical_s)}"
            for share, one in zip(self.shares, self.groups, strict=True)
        ]
        return f"the steps are of several kinds ({', '.join(parts)}); a step's time is the mean over all of them"

    def describe_savings(self, trials: Sequence[Trial], slug: str, noise: Sequence[Trial]) -> Iterator[str]:
        """Says what a variant saves in steps of each kind, each with its 99.9% interval.

        ``trials`` and ``noise`` are as in :func:`judge_variant`, with all of their steps.
        """
        parts = []
        for number, one in enumerate(self.groups):
            own, all_ = (
                [self._keep_group(trial, number) for trial in some if _has_kinds(trial)] for some in (trials, noise)
            )
            gain = judge_variant(own, slug, noise=all_)
            if gain is not None and gain.processes > 1:
                share, low, high = (units.percent(round(one, 3) + 0.0) for one in (gain.share, gain.low, gain.high))
                parts.append(f"steps of {units.seconds(one.typical_s)}: {share} ({low} to {high})")
        if parts:
            yield f"saved by kind of step: {', '.join(parts)}"

    def even_out(self, trial: Trial) -> Trial:
        """Returns the process with rounds in place of its steps. A round's time is that of a mean step.

        In a process in which variants take turns, only kinds count that the original had, too. A variant whose steps
        are mostly of other kinds cannot be compared, and has failed. If the original itself had few of the kinds, no
        time counts. A process whose kinds are unknown stays as it is.
        """
        if not _has_kinds(trial):
            return trial
        groups = self._find_groups(trial)
        steps = {one.slug: self._sort_steps(one, groups) for one in trial.variants if one.times_s}
        alike = {slug for slug, some in steps.items() if self._compute_share(some) >= LEAST_ALIKE}
        common = set.intersection(*(set(steps[slug]) for slug in alike)) if alike else set()
        if sum(self.parts_s[group] for group in common) < LEAST_ALIKE * sum(self.parts_s):
            common = set(steps.get(ORIGINAL, ()))
            alike &= {ORIGINAL}
        return replace(trial, variants=tuple(self._make_rounds(one, steps, alike, common) for one in trial.variants))

    def _find_groups(self, trial: Trial) -> dict[int, int]:
        """Returns the group of each kind that counts in a process.

        A kind that is not in the mix belongs to the group that takes about as long as the original's steps of it.
        """
        known = {kind: number for number, one in enumerate(self.groups) for kind in one.kinds}
        original = trial.variant(ORIGINAL)
        times_s = _sort_by_kind(original) if original is not None else {}
        for kind in times_s.keys() - known.keys():
            distances = [abs(math.log(statistics.median(times_s[kind]) / one.typical_s)) for one in self.groups]
            known[kind] = distances.index(min(distances))
        return {kind: group for kind, group in known.items() if not trial.alternates or kind in times_s}

    def _sort_steps(self, variant: TrialVariant, groups: Mapping[int, int]) -> dict[int, list[TimedPlace]]:
        """Returns the steps of each group. Steps of kinds that do not count are left out."""
        found: defaultdict[int, list[TimedPlace]] = defaultdict(list)
        for kind, one in list_steps(variant):
            if kind in groups:
                found[groups[kind]].append(one)
        return found

    def _compute_share(self, steps: Mapping[int, Sequence[TimedPlace]]) -> float:
        """Returns the share of the original's time that belongs to these groups."""
        return math.fsum(self.parts_s[group] for group in steps) / math.fsum(self.parts_s)

    def _make_rounds(
        self,
        variant: TrialVariant,
        steps: Mapping[str, Mapping[int, Sequence[TimedPlace]]],
        alike: Collection[str],
        common: Collection[int],
    ) -> TrialVariant:
        """Divides a variant's steps, in their order, into as many rounds as it has steps of its rarest group.

        A group that is not common to the variants of the process keeps its share of the time.
        """
        if not variant.times_s:
            return variant
        if variant.slug not in alike:
            failure = variant.failure or (OTHER_KINDS if ORIGINAL in alike else "")
            return replace(variant, times_s=(), places=(), kinds=(), failure=failure)
        own = {group: steps[variant.slug][group] for group in sorted(common)}
        rounds = min(map(len, own.values()))
        scale = math.fsum(self.parts_s) / math.fsum(self.parts_s[group] for group in own)
        times_s, places = [], []
        for count in range(rounds):
            parts = {group: _take_part(some, count, rounds) for group, some in own.items()}
            times_s.append(scale * math.fsum(self.shares[group] * part.time_s for group, part in parts.items()))
            places.append(2 * round(statistics.fmean(part.place for part in parts.values())))  # each is a turn
        return replace(variant, times_s=tuple(times_s), places=tuple(places), kinds=())

    def _keep_group(self, trial: Trial, number: int) -> Trial:
        """Returns the process with the steps of one group."""
        groups, variants = self._find_groups(trial), []
        for one in trial.variants:
            kept = self._sort_steps(one, groups).get(number, [])
            times_s, places = tuple(step.time_s for step in kept), tuple(round(step.place) for step in kept)
            variants.append(replace(one, times_s=times_s, places=places, kinds=()))
        return replace(trial, variants=tuple(variants))


class TimedPlace(NamedTuple):
    """A step, or the mean of several."""

    place: float
    time_s: float


def _has_kinds(trial: Trial) -> bool:
    return all(one.kinds for one in trial.variants if one.times_s)


def list_steps(variant: TrialVariant) -> Iterator[tuple[int, TimedPlace]]:
    """Yields the steps of a variant, each with its kind."""
    kinds = variant.kinds * len(variant.times_s) if len(variant.kinds) == 1 else variant.kinds
    for kind, place, time_s in zip(kinds, variant.places, variant.times_s, strict=True):
        yield kind, TimedPlace(place, time_s)


def _sort_by_kind(variant: TrialVariant) -> dict[int, list[float]]:
    found: defaultdict[int, list[float]] = defaultdict(list)
    for kind, one in list_steps(variant):
        found[kind].append(one.time_s)
    return found


def _take_part(steps: Sequence[TimedPlace], count: int, parts: int) -> TimedPlace:
    """Returns the mean of one of this many equal parts."""
    part = steps[count * len(steps) // parts : (count + 1) * len(steps) // parts]
    return TimedPlace(statistics.fmean(one.place for one in part), statistics.fmean(one.time_s for one in part))


def find_mix(trials: Iterable[Trial], slug: str = ORIGINAL) -> StepMix | None:
    """The kinds of steps of a variant in the first of these processes that has several; ``None`` without any."""
    for trial in trials:
        original = trial.variant(slug)
        if original is None or len(original.kinds) < 2 or REPEATS * len(set(original.kinds)) > len(original.kinds):
            continue
        found = _sort_by_kind(original)
        groups = _join(KindOfStep((kind,), tuple(times_s)) for kind, times_s in found.items())
        if len(groups) > 1:
            return StepMix(tuple(groups))
    return None


def _join(kinds: Iterable[KindOfStep]) -> list[KindOfStep]:
    """Joins the kinds that take about as long, and those with few steps with their nearest."""
    groups: list[KindOfStep] = []
    for one in sorted(kinds, key=lambda one: one.typical_s):
        is_alike = groups and one.typical_s <= ALIKE * groups[-1].typical_s
        groups.append(groups.pop().joined(one) if is_alike else one)
    least = max(LEAST_STEPS, LEAST_SHARE * sum(len(one.times_s) for one in groups))
    while len(groups) > 1:
        place = min(range(len(groups)), key=lambda number: len(groups[number].times_s))
        if len(groups[place].times_s) >= least:
            break
        is_first, is_last = place == 0, place == len(groups) - 1
        middle_s = groups[place].typical_s
        joins_next = is_first or (
            not is_last and groups[place + 1].typical_s * groups[place - 1].typical_s < middle_s**2
        )
        begin = place if joins_next else place - 1
        groups[begin : begin + 2] = [groups[begin].joined(groups[begin + 1])]
    return groups

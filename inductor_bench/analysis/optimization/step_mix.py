"""Steps of several kinds: a service's requests have several sizes, and come in any order.

Such steps are not compared one by one. Each variant's steps are summed up in rounds, in which each kind has the same
share as in the program. The ratio of two rounds is that of the time for all requests.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ... import units
from ...records.optimization import ORIGINAL, Trial, TrialVariant
from .judging import judge_variant

ALIKE = 1.05
"""Kinds count as one if their steps take as long, up to this ratio."""

LEAST_STEPS, LEAST_SHARE = 6, 0.05
"""The least number and the least share of the original's steps in a group of kinds. A smaller group joins the one whose
steps take about as long, because each round needs a step of each group."""


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

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of each group among the steps."""
        counts = [len(one.times_s) for one in self.groups]
        return tuple(count / sum(counts) for count in counts)

    def describe(self) -> str:
        """Says what a time of the search means, in a sentence without its end."""
        parts = [
            f"{units.whole_percent(share)} take {units.seconds(one.typical_s)}"
            for share, one in zip(self.shares, self.groups, strict=True)
        ]
        return f"the steps are of several kinds ({', '.join(parts)}); a step's time is that of their mean"

    def even_out(self, trial: Trial) -> Trial:
        """Returns the process with rounds in place of its steps. A round's time is that of the mean step."""
        groups = self._find_groups(trial)
        return replace(trial, variants=tuple(self._make_rounds(one, groups) for one in trial.variants))

    def describe_savings(self, trials: Sequence[Trial], slug: str) -> Iterator[str]:
        """Says what a variant saves in steps of each kind, each with its 99.9% interval."""
        parts = []
        for number, one in enumerate(self.groups):
            gain = judge_variant([self._keep_group(trial, number) for trial in trials], slug)
            if gain is not None and gain.processes > 1:
                share, low, high = (units.percent(round(one, 3) + 0.0) for one in (gain.share, gain.low, gain.high))
                parts.append(f"{share} of the steps of {units.seconds(one.typical_s)} ({low} to {high})")
        if parts:
            yield f"by kind of step the result saves {', '.join(parts)}"

    def _keep_group(self, trial: Trial, number: int) -> Trial:
        groups, variants = self._find_groups(trial), []
        for one in trial.variants:
            kept = [step for kind, step in _list_steps(one) if groups[kind] == number]
            times_s, places = tuple(step.time_s for step in kept), tuple(round(step.place) for step in kept)
            variants.append(replace(one, times_s=times_s, places=places, kinds=()))
        return replace(trial, variants=tuple(variants))

    def _find_groups(self, trial: Trial) -> dict[int, int]:
        """Returns the group of each kind. A kind that the first process had not belongs to the nearest group."""
        known = {kind: number for number, one in enumerate(self.groups) for kind in one.kinds}
        for variant in trial.variants:
            for kind, times_s in _sort_by_kind(variant).items():
                if kind not in known:
                    distances = [abs(math.log(statistics.median(times_s) / one.typical_s)) for one in self.groups]
                    known[kind] = distances.index(min(distances))
        return known

    def _make_rounds(self, variant: TrialVariant, groups: Mapping[int, int]) -> TrialVariant:
        """Divides a variant's steps, in their order, into as many rounds as it has steps of its rarest group.

        A group without a step in this process keeps its share of the time.
        """
        if not variant.kinds:
            return variant
        steps: list[list[TimedPlace]] = [[] for _ in self.groups]
        for kind, one in _list_steps(variant):
            steps[groups[kind]].append(one)
        usual_s = [share * one.typical_s for share, one in zip(self.shares, self.groups, strict=True)]
        present = [number for number, some in enumerate(steps) if some]
        rounds = min((len(steps[number]) for number in present), default=0)
        scale = math.fsum(usual_s) / math.fsum(usual_s[number] for number in present) if present else 1.0
        times_s, places = [], []
        for count in range(rounds):
            parts = {number: _take_part(steps[number], count, rounds) for number in present}
            times_s.append(scale * math.fsum(self.shares[number] * part.time_s for number, part in parts.items()))
            places.append(2 * round(statistics.fmean(part.place for part in parts.values())))  # each is a turn
        return replace(variant, times_s=tuple(times_s), places=tuple(places), kinds=())


class TimedPlace(NamedTuple):
    """A step, or the mean of several."""

    place: float
    time_s: float


def _list_steps(variant: TrialVariant) -> Iterator[tuple[int, TimedPlace]]:
    """Yields the steps of a variant, each with its kind."""
    kinds = variant.kinds * len(variant.times_s) if len(variant.kinds) == 1 else variant.kinds
    for kind, place, time_s in zip(kinds, variant.places, variant.times_s, strict=True):
        yield kind, TimedPlace(place, time_s)


def _sort_by_kind(variant: TrialVariant) -> dict[int, list[float]]:
    found: defaultdict[int, list[float]] = defaultdict(list)
    for kind, one in _list_steps(variant):
        found[kind].append(one.time_s)
    return found


def _take_part(steps: Sequence[TimedPlace], count: int, parts: int) -> TimedPlace:
    """Returns the mean of one of this many equal parts."""
    part = steps[count * len(steps) // parts : (count + 1) * len(steps) // parts]
    return TimedPlace(statistics.fmean(one.place for one in part), statistics.fmean(one.time_s for one in part))


def find_mix(trials: Iterable[Trial]) -> StepMix | None:
    """The kinds of steps of the original in the first of these processes that has several; ``None`` without any."""
    for trial in trials:
        original = trial.variant(ORIGINAL)
        if original is None or len(original.kinds) < 2:
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

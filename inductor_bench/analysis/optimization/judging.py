"""Judges what a change saves, from the steps of several processes in which it ran in turn with the original.

A step can differ for two reasons that are not the change. First, steps scatter within a process; the exact interval of
the median of paired turns says by how much. Second, a callable has another memory address or another clock in each
process. The placebo (the original, compiled once more) gives samples of that difference. A gain counts if both
intervals exclude zero, and if every process shows a gain larger than the difference of its own placebo.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...records.optimization import (
    FASTER,
    ORIGINAL,
    PLACEBO,
    SAME,
    SLOWER,
    UNDECIDED,
    MeasuredGain,
    StepDigest,
    Trial,
    TrialVariant,
)
from ..statistics import STEP_EFFECT, compute_median_interval, compute_student_quantile, count_needed_samples
from .trial_plans import list_prefixes, name_variant

CONFIDENCE = 0.999
"""The confidence of the interval of a claim, for all judgements of the claim together."""

LOOKS = 3
"""How often a claim may be judged: after two, four and six processes; see also ``search.AFTER_RANKING``."""

LEAST_PAIRS = count_needed_samples(1 - (1 - CONFIDENCE) / LOOKS)
"""The smallest number of pairs of turns for a decision."""

MOST_LOG = math.log(10.0)
"""The largest logarithm that an end of an interval has: a tenth of the step, or ten times as much."""

PREDICTED = 0.95
"""The share of new processes whose saving lies in the predicted interval."""

FEWEST_FREE = 2
"""The smallest number of degrees of freedom for a prediction: with one, its interval is over 12 times the scatter."""

CLEAR = 0.003
"""A change is measured again if it saves at least this share of a step in the ranking."""

CLEAR_ALONE = 0.01
"""The smallest share for a change that ran in a separate process: processes differ more than the steps of one
process."""


# Pairs of neighbouring turns.


class VariantTurn(NamedTuple):
    """Consecutive timed steps of one variant.

    They are one sample, because a disturbance of one step disturbs them all.
    """

    place: float  # the middle of its places
    time_s: float  # the mean of its steps


def split_into_turns(variant: TrialVariant) -> list[VariantTurn]:
    """The turns of a variant in one process. A turn is a row of consecutive steps that all ran with the variant."""
    found: list[VariantTurn] = []
    begin = 0
    for end in range(1, len(variant.places) + 1):
        if end == len(variant.places) or variant.places[end] != variant.places[end - 1] + 1:
            places, times = variant.places[begin:end], variant.times_s[begin:end]
            found.append(VariantTurn((places[0] + places[-1]) / 2, statistics.fmean(times)))
            begin = end
    return found


def pair_logarithms(variant: TrialVariant, base: TrialVariant) -> list[float]:
    """For each turn of a variant and the nearest turn of another one, the logarithm of the ratio of their times.

    Each turn is in one pair only, so pairs are independent. A drift, or a change of the clock, cancels.
    """
    found, begin, others = [], 0, split_into_turns(base)
    for turn in split_into_turns(variant):
        if begin >= len(others):
            break
        nearest = begin
        while nearest + 1 < len(others) and _compute_distance(others[nearest + 1], turn) < _compute_distance(
            others[nearest], turn
        ):
            nearest += 1
        found.append(math.log(turn.time_s / others[nearest].time_s))
        begin = nearest + 1
    return found


def _compute_distance(one: VariantTurn, other: VariantTurn) -> float:
    return abs(one.place - other.place)


@dataclass(frozen=True)
class ProcessGain:
    """The result of one process: the median logarithm of the ratio of the steps, for the change and for its placebo."""

    log: float
    logs: tuple[float, ...]
    placebo: float | None
    before_s: float


def list_process_gains(trials: Iterable[Trial], slug: str, base: str = ORIGINAL) -> list[ProcessGain]:
    """Returns the result of each process in which a variant took turns with another variant."""
    found = []
    for trial in trials:
        variant, other = trial.variant(slug), trial.variant(base)
        if not trial.alternates or variant is None or other is None or variant.failure or other.failure:
            continue
        logs = pair_logarithms(variant, other)
        if logs:
            found.append(
                ProcessGain(
                    statistics.median(logs),
                    tuple(logs),
                    compute_placebo_logarithm(trial),
                    statistics.median(other.times_s),
                )
            )
    return found


def compute_placebo_logarithm(trial: Trial) -> float | None:
    """The median logarithm of the ratio of the placebo's steps to the original's; ``None`` without a placebo."""
    placebo, original = trial.variant(PLACEBO), trial.variant(ORIGINAL)
    if not trial.alternates or placebo is None or original is None or placebo.failure:
        return None
    logs = pair_logarithms(placebo, original)
    return statistics.median(logs) if logs else None


# The scatter between processes.


@dataclass(frozen=True)
class Scatter:
    """The variance of the logarithm of a ratio between processes, and its degrees of freedom."""

    variance: float
    freedom: int

    def reach(self, processes: float, confidence: float) -> float:
        """Returns half the width of the interval of a mean over ``processes`` processes; infinite if unknown."""
        if not self.freedom:
            return math.inf
        return compute_student_quantile(self.freedom, confidence) * math.sqrt(self.variance / processes)

    def with_values(self, values: Iterable[float], freedom: int) -> Scatter:
        """Returns the scatter with further differences from expected values, and their degrees of freedom."""
        if freedom < 1:
            return self
        total = self.variance * self.freedom + math.fsum(value * value for value in values)
        return Scatter(total / (self.freedom + freedom), self.freedom + freedom)


def estimate_scatter(trials: Sequence[Trial], groups: Iterable[Sequence[float]] = ()) -> Scatter:
    """Estimates the scatter between processes, from the placebos of these trials and from values that should be equal.

    Args:
        trials: the trials in which variants took turns; a placebo's true ratio is 1.
        groups: values of the same ratio from several processes, each group around its own mean.
    """
    placebos = [log for log in map(compute_placebo_logarithm, trials) if log is not None]
    total, freedom = math.fsum(log * log for log in placebos), len(placebos)
    for group in groups:
        if len(group) > 1:
            middle = statistics.fmean(group)
            total, freedom = total + math.fsum((value - middle) ** 2 for value in group), freedom + len(group) - 1
    return Scatter(total / freedom if freedom else 0.0, freedom)


# Processes that are not comparable with the others.


OTHER_LEVEL = math.log(1.1)
"""How much the original's step in a process may differ from its step in most processes, as the logarithm of their
ratio. If the host is 20% slower in one of five processes, a change that relieves the host saves twice as much there."""

FEW_LEVELS = 1 / 3
"""Processes at other levels are left out if they are at most this share of the processes. Otherwise all count."""


def keep_usual_level(trials: Iterable[Trial], every: Iterable[Trial]) -> list[Trial]:
    """Keeps the processes in which the original takes about as long as in most processes on the same device. Times of
    variants do not count. A process without the original stays.
    """
    levels: defaultdict[str, list[float]] = defaultdict(list)
    for one in every:
        if (level := _level(one)) is not None:
            levels[one.gpu].append(level)
    usual = {gpu: statistics.median(known) for gpu, known in levels.items() if _has_few_others(known)}
    return [
        one
        for one in trials
        if one.gpu not in usual or (level := _level(one)) is None or abs(level - usual[one.gpu]) <= OTHER_LEVEL
    ]


def _has_few_others(levels: Sequence[float]) -> bool:
    usual = statistics.median(levels)
    return sum(abs(level - usual) > OTHER_LEVEL for level in levels) <= FEW_LEVELS * len(levels)


def _level(trial: Trial) -> float | None:
    original = trial.variant(ORIGINAL)
    if not trial.alternates or original is None or not original.times_s:
        return None
    return math.log(statistics.median(original.times_s))


# The verdict on a change that took turns with the original in some processes.


def judge_variant(
    trials: Sequence[Trial],
    slug: str,
    base: str = ORIGINAL,
    noise: Sequence[Trial] = (),
    others: Iterable[str] = (),
) -> MeasuredGain | None:
    """Judges what a variant saves against another variant of the same processes; ``None`` if no process had the two.

    Args:
        trials: processes from which the variant was not chosen among others. Processes that are not at the usual level
            of the search do not count.
        slug: the variant.
        base: the variant that it is compared with.
        noise: all processes of the search that had a placebo, for the scatter between processes; the trials by
            themselves if there are none.
        others: further variants in these trials, which also show the scatter between processes.
    """
    noise = noise or trials
    trials, noise = (keep_usual_level(some, noise) for some in (trials, noise))
    gains = list_process_gains(trials, slug, base)
    if not gains:
        return None
    logs = [log for gain in gains for log in gain.logs]
    middles = [gain.log for gain in gains]
    middle = statistics.fmean(middles)
    confidence = 1 - (1 - CONFIDENCE) / LOOKS
    low, high = compute_median_interval(logs, confidence)
    groups = ([one.log for one in list_process_gains(trials, name)] for name in others)
    scatter = estimate_scatter(noise, [middles, *groups])
    reach = scatter.reach(len(gains), confidence)
    low, high = min(low, middle - reach, middle), max(high, middle + reach, middle)
    placebo = max((abs(gain.placebo) for gain in gains if gain.placebo is not None), default=0.0)
    agree = len(gains) > 1 and all(_beats(gain, middle) for gain in gains)
    enough = len(logs) >= LEAST_PAIRS and agree
    return _make_gain(gains, middle, (low, high), len(logs), placebo, enough=enough)


def _beats(gain: ProcessGain, middle: float) -> bool:
    """Whether a process shows the same difference, and a larger one than its placebo."""
    return gain.log * middle > 0 and abs(gain.log) > abs(gain.placebo or 0.0)


def _make_gain(
    gains: Sequence[ProcessGain],
    middle: float,
    interval: tuple[float, float],
    samples: int,
    placebo: float,
    *,
    enough: bool,
) -> MeasuredGain:
    low, high = (compute_share(max(min(log, MOST_LOG), -MOST_LOG)) for log in reversed(interval))
    share, before_s = compute_share(middle), statistics.geometric_mean(gain.before_s for gain in gains)
    return MeasuredGain(
        share=share,
        low=low,
        high=high,
        before_s=before_s,
        after_s=before_s * (1 - share),
        processes=len(gains),
        samples=samples,
        placebo=math.expm1(placebo),
        verdict=decide_verdict(share, low, high, enough=enough),
    )


def compute_share(log: float) -> float:
    """The share of the step that is saved, for the logarithm of the ratio of the steps."""
    return -math.expm1(log)


def decide_verdict(share: float, low: float, high: float, *, enough: bool) -> str:
    """The verdict for a share that is saved and its interval; ``enough`` says whether the processes agree."""
    if enough and low > 0 and share >= STEP_EFFECT:
        return FASTER
    if enough and high < 0 and share <= -STEP_EFFECT:
        return SLOWER
    return SAME if max(abs(low), abs(high)) < CLEAR else UNDECIDED


# The verdict on a change that ran in processes of its own.


def list_process_medians(trials: Iterable[Trial], slug: str) -> dict[str, list[float]]:
    """By GPU, the logarithm of the median step of each process that ran one variant from its start to its end."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for trial in trials:
        one = trial.variant(slug) if not trial.alternates and trial.failure is None else None
        if one is not None and one.times_s:
            found[trial.gpu].append(math.log(statistics.median(one.times_s)))
    return dict(found)


class GpuProcesses(NamedTuple):
    """What the processes of two variants on one GPU say."""

    before: list[float]
    after: list[float]

    @property
    def difference(self) -> float:
        return statistics.fmean(self.after) - statistics.fmean(self.before)

    @property
    def weight(self) -> float:
        """Returns the number of processes of each variant that would be as certain."""
        return 1 / (1 / len(self.before) + 1 / len(self.after))

    @property
    def spread(self) -> float:
        """The largest difference between two processes of equal settings."""
        return max(max(group) - min(group) for group in self)

    @property
    def are_apart(self) -> bool:
        return max(self.after) < min(self.before) or max(self.before) < min(self.after)


def judge_alone(
    trials: Sequence[Trial], slug: str, base: str = ORIGINAL, noise: Sequence[Trial] = ()
) -> MeasuredGain | None:
    """Judges a variant whose processes ran in turn with another variant's; ``None`` if no GPU ran the two.

    A process is one sample, and is compared with those of its GPU. Processes with equal settings, and those of
    ``noise``, show how much processes differ. A verdict also needs that each process with the change is faster (or
    slower) than each process without it.
    """
    befores, afters = list_process_medians(trials, base), list_process_medians(trials, slug)
    sides = [GpuProcesses(befores[gpu], afters[gpu]) for gpu in befores if gpu in afters]
    if not sides:
        return None
    before, after = ([value for side in sides for value in side[place]] for place in (0, 1))
    weight = math.fsum(side.weight for side in sides)
    middle = math.fsum(side.weight * side.difference for side in sides) / weight
    own = {trial.name for trial in trials}
    scatter = scatter_alone(trials, [trial for trial in noise if trial.name not in own])
    reach = scatter.reach(weight, 1 - (1 - CONFIDENCE) / LOOKS)
    apart = all(side.are_apart and side.difference * middle > 0 for side in sides)
    gains = [ProcessGain(middle, (), None, math.exp(statistics.fmean(before)))]
    enough = apart and min(len(before), len(after)) > 1 and abs(middle) >= CLEAR_ALONE
    spread = max(side.spread for side in sides)
    found = _make_gain(gains, middle, (middle - reach, middle + reach), len(before) + len(after), spread, enough=enough)
    return MeasuredGain(**{**vars(found), "processes": len(before) + len(after), "samples": len(after)})


SWEEPS = 50
"""The number of rounds in which the levels of GPUs and of settings are fitted in turn."""


def scatter_alone(*parts: Sequence[Trial]) -> Scatter:
    """Estimates the scatter of processes. A process is the sum of its GPU's level, its settings' effect, and chance."""
    scatter = Scatter(0.0, 0)
    for trials in parts:
        names = {one.slug for trial in trials if not trial.alternates for one in trial.variants}
        middles = {name: list_process_medians(trials, name) for name in sorted(names)}
        values = [(gpu, name, value) for name, by_gpu in middles.items() for gpu in by_gpu for value in by_gpu[gpu]]
        scatter = scatter.with_values(*_remove_levels(values))
    return scatter


def _remove_levels(values: Sequence[tuple[str, str, float]]) -> tuple[list[float], int]:
    """Subtracts the levels of GPUs and of settings. Returns the rest and its degrees of freedom."""
    gpus, names = {gpu: 0.0 for gpu, _, _ in values}, {name: 0.0 for _, name, _ in values}
    for _ in range(SWEEPS):
        for gpu in gpus:
            gpus[gpu] = statistics.fmean(value - names[name] for own, name, value in values if own == gpu)
        for name in names:
            names[name] = statistics.fmean(value - gpus[gpu] for gpu, own, value in values if own == name)
    left = [value - gpus[gpu] - names[name] for gpu, name, value in values]
    return left, len(values) - len(gpus) - len(names) + _count_islands(values)


def _count_islands(values: Sequence[tuple[str, str, float]]) -> int:
    """Counts the groups of GPUs that have no settings in common."""
    islands: list[set[str]] = []
    for name in {name for _, name, _ in values}:
        joined = {gpu for gpu, other, _ in values if other == name}
        joined = joined.union(*(one for one in islands if one & joined))
        islands = [one for one in islands if not one & joined] + [joined]
    return len(islands)


# What a user gets, who runs one process with the result and one without it.


def predict_saving(
    trials: Iterable[Trial], slug: str, gain: MeasuredGain, whole_runs: Sequence[Trial] = ()
) -> tuple[float, float] | None:
    """Predicts the share of the step that a new process with a variant saves against a new process without it.

    Two processes with equal settings differ in their steps, so the saving of two new processes may lie outside of the
    interval of a proof. This interval also holds the scatter of the two new processes.

    Args:
        trials: all processes of the search, also those at unusual levels.
        slug: the variant.
        gain: what the variant saves, from whole runs if there were any.
        whole_runs: these whole runs.

    Returns:
        The ends of an interval that holds 95% of such savings; ``None`` with fewer than :data:`FEWEST_FREE` degrees of
        freedom.
    """
    scatter = _estimate_process_scatter(trials, (ORIGINAL, slug))
    if scatter.freedom < FEWEST_FREE:
        return None
    alone = [sum(map(len, list_process_medians(whole_runs, name).values())) for name in (ORIGINAL, slug)]
    measured = [count or gain.processes for count in alone]
    reach = scatter.reach(1 / (2 + sum(1 / count for count in measured)), PREDICTED)
    middle = math.log1p(-gain.share)
    low, high = (compute_share(max(min(log, MOST_LOG), -MOST_LOG)) for log in (middle + reach, middle - reach))
    return low, high


def _estimate_process_scatter(trials: Iterable[Trial], slugs: Sequence[str]) -> Scatter:
    """Estimates how much the logarithm of a variant's step differs between processes of one GPU.

    Variants that took turns in one process share what is peculiar to this process, so a process counts once.
    """
    processes: defaultdict[str, list[dict[str, float]]] = defaultdict(list)
    for trial in trials:
        if trial.failure is None and not trial.late:
            timed = [one for one in trial.variants if one.slug in slugs and one.times_s and not one.failure]
            if timed:
                processes[trial.gpu].append({one.slug: math.log(statistics.median(one.times_s)) for one in timed})
    total, freedom = 0.0, 0
    for levels in processes.values():
        middles = {slug: statistics.fmean(one[slug] for one in levels if slug in one) for slug in set().union(*levels)}
        total += math.fsum(
            statistics.fmean((level - middles[slug]) ** 2 for slug, level in one.items()) for one in levels
        )
        freedom += len(levels) - (1 if all(one.keys() == middles.keys() for one in levels) else len(middles))
    return Scatter(total / freedom if freedom else 0.0, freedom)


# The time and memory that trials needed.


def compute_original_step_s(trials: Iterable[Trial]) -> float | None:
    """Returns the original's step in seconds: the median of the processes' medians; ``None`` if it was never timed."""
    timed = (trial.variant(ORIGINAL) for trial in trials)
    middles = [statistics.median(one.times_s) for one in timed if one is not None and one.times_s]
    return statistics.median(middles) if middles else None


def find_variant_needs(trials: Sequence[Trial], slug: str) -> tuple[float | None, int | None]:
    """The seconds of a cold compilation and the peak memory of a variant in a process of its own."""
    found = [(trial, one) for trial in trials if not trial.alternates and (one := trial.variant(slug)) is not None]
    cold = next((one.compile_time_s for trial, one in found if trial.cold and one.compile_time_s), None)
    memory = [one.peak_memory_bytes for _, one in found if one.peak_memory_bytes is not None]
    return cold, max(memory, default=None)


def make_waterfall(
    trials: Sequence[Trial], slugs: Sequence[str], gain: MeasuredGain, noise: Sequence[Trial]
) -> Iterator[tuple[str, float]]:
    """Yields the step after each of these rows was added to the rows before it."""
    for part in list_prefixes(slugs):
        found = judge_variant(trials, name_variant(part), noise=noise)
        if found is not None:
            yield part[-1], gain.before_s * (1 - found.share)


# Ranking: which changes are worth a proof.


def seems_faster(gain: MeasuredGain | None, *, alternated: bool) -> bool:
    """Whether a ranked change may be faster: by more than its placebo, and by enough to matter."""
    if gain is None:
        return False
    return gain.share >= max(CLEAR if alternated else CLEAR_ALONE, gain.placebo)


# Gradients and losses.


EARLY = 20
"""The number of steps in which gradients and losses are compared one by one. Training is chaotic: a difference in the
last bit becomes visible some hundred steps later, so only the mean of later losses is compared."""

TOLERATED = 0.02
"""Relative difference of a norm of gradients, or of a loss, in an early step up to which settings that change rounding
count as equal, if the original itself repeats exactly."""

MOST_OUTSIDE = 0.05
"""Share of the early steps that may lie outside of the band."""

LATE = 0.05
"""Relative difference of the mean of later losses that is tolerated. Half of their standard deviation is, too."""


def describe_digest_difference(originals: Sequence[Sequence[StepDigest]], changed: Sequence[StepDigest]) -> str:
    """Says how gradients and losses of a process with the changes leave the band of the others; empty if they do not.

    The band of an early step reaches from the smallest to the largest value of the original's processes, and beyond
    them by their distance, or by :data:`TOLERATED` if that is larger.

    Args:
        originals: the digests of processes without the changes.
        changed: those of a process with them.
    """
    known = [one for one in originals if one]
    if not changed or not known:
        return ""
    for what, read in (("the norm of the gradients", _list_norms), ("the loss", _list_losses)):
        said = _describe_early_difference(what, read(changed), [read(one) for one in known])
        if said:
            return said
    losses = [_list_losses(one) for one in known]
    return _describe_parameter_difference(known[0][0], changed[0]) or _describe_late_difference(
        _list_losses(changed), losses
    )


def _describe_early_difference(what: str, values: Mapping[int, float], others: Sequence[Mapping[int, float]]) -> str:
    steps = sorted(set(values).intersection(*map(set, others)))[:EARLY]
    outside = [step for step in steps if not _is_inside(values[step], [one[step] for one in others])]
    if len(outside) <= MOST_OUTSIDE * len(steps):
        return ""
    step = outside[0]
    return (
        f"{what} differs in {len(outside)} of the first {len(steps)} steps: {values[step]:.6g} instead of "
        f"{others[0][step]:.6g} at step {step}"
    )


def _describe_late_difference(values: Mapping[int, float], others: Sequence[Mapping[int, float]]) -> str:
    """Says whether the mean of the losses after the early steps differs."""
    steps = sorted(set(values).intersection(*map(set, others)))[EARLY:]
    if len(steps) < EARLY:
        return ""
    ours = statistics.fmean(values[step] for step in steps)
    theirs = [statistics.fmean(one[step] for step in steps) for one in others]
    middle, apart = statistics.fmean(theirs), max(theirs) - min(theirs)
    scatter = statistics.stdev(others[0][step] for step in steps)
    if abs(ours - middle) <= max(2 * apart, LATE * abs(middle), scatter / 2):
        return ""
    return f"the mean loss of {len(steps)} later steps is {ours:.6g} instead of {middle:.6g}"


def _list_norms(digests: Iterable[StepDigest]) -> dict[int, float]:
    return {one.step: one.norm for one in digests}


def _list_losses(digests: Iterable[StepDigest]) -> dict[int, float]:
    return {one.step: one.loss for one in digests if one.loss is not None}


def _is_inside(value: float, others: Sequence[float]) -> bool:
    if not math.isfinite(value):
        return not all(map(math.isfinite, others))
    low, high = min(others), max(others)
    margin = max(high - low, TOLERATED * max(abs(low), abs(high)))
    return low - margin <= value <= high + margin


def _describe_parameter_difference(original: StepDigest, changed: StepDigest) -> str:
    """Says whether a parameter has gradients in the first step of one process and none in the other."""
    if len(original.sums) != len(changed.sums):
        return ""
    pairs = enumerate(zip(changed.sums, original.sums, strict=True))
    wrong = next(((place, ours, theirs) for place, (ours, theirs) in pairs if (ours == 0) != (theirs == 0)), None)
    if wrong is None:
        return ""
    place, ours, theirs = wrong
    return f"the gradient of parameter {place} has a norm of {ours:.6g} instead of {theirs:.6g}"

"""Statistics of sampled times: medians with exact confidence intervals, ratios, verdicts, drift, savings, levels.

Statistics use medians and ranks, because times have one long tail and are not normally distributed; only for a few
processes, of which ranks cannot say anything, there is Student's interval (:func:`compute_shift`). The interval
of a median comes from the order statistics: each sample lies below the median with probability one half, whatever the
distribution (David and Nagaraja, Order Statistics, 7.1). Its coverage is therefore exact without resampling.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ..records.retune import NO_DIFFERENCE, SAVES, SLOWER, UNDECIDED, Ratio, Saving, Timing

CONFIDENCE = 0.95
VERDICT_CONFIDENCE = 0.995
"""The confidence of the interval that a verdict uses. It is high, so that the same config is rarely called faster than
itself."""

EFFECT = 0.01
SHORT_EFFECT = 0.03
SHORT_S = 5e-6
"""The smallest relative difference that counts: ``EFFECT``, and ``SHORT_EFFECT`` for kernels shorter than ``SHORT_S``
seconds, because the clock is too coarse for them."""

DRIFT = 0.03
"""Smallest relative change from the first to the last third of the samples that counts as drift."""


def summarize(samples: Sequence[float]) -> Timing:
    """Summarizes one or more samples in a timing.

    Args:
        samples: seconds, in the order in which they were taken.
    """
    low, high = compute_median_interval(samples)
    middle = statistics.median(samples)
    return Timing(
        median_s=middle,
        low_s=low,
        high_s=high,
        min_s=min(samples),
        mad_s=statistics.median(abs(sample - middle) for sample in samples),
        samples=len(samples),
        samples_s=tuple(samples),
    )


def compute_median_interval(samples: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The narrowest symmetric pair of ranked samples that encloses the median with at least this confidence.

    Returns:
        ``(low, high)``; the smallest and the largest sample if there are too few samples for the confidence.
    """
    ordered = sorted(samples)
    trimmed = max(_count_trimmed(len(ordered), confidence), 0)
    return ordered[trimmed], ordered[-1 - trimmed]


def count_needed_samples(confidence: float) -> int:
    """The smallest number of samples whose extremes enclose the median with this confidence."""
    return 1 + math.ceil(-math.log2(1 - confidence))


@functools.cache
def _count_trimmed(count: int, confidence: float) -> int:
    """The number of samples to leave out at either end; -1 if even all samples do not reach the confidence."""
    tail, found = 0.0, -1
    for number in range(count // 2 + 1):
        tail += math.comb(count, number) / 2**count
        if 1 - 2 * tail < confidence:
            break
        found = number
    return min(found, (count - 1) // 2)


@functools.cache
def compute_student_quantile(freedom: int, confidence: float) -> float:
    """The two-sided quantile of Student's t: its absolute value is below that with this probability."""
    low, high = 0.0, 1.0
    while compute_student_probability(high, freedom) < confidence:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if compute_student_probability(middle, freedom) < confidence else (low, middle)
    return high


def compute_student_probability(bound: float, freedom: int) -> float:
    """The probability that the absolute value of Student's t is at most ``bound``.

    The finite series for whole degrees of freedom (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3
    and 26.7.4).
    """
    angle = math.atan(bound / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for number in range(freedom // 2):
        total += term
        step = 2 * number + 2 if odd else 2 * number + 1
        term *= cosine * cosine * step / (step + 1)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def compute_paired_ratio(
    times: Sequence[float], others: Sequence[float], confidence: float = VERDICT_CONFIDENCE
) -> Ratio:
    """The median of the ratios of ``times`` to ``others``, with its confidence interval.

    Disturbances that both samples of a pair share (a lower clock, another process) cancel.

    Args:
        times: samples in seconds.
        others: samples in seconds, each taken together with the sample of ``times`` at the same index.
        confidence: of the interval.

    Raises:
        ValueError: the lengths differ, or there are no pairs.
    """
    ratios = [time / other for time, other in zip(times, others, strict=True) if other > 0]
    if not ratios:
        raise ValueError("no pairs of samples")
    low, high = compute_median_interval(ratios, confidence)
    return Ratio(statistics.median(ratios), low, high, len(ratios))


def find_smallest_effect(time_s: float) -> float:
    """The smallest relative difference that counts for a kernel of this time in seconds."""
    return EFFECT if time_s >= SHORT_S else SHORT_EFFECT


def find_verdict(ratio: Ratio, effect: float = EFFECT) -> str:
    """Decides from the ratio of a kernel's time to another's: ``faster``, ``slower``, ``same`` or ``undecided``.

    ``faster`` and ``slower`` need an interval that excludes 1 and a median difference of at least ``effect``. ``same``
    needs an interval within ``effect`` of 1.
    """
    enough = ratio.pairs >= count_needed_samples(VERDICT_CONFIDENCE)
    return judge_ratio(ratio.median, ratio.low, ratio.high, effect) if enough else "undecided"


def judge_ratio(middle: float, low: float, high: float, effect: float) -> str:
    """The verdict of :func:`find_verdict` from the middle of a ratio and the ends of its interval."""
    if high < 1 and middle <= 1 - effect:
        return "faster"
    if low > 1 and middle >= 1 + effect:
        return "slower"
    return "same" if low > 1 - effect and high < 1 + effect else "undecided"


@dataclass(frozen=True)
class Drift:
    """The change of the median from the first to the last third of the samples, relative to the first.

    ``sure`` is true if the two thirds do not overlap and the change is at least :data:`DRIFT`.
    """

    change: float
    sure: bool


def find_drift(samples: Sequence[float]) -> Drift:
    """Detects times that rose or fell during the measurement, for example under a throttled clock."""
    third = len(samples) // 3
    if third < 3:
        return Drift(0.0, False)
    first, last = samples[:third], samples[-third:]
    change = statistics.median(last) / statistics.median(first) - 1 if statistics.median(first) else 0.0
    apart = max(first) < min(last) or max(last) < min(first)
    return Drift(change, apart and abs(change) >= DRIFT)


# The difference of two groups of samples that are not paired.


RANKED = 10
"""The least number of samples in each group from which ranks decide. With fewer, their interval at a high confidence is
the whole range of the differences, so that a single disturbed sample decides."""


@dataclass(frozen=True)
class Shift:
    """The difference of two groups, with its confidence interval; its ends are infinite with a single sample."""

    base: float  # the middle of the other group
    middle: float
    low: float
    high: float


def compute_shift(
    values: Sequence[float], others: Sequence[float], confidence: float, least_deviation: float = 0.0
) -> Shift:
    """How much larger one group of samples is than another.

    From :data:`RANKED` samples on, the estimate is that of Hodges and Lehmann, the median of all differences, and its
    interval is the exact one of the rank sum test of Mann and Whitney (Hollander, Wolfe and Chicken, Nonparametric
    Statistical Methods, 4.3): single disturbed samples hardly move it. With fewer samples it is Welch's, for groups
    that scatter differently.

    Args:
        values: samples.
        others: samples of the other group.
        confidence: of the interval.
        least_deviation: the least standard deviation that few samples are supposed to have. A few samples may agree by
            chance.

    Raises:
        ValueError: a group is empty.
    """
    groups = (values, others)
    if min(map(len, groups)) >= RANKED:
        place = _find_rank_limit(len(values), len(others), confidence)
        if place is not None:
            differences = sorted(value - other for value in values for other in others)
            middle = statistics.median(differences)
            return Shift(statistics.median(others), middle, differences[place], differences[-1 - place])
    middle = statistics.fmean(values) - statistics.fmean(others)
    if min(map(len, groups)) < 2:
        return Shift(statistics.fmean(others), middle, -math.inf, math.inf)
    errors = [max(statistics.variance(group), least_deviation**2) / len(group) for group in groups]
    variance = math.fsum(errors)
    scaled = math.fsum(error**2 / (len(group) - 1) for error, group in zip(errors, groups, strict=True))
    freedom = math.floor(variance**2 / scaled + ROUNDING) if scaled else 1
    reach = compute_student_quantile(max(freedom, 1), confidence) * math.sqrt(variance)
    return Shift(statistics.fmean(others), middle, middle - reach, middle + reach)


def _find_rank_limit(first: int, second: int, confidence: float) -> int | None:
    """The largest number of differences below the interval for this confidence; ``None`` if none can be."""
    below, found = 0, None
    for place, ways in enumerate(_count_rank_sums(first, second)):
        below += ways
        if 2 * below > (1 - confidence) * math.comb(first + second, first):
            return found
        found = place
    return found


@functools.lru_cache(maxsize=64)
def _count_rank_sums(first: int, second: int) -> tuple[int, ...]:
    """In how many orders of two groups 0, 1, 2, … pairs are the wrong way round (Mann and Whitney's U)."""
    ways = [1] + [0] * (first * second)
    for size in range(1, first + 1):  # the Gaussian binomial coefficient, factor by factor
        for count in range(first * second, second + size - 1, -1):
            ways[count] -= ways[count - second - size]
        for count in range(size, first * second + 1):
            ways[count] += ways[count - size]
    return tuple(ways)


# What a program saves per step with other kernels, from steps that alternate between the two.


STEP_EFFECT = 0.002
"""Smallest share of a step that counts as a difference. Smaller than a kernel's, because a step repeats better."""


@dataclass(frozen=True)
class TimedStep:
    """One time in seconds, and whether the pins were in use."""

    tuned: bool
    time_s: float


def measure_saving(samples: Sequence[TimedStep]) -> Saving | None:
    """Measures the saving from pairs of neighbours, one with the pins and one without; ``None`` if there is no pair.

    Samples that come in the order own, tuned, tuned, own and its reverse make pairs in which a slow drift cancels. A
    saving is undecided if the medians of the two say the opposite of the pairs: then the steps have several levels.
    """
    pairs = _pair_samples(samples)
    if not pairs:
        return None
    differences = [own - tuned for own, tuned in pairs]
    own_s, tuned_s = (statistics.median(one) for one in zip(*pairs, strict=True))
    low, high = compute_median_interval(differences, CONFIDENCE)
    middle = statistics.median(differences)
    verdict = _judge(differences, middle, own_s, low, high)
    if verdict in (SAVES, SLOWER) and (own_s - tuned_s) * middle < 0:
        verdict = UNDECIDED
    return Saving(own_s, tuned_s, middle, low, high, len(pairs), verdict)


def _pair_samples(samples: Sequence[TimedStep]) -> list[tuple[float, float]]:
    """Own and tuned times of neighbours; each sample is in one pair."""
    pairs, waiting = [], None
    for sample in samples:
        if waiting is not None and waiting.tuned != sample.tuned:
            own, tuned = (waiting, sample) if sample.tuned else (sample, waiting)
            pairs.append((own.time_s, tuned.time_s))
            waiting = None
        else:
            waiting = sample
    return pairs


def _judge(differences: Sequence[float], middle: float, own_s: float, shown_low: float, shown_high: float) -> str:
    """Judges by an interval of higher confidence than the shown one; undecided if the two intervals disagree."""
    if len(differences) < count_needed_samples(VERDICT_CONFIDENCE):
        return UNDECIDED
    low, high = compute_median_interval(differences, VERDICT_CONFIDENCE)
    effect = STEP_EFFECT * own_s
    if low > 0 and middle >= effect:
        return SAVES
    if high < 0 and middle <= -effect:
        return SLOWER
    return UNDECIDED if (shown_low > 0 or shown_high < 0) and abs(middle) >= effect else NO_DIFFERENCE


def judge_processes(own: Sequence[float], tuned: Sequence[float]) -> Saving | None:
    """The saving of whole processes that ran in turn, each with the median of its steps in seconds.

    The interval is the range of the differences. A difference counts if each process with the pins is faster (or
    slower) than each process without, and the median is at least :data:`PROCESS_EFFECT` of the step and :data:`SPREADS`
    times the range of equal processes: of four equal processes, two are faster than the others in one case of three.
    """
    differences = [before - after for before, after in zip(own, tuned, strict=False)]
    if not differences:
        return None
    own_s, middle = statistics.median(own), statistics.median(differences)
    verdict = UNDECIDED
    if len(differences) > 1:
        apart = max(tuned) < min(own) or max(own) < min(tuned)
        spread = max(max(one) - min(one) for one in (own, tuned))
        counts = apart and abs(middle) >= max(PROCESS_EFFECT * own_s, SPREADS * spread)
        verdict = NO_DIFFERENCE if not counts else SAVES if middle > 0 else SLOWER
    return Saving(
        own_s, statistics.median(tuned), middle, min(differences), max(differences), len(differences), verdict
    )


PROCESS_EFFECT = 0.01
"""Smallest share of a step that counts between processes, which differ in more than their kernels."""

SPREADS = 2.0
"""Smallest difference between processes that counts, in ranges of processes that ran the same."""

DEVICE_SHARE = 0.5
"""The device's own time must show at least this share of a difference between processes."""


def device_confirms(step: Saving, device: Saving | None) -> bool:
    """Whether the device's own time shows a difference of the step that was found between processes.

    Configs of kernels change the device's work. Other differences between two processes come from their hosts.
    """
    if device is None or step.verdict not in (SAVES, SLOWER):
        return True
    return device.saving_s * math.copysign(1.0, step.saving_s) >= DEVICE_SHARE * abs(step.saving_s)


# Levels of a program's step times: where they change, and which of them is the program's step.


APART = 0.2
"""Gap between two groups of steps, as a share of their median, from which their steps are of two kinds."""

SMALLEST_GROUP = 0.2
"""The smallest share of the steps that forms a group."""

MIDDLE_HALF = 1.0
"""If the middle half of the steps is wider than this share of their median, the median is not the usual step."""

LEAST_STEPS = 5
"""Least number of steps of a level."""

LEAST_CHANGE = 0.05
"""Least difference of two levels, as a share of the first one's median."""

ROUNDING = 1e-9
"""Largest error of a sum of distances, as a share of the sum of the distances of all steps to their median."""

CHANCE = 0.001
"""A change of level counts if chance explains it with at most this probability."""


@dataclass(frozen=True)
class Level:
    """Steps that follow each other and take about the same time."""

    begin: int  # the place of its first step among the timed ones
    end: int  # the index after its last step
    time_s: float  # the median of its steps; their mean if the steps are of two kinds, or very different


MAJORITY = 2 / 3
"""The least share of all steps that one level stands for. With less, the steps differ, and all of them count."""


def find_level(times: Sequence[float], place: int | None) -> Level:
    """The level of step times that a step lies in; if ``place`` is ``None``, one of two thirds of the steps.

    Args:
        times: seconds, in order; not empty.
        place: the index of the step; an index behind the last step counts as that of the last.
    """
    begin, end = 0, len(times)
    while (change := find_change(times[begin:end])) is not None:
        sides = (begin, begin + change), (begin + change, end)
        if place is None:
            most = max(reversed(sides), key=lambda side: side[1] - side[0])
            if most[1] - most[0] < MAJORITY * len(times):
                break
            begin, end = most
        else:
            begin, end = sides[place >= begin + change]
    return Level(begin, end, compute_typical_time(times[begin:end]))


def compute_typical_time(times: Sequence[float]) -> float:
    """The median of step times; their mean if they come in two groups, or vary widely: a profile averages them, too."""
    means = len(find_groups(times)) == 2 or vary_widely(times)
    return statistics.mean(times) if means else statistics.median(times)


def vary_widely(times: Sequence[float]) -> bool:
    """Whether step times differ so much that the median is not the usual step, for example if a loader stalls."""
    if len(times) < LEAST_STEPS:
        return False
    low, middle, high = statistics.quantiles(times, n=4)
    return high - low >= MIDDLE_HALF * middle > 0


def find_groups(times: Sequence[float]) -> list[list[float]]:
    """The step times in two groups if these are far apart; else in one."""
    ordered = sorted(times)
    if len(ordered) < LEAST_STEPS:
        return [ordered]
    gap, place = max((after - before, at) for at, (before, after) in enumerate(itertools.pairwise(ordered), 1))
    groups = [ordered[:place], ordered[place:]]
    large = min(map(len, groups)) >= max(2, SMALLEST_GROUP * len(times))
    within = max(one[-1] - one[0] for one in groups)
    return groups if large and gap >= APART * statistics.median(times) and gap > within else [ordered]


def find_change(times: Sequence[float]) -> int | None:
    """The index of the step at which the level of step times changes; ``None`` if it does not.

    Pettitt's test (Applied Statistics 28, 1979) compares ranks, so single long steps do not decide. If a straight line
    describes the times better, they drift, and the level does not change.
    """
    count = len(times)
    if count < 2 * LEAST_STEPS:
        return None
    ranks = _rank_values(times)
    sums = list(itertools.accumulate(ranks))
    excess = max(abs(2 * sums[place - 1] - place * (count + 1)) for place in range(1, count))
    if 2 * math.exp(-6 * excess**2 / (count**3 + count**2)) >= CHANCE:
        return None
    before, after = _compute_errors_of_prefixes(times), _compute_errors_of_prefixes(times[::-1])
    errors = {at: before[at] + after[count - at] for at in range(LEAST_STEPS, count - LEAST_STEPS + 1)}
    least = min(errors.values()) + ROUNDING * before[count]
    place = min((at for at, error in errors.items() if error <= least), key=lambda at: _compute_step_error(times, at))
    first, second = statistics.median(times[:place]), statistics.median(times[place:])
    if abs(second - first) < LEAST_CHANGE * first or _compute_step_error(times, place) >= _compute_line_error(times):
        return None
    return place


def _rank_values(values: Sequence[float]) -> list[float]:
    """The rank of each value, from 1; equal values share their mean rank."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    for _, group in itertools.groupby(enumerate(order, 1), key=lambda one: values[one[1]]):
        places = list(group)
        for _, index in places:
            ranks[index] = (places[0][0] + places[-1][0]) / 2
    return ranks


def _compute_errors_of_prefixes(values: Sequence[float]) -> list[float]:
    """For each prefix of the values, the sum of the distances to its median, up to rounding."""
    lower: list[float] = []  # negative, so that the largest comes first
    upper: list[float] = []
    below = above = 0.0
    errors = [0.0]
    for value in values:
        moved = -heapq.heappushpop(lower, -value)
        heapq.heappush(upper, moved)
        below, above = below + value - moved, above + moved
        if len(upper) > len(lower):
            moved = heapq.heappop(upper)
            heapq.heappush(lower, -moved)
            below, above = below + moved, above - moved
        errors.append(above - below - (len(lower) - len(upper)) * lower[0])
    return errors


def _compute_step_error(times: Sequence[float], place: int) -> float:
    levels = [(part, statistics.median(part)) for part in (times[:place], times[place:])]
    return math.fsum(abs(value - level) for part, level in levels for value in part)


def _compute_line_error(times: Sequence[float]) -> float:
    slope, offset = statistics.linear_regression(range(len(times)), times)
    return math.fsum(abs(value - offset - slope * place) for place, value in enumerate(times))

"""What samples of a time say, and how surely: medians with exact intervals, paired ratios, verdicts.

Everything is about medians and ranks, because times have long tails to one side and no bell shape. An interval of a
median is read off the order statistics: each sample lies below the median with probability one half, whatever their
distribution (David and Nagaraja, Order Statistics, 7.1), so that its coverage is known and nothing is resampled.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ..records.tuning import Ratio, Timing

CONFIDENCE = 0.95
VERDICT_CONFIDENCE = 0.995
"""Of the interval that a verdict hangs on: a config against itself must hardly ever be called faster."""

EFFECT = 0.01
SHORT_EFFECT = 0.03
SHORT_S = 5e-6
"""What is at least asked of a difference: 1%, and 3% of kernels so short that their times come in steps."""

DRIFT = 0.03


def summarize(samples: Sequence[float]) -> Timing:
    """The timing of one or more samples, in seconds and in the order in which they were taken."""
    low, high = median_interval(samples)
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


def median_interval(samples: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The narrowest pair of samples that encloses the median with at least this confidence.

    Where there are too few samples for it, the smallest and the largest.
    """
    ordered = sorted(samples)
    left_out = max(_left_out(len(ordered), confidence), 0)
    return ordered[left_out], ordered[-1 - left_out]


def samples_needed(confidence: float) -> int:
    """The fewest samples of which the extremes enclose the median with this confidence."""
    return 1 + math.ceil(-math.log2(1 - confidence))


@functools.cache
def _left_out(count: int, confidence: float) -> int:
    """How many samples may be left out at either end; -1 where not even all of them suffice."""
    tail, found = 0.0, -1
    for number in range(count // 2 + 1):
        tail += math.comb(count, number) / 2**count
        if 1 - 2 * tail < confidence:
            break
        found = number
    return min(found, (count - 1) // 2)


def paired_ratio(times: Sequence[float], others: Sequence[float], confidence: float = VERDICT_CONFIDENCE) -> Ratio:
    """How long ``times`` are in units of ``others``: the median of the ratios of samples that were taken in pairs.

    What both of a pair suffered (a clock that sank, a neighbour) cancels.

    Raises:
        ValueError: they are not of one length, or there are none.
    """
    ratios = [time / other for time, other in zip(times, others, strict=True) if other > 0]
    if not ratios:
        raise ValueError("no pairs of samples")
    low, high = median_interval(ratios, confidence)
    return Ratio(statistics.median(ratios), low, high, len(ratios))


def smallest_effect(time_s: float) -> float:
    """The relative difference that counts for a kernel of this time."""
    return EFFECT if time_s >= SHORT_S else SHORT_EFFECT


def verdict(ratio: Ratio, effect: float = EFFECT) -> str:
    """``faster``, ``slower``, ``same`` or ``undecided``, of what took ``ratio`` times as long as another.

    ``faster`` and ``slower`` need an interval without 1 and a difference of ``effect``; ``same`` an interval in which
    no such difference lies. Nothing is rounded up into a win.
    """
    if ratio.pairs >= samples_needed(VERDICT_CONFIDENCE):
        if ratio.high < 1 and ratio.median <= 1 - effect:
            return "faster"
        if ratio.low > 1 and ratio.median >= 1 + effect:
            return "slower"
        if ratio.low > 1 - effect and ratio.high < 1 + effect:
            return "same"
    return "undecided"


@dataclass(frozen=True)
class Drift:
    """How much longer the last third of some samples took than the first: ``change`` is relative to the first."""

    change: float
    sure: bool


def find_drift(samples: Sequence[float]) -> Drift:
    """Whether times rose or sank while they were measured, as when a clock is throttled."""
    third = len(samples) // 3
    if third < 3:
        return Drift(0.0, False)
    first, last = samples[:third], samples[-third:]
    change = statistics.median(last) / statistics.median(first) - 1 if statistics.median(first) else 0.0
    apart = max(first) < min(last) or max(last) < min(first)
    return Drift(change, apart and abs(change) >= DRIFT)

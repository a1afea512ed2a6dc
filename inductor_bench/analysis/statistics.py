"""Statistics of sampled times: medians with exact confidence intervals, paired ratios, verdicts and drift.

All statistics use medians and ranks, because times have one long tail and are not normally distributed. The interval
of a median comes from the order statistics: each sample lies below the median with probability one half, whatever the
distribution (David and Nagaraja, Order Statistics, 7.1). Its coverage is therefore exact without resampling.
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
"""Confidence of the interval that a verdict uses. High, so that a config compared with itself is rarely faster."""

EFFECT = 0.01
SHORT_EFFECT = 0.03
SHORT_S = 5e-6
"""Smallest relative difference that counts: ``EFFECT``, and ``SHORT_EFFECT`` for kernels shorter than ``SHORT_S``
seconds, whose times have the coarse steps of the clock."""

DRIFT = 0.03
"""Smallest relative change from the first to the last third of the samples that counts as drift."""


def summarize(samples: Sequence[float]) -> Timing:
    """Summarizes one or more samples in a timing.

    Args:
        samples: seconds, in the order in which they were taken.
    """
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
    """The narrowest symmetric pair of ranked samples that encloses the median with at least this confidence.

    Returns:
        ``(low, high)``; the smallest and the largest sample where there are too few samples for the confidence.
    """
    ordered = sorted(samples)
    trimmed = max(_count_trimmed(len(ordered), confidence), 0)
    return ordered[trimmed], ordered[-1 - trimmed]


def samples_needed(confidence: float) -> int:
    """The smallest number of samples whose extremes enclose the median with this confidence."""
    return 1 + math.ceil(-math.log2(1 - confidence))


@functools.cache
def _count_trimmed(count: int, confidence: float) -> int:
    """The number of samples to leave out at either end; -1 where even all samples do not reach the confidence."""
    tail, found = 0.0, -1
    for number in range(count // 2 + 1):
        tail += math.comb(count, number) / 2**count
        if 1 - 2 * tail < confidence:
            break
        found = number
    return min(found, (count - 1) // 2)


def paired_ratio(times: Sequence[float], others: Sequence[float], confidence: float = VERDICT_CONFIDENCE) -> Ratio:
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
    low, high = median_interval(ratios, confidence)
    return Ratio(statistics.median(ratios), low, high, len(ratios))


def smallest_effect(time_s: float) -> float:
    """The smallest relative difference that counts for a kernel of this time in seconds."""
    return EFFECT if time_s >= SHORT_S else SHORT_EFFECT


def verdict(ratio: Ratio, effect: float = EFFECT) -> str:
    """Decides from the ratio of a kernel's time to another's: ``faster``, ``slower``, ``same`` or ``undecided``.

    ``faster`` and ``slower`` need an interval that excludes 1 and a median difference of at least ``effect``. ``same``
    needs an interval within ``effect`` of 1.
    """
    enough = ratio.pairs >= samples_needed(VERDICT_CONFIDENCE)
    return judge_ratio(ratio.median, ratio.low, ratio.high, effect) if enough else "undecided"


def judge_ratio(middle: float, low: float, high: float, effect: float) -> str:
    """The verdict of :func:`verdict` from the middle of a ratio and the ends of its interval."""
    if high < 1 and middle <= 1 - effect:
        return "faster"
    if low > 1 and middle >= 1 + effect:
        return "slower"
    return "same" if low > 1 - effect and high < 1 + effect else "undecided"


@dataclass(frozen=True)
class Drift:
    """The change of the median from the first to the last third of the samples, relative to the first.

    ``sure`` is true where the two thirds do not overlap and the change is at least :data:`DRIFT`.
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

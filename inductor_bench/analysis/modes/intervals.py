"""Confidence intervals over a few processes.

A process is one sample: what differs from process to process (the memory layout, the clock, the machine's other work)
is common to all of its steps, so that more steps of one process do not make it surer. The logarithms of the processes'
mean steps are taken as normally distributed, and Student's t allows for their small number.

Two or three processes say little about their own spread: with two, t is 63.7. There a second interval counts where it
is narrower: that of a normal distribution whose standard deviation is :data:`NOISE`, or what the values show if that is
more. Both together keep the confidence: nine tenths of what may lie outside are left to Student's t, one to the other.
On a CPU that deviation has no bound: 0 to 8 busy programs beside it make a process take up to several times as long.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ..statistics import EFFECT, judge_ratio

SHOWN, DECIDING = 0.95, 0.99
"""Confidence of the intervals that are shown, and of those that decide which row is faster."""

_QUANTILES = {
    SHOWN: (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    DECIDING: (
        63.657,
        9.925,
        5.841,
        4.604,
        4.032,
        3.707,
        3.499,
        3.355,
        3.250,
        3.169,
        3.106,
        3.055,
        3.012,
        2.977,
        2.947,
    ),
}
"""Two-sided quantiles of Student's t for 1 to 15 degrees of freedom, by the confidence."""

MOST_ROUNDS = 1 + len(_QUANTILES[SHOWN])

FEW = 3
"""Number of values up to which :data:`NOISE` is used."""

NOISE = 0.4
"""Largest standard deviation that the logarithms of the steps of equal processes are taken to have. Seen on an H200,
between two processes each of a decode loop: 0.05 with CUDA graphs, 0.07 to 0.37 where the host sets the pace."""

_MOST_OF_T = {SHOWN: (14.124, 4.553), DECIDING: (70.731, 10.470)}
"""Two-sided quantiles of Student's t for 1 and 2 degrees of freedom, with nine tenths of the probability outside."""

_NORMAL = {SHOWN: 2.807, DECIDING: 3.291}
"""Two-sided quantiles of the normal distribution, with one tenth of the probability outside."""


@dataclass(frozen=True)
class LogInterval:
    """The geometric mean of positive numbers and its confidence interval."""

    mean: float
    low: float
    high: float


def geometric_interval(values: Sequence[float], confidence: float, noise: float = NOISE) -> LogInterval | None:
    """The geometric mean with its interval; ``None`` for fewer than two values.

    Args:
        values: positive numbers.
        confidence: ``SHOWN`` or ``DECIDING``.
        noise: the standard deviation that their logarithms have at most, for few values.
    """
    count = len(values)
    if count < 2:
        return None
    logs = [math.log(value) for value in values]
    middle, deviation = statistics.fmean(logs), statistics.stdev(logs)
    if count <= FEW:
        quantile = _MOST_OF_T[confidence][count - 2]
        reach = min(quantile * deviation, _NORMAL[confidence] * max(noise, deviation)) / math.sqrt(count)
    else:
        reach = _QUANTILES[confidence][min(count, MOST_ROUNDS) - 2] * deviation / math.sqrt(count)
    return LogInterval(math.exp(middle), math.exp(middle - reach), math.exp(middle + reach))


def decide(interval: LogInterval, effect: float = EFFECT) -> str:
    """``faster``, ``slower``, ``same`` or ``undecided``, from the interval of the ratio of a step to another's.

    The first two need an interval that excludes 1 and a mean difference of at least ``effect``; ``same`` needs an
    interval within ``effect`` of 1.
    """
    return judge_ratio(interval.mean, interval.low, interval.high, effect)

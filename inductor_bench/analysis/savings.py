"""What a program saves per step with other kernels, from steps that alternate between the two."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ..records.retune import NO_DIFFERENCE, SAVES, SLOWER, UNDECIDED, Saving
from .statistics import CONFIDENCE, VERDICT_CONFIDENCE, median_interval, samples_needed

EFFECT = 0.002
"""Smallest share of a step that counts as a difference. Smaller than a kernel's, because a step repeats better."""


@dataclass(frozen=True)
class TimedStep:
    """One time in seconds, and whether the pins were in use."""

    tuned: bool
    time_s: float


def measure_saving(samples: Sequence[TimedStep]) -> Saving | None:
    """The saving of neighbouring samples, of which one ran the pins; ``None`` without such a pair.

    Samples that come in the order own, tuned, tuned, own and its reverse make pairs in which a slow drift cancels.
    """
    pairs = _pairs(samples)
    if not pairs:
        return None
    differences = [own - tuned for own, tuned in pairs]
    own_s = statistics.median(own for own, _ in pairs)
    low, high = median_interval(differences, CONFIDENCE)
    middle = statistics.median(differences)
    return Saving(
        own_s=own_s,
        tuned_s=statistics.median(tuned for _, tuned in pairs),
        saving_s=middle,
        low_s=low,
        high_s=high,
        pairs=len(pairs),
        verdict=_judge(differences, middle, own_s, low, high),
    )


def _pairs(samples: Sequence[TimedStep]) -> list[tuple[float, float]]:
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
    """The verdict by a surer interval than the one that is shown; undecided where the two say different things."""
    if len(differences) < samples_needed(VERDICT_CONFIDENCE):
        return UNDECIDED
    low, high = median_interval(differences, VERDICT_CONFIDENCE)
    effect = EFFECT * own_s
    if low > 0 and middle >= effect:
        return SAVES
    if high < 0 and middle <= -effect:
        return SLOWER
    return UNDECIDED if (shown_low > 0 or shown_high < 0) and abs(middle) >= effect else NO_DIFFERENCE


def judge_processes(own: Sequence[float], tuned: Sequence[float]) -> Saving | None:
    """The saving of whole processes that ran in turn, each with the median of its steps in seconds.

    The interval is the range of the differences. A difference counts where each process with the pins is faster than
    each without, or slower, and the median is at least :data:`PROCESS_EFFECT` of the step and :data:`SPREADS` times the
    range of equal processes: of four equal processes, two are faster than the others in one case of three.
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
"""Smallest share of such a difference of the step that the device has to show, too."""


def borne_out(step: Saving, device: Saving | None) -> bool:
    """Whether the device's own time shows a difference of the step that was found between processes.

    Configs of kernels change what the device does. What else differs between two processes is the pace of their hosts.
    """
    if device is None or step.verdict not in (SAVES, SLOWER):
        return True
    return device.saving_s * math.copysign(1.0, step.saving_s) >= DEVICE_SHARE * abs(step.saving_s)

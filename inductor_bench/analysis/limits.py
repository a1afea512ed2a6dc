"""The answer of ``--fail-above``: the whole interval of a difference is within the limit, above it, or neither."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..records.comparison import FASTER, SLOWER, UNDECIDED, Change, Pairing
from ..records.retune import SAVES, STEPS, Verification
from ..units import percent
from .statistics import (
    EFFECT,
    PROCESS_EFFECT,
    STEP_EFFECT,
    VERDICT_CONFIDENCE,
    count_needed_samples,
    find_smallest_effect,
)


@dataclass(frozen=True)
class Slowdown:
    """How much longer one time is than another: an interval, in shares of the other time."""

    low: float = -math.inf  # negative if it may be shorter; infinite if nothing is known
    high: float = math.inf
    # the smallest difference that counts, if no verdict says that there is one; else 0
    effect: float = 0.0


def compute_slowdown(step: Change) -> Slowdown:
    """Computes how much longer B's step is than A's."""
    if step.low_s is None or step.high_s is None or not step.a_s:
        return Slowdown()
    counts = step.verdict in (SLOWER, FASTER)
    return Slowdown(step.low_s / step.a_s, step.high_s / step.a_s, 0.0 if counts else EFFECT)


def compute_slowdown_of_kernels(pair: Pairing) -> Slowdown:
    """Computes how much longer the second kernel runs than the first; unknown if there are few pairs."""
    ratio = pair.ratio
    if ratio is None or ratio.pairs < count_needed_samples(VERDICT_CONFIDENCE):
        return Slowdown()
    counts = pair.verdict in (SLOWER, FASTER)
    return Slowdown(ratio.low - 1, ratio.high - 1, 0.0 if counts else find_smallest_effect(pair.first_s or 0.0))


def compute_slowdown_of_proof(found: Verification) -> Slowdown:
    """Computes how much longer a step is with the configs.

    It is unknown if there are few pairs, if the device does not confirm it, and if no kernel ran a config.
    """
    step, by_steps = found.step if found.pinned else None, found.way == STEPS
    few = step is not None and step.pairs < count_needed_samples(VERDICT_CONFIDENCE)
    if step is None or not step.own_s or (few if by_steps else step.verdict == UNDECIDED):
        return Slowdown()
    counts, effect = step.verdict in (SAVES, SLOWER), STEP_EFFECT if by_steps else PROCESS_EFFECT
    return Slowdown(-step.high_s / step.own_s, -step.low_s / step.own_s, 0.0 if counts else effect)


def judge_limit(found: Slowdown, limit: float) -> str:
    """Compares a difference with a limit (a share): ``slower``, ``undecided``, or empty if the difference passes.

    A difference passes if its whole interval is at most the limit, and is ``slower`` if its whole interval is above the
    limit. A difference that is too small to count proves neither, so the interval is at least as wide as such a
    difference.
    """
    low, high = found.low, found.high
    if found.effect:
        low, high = min(low, -found.effect), max(high, found.effect)
    return "" if high <= limit else SLOWER if low > limit else UNDECIDED


def describe_limit(found: Slowdown, limit: float) -> str:
    """The answer of :func:`judge_limit` in words: ``Limit of 5%: passed, because the whole interval, -1.0% to +2.0%, is
    at most the limit``."""
    said, judged = f"Limit of {100 * limit:g}%", judge_limit(found, limit)
    if not math.isfinite(found.low + found.high):
        return f"{said}: undecided, because the measurements are too few for an interval"
    interval = f"{_format_signed(found.low)} to {_format_signed(found.high)},"
    if not judged:
        return f"{said}: passed, because the whole interval, {interval} is at most the limit"
    if judged == SLOWER:
        return f"{said}: failed, because the whole interval, {interval} is above the limit"
    if found.low <= limit < found.high:
        return f"{said}: undecided, because the interval, {interval} includes the limit"
    if min(abs(found.low), abs(found.high)) > found.effect and found.low * found.high > 0:
        return f"{said}: undecided, because nothing is decided about the difference, {interval[:-1]}"
    return f"{said}: undecided, because a difference of less than {percent(found.effect)} does not count"


def _format_signed(share: float) -> str:
    text = percent(abs(share))
    return text if text in ("0%", "<0.1%") else f"{'-' if share < 0 else '+'}{text}"

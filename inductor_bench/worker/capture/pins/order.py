"""The steps of a comparison: how many there are, and which of them run the pins."""

from __future__ import annotations

import math

WARM_UP = 4
"""Steps that alternate before the timed ones: a configuration is loaded by its first launch."""

TIMED_STEPS = (24, 120)
"""Minimum and maximum number of timed steps. A verdict needs 9 pairs; see ``analysis.savings``."""

TIMED_S = 3.0
"""Minimum time of the timed steps in seconds, unless they are the maximum number."""

PROFILED_STEPS = (20, 40)
PROFILED_S = 0.4
"""The same for the profiled steps, of which the first one does not count."""


def is_tuned(place: int) -> bool:
    """Whether a step runs the pins: own, tuned, tuned, own, then tuned, own, own, tuned, and so on (Thue-Morse).

    Drifts cancel, and so does what the program does in every second, fourth or eighth step only.
    """
    return place.bit_count() % 2 == 1


def count_steps(step_s: float) -> tuple[int, int]:
    """The numbers of timed and of profiled steps, by the time of a step in seconds."""
    return _count(step_s, TIMED_S, *TIMED_STEPS), _count(step_s, PROFILED_S, *PROFILED_STEPS)


def _count(step_s: float, time_s: float, least: int, most: int) -> int:
    """The number of steps for a time, within limits, in whole fours."""
    return min(most, max(least, 4 * math.ceil(time_s / max(step_s, 1e-6) / 4)))

"""What a kernel can win for the step, and where the search for it stops being worth its time. Pure functions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

UNKNOWN_HEADROOM = 0.5
"""Share of a kernel's time that counts as its most possible gain where no roof is known."""

SLACK = 0.03
"""Share of a kernel's time that is added to its gain limit: its time in the step and its roof are not exact."""

LEFT_AT_LEAST = 0.05
"""Share of a candidate's time that may be left to win whatever the roof says."""

NEGLIGIBLE = 0.02
"""Share of what all kernels can win that the kernels together may win which are left as they are."""

MUCH_LEFT_AFTER_GAIN, MUCH_LEFT_WITHOUT = 2, 4
"""A search goes on after little gain while at least this multiple of the least gain is left to win: the first number
after candidates that gained something, the second after candidates that gained nothing. With these numbers, simulated
searches of 146 kernels of mixnet_l found 97.9% of what searches to the end found, with 74% of the candidates."""

FEW = 32
"""Number of kernels up to which each is tuned to the end of its search."""

GENERATED_COST_S = 0.25
LIBRARY_COST_S = 20.0
"""Usual seconds for the search of a generated kernel, and of a library call, whose choices Inductor compiles first."""

LIBRARY_PRIOR = 0.2
"""Expected gain of a library call as a share of that of a generated kernel with the same gain limit."""


@dataclass(frozen=True)
class Stake:
    """What is at stake with one kernel.

    Attributes:
        time_s: its seconds in one step.
        gain_limit_s: seconds of the step that would be saved at its roof; ``None`` where no roof is known.
        is_library_call: whether it is a library call.
    """

    time_s: float
    gain_limit_s: float | None = None
    is_library_call: bool = False

    @property
    def most_s(self) -> float:
        """The seconds of the step that the kernel can win at most."""
        limit = UNKNOWN_HEADROOM * self.time_s if self.gain_limit_s is None else self.gain_limit_s
        return min(limit + SLACK * self.time_s, self.time_s)

    @property
    def rank(self) -> float:
        """The expected saving by seconds of search: the kernel with the largest rank is tuned first."""
        return self.most_s * LIBRARY_PRIOR / LIBRARY_COST_S if self.is_library_call else self.most_s / GENERATED_COST_S

    def left_s(self, relative_time: float) -> float:
        """The seconds of the step that are left to win beyond a candidate with this time, relative to the default's."""
        now_s = relative_time * self.time_s
        return max(self.most_s - (self.time_s - now_s), LEFT_AT_LEAST * now_s)


@dataclass(frozen=True)
class Pruning:
    """Decides when the search of one kernel ends early.

    Attributes:
        stake: what is at stake with the kernel.
        least_s: seconds of the step below which a further gain is not searched for.
    """

    stake: Stake
    least_s: float

    def ends(self, before: float, now: float) -> bool:
        """Whether to end the search after candidates that moved the best relative time from ``before`` to ``now``.

        It ends where little is left to win, and where little was gained unless much is left: a search that goes step by
        step may gain little by one step and much by the next.
        """
        left_s, gained_s = self.stake.left_s(now), (before - now) * self.stake.time_s
        much = MUCH_LEFT_AFTER_GAIN if gained_s > 0 else MUCH_LEFT_WITHOUT
        return left_s < self.least_s or (gained_s < self.least_s and left_s < much * self.least_s)


def find_least(stakes: Collection[Stake]) -> float:
    """The gain in seconds of the step below which generated kernels are left as they are; 0 for few kernels.

    The kernels that can win less than this can win ``NEGLIGIBLE`` of what all can, all together.
    """
    ranked = sorted(stake.most_s for stake in stakes if not stake.is_library_call)
    if len(ranked) <= FEW:
        return 0.0
    left = NEGLIGIBLE * sum(ranked)
    for most_s in ranked:
        left -= most_s
        if left < 0:
            return most_s
    return 0.0

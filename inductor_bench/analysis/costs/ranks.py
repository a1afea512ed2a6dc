"""Which process of a distributed program sets the pace of its step."""

from __future__ import annotations

from collections.abc import Sequence

from ...records.program import COLLECTIVE, IDLE, RankSteps

EQUAL = 0.02
"""Difference of two ranks' step times, as a share of the longer one, up to which collectives keep them in step."""


def pace_setter(ranks: Sequence[RankSteps]) -> RankSteps:
    """The rank that the others wait for.

    Of the ranks whose steps are as long as the longest, it spends the least time in exposed collectives: in these a
    rank waits for the last one to arrive. Ranks with a profile come first.
    """
    profiled = [rank for rank in ranks if rank.parts] or ranks
    longest = max(rank.step_time_s for rank in profiled)
    as_long = [rank for rank in profiled if rank.step_time_s >= (1 - EQUAL) * longest]
    return min(as_long, key=lambda rank: (exposed_s(rank), -rank.step_time_s))


def exposed_s(rank: RankSteps) -> float:
    """Seconds of the step in collectives that no other work hides."""
    return sum(part.time_s for part in rank.parts if part.kind == COLLECTIVE)


def idle_s(rank: RankSteps) -> float:
    """Seconds of the step in which the rank's device is idle."""
    return sum(part.time_s for part in rank.parts if part.kind == IDLE)


def work_s(rank: RankSteps) -> float:
    """Seconds of the step in which the rank's device computes or copies: neither idle nor only in collectives."""
    return sum(part.time_s for part in rank.parts if part.kind not in (COLLECTIVE, IDLE))

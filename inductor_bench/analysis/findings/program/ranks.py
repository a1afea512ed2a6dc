"""Rules about programs of several processes: collectives, and differences between ranks."""

from __future__ import annotations

from collections.abc import Iterator

from .... import units
from ....records.program import COLLECTIVE, IDLE, RankSteps
from ...costs.ranks import exposed_s, pace_setter
from ...costs.step import parts_of, step_of
from ..evidence import LEAST_SHARE, RunEvidence
from ..finding import ADVICE, CAUTION, NOTE, Finding
from .words import share_words

EXPOSED = 0.03  # share of the step in exposed collectives from which they are advice
UNEVEN = 0.05  # difference of the ranks' times in exposed collectives, as a share of the step, that is reported


def collectives(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports collectives, and how much of them other work hides."""
    run = evidence.run
    parts = parts_of(run, COLLECTIVE)
    exposed, hidden = sum(part.time_s for part in parts), sum(part.hidden_s for part in parts)
    if exposed + hidden < LEAST_SHARE * evidence.whole.time_s:
        return
    text = (
        f"collectives take {share_words(run, exposed)} of a step exposed, and {units.seconds(hidden)} behind other work"
    )
    matters = exposed >= EXPOSED * evidence.whole.time_s
    if matters:
        text += ": start them earlier or in larger buckets, or let more work run beside them"
    yield Finding("collectives", text, level=ADVICE if matters else NOTE, gain_s=exposed if matters else 0.0)


def uneven_ranks(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports the rank that the others wait for in their collectives."""
    program = step_of(evidence.run)
    ranks = [rank for rank in program.ranks if rank.parts] if program else []
    if len(ranks) < 2:
        return
    awaited, waiting = pace_setter(ranks), max(ranks, key=exposed_s)
    if exposed_s(waiting) - exposed_s(awaited) < UNEVEN * awaited.step_time_s:
        return
    idle = sum(part.time_s for part in awaited.parts if part.kind == IDLE)
    text = (
        f"{rank_name(waiting)} is {units.seconds(exposed_s(waiting))} of a step in exposed collectives, "
        f"{rank_name(awaited)} {units.seconds(exposed_s(awaited))}: the others wait for {rank_name(awaited)}, which "
        f"works {units.seconds(awaited.step_time_s - idle - exposed_s(awaited))} and is idle {units.seconds(idle)}"
    )
    yield Finding("uneven-ranks", text, level=CAUTION)


def rank_name(rank: RankSteps) -> str:
    """Returns ``rank 3``, or the process where it has no rank."""
    return f"process {rank.pid}" if rank.rank is None else f"rank {rank.rank}"

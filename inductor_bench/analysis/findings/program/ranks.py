"""Rules about programs of several processes: collectives, and differences between ranks."""

from __future__ import annotations

from collections.abc import Iterator

from .... import units
from ....records.program import COLLECTIVE, IDLE, RankSteps
from ...costs.step import parts_of, step_of
from ..evidence import LEAST_SHARE, RunEvidence
from ..finding import ADVICE, CAUTION, NOTE, Finding
from .words import share_words

EXPOSED = 0.03  # share of the step in exposed collectives from which they are advice
UNEVEN = 0.05  # difference of the ranks' busy times, as a share of the longest, from which it is reported


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
    """Reports ranks of which one works longer than another, so that the others wait for it."""
    program = step_of(evidence.run)
    works = [(rank_work_s(rank), rank) for rank in program.ranks] if program else []
    if len(works) < 2 or any(work is None for work, _ in works):
        return
    least, most = min(works, key=lambda one: one[0] or 0.0), max(works, key=lambda one: one[0] or 0.0)
    difference = (most[0] or 0.0) - (least[0] or 0.0)
    if difference < UNEVEN * (most[0] or 0.0):
        return
    text = (
        f"{rank_name(most[1])} works {units.seconds(most[0])} of a step, {rank_name(least[1])} "
        f"{units.seconds(least[0])}: the others wait for it in their collectives"
    )
    yield Finding("uneven-ranks", text, level=CAUTION)


def rank_work_s(rank: RankSteps) -> float | None:
    """The seconds of the step in which a rank's device works, without collectives; ``None`` without a profile."""
    if not rank.parts:
        return None
    return sum(part.time_s for part in rank.parts if part.kind not in (COLLECTIVE, IDLE))


def rank_name(rank: RankSteps) -> str:
    """Returns ``rank 3``, or the process where it has no rank."""
    return f"process {rank.pid}" if rank.rank is None else f"rank {rank.rank}"

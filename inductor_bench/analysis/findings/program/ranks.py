"""Rules about programs of several processes: collectives, and differences between ranks."""

from __future__ import annotations

from collections.abc import Iterator

from .... import units
from ....records.program import COLLECTIVE, COPY, EAGER, IDLE, QUEUED, RankSteps
from ...costs.ranks import exposed_s, idle_s, pace_setter, work_s
from ...costs.step import host_sets_pace, parts_of, step_of
from ..evidence import LEAST_SHARE, RunEvidence
from ..finding import ADVICE, CAUTION, NOTE, Finding
from .words import share_words

EXPOSED = 0.03  # share of the step in exposed collectives from which they are advice
UNEVEN = 0.05  # difference of the ranks' times in exposed collectives, as a share of the step, that is reported
MAIN = 0.5  # share of that difference from which one reason explains it


def collectives(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports collectives, and how much of them other work hides; advice only where the device sets the pace."""
    run = evidence.run
    parts = parts_of(run, COLLECTIVE)
    exposed, hidden = sum(part.time_s for part in parts), sum(part.hidden_s for part in parts)
    if exposed + hidden < LEAST_SHARE * evidence.whole.time_s:
        return
    text = f"collectives take {share_words(run, exposed)} of a step exposed"
    text += f", and {units.seconds(hidden)} behind computation"
    matters = exposed >= EXPOSED * evidence.whole.time_s and not host_sets_pace(run)
    if matters:
        text += ": start them earlier or in larger buckets, or let more work run beside them"
    yield Finding("collectives", text, level=ADVICE if matters else NOTE, gain_s=exposed if matters else 0.0)


def gradient_copies(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports DDP's copies of gradients out of its buckets: as many copies as gradients, beside all-reduces."""
    run = evidence.run
    copies = [part for part in parts_of(run, COPY) if part.label == "device to device"]
    count, time_s = (sum(getattr(part, name) for part in copies) for name in ("calls", "time_s"))
    gradients = sum(part.calls for part in parts_of(run, EAGER) if part.label == "AccumulateGrad")
    reduced = any(part.label == "AllReduce" for part in parts_of(run, COLLECTIVE))
    if not reduced or not gradients or round(count) != round(gradients) or time_s < LEAST_SHARE * evidence.whole.time_s:
        return
    text = (
        f"DDP seems to copy each gradient out of its buckets: {units.count(count)} copies, {share_words(run, time_s)} "
        "of a step: DistributedDataParallel(model, gradient_as_bucket_view=True) spares them"
    )
    yield Finding("gradient-copies", text, gain_s=time_s)


def uneven_ranks(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports the rank that the others wait for in their collectives."""
    program = step_of(evidence.run)
    ranks = [rank for rank in program.ranks if rank.parts] if program else []
    if len(ranks) < 2:
        return
    awaited, waiting = pace_setter(ranks), max(ranks, key=exposed_s)
    longer_s = exposed_s(waiting) - exposed_s(awaited)
    if longer_s < UNEVEN * awaited.step_time_s:
        return
    first, last = rank_name(waiting), rank_name(awaited)
    others = [rank for rank in ranks if rank is not awaited]
    late = [rank for rank in others if exposed_s(rank) - exposed_s(awaited) >= UNEVEN * awaited.step_time_s]
    many = "all others wait" if len(late) == len(others) else f"{len(late)} of {len(others)} other ranks wait"
    who = f"{first} waits for {last}" if len(late) == 1 else f"{many} for {last}, {first} longest"
    text = (
        f"{who}: exposed collectives take {units.seconds(exposed_s(waiting))} of the step of {first}, and "
        f"{units.seconds(exposed_s(awaited))} of that of {last}, {_reason(awaited, waiting, longer_s)}"
    )
    yield Finding("uneven-ranks", text, level=CAUTION)


def _reason(awaited: RankSteps, waiting: RankSteps, longer_s: float) -> str:
    """Why a rank comes last to the collectives: its host, its device's work, or what the trace does not tell apart."""
    first, last = rank_name(waiting), rank_name(awaited)
    works, idle = units.seconds(work_s(awaited)), units.seconds(idle_s(awaited))
    host_s = sum(part.time_s for part in awaited.parts if part.kind == IDLE and part.label != QUEUED)
    if work_s(awaited) - work_s(waiting) >= MAIN * longer_s:
        return f"whose device works {works} and not {units.seconds(work_s(waiting))}: give {last} less work"
    if host_s >= MAIN * longer_s:
        return (
            f"whose device works {works} and is idle {idle}: the host of {last} is late, not its device; the wait also "
            f"hides how long the host of {first} takes"
        )
    return f"whose device works {works} and is idle {idle}"


def rank_name(rank: RankSteps) -> str:
    """Returns ``rank 3``, or the process where it has no rank."""
    return f"process {rank.pid}" if rank.rank is None else f"rank {rank.rank}"

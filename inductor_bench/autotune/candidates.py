"""The candidates of one kernel, and their entries in the record."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..errors import InductorBenchError
from ..messages.kernels import Change, Compiled
from ..records.tuning import Config, TriedCandidate, Tuning
from .race import RaceResult, Runner

MORE_BUDGET = "give it more time with --budget"


class BudgetSpentError(InductorBenchError):
    """The budget was spent before any other configuration than that of the file was tried."""


class NoCandidatesError(InductorBenchError):
    """The kernel has no other configuration, or none that computes the same: another search would find as little.

    A candidate that could not be compiled or run does not count: it may have lacked memory.
    """


@dataclass
class Candidate:
    """One configuration of a kernel, and the results that it has so far.

    Attributes:
        config: the configuration.
        number: its number in the workers.
        change: the change that a worker makes to the kernel of the file.
        status: empty while it may win; otherwise the status of its entry in the record.
        reason: the reason for the status.
        is_prepared: whether it computed what the default computes, or failed to.
        compiled: its registers, spills and shared memory, where they are known.
        relative_time: its time divided by the default's, from the screening; ``None`` before it was screened.
        runner: its result in its last race.
        in_final: whether that race was the final.
    """

    config: Config
    number: int
    change: Change = field(default_factory=Change)
    status: str = ""
    reason: str = ""
    is_prepared: bool = False
    compiled: Compiled = field(default_factory=Compiled)
    relative_time: float | None = None
    runner: Runner | None = None
    in_final: bool = False


def describe_candidate(candidate: Candidate, default: Candidate, best: Candidate) -> TriedCandidate:
    """The entry of a candidate in the record.

    Args:
        candidate: the candidate.
        default: the kernel as the file has it.
        best: the winner; the default where no candidate was surely faster.
    """
    is_default = candidate is default
    samples = candidate.runner.samples if candidate.runner else ()
    status, reason = candidate.status, candidate.reason
    if not status:
        status = "default" if is_default else "finalist" if candidate.in_final else "slower"
        status = "best" if candidate is best and not is_default else status
        if status == "slower" and candidate.relative_time is not None:
            behind = candidate.relative_time / (best.relative_time or 1.0)
            reason = f"{behind:.2f}x the best" if behind > 1 else "others came nearer to the final"
    return TriedCandidate(
        config=candidate.config,
        status=status,
        reason=reason,
        median_s=statistics.median(samples) if samples else None,
        samples=len(samples),
        samples_s=tuple(samples),
        ratio=candidate.runner.ratio if candidate.runner and candidate.in_final else None,
        registers=candidate.compiled.registers,
        spills=candidate.compiled.spills,
        shared_memory_bytes=candidate.compiled.shared_memory_bytes,
    )


def describe_tuning(candidates: Sequence[Candidate], entrants: Sequence[Candidate], result: RaceResult) -> Tuning:
    """The outcome of a search, without its method, state and duration.

    Args:
        candidates: all candidates, the default first.
        entrants: the candidates of the final, the default first.
        result: the result of the final.
    """
    best = entrants[result.best]
    winner, default = result.runners[result.best], result.runners[0]
    contender = result.runners[result.contender if result.contender is not None else 0]
    default_s, best_s = (statistics.median(runner.samples) for runner in (default, winner))
    return Tuning(
        method="",
        state="",
        candidates=tuple(describe_candidate(one, candidates[0], best) for one in candidates),
        tried=sum(one.relative_time is not None and not one.status for one in candidates[1:]),
        default_s=default_s,
        best_s=best_s,
        speedup=1 / winner.ratio.median if winner.ratio else 1.0,
        verdict=result.verdict,
        best_config=best.config,
        ratio=contender.ratio,
    )


def make_no_verdict_error(method: str, others: Sequence[Candidate]) -> InductorBenchError:
    """The error for a search that timed no candidate but the default; ``others`` are all candidates but the default."""
    if not others:
        what, hint = f"--autotune {method} has nothing else to try for this kernel", "try --autotune exhaustive"
        return NoCandidatesError(what, hint)
    first = others[0]
    why = f"none of {len(others)} candidates could be timed; the first: {first.status}, {first.reason}"
    if all(one.status == "untried" for one in others):
        return BudgetSpentError(why, MORE_BUDGET)
    if all(one.status in ("wrong", "duplicate") for one in others):
        return NoCandidatesError(why)
    return InductorBenchError(why)

"""The candidates of one kernel, and their entries in the record."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..errors import InductorBenchError
from ..messages.kernels import Binary, Change, Compiled
from ..records.tuning import Config, TriedCandidate, Tuning
from .compile_pool import CompileOutcome
from .race import RaceResult, Runner

MORE_BUDGET = "give it more time with --budget"

PROBES, HOPELESS = 2, 20
"""Number of candidates of a template that are timed first, and the multiple of the best time beyond which the others
are left out: of the templates for a depthwise convolution, which take 230 to 1050 times as long as cuDNN, the slowest
takes five times as long as the fastest."""


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
        family: its template, if any.
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
    family: str = ""
    status: str = ""
    reason: str = ""
    is_prepared: bool = False
    compiled: Compiled = field(default_factory=Compiled)
    relative_time: float | None = None
    runner: Runner | None = None
    in_final: bool = False


def record_outcomes(
    new: Sequence[Candidate],
    built: Sequence[CompileOutcome],
    candidates: Sequence[Candidate],
    binaries: dict[tuple[str, int], Candidate],
) -> None:
    """Records compilation outcomes. A candidate with the binary of an earlier candidate becomes a duplicate.

    Args:
        new: the candidates that were compiled.
        built: their outcomes, as far as there are any.
        candidates: all candidates, the default first.
        binaries: the first candidate of each binary, to which the new ones are added.
    """
    found = {one.key: one for one in built}
    for candidate in new:
        one = found.get(candidate.number)
        if one is None or (candidate is candidates[0] and one.status):
            continue  # the timing worker reports the default's failure in plainer words
        candidate.status, candidate.reason = one.status, one.reason
        if isinstance(one.answer, Binary):
            first = binaries.setdefault((one.answer.digest, one.answer.shared_memory_bytes), candidate)
            if first is not candidate:
                place = candidates.index(first) + 1
                candidate.status, candidate.reason = "duplicate", f"compiles to what no. {place} does"


def mark_untried(candidates: Sequence[Candidate], reason: str) -> None:
    """Marks those of the candidates that were not timed and did not fail."""
    for one in candidates:
        if one.relative_time is None and not one.status:
            one.status, one.reason = "untried", reason


def split_probes(new: Sequence[Candidate]) -> tuple[list[Candidate], list[Candidate]]:
    """The candidates that are timed first, ``PROBES`` of each template among them, and the others."""
    first, rest, seen = list[Candidate](), list[Candidate](), Counter[str]()
    for one in new:
        seen[one.family] += 1
        (rest if one.family and seen[one.family] > PROBES else first).append(one)
    return first, rest


def leave_out_hopeless(rest: Sequence[Candidate], candidates: Sequence[Candidate], best: float) -> None:
    """Marks the candidates whose templates are too slow.

    Args:
        rest: the candidates that are not timed yet.
        candidates: all candidates. A template is too slow where at least ``PROBES`` of its candidates were timed, and
            each takes more than ``HOPELESS`` times the best.
        best: the best relative time so far.
    """
    for family in {one.family for one in rest}:
        timed = [each.relative_time for each in candidates if each.family == family and not each.status]
        known = [time for time in timed if time is not None]
        if len(known) >= PROBES and min(known) > HOPELESS * best:
            reason = f"{len(known)} of its template take over {HOPELESS}x as long as the best"
            mark_untried([one for one in rest if one.family == family], reason)


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

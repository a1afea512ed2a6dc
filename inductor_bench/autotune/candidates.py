"""The candidates of one kernel: what each is, and what became of it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..errors import InductorBenchError
from ..messages.kernels import Change, Compiled
from ..records.tuning import Config, TriedCandidate
from .race import Runner

MORE_BUDGET = "give it more time with --budget"


class BudgetSpentError(InductorBenchError):
    """The budget was spent before anything else than the kernel as it stands was tried."""


@dataclass
class Candidate:
    """One configuration. ``status`` is empty while it may win; ``number`` is what workers know it by.

    ``compiled`` is what it was compiled to, as far as that is known. ``relative`` is its time in units of the default's
    as far as screening tells, ``runner`` what became of it in its last race, and ``last`` whether that was the final.
    """

    config: Config
    number: int
    change: Change
    status: str = ""
    reason: str = ""
    compiled: Compiled = field(default_factory=Compiled)
    relative: float | None = None
    runner: Runner | None = None
    last: bool = False


def described(candidate: Candidate, default: Candidate, best: Candidate) -> TriedCandidate:
    """A candidate as the record has it; ``best`` is the default where nothing was surely faster."""
    is_default = candidate is default
    samples = candidate.runner.samples if candidate.runner else ()
    status, reason = candidate.status, candidate.reason
    if not status:
        status = "default" if is_default else "finalist" if candidate.last else "slower"
        status = "best" if candidate is best and not is_default else status
        if status == "slower" and candidate.relative is not None:
            behind = candidate.relative / (best.relative or 1.0)
            reason = f"{behind:.2f}x the best" if behind > 1 else "others came nearer to the final"
    return TriedCandidate(
        config=candidate.config,
        status=status,
        reason=reason,
        median_s=statistics.median(samples) if samples else None,
        samples=len(samples),
        samples_s=tuple(samples),
        ratio=candidate.runner.ratio if candidate.runner and candidate.last else None,
        registers=candidate.compiled.registers,
        spills=candidate.compiled.spills,
        shared_memory_bytes=candidate.compiled.shared_memory_bytes,
    )


def nothing_tried(method: str, others: Sequence[Candidate]) -> InductorBenchError:
    """Why there is no verdict: none of the candidates beside the default was timed."""
    if not others:
        what, hint = f"--autotune {method} has nothing else to try for this kernel", "try --autotune exhaustive"
        return InductorBenchError(what, hint)
    first = others[0]
    why = f"none of {len(others)} candidates could be timed; the first: {first.status}, {first.reason}"
    if all(one.status == "untried" for one in others):
        return BudgetSpentError(why, MORE_BUDGET)
    return InductorBenchError(why)

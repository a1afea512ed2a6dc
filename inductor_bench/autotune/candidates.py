"""The candidates of one kernel's retune: what each is, and what became of it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..errors import InductorBenchError
from ..records.tuning import Config, TriedCandidate
from .race import Runner
from .search import Space

MORE_BUDGET = "give it more time with --budget"


class BudgetSpentError(InductorBenchError):
    """The budget was spent before anything else than the kernel as it stands was tried."""


class Variants(Space, Protocol):
    """The ways in which one kernel can be changed."""

    @property
    def device(self) -> str:
        """The type of the device that it runs on."""

    @property
    def axes(self) -> Mapping[str, tuple[Any, ...]]:
        """The values of each field that can be varied."""

    def change(self, config: Config) -> dict[str, Any]:
        """What a worker needs to make it; :class:`InductorBenchError` where it cannot be."""

    def building(self, config: Config) -> dict[str, Any] | None:
        """What a worker that only builds is asked for it; ``None`` where there is nothing to build."""

    def is_built(self, config: Config) -> bool:
        """Whether it was built when it was listed, so that it can be timed after the budget."""

    def opening(self, number: int) -> Sequence[dict[str, Any]]:
        """What a worker is asked after it has loaded the file under this number, and before it varies the kernel."""

    def why_unsaved(self, config: Config) -> str:
        """Empty where a file can say that it is to be run in this configuration."""

    def notes(self, method: str) -> list[str]:
        """What there was to choose from."""


@dataclass
class Candidate:
    """One configuration. ``status`` is empty while it may win; ``number`` is what workers know it by.

    ``compiled`` is what is known of what it was compiled to. ``relative`` is its time in units of the default's as far
    as screening tells, ``runner`` what became of it in its last race, and ``last`` whether that was the final.
    """

    config: Config
    number: int
    change: dict[str, Any]
    status: str = ""
    reason: str = ""
    compiled: dict[str, Any] = field(default_factory=dict)
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
        **{name: candidate.compiled.get(name) for name in ("registers", "spills", "shared_memory_bytes")},
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

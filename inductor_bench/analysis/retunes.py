"""Summarizes the retunes of a model's kernels. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ..records.retune import FASTER, UNREACHED, RetuneRow, best_of_each
from ..records.run import Run
from .costs.step import host_sets_pace, step_of
from .findings.bottleneck import WAITS_FOR_HOST, bottleneck


@dataclass(frozen=True)
class RetuneSummary:
    """The retuned kernels of a model and their totals.

    Attributes:
        rows: one row per kernel, the largest saving first, failed retunes last.
        faster: number of kernels for which a faster configuration was found.
        same: number of kernels that keep their configuration.
        without: number of kernels whose retune failed.
        unreached: number of kernels that the budget left out.
        saving_s: projected saving of one step or iteration in seconds, without the kernels counted in ``waiting``.
        left_s: the part of ``saving_s`` that ``apply`` leaves to the user.
        waiting: number of kernels whose graphs all wait for the host, so that a faster kernel saves no time.
        cautions: doubts about single measurements, one sentence each.
    """

    rows: tuple[RetuneRow, ...]
    faster: int
    same: int
    without: int
    unreached: int
    saving_s: float
    left_s: float
    waiting: int
    cautions: tuple[str, ...]


def summarize_retunes(rows: Iterable[RetuneRow], waiting: Collection[str] = ()) -> RetuneSummary | None:
    """Summarizes the rows of one model; ``None`` where there are no rows.

    Args:
        rows: the retunes of the model's kernels.
        waiting: labels of the graphs in which the device waits for the host.
    """
    best = best_of_each(rows)
    if not best:
        return None
    counted = [row for row in best if not set(row.graphs) <= set(waiting)]
    faster = sum(row.verdict == FASTER for row in best)
    unreached = sum(row.problem == UNREACHED for row in best)
    without = sum(bool(row.problem) for row in best) - unreached
    return RetuneSummary(
        tuple(sorted(best, key=lambda row: (bool(row.problem), -(row.saving_s or 0.0), -row.time_s))),
        faster,
        len(best) - faster - without - unreached,
        without,
        unreached,
        sum(row.saving_s or 0.0 for row in counted),
        sum(row.saving_s or 0.0 for row in counted if row.left_to_user),
        len(best) - len(counted),
        tuple(row.caution for row in best if row.caution),
    )


def retunes_of(run: Run) -> RetuneSummary | None:
    """Summarizes the retunes of a run; ``None`` where the run has none."""
    if step_of(run) is not None:
        waiting = {module.label for module in run.modules if host_sets_pace(run)}
    else:
        waiting = {module.label for module in run.modules if bottleneck(module) in WAITS_FOR_HOST}
    return summarize_retunes((retune.row for retune in run.retunes), waiting)

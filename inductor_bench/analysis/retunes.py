"""What the retunes of a model came to together. Pure functions over their figures."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ..records.retune import FASTER, RetuneRow, best_of_each
from ..records.run import Run
from .findings.bottleneck import WAITS_FOR_HOST, bottleneck


@dataclass(frozen=True)
class RetuneSummary:
    """The kernels of a model that were retuned, one row each: first those that would save most.

    ``saving_s`` is a projection for one iteration. It leaves out kernels of graphs that wait for their host, which a
    faster kernel would not make faster. ``waiting`` says how many of the rows that is true for, ``cautions`` what is
    wrong with the measurement of others.
    """

    rows: tuple[RetuneRow, ...]
    faster: int
    same: int
    without: int
    saving_s: float
    waiting: int
    cautions: tuple[str, ...]


def summarize_retunes(rows: Iterable[RetuneRow], waiting: Collection[str] = ()) -> RetuneSummary | None:
    """The rows together, or ``None`` where nothing was to be retuned.

    Args:
        rows: of one model.
        waiting: the graphs that wait for their host.
    """
    best = best_of_each(rows)
    if not best:
        return None
    counted = [row for row in best if not set(row.graphs) <= set(waiting)]
    faster = sum(row.verdict == FASTER for row in best)
    without = sum(bool(row.problem) for row in best)
    return RetuneSummary(
        tuple(sorted(best, key=lambda row: (bool(row.problem), -(row.saving_s or 0.0), -row.time_s))),
        faster,
        len(best) - faster - without,
        without,
        sum(row.saving_s or 0.0 for row in counted),
        len(best) - len(counted),
        tuple(row.caution for row in best if row.caution),
    )


def retunes_of(run: Run) -> RetuneSummary | None:
    """Those of a run, or ``None`` where none were asked for."""
    waiting = {module.label for module in run.modules if bottleneck(module) in WAITS_FOR_HOST}
    return summarize_retunes((retune.row for retune in run.retunes), waiting)

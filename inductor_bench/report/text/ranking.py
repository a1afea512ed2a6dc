"""Ranks the kernels of all graphs, and selects the graphs to show. Pure functions of a record."""

from __future__ import annotations

from dataclasses import dataclass

from ...analysis.step_costs import Cost, cost_of, module_time_s, weight_s, whole_time_s
from ...devices.table import device_of
from ...errors import UsageError
from ...records.kernel import Kernel
from ...records.module import ModuleRecord
from ...records.run import Run

__all__ = ["SORTS", "Entry", "idle_name", "main_modules", "module_time_s", "rank", "wall_known", "whole_time_s"]

SORTS = ("time", "gain", "calls")
FEW_GRAPHS = 6
"""Largest number of graphs that are all shown, whatever their share of the time."""

LEAST_WEIGHT = 0.02
"""Smallest share of the program's time of a selected graph."""


@dataclass(frozen=True)
class Entry:
    """A ranked kernel with its graph, and its cost in the step or in one iteration of its graph.

    ``share`` refers to the step, or to the time of all graphs (see :func:`whole_time_s`).
    """

    number: int
    module: ModuleRecord
    kernel: Kernel
    share: float | None
    cost: Cost


def rank(run: Run, sort: str = "time") -> tuple[Entry, ...]:
    """Ranks the kernels of all graphs and numbers them from 1.

    Args:
        run: the record.
        sort: ``time`` or ``calls`` per step or per iteration, or ``gain``, the largest first; unknown gains come last.

    Raises:
        UsageError: ``sort`` is another word.
    """
    if sort not in SORTS:
        raise UsageError(f"cannot sort by {sort!r}", f"choose one of {', '.join(SORTS)}")
    rows = [(module, kernel, cost_of(run, module, kernel)) for module in run.modules for kernel in module.kernels]
    rows.sort(key=lambda row: _key(row[2], sort), reverse=True)
    whole = whole_time_s(run)
    return tuple(
        Entry(number, module, kernel, cost.time_s / whole if whole else None, cost)
        for number, (module, kernel, cost) in enumerate(rows, 1)
    )


def _key(cost: Cost, sort: str) -> tuple[float, float]:
    if sort == "gain":
        return (-1.0 if cost.gain_limit_s is None else cost.gain_limit_s, cost.time_s)
    return (cost.calls, cost.time_s) if sort == "calls" else (cost.time_s, cost.calls)


def main_modules(run: Run, most: int) -> tuple[ModuleRecord, ...]:
    """Selects the graphs that get a row of their own, in the record's order.

    Up to :data:`FEW_GRAPHS` graphs are all selected. Of more graphs, the two with the longest time in the program (time
    of an iteration times calls) are selected, and those with at least :data:`LEAST_WEIGHT` of the whole. If this leaves
    out a single graph, it is selected too. The result has at most ``most`` graphs.
    """
    if len(run.modules) <= min(FEW_GRAPHS, most):
        return run.modules
    heaviest = sorted(run.modules, key=lambda module: weight_s(run, module), reverse=True)[:most]
    whole = sum(weight_s(run, module) for module in run.modules)
    chosen = [
        module for place, module in enumerate(heaviest) if place < 2 or weight_s(run, module) >= LEAST_WEIGHT * whole
    ]
    if len(chosen) + 1 >= len(run.modules) <= most:
        return run.modules
    slugs = {module.slug for module in chosen}
    return tuple(module for module in run.modules if module.slug in slugs)


def wall_known(run: Run) -> bool:
    """Whether the wall time of every graph is known. Shares then refer to wall time."""
    return all(module.times.wall_time_s for module in run.modules)


def idle_name(module: ModuleRecord) -> str:
    """Returns the name of the wall time outside kernels: host time on a CPU, idle time on another device."""
    return device_of(module.device).words.outside

"""Ranks the kernels of all graphs, and selects the graphs to show. Pure functions of a record."""

from __future__ import annotations

from dataclasses import dataclass

from ...analysis.times import module_time_s, weight_s, whole_time_s
from ...devices.table import device_of
from ...errors import UsageError
from ...records.kernel import Kernel
from ...records.run import ModuleRecord, Run

__all__ = ["SORTS", "Entry", "idle_name", "main_modules", "module_time_s", "rank", "wall_known", "whole_time_s"]

SORTS = ("time", "gain", "calls")
FEW_GRAPHS = 6
"""Largest number of graphs that are all shown, whatever their share of the time."""

LEAST_WEIGHT = 0.02
"""Smallest share of the program's time of a selected graph."""


@dataclass(frozen=True)
class Entry:
    """A ranked kernel with its graph. ``share`` refers to the time of all graphs (see :func:`whole_time_s`)."""

    number: int
    module: ModuleRecord
    kernel: Kernel
    share: float | None


def rank(run: Run, sort: str = "time") -> tuple[Entry, ...]:
    """Ranks the kernels of all graphs and numbers them from 1.

    Args:
        run: the record.
        sort: ``time`` or ``calls`` per iteration, or ``gain``, the largest first; unknown gains come last.

    Raises:
        UsageError: ``sort`` is another word.
    """
    if sort not in SORTS:
        raise UsageError(f"cannot sort by {sort!r}", f"choose one of {', '.join(SORTS)}")
    pairs = [(module, kernel) for module in run.modules for kernel in module.kernels]
    pairs.sort(key=lambda pair: _key(pair[1], sort), reverse=True)
    whole = whole_time_s(run)
    return tuple(
        Entry(number, module, kernel, kernel.time_s / whole if whole else None)
        for number, (module, kernel) in enumerate(pairs, 1)
    )


def _key(kernel: Kernel, sort: str) -> tuple[float, float]:
    if sort == "gain":
        return (-1.0 if kernel.roof.gain_limit_s is None else kernel.roof.gain_limit_s, kernel.time_s)
    return (kernel.calls, kernel.time_s) if sort == "calls" else (kernel.time_s, kernel.calls)


def main_modules(run: Run, most: int) -> tuple[ModuleRecord, ...]:
    """Selects the graphs that get a row of their own, in the record's order.

    Up to :data:`FEW_GRAPHS` graphs are all selected. Of more graphs, the two with the longest time in the program (time
    of an iteration times calls) are selected, and those with at least :data:`LEAST_WEIGHT` of the whole. If this leaves
    out a single graph, it is selected too. The result has at most ``most`` graphs.
    """
    if len(run.modules) <= min(FEW_GRAPHS, most):
        return run.modules
    heaviest = sorted(run.modules, key=weight_s, reverse=True)[:most]
    whole = sum(weight_s(module) for module in run.modules)
    chosen = [module for place, module in enumerate(heaviest) if place < 2 or weight_s(module) >= LEAST_WEIGHT * whole]
    if len(chosen) + 1 >= len(run.modules) <= most:
        return run.modules
    slugs = {module.slug for module in chosen}
    return tuple(module for module in run.modules if module.slug in slugs)


def wall_known(run: Run) -> bool:
    """Whether the wall time of every graph is known. Shares then refer to wall time."""
    return all(module.wall_time_s for module in run.modules)


def idle_name(module: ModuleRecord) -> str:
    """Returns the name of the wall time outside kernels: host time on a CPU, idle time on another device."""
    return device_of(module.device).words.outside

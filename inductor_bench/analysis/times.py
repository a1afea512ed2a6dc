"""Times of graphs: one iteration, and the share in the whole program. Pure functions of a record."""

from __future__ import annotations

from ..records.run import ModuleRecord, Run


def module_time_s(module: ModuleRecord) -> float:
    """The seconds of one iteration of a graph: the longer of wall time and busy time.

    The busy time is longer where the profiler slowed the kernels.
    """
    longer = max(module.wall_time_s or 0.0, module.busy_time_s or 0.0)
    return longer or sum(kernel.time_s for kernel in module.kernels)


def whole_time_s(run: Run) -> float:
    """The seconds that all graphs take when each runs once. Shares of the whole refer to this time."""
    return sum(module_time_s(module) for module in run.modules)


def weight_s(module: ModuleRecord) -> float:
    """The seconds that a graph takes in the captured program: the time of one iteration times the number of calls."""
    return module_time_s(module) * (module.program_calls or 1)


def calls_differ(run: Run) -> bool:
    """Whether the program called some graphs more often than others."""
    return len({module.program_calls for module in run.modules if module.program_calls}) > 1

"""How long graphs take, and how much each weighs in the program. Pure functions over a record."""

from __future__ import annotations

from ..records.run import ModuleRecord, Run


def module_time_s(module: ModuleRecord) -> float:
    """One iteration of a graph in seconds: its wall time, or its busy time where a profiler stretched that beyond."""
    longer = max(module.wall_time_s or 0.0, module.busy_time_s or 0.0)
    return longer or sum(kernel.time_s for kernel in module.kernels)


def whole_time_s(run: Run) -> float:
    """What all graphs take when each runs once, in seconds: what shares of the whole refer to."""
    return sum(module_time_s(module) for module in run.modules)


def weight_s(module: ModuleRecord) -> float:
    """What a graph took of the captured program, in seconds: one iteration times the calls that were seen."""
    return module_time_s(module) * (module.program_calls or 1)


def calls_differ(run: Run) -> bool:
    """Whether the program called some graphs more often than others."""
    return len({module.program_calls for module in run.modules if module.program_calls}) > 1

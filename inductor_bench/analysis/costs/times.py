"""Times of graphs: one iteration, one step of the program, and the whole program. Pure functions of a record."""

from __future__ import annotations

from ...records.module import ModuleRecord
from ...records.run import Run
from .step import graph_use, step_of


def module_time_s(module: ModuleRecord) -> float:
    """The seconds of one iteration of a graph: the longer of wall time and busy time.

    The busy time is longer where the profiler slowed the kernels.
    """
    longer = max(module.times.wall_time_s or 0.0, module.times.busy_time_s or 0.0)
    return longer or sum(kernel.time_s for kernel in module.kernels)


def whole_time_s(run: Run) -> float:
    """The seconds that shares of the whole refer to: the program's step, else one iteration of each graph."""
    program = step_of(run)
    return program.step_time_s if program else sum(module_time_s(module) for module in run.modules)


def weight_s(run: Run, module: ModuleRecord) -> float:
    """The seconds that a graph takes in the step, else in the captured program: one iteration times its calls."""
    return graph_use(run, module).time_s if step_of(run) else module_time_s(module) * (module.program_calls or 1)


def calls_differ(run: Run) -> bool:
    """Whether the program called some graphs more often than others; the step tells the calls where there is one."""
    return step_of(run) is None and len({module.program_calls for module in run.modules if module.program_calls}) > 1

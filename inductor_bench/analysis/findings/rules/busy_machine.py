"""Whether other processes disturbed a measurement so much that its figures do not count.

This file has no row in ``table``: ``headline`` puts its finding into the first line, and ``findings`` leaves out the
advice that rests on such figures.

Thresholds come from 102 trials with three graphs (0.06, 0.65 and 0.75 ms on 2 threads) on 2 cores. 30 ran beside 0, 1,
2 and 4 spinning processes of equal scheduling weight, 72 beside other jobs at a load of 5 to 11. Of the first 30, with
times as multiples of each graph's best:

=========  =============  ===================  ==================  =============  ============
processes  delayed share  switches in one run  spread of the wall  wall (median)  profiled run
=========  =============  ===================  ==================  =============  ============
0          0.00 to 0.08   0.0 to 0.3           0.06 to 0.16        1.00 to 1.03   1.0 to 1.5
1          0.31 to 0.48   0.0 to 1.0           0.05 to 6.6         1.05 to 1.63   2.1 to 6
2          0.51 to 0.54   0.6 to 1.5           0.45 to 5.2         1.07 to 147    4.4 to 102
4          0.65 to 0.68   0.1 to 3.6           0.04 to 13          1.07 to 22     1.8 to 66
=========  =============  ===================  ==================  =============  ============

- In 97 of the 102 trials the rule for wall times reported a finding exactly where the median was off by more than 10%.
  In the other 5 trials the median was off by 6% to 12%.
- The load average is no criterion: it was 8 in the trials beside 0 processes, because the jobs behind it gave way.
- A median is robust while most runs have no delay: with up to 0.7 switches in a run it was right within 12%. With 5 to
  12 switches in a run it was wrong by a factor of 200, although the samples agreed within 10%.
- A profile is a mean over few runs. Smaller disturbances change it than change the median of the wall time.
- Long runs are switched a few times on an idle machine too, at a negligible cost. Switches count only with a delay.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence

from .... import units
from ....devices.table import device_of
from ....records.code.details import MachineLoad
from ....records.module import ModuleRecord
from ....records.run import Run
from ...costs.step import runs_on_host, step_of
from ...costs.times import weight_s
from ..bottleneck import GAPS
from ..command_again import command_again
from ..finding import ADVICE, CAUTION, Finding
from ..phrases import labels, plural, slugs

DELAYED = 0.25  # waiting time for a CPU core as a share of the running time, from which a process counts as delayed
SWITCHED = 0.8  # involuntary context switches per run from which the median run counts as disturbed
SCATTER = 0.5  # spread of the middle half of the wall samples, as a share of their median
FEWEST_SAMPLES = 5  # smallest number of wall samples with a meaningful spread
LONGER = 1.1  # ratio of kernel time to wall time above which the kernels of a delayed process count as disturbed
MUCH_LONGER = 1.5  # the same ratio without a delay, where the difference exceeds both limits below
LEAST_S = 0.5e-3  # seconds of one run; below this difference the profiler alone can reach the ratio MUCH_LONGER
LEAST_PER_CALL_S = 20e-6  # seconds of one kernel call; the profiler itself takes a few microseconds


def disturbed_graphs(run: Run) -> tuple[ModuleRecord, ...]:
    """The graphs whose figures do not count; none where they take less than half of the program's time.

    A program's step was timed in the program, so a disturbed run of a graph by itself does not matter to it. Where a
    CPU was busy then, it was for the step, too.
    """
    if step_of(run) is not None:
        return run.modules if runs_on_host(run) and busiest(run.modules) is not None else ()
    found = tuple(module for module in run.modules if is_wall_disturbed(module) or are_kernels_disturbed(module))
    return found if 2 * _weight_s(run, found) >= _weight_s(run, run.modules) else ()


def disturbed(run: Run) -> Finding | None:
    """Reports figures that do not count because the machine was busy, the reasons, and the command to measure again.

    On a CPU a busy machine disturbs wall times and kernels. On a GPU it disturbs the wall times of graphs in which the
    GPU is idle at times.

    Returns:
        The finding, or ``None`` where the disturbed graphs take less than half of the program's time.
    """
    concerned = () if step_of(run) is not None else disturbed_graphs(run)
    if not concerned:
        return None
    on_host = any(device_of(module.device).runs_on_host for module in concerned)
    what = "figures" if on_host else "wall times and idle times"
    whose = "these" if len(concerned) == len(run.modules) else f"{labels(concerned)}: these"
    kept = "" if on_host else " (the kernels' own times do)"
    again = command_again(run)
    advice = "Measure again on an idle machine" + (f" ({again})" if again else "")
    text = f"{whose} {what} do not count{kept}: {reasons(run, concerned)}. {advice}"
    return Finding("busy-machine", text, slugs(concerned), level=CAUTION)


def reasons(run: Run, concerned: Sequence[ModuleRecord]) -> str:
    """Why the figures of these graphs do not count, from the one that takes longest."""
    return "; ".join(_reasons(max(concerned, key=lambda module: weight_s(run, module))))


def _weight_s(run: Run, modules: Sequence[ModuleRecord]) -> float:
    return sum(weight_s(run, module) for module in modules)


def rests_on(finding: Finding, graphs: Sequence[ModuleRecord]) -> bool:
    """Whether the gain of an advice was computed from figures of these disturbed graphs alone.

    On a GPU the kernels' own times count, so the gain of faster kernels does too.
    """
    if finding.level != ADVICE or not finding.gain_s or not finding.modules:
        return False
    unreliable = {graph.slug for graph in graphs if not finding.kernels or device_of(graph.device).runs_on_host}
    return set(finding.modules) <= unreliable


def is_wall_disturbed(module: ModuleRecord) -> bool:
    """Whether the median of the wall samples is likely to be off by more than 10%."""
    if not device_of(module.device).runs_on_host and (module.times.busy_share or 0.0) >= GAPS:
        return False  # the device determines the wall time
    load = module.loads.wall_load
    switched = load is not None and load.switches >= SWITCHED * load.runs and load.delayed_share >= DELAYED
    return switched or _spread(module.times.wall_samples_s) >= SCATTER


def are_kernels_disturbed(module: ModuleRecord) -> bool:
    """Whether the times of a CPU graph's kernels are likely to be off by more than 10%."""
    times = module.times
    if not device_of(module.device).runs_on_host or not times.wall_time_s or not times.busy_time_s:
        return False
    ratio, more_s = times.busy_time_s / times.wall_time_s, times.busy_time_s - times.wall_time_s
    load = module.loads.profile_load
    delayed = load is not None and load.delayed_share >= DELAYED
    calls = module.launches or 0.0
    return (delayed and ratio > LONGER) or (ratio > MUCH_LONGER and more_s > max(LEAST_S, LEAST_PER_CALL_S * calls))


def _spread(samples: Sequence[float]) -> float:
    """The width of the middle half of the samples as a share of their median."""
    if len(samples) < FEWEST_SAMPLES:
        return 0.0
    low, middle, high = statistics.quantiles(samples, n=4)
    return (high - low) / middle if middle else 0.0


def _reasons(module: ModuleRecord) -> Iterator[str]:
    """Yields the figures that show the disturbance; the figures of the machine come first."""
    times = module.times
    if (worst := busiest([module])) is not None:
        yield load_words(worst)
    if are_kernels_disturbed(module):
        yield f"{units.seconds(times.busy_time_s)} of kernels in {units.seconds(times.wall_time_s)} of wall time"
    if _spread(times.wall_samples_s) >= SCATTER:
        low, _, high = statistics.quantiles(times.wall_samples_s, n=4)
        yield f"wall times from {units.seconds(low)} to {units.seconds(high)} (middle half)"


def largest_load(modules: Iterable[ModuleRecord]) -> MachineLoad | None:
    """The load of the machine that delayed a run of these modules most; ``None`` where it was not recorded."""
    loads = [load for module in modules for load in (module.loads.wall_load, module.loads.profile_load) if load]
    return max(loads, key=lambda load: load.delayed_share, default=None)


def busiest(modules: Iterable[ModuleRecord]) -> MachineLoad | None:
    """:func:`largest_load` where it delayed the run; else ``None``."""
    worst = largest_load(modules)
    return worst if worst is not None and worst.delayed_share >= DELAYED else None


def load_words(load: MachineLoad) -> str:
    """``the machine was busy (load 6.0 on 2 cores, waiting for a core 79% of the time, …)``."""
    average = f"load {load.load:.1f} on {plural(load.cores, 'core')}, " if load.load is not None else ""
    return (
        f"the machine was busy ({average}waiting for a core {units.whole_percent(load.delayed_share)} of the time, "
        f"{load.switches:,} involuntary context switches in {plural(load.runs, 'run')})"
    )

"""Findings that limit what the figures say: a busy machine, uncertain times, and the method."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence

from ... import units
from ...devices.table import find_device
from ...records.code import MachineLoad
from ...records.module import ModuleRecord
from ...records.run import Run
from ..roofline import BEYOND, describe_other_work, describe_rate, find_refuted_roofs, list_rates
from ..step_costs import compute_weight_s, find_step, host_sets_pace, is_shared, runs_on_host
from .finding import (
    ADVICE,
    CAUTION,
    FINE,
    GAPS,
    NOTE,
    Finding,
    Rule,
    RunEvidence,
    join_labels,
    join_words,
    list_slugs,
    plural,
    repeat_command,
)
from .graph_findings import is_anything_waiting
from .step_phrases import describe_step

# Decides whether other processes disturbed a measurement so much that its figures do not count.
#
# ``disturbed`` has no row: ``headline`` puts its finding into the first line, and ``findings`` leaves out the advice
# that rests on such figures.
#
# Thresholds come from 102 trials with three graphs (0.06, 0.65 and 0.75 ms on 2 threads) on 2 cores. 30 ran beside 0,
# 1, 2 and 4 spinning processes of equal scheduling weight, 72 beside other jobs at a load of 5 to 11. Of the first 30,
# with times as multiples of each graph's best:
#
# =========  =============  ===================  ==================  =============  ============ processes  delayed
# share  switches in one run  spread of the wall  wall (median)  profiled run =========  =============
# ===================  ==================  =============  ============ 0          0.00 to 0.08   0.0 to 0.3
# 0.06 to 0.16        1.00 to 1.03   1.0 to 1.5 1          0.31 to 0.48   0.0 to 1.0           0.05 to 6.6         1.05
# to 1.63   2.1 to 6 2          0.51 to 0.54   0.6 to 1.5           0.45 to 5.2         1.07 to 147    4.4 to 102 4
# 0.65 to 0.68   0.1 to 3.6           0.04 to 13          1.07 to 22     1.8 to 66 =========  =============
# ===================  ==================  =============  ============
#
# - In 97 of the 102 trials the rule for wall times reported a finding exactly when the median was off by more than
# 10%.
#   In the other 5 trials the median was off by 6% to 12%.
# - The load average is no criterion: it was 8 in the trials beside 0 processes, because the jobs behind it gave way.
# - A median is robust while most runs have no delay: with up to 0.7 switches in a run it was right within 12%. With 5
# to
#   12 switches in a run it was wrong by a factor of 200, although the samples agreed within 10%.
# - A profile is a mean over few runs. Smaller disturbances change it than change the median of the wall time.
# - Long runs are switched a few times on an idle machine too, at a negligible cost. Switches count only with a delay.


DELAYED = 0.25  # waiting time for a CPU core as a share of the running time, from which a process counts as delayed
SWITCHED = 0.8  # involuntary context switches per run from which the median run counts as disturbed
SCATTER = 0.5  # spread of the middle half of the wall samples, as a share of their median
FEWEST_SAMPLES = 5  # smallest number of wall samples with a meaningful spread
LONGER = 1.1  # ratio of kernel time to wall time above which the kernels of a delayed process count as disturbed
MUCH_LONGER = 1.5  # the same ratio without a delay, if the difference exceeds both limits below
LEAST_S = 0.5e-3  # seconds of one run; below this difference the profiler alone can reach the ratio MUCH_LONGER
OTHERS = 0.1  # share of the cores' time that other processes had, from which they delayed the program's steps
FASTEST = 1.5  # from this ratio of the median step to the fastest one, a delay of later runs counts for the steps
LEAST_PER_CALL_S = 20e-6  # seconds of one kernel call; the profiler itself takes a few microseconds


MEASURE_AGAIN = "Measure again on an idle machine"


def find_disturbed_graphs(run: Run) -> tuple[ModuleRecord, ...]:
    """The graphs whose figures do not count; none if they take less than half of the program's time.

    A program's step was timed in the program, so a disturbed run of a single graph does not matter for the step. On a
    CPU it matters: the same load disturbed the step.
    """
    if find_step(run) is not None:
        return run.modules if are_delayed(run) else ()
    found = tuple(module for module in run.modules if is_wall_disturbed(module) or are_kernels_disturbed(module))
    return found if 2 * _compute_weight_s(run, found) >= _compute_weight_s(run, run.modules) else ()


def are_delayed(run: Run) -> bool:
    """Whether other processes delayed kernels of the host, in the step or when the modules ran outside the program."""
    return runs_on_host(run) and bool(find_disturbed_step(run) or find_busiest(run.modules) is not None)


def find_step_load(run: Run) -> MachineLoad | None:
    """Returns the load of the machine while the steps were timed, for the most delayed rank; ``None`` if unknown."""
    return find_worst_load(rank.load for rank in run.program.ranks) if run.program is not None else None


def compute_share_of_others(run: Run) -> float:
    """Returns the share of the cores' time that other processes had while the steps were timed; 0 on a GPU."""
    load = find_step_load(run) if runs_on_host(run) else None
    return load.others_share if load is not None else 0.0


def find_disturbed_step(run: Run) -> str:
    """Says why the figures of a step on a CPU do not count; empty if they count.

    A program that waits for its own processes is not disturbed. If it is not known what other processes did, a busy
    machine right after the steps counts if the steps themselves scatter.
    """
    program, load = find_step(run), find_step_load(run)
    if program is None or not runs_on_host(run):
        return ""
    fastest_s = min(program.step_times_s, default=0.0)
    if load is not None and load.others_s is not None:
        if not are_steps_delayed(load):
            return ""
        why = (
            f"while the steps were timed, other processes used {units.whole_percent(load.others_share)} of the time of "
            f"{plural(load.cores, 'core')}, and the program waited for a core "
            f"{units.whole_percent(load.delayed_share)} of its time"
        )
    else:
        worst = find_busiest(run.modules)
        if worst is None or fastest_s * FASTEST > program.step_time_s:
            return ""
        why = f"{describe_load(worst)} right after the steps, when the modules ran by themselves"
    return f"{why}. {describe_step(program)}, the fastest one {units.seconds(fastest_s)}"


def find_disturbed(run: Run) -> Finding | None:
    """Reports figures that do not count because the machine was busy, the reasons, and the command to measure again.

    On a CPU a busy machine disturbs steps, wall times and kernels. On a GPU it disturbs the wall times of graphs in
    which the GPU is idle at times.

    Returns:
        The finding, or ``None`` if the disturbed graphs take less than half of the program's time. If the program's
        step was profiled, ``None`` if the steps were not disturbed.
    """
    if why := find_disturbed_step(run):
        return Finding(
            "busy-machine", f"these figures do not count: {why}. {_advise_another_measurement(run)}", level=CAUTION
        )
    concerned = () if find_step(run) is not None else find_disturbed_graphs(run)
    if not concerned:
        return None
    on_host = any(find_device(module.device).runs_on_host for module in concerned)
    what = "figures" if on_host else "wall times and idle times"
    whose = "these" if len(concerned) == len(run.modules) else f"{join_labels(concerned)}: these"
    kept = "" if on_host else " (kernel times do)"
    text = (
        f"{whose} {what} do not count{kept}: {explain_disturbance(run, concerned)}. {_advise_another_measurement(run)}"
    )
    return Finding("busy-machine", text, list_slugs(concerned), level=CAUTION)


def explain_busy_kernels(run: Run) -> str:
    """Says in one sentence which other work on the device may have made kernels slower; empty if there was none.

    Kernels of a GPU take no longer if the machine's processors are busy.
    """
    if run.program is not None and run.program.others is not None:
        why = describe_other_work(run.program.others, "the steps")
    elif runs_on_host(run) and (concerned := find_disturbed_graphs(run)):
        worst = find_busiest(run.modules)
        # If there are several sentences, the first says what was busy.
        why = explain_disturbance(run, concerned).partition(". ")[0] or (describe_load(worst) if worst else "")
    else:
        return ""
    return f"these times may be too long: {why}"


def _advise_another_measurement(run: Run) -> str:
    again, free = repeat_command(run), _count_free_cores(run)
    fewer = f", or with OMP_NUM_THREADS={free}: threads that share an operator wait for each other" if free else ""
    return MEASURE_AGAIN + (f" ({again})" if again else "") + fewer


def _count_free_cores(run: Run) -> int:
    """Returns how many cores other processes left to a step on a CPU; 0 if that is unknown, or enough for its threads.

    If one of two cores is busy, a step with two threads may take many times as long as one with a single thread,
    because each operator ends with its last thread.
    """
    load, threads = find_step_load(run), run.environment.host.threads or 1
    if load is None or not runs_on_host(run) or load.others_s is None:
        return 0
    free = max(1, math.floor(load.cores * (1 - load.others_share)))
    return free if free < threads else 0


def explain_disturbance(run: Run, concerned: Sequence[ModuleRecord]) -> str:
    """Says why the figures of these graphs do not count: the reason for the step, else for the longest graph."""
    return find_disturbed_step(run) or "; ".join(
        _list_reasons(max(concerned, key=lambda module: compute_weight_s(run, module)))
    )


def _compute_weight_s(run: Run, modules: Sequence[ModuleRecord]) -> float:
    return sum(compute_weight_s(run, module) for module in modules)


def depends_only_on(finding: Finding, graphs: Sequence[ModuleRecord]) -> bool:
    """Whether the gain of an advice comes only from figures of these disturbed graphs.

    On a GPU the kernels' own times count, so the gain of faster kernels does too.
    """
    if finding.level != ADVICE or not finding.gain_s or not finding.modules:
        return False
    unreliable = {graph.slug for graph in graphs if not finding.kernels or find_device(graph.device).runs_on_host}
    return set(finding.modules) <= unreliable


def is_wall_disturbed(module: ModuleRecord) -> bool:
    """Whether the median of the wall samples is likely to be off by more than 10%."""
    if not find_device(module.device).runs_on_host and (module.times.busy_share or 0.0) >= GAPS:
        return False  # the device determines the wall time
    load = module.loads.wall_load
    return (load is not None and is_delayed(load)) or _spread(module.times.wall_samples_s) >= SCATTER


def is_delayed(load: MachineLoad) -> bool:
    """Whether other processes delayed so many runs that their median counts as disturbed."""
    return load.switches >= SWITCHED * load.runs and load.delayed_share >= DELAYED


def are_steps_delayed(load: MachineLoad) -> bool:
    """Whether other processes delayed the steps of a program, which may wait for its own processes, too."""
    if load.others_s is None:
        return is_delayed(load)
    return load.delayed_share >= DELAYED and load.others_share >= OTHERS


def are_kernels_disturbed(module: ModuleRecord) -> bool:
    """Whether the times of a CPU graph's kernels are likely to be off by more than 10%."""
    times = module.times
    if not find_device(module.device).runs_on_host or not times.wall_time_s or not times.busy_time_s:
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


def _list_reasons(module: ModuleRecord) -> Iterator[str]:
    """Yields the figures that show the disturbance; the figures of the machine come first."""
    times = module.times
    if (worst := find_busiest([module])) is not None:
        yield describe_load(worst)
    if are_kernels_disturbed(module):
        yield f"{units.seconds(times.busy_time_s)} of kernels in {units.seconds(times.wall_time_s)} of wall time"
    if _spread(times.wall_samples_s) >= SCATTER:
        low, _, high = statistics.quantiles(times.wall_samples_s, n=4)
        yield f"wall times from {units.seconds(low)} to {units.seconds(high)} (middle half)"


def find_largest_load(modules: Iterable[ModuleRecord]) -> MachineLoad | None:
    """The load of the machine that delayed a run of these modules most; ``None`` if it was not recorded."""
    return find_worst_load(load for module in modules for load in (module.loads.wall_load, module.loads.profile_load))


def find_worst_load(loads: Iterable[MachineLoad | None]) -> MachineLoad | None:
    """The load that delayed a process most; ``None`` if none was recorded."""
    return max(filter(None, loads), key=lambda load: load.delayed_share, default=None)


def find_busiest(modules: Iterable[ModuleRecord]) -> MachineLoad | None:
    """Returns :func:`find_largest_load` if that load delayed the run; else ``None``."""
    worst = find_largest_load(modules)
    return worst if worst is not None and worst.delayed_share >= DELAYED else None


def describe_load(load: MachineLoad, runs: str = "run") -> str:
    """``the machine was busy (load 6.0 on 2 cores, waiting for a core 79% of the time, …)``; ``runs`` says of what."""
    average = f"load {load.load:.1f} on {plural(load.cores, 'core')}, " if load.load is not None else ""
    return (
        f"the machine was busy ({average}waiting for a core {units.whole_percent(load.delayed_share)} of the time, "
        f"{load.switches:,} involuntary context {'switch' if load.switches == 1 else 'switches'} in "
        f"{plural(load.runs, runs)})"
    )


# Whether other programs used the GPU during the steps.


def find_shared_gpu(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports that other programs worked on the GPU during the steps. Nothing is then said of what idle time costs."""
    program = evidence.run.program
    if program is None or program.others is None:
        return
    whose = "their" if len(program.others.processes) > 1 else "its"
    text = (
        f"{describe_other_work(program.others, 'these steps')}: idle time may be {whose} "
        "work, and kernels may take longer than without it. So no saving is simulated, and there is no advice against "
        "idle time. Measure again when the GPU is free"
    )
    yield Finding("shared-gpu", text, level=CAUTION)


def rests_on_idle_time(finding: Finding) -> bool:
    """Whether an advice is about idle time of the device."""
    assumed = finding.assumed
    return finding.level == ADVICE and bool(assumed.idle or assumed.graphs or assumed.gaps)


# Rules about the certainty of the measured figures.
#
# Pure functions. A rule reports only what the record holds evidence for, in one finding for all graphs concerned.


PROFILER_SLOWDOWN = 1.25  # ratio of profiled to unprofiled time from which the profiler's overhead is reported
FEW_SAMPLES = 5  # number of wall samples below which they are too few
NOISE = 0.1  # spread of the middle half of the wall samples, as a share of their median
OUTLIERS = 0.1  # share of the iterations from which disturbed iterations are reported
MANY_OUTLIERS = 0.5  # share of disturbed iterations above which they are a caution


def find_missing_peaks(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports that there are no measured peaks to compare the kernels with."""
    run = evidence.run
    if run.peaks is None and any(module.kernels for module in run.modules):
        why = f" ({run.no_peaks})" if run.no_peaks else ""
        text = f"the device's peaks are not measured{why}, so there is no percent of peak and no gain limit"
        yield Finding("no-peaks", text, level=CAUTION)


def find_kernels_beyond_peaks(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports kernels that run faster than the measured peaks, which then bound no kernel."""
    peaks = evidence.run.peaks
    if peaks is None or not find_refuted_roofs(list_rates(evidence.run.modules), peaks):
        return
    factors = [(row, describe_rate(row.module, row.kernel).beyond(peaks)) for row in evidence.rows]
    faster = [(row, factor) for row, factor in factors if factor > BEYOND]
    time_s = sum(row.cost.time_s for row, _ in faster)
    if not faster:
        return
    most = max(factor for _, factor in faster)
    takes, runs = ("takes", "runs") if len(faster) == 1 else ("take", "run")
    text = (
        f"{plural(len(faster), 'kernel')}, which {takes} {evidence.whole.format(time_s)}, {runs} faster than the "
        f"measured peaks, by up to {units.whole_percent(most - 1)}: these peaks are too low, so the report "
        "gives no share of peak and no gain limit. Measure the peaks again (inductor-bench doctor --remeasure), "
        "and break the program down again"
    )
    yield Finding("beyond-peaks", text, kernels=tuple(row.place for row, _ in faster), level=CAUTION)


def find_noise(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports wall times that vary. They matter less to a program whose step was timed in the program itself."""
    text = "wall times vary (middle half: {}); measure again on an idle machine"
    yield from _combine(evidence.run, "noise", _describe_noise, text, NOTE if evidence.in_step else CAUTION)


def find_busy_over_wall(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports kernels that took longer under the profiler than their graph took without it."""
    if evidence.in_step:
        return
    text = "kernels took longer under the profiler than their graph took without it ({}): shares are of the longer time"
    yield from _combine(evidence.run, "busy-over-wall", _describe_busy_over_wall, text, CAUTION)


def find_outliers(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports disturbed iterations of the profiled run, which do not count."""
    profiles = [module.profiled for module in evidence.run.modules]
    many = any(one.outlier_iterations > MANY_OUTLIERS * one.iterations for one in profiles)
    text = "some profiled iterations were disturbed ({}); they are recorded, but do not count"
    yield from _combine(evidence.run, "outliers", _describe_outliers, text, CAUTION if many else NOTE)


def find_few_samples(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports graphs with few samples of the wall time."""
    text = "few wall times were taken ({}); a larger --repeat makes the median more reliable"
    yield from _combine(evidence.run, "few-samples", _number_if_few, text, NOTE)


def find_profiler_overhead(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports graphs in which the profiler slowed the host."""
    text = (
        "the profiler slowed the host ({}): gaps in the trace are longer than in a real run; wall times are from runs "
        "without the profiler"
    )
    yield from _combine(evidence.run, "profiler-overhead", _describe_slowed, text, NOTE)


def _combine(run: Run, kind: str, rule: Callable[[ModuleRecord], str], sentence: str, level: str) -> Iterator[Finding]:
    """Makes one finding about all graphs for which ``rule`` returns a text. ``{}`` in ``sentence`` takes the texts."""
    texts = [(module, rule(module)) for module in run.modules]
    hits = [(module, text) for module, text in texts if text]
    if hits:
        words = join_words([f"{module.label} {text}" for module, text in hits], 3)
        yield Finding(kind, sentence.replace("{}", words), list_slugs(module for module, _ in hits), level=level)


def _describe_busy_over_wall(module: ModuleRecord) -> str:
    times = module.times
    if not times.wall_time_s or not times.busy_time_s or times.busy_time_s <= times.wall_time_s * 1.0005:
        return ""
    return f"{units.seconds(times.busy_time_s)} instead of {units.seconds(times.wall_time_s)}"


def _describe_slowed(module: ModuleRecord) -> str:
    wall_s, profiled_s = module.times.wall_time_s, module.times.profiled_time_s
    if not wall_s or not profiled_s or profiled_s < PROFILER_SLOWDOWN * wall_s:
        return ""
    return f"from {units.seconds(wall_s)} to {units.seconds(profiled_s)}"


def _describe_noise(module: ModuleRecord) -> str:
    samples = module.times.wall_samples_s
    if len(samples) < FEW_SAMPLES:
        return ""
    low, middle, high = statistics.quantiles(samples, n=4)
    if not middle or (high - low) / middle <= NOISE:
        return ""
    return f"{units.seconds(low)} to {units.seconds(high)}"


def _number_if_few(module: ModuleRecord) -> str:
    number = len(module.times.wall_samples_s)
    return f"{number}" if 0 < number < FEW_SAMPLES else ""


def _describe_outliers(module: ModuleRecord) -> str:
    profiled = module.profiled
    if not profiled.iterations or profiled.outlier_iterations < max(1, OUTLIERS * profiled.iterations):
        return ""
    return f"{profiled.outlier_iterations} of {profiled.iterations}"


# Rules about the methods of profiling, the notes of graphs, and the checks that found no problem.
#
# Pure functions. A rule reports only what the record holds evidence for, in one finding for all graphs concerned.


METHOD_WORDS = {
    "-p": "run alone in a fresh process",
    "live": "run alone in the program's process, with its inputs",
    "trace": "read from a trace recorded elsewhere",
}
"""How a graph was measured beside the program's step."""

_INPUT = re.compile(r"\binteger input \d+ \S+?\[[^\]]*\]")


def find_profiling_methods(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports graphs that were profiled by another method than their own harness in a fresh process, and the reason."""
    run = evidence.run
    for name, reason, modules in list_methods(run):
        verb = "was" if len(modules) == 1 else "were"
        text = f"{join_labels(modules)} {verb} {METHOD_WORDS.get(name, name)}" + (f": {reason}" if reason else "")
        yield Finding("method", text, list_slugs(modules), level=NOTE, about=f"{name} {reason}")


def find_graph_notes(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports the notes of the graphs."""
    for module in evidence.run.modules:
        for note in module.notes:
            # The finding ``busy-over-wall`` reports such a note for all graphs together.
            if not note.startswith("under the profiler"):
                text = f"{module.label}: {note}"
                yield Finding("note", text, (module.slug,), level=NOTE, about=text)


def list_methods(run: Run) -> list[tuple[str, str, list[ModuleRecord]]]:
    """The graphs that were not profiled with their own harness, grouped by method and reason.

    Returns:
        ``(method, reason, graphs)``. Reasons that differ only in the number and size of an input count as one.
    """
    groups: dict[tuple[str, str], list[ModuleRecord]] = {}
    for module in run.modules:
        measurement = module.measurement
        if measurement.method != "-p" or measurement.method_reason:
            reason = _INPUT.sub("integer inputs", measurement.method_reason)
            groups.setdefault((measurement.method, reason), []).append(module)
    return [(name, reason, modules) for (name, reason), modules in groups.items()]


def list_checks_without_problem(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports the checks that found no problem, in one line. A check needs evidence in the record."""
    run = evidence.run
    fine = []
    launching = [module for module in run.modules if not find_device(module.device).runs_on_host]
    busy = all(module.times.busy_share is not None and module.times.busy_share >= GAPS for module in launching)
    if evidence.in_step:
        busy = not host_sets_pace(run) and not is_shared(run)
    if launching and busy and not is_anything_waiting(evidence):
        fine.append("no significant launch gaps")
    if run.capture.structured and run.modules and not run.capture.disagreement:  # the trace holds all that compiled
        fine += [] if run.capture.graph_breaks else ["no graph breaks"]
        fine += [] if run.capture.recompiles else ["no recompilations"]
    if fine:
        yield Finding("fine", ", ".join(fine), level=FINE)


RULES = (
    Rule(("no-peaks",), find_missing_peaks, is_measurement=True),
    Rule(("beyond-peaks",), find_kernels_beyond_peaks, is_measurement=True),
    Rule(("noise",), find_noise, is_measurement=True),
    Rule(("busy-over-wall",), find_busy_over_wall, is_measurement=True),
    Rule(("outliers",), find_outliers, is_measurement=True),
    Rule(("few-samples",), find_few_samples, is_measurement=True),
    Rule(("profiler-overhead",), find_profiler_overhead, is_measurement=True),
    Rule(("method",), find_profiling_methods, is_measurement=True),
    Rule(("note",), find_graph_notes, is_measurement=True),
    Rule(("fine",), list_checks_without_problem),
)

"""Rules about the steps' times: the first one, changes from step to step, and what limits the figures."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence

from .... import units
from ....records.program import LONGER_LOOP, Program
from ...costs.step import host_sets_pace, runs_on_host, step_of
from ..command_again import command_again
from ..evidence import RunEvidence
from ..finding import CAUTION, NOTE, Finding
from ..phrases import plural
from ..rules.busy_machine import busiest, load_words

COLD = 2.0  # ratio of the first step to a settled one from which it is reported
SPREAD = 0.1  # width of the middle half of the steps, as a share of their median, from which it is reported
DRIFT = 0.05  # change from the first to the last third of the steps, as a share of the mean
APART = 0.2  # gap between two groups of steps, as a share of the median
SMALLEST_GROUP = 0.2  # share of the steps that a group has at least
ENOUGH_FOR_GROUPS = 10  # number of steps from which two groups are no chance of a busy machine
FEW_STEPS = 5  # number of steps below which their mean is uncertain
LONGER_PROFILE = 1.2  # ratio of a profiled step to a timed one on a CPU from which it is reported
UNTIED = 0.005  # share of the graphs' device time without a kernel from which it is reported


def first_step(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports the time of the first step, which compiles."""
    program = step_of(evidence.run)
    if program is None or not program.first_step_time_s or program.first_step_time_s < COLD * program.step_time_s:
        return
    times = program.first_step_time_s / program.step_time_s
    after = f"; the timed window begins after {plural(program.settled_after, 'step')}" if program.settled_after else ""
    text = (
        f"the first step took {units.seconds(program.first_step_time_s)}, as long as {units.count(round(times))} "
        f"settled steps: it compiles{after}"
    )
    yield Finding("first-step", text, level=NOTE)


def busy_step(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports a machine that was busy while modules ran by themselves, where the host's time matters to the step."""
    run, load = evidence.run, busiest(evidence.run.modules)
    if load is None or not (runs_on_host(run) or host_sets_pace(run)):
        return
    again = command_again(run)
    where = f" ({again})" if again else ""
    text = (
        f"{load_words(load)} when the modules ran by themselves: the step, which was timed shortly before, may take "
        f"less on an idle machine. Measure it again there{where}"
    )
    yield Finding("busy-step", text, level=CAUTION)


def unsteady_steps(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports steps of several groups of times, steps that drift, or steps that vary."""
    program = step_of(evidence.run)
    times = program.step_times_s if program else ()
    if len(times) < FEW_STEPS:
        return
    groups, change = _groups(times), _drift(times)
    low, middle, high = statistics.quantiles(times, n=4)
    if len(groups) == 2:
        words = " and ".join(f"{len(one)} of about {units.seconds(statistics.median(one))}" for one in groups)
        why = (
            "shapes or work that change" if len(times) >= ENOUGH_FOR_GROUPS else "shapes or work that change, or a load"
        )
        text = f"the timed steps come in groups, {words}: {why}; the figures are means over both"
    elif abs(change) >= DRIFT:
        third = len(times) // 3
        first, last = (statistics.mean(some) for some in (times[:third], times[-third:]))
        text = (
            f"steps become {'longer' if change > 0 else 'shorter'}, from {units.seconds(first)} to "
            f"{units.seconds(last)} within the timed window: a growing cache, or clocks"
        )
    elif middle and (high - low) / middle >= SPREAD:
        text = (
            f"steps take different times: from {units.seconds(min(times))} to {units.seconds(max(times))}, the middle "
            f"half {units.seconds(low)} to {units.seconds(high)}; the figures are their means"
        )
    else:
        return
    yield Finding("unsteady-steps", text, level=CAUTION)


def _groups(times: Sequence[float]) -> list[list[float]]:
    """The steps in two groups where their times are far apart; else in one."""
    ordered = sorted(times)
    gap, place = max((after - before, at) for at, (before, after) in enumerate(itertools.pairwise(ordered), 1))
    groups = [ordered[:place], ordered[place:]]
    large = min(map(len, groups)) >= max(2, SMALLEST_GROUP * len(times))
    within = max(one[-1] - one[0] for one in groups)
    return groups if large and gap >= APART * statistics.median(times) and gap > within else [ordered]


def _drift(times: Sequence[float]) -> float:
    """The change from the first to the last third as a share of the mean; 0 where the thirds overlap."""
    third = len(times) // 3
    first, last = sorted(times[:third]), sorted(times[-third:])
    if third < 2 or not (first[-1] < last[0] or last[-1] < first[0]):
        return 0.0
    return (statistics.mean(last) - statistics.mean(first)) / statistics.mean(times)


def _longer_profile(program: Program) -> Iterator[Finding]:
    """Reports that the profiler slowed a device that is the host, which makes the parts less certain."""
    pairs = [(rank.profiled_step_time_s, rank.step_time_s) for rank in program.ranks]
    profiled_s, timed_s = max(((a, b) for a, b in pairs if a and b), key=lambda pair: pair[0] / pair[1], default=(0, 1))
    if profiled_s >= LONGER_PROFILE * timed_s:
        text = (
            f"profiled steps took {units.seconds(profiled_s)}, {units.whole_percent(profiled_s / timed_s - 1)} longer "
            "than the timed ones: all parts are shortened alike, and those of many short operators may be too large"
        )
        yield Finding("longer-profile", text, level=CAUTION)


def certainty(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports what limits the figures of the step, or why it was not profiled."""
    program = evidence.run.program
    if program is None:
        return
    if len(program.step_times_s) < FEW_STEPS:
        text = f"only {plural(len(program.step_times_s), 'step')} could be timed: their mean is uncertain"
        yield Finding("few-steps", text, level=CAUTION)
    if runs_on_host(evidence.run):
        yield from _longer_profile(program)
    tied = [rank.tied_share for rank in program.ranks if rank.tied_share is not None]
    if tied and min(tied) < 1 - UNTIED:
        text = (
            f"{units.percent(1 - min(tied))} of the compiled graphs' device time could not be tied to a kernel: the "
            "kernels' times in the step are lower bounds"
        )
        yield Finding("untied", text, level=CAUTION)
    for note in program.notes:
        loop = note.startswith(LONGER_LOOP)
        yield Finding("longer-loop" if loop else "step-note", note, level=CAUTION if loop else NOTE)

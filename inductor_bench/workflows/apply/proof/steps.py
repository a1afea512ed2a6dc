"""Compares steps of one process, in which the pins are used in turn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ....analysis.findings.phrases import plural
from ....analysis.savings import Sample, measure_saving
from ....devices.table import device_of
from ....messages.comparison import DONE, TIMING, ComparedOutputs, ComparedSteps
from ....messages.pins import PinnedProcess
from ....records.retunes.verification import STEPS, Outputs, Verification
from ....trace.program.durations import StepDurations, step_durations
from ....trace.program.reader import read_program_trace
from ....units import seconds
from ...ledger.traces import MARKERS
from ..pins import PinnedRun
from ..program import join_states
from .kernels import NOT_COMPARED, describe_kernels, replaced_calls, savings_by_kernel, savings_by_name, sum_predicted
from .program import now

ENDED_EARLY = "The program ended while its steps were timed: fewer steps than usual were compared"
UNPROFILED = "The program ended before enough steps were profiled: what the device saves is unknown"


def describe_steps(pinned: PinnedRun, found: ComparedSteps, processes: Sequence[PinnedProcess]) -> Verification:
    notes = list(found.notes)
    on_host = device_of(found.device or "cpu").runs_on_host
    notes += [ENDED_EARLY] * (found.state == TIMING) + [UNPROFILED] * (found.state != DONE and not on_host)
    durations = [] if on_host else _read_durations(found)
    flags = found.profiled[len(found.profiled) - len(durations) :]
    samples = [Sample(tuned, step.total_s) for tuned, step in zip(flags, durations, strict=True)]
    savings = savings_by_kernel(processes, savings_by_name(flags, durations))
    kernels = describe_kernels(pinned, join_states(processes), found.dropped, savings)
    in_both = replaced_calls(pinned, kernels)
    if in_both:
        saved_s = sum_predicted(in_both)
        what = f"their projected saving, {seconds(saved_s)} of a step," if saved_s else "what they save"
        who = f"{plural(len(in_both), 'library call')} run{'s' * (len(in_both) == 1)}"
        notes.append(f"{who} the choice that won on both sides: {what} is not in the comparison")
    return Verification(
        way=STEPS,
        predicted_s=sum_predicted([one for one in kernels if one not in in_both]),
        step=measure_saving([Sample(step.tuned, step.time_s) for step in found.steps]),
        device=measure_saving(samples),
        outputs=_summarise(found.outputs),
        kernels=kernels,
        notes=tuple(notes),
        created=now(),
    )


def _read_durations(found: ComparedSteps) -> list[StepDurations]:
    """The durations of the profiled steps without the first one, in which work from before the profile may run.

    Nothing where the trace does not hold the steps that were profiled.
    """
    if not found.trace:
        return []
    durations = step_durations(read_program_trace(Path(found.trace), MARKERS), MARKERS)
    return durations[1:] if len(durations) == len(found.profiled) else []


def _summarise(outputs: Sequence[ComparedOutputs]) -> Outputs:
    compared = [one for one in outputs if not one.reason]
    reasons = dict.fromkeys(one.reason for one in outputs if one.reason)
    if not compared:
        return Outputs(reason="; ".join(reasons) or NOT_COMPARED)
    worst = max(compared, key=lambda one: one.excess)
    return Outputs(
        len(compared),
        sum(one.tensors for one in compared),
        worst.difference,
        worst.own_difference,
        worst.tolerance,
        sum(one.unrepeatable for one in compared),
        sum(one.rounding for one in compared),
        "; ".join(reasons),
    )

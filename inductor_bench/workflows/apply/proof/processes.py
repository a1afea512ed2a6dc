"""Compares whole processes that run with the pins and without in turn, where steps cannot alternate within one."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ....analysis.savings import borne_out, judge_processes
from ....devices.table import device_of
from ....errors import InductorBenchError
from ....messages.pins import APPLY, PinnedProcess
from ....messages.steps import ObservedSteps
from ....records.retunes.verification import PROCESSES, UNDECIDED, Outputs, Saving, Verification
from ....trace.program.durations import StepDurations, step_durations
from ....trace.program.reader import read_program_trace
from ...ledger.traces import MARKERS
from ...modules.observed import read_steps
from ...progress import Progress
from ..pins import PinnedRun
from ..program import join_states, read_states, require_taken
from .kernels import NOT_COMPARED, describe_kernels, replaced_calls, savings_by_kernel, savings_by_name, sum_predicted
from .program import Plan, end_of, failure_of, now, start

CUDA_GRAPHS_NOTE = "A recorded CUDA graph keeps its kernels: whole processes were compared, not steps of one process"
LIBRARY_NOTE = "A library call is chosen when a graph is compiled: whole processes were compared, not steps of one"
HOSTS_DIFFER = "The device's own time does not show the difference of the step: the hosts of the processes differ"
ROUNDS = (False, True, True, False)
"""Whether each process runs the pins."""


class VerificationInterrupted(KeyboardInterrupt):
    """The user stopped the comparison of processes; ``found`` compares those that had ended."""

    def __init__(self, found: Verification) -> None:
        super().__init__("interrupted; the record has the processes that were compared until then")
        self.found = found


def verify_processes(pinned: PinnedRun, plan: Plan, progress: Progress, *, replays: bool) -> Verification:
    """Runs processes with the pins and without in turn, and compares the medians of their steps.

    Args:
        pinned: the pins.
        plan: what is verified.
        progress: shows what is done.
        replays: whether the program replays CUDA graphs.

    Raises:
        VerificationInterrupted: the user stopped it after some of each kind.
    """
    observed: dict[bool, list[ObservedSteps]] = {False: [], True: []}
    processes: list[PinnedProcess] = []
    notes = [CUDA_GRAPHS_NOTE if replays else LIBRARY_NOTE]
    bare = replace(pinned, pins=replace(pinned.pins, triton_pins=(), cpp_pins=(), library_pins=()))
    try:
        for number, tuned in enumerate(ROUNDS, 1):
            what = "with the configs" if tuned else "as it is"
            progress.stage(f"running the program {what} ({number} of {len(ROUNDS)})")
            ended, work = start(pinned if tuned else bare, plan, APPLY, "steps", f"compare-{number}", progress)
            found = min(read_steps(work), key=lambda one: (one.rank or 0, one.pid), default=None)
            if found is None or not found.step_times_s:
                raise InductorBenchError(f"the program {end_of(ended)} before its steps were timed", f"see {ended.log}")
            processes += read_states(work)
            require_taken(processes)
            notes += failure_of(ended)
            observed[tuned].append(found)
    except KeyboardInterrupt as stop:
        if not all(observed.values()):
            raise
        notes.append(f"Interrupted: {sum(map(len, observed.values()))} of {len(ROUNDS)} processes were compared")
        raise VerificationInterrupted(_describe(pinned, observed, processes, notes, replays=replays)) from stop
    return _describe(pinned, observed, processes, notes, replays=replays)


def _describe(
    pinned: PinnedRun,
    observed: Mapping[bool, Sequence[ObservedSteps]],
    processes: Sequence[PinnedProcess],
    notes: Sequence[str],
    *,
    replays: bool,
) -> Verification:
    steps = {flag: [step for one in observed[flag] for step in _read_steps_durations(one)] for flag in (False, True)}
    flags = [flag for flag in (False, True) for _ in steps[flag]]
    savings = savings_by_kernel(processes, savings_by_name(flags, [*steps[False], *steps[True]]))
    kernels = describe_kernels(pinned, join_states(processes), (), savings)
    step = _judge(observed, lambda one: statistics.median(one.step_times_s))
    device = _judge(observed, _device_time)
    launches_others = not replays and replaced_calls(pinned, kernels)
    if step is not None and not launches_others and not borne_out(step, device):
        step, notes = replace(step, verdict=UNDECIDED), [*notes, HOSTS_DIFFER]
    return Verification(
        way=PROCESSES,
        predicted_s=sum_predicted(kernels),
        step=step,
        device=device,
        outputs=Outputs(reason=NOT_COMPARED),
        kernels=kernels,
        notes=tuple(notes),
        created=now(),
    )


def _judge(
    observed: Mapping[bool, Sequence[ObservedSteps]], read: Callable[[ObservedSteps], float | None]
) -> Saving | None:
    """The saving of the pairs of processes that both have this time."""
    times = [(read(own), read(tuned)) for own, tuned in zip(observed[False], observed[True], strict=False)]
    known = [(own, tuned) for own, tuned in times if own is not None and tuned is not None]
    return judge_processes([own for own, _ in known], [tuned for _, tuned in known])


def _device_time(observed: ObservedSteps) -> float | None:
    steps = _read_steps_durations(observed)
    return statistics.median(step.total_s for step in steps) if steps else None


def _read_steps_durations(observed: ObservedSteps) -> list[StepDurations]:
    if not observed.trace or device_of(observed.device or "cpu").runs_on_host:
        return []
    return step_durations(read_program_trace(Path(observed.trace), MARKERS), MARKERS)[1:]

"""Proves in the program what the pins save: its steps with them and without, in turn."""

from __future__ import annotations

import datetime
import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...analysis.savings import Sample, judge_processes, measure_saving
from ...devices.table import device_of
from ...errors import InductorBenchError
from ...launch.diagnosis import last_error
from ...launch.process import ProcessResult, run_process
from ...messages.comparison import (
    CHECKING,
    CUDA_GRAPHS,
    DONE,
    FAILED,
    SETTLING,
    TIMING,
    ComparedOutputs,
    ComparedSteps,
)
from ...messages.pins import APPLY, COMPARE, PINNED, PinnedProcess, PinState
from ...messages.steps import DONE as STEPS_DONE
from ...messages.steps import ObservedSteps
from ...records.retunes.verification import DROPPED, PROCESSES, STEPS, AppliedKernel, Outputs, Saving, Verification
from ...records.run import Run
from ...store.files import read_json
from ...store.folder import RunFolder
from ...store.formats import codec
from ...trace.program.durations import StepDurations, step_durations
from ...trace.program.reader import read_program_trace
from ..ledger.traces import MARKERS
from ..modules.observed import read_steps
from ..progress import Progress
from .kernel_savings import savings_by_kernel, savings_by_name
from .pins import PinnedRun, Unpinned, with_mode
from .program import join_states, pinned_environment, read_states, require_taken

COMPARED = ".compared.json"

ROUNDS = (False, True, True, False)
"""Whether each process runs the pins, where steps cannot alternate within one process."""

ENDED_EARLY = "The program ended while its steps were timed: fewer steps than usual were compared"
UNPROFILED = "The program ended before enough steps were profiled: what the device saves is unknown"
CUDA_GRAPHS_NOTE = "A recorded CUDA graph keeps its kernels: whole processes were compared, not steps of one process"
NOT_COMPARED = "outputs were compared kernel by kernel only"


@dataclass(frozen=True)
class Plan:
    """What is verified, and how.

    Attributes:
        run: the RUN, whose folder gets the logs.
        command: the program.
        environment: the environment of the program without pins.
        timeout_s: limit of each process in seconds.
        stop: whether the program is ended once its steps are compared.
        replays: whether the program is known to replay CUDA graphs, so that no process is started to find that out.
    """

    run: RunFolder
    command: Sequence[str]
    environment: Mapping[str, str]
    timeout_s: float | None = None
    stop: bool = True
    replays: bool = False


def replays_graphs(run: Run) -> bool:
    """Whether the program of a RUN replays CUDA graphs in its step."""
    return run.program is not None and any(part.replays for part in run.program.parts)


def verify(pinned: PinnedRun, plan: Plan, progress: Progress) -> Verification:
    """Runs the program with the pins and without, and compares.

    Raises:
        InductorBenchError: the program cannot be started, compiles nothing, or ends before its steps are compared.
    """
    try:
        if plan.replays:
            return _verify_processes(pinned, plan, progress)
        progress.stage("comparing steps with the configs and without")
        ended, work = _start(pinned, plan, COMPARE, "comparison", "compare", progress)
        found, processes = _read_compared(work), read_states(work)
        require_taken(processes)
        if not found:
            nothing = "" if _failure_of(ended) else " and compiled nothing, or its compiled functions never ran"
            raise InductorBenchError(f"the program {_end_of(ended)}{nothing}", f"see {ended.log}")
        leading = min(found, key=lambda one: (not one.steps and one.state != CUDA_GRAPHS, one.rank or 0, one.pid))
        if leading.state == CUDA_GRAPHS:
            return _verify_processes(pinned, plan, progress)
        if not leading.steps:
            error = f": {leading.error}" if leading.error else ""
            what = f"the program {_end_of(ended)} {_UNCOMPARED.get(leading.state, 'before a step was compared')}{error}"
            raise InductorBenchError(what, f"see {ended.log}")
        described = _describe_steps(pinned, leading, processes)
        return replace(described, notes=(*described.notes, *_failure_of(ended)))
    finally:
        shutil.rmtree(plan.run.work, ignore_errors=True)


_UNCOMPARED = {
    SETTLING: "before its steps had settled",
    CHECKING: "while its outputs with the configs and without were compared",
    TIMING: "while its steps were timed",
}


def _end_of(ended: ProcessResult) -> str:
    """The end of a program in words, with the error that it printed."""
    error = "" if ended.ok else last_error(ended.tail())
    return f"{ended.outcome} ({error})" if error else ended.outcome


def _failure_of(ended: ProcessResult) -> tuple[str, ...]:
    """The note about a program that did not end well; nothing for one that did, or was ended on purpose."""
    return () if ended.ok else (f"The program {_end_of(ended)}: see {ended.log}",)


# Steps of one process


def _describe_steps(pinned: PinnedRun, found: ComparedSteps, processes: Sequence[PinnedProcess]) -> Verification:
    notes = list(found.notes)
    on_host = device_of(found.device or "cpu").runs_on_host
    notes += [ENDED_EARLY] * (found.state == TIMING) + [UNPROFILED] * (found.state != DONE and not on_host)
    durations = [] if on_host else _read_durations(found)
    flags = found.profiled[len(found.profiled) - len(durations) :]
    samples = [Sample(tuned, step.total_s) for tuned, step in zip(flags, durations, strict=True)]
    savings = savings_by_kernel(processes, savings_by_name(flags, durations))
    kernels = describe_kernels(pinned, join_states(processes), found.dropped, savings)
    return Verification(
        way=STEPS,
        predicted_s=_predicted(kernels),
        step=measure_saving([Sample(step.tuned, step.time_s) for step in found.steps]),
        device=measure_saving(samples),
        outputs=_summarise(found.outputs),
        kernels=kernels,
        notes=tuple(notes),
        created=_now(),
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


# Processes in turn


def _verify_processes(pinned: PinnedRun, plan: Plan, progress: Progress) -> Verification:
    """Runs processes with the pins and without in turn, and compares the medians of their steps."""
    observed: dict[bool, list[ObservedSteps]] = {False: [], True: []}
    durations: dict[bool, list[StepDurations]] = {False: [], True: []}
    processes: list[PinnedProcess] = []
    notes = [CUDA_GRAPHS_NOTE]
    bare = replace(pinned, pins=replace(pinned.pins, triton_pins=(), cpp_pins=()))
    for number, tuned in enumerate(ROUNDS, 1):
        progress.stage(f"running the program {'with the configs' if tuned else 'as it is'} ({number} of {len(ROUNDS)})")
        name = f"compare-{number}"
        ended, work = _start(pinned if tuned else bare, plan, APPLY, "steps", name, progress)
        found = min(read_steps(work), key=lambda one: (one.rank or 0, one.pid), default=None)
        if found is None or not found.step_times_s:
            raise InductorBenchError(f"the program {_end_of(ended)} before its steps were timed", f"see {ended.log}")
        observed[tuned].append(found)
        durations[tuned] += _read_steps_durations(found)
        processes += read_states(work)
        require_taken(processes)
        notes += _failure_of(ended)
    flags = [tuned for tuned in (False, True) for _ in durations[tuned]]
    savings = savings_by_kernel(processes, savings_by_name(flags, [*durations[False], *durations[True]]))
    kernels = describe_kernels(pinned, join_states(processes), (), savings)
    return Verification(
        way=PROCESSES,
        predicted_s=_predicted(kernels),
        step=_judge(observed, lambda one: statistics.median(one.step_times_s)),
        device=_judge(observed, _device_time),
        outputs=Outputs(reason=NOT_COMPARED),
        kernels=kernels,
        notes=tuple(notes),
        created=_now(),
    )


def _judge(
    observed: Mapping[bool, Sequence[ObservedSteps]], read: Callable[[ObservedSteps], float | None]
) -> Saving | None:
    own, tuned = ([time for one in observed[flag] if (time := read(one)) is not None] for flag in (False, True))
    return judge_processes(own, tuned)


def _device_time(observed: ObservedSteps) -> float | None:
    steps = _read_steps_durations(observed)
    return statistics.median(step.total_s for step in steps) if steps else None


def _read_steps_durations(observed: ObservedSteps) -> list[StepDurations]:
    if not observed.trace or device_of(observed.device or "cpu").runs_on_host:
        return []
    return step_durations(read_program_trace(Path(observed.trace), MARKERS), MARKERS)[1:]


# Both


def _start(
    pinned: PinnedRun, plan: Plan, mode: str, observe: str, name: str, progress: Progress
) -> tuple[ProcessResult, Path]:
    work = plan.run.work / name
    environment = pinned_environment(with_mode(pinned, mode), work, plan.environment, observe)
    sights = 0

    def is_finished() -> bool:
        nonlocal sights
        sights = sights + 1 if plan.stop and _is_finished(work) else 0
        return sights > 1  # the states of the pins, and other ranks, come a moment later

    ended = run_process(
        plan.command,
        environment=environment,
        log=plan.run.logs / f"{name}.log",
        timeout_s=plan.timeout_s,
        on_line=progress.output,
        is_finished=is_finished,
    )
    return ended, work


def _is_finished(work: Path) -> bool:
    """Whether every process that compares or observes its steps has come to the end of that."""
    states = [codec.decode(ComparedSteps, read_json(file)).state for file in work.glob(f"*{COMPARED}")]
    states += [steps.state for steps in read_steps(work)]
    return bool(states) and all(state in (DONE, FAILED, CUDA_GRAPHS, STEPS_DONE) for state in states)


def _read_compared(work: Path) -> list[ComparedSteps]:
    return [codec.decode(ComparedSteps, read_json(file)) for file in work.glob(f"*{COMPARED}")]


def describe_kernels(
    pinned: PinnedRun, states: Mapping[str, PinState], dropped: Sequence[str], savings: Mapping[str, float]
) -> tuple[AppliedKernel, ...]:
    """Every winner in the program, the largest projection first. Without a RUN those that the program has."""
    found = []
    for pin in pinned.pins.all:
        predicted_s = pinned.predicted_of(pin.kernel_id)
        state = states.get(pin.kernel_id)
        if state is None and not pinned.rows and pin.kernel_id not in dropped:
            continue  # the pins of other programs, too
        one = AppliedKernel(pin.name, pin.kernel_id, pin.config, "missing", NO_SUCH_KERNEL, predicted_s)
        if pin.kernel_id in dropped:
            one = replace(one, state=DROPPED, reason=CHANGES_OUTPUTS)
        elif state is not None:
            one = replace(one, state=state.state, reason=state.reason, saving_s=savings.get(pin.kernel_id))
        found.append(one)
    found += map(describe_unpinned, pinned.unpinned)
    return tuple(sorted(found, key=lambda one: -one.predicted_s))


def describe_unpinned(left: Unpinned) -> AppliedKernel:
    """A winner that cannot be pinned."""
    return AppliedKernel(left.row.name, left.row.kernel_id, {}, "unpinnable", left.reason, left.row.saving_s or 0.0)


CHANGES_OUTPUTS = "its config changes the outputs of its graph, or fails in it"
NO_SUCH_KERNEL = (
    "the program compiled no such kernel: it uses other options or sizes than the RUN's, or did not come to that part"
)


def _predicted(kernels: Sequence[AppliedKernel]) -> float:
    return sum(kernel.predicted_s for kernel in kernels if kernel.state == PINNED)


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")

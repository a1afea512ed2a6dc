"""Proves in the program what the pins save."""

from __future__ import annotations

import datetime
import math
import re
import shutil
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from ..analysis.findings.doubts import find_worst_load
from ..analysis.findings.finding import plural
from ..analysis.program_step import MARKERS
from ..analysis.statistics import TimedStep, device_confirms, judge_processes, measure_saving
from ..devices.table import find_device
from ..errors import InductorBenchError
from ..launch.process import ProcessResult, find_last_error, run_process
from ..messages.observed import (
    APPLY,
    CHECKING,
    COMPARE,
    CUDA_GRAPHS,
    PINNED,
    SETTLING,
    ComparedOutputs,
    ComparedSteps,
    PinnedProcess,
    PinState,
)
from ..records.edit import EditPin
from ..records.evidence import DONE, FAILED, TIMING, ObservedSteps
from ..records.evidence import DONE as STEPS_DONE
from ..records.retune import (
    DROPPED,
    PROCESSES,
    STEPS,
    UNDECIDED,
    UNPINNABLE,
    AppliedKernel,
    Config,
    LibraryPin,
    PinnedOutputs,
    Saving,
    Verification,
)
from ..records.run import Run
from ..store import codec
from ..store.files import read_json
from ..store.folder import RunFolder
from ..trace.program_trace import StepDurations, compute_step_durations, read_program_trace
from ..units import seconds
from .modules.observed_files import read_steps
from .pins import PinnedRun, Unpinned, join_states, make_pinned_environment, read_states, require_taken, set_mode
from .progress import Progress

# Starts the program for a comparison, and returns how it ended.


COMPARED = ".compared.json"


@dataclass(frozen=True)
class ProofPlan:
    """What is verified, and how."""

    run: RunFolder  # the RUN, whose folder gets the logs
    command: Sequence[str]  # the program
    environment: Mapping[str, str]  # the environment of the program without pins
    timeout_s: float | None = None  # limit of each process in seconds
    stop: bool = True  # whether the program is ended once its steps are compared
    proof_s: float | None = None  # seconds of the timed steps; ``None`` for the usual ones
    # whether the program is known to replay CUDA graphs, so that no process is started to find that out
    replays: bool = False


def run_to_end(
    pinned: PinnedRun, plan: ProofPlan, mode: str, observe: str, name: str, progress: Progress
) -> tuple[ProcessResult, Path]:
    """Runs the program to its end; returns the end, and the folder with the files of its processes."""
    work = plan.run.work / name
    pins = replace(set_mode(pinned, mode), proof_s=plan.proof_s)
    environment = make_pinned_environment(pins, work, plan.environment, observe)
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
    """Whether every process that compares or observes its steps has finished this."""
    states = [codec.decode(ComparedSteps, read_json(file)).state for file in work.glob(f"*{COMPARED}")]
    states += [steps.state for steps in read_steps(work)]
    return bool(states) and all(state in (DONE, FAILED, CUDA_GRAPHS, STEPS_DONE) for state in states)


def read_compared(work: Path) -> list[ComparedSteps]:
    """Reads the reports of the processes that compared their steps."""
    return [codec.decode(ComparedSteps, read_json(file)) for file in work.glob(f"*{COMPARED}")]


def describe_end(ended: ProcessResult) -> str:
    """Returns the end of a program in words, with the error that it printed."""
    error = "" if ended.ok else find_last_error(ended.tail())
    return f"{ended.outcome} ({error})" if error else ended.outcome


def make_failure(ended: ProcessResult) -> tuple[str, ...]:
    """Makes the note about a program that did not end well; empty if it ended well, or was ended on purpose."""
    return () if ended.ok else (f"The program {describe_end(ended)}: see {ended.log}",)


def read_utc_time() -> str:
    """The present time (UTC, ISO 8601), as a record holds it."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


# The state of each winner in the program, and how much of the device's time it saves in the profiled steps.


_NUMBER = re.compile(r"_\d+$")


def compute_kernel_savings(
    processes: Sequence[PinnedProcess],
    samples: Sequence[tuple[bool, StepDurations]],
    measure: Callable[[Sequence[TimedStep]], Saving | None] = measure_saving,
) -> dict[str, Saving]:
    """Computes the device time that each pinned kernel saves in a step, by the kernel's id.

    A kernel may have several names, one in each graph. A kernel that no profile shows did not run. A name ends in a
    number that shifts if the graph's code differs. A kernel is left out if the set of names that differ only in this
    number is not the same with and without the pins. It is also left out if it shares a name with another pinned
    kernel, as kernels of two graphs may: a profile does not show which of them saves the time.

    Args:
        processes: the reports of the processes about their pins.
        samples: the durations of each step, or of each process, and whether it ran the pins.
        measure: makes the saving from the times of a kernel.
    """
    tuned, own = ({name for flag, one in samples if flag == side for name in one.by_name} for side in (True, False))
    renumbered = {_NUMBER.sub("", name) for name in tuned ^ own}
    names: dict[str, set[str]] = defaultdict(set)
    for state in (state for process in processes for state in process.states):
        if state.event_name:
            names[state.kernel_id].add(state.event_name)
    owners = Counter(name for each in names.values() for name in each)
    found = {}
    for kernel_id, each in names.items():
        seen = each & (tuned | own)
        if any(owners[name] > 1 for name in each) or renumbered & {_NUMBER.sub("", name) for name in seen}:
            continue
        times = [TimedStep(flag, sum(one.by_name.get(name, 0.0) for name in seen)) for flag, one in samples]
        saving = measure(times) if seen else None
        if saving is not None:
            found[kernel_id] = saving
    return found


def describe_kernels(
    pinned: PinnedRun,
    states: Mapping[str, PinState],
    dropped: Sequence[str],
    savings: Mapping[str, Saving],
    changes: Mapping[str, str] = MappingProxyType({}),
) -> tuple[AppliedKernel, ...]:
    """Describes every edit and every winner in the program, the largest projected saving first.

    If the pins include those of other programs, only those that this program has are described. For kernels that share
    a pin, the saving of each is unknown.
    """
    library = [pin.kernel_id for pin in pinned.pins.library_pins]
    absorbs = any(state.kernel_id in library and state.state == PINNED for state in states.values())
    missing = f"{NO_SUCH_KERNEL}{ABSORBED if absorbs else ''}"
    found = []
    for name, kernel_id, pin in pinned.pinned:
        predicted_s, state = pinned.predicted_of(kernel_id), states.get(pin.kernel_id)
        if state is None and pinned.of_others and pin.kernel_id not in dropped:
            continue
        edit, config = (pin.file, {}) if isinstance(pin, EditPin) else ("", pin.config)
        words = f"{missing}{OTHER_TEMPLATE}" if isinstance(pin, EditPin) and pin.choice else missing
        one = AppliedKernel(name, kernel_id, config, "missing", words, predicted_s, edit=edit)
        if pin.kernel_id in dropped:
            how = f"{EDIT_CHANGES_OUTPUTS}: {changes.get(pin.kernel_id, '')}".removesuffix(": ")
            one = replace(one, state=DROPPED, reason=how if edit else CHANGES_OUTPUTS)
        elif state is not None:
            own = state.own_config if _differs(state.own_config, pinned.own_configs.get(kernel_id, {})) else {}
            one = replace(one, state=state.state, reason=state.reason, own_config=own)
            if (saving := savings.get(pin.kernel_id)) is not None and pin.kernel_id not in pinned.twins:
                one = replace(one, own_s=saving.own_s, tuned_s=saving.tuned_s, saving_s=saving.saving_s)
                one = replace(one, low_s=saving.low_s, high_s=saving.high_s)
        found.append(one)
    found += map(describe_unpinned, pinned.unpinned)
    return tuple(sorted(found, key=lambda one: (not one.edit, -one.predicted_s)))


def _differs(config: Config, other: Config) -> bool:
    """Whether two configurations differ in a field that both name."""
    return any(config[name] != other[name] for name in config.keys() & other.keys())


def describe_unpinned(left: Unpinned) -> AppliedKernel:
    """Describes a winner that cannot be pinned."""
    return AppliedKernel(left.row.name, left.row.kernel_id, {}, UNPINNABLE, left.reason, left.row.saving_s or 0.0)


NOT_COMPARED = "outputs were compared kernel by kernel only"
EDITS_NOT_COMPARED = "whole processes were compared; `kernel FILE --check` compares an edited kernel by itself"
CHANGES_OUTPUTS = "its config changes the outputs of its graph, or fails in it"
EDIT_CHANGES_OUTPUTS = "its edit changes the outputs of its graph, or fails in it"
NO_SUCH_KERNEL = (
    "the program did not compile the kernel: its options, its sizes or (on a CPU) its number of threads differ from "
    "those of the RUN, or it ended before this part"
)


OTHER_TEMPLATE = "; or max-autotune, whose times vary, chose a library call or another template"
ABSORBED = "; or a library call that runs here does its work, too"


def list_library_calls(pinned: PinnedRun) -> set[str]:
    """Returns the ids of the winners that are library calls with a pin."""
    return {one.kernel_id for one in pinned.pinned if isinstance(one.pin, LibraryPin)}


def find_replaced_calls(pinned: PinnedRun, kernels: Sequence[AppliedKernel]) -> list[AppliedKernel]:
    """Returns the library calls among the kernels that run the choice of their pin."""
    library = list_library_calls(pinned)
    return [one for one in kernels if one.kernel_id in library and one.state == PINNED]


def sum_predicted_savings_s(kernels: Sequence[AppliedKernel]) -> float:
    """Sums the projected savings of the kernels that run their pins, in seconds per step."""
    return sum(kernel.predicted_s for kernel in kernels if kernel.state == PINNED)


# Compares steps of one process, in which the pins are used in turn.


ENDED_EARLY = "The program ended while its steps were timed: fewer steps than planned were compared"
UNPROFILED = "The program ended before enough steps were profiled: what the device saves is unknown"


def describe_steps(pinned: PinnedRun, found: ComparedSteps, processes: Sequence[PinnedProcess]) -> Verification:
    notes = [*found.notes]
    on_host = find_device(found.device or "cpu").runs_on_host
    notes += [ENDED_EARLY] * (found.state == TIMING) + [UNPROFILED] * (found.state != DONE and not on_host)
    durations = [] if on_host else _read_durations(found)
    flags = found.profiled[len(found.profiled) - len(durations) :]
    samples = [TimedStep(tuned, step.total_s) for tuned, step in zip(flags, durations, strict=True)]
    savings = compute_kernel_savings(processes, [*zip(flags, durations, strict=True)])
    kernels = describe_kernels(pinned, join_states(processes), found.dropped, savings, found.changes)
    in_both = find_replaced_calls(pinned, kernels)
    if in_both:
        saved_s = sum_predicted_savings_s(in_both)
        what = f"their projected saving, {seconds(saved_s)} of a step," if saved_s else "what they save"
        who = f"{plural(len(in_both), 'library call')} run{'s' * (len(in_both) == 1)}"
        notes.append(f"{who} the faster choice on both sides: {what} is not part of the comparison")
    return Verification(
        way=STEPS,
        predicted_s=sum_predicted_savings_s([one for one in kernels if one not in in_both]),
        step=measure_saving([TimedStep(step.tuned, step.time_s) for step in found.steps]),
        device=measure_saving(samples),
        outputs=_summarise(found.outputs),
        kernels=kernels,
        notes=tuple(notes),
        created=read_utc_time(),
        load=found.load,
        ended_early=found.state == TIMING,
    )


def _read_durations(found: ComparedSteps) -> list[StepDurations]:
    """The durations of the profiled steps without the first one, in which work from before the profile may run."""
    if not found.trace:
        return []
    durations = compute_step_durations(read_program_trace(Path(found.trace), MARKERS), MARKERS)
    return durations[1:] if len(durations) == len(found.profiled) else []


def _summarise(outputs: Sequence[ComparedOutputs]) -> PinnedOutputs:
    compared = [one for one in outputs if not one.reason]
    reasons = dict.fromkeys(one.reason for one in outputs if one.reason)
    if not compared:
        return PinnedOutputs(reason="; ".join(reasons) or NOT_COMPARED)
    worst = max(compared, key=lambda one: one.excess)
    return PinnedOutputs(
        len(compared),
        sum(one.tensors for one in compared),
        worst.difference if math.isfinite(worst.difference) else None,
        worst.own_difference,
        worst.tolerance,
        sum(one.unrepeatable for one in compared),
        sum(one.rounding for one in compared),
        "; ".join(reasons),
    )


# Compares whole processes that run in turn with and without the pins, if steps cannot alternate within one process.


CUDA_GRAPHS_NOTE = "A recorded CUDA graph keeps its kernels, so whole processes were compared, not steps of one process"
LIBRARY_NOTE = "A library call is chosen when a graph is compiled, so whole processes were compared, not steps of one"
NOT_LONGER = "--proof-time had no effect: it is for steps that are compared in one process"
HOSTS_DIFFER = "The device's own time does not show the difference of the step: the hosts of the processes differ"
ROUNDS = (False, True, True, False)
"""Whether each process runs the pins."""


class VerificationInterrupted(KeyboardInterrupt):
    """The user stopped the comparison of processes; ``found`` compares those that had ended."""

    def __init__(self, found: Verification) -> None:
        super().__init__("interrupted; the record has the processes that were compared until then")
        self.found = found


def verify_processes(pinned: PinnedRun, plan: ProofPlan, progress: Progress, *, replays: bool) -> Verification:
    """Runs processes in turn with and without the pins, and compares the medians of their steps.

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
    notes = [CUDA_GRAPHS_NOTE if replays else LIBRARY_NOTE, *([NOT_LONGER] if plan.proof_s is not None else [])]
    bare = replace(pinned, pins=replace(pinned.pins, triton_pins=(), cpp_pins=(), library_pins=(), edits=()))
    try:
        for number, tuned in enumerate(ROUNDS, 1):
            what = f"with {pinned.pins.words}" if tuned else "as it is"
            progress.stage(f"running the program {what} ({number} of {len(ROUNDS)})")
            ended, work = run_to_end(pinned if tuned else bare, plan, APPLY, "steps", f"compare-{number}", progress)
            found = min(read_steps(work), key=lambda one: (one.rank or 0, one.pid), default=None)
            if found is None or not found.step_times_s:
                what = f"the program {describe_end(ended)} before its steps were timed"
                raise InductorBenchError(what, f"see {ended.log}", "program-failed")
            processes += read_states(work)
            require_taken(processes)
            notes += make_failure(ended)
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
    typical = {flag: [*map(_find_typical_step, observed[flag])] for flag in (False, True)}
    pairs = [pair for pair in zip(typical[False], typical[True], strict=False) if None not in pair]
    samples = [(flag, one) for pair in pairs for flag, one in zip((False, True), pair, strict=True) if one is not None]
    kernels = describe_kernels(pinned, join_states(processes), (), compute_kernel_savings(processes, samples, _judge))
    step = _judge(
        [
            TimedStep(flag, statistics.median(one.step_times_s))
            for pair in zip(observed[False], observed[True], strict=False)
            for flag, one in zip((False, True), pair, strict=True)
        ]
    )
    device = _judge([TimedStep(flag, one.total_s) for flag, one in samples])
    launches_others = not replays and find_replaced_calls(pinned, kernels)
    if step is not None and not launches_others and not device_confirms(step, device):
        step, notes = replace(step, verdict=UNDECIDED), [*notes, HOSTS_DIFFER]
    return Verification(
        way=PROCESSES,
        predicted_s=sum_predicted_savings_s(kernels),
        step=step,
        device=device,
        outputs=PinnedOutputs(reason=EDITS_NOT_COMPARED if pinned.pins.edits else NOT_COMPARED),
        kernels=kernels,
        notes=tuple(notes),
        created=read_utc_time(),
        load=find_worst_load(one.load for one in (*observed[False], *observed[True]) if _is_of_host(one)),
    )


def _is_of_host(observed: ObservedSteps) -> bool:
    return find_device(observed.device or "cpu").runs_on_host


def _judge(samples: Sequence[TimedStep]) -> Saving | None:
    """Returns the saving of pairs of processes, each with the time of its typical step."""
    times = [[sample.time_s for sample in samples if sample.tuned == side] for side in (False, True)]
    return judge_processes(*times)


def _find_typical_step(observed: ObservedSteps) -> StepDurations | None:
    """Returns the medians over the profiled steps of a process; ``None`` without a profile."""
    steps = _read_steps_durations(observed)
    if not steps:
        return None
    names = {name for step in steps for name in step.by_name}
    by_name = {name: statistics.median(step.by_name.get(name, 0.0) for step in steps) for name in names}
    return StepDurations(statistics.median(step.total_s for step in steps), by_name)


def _read_steps_durations(observed: ObservedSteps) -> list[StepDurations]:
    if not observed.trace or _is_of_host(observed):
        return []
    return compute_step_durations(read_program_trace(Path(observed.trace), MARKERS), MARKERS)[1:]


LIBRARY_SHARE = 0.2
"""The share of the projected saving above which library calls are compared, too. Whole processes are compared then."""


def has_replayed_graphs(run: Run) -> bool:
    """Whether the program of a RUN replays CUDA graphs in its step."""
    return run.program is not None and any(part.replays for part in run.program.parts)


def verify(pinned: PinnedRun, plan: ProofPlan, progress: Progress) -> Verification:
    """Runs the program with and without the pins, and compares.

    Raises:
        InductorBenchError: the program cannot be started, compiles nothing, or ends before its steps are compared.
        VerificationInterrupted: the user stopped it after some processes were compared.
    """
    try:
        if plan.replays:
            return verify_processes(pinned, plan, progress, replays=True)
        if _needs_processes(pinned):
            return verify_processes(pinned, plan, progress, replays=False)
        progress.stage(f"comparing steps with {pinned.pins.words} and without")
        ended, work = run_to_end(pinned, plan, COMPARE, "comparison", "compare", progress)
        found, processes = read_compared(work), read_states(work)
        require_taken(processes)
        if not found:
            nothing = "" if make_failure(ended) else " and compiled nothing, or its compiled functions never ran"
            raise InductorBenchError(
                f"the program {describe_end(ended)}{nothing}", f"see {ended.log}", "program-failed"
            )
        leading = min(found, key=lambda one: (not one.steps and one.state != CUDA_GRAPHS, one.rank or 0, one.pid))
        if leading.state == CUDA_GRAPHS:
            return verify_processes(pinned, plan, progress, replays=True)
        if not leading.steps:
            error = f": {leading.error}" if leading.error else ""
            when = _UNCOMPARED.get(leading.state, "before a step was compared")
            what = f"the program {describe_end(ended)} {when}{error}"
            raise InductorBenchError(what, f"see {ended.log}", "program-failed")
        described = describe_steps(pinned, leading, processes)
        return replace(described, notes=(*described.notes, *make_failure(ended)))
    finally:
        shutil.rmtree(plan.run.work, ignore_errors=True)


def _needs_processes(pinned: PinnedRun) -> bool:
    """Whether library calls have a large share of the projected saving.

    If it is unknown: whether all pins are of library calls.

    Edits are compared in steps, with their outputs; library calls then run their choice on both sides.
    """
    pins = pinned.pins
    if pins.edits:
        return False
    if not pins.library_pins or not (pins.triton_pins or pins.cpp_pins):
        return bool(pins.library_pins)
    library_s = sum(pinned.predicted_of(kernel_id) for kernel_id in list_library_calls(pinned))
    return library_s > LIBRARY_SHARE * pinned.predicted_s


_UNCOMPARED = {
    SETTLING: "before its steps had settled",
    CHECKING: "while its outputs with and without the configs were compared",
    TIMING: "while its steps were timed",
}

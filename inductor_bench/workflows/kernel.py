"""Runs the verb ``kernel``: times standalone files, and autotunes them if the request says so."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from .. import units
from ..analysis.statistics import summarize
from ..autotune.kernel_variants import triton_variants
from ..autotune.methods import METHODS, Pruning, Questions, RacePlan, TuningPriority, find_least
from ..autotune.pipeline import PipelineState
from ..autotune.tuner import Tuner, TuningSteps
from ..autotune.tuning_workers import LOAD_S, BudgetSpentError, describe_candidate
from ..devices.nvidia import list_visible_gpus
from ..errors import InductorBenchError, UsageError
from ..launch.worker import WorkerLostError, WorkerPool, default_python
from ..messages.kernel_requests import Forget, ListTritonConfigs, VariantFacts
from ..records.base import Failure
from ..records.request import KernelRequest
from ..records.retune import BY_DEFAULT, FASTER, UNREACHED, MeasuredKernel, Resources, TriedCandidate, Tuning
from ..records.run import Environment, KernelOutcome
from .kernels.kernel_session import (
    DeviceInUseError,
    KernelSession,
    choose_save_path,
    find_files,
    make_failure,
    make_kernel_environment,
    prepare_to_save,
)
from .kernels.kernel_timing import (
    KernelTimings,
    collect_notes,
    describe_kernel,
    list_advice,
    make_tuner,
    measure_file,
    run_tuners,
    tune,
)
from .progress import Progress

# Autotunes the kernels of a run without measuring each of them first. Kernels that can win most for its step come
# first.
#
# The record of a kernel comes from its retune: its cold time from the final, which has fresh samples of the file's own
# configuration.


NOT_COMPARED = "not compared with the reference: its candidates were compared with the kernel as it is"


def tune_ranked(files: Sequence[Path], method: str, session: KernelSession) -> Iterator[MeasuredKernel | Failure]:
    """Autotunes files in the order of what they can win for the step.

    Args:
        files: the files; ``session.stakes`` has for each file what it can win.
        method: the name of a method.
        session: the open session, whose budget began with it.

    Yields:
        Each kernel with its tuning, or the reason why it has none, as soon as it is known.
    """
    stakes = {file: session.stakes[str(file)] for file in files}
    progress = _RankedProgress(session, stakes)
    tuners = _make_tuners(stakes, method, session, lambda: progress.tuned > 0)
    for name, outcome in run_tuners(tuners, method, session, progress.report):
        file = Path(str(name))
        if isinstance(outcome, Tuning):
            progress.add(stakes[file], outcome)
            yield _describe(file, tuners[name], outcome, session)
        elif isinstance(outcome, BudgetSpentError):
            yield Failure("kernel", "budget", UNREACHED, subject=str(file))
        else:
            yield make_failure(file, outcome)


def _make_tuners(
    stakes: Mapping[Path, TuningPriority], method: str, session: KernelSession, may_give_way: Callable[[], bool]
) -> dict[Hashable, Tuner]:
    """Makes the tuners. Those whose kernels can win most for the step in a second of search come first."""
    least_s = find_least(session.stakes.values())
    ranked = sorted(stakes, key=lambda file: -stakes[file].rank)
    return {
        file: make_tuner(
            file,
            method,
            session,
            opens_last=stakes[file].is_library_call,
            pruning=Pruning(stakes[file], least_s),
            may_give_way=may_give_way,
        )
        for file in ranked
    }


@dataclass
class _RankedProgress:
    """The progress of the retune as a user sees it: kernels, candidates, the saving so far, and the time that is
    left."""

    session: KernelSession
    stakes: Mapping[Path, TuningPriority]
    saving_s: float = 0.0
    tuned: int = 0
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.session.progress.stage(f"retuning {len(self.stakes)} kernel{'s' * (len(self.stakes) != 1)}")

    def add(self, stake: TuningPriority, tuning: Tuning) -> None:
        self.tuned += 1
        if tuning.verdict == FASTER:
            self.saving_s += stake.time_s * (1 - 1 / tuning.speedup)

    def report(self, state: PipelineState) -> None:
        whole_s = sum(stake.time_s for stake in self.stakes.values())
        words = [
            f"{state.done} done",
            f"{state.candidates:,} candidates",
            f"saves {units.seconds(self.saving_s)} of {units.seconds(whole_s)}",
        ]
        if state.done:
            spent_s = time.monotonic() - self.began
            left_s = spent_s / state.done * (state.kernels - state.done)
            budget_s = self.session.left_s()
            left_s = left_s if budget_s is None else min(left_s, max(budget_s, 0.0))
            words.append(f"about {left_s:.0f} s left")
        self.session.progress.update(", ".join(words))


def _describe(file: Path, tuner: Tuner, tuning: Tuning, session: KernelSession) -> MeasuredKernel:
    """Makes the record of a kernel from its retune."""
    assert tuner.facts is not None
    default = tuning.candidates[0]
    resources = Resources(default.registers, default.spills, default.shared_memory_bytes)
    timings = KernelTimings(summarize(default.samples_s), None, tuner.timing.method)
    kernel = replace(
        describe_kernel(file, tuner.facts, session, default.config, resources, timings),
        check_message=NOT_COMPARED,
        shared_device=session.find_other_jobs(tuner.facts.device),
    )
    notes = collect_notes(tuner, tuning.method, kernel)
    return replace(kernel, advice=tuple(list_advice(kernel)), tuning=replace(tuning, notes=(*tuning.notes, *notes)))


# Times all configurations from which Inductor would choose for a kernel, without choosing one.


METHOD = "configs"
ROUNDS = 20


class _OneConfigError(InductorBenchError):
    """The kernel has one configuration only, whose times are measured already."""


class ConfigTimer(Tuner):
    """Times the configurations that Inductor lists in one race from which no candidate is dropped."""

    def _search(self, method: str) -> TuningSteps:
        """Times the listed configurations; yields and receives as :meth:`Tuner._search` does."""
        yield from self._open()
        default = self.candidates[0]
        self._add_candidates(self.variants.listed_by_max_autotune())
        yield from self._compile(self.candidates)
        began = time.monotonic()
        yield from self.timing.prepare(self.candidates[1:])
        entrants = [default, *(one for one in self.candidates[1:] if not one.status)]
        plan = RacePlan(first_rounds=1, finalists=len(entrants), final_rounds=ROUNDS, most_final_rounds=ROUNDS)
        _, result = yield from self._race(entrants, plan)
        for candidate in entrants:
            candidate.in_final = True
        rows = [describe_candidate(one, default, default) for one in self.candidates]
        rows = [replace(row, status="timed") if row.status == "finalist" else row for row in rows]
        default_s = statistics.median(result.runners[0].samples)
        return _make_tuning(self.state, tuple(rows), default_s, time.monotonic() - began)


def list_configs(kernels: Mapping[Path, MeasuredKernel], session: KernelSession) -> Iterator[MeasuredKernel | Failure]:
    """Times, for each of these kernels, the configurations from which Inductor chooses.

    Args:
        kernels: the measurements of the kernels, by their files.
        session: the session that measured them.

    Yields:
        Each kernel with its configurations, its own first, or the failure of their timing.
    """
    session.start_budget()
    measured: dict[Hashable, MeasuredKernel] = dict(kernels.items())
    request = session.request
    timers: dict[Hashable, Tuner] = {
        file: ConfigTimer(
            str(file.resolve()),
            _find_listed_variants,
            session.numbers,
            request.state,
            request.timeout_s,
        )
        for file in kernels
    }
    for name, outcome in run_tuners(timers, METHOD, session):
        kernel = measured[name]
        if isinstance(outcome, _OneConfigError):
            yield replace(kernel, tuning=_make_single_tuning(kernel, session.request.state))
        elif isinstance(outcome, Tuning):
            default, *others = outcome.candidates
            rows = (_add_compiled_facts(default, kernel), *others)
            yield replace(kernel, tuning=replace(outcome, candidates=rows))
        else:
            yield make_failure(Path(kernel.file), outcome)


def _find_listed_variants(facts: VariantFacts) -> Questions:
    if facts.language == "triton":
        found = yield ListTritonConfigs
        variants = triton_variants(found if found.tuned else replace(found, max=()))
        if variants.listed_by_max_autotune():
            return variants
    raise _OneConfigError("it has one configuration")


def _make_single_tuning(kernel: MeasuredKernel, state: str) -> Tuning:
    """Makes the tuning of a kernel with one configuration, from the times of its measurement."""
    timing = kernel.warm if state == "warm" and kernel.warm is not None else kernel.cold
    row = TriedCandidate(
        kernel.config,
        "default",
        median_s=timing.median_s,
        samples=timing.samples,
        samples_s=timing.samples_s,
    )
    return _make_tuning(state, (_add_compiled_facts(row, kernel),), timing.median_s)


def _add_compiled_facts(row: TriedCandidate, kernel: MeasuredKernel) -> TriedCandidate:
    """The row of the kernel's own configuration, with the registers, spills and shared memory of its measurement."""
    return replace(
        row,
        registers=kernel.resources.registers,
        spills=kernel.resources.spills,
        shared_memory_bytes=kernel.resources.shared_memory_bytes,
    )


def _make_tuning(state: str, rows: tuple[TriedCandidate, ...], default_s: float, time_s: float = 0.0) -> Tuning:
    return Tuning(
        method=METHOD,
        state=state,
        candidates=rows,
        tried=sum(row.status == "timed" for row in rows),
        default_s=default_s,
        best_s=default_s,
        speedup=1.0,
        verdict="",
        best_config=rows[0].config,
        time_s=time_s,
    )


MANY_FILES = 32
"""Number of files from which the compile pool is faster than one worker, despite the start of its workers."""


OnResult = Callable[[MeasuredKernel | Failure, Environment], None]


class KernelsInterrupted(KeyboardInterrupt):
    """The user stopped the request; ``outcome`` holds the kernels that were measured before."""

    def __init__(self, outcome: KernelOutcome) -> None:
        super().__init__("interrupted; the outcome has what was measured until then")
        self.outcome = outcome


def run_kernel(
    request: KernelRequest,
    progress: Progress,
    on_result: OnResult = lambda found, environment: None,
    stakes: Mapping[str, TuningPriority] = MappingProxyType({}),
) -> KernelOutcome:
    """Measures every kernel of the request, and autotunes it if the request says so.

    Args:
        request: the request.
        progress: the listener for stages and output.
        on_result: called with each tuned kernel and each failure as soon as it is known, and with the environment of
            the worker that measured.
        stakes: for each target and for the run's other kernels the time that a retune can win, if the targets are files
            of a run's kernels. The targets are then tuned in the order of these times, and not measured first.

    Raises:
        UsageError: the request or its files are invalid.
        InductorBenchError: the interpreter has no working torch.
        KernelsInterrupted: the user stopped the request after the first measurement.
    """
    if request.autotune not in (None, *METHODS):
        raise UsageError(f"{request.autotune} is no way to tune", f"one of {', '.join(METHODS)}", "bad-word")
    if request.configs and request.autotune:
        raise UsageError(
            "--configs times the kernel's own configs, and --autotune tries others",
            "leave out one of them",
            "conflicting-options",
        )
    if request.save is not None and request.autotune is None:
        raise UsageError("--save writes the winner of a retune", "add --autotune", "missing-option")
    files = find_files(request.targets)
    prepare_to_save(request.save, files)
    with tempfile.TemporaryDirectory(prefix="inductor-bench-") as name:
        environment = make_kernel_environment(Path(name))
        pool = WorkerPool(request.python or default_python(), Path(name), environment, on_line=progress.output)
        session = KernelSession(request, pool, progress, stakes=stakes)
        try:
            if stakes:
                session.start_ahead(files)
            session.open()
            if not list_visible_gpus():  # no other worker has started meanwhile
                session.start_budget()
            run_all = _tune_by_stakes if stakes else _measure_all
            return run_all(files, session, on_result)
        finally:
            session.close()


def measure_one(request: KernelRequest, progress: Progress) -> MeasuredKernel:
    """Measures the kernel of a request that names one kernel.

    Raises:
        InductorBenchError: as :func:`run_kernel`, or the failure of the kernel.
        UsageError: the request names several kernels.
    """
    outcome = run_kernel(request, progress)
    for failure in outcome.failures:
        raise InductorBenchError(failure.message, failure.hint, "kernel-failed")
    if len(outcome.kernels) != 1:
        raise UsageError(f"{request.targets[0]} names {len(outcome.kernels)} kernels", "give one file", "wrong-target")
    return outcome.kernels[0]


def _measure_all(files: Sequence[Path], session: KernelSession, on_result: OnResult) -> KernelOutcome:
    if session.request.autotune or len(files) >= MANY_FILES:
        session.compile_ahead(files)
    kernels: dict[Path, MeasuredKernel] = {}
    finished: set[Path] = set()
    failures: list[Failure] = []
    saved: list[Path] = []
    began: float | None = None

    def outcome(interrupted: bool = False) -> KernelOutcome:
        cut_short = set(kernels) - finished if interrupted and session.request.autotune else set()
        seen = tuple(_add_interrupt_advice(kernel) if file in cut_short else kernel for file, kernel in kernels.items())
        peaks = next(iter(session.peaks.values()), None)
        retune_s = 0.0 if began is None else time.monotonic() - began
        return KernelOutcome(seen, session.environment, peaks, tuple(failures), tuple(saved), retune_s, interrupted)

    try:
        for measured in _measure_each(files, session):
            if isinstance(measured, Failure):
                failures.append(measured)
                on_result(measured, session.environment)
            else:
                kernels[Path(measured.file)] = measured
        began = time.monotonic()
        for found in _time_configs_or_tune(dict(kernels), files, session):
            if isinstance(found, Path):
                saved.append(found)
                continue
            on_result(found, session.environment)
            if isinstance(found, Failure):
                failures.append(found)
                finished.add(Path(found.subject))
            else:
                kernels[Path(found.file)] = found
                finished.add(Path(found.file))
    except KeyboardInterrupt as stop:
        if not kernels:
            raise
        raise KernelsInterrupted(outcome(interrupted=True)) from stop
    return outcome()


def _tune_by_stakes(files: Sequence[Path], session: KernelSession, on_result: OnResult) -> KernelOutcome:
    """Autotunes the kernels of a run without measuring each of them first."""
    found: list[MeasuredKernel | Failure] = []
    began = time.monotonic()

    def outcome(interrupted: bool = False) -> KernelOutcome:
        kernels = tuple(one for one in found if isinstance(one, MeasuredKernel))
        failures = tuple(one for one in found if isinstance(one, Failure))
        retune_s = time.monotonic() - began
        return KernelOutcome(kernels, session.environment, None, failures, (), retune_s, interrupted)

    try:
        for one in tune_ranked(files, session.request.autotune or BY_DEFAULT, session):
            found.append(one)
            on_result(one, session.environment)
    except KeyboardInterrupt as stop:
        raise KernelsInterrupted(outcome(interrupted=True)) from stop
    return outcome()


def _add_interrupt_advice(kernel: MeasuredKernel) -> MeasuredKernel:
    return replace(kernel, advice=(*kernel.advice, "not retuned: interrupted"))


def _measure_each(files: Sequence[Path], session: KernelSession) -> Iterator[MeasuredKernel | Failure]:
    """Measures each file in its own configuration; stops at the first file whose device is used by another job."""
    for file in files:
        found: MeasuredKernel | Failure
        in_use = False
        try:
            found = measure_file(file, session)
        except (WorkerLostError, InductorBenchError) as error:
            found, in_use = make_failure(file, error), isinstance(error, DeviceInUseError)
        yield found
        # This is skipped after an interrupt, because the worker is still busy with its last request.
        if session.has_worker(0):
            with contextlib.suppress(WorkerLostError):  # a crash here belongs to the kernel that is done
                session.ask(Forget(), LOAD_S)
        if in_use:
            return


def _time_configs_or_tune(
    kernels: Mapping[Path, MeasuredKernel], files: Sequence[Path], session: KernelSession
) -> Iterator[MeasuredKernel | Failure | Path]:
    """Lists configurations or autotunes, if the request says so."""
    save = session.request.save
    if session.request.configs:
        yield from list_configs(kernels, session)
    elif session.request.autotune:
        yield from tune(
            kernels, {file: choose_save_path(save, file, files) for file in kernels} if save else {}, session
        )

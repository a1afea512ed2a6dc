"""Runs the verb ``kernel``: times standalone files, and autotunes them where the request says so."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...autotune.compile_pool import LOAD_S
from ...autotune.methods import METHODS
from ...devices.nvidia.visible import visible_gpus
from ...errors import InductorBenchError, UsageError
from ...launch.session import WorkerLostError
from ...launch.worker import WorkerPool, default_python
from ...messages.kernels import Forget
from ...records.run import Environment, Failure, Peaks
from ...records.tuning import BY_DEFAULT, MeasuredKernel
from ..options import KernelOptions
from ..progress import Progress
from .configs import list_configs
from .device_use import DeviceInUseError, kernel_environment
from .ranked import tune_ranked
from .session import KernelSession, failure_of
from .targets import find_files, place_of, prepare_to_save
from .timing import measure_file
from .tuning import tune

MANY_FILES = 32
"""Number of files from which the compile pool is faster than one worker, despite the start of its workers."""


@dataclass(frozen=True)
class KernelOutcome:
    """The outcome of a request.

    Attributes:
        kernels: the measured kernels.
        environment: the environment of the worker that measured.
        peaks: the measured peaks of the device, where they are known.
        failures: the kernels that could not be measured or tuned.
        saved: the files that winners were written to.
        retune_s: the time in seconds spent on other configurations of all kernels.
        interrupted: whether the user stopped the request, so that kernels or tunings are missing.
    """

    kernels: tuple[MeasuredKernel, ...]
    environment: Environment = field(default_factory=Environment)
    peaks: Peaks | None = None
    failures: tuple[Failure, ...] = ()
    saved: tuple[Path, ...] = ()
    retune_s: float = 0.0
    interrupted: bool = False


OnResult = Callable[[MeasuredKernel | Failure, Environment], None]


class KernelsInterrupted(KeyboardInterrupt):
    """The user stopped the request; ``outcome`` holds the kernels that were measured before."""

    def __init__(self, outcome: KernelOutcome) -> None:
        super().__init__("interrupted; the outcome has what was measured until then")
        self.outcome = outcome


def run_kernel(
    options: KernelOptions,
    progress: Progress,
    on_result: OnResult = lambda found, environment: None,
) -> KernelOutcome:
    """Measures every kernel of the request, and autotunes it where the request says so.

    Args:
        options: the request.
        progress: the listener for stages and output.
        on_result: called with each tuned kernel and each failure as soon as it is known, and with the environment of
            the worker that measured.

    Raises:
        UsageError: the options or the files of the request are invalid.
        InductorBenchError: the interpreter has no working torch.
        KernelsInterrupted: the user stopped the request after the first measurement.
    """
    if options.autotune not in (None, *METHODS):
        raise UsageError(f"{options.autotune} is no way to tune", f"one of {', '.join(METHODS)}")
    if options.configs and options.autotune:
        raise UsageError(
            "--configs times the kernel's own configs, and --autotune tries others", "leave one of them out"
        )
    if options.save is not None and options.autotune is None:
        raise UsageError("--save writes the winner of a retune", "add --autotune")
    files = find_files(options.targets)
    prepare_to_save(options.save, files)
    with tempfile.TemporaryDirectory(prefix="inductor-bench-") as name:
        environment = kernel_environment(Path(name))
        pool = WorkerPool(options.python or default_python(), Path(name), environment, on_line=progress.output)
        session = KernelSession(options, pool, progress)
        try:
            if options.stakes:
                session.start_ahead(files)
            session.open()
            if not visible_gpus():  # no other worker has started meanwhile
                session.start_budget()
            run_all = _tune_by_stakes if options.stakes else _measure_all
            return run_all(files, session, on_result)
        finally:
            session.close()


def measure_one(options: KernelOptions, progress: Progress) -> MeasuredKernel:
    """Measures the kernel of a request that names one kernel.

    Raises:
        InductorBenchError: as :func:`run_kernel`, or the failure of the kernel.
        UsageError: the request names several kernels.
    """
    outcome = run_kernel(options, progress)
    for failure in outcome.failures:
        raise InductorBenchError(failure.message, failure.hint)
    if len(outcome.kernels) != 1:
        raise UsageError(f"{options.targets[0]} names {len(outcome.kernels)} kernels", "give one file")
    return outcome.kernels[0]


def _measure_all(files: Sequence[Path], session: KernelSession, on_result: OnResult) -> KernelOutcome:
    if session.options.autotune or len(files) >= MANY_FILES:
        session.compile_ahead(files)
    kernels: dict[Path, MeasuredKernel] = {}
    finished: set[Path] = set()
    failures: list[Failure] = []
    saved: list[Path] = []
    began: float | None = None

    def outcome(interrupted: bool = False) -> KernelOutcome:
        cut_short = set(kernels) - finished if interrupted and session.options.autotune else set()
        seen = tuple(
            _with_interrupt_advice(kernel) if file in cut_short else kernel for file, kernel in kernels.items()
        )
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
        for found in _configs_or_tunings(dict(kernels), files, session):
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
    """Autotunes the kernels of a run without a measurement of each."""
    found: list[MeasuredKernel | Failure] = []
    began = time.monotonic()

    def outcome(interrupted: bool = False) -> KernelOutcome:
        kernels = tuple(one for one in found if isinstance(one, MeasuredKernel))
        failures = tuple(one for one in found if isinstance(one, Failure))
        retune_s = time.monotonic() - began
        return KernelOutcome(kernels, session.environment, None, failures, (), retune_s, interrupted)

    try:
        for one in tune_ranked(files, session.options.autotune or BY_DEFAULT, session):
            found.append(one)
            on_result(one, session.environment)
    except KeyboardInterrupt as stop:
        raise KernelsInterrupted(outcome(interrupted=True)) from stop
    return outcome()


def _with_interrupt_advice(kernel: MeasuredKernel) -> MeasuredKernel:
    return replace(kernel, advice=(*kernel.advice, "not retuned: interrupted"))


def _measure_each(files: Sequence[Path], session: KernelSession) -> Iterator[MeasuredKernel | Failure]:
    """Measures each file in its own configuration; stops at the first file whose device another job uses."""
    for file in files:
        found: MeasuredKernel | Failure
        in_use = False
        try:
            found = measure_file(file, session)
        except (WorkerLostError, InductorBenchError) as error:
            found, in_use = failure_of(file, error), isinstance(error, DeviceInUseError)
        yield found
        # This is skipped after an interrupt, because the worker is still busy with its last request.
        if session.has_worker(0):
            with contextlib.suppress(WorkerLostError):  # a crash here belongs to the kernel that is done
                session.ask(Forget(), LOAD_S)
        if in_use:
            return


def _configs_or_tunings(
    kernels: Mapping[Path, MeasuredKernel], files: Sequence[Path], session: KernelSession
) -> Iterator[MeasuredKernel | Failure | Path]:
    """Lists configurations or autotunes, where the request says so.

    Yields:
        Each kernel with its tuning, or its failure, and the path of each file that is written.
    """
    save = session.options.save
    if session.options.configs:
        yield from list_configs(kernels, session)
    elif session.options.autotune:
        yield from tune(kernels, {file: place_of(save, file, files) for file in kernels} if save else {}, session)

"""The verb ``kernel``: standalone files timed and autotuned."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...autotune.compile_pool import LOAD_S
from ...autotune.methods import METHODS
from ...errors import InductorBenchError, UsageError
from ...launch.session import WorkerLostError
from ...launch.worker import WorkerPool, default_python
from ...messages.kernels import Forget
from ...records.run import Environment, Failure, Peaks
from ...records.tuning import MeasuredKernel
from ...store.device_turn import TURN
from ..progress import Progress
from .configs import list_configs
from .device_use import DeviceInUseError
from .session import KernelOptions, KernelSession, failure_of
from .targets import find_files, place_of, prepare_to_save
from .timing import measure_file
from .tuning import tune

MANY_FILES = 32
"""From so many on, workers that compile beside each other are started sooner than one worker has compiled."""


@dataclass(frozen=True)
class KernelOutcome:
    """One entry for each kernel that could be measured; ``failures`` are the others.

    ``retune_s`` is the time that it took to build and time other configurations of all of them; ``interrupted`` says
    that the user stopped it, so that kernels or their tunings are missing.
    """

    kernels: tuple[MeasuredKernel, ...]
    environment: Environment = field(default_factory=Environment)
    peaks: Peaks | None = None
    failures: tuple[Failure, ...] = ()
    saved: tuple[Path, ...] = ()
    retune_s: float = 0.0
    interrupted: bool = False


class KernelsInterrupted(KeyboardInterrupt):
    """The user stopped it; ``outcome`` has what was measured until then."""

    def __init__(self, outcome: KernelOutcome) -> None:
        super().__init__("interrupted; the outcome has what was measured until then")
        self.outcome = outcome


def run_kernel(
    options: KernelOptions, progress: Progress, told: Callable[[MeasuredKernel | Failure], None] = lambda found: None
) -> KernelOutcome:
    """Measures, and autotunes where asked for, every kernel of the request.

    Args:
        options: the request.
        progress: is told what happens.
        told: is given what came of each kernel that was autotuned, and each failure, as soon as it is known.

    Raises:
        UsageError: the request cannot be carried out as typed.
        InductorBenchError: this interpreter has no torch that works.
        KernelsInterrupted: the user stopped it after something had been measured.
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
        environment = {"TRITON_CACHE_DIR": str(Path(name) / "triton"), **os.environ}
        environment.pop(TURN, None)  # whoever shares the GPU has the turn for all of this
        pool = WorkerPool(options.python or default_python(), Path(name), environment, on_line=progress.output)
        work = KernelSession(options, pool, progress)
        try:
            work.look()
            return _measure_all(files, work, told)
        finally:
            work.close()


def measure_one(options: KernelOptions, progress: Progress) -> MeasuredKernel:
    """The kernel of a request that names one.

    Raises:
        InductorBenchError: as :func:`run_kernel`, or what went wrong with the kernel.
        UsageError: it names several.
    """
    outcome = run_kernel(options, progress)
    for failure in outcome.failures:
        raise InductorBenchError(failure.message, failure.hint)
    if len(outcome.kernels) != 1:
        raise UsageError(f"{options.targets[0]} names {len(outcome.kernels)} kernels", "give one file")
    return outcome.kernels[0]


def _measure_all(
    files: Sequence[Path], work: KernelSession, told: Callable[[MeasuredKernel | Failure], None]
) -> KernelOutcome:
    if work.options.autotune or len(files) >= MANY_FILES:
        work.compile_ahead(files)
    kernels: dict[Path, MeasuredKernel] = {}
    over: set[Path] = set()
    failures: list[Failure] = []
    saved: list[Path] = []
    began: float | None = None

    def outcome(interrupted: bool = False) -> KernelOutcome:
        cut_short = set(kernels) - over if interrupted and work.options.autotune else set()
        seen = tuple(_cut_short(kernel) if file in cut_short else kernel for file, kernel in kernels.items())
        peaks = next(iter(work.peaks.values()), None)
        retune_s = 0.0 if began is None else time.monotonic() - began
        return KernelOutcome(seen, work.environment, peaks, tuple(failures), tuple(saved), retune_s, interrupted)

    try:
        for measured in _measured(files, work):
            if isinstance(measured, Failure):
                failures.append(measured)
                told(measured)
            else:
                kernels[Path(measured.file)] = measured
        began = time.monotonic()
        for found in _configs_or_tunings(dict(kernels), files, work):
            if isinstance(found, Path):
                saved.append(found)
                continue
            told(found)
            if isinstance(found, Failure):
                failures.append(found)
                over.add(Path(found.subject))
            else:
                kernels[Path(found.file)] = found
                over.add(Path(found.file))
    except KeyboardInterrupt as stop:
        if not kernels:
            raise
        raise KernelsInterrupted(outcome(interrupted=True)) from stop
    return outcome()


def _cut_short(kernel: MeasuredKernel) -> MeasuredKernel:
    return replace(kernel, advice=(*kernel.advice, "not retuned: interrupted"))


def _measured(files: Sequence[Path], work: KernelSession) -> Iterator[MeasuredKernel | Failure]:
    """What came of each file as it stands, up to the first whose device is in use."""
    for file in files:
        found: MeasuredKernel | Failure
        in_use = False
        try:
            found = measure_file(file, work)
        except (WorkerLostError, InductorBenchError) as error:
            found, in_use = failure_of(file, error), isinstance(error, DeviceInUseError)
        yield found
        # Not after an interrupt: the worker is still at what it was asked for.
        if work.session is not None and work.session.alive:
            with contextlib.suppress(WorkerLostError):  # it dies of what it was done with
                work.ask(Forget(), LOAD_S)
        if in_use:
            return


def _configs_or_tunings(
    kernels: Mapping[Path, MeasuredKernel], files: Sequence[Path], work: KernelSession
) -> Iterator[MeasuredKernel | Failure | Path]:
    """The kernels with what was asked for beside their times, if anything, and the files that were written."""
    save = work.options.save
    if work.options.configs:
        yield from list_configs(kernels, work)
    elif work.options.autotune:
        yield from tune(kernels, {file: place_of(save, file, files) for file in kernels} if save else {}, work)

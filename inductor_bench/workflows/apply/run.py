"""Runs the verb ``apply``."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from ...analysis.findings.command_again import program_words
from ...errors import InductorBenchError
from ...launch.marks import tool_mark
from ...launch.process import run_in_terminal
from ...launch.worker import default_python
from ...messages.pins import APPLY
from ...records.retunes.verification import UNPINNABLE, AppliedKernel, Verification
from ...store.folder import RunFolder
from ...store.lock import locked
from ..modules.command import interpreter_of
from ..progress import Progress
from .dropped import forget_dropped, with_verification
from .folder import require_retuned, write_tuned
from .guard import read_environment, require_same
from .known import pin_known
from .pins import PinnedRun, make_pins, with_mode
from .program import join_states, pinned_environment, read_states, require_taken, users_environment
from .proof.kernels import describe_kernels, describe_unpinned
from .proof.processes import VerificationInterrupted
from .proof.program import Plan
from .proof.verification import replays_graphs, verify


@dataclass(frozen=True)
class ApplyOptions:
    """The request of the verb ``apply``.

    Attributes:
        run: the RUN folder with the retunes; ``None`` for all tunings that are known for this machine.
        command: the program; empty to write ``RUN/tuned`` only.
        verify: whether the program is run with the configurations and without, and compared.
        stop: whether it is ended once its steps are compared.
        timeout_s: limit of each process of a comparison in seconds.
        python: the interpreter of the program, where the command does not tell.
    """

    run: Path | None
    command: tuple[str, ...] = ()
    verify: bool = False
    stop: bool = False
    timeout_s: float | None = None
    python: str | None = None


@dataclass(frozen=True)
class ApplyOutcome:
    """What became of the request.

    Attributes:
        folder: the RUN folder; ``None`` without one.
        pinned: the pins.
        kernels: every winner in the program that was run; empty where none was run.
        written: the files of ``RUN/tuned``.
        exit_code: the program's exit code; ``None`` where none was run to its end.
        verification: the comparison of the program with itself; ``None`` where none was made.
        interrupted: whether the user stopped the comparison.
        program: the command line of the RUN's program, if any.
    """

    folder: Path | None
    pinned: PinnedRun
    kernels: tuple[AppliedKernel, ...] = ()
    written: tuple[Path, ...] = ()
    exit_code: int | None = None
    verification: Verification | None = None
    interrupted: bool = False
    program: str = ""

    @property
    def winners(self) -> int:
        """The number of kernels that won something by themselves."""
        return len(self.pinned.pinned) + len(self.pinned.unpinned)

    @property
    def unpinned(self) -> tuple[AppliedKernel, ...]:
        """The winners that cannot be pinned, each with its reason."""
        return tuple(map(describe_unpinned, self.pinned.unpinned))

    @property
    def predicted_s(self) -> float:
        """The projected saving of the pins in seconds per step."""
        return self.pinned.predicted_s


def run_apply(options: ApplyOptions, progress: Progress) -> ApplyOutcome:
    """Writes the configurations of a RUN, or runs a program with them.

    Raises:
        InductorBenchError: there is no RUN, it was not retuned, its configurations are for another torch, Triton or
            device, or the program cannot be started or compared.
        KeyboardInterrupt: the user stopped it before anything was compared.
    """
    if options.run is None:
        return _apply_known(options, progress)
    folder = RunFolder(options.run)
    with locked(folder.path, tool_mark()) if options.verify else nullcontext():  # the record is read and then written
        return _apply_run(folder, options, progress)


def _apply_run(folder: RunFolder, options: ApplyOptions, progress: Progress) -> ApplyOutcome:
    run = folder.load()
    require_retuned(run, folder)
    pinned = make_pins(run, folder)
    if not options.command:
        written = tuple(write_tuned(run, folder, pinned))
        return ApplyOutcome(folder.path, pinned, written=written, program=program_words(run))
    progress.stage("looking at the machine")
    require_same(pinned.pins, run.environment, read_environment(_python(options)))
    if not options.verify:
        return _run(folder.path, pinned, options)
    found, interrupted = _verify(folder, pinned, options, progress, replays_graphs(run))
    forget_dropped(found, run.environment)
    folder.save(with_verification(run, found))
    return ApplyOutcome(folder.path, pinned, found.kernels, verification=found, interrupted=interrupted)


def _apply_known(options: ApplyOptions, progress: Progress) -> ApplyOutcome:
    """Runs a program with all tunings that are known for its interpreter and this machine."""
    progress.stage("looking at the machine")
    environment = read_environment(_python(options))
    pinned = pin_known(environment)
    if not options.verify:
        return _run(None, pinned, options)
    place = Path(tempfile.mkdtemp(prefix="inductor-bench-"))
    keeps_log = False
    try:
        found, interrupted = _verify(RunFolder(place), pinned, options, progress)
        keeps_log = any(str(place) in note for note in found.notes)
    except InductorBenchError as error:
        keeps_log = str(place) in error.hint
        raise
    finally:
        if not keeps_log:
            shutil.rmtree(place, ignore_errors=True)
    forget_dropped(found, environment)
    return ApplyOutcome(None, pinned, found.kernels, verification=found, interrupted=interrupted)


def _python(options: ApplyOptions) -> str:
    return options.python or interpreter_of(options.command) or default_python()


def _verify(
    folder: RunFolder, pinned: PinnedRun, options: ApplyOptions, progress: Progress, replays: bool = False
) -> tuple[Verification, bool]:
    """The comparison, and whether the user stopped it."""
    plan = Plan(folder, options.command, users_environment(), options.timeout_s, options.stop, replays)
    try:
        return verify(pinned, plan, progress), False
    except VerificationInterrupted as stop:
        return stop.found, True


def _run(folder: Path | None, pinned: PinnedRun, options: ApplyOptions) -> ApplyOutcome:
    work = Path(tempfile.mkdtemp(prefix="inductor-bench-"))
    try:
        environment = pinned_environment(with_mode(pinned, APPLY), work, users_environment(), "nothing")
        code = run_in_terminal(options.command, environment)
        processes = read_states(work)
        require_taken(processes)
        kernels = describe_kernels(pinned, join_states(processes), (), {})
        if not processes:
            kernels = tuple(one if one.state == UNPINNABLE else replace(one, reason=SILENT) for one in kernels)
        return ApplyOutcome(folder, pinned, kernels, exit_code=code)
    finally:
        shutil.rmtree(work, ignore_errors=True)


SILENT = (
    "the program compiled no such kernel with the RUN's options and sizes, or it ended before it could say so "
    "(a signal, os._exit)"
)

"""Runs the verb ``apply``."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from ...launch.marks import tool_mark
from ...launch.worker import default_python
from ...messages.pins import APPLY
from ...records.retunes.verification import AppliedKernel
from ...records.run import Run
from ...store.folder import RunFolder
from ...store.lock import locked
from ..modules.command import interpreter_of
from ..progress import Progress
from .folder import require_retuned, write_tuned
from .guard import read_environment, require_same
from .pins import PinnedRun, make_pins, with_mode
from .program import join_states, pinned_environment, read_states, require_taken, users_environment
from .terminal import run_in_terminal
from .verification import Plan, describe_kernels, verify


@dataclass(frozen=True)
class ApplyOptions:
    """The request of the verb ``apply``.

    Attributes:
        run: the RUN folder with the retunes.
        command: the program; empty to write ``RUN/tuned`` only.
        verify: whether the program is run with the configurations and without, and compared.
        stop: whether it is ended once its steps are compared.
        timeout_s: limit of each process of a comparison in seconds.
        python: the interpreter of the program, where the command does not tell.
    """

    run: Path
    command: tuple[str, ...] = ()
    verify: bool = False
    stop: bool = False
    timeout_s: float | None = None
    python: str | None = None


@dataclass(frozen=True)
class ApplyOutcome:
    """What became of the request.

    Attributes:
        run: the record of the RUN, with the verification where one was made.
        folder: the RUN folder.
        pinned: the pins.
        kernels: every winner in the program that was run; empty where none was run.
        written: the files of ``RUN/tuned``.
        exit_code: the program's exit code; ``None`` where none was run to its end.
        is_verified: whether the program was compared with itself.
    """

    run: Run
    folder: Path
    pinned: PinnedRun
    kernels: tuple[AppliedKernel, ...] = ()
    written: tuple[Path, ...] = ()
    exit_code: int | None = None
    is_verified: bool = False

    @property
    def winners(self) -> int:
        """The number of kernels that won something by themselves."""
        return len(self.pinned.rows)

    @property
    def predicted_s(self) -> float:
        """The projected saving of the pins in seconds per step."""
        return self.pinned.predicted_s


def run_apply(options: ApplyOptions, progress: Progress) -> ApplyOutcome:
    """Writes the configurations of a RUN, or runs a program with them.

    Raises:
        InductorBenchError: there is no RUN, it was not retuned, its configurations are for another torch, Triton or
            device, or the program cannot be started or compared.
    """
    folder = RunFolder(options.run)
    run = folder.load()
    require_retuned(run, folder)
    pinned = make_pins(run, folder)
    if not options.command:
        return ApplyOutcome(run, folder.path, pinned, written=tuple(write_tuned(run, folder, pinned)))
    progress.stage("looking at the machine")
    python = options.python or interpreter_of(options.command) or default_python()
    require_same(pinned.pins, run.environment, read_environment(python))
    if options.verify:
        return _verify(run, folder, pinned, options, progress)
    return _run(run, folder, pinned, options)


def _verify(run: Run, folder: RunFolder, pinned: PinnedRun, options: ApplyOptions, progress: Progress) -> ApplyOutcome:
    plan = Plan(folder, options.command, users_environment(), options.timeout_s, options.stop)
    with locked(folder.path, tool_mark()):
        found = verify(pinned, plan, progress)
        run = replace(run, verification=found)
        folder.save(run)
    return ApplyOutcome(run, folder.path, pinned, found.kernels, is_verified=True)


def _run(run: Run, folder: RunFolder, pinned: PinnedRun, options: ApplyOptions) -> ApplyOutcome:
    work = Path(tempfile.mkdtemp(prefix="inductor-bench-"))
    try:
        environment = pinned_environment(with_mode(pinned, APPLY), work, users_environment(), "nothing")
        code = run_in_terminal(options.command, environment)
        processes = read_states(work)
        require_taken(processes)
        kernels = describe_kernels(pinned, join_states(processes), (), {})
        return ApplyOutcome(run, folder.path, pinned, kernels, exit_code=code)
    finally:
        shutil.rmtree(work, ignore_errors=True)

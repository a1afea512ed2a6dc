"""Runs the verb ``apply``."""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..analysis.findings.finding import list_program_words
from ..errors import InductorBenchError
from ..launch.marks import find_tool_mark
from ..launch.process import run_in_terminal
from ..launch.worker import (
    WorkerLostError,
    WorkerPool,
    WorkerSession,
    default_python,
    explain_loss_at_start,
    make_worker_environment,
)
from ..messages.job_requests import TellEnvironment
from ..messages.observed import APPLY, PINS, Pins
from ..records.base import IN_RECORD, VERIFY, Failure
from ..records.request import ApplyRequest
from ..records.retune import DROPPED, UNPINNABLE, AppliedKernel, Verification
from ..records.run import Environment, Run
from ..source.edited import KernelEdit, read_edit
from ..store.caches import forget_tuning, read_known_tunings
from ..store.folder import RunFolder
from ..store.lock import hold_lock
from .modules.program_run import find_interpreter
from .pins import (
    PinnedRun,
    add_checked_ratios,
    add_edits,
    edit_pin,
    join_states,
    list_places,
    make_pinned_environment,
    make_pins,
    make_users_environment,
    pin_known,
    read_edits,
    read_states,
    require_taken,
    set_mode,
    warn_of_unchecked_edits,
)
from .progress import Progress
from .proof import (
    CHANGES_OUTPUTS,
    ProofPlan,
    VerificationInterrupted,
    describe_kernels,
    describe_unpinned,
    has_replayed_graphs,
    verify,
)
from .query import run_report
from .tuned import is_tuned, load_tuned, write_tuned

# Refuses the configurations of another torch, Triton or device: what is fast there may be slow here.


LIMIT_S = 300.0
"""Seconds for a worker to import torch and to describe the machine."""


def read_environment(python: str) -> Environment:
    """Returns the machine and the versions as an interpreter sees them.

    Raises:
        InductorBenchError: the interpreter has no working torch.
    """
    with tempfile.TemporaryDirectory(prefix="inductor-bench-") as temporary:
        folder = Path(temporary)
        environment = make_worker_environment(folder, dict(os.environ))
        pool, log = WorkerPool(python, folder, dict(os.environ)), folder / "environment.log"
        session = WorkerSession(python, folder, environment, log=log, on_line=lambda _: None)
        try:
            return session.ask(TellEnvironment(), LIMIT_S)
        except WorkerLostError as lost:
            raise explain_loss_at_start(lost, pool) from None
        finally:
            session.close()


def require_same(pins: Pins, measured: Environment, here: Environment) -> None:
    """Checks that the pins were found with the versions and on the device of this process.

    Raises:
        InductorBenchError: they were not; the message names each difference.
    """
    compared = [("torch", pins.torch, here.versions.torch)]
    if pins.need_gpu:
        compared += [
            ("Triton", pins.triton or "", here.versions.triton or ""),
            ("GPU", measured.device.accelerator or "", here.device.accelerator or ""),
        ]
    if pins.need_processor:
        compared += [
            ("processor", measured.host.cpu, here.host.cpu),
            ("vector width", measured.host.vector_isa or "", here.host.vector_isa or ""),
        ]
    _refuse_different(pins, compared)


def require_same_gpu(pins: Pins, measured: Environment, name: str) -> None:
    """Checks that the pins for a GPU were found on one of this name.

    Raises:
        InductorBenchError: they were not.
    """
    if pins.need_gpu:
        _refuse_different(pins, [("GPU", measured.device.accelerator or "", name)])


def _refuse_different(pins: Pins, compared: list[tuple[str, str, str]]) -> None:
    different = [f"{what} {there or 'none'}, here {now or 'none'}" for what, there, now in compared if there != now]
    if different:
        raise InductorBenchError(
            f"{pins.words} were made on {'; '.join(different)}: what is fast there may be slow here",
            f"break the program down{' and retune it' if pins.configs else ''} here",
            "elsewhere",
        )


def require_retuned(run: Run, folder: RunFolder) -> None:
    """Checks that a RUN was retuned.

    Raises:
        InductorBenchError: it was not.
    """
    if not run.retunes:
        hint = f"make them: inductor-bench breakdown {shlex.quote(str(folder.path))} --autotune coordesc"
        raise InductorBenchError(f"{folder.path} has no retunes", hint, "no-retunes")


# Keeps configs that changed the outputs of a graph out of later programs.


WRONG = f"{CHANGES_OUTPUTS}: it was dropped when the program was compared"


def add_verification(run: Run, found: Verification) -> Run:
    """Returns the run with a verification. The retunes whose configs the verification dropped have failed."""
    dropped = {kernel.kernel_id: kernel.config for kernel in found.kernels if kernel.state == DROPPED}
    retunes = tuple(
        replace(retune, failure=Failure(VERIFY, "wrong", WRONG, subject=retune.name))
        if retune.tuning is not None and dropped.get(retune.kernel_id) == retune.tuning.best_config
        else retune
        for retune in run.retunes
    )
    return replace(run, retunes=retunes, verification=found)


def delete_dropped_tunings(found: Verification, environment: Environment) -> None:
    """Deletes the dropped configs, and those of twins, from the tunings of the environment that other runs use."""
    dropped = {kernel.kernel_id: kernel.config for kernel in found.kernels if kernel.state == DROPPED}
    if not dropped:
        return
    known = [one for place in list_places(environment) for one in read_known_tunings(place)]
    pins = [(one.key, one.pin) for one in known if one.pin is not None]
    wrong = [(pin.target, pin.config) for _, pin in pins if dropped.get(pin.kernel_id) == pin.config]
    for key, pin in pins:
        if (pin.target, pin.config) in wrong:
            forget_tuning(key)


@dataclass(frozen=True)
class ApplyOutcome:
    """The result of ``apply``: the pins, what ran them, and what was written."""

    folder: Path | None  # the RUN folder; ``None`` without one
    pinned: PinnedRun = field(metadata={IN_RECORD: False})  # the pins
    kernels: tuple[AppliedKernel, ...] = ()  # every winner in the program that was run; empty if none was run
    written: tuple[Path, ...] = ()  # the files of ``RUN/tuned``
    exit_code: int | None = None  # the program's exit code; ``None`` if none was run to its end
    verification: Verification | None = None  # the comparison of the program with itself; ``None`` if none was made
    interrupted: bool = False  # whether the user stopped the comparison
    program: str = ""  # the command line of the RUN's program, if any
    # why the RUN's page and tables do not have the comparison, which the record has; ``None`` if they do
    problem: InductorBenchError | None = field(default=None, metadata={IN_RECORD: False})
    # the request of a comparison; ``None`` if none was made
    request: ApplyRequest | None = field(default=None, metadata={IN_RECORD: False})

    @property
    def winners(self) -> int:
        """Returns the number of kernels that are faster alone."""
        return len(self.pinned.pinned) - self.edits + len(self.pinned.unpinned)

    @property
    def edits(self) -> int:
        """The number of edited kernels."""
        return len(self.pinned.pins.edits)

    @property
    def unpinned(self) -> tuple[AppliedKernel, ...]:
        """Returns the winners that cannot be pinned, each with its reason."""
        return tuple(map(describe_unpinned, self.pinned.unpinned))

    @property
    def predicted_s(self) -> float:
        """The projected saving of the pins in seconds per step."""
        return self.pinned.predicted_s


def run_apply(request: ApplyRequest, progress: Progress) -> ApplyOutcome:
    """Writes the configurations of a RUN and edited kernels, or runs a program with them.

    Raises:
        InductorBenchError: there is no RUN, it was not retuned and no kernel is edited, what is put in is for another
            torch, Triton or device, or the program cannot be started or compared.
        KeyboardInterrupt: the user stopped it before anything was compared.
    """
    if request.run is None:
        return _apply_known(request, progress)
    if is_tuned(request.run):
        return _apply_tuned(request.run, request, progress)
    folder = RunFolder(request.run)
    with (
        hold_lock(folder.path, find_tool_mark()) if request.verify else nullcontext()
    ):  # the record is read and then written
        return _apply_run(folder, request, progress)


def _apply_run(folder: RunFolder, request: ApplyRequest, progress: Progress) -> ApplyOutcome:
    run = folder.load()
    edits = read_edits(request.kernels, run)
    pinned = _list_pins(run, folder, edits)
    if not request.verify:
        for note in warn_of_unchecked_edits(edits):
            progress.note(note)
    if not request.command:
        written = tuple(write_tuned(run, folder, pinned))
        return ApplyOutcome(folder.path, pinned, written=written, program=list_program_words(run.request))
    progress.stage("looking at the machine")
    require_same(pinned.pins, run.environment, read_environment(_find_python(request)))
    if not request.verify:
        return _run(folder.path, pinned, request)
    found, interrupted = _verify(folder, pinned, request, progress, has_replayed_graphs(run))
    found = _add_checks(found, edits)
    delete_dropped_tunings(found, run.environment)
    folder.save(add_verification(run, found))
    _, problem = run_report(folder.path)
    return ApplyOutcome(
        folder.path,
        pinned,
        found.kernels,
        verification=found,
        interrupted=interrupted,
        problem=problem,
        request=request,
    )


def _list_pins(run: Run, folder: RunFolder, edits: Sequence[KernelEdit]) -> PinnedRun:
    """Returns the configs of a RUN, if it was retuned, and the edited kernels.

    Raises:
        InductorBenchError: there is neither.
    """
    if not edits:
        require_retuned(run, folder)
    return add_edits(make_pins(run, folder), list(map(edit_pin, edits)), run.environment)


def _apply_known(request: ApplyRequest, progress: Progress) -> ApplyOutcome:
    """Runs a program with all tunings that are known for its interpreter and this machine."""
    progress.stage("looking at the machine")
    environment = read_environment(_find_python(request))
    return _apply_elsewhere(pin_known(environment), environment, request, progress)


def _apply_tuned(folder: Path, request: ApplyRequest, progress: Progress) -> ApplyOutcome:
    """Runs a program with what ``RUN/tuned`` holds."""
    pinned, environment = load_tuned(folder)
    progress.stage("looking at the machine")
    require_same(pinned.pins, environment, read_environment(_find_python(request)))
    return _apply_elsewhere(pinned, environment, request, progress)


def _apply_elsewhere(
    pinned: PinnedRun, environment: Environment, request: ApplyRequest, progress: Progress
) -> ApplyOutcome:
    """Runs or compares a program whose RUN may be missing here."""
    if not request.verify:
        return _run(None, pinned, request)
    edits = [read_edit(Path(pin.file)) for pin in pinned.pins.edits]
    place = Path(tempfile.mkdtemp(prefix="inductor-bench-"))
    keeps_log = False
    try:
        found, interrupted = _verify(RunFolder(place), pinned, request, progress)
        keeps_log = any(str(place) in note for note in found.notes)
    except InductorBenchError as error:
        keeps_log = str(place) in error.hint
        raise
    finally:
        if not keeps_log:
            shutil.rmtree(place, ignore_errors=True)
    found = _add_checks(found, edits)
    delete_dropped_tunings(found, environment)
    return ApplyOutcome(None, pinned, found.kernels, verification=found, interrupted=interrupted, request=request)


def _add_checks(found: Verification, edits: Sequence[KernelEdit]) -> Verification:
    """Adds to a comparison what is known of its edits alone: the times, and which edits were not checked."""
    notes = (*found.notes, *warn_of_unchecked_edits(edits))
    return replace(found, notes=notes, kernels=add_checked_ratios(found.kernels, edits))


def _find_python(request: ApplyRequest) -> str:
    return request.python or find_interpreter(request.command) or default_python()


def _verify(
    folder: RunFolder, pinned: PinnedRun, request: ApplyRequest, progress: Progress, replays: bool = False
) -> tuple[Verification, bool]:
    """Returns the comparison, and whether the user stopped it."""
    limits = request.timeout_s, request.stop, request.proof_s
    plan = ProofPlan(folder, request.command, make_users_environment(), *limits, replays)
    try:
        return verify(pinned, plan, progress), False
    except VerificationInterrupted as stop:
        return stop.found, True


def _run(folder: Path | None, pinned: PinnedRun, request: ApplyRequest) -> ApplyOutcome:
    work = Path(tempfile.mkdtemp(prefix="inductor-bench-"))
    try:
        environment = make_pinned_environment(set_mode(pinned, APPLY), work, make_users_environment(), "nothing")
        code = run_in_terminal(request.command, environment)
        processes = read_states(work)
        require_taken(processes)
        kernels = describe_kernels(pinned, join_states(processes), (), {})
        if not processes:
            kernels = tuple(one if one.state == UNPINNABLE else replace(one, reason=SILENT) for one in kernels)
        return ApplyOutcome(folder, pinned, kernels, exit_code=code)
    finally:
        shutil.rmtree(work, ignore_errors=True)


SILENT = (
    "the program did not compile the kernel with the RUN's options and sizes, or it ended before it could report this "
    "(a signal, os._exit)"
)


# Prepares this process, and those that it starts, for the configs of a RUN.


def prepare_process(folder: Path, kernels: Sequence[Path] = ()) -> tuple[PinnedRun, Environment]:
    """Writes the pins of a RUN for this process and its compile workers, and names them in the environment.

    Args:
        folder: a RUN, or its folder ``tuned``.
        kernels: files of edited kernels of a RUN.

    Returns:
        The pins, and the environment of the RUN.

    Raises:
        InductorBenchError: there is no RUN, it was not retuned and no kernel is edited, or this process has the
            configs of a RUN already.
    """
    if os.environ.get(PINS):
        raise InductorBenchError(
            "this process has already loaded the configs of a RUN, or `inductor-bench apply` started it",
            "call inductor_bench.apply once; without it, `inductor-bench apply RUN -- COMMAND` does the same",
            "applied-already",
        )
    if is_tuned(folder) and not kernels:
        pinned, environment = load_tuned(folder)
    else:
        run = RunFolder(folder).load()
        pinned, environment = _list_pins(run, RunFolder(folder), read_edits(kernels, run)), run.environment
    work = Path(tempfile.mkdtemp(prefix="inductor-bench-"))
    atexit.register(shutil.rmtree, work, ignore_errors=True)
    os.environ.update(make_pinned_environment(set_mode(pinned, APPLY), work, os.environ, "nothing"))
    return pinned, environment

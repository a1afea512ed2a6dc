"""Runs the verb ``apply``."""

from __future__ import annotations

import atexit
import html
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..analysis.findings.finding import apply_command, plural, program_words
from ..errors import InductorBenchError
from ..launch.marks import tool_mark
from ..launch.process import run_in_terminal
from ..launch.worker import (
    WorkerLostError,
    WorkerPool,
    WorkerSession,
    default_python,
    lost_at_start,
    worker_environment,
)
from ..messages.job_requests import TellEnvironment
from ..messages.observed import APPLY, PINS, Pins
from ..records.base import IN_RECORD, VERIFY, Failure
from ..records.request import ApplyRequest
from ..records.retune import DROPPED, UNPINNABLE, AppliedKernel, Verification
from ..records.run import Environment, Run
from ..source.standalone_header import docstring, plain
from ..store.caches import forget_tuning, known_tunings
from ..store.files import own_folder, remove_file, write_text
from ..store.folder import RunFolder
from ..store.lock import locked
from ..units import MISSING, seconds
from .modules.program_run import interpreter_of
from .pins import (
    PinnedRun,
    WinnerPin,
    join_states,
    lookup_table,
    make_pins,
    pin_known,
    pinned_environment,
    places_of,
    read_states,
    require_taken,
    users_environment,
    with_mode,
)
from .progress import Progress
from .proof import (
    CHANGES_OUTPUTS,
    ProofPlan,
    VerificationInterrupted,
    describe_kernels,
    describe_unpinned,
    replays_graphs,
    verify,
)

# Refuses the configurations of another torch, Triton or device: what is fast there may be slow here.


LIMIT_S = 300.0
"""Seconds for a worker to import torch and to describe the machine."""


def read_environment(python: str) -> Environment:
    """The machine and the versions as an interpreter sees them.

    Raises:
        InductorBenchError: the interpreter has no working torch.
    """
    with tempfile.TemporaryDirectory(prefix="inductor-bench-") as temporary:
        folder = Path(temporary)
        environment = worker_environment(folder, dict(os.environ))
        pool, log = WorkerPool(python, folder, dict(os.environ)), folder / "environment.log"
        session = WorkerSession(python, folder, environment, log=log, on_line=lambda _: None)
        try:
            return session.ask(TellEnvironment(), LIMIT_S)
        except WorkerLostError as lost:
            raise lost_at_start(lost, pool) from None
        finally:
            session.close()


def require_same(pins: Pins, measured: Environment, here: Environment) -> None:
    """Checks that the pins were found with the versions and on the device that are here.

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
    _refuse_different(compared)


def require_same_gpu(pins: Pins, measured: Environment, name: str) -> None:
    """Checks that the pins for a GPU were found on one of this name.

    Raises:
        InductorBenchError: they were not.
    """
    if pins.need_gpu:
        _refuse_different([("GPU", measured.device.accelerator or "", name)])


def _refuse_different(compared: list[tuple[str, str, str]]) -> None:
    different = [f"{what} {there or 'none'}, here {now or 'none'}" for what, there, now in compared if there != now]
    if different:
        raise InductorBenchError(
            f"the configs were found on {'; '.join(different)}: what is fast there may be slow here",
            "break the program down and retune it here",
            "elsewhere",
        )


# Writes ``RUN/tuned``: the configurations in the form that Inductor reads, and a page that says what they are.


MODULE, PAGE, TABLE = "tuned.py", "README.md", "lookup_table.json"

_ABOUT = """Configs of Triton kernels, found by retuning {title}.

    import tuned
    model = torch.compile(model, options=tuned.options())

For torch {torch}, Triton {triton} and {device}; anything else is refused."""
_MODULE = '''{about}
import json
from pathlib import Path

TORCH = {torch!r}
TRITON = {triton!r}
DEVICE = {device!r}
TABLE = json.loads(Path(__file__).with_name({table!r}).read_text(encoding="utf-8"))


def options():
    """The options of torch.compile that pin the configs; torch takes either options or a mode, and not both."""
    import torch
    import triton

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    if (torch.__version__, triton.__version__, device) != (TORCH, TRITON, DEVICE):
        found = f"torch {{torch.__version__}}, Triton {{triton.__version__}} and {{device}}"
        wanted = f"torch {{TORCH}}, Triton {{TRITON}} and {{DEVICE}}"
        raise RuntimeError(f"these configs are for {{wanted}}, and this is {{found}}")
    return {{"autotune_lookup_table": TABLE}}
'''


def write_tuned(run: Run, folder: RunFolder, pinned: PinnedRun) -> list[Path]:
    """Writes the folder, over an earlier one; returns its files.

    Raises:
        InductorBenchError: it cannot be written.
    """
    place = folder.path / "tuned"
    own_folder(place)
    table, left = lookup_table(pinned)
    texts = {
        TABLE: json.dumps(table, indent=1, sort_keys=True) + "\n",
        MODULE: _module_text(run),
        PAGE: page(run, folder, pinned, left),
    }
    if not table:
        del texts[TABLE], texts[MODULE]
    for name in (TABLE, MODULE):
        if name not in texts:
            remove_file(place / name)
    for name, text in texts.items():
        write_text(place / name, text)
    return [place / name for name in texts]


def _module_text(run: Run) -> str:
    """The module ``tuned``. The record may be another person's: its texts are literals, or words of the docstring."""
    environment = run.environment
    versions = {"torch": environment.versions.torch, "triton": environment.versions.triton}
    facts = {**versions, "device": environment.device.accelerator}
    words = {name: plain(value or "none") for name, value in {**facts, "title": run.title}.items()}
    return _MODULE.format(about=docstring(_ABOUT.format(**words)), table=TABLE, **facts)


def page(run: Run, folder: RunFolder, pinned: PinnedRun, left: Mapping[str, str]) -> str:
    """The page of the folder, in Markdown; ``left`` has the reasons why kernels are not in the table."""
    environment, kernels = run.environment, pinned.pinned
    device = environment.device.accelerator if pinned.pins.need_gpu else environment.host.cpu
    versions = f"torch {environment.versions.torch}" + (
        f", Triton {environment.versions.triton}" if environment.versions.triton else ""
    )
    where = f"{plain(device or '')} with {plain(versions)}"
    place, program = shlex.quote(folder.path.name), program_words(run)
    tabled = sum(one.pin.kernel_id not in left for one in kernels)
    lines = [
        f"# Tuned configs of {html.escape(plain(run.title))}",
        "",
        f"Faster with another config, by themselves, on {where}: {plural(len(kernels), 'kernel')}.",
        f"Projected saving: {seconds(pinned.predicted_s)} of a step. Proven is what `--verify` measures.",
        "",
        "```bash",
        f"{plain(apply_command(place, program))}             # any program, unchanged",
        f"{plain(apply_command(place, program, '--verify'))}    # and what it saves",
        "```",
        "",
    ]
    if tabled:
        lines += [
            f"In code, for {tabled} of the {len(kernels)} kernels (`lookup_table.json` is Inductor's form):",
            "",
            "```python",
            "import tuned",
            "model = torch.compile(model, options=tuned.options())",
            "```",
            "",
            "Inductor ignores an entry silently if a kernel's code differs. It may still halve `R0_BLOCK` of",
            "a reduction, or start a coordinate descent from the entry; `inductor-bench apply` prevents both.",
            "",
        ]
    lines += ["| kernel | by itself | config | saves per step | in the table |", "|---|---|---|---|---|"]
    lines += [_row(one, pinned, left.get(one.pin.kernel_id, "yes")) for one in kernels]
    if pinned.unpinned:
        lines += ["", "Faster, and not pinned:", ""]
        lines += [
            f"- {_code(one.row.name)} ({one.row.speedup or 1:.2f}x by itself): {plain(one.reason)}"
            for one in pinned.unpinned
        ]
    return "\n".join(lines) + "\n"


def _row(kernel: WinnerPin, pinned: PinnedRun, tabled: str) -> str:
    row = pinned.rows[kernel.kernel_id]
    config = ", ".join(f"{name}={value}" for name, value in kernel.pin.config.items())
    saves = seconds(row.saving_s) if row.saving_s else MISSING
    return f"| {_code(kernel.name)} | {row.speedup or 1:.2f}x | {_code(config)} | {saves} | {tabled} |"


def _code(text: str) -> str:
    """The text as code within a line or a cell of a table in Markdown."""
    shown = plain(text).replace("`", "'").replace("|", "\\|")
    return f"`{shown}`"


def require_retuned(run: Run, folder: RunFolder) -> None:
    """Checks that a RUN was retuned.

    Raises:
        InductorBenchError: it was not.
    """
    if not run.retunes:
        hint = f"make them: inductor-bench breakdown {shlex.quote(str(folder.path))} --autotune coordesc"
        raise InductorBenchError(f"{folder.path} has no retunes", hint, "no-retunes")


# Keeps configs out of later programs that changed the outputs of a graph in the program.


WRONG = f"{CHANGES_OUTPUTS}: it was dropped when the program was compared"


def with_verification(run: Run, found: Verification) -> Run:
    """The run with a verification. The retunes whose configs it dropped have failed."""
    dropped = {kernel.kernel_id: kernel.config for kernel in found.kernels if kernel.state == DROPPED}
    retunes = tuple(
        replace(retune, failure=Failure(VERIFY, "wrong", WRONG, subject=retune.name))
        if retune.tuning is not None and dropped.get(retune.kernel_id) == retune.tuning.best_config
        else retune
        for retune in run.retunes
    )
    return replace(run, retunes=retunes, verification=found)


def forget_dropped(found: Verification, environment: Environment) -> None:
    """Removes the dropped configs of an environment, and those of twins, from the tunings that other runs know."""
    dropped = {kernel.kernel_id: kernel.config for kernel in found.kernels if kernel.state == DROPPED}
    if not dropped:
        return
    known = [one for place in places_of(environment) for one in known_tunings(place)]
    pins = [(one.key, one.pin) for one in known if one.pin is not None]
    wrong = [(pin.target, pin.config) for _, pin in pins if dropped.get(pin.kernel_id) == pin.config]
    for key, pin in pins:
        if (pin.target, pin.config) in wrong:
            forget_tuning(key)


@dataclass(frozen=True)
class ApplyOutcome:
    """What became of the request."""

    folder: Path | None  # the RUN folder; ``None`` without one
    pinned: PinnedRun = field(metadata={IN_RECORD: False})  # the pins
    kernels: tuple[AppliedKernel, ...] = ()  # every winner in the program that was run; empty if none was run
    written: tuple[Path, ...] = ()  # the files of ``RUN/tuned``
    exit_code: int | None = None  # the program's exit code; ``None`` if none was run to its end
    verification: Verification | None = None  # the comparison of the program with itself; ``None`` if none was made
    interrupted: bool = False  # whether the user stopped the comparison
    program: str = ""  # the command line of the RUN's program, if any

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


def run_apply(request: ApplyRequest, progress: Progress) -> ApplyOutcome:
    """Writes the configurations of a RUN, or runs a program with them.

    Raises:
        InductorBenchError: there is no RUN, it was not retuned, its configurations are for another torch, Triton or
            device, or the program cannot be started or compared.
        KeyboardInterrupt: the user stopped it before anything was compared.
    """
    if request.run is None:
        return _apply_known(request, progress)
    folder = RunFolder(request.run)
    with locked(folder.path, tool_mark()) if request.verify else nullcontext():  # the record is read and then written
        return _apply_run(folder, request, progress)


def _apply_run(folder: RunFolder, request: ApplyRequest, progress: Progress) -> ApplyOutcome:
    run = folder.load()
    require_retuned(run, folder)
    pinned = make_pins(run, folder)
    if not request.command:
        written = tuple(write_tuned(run, folder, pinned))
        return ApplyOutcome(folder.path, pinned, written=written, program=program_words(run))
    progress.stage("looking at the machine")
    require_same(pinned.pins, run.environment, read_environment(_python(request)))
    if not request.verify:
        return _run(folder.path, pinned, request)
    found, interrupted = _verify(folder, pinned, request, progress, replays_graphs(run))
    forget_dropped(found, run.environment)
    folder.save(with_verification(run, found))
    return ApplyOutcome(folder.path, pinned, found.kernels, verification=found, interrupted=interrupted)


def _apply_known(request: ApplyRequest, progress: Progress) -> ApplyOutcome:
    """Runs a program with all tunings that are known for its interpreter and this machine."""
    progress.stage("looking at the machine")
    environment = read_environment(_python(request))
    pinned = pin_known(environment)
    if not request.verify:
        return _run(None, pinned, request)
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
    forget_dropped(found, environment)
    return ApplyOutcome(None, pinned, found.kernels, verification=found, interrupted=interrupted)


def _python(request: ApplyRequest) -> str:
    return request.python or interpreter_of(request.command) or default_python()


def _verify(
    folder: RunFolder, pinned: PinnedRun, request: ApplyRequest, progress: Progress, replays: bool = False
) -> tuple[Verification, bool]:
    """The comparison, and whether the user stopped it."""
    plan = ProofPlan(folder, request.command, users_environment(), request.timeout_s, request.stop, replays)
    try:
        return verify(pinned, plan, progress), False
    except VerificationInterrupted as stop:
        return stop.found, True


def _run(folder: Path | None, pinned: PinnedRun, request: ApplyRequest) -> ApplyOutcome:
    work = Path(tempfile.mkdtemp(prefix="inductor-bench-"))
    try:
        environment = pinned_environment(with_mode(pinned, APPLY), work, users_environment(), "nothing")
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
    "the program compiled no such kernel with the RUN's options and sizes, or it ended before it could say so "
    "(a signal, os._exit)"
)


# Prepares this process, and those that it starts, for the configs of a RUN.


def prepare_process(folder: Path) -> tuple[PinnedRun, Environment]:
    """Writes the pins of a RUN for this process and its compile workers, and names them in the environment.

    Returns:
        The pins, and the environment of the RUN.

    Raises:
        InductorBenchError: there is no RUN, it was not retuned, or this process has the configs of a RUN already.
    """
    if os.environ.get(PINS):
        raise InductorBenchError(
            "the configs of a RUN are in this process already, or it was started by `inductor-bench apply`",
            "call inductor_bench.apply once; without it, `inductor-bench apply RUN -- COMMAND` does the same",
            "applied-already",
        )
    run = RunFolder(folder).load()
    require_retuned(run, RunFolder(folder))
    pinned = make_pins(run, RunFolder(folder))
    work = Path(tempfile.mkdtemp(prefix="inductor-bench-"))
    atexit.register(shutil.rmtree, work, ignore_errors=True)
    os.environ.update(pinned_environment(with_mode(pinned, APPLY), work, os.environ, "nothing"))
    return pinned, run.environment

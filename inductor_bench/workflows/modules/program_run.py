"""Runs a program once by its command line, and reads what its processes observed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ...errors import InductorBenchError
from ...launch.process import (
    ANOTHER_PYTHON,
    ERROR_LINES,
    WAKE_S,
    ProcessResult,
    find_last_error,
    find_remedy,
    find_remedy_of_end,
    list_module_words,
    run_process,
)
from ...launch.worker import default_python
from ...messages.observed import COMPILE_CACHE, UNCOMPILED, ModuleObservation, Refusal, RunProgram
from ...records.base import NO_PYTHON, Failure
from ...records.code import CapturedCode
from ...records.evidence import ObservedSteps, ObservedTouches
from ...records.request import BreakdownRequest
from ...records.request_fields import COMMAND
from ...records.retune import Config
from ...records.run import Capture
from ...source.compile_log import ObjectName
from ...source.labels import ModuleLabel, group_ranks, label_modules
from ...source.structured_trace import Compilation, StructuredTrace, find_printed_module_paths, read_structured_trace
from ...store import codec
from ...store.files import read_json, read_text, write_message
from ...store.folder import RunFolder
from ...store.lock import TURN
from ...store.redaction import Redaction
from ..progress import Progress
from .compile_environment import compile_times, make_observed_environment
from .observed_files import (
    ProgressReporter,
    StepWatch,
    describe_news,
    explain_uncompiled,
    keep_recorded_functions,
    read_objects,
    read_steps,
    read_touches,
    read_uses,
    remove_unsettled,
)

# Reads what the processes of a program observed, from the folder of the capture.


PYTHON_STARTED = "python.started"


@dataclass(frozen=True)
class FoundModule:
    """A compiled module that a program loaded.

    ``observations`` has one entry for each process that loaded it. ``twins`` are the real paths of the same module
    on other ranks, where the number of the device is another.
    """

    path: Path
    text: str
    code: CapturedCode | None = None
    observations: tuple[ModuleObservation, ...] = ()
    twins: tuple[str, ...] = ()

    @property
    def real_paths(self) -> tuple[str, ...]:
        return (os.path.realpath(self.path), *self.twins)

    @property
    def calls(self) -> int | None:
        """Returns the number of the program's calls over all processes; ``None`` if nobody counted them."""
        counted = [seen.calls for seen in self.observations]
        return sum(one or 0 for one in counted) if counted and None not in counted else None

    @property
    def live(self) -> ModuleObservation | None:
        """The observation that holds a live profile, if there is one."""
        return next((seen for seen in self.observations if seen.live is not None), None)

    @property
    def threads(self) -> int | None:
        """The number of torch's threads in the program; ``None`` if no process was observed."""
        return next((seen.threads for seen in self.observations if seen.threads is not None), None)

    @property
    def switches(self) -> dict[str, bool] | None:
        """Torch's switches in the program that select library kernels; ``None`` if no process was observed."""
        return next((seen.switches for seen in self.observations), None)

    @property
    def tf32(self) -> bool:
        """Whether float32 matrix products may be computed in TF32 on a GPU."""
        return any(seen.tf32 for seen in self.observations[:1])

    @property
    def bf16(self) -> bool:
        """Whether float32 matrix products may be computed in bfloat16 on a CPU."""
        return any(seen.bf16 for seen in self.observations[:1])

    @property
    def configs(self) -> dict[str, Config]:
        """The configs of its Triton kernels in the program, by their variables."""
        return max(self.observations, key=lambda seen: seen.calls or 0).configs if self.observations else {}

    @property
    def cuda_graphs(self) -> bool:
        """Whether the program compiles the module for CUDA graphs."""
        return any(seen.cuda_graphs for seen in self.observations)

    @property
    def max_autotune(self) -> bool:
        """Whether the program compiles the module with max-autotune."""
        return any(seen.max_autotune for seen in self.observations)

    @property
    def live_reason(self) -> str:
        """The reason why the module must be profiled in the program; empty if its file can be profiled."""
        return next((seen.live_reason for seen in self.observations if seen.live_reason), "")

    @property
    def live_error(self) -> str:
        """The reason why a profile in the program failed; empty if it did not fail."""
        return next((seen.live_error for seen in self.observations if seen.live_error), "")


def labelled(modules: Sequence[FoundModule]) -> tuple[tuple[FoundModule, ModuleLabel], ...]:
    """Each module with its label."""
    return tuple(zip(modules, label_modules([(module.text, module.code) for module in modules]), strict=True))


def read_observations(folder: Path) -> dict[str, list[ModuleObservation]]:
    """The observations of modules by the real paths of the modules."""
    found: dict[str, list[ModuleObservation]] = {}
    for file in sorted(folder.glob("*-*.json"), key=_order):
        if file.name.endswith(".trace.json"):
            continue
        seen = codec.decode(ModuleObservation, read_json(file))
        found.setdefault(os.path.realpath(seen.path), []).append(seen)
    return found


def _order(file: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in file.name.split(".")[0].split("-"))


# Reads a command line that starts a program: the program's name and arguments in it, and its interpreter.


LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "deepspeed.launcher")
"""Modules that start the program that is named after them."""

_PYTHON = re.compile(r"python[\d.]*|pypy[\d.]*")
_SHEBANG = re.compile(rb"#!\s*(\S*python[\d.]*)\s*\n")


def find_program(command: Sequence[str]) -> str:
    """Returns the script or the module that a command runs; if it names neither, the command's first word.

    ``torchrun --nproc-per-node 2 train.py --lr 1`` runs ``train.py``, ``python -m pkg.train`` runs ``pkg.train``.
    """
    place = _place(command)
    return command[place] if command else ""


def find_arguments(command: Sequence[str]) -> tuple[str, ...]:
    """The arguments of the program that a command runs."""
    return tuple(command[_place(command) + 1 :])


def _place(command: Sequence[str]) -> int:
    for place, (word, following) in enumerate(zip(command, [*command[1:], ""], strict=True)):
        if word in ("-m", "--module") and following and not following.startswith(LAUNCHERS):
            return place + 1
        if word.endswith(".py"):
            return place
    return 0


def find_interpreter(command: Sequence[str]) -> str | None:
    """Returns the Python interpreter of a command: its first word, or that of the script that the first word names.

    ``None`` if it cannot be found: the tool's own interpreter then runs the compiled modules.
    """
    found = shutil.which(command[0])
    if found is None or _PYTHON.fullmatch(Path(command[0]).name):
        return found
    try:
        with open(found, "rb") as stream:
            line = _SHEBANG.match(stream.read(1000))
    except OSError:
        return None
    return shutil.which(line[1].decode()) if line else None


def find_python(request: BreakdownRequest) -> str:
    """Returns the interpreter of a request's program: the requested one, the command's, or this tool's own."""
    return (
        request.python or (find_interpreter(request.arguments) if request.kind == COMMAND else None) or default_python()
    )


def name_python(request: BreakdownRequest) -> str | None:
    """Returns the interpreter that a command with the script of a request has to name; ``None`` for the first on
    ``PATH``.

    That of the request comes first. The links of virtual environments lead to one file, so that folders count, too.
    """
    if request.python or request.kind != "script":
        return request.python
    first, own = shutil.which("python"), find_python(request)
    if first is None:
        return own
    is_first = os.path.samefile(first, own) and os.path.samefile(os.path.dirname(first), os.path.dirname(own))
    return None if is_first else own


def format_command(words: Sequence[str]) -> str:
    """The command line with which this tool runs a command."""
    return f"inductor-bench breakdown -- {shlex.join(words)}"


# Runs a program once, and finds all modules that torch compiled in it.


MEASURED = "the program's steps are measured, and the program goes on; with --stop it would end here"

DEFAULT_BATCH_SIZE = 32
"""The batch size of a named model for which none is requested."""

STEPLESS = (
    "call torch.compile on the model and run it; or mark each step's end with inductor_bench.step(), to see the steps "
    "without compilation"
)
"""The hint for a program without a compiled graph and without steps."""

FEW_STEPS = "run more steps, or measure early ones with --skip 0 --steps 1"
"""The hint for a program without a compiled graph if none of its steps was profiled."""

UNCAUGHT = 1
"""The exit code of a Python program that an exception ended."""


@dataclass(frozen=True)
class CapturedProgram:
    """The modules that a program compiled, and the steps of each of its processes that ran them.

    ``touches`` holds the graph calls of one step by the id of the process; ``stopped`` says that the program was ended
    once its steps were measured.
    """

    modules: tuple[FoundModule, ...]
    capture: Capture
    failures: tuple[Failure, ...] = ()
    steps: tuple[ObservedSteps, ...] = ()
    stopped: bool = False
    touches: Mapping[int, ObservedTouches] = field(default_factory=dict)


class RunListeners(NamedTuple):
    """The functions that are called while a program runs, with what is known of it.

    All but the first are called once.
    """

    prepare: Callable[[CapturedProgram], None]  # its steps are being profiled, or are profiled and not timed yet
    answer: Callable[[CapturedProgram], None]  # its steps are measured
    end: Callable[[CapturedProgram], None]  # its Python has ended, and its process is torn down


def capture_program(
    request: BreakdownRequest,
    folder: RunFolder,
    environment: Mapping[str, str],
    python: str,
    progress: Progress,
    looks: RunListeners | None = None,
) -> CapturedProgram:
    """Runs the program of a request, and finds the modules that it compiled.

    A program that fails after it has compiled modules becomes a failure in the result, with its modules.
    ``environment`` comes from ``compile_environment.capture_environment``. ``looks`` are taken while the program runs.

    Raises:
        InductorBenchError: the program cannot be started.
    """
    work = folder.work
    refusal = work / "refusal.json"
    observed = make_observed_environment(request, work, environment)
    command, log = make_program_command(request, work, python, refusal), folder.logs / "program.log"
    reader = TraceReader()

    def look(told: Callable[[CapturedProgram], None]) -> Callable[[], None]:
        return lambda: told(read_program(work, log, environment, is_whole=False, reader=reader))

    tell = partial(progress.note, MEASURED)
    watch = StepWatch(work / "observed", request.stop, tell, *map(look, looks or ()))
    news = ProgressReporter(
        lambda: describe_news(watch.steps, len(find_printed_module_paths(read_text(log)))), progress.note
    )

    def is_finished() -> bool:
        if not watch.is_answered:
            news.look()
        return watch.is_finished()

    ended = run_program(request, command, observed, log, progress, is_finished, ask_s=watch.ask_s)
    found = read_program(work, ended.log, environment, is_whole=ended.ok, reader=reader)
    capture = replace(found.capture, exit_code=0 if ended.stopped else ended.exit_code, time_s=ended.time_s)
    failures = found.failures
    absent = explain_missing_python(request, ended, work / "observed", python)
    if absent is not None and (request.kind == COMMAND or not found.modules):
        failures += (absent,)
    else:
        explained = bool(found.modules) or any(one.trace for one in found.steps)
        why, count = found.capture.uncompiled, max((one.steps for one in found.steps), default=0)
        failures += list_program_failures(request, ended, refusal, explained=explained, why=why, steps=count)
    return replace(found, capture=capture, failures=failures, stopped=ended.stopped)


def read_program(
    work: Path, log: Path, environment: Mapping[str, str], *, is_whole: bool, reader: TraceReader | None = None
) -> CapturedProgram:
    """Returns what a program has compiled and measured, as far as its processes have written it.

    Args:
        work: the folder of the capture.
        log: what the program has printed.
        environment: the environment of the capture.
        is_whole: whether the program has ended well; if not, there may be modules that were never loaded.
        reader: the reader that has read the trace before.
    """
    reader = reader or TraceReader()
    structured, failures = reader.read(work / "torch_trace", read_objects(work / "observed"))
    printed = find_printed_module_paths(read_text(log))
    seen = read_observations(work / "observed")
    if not is_whole:
        structured = _leave_out_unloaded(structured, {*map(os.path.realpath, printed), *seen}, work / "observed")
    modules = _join_modules(printed, structured, seen)
    steps, touches = read_steps(work / "observed"), read_touches(work / "observed")
    why = ""
    if not modules:
        steps, touches, why = _explain_missing_graphs(work / "observed" / UNCOMPILED, structured)
    cache = environment.get(COMPILE_CACHE)
    times = compile_times(structured, Path(cache) if cache else None)
    printed += tuple(path for path in times.cached if path not in printed)  # torch prints only what it compiles
    capture = Capture(
        printed=len(printed),
        structured=len(structured.codes),
        disagreement=_describe_disagreement(printed, structured),
        graph_breaks=structured.graph_breaks,
        recompiles=structured.recompiles,
        functions=keep_recorded_functions(structured.functions),
        uncompiled=why,
        compile_phases=times.phases,
        compiled_earlier=len(times.cached),
        compiled_at=times.compiled_at,
    )
    modules = _leave_out_refused_graphs(modules, steps)
    return CapturedProgram(modules, capture, failures, steps, touches=touches)


def _explain_missing_graphs(
    folder: Path, structured: StructuredTrace
) -> tuple[tuple[ObservedSteps, ...], dict[int, ObservedTouches], str]:
    """Returns what the processes of a program without compiled graphs observed, and why they have none."""
    steps = remove_unsettled(read_steps(folder))
    why = explain_uncompiled(read_uses(folder), structured.skipped, {one.pid for one in steps})
    return steps, read_touches(folder), why


def run_program(
    request: BreakdownRequest,
    command: list[str],
    environment: dict[str, str],
    log: Path,
    progress: Progress,
    is_finished: Callable[[], bool],
    how: str = "",
    ask_s: float = WAKE_S,
) -> ProcessResult:
    """Runs the command of a request to its end, or until ``is_finished``; ``how`` begins the shown line.

    ``is_finished`` is asked every ``ask_s`` seconds.

    Raises:
        InductorBenchError: the program cannot be started.
    """
    remove_lock_variable(request, environment)
    progress.stage(f"running {how}{format_shown_command(request, environment)}")
    return run_process(
        command,
        environment=environment,
        log=log,
        timeout_s=request.timeout_s,
        on_line=progress.output,
        is_finished=is_finished,
        ask_s=ask_s,
    )


def remove_lock_variable(request: BreakdownRequest, environment: dict[str, str]) -> None:
    """Removes the variable of the device's lock from the environment of a program that does not use this lock.

    The process that starts the program holds the lock while the program runs, also for commands of this tool that
    the program starts.
    """
    if request.kind in ("script", COMMAND):
        environment.pop(TURN, None)


def format_shown_command(request: BreakdownRequest, environment: Mapping[str, str]) -> str:
    """Returns the program's command as the user typed it, without secrets."""
    shown = Redaction.find([request.arguments], environment).words(request.arguments)
    return shlex.join(shown if request.kind == COMMAND else [request.target, *shown])


def make_program_command(request: BreakdownRequest, work: Path, python: str, refusal: Path) -> list[str]:
    """Returns the command that runs the program of a request. The job for the program is written into ``work``."""
    if request.kind == COMMAND:
        return list(request.arguments)
    if request.kind == "script":
        return [python, request.target, *request.arguments]
    job = work / "program.job.json"
    write_message(job, codec.encode(RunProgram(request, str(refusal))))
    return [python, *list_module_words("inductor_bench.worker.capture.programs"), str(job)]


class TraceReader:
    """Reads the structured trace of a program, and reads it again only if it has grown."""

    def __init__(self) -> None:
        self._known: tuple[object, tuple[StructuredTrace, tuple[Failure, ...]]] | None = None

    def read(
        self, folder: Path, objects: Mapping[Compilation, ObjectName]
    ) -> tuple[StructuredTrace, tuple[Failure, ...]]:
        """Returns the trace, or why it cannot be read."""
        files = sorted(folder.iterdir()) if folder.is_dir() else []
        version = [(file, file.stat().st_size) for file in files], dict(objects)
        if self._known is None or self._known[0] != version:
            self._known = version, _read_trace(folder, objects)
        return self._known[1]


def _read_trace(folder: Path, objects: Mapping[Compilation, ObjectName]) -> tuple[StructuredTrace, tuple[Failure, ...]]:
    try:
        return read_structured_trace(folder, objects), ()
    except InductorBenchError as error:
        # A program that never imported torch leaves no trace, so only its printed lines are used.
        is_empty = folder.is_dir() and not any(folder.iterdir())
        failure = None if is_empty else Failure("capture", "invalid", error.message, error.hint)
        return StructuredTrace(), (failure,) if failure else ()


def _leave_out_unloaded(structured: StructuredTrace, loaded: Set[str], folder: Path) -> StructuredTrace:
    """Returns the trace without the modules that failed to compile."""
    followed = {int(file.stem) for file in folder.glob("*.followed")}
    elsewhere = {path for path, pid in structured.writers if pid not in followed}
    kept = (code for code in structured.codes if code.path in elsewhere or os.path.realpath(code.path) in loaded)
    return replace(structured, codes=tuple(kept))


def _join_modules(
    printed: tuple[str, ...], structured: StructuredTrace, observed: dict[str, list[ModuleObservation]]
) -> tuple[FoundModule, ...]:
    codes = {os.path.realpath(code.path): code for code in structured.codes}
    texts: dict[str, str] = {}
    for path in dict.fromkeys([*codes, *map(os.path.realpath, printed), *observed]):
        text = read_module_text(Path(path)) or (codes[path].text if path in codes else None)
        if text is not None:
            texts[path] = text
    found = []
    for path, *twins in group_ranks(texts, {path: [one.rank for one in seen] for path, seen in observed.items()}):
        seen = tuple(one for place in (path, *twins) for one in observed.get(place, ()))
        found.append(FoundModule(Path(path), texts[path], codes.get(path), seen, tuple(twins)))
    return tuple(found)


def read_module_text(path: Path) -> str | None:
    """The text of a module; ``None`` if it cannot be read."""
    try:
        return read_text(path)
    except InductorBenchError:
        return None


def _leave_out_refused_graphs(
    modules: tuple[FoundModule, ...], steps: Sequence[ObservedSteps]
) -> tuple[FoundModule, ...]:
    """Returns the modules. Those for which Inductor refused CUDA graphs are marked as running without them."""
    refused = {os.path.realpath(graph.path) for one in steps for graph in one.graphs if graph.cuda_graph_refusal}

    def adjust_module(module: FoundModule) -> FoundModule:
        if refused.isdisjoint(module.real_paths):
            return module
        return replace(module, observations=tuple(replace(seen, cuda_graphs=False) for seen in module.observations))

    return tuple(map(adjust_module, modules))


def _describe_disagreement(printed: tuple[str, ...], structured: StructuredTrace) -> str:
    lines = {os.path.realpath(path) for path in printed}
    traced = {os.path.realpath(code.path) for code in structured.codes}
    parts = []
    if traced - lines:
        parts.append(f"{len(traced - lines)} only in the structured trace")
    if lines - traced:
        parts.append(f"{len(lines - traced)} only in the printed lines")
    return ", ".join(parts)


def explain_missing_python(
    request: BreakdownRequest, ended: ProcessResult, observed: Path, python: str
) -> Failure | None:
    """Makes the failure of a program that ended without any observed Python; ``None`` if its output says more.

    Args:
        request: the request.
        ended: the end of the program.
        observed: the folder of its observation.
        python: the interpreter of a script.
    """
    if (observed / PYTHON_STARTED).exists() or ended.kind != "exit":
        return None
    if not ended.ok and (request.kind == COMMAND or ended.tail().strip()):
        return None
    if request.kind == COMMAND:
        message = "the command started no Python that this tool can observe"
        hint = f"name a Python in the command, without -I, -E and -S: {format_command(['python', 'train.py'])}"
    else:
        message = f"{python} did not load this tool's hook, so the program was not observed"
        hint = f"{ANOTHER_PYTHON} PATH, and name a Python that runs without -I, -E and -S"
    return Failure("capture", NO_PYTHON, message, hint, ended.tail(), request.target)


def list_program_failures(
    request: BreakdownRequest, ended: ProcessResult, refusal: Path, *, explained: bool, why: str = "", steps: int = 0
) -> tuple[Failure, ...]:
    """Returns what went wrong with a program that has ended.

    Args:
        request: the request.
        ended: the end of the program.
        refusal: the file in which it may have said why it cannot be run.
        explained: whether there are modules of it, or a profile of its steps.
        why: why it compiled nothing.
        steps: the number of its steps, none of which was profiled.
    """
    if refusal.is_file():
        said = codec.decode(Refusal, read_json(refusal))
        hint = said.hint or find_remedy(said.message)
        return (Failure("capture", said.kind, said.message, hint, subject=request.target),)
    if not ended.ok:
        kept = "; what it had done until then is measured" if explained else ""
        end = ended.tail(ERROR_LINES) if ended.exit_code == UNCAUGHT else ""
        reason = find_last_error(end)
        hint = {
            "timeout": "give it more time with --timeout SECONDS",
            "signal": f"an out-of-memory kill or a crash in native code is likely; read {ended.log}",
            "exit": find_remedy_of_end(end) or f"read {ended.log}",
        }[ended.kind]
        if request.kind == COMMAND and "No module named 'torch'" in reason:
            hint = "type the interpreter that has torch in the command: -- /path/to/python ..."
        message = f"the program {ended.outcome}{f': {reason}' if reason else ''}{kept}"
        return (Failure("capture", ended.kind, message, hint, ended.tail(), request.target),)
    if not explained:
        parts = ["the program ended well but compiled nothing", *([why] if why else [])]
        few = (
            f"; none of its {steps} steps was profiled" if steps > 1 else "; its step was not profiled" if steps else ""
        )
        return (
            Failure(
                "capture",
                "nothing-compiled",
                f"{': '.join(parts)}{few}",
                FEW_STEPS if steps else STEPLESS,
                ended.tail(),
                request.target,
            ),
        )
    return ()

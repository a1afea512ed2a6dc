"""Running a program once and finding every module that torch compiled in it."""

from __future__ import annotations

import contextlib
import getpass
import os
import shlex
import tempfile
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...errors import InductorBenchError
from ...launch.diagnosis import last_error, remedy
from ...launch.interpreter import SAFE_PATH, module_words
from ...launch.process import ProcessResult, run_process
from ...launch.worker import expose_package, join_paths
from ...records.code.source import CapturedCode
from ...records.run import Capture, Failure, Request
from ...source.capture.log import printed_module_paths
from ...source.capture.structured import StructuredTrace, read_structured_trace
from ...store.device_turn import TURN
from ...store.files import is_private_folder, read_json, read_text, write_json
from ...store.folder import RunFolder
from ...store.redaction import Redaction
from ..progress import Progress

DEFAULT_BATCH_SIZE = 32
"""The batch size of a named model for which none is requested."""

UNCAUGHT = 1
"""The exit code of a Python program that an exception ended."""

ERROR_LINES = 200
"""Lines at the end of a log that are searched for the exception that ended a program."""

SITE = Path(__file__).resolve().parent.parent.parent / "worker" / "capture" / "site"


@dataclass(frozen=True)
class FoundModule:
    """A compiled module that a program loaded.

    ``observations`` are what its processes saw of it (see ``worker.capture.observation``), one entry per process.
    """

    path: Path
    text: str
    code: CapturedCode | None = None
    observations: tuple[dict[str, Any], ...] = ()

    @property
    def calls(self) -> int | None:
        """How often the program called it, over all processes; ``None`` where nobody counted."""
        return sum(seen["calls"] for seen in self.observations) if self.observations else None

    @property
    def live(self) -> dict[str, Any] | None:
        """The observation that holds a live profile, if there is one."""
        return next((seen for seen in self.observations if "live" in seen), None)

    def observed(self, key: str) -> Any:
        """The first value that an observation has for ``key``, or ``None``."""
        return next((seen[key] for seen in self.observations if seen.get(key) not in (None, "")), None)


@dataclass(frozen=True)
class CapturedProgram:
    """What a program compiled."""

    modules: tuple[FoundModule, ...]
    capture: Capture
    failures: tuple[Failure, ...] = ()


def capture_environment(work: Path) -> dict[str, str]:
    """The environment in which modules are compiled for measurement, and run, with caches and temporary files of its
    own.

    FX and AOTAutograd caches are off, because a hit there compiles nothing and prints nothing; forcing all caches off
    instead would put each module into a folder of its own and change the hashes of its kernels.
    """
    environment = dict(os.environ)
    for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_FORCE_DISABLE_CACHES", "TORCHINDUCTOR_FX_COMPILE_MODE"):
        environment.pop(name, None)
    folders = {name: work / name for name in ("cache", "tmp", "torch_trace", "observed")}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    _share_precompiled_headers(folders["tmp"])
    return environment | {
        "TORCHINDUCTOR_UNIQUE_KERNEL_NAMES": "1",
        "TORCHINDUCTOR_BENCHMARK_KERNEL": "1",
        "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE": "1",
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        "INDUCTOR_PROVENANCE": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folders["cache"].resolve()),
        "TORCH_TRACE": str(folders["torch_trace"].resolve()),
        "TMPDIR": str(folders["tmp"].resolve()),
        "PYTHONUNBUFFERED": "1",
    }


def _share_precompiled_headers(temporary: Path) -> None:
    """Lets torch find the C++ headers that it compiled in an earlier run, and keep new ones, which takes it seconds.

    It looks for them where the temporary files are; what it finds there is bound to the compiler and its flags. Headers
    that other users could have written are left alone, for they become part of what is run.
    """
    with contextlib.suppress(OSError, KeyError):  # KeyError: a user without a name
        name = f"torchinductor_{getpass.getuser()}"
        shared = Path(tempfile.gettempdir()) / name / "precompiled_headers"
        if not all(is_private_folder(folder, closed=0o022) for folder in (shared.parent, shared)):
            return
        if any(header.lstat().st_uid != os.getuid() for header in shared.iterdir()):
            return
        (temporary / name).mkdir()
        (temporary / name / shared.name).symlink_to(shared.resolve(), target_is_directory=True)


def capture_program(
    request: Request,
    folder: RunFolder,
    environment: Mapping[str, str],
    *,
    python: str,
    repeat: int,
    progress: Progress,
    values_limit_bytes: int | None = None,
) -> CapturedProgram:
    """Runs the program that a request names and returns the modules that it compiled.

    A program that fails after it compiled something is a failure in the result; its modules are kept.
    ``environment`` is that of :func:`capture_environment`. With ``values_limit_bytes`` modules that are profiled live
    also record what their launches read.

    Raises:
        InductorBenchError: the program cannot be started.
    """
    work = folder.work
    observed = {
        "INDUCTOR_BENCH_CAPTURE": str((work / "observed").resolve()),
        "INDUCTOR_BENCH_LIVE": "1" if request.live else "0",
        "INDUCTOR_BENCH_REPEAT": str(repeat),
        "INDUCTOR_BENCH_VALUES_LIMIT": str(values_limit_bytes or ""),
        "PYTHONPATH": join_paths(str(SITE), join_paths(expose_package(work), environment.get("PYTHONPATH"))),
    }
    complaint = work / "complaint.json"
    command = _program_command(request, work, python, complaint)
    of_users = request.kind in ("script", "factory")
    program = {**environment, **observed, **({} if of_users else SAFE_PATH)}
    if request.kind == "script":
        program.pop(TURN, None)  # whoever starts it has the turn for all of it, for commands of this tool in it too
    shown = Redaction.find([request.arguments], environment).words(request.arguments)
    progress.stage(f"running {shlex.join([request.target, *shown])}")
    ended = run_process(
        command,
        environment=program,
        log=folder.logs / "program.log",
        timeout_s=request.timeout_s,
        on_line=progress.output,
    )
    structured, failures = _read_trace(work / "torch_trace")
    printed = printed_module_paths(read_text(ended.log))
    seen = _read_observations(work / "observed")
    if not ended.ok:
        structured = _without_unloaded(structured, {*map(os.path.realpath, printed), *seen}, work / "observed")
    modules = _join_modules(printed, structured, seen)
    capture = Capture(
        printed=len(printed),
        structured=len(structured.codes),
        disagreement=_disagreement(printed, structured),
        exit_code=ended.exit_code,
        time_s=ended.time_s,
        graph_breaks=structured.graph_breaks,
        recompiles=structured.recompiles,
    )
    failures += _program_failures(request, ended, complaint, compiled=bool(modules))
    return CapturedProgram(modules, capture, failures)


def _program_command(request: Request, work: Path, python: str, complaint: Path) -> list[str]:
    if request.kind == "script":
        return [python, request.target, *request.arguments]
    job = work / "program.job.json"
    place = request.target if request.kind == "factory" else request.target.removeprefix(f"{request.kind}:")
    names = ("kind", "training", "mode", "dynamic", "amp", "device", "seed", "batch_size")
    options = {name: getattr(request, name) for name in names}
    options["batch_size"] = request.batch_size or DEFAULT_BATCH_SIZE
    write_json(job, {**options, "place": place, "complaint": str(complaint)})
    return [python, *module_words("inductor_bench.worker.capture.programs"), str(job)]


def _read_trace(folder: Path) -> tuple[StructuredTrace, tuple[Failure, ...]]:
    try:
        return read_structured_trace(folder), ()
    except InductorBenchError as error:
        # A program that never got as far as torch leaves no trace; the printed lines then speak alone.
        failure = Failure("capture", "invalid", error.message, error.hint) if any(folder.iterdir()) else None
        return StructuredTrace(), (failure,) if failure else ()


def _read_observations(folder: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(folder.glob("*.json"), key=_observation_order):
        if file.name.endswith(".trace.json"):
            continue
        seen = read_json(file)
        seen["stem"] = str(file.with_suffix(""))
        found.setdefault(os.path.realpath(seen["path"]), []).append(seen)
    return found


def _observation_order(file: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in file.name.split(".")[0].split("-"))


def _without_unloaded(structured: StructuredTrace, loaded: Set[str], folder: Path) -> StructuredTrace:
    """The trace less the modules that did not compile: every process that wrote one was observed, and none loaded it.

    ``loaded`` are the real paths of the modules that some process loaded, ``folder`` holds the observations.
    """
    followed = {int(file.stem) for file in folder.glob("*.followed")}
    elsewhere = {path for path, pid in structured.writers if pid not in followed}
    kept = (code for code in structured.codes if code.path in elsewhere or os.path.realpath(code.path) in loaded)
    return replace(structured, codes=tuple(kept))


def _join_modules(
    printed: tuple[str, ...], structured: StructuredTrace, observed: dict[str, list[dict[str, Any]]]
) -> tuple[FoundModule, ...]:
    codes = {os.path.realpath(code.path): code for code in structured.codes}
    paths = dict.fromkeys([*codes, *map(os.path.realpath, printed), *observed])
    found = []
    for path in paths:
        text = read_module_text(Path(path)) or (codes[path].text if path in codes else None)
        if text is not None:
            found.append(FoundModule(Path(path), text, codes.get(path), tuple(observed.get(path, ()))))
    return tuple(found)


def read_module_text(path: Path) -> str | None:
    """The text of a module, or ``None`` if it cannot be read."""
    try:
        return read_text(path)
    except InductorBenchError:
        return None


def _disagreement(printed: tuple[str, ...], structured: StructuredTrace) -> str:
    lines = {os.path.realpath(path) for path in printed}
    traced = {os.path.realpath(code.path) for code in structured.codes}
    parts = []
    if traced - lines:
        parts.append(f"{len(traced - lines)} only in the structured trace")
    if lines - traced:
        parts.append(f"{len(lines - traced)} only in the printed lines")
    return ", ".join(parts)


def _program_failures(
    request: Request, ended: ProcessResult, complaint: Path, *, compiled: bool
) -> tuple[Failure, ...]:
    if complaint.is_file():
        said = read_json(complaint)
        return (Failure("capture", said["kind"], said["message"], said["hint"], subject=request.target),)
    if not ended.ok:
        kept = "; what it had compiled until then is measured" if compiled else ""
        reason = last_error(ended.tail(ERROR_LINES)) if ended.exit_code == UNCAUGHT else ""
        hint = {
            "timeout": "give it more time with --timeout SECONDS",
            "signal": "an out-of-memory kill or a crash in native code is likely",
            "exit": remedy(reason) or f"read {ended.log}",
        }[ended.kind]
        message = f"the program {ended.outcome}{f': {reason}' if reason else ''}{kept}"
        return (Failure("capture", ended.kind, message, hint, ended.tail(), request.target),)
    if not compiled:
        return (
            Failure(
                "capture",
                "nothing-compiled",
                "the program ended well but compiled nothing",
                "call torch.compile on the model and run it; TORCH_COMPILE_DISABLE must not be set",
                ended.tail(),
                request.target,
            ),
        )
    return ()

"""Decides the kind of a target from its form and from the files on disk, before anything runs."""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import ANOTHER_FOLDER, InductorBenchError, UsageError
from ...records.request import DEFAULT_BATCH_SIZE, RECORDED, BreakdownRequest
from ...records.request_fields import (
    BY_KIND,
    COMMAND,
    COMPILED_HERE,
    LIBRARIES,
    NAMED_IN_HINTS,
    PROGRAMS,
    join_by_or,
    write_accepted_hint,
)
from ...source.structured_trace import find_printed_module_paths, read_structured_trace
from ...store.files import read_text
from ...store.folder import RECORD
from ...store.redaction import Redaction
from .program_run import FoundModule, find_arguments, find_program, format_command, read_module_text

_SHOWN = 100
ACCEPTED = write_accepted_hint()
_PROGRAM = f"{join_by_or(('script', 'factory', *NAMED_IN_HINTS))} model"
_A_KIND = tuple(f"a {kind}" for kind in NAMED_IN_HINTS)
STRUCTURED_TRACE_LOGS = "dedicated_log_torch_trace*"


@dataclass(frozen=True)
class Target:
    """A target and its kind, which is one of ``records.request_fields``."""

    kind: str
    name: str
    paths: tuple[Path, ...] = ()

    def resolved(self, request: BreakdownRequest) -> BreakdownRequest:
        """Returns the request with the name and the kind of its target."""
        return replace(request, target=self.name, kind=self.kind)


def resolve_target(request: BreakdownRequest, accepted: str = ACCEPTED) -> Target:
    """The target of a request, with its kind. ``accepted`` describes valid targets in the error for another one.

    Raises:
        UsageError: the target is missing, or the options do not fit it.
    """
    name = request.target
    if not name:
        return _make_command_target(request)
    if request.others:
        return _make_target_of_modules(request, accepted)
    source, colon, model = name.partition(":")
    if colon and source in LIBRARIES:
        if not model:
            raise UsageError(
                f"{source}: needs a model name",
                f"try: inductor-bench breakdown {LIBRARIES[source].example}",
                "missing-target",
            )
        return _check_target(Target(source, name), request)
    path = Path(name)
    if find_path_kind(path):
        return _check_target(Target(_find_kind(path, accepted), name, (path,)), request)
    file, colon, function = name.rpartition(":")
    if colon and find_path_kind(Path(file)) == "file" and function.isidentifier():
        return _check_target(Target("factory", name, (Path(file),)), request)
    raise UsageError(f"{name} does not exist", _guess(request, accepted), "no-such-target")


def can_stop(kind: str) -> bool:
    """Whether a program of this kind can be ended once its steps are measured."""
    return "steps" in BY_KIND[kind].takes


def _make_command_target(request: BreakdownRequest) -> Target:
    """Makes the target of a request that has only a command after ``--``."""
    words = request.arguments
    if not words:
        raise UsageError("no target given", "try: inductor-bench breakdown model.py", "missing-target")
    if shutil.which(words[0]) is None:
        hint = "give a command as it is typed in a shell"
        if words[0].endswith(".py") and find_path_kind(Path(words[0])) == "file":
            hint = f"try: {format_command(['python', *words])}"
        raise UsageError(f"{words[0]!r} is not a command that can be run", hint, "no-such-target")
    return _check_target(Target(COMMAND, find_program(words)), request)


def find_path_kind(path: Path) -> str:
    """Returns the kind of a path: ``file``, ``folder``, ``other`` (a pipe or a device), or empty if it does not exist.

    Raises:
        UsageError: the path cannot be looked up; the message gives the reason.
    """
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as error:
        shown = str(path) if len(str(path)) <= _SHOWN else f"{str(path)[:_SHOWN]}…"
        raise UsageError(
            f"{shown!r} cannot be looked up: {getattr(error, 'strerror', None) or error}", name="unreadable"
        ) from None
    return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"


def find_listed_modules(target: Target) -> tuple[tuple[FoundModule, ...], tuple[str, ...]]:
    """The modules that a module, log or structured-trace target lists, and the listed paths that are missing.

    Raises:
        InductorBenchError: the target lists no readable module.
    """
    found, missing = _list_modules(target)
    if missing and not found:
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InductorBenchError(
            f"the modules that {target.name} names no longer exist: {missing[0]}{others}",
            "run the program again, or give its script instead",
            "files-gone",
        )
    return found, missing


def _list_modules(target: Target) -> tuple[tuple[FoundModule, ...], tuple[str, ...]]:
    if target.kind in ("module", "trace"):
        found = [FoundModule(path, read_module_text(path) or "") for path in target.paths]
        return tuple(found), ()
    if target.kind == "log":
        text = read_text(target.paths[0])
        found, missing = [], []
        for line in find_printed_module_paths(text):
            content = read_module_text(Path(line))
            if content is None:
                missing.append(line)
            else:
                found.append(FoundModule(Path(line), content))
        if not found and not missing:
            raise InductorBenchError(
                f"{target.name} holds no `Compiled module path:` line",
                "run the program with TORCHINDUCTOR_BENCHMARK_KERNEL=1, or give its script instead of its log",
                "nothing-compiled",
            )
        return tuple(found), tuple(missing)
    structured = read_structured_trace(target.paths[0])
    if not structured.codes:
        raise InductorBenchError(
            f"{target.name} holds no compiled module",
            "run the program again with this folder as TORCH_TRACE",
            "nothing-compiled",
        )
    return tuple(FoundModule(Path(code.path), code.text, code) for code in structured.codes), ()


def _find_kind(path: Path, accepted: str) -> str:
    kind = find_path_kind(path)
    if kind == "other":
        raise UsageError(f"{path} is neither a file nor a folder", accepted, "wrong-target")
    if kind == "folder":
        if find_path_kind(path / RECORD) == "file":
            return "run"
        if any(path.glob(STRUCTURED_TRACE_LOGS)):
            return "structured-trace"
        raise UsageError(
            f"{path} is a folder, but neither a RUN (no {RECORD}) nor a TORCH_TRACE folder", accepted, "wrong-target"
        )
    head = _read_head(path)
    if _is_compiled_module(head, path):
        return "module"
    if path.suffix == ".py":
        return "script"
    if "\0" in head:
        raise UsageError(f"{path} is neither a Python file nor a log, but binary data", accepted, "wrong-target")
    return "log"


def _read_head(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            return stream.read(20_000)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}", name="unreadable") from error


def _is_compiled_module(head: str, path: Path) -> bool:
    if re.search(r"^# AOT ID: ", head, re.M):
        return True
    return path.suffix == ".py" and ("async_compile = AsyncCompile()" in head or "CppWrapperCodeCache" in head)


def _make_target_of_modules(request: BreakdownRequest, accepted: str) -> Target:
    paths = tuple(dict.fromkeys(Path(name) for name in (request.target, *request.others)))
    for path in paths:
        if find_path_kind(path) != "file":
            raise UsageError(f"{path} does not exist", name="no-such-target")
        if _find_kind(path, accepted) != "module":
            raise UsageError(
                f"{path} is not a compiled module",
                "several targets are possible only for compiled modules",
                "wrong-target",
            )
    return _check_target(Target("module", request.target, paths), request)


def _check_target(target: Target, request: BreakdownRequest) -> Target:
    if request.trace is not None:
        if target.kind != "module" or len(target.paths) != 1:
            raise UsageError(
                "--trace goes with one compiled module",
                "inductor-bench breakdown c….py --trace FILE",
                "misplaced-option",
            )
        if find_path_kind(request.trace) != "file":
            raise UsageError(f"the trace {request.trace} does not exist", name="no-such-target")
        target = Target("trace", target.name, target.paths)
    for complaint in _list_misfits(target, request):
        raise complaint
    return target


def _make_misplaced_error(message: str, hint: str = "") -> UsageError:
    return UsageError(message, hint, "misplaced-option")


def _list_misfits(target: Target, request: BreakdownRequest) -> Iterator[UsageError]:
    """Returns the options that would have no effect on this target; with such options the request is refused."""
    takes = BY_KIND[target.kind].takes
    if request.arguments and "arguments" not in takes:
        yield _make_misplaced_error("arguments after -- are for a script, but the target is not a script")
    for option, given in (("--steps", request.steps), ("--skip", request.skip), ("--stop", request.stop or None)):
        if given is not None and "steps" not in takes:
            hint = "a factory or a named model is run until its steps are measured" if target.kind in PROGRAMS else ""
            yield _make_misplaced_error(
                f"{option} is for a script or a command, but the target is a {target.kind}", hint
            )
    for option, asked in (("--live", request.live), ("--eager", request.eager)):
        if asked and target.kind not in PROGRAMS:
            yield _make_misplaced_error(f"{option} needs a program to run", f"give the {_PROGRAM} instead")
    if request.values == RECORDED and target.kind in ("run", "trace"):
        yield _make_misplaced_error(
            "--values recorded needs a run to record, and this target is only read", "measure it again"
        )
    if request.retune is not None and target.kind == "trace":
        yield UsageError(
            "--autotune needs a run that was measured here, and --trace runs nothing",
            "leave one out",
            "conflicting-options",
        )
    for option, field in (
        ("--training" if request.training else "--inference", "training"),
        ("--optimizer", "optimizer"),
        ("--mode", "mode"),
        ("--dynamic", "dynamic"),
        ("--amp", "amp"),
        ("--device", "device"),
    ):
        if getattr(request, field) is not None and field not in takes:
            hint = "a script decides that itself; give arguments of the script after --"
            yield _make_misplaced_error(
                f"{option} is for {join_by_or(('a factory', *_A_KIND))} model, and the target is a {target.kind}",
                hint if target.kind == "script" else "",
            )
    inference = request.training is False or (request.training is None and target.kind in LIBRARIES)
    if request.optimizer is not None and inference:
        yield UsageError("--optimizer is for a training step", "add --training", "missing-option")
    if request.batch_size is not None and "batch_size" not in takes:
        yield _make_misplaced_error(
            f"--batch-size is for {join_by_or(_A_KIND)} model", "other programs make their own inputs"
        )
    if request.output is not None and target.kind == "run":
        yield _make_misplaced_error(
            "an earlier run is analysed in its own folder, and -o names another one",
            "leave -o out; to keep the earlier result, copy its folder first",
        )
    if request.python is not None and shutil.which(request.python) is None:
        yield UsageError(
            f"--python {request.python} is not a program that can be run", "give an interpreter's path", "no-python"
        )
    kept = [*target.paths, *([request.trace] if request.trace else [])]
    if request.output is not None and find_path_kind(request.output) and request.force:
        cleared = request.output.resolve()
        for path in kept:
            if cleared in (path.resolve(), *path.resolve().parents):
                yield UsageError(f"--force would delete {path}", ANOTHER_FOLDER, "folder-in-use")


def _guess(request: BreakdownRequest, accepted: str) -> str:
    name = request.target
    if accepted == ACCEPTED and shutil.which(name) is not None:
        return f"a command is given after --: {format_command([name, *request.arguments])}"
    if ":" in name and accepted == ACCEPTED:
        return "a factory is given as FILE.py:FUNCTION; the file was not found"
    return accepted


# The request in words: its secrets, its title, and the name of its folder.


def find_secrets(request: BreakdownRequest) -> Redaction:
    """The values that must not be written anywhere."""
    commands = [sys.argv[1:] if is_command() else (), request.arguments]
    return Redaction.find(commands, {**os.environ, **dict(request.variables)}, request.redact)


def is_command() -> bool:
    """Whether this process is the command-line tool; false in a program that calls the tool from Python."""
    return Path(sys.argv[0]).name in ("inductor-bench", "__main__.py")


def make_title(request: BreakdownRequest) -> str:
    """The title of a breakdown, for people."""
    if request.kind == COMMAND:
        return " ".join([Path(request.target).name, *find_arguments(request.arguments)])
    model = request.kind in LIBRARIES
    name = request.place if model else Path(request.target).name
    parts = [" ".join([name, *request.arguments])]
    if request.kind in COMPILED_HERE:
        if request.training is not None or model:
            parts.append("training" if request.training else "inference")
        parts += [request.optimizer] if request.optimizer else []
        if model:
            parts.append(f"batch {request.batch_size or DEFAULT_BATCH_SIZE}")
        parts += [f"{request.amp} autocast"] if request.amp else []
        parts += [request.mode] if request.mode else []
    return " · ".join(parts)


def find_program_file(request: BreakdownRequest) -> Path | None:
    """Returns the program's own file: that of a script, a factory, or the script or module that a command runs.

    ``None`` if there is none: for another target, a command that runs no Python file, or an installed module.
    """
    if request.kind in LIBRARIES or request.kind not in PROGRAMS:
        return None
    name = request.target.rpartition(":")[0] if request.kind == "factory" else request.target
    module = Path(*name.split("."))
    places = [Path(name), module.with_suffix(".py"), module / "__main__.py"]
    return next((place for place in places if place.suffix == ".py" and place.is_file()), None)


def make_folder_title(request: BreakdownRequest) -> str:
    """Makes the title for the name of a RUN folder, if the user gives no name."""
    if request.kind == COMMAND:
        return Path(request.target).name.removesuffix(".py").rpartition(".")[2]
    stem = request.place if request.kind in LIBRARIES else Path(request.target.partition(":")[0]).stem
    return stem + ("-training" if request.training else "")

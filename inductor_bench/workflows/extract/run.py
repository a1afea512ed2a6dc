"""Extracts or lists every kernel of a compiled module, a log, a structured trace or a RUN."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...errors import InductorBenchError, UsageError
from ...records.code.extraction import ExtractedKernel
from ...records.run import Environment, Failure
from ...source.module.reader import read_module
from ...source.static.launches import read_static_launches
from ...store.folder import RunFolder
from ..modules.observed import FoundModule, labelled
from ..modules.targets import Target, find_listed_modules, resolve_target
from ..options import DRAWN, RECORDED, VALUES_LIMIT_BYTES, BreakdownOptions
from ..progress import Progress
from .candidates import Candidate
from .files import write_all
from .from_module import ModuleRuns
from .from_run import modules_of_run
from .module import ModuleKernels
from .output import output_folder
from .selection import Selection, choose_kernels

SOURCES = "give a RUN folder, a compiled module, a log that lists modules, or a TORCH_TRACE folder"
NO_TIMES = "no times are known here, so --top takes the first kernels; a RUN knows which take most time"
CUT_SHORT = "its `call` does not return: the file is cut short or edited, and kernels may be missing"


@dataclass(frozen=True)
class ExtractOptions:
    """The request of one extraction.

    Attributes:
        targets: a RUN folder, a log, a structured trace, or compiled modules.
        output: the folder to write; ``None`` to list the kernels only.
        selection: the selected kernels.
        static: whether the arguments are read from the text, without a run of the module.
        python: the interpreter that runs modules; ``None`` for this one.
        timeout_s: limit of each process in seconds; ``None`` for no limit.
        values: ``drawn``, or ``recorded`` for the values that the kernels read.
        values_limit_bytes: maximum size of the recorded values of one kernel; a RUN has a limit of its own.
    """

    targets: tuple[str, ...]
    output: Path | None = None
    selection: Selection = field(default_factory=Selection)
    static: bool = False
    python: str | None = None
    timeout_s: float | None = None
    values: str = DRAWN
    values_limit_bytes: int | None = None


@dataclass(frozen=True)
class ExtractOutcome:
    """The result of an extraction: a row per kernel, notes for the user, and failures."""

    kernels: tuple[ExtractedKernel, ...]
    folder: Path | None = None
    notes: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()


def run_extract(options: ExtractOptions, progress: Progress) -> ExtractOutcome:
    """Extracts, or lists, the kernels of a target.

    Raises:
        UsageError: the target is missing, or is a program that is not compiled yet.
        InductorBenchError: the output folder cannot be made, or no module of the target can be read.
    """
    target = resolve_target(BreakdownOptions(options.targets, python=options.python), SOURCES)
    if target.kind not in ("run", "module", "log", "structured-trace"):
        command = f"inductor-bench breakdown {shlex.quote(target.name)}"
        raise UsageError(f"{target.name} is not a compiled module", f"capture a program first: {command}")
    _check_values(target, options)
    with output_folder(options.output) as folder:
        if target.kind == "run":
            modules, failures = modules_of_run(RunFolder(target.paths[0]), options.values)
            _require_modules(modules, failures)
            return _conclude(modules, folder, options, progress, (), failures)
        return _extract_files(target, folder, options, progress)


def _extract_files(target: Target, folder: Path | None, options: ExtractOptions, progress: Progress) -> ExtractOutcome:
    listed, missing = find_listed_modules(target)
    found, unread = _readable(listed)
    _require_modules(found, unread)
    failures = (*(Failure("extract", "missing", f"{path} no longer exists", subject=path) for path in missing), *unread)
    with tempfile.TemporaryDirectory(prefix="inductor-bench-") as name:
        runs = ModuleRuns(Path(name), options.python, options.timeout_s, progress)
        modules, notes = _modules_of_files(found, runs, static=options.static)
        if folder is None or options.values == DRAWN:
            return _conclude(modules, folder, options, progress, notes, failures)
        with tempfile.TemporaryDirectory(prefix=".values-", dir=folder) as values:
            chosen = choose_kernels(modules, options.selection)
            limit = options.values_limit_bytes or VALUES_LIMIT_BYTES
            modules, lost = runs.record(found, modules, chosen, Path(values), limit)
            return _conclude(modules, folder, options, progress, notes, (*failures, *lost))


def _readable(found: Sequence[FoundModule]) -> tuple[list[FoundModule], tuple[Failure, ...]]:
    """The modules that can be read, and the failures of the others."""
    modules, failures = [], []
    for module in found:
        try:
            read_module(module.text)
            modules.append(module)
        except InductorBenchError as error:
            message = f"{module.path}: {error.message}"
            failures.append(Failure("extract", "invalid", message, error.hint, subject=str(module.path)))
    return modules, tuple(failures)


def _require_modules(modules: Sequence[object], failures: Sequence[Failure]) -> None:
    if failures and not modules:
        others = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise InductorBenchError(failures[0].message + others, failures[0].hint)


def _check_values(target: Target, options: ExtractOptions) -> None:
    if target.kind == "run" and options.values_limit_bytes is not None:
        hint = "leave --values-limit away; it is an option of breakdown as well"
        raise UsageError("the values in a RUN are recorded already, up to the limit that it had", hint)
    if options.values == RECORDED and (options.static or options.output is None):
        other = "--static runs nothing" if options.static else "--list writes nothing"
        raise UsageError(f"--values recorded needs a run to record, and {other}", "leave one of the two out")


def _conclude(
    modules: Sequence[ModuleKernels],
    folder: Path | None,
    options: ExtractOptions,
    progress: Progress,
    notes: tuple[str, ...] = (),
    failures: tuple[Failure, ...] = (),
) -> ExtractOutcome:
    chosen = choose_kernels(modules, options.selection)
    if options.selection.top is not None and all(one.header.time_s is None for one in chosen):
        notes = (*notes, NO_TIMES)
    if folder is None:
        return ExtractOutcome(tuple(_listed(candidate) for candidate in chosen), None, notes, failures)
    progress.stage(f"writing {len(chosen)} kernel{'s' if len(chosen) > 1 else ''}")
    rows, lost = write_all(chosen, folder)
    return ExtractOutcome(rows, folder, notes, (*failures, *lost))


def _listed(candidate: Candidate) -> ExtractedKernel:
    header = candidate.header
    return ExtractedKernel(
        header.name,
        header.kernel_id,
        header.category,
        header.module or "",
        header.calls or 0,
        header.time_s,
        reason=candidate.reason,
    )


def _modules_of_files(
    found: Sequence[FoundModule], runs: ModuleRuns, *, static: bool
) -> tuple[list[ModuleKernels], tuple[str, ...]]:
    environment = Environment() if static else runs.survey()
    modules, notes = [], []
    for module, label in labelled(found):
        source = read_module(module.text)
        kernels = ModuleKernels(
            label=label.label,
            title=module.path.name,
            source=source,
            launches=(),
            source_lines=module.code.stack_traces if module.code else {},
            environment=environment,
        )
        if not static:
            kernels, note = runs.watch(module, label, kernels)
            notes += [note] if note else []
        if source.cut_short:
            notes.append(f"{label.label}: {CUT_SHORT}")
        if not kernels.watched:
            kernels = replace(kernels, launches=read_static_launches(module.text, source))
        modules.append(kernels)
    return modules, tuple(notes)

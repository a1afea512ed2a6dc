"""Extraction: every kernel of a compiled module, a log or a RUN as a standalone file."""

from __future__ import annotations

import contextlib
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...errors import InductorBenchError, UsageError
from ...launch.marks import end_marked, tool_mark
from ...records.code.extraction import ExtractedKernel
from ...records.run import Environment, Failure, ModuleRecord, Run
from ...source.capture.labels import label_modules
from ...source.module.reader import read_module
from ...source.static.launches import read_static_launches
from ...store.files import own_folder, write_json
from ...store.folder import ANOTHER, RunFolder
from ...store.formats import codec
from ...store.kernel_index import INDEX, is_edited, rows_in
from ...store.lock import LOCK, locked
from ..modules.program import FoundModule
from ..modules.targets import Target, find_listed_modules, resolve_target
from ..options import DRAWN, RECORDED, VALUES_LIMIT_BYTES, BreakdownOptions
from ..progress import Progress
from .files import Candidate, ModuleKernels, Selection, list_candidates, write_kernels
from .from_module import ModuleRuns
from .from_run import RunInMaking, modules_of_run
from .lost import list_lost_kernels

SOURCES = "give a RUN folder, a compiled module, a log that lists modules, or a TORCH_TRACE folder"
NO_TIMES = "no times are known here, so --top takes the first kernels; a RUN knows which take most time"
CUT_SHORT = "its `call` does not return: the file is cut short or edited, and kernels may be missing"


@dataclass(frozen=True)
class ExtractOptions:
    """The request of one extraction.

    ``targets``: a RUN folder, a log, a structured trace, or compiled modules. ``output`` is ``None`` to list only.
    ``static`` reads the arguments from the text instead of running the module. ``values`` is ``drawn``, or
    ``recorded`` for files with the values that the kernels really read, up to ``values_limit_bytes`` for each; a RUN
    has a limit of its own.
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
    """What was found and written: a row per kernel, with its file or its reason. ``notes`` are for people."""

    kernels: tuple[ExtractedKernel, ...]
    folder: Path | None = None
    notes: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()


def run_extract(options: ExtractOptions, progress: Progress) -> ExtractOutcome:
    """Extracts, or lists, the kernels of a target.

    Raises:
        UsageError: the target is not there or is of a kind that has no kernels yet.
        InductorBenchError: the output folder cannot be made, or nothing in the target can be read.
    """
    target = resolve_target(BreakdownOptions(options.targets, python=options.python), SOURCES)
    if target.kind not in ("run", "module", "log", "structured-trace"):
        command = f"inductor-bench breakdown {shlex.quote(target.name)}"
        raise UsageError(f"{target.name} is not a compiled module", f"capture a program first: {command}")
    _check_values(target, options)
    with _output_folder(options.output) as folder:
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
            chosen = _choose(modules, options.selection)
            limit = options.values_limit_bytes or VALUES_LIMIT_BYTES
            modules, lost = runs.record(found, modules, chosen, Path(values), limit)
            return _conclude(modules, folder, options, progress, notes, (*failures, *lost))


def _readable(found: Sequence[FoundModule]) -> tuple[list[FoundModule], tuple[Failure, ...]]:
    """The modules that can be read, and what is wrong with the others."""
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
    chosen = _choose(modules, options.selection)
    if options.selection.top is not None and all(one.header.time_s is None for one in chosen):
        notes = (*notes, NO_TIMES)
    if folder is None:
        return ExtractOutcome(tuple(_listed(candidate) for candidate in chosen), None, notes, failures)
    progress.stage(f"writing {len(chosen)} kernel{'s' if len(chosen) > 1 else ''}")
    rows, lost = _write(chosen, folder)
    return ExtractOutcome(rows, folder, notes, (*failures, *lost))


def _write(chosen: Sequence[Candidate], folder: Path) -> tuple[tuple[ExtractedKernel, ...], tuple[Failure, ...]]:
    """Writes the files and, also where the user stops that, the list of those that are there.

    Raises:
        KeyboardInterrupt: the user stopped it.
    """
    rows: list[ExtractedKernel] = []
    as_written = {row.file for row in rows_in(folder) if not is_edited(row, folder)}
    edited = {path.name for path in folder.glob("*.py")} - as_written
    stopped = None
    try:
        rows.extend(write_kernels(chosen, folder, {}, edited))
    except KeyboardInterrupt as stop:
        stopped = stop
    failures = []
    try:
        write_json(folder / INDEX, codec.encode(tuple(rows)))
    except InductorBenchError as error:
        failures.append(Failure("extract", "write", error.message, error.hint))
    if stopped is not None:
        raise KeyboardInterrupt(f"interrupted; {len(rows)} of {len(chosen)} kernels are in {folder}") from stopped
    return tuple(rows), tuple(failures)


@dataclass(frozen=True)
class RunExtraction:
    """The kernels of a RUN. ``files`` has the file of each kernel of its record, by id, in the folder ``kernels``.

    A library kernel has that of the call that it spends most time in. ``failures`` are what cannot be read or written.
    """

    kernels: tuple[ExtractedKernel, ...]
    files: dict[str, str]
    failures: tuple[Failure, ...]

    def named_in(self, run: Run) -> Run:
        """The record with the file of each kernel."""
        return replace(run, modules=tuple(map(self._named_in_module, run.modules)))

    def _named_in_module(self, module: ModuleRecord) -> ModuleRecord:
        files = {kernel_id: f"kernels/{file}" for kernel_id, file in self.files.items()}
        kernels = tuple(replace(kernel, file=files.get(kernel.kernel_id, kernel.file)) for kernel in module.kernels)
        return replace(module, kernels=kernels)


def extract_run(folder: RunFolder, values: str = DRAWN, making: RunInMaking | None = None) -> RunExtraction:
    """Writes every kernel of a RUN into its ``kernels`` folder, over what is there but for files that were edited.

    ``making``: the run, where this process is measuring it; see :func:`modules_of_run`.

    Raises:
        InductorBenchError: the record cannot be read.
    """
    modules, failures = modules_of_run(folder, values, making)
    chosen = _choose(modules, Selection())
    rows, lost = _write(chosen, own_folder(folder.kernels))
    files: dict[str, str] = {}
    of_calls: dict[tuple[str, int], str] = {}
    for candidate, row in zip(chosen, rows, strict=True):
        if row.file is not None:
            files[row.kernel_id] = row.file
            of_calls.update({(row.module, site): row.file for site in candidate.sites})
    for module in modules:
        for kernel_id, times in module.library_calls.items():
            written = [call for call in times if (module.label, call) in of_calls]
            if written:
                files.setdefault(kernel_id, of_calls[module.label, max(written, key=lambda call: times[call])])
    return RunExtraction(rows, files, (*failures, *lost))


@contextlib.contextmanager
def _output_folder(path: Path | None) -> Iterator[Path | None]:
    """The folder to write, empty, writable and ours alone. One that is new and stays empty goes again.

    Raises:
        UsageError: something is there, or another command writes it.
        InductorBenchError: it cannot be made or written.
    """
    if path is None:
        yield None
        return
    try:
        new = not path.exists()
        _check_empty(path)
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InductorBenchError(f"cannot create {path}: {reason}", ANOTHER) from error
    try:
        with locked(path, tool_mark()) as lock:
            end_marked(lock.left)
            _check_empty(path)
            yield path
    finally:
        if new:
            with contextlib.suppress(OSError):  # something was written
                path.rmdir()


def _check_empty(path: Path) -> None:
    if path.exists() and (not path.is_dir() or any(item.name != LOCK for item in path.iterdir())):
        raise UsageError(f"{path} exists and is not an empty folder", ANOTHER)


def _choose(modules: Sequence[ModuleKernels], selection: Selection) -> list[Candidate]:
    """The chosen kernels of the modules.

    Raises:
        UsageError: there are kernels, but none that was asked for.
    """
    candidates = [one for module in modules for one in (*list_candidates(module), *list_lost_kernels(module))]
    chosen = selection.choose(candidates)
    if candidates and not chosen:
        categories = ", ".join(sorted({one.header.category.value for one in candidates}))
        raise UsageError(
            f"none of the {len(candidates)} kernels fits {selection.words}",
            f"--list shows them all; their categories: {categories}",
        )
    return chosen


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
    for module, label in zip(found, label_modules([(module.text, module.code) for module in found]), strict=True):
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

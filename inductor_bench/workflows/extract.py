"""Extracts or lists every kernel of a compiled module, a log, a structured trace or a RUN."""

from __future__ import annotations

import contextlib
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ..analysis.findings.finding import plural
from ..devices.protocol import CPU
from ..devices.table import find_device
from ..errors import ANOTHER_FOLDER, InductorBenchError, UsageError
from ..launch.marks import end_marked, find_tool_mark
from ..launch.worker import WorkerPool, default_python
from ..messages.job_requests import ListLaunches, RecordValues, WantedValues
from ..records.base import Failure
from ..records.code import Details, ModuleSource
from ..records.module import ExtractedKernel, ExtractOutcome
from ..records.request import DRAWN, RECORDED, VALUES_LIMIT_BYTES, BreakdownRequest, ExtractRequest
from ..records.request_fields import make_target_fields
from ..records.run import Environment
from ..source.labels import ModuleLabel
from ..source.module_reader import read_module
from ..source.static_calls import read_static_launches
from ..store.files import write_text
from ..store.folder import RunFolder
from ..store.lock import LOCK, hold_lock
from .kernels.kernel_session import make_kernel_environment
from .modules.compile_environment import capture_environment
from .modules.extraction import ExtractionCandidate, ModuleKernels, choose_kernels, read_modules_of_run
from .modules.kernel_files import record_references, write_all
from .modules.module_measurements import Survey, make_values_failure, read_values, take_survey
from .modules.program_run import FoundModule, labelled
from .modules.targets import Target, find_listed_modules, resolve_target
from .progress import Progress

# The output folder of an extraction: new or empty, and locked while it is written.


@contextlib.contextmanager
def choose_output_folder(path: Path | None) -> Iterator[Path | None]:
    """Makes the output folder and holds its lock in the block. A new folder that stays empty is removed.

    Raises:
        UsageError: the folder holds files, or another command writes it.
        InductorBenchError: the folder cannot be made or written.
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
        raise InductorBenchError(f"cannot create {path}: {reason}", ANOTHER_FOLDER, "unwritable") from error
    try:
        with hold_lock(path, find_tool_mark()) as lock:
            end_marked(lock.left)
            _check_empty(path)
            yield path
    finally:
        if new:
            with contextlib.suppress(OSError):  # the folder holds files
                path.rmdir()


def _check_empty(path: Path) -> None:
    if path.exists() and (not path.is_dir() or any(item.name != LOCK for item in path.iterdir())):
        raise UsageError(f"{path} exists and is not an empty folder", ANOTHER_FOLDER, "folder-in-use")


# Runs compiled modules to record their launches, without measuring them.


SEE_MORE = "-v shows what it prints"


class ModuleRuns:
    """Runs modules, each in a separate worker.

    Args:
        work: a scratch folder.
        python: the interpreter of the workers; ``None`` for this one.
        timeout_s: limit of each worker in seconds; ``None`` for no limit.
        progress: the listener for stages and output.
    """

    def __init__(self, work: Path, python: str | None, timeout_s: float | None, progress: Progress) -> None:
        environment = capture_environment(work)
        self._work = work
        self._pool = WorkerPool(python or default_python(), work, environment, timeout_s, progress.output)
        self._progress = progress
        self._survey = Survey()

    def survey(self) -> Environment:
        """The environment of the workers."""
        self._progress.stage("looking at the machine")
        self._survey = take_survey(self._pool, (), device=CPU.type, peaks="none", log=self._work / "survey.log")
        return self._survey.environment

    def watch(self, module: FoundModule, label: ModuleLabel, kernels: ModuleKernels) -> tuple[ModuleKernels, str]:
        """Runs a module once. Returns its kernels with their launches, and a note on a failure.

        After a failure the kernels may have no launches.
        """
        obstacle = self._obstacle(kernels.source)
        if obstacle is not None:
            return kernels, _describe_module_not_run(label, obstacle)
        self._progress.stage(f"running {label.label} once")
        file, source = self._file_of(module, label), read_module(module.text)
        job = ListLaunches(str(file.resolve()), source.device, source.threads, source.vector_lanes)
        answer = self._pool.call(job, name=label.slug, log=self._work / f"{label.slug}.log")
        if answer.result is None:
            return kernels, _describe_module_not_run(
                label, answer.failure or Failure("launches", "exit", "it gave no answer")
            )
        details = answer.result
        watched = replace(
            kernels,
            launches=details.launches,
            references=details.references,
            compiled=details.compiled,
            watched=True,
        )
        return watched, f"{label.label}: {answer.failure.message}" if answer.failure else ""

    def _obstacle(self, source: ModuleSource) -> Failure | None:
        """Returns the reason why a module cannot be run here, if it is known before an attempt."""
        if not (source.has_harness or source.cpp_wrapper):
            message = "it was compiled without the harness that makes its inputs"
            return Failure("launches", "missing", message, "give the program to `inductor-bench breakdown` instead")
        if self._survey.failure is not None:
            return self._survey.failure
        device = find_device(source.device)
        if device.name_in(self._survey.environment) is None:
            message = f"it is for a {device.words.family} GPU, and torch sees none here"
            return Failure("launches", "missing", message, "run this on the machine with the GPU, or give --static")
        return None

    def record(
        self,
        found: Sequence[FoundModule],
        modules: Sequence[ModuleKernels],
        chosen: Sequence[ExtractionCandidate],
        folder: Path,
        limit_bytes: int,
    ) -> tuple[list[ModuleKernels], tuple[Failure, ...]]:
        """Runs the modules again and records the values of the selected launches.

        Args:
            found: the modules.
            modules: their kernels, in the same order.
            chosen: the selected candidates.
            folder: the folder for the files of values.
            limit_bytes: maximum size of the values of one launch.

        Returns:
            The modules with their recorded values, and the failures.
        """
        recorded, failures = [], []
        for (module, label), kernels in zip(labelled(found), modules, strict=True):
            wanted = [one.launch for one in chosen if one.launch and one.header.module == kernels.label]
            details = Details()
            if kernels.watched and wanted:
                self._progress.stage(f"recording values of {label.label}")
                file, source = self._file_of(module, label), read_module(module.text)
                job = RecordValues(
                    module=str(file.resolve()),
                    device=source.device,
                    launches=tuple(wanted),
                    values=WantedValues(str((folder / label.slug).resolve()), limit_bytes),
                    threads=source.threads,
                    vector_lanes=source.vector_lanes,
                )
                name = f"{label.slug}.values"
                answer = self._pool.call(job, name=name, log=self._work / f"{name}.log")
                details = answer.result or Details()
                lost = make_values_failure(details, label.label) or answer.failure
                failures += [lost] if lost else []
            recorded.append(replace(kernels, values=read_values(details, folder / label.slug)))
        return recorded, tuple(failures)

    def _file_of(self, module: FoundModule, label: ModuleLabel) -> Path:
        if module.path.is_file():
            return module.path
        path = self._work / f"{label.slug}.py"  # a structured trace holds the text of a module whose file may be gone
        write_text(path, module.text)
        return path


def _describe_module_not_run(label: ModuleLabel, failure: Failure) -> str:
    told = "its kernels get arguments of the shapes in its text; integer tensors are filled with zeros"
    hint = SEE_MORE if failure.kind in ("exit", "signal") else failure.hint
    return f"{label.label} could not be run: {failure.message}{f' ({hint})' if hint else ''}; {told}"


SOURCES = "give a RUN folder, a compiled module, a log that lists modules, or a TORCH_TRACE folder"
NO_TIMES = "no times are known here, so --top takes the first kernels; a RUN knows which take most time"
CUT_SHORT = "its `call` does not return: the file is cut short or edited, and kernels may be missing"


def run_extract(request: ExtractRequest, progress: Progress) -> ExtractOutcome:
    """Extracts, or lists, the kernels of a target.

    Raises:
        UsageError: the target is missing, or is a program that is not compiled yet.
        InductorBenchError: the output folder cannot be made, or no module of the target can be read.
    """
    program = BreakdownRequest(**make_target_fields(request.targets, SOURCES), python=request.python)
    target = resolve_target(program, SOURCES)
    if target.kind not in ("run", "module", "log", "structured-trace"):
        command = f"inductor-bench breakdown {shlex.quote(target.name)}"
        raise UsageError(
            f"{target.name} is not a compiled module", f"capture a program first: {command}", "wrong-target"
        )
    _check_values(target, request)
    with choose_output_folder(request.output) as folder:
        if target.kind == "run":
            run = RunFolder(target.paths[0])
            modules, failures = read_modules_of_run(run, request.values)
            _require_modules(modules, failures)
            outcome = _conclude(modules, folder, request, progress, (), failures)
            return _add_references(outcome, run, request, progress) if folder and request.references else outcome
        return _extract_files(target, folder, request, progress)


def _add_references(
    outcome: ExtractOutcome, run: RunFolder, request: ExtractRequest, progress: Progress
) -> ExtractOutcome:
    """Records the references of the extracted files, and notes how many files have none."""
    assert outcome.folder is not None
    files = list(dict.fromkeys(outcome.folder / row.file for row in outcome.kernels if row.file is not None))
    python = request.python or run.load().request.python or default_python()
    with tempfile.TemporaryDirectory(prefix="inductor-bench-") as name:
        pool = WorkerPool(python, Path(name), make_kernel_environment(Path(name)), request.timeout_s, progress.output)
        left, reason = record_references(files, pool, progress)
    if not left:
        return outcome
    note = f"{left} of {plural(len(files), 'file')} cannot check outputs yet: {reason}"
    return replace(outcome, notes=(*outcome.notes, note))


def _extract_files(target: Target, folder: Path | None, request: ExtractRequest, progress: Progress) -> ExtractOutcome:
    listed, missing = find_listed_modules(target)
    found, unread = _keep_readable(listed)
    _require_modules(found, unread)
    failures = (*(Failure("extract", "missing", f"{path} no longer exists", subject=path) for path in missing), *unread)
    with tempfile.TemporaryDirectory(prefix="inductor-bench-") as name:
        runs = ModuleRuns(Path(name), request.python, request.timeout_s, progress)
        modules, notes = _read_modules_of_files(found, runs, static=request.static)
        if folder is None or request.values == DRAWN:
            return _conclude(modules, folder, request, progress, notes, failures)
        with tempfile.TemporaryDirectory(prefix=".values-", dir=folder) as values:
            chosen = choose_kernels(modules, request.selection)
            limit = request.values_limit_bytes or VALUES_LIMIT_BYTES
            modules, lost = runs.record(found, modules, chosen, Path(values), limit)
            return _conclude(modules, folder, request, progress, notes, (*failures, *lost))


def _keep_readable(found: Sequence[FoundModule]) -> tuple[list[FoundModule], tuple[Failure, ...]]:
    """Returns the modules that can be read, and the failures of the others."""
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
        raise InductorBenchError(failures[0].message + others, failures[0].hint, "no-module")


def _check_values(target: Target, request: ExtractRequest) -> None:
    if target.kind == "run" and request.values_limit_bytes is not None:
        hint = "remove --values-limit here and give it to breakdown"
        raise UsageError(
            "the values in a RUN are recorded already, up to the limit that it had", hint, "misplaced-option"
        )
    if request.values == RECORDED and (request.static or request.output is None):
        other = "--static runs nothing" if request.static else "--list writes nothing"
        raise UsageError(
            f"--values recorded needs a run to record, and {other}", "leave out one of the two", "conflicting-options"
        )


def _conclude(
    modules: Sequence[ModuleKernels],
    folder: Path | None,
    request: ExtractRequest,
    progress: Progress,
    notes: tuple[str, ...] = (),
    failures: tuple[Failure, ...] = (),
) -> ExtractOutcome:
    chosen = choose_kernels(modules, request.selection)
    if request.selection.top is not None and all(one.header.time_s is None for one in chosen):
        notes = (*notes, NO_TIMES)
    if folder is None:
        return ExtractOutcome(tuple(_list_candidate(candidate) for candidate in chosen), None, notes, failures)
    progress.stage(f"writing {len(chosen)} kernel{'s' if len(chosen) > 1 else ''}")
    rows, lost = write_all(chosen, folder)
    return ExtractOutcome(rows, folder, notes, (*failures, *lost))


def _list_candidate(candidate: ExtractionCandidate) -> ExtractedKernel:
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


def _read_modules_of_files(
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

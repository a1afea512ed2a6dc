"""Writes the standalone files of candidates and their list, and records what kernels compute, if that is requested."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import InductorBenchError
from ...launch.worker import WorkerLostError, WorkerPool, WorkerSession
from ...messages.kernel_requests import MakeReference
from ...records.base import Failure
from ...records.code import Reference
from ...records.module import ExtractedKernel, ModuleRecord
from ...records.request import DRAWN, RECORDED, Selection
from ...records.run import Run
from ...source.standalone_writer import edit_standalone, name_file, read_recorded_facts, write_file_text
from ...store import codec
from ...store.files import encode_text, hash_bytes, own_folder, read_text, write_bytes, write_json
from ...store.folder import EVIDENCE, INDEX, RECORD, RunFolder, is_edited, read_rows
from ...store.run_files import load_evidence, save_evidence
from ..progress import Progress
from .extraction import ExtractionCandidate, RunInMaking, call_facts, choose_kernels, read_modules_of_run
from .module_measurements import SUFFIX


def write_kernels(
    candidates: Sequence[ExtractionCandidate],
    folder: Path,
    written: dict[Hashable, ExtractedKernel],
    edited: Collection[str] = (),
) -> Iterator[ExtractedKernel]:
    """Writes one file per distinct candidate, and beside it a file of recorded values, if there are any.

    Args:
        candidates: the selected candidates of one module.
        folder: an existing folder.
        written: rows by identity of the files in the folder; extended by this function.
        edited: the names of edited files, which stay unchanged.

    Yields:
        A row for each candidate, in order, after its file was written. A row without a file has the reason.
    """
    return (_write(candidate, folder, written, edited) for candidate in candidates)


def _write(
    candidate: ExtractionCandidate, folder: Path, written: dict[Hashable, ExtractedKernel], edited: Collection[str]
) -> ExtractedKernel:
    header = candidate.header
    row = ExtractedKernel(
        header.name, header.kernel_id, header.category, header.module or "", header.calls or 0, header.time_s
    )
    if candidate.launch is None:
        return replace(row, reason=candidate.reason)
    known = written.get(candidate.identity)
    if known is not None:
        return replace(row, file=known.file, values=known.values, note=known.note, sha256=known.sha256)
    name = name_file(header.name, header.kernel_id, tuple(other.file for other in written.values() if other.file))
    launch, recorded = candidate.launch, candidate.recorded
    values, note = _place_values(candidate, folder, name)
    if candidate.values is not None and values is not None:
        launch = candidate.values.launch_from(values)
        recorded = {**recorded, "reference": None, **call_facts(launch, candidate.values.reference)}
    try:
        data = encode_text(name, write_file_text(header, launch, recorded, candidate.kernel, candidate.switches))
        if name not in edited:
            write_bytes(folder / name, data)
    except InductorBenchError as error:
        if values is not None:
            (folder / values).unlink(missing_ok=True)
        return replace(row, reason=error.message)
    row = replace(row, file=name, values=values, note=note, sha256=hash_bytes(data))
    written[candidate.identity] = row
    return row


def _place_values(candidate: ExtractionCandidate, folder: Path, name: str) -> tuple[str | None, str]:
    """Places the recorded values beside the file ``name``. Returns the name of their file, if any, and a note."""
    if candidate.values is None:
        return None, candidate.note
    values = Path(name).stem + SUFFIX
    try:
        candidate.values.place(folder / values)
    except InductorBenchError as error:
        return None, f"its values are drawn: {error.message}"
    return values, candidate.note


def write_all(
    chosen: Sequence[ExtractionCandidate], folder: Path
) -> tuple[tuple[ExtractedKernel, ...], tuple[Failure, ...]]:
    """Writes the files, and then, also after an interruption, the index of the written files.

    Returns:
        The rows of the kernels, and a failure where the index cannot be written.

    Raises:
        KeyboardInterrupt: the user interrupted it; the message says how many files were written.
    """
    rows: list[ExtractedKernel] = []
    as_written = {row.file for row in read_rows(folder) if not is_edited(row, folder)}
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


# Extracts every kernel of a RUN into the RUN's own folder ``kernels``.


@dataclass(frozen=True)
class RunExtraction:
    """The extracted kernels of a RUN."""

    kernels: tuple[ExtractedKernel, ...]  # the rows of the kernels
    # the name of the file of each kernel of the record, by id. A library kernel has the file of its most expensive
    # call.
    files: dict[str, str]
    failures: tuple[Failure, ...]  # modules that cannot be read, and files that cannot be written

    @property
    def places(self) -> dict[str, str]:
        """Returns the path of each file in the RUN."""
        return {kernel_id: f"kernels/{file}" for kernel_id, file in self.files.items()}

    def named_in(self, run: Run) -> Run:
        """Returns the record with the path of each kernel's file."""
        return replace(run, modules=tuple(map(self._named_in_module, run.modules)))

    def _named_in_module(self, module: ModuleRecord) -> ModuleRecord:
        files = self.places
        kernels = tuple(replace(kernel, file=files.get(kernel.kernel_id, kernel.file)) for kernel in module.kernels)
        return replace(module, kernels=kernels)


def extract_run(folder: RunFolder, values: str = DRAWN, making: RunInMaking | None = None) -> RunExtraction:
    """Writes every kernel of a RUN into its ``kernels`` folder. Edited files stay; other files are replaced.

    Args:
        folder: the RUN.
        values: ``recorded`` for files with the values that the kernels read.
        making: the run, if this process is measuring it; see :func:`read_modules_of_run`.

    Raises:
        InductorBenchError: the record cannot be read.
    """
    modules, failures = read_modules_of_run(folder, values, making)
    chosen = choose_kernels(modules, Selection())
    rows, lost = write_all(chosen, own_folder(folder.kernels))
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
    found = RunExtraction(rows, files, (*failures, *lost))
    if making is None and (folder.path / EVIDENCE).is_file():
        save_evidence(folder, replace(load_evidence(folder, folder.load()), kernel_files=found.places))
    return found


Ask = Callable[[MakeReference, float], Reference]
"""Sends a worker a request, with a limit in seconds."""

REFERENCE_S = 600.0
"""Limit in seconds for a reference."""

MOST_TRIES = 3
"""If none of this many files could be run, no further files are tried."""


def record_reference(file: Path, ask: Ask) -> bool:
    """Adds a reference to a standalone file that an extraction wrote without one.

    The reference is what the file's kernel computes or, if somebody has edited the file of a RUN, what the kernel of
    the RUN computes.

    Args:
        file: the file.
        ask: asks the worker that runs the kernel.

    Returns:
        Whether a reference was added.

    Raises:
        InductorBenchError: the kernel cannot be run, or the file cannot be read or written.
        WorkerLostError: the kernel crashed the worker.
    """
    folder = file.parent
    row = next((row for row in read_rows(folder) if row.file == file.name), None)
    if row is None or read_recorded_facts(text := read_text(file)).get("reference") is not None:
        return False
    was_edited = is_edited(row, folder)
    if was_edited:
        made = _read_reference_of_original(row, folder, ask)
    else:
        made = ask(MakeReference(str(file.resolve())), REFERENCE_S)
    if made is None or made.fingerprint is None:
        return False
    data = encode_text(file.name, edit_standalone(text, {"reference": made.fingerprint}))
    write_bytes(file, data)
    if not was_edited:
        _replace_rows(folder, row.file, hash_bytes(data))
    return True


def record_references(files: Sequence[Path], pool: WorkerPool, progress: Progress) -> tuple[int, str]:
    """Adds references to the standalone files that have none, one after the other.

    Returns:
        The number of files that still have none, and why the last of them has none.
    """
    wanted = [file for file in files if not has_reference(file)]
    left, reason = 0, ""
    with contextlib.ExitStack() as sessions:
        session: WorkerSession | None = None
        for number, file in enumerate(wanted, 1):
            if left == number - 1 >= MOST_TRIES:
                return len(wanted), reason  # there is no torch, or no such device
            progress.stage(f"recording what {file.stem} computes ({number} of {len(wanted)})")
            if session is None or not session.alive:
                session = sessions.enter_context(_start(pool))
            try:
                record_reference(file, session.ask)
            except WorkerLostError as lost:
                left, reason = left + 1, f"the worker {lost.message}"
            except InductorBenchError as error:
                left, reason = left + 1, error.message
    return left, reason


def has_reference(file: Path) -> bool:
    """Whether a standalone file holds a reference; false if it cannot be read."""
    with contextlib.suppress(InductorBenchError):
        return read_recorded_facts(read_text(file)).get("reference") is not None
    return False


def _start(pool: WorkerPool) -> WorkerSession:
    log = pool.folder / "references.log"
    return WorkerSession(pool.python, pool.folder, pool.environment, log=log, on_line=pool.on_line)


def _read_reference_of_original(row: ExtractedKernel, folder: Path, ask: Ask) -> Reference | None:
    """Returns what the kernel of a RUN computes whose file was edited; ``None`` if the folder belongs to no RUN."""
    run = RunFolder(folder.parent)
    if run.kernels.resolve() != folder.resolve() or not (run.path / RECORD).is_file():
        return None
    modules, _ = read_modules_of_run(run, RECORDED if row.values else DRAWN)
    candidates = (one for module in modules if module.label == row.module for one in module.candidates)
    same = [one for one in candidates if (one.header.name, one.header.kernel_id) == (row.name, row.kernel_id)]
    with tempfile.TemporaryDirectory(prefix="inductor-bench-") as name:
        for original in write_kernels(same[:1], Path(name), {}):
            if original.file is not None:
                return ask(MakeReference(str(Path(name) / original.file)), REFERENCE_S)
    return None


def _replace_rows(folder: Path, file: str | None, sha256: str) -> None:
    rows = (replace(row, sha256=sha256) if row.file == file else row for row in read_rows(folder))
    write_json(folder / INDEX, codec.encode(tuple(rows)))

"""Records in standalone files what their kernels compute, once somebody asks for it: the reference of ``--check``."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ...errors import InductorBenchError
from ...launch.worker import WorkerLostError, WorkerPool, WorkerSession
from ...messages.kernel_requests import MakeReference
from ...records.code import Reference
from ...records.kernel import ExtractedKernel
from ...records.request import DRAWN, RECORDED
from ...source.standalone_writer import edit_standalone, recorded_facts
from ...store import codec
from ...store.files import read_text, sha256_of_text, write_json, write_text
from ...store.folder import INDEX, RECORD, RunFolder, is_edited, rows_in
from ..progress import Progress
from .extraction import list_candidates, modules_of_run
from .kernel_files import write_kernels

Ask = Callable[[MakeReference, float], Reference]
"""Sends a worker a request, with a limit in seconds."""

REFERENCE_S = 600.0
"""Limit in seconds for a reference."""

MOST_TRIES = 3
"""Files after which no more are tried, if none of them could be run."""


def record_reference(file: Path, ask: Ask) -> bool:
    """Adds its reference to a standalone file that an extraction wrote without one.

    The reference is what the file's kernel computes or, if somebody has edited the file of a RUN, what the kernel of
    the RUN computes.

    Args:
        file: the file.
        ask: asks the worker that runs the kernel.

    Returns:
        Whether the file has one now that it did not have before.

    Raises:
        InductorBenchError: the kernel cannot be run, or the file cannot be read or written.
        WorkerLostError: the kernel crashed the worker.
    """
    folder = file.parent
    row = next((row for row in rows_in(folder) if row.file == file.name), None)
    if row is None or recorded_facts(text := read_text(file)).get("reference") is not None:
        return False
    was_edited = is_edited(row, folder)
    if was_edited:
        made = _reference_of_original(row, folder, ask)
    else:
        made = ask(MakeReference(str(file.resolve())), REFERENCE_S)
    if made is None or made.fingerprint is None:
        return False
    text = edit_standalone(text, {"reference": made.fingerprint})
    write_text(file, text)
    if not was_edited:
        _replace_rows(folder, row.file, sha256_of_text(text))
    return True


def record_references(files: Sequence[Path], pool: WorkerPool, progress: Progress) -> tuple[int, str]:
    """Adds their references to the standalone files that have none, one after the other.

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
        return recorded_facts(read_text(file)).get("reference") is not None
    return False


def _start(pool: WorkerPool) -> WorkerSession:
    log = pool.folder / "references.log"
    return WorkerSession(pool.python, pool.folder, pool.environment, log=log, on_line=pool.on_line)


def _reference_of_original(row: ExtractedKernel, folder: Path, ask: Ask) -> Reference | None:
    """What the kernel of a RUN computes whose file was edited; ``None`` where the folder belongs to no RUN."""
    run = RunFolder(folder.parent)
    if run.kernels.resolve() != folder.resolve() or not (run.path / RECORD).is_file():
        return None
    modules, _ = modules_of_run(run, RECORDED if row.values else DRAWN)
    candidates = (one for module in modules if module.label == row.module for one in list_candidates(module))
    same = [one for one in candidates if (one.header.name, one.header.kernel_id) == (row.name, row.kernel_id)]
    with tempfile.TemporaryDirectory(prefix="inductor-bench-") as name:
        for original in write_kernels(same[:1], Path(name), {}):
            if original.file is not None:
                return ask(MakeReference(str(Path(name) / original.file)), REFERENCE_S)
    return None


def _replace_rows(folder: Path, file: str | None, sha256: str) -> None:
    rows = (replace(row, sha256=sha256) if row.file == file else row for row in rows_in(folder))
    write_json(folder / INDEX, codec.encode(tuple(rows)))

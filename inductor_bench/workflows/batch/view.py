"""Reads a batch from its records, and writes its tables, its summary and its page."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ...analysis.batch_doubts import without_uncounted_gains
from ...errors import InductorBenchError
from ...records.batches.batch import RUNNING, WAITING
from ...report.batch_document import write_batch
from ...report.batch_tables import BatchView
from ...store.batch import BatchFolder
from ...store.digest import read_results, without_collection
from ...store.files import refuse_link


@dataclass(frozen=True)
class BatchReport:
    """A batch to show.

    Attributes:
        view: the batch and the results of its models.
        folder: the batch folder.
        with_parquet: whether Parquet tables were written, which needs DuckDB.
        problem: the error where the tables could not be written.
    """

    view: BatchView
    folder: Path
    with_parquet: bool = True
    problem: InductorBenchError | None = None


def report_batch(path: Path) -> BatchReport:
    """Reads a batch folder's records, and writes its tables, its summary and its page again.

    Raises:
        InductorBenchError: ``batch.json`` is missing or cannot be read.
    """
    with without_collection():
        view = read_view(path)
        try:
            refuse_link(path)
            return BatchReport(view, path, write_batch(view, path))
        except InductorBenchError as error:
            return BatchReport(view, path, problem=error)


def read_view(path: Path) -> BatchView:
    """A batch from its present records.

    Raises:
        InductorBenchError: ``batch.json`` is missing or cannot be read.
    """
    folder = BatchFolder(path)
    batch = folder.load()
    if not folder.is_locked():  # no process runs this batch, so rows marked as running were cut off
        models = tuple(replace(m, status=WAITING) if m.status == RUNNING else m for m in batch.models)
        batch = replace(batch, models=models)
    return BatchView(without_uncounted_gains(read_results(folder, batch)))

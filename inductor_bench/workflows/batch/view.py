"""Drawing a batch from its records: the rows of its models, and their kernels put together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import InductorBenchError
from ...records.batch import RUNNING, WAITING
from ...report.batch.folder import write_batch
from ...report.batch.view import BatchView
from ...store.batch import BatchFolder
from ...store.digest import read_results, without_collection
from ...store.files import refuse_link


@dataclass(frozen=True)
class BatchReport:
    """A batch as it is shown. ``problem`` is what could not be written; it can be shown all the same.

    ``with_parquet`` tells that DuckDB, which writes Parquet, is installed.
    """

    view: BatchView
    folder: Path
    with_parquet: bool = True
    problem: InductorBenchError | None = None


def report_batch(path: Path, *, plots: bool = True) -> BatchReport:
    """Reads a batch folder's records and writes its tables, its summary and its plot again.

    Raises:
        InductorBenchError: there is no readable ``batch.json``.
    """
    with without_collection():
        view = read_view(path)
        try:
            refuse_link(path)
            return BatchReport(view, path, write_batch(view, path, plots=plots))
        except InductorBenchError as error:
            return BatchReport(view, path, problem=error)


def read_view(path: Path) -> BatchView:
    """A batch from its records as they are now.

    Raises:
        InductorBenchError: there is no readable ``batch.json``.
    """
    folder = BatchFolder(path)
    batch = folder.load()
    if not folder.is_locked():  # whatever was running when it was killed is not running any more
        models = tuple(replace(m, status=WAITING) if m.status == RUNNING else m for m in batch.models)
        batch = replace(batch, models=models)
    return BatchView(read_results(folder, batch))

"""Opens the tables of a batch or a run for queries, and writes the reports of an earlier run again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..analysis.batch_aggregation import leave_out_uncounted_gains
from ..errors import InductorBenchError
from ..records.base import Answer, QueryTable
from ..records.batch_record import DONE, PARTIAL, Batch, BatchModel, BatchResults
from ..records.request import ModelRequest
from ..records.run import Run
from ..report.batch.batch_tables import SUMMARY_TABLES, BatchView, make_summary_tables
from ..report.run.run_document import write_report
from ..store.digest import pause_garbage_collection, read_digest
from ..store.files import refuse_link
from ..store.folder import BATCH, RECORD, BatchFolder, RunFolder
from ..store.tables import query_tables
from .batch_state import read_view

# Opens the tables of a batch or of a single run for queries.


@dataclass(frozen=True)
class Tables:
    """The tables of a folder. ``notes`` name what is missing in them."""

    tables: Sequence[QueryTable]
    notes: tuple[str, ...]

    def ask(self, sql: str) -> Answer:
        """Returns the answer to a query, which runs on a copy in memory.

        Raises:
            UsageError: DuckDB refuses the query.
            InductorBenchError: DuckDB is not installed.
        """
        return query_tables(self.tables, sql)


def open_tables(path: Path, sql: str = "") -> Tables:
    """Opens the tables of a batch folder or a RUN folder, from its present records.

    Args:
        path: the folder.
        sql: the query. The screens of a batch's runs are read only if a query names them, or if there is no query.

    Raises:
        InductorBenchError: the folder is neither, or its record cannot be read.
    """
    runs: Iterable[tuple[str, Run, Path]]
    with pause_garbage_collection():
        if (path / BATCH).is_file():
            view = read_view(path)
            runs = _list_runs(view, path) if not sql or any(name in sql.lower() for name in SUMMARY_TABLES) else ()
        elif (path / RECORD).is_file():
            run = RunFolder(path).load()
            view, runs = _run_view(path, run), [(path.resolve().name, run, path)]
        else:
            raise InductorBenchError(
                f"{path} holds neither {BATCH} nor {RECORD}",
                "give a folder that `inductor-bench batch` or `inductor-bench breakdown` wrote",
                "no-record",
            )
        notes = [f"left out: {model.problem.message}" for model in view.results.models if model.problem]
        if not any(model.graphs for model in view.results.models):
            notes.append(f"nothing is measured in {path} yet: of its tables only models has rows")
        return Tables((*view.tables(), *make_summary_tables(runs)), tuple(notes))


def _list_runs(view: BatchView, path: Path) -> Iterator[tuple[str, Run, Path]]:
    """Yields the records of a batch that can be read, one after the other."""
    for result in view.results.models:
        name = result.model.request.name
        folder = BatchFolder(path).run(name)
        with contextlib.suppress(InductorBenchError):  # `models` says what is wrong, or was not measured
            yield name, folder.load(), folder.path


def _run_view(path: Path, run: Run) -> BatchView:
    """Returns a run as a batch of one model."""
    request = ModelRequest(**{**vars(run.request), "target": run.target}, name=path.resolve().name)
    model = BatchModel(request, PARTIAL if run.failures else DONE, 1, run=".", failure=next(iter(run.failures), None))
    batch = Batch(run.format, run.tool_version, run.created, run.command, run.title, (model,))
    results = BatchResults(batch, (read_digest(model, RunFolder(path).record),))
    return BatchView(leave_out_uncounted_gains(results))


# Writes the tables, plots and page of an earlier run again, from its record.


def run_report(folder: Path, *, plots: bool = True, writes: bool = True) -> tuple[Run, InductorBenchError | None]:
    """Reads the record of a RUN folder and, if it ``writes``, makes its tables, plots and page again.

    Returns:
        The record, and the error if the folder cannot be written.

    Raises:
        InductorBenchError: the record is missing or cannot be read.
    """
    run = RunFolder(folder).load()
    if not writes:
        return run, None
    try:
        refuse_link(folder)
        write_report(run, folder, plots=plots)
    except InductorBenchError as error:
        return run, error
    return run, None

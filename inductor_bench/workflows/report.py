"""Writes the tables, plots and page of an earlier run again, from its record."""

from __future__ import annotations

from pathlib import Path

from ..errors import InductorBenchError
from ..records.run import Run
from ..report.run.run_document import write_report
from ..store.files import refuse_link
from ..store.folder import RunFolder


def run_report(folder: Path, *, plots: bool = True) -> tuple[Run, InductorBenchError | None]:
    """Reads the record of a RUN folder and writes its tables and page again.

    Returns:
        The record, and the error where the folder cannot be written.

    Raises:
        InductorBenchError: the record is missing or cannot be read.
    """
    run = RunFolder(folder).load()
    try:
        refuse_link(folder)
        write_report(run, folder, plots=plots)
    except InductorBenchError as error:
        return run, error
    return run, None

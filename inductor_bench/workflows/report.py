"""Drawing an earlier run again from its record, without torch and without running anything."""

from __future__ import annotations

from pathlib import Path

from ..errors import InductorBenchError
from ..records.run import Run
from ..report.run.folder import write_report
from ..store.files import refuse_link
from ..store.folder import RunFolder


def run_report(folder: Path, *, plots: bool = True) -> tuple[Run, InductorBenchError | None]:
    """Reads a RUN folder's record and writes its tables, plots and page again.

    Returns:
        The record, which can be shown whether or not its folder can be written, and what could not be written.

    Raises:
        InductorBenchError: there is no readable record.
    """
    run = RunFolder(folder).load()
    try:
        refuse_link(folder)
        write_report(run, folder, plots=plots)
    except InductorBenchError as error:
        return run, error
    return run, None

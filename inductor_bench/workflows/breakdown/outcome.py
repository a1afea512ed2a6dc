"""The end of a breakdown: its record, its folder and its reports."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import InductorBenchError
from ...records.run import Failure, Run
from ...report.run.folder import write_report
from ...store.folder import RunFolder
from ..options import BreakdownOptions


@dataclass(frozen=True)
class BreakdownOutcome:
    """A finished breakdown: its record, its folder, and the written reports."""

    run: Run
    folder: Path
    written: tuple[Path, ...] = ()


def report_run(run: Run, folder: RunFolder, options: BreakdownOptions) -> BreakdownOutcome:
    """Writes the reports. The record is saved before, so that a full disk costs only the reports."""
    try:
        return BreakdownOutcome(run, folder.path, tuple(write_report(run, folder.path, plots=options.plots)))
    except InductorBenchError as error:
        failure = Failure("report", "write", error.message, error.hint)
        return BreakdownOutcome(replace(run, failures=(*run.failures, failure)), folder.path)

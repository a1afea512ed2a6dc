"""The end of a breakdown: its record, its folder and its reports."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from ...analysis.findings.command_again import apply_command, program_words
from ...analysis.findings.phrases import plural
from ...errors import InductorBenchError
from ...records.failure import VERIFY
from ...records.run import Failure, Run
from ...report.run.run_document import write_report
from ...store.folder import RunFolder
from ..options import BreakdownOptions, RetuneOptions
from .most_expensive import STAGE as AUTOTUNE


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


def describe_interruption(run: Run, stage: str, folder: RunFolder, retune: RetuneOptions | None) -> Failure:
    """The failure of a run that was interrupted in a stage, with the command that shows or finishes it."""
    count, place = len(run.modules), shlex.quote(str(folder.path))
    kept = f"; {plural(count, 'module')} measured until then" if count else ""
    hint = f"inductor-bench report {place}" if count else ""
    if stage in (AUTOTUNE, VERIFY) and retune is not None:
        hint = _finishing_command(run, stage, place, retune)
    return Failure(stage, "interrupted", f"interrupted by Ctrl-C or a signal{kept}", hint)


def _finishing_command(run: Run, stage: str, place: str, retune: RetuneOptions) -> str:
    """The command that finishes the retunes of an interrupted run, or their proof.

    Args:
        run: the record.
        stage: the stage that was interrupted.
        place: the RUN, as the user would type it.
        retune: the request.
    """
    program = program_words(run)
    if stage == VERIFY and program:
        return apply_command(place, program, "--verify")
    return f"inductor-bench breakdown {place} {' '.join(retune.words)}"

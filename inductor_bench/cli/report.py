"""The verb ``report``: an earlier run, or a batch of them, drawn again from the records alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import EXIT_OK, UsageError
from ..store.batch import BATCH
from .output.console import Console
from .output.presentation import Presentation, presentation_options, show_run, take_presentation


@click.command("report", no_args_is_help=True)
@click.argument("folder", metavar="RUN|BATCH", type=click.Path(exists=True, file_okay=False, path_type=Path))
@presentation_options
@click.option("--plots/--no-plots", default=True, help="Draw the plots again (the default) or not.")
def command(folder: Path, plots: bool, **values: Any) -> int:
    """Draw an earlier run or batch again from its records. Nothing is measured, and torch is not needed."""
    if (folder / BATCH).is_file():
        return _report_batch(folder, plots, take_presentation(values))
    from ..workflows.report import run_report

    with Console() as console:
        run, problem = run_report(folder, plots=plots)
        show_run(run, folder, console, take_presentation(values))
        if problem is not None:
            raise problem
    return EXIT_OK


def _report_batch(folder: Path, plots: bool, how: Presentation) -> int:
    from ..workflows.batch.view import report_batch
    from .output.batch import show_corpus

    if how.sort != "time":
        raise UsageError(f"--sort {how.sort} is for a run, and {folder} is a batch", "kernels.csv has every column")
    with Console() as console:
        report = report_batch(folder, plots=plots)
        show_corpus(report, console, how)
        if report.problem is not None:
            raise report.problem
    return EXIT_OK

"""The verb ``report``: renders an earlier run or batch again from its records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import EXIT_OK, UsageError
from ..report.batch_document import FORMATS as BATCH_FORMATS
from ..report.formats import View
from ..report.run.run_document import FORMATS
from ..store.folder import BATCH
from .console import Console
from .presentation import ResultFolder, place_view, presentation_options, show, show_batch, take_view


@click.command("report", no_args_is_help=True)
@click.argument("folder", metavar="RUN|BATCH", type=ResultFolder())
@presentation_options(FORMATS.extended_by(BATCH_FORMATS))
@click.option("--plots/--no-plots", default=True, help="Draw the plots again (the default) or not.")
def command(folder: Path, plots: bool, **values: Any) -> int:
    """Draw an earlier run or batch again from its records. Nothing is measured, and torch is not needed."""
    name, view = take_view(values)
    if (folder / BATCH).is_file():
        return _report_batch(folder, name, view)
    form = FORMATS.get(name)
    from ..workflows.query import run_report

    with Console() as console:
        run, problem = run_report(folder, plots=plots)
        show(form, run, place_view(view, folder, console), console)
        if problem is not None:
            raise problem
    return EXIT_OK


def _report_batch(folder: Path, name: str, view: View) -> int:
    form = BATCH_FORMATS.get(name)
    from ..workflows.batch_state import report_batch

    if view.by != "kernel":
        raise UsageError(f"--by {view.by} is for a run, and {folder} is a batch", "give one of its runs")
    if view.sort != "time":
        raise UsageError(f"--sort {view.sort} is for a run, and {folder} is a batch", "kernels.csv has every column")
    with Console() as console:
        report = report_batch(folder)
        show_batch(report, console, form, view)
        if report.problem is not None:
            raise report.problem
    return EXIT_OK

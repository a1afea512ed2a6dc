"""The verb ``report``: an earlier run, drawn again from its record alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import EXIT_OK
from .console import Console
from .presentation import presentation_options, show_run, take_presentation


@click.command("report", no_args_is_help=True)
@click.argument("folder", metavar="RUN", type=click.Path(exists=True, file_okay=False, path_type=Path))
@presentation_options
@click.option("--plots/--no-plots", default=True, help="Draw the plots again (the default) or not.")
def command(folder: Path, plots: bool, **values: Any) -> int:
    """Draw an earlier run again from its record. Nothing is measured, and torch is not needed."""
    from ..workflows.report import run_report

    with Console() as console:
        run, problem = run_report(folder, plots=plots)
        show_run(run, folder, console, take_presentation(values))
        if problem is not None:
            raise problem
    return EXIT_OK

"""The verb ``report``: renders an earlier run, batch, comparison of modes or search again from its records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import EXIT_OK, UsageError
from ..report.batch.batch_document import FORMATS as BATCH_FORMATS
from ..report.formats import Formats, View
from ..report.modes_document import FORMATS as MODES_FORMATS
from ..report.optimization_document import FORMATS as SEARCH_FORMATS
from ..report.run.run_document import FORMATS
from ..store.digest import pause_garbage_collection
from ..store.folder import BATCH, ModesFolder, OptimizationFolder, ProgramFolder
from .presentation import (
    ResultFolder,
    add_presentation_options,
    make_console,
    place_view,
    show,
    show_batch,
    show_program,
    take_view,
)

PROGRAM_FORMATS: tuple[tuple[type[ProgramFolder[Any]], Formats[Any]], ...] = (
    (ModesFolder, MODES_FORMATS),
    (OptimizationFolder, SEARCH_FORMATS),
)
"""The formats of results from several processes of one program, by the kind of folder."""


@click.command("report", no_args_is_help=True)
@click.argument("folder", metavar="RUN|BATCH|FOLDER", type=ResultFolder())
@add_presentation_options(FORMATS.extended_by(BATCH_FORMATS))
@click.option("--plots/--no-plots", default=True, help="Draw the plots again (the default) or not.")
def command(folder: Path, plots: bool, **values: Any) -> int:
    """Draw an earlier run or batch again from its records. Nothing is measured, and torch is not needed.

    It also draws the folder of `modes` and RUN/optimized. With --brief it writes nothing.
    """
    name, view = take_view(values)
    if (folder / BATCH).is_file():
        with pause_garbage_collection():
            return _report_batch(folder, name, view)
    for kind, formats in PROGRAM_FORMATS:
        if kind(folder).exists():
            _refuse_order(view, folder, f"a {kind.HOLDS}")
            form = formats.get(name, brief=view.brief)
            with make_console({}, form, brief=view.brief) as console:
                show_program(kind(folder).load(), formats, folder, name, view, console)
            return EXIT_OK
    form = FORMATS.get(name, brief=view.brief)
    from ..workflows.query import run_report

    with make_console({}, form, brief=view.brief) as console:
        run, problem = run_report(folder, plots=plots, writes=not view.brief)
        show(form, run, place_view(view, folder, console), console)
        if problem is not None:
            raise problem
    return EXIT_OK


def _refuse_order(view: View, folder: Path, what: str) -> None:
    if view.by != "kernel":
        raise UsageError(f"--by {view.by} is for a run, but {folder} is {what}", "give a run", "misplaced-option")
    if view.sort != "time":
        raise UsageError(f"--sort {view.sort} is for a run, but {folder} is {what}", "give a run", "misplaced-option")


def _report_batch(folder: Path, name: str, view: View) -> int:
    form = BATCH_FORMATS.get(name, brief=view.brief)
    from ..workflows.batch_state import report_batch

    _refuse_order(view, folder, "a batch")
    with make_console({}, form, brief=view.brief) as console:
        report = report_batch(folder, writes=not view.brief)
        show_batch(report, console, form, view)
        if report.problem is not None:
            raise report.problem
    return EXIT_OK

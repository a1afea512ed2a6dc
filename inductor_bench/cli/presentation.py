"""The options for the presentation of results, and the functions that print a result. Shared by the verbs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..report.formats import Format, Formats, Result, View
from .console import Console

if TYPE_CHECKING:
    from ..report.batch_tables import BatchView
    from ..workflows.batch_state import BatchReport

F = TypeVar("F", bound=Callable[..., Any])


def format_option(formats: Formats[Any]) -> Callable[[F], F]:
    """Adds ``--format``, whose choices are the rows of a table of formats."""
    return click.option(
        "--format",
        type=click.Choice(formats.names),
        default=formats.names[0],
        show_default=True,
        help=formats.help or None,
    )


def top_option(help: str) -> Callable[[F], F]:
    """Adds ``--top``."""
    return click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help=help)


def presentation_options(formats: Formats[Any]) -> Callable[[F], F]:
    """Adds ``--format``, ``--by``, ``--sort`` and ``--top``; see :func:`take_view`."""

    def add(function: F) -> F:
        sort = click.option(
            "--sort",
            type=click.Choice(["time", "gain", "calls"]),
            default="time",
            show_default=True,
            help="What the kernels are sorted by: device time, gain (what the step, else the whole graph, would win if "
            "the kernel ran at the hardware's limit) or calls.",
        )
        by = click.option(
            "--by",
            type=click.Choice(["kernel", "layer", "line"]),
            default="kernel",
            show_default=True,
            help="What the step's device time is divided by: kernels, the model's own modules as a tree, or the lines "
            "of the program.",
        )
        return format_option(formats)(by(sort(top_option("How many kernels.")(function))))

    return add


def take_view(values: dict[str, Any]) -> tuple[str, View]:
    """Removes the presentation options from the parsed values and returns the format's name and the view."""
    view = View(sort=values.pop("sort", "time"), top=values.pop("top"), by=values.pop("by", "kernel"))
    return values.pop("format"), view


def show(form: Format[Result], result: Result, view: View, console: Console) -> None:
    """Renders a result in a format and prints it."""
    text = form.render(result, view)
    if isinstance(text, str):
        console.result(text)
        return
    from ..report.terminal import print_document

    print_document(text, console.drawing())


def place_view(view: View, folder: Path, console: Console) -> View:
    """Returns the view with the folder of the result and the width of the console."""
    return replace(view, folder=folder, columns=console.columns)


def show_batch(report: BatchReport, console: Console, form: Format[BatchView], view: View) -> None:
    """Prints a batch as a result."""
    if not report.with_parquet:
        from ..store.tables import INSTALL

        console.note(f"kernels.parquet and `query` need DuckDB ({INSTALL}); the CSV tables are there")
    show(form, report.view, place_view(view, report.folder, console), console)

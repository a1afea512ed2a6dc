"""The options with which a batch is shown, and showing it. Shared by the verbs that show one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .console import Console
from .presentation import Presentation, record_text

if TYPE_CHECKING:
    from ...workflows.batch.view import BatchReport

F = TypeVar("F", bound=Callable[..., Any])


def corpus_options(function: F) -> F:
    """Adds ``--format`` and ``--top``; see :func:`take_corpus`."""
    for option in (
        click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help="Families and kernels."),
        click.option(
            "--format",
            type=click.Choice(["table", "json", "csv", "md"]),
            default="table",
            show_default=True,
            help="What is printed: the summary, batch.json, a row for each model as CSV, or Markdown.",
        ),
    ):
        function = option(function)
    return function


def take_corpus(values: dict[str, Any]) -> Presentation:
    """Removes the options from the parsed values and returns them."""
    return Presentation(format=values.pop("format"), top=values.pop("top"))


def show_corpus(report: BatchReport, console: Console, how: Presentation) -> None:
    """Prints a batch as a result."""
    view = report.view
    if not report.with_parquet:
        from ...store.formats.tables import INSTALL

        console.note(f"kernels.parquet and `query` need DuckDB ({INSTALL}); the CSV tables are there")
    if how.format == "table":
        from ...report.terminal import print_lines, width_of

        drawing = console.drawing()
        print_lines(view.screen(report.folder, width_of(drawing), how.top), drawing)
    elif how.format == "json":
        console.result(record_text(view.corpus.batch))
    else:
        console.result(view.csv() if how.format == "csv" else view.markdown(how.top))

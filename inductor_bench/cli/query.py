"""The verb ``query``: SQL over the tables of a batch or a run."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import EXIT_OK
from .output.console import Console

if TYPE_CHECKING:
    from ..records.table import Answer


@click.command("query", no_args_is_help=True)
@click.argument("folder", metavar="BATCH|RUN", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("sql", metavar="[SQL]", default="")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv", "md"]),
    default="table",
    show_default=True,
    help="How the rows are printed.",
)
def command(folder: Path, sql: str, form: str) -> int:
    """Ask the tables of a batch or a run with SQL.

    They are models, graphs, categories, kernels, families and retunes. Without SQL they and their columns are listed.
    DuckDB answers in memory: no query changes the folder.

    \b
    inductor-bench query batches/timm
    inductor-bench query batches/timm "SELECT name, time_s FROM kernels ORDER BY time_s DESC LIMIT 10"
    inductor-bench query batches/timm "FROM families WHERE peak_share < 0.5" --format csv > slow.csv
    """
    from ..report.answer import listing, listing_screen
    from ..workflows.query import open_tables

    with Console() as console:
        tables = open_tables(folder)
        for note in tables.notes:
            console.note(note)
        if sql.strip():
            with _ended_by_signals():
                answer = tables.ask(_as_utf8(sql))
            _show(answer, form, console)
        elif form != "table":
            _show(listing(tables.tables), form, console)
        else:
            from ..report.terminal import print_lines, width_of

            drawing = console.drawing()
            print_lines(listing_screen(tables.tables, folder, width_of(drawing)), drawing)
    return EXIT_OK


def _as_utf8(typed: str) -> str:
    """What was typed, also where the locale is not that of the terminal."""
    return typed.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Lets Ctrl-C end the process at once: DuckDB may not notice it for long, and there is nothing to put in order."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(answer: Answer, form: str, console: Console) -> None:
    from ..report.answer import answer_csv, answer_json, answer_markdown, answer_screen

    if form != "table":
        console.result({"json": answer_json, "csv": answer_csv, "md": answer_markdown}[form](answer))
        return
    from ..report.terminal import print_lines

    drawing = console.drawing()
    print_lines(answer_screen(answer, drawing.width), drawing)

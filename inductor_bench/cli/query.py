"""The verb ``query``: runs SQL on the tables of a batch or a run."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import EXIT_OK
from ..report.formats import View
from ..report.table_documents import QUERY_FORMATS, QueryResult
from .presentation import ResultFolder, add_format_option, make_console, place_view, show


@click.command("query", no_args_is_help=True)
@click.argument("folder", metavar="BATCH|RUN", type=ResultFolder())
@click.argument("sql", metavar="[SQL]", default="")
@add_format_option(QUERY_FORMATS)
def command(folder: Path, sql: str, format: str) -> int:
    """Query the tables of a batch or a run with SQL.

    The tables are models, graphs, categories, kernels, families, retunes and settings. The tables headline, parts,
    findings and next_commands hold what the screens of the runs say. Without SQL, all tables and their columns are
    listed. DuckDB answers in memory: no query changes the folder.

    \b
    inductor-bench query batches/timm
    inductor-bench query batches/timm "SELECT name, time_s FROM kernels ORDER BY time_s DESC LIMIT 10"
    inductor-bench query batches/timm "FROM families WHERE peak_share < 0.5" --format csv > slow.csv
    """
    from ..workflows.query import open_tables

    with make_console({}, QUERY_FORMATS.get(format)) as console:
        typed = _decode_utf8(sql)
        tables = open_tables(folder, typed.strip())
        for note in tables.notes:
            console.remark(note)
        answer = None
        if typed.strip():
            answer = tables.ask(typed)
        show(
            QUERY_FORMATS.get(format), QueryResult(tables.tables, answer), place_view(View(), folder, console), console
        )
    return EXIT_OK


def _decode_utf8(typed: str) -> str:
    """Decodes a word of the command line as UTF-8, independently of the locale."""
    return typed.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

"""Renders the answer to a query, and the list of tables, for a console or as CSV, JSON or Markdown."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from ... import units
from ...analysis.findings.finding import plural
from ...records.base import NUMBER, TEXT, WHOLE, YES_NO, Answer, Table
from ..run.csvs import table_text
from ..run.markdown import table as markdown_table
from ..text import names
from ..text.layout import Column, Line, Word, header, row, wrapped

MOST_ROWS = 100
"""Largest number of rows on the console; the other formats have all rows."""

NARROWEST = 24
"""Smallest width of a text column. If the table is still too wide, each row becomes a block of lines."""

GAP = 2  # spaces between two columns

_TYPES = {TEXT: "text", NUMBER: "number", WHOLE: "whole number", YES_NO: "yes or no"}
EXAMPLES = (
    "SELECT model, name, time_s, peak_share FROM kernels ORDER BY gain_limit_s DESC LIMIT 10",
    "SELECT category, sum(share) AS share FROM categories GROUP BY ALL ORDER BY share DESC",
)


def listing(tables: Sequence[Table]) -> Answer:
    """Returns a table of all columns of all tables."""
    rows = [(table.name, column.name, column.type, column.about) for table in tables for column in table.columns]
    return Answer(("table", "column", "type", "about"), rows)


def listing_lines(tables: Sequence[Table], folder: Path, width: int) -> Iterator[Line]:
    """Renders the tables, their columns and two example queries."""
    widest = max(len(column.name) for table in tables for column in table.columns)
    types = max(map(len, _TYPES.values()))
    for table in tables:
        yield [Word(table.name, "title"), Word(f"   {plural(len(table), 'row')}, one {table.about}")]
        for column in table.columns:
            start = f"  {column.name:<{widest}}  {_TYPES[column.type]:<{types}}  "
            yield [Word(start), Word(names.end(column.about, width - len(start)), "dim")]
        yield []
    yield from wrapped(
        "Times are in seconds, sizes in bytes, shares of 1; what is not known is NULL.", width, "", "dim"
    )
    yield []
    for index, example in enumerate(EXAMPLES):
        yield [
            Word("Try  " if index == 0 else "     ", "title"),
            Word(f'inductor-bench query {shlex.quote(str(folder))} "{example}"'),
        ]


def answer_lines(answer: Answer, width: int) -> Iterator[Line]:
    """Renders the rows as a table, or as one block of lines per row where the table is too wide."""
    shown = [[_cell(value) for value in values] for values in answer.rows[:MOST_ROWS]]
    if not shown:
        yield [Word("no rows")]
        return
    numeric = [_is_numeric(values) for values in zip(*answer.rows, strict=True)]
    titles = [names.clean(title) for title in answer.columns]
    wanted = [max(map(names.cells, cells)) for cells in zip(titles, *shown, strict=True)]
    widths = _fit_widths(wanted, numeric, width)
    if widths is None:
        yield from _blocks(titles, shown)
    else:
        yield from _grid([Column(*column) for column in zip(titles, widths, numeric, strict=True)], shown)
    if len(shown) < len(answer.rows):
        more = f"and {len(answer.rows) - len(shown):,} more rows: --format csv has all, LIMIT fewer"
        yield [Word(more, "dim")]


def _fit_widths(wanted: Sequence[int], fixed: Sequence[bool], width: int) -> list[int] | None:
    """Returns widths with which the columns fit side by side; ``None`` where they cannot fit.

    Args:
        wanted: the width of each column's longest text.
        fixed: whether a column keeps its width; the widest of the other columns is cut first.
        width: columns of the console.
    """
    widths = list(wanted)
    room = width - GAP * (len(widths) - 1)
    while sum(widths) > room:
        able = [index for index, column in enumerate(widths) if column > NARROWEST and not fixed[index]]
        if not able:
            return None
        widths[max(able, key=widths.__getitem__)] -= 1
    return widths


def _grid(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Iterator[Line]:
    yield header([column._replace(title=names.end(column.title, column.width)) for column in columns], GAP)
    for cells in rows:
        cut = [names.middle(text, column.width) for text, column in zip(cells, columns, strict=True)]
        yield [Word(row(columns, cut, GAP))]


def _blocks(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[Line]:
    widest = max(map(names.cells, titles))
    for number, cells in enumerate(rows, 1):
        yield [Word(f"row {number}", "title")]
        for title, text in zip(titles, cells, strict=True):
            yield [Word(f"  {names.pad(title, widest)}  ", "dim"), Word(text)]


def answer_csv(answer: Answer) -> str:
    """Renders the rows as CSV. Cells of unknown values are empty."""
    return table_text(answer.columns, ([_join_list(_plain(value)) for value in values] for values in answer.rows))


def answer_json(answer: Answer) -> str:
    """Renders the rows as a JSON list of objects."""
    titles = _unique(answer.columns)
    rows = [dict(zip(titles, map(_plain, values), strict=True)) for values in answer.rows]
    return units.printable_json(json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False))


def answer_markdown(answer: Answer) -> str:
    """Renders the rows as a Markdown table for an issue or a wiki."""
    columns = list(zip(*answer.rows, strict=True)) or [()] * len(answer.columns)
    alignment = "".join("r" if _is_numeric(values) else "l" for values in columns)
    rows = ([_cell(value) for value in values] for values in answer.rows)
    return "\n".join(markdown_table(answer.columns, alignment, rows)) + "\n"


def _is_numeric(values: Sequence[object]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(
        isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in known
    )


def _cell(value: object) -> str:
    """Formats a value for the console: six significant digits, one line."""
    if value is None:
        return units.MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return names.clean(str(_join_list(_plain(value))))


def _plain(value: object) -> object:
    """Converts a value to a type that JSON has."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return str(value)


def _join_list(value: object) -> object:
    """Joins a list in one cell; returns any other value unchanged."""
    return "; ".join(map(str, value)) if isinstance(value, list) else value


def _unique(titles: Sequence[str]) -> list[str]:
    """Makes titles unique: a repeated title gets a number."""
    taken: dict[str, None] = {}
    for title in titles:
        number, name = 1, title
        while name in taken:
            number += 1
            name = f"{title}_{number}"
        taken[name] = None
    return list(taken)

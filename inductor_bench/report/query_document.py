"""The answer to a query, and the list of tables."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from .. import units
from ..analysis.findings.finding import plural
from ..records.base import NUMBER, TEXT, WHOLE, YES_NO, Answer, QueryTable
from . import names
from .csvs import table_text
from .document import NOTE, Cell, Column, Commands, Document, On, Row, Section, Sentence, Table, words
from .formats import Renderer, View, document_formats

MOST_ROWS = 100
"""Largest number of rows on a terminal; the other formats have all rows."""

NARROWEST = 24
"""Smallest width of a text column on a terminal. If the table is still too wide, each row becomes a block of lines."""

_TYPES = {TEXT: "text", NUMBER: "number", WHOLE: "whole number", YES_NO: "yes or no"}
EXAMPLES = (
    "SELECT model, name, time_s, peak_share FROM kernels ORDER BY gain_limit_s DESC LIMIT 10",
    "SELECT category, sum(share) AS share FROM categories GROUP BY ALL ORDER BY share DESC",
)


@dataclass(frozen=True)
class QueryResult:
    """The tables of a folder and the answer to a query. With ``None`` the tables and their columns are listed."""

    tables: Sequence[QueryTable]
    answer: Answer | None = None


def query_document(result: QueryResult, view: View) -> Document:
    """The rows of the answer, or the tables, their columns and two example queries."""
    return _listing_document(result.tables, view.folder) if result.answer is None else answer_document(result.answer)


def _listing_document(tables: Sequence[QueryTable], folder: Path | None) -> Document:
    widest = max(len(column.name) for table in tables for column in table.columns)
    columns = (Column("column", False), Column("type", False), words("about", shorten=_at_end))
    sections = [
        Section(
            table.name,
            (
                Table(
                    columns,
                    [
                        Row(tuple(map(Cell, (f"{one.name:<{widest}}", _TYPES[one.type], one.about))))
                        for one in table.columns
                    ],
                    titled=False,
                ),
            ),
            note=f"{plural(len(table), 'row')}, one {table.about}",
        )
        for table in tables
    ]
    examples = tuple(
        (f'inductor-bench query {shlex.quote(str(folder or Path()))} "{example}"', "") for example in EXAMPLES
    )
    known = Sentence("Times are in seconds, sizes in bytes, shares of 1; what is not known is NULL.", NOTE)
    return Document("", blocks=(*sections, Section("Try", (known, Commands(examples, "Try")), quiet=True)))


def _at_end(texts: Sequence[str], width: int) -> Sequence[str]:
    return [names.end(text, width) for text in texts]


def answer_document(answer: Answer) -> Document:
    """The rows as a table."""
    if not answer.rows:
        return Document("", blocks=(Sentence("no rows"),))
    numeric = [_is_numeric(values) for values in zip(*answer.rows, strict=True)]
    columns = [
        Column(title, number, least=0 if number else NARROWEST)
        for title, number in zip(answer.columns, numeric, strict=True)
    ]
    rows = [Row(tuple(Cell(_text(value), _number(value)) for value in values)) for values in answer.rows]
    more = "rows: --format csv has all, LIMIT fewer"
    table = Table(tuple(columns), rows, filter="its values", most=MOST_ROWS, cut_on=On.TERMINAL, more=more)
    return Document("", blocks=(table,), wide=True)


def listing(tables: Sequence[QueryTable]) -> Answer:
    """Returns a table of all columns of all tables."""
    rows = [(table.name, column.name, column.type, column.about) for table in tables for column in table.columns]
    return Answer(("table", "column", "type", "about"), rows)


def answer_csv(answer: Answer) -> str:
    """Renders the rows as CSV. Cells of unknown values are empty."""
    return table_text(answer.columns, ([_join_list(_plain(value)) for value in values] for values in answer.rows))


def answer_json(answer: Answer) -> str:
    """Renders the rows as a JSON list of objects."""
    titles = _unique(answer.columns)
    rows = [dict(zip(titles, map(_plain, values), strict=True)) for values in answer.rows]
    return units.printable_json(json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False))


def _is_numeric(values: Sequence[object]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(
        isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in known
    )


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None  # type: ignore[arg-type]


def _text(value: object) -> str:
    """Formats a value: six significant digits, one line."""
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


def _of_answer(render: Callable[[Answer], str]) -> Renderer[QueryResult]:
    def rendered(result: QueryResult, view: View) -> str:
        return render(listing(result.tables) if result.answer is None else result.answer)

    return rendered


FORMATS = document_formats(
    query_document,
    json=_of_answer(answer_json),
    csv=_of_answer(answer_csv),
    summary="a table for the terminal",
    record="a list of objects",
    of="a query",
)

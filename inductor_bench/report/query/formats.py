"""The table of formats of an answer to a query. Without a query the list of tables is rendered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...records.base import Answer, Table
from ..renderer import Format, Formats, Renderer, View
from ..text.layout import Line
from .answer import answer_csv, answer_json, answer_lines, answer_markdown, listing, listing_lines


@dataclass(frozen=True)
class QueryResult:
    """The tables of a folder and the answer to a query. With ``None`` the tables and their columns are listed."""

    tables: Sequence[Table]
    answer: Answer | None = None


def _lines(result: QueryResult, view: View) -> Iterator[Line]:
    if result.answer is None:
        return listing_lines(result.tables, view.folder or Path(), view.width)
    return answer_lines(result.answer, view.columns)


def _text(render: Callable[[Answer], str]) -> Renderer[QueryResult]:
    def rendered(result: QueryResult, view: View) -> str:
        return render(listing(result.tables) if result.answer is None else result.answer)

    return rendered


FORMATS: Formats[QueryResult] = Formats(
    (
        Format("table", _lines),
        Format("json", _text(answer_json)),
        Format("csv", _text(answer_csv)),
        Format("md", _text(answer_markdown)),
    ),
    "How the rows are printed.",
)

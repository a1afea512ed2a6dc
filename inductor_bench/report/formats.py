"""The formats of results: the protocol of renderers, which turn a result into text, CSV, and the tables of formats.

Each kind of result has a table of formats, a :class:`Formats`. It provides the choices and the help of ``--format``.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from .. import units
from ..errors import UsageError
from ..store.codec import encode
from .document import Document
from .markdown import document_markdown

_LINE_END = "\r\n"
_FORMULA = ("=", "@", "+", "-", "\t", "\r")


def table_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Renders a table as CSV, without control characters, as the file may be shown on a terminal.

    An apostrophe precedes text that a spreadsheet would read as a formula.
    """
    lines = _CsvLines()
    writer = csv.writer(lines, lineterminator=_LINE_END)
    writer.writerow(map(_safe, header))
    writer.writerows(map(_safe, row) for row in rows)
    return "".join(lines)


class _CsvLines(list[str]):
    """Collects CSV rows and ends them in a line feed.

    The writer's own line end is CR LF, because it then quotes cells that hold a carriage return.
    """

    def write(self, row: str) -> None:
        self.append(row.removesuffix(_LINE_END) + "\n")


def _safe(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    text = units.printable(cell)
    return f"'{text}" if cell.startswith(_FORMULA) else text


Result = TypeVar("Result")
Result_contra = TypeVar("Result_contra", contravariant=True)


@dataclass(frozen=True)
class View:
    """The user's options for a report."""

    folder: Path | None = None  # the folder of the result, as the user would type it; ``None`` if there is none
    sort: str = "time"  # the order of the kernels of a run: ``time``, ``gain`` or ``calls``
    top: int = 10  # the number of kernels to show
    by: str = "kernel"  # what a run's device time is shown by: ``kernel``, ``layer`` or ``line``
    columns: int = 100  # the width of the console
    # the texts of files that the result is about, by the path that the report gives them
    files: Mapping[str, str] = field(default_factory=dict)
    limit: float | None = None  # the slowdown, as a share, from which a comparison fails; ``None`` for no limit


DEFAULT_VIEW = View()
"""A report without options of the user."""


class Renderer(Protocol[Result_contra]):
    """Renders a result: as a ``str`` that is printed unchanged, or as a document for the console."""

    def __call__(self, result: Result_contra, view: View, /) -> str | Document: ...


@dataclass(frozen=True)
class Format(Generic[Result]):
    """One row of a table of formats."""

    name: str  # the word after ``--format``
    render: Renderer[Result]  # renders the result
    shows: str = ""  # the content in a few words, for the help
    names_folder: bool = False  # whether the text names the folder of the result
    shows_files: bool = False  # whether the text holds the files of :class:`View`


@dataclass(frozen=True)
class Formats(Generic[Result]):
    """The formats of one kind of result; the first is the default."""

    rows: tuple[Format[Result], ...]  # the formats
    about: str = ""  # the beginning of the help. The descriptions of the formats follow.
    of: str = "this result"  # the kind of result, in the error of a format that it does not have

    @property
    def names(self) -> list[str]:
        return [row.name for row in self.rows]

    @property
    def help(self) -> str:
        shown = [row.shows for row in self.rows if row.shows]
        return f"{self.about} {', '.join(shown[:-1])}, or {shown[-1]}." if shown else self.about

    def get(self, name: str) -> Format[Result]:
        """The format of a name. Raises: UsageError: the name is that of another kind of result's format."""
        for row in self.rows:
            if row.name == name:
                return row
        raise UsageError(f"--format {name} is not for {self.of}", f"give one of: {', '.join(self.names)}")

    def extended_by(self, other: Formats[Any]) -> Formats[Any]:
        """These formats and the further ones of another kind of result: the choices of an option for both."""
        further = (row for row in other.rows if row.name not in self.names)
        return Formats((*self.rows, *further), self.about)


def document_formats(
    document: Callable[[Result, View], Document],
    *,
    page: Callable[[Result, View], Document] | None = None,
    json: Renderer[Result] | None = None,
    csv: Renderer[Result] | None = None,
    summary: str = "the summary for the terminal",
    record: str = "the record",
    rows: str = "CSV",
    of: str = "this result",
    names_folder: bool = False,
    shows_files: bool = False,
) -> Formats[Result]:
    """The formats of a result that makes a document: for the terminal, JSON, CSV, Markdown and HTML.

    Args:
        document: makes the document.
        page: makes the document for the page, if that has more than the others.
        json: renders JSON; by default the record.
        csv: renders CSV; without it there is none.
        summary, record, rows: what the terminal, JSON and CSV show, for the help.
        of: as in :class:`Formats`.
        names_folder: whether the document names the folder of the result.
        shows_files: whether the page holds the files of :class:`View`.
    """

    def markdown(result: Result, view: View) -> str:
        return document_markdown(document(result, view))

    def html(result: Result, view: View) -> str:
        from .html import document_page  # loads jinja2

        return document_page((page or document)(result, view))

    formats: list[Format[Result]] = [
        Format("table", document, summary, names_folder=names_folder),
        Format("json", json or as_json, record),
        *([Format("csv", csv, rows)] if csv else []),
        Format("md", markdown, "Markdown"),
        Format("html", html, "a page", shows_files=shows_files),
    ]
    return Formats(tuple(formats), "What is printed:", of)


def as_json(result: Any, view: View = View()) -> str:
    """Renders a record as JSON text. For a run it equals the content of ``record.json``."""
    return units.printable_json(json.dumps(encode(result), indent=2, ensure_ascii=False, allow_nan=False))


def as_page(formats: Formats[Result], result: Result, view: View = DEFAULT_VIEW) -> str:
    """Renders a result as its HTML page."""
    return _text(formats, "html", result, view)


def as_markdown(formats: Formats[Result], result: Result, view: View = DEFAULT_VIEW) -> str:
    """Renders a result as Markdown."""
    return _text(formats, "md", result, view)


def _text(formats: Formats[Result], name: str, result: Result, view: View) -> str:
    text = formats.get(name).render(result, view)
    assert isinstance(text, str)
    return text

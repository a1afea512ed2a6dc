"""The formats of results: the protocol of renderers, which turn a result into text, CSV, and the tables of formats.

Each kind of result has a table of formats, a :class:`Formats`. It provides the choices and the help of ``--format``.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, Generic, Protocol, TypeVar

from .. import units
from ..errors import UsageError
from ..records.summary import Summary
from ..store.codec import encode
from .document import Document
from .document_summary import render_brief, summarise_document, write_json, write_summarised_json
from .markdown import render_markdown

_FORMULA = frozenset("=@+-\t\r")
_NUMBERS = frozenset({int, float, NoneType})


def write_csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Renders a table as CSV, without control characters, as the file may be shown on a terminal.

    An apostrophe precedes text that a spreadsheet would read as a formula. All rows have the same length.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_make_cell_safe, header))
    writer.writerows(zip(*map(_make_column_safe, zip(*rows, strict=True)), strict=True))
    return text.getvalue()


def _make_column_safe(cells: Sequence[object]) -> Sequence[object]:
    """Makes the cells of a column safe. Most columns need no change, so all cells are checked at once."""
    if _NUMBERS.issuperset(map(type, cells)):
        return cells
    texts = [cell for cell in cells if isinstance(cell, str)]
    if "".join(texts).isprintable() and _FORMULA.isdisjoint(text[:1] for text in texts):
        return cells
    return [*map(_make_cell_safe, cells)]


def _make_cell_safe(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    text = units.printable(cell)
    return f"'{text}" if cell[:1] in _FORMULA else text


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
    brief: bool = False  # whether to show only what answers "what next?"
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
    has_brief: bool = False  # whether it has a brief form; see :class:`View`
    is_data: bool = False  # whether programs read it


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

    def get(self, name: str, *, brief: bool = False) -> Format[Result]:
        """The format of a name.

        Raises:
            UsageError: the name is that of another kind of result's format, or it has no ``brief`` form.
        """
        for row in self.rows:
            if row.name == name and brief and not row.has_brief:
                having = ", ".join(row.name for row in self.rows if row.has_brief)
                raise UsageError(f"--brief is not for --format {name}", f"give one of: {having}", "misplaced-option")
            if row.name == name:
                return row
        raise UsageError(
            f"--format {name} is not for {self.of}", f"give one of: {', '.join(self.names)}", "misplaced-option"
        )

    def extended_by(self, other: Formats[Any]) -> Formats[Any]:
        """Adds the formats of another kind of result, for an option that applies to the two kinds."""
        further = (row for row in other.rows if row.name not in self.names)
        return Formats((*self.rows, *further), self.about)


@dataclass(frozen=True)
class TextFormat:
    """A format of each result with a document: a function writes it from the document alone."""

    name: str  # as in :class:`Format`
    text: Callable[[Document], str]  # writes the document
    shows: str  # as in :class:`Format`
    is_data: bool = False  # whether programs read it: it may leave out sentences and lists

    def of(self, document: Callable[[Result, View], Document]) -> Format[Result]:
        """Makes the format for results from which ``document`` makes documents."""
        return Format(self.name, lambda one, view: self.text(document(one, view)), self.shows, is_data=self.is_data)


TEXTS = (TextFormat("md", render_markdown, "Markdown"),)
"""They are offered in this order, after the terminal, JSON and CSV. A short function can be in this file."""


def make_formats(
    document: Callable[[Result, View], Document],
    *,
    page: Callable[[Result, View], Document] | None = None,
    json: Renderer[Result] | None = None,
    of_record: Callable[[Result], Any] = lambda result: result,
    summary: Callable[[Result, View], Summary] | None = None,
    csv: Renderer[Result] | None = None,
    screen: str = "the summary for the terminal",
    record: str = "the record",
    rows: str = "CSV",
    of: str = "this result",
    names_folder: bool = False,
    shows_files: bool = False,
) -> Formats[Result]:
    """The formats of a result that makes a document: for the terminal, JSON, CSV, :data:`TEXTS` and HTML.

    Args:
        document: makes the document.
        page: makes the document for the page, if the page shows more than the other formats.
        json: renders JSON; by default the record with the summary.
        of_record: the record of the result, if that holds more.
        summary: makes the summary; by default that of the document.
        csv: renders CSV; without it there is none.
        screen, record, rows: what the terminal, JSON and CSV show, for the help.
        of: as in :class:`Formats`.
        names_folder: whether the document names the folder of the result.
        shows_files: whether the page holds the files of :class:`View`.
    """

    def html(result: Result, view: View) -> str:
        from .html import render_page  # loads jinja2

        return render_page((page or document)(result, view))

    def summarized(result: Result, view: View) -> str:
        folder = str(view.folder) if view.folder not in (None, Path()) else ""
        said = summary(result, view) if summary else summarise_document(document(result, view), folder)
        return write_summarised_json(of_record(result), said, brief=view.brief)

    def shown(result: Result, view: View) -> str | Document:
        made = document(result, view)
        return render_brief(made) if view.brief else made

    formats: list[Format[Result]] = [
        Format("table", shown, screen, names_folder=names_folder, has_brief=True),
        Format("json", json or summarized, record, has_brief=json is None, is_data=True),
        *([Format("csv", csv, rows, is_data=True)] if csv else []),
        *(text.of(document) for text in TEXTS),
        Format("html", html, "a page", shows_files=shows_files),
    ]
    return Formats(tuple(formats), "What is printed:", of)


def show_as_json(result: Any) -> str:
    """A record as JSON text, as its file has it."""
    return write_json(encode(result))


def show_as_page(formats: Formats[Result], result: Result, view: View = DEFAULT_VIEW) -> str:
    """Renders a result as its HTML page."""
    return _show_as_text(formats, "html", result, view)


def show_as_markdown(formats: Formats[Result], result: Result, view: View = DEFAULT_VIEW) -> str:
    """Renders a result as Markdown."""
    return _show_as_text(formats, "md", result, view)


def _show_as_text(formats: Formats[Result], name: str, result: Result, view: View) -> str:
    text = formats.get(name).render(result, view)
    assert isinstance(text, str)
    return text

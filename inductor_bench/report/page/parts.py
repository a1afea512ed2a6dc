"""The parts of a page: texts in their final form, with the numbers that tables are sorted by.

Texts may have any content; rendering escapes them. Colours are names or functions of CSS from our own palette.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

GOOD, BAD, WARN, NOTE = "good", "bad", "warn", "note"
"""Tones: what is better, what is worse or failed, what to look at, and what is only additional."""


FEW_ROWS = 12
"""Number of rows up to which a table needs no filter."""


class Part:
    """A part of a page. ``macro`` names the macro that renders it."""

    macro: ClassVar[str]


@dataclass(frozen=True)
class Lines(Part):
    """Paragraphs. ``tone`` may be :data:`NOTE` for muted text."""

    macro: ClassVar[str] = "lines"
    texts: tuple[str, ...]
    tone: str = ""


@dataclass(frozen=True)
class Item:
    """An entry of a list.

    Attributes:
        text: the text.
        tone: its tone.
        hint: what to do about it.
        places: kernels that it is about: pairs of the name and the anchor of their row.
        more: the number of further kernels.
        log: lines that are shown on demand.
    """

    text: str
    tone: str = ""
    hint: str = ""
    places: tuple[tuple[str, str], ...] = ()
    more: int = 0
    log: str = ""


@dataclass(frozen=True)
class Items(Part):
    """A list."""

    macro: ClassVar[str] = "items"
    entries: tuple[Item, ...]


@dataclass(frozen=True)
class Stretch:
    """A piece of a bar.

    Attributes:
        width: its width in percent of the bar.
        colour: its colour.
        text: the text that is shown where the pointer rests on it.
        left: the distance of its left end from that of the bar, in percent; ``None`` where it follows the one before.
        label: the text inside, where there is room for it.
        ink: the colour of the label.
    """

    width: float
    colour: str
    text: str
    left: float | None = None
    label: str = ""
    ink: str = ""


@dataclass(frozen=True)
class Bar(Part):
    """A bar over the whole width."""

    macro: ClassVar[str] = "bar"
    stretches: tuple[Stretch, ...]


@dataclass(frozen=True)
class Lanes(Part):
    """Lanes over one time axis.

    Attributes:
        lanes: pairs of the lane's name and its stretches.
        ticks: pairs of the position in percent and the text.
        legend: pairs of a colour and its meaning.
        caption: the text below.
    """

    macro: ClassVar[str] = "lanes"
    lanes: tuple[tuple[str, tuple[Stretch, ...]], ...]
    ticks: tuple[tuple[float, str], ...]
    legend: tuple[tuple[str, str], ...]
    caption: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a table. ``hint`` is shown where the pointer rests on the title."""

    title: str
    right: bool = True
    hint: str = ""


def columns_of(titles: Iterable[str], alignment: Iterable[str]) -> tuple[Column, ...]:
    """The columns of a table of texts; ``alignment`` has an ``l`` or ``r`` for each title."""
    return tuple(Column(title, side == "r") for title, side in zip(titles, alignment, strict=True))


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: the text.
        value: the number that the column is sorted by; ``None`` is sorted by the text, and last among numbers.
        notes: lines below the text.
        colour: the colour of a square before the text.
        tone: its tone.
        bar: a bar below the text.
        link: the address of a file beside the page.
    """

    text: str
    value: float | None = None
    notes: tuple[str, ...] = ()
    colour: str = ""
    tone: str = ""
    bar: tuple[Stretch, ...] = ()
    link: str = ""


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        cells: a cell for each column.
        details: parts that are shown below the row on demand.
        anchor: the name by which links of this page lead to the row.
    """

    cells: tuple[Cell, ...]
    details: tuple[Part, ...] = ()
    anchor: str = ""


@dataclass(frozen=True)
class DataTable(Part):
    """A table that can be sorted by each column and filtered.

    Attributes:
        columns: the columns.
        rows: the rows.
        main: the index of the column with the name, which stays in view.
        total: a last row that stays at the end.
        caption: lines above the table.
        filter: what the filter looks for, in words; empty for a table without a filter.
    """

    macro: ClassVar[str] = "datatable"
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    main: int = 0
    total: Row | None = None
    caption: tuple[str, ...] = ()
    filter: str = ""


@dataclass(frozen=True)
class Facts(Part):
    """Pairs of a name and a text, which may have several lines."""

    macro: ClassVar[str] = "facts"
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Code(Part):
    """Text to copy, as a command."""

    macro: ClassVar[str] = "code"
    text: str


@dataclass(frozen=True)
class FileCode(Part):
    """A file of the page's :attr:`Page.files` to read and copy. ``place`` is its key there and its path."""

    macro: ClassVar[str] = "filecode"
    place: str


@dataclass(frozen=True)
class Picture(Part):
    """A drawing as the content of an SVG file. ``title`` describes it where it is not seen."""

    macro: ClassVar[str] = "picture"
    title: str
    svg: bytes


@dataclass(frozen=True)
class Columns(Part):
    """Parts beside each other, where the page is wide enough. Each has a title."""

    macro: ClassVar[str] = "beside"
    parts: tuple[tuple[str, Part], ...]


@dataclass(frozen=True)
class Fold(Part):
    """Parts that are shown on demand."""

    macro: ClassVar[str] = "fold"
    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Section:
    """A section with a heading. ``short`` is its name in the page's list of sections."""

    title: str
    parts: tuple[Part, ...]
    tone: str = ""
    short: str = ""


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        title: the heading.
        about: lines below it.
        lead: the answer.
        reasons: paragraphs below the answer.
        sections: the sections; those without parts are left out.
        files: texts of files by their path, for :class:`FileCode`.
    """

    title: str
    about: tuple[str, ...]
    lead: str = ""
    reasons: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    files: Mapping[str, SourceFile] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceFile:
    """A file to read and copy. ``own`` are the first and the last character of the part that is shown first."""

    text: str
    own: tuple[int, int] | None = None

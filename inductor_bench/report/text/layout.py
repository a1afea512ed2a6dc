"""Lays out lines of styled words in columns. Independent of terminal libraries and records."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ... import units
from . import names

_EIGHTHS = "▏▎▍▌▋▊▉█"
BAR = 6
"""Width in columns of a bar for a share of 1."""
WIDE = 96
"""Smallest width of a console with two spaces between the columns of a table."""
NARROWEST = 60
WIDEST = 120
_LABEL = 10


class Word(NamedTuple):
    """A piece of text with its style: ``""``, ``title``, ``dim``, ``good``, ``warn``, ``bad`` or a ``#rrggbb``."""

    text: str
    style: str = ""


Line = list[Word]


class Column(NamedTuple):
    """A column of a table: its title, its width in terminal columns, and whether it is aligned right."""

    title: str
    width: int
    right: bool = True


def peak_column(cells: Iterable[str]) -> Column:
    """Returns the column of the shares of peak. Most fit into 11 terminal columns; ``100% compute`` needs 12."""
    return Column("of peak", max(11, *map(names.cells, cells)))


def used_width(columns: int) -> int:
    """Returns the width that a report uses on a console with ``columns`` columns."""
    return min(max(columns, NARROWEST), WIDEST)


def gap_of(width: int) -> int:
    """Returns the number of spaces between two table columns on a console of this width."""
    return 2 if width >= WIDE else 1


def fit_columns(columns: Sequence[Column], width: int, gap: int, spare: Sequence[str], elastic: str) -> list[Column]:
    """Selects the columns that fit into ``width``.

    Args:
        columns: all columns; the ``elastic`` column has its smallest width.
        width: width of the table.
        gap: number of spaces between two columns.
        spare: titles of the columns that may be left out, in the order of leaving out.
        elastic: title of the column that takes the remaining width.
    """
    kept, room = list(columns), -1
    for title in ("", *spare):
        kept = [column for column in kept if column.title != title]
        room = width - sum(column.width + gap for column in kept) + gap
        if room >= 0:
            break
    return [column._replace(width=column.width + max(room, 0) * (column.title == elastic)) for column in kept]


def row(columns: Sequence[Column], cells: Sequence[str], gap: int) -> str:
    """Joins the cells of one row, each padded to the width of its column, with ``gap`` spaces between them."""
    padded = [names.pad(text, column.width, right=column.right) for column, text in zip(columns, cells, strict=True)]
    return (" " * gap).join(padded)


def header(columns: Sequence[Column], gap: int) -> Line:
    """Returns the line with the titles of the columns."""
    return [Word(row(columns, [column.title for column in columns], gap).rstrip(), "dim")]


def titled_row(columns: Sequence[Column], cells: Mapping[str, str], gap: int) -> str:
    """Joins the cells of one row, given by column title. Cells of other columns are left out."""
    return row(columns, [cells[column.title] for column in columns], gap)


def blocks(share: float, width: int) -> str:
    """Returns a bar for a share (0 to 1) in steps of an eighth of a column; a share of 1 takes ``width`` columns."""
    eighths = round(min(share, 1.0) * width * 8)
    return _EIGHTHS[7] * (eighths // 8) + (_EIGHTHS[eighths % 8 - 1] if eighths % 8 else "")


def bars(parts: Iterable[tuple[str, float, str]], room: int) -> Line:
    """Returns ``conv 43% ██▌ pointwise 30% █▊`` in at most ``room`` columns.

    The line ends before the first part that does not fit, so it always holds the largest parts.

    Args:
        parts: title, share (0 to 1) and colour of each part, the largest share first.
        room: width in columns.
    """
    line: Line = []
    for title, share, colour in parts:
        text, bar = f"{title} {units.whole_percent(share)}", f" {blocks(share, BAR)}"
        gap = 1 if line else 0
        left = room - gap - names.cells(text)
        if share < 0.005 or left < 0:
            break
        bar = bar if len(bar) <= left else ""
        line += [Word(" " * gap + text), Word(bar, colour)]
        room = left - len(bar)
    return line


def bullet(text: str, width: int, style: str) -> Iterator[Line]:
    """Yields ``text`` as an item of a list, wrapped to ``width`` columns."""
    for index, line in enumerate(textwrap.wrap(text, width - 4, break_on_hyphens=False)):
        yield [Word("  - " if index == 0 else "    ", style), Word(line)]


def columns(text: str, width: int) -> list[str]:
    """Splits ``text`` into lines of at most ``width`` columns. A longer word, such as a path, stays whole."""
    return textwrap.wrap(text, max(width, 20), break_on_hyphens=False, break_long_words=False) or [""]


def labelled(label: str, text: str, width: int) -> Iterator[Line]:
    """Yields ``Written   runs/m-1/   …``: ``text`` wrapped beside its label."""
    for index, line in enumerate(columns(text, width - _LABEL)):
        yield [Word(names.pad(label if index == 0 else "", _LABEL), "title"), Word(line)]


def command_lines(label: str, command: str, why: str, width: int) -> Iterator[Line]:
    """Yields a command in one piece, so that it can be copied, and its purpose."""
    yield [Word(names.pad(label, _LABEL), "title"), Word(command)]
    yield from wrapped(why, width, " " * _LABEL, "dim")


def wrapped(text: str, width: int, indent: str = "", style: str = "") -> Iterator[Line]:
    """Yields ``text`` wrapped to ``width`` columns, with ``indent`` before each line."""
    for line in textwrap.wrap(text, width - len(indent), break_on_hyphens=False):
        yield [Word(indent + line, style)]

"""Lines of styled words, and how they are laid out in columns. Knows no terminal library and no record."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ... import units
from . import names

_EIGHTHS = "▏▎▍▌▋▊▉█"
BAR = 6
"""Columns of a bar for the whole."""
WIDE = 96
"""From this width on, columns are two spaces apart."""
NARROWEST = 60
WIDEST = 120
_LABEL = 10


class Word(NamedTuple):
    """A piece of text with what it means: ``""``, ``title``, ``dim``, ``good``, ``warn``, ``bad`` or a ``#rrggbb``."""

    text: str
    style: str = ""


Line = list[Word]


class Column(NamedTuple):
    """A column of a table: its title, its width in columns of the terminal, and its side."""

    title: str
    width: int
    right: bool = True


def used_width(columns: int) -> int:
    """The columns that a report uses of a console with ``columns``."""
    return min(max(columns, NARROWEST), WIDEST)


def gap_of(width: int) -> int:
    """How many spaces are between two columns on a console of that width."""
    return 2 if width >= WIDE else 1


def fitting(columns: Sequence[Column], width: int, gap: int, spare: Sequence[str], elastic: str) -> list[Column]:
    """The columns that ``width`` has room for.

    Args:
        columns: all, the ``elastic`` one as narrow as it may be.
        width: of the table.
        gap: between two of them.
        spare: those that go where there is no room, the first of them first.
        elastic: the one that gets what room is left.
    """
    kept, room = list(columns), -1
    for title in ("", *spare):
        kept = [column for column in kept if column.title != title]
        room = width - sum(column.width + gap for column in kept) + gap
        if room >= 0:
            break
    return [column._replace(width=column.width + max(room, 0) * (column.title == elastic)) for column in kept]


def row(columns: Sequence[Column], cells: Sequence[str], gap: int) -> str:
    """The cells of one row, each padded to its column, ``gap`` spaces apart."""
    padded = [names.pad(text, column.width, right=column.right) for column, text in zip(columns, cells, strict=True)]
    return (" " * gap).join(padded)


def header(columns: Sequence[Column], gap: int) -> Line:
    """The titles of the columns."""
    return [Word(row(columns, [column.title for column in columns], gap).rstrip(), "dim")]


def titled_row(columns: Sequence[Column], cells: Mapping[str, str], gap: int) -> str:
    """One row of cells that are told by the title of their column; those without a column are left out."""
    return row(columns, [cells[column.title] for column in columns], gap)


def blocks(share: float, width: int) -> str:
    """A bar for a share of 1, in eighths of a column, the whole being ``width`` columns."""
    eighths = round(min(share, 1.0) * width * 8)
    return _EIGHTHS[7] * (eighths // 8) + (_EIGHTHS[eighths % 8 - 1] if eighths % 8 else "")


def bars(parts: Iterable[tuple[str, float, str]], room: int) -> Line:
    """``conv 43% ██▌ pointwise 30% █▊`` in ``room`` columns: titles, shares of 1 and colours, the largest first.

    What has no room ends the line: nothing larger than what is shown is left out.
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
    """``text`` as an item of a list, wrapped to ``width`` columns."""
    for index, line in enumerate(textwrap.wrap(text, width - 4, break_on_hyphens=False)):
        yield [Word("  - " if index == 0 else "    ", style), Word(line)]


def columns(text: str, width: int) -> list[str]:
    """``text`` in lines of ``width`` columns; a word that is longer, such as a path, stays in one piece."""
    return textwrap.wrap(text, max(width, 20), break_on_hyphens=False, break_long_words=False) or [""]


def labelled(label: str, text: str, width: int) -> Iterator[Line]:
    """``Written   runs/m-1/   …``: ``text`` wrapped behind its label."""
    for index, line in enumerate(columns(text, width - _LABEL)):
        yield [Word(names.pad(label if index == 0 else "", _LABEL), "title"), Word(line)]


def command_lines(label: str, command: str, why: str, width: int) -> Iterator[Line]:
    """A command in one piece, so that it can be copied, and what it is good for."""
    yield [Word(names.pad(label, _LABEL), "title"), Word(command)]
    yield from wrapped(why, width, " " * _LABEL, "dim")


def wrapped(text: str, width: int, indent: str = "", style: str = "") -> Iterator[Line]:
    """``text`` wrapped to ``width`` columns, each line behind ``indent``."""
    for line in textwrap.wrap(text, width - len(indent), break_on_hyphens=False):
        yield [Word(indent + line, style)]

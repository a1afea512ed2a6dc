"""Lines of styled words, and how they are laid out in columns. Knows no terminal library and no record."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from . import names

_EIGHTHS = "▏▎▍▌▋▊▉█"


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


def row(columns: Sequence[Column], cells: Sequence[str], gap: int) -> str:
    """The cells of one row, each padded to its column, ``gap`` spaces apart."""
    padded = [names.pad(text, column.width, right=column.right) for column, text in zip(columns, cells, strict=True)]
    return (" " * gap).join(padded)


def header(columns: Sequence[Column], gap: int) -> Line:
    """The titles of the columns."""
    return [Word(row(columns, [column.title for column in columns], gap).rstrip(), "dim")]


def blocks(share: float, width: int) -> str:
    """A bar for a share of 1, in eighths of a column, the whole being ``width`` columns."""
    eighths = round(min(share, 1.0) * width * 8)
    return _EIGHTHS[7] * (eighths // 8) + (_EIGHTHS[eighths % 8 - 1] if eighths % 8 else "")


def bullet(text: str, width: int, style: str) -> Iterator[Line]:
    """``text`` as an item of a list, wrapped to ``width`` columns."""
    for index, line in enumerate(textwrap.wrap(text, width - 4, break_on_hyphens=False)):
        yield [Word("  - " if index == 0 else "    ", style), Word(line)]


def columns(text: str, width: int) -> list[str]:
    """``text`` in lines of ``width`` columns; a word that is longer, such as a path, stays in one piece."""
    return textwrap.wrap(text, max(width, 20), break_on_hyphens=False, break_long_words=False) or [""]


def wrapped(text: str, width: int, indent: str = "", style: str = "") -> Iterator[Line]:
    """``text`` wrapped to ``width`` columns, each line behind ``indent``."""
    for line in textwrap.wrap(text, width - len(indent), break_on_hyphens=False):
        yield [Word(indent + line, style)]

"""Renders documents as Markdown, for an issue or a pull request. All characters of Markdown and HTML are escaped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from .. import units
from . import names
from .document import (
    LEAD,
    Bar,
    Beside,
    Block,
    Cell,
    Column,
    Commands,
    Document,
    Facts,
    Fold,
    Items,
    On,
    Row,
    Section,
    Sentence,
    Table,
    shown_on,
    shown_rows,
)

LEAST_SHARE = 0.005
"""Parts with at most this share are left out, because they round to zero."""

_SPECIAL = re.compile(r"([\\`*_\[\]{}<>#|~$!&@])")


def document_markdown(document: Document) -> str:
    """Renders a document; blocks stand between empty lines."""
    parts = [[f"# {escaped(document.title)}"]] if document.title else []
    parts += [[escaped(line)] for line in document.about if line]
    parts += [list(block_lines(block)) for block in shown_on(document.blocks, On.MARKDOWN)]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def block_lines(block: Block, level: int = 2) -> Iterator[str]:
    """The lines of a block; ``level`` is that of its headings."""
    if isinstance(block, Section | Fold):
        return _section(block, level)
    if isinstance(block, Beside):
        return _between_empty_lines(_titled(title, table, level) for title, table in block.tables)
    return _RENDERERS[type(block)](block) if type(block) in _RENDERERS else iter(())


def _section(block: Section | Fold, level: int) -> Iterator[str]:
    parts: list[Iterable[str]] = [[f"{'#' * level} {escaped(block.title)}"]]
    if isinstance(block, Section) and block.note:
        parts.append([escaped(block.note)])
    parts += [block_lines(inner, level + 1) for inner in shown_on(block.blocks, On.MARKDOWN)]
    return _between_empty_lines(parts)


def _titled(title: str, table: Table, level: int) -> Iterator[str]:
    yield from (f"{'#' * level} {escaped(title)}", "", *_table(table))


def _between_empty_lines(parts: Iterable[Iterable[str]]) -> Iterator[str]:
    for number, part in enumerate(filter(None, map(list, parts))):
        yield from ["", *part] if number else part


def _sentence(block: Sentence) -> Iterator[str]:
    yield f"**{escaped(block.text)}**" if block.tone == LEAD else escaped(block.text)


def _items(block: Items) -> Iterator[str]:
    for item in block.entries:
        if item.on & On.MARKDOWN:
            hint = f" Hint: {escaped(item.hint)}" if item.hint else ""
            yield f"- {escaped(item.numbered)}{hint}"


def _bar(block: Bar) -> Iterator[str]:
    yield escaped(bar_words(block))


def bar_words(bar: Bar) -> str:
    """Returns ``conv 50%, idle 3%`` for a bar of parts; nothing for stretches that stand somewhere."""
    parts = (one for one in bar.stretches if one.left is None and one.share >= LEAST_SHARE)
    return ", ".join(f"{one.title} {units.whole_percent(one.share)}" for one in parts)


def _facts(block: Facts) -> Iterator[str]:
    for name, text, *_ in block.rows:
        yield f"- {escaped(name)}: {'; '.join(map(escaped, text.splitlines()))}"


def _commands(block: Commands) -> Iterator[str]:
    parts = []
    for text, why in block.entries:
        lines = [names.clean(line) if not line.isprintable() else line for line in text.splitlines()]
        fence = "`" * (3 + max((len(run) for run in re.findall("`{3,}", text)), default=0))
        parts.append([*([f"{escaped(why)}:", ""] if why else []), fence, *lines, fence])
    return _between_empty_lines(parts)


def _table(table: Table) -> Iterator[str]:
    every, left = shown_rows(table, On.MARKDOWN)
    places = [place for place, column in enumerate(table.columns) if column.on & On.MARKDOWN]
    columns = [table.columns[place] for place in places]
    texts = [short_texts(table.columns[place], [row.cells[place] for row in every]) for place in places]
    yield table_line(column.title for column in columns)
    yield "| " + " | ".join("---:" if column.right else ":---" for column in columns) + " |"
    for number, row in enumerate(every):
        yield "| " + " | ".join(_cell(row, place, texts[at][number]) for at, place in enumerate(places)) + " |"
    if left:
        yield from ("", escaped(f"and {left:,} more {table.more}".rstrip()))


def short_texts(column: Column, cells: Sequence[Cell]) -> Sequence[str]:
    """The texts of a column, cut to the longest that paper shows."""
    texts = [names.clean(cell.text) for cell in cells]
    if not column.most or all(names.cells(text) <= column.most for text in texts):
        return texts
    return column.shorten(texts, column.most) if column.shorten else [names.end(text, column.most) for text in texts]


def _cell(row: Row, place: int, text: str) -> str:
    cell = row.cells[place]
    bar = bar_words(cell.bar) if cell.bar else ""
    notes = [note.text for note in cell.notes if note.on & On.MARKDOWN]
    return "<br>".join(escaped(part) for part in (text, bar, *notes) if part)


def table_line(cells: Iterable[str]) -> str:
    """One line of a table."""
    return "| " + " | ".join(map(escaped, cells)) + " |"


def escaped(text: str) -> str:
    """Returns ``text`` as one line with all characters of Markdown and HTML escaped."""
    return _SPECIAL.sub(r"\\\1", names.clean(text))


_RENDERERS: Mapping[type[Block], Callable[[Any], Iterator[str]]] = {
    Sentence: _sentence,
    Items: _items,
    Bar: _bar,
    Table: _table,
    Facts: _facts,
    Commands: _commands,
}
"""The blocks that Markdown shows, beside sections and what holds other blocks; it shows no pictures and no files."""

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
    Row,
    Section,
    Sentence,
    ShownIn,
    Table,
    keep_shown_blocks,
    keep_shown_rows,
)

LEAST_SHARE = 0.005
"""Parts with at most this share are left out, because they round to zero."""

_SPECIAL = re.compile(r"([\\`*_\[\]{}<>#|~$!&@])")


def render_markdown(document: Document) -> str:
    """Renders a document; blocks stand between empty lines."""
    parts = [[f"# {escape_markdown(document.title)}"]] if document.title else []
    parts += [[escape_markdown(line)] for line in document.about if line]
    parts += [list(render_block(block)) for block in keep_shown_blocks(document.blocks, ShownIn.MARKDOWN)]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def render_block(block: Block, level: int = 2) -> Iterator[str]:
    """The lines of a block; ``level`` is that of its headings."""
    if isinstance(block, Section | Fold):
        return _render_section(block, level)
    if isinstance(block, Beside):
        return _separate_by_empty_lines(_add_title(title, table, level) for title, table in block.tables)
    return _RENDERERS[type(block)](block) if type(block) in _RENDERERS else iter(())


def _render_section(block: Section | Fold, level: int) -> Iterator[str]:
    parts: list[Iterable[str]] = [[f"{'#' * level} {escape_markdown(block.title)}"]]
    if isinstance(block, Section) and block.note:
        parts.append([escape_markdown(block.note)])
    parts += [render_block(inner, level + 1) for inner in keep_shown_blocks(block.blocks, ShownIn.MARKDOWN)]
    return _separate_by_empty_lines(parts)


def _add_title(title: str, table: Table, level: int) -> Iterator[str]:
    yield from (f"{'#' * level} {escape_markdown(title)}", "", *_render_table(table))


def _separate_by_empty_lines(parts: Iterable[Iterable[str]]) -> Iterator[str]:
    for number, part in enumerate(filter(None, map(list, parts))):
        yield from ["", *part] if number else part


def _render_sentence(block: Sentence) -> Iterator[str]:
    yield f"**{escape_markdown(block.text)}**" if block.tone == LEAD else escape_markdown(block.text)


def _render_items(block: Items) -> Iterator[str]:
    for item in block.entries:
        if item.on & ShownIn.MARKDOWN:
            hint = f" Hint: {escape_markdown(item.hint)}" if item.hint else ""
            yield f"- {escape_markdown(item.numbered)}{hint}"


def _render_bar(block: Bar) -> Iterator[str]:
    yield escape_markdown(describe_bar(block))


def describe_bar(bar: Bar) -> str:
    """Returns ``conv 50%, idle 3%`` for a bar of parts; nothing for stretches that stand somewhere."""
    parts = (one for one in bar.stretches if one.left is None and one.share >= LEAST_SHARE)
    return ", ".join(f"{one.title} {units.whole_percent(one.share)}" for one in parts)


def _render_facts(block: Facts) -> Iterator[str]:
    for name, text, *_ in block.rows:
        yield f"- {escape_markdown(name)}: {'; '.join(map(escape_markdown, text.splitlines()))}"


def _render_commands(block: Commands) -> Iterator[str]:
    parts = []
    for text, why in block.entries:
        lines = [names.clean(line) if not line.isprintable() else line for line in text.splitlines()]
        fence = "`" * (3 + max((len(run) for run in re.findall("`{3,}", text)), default=0))
        parts.append([*([f"{escape_markdown(why)}:", ""] if why else []), fence, *lines, fence])
    return _separate_by_empty_lines(parts)


def _render_table(table: Table) -> Iterator[str]:
    every, left = keep_shown_rows(table, ShownIn.MARKDOWN)
    places = [place for place, column in enumerate(table.columns) if column.on & ShownIn.MARKDOWN]
    columns = [table.columns[place] for place in places]
    texts = [shorten_texts(table.columns[place], [row.cells[place] for row in every]) for place in places]
    yield write_table_line(column.title for column in columns)
    yield "| " + " | ".join("---:" if column.right else ":---" for column in columns) + " |"
    for number, row in enumerate(every):
        yield "| " + " | ".join(_render_cell(row, place, texts[at][number]) for at, place in enumerate(places)) + " |"
    if left:
        yield from ("", escape_markdown(f"and {left:,} more {table.more}".rstrip()))


def shorten_texts(column: Column, cells: Sequence[Cell]) -> Sequence[str]:
    """The texts of a column, cut to the longest that paper shows."""
    texts = [names.clean(cell.text) for cell in cells]
    if not column.most or all(names.count_columns(text) <= column.most for text in texts):
        return texts
    return (
        column.shorten(texts, column.most) if column.shorten else [names.cut_end(text, column.most) for text in texts]
    )


def _render_cell(row: Row, place: int, text: str) -> str:
    cell = row.cells[place]
    bar = describe_bar(cell.bar) if cell.bar else ""
    notes = [note.text for note in cell.notes if note.on & ShownIn.MARKDOWN]
    return "<br>".join(escape_markdown(part) for part in (text, bar, *notes) if part)


def write_table_line(cells: Iterable[str]) -> str:
    """One line of a table."""
    return "| " + " | ".join(map(escape_markdown, cells)) + " |"


def escape_markdown(text: str) -> str:
    """Returns ``text`` as one line with all characters of Markdown and HTML escaped."""
    return _SPECIAL.sub(r"\\\1", names.clean(text))


_RENDERERS: Mapping[type[Block], Callable[[Any], Iterator[str]]] = {
    Sentence: _render_sentence,
    Items: _render_items,
    Bar: _render_bar,
    Table: _render_table,
    Facts: _render_facts,
    Commands: _render_commands,
}
"""The blocks that Markdown shows, in addition to sections and other blocks that contain blocks. It shows no pictures
and no files."""

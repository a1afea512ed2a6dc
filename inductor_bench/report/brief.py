"""Renders documents as plain text of few words, for agents: no bars, no padding, one line for each row."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from . import names
from .document import (
    Block,
    Column,
    Commands,
    Document,
    Facts,
    Item,
    Items,
    Row,
    Section,
    Sentence,
    ShownIn,
    Table,
    keep_shown_blocks,
    keep_shown_rows,
)

BETWEEN = " | "
"""The text between two cells."""

NOTE = "    "
"""The text before a note."""

COLUMNS = 100
"""The most characters of a line of text; rows and commands stay in one piece."""

WIDTH = 96
"""The most characters of a name, and of a note below a row."""


MOST_CHARACTERS = 8000
"""The largest number of characters of a brief form: 2,000 tokens of about four characters. A longer text loses its
notes, and then its end."""

CUT = "… more without --brief"


def render_brief(document: Document) -> str:
    """Renders a document in at most :data:`MOST_CHARACTERS`."""
    head = " · ".join(names.clean(text) for text in (document.title, *document.about) if text)
    lines = [*([head] if head else []), *_render_blocks(document.blocks)]
    if _count_characters(lines) > MOST_CHARACTERS:
        lines = [line for line in lines if not line.startswith(NOTE)]
    if _count_characters(lines) > MOST_CHARACTERS:
        while lines and _count_characters([*lines, CUT]) > MOST_CHARACTERS:
            lines.pop()
        lines.append(CUT)
    return "".join(f"{line}\n" for line in lines)


def _count_characters(lines: Iterable[str]) -> int:
    return sum(len(line) + 1 for line in lines)


def _render_blocks(blocks: Iterable[Block]) -> Iterator[str]:
    for block in keep_shown_blocks(blocks, ShownIn.BRIEF):
        yield from _RENDERERS[type(block)](block) if type(block) in _RENDERERS else ()


def _render_section(block: Section) -> Iterator[str]:
    note = f" ({names.clean(block.note)})" if block.note else ""
    if not block.quiet:
        yield f"## {names.clean(block.title)}{note}"
    yield from _render_blocks(block.blocks)


def _render_sentence(block: Sentence) -> Iterator[str]:
    yield from _wrap_text(block.text)


def _wrap_text(text: str, first: str = "") -> list[str]:
    """Wraps a text into lines. Lines after the first are indented to the first line's words; no word is cut."""
    cleaned, after = names.clean(text), " " * len(first)
    return textwrap.wrap(
        cleaned,
        COLUMNS,
        initial_indent=first,
        subsequent_indent=after,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _render_items(block: Items) -> Iterator[str]:
    for item in block.entries:
        if item.on & ShownIn.BRIEF:
            yield from _render_item(item)


def _render_item(item: Item) -> Iterator[str]:
    yield from _wrap_text(item.numbered, "- ")
    if item.hint:
        yield from _wrap_text(f"Hint: {item.hint}", "  ")
    if item.command:
        yield f"  Try: {item.command if item.command.isprintable() else names.clean(item.command)}"


def _render_table(table: Table) -> Iterator[str]:
    every, left = keep_shown_rows(table, ShownIn.BRIEF)
    places = [
        place
        for place, column in enumerate(table.columns)
        if column.on & ShownIn.BRIEF and any(row.cells[place].text for row in every)
    ]
    texts = [
        _shorten_texts(table.columns[place], [names.clean(row.cells[place].text) for row in every]) for place in places
    ]
    if table.titled:
        yield BETWEEN.join(table.columns[place].title for place in places)
    for number, row in enumerate(every):
        yield BETWEEN.join(column[number] for column in texts)
        yield from _render_notes(row, places)
    if left:
        yield names.clean(f"and {left:,} more {table.more}")


def _shorten_texts(column: Column, texts: Sequence[str]) -> Sequence[str]:
    """The texts of a column. Names of kernels stay whole, so that they can be typed, if they are not very long."""
    return column.shorten(texts, WIDTH) if column.shorten and max(map(len, texts), default=0) > WIDTH else texts


def _render_notes(row: Row, places: Sequence[int]) -> Iterator[str]:
    for note in (note for place in places for note in row.cells[place].notes if note.on & ShownIn.BRIEF):
        text = names.clean(note.text)
        yield f"{NOTE}{text if note.whole else names.cut_end(text, WIDTH)}"


def _render_facts(block: Facts) -> Iterator[str]:
    for name, text, *_ in block.rows:
        yield f"{names.clean(name)}: {'; '.join(map(names.clean, text.splitlines()))}"


def _render_commands(block: Commands) -> Iterator[str]:
    yield f"## {block.label}"
    for command, why in block.entries:
        lines = [line if line.isprintable() else names.clean(line) for line in command.splitlines()]
        yield from lines[:-1]
        yield f"{lines[-1]}{f'  # {names.clean(why)}' if why else ''}"


_RENDERERS: Mapping[type[Block], Callable[[Any], Iterator[str]]] = {
    Section: _render_section,
    Sentence: _render_sentence,
    Items: _render_items,
    Table: _render_table,
    Facts: _render_facts,
    Commands: _render_commands,
}
"""The blocks that it shows: no bars, no pictures, and nothing that is shown on demand."""

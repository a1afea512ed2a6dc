"""Renders documents for a terminal, as lines of styled words. Rich is imported only to print them.

The text is complete without colours, and words are never read as markup.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import units
from . import names
from .document import (
    LEAD,
    NOTE,
    Bar,
    Beside,
    Block,
    Cell,
    Column,
    Commands,
    Document,
    Facts,
    Fold,
    Item,
    Items,
    Row,
    Section,
    Sentence,
    ShownIn,
    Stretch,
    Table,
    TimelineChart,
    keep_shown_blocks,
    keep_shown_rows,
)

if TYPE_CHECKING:
    from rich.console import Console

NARROWEST, WIDEST = 60, 120
WIDE = 96
"""Smallest width of a console with two spaces between the columns of a table."""

LABEL = 10
"""Least width in columns of a label such as ``Next``."""

MOST_LABEL = 32
"""Largest width in columns of the names of tables beside each other."""

BAR = 6
"""Width in columns of a bar for a share of 1, in a cell."""

LEAST_BAR, MOST_BAR = 16, 56
"""Smallest and largest width in columns of a cell with bars."""

MOST_LOG_LINES = 8
LEAST_SHARE = 0.005
"""Parts with at most this share are left out of a bar in a cell, because they round to zero."""

MORE_PARTS = " …"
"""The character that ends a bar in a cell if there is no room for all parts."""

_EIGHTHS = "▏▎▍▌▋▊▉█"
_STYLE_OF_TONE = {LEAD: "title", NOTE: "dim"}
_STYLES = {"title": "bold", "dim": "dim", "good": "green", "warn": "yellow", "bad": "bold red"}
_PLAIN = str.maketrans(
    {"·": "-", units.MISSING: "-", "…": "~", "µ": "u", "→": ">", "±": "+-"}
    | {**dict.fromkeys("▏▎▍▌", "|"), **dict.fromkeys("▋▊▉█", "#"), "▓": "=", "▒": "+", "░": "."}
)


class Word(NamedTuple):
    """A piece of text with its style: ``""``, ``title``, ``dim``, ``good``, ``warn``, ``bad`` or a ``#rrggbb``."""

    text: str
    style: str = ""


Line = list[Word]


def print_document(document: Document, console: Console) -> None:
    """Prints a document in the width of a console."""
    print_lines(render_lines(document, console.width), console)


def print_lines(lines: Iterable[Line], console: Console) -> None:
    """Prints lines of styled words. ASCII replaces characters that the console's encoding lacks."""
    from rich.text import Text

    plain = not (console.encoding or "").lower().replace("-", "").startswith("utf")
    for line in lines:
        text = Text()
        for word in line:
            shown = units.printable(word.text)
            shown = shown.translate(_PLAIN).encode("ascii", "replace").decode() if plain else shown
            text.append(shown, _STYLES.get(word.style, word.style))
        text.rstrip()
        # Soft wrapping keeps a long command in one piece, so that it can be copied.
        console.print(text, soft_wrap=True, highlight=False, markup=False, emoji=False)


def render_text(document: Document, columns: int) -> str:
    """Renders a document as plain text for a terminal of ``columns`` columns."""
    lines = ("".join(word.text for word in line).rstrip() for line in render_lines(document, columns))
    return "".join(f"{line}\n" for line in lines)


def render_lines(document: Document, columns: int) -> Iterator[Line]:
    """Yields the lines of a document. On a wider terminal they use 120 columns, unless the document asks for more."""
    width = max(columns, NARROWEST) if document.wide else min(max(columns, NARROWEST), WIDEST)
    yield from _render_head(document, width)
    blocks = keep_shown_blocks(document.blocks, ShownIn.TERMINAL)
    for place, block in enumerate(blocks):
        lines = list(render_block(block, width))
        yield from lines
        following = blocks[place + 1] if place + 1 < len(blocks) else None
        if following is not None and lines and (isinstance(block, Section) or isinstance(following, Section)):
            yield []


def render_block(block: Block, width: int) -> Iterator[Line]:
    """The lines of a block, without an empty line at its ends."""
    return _RENDERERS[type(block)](block, width) if type(block) in _RENDERERS else iter(())


def _render_head(document: Document, width: int) -> Iterator[Line]:
    left, about = names.clean(document.title), [names.clean(line) for line in document.about if line]
    if not left:
        return
    room = width - names.count_columns(left) - names.count_columns("".join(about))
    if len(about) == 1 and room >= 2:
        yield [Word(left, "title"), Word(" " * room), Word(about[0], "dim")]
    else:
        yield [Word(names.cut_end(left, width), "title")]
        for line in about:
            yield from wrap_text(line, width, "", "dim")
    if document.blocks:
        yield []


# --- texts -----------------------------------------------------------------------------------------------------------


def wrap_text(text: str, width: int, indent: str = "", style: str = "") -> Iterator[Line]:
    """Yields ``text`` wrapped to ``width`` columns, with ``indent`` before each line."""
    for line in textwrap.wrap(text, width - len(indent), break_on_hyphens=False):
        yield [Word(indent + line, style)]


def split_into_columns(text: str, width: int) -> list[str]:
    """Splits ``text`` into lines of at most ``width`` columns. A longer word, such as a path, stays whole."""
    return textwrap.wrap(text, max(width, 20), break_on_hyphens=False, break_long_words=False) or [""]


def _choose_style(tone: str) -> str:
    return _STYLE_OF_TONE.get(tone, tone)


def _render_sentence(block: Sentence, width: int) -> Iterator[Line]:
    return wrap_text(names.clean(block.text), width, "", _choose_style(block.tone))


def _render_items(block: Items, width: int) -> Iterator[Line]:
    for item in block.entries:
        if item.on & ShownIn.TERMINAL:
            yield from _render_item(item, width)


def _render_item(item: Item, width: int) -> Iterator[Line]:
    style = _choose_style(item.tone)
    for index, line in enumerate(textwrap.wrap(names.clean(item.numbered), width - 4, break_on_hyphens=False)):
        yield [Word("  - " if index == 0 else "    ", style), Word(line)]
    if item.hint:
        yield from wrap_text(f"Hint: {names.clean(item.hint)}", width, "    ")
    if item.place:
        yield [Word(f"    Log:  {names.clean(item.place)}")]
    for line in [line for line in item.log.splitlines() if line.strip()][-MOST_LOG_LINES:]:
        indent = " " * min(len(line) - len(line.lstrip()), 12)
        yield [Word(names.cut_end(f"    | {indent}{names.clean(line)}", width), "dim")]


def _render_facts(block: Facts, width: int) -> Iterator[Line]:
    label = max(LABEL, 2 + max(names.count_columns(names.clean(row[0])) for row in block.rows))
    for name, text, *tone in block.rows:
        first = names.clean(name)
        for part in text.splitlines():
            spaced = "   ".join(names.clean(piece) for piece in part.split("   "))
            for line in split_into_columns(spaced, width - label):
                yield [Word(names.pad(first, label), "title"), Word(line, _choose_style("".join(tone)))]
                first = ""


def _render_commands(block: Commands, width: int) -> Iterator[Line]:
    label = block.label
    for command, why in block.entries:
        for line in command.splitlines():
            yield [Word(names.pad(label, LABEL), "title"), Word(line if line.isprintable() else names.clean(line))]
            label = ""
        yield from wrap_text(names.clean(why), width, " " * LABEL, "dim")


def _fold(block: Fold, width: int) -> Iterator[Line]:
    yield [Word(names.cut_end(names.clean(block.title), width), "title")]
    for inner in keep_shown_blocks(block.blocks, ShownIn.TERMINAL):
        yield from render_block(inner, width)


def _render_section(block: Section, width: int) -> Iterator[Line]:
    title, note = names.clean(block.title), names.clean(block.note)
    title = title if " " in title else names.cut_middle(title, width)  # the name of a kernel
    if not block.quiet:
        beside = f"   {note}" if note and names.count_columns(title) + names.count_columns(note) + 3 <= width else ""
        *lines, last = list(wrap_text(title, width, "", block.tone or "title")) or [[]]
        yield from (*lines, [*last, Word(beside, "dim")])
        note = "" if beside else note
    yield from wrap_text(note, width, "", "dim")
    for place, inner in enumerate(keep_shown_blocks(block.blocks, ShownIn.TERMINAL)):
        if place and isinstance(inner, Fold):
            yield []
        yield from render_block(inner, width)


# --- bars ------------------------------------------------------------------------------------------------------------


def draw_bar_in_eighths(share: float, width: int) -> str:
    """Returns a bar for a share (0 to 1) in steps of an eighth of a column; a share of 1 takes ``width`` columns."""
    count = round(min(max(share, 0.0), 1.0) * width * 8)
    return _EIGHTHS[7] * (count // 8) + (_EIGHTHS[count % 8 - 1] if count % 8 else "")


def draw_bar_with_words(stretches: Iterable[Stretch], room: int) -> Line:
    """Returns ``conv 43% ██▌ pointwise 30% █▊ …`` in at most ``room`` columns.

    The line ends before the first part that does not fit, so it always holds the first and largest parts, and then
    with ``…``.
    """
    line: Line = []
    for one in stretches:
        if one.share < LEAST_SHARE:
            break
        text, bar = (
            f"{names.clean(one.title)} {units.whole_percent(one.share)}",
            f" {draw_bar_in_eighths(one.share, BAR)}",
        )
        gap = 1 if line else 0
        left = room - gap - names.count_columns(text)
        if left < 0:
            return _cut_short(line, room)
        bar = bar if len(bar) <= left else ""
        line += [Word(" " * gap + text), Word(bar, one.colour)]
        room = left - len(bar)
    return line


def _cut_short(line: Line, room: int) -> Line:
    """Adds ``…`` after the words and bars of parts; if there is no room, ``…`` replaces the last bar."""
    bars = [place for place, word in enumerate(line) if place % 2 and word.text]
    if room < len(MORE_PARTS) and bars:
        room += len(line[bars[-1]].text)
        line = [*line[: bars[-1]], Word(""), *line[bars[-1] + 1 :]]
    return [*line, Word(MORE_PARTS)] if line and room >= len(MORE_PARTS) else line


def _render_bar(block: Bar, width: int) -> Iterator[Line]:
    """Draws one bar of ``width`` columns. Shares are rounded to columns so that they fill the bar exactly."""
    line: Line = []
    start, done = 0.0, 0
    for one in block.stretches:
        start += one.share / (block.whole or 1.0)
        end = min(width, round(start * width))
        if end > done:
            line.append(Word(one.fill * (end - done), one.colour))
        done = max(done, end)
    yield line


def _render_timeline(block: TimelineChart, width: int) -> Iterator[Line]:
    label = min(14, max(names.count_columns(names.clean(name)) for name, _ in block.lanes) + 1) if block.lanes else 0
    room = width - label
    for name, stretches in block.lanes:
        line = [Word(names.pad(names.cut_middle(names.clean(name), label - 1), label), "dim")]
        for column in range(room):
            at = (column + 0.5) / room
            under = (one for one in stretches if one.left is not None and one.left <= at < one.left + one.share)
            found = next(under, None)
            line.append(Word(found.fill, found.colour) if found else Word(" "))
        yield line
    if block.ticks:
        first, last = block.ticks[0][1], block.ticks[-1][1]
        yield [Word(" " * label + first + names.pad(last, room - names.count_columns(first), right=True), "dim")]
    legend = "  ".join(names.clean(text) for _, text in block.legend)
    yield from wrap_text(legend, width, "", "dim")


# --- tables ----------------------------------------------------------------------------------------------------------


class _Fitted(NamedTuple):
    """A column that is shown: its place in the table, its width, and its texts as they are shown."""

    column: Column
    place: int
    width: int
    texts: Sequence[str]


def _render_table(table: Table, width: int) -> Iterator[Line]:
    every, left = keep_shown_rows(table, ShownIn.TERMINAL)
    key = any(row.cells[table.main].fill for row in every)
    gap, columns = fit_columns(table, every, width, key)
    if columns is None:
        yield from _render_records(table, every, width)
    else:
        if table.titled:
            titles = fill_gap(((_render_title(one.column), one) for one in columns), gap)
            yield [Word(" " * (1 + gap) * key + titles.rstrip(), "dim")]
        start = (1 + gap) * key
        for one in columns:
            if one.place == table.main:
                break
            start += one.width + gap
        for number, row in enumerate(every):
            tone = row.tone or (LEAD if row is table.total else "")
            yield from _render_row(row, columns, number, gap, key, _choose_style(tone))
            yield from _render_notes_of_row(table, row, start or 4, width)
    if left:
        yield from wrap_text(names.clean(f"and {left:,} more {table.more}"), width, "", "dim")


def _render_title(column: Column) -> str:
    return names.clean(column.short or column.title)


def fill_gap(cells: Iterable[tuple[str, _Fitted]], gap: int) -> str:
    """Joins texts, each padded to its column."""
    padded = (names.pad(names.cut_end(text, one.width), one.width, right=one.column.right) for text, one in cells)
    return (" " * gap).join(padded)


def fit_columns(table: Table, rows: Sequence[Row], width: int, key: bool) -> tuple[int, list[_Fitted] | None]:
    """Chooses the columns of a table and their widths: first it leaves out spare columns, then it cuts texts.

    Returns:
        The number of spaces between two columns, and the columns; ``None`` if they do not fit beside each other.
    """
    places = [place for place, column in enumerate(table.columns) if column.on & ShownIn.TERMINAL]
    texts = {place: [names.clean(row.cells[place].text) for row in rows] for place in places}
    bars = {place for place in places if any(_is_parts(row.cells[place].bar) for row in rows)}
    wanted, least = {}, {}
    for place in places:
        column = table.columns[place]
        longest = max(map(names.count_columns, (_render_title(column), *texts[place])))
        wanted[place] = MOST_BAR if place in bars else longest
        least[place] = LEAST_BAR if place in bars else min(longest, column.least or longest)
    roomy = sum(wanted.values()) + 2 * (len(places) - 1 + key) + key <= width
    gap = 2 if roomy or width >= WIDE else 1
    width -= (1 + gap) * key
    while places and sum(least[place] for place in places) + gap * (len(places) - 1) > width:
        spare = max(places, key=lambda place: table.columns[place].spare)
        if not table.columns[spare].spare:
            return gap, None
        places.remove(spare)
    over = sum(wanted[place] for place in places) + gap * (len(places) - 1) - width
    while over > 0:
        widest = max((place for place in places if wanted[place] > least[place]), key=lambda place: wanted[place])
        wanted[widest] -= 1
        over -= 1
    return gap, [
        _Fitted(
            table.columns[place], place, wanted[place], _fit_texts(table.columns[place], texts[place], wanted[place])
        )
        for place in places
    ]


def _is_parts(bar: Bar | None) -> bool:
    """Whether a bar consists of parts that follow each other, so that words can replace it."""
    return bar is not None and all(one.left is None for one in bar.stretches)


def _fit_texts(column: Column, texts: Sequence[str], width: int) -> Sequence[str]:
    if column.wraps or all(names.count_columns(text) <= width for text in texts):
        return texts
    if column.shorten is not None:
        return column.shorten(texts, width)
    return [names.cut_middle(text, width) for text in texts]


def _render_row(row: Row, columns: Sequence[_Fitted], number: int, gap: int, key: bool, style: str) -> Iterator[Line]:
    cells = [_render_cell(row.cells[one.place], one, number, style) for one in columns]
    signed = next((cell for cell in row.cells if cell.fill), None)
    for place, parts in enumerate(zip_longest(*cells)):
        line = []
        if key:
            sign = Word(signed.fill, signed.colour) if signed and not place else Word(" ")
            line = [sign, Word(" " * gap)]
        for one, part in zip(columns, parts, strict=True):
            found: Line = part or []
            fill = Word(" " * max(0, one.width - sum(names.count_columns(word.text) for word in found)))
            line += [fill, *found] if one.column.right else [*found, fill]
            line.append(Word(" " * gap))
        yield _strip_line(line)


def _strip_line(line: Line) -> Line:
    """The line without spaces at its end."""
    while line and not line[-1].text.strip():
        line = line[:-1]
    return line


def _render_cell(cell: Cell, one: _Fitted, number: int, style: str) -> list[Line]:
    if cell.bar is not None and _is_parts(cell.bar):
        return [draw_bar_with_words(cell.bar.stretches, one.width)]
    style = _choose_style(cell.tone) or style
    text = one.texts[number]
    if one.column.wraps and names.count_columns(text) > one.width:
        return [[Word(line, style)] for line in textwrap.wrap(text, one.width, break_on_hyphens=False)]
    return [[Word(text, style)]]


def _render_notes_of_row(table: Table, row: Row, indent: int, width: int) -> Iterator[Line]:
    cells = (cell for cell, column in zip(row.cells, table.columns, strict=True) if column.on & ShownIn.TERMINAL)
    for note in (note for cell in cells for note in cell.notes if note.on & ShownIn.TERMINAL):
        text, style = names.clean(note.text), _choose_style(note.tone)
        if note.whole:
            yield from wrap_text(text, width, " " * indent, style)
        else:
            yield [Word(names.cut_end(" " * indent + text, width), style)]


def _render_records(table: Table, rows: Sequence[Row], width: int) -> Iterator[Line]:
    """Each row as a block of lines, if a table is too wide."""
    places = [place for place, column in enumerate(table.columns) if column.on & ShownIn.TERMINAL]
    widest = max(names.count_columns(_render_title(table.columns[place])) for place in places)
    for number, row in enumerate(rows, 1):
        yield [Word(f"row {number}", "title")]
        for place in places:
            title = names.pad(_render_title(table.columns[place]), widest)
            yield [Word(f"  {title}  ", "dim"), Word(names.clean(row.cells[place].text))]
        yield from _render_notes_of_row(table, row, 2, width)


def _render_side_by_side(block: Beside, width: int) -> Iterator[Line]:
    """The rows of all tables as one table: a name, and the columns of each table that fits."""
    (_, first), *_ = block.tables
    places = [n for n, column in enumerate(first.columns) if column.on & ShownIn.TERMINAL and n != first.main]
    found = [{row.cells[table.main].text: row.cells for row in table.rows} for _, table in block.tables]
    every = dict.fromkeys(name for rows in found for name in rows)
    label = min(
        MOST_LABEL, max(names.count_columns(names.clean(text)) for text in (first.columns[first.main].title, *every))
    )
    titles = {place: _render_title(first.columns[place]) for place in places}
    sizes = {
        place: max(
            names.count_columns(text)
            for text in (titles[place], *(cells[place].text for rows in found for cells in rows.values()))
        )
        for place in places
    }
    group = max(sum(sizes.values()) + len(sizes) - 1, 16)
    fit = max(1, (width - label) // (group + 2))
    chosen = set((block.shown or tuple(title for title, _ in block.tables))[:fit])
    shown = [(title, rows) for (title, _), rows in zip(block.tables, found, strict=True) if title in chosen][:fit]

    def weight(name: str) -> float:
        return sum(rows[name][places[0]].value or 0.0 for _, rows in shown if name in rows)

    heads = names.make_names_unique((title for title, _ in shown), group, names.shorten_label).values()
    head = "".join("  " + names.pad(text, group, right=True) for text in heads)
    yield [Word(names.pad(first.columns[first.main].title, label) + head, "dim")]
    below = " ".join(names.pad(titles[place], sizes[place], right=True) for place in places)
    yield [Word(" " * label + ("  " + names.pad(below, group, right=True)) * len(shown), "dim")]
    listed = [name for name in every if any(name in rows for _, rows in shown)]
    ends = {name for name in listed if all(name == [*rows][-1] for _, rows in shown if name in rows)}  # as idle time
    for name in sorted(listed, key=lambda name: (name in ends, -weight(name))):
        line = names.pad(names.cut_middle(names.clean(name), label), label)
        for _, rows in shown:
            cells = rows.get(name)
            texts = {place: cells[place].text if cells else "" for place in places}
            if cells is None:
                texts[places[0]] = units.MISSING
            joined = " ".join(names.pad(texts[place], sizes[place], right=True) for place in places)
            line += "  " + names.pad(joined, group, right=True)
        yield [Word(line.rstrip())]
    if len(shown) < len(block.tables):
        yield from wrap_text(f"{len(shown)} of {len(block.tables)} {block.more}", width, "", "dim")


_RENDERERS: Mapping[type[Block], Callable[[Any, int], Iterator[Line]]] = {
    Sentence: _render_sentence,
    Items: _render_items,
    Bar: _render_bar,
    TimelineChart: _render_timeline,
    Table: _render_table,
    Facts: _render_facts,
    Commands: _render_commands,
    Beside: _render_side_by_side,
    Fold: _fold,
    Section: _render_section,
}
"""The blocks that a terminal shows; it shows no pictures and no files."""

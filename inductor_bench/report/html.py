"""Renders documents as HTML pages, which load no other file. Jinja2 is imported only here; it escapes all values."""

from __future__ import annotations

import base64
import functools
import gzip
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from .. import units
from . import names, palette
from .document import (
    FEW_ROWS,
    FIRST_ROWS,
    ROWS_SHOWN,
    THEME_COLOURS,
    Document,
    Mark,
    Row,
    Section,
    ShownIn,
    SourceFile,
    Stretch,
    Table,
    is_empty,
    keep_shown_blocks,
    keep_shown_rows,
)
from .markdown import describe_bar, shorten_texts

_TEMPLATES = Path(__file__).parent / "templates"
_PLAIN = re.compile(r"[\w .#%/:()-]")

BETWEEN = "\n\n"
"""What separates the blocks of a file. Files of kernels share most blocks, which are packed once."""


MOST_SAID = 5
"""The largest number of stretches of a lane that a screen reader reads out."""


def render_page(document: Document) -> str:
    """Renders a document as a page. Blocks before the first heading come before the list of headings."""
    blocks = keep_shown_blocks(document.blocks, ShownIn.PAGE)
    opening = list(itertools.takewhile(lambda block: not isinstance(block, Section), blocks))
    headings = [block for block in blocks if isinstance(block, Section)]
    tables = itertools.count(1)
    return (
        make_template_environment(_TEMPLATES)
        .get_template("page.html.j2")
        .render(
            document=document,
            opening=opening,
            headings=headings,
            rest=blocks[len(opening) :],
            packed=pack(document.files),
            next_table=lambda: next(tables),
        )
    )


@functools.cache  # compiling the templates takes longer than rendering a page
def make_template_environment(folder: Path) -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(few_rows=FEW_ROWS, first_rows=FIRST_ROWS, rows_shown=ROWS_SHOWN)
    made.filters.update(
        clean=names.clean, prose=_render_prose, lines=_split_lines, css=_quote_css, base64=_encode_base64
    )
    made.filters.update(
        shown=_list_shown_parts,
        places=_place_columns,
        rows=_render_rows,
        texts=_render_texts,
        words=_render_words,
        bar_words=describe_bar,
    )
    made.filters.update(
        left_out=_count_left_out_rows, colour=write_css_colour, ink=_choose_ink, breakable=_make_breakable
    )
    made.filters.update(lane_words=_describe_lane, marked=_describe_marks, dots=_place_dots)
    return made


def _list_shown_parts(parts: Iterable[Any]) -> list[Any]:
    """The blocks, items or notes that a page shows."""
    return [part for part in parts if part.on & ShownIn.PAGE and not is_empty(part, ShownIn.PAGE)]


def _place_columns(table: Table) -> list[int]:
    return [place for place, column in enumerate(table.columns) if column.on & ShownIn.PAGE]


def _render_rows(table: Table) -> Sequence[Row]:
    """Returns the rows that a page shows, without the row of the sum."""
    rows, _ = keep_shown_rows(table, ShownIn.PAGE)
    return rows[:-1] if table.total else rows


def _render_texts(table: Table) -> Sequence[Sequence[str]]:
    """The texts of each row in the columns that a page shows, and those of the last row."""
    rows, _ = keep_shown_rows(table, ShownIn.PAGE)
    columns = [
        shorten_texts(table.columns[place], [row.cells[place] for row in rows]) for place in _place_columns(table)
    ]
    return list(zip(*columns, strict=True)) or [()]


def _count_left_out_rows(table: Table) -> str:
    """Says how many rows the table leaves out."""
    _, left = keep_shown_rows(table, ShownIn.PAGE)
    return f"and {left:,} more {table.more}".rstrip() if left else ""


def write_css_colour(colour: str) -> str:
    """Returns the colour as the page names it. Some colours follow the page's theme."""
    name = "idle" if colour == palette.IDLE else colour
    return f"var(--{name})" if name in ("idle", *THEME_COLOURS) else colour


def _choose_ink(colour: str) -> str:
    return "inherit" if colour == palette.IDLE or not colour.startswith("#") else palette.choose_ink(colour)


def _render_words(one: Stretch) -> str:
    return one.words or f"{one.title} {units.percent(one.share)}"


def _render_prose(text: str) -> markupsafe.Markup:
    """Renders one line. Text in backticks becomes code."""
    pieces = [markupsafe.escape(piece) for piece in names.clean(text).split("`")]
    if len(pieces) % 2 == 0:
        return markupsafe.escape("`").join(pieces)
    pieces[1::2] = [markupsafe.Markup("<code>{}</code>").format(piece) for piece in pieces[1::2]]
    return markupsafe.Markup("").join(pieces)


def _make_breakable(text: str) -> markupsafe.Markup:
    """One line, which a narrow page breaks after the parts of a path or a name."""
    pieces = re.split(r"(?:(?<=[_/.:,=-])|(?<=\w\())(?=\w)", names.clean(text))
    return markupsafe.Markup("<wbr>").join(map(markupsafe.escape, pieces))


def _describe_lane(stretches: Sequence[Stretch]) -> str:
    """Describes the longest stretches of a lane, for readers who do not see the picture."""
    longest = sorted(stretches, key=lambda one: -one.share)[:MOST_SAID]
    more = len(stretches) - len(longest)
    return ", ".join([*map(_render_words, longest), *([f"and {more:,} more"] if more else [])])


def _describe_marks(marks: Iterable[Mark]) -> markupsafe.Markup:
    """The marks as JSON: ``[title, anchor, colour, [[begin, length], …], colour of its text]`` of each."""
    data = [
        [
            names.clean(mark.title),
            mark.anchor,
            write_css_colour(mark.colour),
            [[round(number, 7) for number in span] for span in mark.spans],
            _choose_ink(mark.colour),
        ]
        for mark in marks
    ]
    return jinja2.utils.htmlsafe_json_dumps(data, separators=(",", ":"))


def _place_dots(points: Iterable[tuple[float, float]]) -> str:
    """A path of lines without length, which round ends make dots."""
    return "".join(f"M{1000 * x:.5g} {100 - 100 * y:.4g}h0" for x, y in points)


def _split_lines(text: str) -> str:
    """Text of several lines without control characters."""
    return "\n".join(re.sub(r"\S.*", lambda found: names.clean(found[0]), line) for line in text.splitlines())


def _quote_css(text: str) -> str:
    """The content of a string of CSS; every unusual character is an escape."""
    return "".join(each if _PLAIN.fullmatch(each) and each.isascii() else f"\\{ord(each):x} " for each in text)


def _encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def pack(files: Mapping[str, SourceFile]) -> str:
    """Packs files as base64 of compressed JSON; an empty text without files.

    The JSON has ``blocks``, a list of texts, and ``files``: by path ``[indices of blocks, first, last]``. A file is its
    blocks, joined by :data:`BETWEEN`; ``first`` and ``last`` enclose the part that is shown first, in units of UTF-16,
    of which strings in a browser consist.
    """
    if not files:
        return ""
    blocks: dict[str, int] = {}
    table = {}
    for path, file in files.items():
        indices = [blocks.setdefault(block, len(blocks)) for block in file.text.split(BETWEEN)]
        ends = file.own or (0, len(file.text))
        table[path] = [indices, *(_count_utf16_units(file.text[:end]) for end in ends)]
    text = units.printable_json(json.dumps({"blocks": list(blocks), "files": table}, ensure_ascii=False))
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 6, mtime=0)).decode("ascii")


def _count_utf16_units(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2

"""A document: the content of a result, in blocks that the terminal, Markdown and HTML render in their own way.

Words and figures are written once, in the blocks. If a format has no room for a block, such as the details of 600
kernels on a terminal, the block says in ``on`` which formats show it. Texts may have any content: each renderer makes
them harmless. A colour is ``#rrggbb``, or one of :data:`THEME_COLOURS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Flag, auto
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

from .. import units
from ..analysis.comparison_words import format_signed
from . import names, palette


class ShownIn(Flag):
    """The output formats that show a block, a column or a note."""

    TERMINAL = auto()
    MARKDOWN = auto()
    PAGE = auto()
    BRIEF = auto()
    PAPER = MARKDOWN | PAGE
    SCREEN = TERMINAL | BRIEF
    EVERYWHERE = TERMINAL | MARKDOWN | PAGE | BRIEF


LEAD, GOOD, BAD, WARN, NOTE = "lead", "good", "bad", "warn", "note"
"""Tones: the answer, an improvement, a loss or failure, a warning, and additional information."""

THEME_COLOURS = ("good", "bad", "muted", "interval")
"""Colours that a page draws according to its theme."""

FEW_ROWS = 12
"""A table of at most this number of rows has no filter."""

FIRST_ROWS, ROWS_SHOWN = 20, 30
"""A table of more than the second number of rows shows the first number of them on a page, until all are asked for."""

MOST_ROWS = 1000
"""The most rows of a table that a terminal, Markdown or a page shows. The CSV file has all rows."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A part of a document."""

    on: ShownIn = ShownIn.EVERYWHERE  # the formats that show it

    @property
    def kind(self) -> str:
        """Returns the name by which the templates of pages choose the block's macro."""
        return type(self).__name__


@dataclass(frozen=True)
class Sentence(Block):
    """A paragraph. Text in backticks is code."""

    text: str
    tone: str = ""


@dataclass(frozen=True)
class Item:
    """An entry of a list."""

    text: str
    tone: str = ""
    hint: str = ""  # what to do about it
    places: tuple[tuple[str, str], ...] = ()  # kernels that it is about: the name, and the anchor of its row
    more: int = 0  # the number of further kernels
    numbers: str = ""  # the kernels by their numbers, for formats without links
    log: str = ""  # lines that a page shows on demand, and of which a terminal shows the last
    place: str = ""  # the file with the whole log, for a terminal
    on: ShownIn = ShownIn.EVERYWHERE
    command: str = ""  # the command that tries it, for the brief form and to copy from a page

    @property
    def numbered(self) -> str:
        """Returns the text with the numbers of its kernels before the full stop."""
        if not self.numbers:
            return self.text
        stop = "." if self.text.endswith(".") else ""
        return f"{self.text.removesuffix('.')} ({self.numbers}){stop}"


@dataclass(frozen=True)
class Items(Block):
    """A bulleted list."""

    entries: tuple[Item, ...]


@dataclass(frozen=True)
class Answers(Block):
    """Questions that a reader has, each with its answer."""

    entries: tuple[tuple[str, Item], ...]
    on: ShownIn = field(default=ShownIn.PAGE, kw_only=True)


@dataclass(frozen=True)
class Stretch:
    """A coloured piece of a bar, for one part of the whole."""

    share: float  # its length as a share of the bar's whole
    colour: str
    title: str
    words: str = ""  # the text that the pointer shows; by default the title and the share
    left: float | None = None  # if it begins, as a share; ``None`` if it follows the one before
    fill: str = "█"  # its character on a terminal, which tells neighbours apart without colours


@dataclass(frozen=True)
class Bar(Block):
    """A bar over the whole width."""

    stretches: tuple[Stretch, ...]
    whole: float = 1.0  # the sum of shares that fills the bar


@dataclass(frozen=True)
class Mark:
    """A kernel or another item that runs several times in a timeline, and has a row in a table of the page."""

    title: str
    anchor: str  # of its row; empty if it has none
    colour: str
    lane: str  # the name of the lane that it is drawn below
    spans: tuple[tuple[float, float], ...]  # begin and length of each time, as shares of the axis


@dataclass(frozen=True)
class TimelineChart(Block):
    """Lanes over one time axis. ``start`` and length of a stretch are shares of the axis. A page zooms into them."""

    lanes: tuple[tuple[str, tuple[Stretch, ...]], ...]  # the name and the stretches of each lane
    ticks: tuple[tuple[float, str], ...]  # the place, as a share, and the text of each tick
    legend: tuple[tuple[str, str], ...]  # a colour and its meaning
    title: str = ""  # what it shows, for who does not see it
    marks: tuple[Mark, ...] = ()
    span_s: float = 0.0  # the seconds of the axis, for what a page says of marks


@dataclass(frozen=True)
class Series:
    """Points of one kind: their name, colour, and places as shares of the width and of the height."""

    title: str
    colour: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Sparkline(Block):
    """Points over an axis, in a small picture."""

    title: str  # what it shows, for who does not see it
    series: tuple[Series, ...]
    low: str  # the text at the lower end of the vertical axis
    high: str
    ends: tuple[str, str]  # the texts at the ends of the horizontal axis
    on: ShownIn = field(default=ShownIn.PAGE, kw_only=True)


@dataclass(frozen=True)
class FlameGraph(Block):
    """Stacks as bars over each other, each as wide as its time.

    A page shows the words of a bar if the pointer rests on it.
    """

    levels: tuple[tuple[Stretch, ...], ...]  # from the outermost function; ``left`` and length are shares of the width
    title: str = ""  # what it shows, for who does not see it
    on: ShownIn = field(default=ShownIn.PAGE, kw_only=True)


@dataclass(frozen=True)
class Note:
    """A line below the text of a cell."""

    text: str
    on: ShownIn = ShownIn.EVERYWHERE
    tone: str = NOTE
    whole: bool = False  # whether a terminal wraps it; otherwise it is cut to one line


@dataclass(frozen=True)
class Cell:
    """A cell of a table: a value and how it is shown."""

    text: str
    value: float | None = None  # the number that the column is sorted by
    notes: tuple[Note, ...] = ()
    colour: str = ""  # of a square before the text
    fill: str = ""  # the character of the row's stretch in a bar, before the text on a terminal
    tone: str = ""
    bar: Bar | None = None  # a terminal and Markdown show a bar of parts in words, and none of placed stretches
    link: str = ""  # the address of a file beside the page


Shorten = Callable[[Sequence[str], int], Sequence[str]]
"""Shortens the texts of a column to the given width in columns of a terminal."""


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    title: str
    right: bool = True
    hint: str = ""  # what it means: shown when the pointer rests on the title
    spare: int = 0  # of the columns that a narrow terminal leaves out, the largest number goes first; 0 stays
    least: int = 0  # the width to which a terminal may cut or wrap its texts; 0 keeps them whole
    wraps: bool = False  # whether its texts are wrapped if they would be cut
    shorten: Shorten | None = None  # how its texts are cut
    most: int = 0  # the longest text outside of a terminal; 0 has no limit
    short: str = ""  # a shorter title for a terminal
    on: ShownIn = ShownIn.EVERYWHERE


def make_text_column(title: str, **fields: object) -> Column:
    """Makes a column of words, which a narrow terminal may cut."""
    return Column(title, **{"right": False, "least": 16, **fields})  # type: ignore[arg-type]


def make_kernel_column(title: str, most: int) -> Column:
    """Makes a column of shortened but unique kernel names.

    In Markdown and HTML, a name has at most ``most`` characters.
    """
    return make_text_column(title, shorten=names.shorten_uniquely, most=most)


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    cells: tuple[Cell, ...]
    details: Callable[[], Iterable[Block]] | None = None  # blocks that a page shows below the row on demand
    anchor: str = ""  # the name by which links of the page lead to the row
    tone: str = ""
    late: bool = False  # a terminal shows it after the others, a page in its place if it shows all rows


@dataclass(frozen=True)
class Table(Block):
    """A table, which a page can sort by each column and filter."""

    columns: tuple[Column, ...]
    rows: Sequence[Row]
    main: int = 0  # the index of the column with the name, which stays in view
    total: Row | None = None  # a last row that stays at the end
    filter: str = ""  # where a filter searches, in words; empty for no filter
    most: int = 0  # the number of rows that formats of ``cut_on`` show; 0 for all
    cut_on: ShownIn = ShownIn.SCREEN | ShownIn.MARKDOWN
    more: str = ""  # what to say of the rows that are left out: ``in tables/retunes.csv``
    every: int = 0  # the number of all rows, if ``rows`` has only the first of them
    rest: Row | None = None  # a row for all that are left out, instead of those words
    titled: bool = True  # whether a terminal shows the titles of the columns


@dataclass(frozen=True)
class Facts(Block):
    """Pairs of a name and a text, which may have several lines; some have a tone."""

    rows: tuple[tuple[str, str] | tuple[str, str, str], ...]


@dataclass(frozen=True)
class Commands(Block):
    """What to type: the text in one piece, and why. ``label`` stands before the first one."""

    entries: tuple[tuple[str, str], ...]
    label: str = "Next"


@dataclass(frozen=True)
class FileText(Block):
    """A file of :attr:`Document.files`, to read and copy. ``place`` is its key there and its path."""

    place: str
    on: ShownIn = field(default=ShownIn.PAGE, kw_only=True)


@dataclass(frozen=True)
class Picture(Block):
    """A drawing as the content of an SVG file. ``title`` describes it if it is not seen."""

    title: str
    svg: bytes
    on: ShownIn = field(default=ShownIn.PAGE, kw_only=True)


@dataclass(frozen=True)
class Beside(Block):
    """Tables of the same columns beside each other, each with a title. A terminal joins their rows by the names."""

    tables: tuple[tuple[str, Table], ...]
    shown: tuple[str, ...] = ()  # the titles that come first if not all fit; empty for the first ones
    more: str = ""  # what to say of the others on a terminal: ``graphs; all are in report.html``


@dataclass(frozen=True)
class Fold(Block):
    """Blocks that a page shows on demand."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Section(Block):
    """A heading with the blocks below it. A section without blocks is left out."""

    title: str
    blocks: tuple[Block, ...]
    tone: str = ""
    short: str = ""  # its name in the page's list of sections
    note: str = ""  # what all figures below it refer to
    quiet: bool = False  # whether a terminal leaves the heading out, because the first sentence says as much
    beside: bool = False  # whether a page shows its blocks beside each other


@dataclass(frozen=True)
class SourceFile:
    """A file to read and copy. ``own`` are the first and the last character of the part that is shown first."""

    text: str
    own: tuple[int, int] | None = None


@dataclass(frozen=True)
class Document:
    """The content of a report, for all formats: a title, lines below the title, and blocks."""

    title: str
    about: tuple[str, ...] = ()  # lines below the title: the machine, the sides of a comparison
    blocks: tuple[Block, ...] = ()
    files: Mapping[str, SourceFile] = field(default_factory=dict)  # texts by path, for :class:`FileText`
    wide: bool = False  # whether it uses the whole width of a wide terminal


Shown = TypeVar("Shown")


def make_table(
    items: Iterable[Shown],
    list_cells: Callable[[Shown], Iterable[tuple[Column, Cell]]],
    make_row: Callable[[Shown, tuple[Cell, ...]], Row] = lambda item, cells: Row(cells),
    **fields: Any,
) -> Table:
    """A table with a row for each item.

    Args:
        items: what the rows are about.
        list_cells: the cells of an item, each beside its column; the columns are the same for all items.
        make_row: makes the row from its cells.
        fields: further fields of the table.
    """
    columns: tuple[Column, ...] = ()
    rows = []
    for item in items:
        columns, cells = zip(*list_cells(item), strict=True)
        rows.append(make_row(item, cells))
    return Table(columns, rows, **fields)


def keep_shown_rows(table: Table, form: ShownIn) -> tuple[list[Row], int]:
    """Returns the rows that a format shows, with the row of the sum, and the number of rows that are left out."""
    first = sorted(table.rows, key=lambda row: row.late)
    rows = first[: table.most if table.most and table.cut_on & form else MOST_ROWS]
    left = max(table.every, len(table.rows)) - len(rows)
    last = [table.rest] if left and table.rest else []
    total = [table.total] if table.total else []
    return [*rows, *last, *total], 0 if last else left


def keep_shown_blocks(blocks: Iterable[Block], form: ShownIn) -> list[Block]:
    """Returns the blocks that a format shows, without sections and tables that are empty in this format."""
    return [block for block in blocks if block.on & form and not is_empty(block, form)]


def is_empty(block: object, form: ShownIn) -> bool:
    """Whether a block is empty in a format."""
    if isinstance(block, Section | Fold):
        return not keep_shown_blocks(block.blocks, form)
    if isinstance(block, Items | Commands | Answers):
        return not block.entries
    if isinstance(block, Table | Facts):
        return not block.rows
    return isinstance(block, Sentence) and not block.text


def make_sentences(texts: Iterable[str], tone: str = "", on: ShownIn = ShownIn.EVERYWHERE) -> tuple[Sentence, ...]:
    """A sentence for each text that is not empty."""
    return tuple(Sentence(text, tone, on=on) for text in texts if text)


def make_notes(*texts: str, on: ShownIn = ShownIn.EVERYWHERE, whole: bool = False) -> tuple[Note, ...]:
    """A note for each text that is not empty."""
    return tuple(Note(text, on, whole=whole) for text in texts if text)


def hide_in_brief(section: Section) -> Section:
    """Returns the section, marked so that the brief form leaves it out."""
    return replace(section, on=section.on & ~ShownIn.BRIEF)


WHOLE = palette.GRAPHS[0]
AROUND = 0.25
"""The room before the shortest time, as a share of the difference between the longest and the shortest."""


class TimeChange(NamedTuple):
    """A change of a time: its seconds (negative for a saving), and whether it is known not to be chance."""

    label: str
    delta_s: float
    is_sure: bool = True


def plot_waterfall(before: tuple[str, float], falls: Sequence[TimeChange], after: tuple[str, float]) -> Iterator[Block]:
    """A row for the time before, for each change and for the time after, for a page; nothing without changes.

    Args:
        before: its name and seconds.
        falls: the changes in the order of the rows. The rest of the difference gets a row of its own.
        after: its name and seconds.
    """
    rest_s = after[1] - before[1] - sum(fall.delta_s for fall in falls)
    if not falls or before[1] <= 0:
        return
    if abs(rest_s) >= 0.001 * before[1]:
        falls = [*falls, TimeChange("everything else", rest_s, False)]
    reached = [*accumulate((fall.delta_s for fall in falls), initial=before[1]), after[1]]
    low, high = min(reached), max(reached)
    begin_s = max(0.0, low - AROUND * (high - low))
    axis_s = (high - begin_s) or 1.0
    rows = [_make_row(before[0], units.seconds(before[1]), before[1], WHOLE, begin_s, axis_s, begin_s)]
    for (label, delta_s, is_sure), at_s in zip(falls, reached, strict=False):
        colour = ("good" if delta_s <= 0 else "bad") if is_sure else "muted"
        left_s = at_s + min(delta_s, 0.0)
        rows.append(_make_row(label, format_signed(delta_s), abs(delta_s), colour, left_s, axis_s, begin_s))
    rows.append(_make_row(after[0], units.seconds(after[1]), after[1], WHOLE, begin_s, axis_s, begin_s))
    axis = f"The bars begin at {units.seconds(begin_s)}; " if begin_s else ""
    said = f"{axis}grey: may be chance, or was not measured alone."
    yield Table(
        (make_text_column("from before to after"), Column("time"), make_text_column("change")), rows, on=ShownIn.PAGE
    )
    yield Sentence(f"{said[:1].upper()}{said[1:]}", NOTE, on=ShownIn.PAGE)


def _make_row(label: str, text: str, length_s: float, colour: str, left_s: float, axis_s: float, begin_s: float) -> Row:
    length_s = length_s - begin_s if colour == WHOLE else length_s
    bar = Bar((Stretch(length_s / axis_s, colour, label, text, (left_s - begin_s) / axis_s),))
    return Row((Cell(label), Cell(text), Cell("", bar=bar)))

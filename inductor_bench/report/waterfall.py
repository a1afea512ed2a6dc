"""Draws before and after as a waterfall: each change begins where the previous change ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from .. import units
from ..analysis.comparison_words import format_signed
from . import palette
from .document import NOTE, Bar, Block, Cell, Column, Row, Sentence, ShownIn, Stretch, Table, make_text_column

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

"""Renders tables as CSV, with figures in full precision."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence

from .. import units

_LINE_END = "\r\n"
_FORMULA = ("=", "@", "+", "-", "\t", "\r")


def table_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Renders a table as CSV, without control characters, as the file may be shown on a terminal.

    An apostrophe precedes text that a spreadsheet would read as a formula.
    """
    lines = _CsvLines()
    writer = csv.writer(lines, lineterminator=_LINE_END)
    writer.writerow(map(_safe, header))
    writer.writerows(map(_safe, row) for row in rows)
    return "".join(lines)


class _CsvLines(list[str]):
    """Collects CSV rows and ends them in a line feed.

    The writer's own line end is CR LF, because it then quotes cells that hold a carriage return.
    """

    def write(self, row: str) -> None:
        self.append(row.removesuffix(_LINE_END) + "\n")


def _safe(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    text = units.printable(cell)
    return f"'{text}" if cell.startswith(_FORMULA) else text

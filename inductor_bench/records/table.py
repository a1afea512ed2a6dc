"""Tables that people query: typed columns with their descriptions, and the answer to a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

TEXT, NUMBER, WHOLE, YES_NO = "VARCHAR", "DOUBLE", "BIGINT", "BOOLEAN"
"""The types of columns, as SQL calls them."""


class Column(NamedTuple):
    """All values of a column; ``None`` is what is not known. ``about`` says what they mean, without the unit."""

    name: str
    type: str
    about: str
    values: Sequence[object]


@dataclass(frozen=True)
class Table:
    """A table, column by column. ``about`` says what a row is."""

    name: str
    about: str
    columns: tuple[Column, ...]

    def __len__(self) -> int:
        return len(self.columns[0].values)


@dataclass(frozen=True)
class Answer:
    """What a query gave."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[object]]

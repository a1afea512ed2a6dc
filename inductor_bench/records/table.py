"""Tables for queries: typed columns with descriptions, and the answer to a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

TEXT, NUMBER, WHOLE, YES_NO = "VARCHAR", "DOUBLE", "BIGINT", "BOOLEAN"
"""The SQL types of columns."""


class Column(NamedTuple):
    """A column; a value of ``None`` is unknown. ``about`` describes the values, without the unit."""

    name: str
    type: str
    about: str
    values: Sequence[object]


@dataclass(frozen=True)
class Table:
    """A table, column by column. ``about`` describes a row."""

    name: str
    about: str
    columns: tuple[Column, ...]

    def __len__(self) -> int:
        return len(self.columns[0].values)


@dataclass(frozen=True)
class Answer:
    """The result of a query."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[object]]

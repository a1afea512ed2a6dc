"""How a result becomes text: the protocol of renderers, and the tables of formats that are built of them.

Each kind of result has a table of formats, a :class:`Formats`. The choices and the help of ``--format`` come from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from .. import units
from ..errors import UsageError
from ..store.formats.codec import encode
from .text.layout import Line, used_width

Result = TypeVar("Result")
Result_contra = TypeVar("Result_contra", contravariant=True)


@dataclass(frozen=True)
class View:
    """What a user asks of a report.

    Attributes:
        folder: of the result, as the user would type it; ``None`` where there is none.
        sort: the order of the kernels of a run: ``time``, ``gain`` or ``calls``.
        top: the number of kernels.
        columns: of the console.
    """

    folder: Path | None = None
    sort: str = "time"
    top: int = 10
    columns: int = 100

    @property
    def width(self) -> int:
        """The columns that a report uses of the console."""
        return used_width(self.columns)


class Renderer(Protocol[Result_contra]):
    """Makes text of a result: a ``str`` to be printed as it is, or lines of styled words for the console."""

    def __call__(self, result: Result_contra, view: View, /) -> str | Iterator[Line]: ...


@dataclass(frozen=True)
class Format(Generic[Result]):
    """One row of a table of formats.

    Attributes:
        name: the word after ``--format``.
        render: makes the text.
        shows: the content in a few words, for the help.
        names_folder: whether the text says where the result was written.
    """

    name: str
    render: Renderer[Result]
    shows: str = ""
    names_folder: bool = False


@dataclass(frozen=True)
class Formats(Generic[Result]):
    """The formats of one kind of result; the first is the default.

    Attributes:
        rows: the formats.
        about: begins the help; what the formats show follows where they say it.
        of: the kind of result, in the error of a format that it does not have.
    """

    rows: tuple[Format[Result], ...]
    about: str = ""
    of: str = "this result"

    @property
    def names(self) -> list[str]:
        return [row.name for row in self.rows]

    @property
    def help(self) -> str:
        shown = [row.shows for row in self.rows if row.shows]
        return f"{self.about} {', '.join(shown[:-1])}, or {shown[-1]}." if shown else self.about

    def get(self, name: str) -> Format[Result]:
        """The format of a name. Raises: UsageError: the name is that of another kind of result's format."""
        for row in self.rows:
            if row.name == name:
                return row
        raise UsageError(f"--format {name} is not for {self.of}", f"give one of: {', '.join(self.names)}")

    def with_those_of(self, other: Formats[Any]) -> Formats[Any]:
        """These formats and the further ones of another kind of result: the choices of an option for both."""
        further = (row for row in other.rows if row.name not in self.names)
        return Formats((*self.rows, *further), self.about)


def as_json(result: Any, view: View = View()) -> str:
    """A record as JSON text; that of a run says what ``record.json`` does."""
    return units.printable_json(json.dumps(encode(result), indent=2, ensure_ascii=False, allow_nan=False))


def json_row(shows: str = "") -> Format[Any]:
    """The row that all results which are dataclasses share."""
    return Format("json", as_json, shows)

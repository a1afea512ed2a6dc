"""Format numbers of records: which this version reads, how it upgrades older ones, and what it says about newer ones.

A newer version of the tool that only adds fields, kinds and items keeps the number of the format: older versions read
such a record as far as they know it, and show unknown kinds under their own names. It raises the number if what an
older version would say about the record were wrong.

History of ``record.json``
    1   the first format.
    2   ``program`` describes the program's step, and each kernel has its calls, time and share in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ...errors import InductorBenchError
from ...version import __version__
from . import codec

T = TypeVar("T")

FORMAT = 2


def _without_program(data: dict[str, Any]) -> dict[str, Any]:
    """A record of format 1 as one of format 2. The new fields have defaults, which say that no step was observed."""
    return data


UPGRADES: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _without_program}
"""By format number the function that turns such a record into a record of the next number."""


UPDATE = "update inductor-bench: pip install --upgrade inductor-bench"
_LONGEST_VERSION = 40


class NewerFormatError(InductorBenchError):
    """A record that this version cannot read was written by a newer version of the tool."""


def upgrade(data: dict[str, Any], origin: str) -> dict[str, Any]:
    """The decoded record in the format :data:`FORMAT`.

    Args:
        data: the decoded JSON; it stays unchanged.
        origin: the record's name in messages.

    Raises:
        NewerFormatError: a newer version of the tool wrote the record.
        InductorBenchError: the record has no format number, or one that this version cannot read.
    """
    number = check_format(data, FORMAT, origin, "a record of inductor-bench")
    while number < FORMAT:
        if number not in UPGRADES:
            raise InductorBenchError(f"{origin} has format {number}, which this version can no longer read")
        data = {**UPGRADES[number](data), "format": number + 1}
        number += 1
    return data


def check_format(data: Any, newest: int, origin: str, kind: str, hint: str = "") -> int:
    """The format number of a decoded record, which this version can read if it knows the number.

    Args:
        data: the decoded JSON.
        newest: the largest number that this version reads.
        origin: the record's name in messages.
        kind: what it should be, in words.
        hint: what to do if it is something else.

    Raises:
        NewerFormatError: a newer version of the tool wrote it.
        InductorBenchError: it is something else.
    """
    number = data.get("format") if isinstance(data, dict) else None
    if type(number) is not int:
        raise InductorBenchError(f"{origin} carries no format number, so it is not {kind}", hint)
    if number > newest:
        wrote = f": inductor-bench {_writer(data)} wrote it, and this is {__version__}" if _writer(data) else ""
        raise NewerFormatError(
            f"{origin} has format {number}, newer than the {newest} that this version reads{wrote}", UPDATE
        )
    return number


def decode_record(kind: type[T], data: Any, origin: str, hint: str) -> T:
    """Builds a record from decoded JSON whose format number this version knows.

    Raises:
        NewerFormatError: it cannot be read, and a newer version of the tool wrote it.
        InductorBenchError: it is damaged; ``hint`` says what to do.
    """
    try:
        return codec.decode(kind, data)
    except InductorBenchError as error:
        raise unreadable(data, origin, error.message, error.hint or hint) from error


def unreadable(data: Any, origin: str, reason: str, hint: str = "") -> InductorBenchError:
    """The error for a decoded record that cannot be read: damage, unless a newer version of the tool wrote it."""
    if _is_newer(_writer(data)):
        wrote = f"inductor-bench {_writer(data)} wrote it, and this is {__version__}"
        return NewerFormatError(f"{origin} cannot be read: {reason}; {wrote}", UPDATE)
    return InductorBenchError(f"{origin} is damaged: {reason}", hint)


def _writer(data: Any) -> str:
    """The version of the tool that wrote a record; empty if the record does not say it."""
    written = data.get("tool_version") if isinstance(data, dict) else None
    return written if isinstance(written, str) and len(written) <= _LONGEST_VERSION and written.isprintable() else ""


def _is_newer(version: str) -> bool:
    return _numbers(version) > _numbers(__version__)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"[0-9]+", version.partition("+")[0])[:3]))

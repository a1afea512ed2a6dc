"""The format number of ``record.json``, and the upgrade of older records.

History
    1   the first format.
    2   ``program`` describes the program's step, and each kernel has its calls, time and share in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...errors import InductorBenchError

FORMAT = 2


def _without_program(data: dict[str, Any]) -> dict[str, Any]:
    """A record of format 1 as one of format 2. The new fields have defaults, which say that no step was observed."""
    return data


UPGRADES: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _without_program}
"""By format number the function that turns such a record into a record of the next number."""


class NewerFormatError(InductorBenchError):
    """A record was written by a newer version of the tool."""


def upgrade(data: dict[str, Any], origin: str) -> dict[str, Any]:
    """The decoded record in the format :data:`FORMAT`.

    Args:
        data: the decoded JSON; it stays unchanged.
        origin: the record's name in messages.

    Raises:
        NewerFormatError: a newer version of the tool wrote the record.
        InductorBenchError: the record has no format number, or one that this version cannot read.
    """
    number = data.get("format")
    if type(number) is not int:
        raise InductorBenchError(f"{origin} carries no format number, so it is not a record of inductor-bench")
    if number > FORMAT:
        raise NewerFormatError(
            f"{origin} has format {number}, newer than the {FORMAT} that this version reads",
            "update inductor-bench: pip install --upgrade inductor-bench",
        )
    while number < FORMAT:
        if number not in UPGRADES:
            raise InductorBenchError(f"{origin} has format {number}, which this version can no longer read")
        data = {**UPGRADES[number](data), "format": number + 1}
        number += 1
    return data

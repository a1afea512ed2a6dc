"""The format number of ``record.json`` and the way from older numbers to this one.

History
    1   the first format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...errors import InductorBenchError

FORMAT = 1

UPGRADES: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""From a format number to the function that turns such a record into one of the next number."""


class NewerFormatError(InductorBenchError):
    """A record was written by a newer version of the tool."""


def upgrade(data: dict[str, Any], origin: str) -> dict[str, Any]:
    """Brings a decoded record to :data:`FORMAT`.

    Args:
        data: the decoded JSON; not changed.
        origin: what to call it in a message.

    Raises:
        NewerFormatError: it was written by a newer version of the tool.
        InductorBenchError: it carries no format number, or one that is not read any more.
    """
    number = data.get("format")
    if not isinstance(number, int):
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

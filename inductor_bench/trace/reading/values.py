"""Conversion of decoded JSON values of a trace into numbers, texts and tuples."""

from __future__ import annotations

import re
from typing import Any

_LARGEST_REAL = 1e30
"""Bound of real numbers: their squares and sums stay finite."""


def whole_number(value: object) -> int | None:
    """The value, or the digits in a text, as a whole number below 2**62; ``None`` for anything else."""
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**62:
        return None
    return int(value)


def real_number(value: object) -> float | None:
    """The value as a real number below 1e30; ``None`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LARGEST_REAL:
        return None
    return float(value)


def printable(value: object) -> str:
    """The value as a text that UTF-8 can encode: JSON may hold half of a surrogate pair."""
    return str(value).encode("utf-8", "replace").decode()


def size_lists(values: list[Any]) -> tuple[Any, ...]:
    """The sizes of each argument as a tuple; ``()`` for an argument without sizes."""
    return tuple(_sizes(value) if isinstance(value, list) else () for value in values)


def _sizes(values: list[Any]) -> tuple[Any, ...]:
    """Nested lists of sizes as tuples; an entry that is not a whole number becomes 0."""
    return tuple(_sizes(value) if isinstance(value, list) else whole_number(value) or 0 for value in values)

"""The numbers of a trace's events: how they are found in an event's text, and how a time is read from its digits."""

from __future__ import annotations

import re
from typing import Any

Fields = dict[str, Any]
"""A decoded event."""

TIMES = ("ts", "dur")
IDS = (
    *("id", "External id", "Record function id", "Ev Idx", "correlation", "Sequence number", "Fwd thread id", "queued"),
    *("Python id", "Python parent id", "Python module id"),
)
NUMBERS = (*TIMES, *IDS, "memory bandwidth (GB/s)")
"""The fields whose numbers differ between events of one shape. Every other part of an event belongs to its shape."""

_BOUND = 4e15
"""Upper bound of ids and of times in microseconds: the sum of two such times fits into 64 bits in nanoseconds."""

_WHOLE = rb"-?[0-3]?[0-9]{1,15}"


def _field_pattern(names: tuple[str, ...], fraction: bytes) -> bytes:
    alternatives = b"|".join(re.escape(name.encode()) for name in names)
    return rb'"(?:' + alternatives + rb')"\s*:\s*(?=' + _WHOLE + fraction + rb"(?![0-9.eE+-]))"


NUMBER_FIELD = re.compile(
    b"("
    + _field_pattern(IDS, b"")
    + b"|"
    + _field_pattern((*TIMES, NUMBERS[-1]), rb"(?:\.[0-9]{1,18})?")
    + b")(-?[0-9.]+)"
)
"""A field of ``NUMBERS`` and its digits. A number that is out of range, or written in another way, stays in the shape,
so that each such event is decoded and checked."""


def stated_value(fields: Fields, name: str) -> object:
    """The value of a field as an event holds it: at its top level or in its arguments."""
    arguments = fields.get("args")
    value = fields.get(name)
    return arguments.get(name) if value is None and isinstance(arguments, dict) else value


def number_in(fields: Fields, name: str) -> int | float | None:
    """The number in a field; ``None`` where it is out of range, no number, or an id that is not whole.

    A text of digits is read as its number.
    """
    value = stated_value(fields, name)
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,16}(\.[0-9]{1,18})?", value):
        value = float(value) if "." in value else int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _BOUND:
        return None
    if name in IDS:
        return int(value) if value == int(value) else None
    return value


def nanoseconds(text: bytes) -> int:
    """A time of the trace (microseconds, up to three decimals) in whole nanoseconds, exactly."""
    if text[-4:-3] == b"." and text[-3:].isdigit():
        return int(text[:-4] + text[-3:])
    if b"e" in text or b"E" in text:
        return round(float(text) * 1000)
    whole, _, fraction = text.partition(b".")
    return int(whole + (fraction + b"000")[:3])

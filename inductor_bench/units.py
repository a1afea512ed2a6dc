"""Formats numbers with three significant digits and decimal prefixes, and makes text safe for a terminal.

This file imports nothing of the package. A function of a number returns an en dash for a value that was not measured:
``None``, NaN or infinity.
"""

from __future__ import annotations

import math
import re

ELLIPSIS = "…"
"""Stands for the part of a name that is left out, and fits anything where a name is typed."""

MISSING = "\N{EN DASH}"

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""All control characters except tab and line end, separators of lines, and what changes the direction of text."""

_FLOPS = ((1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP"), (1.0, "FLOP"))


def printable(text: str) -> str:
    """The text with a question mark for each control character, except tabs and line ends."""
    return _CONTROL.sub("?", text)


def printable_json(text: str) -> str:
    """JSON text with the same value, in which control characters are escaped."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


ROUNDING_S = 1e-15
"""Seconds below which a time is an error of rounding, such as that of a difference of two steps."""


def seconds(value: float | None) -> str:
    """A time in seconds: ``1.23 µs``, ``0.108 ms``, ``15.7 ms``, ``2.31 s``.

    Times from 0.1 ms on are in milliseconds and times from 0.1 µs on in microseconds, so that the rows of a table are
    easy to compare.
    """
    if value is None or not math.isfinite(value):
        return MISSING
    if abs(value) < ROUNDING_S:
        return "0 s"
    for scale, unit in _TIMES:
        smallest = 1.0 if unit == "s" else 0.1
        digits = _format_significant(value / scale)
        if abs(float(digits)) >= smallest or unit == "ns":
            return f"{digits} {unit}"
    raise AssertionError("the last unit always answers")


def duration(value: float | None) -> str:
    """Seconds of a wait: ``45.2 s``, ``3 min 20 s``, ``20 min``, ``1 h 5 min``; whole seconds from a minute on."""
    if value is None or not math.isfinite(value) or value < 59.5:
        return seconds(value)
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min"), (rest, "s"))
    return " ".join(f"{count} {unit}" for count, unit in parts if count)


def size(value: float | None) -> str:
    """An amount of memory in bytes, with decimal prefixes: ``512 B``, ``1.23 MB``, ``11.3 GB``."""
    return _format_scaled(value, _SIZES)


LARGEST_SIZE = 2.0**63


def parse_size(text: str) -> int:
    """The number of bytes in a text such as ``64MB``, ``1.5 GB``, ``512KiB`` or ``1000``.

    Raises:
        ValueError: the text is not of this form, or the size is larger than any memory.
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a size such as 64MB, 1GB or 512KiB")
    number, prefix, binary = found.groups()
    power = " kmgt".index(prefix.lower() or " ")
    value = float(number) * float((1024 if binary else 1000) ** power)
    if value > LARGEST_SIZE:
        raise ValueError(f"{text[:20]}… is more than any memory holds")
    return round(value)


def rate(value: float | None) -> str:
    """Bytes per second: ``812 GB/s``, ``4.02 TB/s``."""
    return _format_per_second(value, _SIZES)


def flops(value: float | None) -> str:
    """A number of floating-point operations: ``142 GFLOP``."""
    return _format_scaled(value, _FLOPS)


def flop_rate(value: float | None) -> str:
    """Floating-point operations per second: ``18.6 TFLOP/s``."""
    return _format_per_second(value, _FLOPS)


def percent(value: float | None) -> str:
    """A share (0 to 1) in percent: ``0.446`` is ``44.6%``. One decimal below 99.95%; ``<0.1%`` if it rounds to 0."""
    if value is None or not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0%"
    if 0 < value < 0.0005:
        return "<0.1%"
    return f"{value * 100:.0f}%" if abs(value) >= 0.9995 else f"{value * 100:.1f}%"


def whole_percent(value: float | None) -> str:
    """A share (0 to 1) in percent without decimals: ``0.446`` is ``45%``; ``<1%`` if it rounds to 0."""
    if value is None or not math.isfinite(value):
        return MISSING
    return "<1%" if 0 < value < 0.005 else f"{value * 100:.0f}%"


def count(value: float | None) -> str:
    """A number of things with thousands separators: ``1,234``; a mean that is not whole keeps one decimal."""
    if value is None or not math.isfinite(value):
        return MISSING
    rounded = round(value, 1)
    return f"{rounded:,.0f}" if rounded == int(rounded) else f"{rounded:,.1f}"


def _format_per_second(value: float | None, units: tuple[tuple[float, str], ...]) -> str:
    text = _format_scaled(value, units)
    return text if text == MISSING else f"{text}/s"


def _format_scaled(value: float | None, units: tuple[tuple[float, str], ...]) -> str:
    if value is None or not math.isfinite(value):
        return MISSING
    for scale, unit in units:
        digits = _format_significant(value / scale)
        if abs(float(digits)) >= 1:
            return f"{digits} {unit}" if scale > 1 else f"{value:.0f} {unit}"
    return f"{value:.0f} {units[-1][1]}" if value == int(value) else f"{_format_significant(value)} {units[-1][1]}"


def _format_significant(value: float) -> str:
    """Three significant digits without an exponent; whole digits are never dropped (``1234`` stays)."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.3g}")
    decimals = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:.{decimals}f}" if abs(rounded) < 1000 else f"{value:.0f}"

"""Frozen dataclasses to JSON and back, by their type hints. Knows nothing of files or of any one record.

What comes from outside is validated here and nowhere else: types, the range of numbers, and texts that name files.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ..errors import InductorBenchError
from ..records.forms import Form

T = TypeVar("T")

LARGEST, SMALLEST = 1e100, 1e-100
"""The range of a float's magnitude beside 0. Sums, products and ratios of two stay finite within it."""

LARGEST_INT = 1 << 64
"""Above every count, size and address."""


def encode(value: Any) -> Any:
    """Turns a dataclass, or a container of them, into what ``json.dumps`` takes.

    Raises:
        TypeError: for a type that the format does not have. Infinite and NaN numbers become ``None``, because JSON
            has no word for them and readers disagree about the unofficial ones.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"no JSON form for {type(value).__name__}")


def decode(kind: type[T], data: Any) -> T:
    """Builds a ``kind`` from decoded JSON. Unknown keys are ignored; keys with a default may be missing.

    Raises:
        InductorBenchError: the data does not fit ``kind``; the message names the place.
    """
    result: T = _decode(kind, data, kind.__name__)
    return result


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _decode(kind: Any, data: Any, place: str) -> Any:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _decode_optional(kind, data, place)
    if origin is Annotated:
        return _decode_form(kind, data, place)
    if kind is Any:
        return data
    if isinstance(kind, type) and is_dataclass(kind):
        return _decode_dataclass(kind, data, place)
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(data)
        except ValueError:
            raise _misfit(place, kind.__name__, data) from None
    if origin is tuple:
        return _decode_tuple(kind, data, place)
    if origin is dict:
        if not isinstance(data, dict):
            raise _misfit(place, "an object", data)
        value_kind = get_args(kind)[1]
        return {key: _decode(value_kind, item, f"{place}.{key}") for key, item in data.items()}
    return _decode_scalar(kind, data, place)


def _decode_scalar(kind: Any, data: Any, place: str) -> Any:
    if kind is float and isinstance(data, int | float) and not isinstance(data, bool):
        if data and not SMALLEST <= abs(data) <= LARGEST:  # nor is NaN within
            wanted = "a number that can be measured" if abs(data) < math.inf else "a finite number"
            raise _misfit(place, wanted, data)
        return float(data)
    if kind is int and isinstance(data, int | float) and not isinstance(data, bool):
        if not abs(data) <= LARGEST_INT or data != int(data):
            raise _misfit(place, "a whole number of 64 bits", data)
        return int(data)
    if isinstance(kind, type) and isinstance(data, kind) and (kind is bool or not isinstance(data, bool)):
        return data
    raise _misfit(place, getattr(kind, "__name__", str(kind)), data)


def _decode_form(kind: Any, data: Any, place: str) -> Any:
    """What an ``Annotated`` type says beyond its type: a :class:`Form` of its values."""
    plain, form = get_args(kind)
    assert isinstance(form, Form), f"{place}: {form} is no form"
    if plain is float:  # any that is finite
        if not isinstance(data, int | float) or isinstance(data, bool) or not form.fits(data):
            raise _misfit(place, form.name, data)
        return float(data)
    value = _decode(plain, data, place)
    if not form.fits(value):
        raise _misfit(place, form.name, data)
    return value


def _decode_optional(kind: Any, data: Any, place: str) -> Any:
    options = [option for option in get_args(kind) if option is not NoneType]
    if data is None and len(options) < len(get_args(kind)):
        return None
    if len(options) != 1:
        raise TypeError(f"{place}: a union of several types has no JSON form")
    return _decode(options[0], data, place)


def _decode_tuple(kind: Any, data: Any, place: str) -> tuple[Any, ...]:
    if not isinstance(data, list | tuple):
        raise _misfit(place, "a list", data)
    items = get_args(kind)
    if len(items) == 2 and items[1] is Ellipsis:
        if items[0] is Any:
            return tuple(_freeze(item, place) for item in data)
        return tuple(_decode(items[0], item, f"{place}[{index}]") for index, item in enumerate(data))
    if len(items) != len(data):
        raise _misfit(place, f"a list of {len(items)}", data)
    pairs = zip(items, data, strict=True)
    return tuple(_decode(item_kind, item, f"{place}[{index}]") for index, (item_kind, item) in enumerate(pairs))


def _freeze(data: Any, place: str) -> Any:
    if isinstance(data, dict):
        raise _misfit(place, "lists of plain values", data)
    return tuple(_freeze(item, place) for item in data) if isinstance(data, list | tuple) else data


def _decode_dataclass(kind: Any, data: Any, place: str) -> Any:
    if not isinstance(data, dict):
        raise _misfit(place, f"an object ({kind.__name__})", data)
    hints = _hints(kind)
    values = {}
    for item in fields(kind):
        if item.name in data:
            values[item.name] = _decode(hints[item.name], data[item.name], f"{place}.{item.name}")
        elif item.default is MISSING and item.default_factory is MISSING:
            raise InductorBenchError(f"{place}.{item.name} is missing")
    return kind(**values)


def _misfit(place: str, wanted: str, data: Any) -> InductorBenchError:
    shown = _shown(data)
    return InductorBenchError(f"{place} should be {wanted} but is {shown}")


def _shown(data: Any) -> str:
    if isinstance(data, int) and abs(data) > LARGEST_INT:  # its digits may be more than Python writes out
        return f"a number of {data.bit_length()} bits"
    text = repr(data[:60] if isinstance(data, str | list) else data)
    return text if len(text) <= 60 else text[:57] + "..."

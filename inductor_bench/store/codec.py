"""Frozen dataclasses to JSON and back, by their type hints. Knows nothing of files or of any one record."""

from __future__ import annotations

import math
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ..errors import InductorBenchError

T = TypeVar("T")


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
    return get_type_hints(kind)


def _decode(kind: Any, data: Any, place: str) -> Any:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _decode_optional(kind, data, place)
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
        if not math.isfinite(data):
            raise _misfit(place, "a finite number", data)
        return float(data)
    if kind is int and isinstance(data, float) and data.is_integer():
        return int(data)
    if isinstance(kind, type) and isinstance(data, kind) and (kind is bool or not isinstance(data, bool)):
        return data
    raise _misfit(place, getattr(kind, "__name__", str(kind)), data)


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
            return tuple(_freeze(item) for item in data)
        return tuple(_decode(items[0], item, f"{place}[{index}]") for index, item in enumerate(data))
    if len(items) != len(data):
        raise _misfit(place, f"a list of {len(items)}", data)
    pairs = zip(items, data, strict=True)
    return tuple(_decode(item_kind, item, f"{place}[{index}]") for index, (item_kind, item) in enumerate(pairs))


def _freeze(data: Any) -> Any:
    return tuple(_freeze(item) for item in data) if isinstance(data, list | tuple) else data


def _decode_dataclass(kind: Any, data: Any, place: str) -> Any:
    if not isinstance(data, dict):
        raise _misfit(place, f"an object ({kind.__name__})", data)
    hints = _hints(kind)
    values = {}
    for item in fields(kind):
        if item.name in data:
            values[item.name] = _decode(hints[item.name], data[item.name], f"{place}.{item.name}")
        elif item.default is MISSING and item.default_factory is MISSING:
            raise InductorBenchError(f"the record lacks {place}.{item.name}")
    return kind(**values)


def _misfit(place: str, wanted: str, data: Any) -> InductorBenchError:
    shown = repr(data)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return InductorBenchError(f"the record is damaged: {place} should be {wanted} but is {shown}")

"""Converts frozen dataclasses to JSON data and back, by their type hints, and distinguishes the formats of records."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from itertools import repeat
from operator import attrgetter
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from ..errors import InductorBenchError
from ..records.base import IN_RECORD, INLINE, Form
from ..version import RECORD_FORMAT, __version__

# Converts frozen dataclasses to JSON data and back, by their type hints.
#
# All validation of untrusted records happens here: types, ranges of numbers, and texts that name files.


T = TypeVar("T")

LARGEST, SMALLEST = 1e100, 1e-100
"""The range of a float's magnitude, apart from 0. Sums, products and ratios of two numbers in this range are finite."""

LARGEST_INT = 1 << 64
"""Upper bound of whole numbers. Counts, sizes and addresses are smaller."""


def encode(value: Any) -> Any:
    """The JSON data of a dataclass or a container of dataclasses, for ``json.dumps``.

    Infinite and NaN numbers become ``None``, because JSON has no form for them.

    Raises:
        TypeError: a value has a type without a JSON form.
    """
    if value is None or (isinstance(value, str | int) and not isinstance(value, Enum)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {key.name: encode(key.value_in(value)) for key in _list_keys(type(value))}
    raise TypeError(f"no JSON form for {type(value).__name__}")


def encode_sparse(value: Any) -> Any:
    """As :func:`encode`, without the fields of dataclasses that are at their defaults; :func:`decode` reads it back."""
    if is_dataclass(value) and not isinstance(value, type):
        held = ((key, key.value_in(value)) for key in _list_keys(type(value)))
        return {key.name: encode_sparse(item) for key, item in held if key.default is MISSING or item != key.default}
    if isinstance(value, dict):
        return {str(key): encode_sparse(item) for key, item in value.items()}
    return [encode_sparse(item) for item in value] if isinstance(value, list | tuple) else encode(value)


def list_key_names(kind: type) -> tuple[str, ...]:
    """The keys of the JSON object of a dataclass, in order."""
    return tuple(key.name for key in _list_keys(kind))


class _FieldKey(NamedTuple):
    """A key of the JSON object of a dataclass. ``default`` is ``MISSING`` if it has none."""

    name: str
    value_in: Callable[[Any], Any]
    default: Any


@cache
def _list_keys(kind: Any) -> tuple[_FieldKey, ...]:
    """The keys of a dataclass in order, with those of inline dataclasses in their place."""
    found = [_FieldKey(path.rpartition(".")[2], attrgetter(path), default) for path, default in _list_paths(kind)]
    if len({key.name for key in found}) < len(found):
        raise TypeError(f"{kind.__name__}: two fields have the same key")
    return tuple(found)


def _list_paths(kind: Any) -> Iterator[tuple[str, Any]]:
    """The attributes that become keys, as dotted paths, with their defaults."""
    hints = get_type_hints(kind, include_extras=True)
    for item in _is_recorded(kind):
        inner = _find_inline_kind(hints[item.name])
        if inner is not None:
            yield from ((f"{item.name}.{path}", default) for path, default in _list_paths(inner))
        else:
            yield item.name, item.default if item.default_factory is MISSING else item.default_factory()


def _is_recorded(kind: Any) -> Iterator[Field[Any]]:
    return (item for item in fields(kind) if item.metadata.get(IN_RECORD, True))


def _find_inline_kind(hint: Any) -> Any:
    """The dataclass of an ``Inline`` field; ``None`` for other fields."""
    kind, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    return kind if INLINE in marks else None


def decode(kind: type[T], data: Any) -> T:
    """Builds a ``kind`` from decoded JSON. Unknown keys are ignored; keys with a default may be missing.

    Raises:
        InductorBenchError: the data does not fit ``kind``; the message names the field.
    """
    wanted: Any = kind
    try:
        result: T = _find_decoder(wanted)(data)
    except _MisfitError as misfit:
        place = getattr(kind, "__name__", str(kind)) + "".join(reversed(misfit.place))
        raise InductorBenchError(f"{place} {misfit.what}", name="damaged") from None
    return result


Decoder = Callable[[Any], Any]


class _MisfitError(Exception):
    """An invalid value: ``what`` describes it, ``place`` are the steps to it, innermost first."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.place: list[str] = []


def _make_misfit_error(wanted: str, data: Any) -> _MisfitError:
    return _MisfitError(f"should be {wanted} but is {_shorten_data(data)}")


def _shorten_data(data: Any) -> str:
    if isinstance(data, int) and abs(data) > LARGEST_INT:  # Python refuses to convert very long integers to text
        return f"a number of {data.bit_length()} bits"
    text = repr(data[:60] if isinstance(data, str | list) else data)
    return text if len(text) <= 60 else text[:57] + "..."


@cache
def _find_decoder(kind: Any) -> Decoder:
    """The decoder of a type; it is made once for each type."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _make_optional_decoder(kind)
    if origin is Annotated:
        return _make_formed_decoder(*get_args(kind))
    if kind is Any:
        return lambda data: data
    if is_dataclass(kind):
        return _make_dataclass_decoder(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _make_enum_decoder(kind)
    if origin is tuple:
        return _make_tuple_decoder(get_args(kind))
    if origin is dict:
        return _make_dict_decoder(_find_decoder(get_args(kind)[1]))
    return {float: _decode_float, int: _decode_int}.get(kind) or _make_plain_decoder(kind)


def _decode_float(data: Any) -> float:
    if type(data) is float and SMALLEST <= data <= LARGEST:
        return data
    if not isinstance(data, int | float) or isinstance(data, bool):
        raise _make_misfit_error("float", data)
    if data and not SMALLEST <= abs(data) <= LARGEST:  # also true for NaN
        raise _make_misfit_error("a number that can be measured" if abs(data) < math.inf else "a finite number", data)
    return float(data)


def _decode_int(data: Any) -> int:
    if type(data) is int and 0 <= data <= LARGEST_INT:
        return data
    if not isinstance(data, int | float) or isinstance(data, bool):
        raise _make_misfit_error("int", data)
    if not abs(data) <= LARGEST_INT or data != int(data):
        raise _make_misfit_error("a whole number of 64 bits", data)
    return int(data)


def _make_plain_decoder(kind: type) -> Decoder:
    def decode_plain(data: Any) -> Any:
        if type(data) is kind:
            return data
        raise _make_misfit_error(kind.__name__, data)

    return decode_plain


def _make_formed_decoder(kind: type, form: Form) -> Decoder:
    """The decoder of a type with a :class:`Form`; it replaces the range check of floats."""
    decode_plain = _find_decoder(kind)

    def decode_formed(data: Any) -> Any:
        if kind is float:
            value = data if isinstance(data, int | float) and not isinstance(data, bool) else math.nan
        else:
            value = decode_plain(data)
        if not form.fits(value):
            raise _make_misfit_error(form.name, data)
        return kind(value)

    return decode_formed


def _make_enum_decoder(kind: type[Enum]) -> Decoder:
    def decode_enum(data: Any) -> Any:
        try:
            return kind(data)
        except ValueError:
            raise _make_misfit_error(kind.__name__, data) from None

    return decode_enum


def _make_optional_decoder(kind: Any) -> Decoder:
    decode_some = _find_decoder(_make_option_decoder(kind))
    return lambda data: None if data is None else decode_some(data)


def _make_option_decoder(kind: Any) -> Any:
    """The type that a value has if it is not ``None``."""
    options = [option for option in get_args(kind) if option is not NoneType]
    if len(options) != 1 or len(options) == len(get_args(kind)):
        raise TypeError(f"{kind}: a union of several types has no JSON form")
    return options[0]


def _make_tuple_decoder(items: tuple[Any, ...]) -> Decoder:
    if len(items) == 2 and items[1] is Ellipsis:
        return _list_of(items[0], _freeze if items[0] is Any else _find_decoder(items[0]))
    decoders = [_find_decoder(item) for item in items]

    def decode_tuple(data: Any) -> tuple[Any, ...]:
        if len(_list(data)) != len(decoders):
            raise _make_misfit_error(f"a list of {len(decoders)}", data)
        return _decode_each(decoders, data)

    return decode_tuple


def _list_of(kind: Any, decode_item: Decoder) -> Decoder:
    accepted, numbers = _describe_accepted(kind), frozenset({kind} & {float})

    def decode_list(data: Any) -> tuple[Any, ...]:
        if accepted.issuperset(map(type, _list(data))):
            return tuple(data)
        # The sum is neither NaN nor too large, so none of its terms is.
        if numbers.issuperset(map(type, data)) and min(data) >= SMALLEST and sum(data) <= LARGEST:
            return tuple(data)
        try:
            return tuple(map(decode_item, data))
        except _MisfitError:
            return _decode_each(repeat(decode_item), data)  # names the item

    return decode_list


def _list(data: Any) -> list[Any] | tuple[Any, ...]:
    if not isinstance(data, list | tuple):
        raise _make_misfit_error("a list", data)
    return data


def _decode_each(decoders: Iterable[Decoder], data: Iterable[Any]) -> tuple[Any, ...]:
    found: list[Any] = []
    try:
        for decode_item, item in zip(decoders, data, strict=False):
            found.append(decode_item(item))
    except _MisfitError as misfit:
        misfit.place.append(f"[{len(found)}]")
        raise
    return tuple(found)


def _freeze(data: Any) -> Any:
    if isinstance(data, dict):
        raise _make_misfit_error("lists of plain values", data)
    return tuple(map(_freeze, data)) if isinstance(data, list | tuple) else data


def _make_dict_decoder(decode_value: Decoder) -> Decoder:
    def decode_dict(data: Any) -> dict[Any, Any]:
        if not isinstance(data, dict):
            raise _make_misfit_error("an object", data)
        found = {}
        for key, value in data.items():
            try:
                found[key] = decode_value(value)
            except _MisfitError as misfit:
                misfit.place.append(f".{key}")
                raise
        return found

    return decode_dict


class _Wanted(NamedTuple):
    """A field of a dataclass to be decoded."""

    name: str
    decode: Decoder
    accepted: frozenset[type]  # the types of values that stay as they are
    inline: bool
    default: Any  # ``MISSING`` for a field that must be there
    factory: Any


def _describe_wanted(kind: Any) -> Iterator[_Wanted]:
    hints = get_type_hints(kind, include_extras=True)
    for item in _is_recorded(kind):
        inner = _find_inline_kind(hints[item.name])
        hint = inner or hints[item.name]
        accepted = _describe_accepted(hint)
        decode_some = _find_decoder(_make_option_decoder(hint) if NoneType in accepted else hint)
        yield _Wanted(item.name, decode_some, accepted, inner is not None, item.default, item.default_factory)


def _describe_accepted(hint: Any) -> frozenset[type]:
    """The types of values that a decoder returns as they are."""
    if get_origin(hint) in (Union, UnionType):
        return frozenset({NoneType}.union(*map(_describe_accepted, get_args(hint))))
    return frozenset({hint} & {str, bool})


def _make_dataclass_decoder(kind: Any) -> Decoder:
    wanted: list[_Wanted] = []
    special = (
        hasattr(kind, "__post_init__") or hasattr(kind, "__slots__") or len([*_is_recorded(kind)]) < len(fields(kind))
    )

    def decode_dataclass(data: Any) -> Any:
        if not isinstance(data, dict):
            raise _make_misfit_error(f"an object ({kind.__name__})", data)
        if not wanted:  # on the first call, because the type may contain itself
            wanted.extend(_describe_wanted(kind))
        values = {}
        for name, decode_value, accepted, inline, default, factory in wanted:
            if inline:
                values[name] = decode_value(data)
                continue
            value = data.get(name, MISSING)
            try:
                if type(value) in accepted:
                    values[name] = value
                elif value is not MISSING:
                    values[name] = decode_value(value)
                elif factory is not MISSING:
                    values[name] = factory()
                elif default is not MISSING:
                    values[name] = default
                else:
                    raise _MisfitError("is missing")
            except _MisfitError as misfit:
                misfit.place.append(f".{name}")
                raise
        try:
            return kind(**values) if special else _build_dataclass(kind, values)
        except ValueError as error:  # its fields contradict each other
            raise _MisfitError(str(error)) from None

    return decode_dataclass


def _build_dataclass(kind: Any, values: dict[str, Any]) -> Any:
    """An instance of a frozen dataclass, in a quarter of the time that its ``__init__`` takes."""
    built = object.__new__(kind)
    object.__setattr__(built, "__dict__", values)
    return built


# Format numbers of records: which this version reads, how it upgrades older ones, and what it says about newer ones.
#
# If a newer version of the tool only adds fields, kinds and items, the number of the format stays: older versions read
# what they know of such a record, and show unknown kinds by name. The number rises if an older version would report
# something wrong about the record.
#
# History of ``record.json``
#     1   the first format.
#     2   ``program`` describes the program's step, and each kernel has its calls, time and share in it.
#     3   ``evidence.json`` beside the record holds what was observed, the program's steps among it. Earlier versions do
#     not know this file, and would analyse such a RUN with less evidence.


FORMAT = RECORD_FORMAT


OLDEST_FORMAT = 1
"""The oldest format that this version reads. Fields that a record of an earlier format lacks have defaults, which say
that nothing was observed."""


UPDATE = "update inductor-bench: pip install --upgrade inductor-bench"
_LONGEST_VERSION = 40


class NewerFormatError(InductorBenchError):
    """A record that this version cannot read was written by a newer version of the tool."""

    id = "newer-format"


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
    if number < OLDEST_FORMAT:
        raise InductorBenchError(
            f"{origin} has format {number}, which this version can no longer read", name="older-format"
        )
    return {**data, "format": FORMAT}


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
        raise InductorBenchError(f"{origin} carries no format number, so it is not {kind}", hint, "damaged")
    if number > newest:
        wrote = (
            f": inductor-bench {_name_writer(data)} wrote it, and this is {__version__}" if _name_writer(data) else ""
        )
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
        return decode(kind, data)
    except InductorBenchError as error:
        raise make_unreadable_error(data, origin, error.message, error.hint or hint) from error


def make_unreadable_error(data: Any, origin: str, reason: str, hint: str = "") -> InductorBenchError:
    """The error for a decoded record that cannot be read: damage, unless a newer version of the tool wrote it."""
    if _read_version_numbers(_name_writer(data)) > _read_version_numbers(__version__):
        wrote = f"inductor-bench {_name_writer(data)} wrote it, and this is {__version__}"
        return NewerFormatError(f"{origin} cannot be read: {reason}; {wrote}", UPDATE)
    return InductorBenchError(f"{origin} is damaged: {reason}", hint, "damaged")


def _name_writer(data: Any) -> str:
    """The version of the tool that wrote a record; empty if the record does not say it."""
    written = data.get("tool_version") if isinstance(data, dict) else None
    return written if isinstance(written, str) and len(written) <= _LONGEST_VERSION and written.isprintable() else ""


def _read_version_numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"[0-9]+", version.partition("+")[0])[:3]))

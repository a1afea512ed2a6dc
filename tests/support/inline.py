"""Makes and changes records by the keys of their JSON, so that a test need not name the inline dataclass of a field."""

from __future__ import annotations

import functools
from dataclasses import fields, replace
from typing import Any, TypeVar, get_args, get_type_hints

from inductor_bench.records.base import INLINE

T = TypeVar("T")


def make(kind: type[T], *first: Any, **values: Any) -> T:
    """A record of ``kind``: its ``first`` fields, and ``values`` for fields of its own or of its inline dataclasses."""
    for name, inner in _inline(kind).items():
        own = {field.name for field in fields(inner)} & values.keys()
        if own:
            values[name] = inner(**{key: values.pop(key) for key in own})
    return kind(*first, **values)


def change(record: T, **values: Any) -> T:
    """The record with other values for fields of its own or of its inline dataclasses."""
    for name, inner in _inline(type(record)).items():
        own = {field.name for field in fields(inner)} & values.keys()
        if own:
            values[name] = replace(getattr(record, name), **{key: values.pop(key) for key in own})
    return replace(record, **values)  # type: ignore[type-var]


@functools.cache
def _inline(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {name: get_args(hint)[0] for name, hint in hints.items() if INLINE in get_args(hint)[1:]}

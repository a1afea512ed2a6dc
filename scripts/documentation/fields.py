"""The fields of a record as its JSON has them: name, type, unit, and meaning from the comment beside the field."""

from __future__ import annotations

import ast
import functools
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from inductor_bench.records.base import IN_RECORD, INLINE, Form

from .markdown import link

UNITS = (
    (r"(.*_)?(s|seconds)", "seconds"),
    (r"(.*_)?bytes", "bytes"),
    (r"(.*_)?bandwidth", "bytes per second"),
    (r"flop_rate|matmul_flops", "FLOPs per second"),
    (r"flops", "FLOPs"),
    (r"(.*_)?share|occupancy|stalls", "0 to 1"),
    (r"clock_mhz", "MHz"),
)
"""The unit of a field of numbers by its name. A field of another name has none, or its meaning says it."""

PLAIN = {str: "text", int: "whole number", float: "number", bool: "boolean", Path: "text", Any: "any value"}


@dataclass(frozen=True)
class Field:
    """A key of a JSON object."""

    name: str
    hint: Any  # its Python type
    meaning: str  # what it says; empty if nothing is said beside the field

    @property
    def unit(self) -> str:
        """The unit of its numbers; empty for what is no number, and for counts and ratios."""
        numbers = {int, float} & set(leaves(self.hint))
        return next((unit for name, unit in UNITS if numbers and re.fullmatch(name, self.name)), "")


@functools.cache
def fields_of(kind: Any) -> tuple[Field, ...]:
    """The keys of a dataclass in order, with those of its inline dataclasses in their place."""
    return tuple(_fields_of(kind))


def _fields_of(kind: Any) -> Iterator[Field]:
    hints, meanings = get_type_hints(kind, include_extras=True), meanings_of(kind)
    for item in fields(kind):
        if not item.metadata.get(IN_RECORD, True):
            continue
        hint = hints[item.name]
        if is_inline(hint):
            yield from fields_of(get_args(hint)[0])
        else:
            yield Field(item.name, hint, meanings.get(item.name, ""))


def is_inline(hint: Any) -> bool:
    return get_origin(hint) is Annotated and INLINE in get_args(hint)[1:]


def meanings_of(kind: type) -> dict[str, str]:
    """The meaning of each field by its name, those of the classes that it extends included."""
    found: dict[str, str] = {}
    for part in reversed(kind.__mro__):
        if part is not object:
            found |= comments_of(part)
    return found


def comments_of(kind: type) -> dict[str, str]:
    """The comment of each field of a class: at the end of its line, or in the lines above it."""
    text = inspect.cleandoc(inspect.getsource(kind))
    (definition,) = ast.parse(text).body
    assert isinstance(definition, ast.ClassDef)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = {token.start[0]: token for token in tokens if token.type == tokenize.COMMENT}
    above = {line for line, token in comments.items() if not token.line[: token.start[1]].strip()}
    found = {}
    for field in definition.body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            last = field.end_lineno or field.lineno
            first = next(line for line in range(field.lineno - 1, -1, -1) if line not in above)
            lines = [last] if last in comments else range(first + 1, field.lineno)
            words = " ".join(comments[line].string.lstrip("# ") for line in lines)
            found[field.target.id] = words if not words or words.endswith((".", "…")) else f"{words}."
    return found


def about(kind: type) -> str:
    """What the docstring of a class says."""
    return inspect.cleandoc(kind.__dict__.get("__doc__") or "")


def leaves(hint: Any) -> Iterator[Any]:
    """The types within a type, without what holds them."""
    if get_origin(hint) is Annotated:
        yield from leaves(get_args(hint)[0])
    elif get_origin(hint) is dict:
        yield from leaves(get_args(hint)[1])
    elif get_origin(hint) is not None:
        for part in get_args(hint):
            yield from leaves(part)
    else:
        yield hint


def kinds_in(root: Any) -> Iterator[Any]:
    """The dataclasses that have JSON objects of their own in that of ``root``, itself first, each once."""
    found: list[Any] = []

    def visit(kind: Any) -> Iterator[Any]:
        if kind in found:
            return
        found.append(kind)
        yield kind
        for one in fields_of(kind):
            for leaf in leaves(one.hint):
                if is_dataclass(leaf):
                    yield from visit(leaf)

    yield from visit(root)


def type_words(hint: Any) -> str:
    """A type in the words of JSON: ``list of numbers``, ``text or null``, or a link to an object's fields."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        form = next((part for part in parts if isinstance(part, Form)), None)
        return f"{type_words(parts[0])}, {form.name}" if form is not None else type_words(parts[0])
    if origin in (Union, UnionType):
        some = " or ".join(type_words(part) for part in parts if part is not NoneType)
        return f"{some} or null" if NoneType in parts else some
    if origin is tuple:
        count = "" if Ellipsis in parts else f"{len(parts)} "
        return f"list of {count}{plural(parts[0])}"
    if origin is dict:
        return f"object with {plural(parts[1])} by name"
    if is_dataclass(hint):
        return link(hint.__name__)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return f"text, a {hint.__name__.lower()}"
    return PLAIN[hint]


def plural(hint: Any) -> str:
    """As :func:`type_words`, of several values."""
    words = type_words(hint)
    many = {"text": "texts", "number": "numbers", "whole number": "whole numbers", "any value": "values"}
    return many.get(words, words.replace("object with", "objects with").replace("list of", "lists of"))

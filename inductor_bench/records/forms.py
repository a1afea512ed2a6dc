"""Marks on the types of fields, which ``store.formats.codec`` obeys.

A :class:`Form` is a constraint on values beyond their type: texts that name files, and numbers without a physical
bound. Every value is checked when it is read, so that no path in a record leads out of the record's folder.
``Inline[X]`` makes the fields of a dataclass ``X`` keys of the object that holds it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

LONGEST_NAME_BYTES = 255
LONGEST_PLACE_BYTES = 4000

T = TypeVar("T")


@dataclass(frozen=True)
class Form:
    """A constraint: ``name`` describes a valid value in words; ``fits`` tells whether a value is valid."""

    name: str
    fits: Callable[[Any], bool]


def is_file_name(text: str) -> bool:
    """Whether a text is the bare name of a file or folder: without separator, ``..`` and control characters."""
    return (
        text not in ("", ".", "..")
        and "/" not in text
        and text.isprintable()
        and len(text.encode(errors="replace")) <= LONGEST_NAME_BYTES
    )


def is_place(text: str) -> bool:
    """Whether a text is a relative path that stays inside its folder."""
    return len(text.encode(errors="replace")) <= LONGEST_PLACE_BYTES and all(map(is_file_name, text.split("/")))


def _is_slug(text: str) -> bool:
    return re.fullmatch(r"[a-z0-9-]{1,200}", text) is not None


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer beyond every float
        return False


FileName = Annotated[str, Form("the name of a file", is_file_name)]
"""The name of a file; another field or the context gives the folder."""

Place = Annotated[str, Form("a path inside the folder", is_place)]
"""A path relative to the folder of the RUN or the batch."""

Slug = Annotated[str, Form("a name of small letters, digits and dashes", _is_slug)]

AnyFloat = Annotated[float, Form("a finite number", _is_finite)]
"""A value of the user's program, which may have any finite magnitude, unlike a measurement."""

StepTime = Annotated[
    float, Form("the time of a step, from 1e-12 to 1e9 seconds", lambda time_s: 1e-12 <= time_s <= 1e9)
]
"""Seconds of which a logarithm is taken, and of whose logarithms a multiple is raised again."""

INLINE = "inline"

Inline = Annotated[T, INLINE]
"""A dataclass that has no JSON object of its own: its fields are keys of the object that holds it, at its place."""

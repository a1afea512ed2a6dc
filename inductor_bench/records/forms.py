"""Forms of values beyond their types: texts that name files, and numbers without a physical bound.

``store.formats.codec`` holds what it reads to them, so that nothing in a record leads out of the folder that it lies
in.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

LONGEST_NAME_BYTES = 255
LONGEST_PLACE_BYTES = 4000


@dataclass(frozen=True)
class Form:
    """``name`` is what a value should be, in words; ``fits`` says whether it is."""

    name: str
    fits: Callable[[Any], bool]


def is_file_name(text: str) -> bool:
    """Whether a text names a file or folder without saying where: no separator, no ``..``, no control character."""
    return (
        text not in ("", ".", "..")
        and "/" not in text
        and text.isprintable()
        and len(text.encode(errors="replace")) <= LONGEST_NAME_BYTES
    )


def is_place(text: str) -> bool:
    """Whether a text is a relative path that stays below the folder that it refers to."""
    return len(text.encode(errors="replace")) <= LONGEST_PLACE_BYTES and all(map(is_file_name, text.split("/")))


def _is_slug(text: str) -> bool:
    return re.fullmatch(r"[a-z0-9-]{1,200}", text) is not None


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer beyond every float
        return False


FileName = Annotated[str, Form("the name of a file", is_file_name)]
"""Of a file in a folder that is known from elsewhere."""

Place = Annotated[str, Form("a path inside the folder", is_place)]
"""Relative to the RUN or the batch that the record describes."""

Slug = Annotated[str, Form("a name of small letters, digits and dashes", _is_slug)]

AnyFloat = Annotated[float, Form("a finite number", _is_finite)]
"""A value of a program, not a measurement."""

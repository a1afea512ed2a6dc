"""Common parts of all records: marks on the types of fields, a failure, other users of a GPU, tables for queries."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, NamedTuple, TypeVar

# Marks on the types of fields, which ``store.codec`` obeys.
#
# A :class:`Form` is a constraint on values beyond their type: texts that name files, and numbers without a physical
# bound. Every value is checked when it is read, so that no path in a record leads out of the record's folder.
# ``Inline[X]`` makes the fields of a dataclass ``X`` keys of the object that holds it.


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


def is_relative_path(text: str) -> bool:
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

Place = Annotated[str, Form("a path inside the folder", is_relative_path)]
"""A path relative to the folder of the RUN or the batch."""

Slug = Annotated[str, Form("a name of small letters, digits and dashes", _is_slug)]

AnyFloat = Annotated[float, Form("a finite number", _is_finite)]
"""A value of the user's program, which may have any finite magnitude, unlike a measurement."""

StepTime = Annotated[
    float, Form("the time of a step, from 1e-12 to 1e9 seconds", lambda time_s: 1e-12 <= time_s <= 1e9)
]
"""Seconds whose logarithms are computed, and multiples of these logarithms raised again."""

INLINE = "inline"

Inline = Annotated[T, INLINE]
"""A dataclass without its own JSON object: its fields are keys of the object that contains it, at its place."""

IN_RECORD = "in record"
"""Key of the metadata of a field: false for a field that records leave out."""


# One failed step, as runs and batches record it.


VERIFY = "verify"
"""The ``stage`` of a failure in the comparison of a program with itself."""

ELSEWHERE = "elsewhere"
"""The ``kind`` of a failure whose step is possible only on the machine that measured the run."""

NO_CANDIDATES = "no-candidates"
"""The ``kind`` of the failure of a retune that has no candidates. Another retune would fail in the same way."""

NO_PYTHON = "no-python"
"""The ``kind`` of the failure of a program or a worker that started no Python."""


@dataclass(frozen=True)
class Failure:
    """One step that failed. Programs read ``stage`` and ``kind``; people read the other fields."""

    # the step: ``capture``, ``profile``, ``trace``, ``analysis``, ``peaks``, ``eager``, ``retune``, ``verify`` or
    # ``report``
    stage: str
    # what happened: ``missing``, ``exit``, ``signal``, ``timeout``, ``interrupted``, ``memory``, ``nothing-compiled``,
    # ``invalid``, …
    kind: str
    message: str  # what happened, in words
    hint: str = ""  # what to do about it
    log_tail: str = ""  # the last lines that the process printed
    subject: str = ""  # the module or the kernel that the step was about


# The use of a GPU by processes of other jobs.


@dataclass(frozen=True)
class OtherProcess:
    """A process of another job that has a context on the GPU."""

    pid: int  # the id of the process
    name: str = ""  # its name; empty if it cannot be read
    memory_bytes: int | None = None  # device memory that it holds; ``None`` if it is unknown
    busy: float | None = None  # the share of the time in which its kernels ran, 0 to 1; ``None`` if it is unknown


@dataclass(frozen=True)
class DeviceUse:
    """The use of a GPU, sampled while this tool runs nothing on it.

    In a container other processes may be hidden; ``busy`` and ``held_bytes`` still show their use.
    """

    gpu: int | None = None  # the number of the GPU in ``nvidia-smi``
    processes: tuple[OtherProcess, ...] = ()  # other jobs' processes on the GPU
    busy: float | None = None  # the share of the time in which kernels ran, 0 to 1
    held_bytes: int | None = None  # device memory that other processes hold


# Tables for queries: typed columns with descriptions, and the answer to a query.


TEXT, NUMBER, WHOLE, YES_NO = "VARCHAR", "DOUBLE", "BIGINT", "BOOLEAN"
"""The SQL types of columns."""


class QueryColumn(NamedTuple):
    """A column; a value of ``None`` is unknown. ``about`` describes the values, without the unit."""

    name: str
    type: str
    about: str
    values: Sequence[object]


@dataclass(frozen=True)
class QueryTable:
    """A table, column by column. ``about`` describes a row."""

    name: str
    about: str
    columns: tuple[QueryColumn, ...]

    def __len__(self) -> int:
        return len(self.columns[0].values)


@dataclass(frozen=True)
class Answer:
    """The result of a query."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[object]]


# The categories of kernels.


def sum_known(values: Iterable[float | None]) -> float | None:
    """The sum of values; ``None`` if one of them is unknown, or if there are none."""
    known = list(values)
    return sum(value for value in known if value is not None) if known and None not in known else None


class Category(Enum):
    """The category of a kernel; each kernel has one. ``record.json`` and the tables show the value.

    ``Category("sparse")`` with a word that is none of the members is a category of a newer version of the tool. It is
    not in ``list(Category)``, and equals itself in all records.
    """

    POINTWISE = "pointwise"
    REDUCTION = "reduction"
    PERSISTENT_REDUCTION = "persistent_reduction"
    COOPERATIVE_REDUCTION = "cooperative_reduction"
    SPLIT_SCAN = "split_scan"
    FOREACH = "foreach"
    COMBO = "combo"
    TEMPLATE = "template"
    USER_TRITON = "user_triton"
    EXTERN_GEMM = "extern_gemm"
    EXTERN_CONV = "extern_conv"
    EXTERN_ATTENTION = "extern_attention"
    EXTERN_ATEN = "extern_aten"
    COPY = "copy"
    MEMSET = "memset"
    COLLECTIVE = "collective"
    CPP = "cpp"
    OTHER = "other"

    @classmethod
    def _missing_(cls, value: object) -> Category | None:
        if not isinstance(value, str) or not _WORDS.fullmatch(value):
            return None
        newer = object.__new__(cls)
        newer._name_, newer._value_ = value.upper(), value
        known = cls._value2member_map_.setdefault(value, newer)
        assert isinstance(known, cls)
        return known

    def __reduce_ex__(self, protocol: object) -> tuple[type[Category], tuple[str]]:
        return Category, (self.value,)  # by the value, because a newer version's category is no attribute

    @property
    def title(self) -> str:
        """The name in a printed table, for example ``persistent reduction`` or ``conv (library)``."""
        return _TITLES.get(self, self.value.replace("_", " "))

    @property
    def is_library(self) -> bool:
        """Whether it is of kernels of library calls: ``extern_`` before the kind of the call."""
        return self.value.startswith("extern_")


_WORDS = re.compile(r"[a-z0-9][a-z0-9_ -]{0,39}")
"""The pattern of a category's value. A record with anything else is damaged."""

_TITLES = {
    Category.TEMPLATE: "template (Triton)",
    Category.USER_TRITON: "user Triton",
    Category.EXTERN_GEMM: "gemm (library)",
    Category.EXTERN_CONV: "conv (library)",
    Category.EXTERN_ATTENTION: "attention (library)",
    Category.EXTERN_ATEN: "ATen (other)",
    Category.CPP: "C++ (CPU)",
}

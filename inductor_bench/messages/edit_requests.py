"""Requests with which an edited kernel is checked: one worker runs it, another runs the original and judges.

The worker that judges never loads the edited kernel. Both exchange the memory of a call as a file: the storages of the
launch one after the other, each between two guard bands.
"""

from __future__ import annotations

from dataclasses import dataclass

from .job_requests import WorkerRequest
from .kernel_requests import CompiledResources

RECORDED, OTHER, NUDGED, ROUNDED, LARGE, SMALL, ZERO, INFINITE, NAN = (
    *("recorded", "other", "nudged", "rounded", "large", "small", "zero", "infinite", "nan"),
)
"""The values of a case: the standalone file's values; new random values; the recorded values with a few elements
changed; rounded to eighths; scaled up and down; all zero; with infinities; with NaNs. Whole numbers stay as
recorded."""

FILL_NAN, FILL_PATTERN, FILL_STALE = "nan", "pattern", "stale"
"""What a buffer that is only written holds before the call: NaNs, another pattern, or the results of the last case."""

WRITTEN, OUTSIDE, INPUTS, SPECIAL, WRONG, PRECISION, REPEATED, STALE = (
    *("not-written", "outside", "input-changed", "special-values", "wrong", "precision", "not-repeatable", "stale"),
)
"""The ids of reasons for which a case is refused."""


@dataclass(frozen=True)
class EditCase:
    """The memory before one call."""

    values: str  # the values of the inputs
    fill: str  # what the buffers that are only written hold
    seed: int  # of what is drawn


@dataclass(frozen=True)
class BufferRoles:
    """What a kernel does with its arguments, by their indices."""

    output_only: tuple[int, ...] = ()  # written and never read
    cleared: tuple[int, ...] = ()  # hold zeros before each call
    scratch: tuple[int, ...] = ()  # written, but no results


@dataclass(frozen=True)
class CompileKernel(WorkerRequest[CompiledResources]):
    """Compiles a loaded kernel."""

    number: int


@dataclass(frozen=True)
class PrepareCase(WorkerRequest[str]):
    """Writes the memory before a call into a file, and runs the original on a copy of it. The answer is the SHA-256 of
    that memory."""

    number: int  # the original
    case: EditCase
    roles: BufferRoles
    before: str  # the path of the file
    reference: str = ""  # the path of a file with a function that computes the same in PyTorch; empty if there is none
    exact: int | None = None  # a kernel that computes the same in float64, from a launch of that type


@dataclass(frozen=True)
class RunCase(WorkerRequest[None]):
    """Runs a kernel on the memory in a file, and writes the memory after the call into another file."""

    number: int
    before: str
    after: str


@dataclass(frozen=True)
class RepeatCall(WorkerRequest[None]):
    """Runs a kernel so many times, one after the other, and nothing else, for the clock of the one who asks."""

    number: int
    count: int


@dataclass(frozen=True)
class Judged:
    """What is to be said of one call of an edited kernel."""

    reason: str = ""  # the id of the reason for which it is refused; empty if it is not
    words: str = ""  # that reason in words; ``argument 3`` stands for the name of a parameter
    place: int | None = None  # the argument whose result it is about; ``None`` if that is in the words
    # the largest error of an output's element in comparison with ``against``, as a share of the element and of the root
    # mean square of its tensor; ``None`` without floating-point outputs
    error: float | None = None
    original_error: float | None = None  # that of the original
    limit: float | None = None  # the largest error that is not refused
    against: str = ""  # ``float64``: the same computed in float64; ``original``: the original kernel


@dataclass(frozen=True)
class JudgeCase(WorkerRequest[Judged]):
    """Judges the memory that the edited kernel left behind in the prepared case.

    With ``repeats`` it has to hold the same results, bit by bit, as in the last case that was judged, if those of the
    original are the same.
    """

    number: int  # the original
    after: str
    repeats: bool = False

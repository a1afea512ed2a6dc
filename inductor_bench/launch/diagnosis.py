"""Reads a program's output: the error that ended it, and a hint for well-known errors."""

from __future__ import annotations

import re

from .interpreter import ANOTHER_PYTHON

_TRACEBACK = "Traceback (most recent call last):"
_ERROR_LINE = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Interrupt|Iteration|Warning)(:|$)")
_LONGEST = 300

_REMEDIES = (
    (r"InvalidCxxCompiler|No working C\+\+ compiler", "install a C++ compiler (g++), or name one in CXX"),
    (r"No module named 'torch'", ANOTHER_PYTHON),
    (r"No module named '([\w.]+)'", r"install \1 for the interpreter that runs it, or name another with --python"),
    (
        r"needs (torch|triton), which is not installed",
        r"install \1 for the interpreter that runs it, or name another with --python",
    ),
    (r"TritonMissing|[Cc]annot find a working triton", "install triton; `inductor-bench doctor` says what is there"),
    (r"[Oo]ut of memory|OutOfMemoryError|MemoryError", "try a smaller batch, or free memory that others hold"),
    (r"No space left on device|Disk quota exceeded", "free some space on the disk that it writes to"),
    (
        r"No CUDA GPUs are available|no NVIDIA driver|not compiled with CUDA|needs a GPU|ran on a GPU",
        "this torch sees no CUDA device; `inductor-bench doctor` says what it sees",
    ),
)


def last_error(text: str) -> str:
    """The first line of the error that a Python program's output ends with, for example ``ValueError: no such file``.

    An empty string where the output does not end with one.
    """
    lines = text.splitlines()
    starts = [index for index, line in enumerate(lines) if line.strip() == _TRACEBACK]
    if starts:
        after = (line for line in lines[starts[-1] + 1 :] if line and not line[0].isspace())
        return next(after, "")[:_LONGEST].strip()
    errors = [line for line in lines if _ERROR_LINE.match(line)]  # a syntax error has no traceback
    return errors[-1][:_LONGEST].strip() if errors else ""


def remedy(text: str) -> str:
    """The hint for the well-known error that ``text`` names; empty where none is known."""
    for pattern, advice in _REMEDIES:
        match = re.search(pattern, text)
        if match:
            return match.expand(advice)
    return ""

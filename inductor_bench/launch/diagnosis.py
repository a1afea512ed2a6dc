"""Reads a program's output: the error that ended it, and a hint for well-known errors."""

from __future__ import annotations

import re

# The command-line arguments and variables with which a Python interpreter runs a module of this package.


SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""Variables of processes that run no code of the user: Python imports nothing from the current folder."""

ANOTHER_PYTHON = "name an interpreter that has torch with --python"
"""The hint if an interpreter is of no use."""

NOT_PYTHON = "{python} is no Python interpreter"


def module_words(name: str) -> tuple[str, ...]:
    """The arguments that run a module of this package like ``-m``, but without the current folder on the import path.

    The current folder may hold modules that hide others, for example a source tree of torch. ``PYTHONSAFEPATH`` would
    also affect the processes that the module starts, and Python 3.10 does not support it.
    """
    return ("-c", _RUN_MODULE, name)


_RUN_MODULE = """\
import sys
if sys.path[0] == "":
    del sys.path[0]
import runpy
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)"""


_TRACEBACK = "Traceback (most recent call last):"
_CAUSED = "The above exception was the direct cause of the following exception:"
_ERROR_LINE = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Interrupt|Iteration|Warning)(:|$)")
_LONGEST = 300

_RANK_FAILED = "ChildFailedError"
_FIRST_RANK = re.compile(
    r"Root Cause \(first observed failure\):.*?^ *rank *: (?P<rank>\d+).*?"
    r"^ *exitcode *: (?P<code>-?\d+) \(pid: \d+\) *(?:\((?P<signal>SIG\w+)\))?",
    re.DOTALL | re.MULTILINE,
)
"""What torchrun says of the rank that failed first. (2.11, 2.13)"""

ERROR_LINES = 200
"""Lines at the end of a log that are searched for the exception that ended a program."""

GO_TOGETHER = "install versions that fit together"
"""The hint if a package is installed and its import fails."""

_REMEDIES = (
    (r"InvalidCxxCompiler|No working C\+\+ compiler", "install a C++ compiler (g++), or name one in CXX"),
    (
        r"operator torchvision::\w+ does not exist|Could not run 'torchvision::|Couldn't load custom C\+\+ ops"
        r"|PyTorch and torchvision were compiled with different CUDA",
        "torchvision does not fit this torch: install both with the command that pytorch.org shows for it",
    ),
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
    (r"is installed but broken", GO_TOGETHER),
)


def last_error(text: str) -> str:
    """The first line of the error that a Python program's output ends with, for example ``ValueError: no such file``.

    An empty string if the output does not end with one. Of several ranks it is the error of the one that failed first.
    """
    lines = text.splitlines()
    starts = _tracebacks(lines)
    if starts:
        found = _error_after(starts[-1], lines)
        return (_RANK_FAILED in found and _error_of_rank(text)) or found
    errors = [line for line in lines if _ERROR_LINE.match(line)]  # a syntax error has no traceback
    return errors[-1][:_LONGEST].strip() if errors else ""


def _error_of_rank(text: str) -> str:
    """The error of the rank that torchrun says failed first; empty if it says none."""
    failed = _FIRST_RANK.search(text)
    if failed is None:
        return ""
    mark, code, signal = f"[rank{failed['rank']}]: ", failed["code"], failed["signal"]
    own = [line.removeprefix(mark) for line in text.splitlines() if line.startswith(mark)]
    error = last_error("\n".join(own))
    ended = f"was killed by {signal}" if signal else f"exited with code {code}"
    return f"rank {failed['rank']}{f': {error}' if error else f' {ended}'}"


def remedy_of_end(text: str) -> str:
    """The hint for the error that a Python program's output ends with, or else for what caused it."""
    lines = text.splitlines()
    errors = [last_error(text)]
    starts = _tracebacks(lines)
    for earlier, later in zip(reversed(starts[:-1]), reversed(starts), strict=False):
        if _CAUSED not in map(str.strip, lines[earlier:later]):
            break
        errors.append(_error_after(earlier, lines))
    return next(filter(None, map(remedy, errors)), "")


def _tracebacks(lines: list[str]) -> list[int]:
    return [index for index, line in enumerate(lines) if line.strip() == _TRACEBACK]


def _error_after(start: int, lines: list[str]) -> str:
    after = (line for line in lines[start + 1 :] if line and not line[0].isspace())
    return next(after, "")[:_LONGEST].strip()


def remedy(text: str) -> str:
    """The hint for the well-known error that ``text`` names; empty if none is known."""
    for pattern, advice in _REMEDIES:
        match = re.search(pattern, text)
        if match:
            return match.expand(advice)
    return ""

"""The expected failures, and the exit codes that stand for them. Imports nothing of the package."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from typing import Generic, TypeVar

Found = TypeVar("Found")

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_BUG = 3
EXIT_SLOWER = 4
EXIT_UNDECIDED = 5
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


JSON_ERRORS = "json"
"""The name of the result format in which errors are also JSON."""

ERROR_IDS = {
    # the command line
    "bad-word": "a verb, an option or a value is unknown, or is missing",
    "missing-target": "no target is given, or no program",
    "missing-option": "an option is given without another option that it needs",
    "misplaced-option": "an option does not apply to this target, or to this kind of result",
    "conflicting-options": "two options exclude each other",
    "usage": "the request cannot be carried out as typed, for a reason without an id",
    # targets
    "no-such-target": "what is to be measured or compared does not exist",
    "wrong-target": "the verb cannot use the target: it is of another kind, or several targets were given",
    "no-such-folder": "a folder of results does not exist, or is a file",
    "no-record": "a folder is there and holds no result",
    "no-fitting-kernel": "no kernel fits the selection",
    "refused-edit": "an edited kernel was refused when it was checked",
    "no-fitting-model": "no model of the list fits the selection",
    "bad-list": "a file is not a list of models, or has a line that cannot be read",
    # files that are read
    "unreadable": "a file or a folder cannot be read",
    "damaged": "a file of a result does not hold what was written",
    "newer-format": "a newer version of this tool wrote the result",
    "older-format": "an old version of this tool wrote the result, and this version cannot read it",
    "too-large": "a file or the arguments of a tool are larger than the limit",
    "bad-trace": "a file is not a trace of torch.profiler, or not a trace of this module",
    "no-module": "a file is not a compiled module, or it is cut short",
    "no-kernel-file": "a file is no standalone kernel file",
    "bad-edit": "an edited kernel cannot take the place of its original",
    "nothing-compiled": "a log or a trace names no compiled module",
    "files-gone": "the files that a log or a trace names are gone",
    "no-values": "the RUN holds no recorded values of kernels",
    # files and folders that are written
    "folder-in-use": "the file or the folder for the result is there already, or another command writes it",
    "other-request": "the folder holds the result of another request",
    "symbolic-link": "a path is a symbolic link, or leads out of its folder",
    "unwritable": "a file or a folder cannot be written",
    "disk-full": "the disk is full",
    # the interpreter, its packages and the device
    "no-python": "`--python` names no Python interpreter",
    "no-torch": "the interpreter has no torch that works",
    "missing-package": "a package that the request needs is not installed",
    "cannot-start": "a program cannot be started",
    "no-such-device": "the device does not exist, or this torch does not see it",
    "unsupported-device": "this tool does not measure devices of this kind",
    "device-in-use": "another job uses the GPU",
    "no-cluster": "there is no such Ray cluster, or it is gone",
    # measurements
    "program-failed": "the program ended before anything was measured",
    "no-steps": "the program has no steps that could be compared",
    "nothing-measured": "a result to compare holds no measurement",
    "not-repeatable": "the program of the RUN cannot be run again",
    "kernel-failed": "a kernel could not be measured, so there is no result",
    "worker-lost": "a process that measures crashed, or gave no answer in time",
    # configs and settings
    "no-retunes": "the RUN has no retunes with configs to apply",
    "elsewhere": "the configs or edits are for another torch, Triton or device",
    "nothing-applied": "no config and no edit could be put into the program",
    "applied-already": "the process has the configs of a RUN already",
    "nothing-proven": "the search has proven no setting",
    # queries
    "no-duckdb": "a query needs DuckDB, which is not installed",
    "bad-query": "DuckDB refuses the query",
    # the server of `inductor-bench mcp`
    "not-allowed": "the tool runs programs, but the server was started without `--allow-run`",
    "outside-root": "a path leads out of the folder of the server",
    "busy": "another job of the server measures, or too many run",
    "no-such-job": "the server knows no job of this number",
    # ends
    "interrupted": "Ctrl-C, or a signal like it",
    "terminated": "SIGTERM",
    "failed": "something failed for a reason without an id",
    "bug": "a bug in this tool; the hint names a file with the details",
}
"""The ids of errors, which do not change, and their meanings."""


class InductorBenchError(Exception):
    """An expected failure: what happened and why (``message``), and what to type next (``hint``).

    Args:
        message: one line, without a trailing full stop being required.
        hint: the next thing to do, or an empty string if nothing sensible can be said.
        name: one of :data:`ERROR_IDS`; empty for that of the class.
    """

    exit_code = EXIT_FAILURE
    id = "failed"

    def __init__(self, message: str, hint: str = "", name: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.id = name or self.id


class UsageError(InductorBenchError):
    """The request itself cannot be carried out as typed."""

    exit_code = EXIT_USAGE
    id = "usage"


PATH_ERRORS = (OSError, ValueError)
"""What the system says of a path; Python raises ``ValueError`` for a NUL in it."""


@contextlib.contextmanager
def explain_system_error(
    what: str, hint: str = "", name: str = "", kinds: tuple[type[Exception], ...] = (OSError,)
) -> Iterator[None]:
    """Says of an error of the system in the block what could not be done: ``cannot read FILE: Is a directory``.

    Raises:
        InductorBenchError: an error of one of these kinds comes in the block.
    """
    try:
        yield
    except kinds as error:
        raise InductorBenchError(f"{what}: {getattr(error, 'strerror', None) or error}", hint, name) from error


class StoppedInFolder(KeyboardInterrupt, Generic[Found]):
    """The user stopped a command. The same command continues it.

    Args:
        found: what was measured before.
        folder: where it is kept.
    """

    def __init__(self, found: Found, folder: object) -> None:
        super().__init__(f"interrupted; what was measured until then is in {folder}; the same command continues")
        self.found = found


FREE_SPACE = "free some space or choose another folder with -o"
ANOTHER_FOLDER = "choose another folder with -o"


class UnwritableError(InductorBenchError):
    """A file or a folder cannot be written: the disk is full or read-only. Its hint is for verbs that have ``-o``."""

    id = "unwritable"

    @classmethod
    def at(cls, place: object, error: OSError, hint: str) -> UnwritableError:
        """The error for a file or a folder whose write failed with an error of the system."""
        name = "disk-full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        return cls(f"cannot write {place}: {error.strerror or error}", hint, name)

"""The expected failures, and the exit codes that stand for them. Imports nothing of the package."""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_BUG = 3
EXIT_SLOWER = 4
EXIT_UNDECIDED = 5
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


JSON_ERRORS = "json"
"""The format of results with which errors are JSON, too."""

ERROR_IDS = {
    "failed": "something failed that has no id of its own",
    "usage": "the request cannot be carried out as typed, for a reason that has no id of its own",
    "bad-word": "a verb, an option or a value that there is not, or one that is missing",
    "no-such-folder": "a folder of results does not exist, or is a file",
    "no-such-target": "what is to be measured or compared does not exist",
    "no-record": "a folder is there and holds no result",
    "damaged": "a file of a result cannot be read",
    "newer-format": "a newer version of this tool wrote the result",
    "folder-in-use": "the folder for the result holds something already",
    "unwritable": "a file or a folder takes nothing",
    "disk-full": "the disk is full",
    "no-retunes": "the RUN has no retunes, whose configs could be applied",
    "elsewhere": "the configs were found with another torch, Triton or device",
    "no-fitting-kernel": "no kernel fits the selection",
    "program-failed": "the program ended before anything was measured",
    "device-in-use": "another job uses the GPU",
    "no-duckdb": "a query needs DuckDB, which is not installed",
    "bad-query": "DuckDB refuses the query",
    "interrupted": "Ctrl-C, or a signal like it",
    "terminated": "SIGTERM",
    "bug": "a bug in this tool; the hint names a file with the details",
}
"""The ids of errors, which stay, and what they mean."""


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


FREE_SPACE = "free some space or choose another folder with -o"
ANOTHER_FOLDER = "choose another folder with -o"


class UnwritableError(InductorBenchError):
    """A file or a folder takes nothing: the disk is full or read-only. Its hint is for verbs that have ``-o``."""

    id = "unwritable"

    @classmethod
    def at(cls, place: object, error: OSError, hint: str) -> UnwritableError:
        """The error for a file or a folder whose write failed with an error of the system."""
        return cls(f"cannot write {place}: {error.strerror or error}", hint)

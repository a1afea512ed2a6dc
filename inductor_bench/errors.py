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


class InductorBenchError(Exception):
    """An expected failure: what happened and why (``message``), and what to type next (``hint``).

    Args:
        message: one line, without a trailing full stop being required.
        hint: the next thing to do, or an empty string if nothing sensible can be said.
    """

    exit_code = EXIT_FAILURE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(InductorBenchError):
    """The request itself cannot be carried out as typed."""

    exit_code = EXIT_USAGE


FREE_SPACE = "free some space or choose another folder with -o"
ANOTHER_FOLDER = "choose another folder with -o"


class UnwritableError(InductorBenchError):
    """A file or a folder takes nothing: the disk is full or read-only. Its hint is for verbs that have ``-o``."""

    @classmethod
    def at(cls, place: object, error: OSError, hint: str) -> UnwritableError:
        """The error for a file or a folder whose write failed with an error of the system."""
        return cls(f"cannot write {place}: {error.strerror or error}", hint)

"""The methods of autotuning in words, and the interface through which a workflow reports its progress."""

from __future__ import annotations

from typing import Protocol

from ..autotune import methods

METHODS = tuple(methods.METHODS)
METHODS_HELP = "; ".join(f"{method.help} ({method.name})" for method in methods.METHODS.values())
"""What each method of autotuning tries, in words."""


class Progress(Protocol):
    """A listener of a workflow. ``output`` may be called from another thread."""

    def stage(self, text: str) -> None:
        """Reports the start of a stage, for example ``profiling backward (2 of 2)``, which ends the stage before it."""

    def update(self, text: str) -> None:
        """Reports the progress of the present stage, for example ``12 of 95 kernels``; it replaces the last update."""

    def note(self, text: str) -> None:
        """Reports a remark for the user; the stage goes on."""

    def output(self, line: str) -> None:
        """Reports one line that the user's program or a worker printed, without its line end."""


class Silent:
    """A listener that ignores all reports."""

    def stage(self, text: str) -> None:
        pass

    def update(self, text: str) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def output(self, line: str) -> None:
        pass

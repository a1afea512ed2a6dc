"""How a workflow says what it is doing, without knowing who listens. Nothing here prints."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """The listener of a workflow. ``output`` may be called from another thread."""

    def stage(self, text: str) -> None:
        """A new stage begins, for example ``profiling backward (2 of 2)``; it ends where the next one begins."""

    def note(self, text: str) -> None:
        """Something that a person should know and that does not end the stage."""

    def output(self, line: str) -> None:
        """One line of what the user's program or a worker printed, without its line end."""


class Silent:
    """A listener that says nothing."""

    def stage(self, text: str) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def output(self, line: str) -> None:
        pass

"""The methods of autotuning in words, and the interface through which a workflow reports its progress."""

from __future__ import annotations

import time
from collections.abc import Mapping
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
        """Reports one line that ``-v`` shows: of the user's program, of a worker, or of the tool; without its end."""


class StagePhases:
    """The seconds of each phase of a stage, from now on."""

    def __init__(self) -> None:
        self.times_s: dict[str, float] = {}
        self._began_s = time.monotonic()

    def end(self, name: str) -> None:
        """Ends a phase, and begins the next one."""
        now_s = time.monotonic()
        self.times_s[name], self._began_s = now_s - self._began_s, now_s


class StageTimes:
    """Passes all reports to another listener, and keeps how long each stage took.

    Args:
        progress: the other listener. At the end of each stage it is told the stage's time as a line of output.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._text, self._began_s = "starting", time.monotonic()
        self._parts: Mapping[str, float] = {}
        self.lines: list[str] = []  # a line for each stage that has ended, with its seconds

    def stage(self, text: str) -> None:
        self._end()
        self._text = text
        self._progress.stage(text)

    def update(self, text: str) -> None:
        self._progress.update(text)

    def note(self, text: str) -> None:
        self._progress.note(text)

    def output(self, line: str) -> None:
        self._progress.output(line)

    def divide(self, parts_s: Mapping[str, float]) -> None:
        """Stores the parts of the present stage that are known, in seconds."""
        self._parts = parts_s or self._parts

    def close(self) -> str:
        """Ends the last stage, and returns the lines of all stages as a text."""
        self._end()
        return "".join(f"{line}\n" for line in self.lines)

    def _end(self) -> None:
        now_s = time.monotonic()
        parts = ", ".join(f"{name} {time_s:.2f} s" for name, time_s in self._parts.items())
        line = f"{now_s - self._began_s:7.2f} s  {self._text}{f' ({parts})' if parts else ''}"
        self.lines.append(line)
        self._progress.output(line)
        self._began_s, self._parts = now_s, {}


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

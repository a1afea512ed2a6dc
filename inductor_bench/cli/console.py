"""Prints all output of the tool: results to stdout, everything else to stderr.

Names in traces, messages and paths come from other programs, so control characters are removed before printing.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, TextIO

from .. import units

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

PLAIN_WIDTH = 100
"""Width in columns of a result that goes to a file or a pipe."""

MOST_COLUMNS = 10_000
"""Largest width in columns that is accepted."""

PAGE_HEIGHT = 25
"""Height in lines that rich gets. No output depends on it; without it, rich parses ``LINES``, which may be invalid."""

QUIET_S = 10.0
"""Seconds after which a stage reports its progress, if no live line shows the progress."""

TICK_S = 1.0
"""Seconds between two updates of the live line. Long, because updates use the CPU during measurements."""


class Console:
    """Prints results, and implements the ``Progress`` that workflows report to.

    On a terminal a live line shows the current stage and its duration; elsewhere each stage is one plain line, and a
    long one says every ten seconds where it is. The console is a context manager that removes the live line at the end.

    Args:
        quiet: print no stages, no notes and no remarks.
        verbose: print the output of the user's program.
        progress: print the stages and the notes.
        stdout: the stream of results; by default the stream of the process.
        stderr: the stream of everything else; by default the stream of the process.
    """

    has_result = False
    """Whether this process has printed a result."""

    def __init__(
        self,
        *,
        quiet: bool = False,
        verbose: bool = False,
        progress: bool = True,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
    ) -> None:
        self._quiet = quiet
        self._verbose = verbose
        self._progress = progress and not quiet
        self._stdout = stdout if stdout is not None else sys.stdout
        self._stderr = stderr if stderr is not None else sys.stderr
        self._live = self._progress and self._stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._lock = threading.RLock()
        self._text = ""
        self._plain = ""  # the stage, without a live line
        self._update = ""
        self._began = self._said_s = 0.0
        self._ended = threading.Event()
        self._ticker: threading.Thread | None = None

    def __enter__(self) -> Console:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    # Results

    def result(self, text: str) -> None:
        """Prints a result to stdout and adds a missing line end."""
        self.finish()
        Console.has_result = True
        text = units.printable(text)
        self._stdout.write(text if text.endswith("\n") else text + "\n")

    def drawing(self) -> RichConsole:
        """Removes the live line and returns a rich console on stdout, for results with styles."""
        from rich.console import Console as RichConsole

        self.finish()
        return RichConsole(file=self._stdout, width=self.columns, height=PAGE_HEIGHT, highlight=False, soft_wrap=False)

    def aside(self) -> RichConsole:
        """Removes the live line and returns a rich console on stderr, for a first answer: stdout is the result's."""
        from rich.console import Console as RichConsole

        self.finish()
        width = _read_columns() or _terminal_columns(self._stderr)
        return RichConsole(file=self._stderr, width=width, height=PAGE_HEIGHT, highlight=False, soft_wrap=False)

    @property
    def shows_progress(self) -> bool:
        """Whether anything is printed before the result."""
        return self._progress

    @property
    def columns(self) -> int:
        """The width in columns of the terminal or file that results are printed to."""
        return _read_columns() or _terminal_columns(self._stdout)

    # Progress

    def stage(self, text: str) -> None:
        """Shows the name of the stage that begins now, on one line."""
        text = " ".join(units.printable(text).splitlines())
        if not self._progress:
            return
        if not self._live:
            self._plain, self._said_s = text, time.monotonic()
            self._print_line(text)
            return
        with self._lock:
            self._text, self._update, self._began = text, "", time.monotonic()
            self._draw()
            if self._ticker is None:
                self._ended.clear()
                self._ticker = threading.Thread(target=self._tick, daemon=True)
                self._ticker.start()

    def update(self, text: str) -> None:
        """Shows the progress of the stage: on the live line at its next tick, elsewhere from time to time as a line."""
        self._update = " ".join(units.printable(text).splitlines())
        now_s = time.monotonic()
        if self._progress and not self._live and now_s >= self._said_s + QUIET_S:
            self._said_s = now_s
            self._print_line(f"{self._plain}: {self._update}" if self._plain else self._update)

    def note(self, text: str) -> None:
        """Prints a line of progress that stays on the terminal. Its important facts are also in the result."""
        if self._progress:
            self._print_line(units.printable(text))

    def remark(self, text: str) -> None:
        """Prints a line about the result that is not in the result itself."""
        if not self._quiet:
            self._print_line(units.printable(text))

    def output(self, line: str) -> None:
        """Prints a line unchanged if the console is verbose: the user's program's, a worker's, or the tool's own."""
        if self._verbose:
            self._print_line(line)

    def error(self, message: str, hint: str = "") -> None:
        """Prints an error message and, on a separate line, a hint at what to do."""
        self.finish()
        self._print_line(units.printable(f"Error: {message}"))
        if hint:
            self._print_line(units.printable(f"Hint: {hint}"))

    def error_line(self, line: str) -> None:
        """Prints an error for programs, on one line."""
        self.finish()
        self._print_line(line)

    def finish(self) -> None:
        """Removes the live line. Another stage may follow."""
        ticker, self._ticker = self._ticker, None
        if ticker is not None:
            self._ended.set()
            ticker.join()
        with self._lock:
            if self._text:
                self._text = ""
                self._write("\r\x1b[2K")

    # The live line

    def _tick(self) -> None:
        while not self._ended.wait(TICK_S):
            with self._lock:
                self._draw()

    def _draw(self) -> None:
        seconds = f"{time.monotonic() - self._began:.0f} s"
        room = _terminal_columns(self._stderr) - len(seconds) - 4
        text = f"{self._text}: {self._update}" if self._update else self._text
        text = text if len(text) <= room else text[: max(room - 1, 0)] + "…"
        self._write(f"\r\x1b[2K{text} · {seconds}")

    def _print_line(self, line: str) -> None:
        with self._lock:
            self._write(f"\r\x1b[2K{line}\n" if self._text else f"{line}\n")
            if self._text:
                self._draw()

    def _write(self, text: str) -> None:
        # A closed stderr must not end a measurement.
        with contextlib.suppress(OSError, ValueError):
            self._stderr.write(text)
            self._stderr.flush()


def _read_columns() -> int | None:
    """Returns the width in ``COLUMNS``; ``None`` if the variable holds no valid width."""
    asked = os.environ.get("COLUMNS", "")
    columns = int(asked) if asked.isascii() and asked.isdigit() and len(asked) <= len(str(MOST_COLUMNS)) else 0
    return columns if 0 < columns <= MOST_COLUMNS else None


def _terminal_columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or PLAIN_WIDTH
    except (OSError, ValueError):
        return PLAIN_WIDTH

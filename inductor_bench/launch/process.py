"""A child process with a log and a time limit, whose descendants end with it."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import InductorBenchError
from ..store.redaction import Redaction
from .marks import MARK, end_marked, forget_child, mark_child
from .marks import tool_mark as tool_mark

GRACE_S = 3.0
"""Seconds for a process to end after SIGTERM, and for its output pipe to close after its end."""

WAKE_S = 0.5
"""Maximum seconds of one uninterrupted wait."""

TAIL_LINES, TAIL_BYTES = 15, 64_000

MOST_OF_A_LINE = 1_000_000
"""Characters of a line that are read at once."""


@dataclass(frozen=True)
class ProcessResult:
    """The end of a child process. ``exit_code`` is ``None`` where a signal or the time limit ended it.

    ``stopped`` says that it was ended on purpose, because what it was started for was there.
    """

    exit_code: int | None
    signal_name: str | None
    timed_out: bool
    time_s: float
    log: Path
    stopped: bool = False

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 or self.stopped

    @property
    def kind(self) -> str:
        """The failure kind for a record: ``timeout``, ``signal`` or ``exit``."""
        return "timeout" if self.timed_out else "signal" if self.signal_name else "exit"

    @property
    def outcome(self) -> str:
        """The end in words, for example ``exited with code 3 after 1.2 s``."""
        if self.timed_out:
            return f"was stopped by the time limit after {self.time_s:.0f} s"
        if self.signal_name:
            return f"was killed by {self.signal_name} after {self.time_s:.1f} s"
        return f"exited with code {self.exit_code} after {self.time_s:.1f} s"

    def tail(self, lines: int = TAIL_LINES) -> str:
        """The last lines of the log, or an empty string."""
        try:
            with self.log.open("rb") as stream:
                stream.seek(max(0, self.log.stat().st_size - TAIL_BYTES))
                text = stream.read().decode("utf-8", errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])


class ChildProcess:
    """A running command in a process group of its own, with one log for both outputs.

    The log holds no secrets of the command and its environment.

    Args:
        command: the program and its arguments, started without a shell.
        environment: the whole environment of the child.
        log: the file to which its output is appended, line by line.
        on_line: called with each line of output, on another thread.
        inherited: file descriptors that the child inherits.
        guarded: whether the guardian ends the child after the end of this process.

    Raises:
        InductorBenchError: the program cannot be started, or the log cannot be written.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        on_line: Callable[[str], None] = lambda line: None,
        inherited: Sequence[int] = (),
        guarded: bool = True,
    ) -> None:
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            self._stream = log.open("a", encoding="utf-8", errors="replace")
        except OSError as error:
            raise InductorBenchError(f"cannot write {log}: {error.strerror or error}") from error
        self._log, self._begin = log, time.monotonic()
        self._mark = mark_child(environment, guarded=guarded)
        self._time_s: float | None = None
        try:
            self._start(command, environment, inherited)
            hide = Redaction.find([command], environment).text
            self._reader = _LogReader(self._child, self._stream, hide, on_line)
        except BaseException:  # for example Ctrl-C after its start: only its mark identifies it
            end_marked(self._mark)
            forget_child(self._mark)
            self._stream.close()
            raise

    def _start(self, command: Sequence[str], environment: Mapping[str, str], inherited: Sequence[int]) -> None:
        try:
            self._child = subprocess.Popen(
                command,
                env={**environment, MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
                pass_fds=inherited,
            )
        except OSError as error:
            raise InductorBenchError(f"cannot start {command[0]}: {error.strerror or error}") from error

    def begin(self, log: Path) -> None:
        """Restarts the measurement of its duration and moves its log, when a waiting process gets its work.

        Raises:
            InductorBenchError: the log cannot be moved to ``log``.
        """
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            self._log.replace(log)
        except OSError as error:
            raise InductorBenchError(f"cannot write {log}: {error.strerror or error}") from error
        self._log, self._begin = log, time.monotonic()

    def wait(self, timeout_s: float | None, until: Callable[[], bool] = lambda: False) -> bool:
        """Waits up to ``timeout_s`` seconds, or without limit for ``None``. Returns whether the process has ended.

        ``until`` is asked every ``WAKE_S`` seconds and ends the wait.

        The wait is interrupted every ``WAKE_S`` seconds: a signal that came while this process was stopped (Ctrl-Z, a
        paused container) may reach another thread, and Python calls the handler when the main thread wakes.
        """
        end_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            try:
                self._child.wait(min(end_s - time.monotonic(), WAKE_S))
                return True
            except subprocess.TimeoutExpired:
                if time.monotonic() >= end_s or until():
                    return False

    def end(self, timed_out: bool = False) -> ProcessResult:
        """Ends the process and its descendants. May be called again.

        Raises:
            InductorBenchError: the log could not be written to its end.
        """
        if self._time_s is None:
            self._time_s = time.monotonic() - self._begin
            try:
                end_process_tree(self._child, self._mark)
                forget_child(self._mark)
            finally:
                self._reader.finish()
                self._close_log()
        code = self._child.returncode
        name = signal.Signals(-code).name if code < 0 and not timed_out else None
        return ProcessResult(None if timed_out or code < 0 else code, name, timed_out, self._time_s, self._log)

    def _close_log(self) -> None:
        try:
            self._stream.close()
        except OSError as error:
            message = f"cannot write {self._log}: {error.strerror or error}"
            raise InductorBenchError(message, "free some space on its disk") from error


def run_process(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    log: Path,
    timeout_s: float | None,
    on_line: Callable[[str], None] = lambda line: None,
    is_finished: Callable[[], bool] = lambda: False,
) -> ProcessResult:
    """Runs a command in the current folder to its end; see :class:`ChildProcess`.

    The command and its descendants have ended when this function returns or raises.

    Args:
        timeout_s: limit of the elapsed time in seconds; ``None`` for no limit.
        is_finished: asked every ``WAKE_S`` seconds; the command is ended, and counts as successful, once it is true.

    Raises:
        InductorBenchError: the program cannot be started, or the log cannot be written.
        KeyboardInterrupt: the user interrupted it; raised after the end of the command.
    """
    child = ChildProcess(command, environment=environment, log=log, on_line=on_line)
    finished = False

    def until() -> bool:
        nonlocal finished
        finished = is_finished()
        return finished

    timed_out = True
    try:
        timed_out = not child.wait(timeout_s, until) and not finished
    finally:
        ended = child.end(timed_out)
    return replace(ended, stopped=finished)


def end_process_tree(child: subprocess.Popen[str], mark: str) -> None:
    """Ends a process, its group and all processes with its mark: SIGTERM first, SIGKILL after ``GRACE_S`` seconds."""
    try:
        if child.poll() is None:
            _signal_group(child.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(GRACE_S)
    finally:  # also after a second Ctrl-C
        _signal_group(child.pid, signal.SIGKILL)
        child.wait()
        end_marked(mark)


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


class _LogReader:
    """A thread that copies a child's output to a listener and, through ``hide``, to the log."""

    def __init__(
        self,
        child: subprocess.Popen[str],
        stream: object,
        hide: Callable[[str], str],
        on_line: Callable[[str], None],
    ) -> None:
        self._child = child
        self._stream = stream
        self._hide = hide
        self._on_line = on_line
        self._disk_full = False
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        assert self._child.stdout is not None
        with contextlib.suppress(ValueError):  # the pipe was closed during a read
            while line := self._child.stdout.readline(MOST_OF_A_LINE):
                self._write(self._hide(line))
                self._on_line(line.rstrip("\n"))

    def _write(self, line: str) -> None:
        if self._disk_full:
            return
        try:
            self._stream.write(line)  # type: ignore[attr-defined]
            self._stream.flush()  # type: ignore[attr-defined]
        except (OSError, ValueError):
            self._disk_full = True

    def finish(self) -> None:
        self._thread.join(GRACE_S)
        if not self._thread.is_alive() and self._child.stdout is not None:
            self._child.stdout.close()

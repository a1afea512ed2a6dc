"""One child process with a log, a time limit, and no survivors."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InductorBenchError
from ..store.redaction import Redaction
from .marks import MARK, end_marked, forget_child, mark_child
from .marks import tool_mark as tool_mark

GRACE_S = 3.0
"""How long a process may take to end after SIGTERM, and its output pipe to close after its end."""

LOOK_UP_S = 0.5

TAIL_LINES = 15


@dataclass(frozen=True)
class ProcessResult:
    """How a child process ended. ``exit_code`` is ``None`` where a signal or the time limit ended it."""

    exit_code: int | None
    signal_name: str | None
    timed_out: bool
    time_s: float
    log: Path

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

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
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])


class ChildProcess:
    """A running command in a process group of its own, its two outputs merged into a log, which holds no secrets of the
    command and its environment.

    Args:
        command: the program and its arguments; no shell is involved.
        environment: the whole environment of the child.
        log: where its output goes, appended line by line as it comes.
        on_line: is given each line of output, on another thread.
        inherited: file descriptors that the child gets as they are.
        guarded: whether it is ended when this process is gone, however that ended; not where it sees to its own end.

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
        except BaseException:  # Ctrl-C while it starts: it runs, and nobody but its mark knows of it
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
        """Counts its time from now on, and moves its log, for a process that waited until there was work for it.

        Raises:
            InductorBenchError: the log cannot be written there, on the same file system.
        """
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            self._log.replace(log)
        except OSError as error:
            raise InductorBenchError(f"cannot write {log}: {error.strerror or error}") from error
        self._log, self._begin = log, time.monotonic()

    def wait(self, timeout_s: float | None) -> bool:
        """Whether it ended by itself within that time; without a limit ``None``.

        It looks up now and then: a signal that came while this process was stopped (Ctrl-Z, a paused container) may be
        delivered to another thread, and Python then calls the handler no sooner than the main thread wakes.
        """
        end_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            try:
                self._child.wait(min(end_s - time.monotonic(), LOOK_UP_S))
                return True
            except subprocess.TimeoutExpired:
                if time.monotonic() >= end_s:
                    return False

    def end(self, timed_out: bool = False) -> ProcessResult:
        """Ends it and its descendants, whatever state they are in. May be called again."""
        if self._time_s is None:
            self._time_s = time.monotonic() - self._begin
            try:
                end_process_tree(self._child, self._mark)
                forget_child(self._mark)
            finally:
                self._reader.finish()
                self._stream.close()
        code = self._child.returncode
        name = signal.Signals(-code).name if code < 0 and not timed_out else None
        return ProcessResult(None if timed_out or code < 0 else code, name, timed_out, self._time_s, self._log)


def run_process(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    log: Path,
    timeout_s: float | None,
    on_line: Callable[[str], None] = lambda line: None,
) -> ProcessResult:
    """Runs a command in the current folder to its end; see :class:`ChildProcess`.

    Whatever way this returns or raises, the command and its descendants are gone. ``timeout_s`` is a wall-clock limit.

    Raises:
        InductorBenchError: the program cannot be started, or the log cannot be written.
        KeyboardInterrupt: passed on, after the child was killed.
    """
    child = ChildProcess(command, environment=environment, log=log, on_line=on_line)
    timed_out = True
    try:
        timed_out = not child.wait(timeout_s)
    finally:
        ended = child.end(timed_out)
    return ended


def end_process_tree(child: subprocess.Popen[str], mark: str) -> None:
    """Ends a process, its group and whatever else bears its mark: SIGTERM first, SIGKILL for what is left."""
    try:
        if child.poll() is None:
            _signal_group(child.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(GRACE_S)
    finally:  # an impatient second Ctrl-C comes by here too
        _signal_group(child.pid, signal.SIGKILL)
        child.wait()
        end_marked(mark)


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


class _LogReader:
    """Copies a child's output to its log, less what ``hide`` takes out, and to a listener, on a thread of its own."""

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
        with contextlib.suppress(ValueError):  # the pipe was closed while a line was awaited
            for line in self._child.stdout:
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

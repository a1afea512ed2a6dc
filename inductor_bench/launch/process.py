"""Every process that this tool starts: its descendants end with it, and all of them with this process."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from ..errors import InductorBenchError
from ..interruption import uninterrupted
from ..store.redaction import Redaction
from . import guardian
from .guardian import GRACE_S
from .marks import MARK, end_marked, find_family, forget_child, mark_child

PIPE_S = 3.0
"""Seconds for the output pipe of a process to close after its end."""

REAP_S = 10.0
"""Seconds to wait for a process that was sent SIGKILL and is still in a system call."""

POLLS_S = (0.001, 0.05)
"""Shortest and longest time in seconds between two looks at whether a process has ended."""

WAKE_S = 0.5
"""Seconds between two questions whether a wait may end early."""

SIGNALLED = 128
"""Added to the number of the signal that ended a command, as shells do."""

TAIL_LINES, TAIL_BYTES = 15, 64_000

MOST_OF_A_LINE = 1_000_000
"""Characters of a line that are read at once."""


@dataclass(frozen=True)
class ProcessResult:
    """The end of a child process. ``exit_code`` is ``None`` if a signal or the time limit ended it.

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


class RunningProcess:
    """A running command, with a mark by which this process, or the guardian after it, ends it and its descendants.

    Args:
        command: the program and its arguments, started without a shell.
        environment: the whole environment of the child.
        guarded: whether the guardian ends the child after the end of this process.
        more: further arguments of ``subprocess.Popen``.

    Raises:
        InductorBenchError: the program cannot be started.
    """

    _mark = ""
    _family: frozenset[guardian.Process] = frozenset()

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *, guarded: bool = True, **more: Any
    ) -> None:
        self._mark = mark_child(environment, guarded=guarded)
        try:
            with uninterrupted():  # until it runs its program, the mark does not identify it
                self._child = subprocess.Popen(command, env={**environment, MARK: self._mark}, **more)
        except OSError as error:
            self._forget_family()
            raise InductorBenchError(f"cannot start {command[0]}: {error.strerror or error}") from error
        except BaseException:
            self._forget_family()
            raise

    def wait(self, timeout_s: float | None, until: Callable[[], bool] = lambda: False, ask_s: float = WAKE_S) -> bool:
        """Waits up to ``timeout_s`` seconds, or without limit for ``None``. Returns whether the process has ended.

        ``until`` is asked every ``ask_s`` seconds and ends the wait.

        The wait is many short ones: a signal that came while this process was stopped (Ctrl-Z, a paused container) may
        reach another thread, and Python calls the handler when the main thread wakes. ``Popen.wait`` would hold a lock
        that an interruption can lose.
        """
        begin_s = asked_s = time.monotonic()
        end_s = math.inf if timeout_s is None else begin_s + timeout_s
        pause_s, longest_s = POLLS_S
        while not self._has_ended():
            now_s = time.monotonic()
            if now_s >= end_s:
                return False
            if now_s - asked_s >= ask_s:
                if until():
                    return False
                asked_s = now_s
            time.sleep(min(pause_s, end_s - now_s))
            pause_s = min(2 * pause_s, longest_s)
        return True

    def _has_ended(self) -> bool:
        with uninterrupted():
            return self._child.poll() is not None

    def interrupt(self, *, by_us: bool) -> None:
        """Sends SIGINT to the process, or only takes note of its descendants if somebody else has sent it."""
        self._note_family()
        if by_us:
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(signal.SIGINT)

    def _note_family(self) -> None:
        """After the end of the process nothing tells that a descendant without environment was its own."""
        self._family |= find_family(self._mark)

    def end_family(self) -> int:
        """Ends the process and its descendants: SIGTERM first, SIGKILL after ``GRACE_S`` seconds.

        Returns:
            The exit code; negative the number of the signal that ended it.
        """
        try:
            if self._child.poll() is None:
                self._note_family()
                guardian.send(self._child.pid, signal.SIGTERM)
                self.wait(GRACE_S)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, signal.SIGKILL)  # all that is left of its group, if it leads one
            try:
                end_marked(self._mark, self._family)
            finally:
                self.wait(REAP_S)
        forget_child(self._mark)
        code = self._child.returncode
        return -signal.SIGKILL if code is None else code

    def _forget_family(self) -> None:
        end_marked(self._mark)
        forget_child(self._mark)


class ChildProcess(RunningProcess):
    """A running command in a separate process group, with one log for both outputs.

    The log holds no secrets of the command and its environment.

    Args:
        command, environment, guarded: as for :class:`RunningProcess`.
        log: the file to which its output is appended, line by line.
        on_line: called with each line of output, on another thread.
        inherited: file descriptors that the child inherits.

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
        self._time_s: float | None = None
        hide = Redaction.find([command], environment).text
        try:
            with uninterrupted():
                super().__init__(
                    command,
                    environment,
                    guarded=guarded,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    encoding="utf-8",
                    errors="replace",
                    start_new_session=True,
                    pass_fds=inherited,
                )
                self._reader = _LogReader(self._child, self._stream, hide, on_line)
        except BaseException:
            self._forget_family()
            self._stream.close()
            raise

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

    def end(self, timed_out: bool = False) -> ProcessResult:
        """Ends the process and its descendants. May be called again.

        Raises:
            InductorBenchError: the log could not be written to its end.
        """
        if self._time_s is None:
            self._time_s = time.monotonic() - self._begin
            with uninterrupted():
                try:
                    self._code = self.end_family()
                finally:
                    self._reader.finish()
                    self._close_log()
        code = self._code
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
    ask_s: float = WAKE_S,
) -> ProcessResult:
    """Runs a command in the current folder to its end; see :class:`ChildProcess`.

    The command and its descendants have ended when this function returns or raises.

    Args:
        timeout_s: limit of the elapsed time in seconds; ``None`` for no limit.
        is_finished: asked every ``ask_s`` seconds; the command is ended, and counts as successful, once it is true.
        ask_s: the seconds between two questions.

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
        timed_out = not child.wait(timeout_s, until, ask_s) and not finished
    finally:
        ended = child.end(timed_out)
    return replace(ended, stopped=finished)


def run_in_terminal(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs a command with this process's own input, output and process group, and returns its exit code.

    The command gets Ctrl-C and decides what to do; this process waits for it. At another end of this process the
    command ends, too.

    Raises:
        InductorBenchError: the command cannot be started.
    """
    child = RunningProcess(command, environment)
    try:
        with _interrupts_for(child):
            child.wait(None)
    finally:
        with uninterrupted():
            code = child.end_family()
    return code if code >= 0 else SIGNALLED - code


@contextlib.contextmanager
def _interrupts_for(child: RunningProcess) -> Iterator[None]:
    """Sends SIGINT on to a child, unless the terminal has sent it to both or this process ignores it."""

    def send_on(number: int, frame: FrameType | None) -> None:
        child.interrupt(by_us=not _is_in_foreground())

    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, send_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _is_in_foreground() -> bool:
    """Whether Ctrl-C on this process's terminal reaches its process group."""
    try:
        descriptor = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(descriptor)


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
        self._thread.join(PIPE_S)
        if not self._thread.is_alive() and self._child.stdout is not None:
            self._child.stdout.close()


# A child process with a pipe for requests and a pipe for answers, apart from its outputs, because models print.


class PipedProcess(ChildProcess):
    """A running command that reads requests and writes answers on pipes.

    Args:
        command: the program and its arguments. The numbers of the descriptors for reading and writing are added.
        environment, log, on_line, guarded: as for :class:`ChildProcess`.

    Attributes:
        requests: an unbuffered stream to the process.
        answers: an unbuffered stream from the process.

    Raises:
        InductorBenchError: as for :class:`ChildProcess`.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        on_line: Callable[[str], None] = lambda line: None,
        guarded: bool = True,
    ) -> None:
        reads, requests = os.pipe()
        answers, writes = os.pipe()
        self.requests, self.answers = os.fdopen(requests, "wb", 0), os.fdopen(answers, "rb", 0)
        try:
            words = [*command, str(reads), str(writes)]
            inherited = (reads, writes)
            super().__init__(
                words, environment=environment, log=log, on_line=on_line, inherited=inherited, guarded=guarded
            )
        except BaseException:
            self._close_pipes()
            raise
        finally:
            os.close(reads)
            os.close(writes)

    def close_requests(self) -> None:
        """Closes the stream of requests, which tells the process to end."""
        self.requests.close()

    def end(self, timed_out: bool = False) -> ProcessResult:
        try:
            return super().end(timed_out)
        finally:
            self._close_pipes()

    def _close_pipes(self) -> None:
        self.requests.close()
        self.answers.close()

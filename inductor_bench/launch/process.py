"""The processes that this tool starts: each ends with this process, and its output explains its end."""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from ..errors import InductorBenchError, UnwritableError, explain_system_error
from ..interruption import uninterrupted
from ..store.redaction import Redaction
from . import guardian
from .guardian import GRACE_S
from .marks import MARK, end_marked, find_family, forget_child, mark_child

# The command-line arguments and variables with which a Python interpreter runs a module of this package.


SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""Variables of processes that run no code of the user: Python imports nothing from the current folder."""

ANOTHER_PYTHON = "name an interpreter that has torch with --python"
"""The hint if an interpreter cannot be used."""

NOT_PYTHON = "{python} is no Python interpreter"


def list_module_words(name: str) -> tuple[str, ...]:
    """Returns the arguments that run a module of this package like ``-m``, but without the current folder on the path.

    The current folder may hold modules that hide others, for example a source tree of torch. ``PYTHONSAFEPATH`` would
    also affect the processes that the module starts, and Python 3.10 does not support it.
    """
    return ("-c", _RUN_MODULE, name)


_RUN_MODULE = """\
import sys
if sys.path[0] == "":
    del sys.path[0]
import runpy
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)"""

_TRACEBACK = "Traceback (most recent call last):"
_CAUSED = "The above exception was the direct cause of the following exception:"
_ERROR_LINE = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Interrupt|Iteration|Warning)(:|$)")
_LONGEST = 300
_RANK_FAILED = "ChildFailedError"
_FIRST_RANK = re.compile(
    r"Root Cause \(first observed failure\):.*?^ *rank *: (?P<rank>\d+).*?"
    r"^ *exitcode *: (?P<code>-?\d+) \(pid: \d+\) *(?:\((?P<signal>SIG\w+)\))?",
    re.DOTALL | re.MULTILINE,
)
"""What torchrun says of the rank that failed first. (torch 2.11, 2.13)"""

ERROR_LINES = 200
"""Lines at the end of a log that are searched for the exception that ended a program."""

GO_TOGETHER = "install versions that fit together"
"""The hint if a package is installed and its import fails."""

_REMEDIES = (
    (r"InvalidCxxCompiler|No working C\+\+ compiler", "install a C++ compiler (g++), or name one in CXX"),
    (
        r"operator torchvision::\w+ does not exist|Could not run 'torchvision::|Couldn't load custom C\+\+ ops"
        r"|PyTorch and torchvision were compiled with different CUDA",
        "torchvision does not fit this torch: install both with the command that pytorch.org shows for it",
    ),
    (r"No module named 'torch'", f"install torch 2.9 or newer beside it, or {ANOTHER_PYTHON}"),
    (r"No module named '([\w.]+)'", r"install \1 for the interpreter that runs it, or name another with --python"),
    (
        r"needs (torch|triton), which is not installed",
        r"install \1 for the interpreter that runs it, or name another with --python",
    ),
    (r"TritonMissing|[Cc]annot find a working triton", "install triton; `inductor-bench doctor` says what is there"),
    (r"[Oo]ut of memory|OutOfMemoryError|MemoryError", "try a smaller batch, or free memory that others hold"),
    (r"No space left on device|Disk quota exceeded", "free some space on the disk that it writes to"),
    (
        r"No CUDA GPUs are available|no NVIDIA driver|not compiled with CUDA|needs a GPU|ran on a GPU",
        "this torch sees no CUDA device; `inductor-bench doctor` says what it sees",
    ),
    (r"is installed but broken", GO_TOGETHER),
)


def find_last_error(text: str) -> str:
    """Returns the first line of the error that ends a Python program's output, such as ``ValueError: no such file``.

    Returns an empty text if the output does not end with an error. Of several ranks the first that failed counts.
    """
    lines = text.splitlines()
    starts = _find_tracebacks(lines)
    if starts:
        found = _find_error_after(starts[-1], lines)
        return (_RANK_FAILED in found and _find_error_of_rank(text)) or found
    errors = [line for line in lines if _ERROR_LINE.match(line)]  # a syntax error has no traceback
    return errors[-1][:_LONGEST].strip() if errors else ""


def _find_error_of_rank(text: str) -> str:
    """Returns the error of the rank that failed first according to torchrun; empty if torchrun names none."""
    failed = _FIRST_RANK.search(text)
    if failed is None:
        return ""
    mark, code, signal = f"[rank{failed['rank']}]: ", failed["code"], failed["signal"]
    own = [line.removeprefix(mark) for line in text.splitlines() if line.startswith(mark)]
    error = find_last_error("\n".join(own))
    ended = f"was killed by {signal}" if signal else f"exited with code {code}"
    return f"rank {failed['rank']}{f': {error}' if error else f' {ended}'}"


def find_remedy_of_end(text: str) -> str:
    """Returns the hint for the error at the end of a Python program's output, or else for its cause."""
    lines = text.splitlines()
    errors = [find_last_error(text)]
    starts = _find_tracebacks(lines)
    for earlier, later in zip(reversed(starts[:-1]), reversed(starts), strict=False):
        if _CAUSED not in map(str.strip, lines[earlier:later]):
            break
        errors.append(_find_error_after(earlier, lines))
    return next(filter(None, map(find_remedy, errors)), "")


def _find_tracebacks(lines: list[str]) -> list[int]:
    return [index for index, line in enumerate(lines) if line.strip() == _TRACEBACK]


def _find_error_after(start: int, lines: list[str]) -> str:
    after = (line for line in lines[start + 1 :] if line and not line[0].isspace())
    return next(after, "")[:_LONGEST].strip()


def find_remedy(text: str) -> str:
    """Returns the hint for the well-known error that ``text`` names; empty if none is known."""
    for pattern, advice in _REMEDIES:
        match = re.search(pattern, text)
        if match:
            return match.expand(advice)
    return ""


PIPE_S = 3.0
"""Seconds for the output pipe of a process to close after its end."""

REAP_S = 10.0
"""Seconds to wait for a process that was sent SIGKILL and is still in a system call."""

POLLS_S = (0.001, 0.05)
"""The shortest and the longest time in seconds between two checks whether a process has ended."""

WAKE_S = 0.5
"""Seconds between two checks whether a wait may end early."""

SIGNALLED = 128
"""Added to the number of the signal that ended a command, as shells do."""

TAIL_LINES, TAIL_BYTES = 15, 64_000

_LEAKS = re.compile(r"(?ms)^nanobind: leaked .*?(?:refleaks\.html\n?|\Z)")  # what Triton prints at the end (torch 2.15)

MOST_OF_A_LINE = 1_000_000
"""Characters of a line that are read at once."""


@dataclass(frozen=True)
class ProcessResult:
    """The end of a child process. ``exit_code`` is ``None`` if a signal or the time limit ended it.

    ``stopped`` says that it was ended on purpose, because its result was complete.
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
        """Returns the end in words, for example ``exited with code 3 after 1.2 s``."""
        if self.timed_out:
            return f"was stopped by the time limit after {self.time_s:.0f} s"
        if self.signal_name:
            return f"was killed by {self.signal_name} after {self.time_s:.1f} s"
        return f"exited with code {self.exit_code} after {self.time_s:.1f} s"

    def tail(self, lines: int = TAIL_LINES) -> str:
        """The last lines of the log that the program itself printed, or an empty string."""
        try:
            with self.log.open("rb") as stream:
                stream.seek(max(0, self.log.stat().st_size - TAIL_BYTES))
                text = stream.read().decode("utf-8", errors="replace")
        except OSError:
            return ""
        return "\n".join(_LEAKS.sub("", text).splitlines()[-lines:])


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
            message = f"cannot start {command[0]}: {error.strerror or error}"
            raise InductorBenchError(message, name="cannot-start") from error
        except BaseException:
            self._forget_family()
            raise

    def wait(self, timeout_s: float | None, until: Callable[[], bool] = lambda: False, ask_s: float = WAKE_S) -> bool:
        """Waits up to ``timeout_s`` seconds, or without limit for ``None``. Returns whether the process has ended.

        ``until`` is called every ``ask_s`` seconds; if it returns true, the wait ends. The wait consists of many short
        waits: a signal that came while this process was stopped (Ctrl-Z, a paused container) may reach another thread,
        and Python calls the handler when the main thread wakes. ``Popen.wait`` would hold a lock that an interruption
        can lose.
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
        """Sends SIGINT to the process. If somebody else has sent it, only notes the descendants of the process."""
        self._note_family()
        if by_us:
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(signal.SIGINT)

    def _note_family(self) -> None:
        """Notes descendants now: after the process, nothing shows that one without environment was its own."""
        self._family |= find_family(self._mark)

    def end_family(self) -> int:
        """Ends the process and its descendants: SIGTERM first, SIGKILL after ``GRACE_S`` seconds.

        Returns:
            The exit code; negative the number of the signal that ended it.
        """
        try:
            if self._child.poll() is None:
                self._note_family()
                guardian.send_signal(self._child.pid, signal.SIGTERM)
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
        with explain_system_error(f"cannot write {log}", name="unwritable"):
            log.parent.mkdir(parents=True, exist_ok=True)
            self._stream = log.open("a", encoding="utf-8", errors="replace")
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
        with explain_system_error(f"cannot write {log}", name="unwritable"):
            log.parent.mkdir(parents=True, exist_ok=True)
            self._log.replace(log)
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
            raise UnwritableError.at(self._log, error, "free some space on its disk") from error


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
        is_finished: called every ``ask_s`` seconds; if it returns true, the command is ended and counts as successful.
        ask_s: the seconds between two calls of ``is_finished``.

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

    The command gets Ctrl-C and decides what to do; this process waits for it. If this process ends in another way, the
    command ends, too. An exit code of 1 after Ctrl-C becomes 130, because Python ends with 1 if Ctrl-C comes while it
    starts.

    Raises:
        InductorBenchError: the command cannot be started.
    """
    child = RunningProcess(command, environment)
    try:
        with _interrupts_for(child) as interrupts:
            child.wait(None)
    finally:
        with uninterrupted():
            code = child.end_family()
    if code == 1 and interrupts:
        return SIGNALLED + signal.SIGINT
    return code if code >= 0 else SIGNALLED - code


@contextlib.contextmanager
def _interrupts_for(child: RunningProcess) -> Iterator[list[int]]:
    """Sends SIGINT on to a child, unless the terminal has sent it to both processes or this process ignores it.

    Yields:
        The signals that came.
    """
    came: list[int] = []

    def send_on(number: int, frame: FrameType | None) -> None:
        came.append(number)
        child.interrupt(by_us=not _is_in_foreground())

    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield came
        return
    signal.signal(signal.SIGINT, send_on)
    try:
        yield came
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

"""A process that answers on pipes; and a worker that does each job in a fork, because importing torch takes long."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..errors import explain_system_error
from ..interruption import uninterrupted
from ..store.redaction import Redaction
from .process import REAP_S, WAKE_S, ChildProcess, ProcessResult

NO_VARIABLES: Mapping[str, str] = {}


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
        self._unread = b""
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

    def read_answer(self, timeout_s: float | None) -> bytes | None:
        """Returns the next line with its end; empty at the end of the process, ``None`` if none came in time."""
        end_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while b"\n" not in self._unread:
            # many short waits: a signal may reach another thread while this process is stopped
            left_s = max(0.0, min(WAKE_S, end_s - time.monotonic()))
            if select.select([self.answers], [], [], left_s)[0]:
                data = self.answers.read(1 << 16)
                if not data:
                    return b""
                self._unread += data
            elif time.monotonic() >= end_s:
                return None
        line, _, self._unread = self._unread.partition(b"\n")
        return line + b"\n"

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


class ForkingWorker:
    """A process that imports torch, and then does jobs, each in a fork. Several threads may each give it a job.

    Args:
        command: the command of a worker. The numbers of two pipes are added: on the first it reads its jobs, on the
            second it says that it is ready, and how each job ended.
        environment: the whole environment of the worker.
        log: the file for its own output.

    Raises:
        InductorBenchError: the worker cannot be started.
    """

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str], log: Path) -> None:
        self._environment = environment
        self._is_ready = False
        self._outputs = (log.with_suffix(f".output-{number}") for number in itertools.count())  # of jobs, with secrets
        self._changed = threading.Condition()
        self._ended: dict[str, str] = {}  # the status of each ended job that nobody has taken yet, by its output
        self._is_reading = self._is_gone = False
        self._child = PipedProcess(command, environment=environment, log=log)

    def wait(self, timeout_s: float | None) -> bool:
        """Waits up to ``timeout_s`` seconds, or without limit for ``None``. Returns whether the worker is ready."""
        with self._changed:
            if not self._is_ready:
                self._is_ready = self._read_line(timeout_s) == "ready"
        return self._is_ready and not self._child.wait(0)

    def run(
        self,
        words: Sequence[str],
        *,
        log: Path,
        timeout_s: float | None,
        on_line: Callable[[str], None] = lambda line: None,
        variables: Mapping[str, str] = NO_VARIABLES,
    ) -> ProcessResult:
        """Runs a job in a fork and waits for its end, like ``run_process``; ``on_line`` is called after the end.

        If the wait is interrupted, the worker is lost; see :attr:`is_alive`.

        Args:
            words: the arguments of a worker that is started for the job.
            log: the file for the output of the job.
            timeout_s: limit in seconds; ``None`` for no limit.
            on_line: called with each line of output.
            variables: further environment variables of the job.

        Raises:
            InductorBenchError: the log cannot be written.
        """
        begin_s, status, timed_out = time.monotonic(), None, False
        output = next(self._outputs).resolve()
        try:
            with explain_system_error(f"cannot write {log}", name="unwritable"):
                log.parent.mkdir(parents=True, exist_ok=True)
            self._order(words, output, variables)
            status = self._wait_for_job(output, timeout_s)
            if status is None:
                timed_out = True
                self._order([], output, NO_VARIABLES)
                status = self._wait_for_job(output, REAP_S)
        finally:
            if not status and not self._is_gone:
                self.end()
            with uninterrupted():
                self._keep_output(output, log, on_line)
        code = os.waitstatus_to_exitcode(int(status)) if status else 1  # the worker itself is gone
        name = signal.Signals(-code).name if code < 0 and not timed_out else None
        exit_code = None if timed_out or code < 0 else code
        return ProcessResult(exit_code, name, timed_out, time.monotonic() - begin_s, log)

    def _order(self, words: Sequence[str], output: Path, variables: Mapping[str, str]) -> None:
        line = json.dumps([list(words), str(output), dict(variables)]).encode() + b"\n"
        with self._changed, contextlib.suppress(BrokenPipeError, ValueError):  # it has ended, as its answer will say
            self._child.requests.write(line)

    def _keep_output(self, output: Path, log: Path, on_line: Callable[[str], None]) -> None:
        """Writes a job's output into its log, without secrets."""
        try:
            text = output.read_text(encoding="utf-8", errors="replace")
            output.unlink()
        except OSError:
            text = ""
        with contextlib.suppress(OSError):
            log.write_text(Redaction.find([], self._environment).text(text), encoding="utf-8")
        for line in text.splitlines():
            on_line(line)

    def _wait_for_job(self, output: Path, timeout_s: float | None) -> str | None:
        """Waits for the end of a job and returns its status: empty if the worker ended, ``None`` if the time ran out.

        One of the waiting threads reads for all of them.
        """
        end_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while str(output) not in self._ended and not self._is_gone:
                left_s = min(WAKE_S, end_s - time.monotonic())
                if left_s <= 0:
                    return None
                if self._is_reading:
                    self._changed.wait(left_s)
                else:
                    self._read_status(left_s)
            return self._ended.pop(str(output), "")

    def _read_status(self, timeout_s: float) -> None:
        """Waits for the end of any job. Other threads may give jobs meanwhile."""
        self._is_reading = True
        self._changed.release()
        try:
            line = self._read_line(timeout_s)
        finally:
            self._changed.acquire()
            self._is_reading = False
            self._changed.notify_all()
        self._is_gone = line == ""
        if line:
            status, _, output = line.partition(" ")
            self._ended[output] = status

    def _read_line(self, timeout_s: float | None) -> str | None:
        """Returns the next line; empty at the worker's end, and ``None`` if none came in time."""
        try:
            line = self._child.read_answer(timeout_s)
        except ValueError:  # another thread has ended the worker
            return ""
        return line.decode().rstrip("\n") if line is not None else None

    @property
    def is_alive(self) -> bool:
        """Whether it can do another job."""
        return not self._child.requests.closed and not self._child.wait(0)

    def end(self) -> None:
        """Ends the worker and its jobs. May be called again."""
        self._is_gone = True
        self._child.end()

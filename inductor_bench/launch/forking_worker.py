"""A worker that does each job in a fork of itself, because importing torch takes longer than many measurements."""

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

from ..errors import InductorBenchError
from ..interruption import uninterrupted
from ..store.redaction import Redaction
from .process import REAP_S, WAKE_S, PipedProcess, ProcessResult

NO_VARIABLES: Mapping[str, str] = {}


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
        self._buffer = b""
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
            log.parent.mkdir(parents=True, exist_ok=True)
            self._order(words, output, variables)
            status = self._wait_for_job(output, timeout_s)
            if status is None:
                timed_out = True
                self._order([], output, NO_VARIABLES)
                status = self._wait_for_job(output, REAP_S)
        except OSError as error:
            raise InductorBenchError(f"cannot write {log}: {error.strerror or error}", name="unwritable") from error
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
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            # many short waits: a signal may reach another thread while this process is stopped
            left_s = WAKE_S if end_s is None else min(WAKE_S, end_s - time.monotonic())
            if left_s <= 0:
                return None
            try:
                if select.select([self._child.answers], [], [], left_s)[0]:
                    data = self._child.answers.read(1 << 10)
                    if not data:
                        return ""
                    self._buffer += data
            except ValueError:  # another thread has ended the worker
                return ""
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line.decode()

    @property
    def is_alive(self) -> bool:
        """Whether it can do another job."""
        return not self._child.requests.closed and not self._child.wait(0)

    def end(self) -> None:
        """Ends the worker and its jobs. May be called again."""
        self._is_gone = True
        self._child.end()

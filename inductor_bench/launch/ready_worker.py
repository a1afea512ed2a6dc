"""A worker that is started before its job is known, because importing torch takes longer than many measurements."""

from __future__ import annotations

import contextlib
import json
import select
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .piped_process import PipedProcess
from .process import ProcessResult


class ReadyWorker:
    """A process that imports torch and then waits for one job.

    Args:
        command: the command of a worker. The numbers of two pipes are added: on the first it reads its job, on the
            second it reports that it is ready.
        environment: the whole environment of the worker.
        log: the file for its output until it has a job.
        on_line: called with each line of output.

    Raises:
        InductorBenchError: the worker cannot be started.
    """

    def __init__(
        self, command: Sequence[str], *, environment: Mapping[str, str], log: Path, on_line: Callable[[str], None]
    ) -> None:
        self._is_ready = False
        self._child = PipedProcess(command, environment=environment, log=log, on_line=on_line)

    def wait(self, timeout_s: float | None) -> bool:
        """Waits up to ``timeout_s`` seconds, or without limit for ``None``. Returns whether the worker is ready."""
        if not self._is_ready and select.select([self._child.answers], [], [], timeout_s)[0]:
            self._is_ready = bool(self._child.answers.read(1))
        return self._is_ready and not self._child.wait(0)

    def run(self, words: Sequence[str], *, log: Path, timeout_s: float | None) -> ProcessResult:
        """Sends the worker its job and waits for its end, like ``run_process``.

        Args:
            words: the arguments of a worker that is started for the job.
            log: the file for its output, including the output so far.
            timeout_s: limit in seconds from now on; ``None`` for no limit.
        """
        timed_out = True
        try:
            self._child.begin(log)
            with contextlib.suppress(BrokenPipeError):  # the worker has ended; the result reports it
                self._child.requests.write(json.dumps(list(words)).encode() + b"\n")
            timed_out = not self._child.wait(timeout_s)
        finally:
            ended = self._child.end(timed_out)
        return ended

    def end(self) -> None:
        """Ends the worker without a job."""
        self._child.end()

"""A worker that is started before there is work for it, since importing torch takes longer than many measurements."""

from __future__ import annotations

import contextlib
import json
import select
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .piped_process import PipedProcess
from .process import ProcessResult


class ReadyWorker:
    """A process that has imported torch, or is about to, and waits for one job.

    Args:
        command: what starts a worker; the numbers of two pipes are added, on which it reads its job and says that it
            is ready.
        environment: the whole environment of the worker.
        log: where its output goes until it has a job.
        on_line: is given each line of output.

    Raises:
        InductorBenchError: it cannot be started.
    """

    def __init__(
        self, command: Sequence[str], *, environment: Mapping[str, str], log: Path, on_line: Callable[[str], None]
    ) -> None:
        self._is_ready = False
        self._child = PipedProcess(command, environment=environment, log=log, on_line=on_line)

    def wait(self, timeout_s: float | None) -> bool:
        """Waits until it is ready, and says whether it is: it may have ended, or take too long."""
        if not self._is_ready and select.select([self._child.answers], [], [], timeout_s)[0]:
            self._is_ready = bool(self._child.answers.read(1))
        return self._is_ready and not self._child.wait(0)

    def run(self, words: Sequence[str], *, log: Path, timeout_s: float | None) -> ProcessResult:
        """Has it do its job, and waits for its end, like ``run_process``.

        Args:
            words: the arguments that a worker is started with otherwise.
            log: where its output goes from now on, together with what it has printed so far.
            timeout_s: a limit, from now on.
        """
        timed_out = True
        try:
            self._child.begin(log)
            with contextlib.suppress(BrokenPipeError):  # it ended meanwhile, which its result says
                self._child.requests.write(json.dumps(list(words)).encode() + b"\n")
            timed_out = not self._child.wait(timeout_s)
        finally:
            ended = self._child.end(timed_out)
        return ended

    def end(self) -> None:
        """Ends it without a job."""
        self._child.end()

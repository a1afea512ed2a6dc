"""A child process with a pipe for requests and a pipe for answers, apart from its outputs, because models print."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .process import ChildProcess, ProcessResult


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

    def hang_up(self) -> None:
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

"""A worker that stays: it takes one request after the other, and keeps what it has loaded.

Requests and answers are lines of JSON on pipes of their own, because models print.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import InductorBenchError
from ..messages.request import Answer, Request, decode_answer, encode_request
from ..messages.times import Begun
from ..store.formats import codec
from .interpreter import module_words
from .piped_process import PipedProcess
from .process import ProcessResult
from .worker import worker_environment

CLOSE_S = 3.0


class WorkerLostError(Exception):
    """The worker is gone: it crashed, was killed, or gave no answer in time and was ended.

    Attributes:
        kind: ``crashed`` or ``hung``.
        message: how it ended, in words.
        tail: the end of its log.
    """

    def __init__(self, kind: str, ended: ProcessResult) -> None:
        super().__init__(ended.outcome)
        self.kind, self.message, self.tail = kind, ended.outcome, ended.tail()


class WorkerSession:
    """A running worker. It is a context manager; at its end the process and its descendants are gone.

    Args:
        python: the interpreter that has the user's torch.
        folder: a scratch folder.
        environment: the environment of the worker.
        log: where its output goes.
        on_line: is given each line of output.

    Attributes:
        part: the last part of an answer, before the answer itself or the worker's end.
    """

    def __init__(
        self,
        python: str,
        folder: Path,
        environment: Mapping[str, str],
        *,
        log: Path,
        on_line: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._child = PipedProcess(
            [python, *module_words("inductor_bench.worker"), "serve"],
            environment=worker_environment(folder, environment),
            log=log,
            on_line=on_line,
        )
        os.set_blocking(self._child.requests.fileno(), False)  # a worker that reads no more must not stop its parent
        self._buffer = b""
        self._open, self._is_at_work = True, False
        self._timeout_s: float | None = None
        self._deadline: float | None = None
        self._posted: Request[Any] | None = None
        self._answer: dict[str, Any] | None = None
        self.part: Begun | None = None

    def __enter__(self) -> WorkerSession:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close() if kind is None else self.abort()

    def ask(self, request: Request[Answer], timeout_s: float | None = None) -> Answer:
        """Sends a request and waits for its answer.

        Args:
            request: the request.
            timeout_s: the limit in seconds for the answer, and for each part before it; ``None`` for no limit.

        Raises:
            InductorBenchError: the worker could not do it; it goes on.
            WorkerLostError: the worker is gone, and the session with it.
        """
        self.post(request, timeout_s)
        answer: Answer = self.collect()
        return answer

    def post(self, request: Request[Any], timeout_s: float | None = None) -> None:
        """Sends a request whose answer is collected later, before the next one is sent.

        Raises:
            WorkerLostError: the worker is gone, and the session with it.
        """
        assert self._open, "the session is closed"
        assert self._posted is None or self._answer is not None, "the last answer was not collected"
        self.part, self._posted, self._answer, self._is_at_work = None, request, None, True
        self._timeout_s = timeout_s
        self._restart_timeout()
        data = json.dumps(encode_request(request)).encode() + b"\n"
        while data:
            if not select.select([], [self._child.requests], [], self.left_s)[1]:
                raise self._lost("hung")
            try:
                data = data[os.write(self._child.requests.fileno(), data) :]
            except BrokenPipeError:
                raise self._lost("crashed") from None

    def collect(self) -> Any:
        """Waits for the answer to the request that was posted; raises what :meth:`ask` does."""
        assert self._posted is not None, "nothing was asked"
        while self._answer is None:
            self._take_line(self._read_line())
        answer, self._is_at_work = self._answer, False
        if answer.get("fatal"):
            self.close()
        if "failure" in answer:
            failure = answer["failure"]
            raise InductorBenchError(failure["message"], failure["hint"])
        return decode_answer(self._posted, answer["result"])

    def is_answered(self) -> bool:
        """Reads what has arrived, and returns whether :meth:`collect` would return or raise at once."""
        while self._answer is None:
            if b"\n" not in self._buffer:
                if not select.select([self._child.answers], [], [], 0)[0]:
                    return self.left_s == 0
                data = self._child.answers.read(1 << 16)
                if not data:
                    return True  # it is gone, which collect reports
                self._buffer += data
            else:
                self._take_line(self._read_line())
        return True

    @property
    def left_s(self) -> float | None:
        """What is left of the time for the answer; ``None`` where there is no limit."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    @property
    def alive(self) -> bool:
        """Whether it can be asked again."""
        return self._open

    def fileno(self) -> int:
        """Readable once there is something to collect, for ``select``."""
        return self._child.answers.fileno()

    def close(self) -> None:
        """Lets the worker end, and ends it where it does not; at once where it is at work. May be called again."""
        self._end(0.0 if self._is_at_work else CLOSE_S)

    def abort(self) -> None:
        """Ends the worker at once. May be called again."""
        self._end(0.0)

    def _end(self, patience_s: float) -> None:
        if self._open:
            self._open = False
            self._child.hang_up()
            try:
                self._child.wait(patience_s)
            finally:
                self._child.end()

    def _take_line(self, line: dict[str, Any]) -> None:
        """Keeps an answer, or a part of one, which starts the time limit anew."""
        if "part" in line:
            self.part = part = codec.decode(Begun, line["part"])
            self._restart_timeout()
            if part.waits:
                self._deadline = None
        else:
            self._answer = line

    def _restart_timeout(self) -> None:
        self._deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s

    def _read_line(self) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            if not select.select([self._child.answers], [], [], self.left_s)[0]:
                raise self._lost("hung")
            data = self._child.answers.read(1 << 16)
            if not data:
                raise self._lost("crashed")
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _lost(self, kind: str) -> WorkerLostError:
        self._open = False
        if kind == "crashed":
            self._child.wait(CLOSE_S)
        return WorkerLostError(kind, self._child.end(timed_out=kind == "hung"))

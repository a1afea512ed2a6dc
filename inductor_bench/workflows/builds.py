"""Compiling candidates of one kernel side by side, in workers that only build."""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..errors import InductorBenchError
from ..launch.session import WorkerLostError, WorkerSession

LOADING = 0
"""In the place of a candidate's number: the file, which is what number 0 always is."""


@dataclass(frozen=True)
class Built:
    """What became of a candidate: ``status`` is empty where it was built, and ``reason`` with it."""

    number: int
    status: str = ""
    reason: str = ""


@dataclass
class Builders:
    """Builds candidates in up to ``count`` workers at a time, which rest between builds until they are ended.

    Args:
        file: the standalone file.
        start: starts a worker; the argument names its log.
        count: of workers.
        load_s: in which a worker must have loaded the file.
        build_s: in which a candidate must have been built.
    """

    file: str
    start: Callable[[str], WorkerSession]
    count: int
    load_s: float
    build_s: float
    sessions: list[WorkerSession] = field(default_factory=list)
    idle: list[WorkerSession] = field(default_factory=list)

    def build(self, changes: Mapping[int, Any], is_over: Callable[[], bool]) -> Iterator[Built]:
        """Builds candidates by number, none that was not begun when ``is_over``.

        Raises:
            InductorBenchError, WorkerLostError: the file cannot be loaded.
        """
        waiting = deque(changes)
        busy: dict[WorkerSession, int] = {}
        while waiting or busy:
            if is_over():
                yield from (Built(number, "untried", "the budget was spent") for number in waiting)
                waiting.clear()
            while len(self.idle) + len(busy) < min(self.count, len(waiting)):
                busy[self._start()] = LOADING
            while self.idle and waiting:
                number, session = waiting.popleft(), self.idle.pop()
                busy[session] = number
                request = {"do": "vary", "number": number, "of": LOADING, "change": changes[number]}
                built = _settle(number, partial(session.post, request, self.build_s))
                if built.status:
                    del busy[session]
                    yield built
            for session in _wait(busy):
                number = busy.pop(session)
                if number == LOADING:
                    session.collect()
                else:
                    yield _settle(number, session.collect)
                if session.alive:
                    self.idle.append(session)

    def end(self) -> None:
        """Ends the workers at once."""
        for session in self.sessions:
            session.abort()

    def _start(self) -> WorkerSession:
        session = self.start(f"build-{len(self.sessions)}")
        self.sessions.append(session)
        session.post({"do": "load", "number": LOADING, "file": self.file}, self.load_s)
        return session


def _settle(number: int, request: Callable[[], Any]) -> Built:
    try:
        request()
    except WorkerLostError as lost:
        return Built(number, lost.kind, lost.message)
    except InductorBenchError as error:
        return Built(number, "refused", error.message)
    return Built(number)


def _wait(busy: Mapping[WorkerSession, int]) -> list[WorkerSession]:
    """Those that have an answer, or have had their time; waits until there are some."""
    if not busy:
        return []
    limits = [session.left_s for session in busy if session.left_s is not None]
    ready = select.select(list(busy), [], [], min(limits, default=None))[0]
    return ready or [session for session in busy if session.left_s == 0]

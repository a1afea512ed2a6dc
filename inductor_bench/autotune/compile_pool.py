"""Compiling candidates of many kernels side by side, in workers that only build."""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import InductorBenchError
from ..launch.session import WorkerLostError, WorkerSession

SPENT = "the budget was spent"
BUILD_S = 300.0
LOAD_S = 300.0
GREETING_S = 300.0
"""At least so long a worker may take over its greeting, before which it starts: no fault of a job."""


@dataclass(frozen=True)
class Job:
    """What is asked of a worker that has loaded ``file``: ``request``, which lacks the number that the file got."""

    key: Any
    file: str
    request: Mapping[str, Any]


@dataclass(frozen=True)
class Built:
    """What became of a job: ``status`` is empty where it was done; otherwise ``reason`` says why not."""

    key: Any
    status: str = ""
    reason: str = ""
    hint: str = ""
    answer: Any = None


@dataclass
class _Builder:
    """A worker, the numbers of the files that it has loaded, and the job that it is at."""

    session: WorkerSession
    numbers: dict[str, int] = field(default_factory=dict)
    job: Job | None = None
    step: str = ""

    def fileno(self) -> int:
        return self.session.fileno()


@dataclass
class Builders:
    """Up to ``count`` workers that build at a time, and rest in between until they are ended.

    Args:
        start: starts a worker; the argument names its log.
        count: of workers.
        load_s: in which a worker must have loaded a file.
        build_s: in which a job must be done.
        greeting: what each worker is asked first, if anything.

    Attributes:
        greeted: what the last of them answered to that.
    """

    start: Callable[[str], WorkerSession]
    count: int
    load_s: float
    build_s: float
    greeting: Mapping[str, Any] | None = None
    greeted: Any = None
    builders: list[_Builder] = field(default_factory=list)
    waiting: dict[str, deque[Job]] = field(default_factory=dict)

    def build(self, jobs: Iterable[Job], is_over: Callable[[], bool]) -> Iterator[Built]:
        """Does the jobs, none that was not begun when ``is_over``, and tells of each as soon as it is done.

        A worker stays with a file as long as there are jobs for it, since loading one takes as long as building.

        Raises:
            InductorBenchError, WorkerLostError: the workers cannot do what they are greeted with.
        """
        for job in jobs:
            self.waiting.setdefault(job.file, deque()).append(job)
        while True:
            if is_over():
                for file in list(self.waiting):
                    yield from self._give_up(file, "untried", SPENT)
            self.prepare(sum(map(len, self.waiting.values())))
            for builder in list(self.builders):
                if self.waiting and builder.job is None:
                    builder.job = _take(self.waiting, builder.numbers)
                    yield from self._advance(builder)
            busy = [builder for builder in self.builders if builder.job is not None]
            if not busy and not self.waiting:
                break
            for builder in _wait(busy):
                yield from self._collect(builder)

    def prepare(self, jobs: int) -> None:
        """Starts workers for so many jobs, those that are still missing."""
        while len(self.builders) < min(self.count, jobs):
            self.builders.append(_Builder(self.start(f"build-{len(self.builders)}")))

    def end(self) -> None:
        """Ends the workers at once, and forgets what they were to do."""
        for builder in self.builders:
            builder.session.abort()
        self.builders.clear()
        self.waiting.clear()

    def _advance(self, builder: _Builder) -> Iterator[Built]:
        """Posts the next request that the builder's job needs."""
        job = builder.job
        assert job is not None
        request: dict[str, Any]
        if self.greeting and builder.step == "" and not builder.numbers:
            builder.step, limit, request = "greeting", max(self.load_s, GREETING_S), dict(self.greeting)
        elif job.file not in builder.numbers:
            builder.step, limit = "load", self.load_s
            request = {"do": "load", "number": len(builder.numbers), "file": job.file}
        else:
            builder.step, limit = "job", self.build_s
            request = {**job.request, "number": builder.numbers[job.file]}
        try:
            builder.session.post(request, limit)
        except WorkerLostError as lost:
            yield from self._fail(builder, lost)

    def _collect(self, builder: _Builder) -> Iterator[Built]:
        """Takes the answer to what was posted, and goes on with the job."""
        try:
            answer = builder.session.collect()
        except (WorkerLostError, InductorBenchError) as error:
            if builder.step == "greeting":
                self.end()
                raise
            yield from self._fail(builder, error)
            return
        job = builder.job
        assert job is not None
        if builder.step == "greeting":
            self.greeted = answer
        if builder.step == "load":
            builder.numbers[job.file] = len(builder.numbers)
        if builder.step == "job":
            builder.job = None
            yield Built(job.key, answer=answer)
        else:
            yield from self._advance(builder)

    def _fail(self, builder: _Builder, error: WorkerLostError | InductorBenchError) -> Iterator[Built]:
        """What a failure costs: the job, and the others of its file where that could not be loaded."""
        status, hint = (error.kind, "") if isinstance(error, WorkerLostError) else ("refused", error.hint)
        if not builder.session.alive:
            self.builders.remove(builder)
        job, builder.job = builder.job, None
        assert job is not None
        yield Built(job.key, status, error.message, hint)
        if builder.step == "load":
            yield from self._give_up(job.file, status, error.message)

    def _give_up(self, file: str, status: str, reason: str) -> Iterator[Built]:
        for job in self.waiting.pop(file, ()):
            yield Built(job.key, status, reason)


def _take(waiting: dict[str, deque[Job]], loaded: dict[str, int]) -> Job:
    """The next job: of a file that is loaded, or else of the one with most to do."""
    file = next((each for each in reversed(loaded) if each in waiting), None)
    file = file or max(waiting, key=lambda each: len(waiting[each]))
    job = waiting[file].popleft()
    if not waiting[file]:
        del waiting[file]
    return job


def _wait(busy: list[_Builder]) -> list[_Builder]:
    """Those that have an answer, or have had their time; waits until there are some."""
    if not busy:
        return []
    limits = [builder.session.left_s for builder in busy if builder.session.left_s is not None]
    ready = select.select(busy, [], [], min(limits, default=None))[0]
    return ready or [builder for builder in busy if builder.session.left_s == 0]

"""Compiling candidates of many kernels side by side, in workers that only compile."""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..errors import InductorBenchError
from ..launch.session import WorkerLostError, WorkerSession
from ..messages.kernels import Load, Numbered
from ..messages.request import Request

SPENT = "the budget was spent"
COMPILE_S = 300.0
LOAD_S = 300.0
GREETING_S = 300.0
"""Minimum timeout in seconds for a worker's answer to its greeting; includes process start-up."""


@dataclass(frozen=True)
class CompileJob:
    """What is asked of a worker that has loaded ``file``; ``request`` lacks the number that the file gets there."""

    key: Any
    file: str
    request: Numbered[Any]


@dataclass(frozen=True)
class CompileOutcome:
    """What became of a job: ``status`` is empty where it was done; otherwise ``reason`` says why not."""

    key: Any
    status: str = ""
    reason: str = ""
    hint: str = ""
    answer: Any = None


@dataclass
class _PoolWorker:
    """A worker, the numbers of the files that it has loaded, and the job that it is at."""

    session: WorkerSession
    numbers: dict[str, int] = field(default_factory=dict)
    job: CompileJob | None = None
    step: str = ""

    def fileno(self) -> int:
        return self.session.fileno()


@dataclass
class CompilePool:
    """Up to ``count`` workers that compile at a time, and rest in between until they are ended.

    Args:
        start: starts a worker; the argument names its log.
        count: of workers.
        load_s: in which a worker must have loaded a file.
        compile_s: in which a job must be done.
        greeting: what each worker is asked first, if anything.

    Attributes:
        greeted: what the last of them answered to that.
    """

    start: Callable[[str], WorkerSession]
    count: int
    load_s: float
    compile_s: float
    greeting: Request[Any] | None = None
    greeted: Any = None
    workers: list[_PoolWorker] = field(default_factory=list)
    waiting: dict[str, deque[CompileJob]] = field(default_factory=dict)

    def compile(self, jobs: Iterable[CompileJob], is_over: Callable[[], bool]) -> Iterator[CompileOutcome]:
        """Does the jobs, none that was not begun when ``is_over``, and tells of each as soon as it is done.

        A worker stays with a file as long as there are jobs for it, since loading one takes as long as compiling.

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
            for worker in list(self.workers):
                if self.waiting and worker.job is None:
                    worker.job = _take(self.waiting, worker.numbers)
                    yield from self._advance(worker)
            busy = [worker for worker in self.workers if worker.job is not None]
            if not busy and not self.waiting:
                break
            for worker in _wait(busy):
                yield from self._collect(worker)

    def prepare(self, jobs: int) -> None:
        """Starts workers for so many jobs, those that are still missing."""
        while len(self.workers) < min(self.count, jobs):
            self.workers.append(_PoolWorker(self.start(f"build-{len(self.workers)}")))

    def end(self) -> None:
        """Ends the workers at once, and forgets what they were to do."""
        for worker in self.workers:
            worker.session.abort()
        self.workers.clear()
        self.waiting.clear()

    def _advance(self, worker: _PoolWorker) -> Iterator[CompileOutcome]:
        """Posts the next request that the worker's job needs."""
        job = worker.job
        assert job is not None
        request: Request[Any]
        if self.greeting and worker.step == "" and not worker.numbers:
            worker.step, limit, request = "greeting", max(self.load_s, GREETING_S), self.greeting
        elif job.file not in worker.numbers:
            worker.step, limit = "load", self.load_s
            request = Load(len(worker.numbers), job.file)
        else:
            worker.step, limit = "job", self.compile_s
            request = job.request(worker.numbers[job.file])
        try:
            worker.session.post(request, limit)
        except WorkerLostError as lost:
            yield from self._fail(worker, lost)

    def _collect(self, worker: _PoolWorker) -> Iterator[CompileOutcome]:
        """Takes the answer to what was posted, and goes on with the job."""
        try:
            answer = worker.session.collect()
        except (WorkerLostError, InductorBenchError) as error:
            if worker.step == "greeting":
                self.end()
                raise
            yield from self._fail(worker, error)
            return
        job = worker.job
        assert job is not None
        if worker.step == "greeting":
            self.greeted = answer
        if worker.step == "load":
            worker.numbers[job.file] = len(worker.numbers)
        if worker.step == "job":
            worker.job = None
            yield CompileOutcome(job.key, answer=answer)
        else:
            yield from self._advance(worker)

    def _fail(self, worker: _PoolWorker, error: WorkerLostError | InductorBenchError) -> Iterator[CompileOutcome]:
        """What a failure costs: the job, and the others of its file where that could not be loaded."""
        status, hint = (error.kind, "") if isinstance(error, WorkerLostError) else ("refused", error.hint)
        if not worker.session.alive:
            self.workers.remove(worker)
        job, worker.job = worker.job, None
        assert job is not None
        yield CompileOutcome(job.key, status, error.message, hint)
        if worker.step == "load":
            yield from self._give_up(job.file, status, error.message)

    def _give_up(self, file: str, status: str, reason: str) -> Iterator[CompileOutcome]:
        for job in self.waiting.pop(file, ()):
            yield CompileOutcome(job.key, status, reason)


def _take(waiting: dict[str, deque[CompileJob]], loaded: dict[str, int]) -> CompileJob:
    """The next job: of a file that is loaded, or else of the one with most to do."""
    file = next((each for each in reversed(loaded) if each in waiting), None)
    file = file or max(waiting, key=lambda each: len(waiting[each]))
    job = waiting[file].popleft()
    if not waiting[file]:
        del waiting[file]
    return job


def _wait(busy: list[_PoolWorker]) -> list[_PoolWorker]:
    """Those that have an answer, or have had their time; waits until there are some."""
    if not busy:
        return []
    limits = [worker.session.left_s for worker in busy if worker.session.left_s is not None]
    ready = select.select(busy, [], [], min(limits, default=None))[0]
    return ready or [worker for worker in busy if worker.session.left_s == 0]

"""Compiles candidates of many kernels in parallel, in a pool of workers that only compile."""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from ..errors import InductorBenchError
from ..launch.worker import WorkerLostError, WorkerSession
from ..messages.job_requests import WorkerRequest
from ..messages.kernel_requests import Load, Numbered

BUDGET_SPENT = "the budget was spent"
COMPILE_S = 300.0
LOAD_S = 300.0
GREETING_S = 300.0
"""Minimum timeout in seconds for a worker's answer to its greeting; includes process start-up."""


@dataclass(frozen=True)
class CompileJob:
    """One compilation."""

    key: Any  # identifies the job in its outcome
    file: str  # the standalone file, which the worker loads first
    request: Numbered[Any]  # makes the request from the number that the file has in the worker


@dataclass(frozen=True)
class CompileOutcome:
    """The outcome of a job: its answer, or a status and a reason if the job failed or was left out."""

    key: Any  # the key of the job
    status: str = ""  # empty if the job succeeded
    reason: str = ""  # the reason for the status
    hint: str = ""  # the advice of the error, if any
    answer: Any = None  # the worker's answer


@dataclass
class _PoolWorker:
    """A worker, the numbers of the files that it has loaded, its present job, and that job's present step."""

    session: WorkerSession
    file_numbers: dict[str, int] = field(default_factory=dict)
    job: CompileJob | None = None
    step: str = ""

    def fileno(self) -> int:
        return self.session.fileno()


@dataclass
class CompilePool:
    """A pool of compile workers, which stay alive until :meth:`end`.

    Args:
        start: starts a worker; the argument names its log.
        count: maximum number of workers.
        load_s: limit in seconds for loading a file.
        compile_s: limit in seconds for one job.
        greeting: the first request to each worker, if any.
    """

    start: Callable[[str], WorkerSession]
    count: int
    load_s: float
    compile_s: float
    greeting: WorkerRequest[Any] | None = None
    greeting_answer: Any = None  # the latest answer to the greeting
    workers: list[_PoolWorker] = field(default_factory=list)  # the workers that are alive
    waiting: dict[str, deque[CompileJob]] = field(default_factory=dict)  # the jobs that have not begun, by their file
    # the number of each file, in the order in which the files came first
    order: dict[str, int] = field(default_factory=dict)

    def compile(self, jobs: Iterable[CompileJob], is_over: Callable[[], bool]) -> Iterator[CompileOutcome]:
        """Compiles the jobs, and yields the outcome of each as soon as it is known.

        Args:
            jobs: the jobs.
            is_over: whether the budget is spent; jobs that have not begun by then get the status ``untried``.

        Raises:
            InductorBenchError, WorkerLostError: a worker failed at the greeting.
        """
        yield from self.submit(jobs)
        while self.is_busy:
            if is_over():
                yield from self.give_up()
            _wait_for_workers(self.busy)
            yield from self.advance()

    @property
    def busy(self) -> list[_PoolWorker]:
        """The workers that have a job."""
        return [worker for worker in self.workers if worker.job is not None]

    @property
    def is_busy(self) -> bool:
        """Whether a job waits or is being done."""
        return bool(self.waiting or self.busy)

    def submit(self, jobs: Iterable[CompileJob]) -> Iterator[CompileOutcome]:
        """Adds jobs, lets free workers begin, and yields the outcomes that are known at once.

        Jobs of a file that came earlier begin earlier, also when they are added later.
        """
        for job in jobs:
            self.order.setdefault(job.file, len(self.order))
            self.waiting.setdefault(job.file, deque()).append(job)
        yield from self._begin_jobs()

    def advance(self) -> Iterator[CompileOutcome]:
        """Takes the answers that are there, without waiting for others, and lets free workers begin.

        Raises:
            InductorBenchError, WorkerLostError: a worker failed at the greeting.
        """
        for worker in self.busy:
            if worker.session.is_answered():
                yield from self._collect(worker)
        yield from self._begin_jobs()

    def give_up(self) -> Iterator[CompileOutcome]:
        """Drops the jobs that have not begun, and yields their outcomes."""
        for file in list(self.waiting):
            yield from self._give_up(file, "untried", BUDGET_SPENT)

    def _begin_jobs(self) -> Iterator[CompileOutcome]:
        self.start_workers(sum(map(len, self.waiting.values())) + len(self.busy))
        for worker in list(self.workers):
            if self.waiting and worker.job is None:
                worker.job = self._take_next_job()
                yield from self._advance(worker)

    def _take_next_job(self) -> CompileJob:
        """Removes and returns a job of the file that came first."""
        file = min(self.waiting, key=self.order.__getitem__)
        job = self.waiting[file].popleft()
        if not self.waiting[file]:
            del self.waiting[file]
        return job

    def start_workers(self, jobs: int) -> None:
        """Starts workers until there is one for each of ``jobs`` jobs, or ``count`` workers."""
        while len(self.workers) < min(self.count, jobs):
            self.workers.append(_PoolWorker(self.start(f"build-{len(self.workers)}")))

    def end(self) -> None:
        """Ends the workers at once, and drops the jobs that have not begun."""
        with ThreadPoolExecutor(max(len(self.workers), 1)) as threads:  # one after the other takes seconds
            for worker in self.workers:
                threads.submit(worker.session.abort)
        self.workers.clear()
        self.waiting.clear()

    def _advance(self, worker: _PoolWorker) -> Iterator[CompileOutcome]:
        """Posts the next request of the worker's job: the greeting, the load of the file, or the job itself."""
        job = worker.job
        assert job is not None
        request: WorkerRequest[Any]
        if self.greeting and worker.step == "" and not worker.file_numbers:
            worker.step, limit, request = "greeting", max(self.load_s, GREETING_S), self.greeting
        elif job.file not in worker.file_numbers:
            worker.step, limit = "load", self.load_s
            request = Load(len(worker.file_numbers), job.file)
        else:
            worker.step, limit = "job", self.compile_s
            request = job.request(worker.file_numbers[job.file])
        try:
            worker.session.post(request, limit)
        except WorkerLostError as lost:
            yield from self._fail(worker, lost)

    def _collect(self, worker: _PoolWorker) -> Iterator[CompileOutcome]:
        """Reads the answer to the posted request, and continues the job."""
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
            self.greeting_answer = answer
        if worker.step == "load":
            worker.file_numbers[job.file] = len(worker.file_numbers)
        if worker.step == "job":
            worker.job = None
            yield CompileOutcome(job.key, answer=answer)
        else:
            yield from self._advance(worker)

    def _fail(self, worker: _PoolWorker, error: WorkerLostError | InductorBenchError) -> Iterator[CompileOutcome]:
        """The outcome of the failed job, and of all jobs of its file if the file failed to load."""
        status, hint = (error.kind, "") if isinstance(error, WorkerLostError) else ("refused", error.hint)
        if not worker.session.alive:
            self.workers.remove(worker)
        job, worker.job = worker.job, None
        assert job is not None
        yield CompileOutcome(job.key, status, error.message, hint)
        if worker.step == "load":
            yield from self._give_up(job.file, status, error.message)

    def _give_up(self, file: str, status: str, reason: str) -> Iterator[CompileOutcome]:
        """Drops the waiting jobs of a file, and yields their outcomes."""
        for job in self.waiting.pop(file, ()):
            yield CompileOutcome(job.key, status, reason)


def _wait_for_workers(busy: list[_PoolWorker]) -> None:
    """Waits until a worker has answered, or has exceeded its limit."""
    limits = [worker.session.left_s for worker in busy if worker.session.left_s is not None]
    if busy:
        select.select(busy, [], [], min(limits, default=None))

"""The workers of autotuning: a pool that compiles candidates, and one that checks and times them."""

from __future__ import annotations

import contextlib
import select
import statistics
from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..errors import InductorBenchError
from ..launch.worker import WorkerLostError, WorkerSession
from ..messages.job_requests import Answer, WorkerRequest
from ..messages.kernel_requests import (
    Begun,
    Binary,
    CompiledResources,
    Drop,
    Load,
    Numbered,
    Prepare,
    Sample,
    Variant,
    VariantChange,
    VariantFacts,
    Vary,
)
from ..records.retune import Config, TriedCandidate, Tuning
from .methods import FindVariants, RaceResult, Runner, Variants

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
    hint: str = ""  # the hint of the error, if any
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

        Jobs begin in the order in which their files first came, even if a job is added later.
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


# The candidates of one kernel, and their entries in the record.


MORE_BUDGET = "give it more time with --budget"

PROBES, HOPELESS = 2, 20
"""Number of candidates of a template that are timed first, and the multiple of the best time beyond which the others
are left out: of the templates for a depthwise convolution, which take 230 to 1050 times as long as cuDNN, the slowest
takes five times as long as the fastest."""


class BudgetSpentError(InductorBenchError):
    """The budget was spent before any other configuration than that of the file was tried."""


class NoCandidatesError(InductorBenchError):
    """The kernel has no other configuration, or none that computes the same, so another search would find none either.
    A candidate that could not be compiled or run does not count, because it may have lacked memory.
    """


@dataclass
class Candidate:
    """One configuration of a kernel, and the results that it has so far."""

    config: Config  # the configuration
    number: int  # its number in the workers
    # the change that a worker makes to the kernel of the file
    change: VariantChange = field(default_factory=VariantChange)
    family: str = ""  # its template, if any
    status: str = ""  # empty while it may win; otherwise the status of its entry in the record
    reason: str = ""  # the reason for the status
    is_prepared: bool = False  # whether its outputs agreed with the default's
    # its registers, spills and shared memory, if they are known
    compiled: CompiledResources = field(default_factory=CompiledResources)
    # its time divided by the default's, from the screening; ``None`` before it was screened
    relative_time: float | None = None
    runner: Runner | None = None  # its result in its last race
    in_final: bool = False  # whether that race was the final


def record_outcomes(
    new: Sequence[Candidate],
    built: Sequence[CompileOutcome],
    candidates: Sequence[Candidate],
    binaries: dict[tuple[str, int], Candidate],
) -> None:
    """Records compilation outcomes. A candidate with the binary of an earlier candidate becomes a duplicate.

    Args:
        new: the candidates that were compiled.
        built: their outcomes, as far as there are any.
        candidates: all candidates, the default first.
        binaries: the first candidate of each binary, to which the new ones are added.
    """
    found = {one.key: one for one in built}
    for candidate in new:
        one = found.get(candidate.number)
        if one is None or (candidate is candidates[0] and one.status):
            continue  # the timing worker reports the default's failure in plainer words
        candidate.status, candidate.reason = one.status, one.reason
        if isinstance(one.answer, Binary):
            first = binaries.setdefault((one.answer.digest, one.answer.shared_memory_bytes), candidate)
            if first is not candidate:
                place = candidates.index(first) + 1
                candidate.status, candidate.reason = "duplicate", f"compiles to the same binary as no. {place}"


def mark_untried(candidates: Sequence[Candidate], reason: str) -> None:
    """Marks the candidates that were neither timed nor failed."""
    for one in candidates:
        if one.relative_time is None and not one.status:
            one.status, one.reason = "untried", reason


def split_probes(new: Sequence[Candidate]) -> tuple[list[Candidate], list[Candidate]]:
    """The candidates that are timed first, ``PROBES`` of each template among them, and the others."""
    first, rest, seen = list[Candidate](), list[Candidate](), Counter[str]()
    for one in new:
        seen[one.family] += 1
        (rest if one.family and seen[one.family] > PROBES else first).append(one)
    return first, rest


def leave_out_hopeless(rest: Sequence[Candidate], candidates: Sequence[Candidate], best: float) -> None:
    """Marks the candidates whose templates are too slow.

    Args:
        rest: the candidates that are not timed yet.
        candidates: all candidates. A template is too slow if at least ``PROBES`` of its candidates were timed, and
            each takes more than ``HOPELESS`` times the best.
        best: the best relative time so far.
    """
    for family in {one.family for one in rest}:
        timed = [each.relative_time for each in candidates if each.family == family and not each.status]
        known = [time for time in timed if time is not None]
        if len(known) >= PROBES and min(known) > HOPELESS * best:
            reason = f"{len(known)} configs of its template take over {HOPELESS}x as long as the best config"
            mark_untried([one for one in rest if one.family == family], reason)


def describe_candidate(candidate: Candidate, default: Candidate, best: Candidate) -> TriedCandidate:
    """The entry of a candidate in the record.

    Args:
        candidate: the candidate.
        default: the kernel as the file has it.
        best: the winner; the default if no candidate was reliably faster.
    """
    is_default = candidate is default
    samples = candidate.runner.samples if candidate.runner else ()
    status, reason = candidate.status, candidate.reason
    if not status:
        status = "default" if is_default else "finalist" if candidate.in_final else "slower"
        status = "best" if candidate is best and not is_default else status
        if status == "slower" and candidate.relative_time is not None:
            behind = candidate.relative_time / (best.relative_time or 1.0)
            slower = f"{behind:.2f}x the time of the best config"
            reason = slower if behind > 1 else "other configs reached the last round"
    return TriedCandidate(
        config=candidate.config,
        status=status,
        reason=reason,
        median_s=statistics.median(samples) if samples else None,
        samples=len(samples),
        samples_s=tuple(samples),
        ratio=candidate.runner.ratio if candidate.runner and candidate.in_final else None,
        registers=candidate.compiled.registers,
        spills=candidate.compiled.spills,
        shared_memory_bytes=candidate.compiled.shared_memory_bytes,
    )


def describe_tuning(candidates: Sequence[Candidate], entrants: Sequence[Candidate], result: RaceResult) -> Tuning:
    """The outcome of a search, without its method, state and duration.

    Args:
        candidates: all candidates, the default first.
        entrants: the candidates of the final, the default first.
        result: the result of the final.
    """
    best = entrants[result.best]
    winner, default = result.runners[result.best], result.runners[0]
    contender = result.runners[result.contender if result.contender is not None else 0]
    default_s, best_s = (statistics.median(runner.samples) for runner in (default, winner))
    return Tuning(
        method="",
        state="",
        candidates=tuple(describe_candidate(one, candidates[0], best) for one in candidates),
        tried=sum(one.relative_time is not None and not one.status for one in candidates[1:]),
        default_s=default_s,
        best_s=best_s,
        speedup=1 / winner.ratio.median if winner.ratio else 1.0,
        verdict=result.verdict,
        best_config=best.config,
        ratio=contender.ratio,
    )


def make_no_verdict_error(method: str, others: Sequence[Candidate]) -> InductorBenchError:
    """The error for a search that timed no candidate but the default; ``others`` are all candidates but the default."""
    if not others:
        what, hint = f"--autotune {method} has nothing else to try for this kernel", "try --autotune exhaustive"
        return NoCandidatesError(what, hint)
    first = others[0]
    why = f"none of {len(others)} candidates could be timed; the first: {first.status}, {first.reason}"
    if all(one.status == "untried" for one in others):
        return BudgetSpentError(why, MORE_BUDGET)
    if all(one.status in ("wrong", "duplicate") for one in others):
        return NoCandidatesError(why)
    return InductorBenchError(why)


ANSWER_S = 120.0

Result = TypeVar("Result")
Waiting = Generator[WorkerSession, None, Result]
"""Steps that wait for a worker: each yields the worker to wait for, and goes on once its answer is there."""


def ask_worker(session: WorkerSession, request: WorkerRequest[Answer], limit_s: float) -> Waiting[Answer]:
    """Asks a worker; returns and raises what :meth:`WorkerSession.ask` does."""
    session.post(request, limit_s)
    yield session
    answer: Answer = session.collect()
    return answer


@dataclass
class TimingWorker:
    """A kernel and its candidates in the worker that times them. A new worker loads them again.

    Args:
        file: the standalone file.
        timeout_s: limit of each request in seconds; ``None`` for a limit that depends on the request.
    """

    file: str
    timeout_s: float | None
    # returns the worker; a new worker after the last was lost. It is set before anything is asked.
    worker: Callable[[], Waiting[WorkerSession]] = field(init=False)
    is_known: bool = False  # whether the variants are known
    variants: Variants = field(init=False)  # the variants of the kernel
    default: Candidate = field(init=False)  # the kernel as the file has it
    method: str = ""  # the method of timing, once something was timed
    loaded: set[int] = field(default_factory=set)  # the numbers of the candidates that are loaded
    loaded_in: WorkerSession | None = None  # the worker in which they are loaded

    def open(self, number: int, find: FindVariants) -> Waiting[VariantFacts]:
        """Loads the file, and finds the variants of its kernel from the worker's facts, which it returns.

        Args:
            number: the number of the default in the worker.
            find: finds the variants from the facts, and may ask the worker for more.

        Raises:
            InductorBenchError: the kernel has no variants.
        """
        session = yield from self.worker()
        facts = yield from self._ask(session, Load(number, self.file), LOAD_S)
        self.loaded_in, self.loaded = session, {number}
        self.know(number, (yield from self._find(session, number, find, facts)))
        yield from self._send_opening_requests(session)
        return facts

    def _find(self, session: WorkerSession, number: int, find: FindVariants, facts: VariantFacts) -> Waiting[Variants]:
        """The variants of the kernel; asks the worker what ``find`` asks."""
        questions = find(facts)
        answer = None
        while True:
            try:
                request = questions.send(answer)
            except StopIteration as end:
                variants: Variants = end.value
                return variants
            answer = yield from self._ask(session, request(number), LOAD_S)

    def know(self, number: int, variants: Variants) -> None:
        """Sets the variants of the kernel; the worker loads the file when it is needed."""
        self.variants, self.is_known = variants, True
        self.default = Candidate(variants.now, number, relative_time=1.0)

    def prepare(self, candidates: Sequence[Candidate]) -> Waiting[None]:
        """Loads candidates, and compares their outputs with the default's; sets the status of those that fail."""
        while left := [one for one in candidates if not one.status and not one.is_prepared]:
            session = yield from self._session()
            variants = tuple(Variant(one.number, one.change) for one in left)
            try:
                answer = yield from self._ask(session, Prepare(self.default.number, variants), COMPILE_S)
            except WorkerLostError as lost:
                self._mark_failed(left, session.part, lost.kind, lost.message)
            except InductorBenchError as error:
                self._mark_failed(left, session.part, "refused", error.message)
            else:
                for one, found in zip(left, answer.variants, strict=True):
                    one.compiled, one.is_prepared = found.compiled, True
                    if found.refusal or found.difference:
                        one.status = "refused" if found.refusal else "wrong"
                        one.reason = found.refusal or found.difference
                self.loaded.update(one.number for one in left)

    def sample(self, order: Sequence[Candidate], state: str) -> Waiting[list[float | None]]:
        """Times candidates in this order.

        Args:
            order: the candidates; each may stand in it several times.
            state: ``cold`` or ``warm``.

        Returns:
            The time in seconds at each place of the order. Candidates that fail get a status and have ``None``.

        Raises:
            InductorBenchError: the default cannot be timed.
        """
        while True:
            yield from self._load_all(order)
            session = yield from self._session()
            sound = [one for one in order if not one.status]
            try:
                times = yield from self._ask(session, Sample(tuple(one.number for one in sound), state), ANSWER_S)
            except WorkerLostError as lost:
                self._mark_failed(order, session.part, lost.kind, lost.message)
            except InductorBenchError as error:
                self._mark_failed(order, session.part, "refused", error.message)
            else:
                self.method = times.method or self.method
                samples = iter(times.samples_s)
                return [next(samples) if not one.status else None for one in order]

    def _load_all(self, candidates: Sequence[Candidate]) -> Waiting[None]:
        """Loads candidates into one worker. If a candidate crashes the worker, the others are loaded again."""
        yield from self._session()
        while left := [one for one in candidates if not one.status and one.number not in self.loaded]:
            yield from self._load(left[0])
            yield from self._session()

    def _load(self, candidate: Candidate) -> Waiting[None]:
        """Loads a candidate; sets its status and reason if it fails."""
        request = Vary(candidate.number, of=self.default.number, change=candidate.change)
        try:
            session = yield from self._session()
            candidate.compiled = yield from self._ask(session, request, COMPILE_S)
        except WorkerLostError as lost:
            candidate.status, candidate.reason = lost.kind, lost.message
        except InductorBenchError as error:
            candidate.status, candidate.reason = "refused", error.message
        self.loaded.add(candidate.number)

    def drop(self, numbers: Collection[int]) -> Waiting[None]:
        """Frees the worker's memory for candidates that are not timed again."""
        held = tuple(sorted(self.loaded.intersection(numbers)))
        if held and self.loaded_in is not None and self.loaded_in.alive:
            self.loaded = self.loaded.difference(held)
            with contextlib.suppress(WorkerLostError, InductorBenchError):  # the measurements count nevertheless
                yield from self._ask(self.loaded_in, Drop(held), ANSWER_S)

    def drop_all(self) -> Waiting[None]:
        """Frees the worker's memory for all candidates of the kernel."""
        yield from self.drop(self.loaded)

    def _session(self) -> Waiting[WorkerSession]:
        """The worker; loads the file first if the worker is new."""
        session = yield from self.worker()
        if session is not self.loaded_in:
            yield from self._ask(session, Load(self.default.number, self.file), LOAD_S)
            yield from self._send_opening_requests(session)
        return session

    def _send_opening_requests(self, session: WorkerSession) -> Waiting[None]:
        """Sends the requests that precede the candidates, and marks the default as the one loaded candidate."""
        number = self.default.number
        for request in self.variants.opening_requests(number):
            answer = yield from self._ask(session, request, COMPILE_S)
            if isinstance(answer, CompiledResources):
                self.default.compiled = answer
        self.loaded_in, self.loaded = session, {number}

    def _ask(self, session: WorkerSession, request: WorkerRequest[Answer], limit_s: float) -> Waiting[Answer]:
        return (yield from ask_worker(session, request, self.timeout_s or limit_s))

    def _mark_failed(self, order: Sequence[Candidate], part: Begun | None, status: str, reason: str) -> None:
        """Sets the status of the candidate that, according to ``part``, began last."""
        number = part.number if part is not None else None
        failed = next((one for one in order if one is not self.default and one.number == number), None)
        if failed is None:
            raise InductorBenchError(f"the kernel as it is cannot be timed: {reason}")
        failed.status, failed.reason = status, reason

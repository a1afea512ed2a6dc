"""Checks and times the candidates of a kernel in one worker, which is replaced when it is lost."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ..errors import InductorBenchError
from ..launch.session import WorkerLostError, WorkerSession
from ..messages.kernels import Compiled, Drop, Facts, Load, Vary
from ..messages.request import Answer, Request
from ..messages.times import Begun, Prepare, Sample, Variant
from .candidates import Candidate
from .compile_pool import COMPILE_S, LOAD_S
from .variants.protocol import FindVariants, Variants

ANSWER_S = 120.0

Result = TypeVar("Result")
Waiting = Generator[WorkerSession, None, Result]
"""Steps that wait for a worker: each yields the worker to wait for, and goes on once its answer is there."""


def ask_worker(session: WorkerSession, request: Request[Answer], limit_s: float) -> Waiting[Answer]:
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

    Attributes:
        worker: returns the worker; a new worker after the last was lost. It is set before anything is asked.
        is_known: whether the variants are known.
        variants: the variants of the kernel.
        default: the kernel as the file has it.
        method: the method of timing, once something was timed.
        loaded: the numbers of the candidates that are loaded.
        loaded_in: the worker in which they are loaded.
    """

    file: str
    timeout_s: float | None
    worker: Callable[[], Waiting[WorkerSession]] = field(init=False)
    is_known: bool = False
    variants: Variants = field(init=False)
    default: Candidate = field(init=False)
    method: str = ""
    loaded: set[int] = field(default_factory=set)
    loaded_in: WorkerSession | None = None

    def open(self, number: int, find: FindVariants) -> Waiting[Facts]:
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

    def _find(self, session: WorkerSession, number: int, find: FindVariants, facts: Facts) -> Waiting[Variants]:
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
        """Loads candidates into one worker: where one of them takes the worker down, the others are loaded again."""
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
            with contextlib.suppress(WorkerLostError, InductorBenchError):  # what was measured counts all the same
                yield from self._ask(self.loaded_in, Drop(held), ANSWER_S)

    def drop_all(self) -> Waiting[None]:
        """Frees the worker's memory for all candidates of the kernel."""
        yield from self.drop(self.loaded)

    def _session(self) -> Waiting[WorkerSession]:
        """The worker; loads the file first where the worker is new."""
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
            if isinstance(answer, Compiled):
                self.default.compiled = answer
        self.loaded_in, self.loaded = session, {number}

    def _ask(self, session: WorkerSession, request: Request[Answer], limit_s: float) -> Waiting[Answer]:
        return (yield from ask_worker(session, request, self.timeout_s or limit_s))

    def _mark_failed(self, order: Sequence[Candidate], part: Begun | None, status: str, reason: str) -> None:
        """Sets the status of the candidate that ``part`` names as begun last.

        Raises:
            InductorBenchError: ``part`` names no candidate of the order but the default, or none at all.
        """
        number = part.number if part is not None else None
        failed = next((one for one in order if one is not self.default and one.number == number), None)
        if failed is None:
            raise InductorBenchError(f"the kernel as it stands cannot be timed: {reason}")
        failed.status, failed.reason = status, reason

"""The one worker that checks and times the candidates of a kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from ..errors import InductorBenchError
from ..launch.session import WorkerLostError, WorkerSession
from ..messages.kernels import Ask, Compiled, Drop, Facts, Load, Numbered, Vary
from ..messages.request import Answer, Request
from ..messages.times import Begun, Check, Sample
from .candidates import Candidate
from .compile_pool import COMPILE_S, LOAD_S
from .variants.protocol import Variants

ANSWER_S = 120.0


@dataclass
class TimingWorker:
    """A kernel and its candidates in the worker that times them. Where a worker is lost, a new one loads them again.

    Args:
        file: the standalone file.
        worker: the worker, a new one after it was lost.
        timeout_s: of each request; ``None`` for limits that suit what is asked.

    Attributes:
        default: the kernel as it stands.
        loaded: the numbers of the candidates that the worker holds.
        loaded_in: the worker that holds them.
    """

    file: str
    worker: Callable[[], WorkerSession]
    timeout_s: float | None
    variants: Variants = field(init=False)
    default: Candidate = field(init=False)
    loaded: set[int] = field(default_factory=set)
    loaded_in: WorkerSession | None = None

    def open(self, number: int, find: Callable[[Facts, Ask], Variants]) -> Variants:
        """Loads the kernel as it stands under a number, and finds its variants.

        Raises:
            InductorBenchError: there is nothing that could be varied.
        """
        session = self.worker()
        facts = session.ask(Load(number, self.file), self._limit(LOAD_S))
        self.loaded_in, self.loaded = session, {number}

        def ask(request: Numbered[Answer]) -> Answer:
            return session.ask(request(number), self._limit(LOAD_S))

        self.variants = find(facts, ask)
        self.default = Candidate(self.variants.now, number, {}, relative=1.0)
        self._begin_in(session)
        return self.variants

    def is_right(self, candidate: Candidate) -> bool:
        """Whether a candidate can be loaded and computes what the default does; where not, it says why."""
        if not self.load(candidate):
            return False
        checked = self._guard(candidate, Check(candidate.number, against=self.default.number), ANSWER_S)
        if checked is not None and checked.difference:
            candidate.status, candidate.reason = "wrong", checked.difference
        return not candidate.status

    def load(self, candidate: Candidate) -> bool:
        """Whether the worker holds a candidate now; where not, the candidate says why."""
        self._session()
        if candidate.number not in self.loaded and not candidate.status:
            request = Vary(candidate.number, of=self.default.number, change=candidate.change)
            candidate.compiled = self._guard(candidate, request, COMPILE_S) or Compiled()
            self.loaded.add(candidate.number)
        return not candidate.status

    def sample(self, order: Sequence[Candidate], state: str) -> dict[int, float]:
        """The times of candidates that are sampled in this order; without those that fail, which are out."""
        while True:
            left = tuple(one.number for one in order if one is self.default or self.load(one))
            session = self._session()
            try:
                times = session.ask(Sample(left, state), self._limit(ANSWER_S) * max(len(left), 1))
                return dict(zip(left, times.samples_s, strict=True))
            except WorkerLostError as lost:
                self._blame(order, session.part, lost.kind, lost.message)
            except InductorBenchError as error:
                self._blame(order, session.part, "refused", error.message)

    def drop(self, numbers: Collection[int]) -> None:
        """Frees what the worker keeps for candidates that are not timed again."""
        held = tuple(sorted(self.loaded.intersection(numbers)))
        if held and self.loaded_in is not None and self.loaded_in.alive:
            self.loaded = self.loaded.difference(held)
            with contextlib.suppress(WorkerLostError):  # then there is nothing left to free
                self.loaded_in.ask(Drop(held), self._limit(ANSWER_S))

    def drop_all(self) -> None:
        """Frees all that the worker keeps for the kernel."""
        self.drop(self.loaded)

    def _session(self) -> WorkerSession:
        """The worker, with the file loaded."""
        session = self.worker()
        if session is not self.loaded_in:
            session.ask(Load(self.default.number, self.file), self._limit(LOAD_S))
            self._begin_in(session)
        return session

    def _begin_in(self, session: WorkerSession) -> None:
        number = self.default.number
        for request in self.variants.opening(number):
            session.ask(request, self._limit(COMPILE_S))
        self.loaded_in, self.loaded = session, {number}

    def _guard(self, candidate: Candidate, request: Request[Answer], limit_s: float) -> Answer | None:
        """The answer to a request about one candidate, which pays for it where there is none."""
        try:
            return self._session().ask(request, self._limit(limit_s))
        except WorkerLostError as lost:
            candidate.status, candidate.reason = lost.kind, lost.message
        except InductorBenchError as error:
            candidate.status, candidate.reason = "refused", error.message
        return None

    def _blame(self, order: Sequence[Candidate], part: Begun | None, status: str, reason: str) -> None:
        number = part.number if part is not None else None
        blamed = next((one for one in order if one is not self.default and one.number == number), None)
        if blamed is None:
            raise InductorBenchError(f"the kernel as it stands cannot be timed: {reason}")
        blamed.status, blamed.reason = status, reason

    def _limit(self, usual_s: float) -> float:
        return self.timeout_s or usual_s

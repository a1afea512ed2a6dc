"""Checks and times the candidates of a kernel in one worker, which is replaced when it is lost."""

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
    """A kernel and its candidates in the worker that times them. A new worker loads them again.

    Args:
        file: the standalone file.
        worker: returns the worker; a new worker after the last was lost.
        timeout_s: limit of each request in seconds; ``None`` for a limit that depends on the request.

    Attributes:
        variants: the variants of the kernel.
        default: the kernel as the file has it.
        loaded: the numbers of the candidates that are loaded.
        loaded_in: the worker in which they are loaded.
    """

    file: str
    worker: Callable[[], WorkerSession]
    timeout_s: float | None
    variants: Variants = field(init=False)
    default: Candidate = field(init=False)
    loaded: set[int] = field(default_factory=set)
    loaded_in: WorkerSession | None = None

    def open(self, number: int, find: Callable[[Facts, Ask], Variants]) -> Variants:
        """Loads the file, and finds the variants of its kernel.

        Args:
            number: the number of the default in the worker.
            find: finds the variants from the worker's facts, and may ask the worker for more.

        Raises:
            InductorBenchError: the kernel has no variants.
        """
        session = self.worker()
        facts = session.ask(Load(number, self.file), self._timeout(LOAD_S))
        self.loaded_in, self.loaded = session, {number}

        def ask(request: Numbered[Answer]) -> Answer:
            return session.ask(request(number), self._timeout(LOAD_S))

        self.variants = find(facts, ask)
        self.default = Candidate(self.variants.now, number, relative_time=1.0)
        self._send_opening_requests(session)
        return self.variants

    def verify(self, candidate: Candidate) -> bool:
        """Whether a candidate loads and computes the default's outputs; sets its status and reason if it fails."""
        if not self.load(candidate):
            return False
        checked = self._ask_about(candidate, Check(candidate.number, against=self.default.number), ANSWER_S)
        if checked is not None and checked.difference:
            candidate.status, candidate.reason = "wrong", checked.difference
        return not candidate.status

    def load(self, candidate: Candidate) -> bool:
        """Loads a candidate once, and returns whether it is loaded; sets its status and reason if it fails."""
        self._session()
        if candidate.number not in self.loaded and not candidate.status:
            request = Vary(candidate.number, of=self.default.number, change=candidate.change)
            candidate.compiled = self._ask_about(candidate, request, COMPILE_S) or Compiled()
            self.loaded.add(candidate.number)
        return not candidate.status

    def sample(self, order: Sequence[Candidate], state: str) -> dict[int, float]:
        """Times candidates in this order.

        Args:
            order: the candidates.
            state: ``cold`` or ``warm``.

        Returns:
            Times in seconds by the candidates' numbers. Candidates that fail get a status and are left out.

        Raises:
            InductorBenchError: the default cannot be timed.
        """
        while True:
            left = tuple(one.number for one in order if one is self.default or self.load(one))
            session = self._session()
            try:
                times = session.ask(Sample(left, state), self._timeout(ANSWER_S) * max(len(left), 1))
                return dict(zip(left, times.samples_s, strict=True))
            except WorkerLostError as lost:
                self._mark_failed(order, session.part, lost.kind, lost.message)
            except InductorBenchError as error:
                self._mark_failed(order, session.part, "refused", error.message)

    def drop(self, numbers: Collection[int]) -> None:
        """Frees the worker's memory for candidates that are not timed again."""
        held = tuple(sorted(self.loaded.intersection(numbers)))
        if held and self.loaded_in is not None and self.loaded_in.alive:
            self.loaded = self.loaded.difference(held)
            with contextlib.suppress(WorkerLostError):  # a lost worker holds no memory
                self.loaded_in.ask(Drop(held), self._timeout(ANSWER_S))

    def drop_all(self) -> None:
        """Frees the worker's memory for all candidates of the kernel."""
        self.drop(self.loaded)

    def _session(self) -> WorkerSession:
        """The worker; loads the file first where the worker is new."""
        session = self.worker()
        if session is not self.loaded_in:
            session.ask(Load(self.default.number, self.file), self._timeout(LOAD_S))
            self._send_opening_requests(session)
        return session

    def _send_opening_requests(self, session: WorkerSession) -> None:
        """Sends the requests that precede the candidates, and marks the default as the one loaded candidate."""
        number = self.default.number
        for request in self.variants.opening_requests(number):
            session.ask(request, self._timeout(COMPILE_S))
        self.loaded_in, self.loaded = session, {number}

    def _ask_about(self, candidate: Candidate, request: Request[Answer], limit_s: float) -> Answer | None:
        """The answer to a request about a candidate; ``None`` where it fails, which sets the candidate's status."""
        try:
            return self._session().ask(request, self._timeout(limit_s))
        except WorkerLostError as lost:
            candidate.status, candidate.reason = lost.kind, lost.message
        except InductorBenchError as error:
            candidate.status, candidate.reason = "refused", error.message
        return None

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

    def _timeout(self, default_s: float) -> float:
        return self.timeout_s or default_s

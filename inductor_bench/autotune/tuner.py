"""Autotuning kernels: candidates are compiled side by side, checked against the default, raced, and one may win.

A candidate that is wrong, does not compile, crashes or hangs costs that candidate only: the worker is replaced, and the
others are loaded again, which their compiler's cache makes quick. Several kernels are tuned in step: while candidates
are compiled nothing is timed, and while one kernel is timed nothing else runs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field

from ..errors import InductorBenchError
from ..launch.session import WorkerSession
from ..messages.kernels import Ask, Binary, Facts
from ..records.tuning import Config, Tuning
from .candidates import MORE_BUDGET, BudgetSpentError, Candidate, described, nothing_tried
from .compile_pool import SPENT, CompileJob, CompileOutcome
from .methods import METHODS
from .race import RacePlan, RaceResult, race
from .timing_worker import TimingWorker
from .variants.protocol import Variants

SCREENING = RacePlan(first_rounds=2, first_limit=1.25, later_rounds=2, final_rounds=4, most_final_rounds=4)
FINAL = RacePlan(first_rounds=1, final_rounds=10)
WORTH_MOVING = 0.005
"""By how much another configuration must be ahead for the search to go on from there."""

Building = Generator[list[CompileJob], list[CompileOutcome], Tuning]


@dataclass
class Tuner:
    """Tunes the kernel of one file.

    Args:
        file: the standalone file.
        find: the variants of its kernel, by the facts that the worker tells of it and what asks that worker for more.
        worker: the worker that checks and times, a new one after it was lost.
        numbers: gives numbers that no other kernel has in that worker.
        state: whether cold or warm times are compared.
        timeout_s: of each request to a worker; ``None`` for limits that suit what is asked.
        is_over: whether no further candidates are to be tried.
    """

    file: str
    find: Callable[[Facts, Ask], Variants]
    worker: Callable[[], WorkerSession]
    numbers: Iterator[int]
    state: str = "cold"
    timeout_s: float | None = None
    is_over: Callable[[], bool] = lambda: False
    timing: TimingWorker = field(init=False)
    variants: Variants = field(init=False)
    candidates: list[Candidate] = field(default_factory=list)
    binaries: dict[tuple[str, int], Candidate] = field(default_factory=dict)
    time_s: float = 0.0

    def __post_init__(self) -> None:
        self.timing = TimingWorker(self.file, self.worker, self.timeout_s)

    def search(self, method: str) -> Building:
        """As :meth:`_search`; the worker keeps nothing of the kernel afterwards, whatever comes of it."""
        try:
            outcome = yield from self._search(method)
        except InductorBenchError:
            self.timing.drop_all()
            raise
        self.timing.drop_all()
        return outcome

    def _search(self, method: str) -> Building:
        """Searches by one of ``METHODS``.

        Yields:
            jobs for a compile pool, each with its candidate for a key.

        Receives:
            what became of them.

        Raises:
            InductorBenchError: there is nothing else to try, or the default itself cannot be timed.
        """
        self._open()
        search = METHODS[method].search(self.variants)
        configs, new = next(search), [self.candidates[0]]
        while True:
            new += self._add(configs)
            jobs = [job for one in new if (job := self._job(one)) is not None]
            if jobs:
                self._note(new, (yield jobs))
            elif self.is_over():
                self._leave_untried([one for one in new if not self.variants.is_built(one.config)])
            began = time.monotonic()
            self._screen([one for one in new if one.relative is None and not one.status and self.timing.is_right(one)])
            self.time_s += time.monotonic() - began
            try:
                configs, new = search.send(self._best().config), []
            except StopIteration:
                break
            if self.is_over():
                break
        began = time.monotonic()
        entrants, result = self._final(method)
        self.time_s += time.monotonic() - began
        return self._outcome(method, entrants, result)

    def _add(self, configs: Sequence[Config]) -> list[Candidate]:
        """The candidates of those configurations that are new."""
        known = [candidate.config for candidate in self.candidates]
        new = []
        for config in configs:
            if config in known:
                continue
            candidate = Candidate(config, next(self.numbers), {})
            try:
                candidate.change = self.variants.change(config)
            except InductorBenchError as error:
                candidate.status, candidate.reason = "refused", error.message
            new.append(candidate)
            known.append(config)
        self.candidates += new
        return new

    def _job(self, candidate: Candidate) -> CompileJob | None:
        request = None if candidate.status else self.variants.building(candidate.config)
        return None if request is None else CompileJob(candidate.number, self.file, request)

    @staticmethod
    def _leave_untried(new: Sequence[Candidate]) -> None:
        for candidate in new:
            if candidate.relative is None and not candidate.status:
                candidate.status, candidate.reason = "untried", SPENT

    def _note(self, new: Sequence[Candidate], built: Sequence[CompileOutcome]) -> None:
        """Takes down what became of candidates. What compiles to the same as another need not be timed."""
        found = {one.key: one for one in built}
        for candidate in new:
            one = found.get(candidate.number)
            if one is None or (candidate is self.candidates[0] and one.status):
                continue  # the worker that times says it more plainly
            candidate.status, candidate.reason = one.status, one.reason
            if isinstance(one.answer, Binary):
                same = (one.answer.digest, one.answer.shared_memory_bytes)
                first = self.binaries.setdefault(same, candidate)
                if first is not candidate:
                    place = self.candidates.index(first) + 1
                    candidate.status, candidate.reason = "duplicate", f"compiles to what no. {place} does"

    def _open(self) -> None:
        """Begins with the kernel as it stands.

        Raises:
            BudgetSpentError: there is no time left for it.
            InductorBenchError: there is nothing that could be varied.
        """
        if self.is_over():
            raise BudgetSpentError(SPENT, MORE_BUDGET)
        self.variants = self.timing.open(next(self.numbers), self.find)
        self.candidates = [self.timing.default]

    # Races

    def _screen(self, new: Sequence[Candidate]) -> None:
        """Times new candidates beside the best so far, until it is known how far each is from it."""
        while new:
            base = self._best()
            entrants, result = self._race([base, *new], SCREENING)
            new = [one for one in new if not one.status]
            if base.status:
                continue  # it was lost on the way, and what others are in units of it is not known
            ratios = [runner.ratio.median if runner.ratio else None for runner in result.runners]
            ahead = min([1.0, *(ratio for ratio in ratios if ratio is not None)])
            for candidate, runner, ratio in zip(entrants[1:], result.runners[1:], ratios[1:], strict=True):
                behind = ratio if ratio is not None else (runner.behind or 1.0) * ahead
                candidate.relative = behind * (base.relative or 1.0)
            break
        self.timing.drop({one.number for one in self.candidates[1:] if one not in self._foremost(FINAL.finalists)})

    def _foremost(self, count: int) -> list[Candidate]:
        """The fastest so far beside the default."""
        left = [one for one in self.candidates[1:] if one.relative is not None and not one.status]
        return sorted(left, key=lambda one: one.relative or 1.0)[:count]

    def _best(self) -> Candidate:
        """Where the search stands: the fastest that is clearly ahead of the default, or else that."""
        for candidate in self._foremost(1):
            if (candidate.relative or 1.0) < 1 - WORTH_MOVING:
                return candidate
        return self.candidates[0]

    def _final(self, method: str) -> tuple[list[Candidate], RaceResult]:
        """The default against the fastest, by fresh samples: the best of many equals looks faster than it is."""
        while True:
            finalists = self._foremost(FINAL.finalists)
            if not finalists:
                raise nothing_tried(method, self.candidates[1:])
            entrants, result = self._race([self.candidates[0], *finalists], FINAL)
            if result.contender is not None:
                break
        for candidate in entrants:
            candidate.last = True
        return entrants, result

    def _race(self, entrants: list[Candidate], plan: RacePlan) -> tuple[list[Candidate], RaceResult]:
        conversation = race(len(entrants), plan=plan)
        order = next(conversation)
        while True:
            times = self.timing.sample([entrants[place] for place in order], self.state)
            try:
                order = conversation.send([times.get(entrants[place].number) for place in order])
            except StopIteration as end:
                result: RaceResult = end.value
                for candidate, runner in zip(entrants, result.runners, strict=True):
                    candidate.runner = runner
                return entrants, result

    # What came of it

    def _outcome(self, method: str, entrants: Sequence[Candidate], result: RaceResult) -> Tuning:
        best = entrants[result.best]
        winner, default = result.runners[result.best], result.runners[0]
        contender = result.runners[result.contender if result.contender is not None else 0]
        default_s, best_s = (statistics.median(runner.samples) for runner in (default, winner))
        return Tuning(
            method=method,
            state=self.state,
            candidates=tuple(described(one, self.candidates[0], best) for one in self.candidates),
            tried=sum(one.relative is not None and not one.status for one in self.candidates[1:]),
            default_s=default_s,
            best_s=best_s,
            speedup=1 / winner.ratio.median if winner.ratio else 1.0,
            verdict=result.verdict,
            best_config=best.config,
            ratio=contender.ratio,
            time_s=self.time_s,
        )

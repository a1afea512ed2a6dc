"""Autotunes the kernel of one file: its candidates are compiled in parallel, checked against the default, and raced.

A candidate that is wrong, fails to compile, crashes or hangs is left out. After a crash or a hang a new worker loads
the other candidates again, quickly, from the compiler's cache. While a tuner waits, others can work: ``pipeline`` tunes
several kernels at once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ..devices.table import find_device
from ..errors import InductorBenchError
from ..launch.worker import WorkerSession
from ..messages.kernel_requests import TellFacts, VariantFacts
from ..records.retune import Config, Tuning
from .methods import (
    FINAL,
    HOPELESS_FINAL,
    METHODS,
    MINIMUM_GAIN,
    NEAR,
    QUICK_FINAL,
    QUICK_SCREENING,
    SCREENING,
    FindVariants,
    Pruning,
    RacePlan,
    RaceResult,
    Variants,
    run_race,
)
from .tuning_workers import (
    BUDGET_SPENT,
    MORE_BUDGET,
    BudgetSpentError,
    Candidate,
    CompileJob,
    CompileOutcome,
    TimingWorker,
    Waiting,
    describe_tuning,
    leave_out_hopeless,
    make_no_verdict_error,
    mark_untried,
    record_outcomes,
    split_probes,
)

TuningSteps = Generator[list[CompileJob] | WorkerSession, list[CompileOutcome] | None, Tuning]
"""A search. It yields jobs for a compile pool, and receives their outcomes; or the worker whose answer it waits for."""


@dataclass
class Tuner:
    """Tunes the kernel of one file.

    Args:
        file: the standalone file.
        find: finds the variants of the kernel from the worker's facts, and may ask the worker for more.
        numbers: yields candidate numbers that are unused in every worker.
        state: the times that are compared: ``cold`` or ``warm``.
        timeout_s: limit of each request to a worker in seconds; ``None`` for a limit that depends on the request.
        is_over: whether the budget is spent.
        listing_device: the type of the device whose compile pool lists the configurations; ``None`` if the worker
            that times lists them.
        opens_last: whether its search begins after the kernels without this flag are done, because opening it starts
            the compilation of its candidates.
        pruning: decides when the search ends early, for one kernel of many; ``None`` for a search to its end.
        may_give_way: whether another kernel has a result, so that this kernel may have none if the budget ends.
    """

    file: str
    find: FindVariants
    numbers: Iterator[int]
    state: str = "cold"
    timeout_s: float | None = None
    is_over: Callable[[], bool] = lambda: False
    listing_device: str | None = None
    opens_last: bool = False
    pruning: Pruning | None = None
    may_give_way: Callable[[], bool] = lambda: True
    timing: TimingWorker = field(init=False)
    facts: VariantFacts | None = None  # the facts of the kernel, once they are known
    candidates: list[Candidate] = field(default_factory=list)  # all candidates, the default first
    # the first candidate of each binary, by the binary's digest and shared memory in bytes
    binaries: dict[tuple[str, int], Candidate] = field(default_factory=dict)
    # seconds from the begin to the end of its checks and races, without those in which it compiled. Waits for other
    # workers that use the device count.
    time_s: float = 0.0
    cut_short: str = ""  # what ended the search early

    def __post_init__(self) -> None:
        self.timing = TimingWorker(self.file, self.timeout_s)

    @property
    def variants(self) -> Variants:
        """The variants of the kernel, once they are known."""
        return self.timing.variants

    @property
    def device(self) -> str:
        """The type of the device whose compile pool compiles the candidates."""
        return self.timing.variants.device if self.timing.is_known else self.listing_device or ""

    def list_job(self) -> CompileJob:
        """The job that lists the configurations in the compile pool of ``listing_device``."""
        return CompileJob(next(self.numbers), self.file, partial(TellFacts, configs=True))

    def take_listing(self, outcome: CompileOutcome) -> None:
        """Takes the outcome of the listing. If it failed, the worker that times lists, and reports the failure."""
        if outcome.status:
            return
        try:
            next(self.find(outcome.answer))  # if it asks for more, the timing worker lists the configurations
        except StopIteration as end:
            self.timing.know(next(self.numbers), end.value)
            self.facts = outcome.answer
        except InductorBenchError:
            return

    def search(self, method: str) -> TuningSteps:
        """Searches by one of ``METHODS``, and at the end frees the memory that the kernel takes in the worker.

        Yields:
            Before each timing, the jobs for a compile pool; the key of each is the number of its candidate. After a
            request to a worker, that worker: the caller waits for its answer.

        Receives:
            The outcomes of the jobs; ``None`` once the worker has answered.

        Returns:
            The tuning for the record.

        Raises:
            InductorBenchError: the kernel has no other configuration, or the default cannot be timed.
        """
        try:
            outcome = yield from self._search(method)
        except InductorBenchError:
            yield from self.timing.drop_all()
            raise
        yield from self.timing.drop_all()
        return outcome

    def _search(self, method: str) -> TuningSteps:
        yield from self._open()
        search = METHODS[method].search(self.variants)
        configs, new = next(search), [self.candidates[0]]
        while True:
            new += self._add_candidates(configs)
            yield from self._compile(new)
            if self.is_over() and self._gives_way:
                raise BudgetSpentError(BUDGET_SPENT, MORE_BUDGET)
            before, began = self._best_relative_time(), time.monotonic()
            untimed = [one for one in new if one.relative_time is None and not one.status]
            yield from self._try(untimed)
            self.time_s += time.monotonic() - began
            if self.is_over():
                self.cut_short = "budget"
                break
            try:
                configs, new = search.send(self._best_so_far().config), []
            except StopIteration:
                break
            is_tried = any(one.relative_time is not None for one in untimed)
            if is_tried and self.pruning and self.pruning.ends(before, self._best_relative_time()):
                self.cut_short = "gain"
                break
        began = time.monotonic()
        entrants, result = yield from self._race_finalists(method)
        self.time_s += time.monotonic() - began
        tuning = describe_tuning(self.candidates, entrants, result)
        return replace(tuning, method=method, state=self.state, time_s=self.time_s, cut_short=self.cut_short)

    def _compile(self, new: Sequence[Candidate]) -> Generator[list[CompileJob], Any, None]:
        """Yields the jobs of new candidates, and records the outcomes that it receives."""
        jobs = [job for one in new if (job := self._compile_job(one)) is not None]
        record_outcomes(new, (yield jobs), self.candidates, self.binaries)
        if not jobs and self.is_over():
            mark_untried(new, BUDGET_SPENT)

    @property
    def _gives_way(self) -> bool:
        """Whether the end of the budget ends the search: of one of many kernels, without a timed candidate."""
        # A kernel of the host goes on, because the host times nothing before all candidates are compiled.
        if self.pruning is None or find_device(self.device).runs_on_host or self._fastest(1) or not self.may_give_way():
            return False
        return any(one.status in ("", "untried") for one in self.candidates[1:])

    def _try(self, new: Sequence[Candidate]) -> Waiting[None]:
        """Checks and times new candidates; some candidates of each template come first."""
        probes, rest = split_probes(new)
        yield from self._check_and_screen(probes)
        leave_out_hopeless(rest, self.candidates, self._best_relative_time())
        if self.is_over():
            mark_untried(rest, BUDGET_SPENT)
        yield from self._check_and_screen([one for one in rest if not one.status])

    def _check_and_screen(self, new: Sequence[Candidate]) -> Waiting[None]:
        yield from self.timing.prepare(new)
        yield from self._screen([one for one in new if not one.status])

    def _add_candidates(self, configs: Sequence[Config]) -> list[Candidate]:
        """Adds candidates for the configurations that are new, and returns them."""
        known = [candidate.config for candidate in self.candidates]
        new = []
        for config in configs:
            if config in known:
                continue
            candidate = Candidate(config, next(self.numbers), family=self.variants.family(config))
            try:
                candidate.change = self.variants.change(config)
            except InductorBenchError as error:
                candidate.status, candidate.reason = "refused", error.message
            new.append(candidate)
            known.append(config)
        self.candidates += new
        return new

    def _compile_job(self, candidate: Candidate) -> CompileJob | None:
        """The job that compiles a candidate; ``None`` if it has failed or is compiled as it is loaded."""
        request = None if candidate.status else self.variants.compile_request(candidate.config)
        return None if request is None else CompileJob(candidate.number, self.file, request)

    def _open(self) -> Waiting[None]:
        """Loads the file, and makes its kernel the first candidate."""
        if self.is_over():
            raise BudgetSpentError(BUDGET_SPENT, MORE_BUDGET)
        if not self.timing.is_known:
            self.facts = yield from self.timing.open(next(self.numbers), self.find)
        self.candidates = [self.timing.default]

    # Races

    def _screen(self, new: Sequence[Candidate]) -> Waiting[None]:
        """Races new candidates against the best so far, and sets the relative time of each."""
        while new:
            base = self._best_so_far()
            entrants, result = yield from self._race([base, *new], QUICK_SCREENING if self.pruning else SCREENING)
            new = [one for one in new if not one.status]
            if base.status:
                continue  # the base failed during the race, so that no candidate has a ratio to it
            ratios = [runner.ratio.median if runner.ratio else None for runner in result.runners]
            ahead = min([1.0, *(ratio for ratio in ratios if ratio is not None)])
            for candidate, runner, ratio in zip(entrants[1:], result.runners[1:], ratios[1:], strict=True):
                behind = ratio if ratio is not None else (runner.behind or 1.0) * ahead
                candidate.relative_time = behind * (base.relative_time or 1.0)
            break
        yield from self.timing.drop(
            {one.number for one in self.candidates[1:] if one not in self._fastest(FINAL.finalists)}
        )

    def _fastest(self, count: int) -> list[Candidate]:
        """The fastest candidates so far, at most ``count`` of them, without the default."""
        left = [one for one in self.candidates[1:] if one.relative_time is not None and not one.status]
        return sorted(left, key=lambda one: one.relative_time or 1.0)[:count]

    def _best_relative_time(self) -> float:
        return min([1.0, *(one.relative_time or 1.0 for one in self._fastest(1))])

    def _best_so_far(self) -> Candidate:
        """The fastest candidate so far if its gain reaches ``MINIMUM_GAIN``; otherwise the default."""
        for candidate in self._fastest(1):
            if (candidate.relative_time or 1.0) < 1 - MINIMUM_GAIN:
                return candidate
        return self.candidates[0]

    def _race_finalists(self, method: str) -> Waiting[tuple[list[Candidate], RaceResult]]:
        """Races the default and the fastest candidates with fresh samples; returns the entrants and the result."""
        while True:
            plan = self._final_plan()
            finalists = self._finalists(plan.finalists)
            if not finalists:
                raise make_no_verdict_error(method, self.candidates[1:])
            entrants, result = yield from self._race([self.candidates[0], *finalists], plan)
            if result.contender is not None:
                break
        for candidate in entrants:
            candidate.in_final = True
        return entrants, result

    def _final_plan(self) -> RacePlan:
        if self.pruning is None:
            return FINAL
        return HOPELESS_FINAL if self._best_so_far() is self.candidates[0] else QUICK_FINAL

    def _finalists(self, count: int) -> list[Candidate]:
        """The fastest candidates, at most ``count``; of one kernel of many only those that are near the fastest."""
        fastest = self._fastest(count)
        limit = NEAR * (fastest[0].relative_time or 1.0) if self.pruning and fastest else math.inf
        return [one for one in fastest if (one.relative_time or 1.0) <= limit]

    def _race(self, entrants: list[Candidate], plan: RacePlan) -> Waiting[tuple[list[Candidate], RaceResult]]:
        """Runs a race of these candidates, the first of which is its default; returns them and the result."""
        running_race = run_race(len(entrants), plan=plan)
        order = next(running_race)
        while True:
            times = yield from self.timing.sample([entrants[place] for place in order], self.state)
            try:
                order = running_race.send(times)
            except StopIteration as end:
                result: RaceResult = end.value
                for candidate, runner in zip(entrants, result.runners, strict=True):
                    candidate.runner = runner
                return entrants, result

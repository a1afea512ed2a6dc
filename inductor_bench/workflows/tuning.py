"""Retuning one kernel: candidates are built side by side, checked against the default, raced, and one may win.

A candidate that is wrong, does not build, crashes or hangs costs that candidate only: the worker is replaced, and the
others are loaded again, which their compiler's cache makes quick.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from ..analysis.race import RacePlan, RaceResult, Runner, race
from ..errors import InductorBenchError
from ..launch.session import WorkerLostError, WorkerSession
from ..records.tuning import Config, TriedCandidate, Tuning
from .builds import Builders
from .progress import Progress

BUILD_S = 300.0
ANSWER_S = 120.0
METHODS = ("max", "coordesc", "exhaustive")


class Variants(Protocol):
    """The ways in which one kernel can be changed."""

    @property
    def now(self) -> Config:
        """The configuration of the file as it stands."""

    @property
    def axes(self) -> dict[str, tuple[Any, ...]]:
        """What can be varied, by name, the present value first."""

    def change(self, config: Config) -> dict[str, Any]:
        """What a worker needs to make it; :class:`InductorBenchError` where it cannot be."""


@dataclass
class Candidate:
    """One configuration. ``status`` is empty while it may win; ``base`` is the number of what it raced against."""

    config: Config
    change: dict[str, Any] | None = None
    status: str = ""
    reason: str = ""
    runner: Runner | None = None
    base: int = 0
    checked: bool = False


@dataclass
class Tuner:
    """Tunes the kernel of one file.

    Args:
        file: the standalone file.
        variants: of its kernel.
        start: starts a worker; the argument names its log.
        builders: how many candidates are built at a time.
        progress: is told what happens.
        state: whether cold or warm times are compared.
        budget_s: after which no further candidates are built; ``None`` for all.
        timeout_s: of each request to a worker; ``None`` for limits that suit what is asked.
    """

    file: str
    variants: Variants
    start: Callable[[str], WorkerSession]
    builders: int
    progress: Progress
    state: str = "cold"
    budget_s: float | None = None
    timeout_s: float | None = None
    plan: RacePlan = field(default_factory=RacePlan)
    candidates: list[Candidate] = field(default_factory=list)
    session: WorkerSession | None = None

    def tune(self, method: str) -> Tuning:
        """Searches by one of ``METHODS``.

        Raises:
            InductorBenchError: there is nothing else to try, or the default itself cannot be timed.
        """
        begin = time.monotonic()
        self.candidates = [Candidate(self.variants.now, {})]
        self._crew = Builders(self.file, self.start, self.builders, self._limit(ANSWER_S), self._limit(BUILD_S))
        try:
            result = self._descend(begin) if method == "coordesc" else self._race_all(method, begin)
        finally:
            self._crew.end()
            if self.session is not None:
                self.session.close()
        return self._outcome(method, result, time.monotonic() - begin)

    def _race_all(self, method: str, begin: float) -> tuple[list[int], RaceResult]:
        propose = single_changes if method == "max" else all_combinations
        numbers = self._add(propose(self.variants.now, self.variants.axes))
        entrants = [0, *self._build(numbers, begin)]
        return self._race(entrants)

    def _descend(self, begin: float) -> tuple[list[int], RaceResult]:
        """One axis after the other, each from the best so far, until a whole round of them changes nothing."""
        best, improved = 0, True
        while improved:
            improved = False
            for name, values in self.variants.axes.items():
                numbers = self._add(single_changes(self.candidates[best].config, {name: values}))
                built = self._build(numbers, begin)
                best = self._unless_lost(best)
                if built:
                    entrants, result = self._race([best, *built])
                    improved |= entrants[result.best] != best
                    best = self._unless_lost(entrants[result.best])
        return self._race(list(dict.fromkeys([0, best or self._nearest()])))

    def _unless_lost(self, number: int) -> int:
        return 0 if self.candidates[number].status else number

    def _nearest(self) -> int:
        """Who came nearest to the default, where nobody was surely faster."""
        ratios = {
            number: candidate.runner.ratio.median
            for number, candidate in enumerate(self.candidates)
            if not candidate.status and candidate.runner is not None and candidate.runner.ratio is not None
        }
        return min(ratios, key=lambda number: ratios[number], default=0)

    def _add(self, configs: Iterable[Config]) -> list[int]:
        """The numbers of the candidates with those of these configurations that are new."""
        known = [candidate.config for candidate in self.candidates]
        numbers = []
        for config in configs:
            if config in known:
                continue
            candidate = Candidate(config)
            try:
                candidate.change = self.variants.change(config)
            except InductorBenchError as error:
                candidate.status, candidate.reason = "refused", error.message
            numbers.append(len(self.candidates))
            self.candidates.append(candidate)
        return numbers

    def _build(self, numbers: Sequence[int], begin: float) -> list[int]:
        """Builds candidates in parallel and checks them one by one; returns those that may race."""
        todo = [number for number in numbers if not self.candidates[number].status]
        if not todo:
            return []
        self.progress.stage(f"building {_counted(todo)}")
        changes = {number: self.candidates[number].change for number in todo}
        for built in self._crew.build(changes, partial(self._is_over, begin)):
            candidate = self.candidates[built.number]
            candidate.status, candidate.reason = built.status, built.reason
        self.progress.stage(f"checking {_counted(todo)}")
        return [number for number in todo if not self.candidates[number].status and self._is_right(number)]

    def _guard(self, number: int, request: Callable[[], Any]) -> Any:
        """The answer to a request about one candidate, which pays for it where there is none."""
        candidate = self.candidates[number]
        try:
            return request()
        except WorkerLostError as lost:
            candidate.status, candidate.reason = lost.kind, lost.message
        except InductorBenchError as error:
            candidate.status, candidate.reason = "refused", error.message
        return None

    def _limit(self, usual_s: float) -> float:
        return self.timeout_s or usual_s

    def _is_over(self, begin: float) -> bool:
        return self.budget_s is not None and time.monotonic() - begin > self.budget_s

    # The one worker that checks and times

    def _worker(self) -> WorkerSession:
        """The worker, with the default and every candidate that is still in the race loaded."""
        if self.session is not None and self.session.alive:
            return self.session
        self.session = self.start("race")
        self.session.ask({"do": "load", "number": 0, "file": self.file}, self._limit(ANSWER_S))
        for number, candidate in enumerate(self.candidates):
            if candidate.checked and not candidate.status:
                self._load(number)
        return self.session

    def _load(self, number: int) -> bool:
        request = {"do": "vary", "number": number, "of": 0, "change": self.candidates[number].change}
        self._guard(number, partial(self._worker().ask, request, self._limit(BUILD_S)))
        return not self.candidates[number].status

    def _is_right(self, number: int) -> bool:
        candidate = self.candidates[number]
        if not self._load(number):
            return False
        request = {"do": "check", "number": number, "against": 0}
        why = self._guard(number, partial(self._worker().ask, request, self._limit(ANSWER_S)))
        if why:
            candidate.status, candidate.reason = "wrong", why
        candidate.checked = not candidate.status
        return candidate.checked

    def _race(self, entrants: list[int]) -> tuple[list[int], RaceResult]:
        entrants = [number for number in entrants if not self.candidates[number].status]
        self.progress.stage(f"timing {_counted(entrants)}")
        conversation = race(len(entrants), plan=self.plan)
        order = next(conversation)
        while True:
            times = self._sample([entrants[place] for place in order])
            try:
                order = conversation.send([times.get(entrants[place]) for place in order])
            except StopIteration as end:
                result: RaceResult = end.value
                for number, runner in zip(entrants, result.runners, strict=True):
                    self.candidates[number].runner, self.candidates[number].base = runner, entrants[0]
                return entrants, result

    def _sample(self, order: list[int]) -> dict[int, float]:
        """The times of candidates that are sampled in this order; without those that fail, which are out."""
        while True:
            left = [number for number in order if not self.candidates[number].status]
            session = self._worker()
            try:
                times = session.ask({"do": "sample", "order": left, "state": self.state}, self._limit(ANSWER_S))
                return dict(zip(left, times, strict=True))
            except WorkerLostError as lost:
                self._blame(session.part, lost.kind, lost.message)
            except InductorBenchError as error:
                self._blame(session.part, "refused", error.message)

    def _blame(self, number: Any, status: str, reason: str) -> None:
        if not number:
            raise InductorBenchError(f"the kernel as it stands cannot be timed: {reason}")
        candidate = self.candidates[number]
        candidate.status, candidate.reason = status, reason

    # What came of it

    def _outcome(self, method: str, raced: tuple[list[int], RaceResult], time_s: float) -> Tuning:
        entrants, result = raced
        tried = sum(candidate.runner is not None and not candidate.status for candidate in self.candidates[1:])
        if not tried:
            raise InductorBenchError(*self._nothing_tried(method))
        best = entrants[result.best]
        winner, default = result.runners[result.best], result.runners[0]
        shown = result.contender if result.contender is not None else 0
        default_s, best_s = (statistics.median(runner.samples) for runner in (default, winner))
        return Tuning(
            method=method,
            state=self.state,
            candidates=tuple(self._row(number, best) for number in range(len(self.candidates))),
            tried=tried,
            default_s=default_s,
            best_s=best_s,
            speedup=1 / winner.ratio.median if winner.ratio else 1.0,
            verdict=result.verdict,
            best_config=self.candidates[best].config,
            ratio=result.runners[shown].ratio,
            time_s=time_s,
        )

    def _nothing_tried(self, method: str) -> tuple[str, str]:
        others = self.candidates[1:]
        if not others:
            return f"--autotune {method} has nothing else to try for this kernel", "try --autotune exhaustive"
        first = others[0]
        hint = "give it more time with --budget" if first.status == "untried" else ""
        return f"none of {len(others)} candidates could be timed; the first: {first.status}, {first.reason}", hint

    def _row(self, number: int, best: int) -> TriedCandidate:
        candidate = self.candidates[number]
        runner = candidate.runner
        samples = runner.samples if runner else ()
        status, reason = candidate.status, candidate.reason
        if not status and runner is not None:
            status = "best" if number == best and best else "default" if number == 0 else "slower"
            if runner.place == "final" and status == "slower":
                status = "finalist"
            reason = self._how_far(candidate, runner)
        return TriedCandidate(
            config=candidate.config,
            status=status or "default",
            reason=reason,
            median_s=statistics.median(samples) if samples else None,
            samples=len(samples),
            samples_s=tuple(samples),
            ratio=runner.ratio if runner and not candidate.base else None,
        )

    def _how_far(self, candidate: Candidate, runner: Runner) -> str:
        if runner.behind:
            return f"{runner.behind:.2f}x the best"
        if candidate.base and runner.ratio:
            return f"{runner.ratio.median:.3f}x the best before it"
        return ""


def _counted(candidates: Sequence[int]) -> str:
    return f"{len(candidates)} candidate{'s' * (len(candidates) != 1)}"


def single_changes(now: Config, axes: dict[str, tuple[Any, ...]]) -> Iterable[Config]:
    """Every configuration that differs from ``now`` on one axis."""
    return ({**now, name: value} for name, values in axes.items() for value in values if value != now.get(name))


def all_combinations(now: Config, axes: dict[str, tuple[Any, ...]]) -> Iterable[Config]:
    """Every combination of all axes but ``now``, those with fewest changes first."""
    every: list[Config] = [dict(now)]
    for name, values in axes.items():
        every = [{**one, name: value} for one in every for value in values]
    return sorted((one for one in every if one != now), key=lambda one: sum(one[name] != now[name] for name in axes))

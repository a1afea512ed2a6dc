"""Which of many candidates is fastest, with few samples of the slow ones and fresh samples of the finalists.

The race is a conversation: it yields the numbers of the candidates to sample next, in order, and is sent their times.
Neither does it measure anything nor does it know what a candidate is.
"""

from __future__ import annotations

import statistics
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from ..analysis.statistics import paired_ratio, smallest_effect, verdict
from ..records.tuning import Ratio

Order = tuple[int, ...]
Times = Sequence[float | None]
"""One time for each number of the order; ``None`` where that candidate cannot be timed, now or ever again."""


@dataclass(frozen=True)
class RacePlan:
    """How the samples are spent.

    After ``first_rounds`` of one sample each, who needs more than ``first_limit`` times the best is dropped; then,
    after ``later_rounds`` more each time, who needs more than ``later_limit``, and the slower half of the rest, until
    there are ``finalists`` beside the default. These get ``final_rounds`` fresh rounds: the best of many equals looks
    faster than it is. While a verdict is undecided, as many again, up to ``most_final_rounds``.
    """

    first_rounds: int = 3
    first_limit: float = 1.4
    later_rounds: int = 4
    later_limit: float = 1.1
    finalists: int = 2
    final_rounds: int = 20
    most_final_rounds: int = 40


@dataclass(frozen=True)
class Runner:
    """What became of one candidate: ``place`` is ``final``, ``dropped`` or ``lost``.

    ``behind`` is the factor by which one that was dropped was behind the best. ``samples`` are those that it was judged
    by: of the final rounds for finalists. ``ratio`` is to the default.
    """

    place: str
    samples: tuple[float, ...]
    behind: float | None = None
    ratio: Ratio | None = None


@dataclass(frozen=True)
class RaceResult:
    """``best`` is the default's number unless another was surely faster; ``verdict`` is the best contender's.

    Without a contender it is ``undecided``, or ``same`` where nobody ran against the default.
    """

    runners: tuple[Runner, ...]
    best: int
    contender: int | None
    verdict: str


def race(count: int, default: int = 0, plan: RacePlan | None = None) -> Generator[Order, Times, RaceResult]:
    """Runs a race of ``count`` candidates.

    Yields:
        the candidates to be timed, one after the other in that order.

    Receives:
        their times in seconds.
    """
    plan = plan or RacePlan()
    samples: list[list[float]] = [[] for _ in range(count)]
    runners: dict[int, Runner] = {}
    running = list(range(count))
    running = yield from _run_rounds(running, plan.first_rounds, samples, runners)
    running = _drop(running, default, plan.first_limit, count, plan.finalists, samples, runners)
    while (others := len(running) - (default in running)) > plan.finalists:
        running = yield from _run_rounds(running, plan.later_rounds, samples, runners)
        most = max(others // 2, plan.finalists)
        running = _drop(running, default, plan.later_limit, most, plan.finalists, samples, runners)
    return (yield from _final(running, default, plan, runners, count))


def _run_rounds(
    running: Sequence[int], rounds: int, samples: list[list[float]], runners: dict[int, Runner]
) -> Generator[Order, Times, list[int]]:
    """Interleaved rounds, every second one backwards, so that no candidate is always timed after the same other."""
    alive = list(running)
    for number in range(rounds):
        order = tuple(alive if number % 2 == 0 else reversed(alive))
        if not order:
            break
        for candidate, time in zip(order, (yield order), strict=True):
            if time is None:
                alive.remove(candidate)
                runners[candidate] = Runner("lost", tuple(samples[candidate]))
            else:
                samples[candidate].append(time)
    return alive


def _drop(
    running: Sequence[int],
    default: int,
    limit: float,
    most: int,
    fewest: int,
    samples: Sequence[Sequence[float]],
    runners: dict[int, Runner],
) -> list[int]:
    """Keeps the default and of the others who is within ``limit`` of the best, ``fewest`` to ``most`` of them."""
    medians = {one: statistics.median(samples[one]) for one in running}
    best = min(medians.values(), default=0.0)
    ranked = sorted((one for one in running if one != default), key=lambda one: medians[one])
    near = sum(medians[one] <= limit * best for one in ranked)
    kept = {default, *ranked[: max(min(near, most), fewest)]}
    for one in running:
        if one not in kept:
            runners[one] = Runner("dropped", tuple(samples[one]), behind=medians[one] / best if best else None)
    return [one for one in running if one in kept]


def _final(
    running: Sequence[int], default: int, plan: RacePlan, runners: dict[int, Runner], count: int
) -> Generator[Order, Times, RaceResult]:
    """Fresh rounds of default and finalists, more of them while it is open whether the best of these is faster."""
    samples: list[list[float]] = [[] for _ in range(count)]
    finalists = list(running)
    ratios: dict[int, Ratio] = {}
    verdicts: dict[int, str] = {}
    while True:
        finalists = yield from _run_rounds(finalists, plan.final_rounds, samples, runners)
        others = [one for one in finalists if one != default] if default in finalists else []
        ratios = {one: paired_ratio(samples[one], samples[default]) for one in others}
        verdicts = {one: _judge(ratio, samples[default]) for one, ratio in ratios.items()}
        contender = min(others, key=lambda one: (verdicts[one] != "faster", ratios[one].median), default=None)
        enough = len(samples[default]) + plan.final_rounds > plan.most_final_rounds
        if contender is None or verdicts[contender] != "undecided" or enough:
            break
    for one in finalists:
        runners[one] = Runner("final", tuple(samples[one]), ratio=ratios.get(one))
    alone = count == 1 and default in finalists
    judged = verdicts[contender] if contender is not None else "same" if alone else "undecided"
    best = contender if contender is not None and judged == "faster" else default
    return RaceResult(tuple(runners[number] for number in range(count)), best, contender, judged)


def _judge(ratio: Ratio, default: Sequence[float]) -> str:
    return verdict(ratio, smallest_effect(statistics.median(default)))

"""Finds the fastest of many candidates, with few samples of slow candidates and fresh samples of the finalists.

The race is a generator: it yields the numbers of the candidates to time next, in order, for several rounds at once, and
is sent their times. It takes no measurements itself, and it knows candidates by number only.
"""

from __future__ import annotations

import statistics
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from ..analysis.statistics import VERDICT_CONFIDENCE, paired_ratio, samples_needed, smallest_effect, verdict
from ..records.retune import Ratio

Order = tuple[int, ...]
Times = Sequence[float | None]
"""One time in seconds for each number of the order; ``None`` for a candidate that can no longer be timed."""


@dataclass(frozen=True)
class RacePlan:
    """The numbers of rounds and the limits of a race. A round takes one sample of each candidate in the race.

    1. After ``first_rounds``, if any, candidates slower than ``first_limit`` times the best median are dropped.
    2. After each further ``later_rounds``, candidates slower than ``later_limit`` times the best median are dropped,
       and so is the slower half of the rest, until ``finalists`` candidates beside the default are left.
    3. The finalists and the default get ``final_rounds`` fresh rounds, because the best of many equals looks faster
       than it is. While the verdict is undecided they get as many again, up to ``most_final_rounds`` in all.
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
    """The result of one candidate in a race."""

    place: str  # ``final``, ``dropped``, or ``lost`` for a candidate that could no longer be timed
    samples: tuple[float, ...]  # its times in seconds: of the final rounds for a finalist, of all rounds otherwise
    behind: float | None = None  # the median of a dropped candidate divided by the best median
    ratio: Ratio | None = None  # the time of a finalist divided by the default's


@dataclass(frozen=True)
class RaceResult:
    """The result of a race."""

    runners: tuple[Runner, ...]  # the result of each candidate, by its number
    best: int  # the number of the winner: the contender if it was reliably faster, otherwise the default
    contender: int | None  # the number of the best finalist beside the default; ``None`` if there is none
    # the verdict on the contender against the default. Without a contender it is ``same`` if no other candidate
    # raced, and ``undecided`` otherwise.
    verdict: str


def race(count: int, default: int = 0, plan: RacePlan | None = None) -> Generator[Order, Times, RaceResult]:
    """Runs a race of ``count`` candidates.

    Args:
        count: the number of candidates, the default included.
        default: the number of the default, which is never dropped.
        plan: the rounds and limits; ``None`` for the usual ones.

    Yields:
        The numbers of the candidates to time, in order.

    Receives:
        Their times in seconds, in the same order.
    """
    plan = plan or RacePlan()
    samples: list[list[float]] = [[] for _ in range(count)]
    runners: dict[int, Runner] = {}
    running = list(range(count))
    if plan.first_rounds:
        running = yield from _run_rounds(running, plan.first_rounds, samples, runners)
        running = _drop(running, default, plan.first_limit, count, plan.finalists, samples, runners)
    while (others := len(running) - (default in running)) > plan.finalists:
        running = yield from _run_rounds(running, plan.later_rounds, samples, runners)
        most = max(others // 2, plan.finalists)
        running = _drop(running, default, plan.later_limit, most, plan.finalists, samples, runners)
    return (yield from _run_final(running, default, plan, runners, count))


def _run_rounds(
    running: Sequence[int], rounds: int, samples: list[list[float]], runners: dict[int, Runner]
) -> Generator[Order, Times, list[int]]:
    """Interleaved rounds in alternating directions, so that no candidate always follows the same other candidate."""
    order = tuple(one for number in range(rounds) for one in (running if number % 2 == 0 else reversed(running)))
    lost: set[int] = set()
    for candidate, time in zip(order, (yield order) if order else (), strict=True):
        if time is None:
            lost.add(candidate)
        elif candidate not in lost:
            samples[candidate].append(time)
    runners.update({candidate: Runner("lost", tuple(samples[candidate])) for candidate in lost})
    return [candidate for candidate in running if candidate not in lost]


def _drop(
    running: Sequence[int],
    default: int,
    limit: float,
    most: int,
    fewest: int,
    samples: Sequence[Sequence[float]],
    runners: dict[int, Runner],
) -> list[int]:
    """Keeps the default, and ``fewest`` to ``most`` of the other candidates: those within ``limit`` times the best."""
    medians = {one: statistics.median(samples[one]) for one in running}
    best = min(medians.values(), default=0.0)
    ranked = sorted((one for one in running if one != default), key=lambda one: medians[one])
    near = sum(medians[one] <= limit * best for one in ranked)
    kept = {default, *ranked[: max(min(near, most), fewest)]}
    for one in running:
        if one not in kept:
            runners[one] = Runner("dropped", tuple(samples[one]), behind=medians[one] / best if best else None)
    return [one for one in running if one in kept]


def _run_final(
    running: Sequence[int], default: int, plan: RacePlan, runners: dict[int, Runner], count: int
) -> Generator[Order, Times, RaceResult]:
    """Times the default and the finalists afresh, until the best finalist's verdict is decided or rounds run out."""
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


# The rounds and limits of the races in which candidates are screened, and of the final.


VERDICT_ROUNDS = samples_needed(VERDICT_CONFIDENCE)
"""The fewest rounds that give a verdict: 9."""

SCREENING = RacePlan(first_rounds=2, first_limit=1.25, later_rounds=2, final_rounds=4, most_final_rounds=4)
FINAL = RacePlan(first_rounds=1, final_rounds=10)
QUICK_SCREENING = RacePlan(
    first_rounds=1,
    first_limit=1.15,
    later_rounds=2,
    later_limit=1.03,
    finalists=1,
    final_rounds=3,
    most_final_rounds=3,
)
"""The screening of one kernel of many: it decides what is tried next, and the final decides who wins."""

QUICK_FINAL = RacePlan(first_rounds=0, final_rounds=VERDICT_ROUNDS, most_final_rounds=2 * VERDICT_ROUNDS)
"""The final of one kernel of many: its candidates are those of the screenings that are near the fastest."""

HOPELESS_FINAL = RacePlan(finalists=1, first_rounds=0, final_rounds=VERDICT_ROUNDS, most_final_rounds=VERDICT_ROUNDS)
"""The final of one kernel of many whose candidates were no faster than the default in the screenings."""

NEAR = 1.02
"""Ratio to the fastest candidate of the screenings up to which another candidate enters the final of one of many."""

MINIMUM_GAIN = 0.005
"""Minimum gain, as a share of the default's time, for the search to continue from another configuration."""

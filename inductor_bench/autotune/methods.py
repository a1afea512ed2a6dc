"""The autotuning methods, from which options, help and searches come, and the race that finds the fastest candidate.

The race is a generator: it yields the numbers of the candidates to time next, in order, for several rounds at once, and
is sent their times. It takes no measurements itself, and it knows candidates by number only.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, TypeVar

from ..analysis.statistics import (
    VERDICT_CONFIDENCE,
    compute_paired_ratio,
    count_needed_samples,
    find_smallest_effect,
    find_verdict,
)
from ..devices.protocol import CPU
from ..errors import InductorBenchError
from ..messages.job_requests import WorkerRequest
from ..messages.kernel_requests import Numbered, VariantChange, VariantFacts
from ..records.retune import BY_DEFAULT, Config, Ratio

# The searches: generators that order the configurations of a kernel.
#
# A search yields configurations to try, and is sent the best configuration so far. It takes no measurements itself.


Search = Generator[list[Config], Config, None]

CHUNK = 32
"""Configurations that an exhaustive search tries before it continues from the best so far."""


class Variants(Protocol):
    """The variants of one kernel in any language; ``now`` is the configuration of the file."""

    @property
    def now(self) -> Config:
        """The configuration of the file."""

    def listed_by_max_autotune(self) -> list[Config]:
        """The configurations that Inductor tries with max-autotune, except ``now``. Every search begins with these."""

    def neighbours(self, config: Config) -> list[Config]:
        """The configurations one step away from ``config``."""

    def nearest_first(self, config: Config) -> Iterator[Config]:
        """All plausible configurations, those nearest to ``config`` first."""

    @property
    def device(self) -> str:
        """The type of the kernel's device."""

    @property
    def axes(self) -> Mapping[str, tuple[Any, ...]]:
        """The values of each field that can be varied."""

    def change(self, config: Config) -> VariantChange:
        """The change that a worker makes to the kernel for a configuration.

        Raises:
            InductorBenchError: the kernel cannot be changed to the configuration.
        """

    def compile_request(self, config: Config) -> Numbered[Any] | None:
        """The compile pool's request for a configuration; ``None`` if the timing worker compiles it."""

    def family(self, config: Config) -> str:
        """The template of a configuration; empty if it has none.

        Times of one template have the same order of magnitude.
        """

    def opening_requests(self, number: int) -> Sequence[WorkerRequest[Any]]:
        """The requests to a worker between the load of the file under this number and the first variant."""

    def save_refusal(self, config: Config) -> str:
        """The reason why a configuration cannot be saved as a file; empty if it can."""

    def notes(self, method: TuningMethod) -> list[str]:
        """Notes for the user on the configurations that the method could choose from."""


def try_max_autotune(space: Variants) -> Search:
    """Tries the configurations that Inductor lists with max-autotune."""
    yield space.listed_by_max_autotune()


def search_by_descent(space: Variants) -> Search:
    """Tries max-autotune's configurations, then the neighbours of the best until no neighbour is better."""
    yield from _descend_to_minimum(space)


def search_exhaustively(space: Variants) -> Search:
    """Descends, then tries all other configurations, those nearest to the best so far first."""
    best = yield from _descend_to_minimum(space)
    while True:
        found, tried = best, iter(space.nearest_first(best))
        while found == best:
            chunk = list(islice(tried, CHUNK))
            if not chunk:
                return
            found = yield chunk
        best = found


def _descend_to_minimum(space: Variants) -> Generator[list[Config], Config, Config]:
    """Descends, and returns the configuration whose neighbours are no better."""
    best = yield space.listed_by_max_autotune()
    settled: Config | None = None
    while best != settled:
        settled = best
        best = yield space.neighbours(best)
    return best


@dataclass(frozen=True)
class TuningMethod:
    """One way to autotune a kernel."""

    name: str  # the name on the command line and in the record
    help: str  # the configurations that it tries, as a clause of ``--help``
    search: Callable[[Variants], Search]  # makes the search, which orders the configurations
    wide: bool = False  # whether it tries Inductor's exhaustive choices for a library call, which take long to compile
    ends_with_list: bool = False  # whether it tries max-autotune's list and nothing else


METHODS = {
    method.name: method
    for method in (
        TuningMethod(
            name=BY_DEFAULT,
            help="every config of Inductor's max-autotune, on a CPU every single change",
            search=try_max_autotune,
            ends_with_list=True,
        ),
        TuningMethod(
            name="coordesc",
            help="one knob after the other, from the best config so far",
            search=search_by_descent,
        ),
        TuningMethod(
            name="exhaustive",
            help="all combinations",
            search=search_exhaustively,
            wide=True,
        ),
    )
}
"""The methods by name. The first is the method of ``--autotune`` without a value."""


# How much a kernel can save of the step, and when its search is no longer worth the time. Pure functions.


UNKNOWN_HEADROOM = 0.5
"""The largest possible gain of a kernel without a known roof, as a share of its time."""

SLACK = 0.03
"""Share of a kernel's time that is added to its gain limit: its time in the step and its roof are not exact."""

LEFT_AT_LEAST = 0.05
"""The share of a candidate's time that may still be saved, even if its roof says less."""

NEGLIGIBLE = 0.02
"""Kernels are not retuned if together they can save at most this share of what all kernels can save."""

MUCH_LEFT_AFTER_GAIN, MUCH_LEFT_WITHOUT = 2, 4
"""After little gain, a search continues while at least this multiple of the least gain is left: the first number if the
last candidates gained something, the second if they gained nothing. With these numbers, simulated searches of 146
kernels of mixnet_l found 97.9% of what searches to the end found, with 74% of the candidates."""

FEW = 32
"""Number of kernels up to which each is tuned to the end of its search."""

GENERATED_COST_S = 0.25
LIBRARY_COST_S = 20.0
"""The usual time in seconds of a search: for a generated kernel, and for a library call, whose choices Inductor
compiles first."""

LIBRARY_PRIOR = 0.2
"""The expected gain of a library call, as a share of the expected gain of a generated kernel with the same gain
limit."""


@dataclass(frozen=True)
class TuningPriority:
    """The largest possible gain of one kernel, and the priority of its search."""

    time_s: float  # its seconds in one step
    # seconds of the step that would be saved at its roof; ``None`` if no roof is known
    gain_limit_s: float | None = None
    is_library_call: bool = False  # whether it is a library call

    @property
    def largest_gain_s(self) -> float:
        """The seconds of the step that the kernel can win at most."""
        limit = UNKNOWN_HEADROOM * self.time_s if self.gain_limit_s is None else self.gain_limit_s
        return min(limit + SLACK * self.time_s, self.time_s)

    @property
    def rank(self) -> float:
        """Returns the expected saving per second of search. The kernel with the largest rank is tuned first."""
        return (
            self.largest_gain_s * LIBRARY_PRIOR / LIBRARY_COST_S
            if self.is_library_call
            else self.largest_gain_s / GENERATED_COST_S
        )

    def left_s(self, relative_time: float) -> float:
        """The seconds of the step that are left to win beyond a candidate with this time, relative to the default's."""
        now_s = relative_time * self.time_s
        return max(self.largest_gain_s - (self.time_s - now_s), LEFT_AT_LEAST * now_s)


@dataclass(frozen=True)
class Pruning:
    """Decides when the search of one kernel ends early."""

    stake: TuningPriority  # what is at stake with the kernel
    least_s: float  # seconds of the step below which a further gain is not searched for

    def ends(self, before: float, now: float) -> bool:
        """Whether to end the search after candidates that moved the best relative time from ``before`` to ``now``.

        It ends if little is left to win, or if little was gained and not much is left. Much may be left after little
        gain, because one step may gain little and the next much.
        """
        left_s, gained_s = self.stake.left_s(now), (before - now) * self.stake.time_s
        much = MUCH_LEFT_AFTER_GAIN if gained_s > 0 else MUCH_LEFT_WITHOUT
        return left_s < self.least_s or (gained_s < self.least_s and left_s < much * self.least_s)


def find_least(stakes: Collection[TuningPriority]) -> float:
    """Returns the gain, in seconds of the step, below which generated kernels are not retuned; 0 for few kernels. All
    kernels below it together can save ``NEGLIGIBLE`` of the saving of all kernels.
    """
    ranked = sorted(stake.largest_gain_s for stake in stakes if not stake.is_library_call)
    if len(ranked) <= FEW:
        return 0.0
    left = NEGLIGIBLE * sum(ranked)
    for largest_gain_s in ranked:
        left -= largest_gain_s
        if left < 0:
            return largest_gain_s
    return 0.0


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
       than it is. While the verdict is undecided they get as many again, up to ``most_final_rounds`` in all, and then
       more as long as ``goes_on`` returns true.
    """

    first_rounds: int = 3
    first_limit: float = 1.4
    later_rounds: int = 4
    later_limit: float = 1.1
    finalists: int = 2
    final_rounds: int = 20
    most_final_rounds: int = 40
    goes_on: Callable[[], bool] = lambda: False


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


Asked = TypeVar("Asked")
Found = TypeVar("Found")


def answer_each(questions: Generator[Asked, Any, Found], answer: Callable[[Asked], Any]) -> Found:
    """Answers all that a race or a search for variants asks. Returns its result."""
    said = None
    while True:
        try:
            asked = questions.send(said)
        except StopIteration as end:
            found: Found = end.value
            return found
        said = answer(asked)


def run_race(count: int, default: int = 0, plan: RacePlan | None = None) -> Generator[Order, Times, RaceResult]:
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
        ratios = {one: compute_paired_ratio(samples[one], samples[default]) for one in others}
        verdicts = {one: _judge(ratio, samples[default]) for one, ratio in ratios.items()}
        contender = min(others, key=lambda one: (verdicts[one] != "faster", ratios[one].median), default=None)
        enough = len(samples[default]) + plan.final_rounds > plan.most_final_rounds and not plan.goes_on()
        if contender is None or verdicts[contender] != "undecided" or enough:
            break
    for one in finalists:
        runners[one] = Runner("final", tuple(samples[one]), ratio=ratios.get(one))
    alone = count == 1 and default in finalists
    judged = verdicts[contender] if contender is not None else "same" if alone else "undecided"
    best = contender if contender is not None and judged == "faster" else default
    return RaceResult(tuple(runners[number] for number in range(count)), best, contender, judged)


def _judge(ratio: Ratio, default: Sequence[float]) -> str:
    return find_verdict(ratio, find_smallest_effect(statistics.median(default)))


# The rounds and limits of the races in which candidates are screened, and of the final.


VERDICT_ROUNDS = count_needed_samples(VERDICT_CONFIDENCE)
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
"""The screening of one of many kernels. It decides which candidates come next; the final decides which one is best."""

QUICK_FINAL = RacePlan(first_rounds=0, final_rounds=VERDICT_ROUNDS, most_final_rounds=2 * VERDICT_ROUNDS)
"""The final of one of many kernels, with the candidates that were near the fastest in the screenings."""

HOPELESS_FINAL = RacePlan(finalists=1, first_rounds=0, final_rounds=VERDICT_ROUNDS, most_final_rounds=VERDICT_ROUNDS)
"""The final of one of many kernels, if no candidate was faster than the default in the screenings."""

NEAR = 1.02
"""A candidate of one of many kernels enters the final if its ratio to the screenings' fastest candidate is at most
this."""

MINIMUM_GAIN = 0.005
"""Minimum gain, as a share of the default's time, for the search to continue from another configuration."""


Questions = Generator[Numbered[Any], Any, Variants]
"""A generator that finds the variants of a kernel: it yields requests about the kernel, and receives the worker's
answers."""

FindVariants = Callable[[VariantFacts], Questions]
"""Finds the variants of a kernel from the worker's facts.

Raises:
    InductorBenchError: the kernel has no variants.
"""


# The search space of kernels on the CPU, and that of kernels without variants.


Axes = dict[str, tuple[Any, ...]]
"""The values of each field that can be varied."""


class CpuSpace:
    """The search space of a kernel on the CPU: the combinations of independent axes."""

    device = CPU.type
    now: Config
    axes: Axes

    def listed_by_max_autotune(self) -> list[Config]:
        """Every change of one axis, because max-autotune lists nothing for the CPU."""
        return self.neighbours(self.now)

    def neighbours(self, config: Config) -> list[Config]:
        """Every configuration that differs from ``config`` on one axis."""
        return [
            {**config, name: value}
            for name, values in self.axes.items()
            for value in values
            if value != config.get(name)
        ]

    def nearest_first(self, config: Config) -> Iterator[Config]:
        """Every combination of all axes except ``config``, those with fewest changes first."""
        every: list[Config] = [dict(config)]
        for name, values in self.axes.items():
            every = [{**one, name: value} for one in every for value in values]
        others = (one for one in every if one != config)
        return iter(sorted(others, key=lambda one: sum(one[name] != config[name] for name in self.axes)))

    def compile_request(self, config: Config) -> Numbered[Any] | None:
        return None

    def family(self, config: Config) -> str:
        return ""

    def opening_requests(self, number: int) -> Sequence[WorkerRequest[Any]]:
        return ()

    def save_refusal(self, config: Config) -> str:
        return ""

    def notes(self, method: TuningMethod) -> list[str]:
        return []


@dataclass(frozen=True)
class FixedKernel(CpuSpace):
    """The space of a kernel without variants. ``no_variants_reason`` is the message for the user."""

    no_variants_reason: str
    now: Config = field(default_factory=dict)
    axes: Axes = field(default_factory=dict)

    def change(self, config: Config) -> VariantChange:
        raise InductorBenchError(self.no_variants_reason)

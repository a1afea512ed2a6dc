"""Distinguishes kinds of steps by the graphs that they call, and by the sizes in calls of graphs for dynamic shapes."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from ...records.evidence import OtherSteps, take_different_times
from .step_recording import ClockedStep, Moment

MOST_SIZES = 256
"""Number of combinations of sizes that are distinguished. Steps with further ones count as steps of one kind."""

MOST_CALLS = 16
"""Number of different calls in a step whose sizes are noted."""

MOST_SUMS = 20
"""Number of kinds of which each has its own sums: those that take most time. The others are summed up together."""

PROFILED_KINDS_STEPS, PROFILED_KINDS_S = 31, 2.0
"""Maximum number of profiled steps, and their maximum time, while a kind that the program repeats was not profiled."""

LEAST_STEPS = 4
"""Minimum number of steps of one size from which their time says whether steps of other sizes take another time."""

SEVERAL_KINDS_STEPS = 11
"""Minimum number of profiled steps if the program repeats steps of several kinds. Once each kind was profiled, the
profile may have fewer, if they took the maximum time."""


def find_sizes(inputs: Sequence[Any]) -> Callable[[Sequence[Any]], Any] | None:
    """Returns what reads the sizes among the inputs of a graph for dynamic shapes; ``None`` for another graph.

    Inductor passes each size as an ``int``. A graph for fixed shapes has none among its inputs.
    """
    places = [place for place, value in enumerate(inputs) if type(value) is int]
    return itemgetter(*places) if places else None


class CalledSizes:
    """The sizes in the calls of a step. Each combination that a step has gets a number; without sizes it is 0."""

    def __init__(self) -> None:
        self._called: set[tuple[int, Any]] = set()
        self._numbers: dict[frozenset[tuple[int, Any]], int] = {frozenset(): 0}

    def note(self, graph: int, sizes: Any) -> None:
        """Notes the sizes in a call of the graph of this number: an integer, or a tuple of them."""
        if len(self._called) < MOST_CALLS:
            self._called.add((graph, sizes))

    def take(self) -> int:
        """The number of the combination in the calls since the last time that this was asked.

        It is -1 for all combinations after the first :data:`MOST_SIZES`.
        """
        if not self._called:
            return 0
        called, self._called = frozenset(self._called), set()
        if called not in self._numbers and len(self._numbers) <= MOST_SIZES:
            self._numbers[called] = max(self._numbers.values()) + 1
        return self._numbers.get(called, -1)

    def keep_only(self, numbers: Collection[int]) -> None:
        """Forgets the combinations without one of these numbers, so that further ones get a number."""
        self._numbers = {called: number for called, number in self._numbers.items() if not number or number in numbers}

    def is_half_full(self) -> bool:
        """Whether most of the numbers are in use."""
        return len(self._numbers) > MOST_SIZES // 2

    def list_sizes(self) -> dict[int, tuple[int, ...]]:
        """The different sizes in each combination, in the order of the graphs and their inputs."""
        return {number: tuple(dict.fromkeys(_flatten(called))) for called, number in self._numbers.items()}


def _flatten(called: frozenset[tuple[int, Any]]) -> Iterator[int]:
    for _, sizes in sorted((graph, sizes if isinstance(sizes, tuple) else (sizes,)) for graph, sizes in called):
        yield from sizes


Kind = tuple[int, int]
"""The graphs that a step called, as in ``Moment.graphs``, and the number of its sizes."""


@dataclass(frozen=True)
class KindsOfSteps:
    """What was found of the timed steps."""

    steps: tuple[ClockedStep, ...]  # those of the profiled kinds
    others: tuple[OtherSteps, ...]  # the kinds that were not profiled, with the time of their steps
    kinds: tuple[OtherSteps, ...]  # the kinds of ``steps``, if there are several kinds


INTERRUPTED: Kind = (-1, 0)
"""The kind of a profiled step that other calls interrupted: no timed step is of this kind."""


class StepKinds:
    """The kinds of steps that a program has made until now, and the profiled ones of them."""

    def __init__(self, sizes: CalledSizes) -> None:
        self.has_sizes = True
        """Whether sizes distinguish steps: not if almost each step has other ones, or if all take the same time."""
        self._sizes, self._each_call = sizes, False
        self._seen: Counter[Kind] = Counter()
        self._known: set[int] = set()
        self._profiled: list[Kind] = []  # of each profiled step that the analysis will use, in order

    def forget(self) -> None:
        """Forgets all steps, because other events are the boundaries from now on."""
        self._seen.clear()
        self._sizes.keep_only(())
        self.forget_profile()

    def forget_profile(self) -> None:
        """Forgets which steps were profiled."""
        self._known.clear()
        self._profiled.clear()

    def make_room(self, moments: Sequence[Moment]) -> None:
        """Forgets the many sizes of a warm-up, except those in these moments: sizes of steps that may be timed."""
        if self._sizes.is_half_full():
            kept = {0, *(moment.sizes for moment in moments)}
            self._sizes.keep_only(kept)
            self._seen = Counter({kind: count for kind, count in self._seen.items() if kind[1] in kept})

    def note(self, moment: Moment, *, each_call: bool) -> None:
        """Notes the step before a boundary; ``each_call`` says whether each call of one function is a step."""
        self._each_call = each_call
        kind = moment.graphs, moment.sizes
        if kind in self._seen or len(self._seen) < MOST_SIZES:
            self._seen[kind] += 1

    def begin_profile(self, before: Sequence[Moment]) -> None:
        """Notes that a profile begins after these settled steps."""
        self.make_room(before)
        self._known = {moment.graphs for moment in before[1:] if not moment.is_disturbed}
        self._profiled.clear()

    def note_profiled(self, moment: Moment, *, counts: bool, odd: bool = False) -> bool:
        """Notes a profiled step.

        Returns whether other calls interrupted it, or it called other graphs than the settled steps, if these all
        called the same graphs, and the program does not repeat it.

        Args:
            moment: the boundary after it.
            counts: whether the analysis will use it.
            odd: whether other calls interrupted it.
        """
        if counts:
            self._profiled.append(INTERRUPTED if odd else (moment.graphs, moment.sizes))
        if odd:
            return True
        is_other = len(self._known) == 1 and moment.graphs not in self._known
        return is_other and (moment.graphs, moment.sizes) not in self.find_repeated()

    def find_repeated(self) -> set[Kind]:
        """The kinds of steps that the program repeats. If each call is a step, a graph is not called only once."""
        return {
            kind for kind, count in self._seen.items() if kind[0] and (count > 1 or (self._each_call and not kind[1]))
        }

    def wants_more(self, steps: int, time_s: float) -> bool:
        """Whether further steps should be profiled after this number of steps, which took ``time_s`` seconds."""
        repeated = self.find_repeated()
        if not steps or len(repeated) < 2:
            return False
        are_missing = not repeated <= set(self._profiled)
        if are_missing and steps < SEVERAL_KINDS_STEPS:
            return True
        return time_s < PROFILED_KINDS_S and steps < (PROFILED_KINDS_STEPS if are_missing else SEVERAL_KINDS_STEPS)

    def is_profiled(self, moment: Moment) -> bool:
        """Whether steps like the one before a boundary were profiled."""
        sizes = moment.sizes
        kinds = set(self._profiled)
        return any(graphs == moment.graphs and (one == sizes or not self.has_sizes) for graphs, one in kinds)

    def divide(self, whole: Sequence[ClockedStep], more: Sequence[ClockedStep]) -> KindsOfSteps:
        """Sums up steps by their kinds.

        Args:
            whole: steps of all kinds, as the program made them.
            more: further steps, of profiled kinds only.
        """
        self.has_sizes = bool(self._profiled) and _differ_by_size(whole)
        profiled: dict[Kind, list[int]] = {}
        for place, (graphs, sizes) in enumerate(self._profiled):
            profiled.setdefault((graphs, sizes if self.has_sizes else 0), []).append(place)
        if not self.has_sizes:
            whole, more = ([replace(step, sizes=0) for step in some] for some in (whole, more))
        steps = [*whole, *more]
        kinds = {(*kind, False) for kind in profiled}
        if steps and not any(step.kind in kinds for step in steps):
            kinds = {most for most, _ in Counter(step.kind for step in steps).most_common(1)}
        others = [step for step in whole if step.kind not in kinds]
        counted = whole if others else steps  # the further steps are no fair share of all kinds
        several = len({step.kind for step in whole}) > 1
        timed = counted if len({step.kind for step in whole if step.kind in kinds}) > 1 else steps
        summed = _Sum(sum(step.time_s for step in counted), len(counted), profiled, self._sizes.list_sizes())
        return KindsOfSteps(
            tuple(step for step in timed if step.kind in kinds),
            summed.list_kinds(others),
            summed.list_kinds([step for step in counted if step.kind in kinds]) if several else (),
        )


def _differ_by_size(steps: Sequence[ClockedStep]) -> bool:
    """Whether there are few kinds of steps, and steps that call the same graphs take other times with other sizes."""
    kinds = _group(steps)
    if 2 * len(kinds) > len(steps):
        return False
    alike: dict[tuple[int, bool], list[OtherSteps]] = {}
    for (graphs, _, is_odd), times in kinds.items():
        one = OtherSteps((), len(times), statistics.median(times), error_s=compute_median_error(times))
        alike.setdefault((graphs, is_odd), []).append(one)
    return any(take_different_times(some, LEAST_STEPS) for some in alike.values())


def _group(steps: Sequence[ClockedStep]) -> dict[tuple[int, int, bool], list[float]]:
    """The times of the steps of each kind."""
    kinds: dict[tuple[int, int, bool], list[float]] = {}
    for step in steps:
        kinds.setdefault(step.kind, []).append(step.time_s)
    return kinds


@dataclass(frozen=True)
class _Sum:
    """Sums up some of the steps: the time and number of all, the places of each kind's profiled ones, and sizes."""

    whole_s: float
    among: int
    profiled: Mapping[Kind, Sequence[int]]
    sizes: Mapping[int, tuple[int, ...]]

    def list_kinds(self, steps: Sequence[ClockedStep]) -> tuple[OtherSteps, ...]:
        """The kinds of some steps, those that take most time first; the last one may be the sum of several."""
        ranked = sorted(_group(steps).items(), key=lambda one: -sum(one[1]))
        if len(ranked) <= MOST_SUMS + 1:
            return tuple(self._sum_up([kind], times) for kind, times in ranked)
        few, rest = ranked[:MOST_SUMS], ranked[MOST_SUMS:]
        pooled = self._sum_up([kind for kind, _ in rest], [time_s for _, times in rest for time_s in times])
        return (*(self._sum_up([kind], times) for kind, times in few), pooled)

    def _sum_up(self, kinds: Sequence[tuple[int, int, bool]], times: Sequence[float]) -> OtherSteps:
        (graphs, sizes, _), pooled = kinds[0], len(kinds) > 1
        alike = all(kind[0] == graphs for kind in kinds)
        places = [place for *kind, is_odd in kinds if not is_odd for place in self.profiled.get((kind[0], kind[1]), ())]
        return OtherSteps(
            tuple(list_graphs(graphs)) if alike else (),
            len(times),
            statistics.median(times),
            self.among,
            sizes=() if pooled else self.sizes.get(sizes, ()),
            p90_s=find_p90(times),
            share=sum(times) / self.whole_s if self.whole_s else None,
            profiled=len(places),
            pooled=len(kinds) if pooled else 0,
            interrupted=all(is_odd for *_, is_odd in kinds),
            error_s=compute_median_error(times),
            profiled_places=tuple(sorted(places)),
        )


def compute_median_error(times: Sequence[float]) -> float:
    """The standard error of the median of step times, from their median distance to it: a few long steps do not count.

    It is that of a normal distribution, whose median distance is 0.6745 standard deviations.
    """
    middle = statistics.median(times)
    return math.sqrt(math.pi / 2 / len(times)) * statistics.median(abs(time_s - middle) for time_s in times) / 0.6745


def find_p90(times: Sequence[float]) -> float:
    """The time that 90% of the steps take at most, interpolated between the two steps next to it."""
    if len(times) < 2:
        return times[0]
    return statistics.quantiles(times, n=10, method="inclusive")[-1]


def list_graphs(bits: int) -> Iterator[int]:
    """The numbers of the graphs that these bits stand for."""
    return (number for number in range(bits.bit_length()) if bits >> number & 1)

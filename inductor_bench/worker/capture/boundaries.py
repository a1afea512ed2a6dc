"""Where the steps of a program end: by its marks, its optimizer, or the repeating pattern of its compiled calls."""

from __future__ import annotations

import statistics
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...records.evidence import ObservedGraph, ObservedOptimizer
from ...records.run import MARKS, OPTIMIZER_STEPS, PATTERN
from ..upstream import observing as upstream
from .step_kinds import CalledSizes, find_sizes
from .step_recording import find_place

# Finds the repeating pattern of compiled calls, for programs that neither mark their steps nor run an optimizer.


Key = tuple[int, int]
"""A call: the number of the compiled graph, and the address of its first parameter, which tells calls of one graph
apart."""

Cycle = tuple[Key, ...]
"""The calls that repeat."""

REPEATS = 3
"""Number of consecutive repetitions that make a pattern."""

NUMBERS_ONLY = 256
"""Calls without a pattern after which the addresses are ignored: a program may load its parameters anew."""

REMEMBERED = 8192
"""Maximum number of calls that are searched for a pattern, and of keys whose first call is remembered."""

SHORT_RUNS = 3
"""After this many consecutive runs of fewer than :data:`REPEATS` cycles, a cycle counts as chance and not as a
pattern."""

ODD_CALLS, ODD_CYCLES = 64, 4
"""A cycle is given up after this many other calls, and after this many times its length, if it does not go on."""

LEAST_ITERATIONS, MOST_ODD, LONG_RUN = 8, 0.125, 6
"""After this many iterations, a loop around a cycle is chance if more than this share of them had other calls, unless
the cycle is repeated so many times in a row, as the tokens of a request are."""

WITHOUT_ORDER = 64
"""Calls after which no pattern is expected any more, if all of them are calls of one function."""

OUTER_S = 2.0
"""The longest iteration of the loop around a cycle that counts as a step. If it takes longer, its cycles are the
steps."""


@dataclass
class LongerLoop:
    """The loop around the cycle: other calls come between its repetitions."""

    times: int = 0  # the number of times that other calls came
    least: int = 0  # the numbers of repetitions after which they came
    most: int = 0  # the numbers of repetitions after which they came

    def add(self, repetitions: int) -> None:
        """Notes that other calls came after this number of repetitions."""
        self.least = min(self.least, repetitions) if self.times else repetitions
        self.most = max(self.most, repetitions)
        self.times += 1


class RecentKeys:
    """The last calls, in which a period is searched for. While there is none, the searches become ever rarer."""

    def __init__(self) -> None:
        self.keys: list[Any] = []
        self._next_search = REPEATS

    def add(self, key: Any) -> bool:
        """Adds a key. Returns whether to search for a period now."""
        self.keys.append(key)
        return len(self.keys) >= self._next_search

    def search(self) -> int | None:
        """Returns the period of the last keys."""
        del self.keys[:-REMEMBERED]
        period = find_period(self.keys)
        if period is None:
            self._next_search = len(self.keys) + 1 + len(self.keys) // 8
        return period

    def clear(self) -> None:
        """Forgets the keys, and begins the search again."""
        self.keys.clear()
        self._next_search = REPEATS


class OuterLoop:
    """The loop around a cycle.

    It repeats runs of the cycle of any length, and other calls, each of which counts as a cycle.

    Args:
        age: for each call the number of other calls that the program had made before it first made this one.
    """

    def __init__(self, age: Mapping[Key, int]) -> None:
        self.is_found = False
        self.iteration_s = 0.0
        """The time of the last iteration before the loop was found."""
        self.begun = 0
        """The number of iterations that began since it was found."""
        self.is_odd = False
        """Whether other calls came in the iteration, or some were left out."""
        self._iterations = self._odd = 0  # since it was found; the odd ones had other calls
        self._counted = 0  # the last iteration that was counted as odd
        self._age = age
        self._recent = RecentKeys()
        self._times_s: deque[float] = deque(maxlen=REMEMBERED)
        self._loop: tuple[Cycle, ...] = ()
        self._place = 0

    def forget(self) -> None:
        """Forgets the loop, and begins the search again."""
        self.is_found, self._loop = False, ()
        self._odd = self._iterations = self._counted = 0
        self._recent.clear()
        self._times_s.clear()

    @property
    def is_chance(self) -> bool:
        """Whether the loop was found by chance: too many of its iterations had other calls."""
        return self.is_found and self._iterations >= LEAST_ITERATIONS and self._odd > MOST_ODD * self._iterations

    def note(self, cycle: Cycle) -> bool:
        """Notes the next cycle or other call. Returns whether an iteration begins with it."""
        if self.is_found:
            return self._follow(cycle)
        self._times_s.append(time.perf_counter())
        if self._recent.add(cycle):
            self._search()
        return False

    def _search(self) -> None:
        period = self._recent.search()
        if period is None or period == 1:
            return
        self.iteration_s = self._times_s[-1] - self._times_s[-1 - period]
        last = self._recent.keys[-period:]
        start = _find_first([cycle[0] for cycle in last], self._age)
        self.is_found, self._loop = True, (*last[start:], *last[:start])
        self._place = (period - start) % period

    def _follow(self, cycle: Cycle) -> bool:
        """Whether an iteration begins: with the loop's first cycle, even after calls that are not the loop's."""
        fits = cycle == self._loop[self._place]
        self.is_odd |= not fits
        if not fits and self._counted < self._iterations:
            self._odd, self._counted = self._odd + 1, self._iterations
        if cycle == self._loop[0]:
            self._place = 1
            self.begun += 1
            self._iterations += 1
            return True
        self._place = (self._place + fits) % len(self._loop)
        return False


class Pattern:
    """The calls of a program, and the cycle that they repeat.

    A cycle begins at the call that the program made first: of ``A B C A B C``, observed from any call on, at ``A``.
    Other calls between two cycles interrupt it; it goes on with its next first call.

    A program that answers requests calls the graphs of one function in any order, one graph for each size. All calls
    then have the same first parameter, and each call is a cycle.
    """

    def __init__(self) -> None:
        self.is_found = False
        self.is_odd = False
        """Whether other calls interrupted the cycle since it began last."""
        self.begins_outer = False
        """Whether an iteration of the loop around the cycle began with the last call."""
        self.trains = False
        """Whether a graph computes gradients: then a step is more than one call."""
        self.takes_each_call = False
        """Whether each call is a cycle: the calls are those of one function, and have no order."""
        self.first_cycle_end_s: float | None = None
        """The time at which the first call of all was repeated."""
        self._recent = RecentKeys()
        self._first_seen: dict[Key, int] = {}
        self.outer = OuterLoop(self._first_seen)
        self._starts: dict[Key, int] = {}
        self._numbers_only = False
        self._parameters: set[int] = set()
        self._lost = 0  # the number of cycles that were chance
        self._runs = self._run_calls = 0  # runs of cycles, and the cycles in them
        self._cycle: Cycle = ()
        self._place = 0
        self._begun = 0
        self._others = 0  # calls since the cycle was interrupted
        self._short_runs = 0  # in a row
        self._calls = self._run_begin = 0
        self._last_cycle: Cycle = ()
        self._loops: dict[Cycle, LongerLoop] = {}

    @property
    def loop(self) -> LongerLoop | None:
        """The loop around the cycle that was found last; ``None`` if the cycle never came again after other calls.

        A graph that compiles at such a call makes no loop: what a program does once is no iteration.
        """
        loop = self._loops.get(self._last_cycle)
        goes_on = self.is_found and not self._others
        return loop if loop is not None and (loop.times > 1 or goes_on) else None

    @property
    def graphs(self) -> frozenset[int]:
        """The graphs of the cycle."""
        return frozenset(number for number, _ in self._cycle)

    @property
    def has_other_graphs(self) -> bool:
        """Whether the program called graphs that are not in the cycle."""
        return not (self.takes_each_call or {number for number, _ in self._first_seen} <= self.graphs)

    @property
    def is_at_end(self) -> bool:
        """Whether all calls of a cycle have been made, and none of the next one."""
        return self.is_found and not self._others and self._place == 0

    def take_interruption(self, *, outer: bool) -> bool:
        """Whether other calls came since the last question: in a cycle or, with ``outer``, in the loop around it."""
        one = self.outer if outer else self
        odd, one.is_odd = one.is_odd, False
        return odd

    def forget(self) -> None:
        """Begins the search again: the calls until now compiled something, or contradicted the cycle."""
        self._recent.clear()
        self.is_found, self._cycle, self._others, self._short_runs = False, (), 0, 0
        self.outer.forget()

    def call(self, number: int, address: int) -> int | None:
        """Notes a call before it is made.

        Returns the number of the cycle that begins with it; ``None`` if none does.
        """
        if len(self._parameters) < 2:
            self._parameters.add(address)
        if self.takes_each_call:
            if self.trains or len(self._parameters) > 1:
                self.takes_each_call = False
                self.forget()
        elif self._lost >= SHORT_RUNS or (self.outer.is_chance and self._run_calls < LONG_RUN * self._runs):
            self._take_each_call()
        key = (0, 0) if self.takes_each_call else (number, 0 if self._numbers_only else address)
        self._calls += 1
        self.begins_outer = False
        if self.is_found:
            place, cycle = self._place, self._cycle
            if key == cycle[place] and not self._others:
                self._place = (place + 1) % len(cycle)
                if place:
                    return None
                self._begun += 1
                return self._begun
            return self._call_other(key)
        self._count(key)
        if self._recent.add(key):
            self._search()
        return None

    def _call_other(self, key: Key) -> int | None:
        """Notes a call that is not the cycle's next one.

        It interrupts the cycle, or begins the cycle again after other calls.
        """
        if not self._others:
            self._interrupt()
        if self._short_runs >= SHORT_RUNS and not self.outer.is_found:
            self._lost += 1
            self.forget()
            return None
        if key == self._cycle[0]:
            self.begins_outer |= self.outer.note(self._cycle)
            self._run_begin, self._others = self._calls - 1, 0
            self._place = 1 % len(self._cycle)
            self._begun += 1
            return self._begun
        self._others += 1
        if self._others > max(ODD_CALLS, ODD_CYCLES * len(self._cycle)):
            self.forget()
            return None
        self.begins_outer |= self.outer.note((key,))
        return None

    def _interrupt(self) -> None:
        self.is_odd = True
        repetitions = (self._calls - 1 - self._run_begin) // len(self._cycle)
        self._runs, self._run_calls = self._runs + 1, self._run_calls + repetitions
        self._short_runs = self._short_runs + 1 if repetitions < REPEATS else 0
        if len(self._loops) < REMEMBERED:
            self._loops.setdefault(self._cycle, LongerLoop())
        if self._cycle in self._loops:
            self._loops[self._cycle].add(repetitions)
        for key in self._cycle[: self._place]:  # the cycle that was not finished
            self.begins_outer |= self.outer.note((key,))

    def _take_each_call(self) -> bool:
        """Makes each call a cycle, if all calls until now are calls of one function. Returns whether it did."""
        self._lost = 0
        if self.takes_each_call or self.trains or len(self._parameters) != 1 or 0 in self._parameters:
            return False
        self.takes_each_call = True
        self.forget()
        self._begun = max(self._begun, self._calls)
        return True

    def _count(self, key: Key) -> None:
        if key not in self._first_seen:
            if len(self._first_seen) < REMEMBERED:
                self._first_seen[key], self._starts[key] = len(self._first_seen), 0
            return
        if self.first_cycle_end_s is None and self._first_seen[key] == 0:
            self.first_cycle_end_s = time.perf_counter()
        self._starts[key] += 1

    def _search(self) -> None:
        period = self._recent.search()
        if period is None and len(self._recent.keys) >= WITHOUT_ORDER and self._take_each_call():
            return
        if period is None and not self._numbers_only and len(self._recent.keys) >= NUMBERS_ONLY:
            self._numbers_only = True
            self._recent.keys = [(number, 0) for number, _ in self._recent.keys]
            for key in self._recent.keys:
                self._count(key)
            period = self._recent.search()
        if period is None:
            return
        run, last = find_length_of_run(self._recent.keys, period), self._recent.keys[-period:]
        start = _find_first(last, self._first_seen)
        self.is_found, self._cycle = True, (*last[start:], *last[:start])
        self._last_cycle, self._run_begin = self._cycle, self._calls - run
        self._place, self._others, self.is_odd = (period - start) % period, 0, False
        seen = self._starts.get(self._cycle[0], 0) // self._cycle.count(self._cycle[0])
        self._begun = max(self._begun, seen)
        for key in self._recent.keys[:-run]:
            self.outer.note((key,))
        self.outer.note(self._cycle)


def _find_first(keys: Sequence[Key], first_seen: Mapping[Key, int]) -> int:
    """Returns the index of the call at which the program began to repeat these calls."""
    ages = [first_seen.get(key, REMEMBERED) for key in keys]
    return min(range(len(keys)), key=lambda place: ages[place:] + ages[:place])


def find_period(keys: Sequence[Any]) -> int | None:
    """The smallest period of the last keys that repeated :data:`REPEATS` times and explains at least half of all keys.

    The half keeps ``A A A`` within ``A A A B A A A B`` from being taken for the whole.
    """
    backwards = keys[::-1]
    borders = [0] * len(backwards)  # of each prefix: the length of its longest proper prefix that is also its end
    for end in range(1, len(backwards)):
        length = borders[end - 1]
        while length and backwards[end] != backwards[length]:
            length = borders[length - 1]
        borders[end] = length + (backwards[end] == backwards[length])
    found: dict[int, int] = {}
    for length, border in enumerate(borders, 1):
        found[length - border] = length
    fits = (period for period, length in found.items() if length >= max(REPEATS * period, len(keys) / 2))
    return min(fits, default=None)


def find_length_of_run(keys: Sequence[Key], period: int) -> int:
    """The number of the last keys that repeat with a period."""
    place = len(keys) - period
    while place and keys[place - 1] == keys[place - 1 + period]:
        place -= 1
    return len(keys) - place


# Decides which events of a program end its steps: its marks, else its optimizer steps, else its pattern of calls.


PRIORITY = {"": 0, PATTERN: 1, OPTIMIZER_STEPS: 2, MARKS: 3}

PATIENCE = 64
"""After this many events of another origin without one of the anchor, the other origin becomes the anchor. This is far
above the number of steps that one optimizer makes between two steps of another."""

OUTER_PATIENCE = 10_000
"""Cycles without an iteration of the loop around them, after which the cycles are the steps again."""

Origin = tuple[int, int]
"""What made an event, and the thread that made it."""


class Boundaries:
    """Turns events into boundaries. A boundary has the number of the step that begins there; the first step is 0.

    All boundaries are events of one origin, the anchor: two optimizers that take turns make one step, and so do a
    profiler's mark and the program's own.

    Args:
        cross: called at each boundary with its number.
        restart: called when another kind of event or another origin takes over, before its first boundary.
        pattern: the pattern whose cycles are the boundaries if no other event is.
    """

    def __init__(self, cross: Callable[[int], None], restart: Callable[[], None], pattern: Pattern) -> None:
        self.source = ""
        self.first = 1
        """The number of the first boundary: a mark and an optimizer end the first step, a pattern begins it."""
        self.searches_pattern = True
        """Whether the program has neither marks nor optimizer steps until now."""
        self._cross = cross
        self._restart = restart
        self.pattern = pattern
        self._anchor: Origin | None = None
        self._counts: dict[Origin, int] = {}
        self._others: dict[Origin, int] = {}
        self.is_outer = False
        """Whether the steps are the iterations of the loop around a cycle of calls."""
        self._cycles = 0  # since the loop around them began an iteration

    @property
    def loop(self) -> LongerLoop | None:
        """Returns the loop that a step is a part of, if the pattern of calls shows one; else ``None``."""
        return self.pattern.loop if self.source == PATTERN and not self.is_outer else None

    @property
    def is_at_end(self) -> bool:
        """Whether a step has ended whose end no event marks: all calls of a cycle were made."""
        return self.source == PATTERN and not self.is_outer and self.pattern.is_at_end

    @property
    def may_be_inner(self) -> bool:
        """Whether the steps may be those of an inner loop, whose outer one is not known yet."""
        return self.source == PATTERN and not self.is_outer and self.pattern.has_other_graphs

    def event(self, source: str, origin: int) -> None:
        """A mark or an optimizer step."""
        who = (origin, threading.get_ident())
        if who != self._anchor or source != self.source:
            if PRIORITY[source] < PRIORITY[self.source] or not self._takes_over(source, who):
                return
        elif self._others:
            self._others.clear()
        number = self._counts.get(who, 0) + 1
        self._counts[who] = number
        self._cross(number)

    def _takes_over(self, source: str, who: Origin) -> bool:
        if source == self.source:
            self._counts[who] = self._counts.get(who, 0) + 1
            self._others[who] = self._others.get(who, 0) + 1
            if self._others[who] <= PATIENCE:
                return False
            self._counts[who] -= 1
        self.source, self.first, self._anchor, self.searches_pattern = source, 1, who, False
        self._others.clear()
        self._restart()
        return True

    def cycle(self, number: int) -> None:
        """The beginning of a cycle of calls."""
        if not self.source:
            self.source, self.first = PATTERN, 0
        if self.source != PATTERN:
            return
        if self.is_outer:
            self._cycles += 1
            if self._cycles <= OUTER_PATIENCE:
                return
            self.is_outer = False
            self._restart()
        self._cross(number)

    def leave_loop(self) -> None:
        """Begins anew with cycles as the steps: the loop around them was chance."""
        self.is_outer, self._cycles = False, 0
        if self.source == PATTERN:
            self._restart()

    def iteration(self, number: int) -> None:
        """The beginning of an iteration of the loop around the cycle: these are the steps from now on."""
        if self.source != PATTERN:
            return
        if not self.is_outer:
            if self.pattern.outer.iteration_s > OUTER_S:
                return
            self.is_outer = True
            self._restart()
        self._cycles = 0
        self._cross(number)


# The compiled graphs of the process, numbered in the order of their first calls.


TIMED_CALLS = 300
"""Number of calls of a graph whose times are kept: the last ones."""


@dataclass
class Graph:
    """A compiled graph of which calls were observed."""

    number: int  # its number in the trace
    bit: int  # the bit of that number
    parameter: int | None  # the index of its first input that is a parameter; ``None`` if there is none
    sizes: Callable[[Sequence[Any]], Any] | None = None  # reads the sizes of a graph for dynamic shapes
    times_s: deque[float] = field(default_factory=lambda: deque(maxlen=TIMED_CALLS))
    """The times of its last calls without the profiler, on the host's clock."""

    def address(self, inputs: Sequence[Any]) -> int:
        """The address of the parameter among the inputs of a call; 0 without one, and for a size or a fake tensor."""
        return 0 if self.parameter is None else find_place(inputs[self.parameter])[0]


class CalledGraphs:
    """The graphs, by the object that is called. An object that torch has freed keeps its number."""

    def __init__(self) -> None:
        self.device = ""
        """The type of the device on which they run, other than the CPU; empty until one does."""
        self.records: list[ObservedGraph] = []
        self._times_s: list[deque[float]] = []
        self._backward: set[int] = set()
        self.by_id: dict[int, Graph] = {}
        """The graph of each object, by the object's id."""
        self.running = threading.local()
        """Its ``number`` is the number of the graph that this thread runs or ran last."""
        self.sizes = CalledSizes()
        """The sizes in these calls of graphs for dynamic shapes."""
        self.called = 0
        """A bit for the number of each graph that was called since the last boundary."""
        self.optimizers: dict[str, ObservedOptimizer] = {}
        """The optimizers whose steps were seen, by the names of their classes."""
        self._references: dict[int, weakref.ref[Any]] = {}

    def note_optimizer(self, optimizer: Any) -> None:
        """Notes what optimizer makes a step. Of several of one name the first counts; all have to be fused."""
        name = type(optimizer).__name__
        known = self.optimizers.get(name)
        if known is None or known.is_fused:
            found = upstream.describe_optimizer(optimizer)
            self.optimizers[name] = found if known is None else replace(known, is_fused=found.is_fused)

    def add(self, compiled: Any, inputs: Sequence[Any]) -> Graph:
        """Numbers a graph that is called for the first time."""
        facts = upstream.describe_graph(compiled)
        graph = Graph(len(self.records), 1 << len(self.records), facts.parameter, find_sizes(inputs))
        if facts.is_backward:
            self._backward.add(graph.number)
        refusal, writes = facts.cuda_graph_refusal, facts.writes_inputs
        self.records.append(ObservedGraph(facts.path, cuda_graph_refusal=refusal, writes_inputs=writes))
        self.device = self.device or facts.device
        place = id(compiled)
        self.by_id[place] = graph
        self._times_s.append(graph.times_s)
        self._references[place] = weakref.ref(compiled, lambda _: self._forget(place))
        return graph

    def timed(self) -> Iterator[ObservedGraph]:
        """What is known of each graph, with the time of its calls."""
        for record, times_s in zip(self.records, self._times_s, strict=True):
            yield replace(record, host_time_s=statistics.median(list(times_s))) if times_s else record

    def take_called(self) -> int:
        """The bits of the graphs that were called since the last time that this was asked."""
        called, self.called = self.called, 0
        return called

    def trains(self, numbers: Iterable[int]) -> bool:
        """Whether one of these graphs computes gradients."""
        return not self._backward.isdisjoint(numbers)

    def _forget(self, place: int) -> None:
        self.by_id.pop(place, None)
        self._references.pop(place, None)

    def note_cuda_graph(self) -> None:
        """Notes that the graph that this thread runs is recorded as a CUDA graph."""
        self._change(cuda_graphs=True)

    def note_refusal(self, reason: str) -> None:
        """Notes why the graph that this thread runs is not replayed as a CUDA graph."""
        self._change(cuda_graph_refusal=reason)

    def _change(self, **facts: Any) -> None:
        number = getattr(self.running, "number", None)
        if number is not None:
            self.records[number] = replace(self.records[number], **facts)

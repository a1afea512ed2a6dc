"""Finds the repeating pattern of compiled calls, for programs that neither mark their steps nor run an optimizer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

Key = tuple[int, int]
"""The number of a compiled graph, and the address of its first parameter, by which calls of one graph differ."""

REPEATS = 3
"""Number of consecutive repetitions that make a pattern."""

NUMBERS_ONLY = 256
"""Calls without a pattern after which the addresses are ignored: a program may load its parameters anew."""

REMEMBERED = 8192
"""Maximum number of calls that are searched for a pattern, and of keys whose first call is remembered."""


@dataclass
class LongerLoop:
    """The loop around the cycle: other calls come between its repetitions.

    Attributes:
        times: the number of times that other calls came.
        least, most: the numbers of repetitions after which they came.
    """

    times: int = 0
    least: int = 0
    most: int = 0

    def add(self, repetitions: int) -> None:
        """Notes that other calls came after so many repetitions."""
        self.least = min(self.least, repetitions) if self.times else repetitions
        self.most = max(self.most, repetitions)
        self.times += 1


class Pattern:
    """The calls of a program, and the cycle that they repeat.

    A cycle begins at the call that the program made first: of ``A B C A B C``, observed from any call on, at ``A``.
    """

    def __init__(self) -> None:
        self.is_found = False
        self.first_cycle_end_s: float | None = None
        """The time at which the first call of all was repeated."""
        self._recent: list[Key] = []
        self._first_seen: dict[Key, int] = {}
        self._starts: dict[Key, int] = {}
        self._next_search = REPEATS
        self._numbers_only = False
        self._cycle: tuple[Key, ...] = ()
        self._place = 0
        self._begun = 0
        self._calls = self._run_begin = 0
        self._last_cycle: tuple[Key, ...] = ()
        self._loops: dict[tuple[Key, ...], LongerLoop] = {}

    @property
    def loop(self) -> LongerLoop | None:
        """The loop around the cycle that was found last; ``None`` where the cycle never came again after other calls.

        A graph that compiles at such a call makes no loop: what a program does once is no iteration.
        """
        loop = self._loops.get(self._last_cycle)
        return loop if loop is not None and (loop.times > 1 or self.is_found) else None

    @property
    def graphs(self) -> frozenset[int]:
        """The graphs of the cycle."""
        return frozenset(number for number, _ in self._cycle)

    def forget(self) -> None:
        """Begins the search anew: the calls until now compiled something, or contradicted the cycle."""
        self._recent.clear()
        self.is_found, self._cycle = False, ()
        self._next_search = REPEATS

    def call(self, number: int, address: int) -> int | None:
        """Notes a call before it is made. Returns the number of the cycle that begins with it, otherwise ``None``."""
        key = (number, 0 if self._numbers_only else address)
        self._calls += 1
        if self.is_found:
            place, cycle = self._place, self._cycle
            if key == cycle[place]:
                self._place = (place + 1) % len(cycle)
                if place:
                    return None
                self._begun += 1
                return self._begun
            self._leave_cycle()
        self._count(key)
        self._recent.append(key)
        if len(self._recent) >= self._next_search:
            self._search()
        return None

    def _leave_cycle(self) -> None:
        if len(self._loops) < REMEMBERED:
            self._loops.setdefault(self._cycle, LongerLoop())
        if self._cycle in self._loops:
            self._loops[self._cycle].add((self._calls - 1 - self._run_begin) // len(self._cycle))
        self.forget()

    def _count(self, key: Key) -> None:
        if key not in self._first_seen:
            if len(self._first_seen) < REMEMBERED:
                self._first_seen[key], self._starts[key] = len(self._first_seen), 0
            return
        if self.first_cycle_end_s is None and self._first_seen[key] == 0:
            self.first_cycle_end_s = time.perf_counter()
        self._starts[key] += 1

    def _search(self) -> None:
        del self._recent[:-REMEMBERED]
        period = find_period(self._recent)
        if period is None and not self._numbers_only and len(self._recent) >= NUMBERS_ONLY:
            self._numbers_only = True
            self._recent = [(number, 0) for number, _ in self._recent]
            for key in self._recent:
                self._count(key)
            period = find_period(self._recent)
        if period is None:
            self._next_search = len(self._recent) + 1 + len(self._recent) // 8
            return
        last = self._recent[-period:]
        ages = [self._first_seen.get(key, REMEMBERED) for key in last]
        start = min(range(period), key=lambda place: ages[place:] + ages[:place])
        self.is_found, self._cycle = True, (*last[start:], *last[:start])
        self._last_cycle, self._run_begin = self._cycle, self._calls - length_of_run(self._recent, period)
        self._place = (period - start) % period
        seen = self._starts.get(self._cycle[0], 0) // self._cycle.count(self._cycle[0])
        self._begun = max(self._begun, seen)


def find_period(keys: Sequence[Key]) -> int | None:
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


def length_of_run(keys: Sequence[Key], period: int) -> int:
    """The number of the last keys that repeat with a period."""
    place = len(keys) - period
    while place and keys[place - 1] == keys[place - 1 + period]:
        place -= 1
    return len(keys) - place

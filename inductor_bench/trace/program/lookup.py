"""Finds the range of a thread that holds a moment."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable


class RangesByThread:
    """Ranges of threads, each with a number. Ranges of one thread do not overlap."""

    def __init__(self, ranges: Iterable[tuple[str, float, float, int]]) -> None:
        """``ranges`` are thread, start, end and number, sorted by start."""
        self._starts: dict[str, list[float]] = defaultdict(list)
        self._rest: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for thread, start, end, number in ranges:
            self._starts[thread].append(start)
            self._rest[thread].append((end, number))

    def find(self, thread: str, moment: float) -> int:
        """The number of the range that holds the moment, or -1."""
        starts = self._starts.get(thread)
        place = bisect_right(starts, moment) - 1 if starts else -1
        if place < 0:
            return -1
        end, number = self._rest[thread][place]
        return number if moment <= end else -1

    def find_on_any(self, moment: float) -> int:
        """The number of the only range of all threads that holds the moment; -1 for none or several."""
        found = [number for thread in self._starts if (number := self.find(thread, moment)) >= 0]
        return found[0] if len(found) == 1 else -1

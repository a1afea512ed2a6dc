"""Finds the repetition in a sequence of calls: a prefix, the same unit several times, a suffix.

It works on tokens, one whole number per call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_MOST_LENGTHS = 5000
"""Maximum number of candidate lengths of a unit; further tokens add none."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """``count`` equal units of ``length`` tokens each, the first of them at index ``start``.

    The units can be shifted by up to ``slack`` tokens and are still equal to each other.
    """

    start: int
    length: int
    count: int
    slack: int

    @property
    def stop(self) -> int:
        return self.start + self.length * self.count


def find_repetition(
    tokens: Sequence[int],
    marked: Sequence[bool],
    starts: Sequence[bool] | None = None,
    expected: int | None = None,
    partial: bool = False,
) -> Repetition | None:
    """The repetition of the shortest unit whose copies contain every marked token.

    Args:
        tokens: one number per call; equal numbers are equal calls.
        marked: whether each call must belong to a unit, and to neither the prefix nor the suffix.
        starts: whether a unit other than the first may start at each call; every start is allowed where ``None``.
        expected: the number of units, where it is known.
        partial: whether the prefix and the suffix may hold marked tokens of an incomplete unit.

    Returns:
        ``None`` where no unit repeats in such a way.
    """
    text = np.asarray(tokens, dtype=np.int64)
    marks = np.flatnonzero(np.asarray(marked, dtype=bool))
    best: Repetition | None = None
    for length in _lengths(text, marks):
        start, run = _longest_run(text, length)
        found = _count_units(start, run, length, expected)
        if found is None:
            continue
        found = _align(found, starts)
        if found is None or not _holds_all(found, marks, partial):
            continue
        if len(marks):
            return found
        if best is None or found.length * found.count > best.length * best.count:
            best = found
    return best if best is not None and 2 * best.length * best.count >= len(text) else None


def _lengths(text: NDArray[np.int64], marks: NDArray[np.intp]) -> Iterator[int]:
    """Candidate lengths of a unit, shortest first: distances between occurrences of a token that each unit holds.

    The rarest of the marked tokens gives the fewest lengths. Without marks every token that recurs is a candidate.
    """
    most = len(text) // 2
    if len(marks):
        counts = Counter(text[marks].tolist())
        rarest = min(counts, key=lambda token: counts[token])
        places = marks[text[marks] == rarest]
        yield from (int(gap) for gap in places[1:] - places[0] if gap <= most)
        return
    lengths: set[int] = set()
    for token, count in Counter(text.tolist()).most_common():
        if count < 2 or len(lengths) > _MOST_LENGTHS:
            break
        places = np.flatnonzero(text == token)
        lengths.update(int(gap) for gap in places[1:] - places[0] if gap <= most)
    yield from sorted(lengths)


def _longest_run(text: NDArray[np.int64], length: int) -> tuple[int, int]:
    """Start and size of the longest run of tokens with the period ``length``; the size is 0 where there is none."""
    equal = np.concatenate(([False], text[:-length] == text[length:], [False]))
    edges = np.flatnonzero(equal[1:] != equal[:-1])
    if len(edges) == 0:
        return 0, 0
    extents = edges[1::2] - edges[::2]
    longest = int(np.argmax(extents))
    return int(edges[2 * longest]), int(extents[longest]) + length


def _count_units(start: int, run: int, length: int, expected: int | None) -> Repetition | None:
    count = run // length
    if count < 2 or (expected is not None and count < expected):
        return None
    if expected is not None:
        length *= count // expected
        count = expected
    return Repetition(start, length, count, run - length * count)


def _align(found: Repetition, starts: Sequence[bool] | None) -> Repetition | None:
    """Shifts the units so that each unit after the first starts at an allowed position.

    It returns ``None`` where no shift by at most ``slack`` tokens achieves that.
    """
    if starts is None:
        return found
    for shift in range(found.slack + 1):
        start = found.start + shift
        if all(starts[start + unit * found.length] for unit in range(1, found.count)) and (
            found.count > 1 or starts[start]
        ):
            return Repetition(start, found.length, found.count, 0)
    return None


def _holds_all(found: Repetition, marks: NDArray[np.intp], partial: bool) -> bool:
    """Whether some shift by at most ``slack`` tokens makes the units contain every marked token.

    With ``partial`` one incomplete unit before the first and one after the last may contain marked tokens too.
    """
    if len(marks) == 0:
        return True
    before, after = int(marks[0]), int(marks[-1])
    if partial:
        return before > found.start - found.length and after < found.stop + found.slack + found.length
    return found.start - 1 < before and after < found.stop + found.slack and after - before < found.stop - found.start

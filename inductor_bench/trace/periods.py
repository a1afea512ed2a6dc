"""Finding the repetition in a sequence of calls: something before, the same unit several times, something after.

Works on tokens (one whole number per call) and knows nothing of traces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_MOST_CANDIDATES = 5000


@dataclass(frozen=True, slots=True)
class Repetition:
    """``count`` equal units of ``length`` tokens from ``start`` on; they could start up to ``slack`` tokens later."""

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
    """The shortest unit (or, with ``expected``, the unit repeated so often) that accounts for every marked token.

    Args:
        tokens: one number per call; equal numbers are equal calls.
        marked: calls that can only belong to a unit, never to what stands before or after.
        starts: where given, a unit other than the first may only start at these positions.
        expected: how many units there are, where that is known.
        partial: allow an incomplete unit before and after.

    Returns:
        None where nothing repeats in such a way.
    """
    text = np.asarray(tokens, dtype=np.int64)
    marks = np.flatnonzero(np.asarray(marked, dtype=bool))
    best: Repetition | None = None
    for length in _lengths(text, marks):
        start, run = _longest_run(text, length)
        found = _shape(start, run, length, expected)
        if found is None:
            continue
        found = _align(found, starts)
        if found is None or not _accounts(found, marks, partial):
            continue
        if len(marks):
            return found
        if best is None or found.length * found.count > best.length * best.count:
            best = found
    return best if best is not None and 2 * best.length * best.count >= len(text) else None


def _lengths(text: NDArray[np.int64], marks: NDArray[np.intp]) -> Iterator[int]:
    """Lengths that a unit may have, shortest first: distances between occurrences of a token that each unit holds.

    Among marked tokens the rarest gives the fewest; without marks any token that recurs may be the one.
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
        if count < 2 or len(lengths) > _MOST_CANDIDATES:
            break
        places = np.flatnonzero(text == token)
        lengths.update(int(gap) for gap in places[1:] - places[0] if gap <= most)
    yield from sorted(lengths)


def _longest_run(text: NDArray[np.int64], length: int) -> tuple[int, int]:
    """Start and extent of the longest stretch in which every token equals the one ``length`` further on."""
    equal = np.concatenate(([False], text[:-length] == text[length:], [False]))
    edges = np.flatnonzero(equal[1:] != equal[:-1])
    if len(edges) == 0:
        return 0, 0
    extents = edges[1::2] - edges[::2]
    longest = int(np.argmax(extents))
    return int(edges[2 * longest]), int(extents[longest]) + length


def _shape(start: int, run: int, length: int, expected: int | None) -> Repetition | None:
    count = run // length
    if count < 2 or (expected is not None and count < expected):
        return None
    if expected is not None:
        length *= count // expected
        count = expected
    return Repetition(start, length, count, run - length * count)


def _align(found: Repetition, starts: Sequence[bool] | None) -> Repetition | None:
    """Shift the units so that all but the first (before which anything may stand) start where they may."""
    if starts is None:
        return found
    for shift in range(found.slack + 1):
        start = found.start + shift
        if all(starts[start + unit * found.length] for unit in range(1, found.count)) and (
            found.count > 1 or starts[start]
        ):
            return Repetition(start, found.length, found.count, 0)
    return None


def _accounts(found: Repetition, marks: NDArray[np.intp], partial: bool) -> bool:
    if len(marks) == 0:
        return True
    before, after = int(marks[0]), int(marks[-1])
    if partial:
        return before > found.start - found.length and after < found.stop + found.slack + found.length
    return found.start - 1 < before and after < found.stop + found.slack and after - before < found.stop - found.start

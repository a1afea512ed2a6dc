"""Pairs the calls in a module's text with the calls in a trace, by the order of their names."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from difflib import SequenceMatcher

_MOST_DIFFERENCES = 1500
"""Number of differences above which two sequences count as unrelated; time and memory grow with its square."""


def align_calls(expected: Sequence[str], seen: Sequence[str]) -> list[int | None]:
    """For each name of ``seen`` the index of its call in ``expected``, or ``None`` for an extra call.

    The indices increase, and only equal names are paired: the pairs are a longest common subsequence. An expected call
    may have no partner. Time is O(n·d) for n names and d differences.
    """
    if list(expected) == list(seen):
        return list(range(len(expected)))
    wanted, present = set(expected), set(seen)
    left = [index for index, name in enumerate(expected) if name in present]
    right = [index for index, name in enumerate(seen) if name in wanted]
    pairs: list[int | None] = [None] * len(seen)
    for ours, theirs in _common([expected[index] for index in left], [seen[index] for index in right]):
        pairs[right[theirs]] = left[ours]
    return pairs


def _common(left: list[str], right: list[str]) -> list[tuple[int, int]]:
    """Index pairs of a longest common subsequence."""
    shortest = min(len(left), len(right))
    head = 0
    while head < shortest and left[head] == right[head]:
        head += 1
    tail = 0
    while tail < shortest - head and left[-1 - tail] == right[-1 - tail]:
        tail += 1
    middle = _search(left[head : len(left) - tail], right[head : len(right) - tail])
    pairs = [(index, index) for index in range(head)]
    pairs += [(head + ours, head + theirs) for ours, theirs in middle]
    return pairs + [(len(left) - tail + index, len(right) - tail + index) for index in range(tail)]


def _search(left: list[str], right: list[str]) -> list[tuple[int, int]]:
    """Myers' greedy search: each round allows one difference more and stores the furthest point on each diagonal."""
    if not left or not right:
        return []
    most = min(len(left) + len(right), _MOST_DIFFERENCES)
    furthest = array("i", bytes(4 * (2 * most + 3)))  # diagonal d stands at most + 1 + d
    rounds = []
    for differences in range(most + 1):
        rounds.append(furthest[most - differences : most + differences + 3])
        for diagonal in range(-differences, differences + 1, 2):
            here = most + 1 + diagonal
            down = diagonal == -differences or (diagonal != differences and furthest[here - 1] < furthest[here + 1])
            x = furthest[here + 1] if down else furthest[here - 1] + 1
            y = x - diagonal
            while x < len(left) and y < len(right) and left[x] == right[y]:
                x, y = x + 1, y + 1
            furthest[here] = x
            if x >= len(left) and y >= len(right):
                return _trace_back(rounds, len(left), len(right))
    return _match_blocks(left, right)


def _trace_back(rounds: list[array[int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs = []
    for differences in range(len(rounds) - 1, -1, -1):
        furthest, diagonal = rounds[differences], x - y
        here = differences + 1 + diagonal
        down = diagonal == -differences or (diagonal != differences and furthest[here - 1] < furthest[here + 1])
        before = diagonal + 1 if down else diagonal - 1
        start_x = furthest[differences + 1 + before] if differences else 0
        start_y = start_x - before if differences else 0
        turn_x = (start_x if down else start_x + 1) if differences else 0
        while x > turn_x:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = start_x, start_y
    return pairs[::-1]


def _match_blocks(left: list[str], right: list[str]) -> list[tuple[int, int]]:
    blocks = SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks()
    return [(block.a + step, block.b + step) for block in blocks for step in range(block.size)]

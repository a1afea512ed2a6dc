"""Finds the interval that encloses each interval on its thread. Works on whole numbers, so that the result is exact."""

from __future__ import annotations

from collections.abc import Sequence


def find_parents(starts: Sequence[int], ends: Sequence[int], threads: Sequence[object]) -> list[int]:
    """For each interval the index of the innermost interval that encloses it on the same thread, or -1.

    Args:
        starts, ends: whole numbers of one unit, sorted by start; of equal starts the longer interval first.
        threads: one hashable key per interval; intervals of different threads never enclose each other.
    """
    stacks: dict[object, list[int]] = {}
    parents = []
    for index, (start, end, thread) in enumerate(zip(starts, ends, threads, strict=True)):
        stack = stacks.setdefault(thread, [])
        # An interval that ends before this one cannot be the innermost enclosing interval of any later one.
        while stack and (ends[stack[-1]] <= start or ends[stack[-1]] < end):
            stack.pop()
        parents.append(stack[-1] if stack else -1)
        stack.append(index)
    return parents

"""Which operator encloses which, from times on one thread. Works on whole nanoseconds, so that it is exact."""

from __future__ import annotations

from collections.abc import Sequence


def find_parents(starts: Sequence[int], ends: Sequence[int], threads: Sequence[object]) -> list[int]:
    """The index of the innermost enclosing interval on the same thread for each interval, or -1.

    Args:
        starts, ends: in any whole unit, sorted by start and, where starts are equal, the longer one first.
        threads: anything hashable; intervals of different threads never enclose each other.
    """
    stacks: dict[object, list[int]] = {}
    parents = []
    for index, (start, end, thread) in enumerate(zip(starts, ends, threads, strict=True)):
        stack = stacks.setdefault(thread, [])
        while stack and ends[stack[-1]] <= start:
            stack.pop()
        parent = -1
        for candidate in reversed(stack):  # more than one step only where intervals overlap without nesting
            if ends[candidate] >= end and ends[candidate] > start:
                parent = candidate
                break
        parents.append(parent)
        stack.append(index)
    return parents

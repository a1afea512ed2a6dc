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
        # What ends before this one does cannot enclose a later one that this one does not enclose more tightly.
        while stack and (ends[stack[-1]] <= start or ends[stack[-1]] < end):
            stack.pop()
        parents.append(stack[-1] if stack else -1)
        stack.append(index)
    return parents

"""How much work a call is, whatever else the machine does: CPU time of this thread, compared with that of other calls.

A limit in seconds would be too short on a slow machine, and too long to notice anything on a fast one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

FACTOR = 16
"""How much larger the large input is. Linear work grows about as much, quadratic work by 256."""


def cpu_seconds(call: Callable[[], object], times: int = 3) -> float:
    """The least CPU time of this thread over several runs of a call."""
    least = math.inf
    for _ in range(times):
        begin = time.thread_time()
        call()
        least = min(least, time.thread_time() - begin)
    return least


def grows_linearly(call: Callable[[int], object], size: int) -> bool:
    """Whether the work for an input of this size is at most four times as large as linear growth makes it.

    Args:
        call: does the work for an input of the size that it is given.
        size: the large size, that a user's input may have. Each size is done once: what it computes may be kept.
    """
    small, large = (cpu_seconds(lambda: call(one), times=1) for one in (size // FACTOR, size))  # noqa: B023
    return large < 4 * FACTOR * small

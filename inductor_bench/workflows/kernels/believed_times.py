"""Whether the times of an edited kernel can be true."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...messages.edit_requests import RepeatCall
from ...messages.kernel_requests import Sample
from ...records.run import Peaks
from ...source.edited import KernelEdit
from .kernel_session import KernelSession

ROOF_SPREAD = 1.15
"""The largest ratio of a rate to its roof that is believed."""


class EditRefusedError(Exception):
    """The edited kernel is refused."""

    def __init__(self, reason: str, words: str) -> None:
        super().__init__(words)
        self.reason, self.words = reason, words


def count_compulsory_bytes(edit: KernelEdit) -> int | None:
    """The bytes that one call must move: those of Inductor's count, or only what is written if indices or masks decide
    what is read."""
    launch, moved = edit.facts["launches"][0], edit.facts.get("moved_bytes")
    written = {place: launch["arguments"][place].get("tensor") for place in launch["mutated"]}
    read = [item.get("tensor") for place, item in enumerate(launch["arguments"]) if place not in written]
    if moved and not any(view and "float" not in view["dtype"] and view["shape"] for view in read):
        return int(moved)
    storages = {view["storage"]: _view_bytes(view) for view in written.values() if view}
    return sum(storages.values())


def _view_bytes(view: Mapping[str, Any]) -> int:
    count = int(view["itemsize"])
    for size, step in zip(view["shape"], view["stride"], strict=True):
        count *= size if step else 1
    return count


def find_roof(moved: int | None, peaks: Peaks | None, state: str) -> float | None:
    """The bytes per second at which a device can move so many bytes at most; ``None`` if that is not known."""
    if moved is None or peaks is None:
        return None
    fits = peaks.cache_bytes is not None and moved <= peaks.cache_bytes
    return peaks.cache_bandwidth if fits or state == "warm" else peaks.memory_bandwidth


def require_below_roof(edit: KernelEdit, times_s: tuple[float, float], peaks: Peaks | None, state: str) -> None:
    """Refuses a kernel that is faster than its bytes can be moved, if the original is not.

    ``times_s`` are the seconds of the original and of the edited kernel.

    Raises:
        EditRefusedError: it is refused.
    """
    moved = count_compulsory_bytes(edit)
    roof = find_roof(moved, peaks, state)
    if moved is None or roof is None:
        return
    original_s, edited_s = times_s
    if edited_s * roof * ROOF_SPREAD < moved <= original_s * roof * ROOF_SPREAD:
        raise EditRefusedError(
            "above-roof",
            f"it would move its {moved:,} bytes at {moved / edited_s / 1e9:,.1f} GB/s, and the device's roof is "
            f"{roof / 1e9:,.1f} GB/s",
        )


# The clock. An edited library could change that of the process in which it runs, so this process looks at its own.


BLOCK_S = 0.05
"""The least time of a block of calls in seconds, by the clock of this process; the messages around it take 1% of it."""

BLOCKS = 5
SAME_CLOCK = 1.5
"""The largest ratio between two clocks that is believed. It compares the ratio of this process's and the other
process's times for the edited kernel with the same ratio for the original."""


def require_true_clock(
    session: KernelSession, numbers: Sequence[int], limit_s: float, clock: Callable[[], float] = time.perf_counter
) -> None:
    """Refuses a kernel that takes much longer by the clock of this process than by that of the one which runs it.

    Args:
        session: the session whose worker has both kernels.
        numbers: the original there, and the edited kernel.
        limit_s: the limit of one request in seconds.
        clock: the clock of this process, in seconds.

    Raises:
        EditRefusedError: it is refused.
    """

    def run(number: int, count: int) -> float:
        begin = clock()
        session.ask(RepeatCall(number, count), limit_s)
        return clock() - begin

    counts = {}
    for number in numbers:
        counts[number], taken_s = 1, run(number, 1)
        while taken_s < BLOCK_S:
            counts[number] *= min(16, max(2, math.ceil(BLOCK_S / max(taken_s, 1e-9))))
            taken_s = run(number, counts[number])
    said: dict[int, list[float]] = {number: [] for number in numbers}
    seen: dict[int, list[float]] = {number: [] for number in numbers}
    for place in range(BLOCKS):
        for number in numbers if place % 2 else reversed(numbers):
            said[number] += session.ask(Sample((number,), "warm"), limit_s).samples_s
            seen[number].append(run(number, counts[number]) / counts[number])
    told, here = ([statistics.median(times[number]) for number in numbers] for times in (said, seen))
    ratios = [now / before for now, before in zip(here, told, strict=True)]
    if ratios[1] > SAME_CLOCK * max(ratios[0], 1.0):
        raise EditRefusedError(
            "clock",
            f"by the clock of another process a call takes {here[1] * 1e6:,.1f} µs, and by that of its own "
            f"{told[1] * 1e6:,.1f} µs",
        )

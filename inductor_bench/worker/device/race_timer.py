"""The harness's GPU timer for races: it times a window again where the host was late with its launches.

While other cores compile, the host may lose its core between two launches of a window. The device then waits, and the
wait is part of the window's time.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

import torch

from inductor_bench.source.standalone.harness.timing_cuda import GpuTimer

MOST_RETAKEN = 3
LATE_S = 20e-6
LATE_SHARE = 0.02
"""The host is late where it takes longer than in its fastest window of these launches by more than ``LATE_S`` seconds
and by more than this share of the window."""


class GpuRaceTimer(GpuTimer):
    """The timer of a kernel and its variants.

    Attributes:
        retaken: number of windows that were timed again.
    """

    def __init__(self, *arguments: Any, **how: Any) -> None:
        self.retaken = 0
        self._fastest_s: weakref.WeakKeyDictionary[Callable[[], object], float] = weakref.WeakKeyDictionary()
        super().__init__(*arguments, **how)

    def _window(self, replay: Callable[[], object], count: int) -> float:
        """Seconds of ``count`` replays on the device; of several attempts the one in which the host was least late."""
        best_s, least_late_s = 0.0, float("inf")
        for attempt in range(1 + MOST_RETAKEN):
            window_s, host_s = _time_window(replay, count)
            fastest_s = min(host_s / count, self._fastest_s.get(replay, float("inf")))
            self._fastest_s[replay] = fastest_s
            late_s = host_s - fastest_s * count
            if late_s < least_late_s:
                best_s, least_late_s = window_s, late_s
            if late_s <= max(LATE_S, LATE_SHARE * window_s):
                break
            self.retaken += attempt < MOST_RETAKEN
        return best_s


def _time_window(replay: Callable[[], object], count: int) -> tuple[float, float]:
    """Seconds of the device for ``count`` replays, and of the host for their launches."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    began = time.perf_counter()
    start.record()
    for _ in range(count):
        replay()
    end.record()
    host_s = time.perf_counter() - began
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3, host_s

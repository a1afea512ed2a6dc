"""The harness's GPU timer for races, whose windows do not depend on when the host launches.

Several workers may share the device. A timer has it for itself for each window, and while it launches anything else;
graphs are captured beside the other workers' windows, because a capture runs nothing.

While other cores compile, the host may lose its core between two launches of a window. The device would then wait, and
the wait would be part of the window's time. So the device is kept busy until the first launch of the window is in its
queue; where the host is later than that, the window is timed again.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from inductor_bench.source.standalone.harness.timing_cuda import BoundCall, GpuTimer

from .exclusive import exclusive

HOLD_CYCLES = 400_000
"""Clock cycles for which the device waits before a window, without work."""

HOLD_S = 125e-6
"""Seconds that these cycles take at least: no GPU has a clock above 3.2 GHz."""

SWITCH_CYCLES = 1000
"""Clock cycles of the work that makes the device turn to this process before a window."""

MOST_RETAKEN = 3
LATE_S = 20e-6
"""Seconds by which a first launch that takes longer than the hold may exceed the fastest one."""

LATE_SHARE = 0.5
"""Share of the device's time for one replay by which later launches may exceed the fastest: the queue holds one."""


@dataclass(frozen=True)
class Window:
    """One timed window: seconds of the device, and of the host until the first launch and for the other launches."""

    device_s: float
    first_s: float
    others_s: float


class GpuRaceTimer(GpuTimer):
    """The timer of a kernel and its variants.

    Attributes:
        retaken: number of windows that were timed again.
    """

    def __init__(self, *arguments: Any, **how: Any) -> None:
        self.retaken = 0
        self._fastest: weakref.WeakKeyDictionary[Callable[[], object], tuple[float, float]] = (
            weakref.WeakKeyDictionary()
        )
        with exclusive():
            super().__init__(*arguments, **how)

    def get_ready(self, call: BoundCall, state: str) -> None:
        if state not in call.samplers:
            call.samplers[state] = self._make_sampler(call, state)

    def _run(self, launch: Callable[[], object]) -> None:
        with exclusive():
            super()._run(launch)

    def _window(self, replay: Callable[[], object], count: int) -> float:
        """Seconds of ``count`` replays on the device; of several attempts the one in which the host was least late."""
        best_s, least_late_s = 0.0, float("inf")
        for attempt in range(1 + MOST_RETAKEN):
            with exclusive():
                _take_device()
                window = _time_window(replay, count)
            late_s = self._late_s(replay, count, window)
            if late_s < least_late_s:
                best_s, least_late_s = window.device_s, late_s
            if not late_s:
                break
            self.retaken += attempt < MOST_RETAKEN
        return best_s

    def _late_s(self, replay: Callable[[], object], count: int, window: Window) -> float:
        """Seconds by which the host was too late for the window; 0 where the device's queue was never empty."""
        first_s, other_s = self._fastest.get(replay, (float("inf"), float("inf")))
        first_s = min(first_s, window.first_s)
        if count > 1:
            other_s = min(other_s, window.others_s / (count - 1))
        self._fastest[replay] = first_s, other_s
        late_s = max(window.first_s - max(HOLD_S, first_s + LATE_S), 0.0)
        slack_s = LATE_SHARE * window.device_s / count
        return late_s + (max(window.others_s - other_s * (count - 1) - slack_s, 0.0) if count > 1 else 0.0)


def _take_device() -> None:
    """Lets the device turn to this process, which takes it a while after another one has used it."""
    torch.cuda._sleep(SWITCH_CYCLES)
    torch.cuda.synchronize()


def _time_window(replay: Callable[[], object], count: int) -> Window:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    began = time.perf_counter()
    torch.cuda._sleep(HOLD_CYCLES)
    start.record()
    replay()
    launched = time.perf_counter()
    for _ in range(count - 1):
        replay()
    end.record()
    ended = time.perf_counter()
    end.synchronize()
    return Window(float(start.elapsed_time(end)) * 1e-3, launched - began, ended - launched)

"""The harness's GPU timer for races, whose windows do not depend on when the host launches.

Several workers may share the device. A timer has it for itself for each sample, and while it launches anything else;
graphs are captured beside the other workers' samples, because a capture runs nothing.

While other cores compile, the host may lose its core between two launches. The device would then wait, and the wait
would be part of a window's time. So both windows of a sample wait in the device's queue: each launch is made while the
one before it still runs, and the first one while the device is held without work. Windows in which a launch came later
are timed again. Between two samples the queue is empty, so that what other processes do on the device, the loading of
their kernels above all, is done then: a change from one process to another takes the device 0.4 ms (H200), and would be
part of a window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from inductor_bench.source.standalone.harness.timing_cuda import BoundCall, GpuTimer

from .exclusive import exclusive

HOLD_CYCLES = 400_000
"""Clock cycles for which the device waits before the first window, without work: 0.2 ms. Each time that the host is
later, they double."""

MOST_RETAKEN = 3

SLOW, SLOW_S = 8, 1e-4
"""Multiple of the default's time, and seconds, from which a call is timed by single launches. A template that suits a
call badly takes a thousand times as long as the library, and its graphs would hold the device for minutes."""


@dataclass(frozen=True)
class _Window:
    """A window in the device's queue.

    Attributes:
        start: recorded before its first launch.
        end: recorded after its last one.
        is_late: whether the queue was empty at one of its launches.
    """

    start: torch.cuda.Event
    end: torch.cuda.Event
    is_late: bool

    def read(self) -> float:
        """Waits for its end, and returns its seconds on the device."""
        self.end.synchronize()
        return float(self.start.elapsed_time(self.end)) * 1e-3


class GpuRaceTimer(GpuTimer):
    """The timer of a kernel and its variants.

    Attributes:
        retaken: number of samples whose windows were timed again.
    """

    def __init__(self, *arguments: Any, **how: Any) -> None:
        self.retaken = 0
        self._restore_all: Callable[[], object] = super().restore
        with exclusive():
            super().__init__(*arguments, **how)
            if self.method.startswith("graphs") and self.originals:
                self._restore_all = self._capture([partial(self._restore, each) for each in self.copies], False)

    def run_first(self, call: BoundCall, state: str) -> None:
        if state in call.samplers or state in call.runs:
            return
        if self.reset:  # a launch cannot be repeated without a reset
            self._run_first(call, state)
            return
        with exclusive():
            run = self._bind_runs(call, state)
            first_s = self._window(run, 1)
        if first_s > max(SLOW * self.estimate, SLOW_S):
            del call.runs[state]
            known = [first_s]
            call.samplers[state] = lambda: known.pop() if known else self._window(run, 1)

    def get_ready(self, call: BoundCall, state: str) -> None:
        if state not in call.samplers:
            call.samplers[state] = self._make_sampler(call, state)

    def restore(self) -> None:
        self._restore_all()

    def _run(self, launch: Callable[[], object]) -> None:
        with exclusive():
            super()._run(launch)

    def _window(self, replay: Callable[[], object], count: int) -> float:
        return self._windows((replay,), count)[0]

    def _windows(self, replays: Sequence[Callable[[], object]], count: int) -> list[float]:
        """Seconds of ``count`` replays of each; of the last attempt where the host was late in all of them."""
        for attempt in range(1 + MOST_RETAKEN):
            with exclusive():
                torch.cuda.synchronize()
                torch.cuda._sleep(HOLD_CYCLES << attempt)
                windows = [self._launch(replay, count) for replay in replays]
                times = [window.read() for window in windows]
            if attempt == MOST_RETAKEN or not any(window.is_late for window in windows):
                break
            self.retaken += 1
        return times

    def _launch(self, replay: Callable[[], object], count: int) -> _Window:
        """Puts a window into the device's queue.

        Each replay of a graph ends with an event, which costs the same in the windows of both lengths. Where calls are
        timed without graphs, only the first launch is watched.
        """
        each_ends = self.method.startswith("graphs")
        start = last = _record()
        is_late = False
        for place in range(count):
            replay()
            if place == 0 or each_ends:
                is_late |= last.query()
            if place == count - 1 or each_ends:
                last = _record()
        return _Window(start, last, is_late)


def _record() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event

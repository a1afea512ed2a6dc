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
"""Multiple of the default's time, and seconds: a call that takes longer than both is timed by single launches. A
template that suits a call badly takes a thousand times as long as the library, and its graphs would hold the device for
minutes."""


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
        retaken: number of attempts that were repeated, because the host was late with a launch.
    """

    def __init__(self, *arguments: Any, **how: Any) -> None:
        self.retaken = 0
        self._is_watched = False
        self._restore_all: Callable[[], object] | None = None
        with exclusive():
            super().__init__(*arguments, **how)
            if self._uses_graphs and self.originals:
                self._restore_all = self._capture([partial(self._restore, each) for each in self.copies], False)
        self._is_watched = True

    @property
    def _uses_graphs(self) -> bool:
        return self.method.startswith("graphs")

    def run_first(self, call: BoundCall, state: str) -> None:
        """Launches the call once, unless it is done. A launch that takes far longer than the default is a sample."""
        if state in call.samplers or state in call.runs:
            return
        with exclusive():
            if self.reset:  # a launch cannot be repeated without a reset
                super().run_first(call, state)
                return
            runs = self._bind_runs(call, state)
            (first_s,), is_late = self._time(runs[:1], 1)
        if is_late or first_s <= max(SLOW * self.estimate, SLOW_S):
            call.runs[state] = runs
        else:
            call.samplers[state] = self._by_single_launches(runs[0], state, first_s)

    def _by_single_launches(self, run: Callable[[], object], state: str, first_s: float) -> Callable[[], float]:
        known = [first_s]

        def sample() -> float:
            if known:
                return known.pop()
            if state == "cold":
                self._run(self.flush)
            return self._window(run, 1)

        return sample

    def restore(self) -> None:
        with exclusive():
            super().restore() if self._restore_all is None else self._restore_all()

    def _run(self, launch: Callable[[], object]) -> None:
        with exclusive():
            super()._run(launch)

    def _window(self, replay: Callable[[], object], count: int) -> float:
        return self._windows((replay,), count)[0]

    def _windows(self, replays: Sequence[Callable[[], object]], count: int) -> list[float]:
        return self._time(replays, count)[0]

    def _time(self, replays: Sequence[Callable[[], object]], count: int) -> tuple[list[float], bool]:
        """Seconds of ``count`` replays of each by the last attempt, and whether the host was late in all attempts.

        A call that no graph can capture may wait for the device itself, and then looks late in all attempts: such calls
        are watched no longer.
        """
        attempts = MOST_RETAKEN if self._is_watched else 0
        for attempt in range(1 + attempts):
            with exclusive():
                torch.cuda.synchronize()
                torch.cuda._sleep(HOLD_CYCLES << attempt)
                windows = [self._launch(replay, count) for replay in replays]
                times = [window.read() for window in windows]
            is_late = self._is_watched and any(window.is_late for window in windows)
            if not is_late:
                break
            self.retaken += attempt < attempts
        if is_late and not self._uses_graphs:
            self._is_watched = False
        return times, is_late

    def _launch(self, replay: Callable[[], object], count: int) -> _Window:
        """Puts a window into the device's queue.

        Each replay of a graph ends with an event, which costs the same in the windows of both lengths. It is in the
        queue before the device reaches the replay. Where calls are timed without graphs, only the first is watched.
        """
        start = last = _record()
        is_late = False
        for place in range(count):
            before = last
            replay()
            if place == count - 1 or self._uses_graphs:
                last = _record()
            if place == 0 or self._uses_graphs:
                is_late |= before.query()
        return _Window(start, last, is_late)


def _record() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event

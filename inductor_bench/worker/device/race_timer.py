"""The harness's GPU timer for races: the windows of many samples wait in the device's queue, one after another.

Several workers may share the device. A timer has it for itself for each order of samples, and while it launches
anything else; graphs are captured beside the other workers' samples, because a capture runs nothing.

While other cores compile, the host may lose its core between two launches. The device would then wait, and the wait
would be part of a window's time. So each launch of a window is made while the one before it still runs, and the first
one while the device is held without work. A sample in which a launch came later is taken again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from inductor_bench.source.standalone.harness.timing_cuda import TOO_SHORT, BoundCall, GpuTimer, Read, Sampler

from .exclusive import exclusive

HOLD_CYCLES = 400_000
"""Clock cycles for which the device waits before a window, without work, where its queue is empty."""

MOST_RETAKEN = 3


@dataclass(frozen=True)
class _Launched:
    """A sample in the queue of the device. ``is_late`` tells whether the queue was empty at one of its launches."""

    read: Read
    is_late: bool


class GpuRaceTimer(GpuTimer):
    """The timer of a kernel and its variants.

    Attributes:
        retaken: number of samples that were taken again.
    """

    has_queue = True

    def __init__(self, *arguments: Any, **how: Any) -> None:
        self.retaken = 0
        self._is_late = False
        self._last: torch.cuda.Event | None = None
        self._restore_all: Callable[[], object] | None = None
        with exclusive():
            super().__init__(*arguments, **how)
            if self.method.startswith("graphs") and self.originals:
                self._restore_all = self._capture([partial(self._restore, each) for each in self.copies], False)

    def get_ready(self, call: BoundCall, state: str) -> None:
        if state not in call.samplers:
            call.samplers[state] = self._make_sampler(call, state)

    def samples(self, calls: Sequence[BoundCall], state: str, begin: Callable[[int], None]) -> list[float]:
        for call in calls:
            self.get_ready(call, state)
        return self._take([call.samplers[state] for call in calls], begin)

    def _sample(self, call: BoundCall, state: str) -> float:
        return self.samples([call], state, lambda place: None)[0]

    def restore(self) -> None:
        super().restore() if self._restore_all is None else self._restore_all()

    def _take(self, samplers: Sequence[Sampler], begin: Callable[[int], None] = lambda place: None) -> list[float]:
        """One sample of each, in this order; those of the last attempt where the host was late in each."""
        found, left = [0.0] * len(samplers), list(range(len(samplers)))
        with exclusive():
            for attempt in range(1 + MOST_RETAKEN):
                self.retaken += len(left) if attempt else 0
                launched = [self._launch(samplers[place]) for place in left]
                again: list[int] = []
                for place, sample in zip(left, launched, strict=True):
                    begin(place)
                    seconds = sample.read()
                    found[place] = seconds if seconds > 0 else found[place]
                    again += [place] if sample.is_late or seconds <= 0 else []
                left = again
        for place in left:
            if not found[place]:
                begin(place)
                raise RuntimeError(TOO_SHORT)
        return found

    def _launch(self, sampler: Sampler) -> _Launched:
        self._is_late = False
        read = sampler()
        return _Launched(read, self._is_late)

    def _run(self, launch: Callable[[], object]) -> None:
        with exclusive():
            super()._run(launch)

    def _window(self, replay: Callable[[], object], count: int) -> float:
        with exclusive():
            return super()._window(replay, count)

    def _launch_window(self, replay: Callable[[], object], count: int) -> Read:
        """Puts a window into the device's queue, and notes where the queue was empty at a launch.

        Each replay of a graph ends with an event, which costs the same in the windows of both lengths. Where calls are
        timed without graphs, the first launch alone is watched.
        """
        if self._last is None or self._last.query():
            torch.cuda._sleep(HOLD_CYCLES)
        each_ends = self.method.startswith("graphs")
        start = last = _record()
        for place in range(count):
            replay()
            if place == 0 or each_ends:
                self._is_late |= last.query()
            if place == count - 1 or each_ends:
                last = _record()
        self._last = last

        def read() -> float:
            last.synchronize()
            return float(start.elapsed_time(last)) * 1e-3

        return read


def _record() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event

"""Runs the program's steps with Inductor's own and with the pinned configurations in turn, and measures both.

Steps alternate within one process, so that both see the same memory, clocks and data. One step is used to compare the
outputs of every graph, then steps are timed without a profiler, then some are profiled.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...devices.table import device_of
from ...messages.observed import CHECKING, CUDA_GRAPHS, SETTLING, ComparedStep, ComparedSteps
from ...records.evidence import DONE, FAILED, GRAPH_CALL, PROFILING, TIMING
from ..upstream.inductor import profiler_range
from .alternation import AlternatingSteps
from .boundaries import Boundaries, CalledGraphs
from .pinned import PinnedKernels, save_states
from .recording import Recording, mark_boundary
from .schedule import StepPlan
from .step_clock import Moment, times_of, wait_for
from .step_measurement import PROFILER_ERRORS, no_steps_yet, words_of

# The steps of a comparison: how many there are, and which of them run the pins.


WARM_UP = 4
"""Steps that alternate before the timed ones: a configuration is loaded by its first launch."""

TIMED_STEPS = (24, 120)
"""Minimum and maximum number of timed steps. A verdict needs 9 pairs; see ``analysis.statistics``."""

TIMED_S = 3.0
"""Minimum time of the timed steps in seconds, unless they are the maximum number."""

PROFILED_STEPS = (20, 40)
PROFILED_S = 0.4
"""The same for the profiled steps, of which the first one does not count."""


def is_tuned(place: int) -> bool:
    """Whether a step runs the pins: own, tuned, tuned, own, then tuned, own, own, tuned, and so on (Thue-Morse).

    Drifts cancel, and so does what the program does in every second, fourth or eighth step only.
    """
    return place.bit_count() % 2 == 1


def count_steps(step_s: float) -> tuple[int, int]:
    """The numbers of timed and of profiled steps, by the time of a step in seconds."""
    return _count(step_s, TIMED_S, *TIMED_STEPS), _count(step_s, PROFILED_S, *PROFILED_STEPS)


def _count(step_s: float, time_s: float, least: int, most: int) -> int:
    """The number of steps for a time, within limits, in whole fours."""
    return min(most, max(least, 4 * math.ceil(time_s / max(step_s, 1e-6) / 4)))


@dataclass(frozen=True)
class _Sample:
    tuned: bool
    begin: Moment
    end: Moment


class PinComparison(AlternatingSteps[ComparedSteps]):
    """The comparison of one process.

    Args:
        folder: the folder of the capture.
        graphs: the graphs of the process.
        pinned: its pinned kernels.
    """

    def __init__(self, folder: Path, graphs: CalledGraphs, pinned: PinnedKernels) -> None:
        seen = no_steps_yet()
        super().__init__(folder, graphs, ComparedSteps(seen.pid, "", SETTLING, seen.rank), ".compared.json")
        self._pinned = pinned
        self._check: Any = None
        self._recording: Recording | None = None
        self._samples: list[_Sample] = []
        self._flags: list[bool] = []
        self._moment: Moment | None = None
        self._tuned = False

    @property
    def is_complete(self) -> bool:
        return self.found.state in (DONE, FAILED, CUDA_GRAPHS)

    def _forget(self) -> None:
        self._give_up_recording()
        self._use(False)
        self._samples, self._flags, self._moment = [], [], None
        self.is_recording = False

    def call_graph(self, number: int, original: Callable[[Any, Any], Any], compiled: Any, inputs: Any) -> Any:
        """Calls a graph, and compares its outputs in the step for that."""
        if self._check is None:
            with profiler_range(f"{GRAPH_CALL}{number}"):
                return original(compiled, inputs)
        return self._check.call(self._graphs.records[number].path, original, compiled, inputs)

    def _is_void(self, noisy: bool) -> bool:
        return noisy and self.found.state in (TIMING, PROFILING)

    def _may_settle(self) -> bool:
        if any(graph.cuda_graphs for graph in self._graphs.records):
            self._complete(CUDA_GRAPHS)
        return True

    def _make_plan(self, begin: int) -> StepPlan:
        timed, profiled = count_steps(self._step_s)
        if device_of(self._clock.device).runs_on_host:
            profiled = 0  # a step is what the device works
        return StepPlan(begin, begin + 1 + WARM_UP + timed, None, profiled)

    def _go_on(self, place: int, number: int, arrived_s: float, *, noisy: bool) -> None:
        assert self._plan is not None and self._plan.begin is not None and self._plan.end is not None
        profile = self._plan.end - self._plan.begin
        if place == 0:
            self._begin_check()
        elif place < profile:
            self._end_check()
            self._time(place - 1, number, arrived_s)
        else:
            self._profile(place - profile, number, arrived_s)

    # The outputs

    def _begin_check(self) -> None:
        from .pin_outputs import OutputCheck

        self._check = OutputCheck(self._pinned, self._clock.device)
        self.is_recording = True
        self._write(CHECKING)

    def _end_check(self) -> None:
        if self._check is not None:
            check, self._check, self.is_recording = self._check, None, False
            dropped = (*self.found.dropped, *check.dropped)
            self.found = replace(self.found, outputs=tuple(check.found), dropped=dropped)
            self._write(TIMING)

    # The times

    def _time(self, place: int, number: int, arrived_s: float) -> None:
        """Ends the step before and begins the next one; the change between them belongs to neither."""
        if self._moment is not None:
            end = self._clock.read(number, arrived_s)
            self._samples.append(_Sample(self._tuned, self._moment, end))
        self._use(is_tuned(place))
        if place == WARM_UP:
            self._samples = []
        self._moment = self._clock.read(number, time.perf_counter())

    # The profile

    def _profile(self, place: int, number: int, arrived_s: float) -> None:
        assert self._plan is not None
        if place == 0:
            self._samples.append(
                _Sample(self._tuned, self._moment or Moment(0, 0.0), self._clock.read(number, arrived_s))
            )
            self._moment = None
            self._use(False)
            if not self._plan.profiled:
                self._complete(DONE)
                return
            self._write(PROFILING)
        try:
            self.is_ours = True
            self._profile_step(place, number)
        except PROFILER_ERRORS as error:
            traceback.print_exc()
            self._recording, self._flags, self.is_recording = None, [], False
            self.found = replace(self.found, notes=(*self.found.notes, f"The profiler failed: {words_of(error)}"))
            self._complete(DONE)
        finally:
            self.is_ours = False

    def _profile_step(self, place: int, number: int) -> None:
        assert self._plan is not None
        if place == 0:
            self._recording = Recording(self._path.with_suffix(".trace.json"))
            self._recording.prepare()
            return
        if place == 1 and self._recording is not None:
            self._recording.start()
            self.is_recording = True
        mark_boundary(number)
        if place <= self._plan.profiled:
            self._use(is_tuned(place - 1))
            self._flags.append(self._tuned)
            return
        recording, self._recording, self.is_recording = self._recording, None, False
        self._use(False)
        if recording is not None:
            self.found = replace(self.found, trace=recording.export(), profiled=tuple(self._flags))
        self._complete(DONE)

    def _use(self, tuned: bool) -> None:
        if tuned != self._tuned:
            self._pinned.use(tuned)
            self._tuned = tuned

    # The end

    def _complete(self, state: str) -> None:
        ends = [sample.end for sample in self._samples]
        if not ends or wait_for(ends):
            steps = tuple(map(_describe, self._samples))
            self.found = replace(self.found, steps=steps)
        if state != CUDA_GRAPHS:
            self._pinned.use(True)  # for their states
            save_states(self._pinned)
            self._pinned.use(False)
        self._write(state)

    def give_way(self) -> None:
        """Ends the profile that runs, because the program begins one of its own."""
        self._give_up_recording()

    def _give_up_recording(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None and recording.is_running:
            self.is_ours = True
            recording.stop()
            self.is_ours = False

    def fail(self, error: BaseException) -> None:
        """Ends the comparison because of an error of its own."""
        self._use(False)
        self.found = replace(self.found, error=words_of(error))
        self._write(FAILED)

    def finish(self, boundaries: Boundaries) -> None:
        """Ends the comparison with the program; the steps that were timed until then are kept."""
        if self._graphs.records or boundaries.source:
            self._give_up_recording()
            self._complete(self.found.state)

    def _write(self, state: str) -> None:
        self._save(replace(self.found, state=state, graphs=tuple(self._graphs.records)))


def _describe(sample: _Sample) -> ComparedStep:
    times = times_of([sample.begin, sample.end])
    return ComparedStep(sample.tuned, times.steps_s[0])

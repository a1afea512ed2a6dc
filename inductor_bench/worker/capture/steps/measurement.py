"""Carries out the schedule of an observation: reads the clock, runs the profiler, and writes what was measured."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from inductor_bench.messages.steps import DONE, FAILED, GRAPH_CALL, PROFILING, TIMING, WAITING
from inductor_bench.records.program import PATTERN

from ...upstream.inductor import profiler_range
from . import notes
from .boundaries import Boundaries
from .clock import Clock, Moment, Settling, has_passed, times_of, wait_for
from .graphs import Graphs
from .pattern import LongerLoop
from .plan import agreement_of
from .recording import Recording, mark_boundary, why_no_stacks
from .results import no_steps_yet, words_of, write_steps
from .schedule import WINDOW_STEPS, Action, Limits, Schedule
from .touches import Touches

WRITTEN_EARLY = 8
"""Number of boundaries before the window at which the file is written, for a program that ends without notice."""

PROFILER_ERRORS = (AssertionError, AttributeError, ImportError, OSError, RuntimeError, TypeError, ValueError)
"""Exceptions of a profiler that cannot record: missing rights, no memory, no space on the disk."""


class Measurement:
    """The measured facts of one process, and the steps of their measurement."""

    def __init__(self, folder: Path, limits: Limits, graphs: Graphs) -> None:
        self.is_noisy = False
        self.is_recording = False
        self.is_ours = False
        """Whether the profiler that begins or ends is the observation's own."""
        self.excluded_s = 0.0
        self.found = no_steps_yet()
        self._stem = folder / str(os.getpid())
        self._graphs = graphs
        self._clock, self._settling_time = Clock(), Settling()
        self._schedule = Schedule(limits, agreement_of(os.environ, folder))
        self._moments: list[Moment] = []
        self._settling: list[Moment] = []
        self._window: list[Moment] = []
        self._recording: Recording | None = None
        self._stacks: Recording | None = None
        self._touches: Touches | None = None
        self._compiled = False
        self._source, self._steps = "", 0
        self._loop: LongerLoop | None = None
        self._boundaries_seen = self._last_noisy = self._marked = 0
        self._was_busy = False

    @property
    def is_complete(self) -> bool:
        return self.found.state in (DONE, FAILED)

    def note_compiler(self) -> None:
        """Notes the import of the compiler, which the first step needs."""
        self._settling_time.begin()

    def note_compilation(self) -> None:
        """Notes the begin of a compilation. The first one begins the first step."""
        if not self._compiled and not self._graphs.records:
            self._settling_time.begin()
        self._compiled = True

    def restart(self) -> None:
        """Forgets the boundaries: events of another kind are the boundaries from now on."""
        self._drop_recording()
        self._schedule.restart()
        self._settling_time.restart()
        self._moments, self._settling, self._window = [], [], []
        self._boundaries_seen = 0

    def call_graph(self, number: int, original: Callable[[Any, Any], Any], compiled: Any, inputs: Any) -> Any:
        """Calls a graph within a range of the trace, and notes the places of its arguments where the step is noted."""
        touches = self._touches
        with profiler_range(f"{GRAPH_CALL}{number}"):
            return touches.call(number, original, compiled, inputs) if touches else original(compiled, inputs)

    def pass_within_window(self, number: int, arrived_s: float) -> bool:
        """Crosses a boundary of the timed window where nothing is to be decided. Returns whether this is one."""
        if self.is_noisy or not self._schedule.is_within_window(number, arrived_s) or self._clock.is_recording_graph():
            return False
        self._steps = number
        self._moments.append(self._clock.read(number, arrived_s))
        self._settling_time.pass_by(number, arrived_s)
        return True

    def cross(
        self, number: int, boundaries: Boundaries, arrived_s: float, *, busy: bool, cycle_s: float | None
    ) -> None:
        """Crosses a boundary: the step of this number begins here."""
        if self._clock.device != self._graphs.device and self._graphs.device:
            self._clock.use(self._graphs.device)
            self._moments = []
        if self._clock.is_recording_graph():
            return
        noisy, self.is_noisy = self.is_noisy, False
        moment = self._clock.read(number, arrived_s)
        self._steps = number
        self._settling_time.arrive(number, arrived_s, noisy=noisy)
        if self.is_recording:
            mark_boundary(number)
            self._marked += 1
        if noisy:
            self._last_noisy = number
            self._moments = []
        self._moments.append(moment)
        actions = self._schedule.cross(number, boundaries.first, arrived_s, noisy=noisy, busy=busy)
        self._source, self._loop = boundaries.source, boundaries.loop
        for action in actions:
            self._do(action, number)
        self._boundaries_seen += 1
        if self._boundaries_seen == 1:
            self._note_first_step(arrived_s, cycle_s)
        if Action.OPEN in actions:
            self._settling = self._moments
            self._moments = [self._clock.read(number, time.perf_counter())]
        elif self._schedule.state == WAITING:
            self._was_busy = busy
            del self._moments[: -WINDOW_STEPS[1] - 1]
            if self._boundaries_seen <= WRITTEN_EARLY:
                self.write()
        if self._window and has_passed(self._window):
            self._read_window()
        if self._schedule.state not in (WAITING, TIMING):
            self._moments, self._was_busy = [], busy
        moment.left_s = time.perf_counter()
        self._settling_time.leave(arrived_s, moment.left_s)

    def _note_first_step(self, arrived_s: float, cycle_s: float | None) -> None:
        """Notes the time from the first compilation to the end of the first step."""
        end_s = cycle_s if self._source == PATTERN else arrived_s
        if end_s is not None:
            self.found = replace(self.found, first_step_time_s=end_s - self._settling_time.begin_s - self.excluded_s)

    def _do(self, action: Action, number: int) -> None:
        if action is Action.OPEN:
            self.found = self._settling_time.settled(self.found, number, self.excluded_s)
            self.write(TIMING)
        elif action is Action.VOID:
            self._moments, self._settling = self._moments[-1:], []
        elif action is Action.CLOSE:
            self._window, self._moments = self._moments, []
            write = self.write if self._schedule.state == PROFILING else self._complete
            write(self._schedule.state)
        else:
            try:
                self._profile(action, number)
            except PROFILER_ERRORS as error:
                traceback.print_exc()
                self._abandon_profile(error)

    def _profile(self, action: Action, number: int) -> None:
        self.is_ours = True
        try:
            if action is Action.DISCARD:
                self._drop_recording()
            elif action is Action.PREPARE:
                self._recording = Recording(self._stem.with_suffix(".steps.trace.json"))
                self._recording.prepare()
            elif action is Action.RECORD and self._recording is not None:
                self._start(self._recording, number)
            elif action is Action.EXPORT and self._recording is not None:
                self._export(self._recording, number)
            elif action is Action.STACKS:
                self._begin_stacks(number)
            elif action is Action.FINISH:
                self._finish_stacks()
        finally:
            self.is_ours = False

    def _start(self, recording: Recording, number: int) -> None:
        recording.start()
        self.is_recording, self._marked = True, 1
        mark_boundary(number)

    def _export(self, recording: Recording, number: int) -> None:
        self.is_recording, self._recording = False, None
        trace = recording.export(last=self._schedule.state == DONE)
        self.found = replace(self.found, trace=trace, profiled_steps=self._marked - 1)
        self.write()

    def _begin_stacks(self, number: int) -> None:
        """Begins a second profile, a step after the end of the first one.

        Ranges that were open at that end, as the optimizer's, write into the first profile when they close. A profiler
        that ran already would make them do so although its memory is freed.
        """
        reason = why_no_stacks(self._schedule.step_s, Path(self.found.trace))
        if reason:
            self._note(notes.NO_STACKS.format(reason=reason))
            return
        self._stacks = Recording(self._stem.with_suffix(".lines.trace.json"), stacks=True)
        self._stacks.prepare()
        self._start(self._stacks, number)
        self._touches = Touches()

    def _finish_stacks(self) -> None:
        stacks, touches, self.is_recording = self._stacks, self._touches, False
        self._stacks = self._touches = None
        if stacks is not None:
            self.found = replace(self.found, lines_trace=stacks.export(last=True))
        if touches is not None:
            touches.write(self._stem.with_suffix(".touches.json"))
        self._complete(DONE)

    def _complete(self, state: str) -> None:
        if self._window and wait_for(self._window):
            self._read_window()
        self.write(state)

    def _read_window(self) -> None:
        self._keep_times(self._window)
        self._window = []

    def _keep_times(self, *windows: Sequence[Moment]) -> None:
        times = times_of(*windows)
        self.found = replace(self.found, step_times_s=times.steps_s, window_s=times.window_s)

    def _read_unfinished(self) -> bool:
        """Takes the steps since the last compilation for the window. Returns whether there are any."""
        parts = [part for part in (self._settling, self._moments) if len(part) > 1 and wait_for(part)]
        if not parts:
            return False
        self.found = replace(self.found, settled_after=parts[0][0].number)
        self._keep_times(*parts)
        return True

    def _abandon_profile(self, error: BaseException) -> None:
        """Keeps the times, where the profiler fails. A failure after the first trace costs only the second one."""
        self._recording = self._stacks = self._touches = None
        self.is_recording = False
        if self.found.trace:
            self._note(notes.NO_STACKS.format(reason=words_of(error)))
            self._complete(DONE)
            return
        self.found = replace(self.found, error=f"the profiler failed: {words_of(error)}")
        self._complete(FAILED)

    def give_way(self) -> None:
        """Ends the profile that runs, because the program begins one of its own."""
        if self._recording is None and self._stacks is None:
            return
        self.is_ours = True
        try:
            self._drop_recording()
        finally:
            self.is_ours = False
        self._schedule.postpone()

    def _drop_recording(self) -> None:
        running = [one for one in (self._recording, self._stacks) if one is not None]
        self._recording = self._stacks = self._touches = None
        self.is_recording = False
        for one in running:
            one.stop()

    def fail(self, error: BaseException) -> None:
        """Ends the observation because of an error of its own."""
        self.found = replace(self.found, error=words_of(error))
        self.write(FAILED)

    def finish(self, boundaries: Boundaries) -> None:
        """Ends the observation with the program. What was timed after the last compilation is kept."""
        if not self._graphs.records and not boundaries.source:
            return  # a helper process, which has no steps
        state, self._loop = self._schedule.state, boundaries.loop
        if self._recording is not None and self.is_recording and self._marked > 1:
            self.is_ours = True
            try:
                trace = self._recording.export()
                self.found = replace(self.found, trace=trace, profiled_steps=self._marked - 1)
                self._note(notes.ENDED_IN_PROFILE)
                state = DONE
            finally:
                self.is_ours, self._recording = False, None
        if self._stacks is not None:
            state = DONE
            self._note(notes.NO_STACKS.format(reason="the program ended in it"))
        if state in (WAITING, TIMING):
            state = TIMING if self._read_unfinished() else state
        for note in notes.ending(state, self._steps, self._last_noisy, busy=self._was_busy, loop=self._loop):
            self._note(note)
        self._complete(state)

    def _note(self, text: str) -> None:
        self.found = replace(self.found, notes=tuple(dict.fromkeys([*self.found.notes, text])))

    def write(self, state: str | None = None) -> None:
        """Writes the file of this process, over an earlier one."""
        self.found = replace(
            self.found,
            state=state or self.found.state,
            device=self._clock.device,
            source=self._source,
            steps=self._steps,
            graphs=tuple(self._graphs.records),
        )
        said = replace(self.found, notes=(*notes.around(self._loop), *self.found.notes))
        write_steps(self._stem.with_suffix(".steps.json"), said)

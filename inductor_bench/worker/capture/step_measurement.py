"""Carries out the schedule of an observation: reads the clock, runs the profiler, and writes what was found."""

from __future__ import annotations

import json
import os
import statistics
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...records.evidence import DONE, FAILED, GRAPH_CALL, PROFILING, SAMPLING, TIMING, WAITING, ObservedSteps
from ...records.run import LONGER_LOOP, PATTERN
from ...store import codec
from ..device.gpu_watch import GpuWatch
from ..device.machine import LoadWatch, find_driver_of_current_gpu
from ..upstream.inductor import open_profiler_range
from ..upstream.observing import detach_profiler, stays_attached
from .boundaries import Boundaries, CalledGraphs, LongerLoop
from .host_sampling import HostSampling
from .schedule import WINDOW_STEPS, Action, Schedule, WindowLimits, make_coordinator
from .step_kinds import StepKinds
from .step_recording import (
    CompileTimeMeter,
    Moment,
    OtherThreadError,
    Recording,
    StepClock,
    Touches,
    end_left_profile,
    explain_missing_stacks,
    has_passed,
    make_steps,
    mark_boundary,
    wait_for,
)

# The notes that say what limits the figures of an observation.

NO_STACKS = "no step was recorded with Python stacks ({reason}), so the lines of eager operators are unknown"
NO_PROFILE = "no step was profiled: {reason}"
INTERRUPTED = "too few steps follow each other without other compiled calls"
PROFILED_FROM = 7
"""Number of settled steps from which on a program is profiled."""
ENDED_IN_PROFILE = "the program ended while its steps were profiled: fewer of them were recorded than planned"


def describe_longer_loop(loop: LongerLoop | None) -> tuple[str, ...]:
    """Returns the note on steps that are a part of a longer loop; ``None`` without such a loop."""
    if loop is None:
        return ()
    numbers = f"{loop.least}" if loop.least == loop.most else f"{loop.least} to {loop.most}"
    when = f"after every {numbers} steps" if loop.times > 1 else f"once, after {numbers} steps"
    return (
        f"{LONGER_LOOP}: other compiled calls came {when}; to measure an iteration of that loop, call "
        "inductor_bench.step() at its end",
    )


def explain_unprofiled(
    state: str, steps: int, last_noisy: int, *, other_profiler: bool, loop: LongerLoop | None = None
) -> str:
    """Explains why a program ended before its steps were profiled, and what would help.

    Args:
        state: the state of the observation.
        steps: the number of steps that ended.
        last_noisy: the number of the last step that compiled or recorded a CUDA graph, counted from 1.
        other_profiler: whether the program's own profiler was running.
        loop: the longer loop that the steps are a part of, if any.
    """
    settled = steps - last_noisy
    if steps == 0:
        return "no step was recognised; mark the end of each step with inductor_bench.step()"
    if other_profiler:
        return "the program's own profiler ran, which may slow its steps; leave it out"
    if loop:
        return f"none of {steps} steps could be {'timed' if state == WAITING else 'profiled'}, because {INTERRUPTED}"
    if settled <= 0:
        return f"compilation had not settled at the program's end, where step {last_noisy} of {steps} still compiled"
    more = max(1, PROFILED_FROM - settled)
    needed = f"a profile needs {PROFILED_FROM} steps after the last step that compiles"
    return f"{needed}, and there were {settled}; run {more} more step{'s' * (more > 1)}"


# Writes what was observed of a process's steps.


def make_empty_steps() -> ObservedSteps:
    """Returns the observation of this process as it is at its begin."""
    return ObservedSteps(pid=os.getpid(), device="", state=WAITING, rank=find_number("RANK"))


def write_steps(path: Path, found: ObservedSteps) -> None:
    """Writes the file of a process, over an earlier one. A reader sees the whole old file or the whole new one."""
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(codec.encode(found)), encoding="utf-8")
    temporary.replace(path)


def describe_error(error: BaseException) -> str:
    """Returns the kind of an error and the first line of its message, if there is a message."""
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def find_number(name: str) -> int | None:
    """Returns the whole number in an environment variable; ``None`` if it holds none."""
    value = os.environ.get(name, "")
    return int(value) if value.isdigit() else None


STEADY = 4
"""Number of boundaries that have to be crossed by one thread before it is profiled."""

WRITTEN_EARLY = 8
"""Number of boundaries before the window at which the file is written, for a program that ends without notice."""

PROFILER_ERRORS = (AssertionError, AttributeError, ImportError, OSError, RuntimeError, TypeError, ValueError)
"""Exceptions of a profiler that cannot record: missing rights, no memory, no space on the disk."""


class Measurement:
    """The measured facts of one process, and the state of the measurement."""

    def __init__(self, folder: Path, limits: WindowLimits, graphs: CalledGraphs) -> None:
        self.is_noisy = False
        self.is_odd = False
        """Whether the running step has compiled nothing and is another one than the measured steps."""
        self.is_recording = False
        self.is_ours = False
        """Whether the profiler that begins or ends is the observation's own."""
        self.excluded_s = 0.0
        self.found = make_empty_steps()
        self._stem = folder / str(os.getpid())
        self._graphs = graphs
        self._clock, self._settling_time = StepClock(), CompileTimeMeter()
        self._has_stacks, self._is_chosen, self._samples = limits.stacks, limits.steps is not None, limits.samples
        self._sampling: HostSampling | None = None
        self._timed: tuple[Sequence[Moment], ...] = ()  # the windows whose times are kept
        self.looks_for_outer = limits.profiles
        """Whether the steps of a loop around the measured steps are measured, too."""
        self._schedule = Schedule(limits, make_coordinator(os.environ, folder))
        self._moments: list[Moment] = []
        self._before: list[Moment] = []
        """The settled steps before the profile."""
        self._window: list[Moment] = []
        self._kinds, self._profile_begin_s = StepKinds(graphs.sizes), 0.0
        self._earlier: ObservedSteps | None = None
        """What was measured of other steps, before these began to be measured."""
        self._is_found_anew, self._gpu, self._load = False, GpuWatch(), LoadWatch()
        self._recording: Recording | None = None
        self._stacks: Recording | None = None
        self._touches: Touches | None = None
        self._compiled, self._source, self._steps = False, "", 0
        self._loop: LongerLoop | None = None
        self._boundaries_seen = self._last_noisy = self._marked = 0
        self._threads: deque[int] = deque(maxlen=STEADY)
        """The threads of the last boundaries."""
        self._is_left_running = False
        """Whether a profile goes on that another thread has to end."""
        self._had_other_profiler = False

    @property
    def is_complete(self) -> bool:
        return self.found.state in (DONE, FAILED)

    @property
    def _find_touches_path(self) -> Path:
        return self._stem.with_suffix(".touches.json")

    def note_compiler(self) -> None:
        """Starts the settling time when the compiler is imported."""
        self._settling_time.begin()

    def note_compilation(self) -> None:
        """Notes the begin of a compilation. The first one begins the first step."""
        if not self._compiled and not self._graphs.records:
            self._settling_time.begin()
        self._compiled = True

    def restart(self) -> None:
        """Begins again, because other events are the boundaries from now on. What was measured until now is kept."""
        self._drop_recording()
        self._end_sampling()
        self._keep_earlier()
        self._schedule.restart()
        self._kinds.forget()
        self._settling_time.restart()
        self._boundaries_seen = 0

    def _keep_earlier(self) -> None:
        """Keeps the profile and its steps until the steps that are measured from now on are profiled."""
        if self.found.trace:
            self._read_steps()
            self._earlier = self._described()
        self.found = replace(make_empty_steps(), first_step_time_s=self.found.first_step_time_s)
        self._moments, self._before, self._window, self._timed = [], [], [], ()
        self._gpu.restart()
        self._load.forget()
        self._kinds.forget_profile()

    def note_pattern(self) -> None:
        """Notes that a pattern of calls was found just now: its repetitions compiled nothing."""
        self._is_found_anew = self.is_odd = True

    def call_graph(self, number: int, original: Callable[[Any, Any], Any], compiled: Any, inputs: Any) -> Any:
        """Calls a graph within a range of the trace. In one step, also notes the addresses of its arguments; in the
        others the line of the program that calls it."""
        touches = self._touches
        if self._recording is not None:
            self._recording.calls.note(number)
        with open_profiler_range(f"{GRAPH_CALL}{number}"):
            return touches.call(number, original, compiled, inputs) if touches else original(compiled, inputs)

    def pass_within_window(self, number: int, arrived_s: float) -> bool:
        """Crosses a boundary of the timed window if there is nothing to decide. Returns whether it did so."""
        if self.is_noisy or self.is_odd or not self._schedule.is_within_window(number, arrived_s):
            return False
        if self._clock.is_capturing_cuda_graph():
            return False
        self._steps = number
        moment = self._clock.read(number, arrived_s)
        moment.graphs, moment.sizes = self._graphs.take_called(), self._graphs.sizes.take()
        self._moments.append(moment)
        self._settling_time.pass_by(number, arrived_s)
        if arrived_s >= self._gpu.next_clock_s:
            self._gpu.read_clock(number, arrived_s)
        return True

    def cross_boundary(
        self, number: int, boundaries: Boundaries, arrived_s: float, *, other_profiler: bool, cycle_s: float | None
    ) -> None:
        """Crosses the boundary at which the step of this number begins."""
        if self._clock.device != self._graphs.device and self._graphs.device:
            self._clock.use_device(self._graphs.device)
            self._moments = []
            self._schedule.lengthen()
            if stays_attached(self._graphs.device):
                self._schedule.put_window_first()
            self._gpu.set_driver(find_driver_of_current_gpu())
        if self._clock.is_capturing_cuda_graph():
            return
        noisy, odd, self.is_noisy, self.is_odd = self.is_noisy, self.is_odd, False, False
        self._note_thread()
        moment = self._clock.read(number, arrived_s)
        moment.graphs, moment.sizes, moment.is_odd = self._graphs.take_called(), self._graphs.sizes.take(), odd
        moment.is_disturbed = noisy or other_profiler or self._is_found_anew
        self._steps = number
        if self._sampling is not None:
            self._sample(self._sampling, moment, other_profiler=other_profiler)
            moment.left_s = time.perf_counter()
            return
        self._settling_time.arrive(number, arrived_s, noisy=noisy)
        if self._boundaries_seen and not self._is_found_anew:  # else the step is not whole
            self._kinds.note(moment, each_call=boundaries.pattern.takes_each_call)
        if self.is_recording:
            odd = self._mark_profiled(moment, noisy=noisy, odd=odd)
        if noisy:
            self._last_noisy = number
            if self._schedule.state == WAITING:
                self._moments = []
                self._kinds.make_room(())
        self._moments.append(moment)
        anew = self._begins_anew(noisy, odd)
        actions = self._schedule.cross(number, boundaries.first, arrived_s, noisy=anew, other_profiler=other_profiler)
        self._source, self._loop = boundaries.source, boundaries.loop
        for action in actions:
            self._do(action, moment)
        self._boundaries_seen += 1
        if self._boundaries_seen == 1:
            self._note_first_step(arrived_s, cycle_s)
        if Action.OPEN in actions:
            self._before = self._before or self._moments
            self._moments = [self._clock.read(number, time.perf_counter())]
        elif self._schedule.state == WAITING:
            self._had_other_profiler = other_profiler
            del self._moments[: -WINDOW_STEPS[1] - 1]
            if self._boundaries_seen <= WRITTEN_EARLY:
                self.write()
        if self._window and has_passed(self._window):
            self._keep_times(self._before, self._window)
            self._window = []
        if self._schedule.state not in (WAITING, TIMING):
            self._moments, self._had_other_profiler = [], other_profiler
        if arrived_s >= self._gpu.next_clock_s:
            self._gpu.read_clock(number, arrived_s)
        moment.left_s = time.perf_counter()
        self._settling_time.leave(arrived_s, moment.left_s)

    def _note_thread(self) -> None:
        self._threads.append(threading.get_native_id())
        if self._is_left_running:
            end_left_profile()

    def _begins_anew(self, noisy: bool, odd: bool) -> bool:
        """Whether the schedule has to wait again until the steps have settled."""
        found_anew, self._is_found_anew = self._is_found_anew, False
        if self._schedule.state == WAITING and found_anew:
            self._schedule.note_quiet_steps()
            return False
        return noisy or (odd and self._schedule.state == PROFILING)

    def _mark_profiled(self, moment: Moment, *, noisy: bool, odd: bool) -> bool:
        """Marks the end of a step in the trace. Returns whether it is another step than those that are profiled."""
        mark_boundary(moment.number)
        self._marked += 1
        counts = not self._graphs.device or self._marked > 2  # on a GPU the first profiled step does not count
        odd = self._recording is not None and self._kinds.note_profiled(moment, counts=counts, odd=odd)
        steps = 0 if noisy or odd else self._schedule.wants_kinds(moment.number)
        if self._kinds.wants_more(steps, moment.arrived_s - self._profile_begin_s):
            self._schedule.profile_more()
        return odd

    def _note_first_step(self, arrived_s: float, cycle_s: float | None) -> None:
        """Notes the time from the first compilation to the end of the first step."""
        end_s = cycle_s if self._source == PATTERN else arrived_s
        if end_s is not None:
            self.found = replace(self.found, first_step_time_s=end_s - self._settling_time.begin_s - self.excluded_s)

    def _do(self, action: Action, moment: Moment) -> None:
        number = moment.number
        if action is Action.SETTLED:
            self.found = self._settling_time.settled(self.found, number, self.excluded_s)
            self._gpu.begin()
            self.write(self._schedule.state)
        elif action is Action.OPEN:
            self._gpu.begin_window()
            self.write(TIMING)
            self._load.begin(alone=self.found.rank is None)
        elif action is Action.VOID:
            last = self._moments[-1:]
            self._keep_earlier()
            self._moments = last
        elif action is Action.CLOSE:
            self._window, self._moments = self._moments, []
            self._load.end(len(self._window) - 1)
            if self._schedule.profiled_from is None or self._is_chosen:
                self._before = []  # the window's first step, or its number of steps, may be the user's choice
            if self._schedule.state == PROFILING:
                self.write(FAILED if self.found.error else PROFILING)
            else:
                self._complete(FAILED if self.found.error else self._schedule.state, moment)
        else:
            try:
                self._profile(action, number)
                if action is Action.FINISH and self._schedule.state == DONE:
                    self._complete(DONE, moment)
            except OtherThreadError as error:
                self._abandon_profile(error)
            except PROFILER_ERRORS as error:
                traceback.print_exc()
                self._abandon_profile(error)

    def _profile(self, action: Action, number: int) -> None:
        self.is_ours, begin_s = True, time.perf_counter()
        try:
            if action is Action.DISCARD:
                self._drop_recording()
            elif action is Action.PREPARE:
                self._before = self._before or self._moments
                self._kinds.begin_profile(self._before)
                if len(set(self._threads)) > 1:
                    raise OtherThreadError
                self._recording = Recording(self._stem.with_suffix(".steps.trace.json"))
                self._recording.prepare()
            elif action is Action.RECORD and self._recording is not None:
                self._start(self._recording, number)
            elif action is Action.EXPORT and self._recording is not None:
                self._export(self._recording)
            elif action is Action.STACKS:
                self._begin_stacks(number)
            elif action is Action.FINISH:
                self._finish_stacks()
        finally:
            self.is_ours = False
            took_s = round(time.perf_counter() - begin_s, 3)
            self.found = replace(self.found, phases_s={**self.found.phases_s, action.name.lower(): took_s})

    def _start(self, recording: Recording, number: int) -> None:
        recording.start()
        self.is_recording, self._marked, self._profile_begin_s = True, 1, time.perf_counter()
        mark_boundary(number)

    def _export(self, recording: Recording) -> None:
        self.is_recording, self._recording = False, None
        trace = recording.export(last=not self._has_stacks)
        self._find_touches_path.unlink(missing_ok=True)  # of the steps that were measured earlier
        callers = recording.calls.list_callers()
        self.found = replace(self.found, trace=trace, profiled_steps=self._marked - 1, callers=callers)
        self._earlier = None
        if len(self._kinds.find_repeated()) > 1:
            self._schedule.lengthen(for_kinds=True)
            if self.found.step_times_s:  # of a window before the profile
                self._keep_times(*self._timed)
        self.write()

    def _begin_stacks(self, number: int) -> None:
        """Begins a second profile, a step after the end of the first one."""
        reason = explain_missing_stacks(self._schedule.step_s, Path(self.found.trace))
        if reason:
            self.note(NO_STACKS.format(reason=reason))
            detach_profiler()
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
            touches.write(self._find_touches_path)

    def _complete(self, state: str, moment: Moment | None = None) -> None:
        """Ends the measurement. If the host is to be sampled, the sampling begins at this boundary and comes first."""
        self._read_steps()
        self.found = replace(self.found, peak_memory_bytes=self._clock.peak_memory_bytes())
        if state == DONE and self._samples and moment is not None and len(set(self._threads)) <= 1:
            self._sampling = HostSampling(moment, self._clock.device, self._schedule.step_s, self)
            state = SAMPLING
        self.write(state)

    def _sample(self, sampling: HostSampling, moment: Moment, *, other_profiler: bool) -> None:
        """Crosses a boundary while the host is sampled."""
        is_usual = self._kinds.is_profiled(moment) and not (moment.is_odd or moment.is_disturbed)
        if sampling.cross(moment, is_usual=is_usual) or other_profiler:
            self._end_sampling()

    def _end_sampling(self) -> None:
        """Keeps the samples. If the sampling fails, only the samples are lost."""
        sampling, self._sampling = self._sampling, None
        if sampling is None:
            return
        self.found = replace(self.found, samples=sampling.end([graph.path for graph in self._graphs.records]))
        if not self._is_chosen:
            self._keep_times(*self._timed, unsampled=[run for run in sampling.list_unsampled_steps() if wait_for(run)])
        self.found = replace(self.found, sharing=self._gpu.sharing())
        if sampling.problem:
            self.note(f"the host was not sampled ({sampling.problem})")
        self.write(DONE)

    def leave_child(self) -> None:
        """Ends the sampling in a forked child."""
        if self._sampling is not None:
            self._sampling.forget()
            self._sampling = None

    def _read_steps(self) -> None:
        """Takes the times of the settled steps before the profile, and of the window as far as it came."""
        window = self._window or self._moments
        parts = [part for part in (self._before, window) if len(part) > 1 and wait_for(part)]
        if not self.found.step_times_s and parts:
            self._keep_times(*parts)
        self._load.end(len(window) - 1)
        self.found = replace(self.found, sharing=self._gpu.sharing(), load=self._load.found)
        self._window = []

    def _keep_times(self, *windows: Sequence[Moment], unsampled: Sequence[Sequence[Moment]] = ()) -> None:
        """Keeps the times of the steps of the profiled kinds, and sums up the steps of ``windows`` by their kinds.

        ``unsampled`` are further steps, of the profiled kinds only: those between the steps that were sampled.
        """
        self._timed, whole = windows, [step for window in windows for step in make_steps(window)]
        more = [step for window in unsampled for step in make_steps(window)]
        found = self._kinds.divide(whole, more)
        usual, first = found.steps, (whole or more)[:1]
        numbers, profile = {step.number for step in usual}, self._schedule.profiled_from
        self.found = replace(
            self.found,
            settled_after=first[0].number if first else self.found.settled_after,
            step_times_s=tuple(step.time_s for step in usual),
            step_numbers=tuple(step.number for step in usual),
            steps_before_profile=sum(profile is not None and step.number < profile for step in usual),
            window_s=sum(step.time_s for step in usual),
            host_step_time_s=statistics.median(step.host_time_s for step in usual) if usual else None,
            other_steps=found.others,
            step_kinds=found.kinds,
            clocks=tuple(clock for clock in self._gpu.clocks if clock.step in numbers),
        )

    def _abandon_profile(self, error: BaseException) -> None:
        """Goes on without a profile if the profiler fails. After the first trace, only the stacks are lost."""
        self._recording = self._stacks = self._touches = None
        self.is_recording = False
        self._is_left_running = self._is_left_running or isinstance(error, OtherThreadError)
        if self.found.trace:
            self.note(NO_STACKS.format(reason=describe_error(error)))
        elif isinstance(error, OtherThreadError):
            self.note(NO_PROFILE.format(reason=error))
        else:
            self.found = replace(self.found, error=f"the profiler failed: {describe_error(error)}")
        if not self._schedule.skip_profile():
            self._complete(FAILED if self.found.error else DONE)

    def give_way(self) -> None:
        """Ends the profile or the sampling that is running, because the program begins a profile of its own."""
        self._end_sampling()
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
        self._is_left_running = self._is_left_running or not all(one.is_here for one in running)
        for one in running:
            one.stop()

    def fail(self, error: BaseException) -> None:
        """Ends the observation because of an error in the observation itself."""
        self._end_sampling()
        self.found = replace(self.found, error=describe_error(error))
        self.write(FAILED)

    def finish(self, boundaries: Boundaries) -> None:
        """Ends the observation with the program. Steps that were timed after the last compilation are kept."""
        if self._is_left_running:
            end_left_profile()
        if not self._graphs.records and not boundaries.source:
            return  # a helper process has no steps
        self._loop = boundaries.loop
        if self.is_complete:
            self.write()  # with the loop around the steps, if it was seen since they were measured
            return
        state = self._schedule.state
        self._end_sampling()
        self._end_profile(boundaries)
        self._read_steps()
        if self.found.error:
            state = FAILED
        elif self.found.trace or self._earlier is not None:
            state = DONE
        elif self.found.step_times_s:
            state = TIMING
        if state not in (DONE, FAILED) and self._is_left_running:
            self.note(NO_PROFILE.format(reason=OtherThreadError()))
        elif state not in (DONE, FAILED):
            profiler = self._had_other_profiler
            why = explain_unprofiled(state, self._steps, self._last_noisy, other_profiler=profiler, loop=self._loop)
            self.found = replace(self.found, unprofiled=why)
        self.write(state)

    def _end_profile(self, boundaries: Boundaries) -> None:
        """Ends the profile that is running at the program's end, and keeps its steps."""
        self.is_ours = True
        try:
            if self._recording is not None and self.is_recording:
                if boundaries.is_at_end:
                    mark_boundary(self._steps + 1)
                    self._marked += 1
                if self._marked > 1 and self._recording.is_here:
                    self._export(self._recording)
                    self.note(ENDED_IN_PROFILE)
            if self._stacks is not None:
                self.note(NO_STACKS.format(reason="the program ended in it"))
            with suppress(*PROFILER_ERRORS):
                self._drop_recording()  # a process that ends in a profile may crash
        finally:
            self.is_ours, self._recording = False, None

    def note(self, text: str) -> None:
        """Adds a note on what limits the figures."""
        self.found = replace(self.found, notes=tuple(dict.fromkeys([*self.found.notes, text])))

    def write(self, state: str | None = None) -> None:
        """Writes the file of this process, over an earlier one."""
        self.found = replace(self.found, state=state or self.found.state)
        described = self._described()
        if self._earlier is not None and not self.found.trace:
            described = replace(self._earlier, state=described.state, steps=described.steps, graphs=described.graphs)
        write_steps(self._stem.with_suffix(".steps.json"), described)

    def _described(self) -> ObservedSteps:
        return replace(
            self.found,
            device=self._clock.device,
            source=self._source,
            steps=self._steps,
            graphs=tuple(self._graphs.timed()),
            optimizers=tuple(self._graphs.optimizers.values()),
            notes=(*describe_longer_loop(self._loop), *self.found.notes),
        )

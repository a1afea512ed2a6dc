"""Records steps: the times of their boundaries, the profiler's trace, and the addresses of graphs' arguments.

A boundary on the device is an event on the current stream: it lies where the work ends that was launched before it, or
at the boundary on the host if that is later. Nothing waits for the device.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from ...devices.protocol import CPU
from ...records.evidence import BOUNDARY, GraphCallTouches, ObservedSteps, ObservedTouches
from ...store import codec
from ..upstream.inductor import open_profiler_range
from ..upstream.observing import detaching_cupti
from .call_lines import CallLines

WAIT_S = 2.0
"""Maximum seconds that the end of the program waits for the device to reach the last boundary."""


@dataclass(slots=True)
class Moment:
    """The times at one boundary between steps."""

    number: int  # the number of the step that begins here
    arrived_s: float  # the host's time before the work of the observation at this boundary
    left_s: float = 0.0  # the host's time after that work
    event: Any = None  # the event on the device; ``None`` on a CPU
    graphs: int = 0  # a bit for the number of each graph that the step before it called
    sizes: int = 0  # the number of the sizes in these calls, as ``CalledSizes.take`` returns it
    is_odd: bool = False  # whether other calls interrupted the step before it
    is_disturbed: bool = False  # whether the step before it compiled, or ran under another profiler


@dataclass(frozen=True)
class StepTimes:
    """The times of consecutive steps in seconds, and of all together."""

    steps_s: tuple[float, ...] = ()
    window_s: float = 0.0


class StepClock:
    """The clock of a device. Until a device is known it is the host's."""

    def __init__(self) -> None:
        self.device = CPU.type
        self._event: Callable[..., Any] | None = None
        self._is_capturing: Callable[[], bool] | None = None

    def use_device(self, device: str) -> None:
        """Uses the clock of the device of this type."""
        import torch

        module = torch.get_device_module(device)
        self.device, self._event = device, module.Event
        self._is_capturing = getattr(module, "is_current_stream_capturing", None)

    def is_capturing_cuda_graph(self) -> bool:
        """Whether the program records a CUDA graph at this time, in which no event may be timed."""
        return self._is_capturing is not None and self._is_capturing()

    def peak_memory_bytes(self) -> int | None:
        """Returns the largest memory that torch allocated on the device; on a CPU the largest size of this process."""
        from ..device.runtimes import find_runtime

        return find_runtime(self.device).peak_memory_bytes() if self.device else None

    def read(self, number: int, arrived_s: float) -> Moment:
        """Marks a boundary on both clocks."""
        event = None
        if self._event is not None:
            event = self._event(enable_timing=True)
            event.record()
        return Moment(number, arrived_s, time.perf_counter(), event)


class CompileTimeMeter:
    """Measures the host's time of the compilation, from the first compilation on, in seconds.

    Steps in which the program compiles nothing do not count, and neither does the work of the observation: a window
    that became void, a profile that was discarded. Attributes that end in ``_s`` are seconds.

    Attributes:
        begin_s: the begin of the first compilation, on the clock of ``time.perf_counter``.
        steps_s: the time of the steps in which nothing was compiled.
        compiling_steps: the number of steps in which something was compiled.
    """

    def __init__(self) -> None:
        self.begin_s = self.steps_s = 0.0
        self.compiling_steps = 0
        self._since_s: float | None = None
        self._number = 0

    def begin(self) -> None:
        """Begins here."""
        self.begin_s = time.perf_counter()

    def restart(self) -> None:
        """Notes that boundaries are numbered from 0 again."""
        self._number = 0

    def arrive(self, number: int, arrived_s: float, *, noisy: bool) -> None:
        """Notes the arrival at a boundary.

        Args:
            number: the number of the step that begins here.
            arrived_s: the host's time.
            noisy: whether the program compiled since the last boundary.
        """
        if noisy:
            self.compiling_steps += max(1, number - self._number)
        elif self._since_s is not None:
            self.steps_s += arrived_s - self._since_s
        self._number = number

    def leave(self, arrived_s: float, left_s: float) -> None:
        """Notes the end of the observation's work at a boundary."""
        if self._since_s is not None or self.compiling_steps:
            self.steps_s += left_s - arrived_s
        self._since_s = left_s

    def pass_by(self, number: int, arrived_s: float) -> None:
        """Notes a boundary of the timed window, whose step compiled nothing."""
        self._number = number
        if self._since_s is not None:
            self.steps_s += arrived_s - self._since_s
            self._since_s = arrived_s

    def settled(self, found: ObservedSteps, number: int, excluded_s: float) -> ObservedSteps:
        """Returns the observation with what is known at the begin of the timed window.

        Args:
            found: the observation until now.
            number: the number of the step that begins here.
            excluded_s: the seconds until now that are not the program's.
        """
        return replace(
            found,
            settled_after=number,
            settling_time_s=time.perf_counter() - self.begin_s - excluded_s,
            settling_steps_s=self.steps_s,
            compiling_steps=self.compiling_steps,
        )


def has_passed(moments: Sequence[Moment]) -> bool:
    """Whether the device has reached the last of these boundaries."""
    return not moments or moments[-1].event is None or bool(moments[-1].event.query())


def wait_for(moments: Sequence[Moment]) -> bool:
    """Waits up to :data:`WAIT_S` seconds for the device to reach the last of these boundaries."""
    end_s = time.perf_counter() + WAIT_S
    while not has_passed(moments):
        if time.perf_counter() > end_s:
            return False
        time.sleep(0.01)
    return True


def compute_times(*windows: Sequence[Moment]) -> StepTimes:
    """Returns the steps of windows, each between two boundaries that the device has passed.

    On the host the observation's own time is left out.
    """
    times = [_compute_times(window) for window in windows]
    return StepTimes(
        tuple(step for one in times for step in one.steps_s),
        sum(one.window_s for one in times),
    )


def _compute_times(moments: Sequence[Moment]) -> StepTimes:
    if len(moments) < 2:
        return StepTimes()
    if any(moment.event is None for moment in moments):
        steps = tuple(end.arrived_s - begin.left_s for begin, end in pairwise(moments))
        return StepTimes(steps, sum(steps))
    steps = tuple(begin.event.elapsed_time(end.event) / 1e3 for begin, end in pairwise(moments))
    return StepTimes(steps, moments[0].event.elapsed_time(moments[-1].event) / 1e3)


# The steps whose times are known, and what they called.


@dataclass(frozen=True)
class ClockedStep:
    """A step whose time is known."""

    number: int
    time_s: float
    graphs: int  # a bit for the number of each graph that it called
    sizes: int  # the number of the sizes in these calls
    is_odd: bool  # whether other calls interrupted it
    host_time_s: float  # on the host's clock

    @property
    def kind(self) -> tuple[int, int, bool]:
        """Returns what distinguishes the step from steps that do other work."""
        return self.graphs, self.sizes, self.is_odd


def make_steps(window: Sequence[Moment]) -> list[ClockedStep]:
    """The steps between these boundaries, without those that compiled or ran under another profiler."""
    pairs = zip(window, window[1:], compute_times(window).steps_s, strict=False)
    return [
        ClockedStep(begin.number, time_s, end.graphs, end.sizes, end.is_odd, end.arrived_s - begin.left_s)
        for begin, end, time_s in pairs
        if not end.is_disturbed
    ]


# Records a trace of the program with torch's profiler, and marks boundaries and graph calls in it.


LINES_STEP_S = 2.0
"""Maximum time of a step of which a trace with Python stacks is recorded."""

LINES_MEMORY_BYTES = 2_000_000_000
"""The available memory of the machine that a trace with Python stacks needs."""

LINES_TRACE_BYTES = 200_000_000
"""The largest size of the first trace with which a trace with Python stacks is recorded: stacks make it several times
larger."""


class OtherThreadError(RuntimeError):
    """A profile cannot be ended, because the program's steps have gone to another thread."""

    def __init__(self) -> None:
        super().__init__("the steps run on several threads, and torch's profiler has to begin and end on the same one")


class _RunningProfile:
    """A profile that runs on a thread. If the thread ends, this object ends the profile.

    Nobody else can end it, and torch would crash at exit.
    """

    def __init__(self, profile: Any) -> None:
        self._profile = profile

    def end(self) -> None:
        profile, self._profile = self._profile, None
        if profile is not None:
            profile.stop_trace()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.end()


_of_thread = threading.local()
"""Its ``running`` is the profile that this thread began and has not ended."""


def end_left_profile() -> None:
    """Ends a profile that this thread began, if later steps ran on another thread while it was running."""
    running = getattr(_of_thread, "running", None)
    if running is not None:
        _of_thread.running = None
        running.end()


class Recording:
    """One profile of the program. It begins and ends on one thread: torch would crash if it ended on another.

    Args:
        path: the file for the trace.
        stacks: whether Python stacks and modules are recorded.
    """

    def __init__(self, path: Path, *, stacks: bool = False) -> None:
        from torch import profiler

        self.path = path
        self.is_running = False
        self.calls = CallLines()
        self._thread = threading.get_native_id()  # unlike `get_ident`, it is not that of an earlier thread
        self._profile: Any = profiler.profile(
            activities=profiler.supported_activities(),
            record_shapes=not stacks,
            with_stack=stacks,
            with_modules=stacks,
        )

    @property
    def is_here(self) -> bool:
        """Whether this is the thread on which the profile began."""
        return threading.get_native_id() == self._thread

    def prepare(self) -> None:
        """Begins the profiler's warm-up, which records nothing."""
        self._profile.prepare_trace()

    def start(self) -> None:
        """Begins to record.

        Raises:
            OtherThreadError: this is another thread.
        """
        if not self.is_here:
            raise OtherThreadError
        self.is_running = True
        self._profile.start_trace()
        _of_thread.running = _RunningProfile(self._profile)

    def stop(self) -> None:
        """Ends the profile without a trace. On another thread the profile goes on."""
        self.is_running = False
        if self.is_here and getattr(_of_thread, "running", None) is not None:
            end_left_profile()
        elif self.is_here:
            self._profile.stop_trace()

    def export(self, *, last: bool = False) -> str:
        """Ends the profile and writes the trace.

        Returns its path. ``last`` says that no other profile with CUPTI follows.

        Raises:
            OtherThreadError: this is another thread.
            RuntimeError: something else has ended the profile. torch would crash if it wrote the trace.
        """
        if not self.is_here:
            raise OtherThreadError
        with detaching_cupti() if last else contextlib.nullcontext():
            self.stop()
        if not self._profile.profiler.kineto_results.trace_start_ns():
            raise RuntimeError("torch's profiler ended early and has no trace")
        self._profile.export_chrome_trace(str(self.path))
        return str(self.path)


def mark_boundary(number: int) -> None:
    """Writes an empty range for a boundary into the trace."""
    with open_profiler_range(f"{BOUNDARY}{number}"):
        pass


def explain_missing_stacks(step_s: float, trace: Path) -> str:
    """Returns why no step with Python stacks is recorded; empty if one is recorded."""
    if step_s > LINES_STEP_S:
        return f"a step takes {step_s:.1f} s"
    if _read_available_bytes() < LINES_MEMORY_BYTES:
        return "memory is short"
    if trace.is_file() and trace.stat().st_size > LINES_TRACE_BYTES:
        return "the trace of the steps is large already"
    return ""


def _read_available_bytes() -> float:
    """The memory that processes can still get (Linux); infinite where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return float("inf")


# Notes during one step the addresses of the arguments and results of the compiled graphs' calls.


class Touches:
    """Records which memory the graphs touch that one step calls."""

    def __init__(self) -> None:
        self._calls: list[GraphCallTouches] = []

    def call(self, number: int, original: Callable[[Any, Any], Any], compiled: Any, inputs: Any) -> Any:
        """Calls a graph of this number and returns its result."""
        before = number_values(inputs)  # the call empties the list of its inputs
        result = original(compiled, inputs)
        results = result if isinstance(result, tuple | list) else (result,)
        self._calls.append(GraphCallTouches(number, before, number_values(results)))
        return result

    def write(self, path: Path) -> None:
        """Writes the calls into a file."""
        path.write_text(json.dumps(codec.encode(ObservedTouches(tuple(self._calls)))), encoding="utf-8")


def number_values(values: Iterable[Any]) -> tuple[tuple[int, int], ...]:
    """The address and the bytes of each tensor in order; zeros for any other value."""
    return tuple(map(find_place, values))


def find_place(value: Any) -> tuple[int, int]:
    """The address and the bytes of a tensor; zeros for a number, and for a tensor without memory."""
    try:
        return value.data_ptr(), value.nbytes
    except (AttributeError, RuntimeError):
        return 0, 0

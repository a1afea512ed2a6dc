"""Records the program's steps: a trace by torch's profiler, and where graph calls' arguments lie in memory."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ...records.evidence import BOUNDARY, GraphCallTouches, ObservedTouches
from ...store import codec
from ..upstream.inductor import profiler_range
from ..upstream.observing import detaching_cupti

# Records a trace of the program with torch's profiler, and marks boundaries and graph calls in it.


LINES_STEP_S = 2.0
"""Maximum time of a step of which a trace with Python stacks is recorded."""

LINES_MEMORY_BYTES = 2_000_000_000
"""Minimum available memory of the machine for such a trace."""

LINES_TRACE_BYTES = 200_000_000
"""Maximum size of the first trace for such a trace: stacks make it several times larger."""


class OtherThreadError(RuntimeError):
    """A profile cannot be ended, because the program's steps have gone to another thread."""

    def __init__(self) -> None:
        super().__init__("the steps run on several threads, and torch's profiler has to begin and end on the same one")


class _RunningProfile:
    """A profile that runs on a thread. The end of the thread ends it: nobody else can, and torch crashes at exit."""

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
    """Ends a profile that this thread began, if the steps went to another thread while it ran."""
    running = getattr(_of_thread, "running", None)
    if running is not None:
        _of_thread.running = None
        running.end()


class Recording:
    """One profile of the program. It begins and ends on one thread: torch would crash where it ended on another.

    Args:
        path: the file for the trace.
        stacks: whether Python stacks and modules are recorded.
    """

    def __init__(self, path: Path, *, stacks: bool = False) -> None:
        from torch import profiler

        self.path = path
        self.is_running = False
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
        """Ends the profile without a trace; on another thread it goes on."""
        self.is_running = False
        if self.is_here and getattr(_of_thread, "running", None) is not None:
            end_left_profile()
        elif self.is_here:
            self._profile.stop_trace()

    def export(self, *, last: bool = False) -> str:
        """Ends the profile, the ``last`` one of the program's with CUPTI, and writes the trace. Returns its path.

        Raises:
            OtherThreadError: this is another thread.
        """
        if not self.is_here:
            raise OtherThreadError
        with detaching_cupti() if last else contextlib.nullcontext():
            self.stop()
        self._profile.export_chrome_trace(str(self.path))
        return str(self.path)


def mark_boundary(number: int) -> None:
    """Writes the empty range of a boundary into the trace."""
    with profiler_range(f"{BOUNDARY}{number}"):
        pass


def why_no_stacks(step_s: float, trace: Path) -> str:
    """The reason why no step with Python stacks is recorded; empty where one is."""
    if step_s > LINES_STEP_S:
        return f"a step takes {step_s:.1f} s"
    if _available_bytes() < LINES_MEMORY_BYTES:
        return "memory is short"
    if trace.is_file() and trace.stat().st_size > LINES_TRACE_BYTES:
        return "the trace of the steps is large already"
    return ""


def _available_bytes() -> float:
    """The memory that processes can still get (Linux); infinite where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return float("inf")


# Notes where the arguments and results of the compiled graphs' calls lie in memory, during one step.


class Touches:
    """The calls of one step."""

    def __init__(self) -> None:
        self._calls: list[GraphCallTouches] = []

    def call(self, number: int, original: Callable[[Any, Any], Any], compiled: Any, inputs: Any) -> Any:
        """Calls a graph of this number and returns its result."""
        before = places_of(inputs)  # the call empties the list of its inputs
        result = original(compiled, inputs)
        results = result if isinstance(result, tuple | list) else (result,)
        self._calls.append(GraphCallTouches(number, before, places_of(results)))
        return result

    def write(self, path: Path) -> None:
        """Writes the calls into a file."""
        path.write_text(json.dumps(codec.encode(ObservedTouches(tuple(self._calls)))), encoding="utf-8")


def places_of(values: Iterable[Any]) -> tuple[tuple[int, int], ...]:
    """The address and the bytes of each tensor in order; zeros for any other value."""
    return tuple(_place(value) for value in values)


def _place(value: Any) -> tuple[int, int]:
    try:
        return value.data_ptr(), value.nbytes
    except (AttributeError, RuntimeError):  # a number, or a tensor without memory of its own
        return 0, 0

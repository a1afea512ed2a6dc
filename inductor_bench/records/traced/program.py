"""The contents of a whole program's trace: beside a :class:`Trace` what the host did, and who did each device event's
work. Times are seconds after the first decoded event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .activity import Activity
from .trace import Trace


class Range(NamedTuple):
    """A stretch of one thread: an annotation, a call of the device's runtime or driver, or a Python function.

    ``correlation`` is the number that a launch shares with its device events; -1 where there is none.
    """

    name: str
    start_s: float
    duration_s: float
    thread: str
    correlation: int = -1

    @property
    def end_s(self) -> float:
        return self.start_s + self.duration_s


@dataclass(frozen=True)
class ProgramTrace:
    """A trace of a program. Ranges are sorted by start; of equal starts the longer comes first.

    Attributes:
        trace: operators and device events. Calls of compiled graphs and boundaries of steps are host operators here.
        annotations: ranges of ``record_function``.
        runtime: calls of the device's runtime and driver.
        frames: Python functions and ``nn.Module`` calls; empty unless the reader was asked for them.
        sequences: the autograd sequence number of each host operator, or -1.
        forward_threads: for each host operator the number of the forward's thread if it runs in a backward, else 0.
        origin_ns: the time of second 0 on the file's own clock.
    """

    trace: Trace
    annotations: tuple[Range, ...]
    runtime: tuple[Range, ...]
    frames: tuple[Range, ...]
    sequences: tuple[int, ...]
    forward_threads: tuple[int, ...]
    origin_ns: int


class GraphCall(NamedTuple):
    """One call of a compiled graph. ``graph`` is its number in the observation, ``op`` the index of its range."""

    graph: int
    op: int
    start_s: float
    end_s: float
    thread: str


@dataclass(frozen=True, slots=True)
class Work:
    """One device event of a program, on a CPU one stretch of a host thread, and who did it.

    Attributes:
        kind: a kind of :data:`..program.KINDS`, without ``idle``.
        label: the operator, the optimizer, the collective or the direction of a copy; empty for a graph.
        start_s, end_s: when it ran.
        launch_start_s, launch_end_s: the host's call that launched it; its own start where that is unknown.
        graph: the number of the compiled graph; ``None`` for other work.
        call: the index of the graph's call; -1 for other work.
        replayed: whether a CUDA graph's replay launched it.
        op: the index of the outermost eager operator, or -1.
        event: the index of the device event; -1 on a CPU.
        lane: where it ran, for a picture.
        moved_bytes: the size of a copy; ``None`` where it is unknown.
        is_fused: whether it is a kernel of torch's fused optimizers.
        activity: the call site and kernel, where they are known.
    """

    kind: str
    label: str
    start_s: float
    end_s: float
    launch_start_s: float
    launch_end_s: float
    graph: int | None = None
    call: int = -1
    replayed: bool = False
    op: int = -1
    event: int = -1
    lane: str = ""
    moved_bytes: int | None = None
    is_fused: bool = False
    activity: Activity | None = None

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True)
class StepWindow:
    """Whole steps of a profile.

    Attributes:
        thread: the thread that crossed the boundaries.
        marks: the host's times of the boundaries.
        bounds: the device's: the work that step k launched lies before ``bounds[k + 1]``.
    """

    thread: str
    marks: tuple[float, ...]
    bounds: tuple[float, ...]

    @property
    def steps(self) -> int:
        return len(self.marks) - 1

    def launched(self, time_s: float) -> bool:
        """Whether the host was within the window at this time."""
        return self.marks[0] <= time_s < self.marks[-1]


class HostActivity(NamedTuple):
    """What the host did in a stretch of time, in the words of the idle parts. ``op`` synchronised; else it is -1."""

    start_s: float
    end_s: float
    label: str
    op: int = -1


class UserCall(NamedTuple):
    """Where the user's program called an operator, as a trace with Python stacks shows it.

    Attributes:
        module: the class of the innermost ``nn.Module`` around the call; empty where there is none.
        file: the file of the innermost function outside of torch, relative to a folder of ``sys.path``; may be empty.
        line: the line on which that function begins; of a function that was running when the profile began, the line
            on which it was then.
        function: its name.
        called: the names of the functions and module classes that it called, outermost first, and of the operator.
    """

    module: str = ""
    file: str = ""
    line: int = 0
    function: str = ""
    called: tuple[str, ...] = ()

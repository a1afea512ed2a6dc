"""The record of a whole program: its step, the ledger that accounts for the step's wall time, and its timeline."""

from __future__ import annotations

from dataclasses import dataclass, field

from .base import Place, Slug
from .code import SourceLine

GRAPH, EAGER, OPTIMIZER, COLLECTIVE, COPY, IDLE = "graph", "eager", "optimizer", "collective", "copy", "idle"
KINDS = (GRAPH, EAGER, OPTIMIZER, COLLECTIVE, COPY, IDLE)
"""The kinds of parts, in the order in which tables list equal ones."""

SYNCHRONISING, ALLOCATING, LAUNCHING, DATA_LOADING, GUARDS, PYTHON, QUEUED = (
    *("synchronising", "allocating", "launching", "data loading", "guards", "Python", "between kernels"),
)
"""What the host did while the device was idle. ``between kernels``: the next work was launched, and had not begun."""

GRAPH_INPUTS = "inputs of a CUDA graph"
"""The label of the copies of inputs before the replay of a CUDA graph."""

OTHERS = "other eager operators"
"""The label of the part that sums up eager operators that are too short for a part of their own."""

MARKS, OPTIMIZER_STEPS, PATTERN = "marks", "optimizer", "pattern"
"""What delimits the steps: the program's own marks, its optimizer steps, or the repeating pattern of compiled calls."""

LONGER_LOOP = "the counted step is a part of a longer loop"
"""First words of the note on steps of the pattern between which other compiled calls recur."""


@dataclass(frozen=True)
class SummedOperator:
    """One of the short operators that a part sums up. Both figures are means per step.

    Attributes:
        label: the operator.
        calls: the number of its calls.
        time_s: seconds of the step's wall time.
    """

    label: str
    calls: float
    time_s: float


@dataclass(frozen=True)
class Part:
    """A part of the step's wall time. All figures are means per step.

    The parts of one step are disjoint, and their times add up to the step's time. Where two device activities overlap,
    the time counts once: computation before collectives, collectives before copies.

    Attributes:
        kind: ``graph``, ``eager``, ``optimizer``, ``collective``, ``copy`` or ``idle``.
        label: a compiled graph, an operator, an optimizer, a collective, a direction of copies, or what the host did
            while the device was idle: ``synchronising``, ``allocating``, ``launching``, ``data loading``, ``guards``,
            ``Python`` or ``between kernels`` (the next work was launched, and had not begun).
        calls: the number of calls.
        time_s: seconds of the step's wall time.
        share: the share of the step's wall time, 0 to 1.
        device_time_s: the sum of the durations on the device; longer than ``time_s`` where other parts hide it. Of a
            collective it leaves out the wait that only the profiler causes. On a CPU it is ``None``.
        replays: the number of calls that replayed a CUDA graph.
        launches: the number of device activities.
        graph: the slug of the compiled graph; ``None`` for another kind, and for a graph that no file describes.
        module: the ``nn.Module`` that called the operator; empty where it is unknown.
        source: the user's line; ``None`` where it is unknown.
        refusal: of a compiled graph, Inductor's reason for not using CUDA graphs although they were asked for.
        moved_bytes: of copies, the bytes that one step copies; ``None`` where they are unknown.
        is_fused: of an optimizer, whether torch's fused kernels take most of its device time.
        summed: of the part that sums up short eager operators, each of them; empty for another part, and in a record
            of an older version, which does not say which operators its part sums up.
    """

    kind: str
    label: str
    calls: float
    time_s: float
    share: float
    device_time_s: float | None = None
    replays: float = 0.0
    launches: float = 0.0
    graph: Slug | None = None
    module: str = ""
    source: SourceLine | None = None
    refusal: str = ""
    moved_bytes: float | None = None
    is_fused: bool = False
    summed: tuple[SummedOperator, ...] = ()

    @property
    def hidden_s(self) -> float:
        """Device seconds that overlap with other parts."""
        return max(0.0, (self.device_time_s or 0.0) - self.time_s)


@dataclass(frozen=True)
class RankSteps:
    """The step of one process.

    Attributes:
        rank: the rank in a distributed program; ``None`` in a program of one process.
        pid: the id of the process.
        device: the type of its device.
        step_times_s: the unprofiled steps of the window, in order, in seconds.
        step_time_s: their mean: the window's time divided by the number of its steps.
        busy_time_s: the union of the device's intervals per step, on a CPU that of the operators; ``None`` without a
            profile.
        profiled_step_time_s: the mean time of the profiled steps; the profiler slows the host.
        profiled_steps: the number of profiled steps that the parts describe.
        tied_share: the share of the compiled graphs' device time that is tied to a kernel and a call of a graph.
        parts: the ledger, the longest part first; empty without a profile.
        trace: the profiled steps; opens in Perfetto.
    """

    rank: int | None
    pid: int
    device: str
    step_times_s: tuple[float, ...]
    step_time_s: float
    busy_time_s: float | None = None
    profiled_step_time_s: float | None = None
    profiled_steps: int = 0
    tied_share: float | None = None
    parts: tuple[Part, ...] = ()
    trace: Place | None = None


@dataclass(frozen=True)
class Program:
    """The program's step. The times and the parts are those of the process that sets the pace.

    Attributes:
        step_time_s: the mean step of the timed window in seconds, without the profiler.
        step_times_s: the steps of that window, in order.
        step_source: what delimits the steps: ``marks`` (the program's own), ``optimizer`` (its optimizer steps) or
            ``pattern`` (the repeating pattern of compiled calls).
        busy_time_s: seconds of a profiled step in which the device works.
        parts: the parts of the step, which add up to it.
        first_step_time_s: the time of the first step, which compiles; ``None`` where it is unknown.
        settled_after: the number of steps before the measured window.
        steps: the number of steps that the program ran while it was observed.
        stopped: whether ``--stop`` ended the program after the window.
        ranks: every observed process, by rank.
        notes: what limits these figures, in words.
        eager_step_time_s: the mean step of the same program without compilation, by ``--eager``; else ``None``.
        eager_median_step_time_s: the median of the same steps.
    """

    step_time_s: float
    step_times_s: tuple[float, ...]
    step_source: str
    busy_time_s: float | None = None
    parts: tuple[Part, ...] = ()
    first_step_time_s: float | None = None
    settled_after: int = 0
    steps: int = 0
    stopped: bool = False
    ranks: tuple[RankSteps, ...] = field(default_factory=tuple)
    notes: tuple[str, ...] = ()
    eager_step_time_s: float | None = None
    eager_median_step_time_s: float | None = None


HOST_LANE = "host"
"""The lane of the thread that crosses the steps' boundaries. Every other lane belongs to a device's stream."""


@dataclass(frozen=True)
class Interval:
    """A stretch of a lane. Seconds count from the step's begin; ``kind`` and ``label`` are those of a :class:`Part`.

    On the host lane, ``kind`` names what the host works for, and is ``idle`` where no operator and no graph runs;
    ``label`` then says what the host does.
    """

    lane: str
    start_s: float
    end_s: float
    kind: str
    label: str


@dataclass(frozen=True)
class Timeline:
    """One profiled step of the process that sets the pace, for a picture: ``RUN/traces/step.timeline.json``.

    Attributes:
        time_s: the time of this step; the profiler slows the host.
        intervals: at most :data:`MOST_INTERVALS`, by lane and start. Neighbours of one kind and label, too short to be
            seen, are merged.
        rank: the rank of the process; ``None`` in a program of one process.
    """

    time_s: float
    intervals: tuple[Interval, ...] = ()
    rank: int | None = None


MOST_INTERVALS = 5000
"""The most intervals of a timeline."""

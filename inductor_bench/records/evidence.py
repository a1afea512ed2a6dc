"""What was observed for one RUN: what its analysis is made of."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from .base import OtherProcess, Place, Slug
from .code import MachineLoad, SourceLine
from .module import Method, Outputs
from .traced import OperatorCall, OperatorCost

# What a process of the user's program observed of its steps, and the names that its trace carries.


BOUNDARY = "inductor_bench.boundary/"
"""Name of the marker of a step's end in a trace, before the number of the step that begins there: an empty range."""

GRAPH_CALL = "inductor_bench.graph/"
"""Name of the range of one call of a compiled graph, before the number of the graph in ``ObservedSteps.graphs``."""

WAITING, TIMING, PROFILING, DONE, FAILED = "waiting", "timing", "profiling", "done", "failed"
SAMPLING = "sampling"
"""States of an observation: compilation has not settled, the window is timed, profiled, measured; or it failed. While
it is ``sampling``, all but the samples is measured."""


@dataclass(frozen=True)
class ObservedGraph:
    """One compiled graph of the process. Its place in ``ObservedSteps.graphs`` is its number in the trace."""

    path: str  # the path of its compiled module; empty if the module is unknown
    cuda_graphs: bool = False  # whether calls replay CUDA graphs
    cuda_graph_refusal: str = ""  # Inductor's reason for not using CUDA graphs although they were asked for; else empty
    writes_inputs: bool = False  # whether it writes inputs that move, for which Inductor refuses CUDA graphs
    host_time_s: float | None = None  # the median time of a call on the host's clock, without the profiler


@dataclass(frozen=True)
class ObservedOptimizer:
    """An optimizer whose steps were seen."""

    name: str  # the name of its class
    module: str  # the module that defines the class, such as ``torch.optim.adamw``
    is_fused: bool = False  # whether ``fused=True`` is set for all of its parameters


class TimedKind(Protocol):
    """Steps of one kind, with their times; the fields as in :class:`OtherSteps`."""

    @property
    def count(self) -> int: ...
    @property
    def time_s(self) -> float: ...
    @property
    def error_s(self) -> float | None: ...
    @property
    def pooled(self) -> int: ...


@dataclass(frozen=True)
class OtherSteps:
    """Steps of one kind: they called the same graphs, with the same sizes if the shapes are dynamic."""

    graphs: tuple[int, ...]  # the numbers of the compiled graphs that they called
    count: int  # the number of these steps
    time_s: float  # their median time
    among: int | None = None  # the number of steps among which they were counted; older records do not know it
    sizes: tuple[int, ...] = ()  # the different sizes in their calls of graphs for dynamic shapes
    p90_s: float | None = None  # the time that 90% of them take at most; older records do not know it
    share: float | None = None  # the share of the time of all ``among`` steps, 0 to 1; older records do not know it
    profiled: int | None = None  # the number of profiled steps of this kind; older records do not know it
    pooled: int = 0  # the number of rare kinds that are summed up here; 0 for a kind by itself
    interrupted: bool = False  # whether other calls interrupted these steps
    error_s: float | None = None  # the standard error of ``time_s``; older records do not know it
    # the places of the profiled steps of this kind among all profiled steps that count; older records do not know them
    profiled_places: tuple[int, ...] = ()


DIFFERENT_TIMES = 0.1
"""Kinds of steps take different times if their medians differ by at least this share of the median of all kinds."""

ERRORS = 5.0
"""The medians of two kinds differ if the difference is at least this many times its standard error."""


def take_different_times(kinds: Sequence[TimedKind], least: int = 1) -> bool:
    """Whether at least two kinds of steps take different times, by more than the scatter of their steps explains.

    Among many kinds of few steps the longest and the shortest median differ by chance. The scatter of a kind is at
    least the usual one of the kinds, because that of few steps may be small by chance.

    Args:
        kinds: the kinds; one that sums up several kinds does not count.
        least: the number of steps of a kind from which it counts.
    """
    kinds = [kind for kind in kinds if not kind.pooled and kind.count >= least and kind.time_s > 0]
    if len(kinds) < 2:
        return False
    scatters = [(kind.error_s or 0.0) * math.sqrt(kind.count) / kind.time_s for kind in kinds]
    usual = statistics.median_low(scatters)
    errors = [
        max(scatter, usual) * kind.time_s / math.sqrt(kind.count) for kind, scatter in zip(kinds, scatters, strict=True)
    ]
    much_s = DIFFERENT_TIMES * statistics.median(kind.time_s for kind in kinds)
    pairs = itertools.combinations(zip((kind.time_s for kind in kinds), errors, strict=True), 2)
    return any(abs(a - b) >= max(much_s, ERRORS * math.hypot(x, y)) for (a, x), (b, y) in pairs)


@dataclass(frozen=True)
class ClockSample:
    """The clock of a GPU's multiprocessors during a timed step."""

    step: int  # the number of the step
    mhz: int
    limits: tuple[str, ...] = ()  # what throttled it, in words


OTHERS_BUSY = 0.05
"""Share of the time in which other processes' kernels ran, by their ids, from which they used the GPU."""


@dataclass(frozen=True)
class GpuSharing:
    """What the driver says of all processes on a GPU, while the steps of one were measured.

    The program's own processes, and those of this tool, count as one.
    """

    others: tuple[OtherProcess, ...] = ()  # the other processes; in a container those that it shows
    own_busy: float | None = None  # the share of the time in which kernels of the program ran; ``None`` if unknown
    busy: float | None = None  # the share of the time in which kernels of any process ran, 0 to 1
    held_bytes: int | None = None  # device memory that no process holds that the driver names

    @property
    def others_share(self) -> float:
        """The share of the time in which kernels of other processes ran, by their ids; 0 below :data:`OTHERS_BUSY`."""
        share = math.fsum(one.busy or 0.0 for one in self.others)
        return min(1.0, share) if share >= OTHERS_BUSY else 0.0


@dataclass(frozen=True)
class GraphCallers:
    """The lines of the user's program from which one compiled graph was called in the profiled steps."""

    graph: int  # its place in ``ObservedSteps.graphs``
    lines: tuple[SourceLine, ...]  # the innermost line of the user's own code around a call
    calls: tuple[int, ...]  # for each call in order the place of its line in ``lines``; -1 if it is unknown

    def __post_init__(self) -> None:
        if not all(-1 <= place < len(self.lines) for place in self.calls):
            raise ValueError("a call of a graph has no line")


OWN, LIBRARY, TORCH, PYTHON_LIBRARY, GENERATED = "own", "library", "torch", "python", "generated"
"""Whose code a sampled frame runs: the user's, an installed package's, torch's or Triton's, Python's, or code without a
file of a package, such as the modules that Inductor writes."""


@dataclass(frozen=True)
class SampledFrame:
    """A place in the code that a sampled thread ran."""

    file: str  # the path of the file; of generated code its name
    function: str  # the qualified name of the function; before Python 3.11 its bare name
    line: int
    owner: str  # whose code it is: one of the words above
    is_call: bool = False  # whether the instruction is a call; if no frame is above it, what it calls is not Python
    span: tuple[int, ...] = ()  # the expression: its first and last line, first column, and end in bytes
    code: str = ""  # the text of the line; it is read later, as the next one
    called: str = ""  # what the expression calls: ``time.sleep``, or ``.item`` of a value without a name


@dataclass(frozen=True)
class SampledStack:
    """A stack that the step's thread was seen in. Times are the sums of what its samples stand for, in seconds."""

    node: int  # the innermost frame: a place in ``HostSamples.parents``
    waiting_s: float = 0.0  # while the device had nothing to do; on a CPU all of the time
    working_s: float = 0.0  # while the device worked
    waiting: int = 0  # the number of samples that found the device idle
    working: int = 0  # the number of samples that found it at work
    is_collection: bool = False  # whether the garbage collector ran; such times are measured and not sampled


@dataclass(frozen=True)
class HostSamples:
    """What the thread of the steps did in steps that were timed without the profiler, by a sampler.

    Blocks of steps without the sampler and with it were run in turn.
    """

    frames: tuple[SampledFrame, ...]
    # a tree of stacks: for each node the one that called it (-1 for none), and its frame
    parents: tuple[int, ...]
    frame_of: tuple[int, ...]
    stacks: tuple[SampledStack, ...]
    steps: int  # the number of sampled steps
    steps_s: float  # the sum of their times
    # the times of the steps of each block, in order; every second one, from the second on, was sampled
    blocks: tuple[tuple[float, ...], ...]
    sees_device: bool  # whether each sample asked the device if it was idle

    def __post_init__(self) -> None:
        if len(self.parents) != len(self.frame_of):
            raise ValueError(f"{len(self.parents)} parents of {len(self.frame_of)} nodes of stacks")
        if not all(-1 <= parent < node for node, parent in enumerate(self.parents)):
            raise ValueError("a node of stacks does not follow its parent")
        if not all(0 <= frame < len(self.frames) for frame in self.frame_of):
            raise ValueError("a node of stacks has no frame")
        if not all(0 <= stack.node < len(self.parents) for stack in self.stacks):
            raise ValueError("a stack has no node")


@dataclass(frozen=True)
class HostTraceFrame:
    """A function and a line in a :class:`HostTrace`."""

    name: str
    file: str
    line: int
    owner: str = OWN  # as in ``SampledFrame``


@dataclass(frozen=True)
class HostTraceProfile:
    """The stacks of one thread in a :class:`HostTrace`. ``samples`` are places of frames, the outermost first."""

    name: str
    type: str
    unit: str
    startValue: float
    endValue: float
    samples: tuple[tuple[int, ...], ...]
    weights: tuple[float, ...]  # seconds


@dataclass(frozen=True)
class HostTraceFrames:
    """The frames of a :class:`HostTrace`."""

    frames: tuple[HostTraceFrame, ...]


@dataclass(frozen=True)
class HostTrace:
    """What the host did, in the format of speedscope.app, whose names its fields have.

    Each process has the stacks in which its device waited, and then those in which it did not.
    """

    shared: HostTraceFrames
    profiles: tuple[HostTraceProfile, ...]


@dataclass(frozen=True)
class ObservedSteps:
    """The steps of one process, written as ``<pid>.steps.json`` into the capture's folder.

    The file is written anew at each change of ``state``, so that a program that dies leaves what was measured.
    """

    pid: int  # id of the process
    device: str  # the type of the device whose work the step waits for: ``cuda``, ``xpu`` or ``cpu``
    state: str  # one of the states above
    rank: int | None = None  # of a process of a distributed program; ``None`` otherwise
    source: str = ""  # ``marks``, ``optimizer`` or ``pattern``; empty before steps were recognised
    steps: int = 0  # the number of steps that ended until now
    settled_after: int = 0  # the number of steps before the first timed one
    # the time from the first compilation to the timed window; ``None`` before it begins
    settling_time_s: float | None = None
    # the part of that time in which nothing was compiled: whole steps, and the observation's work
    settling_steps_s: float = 0.0
    compiling_steps: int = 0  # the number of steps in the rest of it, in which something was compiled
    first_step_time_s: float | None = None  # the time of the first step
    # the times of the settled steps without the profiler, in order, on the device's clock if there is one
    step_times_s: tuple[float, ...] = ()
    step_numbers: tuple[int, ...] = ()  # the number of each of them, as the program counts them from 0
    steps_before_profile: int = 0  # the number of them that came before the profile; the others came after it
    # the kinds of further steps, between these: kinds that were not profiled. The kinds of the steps are known for the
    # window and the settled steps before the profile.
    other_steps: tuple[OtherSteps, ...] = ()
    # the kinds of the steps of ``step_times_s``; empty if there are no steps of another kind. If there are
    # ``other_steps``, steps between samples of the host are not counted.
    step_kinds: tuple[OtherSteps, ...] = ()
    window_s: float = 0.0  # the sum of ``step_times_s``
    # their median on the host's clock; shorter than on the device's if the host runs ahead and waits for nothing
    host_step_time_s: float | None = None
    clocks: tuple[ClockSample, ...] = ()  # of the GPU during these steps, about every 0.1 s
    # the most that torch allocated on the device until these steps ended; on a CPU the process's largest size
    peak_memory_bytes: int | None = None
    sharing: GpuSharing | None = None  # of the GPU during these steps; ``None`` without a GPU
    load: MachineLoad | None = None  # of the machine in the timed window; ``None`` if no window ended
    profiled_steps: int = 0  # the number of whole steps between the first and the last boundary in ``trace``
    graphs: tuple[ObservedGraph, ...] = ()  # the compiled graphs in the order of their first call
    optimizers: tuple[ObservedOptimizer, ...] = ()  # those whose steps ran eagerly, in the order of their first step
    trace: str = ""  # the path of the profiler's trace of the profiled steps; empty if there is none
    # the path of a second trace of one step, recorded with Python stacks and modules; empty if there is none
    lines_trace: str = ""
    callers: tuple[GraphCallers, ...] = ()  # where the graphs in ``trace`` were called; older records do not know it
    samples: HostSamples | None = None  # what the host did in further steps; ``None`` if it was not sampled
    # the seconds that the program waited for the profiler, by the action of the schedule: ``export`` writes a trace
    phases_s: dict[str, float] = field(default_factory=dict)
    error: str = ""  # the reason of a failure, in words
    unprofiled: str = ""  # why the program ended before its steps were profiled, in words; empty if they were
    notes: tuple[str, ...] = ()  # what limits the figures, in words


@dataclass(frozen=True)
class GraphCallTouches:
    """The places in memory of one graph call's arguments and results, in order: address and bytes of each.

    Both are 0 for what is no tensor.
    """

    graph: int
    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class ObservedTouches:
    """The graph calls of one step in their order, written as ``<pid>.touches.json`` beside ``<pid>.steps.json``.

    The step is the one of ``ObservedSteps.lines_trace``; ``graph`` is the place in ``ObservedSteps.graphs``.
    """

    calls: tuple[GraphCallTouches, ...] = ()


# The evidence of a RUN: ``evidence.json``, and the files that it names. What the record says as it was observed (the
# request, the environment, the peaks, the capture, the retunes, the failures) stands there alone.


@dataclass(frozen=True, slots=True)
class CallPlace:
    """Where in the user's program an operator was called."""

    module: str = ""  # the nn.Module that called it; empty if it is unknown
    source: SourceLine | None = None


@dataclass(frozen=True)
class ModuleEvidence:
    """A compiled module of the program: what its processes saw of it, and how it was measured by itself.

    Its text is ``modules/SLUG.py``, the user's lines are in ``modules/SLUG.provenance.json``, and what its own run
    measured is in ``traces/SLUG.details.json``.
    """

    label: str
    slug: Slug
    source_path: str  # the file that Inductor wrote
    calls: int | None = None  # of the program, over all processes; None if no process was observed
    tf32: bool = False  # whether float32 products may be computed in TF32 on a GPU
    bf16: bool = False  # whether they may be computed in bfloat16 on a CPU; older records do not know it
    cuda_graphs: bool = False  # whether the program compiles it for CUDA graphs
    max_autotune: bool = False  # whether the program compiles it with max-autotune
    measurement: Method | None = None  # None if it was not measured
    outputs: Outputs = field(default_factory=Outputs)


@dataclass(frozen=True)
class StepEvidence:
    """What was observed of the steps of one process, with the names of its graphs and its trace."""

    steps: ObservedSteps  # without paths
    modules: tuple[str, ...] = ()  # the slug of each of its graphs' modules; empty if it is unknown
    trace: Place | None = None  # the profiled steps
    problem: str = ""  # why the profile could not be kept
    operators: tuple[tuple[str, int], ...] = ()  # outermost eager operators of one step, in order; and their places
    places: tuple[CallPlace, ...] = ()
    touches: ObservedTouches | None = None  # of the first process that observed them


@dataclass(frozen=True)
class EagerSteps:
    """The steps of the program without compilation."""

    step_time_s: float | None = None  # the mean of the slowest process; None if none was found
    median_step_time_s: float | None = None
    note: str = ""  # why they were not timed


@dataclass(frozen=True)
class CountedCall:
    """A library call and its cost."""

    call: OperatorCall
    cost: OperatorCost


@dataclass(frozen=True)
class Evidence:
    """All that was observed, apart from what the record itself holds."""

    modules: tuple[ModuleEvidence, ...] = ()
    processes: tuple[StepEvidence, ...] = ()
    stopped: bool = False  # whether the program was ended as soon as its steps were measured
    costs: tuple[CountedCall, ...] = ()  # of library calls
    kernel_files: dict[str, Place] = field(default_factory=dict)  # the standalone file of a kernel, by its id
    eager: EagerSteps | None = None

    def with_module(self, module: ModuleEvidence) -> Evidence:
        """The evidence with a module in place of the one of that slug."""
        return replace(self, modules=tuple(module if one.slug == module.slug else one for one in self.modules))

    def with_costs(self, found: Iterable[CountedCall]) -> Evidence:
        """The evidence with further calls, or with other costs of the same calls."""
        costs = {one.call: one for one in (*self.costs, *found)}
        return replace(self, costs=tuple(costs.values()))

    def without_steps(self) -> Evidence:
        """Only the evidence of the modules."""
        return replace(self, processes=())

"""The record of one run: its program's step, ledger, timeline and layers, and its modules. See record.json."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from .base import Failure, Inline, OtherProcess, Place, Slug
from .code import CompiledFunction, CompilePhase, MachineLoad, SourceLine
from .module import ModuleRecord
from .request import BreakdownRequest
from .retune import MeasuredKernel, Retune, Verification


@dataclass(frozen=True)
class LayerWork:
    """The work of a layer's or a line's kernels in a step, without its FLOPs."""

    product_time_s: float = 0.0  # the part of ``time_s`` in matrix products, convolutions and attention
    uncounted_s: float = 0.0  # the part of ``product_time_s`` whose FLOPs are unknown
    # seconds that the FLOPs would take at the device's measured peaks for their types; ``None`` if a peak is unknown
    peak_time_s: float | None = None
    # the bytes that its kernels have to read and write at least; ``None`` if they are known for no kernel
    moved_bytes: float | None = None
    unmeasured_s: float = 0.0  # the part of ``time_s`` in kernels whose bytes are unknown


@dataclass(frozen=True)
class LayerTime:
    """The device time of one module in one direction in a step, without the time of the modules that it contains.

    All rows of a step add up to its device time. Rows without a layer are work outside of modules.
    """

    # the path of the module from the root object, such as ``Llama.layers.3.mlp.up_proj``; of an eager operator the
    # class of its module; empty outside of modules
    layer: str
    direction: str  # ``forward``, ``backward`` or ``recomputed``; empty if it is unknown
    kind: str  # ``graph``, ``eager``, ``optimizer``, ``collective`` or ``copy``
    time_s: float  # seconds per step
    launches: float  # the number of kernels in a step; a kernel that several layers share counts in part
    shared_s: float = 0.0  # the part of ``time_s`` that comes from kernels that several layers share
    flops: float = 0.0  # of matrix products, convolutions and attention in a step
    work: Inline[LayerWork] = LayerWork()  # the rest of its work


@dataclass(frozen=True)
class LineTime:
    """The device time of one line of the user's program in one direction in a step.

    All rows add up to the step's device time.
    """

    source: SourceLine | None  # ``None`` if the line is unknown
    direction: str  # ``forward``, ``backward`` or ``recomputed``; empty if it is unknown
    kind: str  # ``graph``, ``eager``, ``optimizer``, ``collective`` or ``copy``
    time_s: float  # seconds per step
    launches: float  # the number of kernels in a step; a kernel that several lines share counts in part
    shared_s: float = 0.0  # the part of ``time_s`` that comes from kernels that several layers share
    flops: float = 0.0  # of matrix products, convolutions and attention in a step
    work: Inline[LayerWork] = LayerWork()  # the rest of its work
    # if no line of its kernels is the program's own, and ``source`` is a library's line or ``None``: the program's line
    # that calls the graph. ``None`` if the program has lines for these kernels, if the line of the call is unknown,
    # and in older records
    called_at: SourceLine | None = None


GRAPH, EAGER, OPTIMIZER, COLLECTIVE, COPY, IDLE = "graph", "eager", "optimizer", "collective", "copy", "idle"
KINDS = (GRAPH, EAGER, OPTIMIZER, COLLECTIVE, COPY, IDLE)
"""The kinds of parts, in the order in which tables list equal ones."""

SYNCHRONISING, ALLOCATING, LAUNCHING, DATA_LOADING, GUARDS, PYTHON, QUEUED = (
    *("synchronising", "allocating", "launching", "data loading", "guards", "Python", "between kernels"),
)
DISPATCHING, CPU_OPERATORS, COPYING, BACKWARD, OPTIMIZING, COLLECTING = (
    *("dispatching", "CPU operators", "copying pageable memory", "backward", "optimizer", "garbage collection"),
)
FOR_LOCK, FOR_FILE, FOR_SOCKET, FOR_PROCESS, FOR_RANKS, SLEEPING = (
    *("waiting for a lock", "reading or writing a file", "waiting for a socket", "waiting for a process"),
    *("waiting for other ranks", "sleeping"),
)
HOST_WORK = (LAUNCHING, DISPATCHING, GUARDS, PYTHON, BACKWARD, OPTIMIZING)
"""What the host did while the device was idle: launching a compiled graph, dispatching eager operators, … In a record
of an earlier version ``launching`` is every operator that is no guard. ``between kernels``: the next work was launched,
but had not begun. ``HOST_WORK`` has the host's work for the step, without waits, copies and loading."""

GRAPH_INPUTS = "inputs of a CUDA graph"
"""The label of the copies of inputs before the replay of a CUDA graph."""

OTHERS = "other eager operators"
"""The label of the part that sums up eager operators that are too short for a part of their own."""

MARKS, OPTIMIZER_STEPS, PATTERN = "marks", "optimizer", "pattern"
"""What delimits the steps: the program's own marks, its optimizer steps, or the repeating pattern of compiled calls."""

LONGER_LOOP = "the counted step is a part of a longer loop"
"""The first words of the note that other compiled calls recur between the steps of the pattern."""


@dataclass(frozen=True)
class SummedOperator:
    """One of the short operators that a part sums up. Both figures are means per step."""

    label: str  # the operator
    calls: float  # the number of its calls
    time_s: float  # seconds of the step's wall time


@dataclass(frozen=True)
class Part:
    """A part of the step's wall time. All figures are means per step.

    The parts of one step are disjoint, and their times add up to the step's time. If two device activities overlap,
    the time counts once: computation before collectives, collectives before copies.
    """

    kind: str  # ``graph``, ``eager``, ``optimizer``, ``collective``, ``copy`` or ``idle``
    # a compiled graph, an operator, an optimizer, a collective, a direction of copies, or what the host did while the
    # device was idle: ``synchronising``, ``allocating``, ``launching`` (a compiled graph), ``dispatching`` (eager
    # operators), ``data loading``, ``guards``, ``Python``, … or ``between kernels`` (the next work was launched, but
    # had not begun)
    label: str
    calls: float  # the number of calls
    time_s: float  # seconds of the step's wall time
    share: float  # the share of the step's wall time, 0 to 1
    # the sum of the durations on the device; longer than ``time_s`` if it overlaps with other parts. For a collective
    # it leaves out the wait that only the profiler causes. On a CPU it is ``None``.
    device_time_s: float | None = None
    replays: float = 0.0  # the number of calls that replayed a CUDA graph
    launches: float = 0.0  # the number of device activities
    # the slug of the compiled graph; ``None`` for another kind, and for a graph that no file describes
    graph: Slug | None = None
    module: str = ""  # the ``nn.Module`` that called the operator; empty if it is unknown
    source: SourceLine | None = None  # the user's line; ``None`` if it is unknown
    refusal: str = ""  # for a compiled graph: Inductor's reason for not using CUDA graphs although they were asked for
    # for a compiled graph: whether it writes into inputs whose addresses differ between calls, for which Inductor
    # refuses CUDA graphs
    writes_inputs: bool = False
    moved_bytes: float | None = None  # for copies: the bytes that one step copies; ``None`` if they are unknown
    pageable_s: float = 0.0  # for copies: the part of ``device_time_s`` that copies from or to pageable memory take
    # for an optimizer: whether torch's fused kernels take most of its device time, or it has ``fused=True``
    is_fused: bool = False
    # for an optimizer: the module that defines its class, such as ``torch.optim.adamw``; empty if it is unknown
    defined_in: str = ""
    # for eager operators: the type of their first floating-point tensor; empty if it is unknown or differs
    dtype: str = ""
    # the short eager operators whose times this part adds up; empty for any other part, and in records of older
    # versions
    summed: tuple[SummedOperator, ...] = ()
    function: str = ""  # for sampled idle time: the function or the graph that the host ran; else empty
    samples: int = 0  # if samples divide the idle time: the number of those that show it; 0 in older records

    @property
    def hidden_s(self) -> float:
        """Device seconds that overlap with other parts."""
        return max(0.0, (self.device_time_s or 0.0) - self.time_s)


@dataclass(frozen=True)
class HostStretch:
    """What the host did at one line of the user's program while the device waited for the host, or the host for the
    device."""

    label: str  # what the host did, in the words of an idle part's ``label``
    function: str  # what ran: the innermost function, or the compiled graph
    time_s: float  # seconds of a step
    samples: int  # the number of samples with this line and function
    source: SourceLine | None = None  # the innermost line of the user's own code; ``None`` if it is unknown


@dataclass(frozen=True)
class HostWork:
    """What the host did while the device waited. A sampler looked at the host's thread in steps without the
    profiler."""

    # the longest first; they add up to the idle time without the gaps between kernels
    stretches: tuple[HostStretch, ...]
    # the number of samples in which the device waited; on a CPU the number of samples outside of operators
    samples: int
    every: int  # the number of all samples
    steps: int  # the number of steps that were sampled
    # how much longer sampled steps were than the steps before and after them, as a share: the median over the blocks
    cost: float
    cost_low: float  # the lower end of its interval
    cost_high: float  # the upper end of its interval
    blocks: int  # the number of blocks that were sampled


@dataclass(frozen=True)
class ProgramChange:
    """One change of a program or of its settings, in a form that a tool can try."""

    # what is set: ``compile`` (an argument of ``torch.compile``), ``config`` (an option of ``torch._inductor.config``),
    # ``setting`` (an attribute of torch, or its argument), ``argument`` (of a call in the program), ``environment`` (a
    # variable) or ``line`` (a line of the program that is to be written in another way)
    kind: str
    setting: str  # its name: ``mode``, ``AdamW.fused``, ``torch.backends.cudnn.benchmark``
    value: str  # its value as Python writes it; empty if it has to be found by trying
    source: SourceLine | None = None  # the line of the program that it concerns; ``None`` if it is unknown


@dataclass(frozen=True)
class Prediction:
    """What a finding's change would save of the step, simulated. On a CPU it is the time of the part that the change
    removes.

    The simulation repeats the profiled steps as a queue of the host's work, launches, streams and waits. Its host is as
    fast as the host in the unprofiled step.
    """

    finding: str  # the finding's kind, and a hash of the graphs, kernels and parts that it is about
    kind: str  # its kind
    saving_s: float  # seconds of the step; negative if the step becomes longer
    uncertainty_s: float  # the uncertainty of these seconds
    device_saving_s: float | None = None  # what the change would save if the host took no time; ``None`` on a CPU
    # single changes, each without the others; empty if no setting or line is known
    changes: tuple[ProgramChange, ...] = ()


@dataclass(frozen=True)
class StepKind:
    """Steps that called the same graphs, with the same sizes if the shapes are dynamic: the requests of one size, an
    evaluation, another network."""

    count: int  # the number of these steps
    time_s: float  # their median time
    # the slugs of the graphs that they called; empty for rare kinds that called different graphs
    graphs: tuple[Slug, ...] = ()
    among: int | None = None  # the number of steps among which they were counted; older records do not know it
    labels: tuple[str, ...] = ()  # the names of these graphs
    sizes: tuple[int, ...] = ()  # the different sizes in their calls of graphs for dynamic shapes
    p90_s: float | None = None  # the time that 90% of them take at most; older records do not know it
    share: float | None = None  # the share of the time of all ``among`` steps, 0 to 1; older records do not know it
    # the number of profiled steps of this kind, which the parts and the kernels describe; older records do not know it
    profiled: int | None = None
    pooled: int = 0  # the number of rare kinds that are summed up here; 0 for a kind by itself
    interrupted: bool = False  # whether other calls interrupted these steps
    error_s: float | None = None  # the standard error of ``time_s``; older records do not know it


@dataclass(frozen=True)
class ClockReading:
    """The clock of the GPU during a timed step."""

    place: int  # the place of the step in ``step_times_s``
    mhz: int  # the clock of the multiprocessors in MHz
    limits: tuple[str, ...] = ()  # what throttled it, in words


@dataclass(frozen=True)
class OtherWork:
    """The work of other programs on the GPU while the steps were measured, according to the GPU's driver."""

    share: float  # the share of the time in which their kernels ran, 0 to 1
    processes: tuple[OtherProcess, ...] = ()  # the processes that ran the kernels, if the driver names them


@dataclass(frozen=True)
class CallStretch:
    """Some of the step's calls of compiled graphs: calls that repeat, or the calls between repetitions.

    A stretch lasts from the start of its first work on the device to the end of its last work. Times are means over the
    profiled steps, scaled down to the unprofiled step.
    """

    graphs: tuple[Slug, ...]  # the slugs of the graphs of one repetition, in the order of their calls
    labels: tuple[str, ...]  # the names of these graphs
    repetitions: float  # the number of repetitions in a step
    time_s: float  # the time of one repetition
    busy_time_s: float  # the part of ``time_s`` in which the device works

    @property
    def whole_s(self) -> float:
        """The time of all repetitions."""
        return self.repetitions * self.time_s


@dataclass(frozen=True)
class RankSteps:
    """The step of one process."""

    rank: int | None  # the rank in a distributed program; ``None`` in a program of one process
    pid: int  # the id of the process
    device: str  # the type of its device
    step_times_s: tuple[float, ...]  # the unprofiled steps, in order, in seconds
    # the median of the steps in ``level``; their mean if they vary widely, or are of several kinds. If the profile does
    # not tell the kinds apart, as in older records: the mean of the medians of the kinds, each with the weight of its
    # profiled steps.
    step_time_s: float
    # the time in which the device works (overlaps count once), as a mean over the profiled steps; ``None`` without a
    # profile. If it is longer than ``step_time_s``, collectives are shortened, at most to nothing, until it fits. On a
    # CPU: the time in which operators or graphs run on the thread of the steps, scaled from the profiled step to
    # ``step_time_s``. The first line has the rest of the step as idle: the sum of the idle parts, which
    # ``step_costs.compute_idle_share`` computes.
    busy_time_s: float | None = None
    profiled_step_time_s: float | None = None  # the mean time of the profiled steps; the profiler slows the host
    profiled_steps: int = 0  # the number of profiled steps that the parts describe
    # the share of the compiled graphs' device time that is tied to a kernel and a call of a graph
    tied_share: float | None = None
    parts: tuple[Part, ...] = ()  # the ledger, the longest part first; empty without a profile
    trace: Place | None = None  # the profiled steps; opens in Perfetto
    host: HostWork | None = None  # what the host did while the device waited; ``None`` if it was not sampled
    # where the host waited for the device in the profiled steps, the longest first. Their seconds are per profiled
    # step, and include waits while the device works. If only samples show a wait, it also has a function.
    waits: tuple[HostStretch, ...] = ()
    # which steps the figures describe, if the step's time changed: the places in ``step_times_s`` of the first one, and
    # of the one after the last
    level: tuple[int, int] = (0, 0)
    # the number of each step of ``step_times_s``, if the program's steps are counted from 0; empty in older records
    step_numbers: tuple[int, ...] = ()
    steps_before_profile: int = 0  # the number of timed steps before the profiled ones
    # the load of the machine in the timed window of these steps; ``None`` if it is unknown
    load: MachineLoad | None = None
    # the weight of each profiled step in all means over them, if the steps are of several kinds: the share of its
    # kind among the timed steps, divided by its share among the profiled ones. Empty if all have the same weight.
    step_weights: tuple[float, ...] = ()


@dataclass(frozen=True)
class Program:
    """The program's step. The times and the parts are from the process that sets the pace."""

    # the median timed step in seconds, without the profiler; the mean if the steps vary widely, or
    # are of several kinds. ``RankSteps`` says more.
    step_time_s: float
    step_times_s: tuple[float, ...]  # the timed steps, in order
    # what delimits the steps: ``marks`` (the program's own), ``optimizer`` (its optimizer steps) or ``pattern`` (the
    # repeating pattern of compiled calls)
    step_source: str
    # the time in which the device works (overlaps count once), as a mean over the profiled steps; on a CPU the time in
    # which operators or graphs run, scaled to ``step_time_s``. ``RankSteps`` says more. The busy share of the first
    # line is this time divided by ``step_time_s``, at most 1; the idle share is the rest.
    busy_time_s: float | None = None
    parts: tuple[Part, ...] = ()  # the parts of the step, which add up to it
    first_step_time_s: float | None = None  # the time of the first step, which compiles; ``None`` if it is unknown
    settled_after: int = 0  # the number of steps before the first timed one
    steps: int = 0  # the number of steps that the program ran while it was observed
    stopped: bool = False  # whether ``--stop`` ended the program after the window
    ranks: tuple[RankSteps, ...] = field(default_factory=tuple)  # every observed process, by rank
    unprofiled: str = ""  # why its steps were not profiled, in words; empty if they were
    notes: tuple[str, ...] = ()  # what limits these figures, in words
    # the mean step of the same program without compilation, by ``--eager``; else ``None``
    eager_step_time_s: float | None = None
    eager_median_step_time_s: float | None = None  # the median of the same steps
    # which steps the figures describe, if the step's time changed: the places in ``step_times_s`` of the first one, and
    # of the one after the last
    level: tuple[int, int] = (0, 0)
    clocks: tuple[ClockReading, ...] = ()  # the GPU's clock during some of the timed steps
    # the largest number of bytes that torch allocated on the device until the timed steps ended; on a CPU the largest
    # resident size of the process
    peak_memory_bytes: int | None = None
    # what other programs did on the GPU during the steps; if there are several GPUs, on the GPU that they used most;
    # ``None`` if they did nothing, or if the driver does not report it
    others: OtherWork | None = None
    # the kinds of steps that were not profiled, those that take most time first; ``step_times_s`` leaves them out
    other_steps: tuple[StepKind, ...] = ()
    # the kinds of the steps of ``step_times_s``, those that take most time first; empty if all steps are of one kind.
    # Steps between samples of the host are counted here only if each kind was profiled.
    step_kinds: tuple[StepKind, ...] = ()
    stretches: tuple[CallStretch, ...] = ()  # the loops within a step; empty if no calls repeat in it
    host: HostWork | None = None  # what the host did while the device waited; ``None`` if it was not sampled
    waits: tuple[HostStretch, ...] = ()  # where the host waited for the device; ``RankSteps`` says more
    # the device time of a step by module of the model, the longest first; empty without a profile
    layers: tuple[LayerTime, ...] = ()
    # the class of each layer, also of layers that contain others
    layer_classes: dict[str, str] = field(default_factory=dict)
    lines: tuple[LineTime, ...] = ()  # the same time by line of the program
    # what the findings' changes would save, as far as they can be simulated, the largest saving first
    predictions: tuple[Prediction, ...] = ()


HOST_LANE = "host"
"""The lane of the thread that crosses the steps' boundaries. Every other lane belongs to a device's stream."""


@dataclass(frozen=True)
class Interval:
    """A stretch of time on the host or on a stream of the device. Seconds count from the step's start.

    ``kind`` and ``label`` are as in a :class:`Part`.

    On the host, ``kind`` names what the host works for, and is ``idle`` if no operator and no graph runs;
    ``label`` then says what the host does.
    """

    lane: str
    start_s: float
    end_s: float
    kind: str
    label: str


@dataclass(frozen=True)
class KernelSpans:
    """When a kernel of a compiled graph ran in the step of a timeline."""

    graph: str  # the slug of the graph's module
    name: str  # the name of the kernel
    lane: str  # the lane that it is drawn below
    spans_s: tuple[tuple[float, float], ...]  # start and end of each call, in seconds from the step's start


@dataclass(frozen=True)
class Timeline:
    """One profiled step of the process that sets the pace, for a picture: ``RUN/traces/step.timeline.json``."""

    time_s: float  # the time of this step; the profiler slows the host
    # at most :data:`MOST_INTERVALS`, by lane and start. Neighbours of one kind and label are merged if they are too
    # short to be seen.
    intervals: tuple[Interval, ...] = ()
    rank: int | None = None  # the rank of the process; ``None`` in a program of one process
    # the kernels of compiled graphs in this step: the longest :data:`MOST_INTERVALS` calls
    kernels: tuple[KernelSpans, ...] = ()


MOST_INTERVALS = 5000
"""The most intervals of a timeline."""


@dataclass(frozen=True)
class Versions:
    """The versions of the software."""

    python: str = ""  # the version of Python
    torch: str = ""  # the version of torch
    triton: str | None = None  # the version of Triton; ``None`` if it is not installed


@dataclass(frozen=True)
class Host:
    """The processor and the main memory."""

    cpu: str = ""  # the name of the processor
    cpu_count: int = 0  # the number of CPUs that the process may use
    threads: int | None = None  # the number of torch's threads
    vector_isa: str | None = None  # the vector instructions for which Inductor generates C++
    memory_bytes: int | None = None  # the machine's main memory


@dataclass(frozen=True)
class AcceleratorFacts:
    """The accelerator that torch uses."""

    accelerator: str | None = None  # the name of the accelerator; ``None`` if torch sees none
    accelerator_count: int = 0  # the number of accelerators
    accelerator_memory_bytes: int | None = None  # the memory of one accelerator
    compute_capability: str | None = None  # the architecture, for example ``9.0``; ``None`` if torch does not know it
    multiprocessors: int | None = None  # the number of multiprocessors of one accelerator
    cuda: str | None = None  # the version of CUDA or HIP for which torch was built
    driver: str | None = None  # the version of the driver


@dataclass(frozen=True)
class Environment:
    """The machine and the versions."""

    versions: Inline[Versions] = Versions()  # the versions of the software
    platform: str = ""  # the operating system and its version
    host: Inline[Host] = Host()  # the processor and the main memory
    device: Inline[AcceleratorFacts] = AcceleratorFacts()  # the accelerator
    # selected environment variables: those that change compilation or speed
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CacheRoof:
    """How fast a processor moves data of one size in its caches."""

    size: int  # the bytes of the data
    bandwidth: float  # the highest bandwidth of data of this size or more


@dataclass(frozen=True)
class Peaks:
    """The measured peaks of a device: the roofs to which shares of peak refer."""

    device: str  # the name of the device
    memory_bandwidth: float  # the bandwidth of large copies in the device's memory
    matmul_flops: dict[str, float]  # dense FLOPs per second by dtype (``float16``, ``bfloat16``, ``float32``, ``tf32``)
    cache_bytes: int | None = None  # the size of a GPU's L2 cache, or of a CPU's last-level cache
    cache_bandwidth: float | None = None  # the bandwidth of data in the cache
    launch_floor_s: float | None = None  # device seconds of an empty kernel; GPU only
    threads: int | None = None  # the number of threads that were used; CPU only
    torch: str = ""  # the version of torch that measured
    measured_at: str = ""  # the time of the measurement (ISO 8601)
    cache_roofs: tuple[CacheRoof, ...] = ()  # the bandwidths of a CPU's caches by the size of the data, ascending

    def find_cache_bandwidth(self, size: float) -> float | None:
        """The highest bandwidth in bytes per second of ``size`` bytes in the caches; ``None`` if it is unknown.

        On a CPU it is that of the largest measured size up to ``size``, or of the smallest one.
        """
        held = [roof for roof in self.cache_roofs if roof.size <= size] or self.cache_roofs[:1]
        return held[-1].bandwidth if held else self.cache_bandwidth


@dataclass(frozen=True)
class Capture:
    """The capture of the modules."""

    printed: int = 0  # the number of modules in the printed lines
    structured: int = 0  # the number of modules in the structured trace
    disagreement: str = ""  # the difference between the two; empty if they agree
    exit_code: int | None = None  # the program's exit code
    time_s: float | None = None  # seconds that the capture took
    graph_breaks: tuple[str, ...] = ()  # torch's messages about graph breaks
    recompiles: tuple[str, ...] = ()  # torch's messages about recompilations
    functions: tuple[CompiledFunction, ...] = ()  # the functions that were compiled again, or that have many guards
    # why the program compiled nothing; empty if it compiled something, or if no reason was observed
    uncompiled: str = ""
    # why no step of the program was timed, in words; empty if one was timed, or if no reason was observed
    no_steps: str = ""
    # the phases of a compilation with empty caches, the longest first; if there are several processes, from the process
    # that compiled longest. Empty if an earlier run compiled a module, and its compile time is not known.
    compile_phases: tuple[CompilePhase, ...] = ()
    compiled_earlier: int = 0  # the number of modules that an earlier run compiled, and that this run took from a cache
    compiled_at: str = ""  # when the latest of these modules was compiled (ISO 8601); empty if there are none


@dataclass(frozen=True)
class Run:
    """A whole run."""

    format: int  # the schema number
    tool_version: str  # the version of inductor-bench that wrote the record
    run_id: str  # a unique name of the run
    created: str  # the time at which the run began (ISO 8601)
    command: str  # the command line, without secrets
    target: str  # what was measured, as it was typed
    title: str  # the name of the run in reports
    request: BreakdownRequest  # the options of the run
    environment: Environment  # the machine and the versions
    # the program's own file, as it was typed; empty if it has none, and in older records
    program_file: str = ""
    program_sha256: str = ""  # the SHA-256 of ``program_file`` in hexadecimal digits
    peaks: Peaks | None = None  # the measured peaks of the device; ``None`` if they were not measured
    # why the measured peaks do not count, for example because the machine was busy; empty if they count, or were not
    # measured
    no_peaks: str = ""
    capture: Capture = field(default_factory=Capture)  # what the capture of the program found
    modules: tuple[ModuleRecord, ...] = ()  # the compiled modules
    failures: tuple[Failure, ...] = ()  # the steps that failed
    retunes: tuple[Retune, ...] = ()  # the retunes of the most expensive kernels
    # the program's step; ``None`` for a target that is no program, and if no step was found
    program: Program | None = None
    # what the retunes save in the program; ``None`` if that was not measured
    verification: Verification | None = None


@dataclass(frozen=True)
class KernelOutcome:
    """The result of ``kernel``: what was measured, what failed, and what was saved."""

    kernels: tuple[MeasuredKernel, ...]  # the measured kernels
    environment: Environment = field(default_factory=Environment)  # the environment of the worker that measured
    peaks: Peaks | None = None  # the measured peaks of the device, if they are known
    failures: tuple[Failure, ...] = ()  # the kernels that could not be measured or tuned
    saved: tuple[Path, ...] = ()  # the files that winners were written to
    retune_s: float = 0.0  # the time in seconds spent on other configurations of all kernels
    interrupted: bool = False  # whether the user stopped the request, so that kernels or tunings are missing


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str  # what was checked
    # ``ok``, ``missing`` (needed), ``optional`` (absent, not needed) or ``broken`` (installed, but its import fails;
    # not needed)
    status: str
    found: str  # what was found, in words
    hint: str = ""  # what to do about it


@dataclass(frozen=True)
class DoctorReport:
    """All checks, the environment, the measured peaks of the requested device, and the optional packages."""

    checks: tuple[Check, ...]  # what is needed
    environment: Environment  # the machine and the versions
    peaks: Peaks | None = None  # the measured peaks of the device; ``None`` if they were not measured
    failure: Failure | None = None  # why the peaks could not be measured
    packages: tuple[Check, ...] = ()  # the optional packages

    @property
    def healthy(self) -> bool:
        return self.failure is None and all(check.status != "missing" for check in self.checks)

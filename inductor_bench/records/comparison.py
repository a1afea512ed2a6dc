"""The records of comparisons: of two runs, A and B, of two kernels, of two batches, and of the modes of a program."""

from __future__ import annotations

from dataclasses import dataclass, field

from .base import Category, Failure, StepTime
from .request import BreakdownRequest
from .retune import Config, MeasuredKernel, Ratio
from .run import Environment

# The comparison of two runs, A and B: what differs between them, and the parts of the difference of their steps.


FASTER, SLOWER, SAME, UNDECIDED = "faster", "slower", "same", "undecided"
"""The verdicts on B against A, as in ``analysis.statistics``."""
NOT_COMPARABLE = "not comparable"

CODE, CONFIG, SPLIT, MERGED = "changed code", "changed config", "fusion split", "fusion merged"
LIBRARY, PRECISION, CALLS = "library call replaced", "float32 precision", "other calls per step"
ADDED, REMOVED, UNCHANGED = "new kernel", "removed kernel", "same code and config"
"""The causes of a kernel's difference. ``UNCHANGED``: its code, its config and its calls are the same, so the
difference comes from the clock, noise, or something around the program."""
KERNEL_CAUSES = (CODE, CONFIG, SPLIT, MERGED, LIBRARY, PRECISION, CALLS, ADDED, REMOVED, UNCHANGED)

GRAPH_REST, REST = "graphs, outside of their kernels", "rest"
"""Further kinds of parts, beside the causes of kernels and the kinds of ``records.run``. ``REST`` is the part of the
step that the parts of the two records do not explain."""

STEP, ITERATION = "step", "iteration"
"""What the seconds of a comparison refer to: the program's step, or one iteration of each graph."""


@dataclass(frozen=True)
class SideSummary:
    """A side of a comparison of runs: what its runs are called, and where they ran."""

    name: str  # the path that the user gave
    title: str  # the title of its first run
    machine: str  # device and versions of its first run, as one line
    created: str  # the time of its first run (ISO 8601)
    runs: int = 1  # the number of its runs; their figures are averaged


@dataclass(frozen=True)
class EnvironmentDifference:
    """A fact that differs between the runs."""

    name: str  # the fact: a version, the device, a variable or an option
    a: str  # its value in A; empty for a variable or an option that is unset
    b: str  # its value in B; empty for a variable or an option that is unset


@dataclass(frozen=True)
class Change:
    """The difference of a time between A and B, with its verdict."""

    a_s: float  # seconds of A
    b_s: float  # seconds of B
    delta_s: float  # seconds of B minus seconds of A
    # lower end of the interval of the difference in seconds; ``None`` if no uncertainty is known
    low_s: float | None
    high_s: float | None  # upper end of the interval
    verdict: str  # the verdict on B: ``faster``, ``slower``, ``same`` or ``undecided``


@dataclass(frozen=True)
class StepChange(Change):
    """The step on both sides, its difference, and the noise between runs."""

    currency: str = STEP  # what the seconds refer to: ``step`` or ``iteration``
    noise: float = 0.0  # the assumed or measured relative difference between two runs of one program
    noise_source: str = ""  # where ``noise`` comes from, in words


@dataclass(frozen=True)
class KindChange(Change):
    """The difference of the steps of one kind (graphs and sizes)."""

    share: float = 0.0  # the share of A's steps that are of this kind
    # the sizes that only this kind has, in words: ``size 96``; empty for all kinds if one has none or many, or if the
    # sizes of one are unknown
    name: str = ""


@dataclass(frozen=True)
class StepProof(Change):
    """The difference of the step in processes of A and B that ran in turn, without a profile."""

    a_steps_s: tuple[float, ...] = ()  # the seconds of a step in each process of A that counts
    b_steps_s: tuple[float, ...] = ()  # the seconds of a step in each process of B that counts
    kinds: tuple[KindChange, ...] = ()  # the differences by kind of step; empty if all are of one kind
    # how the gradients or losses of B differ from those of A; empty if they agree or were not compared
    difference: str = ""
    failure: str = ""  # why a process timed nothing, so that no more of them ran; empty if none failed
    process_s: float = 0.0  # the median of the seconds that a process took
    # what limits the figures, and what else the processes show
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PartChange(Change):
    """A part of the difference. The differences of all parts add up to the difference of the step."""

    cause: str = REST  # a cause of kernels, or a kind of part of the step
    label: str = ""  # the operator, the label of idle time, …; empty for a cause of kernels
    detail: str = ""  # what is known about the part, in words
    kernels: int = 0  # the number of rows of ``kernels`` that belong to this part
    a_calls: float | None = None  # the number of calls in a step of A; ``None`` for causes of kernels and for idle time
    b_calls: float | None = None  # the number of calls in a step of B; ``None`` for causes of kernels and for idle time


@dataclass(frozen=True)
class GraphChange:
    """A compiled graph of A and its counterpart in B."""

    a: str | None  # the graph's label in A; ``None`` if only B has the graph
    b: str | None  # the graph's label in B; ``None`` if only A has the graph
    a_s: float  # seconds in A
    b_s: float  # seconds in B
    delta_s: float  # seconds of B minus seconds of A
    a_calls: float  # the number of its calls in A
    b_calls: float  # the number of its calls in B
    alike: float  # the share of the graphs' kernel time that kernels of both take, 0 to 1


@dataclass(frozen=True)
class KernelSide:
    """A kernel on one side of a comparison, with its calls and its time."""

    name: str  # its name
    kernel_id: str  # a hash of its content
    category: Category  # its category
    graph: str  # the label of its graph
    calls: float  # the number of its calls in a step or an iteration
    time_s: float  # its seconds in a step or an iteration
    configs: tuple[dict[str, int], ...] = ()  # the Triton configs that its runs used
    file: str | None = None  # its standalone file in the first run
    operator: str | None = None  # the library operator that launches it


@dataclass(frozen=True)
class KernelChange:
    """Kernels of A, and the kernels of B that do the same work; several if a fusion or a library call changed."""

    a: tuple[KernelSide, ...]  # the kernels of A
    b: tuple[KernelSide, ...]  # the kernels of B
    delta_s: float  # seconds of B minus seconds of A
    low_s: float  # lower end of the interval of the difference in seconds
    high_s: float  # upper end of the interval
    verdict: str  # the verdict on B: ``faster``, ``slower``, ``same`` or ``undecided``
    cause: str  # the cause of most of the difference
    seconds: dict[str, float] = field(default_factory=dict)  # the difference in seconds by its cause
    detail: str = ""  # what changed, in words


@dataclass(frozen=True)
class RunComparison:
    """The comparison of two runs."""

    comparable: bool  # whether the two runs can be compared, so that there is a verdict
    reasons: tuple[str, ...]  # why they cannot be compared; empty if they can
    verdict: str  # the verdict on the step, or ``not comparable``
    environment_differences: tuple[EnvironmentDifference, ...]  # the facts that differ between the runs
    a: SideSummary  # the side A
    b: SideSummary  # the side B
    step: StepChange  # the difference of the step
    parts: tuple[PartChange, ...] = ()  # they add up to the difference of the step, the largest first
    graphs: tuple[GraphChange, ...] = ()  # the compiled graphs and their counterparts
    kernels: tuple[KernelChange, ...] = ()  # the rows of all kernels, the largest difference first
    notes: tuple[str, ...] = ()  # what limits these figures
    # the processes that decided the verdict; ``None`` if the runs decided it
    proof: StepProof | None = None


# The comparison of two kernels that were timed in turn.


@dataclass(frozen=True)
class Pairing:
    """Two kernels that were timed alternately, each in one configuration."""

    first_config: Config  # the configuration of the first kernel
    second_config: Config  # the configuration of the second kernel
    first_s: float | None = None  # the first kernel's median; ``None`` if the kernels could not be timed
    # the second kernel's median in the same rounds; ``None`` if the kernels could not be timed
    second_s: float | None = None
    ratio: Ratio | None = None  # the second kernel's time divided by the first's
    verdict: str = ""  # the verdict on the second kernel
    reason: str = ""  # the reason why they could not be timed


@dataclass(frozen=True)
class TimedPair:
    """Two kernels that were timed in turn, as they are and in the same configuration."""

    first: MeasuredKernel  # the first kernel's own measurement
    second: MeasuredKernel  # the second kernel's own measurement
    state: str  # the times that were compared: ``cold`` or ``warm``
    as_they_stand: Pairing  # the times of both in their own configurations
    # the times of both in the configuration of the first: the difference is then due to the code. Equal to
    # ``as_they_stand`` if both have the same configuration.
    same_config: Pairing
    best_of_each: Pairing | None = None  # both in their best configurations, if they were retuned
    difference: str = ""  # the difference of their results, or the reason why it is unknown; empty if they are equal
    alike: bool | None = None  # whether both compute the same; ``None`` if unknown
    failures: tuple[Failure, ...] = ()  # failures of their retunes
    notes: tuple[str, ...] = ()  # doubts about the comparability of their times


# The comparison of two batches, model by model.


@dataclass(frozen=True)
class ModelComparison:
    """The comparison of one model of two batches."""

    name: str  # the name of the model
    comparison: RunComparison | None = None  # the comparison of its runs; ``None`` if there is none
    problem: str = ""  # why there is no comparison
    lost: bool = False  # whether A has a run of the model, but the model cannot be compared: B may have broken it


@dataclass(frozen=True)
class BatchComparison:
    """The comparison of two batches."""

    a: str  # the path of A, as it was typed
    b: str  # the path of B, as it was typed
    ratio: float | None  # the geometric mean of the ratios of B's steps to A's; ``None`` if no model is comparable
    models: tuple[ModelComparison, ...]  # the models of A in order, then the models that only B has

    def count(self, verdict: str) -> int:
        """The number of models with a verdict."""
        return sum(model.comparison is not None and model.comparison.verdict == verdict for model in self.models)


# The settings of a row of a comparison of modes.


EAGER, DEFAULT = "eager", "default"
MODES = (EAGER, DEFAULT, "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
"""The modes that are compared if none is chosen; all but the first are modes of ``torch.compile``."""


@dataclass(frozen=True)
class Switch:
    """A switch of torch that ``--with NAME`` turns on."""

    name: str  # the word after ``--with``
    help: str  # what it does
    line: str  # what a user types into the program to have it
    variable: str = ""  # the environment variable that turns it on; empty if the process sets it before it compiles


TF32, CUDNN_BENCHMARK, CHANNELS_LAST = "tf32", "cudnn-benchmark", "channels-last"
SWITCHES = {
    switch.name: switch
    for switch in (
        Switch(TF32, "products of float32 in TF32", 'torch.set_float32_matmul_precision("high")'),
        Switch(CUDNN_BENCHMARK, "cuDNN times its algorithms", "torch.backends.cudnn.benchmark = True"),
        Switch(
            CHANNELS_LAST,
            "the weights of convolutions in channels-last order",
            "model = model.to(memory_format=torch.channels_last)",
        ),
        Switch(
            "freezing",
            "weights become constants (inference only)",
            "TORCHINDUCTOR_FREEZING=1",
            "TORCHINDUCTOR_FREEZING",
        ),
        Switch("cpp-wrapper", "the wrapper in C++", "TORCHINDUCTOR_CPP_WRAPPER=1", "TORCHINDUCTOR_CPP_WRAPPER"),
    )
}


@dataclass(frozen=True)
class ModeSet:
    """A mode of ``torch.compile`` and the settings with which a row of a comparison of modes runs."""

    mode: str  # ``eager``, or a mode of ``torch.compile``
    # the switches of torch that it turns on, by the words after ``--with``, such as ``tf32``
    switches: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)  # variables of the program's processes
    options: dict[str, str] = field(default_factory=dict)  # options of Inductor by name, as text

    @property
    def name(self) -> str:
        """The name of the row: ``default + tf32``."""
        options = (f"inductor.{name}={value}" for name, value in self.options.items())
        variables = (f"{name}={value}" for name, value in self.environment.items())
        return " + ".join([self.mode, *self.switches, *options, *variables])


# The record of a comparison of modes. ``modes.json`` is the JSON of :class:`ModeComparison`.


AGREES, DIFFERS, UNKNOWN = "agrees", "differs", "unknown"
"""The states of the comparison of outputs with and without compilation."""

NOT_TIMED = "not-timed"
"""Kind of the failure of a row that cannot be timed for this program, although nothing went wrong."""


@dataclass(frozen=True)
class Agreement:
    """The comparison of the first outputs with the outputs of the same program without compilation, from the same
    seed."""

    state: str  # ``agrees``, ``differs`` or ``unknown``
    # the root mean square of the difference, divided by the root mean square of the uncompiled output: the largest of
    # all output tensors
    error: float | None = None
    reason: str = ""  # why the state is unknown, or how the outputs differ


@dataclass(frozen=True)
class DeviceWork:
    """What one step launches on the device, from a short profile."""

    time_s: float  # the sum of the durations in seconds
    launches: float  # the number of launches
    busy_share: float  # the share of the process's timed step in which the device works, 0 to 1


@dataclass(frozen=True)
class ModeProcess:
    """What was measured in one process of the program. In a distributed program the figures are from the slowest
    rank."""

    round: int  # the number of the round, from 0. The first one compiles with empty caches.
    step_time_s: StepTime  # the mean step of the timed window
    step_times_s: tuple[float, ...]  # the times of the steps of this window, in order
    source: str  # what delimits the steps: ``marks``, ``optimizer`` or ``pattern``
    device: str  # the type of the device whose work a step waits for
    # the time from the first compilation to the timed window, without the time of the steps between them; ``None``
    # without compilation, and if it is unknown
    compile_time_s: float | None = None
    # the largest number of bytes that torch allocated on the device; on a CPU the largest resident size of the process
    peak_memory_bytes: int | None = None
    threads: int | None = None  # the number of torch's threads in the program
    graph_breaks: tuple[str, ...] = ()  # torch's reasons, one for each break
    calls: int = 0  # the number of calls of ``torch.compile`` whose settings were replaced
    kept_calls: tuple[str, ...] = ()  # the reasons why the settings of other calls were not replaced
    codes: tuple[str, ...] = ()  # names of the files of generated code, made from their content; sorted
    configs: str = ""  # a hash of the configs of all Triton kernels that ran; empty without any
    compiled_graphs: int = 0  # the number of graphs that the process compiled; others came from the caches of the row
    replays: int = 0  # the number of graphs that replay CUDA graphs
    refusals: tuple[str, ...] = ()  # Inductor's reasons for not using CUDA graphs although they were asked for
    work: DeviceWork | None = None  # the device's work in a step; ``None`` without a profile and on a CPU
    agreement: Agreement | None = None  # the comparison of the outputs; ``None`` if they were not compared
    time_s: float = 0.0  # duration of the process
    notes: tuple[str, ...] = ()  # what limits the figures, in words


@dataclass(frozen=True)
class StepRatio:
    """The ratio of a row's step to another row's, over the rounds that both have."""

    ratio: float  # the geometric mean of the rounds' ratios
    low: float  # lower end of its confidence interval
    high: float  # upper end of the interval
    rounds: int  # the number of rounds
    verdict: str  # ``faster``, ``slower``, ``same`` or ``undecided``


@dataclass(frozen=True)
class ModeFigures:
    """The figures of a row, derived from its processes."""

    step_time_s: float  # the geometric mean of the processes' steps
    low_s: float | None = None  # lower end of its 95% confidence interval over the processes; ``None`` for a single one
    high_s: float | None = None  # upper end of the interval; ``None`` for a single process
    # the compile time of the first round; 0 without compilation, ``None`` if it is unknown
    compile_time_s: float | None = None
    recompile_time_s: float | None = None  # the smallest compile time of later rounds, whose caches were filled
    peak_memory_bytes: int | None = None  # the peak memory of the last round, in which nothing is tuned any more
    graph_breaks: int = 0  # the number of graph breaks
    work: DeviceWork | None = None  # the device's work in a step of the first round
    agreement: Agreement | None = None  # the comparison of the outputs in the first round
    to_eager: StepRatio | None = None  # the ratio to the row ``eager``; ``None`` for that row, and if there is none
    to_fastest: StepRatio | None = None  # the ratio to the row with the shortest step; ``None`` for itself
    # number of steps after which the compilation has paid off against ``eager``; ``None`` if it never does, or that
    # is undecided
    pays_after: float | None = None
    cheaper: str = ""  # the name of the row whose compilation is the next shorter one
    to_cheaper: StepRatio | None = None  # the ratio to that row
    # the number of steps after which the longer compilation has paid off against that row
    pays_after_cheaper: float | None = None
    same_code_as: str = ""  # the name of an earlier row that generated the same code and has the same switches


@dataclass(frozen=True)
class ModeRow:
    """One row of a comparison of modes."""

    name: str  # the name of ``settings``
    settings: ModeSet  # the settings of its processes
    processes: tuple[ModeProcess, ...] = ()  # the processes, in the order of their rounds
    failure: Failure | None = None  # why the row ended early; ``None`` if it did not
    figures: ModeFigures | None = None  # the figures; ``None`` before the first process has measured


@dataclass(frozen=True)
class ModeWinner:
    """The row that the comparison of modes advises, and why."""

    name: str  # the name of the row
    lines: tuple[str, ...]  # what to type into the program to have it; empty if nothing has to be typed
    fastest: str  # the name of the row with the shortest step
    equals: tuple[str, ...] = ()  # names of other rows whose difference to the fastest one is within noise
    # whether little is lost if the row is not the fastest; otherwise the noise hides differences that matter, and the
    # row is chosen only for its short compilation
    decided: bool = True


@dataclass(frozen=True)
class ModeComparison:
    """A comparison of modes of one program."""

    format: int  # the schema number
    tool_version: str  # the version of inductor-bench that wrote the record
    created: str  # when the first process began
    command: str  # the command line, without secrets
    target: str  # the program, as it was typed
    title: str  # the name of the program in reports
    request: BreakdownRequest  # the request of the program, without secrets; its ``mode`` is not used
    environment: Environment  # the machine and the versions
    rounds: int  # the number of processes for each row
    rows: tuple[ModeRow, ...]  # the rows, in the order of the request
    program_sha256: str = ""  # the hash of the program's file; empty if it has none
    # the row to take; ``None`` while fewer than two rounds are measured, and if no row is usable
    winner: ModeWinner | None = None

    @property
    def is_complete(self) -> bool:
        """Whether each row has all its rounds, or a failure."""
        return all(row.failure is not None or len(row.processes) == self.rounds for row in self.rows)


# The record of a comparison of modes for each model of a list.


@dataclass(frozen=True)
class ModelModes:
    """The comparison of modes of one model of a list."""

    name: str  # unique in the list; also the name of the folder of its comparison
    comparison: ModeComparison | None = None  # the comparison of its modes; ``None`` if nothing could be compared
    failure: Failure | None = None  # why there is no comparison; ``None`` if there is one


@dataclass(frozen=True)
class ModesByModel:
    """The comparisons of modes of the models of a list."""

    source: str  # the list
    models: tuple[ModelModes, ...]  # the models, in the list's order

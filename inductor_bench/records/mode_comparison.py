"""The record of a comparison of modes, for a program and for each model of a list."""

from __future__ import annotations

from dataclasses import dataclass, field

from .base import Failure, StepTime
from .request import BreakdownRequest
from .run import Environment

# The settings of a row of a comparison of modes.


EAGER, DEFAULT = "eager", "default"
MODES = (EAGER, DEFAULT, "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
"""The modes that are compared if none is chosen; all but the first are those of ``torch.compile``."""


@dataclass(frozen=True)
class Switch:
    """A switch of torch that a set may turn on."""

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
    """The settings of one row."""

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
"""States of the comparison of outputs with those without compilation."""

NOT_TIMED = "not-timed"
"""Kind of the failure of a row that cannot be timed for this program, although nothing went wrong."""


@dataclass(frozen=True)
class Agreement:
    """The comparison of the first outputs with those of the same program without compilation, from the same seed."""

    state: str  # ``agrees``, ``differs`` or ``unknown``
    # the root mean square of the difference divided by that of the uncompiled output: the largest of all output tensors
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
    """What one process of the program measured. Figures of a distributed program are those of its slowest rank."""

    round: int  # the number of the round, from 0. The first one compiles with empty caches.
    step_time_s: StepTime  # the mean step of the timed window
    step_times_s: tuple[float, ...]  # its steps, in order
    source: str  # what delimits the steps: ``marks``, ``optimizer`` or ``pattern``
    device: str  # the type of the device whose work a step waits for
    # the time from the first compilation to the timed window without that of the steps in it; ``None`` without
    # compilation and if it is unknown
    compile_time_s: float | None = None
    # the most memory that torch allocated on the device; on a CPU the most that the process had
    peak_memory_bytes: int | None = None
    threads: int | None = None  # the number of torch's threads in the program
    graph_breaks: tuple[str, ...] = ()  # torch's reasons, one for each break
    calls: int = 0  # the number of calls of ``torch.compile`` whose settings were replaced
    kept_calls: tuple[str, ...] = ()  # the reasons why other calls were left as they are
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
    high: float  # upper end of that interval
    rounds: int  # the number of rounds
    verdict: str  # ``faster``, ``slower``, ``same`` or ``undecided``


@dataclass(frozen=True)
class ModeFigures:
    """The figures of a row, derived from its processes."""

    step_time_s: float  # the geometric mean of the processes' steps
    low_s: float | None = None  # lower end of its 95% confidence interval over the processes; ``None`` for a single one
    high_s: float | None = None  # upper end of that interval; ``None`` for a single process
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
    # the number of steps after which the longer compilation pays against that row
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
    """The advice."""

    name: str  # the name of the row
    lines: tuple[str, ...]  # what to type into the program to have it; empty if nothing has to be typed
    fastest: str  # the name of the row with the shortest step
    equals: tuple[str, ...] = ()  # names of other rows whose difference to the fastest one is within noise
    # whether the row costs little if it is slower after all; otherwise the noise hides differences that matter, and the
    # row is only the one with the shortest compilation
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
    """One model."""

    name: str  # unique in the list; also the name of the folder of its comparison
    comparison: ModeComparison | None = None  # the comparison of its modes; ``None`` if nothing could be compared
    failure: Failure | None = None  # why there is no comparison; ``None`` if there is one


@dataclass(frozen=True)
class ModesByModel:
    """All models of a list."""

    source: str  # the list
    models: tuple[ModelModes, ...]  # the models, in the list's order

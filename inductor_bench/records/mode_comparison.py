"""The record of a comparison of modes, for a program and for each model of a list."""

from __future__ import annotations

from dataclasses import dataclass, field

from .base import Failure, StepTime
from .request import BreakdownRequest
from .run import Environment

# The settings of a row of a comparison of modes.


EAGER, DEFAULT = "eager", "default"
MODES = (EAGER, DEFAULT, "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
"""The modes that are compared where none is chosen; all but the first are those of ``torch.compile``."""


@dataclass(frozen=True)
class Switch:
    """A switch of torch that a set may turn on.

    Attributes:
        name: the word after ``--with``.
        help: what it does.
        line: what a user types into the program to have it.
        variable: the environment variable that turns it on; empty where the process sets it before it compiles.
    """

    name: str
    help: str
    line: str
    variable: str = ""


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
    """The settings of one row.

    Attributes:
        mode: ``eager``, or a mode of ``torch.compile``.
        switches: the switches of torch that it turns on, by the words after ``--with``, such as ``tf32``.
        environment: variables of the program's processes.
        options: options of Inductor by name, as text.
    """

    mode: str
    switches: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)

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
    """The comparison of the first outputs with those of the same program without compilation, from the same seed.

    Attributes:
        state: ``agrees``, ``differs`` or ``unknown``.
        error: the root mean square of the difference divided by that of the uncompiled output: the largest of all
            output tensors.
        reason: why the state is unknown, or how the outputs differ.
    """

    state: str
    error: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class DeviceWork:
    """What one step launches on the device, from a short profile.

    Attributes:
        time_s: the sum of the durations in seconds.
        launches: the number of launches.
        busy_share: the share of the process's timed step in which the device works, 0 to 1.
    """

    time_s: float
    launches: float
    busy_share: float


@dataclass(frozen=True)
class ModeProcess:
    """What one process of the program measured. Figures of a distributed program are those of its slowest rank.

    Attributes:
        round: the number of the round, from 0. The first one compiles with empty caches.
        step_time_s: the mean step of the timed window.
        step_times_s: its steps, in order.
        source: what delimits the steps: ``marks``, ``optimizer`` or ``pattern``.
        device: the type of the device whose work a step waits for.
        compile_time_s: the time from the first compilation to the timed window without that of the steps in it;
            ``None`` without compilation and where it is unknown.
        peak_memory_bytes: the most memory that torch allocated on the device; on a CPU the most that the process had.
        threads: the number of torch's threads in the program.
        graph_breaks: torch's reasons, one for each break.
        calls: the number of calls of ``torch.compile`` whose settings were replaced.
        kept_calls: the reasons why other calls were left as they are.
        codes: names of the files of generated code, made from their content; sorted.
        configs: a hash of the configs of all Triton kernels that ran; empty without any.
        compiled_graphs: the number of graphs that the process compiled; others came from the caches of the row.
        replays: the number of graphs that replay CUDA graphs.
        refusals: Inductor's reasons for not using CUDA graphs although they were asked for.
        work: the device's work in a step; ``None`` without a profile and on a CPU.
        agreement: the comparison of the outputs; ``None`` where they were not compared.
        time_s: duration of the process.
        notes: what limits the figures, in words.
    """

    round: int
    step_time_s: StepTime
    step_times_s: tuple[float, ...]
    source: str
    device: str
    compile_time_s: float | None = None
    peak_memory_bytes: int | None = None
    threads: int | None = None
    graph_breaks: tuple[str, ...] = ()
    calls: int = 0
    kept_calls: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    configs: str = ""
    compiled_graphs: int = 0
    replays: int = 0
    refusals: tuple[str, ...] = ()
    work: DeviceWork | None = None
    agreement: Agreement | None = None
    time_s: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepRatio:
    """The ratio of a row's step to another row's, over the rounds that both have.

    Attributes:
        ratio: the geometric mean of the rounds' ratios.
        low: lower end of its confidence interval.
        high: upper end of that interval.
        rounds: the number of rounds.
        verdict: ``faster``, ``slower``, ``same`` or ``undecided``.
    """

    ratio: float
    low: float
    high: float
    rounds: int
    verdict: str


@dataclass(frozen=True)
class ModeFigures:
    """The figures of a row, derived from its processes.

    Attributes:
        step_time_s: the geometric mean of the processes' steps.
        low_s: lower end of its 95% confidence interval over the processes; ``None`` for a single one.
        high_s: upper end of that interval; ``None`` for a single process.
        compile_time_s: the compile time of the first round; 0 without compilation, ``None`` where it is unknown.
        recompile_time_s: the smallest compile time of later rounds, whose caches were filled.
        peak_memory_bytes: the peak memory of the last round, in which nothing is tuned any more.
        graph_breaks: the number of graph breaks.
        work: the device's work in a step of the first round.
        agreement: the comparison of the outputs in the first round.
        to_eager: the ratio to the row ``eager``; ``None`` for itself and where there is none.
        to_fastest: the ratio to the row with the shortest step; ``None`` for itself.
        pays_after: number of steps after which the compilation has paid off against ``eager``; ``None`` where it never
            does, or that is undecided.
        cheaper: the name of the row whose compilation is the next shorter one.
        to_cheaper: the ratio to that row.
        pays_after_cheaper: the number of steps after which the longer compilation pays against that row.
        same_code_as: the name of an earlier row that generated the same code and has the same switches.
    """

    step_time_s: float
    low_s: float | None = None
    high_s: float | None = None
    compile_time_s: float | None = None
    recompile_time_s: float | None = None
    peak_memory_bytes: int | None = None
    graph_breaks: int = 0
    work: DeviceWork | None = None
    agreement: Agreement | None = None
    to_eager: StepRatio | None = None
    to_fastest: StepRatio | None = None
    pays_after: float | None = None
    cheaper: str = ""
    to_cheaper: StepRatio | None = None
    pays_after_cheaper: float | None = None
    same_code_as: str = ""


@dataclass(frozen=True)
class ModeRow:
    """One row of a comparison of modes.

    Attributes:
        name: the name of ``settings``.
        settings: the settings of its processes.
        processes: the processes, in the order of their rounds.
        failure: why the row ended early; ``None`` where it did not.
        figures: the figures; ``None`` before the first process has measured.
    """

    name: str
    settings: ModeSet
    processes: tuple[ModeProcess, ...] = ()
    failure: Failure | None = None
    figures: ModeFigures | None = None


@dataclass(frozen=True)
class ModeWinner:
    """The advice.

    Attributes:
        name: the name of the row.
        lines: what to type into the program to have it; empty where nothing has to be typed.
        fastest: the name of the row with the shortest step.
        equals: names of other rows whose difference to the fastest one is within noise.
        decided: whether the row costs little if it is slower after all; otherwise the noise hides differences that
            matter, and the row is only the one with the shortest compilation.
    """

    name: str
    lines: tuple[str, ...]
    fastest: str
    equals: tuple[str, ...] = ()
    decided: bool = True


@dataclass(frozen=True)
class ModeComparison:
    """A comparison of modes of one program.

    Attributes:
        format: the schema number.
        tool_version: the version of inductor-bench that wrote the record.
        created: when the first process began.
        command: the command line, without secrets.
        target: the program, as it was typed.
        title: the name of the program in reports.
        request: the request of the program, without secrets; its ``mode`` is not used.
        environment: the machine and the versions.
        rounds: the number of processes for each row.
        rows: the rows, in the order of the request.
        program_sha256: the hash of the program's file; empty where it has none.
        winner: the row to take; ``None`` while fewer than two rounds are measured, and where no row is usable.
    """

    format: int
    tool_version: str
    created: str
    command: str
    target: str
    title: str
    request: BreakdownRequest
    environment: Environment
    rounds: int
    rows: tuple[ModeRow, ...]
    program_sha256: str = ""
    winner: ModeWinner | None = None

    @property
    def is_complete(self) -> bool:
        """Whether each row has all its rounds, or a failure."""
        return all(row.failure is not None or len(row.processes) == self.rounds for row in self.rows)


# The record of a comparison of modes for each model of a list.


@dataclass(frozen=True)
class ModelModes:
    """One model.

    Attributes:
        name: unique in the list; also the name of the folder of its comparison.
        comparison: the comparison of its modes; ``None`` where nothing could be compared.
        failure: why there is no comparison; ``None`` where there is one.
    """

    name: str
    comparison: ModeComparison | None = None
    failure: Failure | None = None


@dataclass(frozen=True)
class ModesByModel:
    """All models of a list.

    Attributes:
        source: the list.
        models: the models, in the list's order.
    """

    source: str
    models: tuple[ModelModes, ...]

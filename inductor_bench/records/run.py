"""The record of one run. ``record.json`` is the JSON of :class:`Run`."""

from __future__ import annotations

from dataclasses import dataclass, field

from .category import Category
from .code.details import MachineLoad
from .failure import Failure as Failure
from .forms import Inline, Place, Slug
from .kernel import Kernel
from .program import Program
from .retune import Retune


@dataclass(frozen=True)
class Request:
    """The request of a run; see ``workflows.options.BreakdownOptions``."""

    target: str
    kind: str  # "script", "command", "factory", "timm", …, "module", "log", "structured-trace", "run", "trace"
    arguments: tuple[str, ...] = ()
    training: bool | None = None
    batch_size: int | None = None
    amp: str | None = None
    mode: str | None = None
    dynamic: bool | None = None
    device: str | None = None
    seed: int | None = None
    live: bool = False
    timeout_s: float | None = None
    python: str | None = None
    repeat: int | None = None
    steps: int | None = None
    skip: int | None = None
    stop: bool = False


@dataclass(frozen=True)
class Environment:
    """The machine and the versions.

    Attributes:
        threads: the number of torch's threads.
        vector_isa: the vector instructions for which Inductor generates C++.
        memory_bytes: the machine's main memory.
        accelerator: the name of the accelerator that torch uses; ``None`` where it sees none.
        accelerator_memory_bytes: the memory of that one accelerator.
        variables: selected environment variables only.
    """

    python: str = ""
    torch: str = ""
    triton: str | None = None
    platform: str = ""
    cpu: str = ""
    cpu_count: int = 0
    threads: int | None = None
    vector_isa: str | None = None
    memory_bytes: int | None = None
    accelerator: str | None = None
    accelerator_count: int = 0
    accelerator_memory_bytes: int | None = None
    compute_capability: str | None = None
    multiprocessors: int | None = None
    cuda: str | None = None
    driver: str | None = None
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Peaks:
    """The measured peaks of a device: the roofs to which shares of peak refer.

    Attributes:
        memory_bandwidth, cache_bandwidth: bytes per second.
        matmul_flops: dense FLOPs per second by dtype (``float16``, ``bfloat16``, ``float32``, ``tf32``).
        cache_bytes: size of the L2 cache of a GPU, of the last-level cache of a CPU.
        launch_floor_s: device seconds of an empty kernel; GPU only.
        threads: the number of threads that were used; CPU only.
    """

    device: str
    memory_bandwidth: float
    matmul_flops: dict[str, float]
    cache_bytes: int | None = None
    cache_bandwidth: float | None = None
    launch_floor_s: float | None = None
    threads: int | None = None
    torch: str = ""
    measured_at: str = ""


@dataclass(frozen=True)
class CategoryTotal:
    """The sums over all kernels of one category in one module, per iteration."""

    name: Category
    time_s: float
    share: float
    wall_share: float | None
    calls: float
    kernels: int


@dataclass(frozen=True)
class IdleTime:
    """Wall time per iteration in which the device was idle, or on a CPU no kernel ran.

    ``time_s`` is the wall time less the busy time. ``count``, ``median_s`` and ``longest_s`` describe the gaps in the
    profiled runs, whose host side is slower than that of unprofiled runs.
    """

    time_s: float
    count: float
    median_s: float
    longest_s: float


@dataclass(frozen=True)
class Method:
    """The way of measuring a module.

    Attributes:
        method: ``-p`` (the module's own harness in a fresh process), ``live`` (in the capturing process with the
            program's inputs) or ``trace`` (a trace recorded elsewhere).
        method_reason: the reason for the method.
    """

    method: str
    method_reason: str = ""


@dataclass(frozen=True)
class ModuleTimes:
    """The times of a module, per iteration.

    Attributes:
        wall_time_s: the median of ``wall_samples_s``, the times of the unprofiled iterations in order.
        profiled_time_s: the time of a profiled iteration.
        graph_time_s: the time of one replay of the whole module as one CUDA graph.
        busy_time_s: the union of the device's intervals, on a CPU of the kernels'. The profiler can stretch it beyond
            the wall time.
        busy_share: the share of the wall time.
        idle: the rest of the wall time.
    """

    wall_time_s: float | None = None
    wall_samples_s: tuple[float, ...] = ()
    profiled_time_s: float | None = None
    graph_time_s: float | None = None
    busy_time_s: float | None = None
    busy_share: float | None = None
    idle: IdleTime | None = None


@dataclass(frozen=True)
class ProfiledIterations:
    """The iterations of the profile.

    Attributes:
        iterations: the number of profiled iterations.
        steady_iterations: the indices of the iterations that count; the others were disturbed.
    """

    iterations: int = 0
    steady_iterations: tuple[int, ...] = ()

    @property
    def outlier_iterations(self) -> int:
        """The number of profiled iterations that do not count."""
        return self.iterations - len(self.steady_iterations) if self.steady_iterations else 0


@dataclass(frozen=True)
class Outputs:
    """The files of a measurement: its trace, and the log of its process."""

    trace: Place | None = None
    log: Place | None = None


@dataclass(frozen=True)
class Loads:
    """The machine's load during the unprofiled and during the profiled iterations."""

    wall_load: MachineLoad | None = None
    profile_load: MachineLoad | None = None


@dataclass(frozen=True)
class ModuleRecord:
    """The measurement of one compiled module. Figures are per iteration.

    Attributes:
        label: the name in tables, for example ``forward``.
        slug: the name of its files.
        role: see ``records.code.source.ModuleSource``.
        file: the module's text.
        device: ``cuda``, ``xpu`` or ``cpu``.
        measurement: the method, and its reason.
        source_path: the file that Inductor wrote.
        program_calls: the number of the program's calls of the module.
        times: the wall time, the busy time and the idle time.
        launches: the number of device activities.
        peak_memory_bytes: on a GPU the maximum of torch's allocated memory, on a CPU of the process's resident size.
        profiled: the number of profiled iterations, and those that count.
        tf32: whether float32 matrix products may use TF32.
        outputs: the trace and the log.
        loads: the machine's load.
    """

    label: str
    slug: Slug
    role: str
    file: Place | None
    device: str
    measurement: Inline[Method]
    dynamic: bool = False
    source_path: str | None = None
    program_calls: int | None = None
    times: Inline[ModuleTimes] = ModuleTimes()
    launches: float | None = None
    peak_memory_bytes: int | None = None
    profiled: Inline[ProfiledIterations] = ProfiledIterations()
    threads: int | None = None
    tf32: bool = False
    categories: tuple[CategoryTotal, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    outputs: Inline[Outputs] = Outputs()
    notes: tuple[str, ...] = ()
    loads: Inline[Loads] = Loads()


@dataclass(frozen=True)
class Capture:
    """The capture of the modules.

    Attributes:
        printed, structured: the number of modules in the printed lines and in the structured trace.
        disagreement: the difference between the two; empty where they agree.
        exit_code: the program's exit code.
        graph_breaks, recompiles: the messages of torch.
    """

    printed: int = 0
    structured: int = 0
    disagreement: str = ""
    exit_code: int | None = None
    time_s: float | None = None
    graph_breaks: tuple[str, ...] = ()
    recompiles: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """A whole run. ``format`` is the schema number; ``retunes`` are those of its most expensive kernels.

    ``program`` is the program's step; ``None`` for a target that is no program, and where no step was found.
    """

    format: int
    tool_version: str
    run_id: str
    created: str
    command: str
    target: str
    title: str
    request: Request
    environment: Environment
    peaks: Peaks | None = None
    capture: Capture = field(default_factory=Capture)
    modules: tuple[ModuleRecord, ...] = ()
    failures: tuple[Failure, ...] = ()
    retunes: tuple[Retune, ...] = ()
    program: Program | None = None

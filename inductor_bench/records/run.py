"""The record of one run. ``record.json`` is the JSON of :class:`Run`."""

from __future__ import annotations

from dataclasses import dataclass, field

from .category import Category
from .code.details import MachineLoad
from .code.source import SourceLine
from .failure import Failure as Failure
from .forms import Place, Slug
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
class ShapeGroup:
    """The launches of one library kernel by operator calls with the same arguments; figures are per iteration.

    ``operator_calls`` is the number of operator calls that these launches represent. Where several kernels do the work
    of one call, each represents its share of their time, and has that share of the FLOPs and bytes. It is 0 for kernels
    that only rearrange or collect the data of others.
    """

    shapes: str
    calls: float
    time_s: float
    operator_calls: float = 0.0
    flops: float | None = None
    moved_bytes: float | None = None
    dram_bytes: float | None = None


@dataclass(frozen=True)
class Kernel:
    """A kernel of one module. Figures are per iteration, for all calls together.

    Attributes:
        time_s: the mean over the module's steady iterations.
        samples_s: the total of every iteration, in order.
        share: the share of the module's device time, on a CPU of its kernels' time.
        wall_share: the share of the module's wall time, or of its busy time where that is longer.
        dtype: the element type of the products; ``tf32`` for float32 data whose products may use TF32.
        bandwidth, flop_rate: bytes and FLOPs per second.
        peak_share: the share of the roof of ``bound``.
        bound: the roof that limits the kernel: ``memory``, ``compute``, ``cache`` (the cache serves its data, and no
            share of the memory's peak is given), ``latency`` (too short for a roof) or ``unknown``.
        gain_limit_s: the time that one iteration would save if the kernel ran at its roof.
        file: the standalone file.
        line: the line of its definition in the module's ``file``.
        config: block sizes, ``num_warps`` and ``num_stages``.
        registers, grid, block: ``None`` or empty where they differ between calls.
        occupancy: the profiler's estimate, 0 to 1, as a mean over the kernel's time.
        operator: the library operator that launches it.
        shapes: the launches of a library kernel by the arguments of their operator calls.
        unjudged: the reason, due to the kernel itself, why no roof applies.
        family_id: the same for kernels of one structure with other sizes (see ``source.module.identity``).
        dram_bytes: predicted bytes between the cache and DRAM per call of the module in the program's step, for all
            calls of the kernel together; ``None`` without a program.
    """

    name: str
    kernel_id: str
    category: Category
    calls: float
    time_s: float
    samples_s: tuple[float, ...]
    share: float
    wall_share: float | None
    moved_bytes: float | None = None
    flops: float | None = None
    dtype: str | None = None
    bandwidth: float | None = None
    flop_rate: float | None = None
    peak_share: float | None = None
    bound: str = "unknown"
    gain_limit_s: float | None = None
    file: Place | None = None
    line: int | None = None
    kernel_hash: str | None = None
    config: dict[str, int] = field(default_factory=dict)
    registers: int | None = None
    spills: int | None = None
    shared_memory_bytes: int | None = None
    occupancy: float | None = None
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    operator: str | None = None
    shapes: tuple[ShapeGroup, ...] = ()
    source_nodes: tuple[str, ...] = ()
    aten_ops: tuple[str, ...] = ()
    source_lines: tuple[SourceLine, ...] = ()
    unjudged: str = ""
    family_id: str = ""
    dram_bytes: float | None = None


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
class ModuleRecord:
    """The measurement of one compiled module. Figures are per iteration.

    Attributes:
        label: the name in tables, for example ``forward``.
        slug: the name of its files.
        role: see ``records.code.source.ModuleSource``.
        file: the module's text.
        device: ``cuda``, ``xpu`` or ``cpu``.
        method: ``-p`` (the module's own harness in a fresh process), ``live`` (in the capturing process with the
            program's inputs) or ``trace`` (a trace recorded elsewhere).
        method_reason: the reason for the method.
        source_path: the file that Inductor wrote.
        program_calls: the number of the program's calls of the module.
        wall_time_s: the median of ``wall_samples_s``, the times of the unprofiled iterations in order.
        profiled_time_s: the time of a profiled iteration.
        graph_time_s: the time of one replay of the whole module as one CUDA graph.
        busy_time_s: the union of the device's intervals, on a CPU of the kernels'. The profiler can stretch it beyond
            the wall time.
        busy_share: the share of the wall time.
        idle: the rest of the wall time.
        launches: the number of device activities.
        peak_memory_bytes: on a GPU the maximum of torch's allocated memory, on a CPU of the process's resident size.
        iterations: the number of profiled iterations.
        steady_iterations: the indices of the iterations that count; the others were disturbed.
        tf32: whether float32 matrix products may use TF32.
        wall_load, profile_load: the machine's load during the unprofiled and the profiled iterations.
    """

    label: str
    slug: Slug
    role: str
    file: Place | None
    device: str
    method: str
    method_reason: str = ""
    dynamic: bool = False
    source_path: str | None = None
    program_calls: int | None = None
    wall_time_s: float | None = None
    wall_samples_s: tuple[float, ...] = ()
    profiled_time_s: float | None = None
    graph_time_s: float | None = None
    busy_time_s: float | None = None
    busy_share: float | None = None
    idle: IdleTime | None = None
    launches: float | None = None
    peak_memory_bytes: int | None = None
    iterations: int = 0
    steady_iterations: tuple[int, ...] = ()
    threads: int | None = None
    tf32: bool = False
    categories: tuple[CategoryTotal, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    trace: Place | None = None
    log: Place | None = None
    notes: tuple[str, ...] = ()
    wall_load: MachineLoad | None = None
    profile_load: MachineLoad | None = None

    @property
    def outlier_iterations(self) -> int:
        """The number of profiled iterations that do not count."""
        return self.iterations - len(self.steady_iterations) if self.steady_iterations else 0


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
    """A whole run. ``format`` is the schema number; ``retunes`` are those of its most expensive kernels."""

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

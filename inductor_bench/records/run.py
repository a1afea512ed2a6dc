"""The record of one run: the interface that ``record.json`` is. See ``store`` for its format number."""

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
    """What was asked for."""

    target: str
    kind: str  # "script", "factory", "timm", …, "module", "log", "structured-trace", "run", "trace"
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


@dataclass(frozen=True)
class Environment:
    """Where it was measured. Named variables only, never the whole of the process environment."""

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
    """What the device was measured to reach; the roofs that shares of peak refer to.

    ``matmul_flops`` maps a dtype (``float16``, ``bfloat16``, ``float32``, ``tf32``) to dense FLOP/s.
    ``launch_floor_s`` is the device time of an empty kernel (GPU only).
    """

    device: str
    memory_bandwidth: float
    matmul_flops: dict[str, float]
    cache_bytes: int | None = None  # L2 on a GPU, last-level cache on a CPU
    cache_bandwidth: float | None = None
    launch_floor_s: float | None = None
    threads: int | None = None
    torch: str = ""
    measured_at: str = ""


@dataclass(frozen=True)
class ShapeGroup:
    """The launches of one library kernel whose operator calls had the same arguments. Per iteration.

    ``operator_calls`` is how many operator calls these launches stand for: where several kernels do the same work,
    each stands for its share of their time, and carries that share of the FLOPs and bytes. It is 0 where the launches
    do none of the work that is counted for the operator (they rearrange or gather up what other kernels work on).
    """

    shapes: str
    calls: float
    time_s: float
    operator_calls: float = 0.0
    flops: float | None = None
    moved_bytes: float | None = None


@dataclass(frozen=True)
class Kernel:
    """A kernel of one module. ``calls``, ``time_s``, ``moved_bytes`` and ``flops`` are per iteration, all calls.

    ``family_id`` is the same for kernels of the same structure and other sizes (see ``source.module.identity``).
    ``file`` is its standalone file, ``line`` the place of its definition in the module's ``file``.
    ``time_s`` is the mean over the module's steady iterations, ``samples_s`` every iteration's total in order.
    ``share`` is of the module's device (or CPU kernel) time, ``wall_share`` of its wall time (of its busy time where
    that is longer, see ``ModuleRecord``). ``bound`` says which
    roof ``peak_share`` refers to: ``memory``, ``compute``, ``cache`` (working set within L2: no share of DRAM
    peak is given), ``latency`` (too short for a roof to apply) or ``unknown``. ``gain_limit_s`` is what one
    iteration would save if the kernel ran at that roof. ``unjudged`` says why no roof applies, where the reason is
    the kernel's own. ``grid``, ``block`` and ``registers`` are given where they are the same for all calls;
    ``occupancy`` is the profiler's estimate, the mean over the kernel's time. ``dtype`` is ``tf32`` for float32 data
    whose products may use TF32.
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


@dataclass(frozen=True)
class CategoryTotal:
    """All kernels of one category in one module, per iteration."""

    name: Category
    time_s: float
    share: float
    wall_share: float | None
    calls: float
    kernels: int


@dataclass(frozen=True)
class IdleTime:
    """Wall time in which the device did nothing (GPU), or no kernel ran (CPU), per iteration.

    ``count``, ``median_s`` and ``longest_s`` describe the gaps in the profiled pass, whose host side is slower
    than an unprofiled run; ``time_s`` is wall time less busy time and does not suffer from that.
    """

    time_s: float
    count: float
    median_s: float
    longest_s: float


@dataclass(frozen=True)
class ModuleRecord:
    """One compiled module, measured.

    ``method`` is ``-p`` (the module's own harness in a fresh process), ``live`` (in the capturing process with
    the inputs that it really got) or ``trace`` (a trace recorded elsewhere); ``method_reason`` says why.
    ``wall_samples_s`` are the unprofiled iterations in order; ``wall_time_s`` is their median. ``busy_time_s`` is
    the union of device intervals per iteration (on a CPU: of kernel intervals), which a profiler can stretch beyond
    the wall time. ``steady_iterations`` are those that count; the others were disturbed. ``graph_time_s`` is one
    replay of the whole module as one CUDA graph. ``wall_load`` and ``profile_load`` say how busy the machine was during
    the unprofiled and the profiled iterations. ``tf32`` tells that float32 matrix products may use TF32.
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
        """How many of the profiled iterations do not count."""
        return self.iterations - len(self.steady_iterations) if self.steady_iterations else 0


@dataclass(frozen=True)
class Capture:
    """How the modules were found. ``disagreement`` is empty where the printed lines and the trace agree."""

    printed: int = 0
    structured: int = 0
    disagreement: str = ""
    exit_code: int | None = None
    time_s: float | None = None
    graph_breaks: tuple[str, ...] = ()
    recompiles: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """A whole run; ``record.json`` is exactly this. ``format`` is the schema number (see ``store.formats.schema``).

    ``retunes`` are of its most expensive kernels, where that was asked for.
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

"""The measurement of one compiled module and of its kernels, as the record of a run holds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from .base import Category, Failure, FileName, Inline, Place, Slug
from .code import CompiledKernel, MachineLoad, SourceLine


@dataclass(frozen=True)
class ShapeGroup:
    """The launches of one library kernel by operator calls with the same arguments; figures are per iteration."""

    shapes: str  # the operator's arguments, as text
    calls: float  # the number of launches
    time_s: float  # device seconds of these launches
    # the number of operator calls that these launches represent. If several kernels do the work of one call, each
    # represents its share of their time. It is 0 for kernels that only rearrange or collect the data of others.
    operator_calls: float = 0.0
    flops: float | None = None  # FLOPs of these launches; if several kernels do one call, each has its share
    # bytes that these launches have to read and write at least; if several kernels do one call, each has its share
    moved_bytes: float | None = None
    dram_bytes: float | None = None  # predicted bytes between the cache and DRAM; ``None`` without a program


@dataclass(frozen=True)
class LeastWork:
    """The least work of a kernel."""

    moved_bytes: float | None = None  # bytes that it must read and write, each buffer once
    flops: float | None = None  # FLOPs of its matrix products
    # the element type of these products; ``tf32`` or ``bfloat16`` for float32 data whose products may be computed in
    # this type
    dtype: str | None = None


@dataclass(frozen=True)
class RooflineResult:
    """The comparison of a kernel with its roof, with the time of its calls in the program's step.

    Without a step, and for a kernel that the step does not run, the time is from the run of the module alone.
    """

    bandwidth: float | None = None  # the bytes moved per second
    flop_rate: float | None = None  # the rate of its matrix products
    # the kernel's rate as a share (0 to 1) of the roof that ``bound`` names; ``None`` for ``latency`` and ``unknown``,
    # and if the rate is above the roof, because the roof then does not apply to this kernel
    peak_share: float | None = None
    # the roof that limits the kernel: ``memory``, ``compute``, ``cache`` (its data fits into the cache, so there is no
    # share of the memory's peak), ``latency`` (too short for a roof) or ``unknown``
    bound: str = "unknown"
    # seconds per iteration that would be saved at the roof, at least 0; ``None`` for an unknown roof
    gain_limit_s: float | None = None


@dataclass(frozen=True)
class LaunchShape:
    """The size of a kernel's launches."""

    occupancy: float | None = None  # the profiler's estimate, 0 to 1, as a mean over the kernel's time
    grid: tuple[int, ...] = ()  # the number of blocks in each dimension; empty if it differs between calls
    # the number of threads of a block in each dimension; empty if it differs between calls
    block: tuple[int, ...] = ()


@dataclass(frozen=True)
class Origin:
    """The part of the program from which a kernel originates."""

    source_nodes: tuple[str, ...] = ()  # the nodes of the graph
    aten_ops: tuple[str, ...] = ()  # the ATen operators
    source_lines: tuple[SourceLine, ...] = ()  # the lines of the program, or of the libraries that it uses
    # if none of ``source_lines`` is the program's own: the lines that call the graph in a step, those with most calls
    # first. A backward has the line that calls its forward, if there is only one. Empty if they are unknown
    called_at: tuple[SourceLine, ...] = ()
    layers: tuple[str, ...] = ()  # the modules of the model, such as ``Llama.layers.3.mlp.up_proj``
    # if the kernel only copies a matrix into a larger one, because Inductor pads matrices for faster products: the size
    # of each padded side before and after
    padded_sides: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class StepSaving:
    """What the program's step would save if a kernel ran at its roof, simulated; ``None`` if it is unknown."""

    step_saving_s: float | None = None  # seconds that the step would save; 0 if the device waits for the host anyway
    step_saving_uncertainty_s: float | None = None  # the uncertainty of these seconds
    device_saving_s: float | None = None  # what the step would save if the host took no time


@dataclass(frozen=True)
class Kernel:
    """A kernel of one module. Figures are per iteration, for all calls together."""

    name: str  # the kernel's name in the profile
    kernel_id: str  # a hash of its content, independent of numbering, paths and the device
    category: Category  # the category
    calls: float  # the number of launches
    time_s: float  # the mean over the module's steady iterations
    samples_s: tuple[float, ...]  # the total of every iteration, in order
    share: float  # the share of the module's device time; on a CPU the share of its kernels' time
    wall_share: float | None  # the share of the module's wall time, or of its busy time if that is longer
    work: Inline[LeastWork] = LeastWork()  # the bytes and FLOPs
    roof: Inline[RooflineResult] = RooflineResult()  # the rates, and the comparison with the roof
    file: Place | None = None  # the standalone file
    line: int | None = None  # the line of its definition in the module's ``file``
    kernel_hash: str | None = None  # Inductor's hash of the kernel
    # the result of compiling it; ``None`` if a figure differs between calls
    compiled: Inline[CompiledKernel] = field(default_factory=CompiledKernel)
    launch: Inline[LaunchShape] = LaunchShape()  # the size of its launches
    operator: str | None = None  # the library operator that launches it
    shapes: tuple[ShapeGroup, ...] = ()  # the launches of a library kernel by the arguments of their operator calls
    origin: Inline[Origin] = Origin()  # the program's operators and lines
    unjudged: str = ""  # why no roof applies to this kernel; empty if one applies
    family_id: str = ""  # a hash that is the same for kernels with the same structure but different sizes
    # the number of launches in one step of the program, including replays; ``None`` without a program
    step_calls: float | None = None
    step_time_s: float | None = None  # seconds of these launches in the step; ``None`` without a program
    # ``step_time_s`` as a share of the step's wall time, 0 to 1; ``None`` without a program
    step_share: float | None = None
    # predicted bytes between the cache and DRAM per call of the module in the program's step, for all calls of the
    # kernel together; ``None`` without a program
    dram_bytes: float | None = None
    # for matrix products and attention of float32 on a CPU: the time of its calls if they are computed in bfloat16,
    # divided by their time in float32; calls of their shapes were timed by themselves; ``None`` if they were not
    bfloat16_ratio: float | None = None
    saving: Inline[StepSaving] = StepSaving()  # what the step would save if the kernel ran at its roof

    @property
    def step_slowdown(self) -> float | None:
        """A call's time in the program's step, divided by its time in the module's run by itself; ``None`` if one is
        unknown."""
        if not (self.step_calls and self.step_time_s and self.calls and self.time_s):
            return None
        return self.step_time_s / self.step_calls / (self.time_s / self.calls)


# The rows of an extraction: one for each kernel.


@dataclass(frozen=True)
class ExtractedKernel:
    """A kernel, and its file or the reason why it has none."""

    name: str  # the kernel's name; for a library call the operator and a number
    kernel_id: str  # 16 hexadecimal digits, the same for the same kernel in other models and runs
    category: Category  # the category of the kernel
    module: str  # the label of its module, such as ``forward``
    calls: int  # the number of its launches in one run of the module
    time_s: float | None = None  # its time in the model in seconds per iteration, if it was measured
    file: FileName | None = None  # the name of the standalone file; ``None`` if the kernel can have none
    reason: str = ""  # the reason why there is no file; empty if there is one
    values: FileName | None = None  # the name of the safetensors file of its recorded values, if there is one
    note: str = ""  # which values are random although recorded ones were requested; empty if none are
    sha256: str | None = None  # the hash of the file as it was written; ``None`` in rows of older versions


@dataclass(frozen=True)
class KernelFile(ExtractedKernel):
    """A row of :func:`inductor_bench.extract`."""

    path: Path | None = None  # the absolute path of ``file``; ``None`` if the kernel can have none
    values_path: Path | None = None  # the absolute path of ``values``, if there is one


def add_paths(row: ExtractedKernel, folder: Path) -> KernelFile:
    """The row with the paths of its files in ``folder``."""
    return KernelFile(
        **vars(row),
        path=folder / row.file if row.file else None,
        values_path=folder / row.values if row.values else None,
    )


@dataclass(frozen=True)
class CategoryTotal:
    """The sums over all kernels of one category in one module, per iteration."""

    name: Category  # the category
    time_s: float  # device seconds; on a CPU the seconds in kernels
    share: float  # the category's part of the module's device time, 0 to 1
    # the share of the module's wall time, or of its busy time if that is longer, 0 to 1; ``None`` if no wall time
    # was measured
    wall_share: float | None
    calls: float  # the number of launches
    kernels: int  # the number of different kernels


@dataclass(frozen=True)
class IdleTime:
    """Wall time per iteration in which the device was idle, or on a CPU no kernel ran.

    The gaps are from the profiled runs, in which the host is slower than in unprofiled runs.
    """

    time_s: float  # the wall time minus the busy time, in seconds
    count: float  # the number of gaps
    median_s: float  # the median gap in seconds
    longest_s: float  # the longest gap in seconds


@dataclass(frozen=True)
class Method:
    """The way of measuring a module."""

    # ``-p`` (the module's own harness in a fresh process), ``live`` (in the capturing process with the program's
    # inputs) or ``trace`` (a trace recorded elsewhere)
    method: str
    method_reason: str = ""  # the reason for the method


@dataclass(frozen=True)
class ModuleTimes:
    """The times of a module, per iteration."""

    wall_time_s: float | None = None  # the median of ``wall_samples_s``
    wall_samples_s: tuple[float, ...] = ()  # the times of the unprofiled iterations, in order
    profiled_time_s: float | None = None  # the time of a profiled iteration
    graph_time_s: float | None = None  # the time of one replay of the whole module as one CUDA graph
    # the time in which the device works, on a CPU the time in which kernels run; overlaps count once. Under the
    # profiler it can be longer than the wall time.
    busy_time_s: float | None = None
    busy_share: float | None = None  # ``busy_time_s`` as a share of the wall time
    idle: IdleTime | None = None  # the rest of the wall time


@dataclass(frozen=True)
class ProfiledIterations:
    """The number of profiled iterations of a module, and which of them count."""

    iterations: int = 0  # the number of profiled iterations
    steady_iterations: tuple[int, ...] = ()  # the indices of the iterations that count; the others were disturbed

    @property
    def outlier_iterations(self) -> int:
        """The number of profiled iterations that do not count."""
        return self.iterations - len(self.steady_iterations) if self.steady_iterations else 0


@dataclass(frozen=True)
class Outputs:
    """The trace and the log of the measurement of a module."""

    trace: Place | None = None  # the profiler's trace
    log: Place | None = None  # the output of the measuring process


@dataclass(frozen=True)
class Loads:
    """The machine's load during the iterations."""

    wall_load: MachineLoad | None = None  # the load during the unprofiled iterations
    profile_load: MachineLoad | None = None  # the load during the profiled iterations


@dataclass(frozen=True)
class InputShape:
    """The tensors of one type and shape among the inputs of a module."""

    dtype: str  # their element type, for example ``float32``
    shape: tuple[int, ...]  # their sizes; if shapes are dynamic, the sizes for which the module was compiled
    count: int = 1  # the number of such inputs


@dataclass(frozen=True)
class ModuleRecord:
    """The measurement of one compiled module. Figures are per iteration."""

    label: str  # the name in tables, for example ``forward``
    slug: Slug  # the name of its files
    role: str  # ``forward``, ``backward``, ``inference`` or ``unknown``
    file: Place | None  # the module's text
    device: str  # ``cuda``, ``xpu`` or ``cpu``
    measurement: Inline[Method]  # the method, and its reason
    dynamic: bool = False  # whether its shapes are dynamic
    source_path: str | None = None  # the file that Inductor wrote
    program_calls: int | None = None  # the number of the program's calls of the module
    times: Inline[ModuleTimes] = ModuleTimes()  # the wall time, the busy time and the idle time
    launches: float | None = None  # the number of device activities
    # on a GPU the largest number of bytes that torch allocated, on a CPU the largest resident size of the process
    peak_memory_bytes: int | None = None
    # the number of profiled iterations, and those that count
    profiled: Inline[ProfiledIterations] = ProfiledIterations()
    threads: int | None = None  # the number of torch's threads; CPU only
    tf32: bool = False  # whether float32 matrix products may use TF32; GPU only
    # whether the processor may compute float32 matrix products in bfloat16; CPU only; older records do not know it
    bf16: bool = False
    # whether the program compiles it for CUDA graphs; when the module runs alone, it uses none
    cuda_graphs: bool = False
    max_autotune: bool = False  # whether the program compiles it with max-autotune
    # its inputs including weights: first tensors of integers, then the largest; empty if its text has none, and in
    # older records
    inputs: tuple[InputShape, ...] = ()
    categories: tuple[CategoryTotal, ...] = ()  # the sums over the kernels of each category
    kernels: tuple[Kernel, ...] = ()  # the kernels
    outputs: Inline[Outputs] = Outputs()  # the trace and the log
    notes: tuple[str, ...] = ()  # what limits these figures, in words
    loads: Inline[Loads] = Loads()  # the machine's load

    @property
    def float32_products(self) -> str:
        """The type in which matrix products of float32 may be computed."""
        return "tf32" if self.tf32 else "bfloat16" if self.bf16 else "float32"


@dataclass(frozen=True)
class ExtractOutcome:
    """The result of an extraction: a row per kernel, notes for the user, and failures."""

    kernels: tuple[ExtractedKernel, ...]  # the kernels, with their files
    folder: Path | None = None  # the folder of the files; ``None`` if kernels were only listed
    notes: tuple[str, ...] = ()  # what the user should know, in words
    failures: tuple[Failure, ...] = ()  # what could not be read or run

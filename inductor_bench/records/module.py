"""The measurement of one compiled module and of its kernels, as the record of a run holds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from .base import Category, FileName, Inline, Place, Slug
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
    flops: float | None = None  # FLOPs of these launches; of several kernels for one call each has its share
    moved_bytes: float | None = None  # the least bytes that these launches read and write; shared alike
    dram_bytes: float | None = None  # predicted bytes between the cache and DRAM; ``None`` without a program


@dataclass(frozen=True)
class LeastWork:
    """The least work of a kernel."""

    moved_bytes: float | None = None  # bytes that it must read and write, each buffer once
    flops: float | None = None  # FLOPs of its matrix products
    # the element type of these products; ``tf32`` for float32 data whose products may use TF32, ``bfloat16`` for
    # float32 data whose products a processor may compute in it
    dtype: str | None = None


@dataclass(frozen=True)
class RooflineResult:
    """The comparison of a kernel with its roof, by the time of its calls in the program's step.

    Without a step, and for a kernel that the step does not run, it is by their time in the module's own run.
    """

    bandwidth: float | None = None  # the bytes moved per second
    flop_rate: float | None = None  # the rate of its matrix products
    # the share (0 to 1) of the roof that ``bound`` names; ``None`` for ``latency`` and ``unknown``, and for a rate
    # above the roof, which then does not apply to this kernel
    peak_share: float | None = None
    # the roof that limits the kernel: ``memory``, ``compute``, ``cache`` (its data fits into the cache, so that no
    # share of the memory's peak is given), ``latency`` (too short for a roof) or ``unknown``
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
    source_lines: tuple[SourceLine, ...] = ()  # the lines of the program
    layers: tuple[str, ...] = ()  # the modules of the model, such as ``Llama.layers.3.mlp.up_proj``
    # of a generated kernel that only copies a matrix into a larger one, because Inductor pads matrices for faster
    # products: each side that grows, before and after
    padded_sides: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class StepSaving:
    """What the program's step would save if a kernel ran at its roof, simulated; ``None`` if that is unknown."""

    step_saving_s: float | None = None  # seconds of the step; 0 if the device waits for the host anyway
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
    share: float  # the share of the module's device time, on a CPU of its kernels' time
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
    unjudged: str = ""  # the reason, due to the kernel itself, why no roof applies
    family_id: str = ""  # a hash that is the same for kernels of one structure with other sizes
    # the number of launches in one step of the program, replays included; ``None`` without a program
    step_calls: float | None = None
    step_time_s: float | None = None  # their time in that step; ``None`` without a program
    step_share: float | None = None  # their share of that step's wall time; ``None`` without a program
    # predicted bytes between the cache and DRAM per call of the module in the program's step, for all calls of the
    # kernel together; ``None`` without a program
    dram_bytes: float | None = None
    saving: Inline[StepSaving] = StepSaving()  # what the step would save if it ran at its roof

    @property
    def step_slowdown(self) -> float | None:
        """A call's time in the program's step divided by that in the module's own run; ``None`` without both."""
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


def with_paths(row: ExtractedKernel, folder: Path) -> KernelFile:
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
    time_s: float  # device seconds, on a CPU seconds in kernels
    share: float  # the share of the module's device time, 0 to 1
    # the share of the module's wall time, or of its busy time if that is longer, 0 to 1; ``None`` if no wall time
    # was measured
    wall_share: float | None
    calls: float  # the number of launches
    kernels: int  # the number of different kernels


@dataclass(frozen=True)
class IdleTime:
    """Wall time per iteration in which the device was idle, or on a CPU no kernel ran.

    The gaps are those of the profiled runs, whose host side is slower than that of unprofiled runs.
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
    # the union of the device's intervals, on a CPU of the kernels'. The profiler can stretch it beyond the wall time.
    busy_time_s: float | None = None
    busy_share: float | None = None  # the busy share of the wall time
    idle: IdleTime | None = None  # the rest of the wall time


@dataclass(frozen=True)
class ProfiledIterations:
    """The iterations of the profile."""

    iterations: int = 0  # the number of profiled iterations
    steady_iterations: tuple[int, ...] = ()  # the indices of the iterations that count; the others were disturbed

    @property
    def outlier_iterations(self) -> int:
        """The number of profiled iterations that do not count."""
        return self.iterations - len(self.steady_iterations) if self.steady_iterations else 0


@dataclass(frozen=True)
class Outputs:
    """The files of a measurement."""

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
    shape: tuple[int, ...]  # their sizes; of a module with dynamic shapes those for which it was compiled
    count: int = 1  # the number of them


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
    # on a GPU the maximum of torch's allocated memory, on a CPU of the process's resident size
    peak_memory_bytes: int | None = None
    # the number of profiled iterations, and those that count
    profiled: Inline[ProfiledIterations] = ProfiledIterations()
    threads: int | None = None  # the number of torch's threads; CPU only
    tf32: bool = False  # whether float32 matrix products may use TF32; GPU only
    # whether the processor may compute float32 matrix products in bfloat16; CPU only; older records do not know it
    bf16: bool = False
    cuda_graphs: bool = False  # whether the program compiles it for CUDA graphs, without which it runs by itself
    max_autotune: bool = False  # whether the program compiles it with max-autotune
    # its inputs, weights among them: tensors of integers first, and then the largest; empty if its text has none, and
    # in older records
    inputs: tuple[InputShape, ...] = ()
    categories: tuple[CategoryTotal, ...] = ()  # the sums over the kernels of each category
    kernels: tuple[Kernel, ...] = ()  # the kernels
    outputs: Inline[Outputs] = Outputs()  # the trace and the log
    notes: tuple[str, ...] = ()  # what limits these figures, in words
    loads: Inline[Loads] = Loads()  # the machine's load

    @property
    def float32_products(self) -> str:
        """The type in which products of float32 may be computed."""
        return "tf32" if self.tf32 else "bfloat16" if self.bf16 else "float32"

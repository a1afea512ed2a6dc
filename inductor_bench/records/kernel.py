"""The kernels of a module, as the record of a run holds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from .base import Category, FileName, Inline, Place
from .code import CompiledKernel, SourceLine


@dataclass(frozen=True)
class ShapeGroup:
    """The launches of one library kernel by operator calls with the same arguments; figures are per iteration.

    Attributes:
        shapes: the operator's arguments, as text.
        calls: the number of launches.
        time_s: device seconds of these launches.
        operator_calls: the number of operator calls that these launches represent. Where several kernels do the work of
            one call, each represents its share of their time. It is 0 for kernels that only rearrange or collect the
            data of others.
        flops: FLOPs of these launches; of several kernels for one call each has its share.
        moved_bytes: the least bytes that these launches read and write; shared alike.
        dram_bytes: predicted bytes between the cache and DRAM; ``None`` without a program.
    """

    shapes: str
    calls: float
    time_s: float
    operator_calls: float = 0.0
    flops: float | None = None
    moved_bytes: float | None = None
    dram_bytes: float | None = None


@dataclass(frozen=True)
class LeastWork:
    """The least work of a kernel.

    Attributes:
        moved_bytes: bytes that it must read and write, each buffer once.
        flops: FLOPs of its matrix products.
        dtype: the element type of these products; ``tf32`` for float32 data whose products may use TF32.
    """

    moved_bytes: float | None = None
    flops: float | None = None
    dtype: str | None = None


@dataclass(frozen=True)
class RooflineResult:
    """The comparison of a kernel with its roof, by the time of its calls in the program's step.

    Without a step, and for a kernel that the step does not run, it is by their time in the module's own run.

    Attributes:
        bandwidth: the bytes moved per second.
        flop_rate: the rate of its matrix products.
        peak_share: the share (0 to 1) of the roof that ``bound`` names; ``None`` for ``latency`` and ``unknown``, and
            for a rate above the roof, which then does not apply to this kernel.
        bound: the roof that limits the kernel: ``memory``, ``compute``, ``cache`` (its data fits into the cache, so
            that no share of the memory's peak is given), ``latency`` (too short for a roof) or ``unknown``.
        gain_limit_s: seconds per iteration that would be saved at the roof, at least 0; ``None`` for an unknown roof.
    """

    bandwidth: float | None = None
    flop_rate: float | None = None
    peak_share: float | None = None
    bound: str = "unknown"
    gain_limit_s: float | None = None


@dataclass(frozen=True)
class LaunchShape:
    """The size of a kernel's launches.

    Attributes:
        occupancy: the profiler's estimate, 0 to 1, as a mean over the kernel's time.
        grid: the number of blocks in each dimension; empty where it differs between calls.
        block: the number of threads of a block in each dimension; empty where it differs between calls.
    """

    occupancy: float | None = None
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()


@dataclass(frozen=True)
class Origin:
    """The part of the program from which a kernel originates.

    Attributes:
        source_nodes: the nodes of the graph.
        aten_ops: the ATen operators.
        source_lines: the lines of the program.
        padded_sides: of a generated kernel that only copies a matrix into a larger one, because Inductor pads matrices
            for faster products: each side that grows, before and after.
    """

    source_nodes: tuple[str, ...] = ()
    aten_ops: tuple[str, ...] = ()
    source_lines: tuple[SourceLine, ...] = ()
    padded_sides: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Kernel:
    """A kernel of one module. Figures are per iteration, for all calls together.

    Attributes:
        name: the kernel's name in the profile.
        kernel_id: a hash of its content, independent of numbering, paths and the device.
        category: the category.
        calls: the number of launches.
        time_s: the mean over the module's steady iterations.
        samples_s: the total of every iteration, in order.
        share: the share of the module's device time, on a CPU of its kernels' time.
        wall_share: the share of the module's wall time, or of its busy time where that is longer.
        work: the bytes and FLOPs.
        roof: the rates, and the comparison with the roof.
        file: the standalone file.
        line: the line of its definition in the module's ``file``.
        kernel_hash: Inductor's own hash of the kernel.
        compiled: the result of compiling it; ``None`` where a figure differs between calls.
        launch: the size of its launches.
        operator: the library operator that launches it.
        shapes: the launches of a library kernel by the arguments of their operator calls.
        origin: the program's operators and lines.
        unjudged: the reason, due to the kernel itself, why no roof applies.
        family_id: a hash that is the same for kernels of one structure with other sizes.
        step_calls: the number of launches in one step of the program, replays included; ``None`` without a program.
        step_time_s: their time in that step; ``None`` without a program.
        step_share: their share of that step's wall time; ``None`` without a program.
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
    work: Inline[LeastWork] = LeastWork()
    roof: Inline[RooflineResult] = RooflineResult()
    file: Place | None = None
    line: int | None = None
    kernel_hash: str | None = None
    compiled: Inline[CompiledKernel] = field(default_factory=CompiledKernel)
    launch: Inline[LaunchShape] = LaunchShape()
    operator: str | None = None
    shapes: tuple[ShapeGroup, ...] = ()
    origin: Inline[Origin] = Origin()
    unjudged: str = ""
    family_id: str = ""
    step_calls: float | None = None
    step_time_s: float | None = None
    step_share: float | None = None
    dram_bytes: float | None = None

    @property
    def step_slowdown(self) -> float | None:
        """A call's time in the program's step divided by that in the module's own run; ``None`` without both."""
        if not (self.step_calls and self.step_time_s and self.calls and self.time_s):
            return None
        return self.step_time_s / self.step_calls / (self.time_s / self.calls)


# The rows of an extraction: one for each kernel.


@dataclass(frozen=True)
class ExtractedKernel:
    """A kernel, and its file or the reason why it has none.

    Attributes:
        name: the kernel's name; for a library call the operator and a number.
        kernel_id: 16 hexadecimal digits, the same for the same kernel in other models and runs.
        category: the category of the kernel.
        module: the label of its module, such as ``forward``.
        calls: the number of its launches in one run of the module.
        time_s: its time in the model in seconds per iteration, where it was measured.
        file: the name of the standalone file; ``None`` where the kernel can have none.
        reason: the reason why there is no file; empty where there is one.
        values: the name of the safetensors file of its recorded values, where there is one.
        note: the values that are drawn although recorded ones were requested; empty where there are none.
        sha256: the hash of the file as it was written; ``None`` in rows of older versions.
    """

    name: str
    kernel_id: str
    category: Category
    module: str
    calls: int
    time_s: float | None = None
    file: FileName | None = None
    reason: str = ""
    values: FileName | None = None
    note: str = ""
    sha256: str | None = None


@dataclass(frozen=True)
class KernelFile(ExtractedKernel):
    """A row of :func:`inductor_bench.extract`.

    Attributes:
        path: the absolute path of ``file``; ``None`` where the kernel can have none.
        values_path: the absolute path of ``values``, where there is one.
    """

    path: Path | None = None
    values_path: Path | None = None


def locate_file(row: ExtractedKernel, folder: Path) -> KernelFile:
    """The row with the paths of its files in ``folder``."""
    return KernelFile(
        **vars(row),
        path=folder / row.file if row.file else None,
        values_path=folder / row.values if row.values else None,
    )

"""The kernels of a module, as the record of a run holds them."""

from __future__ import annotations

from dataclasses import dataclass, field

from .category import Category
from .code.source import SourceLine
from .forms import Place


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
        bound: the roof that limits the kernel: ``memory``, ``compute``, ``cache`` (its data fits into L2, so that no
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

"""The input of the rules: a run, its kernels with their graphs, and the time that shares refer to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from ... import units
from ...devices.protocol import Device
from ...devices.table import device_of
from ...records.category import Category
from ...records.kernel import Kernel
from ...records.module import ModuleRecord
from ...records.run import Run
from ..costs.step import Cost, cost_of, step_of
from ..costs.times import weight_s, whole_time_s
from .bottleneck import WAITS_FOR_HOST, bottleneck
from .finding import ADVICE, Finding, KernelPlace
from .phrases import slugs

LEAST_SHARE = 0.01  # smallest time or gain of a finding, as a share of the whole time
LEAST_GAIN = 0.0005  # smallest gain of one kernel in a finding, as a share of the whole time
FAR_FROM_ROOF = 0.7  # share of peak below which a kernel is far from its roof
SHORT_S = 5e-6  # seconds per call below which a kernel is short
SHORT_TIME = 0.1  # share of the whole time from which short or unsteady kernels matter

LIBRARY = (Category.EXTERN_CONV, Category.EXTERN_GEMM, Category.EXTERN_ATTENTION, Category.EXTERN_ATEN)
UNTUNABLE = (*LIBRARY, Category.COPY, Category.MEMSET, Category.COLLECTIVE, Category.OTHER)
PRODUCTS = LIBRARY[:3]
"""Categories of library calls that multiply matrices."""

CUDA_GRAPH_MODES = ("reduce-overhead", "max-autotune")
TUNING_MODES = ("max-autotune", "max-autotune-no-cudagraphs")

_ADDS = ("aten.addmm", "aten.baddbmm")
"""Products to which cuBLAS adds what lies in their output already."""

_LAYOUT_COPIES = ("direct_copy_kernel", "tensorTransform", "nchwToNhwc", "nhwcToNchw")


@dataclass(frozen=True)
class Row:
    """A kernel, its graph, and its cost in the step or in one iteration of its graph."""

    module: ModuleRecord
    kernel: Kernel
    cost: Cost

    @property
    def device(self) -> Device:
        return device_of(self.module.device)

    @property
    def place(self) -> KernelPlace:
        return KernelPlace(self.module.slug, self.kernel.name)


Rows = list[Row]


@dataclass(frozen=True)
class Whole:
    """The time that shares refer to, in seconds."""

    time_s: float

    def part(self, seconds: float) -> float:
        """Returns the share (0 to 1) of a time in the whole."""
        return seconds / self.time_s if self.time_s else 0.0

    def format(self, seconds: float) -> str:
        """Returns the time with its share: ``1.20 ms (3.4%)``."""
        return f"{units.seconds(seconds)} ({units.percent(self.part(seconds))})"


@dataclass(frozen=True)
class RunEvidence:
    """A run with the values that several rules derive from it."""

    run: Run

    @cached_property
    def in_step(self) -> bool:
        """Whether costs are those of the program's step. A graph's run by itself then says nothing about waiting."""
        return step_of(self.run) is not None

    @cached_property
    def whole(self) -> Whole:
        return Whole(whole_time_s(self.run))

    @cached_property
    def rows(self) -> Rows:
        """All kernels, the most expensive first; of a program's step those that it runs."""
        rows = [
            Row(module, kernel, cost_of(self.run, module, kernel))
            for module in self.run.modules
            for kernel in module.kernels
        ]
        if self.in_step:
            rows = [row for row in rows if row.cost.time_s]
        return sorted(rows, key=lambda row: -row.cost.time_s)

    @cached_property
    def critical_rows(self) -> Rows:
        """The kernels whose time determines the time of the run, the most expensive first.

        They belong to graphs in which the device does not wait for the host. Of a program's step they are all kernels;
        ``table`` says which advice holds while the host sets the pace.
        """
        return self.rows if self.in_step else [row for row in self.rows if bottleneck(row.module) not in WAITS_FOR_HOST]

    @cached_property
    def _by_bottleneck(self) -> dict[str, list[ModuleRecord]]:
        groups: dict[str, list[ModuleRecord]] = {}
        if self.in_step:
            return groups
        for module in sorted(self.run.modules, key=lambda module: weight_s(self.run, module), reverse=True):
            groups.setdefault(bottleneck(module), []).append(module)
        return groups

    def graphs_with(self, kind: str) -> list[ModuleRecord]:
        """The graphs with this bottleneck, the most expensive first."""
        return self._by_bottleneck.get(kind, [])


def time_of(rows: Iterable[Row]) -> float:
    """Sums the device times of the kernels: seconds of the step, or of one iteration of each graph."""
    return sum(row.cost.time_s for row in rows)


def gain_of(rows: Iterable[Row]) -> float:
    """Sums the gain limits of the kernels: seconds of the step, or of one iteration of each graph."""
    return sum(row.cost.gain_limit_s or 0.0 for row in rows)


def in_program(rows: Iterable[Row], seconds: Callable[[Row], float]) -> float:
    """Sums a time over the kernels for one step, or for the whole captured program where there is no step.

    Args:
        rows: the kernels.
        seconds: returns the time of a row; it is multiplied by the number of times that the program pays it.
    """
    return sum(seconds(row) * row.cost.repeats for row in rows)


def is_layout_copy(kernel: Kernel) -> bool:
    """Whether the kernel of a library call rearranges or converts a tensor."""
    return kernel.category in PRODUCTS and any(mark in kernel.name for mark in _LAYOUT_COPIES)


def is_addend_copy(kernel: Kernel) -> bool:
    """Whether the kernel copies what a product adds into the product's output.

    Copies of the product's matrices are never contiguous, and so no copies of memory but kernels. ``addmm`` calls those
    as an inner operator, which the shapes tell, and copies its addend without one.
    """
    if kernel.category is Category.COPY:
        return "DtoD" in kernel.name and kernel.operator in _ADDS
    shapes = [group.shapes for group in kernel.shapes]
    own = bool(shapes) and all(text and not text.startswith("copy_ ") for text in shapes)
    return kernel.operator == "aten.addmm" and "direct_copy_kernel" in kernel.name and own


def finding_of(kind: str, text: str, rows: Rows, level: str = ADVICE, gain_s: float = 0.0) -> Finding:
    """Makes a finding about some kernels and their graphs."""
    return Finding(kind, text, slugs(row.module for row in rows), tuple(row.place for row in rows), level, gain_s)


def is_max_autotuned(run: Run, rows: Iterable[Row]) -> bool:
    """Whether max-autotune has chosen for all of these kernels already."""
    return run.request.mode in TUNING_MODES or all(row.module.max_autotune for row in rows)

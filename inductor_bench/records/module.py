"""The measurement of one compiled module, as the record of a run holds it."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Category, Inline, Place, Slug
from .code import MachineLoad
from .kernel import Kernel


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
    tf32: bool = False  # whether float32 matrix products may use TF32
    cuda_graphs: bool = False  # whether the program compiles it for CUDA graphs, without which it runs by itself
    max_autotune: bool = False  # whether the program compiles it with max-autotune
    categories: tuple[CategoryTotal, ...] = ()  # the sums over the kernels of each category
    kernels: tuple[Kernel, ...] = ()  # the kernels
    outputs: Inline[Outputs] = Outputs()  # the trace and the log
    notes: tuple[str, ...] = ()  # what limits these figures, in words
    loads: Inline[Loads] = Loads()  # the machine's load

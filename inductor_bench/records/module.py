"""The measurement of one compiled module, as the record of a run holds it."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Category, Inline, Place, Slug
from .code import MachineLoad
from .kernel import Kernel


@dataclass(frozen=True)
class CategoryTotal:
    """The sums over all kernels of one category in one module, per iteration.

    Attributes:
        name: the category.
        time_s: device seconds, on a CPU seconds in kernels.
        share: the share of the module's device time, 0 to 1.
        wall_share: the share of the module's wall time, or of its busy time where that is longer, 0 to 1; ``None``
            where no wall time was measured.
        calls: the number of launches.
        kernels: the number of different kernels.
    """

    name: Category
    time_s: float
    share: float
    wall_share: float | None
    calls: float
    kernels: int


@dataclass(frozen=True)
class IdleTime:
    """Wall time per iteration in which the device was idle, or on a CPU no kernel ran.

    The gaps are those of the profiled runs, whose host side is slower than that of unprofiled runs.

    Attributes:
        time_s: the wall time less the busy time, in seconds.
        count: the number of gaps.
        median_s: the median gap in seconds.
        longest_s: the longest gap in seconds.
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
        wall_time_s: the median of ``wall_samples_s``.
        wall_samples_s: the times of the unprofiled iterations, in order.
        profiled_time_s: the time of a profiled iteration.
        graph_time_s: the time of one replay of the whole module as one CUDA graph.
        busy_time_s: the union of the device's intervals, on a CPU of the kernels'. The profiler can stretch it beyond
            the wall time.
        busy_share: the busy share of the wall time.
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
    """The files of a measurement.

    Attributes:
        trace: the profiler's trace.
        log: the output of the measuring process.
    """

    trace: Place | None = None
    log: Place | None = None


@dataclass(frozen=True)
class Loads:
    """The machine's load during the iterations.

    Attributes:
        wall_load: the load during the unprofiled iterations.
        profile_load: the load during the profiled iterations.
    """

    wall_load: MachineLoad | None = None
    profile_load: MachineLoad | None = None


@dataclass(frozen=True)
class ModuleRecord:
    """The measurement of one compiled module. Figures are per iteration.

    Attributes:
        label: the name in tables, for example ``forward``.
        slug: the name of its files.
        role: ``forward``, ``backward``, ``inference`` or ``unknown``.
        file: the module's text.
        device: ``cuda``, ``xpu`` or ``cpu``.
        measurement: the method, and its reason.
        dynamic: whether its shapes are dynamic.
        source_path: the file that Inductor wrote.
        program_calls: the number of the program's calls of the module.
        times: the wall time, the busy time and the idle time.
        launches: the number of device activities.
        peak_memory_bytes: on a GPU the maximum of torch's allocated memory, on a CPU of the process's resident size.
        profiled: the number of profiled iterations, and those that count.
        threads: the number of torch's threads; CPU only.
        tf32: whether float32 matrix products may use TF32.
        cuda_graphs: whether the program compiles it for CUDA graphs, without which it runs by itself.
        max_autotune: whether the program compiles it with max-autotune.
        categories: the sums over the kernels of each category.
        kernels: the kernels.
        outputs: the trace and the log.
        notes: what limits these figures, in words.
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
    cuda_graphs: bool = False
    max_autotune: bool = False
    categories: tuple[CategoryTotal, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    outputs: Inline[Outputs] = Outputs()
    notes: tuple[str, ...] = ()
    loads: Inline[Loads] = Loads()

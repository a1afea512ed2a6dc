"""The raw results of the process that measured a module, stored beside the trace as ``SLUG.details.json``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .launch import Launch


@dataclass(frozen=True)
class CompiledKernel:
    """The result of compiling a Triton kernel.

    Attributes:
        config: the block sizes, ``num_warps`` and ``num_stages``.
        registers: registers of one thread.
        spills: spilled registers of one thread, as Triton counts them.
        shared_memory_bytes: shared memory of one block.
    """

    config: dict[str, int] = field(default_factory=dict)
    registers: int | None = None
    spills: int | None = None
    shared_memory_bytes: int | None = None


@dataclass(frozen=True)
class MachineLoad:
    """The load of the machine while runs of a module were measured.

    Attributes:
        runs: the number of measured runs.
        cores: the number of processors that the measuring process may use.
        load: the system's load average of the last minute.
        time_s: elapsed seconds.
        cpu_time_s: CPU seconds of all threads of the measuring process.
        waited_s: seconds in which its threads were ready but had no processor, summed over the threads; ``None`` where
            unknown.
        stolen_s: seconds that the hypervisor took from ``cores``, summed over them; ``None`` where unknown.
        switches: the number of involuntary context switches of the measuring process.
    """

    runs: int
    cores: int
    load: float | None = None
    time_s: float = 0.0
    cpu_time_s: float = 0.0
    waited_s: float | None = None
    stolen_s: float | None = None
    switches: int = 0

    @property
    def delayed_share(self) -> float:
        """The share of its running time that the process waited for a processor, 0 to 1; 0 where unknown."""
        lost_s = (self.waited_s or 0.0) + (self.stolen_s or 0.0)
        return lost_s / (lost_s + self.cpu_time_s) if lost_s else 0.0


@dataclass(frozen=True)
class Complaint:
    """The reason why a measurement stopped early, and a hint."""

    message: str
    hint: str = ""


@dataclass(frozen=True)
class Reference:
    """The fingerprint of a launch's outputs; ``None`` with the error where there is none.

    The harness of standalone files makes the fingerprint and compares it.
    """

    fingerprint: dict[str, Any] | None = None
    error: str = ""


@dataclass(frozen=True)
class Details:
    """The raw results for one module. Every field has its default for a trace that was recorded elsewhere.

    Attributes:
        wall_samples_s: times of the unprofiled, synchronised runs, in order.
        wall_load: the machine's load during these runs.
        profile_load: the machine's load during the profiled runs.
        graph_samples_s: times of replays of the whole module as one CUDA graph, in order.
        graph_error: the reason why the module cannot be captured as a CUDA graph.
        peak_memory_bytes: in a run, on a GPU the maximum of torch's allocated memory, on a CPU the process's maximum
            resident size.
        iterations: the number of profiled runs.
        threads: the number of torch's threads in the measuring process.
        marked: whether C++ kernels were timed from Python.
        truncated: whether the trace is cut short.
        switches: the program's settings of torch that select library kernels.
        compiled: the result of compiling each Triton kernel, by its variable in the module.
        launches: every distinct launch of one run.
        references: the reference of each launch, in order.
        recorded: the launches whose values were recorded; ``None`` where recording was not requested.
        recorded_references: the references of ``recorded``.
        values_error: the reason why the recording of values stopped.
        dram_shares: DRAM's bytes per byte that a call site of the module touches in the program's step, by the index of
            the call site; empty where the step is unknown.
    """

    wall_samples_s: tuple[float, ...] = ()
    wall_load: MachineLoad | None = None
    profile_load: MachineLoad | None = None
    graph_samples_s: tuple[float, ...] = ()
    graph_error: str | None = None
    peak_memory_bytes: int | None = None
    iterations: int | None = None
    threads: int | None = None
    marked: bool = False
    truncated: bool = False
    switches: dict[str, bool] = field(default_factory=dict)
    compiled: dict[str, CompiledKernel] = field(default_factory=dict)
    launches: tuple[Launch, ...] = ()
    references: tuple[Reference, ...] = ()
    recorded: tuple[Launch, ...] | None = None
    recorded_references: tuple[Reference, ...] = ()
    values_error: Complaint | None = None
    dram_shares: dict[str, float] = field(default_factory=dict)

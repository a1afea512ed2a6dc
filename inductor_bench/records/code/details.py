"""What the process that measured a module knew of it; kept beside the trace as ``SLUG.details.json``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .launch import Launch


@dataclass(frozen=True)
class CompiledKernel:
    """What a Triton kernel was compiled to. ``config`` holds its block sizes, ``num_warps`` and ``num_stages``."""

    config: dict[str, int] = field(default_factory=dict)
    registers: int | None = None
    spills: int | None = None
    shared_memory_bytes: int | None = None


@dataclass(frozen=True)
class MachineLoad:
    """How busy a machine was while some runs of a module were measured.

    Attributes:
        runs: how many were measured.
        cores: processors that the measuring process may use.
        load: the system's load average of the last minute.
        time_s: elapsed time.
        cpu_time_s: CPU time of all threads of the measuring process.
        waited_s: time in which its threads could run and had no processor, all together; ``None`` where not known.
        stolen_s: time that the hypervisor took from ``cores``, all together; ``None`` where not known.
        switches: involuntary context switches of the measuring process.
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
        """The share of its running time that the process spent waiting for a processor; 0 where that is not known."""
        lost_s = (self.waited_s or 0.0) + (self.stolen_s or 0.0)
        return lost_s / (lost_s + self.cpu_time_s) if lost_s else 0.0


@dataclass(frozen=True)
class Complaint:
    """Why something stopped half-way, and what to do."""

    message: str
    hint: str = ""


@dataclass(frozen=True)
class Details:
    """Of one module. Everything is at its default for a trace that was recorded elsewhere.

    Attributes:
        wall_samples_s: unprofiled, synchronised runs, in order.
        wall_load: how busy the machine was during these.
        profile_load: how busy it was during the profiled runs.
        graph_samples_s: replays of the whole module as one CUDA graph, in order.
        graph_error: why it cannot be captured as one.
        peak_memory_bytes: the most that torch had allocated in a run.
        iterations: how many runs were profiled.
        threads: of torch, in the process that measured.
        marked: whether C++ kernels were timed from Python.
        truncated: whether the trace is cut short.
        switches: those of torch that decide which library kernels run, as the program had them.
        compiled: what each Triton kernel was compiled to, by its variable in the module.
        launches: every distinct launch of one run.
        references: of each launch ``{"fingerprint": …}`` of what it writes, or ``{"error": …}``.
        recorded: launches whose values were recorded; ``None`` where that was not asked for.
        recorded_references: like ``references``, of ``recorded``.
        values_error: why the recording of values stopped.
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
    references: tuple[dict[str, Any], ...] = ()
    recorded: tuple[Launch, ...] | None = None
    recorded_references: tuple[dict[str, Any], ...] = ()
    values_error: Complaint | None = None

"""Describes the CPU. The host executes the kernels, which Inductor writes in C++."""

from __future__ import annotations

from ..records.run import Environment
from .protocol import Device, Words


class _Cpu:
    type = "cpu"
    words = Words(
        family="CPU",
        calls="calls",
        outside="host",
        memory="memory",
        cache="cache",
        whole_cache="the last-level cache",
        generated="generated C++",
        generated_at_peaks="generated C++ at its peaks",
        library="library calls",
        bound="",
    )
    runs_on_host = True
    generates_triton = False
    suggests_tuning = False
    has_launch_floor = False
    has_tf32 = False
    has_library_switches = False
    has_hardware_counters = False
    alignment_bytes = 64

    def name_in(self, environment: Environment) -> str | None:
        return environment.host.cpu

    def peaks_depend_on(self, environment: Environment) -> list[str]:
        threads = f"{environment.host.threads or environment.host.cpu_count} threads"
        return [environment.host.cpu, environment.host.vector_isa or "", threads]

    def theoretical_occupancy(
        self, environment: Environment, warps: int | None, registers: int | None, shared_memory_bytes: int | None
    ) -> float | None:
        return None


CPU: Device = _Cpu()

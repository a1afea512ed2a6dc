"""The runtime of the CPU. It needs no synchronisation, and its memory is that of the whole process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from inductor_bench.devices.cpu import CPU
from inductor_bench.records.run import Environment, Host
from inductor_bench.source.standalone.harness.arguments import Arguments
from inductor_bench.source.standalone.harness.timing_cpu import CpuTimer, describe_method, measure_cpu

from .. import processor
from ..peaks import cpu as peaks_cpu
from ..peaks.roofs import Roofs
from .protocol import Bind

_PROCESS = Path("/proc/self")


class CpuRaceTimer(CpuTimer):
    """The harness's timer, with the name of its method. The host does the work, so it is never late with launches."""

    retaken = 0

    @property
    def method(self) -> str:
        return describe_method(len(self.copies), 0.0)

    def run_first(self, call: Any, state: str) -> None:
        return

    def get_ready(self, call: Any, state: str) -> None:
        return


class CpuRuntime:
    """The CPUs that this process may use."""

    device = CPU
    captures_graphs = False

    def is_present(self) -> bool:
        return True

    def check_support(self) -> None:
        return

    def check_presence(self, place: torch.device) -> None:
        return

    def name(self, place: torch.device) -> str:
        return processor.cpu_name()

    def describe(self, environment: Environment) -> Environment:
        host = Host(
            cpu=processor.cpu_name(),
            cpu_count=len(processor.usable_cpus()),
            threads=torch.get_num_threads(),
            vector_isa=processor.vector_isa(),
            memory_bytes=processor.memory_bytes(),
        )
        return replace(environment, host=host)

    def synchronize(self) -> None:
        return

    def reset_peak_memory(self) -> None:
        with contextlib.suppress(OSError):
            (_PROCESS / "clear_refs").write_text("5")

    def peak_memory_bytes(self) -> int | None:
        """The peak resident size of the whole process in bytes; ``None`` on other systems than Linux."""
        with contextlib.suppress(OSError):
            for line in (_PROCESS / "status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        return None

    def capture_graph(self, run: Callable[[], Any]) -> Callable[[], None]:
        raise RuntimeError("a CPU has no graphs")

    def preserve_random_state(self) -> AbstractContextManager[None]:
        return torch.random.fork_rng(devices=[])

    def measure_roofs(self, place: torch.device) -> Roofs:
        return peaks_cpu.measure_cpu()

    def measure_call(self, launch: dict[str, Any], arguments: Arguments, bind: Bind, **how: Any) -> dict[str, Any]:
        return measure_cpu(launch, arguments, bind)

    def make_timer(self, launch: dict[str, Any], arguments: Arguments, bind: Bind, **how: Any) -> CpuRaceTimer:
        return CpuRaceTimer(launch, arguments, bind)

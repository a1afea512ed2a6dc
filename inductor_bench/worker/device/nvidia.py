"""The runtime of NVIDIA's GPUs, through ``torch.cuda``. It refuses AMD's GPUs, which torch for ROCm calls CUDA."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from inductor_bench.devices.nvidia.architectures import Architecture
from inductor_bench.devices.nvidia.device import NVIDIA
from inductor_bench.devices.rocm import refusal
from inductor_bench.errors import InductorBenchError
from inductor_bench.messages.machine import LAUNCH_GAP
from inductor_bench.records.run import AcceleratorFacts, Environment
from inductor_bench.source.standalone.harness.arguments import Arguments
from inductor_bench.source.standalone.harness.launch_gap import launch_gap, measure_cuda
from inductor_bench.store.files import read_json, write_json

from ..peaks.gpu import measure_gpu
from ..peaks.roofs import Roofs
from .exclusive import exclusive
from .nvml import driver_version
from .protocol import Bind
from .race_timer import GpuRaceTimer

RACE_WINDOW_S = 7e-4
"""Length in seconds of each of the two windows of a GPU sample in a race."""

RACE_WARM_UP_S = 5e-3
"""Warm-up in seconds before the first window; it is short because the candidates' checks have raised the clocks."""


class NvidiaRuntime:
    """The GPUs of this process."""

    device = NVIDIA
    captures_graphs = True

    def is_present(self) -> bool:
        return torch.cuda.is_available()

    def check_support(self) -> None:
        if torch.version.hip is not None:
            raise refusal(torch.version.hip)

    def check_presence(self, place: torch.device) -> None:
        count = torch.cuda.device_count() if self.is_present() else 0
        hint = "run `inductor-bench doctor`"
        if not count and not place.index:
            raise InductorBenchError("no CUDA device is available to this torch", hint)
        if (place.index or 0) >= count:
            raise InductorBenchError(f"there is no {place} among the {count} CUDA devices", hint)

    def name(self, place: torch.device) -> str:
        return torch.cuda.get_device_name(place)

    def describe(self, environment: Environment) -> Environment:
        """Adds the current GPU's facts. An AMD GPU gets no compute capability: its version only looks like one."""
        device = replace(environment.device, cuda=torch.version.cuda or torch.version.hip)
        if self.is_present():
            with suppress(RuntimeError):  # a GPU that serves another process alone, or is full: its first use tells it
                device = self._describe(device)
        return replace(environment, device=device)

    def _describe(self, device: AcceleratorFacts) -> AcceleratorFacts:
        here = torch.cuda.get_device_properties(torch.cuda.current_device())
        described = replace(
            device,
            accelerator=here.name,
            accelerator_count=torch.cuda.device_count(),
            accelerator_memory_bytes=here.total_memory,
            multiprocessors=here.multi_processor_count,
        )
        if torch.version.hip is not None:
            return described
        return replace(described, compute_capability=f"{here.major}.{here.minor}", driver=driver_version())

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def reset_peak_memory(self) -> None:
        torch.cuda.reset_peak_memory_stats()

    def peak_memory_bytes(self) -> int | None:
        """The most bytes that torch allocated on the GPU."""
        return int(torch.cuda.max_memory_allocated())

    def capture_graph(self, run: Callable[[], Any]) -> Callable[[], None]:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        return graph.replay

    def preserve_random_state(self) -> AbstractContextManager[None]:
        return torch.random.fork_rng(devices=range(torch.cuda.device_count()))

    def measure_roofs(self, place: torch.device) -> Roofs:
        return measure_gpu(place)

    def measure_call(self, launch: dict[str, Any], arguments: Arguments, bind: Bind, **how: Any) -> dict[str, Any]:
        return measure_cuda(launch, arguments, bind, **how)

    def make_timer(self, launch: dict[str, Any], arguments: Arguments, bind: Bind, **how: Any) -> GpuRaceTimer:
        how |= {"window_s": RACE_WINDOW_S, "warm_up_s": RACE_WARM_UP_S, "gap": _shared_launch_gap()}
        return GpuRaceTimer(launch, arguments, bind, **how)

    def get_ready(self) -> None:
        """Makes the GPU's context, and finds the gap between two launches, which one worker measures for all."""
        torch.empty(1, device=NVIDIA.type)
        with exclusive():
            _shared_launch_gap()

    def architecture(self) -> Architecture:
        """The architecture of the current GPU, for workers that compile for it without using it. (2.11, 2.13)"""
        self.check_support()
        seen: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
        capability = 10 * seen.major + seen.minor
        return Architecture(
            name=f"sm_{capability}",
            capability=capability,
            device=seen.name,
            multiprocessors=seen.multi_processor_count,
            threads=seen.max_threads_per_multi_processor,
            shared_memory_bytes=seen.shared_memory_per_block_optin,
            registers=seen.regs_per_multiprocessor,
        )


@functools.cache
def _shared_launch_gap() -> dict[str, float]:
    """The gap between two launches; that of another worker of this device where one has measured it."""
    shared = Path(os.environ.get(LAUNCH_GAP, ""))
    known = read_json(shared) if shared.is_file() else None
    gap = launch_gap(known)
    if gap and shared.name and known is None:
        write_json(shared, gap)
    return gap


def is_memory_short() -> bool:
    """Whether less than half of the GPU's memory is free. What torch keeps for reuse is not: others share the GPU."""
    if not torch.cuda.is_initialized():
        return False
    free, total = torch.cuda.mem_get_info()
    return bool(2 * free < total)


def give_memory_back() -> None:
    """Gives the memory that torch keeps for reuse back to the device, which other workers may share."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()

"""Describes NVIDIA's GPUs. Torch calls them ``cuda``, like AMD's GPUs, which ``rocm`` recognises."""

from __future__ import annotations

from ...records.run import Environment
from ..accelerator import Accelerator
from ..protocol import Device
from . import occupancy
from .architectures import compute_capability


class _Nvidia(Accelerator):
    has_tf32 = True
    has_library_switches = True
    has_hardware_counters = True

    def theoretical_occupancy(
        self, environment: Environment, warps: int | None, registers: int | None, shared_memory_bytes: int | None
    ) -> float | None:
        capability = compute_capability(environment)
        return occupancy.theoretical_occupancy(capability, warps, registers, shared_memory_bytes)


NVIDIA: Device = _Nvidia("cuda", family="CUDA")

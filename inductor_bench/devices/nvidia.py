"""Describes NVIDIA's GPUs, and recognises AMD's GPUs, which torch also calls ``cuda``."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import InductorBenchError
from ..records.run import Environment
from .protocol import Accelerator, Device

# Properties of the multiprocessors of all NVIDIA GPUs since Volta.


THREADS_OF_WARP = 32
"""Number of threads per warp."""

THREADS_OF_BLOCK = 1024
"""Largest number of threads per block."""

REGISTERS = 65536
"""Number of registers per multiprocessor."""

PARTITIONS = 4
"""Number of partitions per multiprocessor. Each has a quarter of the registers and holds whole warps."""

REGISTER_UNIT = 256
"""A warp gets its registers in multiples of this number."""

SHARED_UNIT = 128
"""A block gets its shared memory in multiples of this number of bytes."""

ELEMENTS_OF_THREAD = 64
"""Largest number of elements of a block per thread; with more elements, registers spill."""


# Computes the theoretical occupancy of a kernel: the share of a multiprocessor's warps that can be resident.
#
# A block stays on one multiprocessor until it ends. The number of resident blocks is the smallest of four limits:
# warps, blocks, registers and shared memory per multiprocessor. The rules are the same as in NVIDIA's
# ``cuda_occupancy.h``.


class MultiprocessorLimits(NamedTuple):
    """The limits of a multiprocessor."""

    warps: int  # largest number of resident warps
    blocks: int  # largest number of resident blocks
    shared_bytes: int  # bytes of shared memory
    reserved_bytes: int = 1024  # bytes of shared memory that the system uses per block


LIMITS = {
    "7.0": MultiprocessorLimits(64, 32, 96 << 10, 0),
    "7.5": MultiprocessorLimits(32, 16, 64 << 10, 0),
    "8.0": MultiprocessorLimits(64, 32, 164 << 10),
    "8.6": MultiprocessorLimits(48, 16, 100 << 10),
    "8.7": MultiprocessorLimits(48, 16, 164 << 10),
    "8.9": MultiprocessorLimits(48, 24, 100 << 10),
    "9.0": MultiprocessorLimits(64, 32, 228 << 10),
    "10.0": MultiprocessorLimits(64, 32, 228 << 10),
    "10.3": MultiprocessorLimits(64, 32, 228 << 10),
    "12.0": MultiprocessorLimits(48, 24, 100 << 10),
}
"""Limits by compute capability, from the table of technical specifications in the CUDA programming guide."""


def compute_theoretical_occupancy(
    capability: str | None, warps: int | None, registers: int | None, shared_memory_bytes: int | None
) -> float | None:
    """Returns the share (0 to 1) of the warps of a multiprocessor that can be resident.

    Args:
        capability: the compute capability, such as ``9.0``.
        warps: number of warps per block.
        registers: number of registers per thread.
        shared_memory_bytes: bytes of shared memory per block.

    Returns:
        The share, or ``None`` if an argument or the limits of the device are unknown.
    """
    limits = LIMITS.get(capability or "")
    if limits is None or not warps or registers is None or shared_memory_bytes is None:
        return None
    fitting = [limits.blocks, limits.warps // warps]
    if registers:
        registers_of_warp = _round_up(registers * THREADS_OF_WARP, REGISTER_UNIT)
        fitting.append(REGISTERS // PARTITIONS // registers_of_warp * PARTITIONS // warps)
    shared = _round_up(shared_memory_bytes + limits.reserved_bytes, SHARED_UNIT)
    if shared:
        fitting.append(limits.shared_bytes // shared)
    return min(fitting) * warps / limits.warps


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


# Recognises AMD's GPUs under ROCm and refuses to measure them.
#
# Torch calls these GPUs ``cuda`` and gives them numbers like compute capabilities (``9.4``). They are recognised so
# that NVIDIA's tables and limits are never applied to them.


def is_rocm(environment: Environment) -> bool:
    """Whether the accelerator of an environment is an AMD GPU.

    The environment of a trace holds the name of the accelerator only, so the name is checked too.
    """
    return "rocm" in environment.versions.torch or (environment.device.accelerator or "").startswith("AMD ")


def find_refusal(version: str) -> InductorBenchError:
    """Returns the error for a torch that was built for this version of ROCm, with a hint at what to do instead."""
    return InductorBenchError(
        f"this torch is built for ROCm {version}, and AMD GPUs are not measured: the limits and the peaks here are "
        f"for NVIDIA GPUs",
        "measure on the CPU with --device cpu, or name a Python whose torch is built for CUDA with --python",
        "unsupported-device",
    )


# The table of GPU architectures for which kernels can be compiled on a machine without such a GPU.


@dataclass(frozen=True)
class Architecture:
    """The properties of a GPU that a compiler and Inductor's heuristics need."""

    name: str  # the name on the command line, for example ``sm_90``
    capability: int  # compute capability times 10
    device: str  # the name of a GPU of this architecture
    multiprocessors: int  # number of multiprocessors of ``device``
    threads: int  # maximum number of resident threads per multiprocessor
    shared_memory_bytes: int  # maximum bytes of shared memory per block
    registers: int = REGISTERS  # number of registers per multiprocessor


def _make_architecture(
    capability: int, device: str, multiprocessors: int, threads: int, shared_kib: int
) -> Architecture:
    return Architecture(f"sm_{capability}", capability, device, multiprocessors, threads, shared_kib * 1024)


ARCHITECTURES = {
    known.name: known
    for known in (
        _make_architecture(75, "T4", 40, 1024, 64),
        _make_architecture(80, "A100", 108, 2048, 163),
        _make_architecture(86, "A10", 72, 1536, 99),
        _make_architecture(89, "L4", 58, 1536, 99),
        _make_architecture(90, "H100", 132, 2048, 227),
        _make_architecture(100, "B200", 148, 2048, 227),
        _make_architecture(120, "RTX 5090", 170, 1536, 99),
    )
}
"""Architectures by name."""


def compute_capability(environment: Environment) -> str | None:
    """Returns the compute capability of the NVIDIA GPU of an environment, such as ``9.0``; ``None`` without such a GPU.

    All tables of this folder are looked up through this function, so that none is applied to another vendor's GPU.
    """
    return None if is_rocm(environment) else environment.device.compute_capability


# Describes NVIDIA's GPUs. Torch calls them ``cuda``, like AMD's GPUs, which ``rocm`` recognises.


class _Nvidia(Accelerator):
    has_tf32 = True
    library_switches: tuple[str, ...] = ("matmul_tf32", "cudnn_tf32", "cudnn_benchmark", "cudnn_deterministic")
    has_hardware_counters = True

    def theoretical_occupancy(
        self, environment: Environment, warps: int | None, registers: int | None, shared_memory_bytes: int | None
    ) -> float | None:
        capability = compute_capability(environment)
        return compute_theoretical_occupancy(capability, warps, registers, shared_memory_bytes)


NVIDIA: Device = _Nvidia("cuda", family="CUDA")


# Lists the GPUs that this process may use.


VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
"""The environment variable that limits a process to some GPUs; an empty value leaves none."""


def list_visible_gpus() -> tuple[str, ...]:
    """Returns the GPUs that CUDA would use, named as in ``CUDA_VISIBLE_DEVICES``; empty without ``nvidia-smi``."""
    visible = os.environ.get(VISIBLE_GPUS)
    if visible is not None:
        return tuple(name for part in visible.split(",") if (name := part.strip()) and name != "-1")
    return tuple(index for index, *_ in _query("index"))


def list_gpu_models(gpus: Sequence[str]) -> tuple[str, ...]:
    """Returns the different models of these GPUs, as far as ``nvidia-smi`` knows them."""
    rows = [row for row in _query("index,uuid,name") if len(row) == 3]
    found = (name for gpu in gpus for index, uuid, name in rows if gpu == index or (gpu and uuid.startswith(gpu)))
    return tuple(dict.fromkeys(found))


def _query(fields: str) -> list[list[str]]:
    """What ``nvidia-smi`` says of each GPU; empty without it."""
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = result.stdout.splitlines() if result.returncode == 0 else []
    return [[part.strip() for part in line.split(",")] for line in lines if line.strip()]


_LOST = re.compile(
    r"no CUDA-capable device|No CUDA GPUs are available|devices? unavailable|busy or unavailable|invalid device ordinal"
    r"|uncorrectable ECC|hardware error|fallen off the bus|GPU is lost|driver initialization failed"
    r"|device handle for GPU",
    re.IGNORECASE,
)


def is_gpu_lost(said: str) -> bool:
    """Whether an error says that the GPU is unusable for any program."""
    return _LOST.search(said) is not None

"""The table of GPU architectures for which kernels can be compiled on a machine without such a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from ...records.run import Environment
from ..rocm import is_rocm
from .multiprocessor import REGISTERS


@dataclass(frozen=True)
class Architecture:
    """The properties of a GPU that a compiler and Inductor's heuristics need.

    Attributes:
        name: the name on the command line, for example ``sm_90``.
        capability: compute capability times 10.
        device: the name of a GPU of this architecture.
        multiprocessors: number of multiprocessors of ``device``.
        threads: maximum number of resident threads per multiprocessor.
        shared_memory_bytes: maximum bytes of shared memory per block.
        registers: number of registers per multiprocessor.
    """

    name: str
    capability: int
    device: str
    multiprocessors: int
    threads: int
    shared_memory_bytes: int
    registers: int = REGISTERS


def _architecture(capability: int, device: str, multiprocessors: int, threads: int, shared_kib: int) -> Architecture:
    return Architecture(f"sm_{capability}", capability, device, multiprocessors, threads, shared_kib * 1024)


ARCHITECTURES = {
    known.name: known
    for known in (
        _architecture(75, "T4", 40, 1024, 64),
        _architecture(80, "A100", 108, 2048, 163),
        _architecture(86, "A10", 72, 1536, 99),
        _architecture(89, "L4", 58, 1536, 99),
        _architecture(90, "H100", 132, 2048, 227),
        _architecture(100, "B200", 148, 2048, 227),
        _architecture(120, "RTX 5090", 170, 1536, 99),
    )
}
"""Architectures by name."""


def compute_capability(environment: Environment) -> str | None:
    """Returns the compute capability of the NVIDIA GPU of an environment, such as ``9.0``; ``None`` without such a GPU.

    All tables of this folder are looked up through this function, so that none is applied to another vendor's GPU.
    """
    return None if is_rocm(environment) else environment.device.compute_capability


def architecture_of(environment: Environment) -> Architecture | None:
    """Returns the architecture of the GPU of an environment; ``None`` where :data:`ARCHITECTURES` has no entry."""
    return ARCHITECTURES.get(f"sm_{(compute_capability(environment) or '').replace('.', '')}")

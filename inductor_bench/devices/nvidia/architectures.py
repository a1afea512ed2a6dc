"""The GPU architectures for which kernels can be compiled on a machine without such a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from ...records.run import Environment
from ..rocm import is_rocm
from .multiprocessor import REGISTERS


@dataclass(frozen=True)
class Architecture:
    """The properties of a GPU that a compiler and Inductor's heuristics need.

    Attributes:
        name: as the user gives it, for example ``sm_90``.
        capability: compute capability times 10.
        device: a GPU of this architecture.
        multiprocessors: the number that ``device`` has.
        threads: maximum number of resident threads per multiprocessor.
        shared_memory_bytes: maximum per block.
        registers: per multiprocessor.
    """

    name: str
    capability: int
    device: str
    multiprocessors: int
    threads: int
    shared_memory_bytes: int
    registers: int = REGISTERS


def _known(capability: int, device: str, multiprocessors: int, threads: int, shared_kib: int) -> Architecture:
    return Architecture(f"sm_{capability}", capability, device, multiprocessors, threads, shared_kib * 1024)


ARCHITECTURES = {
    known.name: known
    for known in (
        _known(75, "T4", 40, 1024, 64),
        _known(80, "A100", 108, 2048, 163),
        _known(86, "A10", 72, 1536, 99),
        _known(89, "L4", 58, 1536, 99),
        _known(90, "H100", 132, 2048, 227),
        _known(100, "B200", 148, 2048, 227),
        _known(120, "RTX 5090", 170, 1536, 99),
    )
}
"""Architectures by name."""


def compute_capability(environment: Environment) -> str | None:
    """The compute capability of the NVIDIA GPU of an environment, such as ``9.0``; ``None`` where there is none.

    Every table of this folder is asked by it, so that none is applied to another vendor's GPU.
    """
    return None if is_rocm(environment) else environment.compute_capability


def architecture_of(environment: Environment) -> Architecture | None:
    """The architecture of the GPU of an environment, where it is known here."""
    return ARCHITECTURES.get(f"sm_{(compute_capability(environment) or '').replace('.', '')}")

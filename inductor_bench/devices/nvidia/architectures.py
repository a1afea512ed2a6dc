"""The GPU architectures that kernels can be compiled for where there is no such GPU."""

from __future__ import annotations

from dataclasses import dataclass

from ...records.run import Environment
from ..rocm import is_rocm
from .multiprocessor import REGISTERS


@dataclass(frozen=True)
class Architecture:
    """What a compiler and Inductor's heuristics ask of a GPU; sizes in bytes, threads and registers per multiprocessor.

    ``shared_memory_bytes`` is the most that one block may have. The multiprocessors are those of ``device``.
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
"""By the name that a user gives."""


def compute_capability(environment: Environment) -> str | None:
    """The compute capability of the NVIDIA GPU of an environment, such as ``9.0``; ``None`` where there is none.

    Every table of this folder is asked by it, so that none is applied to another vendor's GPU.
    """
    return None if is_rocm(environment) else environment.compute_capability


def architecture_of(environment: Environment) -> Architecture | None:
    """The architecture of the GPU of an environment, where it is known here."""
    return ARCHITECTURES.get(f"sm_{(compute_capability(environment) or '').replace('.', '')}")

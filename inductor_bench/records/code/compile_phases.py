"""The record of what compilation took, by phase."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

DYNAMO, AOT_AUTOGRAD, LOWERING, CODE_GENERATION, KERNELS, AUTOTUNING, CUDA_GRAPHS = (
    *("Dynamo", "AOTAutograd", "Inductor's lowering", "Inductor's code generation", "compilers of kernels"),
    *("autotuning", "recording of CUDA graphs"),
)
"""The phases. ``compilers of kernels``: Inductor waits for Triton or for the C++ compiler, and loads what they made."""


@dataclass(frozen=True)
class CompilePhase:
    """One phase of compilation. The phases of one process are disjoint.

    Attributes:
        name: ``Dynamo``, ``AOTAutograd``, ``Inductor's lowering``, ``Inductor's code generation``, ``compilers of
            kernels``, ``autotuning`` or ``recording of CUDA graphs``.
        time_s: seconds, summed over the compilations of one process.
    """

    name: str
    time_s: float


def total_s(phases: Iterable[CompilePhase]) -> float:
    """The seconds of all phases."""
    return sum(phase.time_s for phase in phases)

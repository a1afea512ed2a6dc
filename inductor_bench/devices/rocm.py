"""AMD's GPUs under ROCm, whose torch calls them ``cuda`` and numbers them like compute capabilities (``9.4``).

They are recognised here, so that no table and no limit of NVIDIA's is applied to them, and refused in words.
"""

from __future__ import annotations

from ..errors import InductorBenchError
from ..records.run import Environment


def is_rocm(environment: Environment) -> bool:
    """Whether the accelerator of an environment is AMD's; that of a trace is known by its name alone."""
    return "rocm" in environment.torch or (environment.accelerator or "").startswith("AMD ")


def refusal(version: str) -> InductorBenchError:
    """Why nothing is measured on a GPU by a torch that was built for this version of ROCm, and what to do instead."""
    return InductorBenchError(
        f"this torch is built for ROCm {version}, and AMD GPUs are not measured: the limits and the peaks here are "
        "those of NVIDIA GPUs",
        "measure on the CPU with --device cpu, or name a Python whose torch is built for CUDA with --python",
    )

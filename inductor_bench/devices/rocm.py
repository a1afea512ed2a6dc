"""Recognises AMD's GPUs under ROCm and refuses to measure them.

Torch calls these GPUs ``cuda`` and gives them numbers like compute capabilities (``9.4``). They are recognised so that
NVIDIA's tables and limits are never applied to them.
"""

from __future__ import annotations

from ..errors import InductorBenchError
from ..records.run import Environment


def is_rocm(environment: Environment) -> bool:
    """Whether the accelerator of an environment is an AMD GPU.

    The environment of a trace holds the name of the accelerator only, so the name is checked too.
    """
    return "rocm" in environment.versions.torch or (environment.device.accelerator or "").startswith("AMD ")


def refusal(version: str) -> InductorBenchError:
    """Returns the error for a torch that was built for this version of ROCm, with a hint at what to do instead."""
    return InductorBenchError(
        f"this torch is built for ROCm {version}, and AMD GPUs are not measured: the limits and the peaks here are "
        "those of NVIDIA GPUs",
        "measure on the CPU with --device cpu, or name a Python whose torch is built for CUDA with --python",
    )

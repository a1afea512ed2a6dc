"""Candidates of standalone Triton files, compiled for a GPU that this machine may lack, and not timed."""

from __future__ import annotations

from dataclasses import dataclass

from ..tuning import Config, TriedCandidate


@dataclass(frozen=True)
class CompiledCandidates:
    """The compiled candidates of one kernel.

    Attributes:
        method: the way of choosing candidates.
        candidates: with their registers, spills and shared memory.
        default_configs: the number of configurations that Inductor tries without max-autotune.
        max_configs: the number of configurations that Inductor tries with max-autotune.
        same_candidate_set: whether both sets are equal, so that max-autotune cannot be faster.
        limits: the parts of the kernel that cannot be varied, with the reason.
        time_s: duration of the compilation in seconds.
    """

    method: str
    candidates: tuple[TriedCandidate, ...]
    default_configs: int
    max_configs: int
    same_candidate_set: bool
    limits: str = ""
    time_s: float = 0.0


@dataclass(frozen=True)
class CompiledKernel:
    """One standalone file, compiled for another device.

    Attributes:
        name: the kernel's name.
        kernel_id: a hash of its content.
        file: the path of the standalone file.
        category: the category.
        target: the architecture for which it was compiled, for example ``sm_90``.
        config: the model's configuration, or else the first one.
        tuning: the compiled candidates.
    """

    name: str
    kernel_id: str
    file: str
    category: str
    target: str
    config: Config
    tuning: CompiledCandidates

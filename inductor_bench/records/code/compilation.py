"""What the candidates of standalone Triton files compile to for a GPU that need not be here. Nothing is timed."""

from __future__ import annotations

from dataclasses import dataclass

from ..tuning import Config, TriedCandidate


@dataclass(frozen=True)
class CompiledCandidates:
    """The candidates of one kernel.

    ``default_configs`` and ``max_configs`` count those that Inductor tries without and with max-autotune;
    ``same_candidate_set`` says that these are the same, so that max-autotune can win nothing. ``limits`` says what of
    this kernel cannot be varied, and why.
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
    """One standalone file, compiled for ``target``. ``config`` is the one that the model ran, or else the first."""

    name: str
    kernel_id: str
    file: str
    category: str
    target: str
    config: Config
    tuning: CompiledCandidates

"""What a person asks of a workflow, as typed values. The command line and the Python API both build these."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DRAWN, RECORDED = "drawn", "recorded"
VALUES_LIMIT_BYTES = 64_000_000

AMP = {
    "float16": "float16",
    "fp16": "float16",
    "half": "float16",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
}
"""What people call the dtypes of autocast, and torch's names."""

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

METHODS = ("max", "coordesc", "exhaustive")
"""The ways to retune kernels; see ``autotune.search``."""


@dataclass(frozen=True)
class RetuneOptions:
    """How the most expensive kernels of a run are retuned: which way, how many, and for how many seconds at most."""

    method: str
    top: int = 10
    budget_s: float | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """As options of ``breakdown``."""
        budget = ("--budget", f"{self.budget_s:g}") if self.budget_s is not None else ()
        return ("--autotune", self.method, "--top", str(self.top), *budget)


@dataclass(frozen=True)
class BreakdownOptions:
    """The request of one breakdown. ``None`` means: not said, the workflow decides.

    Attributes:
        targets: what to break down; several only where all are compiled modules.
        arguments: given to the program, where the target is one.
        training: whether a factory or a named model gets a loss and a backward pass.
        mode: the ``mode`` of ``torch.compile``.
        dynamic: the ``dynamic`` of ``torch.compile``.
        amp: the dtype of autocast, by torch's name (``float16``, ``bfloat16``).
        device: ``cpu``, ``cuda``, ``cuda:1``, …
        seed: of the random weights and inputs.
        batch_size: of a timm, torchvision or transformers target.
        live: profile every module in the capturing process, with the inputs that it really gets.
        trace: a trace recorded elsewhere, to analyse instead of running anything.
        timeout_s: the limit of each process that is started, in seconds.
        repeat: how many iterations are profiled.
        python: the interpreter to run the program under.
        output: the RUN folder.
        force: whether an earlier run there may be replaced.
        plots: whether PNG plots are drawn.
        values: ``recorded`` keeps what the kernels really read beside their standalone files, ``drawn`` does not.
        values_limit_bytes: of the recorded values of one kernel; what is above it is drawn.
        retune: how the most expensive kernels are retuned afterwards; ``None`` to leave them as they are.
        redact: names of options and variables whose values are kept out of the RUN; see ``store.redaction``.
    """

    targets: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    training: bool | None = None
    mode: str | None = None
    dynamic: bool | None = None
    amp: str | None = None
    device: str | None = None
    seed: int = 0
    batch_size: int | None = None
    live: bool = False
    trace: Path | None = None
    timeout_s: float | None = None
    repeat: int | None = None
    python: str | None = None
    output: Path | None = None
    force: bool = False
    plots: bool = True
    values: str = DRAWN
    values_limit_bytes: int = VALUES_LIMIT_BYTES
    retune: RetuneOptions | None = None
    redact: tuple[str, ...] = ()

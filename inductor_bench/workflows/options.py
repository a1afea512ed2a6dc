"""The options of workflows as typed values, which the command line and the Python API build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ..autotune import methods
from ..autotune.stake import Stake

DRAWN, RECORDED = "drawn", "recorded"
VALUES_LIMIT_BYTES = 64_000_000

AMP = {
    "float16": "float16",
    "fp16": "float16",
    "half": "float16",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
}
"""torch's names of the dtypes of autocast, by their usual names."""

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

METHODS = tuple(methods.METHODS)
METHODS_HELP = "; ".join(f"{method.help} ({method.name})" for method in methods.METHODS.values())
"""What each method of autotuning tries, in words."""


@dataclass(frozen=True)
class RetuneOptions:
    """The tuning of a run's ``top`` most expensive kernels.

    Attributes:
        method: the name of a method.
        top: the number of kernels.
        budget_s: the limit of all of it in seconds.
        remeasure: whether kernels are tuned also where their tuning is known from another run.
        verify: whether the program is run again afterwards, to prove what the winners save.
    """

    method: str
    top: int = 10
    budget_s: float | None = None
    remeasure: bool = False
    verify: bool = True

    @property
    def words(self) -> tuple[str, ...]:
        """The options of ``breakdown`` on the command line."""
        budget = ("--budget", f"{self.budget_s:g}") if self.budget_s is not None else ()
        again = ("--remeasure",) if self.remeasure else ()
        verify = () if self.verify else ("--no-verify",)
        return ("--autotune", self.method, "--top", str(self.top), *budget, *again, *verify)


@dataclass(frozen=True)
class BreakdownOptions:
    """The request of one breakdown. The workflow decides each option that is ``None``.

    Attributes:
        targets: the targets; several targets must all be compiled modules. Without one, ``arguments`` are a command.
        arguments: the arguments of the program, where the target is a program, or the words of a command.
        training: whether a factory or a named model gets a loss and a backward pass.
        mode: the ``mode`` of ``torch.compile``.
        dynamic: the ``dynamic`` of ``torch.compile``.
        amp: the dtype of autocast, by torch's name (``float16``, ``bfloat16``).
        device: ``cpu``, ``cuda``, ``cuda:1``, …
        seed: the seed of the random weights and inputs.
        batch_size: the batch size of a model of a library (``model_sources.LIBRARIES``).
        live: whether every module is profiled in the capturing process, with the program's inputs.
        trace: a trace recorded elsewhere, which is analysed instead of a run.
        timeout_s: limit of each started process in seconds.
        repeat: the number of profiled iterations.
        python: the interpreter that runs the program.
        output: the RUN folder.
        force: whether an earlier run in the RUN folder may be replaced.
        plots: whether the page has plots.
        values: ``recorded`` stores the values that the kernels read beside their standalone files; ``drawn`` does not.
        steps: the number of the program's steps that are timed, and of those that are profiled.
        skip: the number of steps before them; ``None`` waits until compilation has settled.
        stop: whether the program is ended once its steps are measured.
        eager: whether the program also runs without compilation, which times its steps.
        values_limit_bytes: maximum size of the recorded values of one kernel; storages above it are drawn.
        retune: the retuning of the most expensive kernels afterwards; ``None`` for none.
        redact: names of options and variables whose values are kept out of the RUN; see ``store.redaction``.
        variables: environment variables of the program, as pairs of name and value, beside those of this process.
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
    steps: int | None = None
    skip: int | None = None
    stop: bool = False
    eager: bool = False
    values_limit_bytes: int = VALUES_LIMIT_BYTES
    retune: RetuneOptions | None = None
    redact: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class KernelOptions:
    """The request of the verb ``kernel``.

    Attributes:
        targets: standalone files, folders of them, or ``RUN#KERNEL``, where ``KERNEL`` may be a glob.
        autotune: ``max``, ``coordesc`` or ``exhaustive``; ``None`` for no tuning.
        configs: whether all configurations that Inductor chooses from are timed, without a winner.
        state: whether candidates are compared ``cold`` or ``warm``.
        budget_s: time in seconds after which autotuning begins no further candidates; ``None`` for no limit.
        save: the standalone file that the winner is written to; a folder for several kernels.
        check: whether outputs are first compared with the reference in the file.
        timeout_s: limit for each step of one kernel in seconds; ``None`` for a limit that depends on the step.
        python: the interpreter whose torch measures; ``None`` for this one.
        ncu: whether Nsight Compute reads hardware counters of each kernel.
        force: whether a GPU that another job uses is measured all the same.
        stakes: what is at stake with each target, where the targets are files of a run's kernels, and with the run's
            other kernels. The targets are tuned by what they can win for the step, and not measured before. Empty for
            other requests.
    """

    targets: tuple[str, ...]
    autotune: str | None = None
    state: str = "cold"
    budget_s: float | None = None
    save: Path | None = None
    check: bool = True
    timeout_s: float | None = None
    python: str | None = None
    ncu: bool = False
    force: bool = False
    configs: bool = False
    stakes: Mapping[str, Stake] = field(default_factory=dict)


# The interface through which a workflow reports its progress.


class Progress(Protocol):
    """A listener of a workflow. ``output`` may be called from another thread."""

    def stage(self, text: str) -> None:
        """Reports the start of a stage, for example ``profiling backward (2 of 2)``, which ends the stage before it."""

    def update(self, text: str) -> None:
        """Reports the progress of the present stage, for example ``12 of 95 kernels``; it replaces the last update."""

    def note(self, text: str) -> None:
        """Reports a remark for the user; the stage goes on."""

    def output(self, line: str) -> None:
        """Reports one line that the user's program or a worker printed, without its line end."""


class Silent:
    """A listener that ignores all reports."""

    def stage(self, text: str) -> None:
        pass

    def update(self, text: str) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def output(self, line: str) -> None:
        pass

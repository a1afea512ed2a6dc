"""The record of a RUN's configurations in its program: what was pinned, and what it saves."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..forms import Place
from ..tuning import Config
from ..retune import UNDECIDED as UNDECIDED

STEPS, PROCESSES = "steps", "processes"
"""How the two were compared: steps of one process in turn, or processes in turn."""

SAVES, SLOWER, NO_DIFFERENCE = "saves", "slower", "no difference"
"""The verdicts on a saving."""

DROPPED, UNPINNABLE = "dropped", "unpinnable"
"""States of a kernel whose pin changes the outputs of its graph, and of a winner that cannot be pinned."""


@dataclass(frozen=True)
class Saving:
    """A time per step with Inductor's own configurations, and what the pins save of it, in seconds.

    Attributes:
        own_s: the median with Inductor's own configurations.
        tuned_s: the median with the pins.
        saving_s: the median of the differences of neighbouring samples.
        low_s: lower end of its 95% interval.
        high_s: upper end of that interval.
        pairs: the number of differences.
        verdict: ``saves``, ``slower``, ``no difference``, or ``undecided`` for too few samples, and where a surer
            interval than ``low_s`` to ``high_s`` does not bear out what that one says.
    """

    own_s: float
    tuned_s: float
    saving_s: float
    low_s: float
    high_s: float
    pairs: int
    verdict: str


@dataclass(frozen=True)
class AppliedKernel:
    """One retune that won something, in the program.

    Attributes:
        name: the name of the kernel.
        kernel_id: a hash of the kernel's content.
        config: the configuration to which it is pinned.
        state: ``pinned``, or why it is not: ``replaced``, ``refused``, ``unused``, ``missing`` (the program has no such
            kernel), ``dropped`` (it changes the outputs) or ``unpinnable``.
        reason: the state in words; empty for ``pinned``.
        predicted_s: the projected saving in seconds per step.
        saving_s: the difference of its device time per step; ``None`` where it was not measured.
        own_config: the configuration that Inductor chose in this program, where it chose another one in the RUN; empty
            otherwise. What the kernel saves then depends on that choice.
    """

    name: str
    kernel_id: str
    config: Config
    state: str
    reason: str = ""
    predicted_s: float = 0.0
    saving_s: float | None = None
    own_config: Config = field(default_factory=dict)


@dataclass(frozen=True)
class Outputs:
    """The outputs of the program's graphs with the pins against those without, for the same inputs.

    Attributes:
        graphs: the number of graphs that were compared.
        tensors: the number of their outputs, and of inputs that they write.
        difference: the largest relative difference: the norm of the difference divided by the tensor's.
        own_difference: the same of that tensor for two calls without the pins.
        tolerance: the difference up to which that tensor counts as equal.
        unrepeatable: the number of further tensors, which two calls without the pins fill differently, so that they
            cannot be compared: seeds of random numbers, or memory that nobody reads.
        rounding: the number of further tensors that differ by more than the tolerance, and no more than where the
            graph's inputs are rounded otherwise, such as the means of a batch norm's centred input.
        reason: why some graph was not compared; empty where all were.
    """

    graphs: int = 0
    tensors: int = 0
    difference: float = 0.0
    own_difference: float = 0.0
    tolerance: float = 0.0
    unrepeatable: int = 0
    rounding: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Verification:
    """The comparison of the program with its configurations and without.

    Attributes:
        way: ``steps`` (steps of one process in turn) or ``processes`` (processes in turn).
        predicted_s: the projected saving of the pinned kernels in seconds per step.
        step: the step's time; ``None`` where too few steps were timed.
        device: the sum of the durations on the device per step; ``None`` without a profile, and on a CPU.
        outputs: the comparison of the outputs.
        kernels: every retune that won something, the largest projection first.
        notes: what limits the figures.
        trace: the profiled steps.
        created: the time of the comparison.
    """

    way: str
    predicted_s: float
    step: Saving | None = None
    device: Saving | None = None
    outputs: Outputs = Outputs()
    kernels: tuple[AppliedKernel, ...] = ()
    notes: tuple[str, ...] = ()
    trace: Place | None = None
    created: str = ""

    @property
    def pinned(self) -> int:
        """The number of kernels that ran their pins."""
        return sum(kernel.state == "pinned" for kernel in self.kernels)

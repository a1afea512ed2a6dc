"""What a process found when it ran its steps with Inductor's own and with the pinned configurations in turn."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .steps import DONE as DONE
from .steps import FAILED as FAILED
from .steps import PROFILING as PROFILING
from .steps import TIMING as TIMING
from .steps import ObservedGraph

SETTLING, CHECKING = "settling", "checking"
"""States of a comparison."""

CUDA_GRAPHS = "cuda-graphs"
"""State of a comparison that cannot be made in one process: a recorded CUDA graph keeps the kernels that it has."""


@dataclass(frozen=True)
class ComparedStep:
    """One step: whether it ran the pins, and its seconds, on the device's clock where there is one."""

    tuned: bool
    time_s: float


@dataclass(frozen=True)
class ComparedOutputs:
    """The outputs of one compiled graph with the pins against those without, for the same inputs.

    Attributes:
        path: the path of the compiled module.
        difference: the largest relative difference of a tensor: the norm of the difference divided by the tensor's.
        own_difference: the same of two calls without the pins: what the graph itself does not repeat.
        tolerance: the difference up to which the outputs count as equal.
        tensors: the number of compared tensors, with inputs that the graph writes.
        unrepeatable: the number of further tensors, which two calls without the pins fill differently: seeds of random
            numbers, or memory that nobody reads.
        rounding: the number of further tensors that differ, and no more than where the graph's inputs are rounded
            otherwise.
        reason: why the outputs were not compared; empty where they were.
    """

    path: str
    difference: float = 0.0
    own_difference: float = 0.0
    tolerance: float = 0.0
    tensors: int = 0
    unrepeatable: int = 0
    rounding: int = 0
    reason: str = ""

    @property
    def is_equal(self) -> bool:
        return self.difference <= self.tolerance

    @property
    def excess(self) -> float:
        """The difference as a multiple of the tolerance; infinite for any difference where none is tolerated."""
        if not self.difference:
            return 0.0
        return self.difference / self.tolerance if self.tolerance else math.inf


@dataclass(frozen=True)
class ComparedSteps:
    """The comparison of one process, written as ``<pid>.compared.json`` into the capture's folder.

    Attributes:
        pid, rank: of the process; ``rank`` is ``None`` where the program is not distributed.
        device: the type of the device.
        source: what delimits the steps, as in ``ObservedSteps``.
        steps: the timed steps in order.
        graphs: the compiled graphs in the order of their first call, by whose numbers ``trace`` names their calls.
        profiled: for each step in ``trace`` whether it ran the pins.
        trace: the path of the profiler's trace; empty where there is none.
        outputs: one entry for each compiled graph of one step.
        dropped: ids of the kernels whose pins change the outputs; they ran Inductor's own configuration.
        error: the reason of a failure.
        notes: what limits the figures.
    """

    pid: int
    device: str
    state: str
    rank: int | None = None
    source: str = ""
    steps: tuple[ComparedStep, ...] = ()
    graphs: tuple[ObservedGraph, ...] = ()
    profiled: tuple[bool, ...] = ()
    trace: str = ""
    outputs: tuple[ComparedOutputs, ...] = ()
    dropped: tuple[str, ...] = ()
    error: str = ""
    notes: tuple[str, ...] = ()

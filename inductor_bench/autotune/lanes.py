"""The kernels of a pipeline on their way, the workers that time them, and the state of all of them for a report."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from ..devices.table import device_of
from ..launch.session import WorkerSession
from .compile_pool import CompileOutcome
from .timing_worker import Waiting
from .tuner import Tuner, TuningSteps


@dataclass(eq=False)
class Slot:
    """A worker that times, and the kernel that uses it now.

    Attributes:
        worker: returns the worker once it is ready; a new worker after the last was lost.
        name: the key of the kernel; ``None`` while no kernel uses the worker.
        asked: the worker, from a request to its answer.
        readying: the steps that get the worker ready, until they are done.
    """

    worker: Callable[[], Waiting[WorkerSession]]
    name: Hashable | None = None
    asked: WorkerSession | None = None
    readying: Waiting[WorkerSession] | None = None


@dataclass
class Lane:
    """One kernel on its way.

    Attributes:
        tuner: its tuner.
        search: its search; ``None`` while the pool lists its configurations.
        outstanding: the keys of its jobs that are not done.
        outcomes: the outcomes of the other jobs since its last timing.
        begun: whether the search has begun.
        slot: the worker that has loaded it, if any.
    """

    tuner: Tuner
    search: TuningSteps | None = None
    outstanding: set[int] = field(default_factory=set)
    outcomes: list[CompileOutcome] = field(default_factory=list)
    begun: bool = False
    slot: Slot | None = None

    @property
    def runs_on_host(self) -> bool:
        """Whether its device is known to be the host."""
        return self.tuner.timing.is_known and device_of(self.tuner.device).runs_on_host


@dataclass(frozen=True)
class PipelineState:
    """The state of the kernels, for a report to the user.

    Attributes:
        timed: a kernel that is opened or timed now; ``None`` while there is none.
        done: number of kernels that are tuned or have failed.
        kernels: number of all kernels.
        candidates: number of candidates so far.
        compiling: number of jobs in the compile pools.
    """

    timed: Hashable | None
    done: int
    kernels: int
    candidates: int
    compiling: int

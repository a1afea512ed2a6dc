"""The requests to workers that do one job and end.

The ``verb`` of a job is its name on the worker's command line and the stage of a failure in the record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ..records.code.details import Details
from ..records.code.launch import Launch
from ..records.run import Environment, Peaks
from ..records.traced.operators import OperatorCall, OperatorCost
from .request import Answer, Request


class WorkerJob(Request[Answer]):
    """A job that a worker does before it ends.

    The worker may save a part of the answer early, in case a later step ends the process.

    Attributes:
        verb: the name of the job on the command line and in failures.
    """

    verb: ClassVar[str]


@dataclass(frozen=True)
class WantedValues:
    """The request to record the values that launches read.

    Attributes:
        folder: the folder to which the values are written.
        limit_bytes: largest number of recorded bytes per launch.
    """

    folder: str
    limit_bytes: int


@dataclass(frozen=True)
class ProfileModule(WorkerJob[Details]):
    """Runs a compiled module with its own harness and profiles it.

    Attributes:
        module: path of the module's file.
        label: heading of the profile.
        device: device type on which the module runs.
        repeat: requested number of profiled iterations.
        trace: path to which the trace is written.
        text: path to which the text of the profile is written.
        threads: number of torch's threads; ``None`` for torch's default.
        switches: torch's switches that select the library kernels.
        vector_lanes: number of float32 lanes in the vector steps of the C++ kernels; ``None`` where they have none.
        compiled: whether the module's kernels are in the compiler's caches.
        configs: the configs of the program's Triton kernels, which they run in here, too.
        values: the request to record the values that launches read; ``None`` records none.
    """

    verb = "profile"

    module: str
    label: str
    device: str
    repeat: int
    trace: str
    text: str
    threads: int | None = None
    switches: dict[str, bool] | None = None
    vector_lanes: int | None = None
    compiled: bool = False
    configs: dict[str, dict[str, int]] = field(default_factory=dict)
    values: WantedValues | None = None


@dataclass(frozen=True)
class ListLaunches(WorkerJob[Details]):
    """Runs a compiled module with its own harness once, without measuring it, and lists its launches."""

    verb = "launches"

    module: str
    device: str
    threads: int | None = None
    vector_lanes: int | None = None


@dataclass(frozen=True)
class RecordValues(WorkerJob[Details]):
    """Runs a compiled module with its own harness and records the values that some of its launches read."""

    verb = "values"

    module: str
    device: str
    launches: tuple[Launch, ...]
    values: WantedValues
    threads: int | None = None
    vector_lanes: int | None = None


@dataclass(frozen=True)
class MakeReferences(WorkerJob[Details]):
    """Makes each launch once and returns references of the outputs.

    The launches in ``recorded`` read their recorded values from ``values_folder``. ``configs`` are those of the
    program's Triton kernels. The module's kernels are in the compiler's caches.
    """

    verb = "references"

    module: str
    device: str
    launches: tuple[Launch, ...]
    threads: int | None = None
    switches: dict[str, bool] | None = None
    recorded: tuple[Launch, ...] = ()
    values_folder: str = "."
    configs: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Surveyed:
    """The facts about a machine. ``costs`` has one entry per requested call; ``peaks`` is ``None`` if not requested."""

    environment: Environment
    costs: tuple[OperatorCost, ...] = ()
    peaks: Peaks | None = None


@dataclass(frozen=True)
class SurveyMachine(WorkerJob[Surveyed]):
    """Requests the environment, the costs of operators and the peaks of a device type.

    ``peaks`` is ``none``, ``cached`` (measured only where the stored peaks are missing) or ``measured`` (always).
    """

    verb = "survey"

    calls: tuple[OperatorCall, ...] = ()
    device: str = "cpu"
    peaks: str = "none"

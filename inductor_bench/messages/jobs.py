"""The jobs of workers that do one thing and end. A job is a request; its ``verb`` names it on the command line and as
the stage of a failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..records.code.details import Details
from ..records.code.launch import Launch
from ..records.run import Environment, Peaks
from ..records.traced.operators import OperatorCall, OperatorCost
from .request import Answer, Request


class WorkerJob(Request[Answer]):
    """What a worker does before it ends. It may save a part of the answer first, should a later step end the process.

    Attributes:
        verb: its name on the command line and in failures.
    """

    verb: ClassVar[str]


@dataclass(frozen=True)
class WantedValues:
    """Where the values that launches read are recorded, and the limit of what is recorded of one launch."""

    folder: str
    limit_bytes: int


@dataclass(frozen=True)
class ProfileModule(WorkerJob[Details]):
    """Runs a compiled module with its own harness and profiles it.

    Attributes:
        module: its file.
        label: what the profile is headed with.
        device: the device type that it runs on.
        repeat: profiled iterations wanted.
        threads: of torch; ``None`` for as many as torch takes.
        switches: those of torch that decide which library kernels run.
        vector_lanes: the vector width that its C++ kernels are written for.
        compiled: whether its kernels are in the compiler's caches.
        trace: where the trace goes.
        text: where the text of the profile goes.
        values: where the values that its launches read are recorded; ``None`` to record none.
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
    values: WantedValues | None = None


@dataclass(frozen=True)
class ListLaunches(WorkerJob[Details]):
    """Runs a compiled module with its own harness once, without measuring it, for the sake of its launches."""

    verb = "launches"

    module: str
    device: str
    threads: int | None = None
    vector_lanes: int | None = None


@dataclass(frozen=True)
class RecordValues(WorkerJob[Details]):
    """Runs a compiled module with its own harness and records what some of its launches read."""

    verb = "values"

    module: str
    device: str
    launches: tuple[Launch, ...]
    values: WantedValues
    threads: int | None = None
    vector_lanes: int | None = None


@dataclass(frozen=True)
class MakeReferences(WorkerJob[Details]):
    """Makes launches once and says what they wrote; those of ``recorded`` with values that lie in ``values_folder``."""

    verb = "references"

    module: str
    device: str
    launches: tuple[Launch, ...]
    threads: int | None = None
    switches: dict[str, bool] | None = None
    recorded: tuple[Launch, ...] = ()
    values_folder: str = "."


@dataclass(frozen=True)
class Surveyed:
    """The machine. ``costs`` has one entry for each call that was asked about; ``peaks`` is there where it was asked
    for."""

    environment: Environment
    costs: tuple[OperatorCost, ...] = ()
    peaks: Peaks | None = None


@dataclass(frozen=True)
class SurveyMachine(WorkerJob[Surveyed]):
    """Asks for the environment, the costs of operators and the peaks of a device type.

    ``peaks`` is ``none``, ``cached`` (measured only where the cache has none) or ``measured`` (afresh).
    """

    verb = "survey"

    calls: tuple[OperatorCall, ...] = ()
    device: str = "cpu"
    peaks: str = "none"

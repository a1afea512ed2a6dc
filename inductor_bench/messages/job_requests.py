"""Requests to workers that do one job and end, and requests about a worker's process and its device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar, get_args

from ..devices.nvidia import Architecture
from ..errors import InductorBenchError
from ..records.base import DeviceUse
from ..records.code import Details, Launch
from ..records.run import Environment, Peaks
from ..records.traced import OperatorCall, OperatorCost
from ..store import codec

# The base class of all requests, and their encoding: a JSON object with the name of the request's class.


Answer = TypeVar("Answer")
TAG = "do"


class WorkerRequest(Generic[Answer]):
    """A request to a worker. A subclass is a dataclass and names the type of its answer: ``Load(Request[Facts])``."""

    answer_type: ClassVar[Any]  # the type of the answer, which is used to decode it

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        (base,) = cls.__orig_bases__  # type: ignore[attr-defined]
        (cls.answer_type,) = get_args(base)


def encode_request(request: WorkerRequest[Any]) -> dict[str, Any]:
    """Encodes a request as plain JSON data."""
    return {TAG: type(request).__name__, **codec.encode(request)}


def index_by_name(kinds: Iterable[type[WorkerRequest[Any]]]) -> dict[str, type[WorkerRequest[Any]]]:
    """Returns the table of request classes that :func:`decode_request` uses."""
    return {kind.__name__: kind for kind in kinds}


def decode_request(data: Any, kinds: Mapping[str, type[WorkerRequest[Any]]]) -> WorkerRequest[Any]:
    """Decodes the output of :func:`encode_request`.

    Raises:
        InductorBenchError: the request is none of ``kinds``, or its fields are invalid.
    """
    name = data.get(TAG) if isinstance(data, dict) else None
    kind = kinds.get(str(name))
    if kind is None:
        raise InductorBenchError(f"the worker knows no request {name}")
    return codec.decode(kind, data)


def decode_answer(request: WorkerRequest[Answer], data: Any) -> Answer:
    """Decodes the answer to a request from plain JSON data.

    Raises:
        InductorBenchError: the data is no answer to the request.
    """
    answer: Answer = codec.decode(request.answer_type, data)
    return answer


# The requests to workers that do one job and end.
#
# The ``verb`` of a job is its name on the worker's command line and the stage of a failure in the record.


class WorkerJob(WorkerRequest[Answer]):
    """A job that a worker does before it ends.

    The worker may save a part of the answer early, in case a later step ends the process.
    """

    verb: ClassVar[str]  # the name of the job on the command line and in failures


@dataclass(frozen=True)
class WantedValues:
    """The request to record the values that launches read."""

    folder: str  # the folder to which the values are written
    limit_bytes: int  # largest number of recorded bytes per launch


@dataclass(frozen=True)
class ProfileModule(WorkerJob[Details]):
    """Runs a compiled module with its own harness and profiles it."""

    verb = "profile"

    module: str  # path of the module's file
    label: str  # heading of the profile
    device: str  # device type on which the module runs
    repeat: int  # requested number of profiled iterations
    trace: str  # path to which the trace is written
    text: str  # path to which the text of the profile is written
    threads: int | None = None  # number of torch's threads; ``None`` for torch's default
    switches: dict[str, bool] | None = None  # torch's switches that select the library kernels
    # number of float32 lanes in the vector steps of the C++ kernels; ``None`` if they have none
    vector_lanes: int | None = None
    compiled: bool = False  # whether the module's kernels are in the compiler's caches
    # the configs of the program's Triton kernels, which they run in here, too
    configs: dict[str, dict[str, int]] = field(default_factory=dict)
    values: WantedValues | None = None  # the request to record the values that launches read; ``None`` records none


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
class MachineFacts:
    """The facts about a machine. ``costs`` has one entry per requested call; ``peaks`` is ``None`` if not requested, or
    if what was measured does not count, which ``no_peaks`` explains."""

    environment: Environment
    costs: tuple[OperatorCost, ...] = ()
    peaks: Peaks | None = None
    no_peaks: str = ""
    phases_s: dict[str, float] = field(default_factory=dict)  # seconds of each phase of the survey


@dataclass(frozen=True)
class SurveyMachine(WorkerJob[MachineFacts]):
    """Requests the environment, the costs of operators and the peaks of a device type.

    ``peaks`` is ``none``, ``known`` (never measured), ``cached`` (measured only if the stored peaks are missing) or
    ``measured`` (always). Without ``describes`` only the costs are wanted, for which no device is needed.
    """

    verb = "survey"

    calls: tuple[OperatorCall, ...] = ()
    device: str = "cpu"
    peaks: str = "none"
    describes: bool = True
    # the number of torch's threads with which the calls are timed in float32 and in bfloat16; ``None`` times none
    bfloat16_threads: int | None = None


# Requests about a worker's process and its device.


COMPILES_TRITON = "INDUCTOR_BENCH_COMPILES_TRITON"
"""Environment variable of a worker that only compiles Triton kernels: it imports the compiler before its first request,
and leaves its core to processes that time.
"""

LAUNCHES_TRITON = "INDUCTOR_BENCH_LAUNCHES_TRITON"
"""Environment variable of a worker that times Triton kernels: it imports their launcher before its first request."""

LAUNCH_GAP = "INDUCTOR_BENCH_LAUNCH_GAP"
"""Environment variable of workers that share a GPU: the file with the gap between two launches. The first worker that
is ready measures it for all."""


@dataclass(frozen=True)
class TellEnvironment(WorkerRequest[Environment]):
    """Requests the environment in which the process measures."""


@dataclass(frozen=True)
class TellOptions(WorkerRequest[dict[str, str]]):
    """Requests the options of Inductor: the value of each as Python writes it."""


@dataclass(frozen=True)
class FindDeviceUse(WorkerRequest[DeviceUse | None]):
    """Requests the use of the GPU by other jobs. The answer is ``None`` if the driver does not report it."""


@dataclass(frozen=True)
class GetReady(WorkerRequest[None]):
    """Lets the process do what it does once before it times kernels on a GPU."""


@dataclass(frozen=True)
class StartCompilers(WorkerRequest[None]):
    """Starts the processes in which Inductor compiles the choices of library calls, and imports its compiler."""

    sharers: int = 1  # the number of workers that divide Inductor's processes among them


@dataclass(frozen=True)
class TellArchitecture(WorkerRequest[Architecture]):
    """Requests the architecture of the GPU."""


@dataclass(frozen=True)
class CompilerVersions:
    """The versions of the packages that compile Triton kernels."""

    torch: str
    triton: str


@dataclass(frozen=True)
class Pretend(WorkerRequest[CompilerVersions]):
    """Lets the process compile kernels for a GPU that the machine lacks."""

    architecture: Architecture

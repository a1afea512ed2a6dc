"""What an executor of a batch is given and what it says: jobs, each a command of this tool that leaves a RUN, and what
became of them. An executor decides where and when a job runs, and nothing about its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..devices.table import device_of
from .interpreter import module_words
from .process import ProcessResult

ENTRY = module_words("inductor_bench")
"""What an interpreter runs for a job."""

OFFLINE = dict.fromkeys(
    ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE", "INDUCTOR_BENCH_OFFLINE"), "1"
)
"""Nothing is fetched while a batch runs."""


def is_host(device: str | None) -> bool:
    """Whether jobs on a device need all cores of the machine and no GPU; ``None`` is the best device there is."""
    return device_of(device).runs_on_host


@dataclass(frozen=True)
class Job:
    """One attempt at a model.

    Attributes:
        name: unique among the jobs in flight.
        target: as ``breakdown`` takes it.
        options: of ``breakdown``.
        arguments: of the program, where it is a script.
        device: ``cpu`` where it needs no GPU.
        timeout_s: the limit of the whole job.
        run, log: where its RUN and its output go.
        alone: whether it must not share its device with another job, not even by turns.
        goes_on: whether its target is the RUN itself, which is there and gets more; otherwise it is made anew.
    """

    name: str
    target: str
    options: tuple[str, ...]
    arguments: tuple[str, ...]
    device: str | None
    timeout_s: float | None
    run: Path
    log: Path
    alone: bool = False
    goes_on: bool = False

    def words(self, target: str, run: Path) -> list[str]:
        """The command line of ``inductor-bench``."""
        rest = ["--", *self.arguments] if self.arguments else []
        return ["breakdown", target, *self.options, *([] if self.goes_on else ["-o", str(run)]), *rest]


@dataclass(frozen=True)
class Began:
    """A job runs. ``device`` is ``cpu`` or a GPU's name, after ``HOST:`` on another machine."""

    name: str
    device: str


@dataclass(frozen=True)
class Ended:
    """A job is over, its RUN and its log are in their place. ``shared`` is whether another used the same device."""

    name: str
    result: ProcessResult
    shared: bool = False


@dataclass(frozen=True)
class Lost:
    """The machine that a job ran on is gone, which says nothing about the job."""

    name: str
    reason: str


Event = Began | Ended | Lost


class Executor(Protocol):
    """Runs jobs."""

    @property
    def slots(self) -> int:
        """How many jobs can run at once."""

    def settle(self, work: Path, inherited: Sequence[int]) -> None:
        """Says where scratch files go, and which descriptors every process of a job must hold open."""

    def takes(self, job: Job) -> bool:
        """Whether it wants this job now."""

    def start(self, job: Job) -> None:
        """Takes a job. Raises: InductorBenchError: its process cannot be started."""

    def events(self) -> list[Event]:
        """What has happened since it was last asked.

        Raises:
            InductorBenchError: nothing can be run any more.
        """

    def close(self) -> None:
        """Ends whatever still runs. May be called again."""

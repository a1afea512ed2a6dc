"""The interface of a batch's executors, jobs and events, and the cores that each job may use."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..devices.table import device_of
from .process import ProcessResult, module_words

# The interface of a batch's executors: jobs and events.
#
# A job is a command of this tool that writes a RUN. An executor decides where and when a job runs, and reports its end.


ENTRY = module_words("inductor_bench")
"""The arguments with which an interpreter runs a job."""

OFFLINE = dict.fromkeys(
    ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE", "INDUCTOR_BENCH_OFFLINE"), "1"
)
"""Environment variables that forbid downloads during a batch."""


def is_host(device: str | None) -> bool:
    """Whether jobs on a device need all cores of the machine and no GPU; ``None`` is the best device there is."""
    return device_of(device).runs_on_host


@dataclass(frozen=True)
class Job:
    """One attempt at a model."""

    name: str  # unique among the running jobs
    target: str  # the model, as ``breakdown`` takes it
    options: tuple[str, ...]  # the options of the verb
    arguments: tuple[str, ...]  # the arguments of the program, if the target is a script
    device: str | None  # ``cpu`` for a job that needs no GPU
    timeout_s: float | None  # limit of the whole job in seconds; ``None`` for no limit
    run: Path  # the paths of its RUN and of its output
    log: Path  # the paths of its RUN and of its output
    alone: bool = False  # whether no other job may share its device, even by turns
    # whether the verb is given the RUN itself, which exists and is extended; otherwise the RUN is made anew
    goes_on: bool = False
    verb: str = "breakdown"  # what is done with it

    def words(self, target: str, run: Path) -> list[str]:
        """The arguments of ``inductor-bench`` for this job, with ``target`` and ``run`` as paths on its machine."""
        rest = ["--", *self.arguments] if self.arguments else []
        if self.goes_on:
            return [self.verb, str(run), *self.options]
        return [self.verb, target, *self.options, "-o", str(run), *rest]


@dataclass(frozen=True)
class JobBegan:
    """A job has started. ``device`` is ``cpu`` or a GPU's name, after ``HOST:`` on another machine."""

    name: str
    device: str


@dataclass(frozen=True)
class JobEnded:
    """A job has ended; its RUN and its log are in their places. ``shared``: whether another job used its device."""

    name: str
    result: ProcessResult
    shared: bool = False


@dataclass(frozen=True)
class JobLost:
    """The machine of a job is gone; the job itself did not fail."""

    name: str
    reason: str


Event = JobBegan | JobEnded | JobLost


class Executor(Protocol):
    """Runs jobs."""

    @property
    def slots(self) -> int:
        """The number of jobs that can run at once."""

    def settle(self, work: Path, inherited: Sequence[int]) -> None:
        """Prepares for jobs.

        Args:
            work: the folder for scratch files.
            inherited: descriptors that every process of a job holds open.
        """

    def takes(self, job: Job) -> bool:
        """Whether the executor can start this job now."""

    def start(self, job: Job) -> None:
        """Starts a job.

        Raises:
            InductorBenchError: its process cannot be started.
        """

    def events(self) -> list[Event]:
        """The events since the last call.

        Raises:
            InductorBenchError: no more jobs can run.
        """

    def close(self) -> None:
        """Ends all running jobs. May be called again."""


# Divides the cores of a machine among the processes that compile and the process that is timed.


COMPILE_THREADS = "TORCHINDUCTOR_COMPILE_THREADS"

OMP_THREADS = "OMP_NUM_THREADS"
"""Environment variable: the number of threads of operators on the CPU."""

CORES_OF_A_JOB = 4
"""Cores per device and job below which compiling would take cores from the process that is timed."""

MOST_AT_ONCE = 4
"""Maximum number of jobs that overlap on a device. Each holds device memory, and its timing takes at least a fifth of
its duration."""

CORES_OF_A_TIMER = 4
MOST_TIMERS = 3
"""Cores for each of the workers that time candidates on one device in turn, and their maximum number."""

CORES_KEPT_FROM_A_RETUNE = 1
"""Cores that are reserved for the parent of a retune. Its workers that time go before those that compile, which have a
low priority."""

CORES_KEPT = 2
"""Cores of each device that are reserved for the process that is timed."""


def jobs_at_once(cores: int, devices: Sequence[str]) -> int:
    """The number of jobs that may overlap on each device; 1 on a CPU, where the timed model needs all cores."""
    if any(map(is_host, devices)):
        return 1
    return max(1, min(MOST_AT_ONCE, cores // len(devices) // CORES_OF_A_JOB))


def compile_threads(cores: int, devices: int, at_once: int) -> int | None:
    """The number of compile threads of a job that leaves other jobs their cores; ``None`` for torch's choice."""
    share = cores // devices
    if at_once > 1:
        return max(1, (share - CORES_KEPT) // at_once)
    return max(1, share) if devices > 1 else None


def most_timing_workers(cores: int) -> int:
    """Maximum number of workers that share a device to time candidates: the others load while one of them times."""
    return max(1, min(MOST_TIMERS, cores // CORES_OF_A_TIMER))


def cores_of_this_process() -> int:
    """The number of cores that this process may use; its share of them if other jobs compile at the same time."""
    share = os.environ.get(COMPILE_THREADS, "")
    return min(usable_cores(), int(share)) if share.isdecimal() and int(share) else usable_cores()


def usable_cores() -> int:
    return len(os.sched_getaffinity(0))

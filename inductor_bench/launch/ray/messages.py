"""The messages between a batch, its connection to a cluster (:mod:`.cluster`) and a machine there (:mod:`.node`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Order:
    """What a machine runs.

    Attributes:
        entry: the arguments with which an interpreter runs a job.
        words: the command line, with ``{run}`` for the RUN's path.
        variables: environment variables.
        timeout_s: limit of the job in seconds; ``None`` for no limit.
    """

    entry: tuple[str, ...]
    words: tuple[str, ...]
    variables: dict[str, str]
    timeout_s: float | None


@dataclass(frozen=True)
class ClusterJob:
    """A job for the cluster. Paths are absolute, on the batch's machine.

    Attributes:
        name: unique among the running jobs.
        gpu: whether the job has a GPU; otherwise it has a whole machine.
        program: the path of its program, if it is a file.
        goes_on: whether the job extends an existing RUN.
        order: what a machine runs.
        log, run: the paths of its output and of its RUN.
        arriving: the path at which the RUN's files are collected.
    """

    name: str
    gpu: bool
    program: str | None
    goes_on: bool
    order: Order
    log: str
    run: str
    arriving: str


@dataclass(frozen=True)
class JobEnd:
    """The end of a job's process: the fields of ``ProcessResult`` without the log."""

    exit_code: int | None
    signal_name: str | None
    timed_out: bool
    time_s: float

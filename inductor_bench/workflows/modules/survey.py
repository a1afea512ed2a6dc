"""Asks a worker for the environment, the peaks, and the costs of library calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...launch.forking_worker import NO_VARIABLES
from ...launch.worker import WorkerPool
from ...messages.job_requests import SurveyMachine
from ...records.base import Failure
from ...records.run import Environment, Peaks
from ...records.traced import OperatorCall, OperatorCost


@dataclass(frozen=True)
class Survey:
    """The answer of a worker. ``costs`` has one entry for each requested call; it is empty after a failure."""

    environment: Environment = field(default_factory=Environment)
    costs: tuple[OperatorCost, ...] = ()
    peaks: Peaks | None = None
    failure: Failure | None = None
    no_peaks: str = ""  # why measured peaks do not count
    phases_s: Mapping[str, float] = field(default_factory=dict)  # seconds of each phase of its process


def take_survey(
    pool: WorkerPool,
    calls: Sequence[OperatorCall],
    *,
    device: str,
    peaks: str,
    log: Path,
    variables: Mapping[str, str] = NO_VARIABLES,
) -> Survey:
    """Runs the survey worker, with further environment variables. ``peaks`` is as in the job."""
    return _survey(pool, SurveyMachine(tuple(calls), device, peaks), log, variables)


def count_costs(pool: WorkerPool, calls: Sequence[OperatorCall], *, log: Path) -> Survey:
    """Runs the survey worker for the costs alone, which uses no device."""
    return _survey(pool, SurveyMachine(tuple(calls), describes=False), log)


def _survey(pool: WorkerPool, job: SurveyMachine, log: Path, variables: Mapping[str, str] = NO_VARIABLES) -> Survey:
    answer = pool.call(job, name=log.stem, log=log, variables=variables)
    if answer.result is None:
        return Survey(failure=answer.failure)
    found, phases_s = answer.result, answer.phases_s(answer.result.phases_s)
    return Survey(found.environment, found.costs, found.peaks, answer.failure, found.no_peaks, phases_s)

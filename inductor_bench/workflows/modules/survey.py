"""Asks a worker for the environment, the peaks, and the costs of library calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...launch.worker import WorkerPool
from ...messages.jobs import SurveyMachine
from ...records.run import Environment, Failure, Peaks
from ...records.traced.operators import OperatorCall, OperatorCost


@dataclass(frozen=True)
class Survey:
    """The answer of a worker. ``costs`` has one entry for each requested call; it is empty after a failure."""

    environment: Environment = field(default_factory=Environment)
    costs: tuple[OperatorCost, ...] = ()
    peaks: Peaks | None = None
    failure: Failure | None = None


def take_survey(pool: WorkerPool, calls: Sequence[OperatorCall], *, device: str, peaks: str, log: Path) -> Survey:
    """Runs the survey worker. ``peaks`` is ``none``, ``cached`` or ``measured``."""
    answer = pool.call(SurveyMachine(tuple(calls), device, peaks), name="survey", log=log)
    if answer.result is None:
        return Survey(failure=answer.failure)
    return Survey(answer.result.environment, answer.result.costs, answer.result.peaks, answer.failure)

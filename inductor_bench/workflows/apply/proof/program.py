"""Starts the program for a comparison, and says how it ended."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ....launch.diagnosis import last_error
from ....launch.process import ProcessResult, run_process
from ....messages.comparison import CUDA_GRAPHS, DONE, FAILED, ComparedSteps
from ....messages.steps import DONE as STEPS_DONE
from ....store.files import read_json
from ....store.folder import RunFolder
from ....store.formats import codec
from ...modules.observed import read_steps
from ...progress import Progress
from ..pins import PinnedRun, with_mode
from ..program import pinned_environment

COMPARED = ".compared.json"


@dataclass(frozen=True)
class Plan:
    """What is verified, and how.

    Attributes:
        run: the RUN, whose folder gets the logs.
        command: the program.
        environment: the environment of the program without pins.
        timeout_s: limit of each process in seconds.
        stop: whether the program is ended once its steps are compared.
        replays: whether the program is known to replay CUDA graphs, so that no process is started to find that out.
    """

    run: RunFolder
    command: Sequence[str]
    environment: Mapping[str, str]
    timeout_s: float | None = None
    stop: bool = True
    replays: bool = False


def start(
    pinned: PinnedRun, plan: Plan, mode: str, observe: str, name: str, progress: Progress
) -> tuple[ProcessResult, Path]:
    """Runs the program to its end; returns that, and the folder with what its processes wrote."""
    work = plan.run.work / name
    environment = pinned_environment(with_mode(pinned, mode), work, plan.environment, observe)
    sights = 0

    def is_finished() -> bool:
        nonlocal sights
        sights = sights + 1 if plan.stop and _is_finished(work) else 0
        return sights > 1  # the states of the pins, and other ranks, come a moment later

    ended = run_process(
        plan.command,
        environment=environment,
        log=plan.run.logs / f"{name}.log",
        timeout_s=plan.timeout_s,
        on_line=progress.output,
        is_finished=is_finished,
    )
    return ended, work


def _is_finished(work: Path) -> bool:
    """Whether every process that compares or observes its steps has come to the end of that."""
    states = [codec.decode(ComparedSteps, read_json(file)).state for file in work.glob(f"*{COMPARED}")]
    states += [steps.state for steps in read_steps(work)]
    return bool(states) and all(state in (DONE, FAILED, CUDA_GRAPHS, STEPS_DONE) for state in states)


def read_compared(work: Path) -> list[ComparedSteps]:
    """What the processes say that compared their steps."""
    return [codec.decode(ComparedSteps, read_json(file)) for file in work.glob(f"*{COMPARED}")]


def end_of(ended: ProcessResult) -> str:
    """The end of a program in words, with the error that it printed."""
    error = "" if ended.ok else last_error(ended.tail())
    return f"{ended.outcome} ({error})" if error else ended.outcome


def failure_of(ended: ProcessResult) -> tuple[str, ...]:
    """The note about a program that did not end well; nothing for one that did, or was ended on purpose."""
    return () if ended.ok else (f"The program {end_of(ended)}: see {ended.log}",)


def now() -> str:
    """The time of a comparison."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")

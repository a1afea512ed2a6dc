"""Runs rounds of trials, at most one that is timed at a time on each device, and repeats what a lost device ended."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, nullcontext

from ...analysis.optimization.trial_plans import TrialPlan
from ...devices.nvidia import is_gpu_lost
from ...records.optimization import Trial
from ...store.lock import DeviceTurn
from ..progress import Progress
from .tried_program import ProgramTrials, StartedTrial

POLL_S = 0.1
"""Seconds between two looks at the processes that run."""


class TrialRounds:
    """Runs the rounds of a search.

    Args:
        trials: starts and reads the processes.
        gpus: the GPUs, as ``CUDA_VISIBLE_DEVICES`` names them; a single empty name leaves the choice to the program.
        progress: is told of lost devices.
    """

    def __init__(self, trials: ProgramTrials, gpus: Sequence[str], progress: Progress) -> None:
        self._trials, self._gpus, self._progress = trials, list(gpus), progress
        self._repeated: dict[str, str] = {}  # by the name of the trial, the GPU on which it failed

    def run(self, plans: Sequence[TrialPlan]) -> list[Trial]:
        """Runs the trials of one round, or takes those that an earlier command has run; in their order.

        Raises:
            InductorBenchError: the program cannot be started, or the folder cannot be written.
            KeyboardInterrupt: the user interrupted it; all processes have ended.
        """
        found = {plan.name: known for plan in plans if (known := self._trials.known(plan)) is not None}
        waiting = [plan for plan in plans if plan.name not in found]
        if waiting:
            self._trials.tell(waiting)
            compiling = any(plan.only_compiles for plan in waiting)  # its processes share this one's turn
            with nullcontext() if self._trials.takes_turns and not compiling else DeviceTurn():
                self._run_all(waiting, found)
        return [found[plan.name] for plan in plans]

    def _run_all(self, waiting: list[TrialPlan], found: dict[str, Trial]) -> None:
        running: dict[str, StartedTrial] = {}
        try:
            while waiting or running:
                for plan in list(waiting):
                    gpu = self._gpus[plan.lane % len(self._gpus)]
                    if plan.only_compiles or not any(one.gpu == gpu for one in running.values()):
                        waiting.remove(plan)
                        running[plan.name] = self._trials.start(plan, gpu)
                for name, started in list(running.items()):
                    if not started.has_ended(POLL_S / len(running)):
                        continue
                    trial = found[name] = self._trials.read(started)
                    del running[name]
                    if not started.plan.only_compiles and self._is_repeated(trial, started.gpu):
                        waiting.append(started.plan)
        finally:
            with ExitStack() as ends:  # ends all of them, also if ending one is interrupted
                for started in running.values():
                    ends.callback(started.end)

    def _is_repeated(self, trial: Trial, gpu: str) -> bool:
        """Whether a trial runs once more because its GPU was lost; the search then goes on without that GPU."""
        said = find_gpu_error(trial)
        first = self._repeated.pop(trial.name, None)
        if first is not None and said:  # it is the program, and not the device
            self._gpus.append(first)
        if first is not None or not said or len(self._gpus) < 2:
            return False
        self._gpus.remove(gpu)
        self._repeated[trial.name] = gpu
        self._progress.note(f"{trial.name}: GPU {gpu} failed, and the search goes on without it: {said}")
        return True


def find_gpu_error(trial: Trial) -> str:
    """What a trial says of a GPU that cannot be used; empty if it says nothing of that kind."""
    failure = trial.failure
    texts = [*(one.failure for one in trial.variants), *([failure.message, failure.log_tail] if failure else [])]
    lines = (line.strip() for text in texts for line in text.splitlines())
    return next(filter(is_gpu_lost, lines), "")

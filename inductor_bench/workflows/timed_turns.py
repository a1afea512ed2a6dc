"""Times whole processes of two versions of a program in turn, until it is decided which is faster."""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from .. import units
from ..analysis.optimization.step_proof import LOOKS, A, B, find_failure, prove_step
from ..analysis.optimization.trial_plans import TrialCandidate, TrialPlan
from ..records.comparison import UNDECIDED, StepProof
from ..records.optimization import TIMED, Trial
from ..records.request import BreakdownRequest
from ..store.folder import OptimizationFolder
from ..store.redaction import Redaction
from .modules.program_run import find_python
from .modules.targets import can_stop, is_command
from .optimizing.tried_program import ProgramTrials, TrialRounds
from .progress import Progress

TIMED_S, LEAST_STEPS = 2.5, 24
"""The seconds of timed steps in a process, and the least number of timed steps."""

LEAST_LIMIT_S = 600.0
"""The least time limit of a process in seconds. It ends a program that never makes a step."""

LOSSES, LOSSES_TURNS = 20, 2
"""In the first processes of each side, the gradients of this many steps of the optimizer are kept."""

FOLDER = "steps"
"""The folder with what the processes measured. Both sides share its caches, so equal code runs in equal configs."""


@dataclass
class TimedTurns:
    """The finished processes of both sides, in the order of their ends."""

    trials: Mapping[str, list[Trial]] = field(default_factory=lambda: {A: [], B: []})

    @classmethod
    def load(cls, folder: Path) -> TimedTurns:
        """Reads the processes of an earlier comparison; none if it timed none."""
        found, place = cls(), OptimizationFolder(folder / FOLDER)
        names = [file.stem for file in place.processes.glob("*.json")]
        for name in sorted(names, key=lambda name: (len(name), name)):  # their numbers have two digits or more
            trial = place.load_trial(name)
            if trial is not None and trial.slugs[0] in found.trials:
                found.trials[trial.slugs[0]].append(trial)
        return found

    def prove(self) -> StepProof | None:
        """What the processes say of the step; ``None`` if a side timed nothing."""
        return prove_step(self.trials[A], self.trials[B])

    def find_failure(self) -> str:
        """Why a process timed nothing; empty if each process has steps."""
        return find_failure(self.trials[A], self.trials[B])


def is_decided(proof: StepProof | None) -> bool:
    """Whether B is certainly slower, faster, or as fast as A."""
    return proof is not None and proof.verdict != UNDECIDED


def time_in_turn(
    programs: Mapping[str, BreakdownRequest],
    folder: Path,
    budget_s: float,
    progress: Progress,
    decides: Callable[[StepProof], bool] = is_decided,
) -> TimedTurns:
    """Runs A and B in turn (A B B A …), each process until its steps are timed.

    The first process of each side compiles, and the others share that. A failed process ends it.

    Args:
        programs: the program of each side, with its kind.
        folder: the folder of the comparison.
        budget_s: seconds after which no process begins; one of each side runs in any case.
        progress: is told of each process.
        decides: whether a proof answers the question, so that no more processes are needed.

    Raises:
        InductorBenchError: the program cannot be started, or the folder cannot be written.
        KeyboardInterrupt: the user stopped it; the finished processes stay in the folder.
    """
    turns, place = TimedTurns(), OptimizationFolder(folder / FOLDER)
    place.clear()
    place.make_inside()
    sides = {side: _TimedSide(program, place, progress) for side, program in programs.items()}
    began_s, taken_s = time.monotonic(), dict.fromkeys(sides, 0.0)
    try:
        for number, side in enumerate(_alternate(), 1):
            left_s = budget_s - (time.monotonic() - began_s)
            if number > len(sides) and left_s < taken_s[side]:
                break
            trial = sides[side].run(number, side, max(0.0, left_s), budget_s)
            turns.trials[side].append(trial)
            taken_s[side] = trial.time_s - trial.compile_time_s  # the next one finds compiled code in the caches
            if turns.find_failure():
                break
            counts = [len(trials) for trials in turns.trials.values()]
            if min(counts) == max(counts) and counts[0] in LOOKS and (proof := turns.prove()) and decides(proof):
                break
    finally:
        place.remove_work()
    return turns


def _alternate() -> Iterator[str]:
    while True:
        yield from (A, B, B, A)


class _TimedSide:
    """Starts the processes of one side."""

    def __init__(self, program: BreakdownRequest, folder: OptimizationFolder, progress: Progress) -> None:
        self._folder, self._progress, self._losses = folder, progress, LOSSES
        own: Sequence[str] = sys.argv[1:] if is_command() else ()
        redaction = Redaction.find([own, program.arguments], os.environ | dict(program.variables), program.redact)
        trials = ProgramTrials(
            replace(program, live=False, stop=can_stop(program.kind), repeat=1),
            folder,
            dict(os.environ) | dict(program.variables) | redaction.variables,
            find_python(program),
            redaction,
            progress,
            math.inf,
        )
        self._rounds = TrialRounds(trials, ("",), progress)
        self._count = 0

    def run(self, number: int, side: str, left_s: float, budget_s: float) -> Trial:
        """Runs a process until its steps are timed; ends one that takes far longer than all may.

        If a program ends before that, because gradients of its first steps were kept, it runs once more without them.
        """
        self._count += 1
        plan = TrialPlan(
            f"{number:02}-{side.lower()}",
            TIMED,
            (TrialCandidate(side),),
            alternates=False,
            timed_s=TIMED_S,
            least=LEAST_STEPS,
            losses=self._losses if self._count <= LOSSES_TURNS else 0,
            limit_s=max(left_s + budget_s, LEAST_LIMIT_S),
        )
        left = f"{units.duration(left_s)} left of {units.duration(budget_s)}"
        (trial,) = self._rounds.run([plan], left)
        if trial.failure is not None and plan.losses and trial.digests:
            self._losses = 0
            self._folder.remove_trial(plan.name)
            (trial,) = self._rounds.run([replace(plan, losses=0)], left)
        times_s = [step_s for one in trial.variants for step_s in one.times_s]
        said = f"{units.seconds(statistics.median(times_s))} a step, the median" if times_s else "no step was timed"
        self._progress.note(f"{plan.name}: {trial.failure.message if trial.failure else said}")
        return trial

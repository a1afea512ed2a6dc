"""Autotunes the kernels of a run, those first that can win most for its step, without a measurement of each before.

The record of a kernel comes from its retune: its cold time from the final, which has fresh samples of the file's own
configuration.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ... import units
from ...analysis.statistics import summarize
from ...autotune.candidates import BudgetSpentError
from ...autotune.lanes import PipelineState
from ...autotune.stake import Pruning, Stake, find_least
from ...autotune.tuner import Tuner
from ...records.retune import FASTER, UNREACHED
from ...records.run import Failure
from ...records.tuning import MeasuredKernel, Resources, Tuning
from .advice import advise
from .session import KernelSession, failure_of
from .timing import KernelTimings, describe_kernel
from .tuning import collect_notes, make_tuner, run_tuners

NOT_COMPARED = "not compared with the reference: its candidates were compared with the kernel as it stands"


def tune_ranked(files: Sequence[Path], method: str, session: KernelSession) -> Iterator[MeasuredKernel | Failure]:
    """Autotunes files by what they can win for the step.

    Args:
        files: the files; ``session.options.stakes`` has what is at stake with each.
        method: the name of a method.
        session: the open session, whose budget began with it.

    Yields:
        Each kernel with its tuning, or the reason why it has none, as soon as it is known.
    """
    stakes = {file: session.options.stakes[str(file)] for file in files}
    progress = _RankedProgress(session, stakes)
    tuners = _make_tuners(stakes, method, session, lambda: progress.tuned > 0)
    for name, outcome in run_tuners(tuners, method, session, progress.report):
        file = Path(str(name))
        if isinstance(outcome, Tuning):
            progress.add(stakes[file], outcome)
            yield _describe(file, tuners[name], outcome, session)
        elif isinstance(outcome, BudgetSpentError):
            yield Failure("kernel", "budget", UNREACHED, subject=str(file))
        else:
            yield failure_of(file, outcome)


def _make_tuners(
    stakes: Mapping[Path, Stake], method: str, session: KernelSession, may_give_way: Callable[[], bool]
) -> dict[Hashable, Tuner]:
    """The tuners, those first whose kernels can win most for the step in a second of search."""
    least_s = find_least(session.options.stakes.values())
    ranked = sorted(stakes, key=lambda file: -stakes[file].rank)
    return {
        file: make_tuner(
            file,
            method,
            session,
            opens_last=stakes[file].is_library_call,
            pruning=Pruning(stakes[file], least_s),
            may_give_way=may_give_way,
        )
        for file in ranked
    }


@dataclass
class _RankedProgress:
    """What a user sees of the retune: kernels, candidates, the saving so far, and the time that is left."""

    session: KernelSession
    stakes: Mapping[Path, Stake]
    saving_s: float = 0.0
    tuned: int = 0
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.session.progress.stage(f"retuning {len(self.stakes)} kernel{'s' * (len(self.stakes) != 1)}")

    def add(self, stake: Stake, tuning: Tuning) -> None:
        self.tuned += 1
        if tuning.verdict == FASTER:
            self.saving_s += stake.time_s * (1 - 1 / tuning.speedup)

    def report(self, state: PipelineState) -> None:
        whole_s = sum(stake.time_s for stake in self.stakes.values())
        words = [
            f"{state.done} done",
            f"{state.candidates:,} candidates",
            f"saves {units.seconds(self.saving_s)} of {units.seconds(whole_s)}",
        ]
        if state.done:
            spent_s = time.monotonic() - self.began
            left_s = spent_s / state.done * (state.kernels - state.done)
            budget_s = self.session.left_s()
            left_s = left_s if budget_s is None else min(left_s, max(budget_s, 0.0))
            words.append(f"about {left_s:.0f} s left")
        self.session.progress.update(", ".join(words))


def _describe(file: Path, tuner: Tuner, tuning: Tuning, session: KernelSession) -> MeasuredKernel:
    """The record of a kernel from its retune."""
    assert tuner.facts is not None
    default = tuning.candidates[0]
    resources = Resources(default.registers, default.spills, default.shared_memory_bytes)
    timings = KernelTimings(summarize(default.samples_s), None, tuner.timing.method)
    kernel = replace(
        describe_kernel(file, tuner.facts, session, default.config, resources, timings),
        check_message=NOT_COMPARED,
        shared_device=session.find_other_jobs(tuner.facts.device),
    )
    notes = collect_notes(tuner, tuning.method, kernel)
    return replace(kernel, advice=tuple(advise(kernel)), tuning=replace(tuning, notes=(*tuning.notes, *notes)))

"""Autotunes measured kernels of standalone files, and saves the winners."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ...autotune.candidates import BudgetSpentError, NoCandidatesError
from ...autotune.compile_pool import BUDGET_SPENT
from ...autotune.lanes import PipelineState
from ...autotune.methods import METHODS
from ...autotune.pipeline import Pipeline, TuningOutcome
from ...autotune.stake import Pruning
from ...autotune.tuner import Tuner
from ...autotune.variants.cpu import FixedKernel
from ...autotune.variants.find import search_variants
from ...autotune.variants.protocol import Questions
from ...devices.nvidia.device import NVIDIA
from ...errors import InductorBenchError
from ...launch.session import WorkerLostError
from ...messages.kernels import Facts
from ...records.run import Failure
from ...records.tuning import BY_DEFAULT, MeasuredKernel, Tuning
from ...source.standalone.edit import edit_standalone
from ...source.standalone.recognition import holds_triton_kernel
from ...store.files import read_text, write_text
from .advice import busy_notes
from .session import KernelSession, failure_of


@dataclass
class _Task:
    """A kernel to tune, its tuner, and the path for its winner, if that is saved."""

    file: Path
    kernel: MeasuredKernel
    tuner: Tuner
    place: Path | None


def tune(
    kernels: Mapping[Path, MeasuredKernel], places: Mapping[Path, Path], session: KernelSession
) -> Iterator[MeasuredKernel | Failure | Path]:
    """Autotunes measured kernels.

    Args:
        kernels: the measured kernels, by their files.
        places: the paths for the winners, by the files; empty where winners are not saved.
        session: the session that measured the kernels.

    Yields:
        Each kernel with its tuning, or its failure, and the path of each file that is written. A kernel that the budget
        left out is yielded with its times and an advice.
    """
    session.start_budget()
    method = session.options.autotune or BY_DEFAULT
    tasks: dict[Hashable, _Task] = {
        file: _Task(file, kernel, make_tuner(file, method, session, opens_last=is_library(kernel)), places.get(file))
        for file, kernel in kernels.items()
    }
    load = os.getloadavg()[0]
    tuners = {name: tasks[name].tuner for name in sorted(tasks, key=lambda name: tasks[name].tuner.opens_last)}
    for name, outcome in run_tuners(tuners, method, session):
        one = tasks[name]
        if isinstance(outcome, Tuning):
            yield from _add_tuning(one, outcome, load)
        else:
            yield explain_untuned(one.file, one.kernel, outcome)


def run_tuners(
    tuners: Mapping[Hashable, Tuner],
    method: str,
    session: KernelSession,
    report: Callable[[PipelineState], None] | None = None,
) -> Iterator[tuple[Hashable, TuningOutcome]]:
    """Runs tuners to their end. Yields the key of each with its tuning or its error, as soon as it is known.

    Args:
        tuners: the tuners, by any keys; the first are timed first where several are ready.
        method: the name of a method, for their searches.
        session: the session of their workers and compile pools.
        report: called with the state of the kernels; ``None`` to report each timing as a stage.
    """
    devices, library = {one.device for one in tuners.values()}, any(one.opens_last for one in tuners.values())
    workers = session.timing_workers(len(tuners), devices, library=library)
    report = report or _report_stages(tuners, session)
    yield from Pipeline(tuners, method, session.compile_pool, workers, session.left_s, report).run()


def _report_stages(tuners: Mapping[Hashable, Tuner], session: KernelSession) -> Callable[[PipelineState], None]:
    last = ""

    def report(state: PipelineState) -> None:
        nonlocal last
        text = f"building {state.compiling} candidate{'s' * (state.compiling != 1)}"
        if state.timed is not None:
            text = f"timing {Path(tuners[state.timed].file).stem} ({state.done + 1} of {state.kernels})"
        if text != last:
            last = text
            session.progress.stage(text)

    return report


def explain_untuned(
    file: Path, kernel: MeasuredKernel, why: InductorBenchError | WorkerLostError
) -> MeasuredKernel | Failure:
    """The outcome of a kernel without a tuning: its measurement with an advice, or its failure."""
    if isinstance(why, BudgetSpentError):
        return replace(kernel, advice=(*kernel.advice, f"not retuned: {BUDGET_SPENT}; give it more with --budget"))
    return failure_of(file, why)


def make_tuner(
    file: Path,
    method: str,
    session: KernelSession,
    *,
    opens_last: bool = False,
    pruning: Pruning | None = None,
    may_give_way: Callable[[], bool] = lambda: True,
) -> Tuner:
    """The tuner of a file's kernel; it loads the file when its search begins."""

    def find(facts: Facts) -> Questions:
        variants = yield from search_variants(facts, METHODS[method].wide)
        if isinstance(variants, FixedKernel):
            raise NoCandidatesError(variants.no_variants_reason)
        return variants

    options = session.options
    return Tuner(
        str(file.resolve()),
        find,
        session.numbers,
        options.state,
        options.timeout_s,
        session.is_over,
        listing_device=NVIDIA.type if holds_triton_kernel(file) else None,
        opens_last=opens_last,
        pruning=pruning,
        may_give_way=may_give_way,
    )


def is_library(kernel: MeasuredKernel) -> bool:
    """Whether a kernel is a library call, for which Inductor takes long to list and compile choices."""
    return kernel.category.startswith("extern_")


def _add_tuning(one: _Task, tuning: Tuning, load: float) -> Iterator[MeasuredKernel | Path]:
    """Yields the kernel with its tuning, after the path of the winner's file where that is written."""
    notes = collect_notes(one.tuner, tuning.method, one.kernel, load)
    if one.place is not None:
        why = _save_winner(one, one.place, tuning)
        if why:
            notes.append(f"{one.place} was not written: {why}")
        else:
            yield one.place
    yield replace(one.kernel, tuning=replace(tuning, notes=(*tuning.notes, *notes)))


def collect_notes(tuner: Tuner, method: str, kernel: MeasuredKernel, load: float = 0.0) -> list[str]:
    """The notes on a tuning; ``load`` is the machine's load average at its beginning."""
    busy = busy_notes(tuner.variants.axes, kernel.method, max(load, os.getloadavg()[0]), os.cpu_count() or 1)
    return [*tuner.variants.notes(METHODS[method]), *busy]


def _save_winner(one: _Task, place: Path, tuning: Tuning) -> str:
    """Writes the winner's file; returns the reason where it is not written, otherwise an empty text."""
    if tuning.verdict != "faster":
        return "nothing was surely faster than the file as it stands"
    if why := one.tuner.variants.save_refusal(tuning.best_config):
        return why
    try:
        change = one.tuner.variants.change(tuning.best_config)
        write_text(place, edit_standalone(read_text(one.file), change.recorded(), change.source))
    except InductorBenchError as error:
        return error.message
    return ""

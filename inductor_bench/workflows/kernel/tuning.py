"""Autotunes the kernels of standalone files in step, and saves the winners."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...autotune.candidates import BudgetSpentError
from ...autotune.compile_pool import BUDGET_SPENT, CompileJob, CompileOutcome, CompilePool
from ...autotune.methods import METHODS
from ...autotune.tuner import Tuner
from ...autotune.variants.cpu import FixedKernel
from ...autotune.variants.find import find_variants
from ...autotune.variants.protocol import Variants
from ...errors import InductorBenchError
from ...launch.session import WorkerLostError
from ...messages.kernels import Ask, Facts
from ...records.run import Failure
from ...records.tuning import BY_DEFAULT, MeasuredKernel, Tuning
from ...source.standalone.edit import edit_standalone
from ...store.files import read_text, write_text
from ..progress import Progress
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
        file: _Task(file, kernel, make_tuner(file, method, session), places.get(file))
        for file, kernel in kernels.items()
    }
    load = os.getloadavg()[0]
    for group in _group_tasks(tasks):
        tuners = {name: tasks[name].tuner for name in group}
        for name, outcome in tune_in_step(tuners, method, session.compile_pool, session.is_over, session.progress):
            one = tasks[name]
            if isinstance(outcome, Tuning):
                yield from _add_tuning(one, outcome, load)
            else:
                yield _explain_untuned(one.file, one.kernel, outcome)


def _group_tasks(tasks: Mapping[Hashable, _Task]) -> list[list[Hashable]]:
    """The groups of tasks that are tuned in step: all generated kernels first, then each library call alone.

    Inductor takes long to list and compile the variants of a library call, and a budget should not be spent on variants
    that are never timed.
    """
    library = [name for name, one in tasks.items() if one.kernel.category.startswith("extern_")]
    generated = [name for name in tasks if name not in library]
    return [*([generated] if generated else []), *([name] for name in library)]


def _explain_untuned(
    file: Path, kernel: MeasuredKernel, why: InductorBenchError | WorkerLostError
) -> MeasuredKernel | Failure:
    if isinstance(why, BudgetSpentError):
        return replace(kernel, advice=(*kernel.advice, f"not retuned: {BUDGET_SPENT}; give it more with --budget"))
    return failure_of(file, why)


def make_tuner(file: Path, method: str, session: KernelSession) -> Tuner:
    """The tuner of a file's kernel; it loads the file when its search begins."""

    def find(facts: Facts, ask: Ask) -> Variants:
        variants = find_variants(facts, ask, METHODS[method].wide)
        if isinstance(variants, FixedKernel):
            raise InductorBenchError(variants.no_variants_reason)
        return variants

    options = session.options
    return Tuner(
        str(file.resolve()), find, session.worker, session.numbers, options.state, options.timeout_s, session.is_over
    )


def _add_tuning(one: _Task, tuning: Tuning, load: float) -> Iterator[MeasuredKernel | Path]:
    """Yields the kernel with its tuning, after the path of the winner's file where that is written."""
    notes = [*one.tuner.variants.notes(METHODS[tuning.method])]
    notes += busy_notes(one.tuner.variants.axes, one.kernel.method, max(load, os.getloadavg()[0]), os.cpu_count() or 1)
    if one.place is not None:
        why = _save_winner(one, one.place, tuning)
        if why:
            notes.append(f"{one.place} was not written: {why}")
        else:
            yield one.place
    yield replace(one.kernel, tuning=replace(tuning, notes=(*tuning.notes, *notes)))


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


def tune_in_step(
    tuners: Mapping[Hashable, Tuner],
    method: str,
    compile_pool: Callable[[str], CompilePool],
    is_over: Callable[[], bool],
    progress: Progress,
) -> Iterator[tuple[Hashable, Tuning | InductorBenchError | WorkerLostError]]:
    """Tunes several kernels in step: their candidates are compiled together, and the kernels are timed in turn.

    Args:
        tuners: the tuners, by any keys.
        method: the name of a method, for their searches.
        compile_pool: returns the compile pool of a device type; its failure fails all kernels of that device.
        is_over: whether the budget is spent.
        progress: the listener for stages and output.

    Yields:
        The key of each tuner, with its tuning or its error, as soon as it is known.
    """
    searches = {name: tuner.search(method) for name, tuner in tuners.items()}
    answers: dict[Hashable, list[CompileOutcome] | None] = dict.fromkeys(tuners)
    while answers:
        waiting: dict[Hashable, list[CompileJob]] = {}
        for place, (name, built) in enumerate(answers.items(), 1):
            progress.stage(f"timing {Path(tuners[name].file).stem} ({place} of {len(answers)})")
            try:
                waiting[name] = searches[name].send(built)  # type: ignore[arg-type]
            except StopIteration as end:
                yield name, end.value
            except (InductorBenchError, WorkerLostError) as error:
                yield name, error
        answers = {name: [] for name in waiting}
        owners = {job.key: name for name, jobs in waiting.items() for job in jobs}
        if owners:
            progress.stage(f"building {_count_candidates(owners)}")
        for device, names in _by_device(waiting, tuners):
            jobs = [job for name in names for job in waiting[name]]
            try:
                for one in compile_pool(device).compile(jobs, is_over):
                    found = answers[owners[one.key]]
                    assert found is not None
                    found.append(one)
            except (InductorBenchError, WorkerLostError) as error:
                for name in names:
                    del answers[name]
                    yield name, error


def _by_device(names: Collection[Hashable], tuners: Mapping[Hashable, Tuner]) -> Iterator[tuple[str, list[Hashable]]]:
    devices = {name: tuners[name].variants.device for name in names}
    for device in dict.fromkeys(devices.values()):
        yield device, [name for name in names if devices[name] == device]


def _count_candidates(candidates: Collection[Any]) -> str:
    return f"{len(candidates)} candidate{'s' * (len(candidates) != 1)}"

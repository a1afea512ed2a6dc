"""Autotuning the kernels of standalone files, all in step, and saving the winners."""

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
    file: Path
    kernel: MeasuredKernel
    tuner: Tuner
    place: Path | None


def tune(
    kernels: Mapping[Path, MeasuredKernel], places: Mapping[Path, Path], work: KernelSession
) -> Iterator[MeasuredKernel | Failure | Path]:
    """Autotunes kernels that were measured.

    Args:
        kernels: by their files.
        places: where the winners are written.
        work: what they are tuned with.

    Yields:
        a kernel with its outcome, or why there is none, and the files that were written. For which the budget did not
        last is no failure: their times stand.
    """
    work.start_budget()
    method = work.options.autotune or BY_DEFAULT
    tasks: dict[Hashable, _Task] = {
        file: _Task(file, kernel, make_tuner(file, method, work), places.get(file)) for file, kernel in kernels.items()
    }
    load = os.getloadavg()[0]
    for group in _groups(tasks):
        tuners = {name: tasks[name].tuner for name in group}
        for name, outcome in tune_in_step(tuners, method, work.compile_pool, work.is_over, work.progress):
            one = tasks[name]
            if isinstance(outcome, Tuning):
                yield from _finish(one, outcome, load)
            else:
                yield _not_tuned(one.file, one.kernel, outcome)


def _groups(tasks: Mapping[Hashable, _Task]) -> list[list[Hashable]]:
    """Those that are tuned in step. Generated kernels come first, all together; then each library call by itself: what
    else it could be takes Inductor long to list and compile, and a budget must not go to lists that nobody times."""
    library = [name for name, one in tasks.items() if one.kernel.category.startswith("extern_")]
    generated = [name for name in tasks if name not in library]
    return [*([generated] if generated else []), *([name] for name in library)]


def _not_tuned(
    file: Path, kernel: MeasuredKernel, why: InductorBenchError | WorkerLostError
) -> MeasuredKernel | Failure:
    if isinstance(why, BudgetSpentError):
        return replace(kernel, advice=(*kernel.advice, f"not retuned: {BUDGET_SPENT}; give it more with --budget"))
    return failure_of(file, why)


def make_tuner(file: Path, method: str, work: KernelSession) -> Tuner:
    """What tunes the kernel of a file by that method; it loads the file when it begins."""

    def find(facts: Facts, ask: Ask) -> Variants:
        variants = find_variants(facts, ask, METHODS[method].wide)
        if isinstance(variants, FixedKernel):
            raise InductorBenchError(variants.no_variants_reason)
        return variants

    options = work.options
    return Tuner(str(file.resolve()), find, work.worker, work.numbers, options.state, options.timeout_s, work.is_over)


def _finish(one: _Task, tuning: Tuning, load: float) -> Iterator[MeasuredKernel | Path]:
    """The kernel with what came of it; writes the winner, if there is one and a place is given."""
    notes = [*one.tuner.variants.notes(METHODS[tuning.method])]
    notes += busy_notes(one.tuner.variants.axes, one.kernel.method, max(load, os.getloadavg()[0]), os.cpu_count() or 1)
    if one.place is not None:
        why = _save(one, one.place, tuning)
        if why:
            notes.append(f"{one.place} was not written: {why}")
        else:
            yield one.place
    yield replace(one.kernel, tuning=replace(tuning, notes=(*tuning.notes, *notes)))


def _save(one: _Task, place: Path, tuning: Tuning) -> str:
    """Writes the winner; where there is none, or none that can be written, says why."""
    if tuning.verdict != "faster":
        return "nothing was surely faster than the file as it stands"
    if why := one.tuner.variants.save_refusal(tuning.best_config):
        return why
    try:
        change = one.tuner.variants.change(tuning.best_config)
        write_text(place, edit_standalone(read_text(one.file), change))
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
    """Tunes several kernels, and tells what came of each as soon as it is known.

    Args:
        tuners: by whatever names their kernels.
        method: one of ``METHODS``.
        compile_pool: the pool that compiles for a device type; where it cannot work, that device's kernels fail.
        is_over: whether no further candidates are to be begun.
        progress: is told what happens.
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
            progress.stage(f"building {_counted(owners)}")
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


def _counted(candidates: Collection[Any]) -> str:
    return f"{len(candidates)} candidate{'s' * (len(candidates) != 1)}"

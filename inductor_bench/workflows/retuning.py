"""Retuning the kernels of standalone files, all in step, and saving the winners."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import InductorBenchError
from ..launch.session import WorkerLostError
from ..records.run import Failure
from ..records.tuning import MeasuredKernel, Tuning
from ..source.standalone_edit import edit_standalone
from ..store.files import write_text
from .builds import Builders, Built, Job
from .kernel_advice import busy_notes
from .kernel_variants import FixedKernel, Variants, find_variants
from .progress import Progress
from .tuning import Tuner
from .workbench import LOAD_S, Workbench, failure_of


@dataclass
class _Retune:
    file: Path
    kernel: MeasuredKernel
    variants: Variants
    tuner: Tuner
    place: Path | None


def retune(
    kernels: Mapping[Path, MeasuredKernel], places: Mapping[Path, Path], work: Workbench
) -> Iterator[MeasuredKernel | Failure | Path]:
    """Retunes kernels that were measured.

    Args:
        kernels: by their files.
        places: where the winners are written.
        work: what they are tuned with.

    Yields:
        a kernel with its outcome, or why there is none, and the files that were written.
    """
    work.start_budget()
    retunes: dict[Hashable, _Retune] = {}
    for file, kernel in kernels.items():
        try:
            retunes[file] = _prepare(file, kernel, places.get(file), work)
        except (InductorBenchError, WorkerLostError) as error:
            yield failure_of(file, error)
    load = os.getloadavg()[0]
    tuners: dict[Hashable, Tuner] = {file: each.tuner for file, each in retunes.items()}
    method = work.options.autotune or "max"

    def crew_of(name: Hashable) -> Builders:
        return work.builders("cpu" if retunes[name].variants.on_cpu else "cuda")

    for name, outcome in tune_in_step(tuners, method, crew_of, work.is_over, work.progress):
        one = retunes[name]
        if isinstance(outcome, Tuning):
            yield from _finish(one, outcome, load)
        else:
            yield failure_of(one.file, outcome)


def _prepare(file: Path, kernel: MeasuredKernel, place: Path | None, work: Workbench) -> _Retune:
    number = next(work.numbers)
    facts = work.ask(LOAD_S, do="load", number=number, file=str(file.resolve()))
    wide = work.options.autotune == "exhaustive"
    variants = find_variants(facts, lambda: work.ask(LOAD_S, do="candidates", number=number, wide=wide))
    work.ask(LOAD_S, do="drop", numbers=[number])
    if isinstance(variants, FixedKernel):
        raise InductorBenchError(variants.why_none)
    options = work.options
    tuner = Tuner(
        str(file.resolve()),
        variants,
        work.worker,
        work.numbers,
        options.state,
        options.timeout_s,
        work.is_over,
    )
    return _Retune(file, kernel, variants, tuner, place)


def _finish(one: _Retune, tuning: Tuning, load: float) -> Iterator[MeasuredKernel | Path]:
    """The kernel with what came of its retune; writes the winner, if there is one and a place is given."""
    notes = [*one.variants.notes(tuning.method)]
    notes += busy_notes(one.variants.axes, one.kernel.method, max(load, os.getloadavg()[0]), os.cpu_count() or 1)
    if one.place is not None:
        if tuning.verdict == "faster" and (why := one.variants.why_unsaved(tuning.best_config)):
            notes.append(f"{one.place} was not written: {why}")
        elif tuning.verdict == "faster":
            text, change = one.file.read_text(encoding="utf-8"), one.variants.change(tuning.best_config)
            write_text(one.place, edit_standalone(text, change))
            yield one.place
        else:
            notes.append(f"{one.place} was not written: nothing was surely faster than the file as it stands")
    yield replace(one.kernel, tuning=replace(tuning, notes=(*tuning.notes, *notes)))


def tune_in_step(
    tuners: Mapping[Hashable, Tuner],
    method: str,
    builders: Callable[[Hashable], Builders],
    is_over: Callable[[], bool],
    progress: Progress,
) -> Iterator[tuple[Hashable, Tuning | InductorBenchError | WorkerLostError]]:
    """Tunes several kernels, and tells what came of each as soon as it is known.

    Args:
        tuners: by whatever names their kernels.
        method: one of ``SEARCHES``.
        builders: those that build for the tuner of this name.
        is_over: whether no further candidates are to be begun.
        progress: is told what happens.
    """
    searches = {name: tuner.search(method) for name, tuner in tuners.items()}
    answers: dict[Hashable, list[Built] | None] = dict.fromkeys(tuners)
    while answers:
        waiting: dict[Hashable, list[Job]] = {}
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
        for crew, names in _by_crew(waiting, builders):
            for one in crew.build([job for name in names for job in waiting[name]], is_over):
                found = answers[owners[one.key]]
                assert found is not None
                found.append(one)


def _by_crew(
    names: Iterable[Hashable], crew_of: Callable[[Hashable], Builders]
) -> Iterator[tuple[Builders, list[Hashable]]]:
    crews = {name: crew_of(name) for name in names}
    for crew in {id(each): each for each in crews.values()}.values():
        yield crew, [name for name, each in crews.items() if each is crew]


def _counted(candidates: Collection[Any]) -> str:
    return f"{len(candidates)} candidate{'s' * (len(candidates) != 1)}"

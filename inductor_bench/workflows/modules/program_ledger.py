"""Makes the record of a program's step from what its processes observed and from its modules' own profiles."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...analysis.ledger.kernels import KernelKey, StepUse, kernel_key, step_kernels
from ...analysis.ledger.parts import GraphName, Ledger, Steps, account
from ...analysis.ledger.timeline import lanes_of
from ...devices.table import device_of
from ...errors import InductorBenchError
from ...messages.steps import ObservedSteps
from ...records.program import GRAPH, Program, RankSteps, Timeline
from ...records.run import Failure, ModuleRecord, Run
from ...records.traced.activity import Activity
from ...records.traced.program import Work
from ...source.capture.user_lines import UserFiles
from ...store.folder import RunFolder
from ...store.timeline import write_timeline
from ...trace.program.reader import read_program_trace
from ...trace.program.ties import KnownGraph
from ...trace.program.works import ProgramWorks, find_works
from .analysis import AttributedModule
from .profiling import ProfiledModule
from .program_trace import MARKERS, find_places, store_steps

NOT_CLOSED = 1.01
"""Ratio of profiled busy time to the unprofiled step above which a note says that the parts were scaled."""

TIED_ENOUGH = 0.995
"""The share of the graphs' device time that is tied to kernels below which a note says so."""


@dataclass(frozen=True)
class DescribedProgram:
    """The record of a program's step, and its kernels' use in it by module and kernel."""

    program: Program
    kernels: Mapping[tuple[str, KernelKey], StepUse]

    def enter(self, run: Run) -> Run:
        """The run with the program's step, and its kernels with their use in it."""
        return replace(run, program=self.program, modules=tuple(map(self._with_uses, run.modules)))

    def _with_uses(self, module: ModuleRecord) -> ModuleRecord:
        if not self.program.parts:
            return module
        whole, kernels = self.program.step_time_s, []
        for kernel in module.kernels:
            use = self.kernels.get((module.slug, kernel_key(kernel)), StepUse(0.0, 0.0))
            share = use.time_s / whole
            kernels.append(replace(kernel, step_calls=use.calls, step_time_s=use.time_s, step_share=share))
        return replace(module, kernels=tuple(kernels))


@dataclass(frozen=True)
class _Rank:
    steps: RankSteps
    observed: ObservedSteps
    notes: tuple[str, ...] = ()
    kernels: Mapping[tuple[str, KernelKey], StepUse] | None = None
    timeline: Timeline | None = None


def enter_program(
    run: Run,
    observations: Sequence[ObservedSteps],
    profiled: Sequence[ProfiledModule],
    attributed: Sequence[AttributedModule],
    folder: RunFolder,
) -> tuple[Run, Failure | None]:
    """The run with the program's step, where its processes observed one; and what went wrong."""
    if not observations:
        return run, None
    roots = (Path(run.request.target).resolve().parent, Path.cwd()) if run.request else (Path.cwd(),)
    try:
        described = describe_program(observations, profiled, attributed, folder, roots)
    except InductorBenchError as error:
        return run, Failure("program", "invalid", error.message, error.hint)
    return described.enter(run) if described else run, None


def describe_program(
    observations: Sequence[ObservedSteps],
    profiled: Sequence[ProfiledModule],
    attributed: Sequence[AttributedModule],
    folder: RunFolder,
    roots: Sequence[Path] = (),
) -> DescribedProgram | None:
    """The program's step; ``None`` where no process timed a step.

    Args:
        observations: what the processes observed.
        profiled: the program's modules, also those whose profile failed.
        attributed: the profiled modules with their activities.
        folder: the RUN, which gets the traces of the steps and a timeline.
        roots: the folders to which the files of Python stacks are relative.

    Raises:
        InductorBenchError: the timeline cannot be stored.
    """
    known = _Graphs(profiled, attributed)
    files = UserFiles(roots)
    ranks = [_describe_rank(one, known, folder, files) for one in observations if _has_steps(one)]
    if not ranks:
        return None
    ranks.sort(key=lambda one: (one.steps.rank is None, one.steps.rank or 0, one.steps.pid))
    slowest = max(ranks, key=lambda one: (bool(one.steps.parts), one.steps.step_time_s))
    kernels: dict[tuple[str, KernelKey], StepUse] = {}
    for one in [*(one for one in ranks if one is not slowest), slowest]:
        kernels.update(one.kernels or {})
    steps, observed = slowest.steps, slowest.observed
    program = Program(
        step_time_s=steps.step_time_s,
        step_times_s=steps.step_times_s,
        step_source=observed.source,
        busy_time_s=steps.busy_time_s,
        parts=steps.parts,
        first_step_time_s=observed.first_step_time_s,
        settled_after=observed.settled_after,
        steps=observed.steps,
        ranks=tuple(one.steps for one in ranks),
        notes=tuple(dict.fromkeys(note for one in ranks for note in (*one.observed.notes, *one.notes))),
    )
    if slowest.timeline is not None:
        write_timeline(folder, slowest.timeline)
    return DescribedProgram(program, kernels)


def _has_steps(observed: ObservedSteps) -> bool:
    return bool(observed.step_times_s) or bool(observed.trace and observed.profiled_steps)


class _Graphs:
    """The compiled graphs of the program by the path of their modules."""

    def __init__(self, profiled: Sequence[ProfiledModule], attributed: Sequence[AttributedModule]) -> None:
        self._profiled = {os.path.realpath(one.module.path): one for one in profiled}
        self._attributed = {os.path.realpath(one.profiled.module.path): one for one in attributed}

    def find(self, observed: ObservedSteps) -> dict[int, ProfiledModule]:
        """The module of each graph of a process, by the graph's number."""
        modules = ((number, self._module(graph.path)) for number, graph in enumerate(observed.graphs))
        return {number: module for number, module in modules if module is not None}

    def _module(self, path: str) -> ProfiledModule | None:
        return self._profiled.get(os.path.realpath(path)) if path else None

    def launches(self, module: ProfiledModule) -> tuple[Activity, ...]:
        """The activities of one undisturbed run of a module by itself, in order."""
        attributed = self._attributed.get(os.path.realpath(module.module.path))
        if attributed is None or not attributed.steady:
            return ()
        return tuple(one for one in attributed.activities if one.iteration == attributed.steady[0])


def _describe_rank(observed: ObservedSteps, known: _Graphs, folder: RunFolder, files: UserFiles) -> _Rank:
    times = observed.step_times_s
    step_s = observed.window_s / len(times) if times and observed.window_s else sum(times) / len(times) if times else 0
    steps = RankSteps(observed.rank, observed.pid, observed.device, times, step_s)
    if not observed.trace:
        return _Rank(steps, observed)
    try:
        return _with_ledger(steps, observed, known, folder, files)
    except InductorBenchError as error:
        return _Rank(steps, observed, (f"the profile of the steps cannot be used: {error.message}",))


def _with_ledger(
    steps: RankSteps, observed: ObservedSteps, known: _Graphs, folder: RunFolder, files: UserFiles
) -> _Rank:
    on_host = device_of(observed.device).runs_on_host
    trace = read_program_trace(Path(observed.trace), MARKERS)
    modules = known.find(observed)
    graphs = {number: KnownGraph(one.source, known.launches(one)) for number, one in modules.items()}
    found = find_works(trace, MARKERS, graphs, on_host=on_host)
    if found is None:
        return _Rank(steps, observed, ("the profile holds no whole step",))
    places, notes = find_places(trace, found, observed, files), []
    if not steps.step_time_s:
        profiled = (found.window.bounds[-1] - found.window.bounds[0]) / found.window.steps
        steps = replace(steps, step_time_s=profiled, step_times_s=(profiled,) * found.window.steps)
        notes.append("no step was timed without the profiler: its own steps are shown, which are slower")
    names = {number: GraphName(one.label.label, one.label.slug) for number, one in modules.items()}
    described = Steps(
        step_time_s=steps.step_time_s,
        window=found.window,
        works=found.works,
        calls=found.calls,
        timeline=found.timeline,
        names=names,
        places=places,
        optimizer_calls=found.optimizer_calls,
        on_host=on_host,
    )
    ledger = account(described)
    tied = None if on_host else tied_share(found)
    notes += _doubts(ledger, steps.step_time_s, tied)
    steps = replace(
        steps,
        busy_time_s=ledger.busy_time_s,
        profiled_step_time_s=ledger.profiled_step_time_s,
        profiled_steps=found.window.steps,
        tied_share=tied,
        parts=ledger.parts,
        trace=store_steps(trace, found, observed, modules, places, folder),
    )
    by_slug = {modules[number].label.slug: activities for number, activities in _by_module(found, modules)}
    uses = step_kernels(by_slug, found.window.steps)
    return _Rank(steps, observed, tuple(notes), uses, lanes_of(described, found.host_works, observed.rank))


def _by_module(
    found: ProgramWorks, modules: Mapping[int, ProfiledModule]
) -> Iterable[tuple[int, tuple[Activity, ...]]]:
    """The activities of each module; several graphs of a process may share one."""
    first: dict[str, int] = {}
    joined: dict[int, tuple[Activity, ...]] = {}
    for number, activities in found.activities.items():
        owner = first.setdefault(modules[number].label.slug, number)
        joined[owner] = (*joined.get(owner, ()), *activities)
    return joined.items()


def _doubts(ledger: Ledger, step_time_s: float, tied: float | None) -> list[str]:
    notes = []
    if ledger.busy_time_s > NOT_CLOSED * step_time_s:
        longer = ledger.busy_time_s / step_time_s - 1
        notes.append(
            f"the profiled steps kept the device busy for {longer:.1%} longer than an unprofiled step takes; the parts "
            "are scaled to the unprofiled step"
        )
    if tied is not None and tied < TIED_ENOUGH:
        notes.append(f"{1 - tied:.1%} of the compiled graphs' device time is not tied to a kernel")
    return notes


def tied_share(found: ProgramWorks) -> float | None:
    """The share of the compiled graphs' device time in the window that is tied to a call or a kernel."""
    works = [work for work in found.works if work.kind == GRAPH and found.window.launched(work.launch_start_s)]
    whole = sum(work.duration_s for work in works)
    tied = sum(work.duration_s for work in works if is_tied(work))
    return tied / whole if whole else None


def is_tied(work: Work) -> bool:
    """Whether the call or the kernel of a graph's device event is known."""
    return work.activity is not None and (work.activity.call is not None or work.activity.kernel is not None)

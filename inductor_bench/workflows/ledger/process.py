"""Makes the ledger of one process's step from its trace and from the modules that it called."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...analysis.ledger.kernels import KernelKey, StepUse, step_kernels
from ...analysis.ledger.parts import GraphName, Ledger, Steps, account
from ...analysis.ledger.timeline import lanes_of
from ...analysis.traffic.eager import EagerOperators, find_operators
from ...devices.table import device_of
from ...errors import InductorBenchError
from ...messages.steps import ObservedSteps
from ...records.program import GRAPH, RankSteps, Timeline
from ...records.traced.activity import Activity
from ...records.traced.program import Work
from ...source.capture.user_lines import UserFiles
from ...store.folder import RunFolder
from ...trace.program.reader import read_program_trace
from ...trace.program.ties import KnownGraph
from ...trace.program.works import ProgramWorks, find_works
from ..modules.analysis import AttributedModule
from ..modules.profiling import ProfiledModule
from .traces import MARKERS, find_places, store_steps

NOT_CLOSED = 1.01
"""Ratio of profiled busy time to the unprofiled step above which a note says that the parts were scaled."""

TIED_ENOUGH = 0.995
"""The share of the graphs' device time that is tied to kernels below which a note says so."""


@dataclass(frozen=True)
class DescribedProcess:
    """The step of one process.

    Attributes:
        steps: its record.
        observed: what the process observed.
        notes: what limits the figures, in words.
        kernels: the use of kernels in the step, by the module's slug and the kernel.
        timeline: one profiled step; ``None`` without a profile.
        eager: the eager operators of that step; ``None`` without a profile, and on a CPU, whose profile does not tell
            an operator that touches memory from one that makes a view.
    """

    steps: RankSteps
    observed: ObservedSteps
    notes: tuple[str, ...] = ()
    kernels: Mapping[tuple[str, KernelKey], StepUse] = field(default_factory=dict)
    timeline: Timeline | None = None
    eager: EagerOperators | None = None


class Graphs:
    """The compiled graphs of the program by the paths of their modules."""

    def __init__(self, profiled: Sequence[ProfiledModule], attributed: Sequence[AttributedModule]) -> None:
        self._profiled = {path: one for one in profiled for path in one.module.real_paths}
        self._attributed = {path: one for one in attributed for path in one.profiled.module.real_paths}

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


def describe_process(observed: ObservedSteps, known: Graphs, folder: RunFolder, files: UserFiles) -> DescribedProcess:
    """The step of a process, with a ledger where its profile can be read."""
    times = observed.step_times_s
    step_s = observed.window_s / len(times) if times and observed.window_s else sum(times) / len(times) if times else 0
    steps = RankSteps(observed.rank, observed.pid, observed.device, times, step_s)
    if not observed.trace:
        return DescribedProcess(steps, observed)
    try:
        return _with_ledger(steps, observed, known, folder, files)
    except InductorBenchError as error:
        return DescribedProcess(steps, observed, (f"the profile of the steps cannot be used: {error.message}",))


def _with_ledger(
    steps: RankSteps, observed: ObservedSteps, known: Graphs, folder: RunFolder, files: UserFiles
) -> DescribedProcess:
    on_host = device_of(observed.device or "cpu").runs_on_host
    trace = read_program_trace(Path(observed.trace), MARKERS)
    modules = known.find(observed)
    graphs = {number: KnownGraph(one.source, known.launches(one)) for number, one in modules.items()}
    found = find_works(trace, MARKERS, graphs, on_host=on_host)
    if found is None:
        return DescribedProcess(steps, observed, ("the profile holds no whole step",))
    places, notes = find_places(trace, found, observed, files), []
    if not steps.step_time_s:
        profiled = (found.window.bounds[-1] - found.window.bounds[0]) / found.window.steps
        steps = replace(steps, step_time_s=profiled, step_times_s=(profiled,) * found.window.steps)
        notes.append("no step was timed without the profiler: its own steps are shown, which are slower")
    names = {
        number: GraphName(one.label.label, one.label.slug, observed.graphs[number].cuda_graph_refusal)
        for number, one in modules.items()
    }
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
    if found.window.steps == 1 and not on_host:
        notes.append("one profiled step only: work that was launched before it began may be missing from it")
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
    eager = None if on_host else find_operators(trace, found.works, found.calls, *found.window.marks[-2:])
    timeline = lanes_of(described, found.host_works, observed.rank)
    return DescribedProcess(steps, observed, tuple(notes), uses, timeline, eager)


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
    """The share of the compiled graphs' device time in the window that is tied to a call of the graph."""
    works = [work for work in found.works if work.kind == GRAPH and found.window.launched(work.launch_start_s)]
    whole = sum(work.duration_s for work in works)
    tied = sum(work.duration_s for work in works if is_tied(work))
    return tied / whole if whole else None


def is_tied(work: Work) -> bool:
    """Whether the kernel or the operator of a graph's device event is known.

    Operators that the wrapper calls in plain Python have no call site: ``workspace_0[…].view(512, 1024).sum(dim=0)``.
    """
    one = work.activity
    return one is not None and (one.call is not None or one.kernel is not None or one.operator is not None)

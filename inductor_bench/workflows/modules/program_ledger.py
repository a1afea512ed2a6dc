"""Makes the record of a program's step from what its processes observed and from its modules' own profiles."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...analysis.findings.finding import plural
from ...analysis.ledger import (
    CallPlace,
    GraphName,
    KernelKey,
    Ledger,
    Steps,
    StepUse,
    account,
    lanes_of,
    module_uses,
    step_kernels,
)
from ...analysis.step_costs import pace_setter
from ...analysis.traffic import EagerOperators, find_operators
from ...devices.table import device_of
from ...errors import InductorBenchError
from ...records.base import Failure
from ...records.code import SourceLine
from ...records.evidence import BOUNDARY, GRAPH_CALL, ObservedSteps
from ...records.module import ModuleRecord
from ...records.program import GRAPH, Program, RankSteps, Timeline
from ...records.request import BreakdownRequest
from ...records.run import Run
from ...records.traced import Activity, ProgramTrace, Work
from ...source.user_lines import UserFiles
from ...store.folder import RunFolder
from ...store.run_files import write_timeline
from ...trace.program_trace import Markers, read_program_trace
from ...trace.program_works import KnownGraph, ProgramWorks, find_works
from ...trace.step_traces import EventNote, find_user_calls, store_program_trace
from .module_analysis import AttributedModule
from .module_profiling import ProfiledModule
from .program_run import CapturedProgram

# The traces of a program's steps: the user's lines from one, and the other as a file of the RUN.


MARKERS = Markers(BOUNDARY, GRAPH_CALL)


def find_places(
    trace: ProgramTrace, found: ProgramWorks, observed: ObservedSteps, files: UserFiles
) -> dict[int, CallPlace]:
    """The user's line and module of each outermost operator; empty where no trace of lines can be read."""
    if not observed.lines_trace:
        return {}
    try:
        lines = read_program_trace(Path(observed.lines_trace), MARKERS, frames=True)
    except InductorBenchError:
        return {}
    calls = find_user_calls(trace, found.tops, lines, MARKERS)
    return {op: CallPlace(call.module, files.find(call)) for op, call in calls.items()}


def store_steps(
    trace: ProgramTrace,
    found: ProgramWorks,
    observed: ObservedSteps,
    modules: Mapping[int, ProfiledModule],
    places: Mapping[int, CallPlace],
    folder: RunFolder,
) -> str:
    """Stores a process's trace of its steps in the RUN, and returns its path there.

    Raises:
        InductorBenchError: it cannot be stored.
    """
    name = "step" if observed.rank in (None, 0) else f"step-rank-{observed.rank}"
    target = folder.traces / f"{name}.trace.json.gz"
    folder.traces.mkdir(exist_ok=True)
    notes = {work.event: _note(work, modules, places) for work in found.works if work.event >= 0}
    store_program_trace(Path(observed.trace), target, trace, found.window, notes)
    return folder.relative(target)


def _note(work: Work, modules: Mapping[int, ProfiledModule], places: Mapping[int, CallPlace]) -> EventNote:
    module = modules.get(work.graph) if work.graph is not None else None
    activity = work.activity
    place = places.get(work.op)
    line = place.source if place else None
    if module is not None and activity is not None and activity.call is not None and module.module.code is not None:
        line = next(iter(module.module.code.stack_traces.get(activity.call.handle or "", ())), None)
    return EventNote(
        part=work.kind if module is None else f"{work.kind} {module.label.label}",
        kernel=activity.kernel.name if activity is not None and activity.kernel is not None else "",
        operator=(activity.operator or "") if activity is not None else work.label,
        source=_words(line),
    )


def _words(line: SourceLine | None) -> str:
    return f"{line.file}:{line.line} in {line.function}" if line else ""


# Makes the ledger of one process's step from its trace and from the modules that it called.


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


class ProgramGraphs:
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


def describe_process(
    observed: ObservedSteps, known: ProgramGraphs, folder: RunFolder, files: UserFiles
) -> DescribedProcess:
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
    steps: RankSteps, observed: ObservedSteps, known: ProgramGraphs, folder: RunFolder, files: UserFiles
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


def _estimated(count: int) -> str:
    """The note about kernels that the trace of the steps does not show."""
    one = count == 1
    return (
        f"the trace of the steps does not show {plural(count, 'kernel')} of the graphs that the steps call: "
        f"{'its' if one else 'their'} time in a step is the time in a run of the module by itself, times the module's "
        "calls in the step"
    )


@dataclass(frozen=True)
class DescribedProgram:
    """The record of a program's step, and what its trace shows besides.

    Attributes:
        program: the record.
        kernels: the use of kernels in the step by module and kernel. In a distributed program they are those of the
            process that sets the pace, as the parts are.
        eager: the eager operators of a step by the id of its process.
    """

    program: Program
    kernels: Mapping[tuple[str, KernelKey], StepUse]
    eager: Mapping[int, EagerOperators] = field(default_factory=dict)

    def enter(self, run: Run, *, stopped: bool) -> Run:
        """The run with the program's step, and its kernels with their use in it; ``stopped`` as in ``Program``."""
        program = replace(self.program, stopped=stopped)
        if not program.parts:
            return replace(run, program=program)
        uses = [self._uses_of(module) for module in run.modules]
        modules = tuple(map(self._with_uses, run.modules, uses))
        unseen = sum(use.estimated for those in uses for use in those)
        notes = (*program.notes, _estimated(unseen)) if unseen else program.notes
        return replace(run, program=replace(program, notes=notes), modules=modules)

    def _uses_of(self, module: ModuleRecord) -> list[StepUse]:
        on_host = device_of(module.device).runs_on_host
        return module_uses(module, self.program.parts, self.kernels, estimate=on_host)

    def _with_uses(self, module: ModuleRecord, uses: Sequence[StepUse]) -> ModuleRecord:
        whole = self.program.step_time_s
        kernels = (
            replace(kernel, step_calls=use.calls, step_time_s=use.time_s, step_share=use.time_s / whole)
            for kernel, use in zip(module.kernels, uses, strict=True)
        )
        return replace(module, kernels=tuple(kernels))


def find_step(
    request: BreakdownRequest,
    captured: CapturedProgram,
    profiled: Sequence[ProfiledModule],
    attributed: Sequence[AttributedModule],
    folder: RunFolder,
) -> tuple[DescribedProgram | None, tuple[Failure, ...]]:
    """The step of a captured program, where its processes observed one; and what went wrong."""
    scripts = [word for word in (request.target, *request.arguments) if word.endswith(".py")]
    roots = [Path.cwd(), *(Path(script).resolve().parent for script in scripts)]
    try:
        return describe_program(captured.steps, profiled, attributed, folder, roots), ()
    except InductorBenchError as error:
        return None, (Failure("program", "invalid", error.message, error.hint),)


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
    known = ProgramGraphs(profiled, attributed)
    files = UserFiles(roots)
    ranks = [describe_process(one, known, folder, files) for one in observations if _has_steps(one)]
    if not ranks:
        return None
    ranks.sort(key=lambda one: (one.steps.rank is None, one.steps.rank or 0, one.steps.pid))
    setter = pace_setter([one.steps for one in ranks])
    leading = next(one for one in ranks if one.steps is setter)
    steps, observed = leading.steps, leading.observed
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
    if leading.timeline is not None:
        write_timeline(folder, leading.timeline)
    eager = {one.observed.pid: one.eager for one in ranks if one.eager is not None}
    return DescribedProgram(program, leading.kernels, eager)


def _has_steps(observed: ObservedSteps) -> bool:
    return bool(observed.step_times_s) or bool(observed.trace and observed.profiled_steps)

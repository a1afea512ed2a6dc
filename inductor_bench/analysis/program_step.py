"""Makes the record of a program's step from what its processes observed and from its modules' own runs."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from .. import units
from ..devices.table import find_device
from ..errors import InductorBenchError
from ..records.code import LayerMap
from ..records.evidence import (
    BOUNDARY,
    GRAPH_CALL,
    CallPlace,
    EagerSteps,
    Evidence,
    ModuleEvidence,
    StepEvidence,
    take_different_times,
)
from ..records.module import Outputs
from ..records.run import CallStretch, ClockReading, HostWork, OtherWork, Program, RankSteps, Timeline
from ..records.traced import Activity, HostOp, OperatorCall, ProgramTrace, Work
from ..trace.program_trace import Markers, has_lost_steps
from ..trace.program_works import ProgramWorks, find_kernel_spans
from ..trace.stored_traces import EventKey, EventNote, make_event_key, pair_calls
from .call_work import EagerOperators, OperatorPart, find_dtype, find_operators, find_parts
from .evidence_files import KEPT_BYTES, EvidenceFiles, list_graphs, read_traced_steps
from .findings.finding import plural
from .host_time import HostShares, compute_sampling_cost, find_lines_of_steps, find_waits, list_host_stretches
from .kernel_aggregation import KernelIdentity, StepUse, compute_tied_share
from .layer_times import DividedSteps, GraphLayers, KernelWork, StepLayers, find_direction, sum_times_by_layer
from .ledger import GraphName, Ledger, Span, Steps, divide_time, make_ledger, make_timeline, sum_step_kernels
from .roofline import find_other_work
from .simulation.predictions import QueuedStep
from .simulation.profiled_queue import ProfiledQueue
from .statistics import Level, find_level
from .step_costs import HOST_SETS_PACE, compute_time_as_profiled, find_pace_setter, list_kinds, weigh_steps

MARKERS = Markers(BOUNDARY, GRAPH_CALL)
"""The names of the observer's ranges in a trace."""

CUT = 0.01
"""Share of the step from which a note says that collectives were shortened."""

NOT_CLOSED = 1.01
"""Ratio of profiled busy time to the unprofiled step above which a note says that the parts were scaled."""

TIED_ENOUGH = 0.995
"""If less than this share of the graphs' device time is tied to kernels, a note says so."""


# Finds the loops within a step: calls of compiled graphs that repeat, as the tokens of a request do.


LEAST_REPETITIONS = 3
"""Fewest repetitions of a single call that make a loop. Several calls make a loop if they come twice, as in a step of
two micro-batches."""

LONGEST_UNIT = 64
"""Maximum number of calls in one repetition."""

MOST_STRETCHES = 8
"""The largest number of stretches of a step; a step with more is not shown as a loop."""


class RepeatedCalls(NamedTuple):
    """Calls that repeat: ``unit`` holds the graphs of one repetition, and ``begin`` the place of the first call."""

    unit: tuple[int, ...]
    begin: int
    repetitions: int


def split_into_repetitions(graphs: Sequence[int]) -> list[RepeatedCalls]:
    """Divides the calls of one step into stretches: at each place begins the repetition that covers most calls.

    Args:
        graphs: the number of the graph of each call, in order.
    """
    found: list[RepeatedCalls] = []
    place = 0
    while place < len(graphs):
        best = RepeatedCalls((graphs[place],), place, 1)
        for size in range(1, min(LONGEST_UNIT, (len(graphs) - place) // 2) + 1):
            unit = tuple(graphs[place : place + size])
            times = 1
            while tuple(graphs[place + times * size : place + (times + 1) * size]) == unit:
                times += 1
            least = LEAST_REPETITIONS if size == 1 else 2
            if times >= least and times * size > len(best.unit) * best.repetitions:
                best = RepeatedCalls(unit, place, times)
        if best.repetitions == 1 and found and found[-1].repetitions == 1:
            found[-1] = RepeatedCalls((*found[-1].unit, *best.unit), found[-1].begin, 1)
        else:
            found.append(best)
        place = best.begin + len(best.unit) * best.repetitions
    return found


def find_stretches(steps: Steps) -> Iterator[CallStretch]:
    """The stretches of the profiled steps; none if no calls repeat in a step, or the steps differ in them."""
    window = steps.window
    calls = sorted(steps.calls, key=lambda call: call.start_s)
    by_step = [[one for one in calls if begin <= one.start_s < end] for begin, end in pairwise(window.marks)]
    folds = [split_into_repetitions([call.graph for call in calls]) for calls in by_step]
    units = {tuple(one.unit for one in folded) for folded in folds}
    if len(units) != 1 or not any(one.repetitions > 1 for one in folds[0]) or len(folds[0]) > MOST_STRETCHES:
        return
    works = defaultdict(list)
    for work in steps.works:
        if work.call >= 0:
            works[work.call].append(work)
    numbers = {call: number for number, call in enumerate(steps.calls)}
    scale = steps.step_time_s / window.step_time_s
    for place in range(len(folds[0])):
        spans, repetitions = [], 0.0
        for number, (own, folded) in enumerate(zip(by_step, folds, strict=True)):
            one, weight = folded[place], window.weights[number] if window.weights else 1.0
            part = own[one.begin : one.begin + len(one.unit) * one.repetitions]
            span = _find_span(work for call in part for work in works[numbers[call]])
            if span is None:
                return
            spans.append((weight * span[0], weight * span[1]))
            repetitions += weight * one.repetitions
        names = [steps.names.get(graph, GraphName(f"graph {graph}", None)) for graph in folds[0][place].unit]
        wall_s, busy_s = (math.fsum(times) for times in zip(*spans, strict=True))
        yield CallStretch(
            graphs=tuple(name.slug or "" for name in names),
            labels=tuple(name.label for name in names),
            repetitions=repetitions / window.step_count,
            time_s=scale * wall_s / repetitions,
            busy_time_s=min(scale * wall_s, busy_s if not steps.on_host else scale * busy_s) / repetitions,
        )


def _find_span(works: Iterable[Work]) -> tuple[float, float] | None:
    """Returns the seconds from the first work's begin to the last work's end, and the seconds with a running work."""
    spans = [Span(work.start_s, work.end_s, 0) for work in works]
    if not spans:
        return None
    start, end = min(span.start_s for span in spans), max(span.end_s for span in spans)
    return end - start, math.fsum(divide_time(spans, start, end)[0])


# Makes the record of the step.


@dataclass(frozen=True)
class DescribedProcess:
    """The step of one process, with the evidence and the notes behind its figures."""

    steps: RankSteps
    observed: StepEvidence
    notes: tuple[str, ...] = ()  # what limits the figures, in words
    # The use of kernels in the step, by the module's slug and the kernel.
    kernels: Mapping[tuple[str, KernelIdentity], StepUse] = field(default_factory=dict)
    timeline: Timeline | None = None  # one profiled step; None without a profile
    # The eager operators of that step; None without a profile, and on a CPU, whose profile does not tell an operator
    # that touches memory from one that makes a view.
    eager: EagerOperators | None = None
    events: Mapping[EventKey, EventNote] = field(default_factory=dict)  # what is known of the events of its trace
    stretches: tuple[CallStretch, ...] = ()  # the loops in a step; empty if it has none
    divided: DividedSteps | None = None  # whose the works of the steps are; None without a profile
    queue: QueuedStep | None = None  # for the simulation; None without a profile, and on a CPU
    # the seconds in a step of the library calls of graphs, or of parts of them, by the module's slug
    call_times: Mapping[str, Mapping[OperatorCall, float]] = field(default_factory=dict)


def describe_process(
    observed: StepEvidence, evidence: Evidence, files: EvidenceFiles, *, in_brief: bool
) -> DescribedProcess:
    """The step of a process, with a ledger if its profile can be read."""
    seen = observed.steps
    level = _find_level(observed)
    steps = RankSteps(
        *(seen.rank, seen.pid, seen.device, seen.step_times_s, level.time_s),
        level=(level.begin, level.end),
        step_numbers=seen.step_numbers,
        steps_before_profile=seen.steps_before_profile,
        load=seen.load,
    )
    if observed.problem:
        return DescribedProcess(steps, observed, (_say_unusable(observed.problem),))
    if observed.trace is None:
        return DescribedProcess(steps, observed)
    try:
        return _add_ledger(steps, observed, observed.trace, evidence, files, in_brief=in_brief)
    except InductorBenchError as error:
        return DescribedProcess(steps, observed, (_say_unusable(error.message),))


def _find_level(observed: StepEvidence) -> Level:
    """The steps that count, and their time. Steps of several kinds all count: their order changes the level, too."""
    seen, times = observed.steps, observed.steps.step_times_s
    if times and take_different_times(seen.step_kinds):
        return Level(0, len(times), statistics.fmean(times))
    return find_level(times, seen.steps_before_profile if observed.trace else None) if times else Level(0, 0, 0.0)


def _say_unusable(reason: str) -> str:
    return f"the profile of the steps cannot be used: {reason}"


NONE_TIMED = "no step was timed without the profiler: the times are from profiled steps, which are slower"


def _add_ledger(
    steps: RankSteps, observed: StepEvidence, place: str, evidence: Evidence, files: EvidenceFiles, *, in_brief: bool
) -> DescribedProcess:
    on_host = find_device(observed.steps.device or "cpu").runs_on_host
    modules = list_graphs(observed, evidence, files)
    trace, found, queue = read_traced_steps(files, place, MARKERS, modules, on_host=on_host, in_brief=in_brief)
    if found is None:
        return DescribedProcess(steps, observed, ("the profile holds no whole step",))
    places = _place_calls(trace, found, observed)
    found = replace(found, window=weigh_steps(found.window, observed.steps.step_kinds))
    steps = _find_step_time(steps, found, observed)
    lines, samples = find_lines_of_steps(found, places), observed.steps.samples
    names = {module.slug: module.label for module in evidence.modules}
    described = Steps(
        step_time_s=steps.step_time_s,
        window=found.window,
        works=found.works,
        calls=found.calls,
        timeline=found.timeline,
        names=_name_graphs(observed, modules),
        places=places,
        optimizer_calls=found.optimizer_calls,
        optimizers={one.name: one for one in observed.steps.optimizers},
        dtypes=_find_dtypes(trace.trace.host_ops, found.tops),
        on_host=on_host,
        is_cut=has_lost_steps(trace, MARKERS, observed.steps.profiled_steps),
        host=list_host_stretches(samples, lines, names, steps.step_time_s) if samples is not None else None,
    )
    ledger, tied = make_ledger(described), None if on_host else compute_tied_share(found)
    notes = [NONE_TIMED] * (not observed.steps.step_times_s) + _list_doubts(
        ledger, steps.step_time_s, tied, misses_work=found.window.step_count == 1 and not on_host
    )
    steps = replace(
        steps,
        busy_time_s=ledger.busy_time_s,
        profiled_step_time_s=ledger.profiled_step_time_s,
        profiled_steps=found.window.step_count,
        step_weights=found.window.weights,
        tied_share=tied,
        parts=ledger.parts,
        trace=place,
        host=_describe_host_work(observed, described.host, ledger),
        waits=() if on_host else tuple(find_waits(found, places, samples, lines, names)),
    )
    process = DescribedProcess(steps, observed, tuple(notes), stretches=tuple(find_stretches(described)))
    if in_brief:
        return process
    by_slug = {modules[number].slug: activities for number, activities in _group_by_module(found, modules)}
    return replace(
        process,
        kernels=sum_step_kernels(by_slug, found.window.step_count, found.weigh_activities()),
        timeline=_make_timeline(found, described, observed, trace),
        eager=None if on_host else find_operators(trace, found.works, found.calls, *found.window.marks[-2:]),
        events=_annotate_events(trace, found, modules, places, files),
        divided=DividedSteps.of(described, found.activities, _read_layers(modules, files), observed.steps.callers),
        queue=None if queue is None else _queue_step(queue, found, described, observed),
        call_times=_sum_call_times(by_slug, found, files),
    )


def read_profiles(evidence: Evidence, files: EvidenceFiles) -> None:
    """Reads what :func:`describe_program` needs of the modules and of the traces, as far as that is kept in memory."""
    for one in evidence.processes:
        modules, on_host = list_graphs(one, evidence, files), find_device(one.steps.device or "cpu").runs_on_host
        with suppress(OSError):
            if one.trace is not None and files.path(one.trace).stat().st_size <= KEPT_BYTES:
                read_traced_steps(files, one.trace, MARKERS, modules, on_host=on_host, in_brief=True)


def _place_calls(trace: ProgramTrace, found: ProgramWorks, observed: StepEvidence) -> dict[int, CallPlace]:
    names, places = observed.operators, observed.places
    called = [(name, places[number]) for name, number in names if number < len(places)]
    return pair_calls(trace, found.tops, called, MARKERS)


def _make_timeline(found: ProgramWorks, steps: Steps, observed: StepEvidence, trace: ProgramTrace) -> Timeline:
    slugs = {number: name.slug or "" for number, name in steps.names.items()}
    kernels = tuple(find_kernel_spans(found, slugs, trace.trace.host_ops, on_host=steps.on_host))
    return replace(make_timeline(steps, found.host_works, observed.steps.rank), kernels=kernels)


def _sum_call_times(
    by_slug: Mapping[str, Sequence[Activity]], works: ProgramWorks, files: EvidenceFiles
) -> dict[str, dict[OperatorCall, float]]:
    weights, steps = works.weigh_activities(), works.window.step_count
    found: dict[str, dict[OperatorCall, float]] = {}
    for slug, activities in by_slug.items():
        times: dict[OperatorPart | None, float] = defaultdict(float)
        for activity, part in zip(activities, find_parts(activities), strict=True):
            times[part] += weights.get(id(activity), 1.0) * activity.duration_s / steps
        parts, device = ((part, time_s) for part, time_s in times.items() if part), files.source(slug).device
        found[slug] = {OperatorCall(one.operator, one.arguments, device): time_s for one, time_s in parts}
    return found


def _annotate_events(
    trace: ProgramTrace,
    found: ProgramWorks,
    modules: Mapping[int, ModuleEvidence],
    places: Mapping[int, CallPlace],
    files: EvidenceFiles,
) -> dict[EventKey, EventNote]:
    events = (work for work in found.works if work.event >= 0)
    return {make_event_key(trace, work.event): _note(work, modules, places, files) for work in events}


def _queue_step(queue: ProfiledQueue, found: ProgramWorks, steps: Steps, observed: StepEvidence) -> QueuedStep:
    slugs = {number: name.slug for number, name in steps.names.items() if name.slug}
    weights = found.window.weights or queue.queue.weights
    return QueuedStep(
        replace(queue, queue=replace(queue.queue, weights=weights)),
        steps.step_time_s,
        None if found.window.weights else observed.steps.host_step_time_s,  # the median of different kinds is no mean
        slugs,
        [call.graph for call in found.calls],
        {number: one.host_time_s for number, one in enumerate(observed.steps.graphs) if one.host_time_s is not None},
        steps.places,
    )


def _find_step_time(steps: RankSteps, found: ProgramWorks, observed: StepEvidence) -> RankSteps:
    """The steps with their time beside the profile. Of several kinds it is their mean; if the profiled steps have no
    weights, each kind has the weight of its profiled steps."""
    if not steps.step_times_s:
        return _use_profiled_times(steps, found)
    if not take_different_times(observed.steps.step_kinds):
        return _choose_level(steps, found)
    if found.window.weights:
        return steps
    return replace(steps, step_time_s=compute_time_as_profiled(observed.steps.step_kinds) or steps.step_time_s)


def _choose_level(steps: RankSteps, found: ProgramWorks) -> RankSteps:
    """Returns the steps at the level that counts.

    If the device sets the pace, it is the level of the profiled steps: at another one the device may be slower, too.
    Else it is a level of two thirds of the steps, or all of them: those around a profile may take the host longer.
    """
    level = find_level(steps.step_times_s, None)
    work_s = sum(one.duration_s for one in found.works if found.window.contains_host_time(one.launch_start_s))
    is_busy = work_s / found.window.step_count >= min(level.time_s, (1 - HOST_SETS_PACE) * steps.step_time_s)
    if is_busy and not find_device(steps.device).runs_on_host:
        return steps
    return replace(steps, step_time_s=level.time_s, level=(level.begin, level.end))


def _use_profiled_times(steps: RankSteps, found: ProgramWorks) -> RankSteps:
    time_s, count = found.window.step_time_s, found.window.step_count
    return replace(steps, step_time_s=time_s, step_times_s=(time_s,) * count, level=(0, count))


def _describe_host_work(observed: StepEvidence, host: HostShares | None, ledger: Ledger) -> HostWork | None:
    """Returns what the host did, and what sampling cost.

    The result exists even if samples were too few to divide idle time.
    """
    samples = observed.steps.samples
    if samples is None or host is None:
        return None
    cost = compute_sampling_cost(samples.blocks)
    return HostWork(
        stretches=ledger.host,
        samples=host.samples,
        every=host.every,
        steps=samples.steps,
        cost=cost.median - 1,
        cost_low=cost.low - 1,
        cost_high=cost.high - 1,
        blocks=cost.pairs,
    )


def _read_layers(modules: Mapping[int, ModuleEvidence], files: EvidenceFiles) -> dict[int, GraphLayers]:
    found = {}
    for number, module in modules.items():
        layers = LayerMap()
        with suppress(InductorBenchError):  # a damaged file costs the modules of this graph only
            layers = files.layers(module.slug)
        found[number] = GraphLayers(layers, find_direction(files.source(module.slug).role))
    return found


def _name_graphs(observed: StepEvidence, modules: Mapping[int, ModuleEvidence]) -> dict[int, GraphName]:
    """The name of each graph by its number."""
    facts = {n: (one.cuda_graph_refusal, one.writes_inputs) for n, one in enumerate(observed.steps.graphs)}
    return {n: GraphName(one.label, one.slug, *facts.get(n, ())) for n, one in modules.items()}


def _find_dtypes(ops: Sequence[HostOp], tops: Sequence[int]) -> dict[int, str]:
    """The type of each outermost operator: that of the first floating-point tensor that it or one in it takes."""
    found: dict[int, str] = {}
    for index, op in enumerate(ops):
        if tops[index] >= 0 and tops[index] not in found and op.arguments is not None:
            dtype = find_dtype(op.arguments)
            if dtype:
                found[tops[index]] = dtype
    return found


MOST_LAYERS = 3
"""The most layers of a device event that its trace names."""


def _note(
    work: Work, modules: Mapping[int, ModuleEvidence], places: Mapping[int, CallPlace], files: EvidenceFiles
) -> EventNote:
    module = modules.get(work.graph) if work.graph is not None else None
    activity = work.activity
    place = places.get(work.op)
    line = place.source if place else None
    layers = dict.fromkeys([place.module] if place and place.module else [])
    if module is not None and activity is not None and activity.call is not None:
        lines, handle = files.source_lines(module.slug), activity.call.handle or ""
        line = next(iter(lines.get(handle, ())), None) if lines else line
        layers = dict.fromkeys(one.layer for one in files.layers(module.slug).kernels.get(handle, ()) if one.layer)
    return EventNote(
        part=work.kind if module is None else f"{work.kind} {module.label}",
        kernel=activity.kernel.name if activity is not None and activity.kernel is not None else "",
        operator=(activity.operator or "") if activity is not None else work.label,
        source=f"{line.file}:{line.line} in {line.function}" if line else "",
        layer=", ".join([*layers][:MOST_LAYERS]) + (", …" if len(layers) > MOST_LAYERS else ""),
    )


def _group_by_module(
    found: ProgramWorks, modules: Mapping[int, ModuleEvidence]
) -> Iterable[tuple[int, tuple[Activity, ...]]]:
    """The activities of each module; several graphs of a process may share one."""
    first: dict[str, int] = {}
    joined: dict[int, tuple[Activity, ...]] = {}
    for number, activities in found.activities.items():
        owner = first.setdefault(modules[number].slug, number)
        joined[owner] = (*joined.get(owner, ()), *activities)
    return joined.items()


def _list_doubts(ledger: Ledger, step_time_s: float, tied: float | None, *, misses_work: bool = False) -> list[str]:
    notes = []
    if ledger.cut_s > CUT * step_time_s:
        notes.append(
            f"collectives took {units.seconds(ledger.cut_s)} longer in the profiled steps than fits an unprofiled "
            f"step of {units.seconds(step_time_s)}: this time is left out, and how long the device is idle is unknown"
        )
    if ledger.busy_time_s > NOT_CLOSED * step_time_s:
        longer = ledger.busy_time_s / step_time_s - 1
        notes.append(
            f"the profiled steps kept the device busy for {longer:.1%} longer than an unprofiled step takes; the parts "
            "are scaled to the unprofiled step"
        )
    if tied is not None and tied < TIED_ENOUGH:
        notes.append(f"for {1 - tied:.1%} of the compiled graphs' device time the kernel is not known")
    if misses_work:
        notes.append("one profiled step only: work that was launched before it began may be missing from it")
    return notes


def _note_estimated_kernels(count: int) -> str:
    """The note about kernels that the trace of the steps does not show."""
    one = count == 1
    return (
        f"the trace of the steps does not show {plural(count, 'kernel')} of the graphs that the steps call: "
        f"{'its' if one else 'their'} time in a step is the time in a run of the module by itself, multiplied "
        "by the module's "
        "calls in the step"
    )


@dataclass(frozen=True)
class DescribedProgram:
    """The record of a program's step, and what its traces show besides."""

    program: Program
    processes: tuple[DescribedProcess, ...]
    leading: DescribedProcess  # the process that the others wait for; the parts, the kernels and the timeline are of it

    @property
    def eager(self) -> dict[int, EagerOperators]:
        """The eager operators of a step by the id of its process."""
        return {one.observed.steps.pid: one.eager for one in self.processes if one.eager is not None}


def add_notes(program: Program, unseen: int, eager: EagerSteps | None) -> Program:
    """The record with its last facts: kernels that no trace of a step shows, and the steps without compilation."""
    notes = program.notes + ((_note_estimated_kernels(unseen),) if unseen else ())
    if eager is None:
        return replace(program, notes=notes)
    return replace(
        program,
        notes=notes + ((eager.note,) if eager.note else ()),
        eager_step_time_s=eager.step_time_s,
        eager_median_step_time_s=eager.median_step_time_s,
    )


def add_work_by_layer(program: Program, leading: DescribedProcess, work: KernelWork) -> Program:
    """Adds the work of the kernels to the layers and lines of the record."""
    if leading.divided is None:
        return program
    slugs = {number: name.slug for number, name in leading.divided.steps.names.items() if name.slug}
    found = sum_times_by_layer(leading.divided, work.of_launches(slugs, leading.divided.activities))
    return replace(program, layers=found.layers, lines=found.lines)


def describe_program(evidence: Evidence, files: EvidenceFiles, *, in_brief: bool = False) -> DescribedProgram | None:
    """The program's step; ``None`` if no process timed a step.

    A module's own run matters only if the program replays it as a CUDA graph, so the step of other programs is
    described once.

    Args:
        evidence: what was observed.
        files: the files of the RUN.
        in_brief: whether only the parts, the loops and the waits of the step are found, which the first screen shows.
    """
    if not any(map(_has_steps, evidence.processes)):
        return None  # what is known of the steps is kept for the next call
    modules = (
        one if one.cuda_graphs else replace(one, measurement=None, outputs=Outputs()) for one in evidence.modules
    )
    observed = replace(evidence, modules=tuple(modules))
    inputs = observed.processes, observed.modules, observed.stopped, in_brief
    return files.once("step", inputs, lambda: _describe_program(observed, files, in_brief=in_brief))


def _describe_program(evidence: Evidence, files: EvidenceFiles, *, in_brief: bool) -> DescribedProgram | None:
    with_steps = filter(_has_steps, evidence.processes)
    ranks = [describe_process(one, evidence, files, in_brief=in_brief) for one in with_steps]
    if not ranks:
        return None
    ranks.sort(key=lambda one: (one.steps.rank is None, one.steps.rank or 0, one.steps.pid))
    setter = find_pace_setter([one.steps for one in ranks])
    leading = next(one for one in ranks if one.steps is setter)
    steps, observed = leading.steps, leading.observed.steps
    layers = sum_times_by_layer(leading.divided) if leading.divided is not None else StepLayers()
    labels = {module.slug: module.label for module in evidence.modules}
    program = Program(
        step_time_s=steps.step_time_s,
        step_times_s=steps.step_times_s,
        level=steps.level,
        others=_find_most_used(ranks),
        clocks=tuple(
            ClockReading(observed.step_numbers.index(one.step), one.mhz, one.limits)
            for one in observed.clocks
            if one.step in observed.step_numbers
        ),
        peak_memory_bytes=observed.peak_memory_bytes,
        other_steps=tuple(list_kinds(observed.other_steps, leading.observed.modules, labels)),
        step_kinds=tuple(list_kinds(observed.step_kinds, leading.observed.modules, labels)),
        stretches=leading.stretches,
        host=steps.host,
        waits=steps.waits,
        layers=layers.layers,
        layer_classes=layers.classes,
        lines=layers.lines,
        step_source=observed.source,
        busy_time_s=steps.busy_time_s,
        parts=steps.parts,
        first_step_time_s=observed.first_step_time_s,
        settled_after=observed.settled_after,
        steps=observed.steps,
        stopped=evidence.stopped,
        ranks=tuple(one.steps for one in ranks),
        unprofiled=observed.unprofiled,
        notes=tuple(dict.fromkeys(note for one in ranks for note in (*one.observed.steps.notes, *one.notes))),
    )
    return DescribedProgram(program, tuple(ranks), leading)


def _find_most_used(ranks: Sequence[DescribedProcess]) -> OtherWork | None:
    """Returns the work of other programs on the GPU that they used most."""
    found = (find_other_work(one.steps, one.observed.steps.sharing, alone=len(ranks) == 1) for one in ranks)
    return max((one for one in found if one is not None), key=lambda one: one.share, default=None)


def _has_steps(observed: StepEvidence) -> bool:
    profiled = observed.trace is not None or bool(observed.problem)
    return bool(observed.steps.step_times_s) or (profiled and bool(observed.steps.profiled_steps))

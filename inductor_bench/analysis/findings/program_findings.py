"""Findings about a program whose host, eager operators or compilations take time."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Set

from ... import units
from ...records.code import total_s
from ...records.module import ModuleRecord
from ...records.run import (
    ALLOCATING,
    COLLECTIVE,
    COPY,
    EAGER,
    GRAPH,
    GRAPH_INPUTS,
    GUARDS,
    HOST_WORK,
    IDLE,
    OPTIMIZER,
    PATTERN,
    PYTHON,
    QUEUED,
    SYNCHRONISING,
    HostStretch,
    Part,
    ProgramChange,
    Run,
)
from ..step_costs import (
    compute_eager_ratio,
    compute_host_idle_share,
    compute_median_steps,
    compute_step_spread,
    find_graph_use,
    find_prediction,
    find_step,
    find_time_beside_eager,
    host_sets_pace,
    list_parts,
    replay_limit_s,
    runs_on_host,
    sum_idle_by_label,
)
from .finding import (
    ADVICE,
    CAUTION,
    CUDA_GRAPH_MODES,
    FINE,
    GRAPH_GAIN,
    LEAST_SHARE,
    NOTE,
    Finding,
    RemovedWork,
    Rule,
    RunEvidence,
    describe_replay,
    join_labels,
    join_words,
    list_slugs,
)
from .step_phrases import format_share, name_line

# Rules about what the host does while the device waits in the program's step.


MOST_LINES = 3
_REPORTS = re.compile(
    r"\bprint\(|\blog\(|\blogg(?:er|ing)\.\w+\(|\b(?:set_postfix|set_description|add_scalar)\w*\("
    r"|(?:loss|metric|acc|correct)\w*\s*(?:\+=|\.append\()"
)
"""A line that reports a value, or collects it for a report."""

WRAPPERS = re.compile(r"fsdp::|AccumulateGrad|RegisterPostBackwardFunction")
"""Operators that gather gradients or parameters, for autograd, DDP and FSDP. They cannot be part of a compiled
function."""

GAPS = 0.1  # share of the step from which gaps between launched kernels are reported
LONGEST_GAP_S = 4e-6  # mean gap between launched kernels up to which it is the device's own
WORKING = (GRAPH, EAGER, OPTIMIZER, COLLECTIVE, COPY)  # the kinds of parts that launch something
MANY_CALLS = 8  # calls of one graph in a step from which they are many
SHORT_CALL_S = 200e-6  # device seconds of a graph's call below which it is short


def list_idle_parts(run: Run, *names: str) -> tuple[Part, ...]:
    """The idle parts with these labels."""
    return tuple(part for part in list_parts(run, IDLE) if part.label in names)


def find_synchronisations(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports lines at which the host waits for the device, so that the device then waits for the host.

    It holds if the device is idle around these lines, or if the simulated step is shorter without them, because they
    delay the launches after them. There is advice only for lines that report a value. Of another line it is not known
    whether the program needs the value to decide what runs next.
    """
    run = evidence.run
    parts, least_s = list_idle_parts(run, SYNCHRONISING), LEAST_SHARE * evidence.whole.time_s
    time_s, seen = sum(part.time_s for part in parts), {name_line(part.source) for part in parts}
    waits = [one for one in (run.program.waits if run.program else ()) if name_line(one.source) not in seen]
    if runs_on_host(run) or not (waits or time_s >= least_s):
        return
    predicted = find_prediction(run, "synchronisations")
    if time_s < least_s and predicted is not None and predicted.saving_s < least_s:
        return
    lines = [(name_line(part.source), format_share(run, part.time_s)) for part in parts if part.source]
    known = [line if len(parts) == 1 else f"{line} {took}" for line, took in lines]
    if time_s < least_s:
        known = list(dict.fromkeys([line for line, _ in lines] + [name_line(one.source) for one in waits]))
    where = f" at {join_words(known, MOST_LINES)}" if known else ""
    text = (
        f"the device is idle for {format_share(run, time_s)} of a step around synchronisations{where}: the host waits "
        "for a result of the device before it launches more work"
    )
    if time_s < least_s:
        text = f"the host waits for the device{where}, and launches the next work too late"
    sources = [source for source in (*(one.source for one in parts), *(one.source for one in waits)) if source]
    reports = bool(sources) and all(_REPORTS.search(source.code) for source in sources)
    if reports:
        text += ". Read what is only reported less often, or after the next step is launched"
    beside = _describe_lines(run, {name_line(source) for source in sources}) if reports else []
    changes = tuple(ProgramChange("line", "synchronisation", "", source) for source in sources)
    idle = (*parts, *map(_wait_part, waits), *(part for part in beside if part.kind == IDLE))
    assumed = RemovedWork(idle=idle, parts=tuple(part for part in beside if part.kind != IDLE))
    level = ADVICE if time_s >= least_s or predicted is not None else NOTE
    yield Finding("synchronisations", text, level=level, gain_s=time_s, assumed=assumed, changes=changes)


def _describe_lines(run: Run, lines: Set[str]) -> list[Part]:
    """Returns the other parts of the lines that wait. A line that only reports a value can be removed as a whole."""
    parts = (part for part in list_parts(run, IDLE, EAGER, COPY) if part.label != SYNCHRONISING)
    return [part for part in parts if part.source is not None and name_line(part.source) in lines]


def _wait_part(wait: HostStretch) -> Part:
    """Makes the part to remove from the queue for a wait.

    If only samples show the wait, the profile has no line for it.
    """
    return Part(IDLE, SYNCHRONISING, 0.0, 0.0, 0.0, source=None if wait.function else wait.source)


def find_allocations(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports the idle time in which the host allocates device memory from the driver.

    Another setting of the allocator is advised unless samples show that the program empties its cache.
    """
    run = evidence.run
    parts = list_idle_parts(run, ALLOCATING)
    time_s = sum(part.time_s for part in parts)
    if time_s < LEAST_SHARE * evidence.whole.time_s:
        return
    text = f"the device is idle for {format_share(run, time_s)} of a step while the driver allocates or frees memory"
    emptied = [part for part in parts if "empty_cache" in part.function and part.source is not None]
    changes = (ProgramChange("environment", "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),)
    if emptied:
        text += f": empty_cache at {name_line(emptied[0].source)} gives back memory that the next step asks for again"
        changes = (ProgramChange("line", "empty_cache", "", emptied[0].source),)
    else:
        lines = list(dict.fromkeys(name_line(part.source) for part in parts if part.source))
        text += f" at {join_words(lines, MOST_LINES)}" if lines else ""
        text += ": PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or shapes that stay the same"
    yield Finding("allocations", text, gain_s=time_s, assumed=RemovedWork(idle=parts), changes=changes)


def find_host_work(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports Python, guards, launches and dispatch of a host-bound program.

    It is advice if more can be compiled as one graph: a step calls several graphs that are not backward graphs, or has
    eager operators in many launches. Else it is a note. There is no finding if other findings name the host's work.
    """
    run = evidence.run
    times = {label: time_s for label, time_s in sum_idle_by_label(run).items() if label in HOST_WORK}
    if not host_sets_pace(run) or sum(times.values()) < LEAST_SHARE * evidence.whole.time_s:
        return
    words = [f"{label} {format_share(run, time_s)}" for label, time_s in times.items() if time_s]
    waits = format_share(run, compute_host_idle_share(run) * evidence.whole.time_s)
    text = (
        f"the host sets the pace, and the device waits for the host for {waits} of a step, "
        f"{join_words(words, len(HOST_WORK))}"
    )
    mostly_python = 2 * times.get(PYTHON, 0.0) > sum(times.values())
    advised = not mostly_python and _may_be_one_graph(run)
    text += ": compile more of the step as one graph" if advised else ""
    assumed, level = RemovedWork(idle=list_idle_parts(run, *times)), ADVICE if advised else NOTE
    yield Finding("host-pace", text, level=level, gain_s=sum(times.values()), assumed=assumed)


def _may_be_one_graph(run: Run) -> bool:
    """Whether more can be compiled together: there is more than one graph, or many eager operators.

    Several calls of one graph, as in micro-batches, count as one graph.
    """
    backward = {module.slug for module in run.modules if module.role == "backward"}
    graphs = {part.label for part in list_parts(run, GRAPH) if part.graph not in backward}
    eager = sum(part.calls for part in list_parts(run, EAGER) if not WRAPPERS.search(part.label))
    return len(graphs) > 1 or eager >= MANY_CALLS


def find_small_graphs(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports graphs that the host enters many times in a step for little work, while the device waits."""
    run = evidence.run
    time_s = sum_idle_by_label(run).get(GUARDS, 0.0)
    if runs_on_host(run) or time_s < LEAST_SHARE * evidence.whole.time_s:
        return
    # Autograd calls a backward graph without guards.
    backward = {module.slug for module in run.modules if module.role == "backward"}
    entered = [part for part in list_parts(run, GRAPH) if part.graph not in backward]
    parts = [part for part in entered if _is_often_short(part)]
    if not parts or 2 * sum(part.calls for part in parts) < sum(part.calls for part in entered):
        return
    parts.sort(key=lambda part: -part.calls)
    words = [f"{part.label} {units.count(part.calls)} times" for part in parts]
    mean_s = sum(part.device_time_s or 0.0 for part in parts) / sum(part.calls for part in parts)
    text = (
        f"a step enters {join_words(words, MOST_NAMED)}, on average for {units.seconds(mean_s)} of the device's work, "
        f"and the device is idle for {format_share(run, time_s)} of a step while the host checks guards and enters "
        "graphs: compile more around these calls as one graph, or give each call more work"
    )
    found = tuple(dict.fromkeys(part.graph for part in parts if part.graph))
    yield Finding("small-graphs", text, found, gain_s=time_s, assumed=RemovedWork(idle=list_idle_parts(run, GUARDS)))


def _is_often_short(part: Part) -> bool:
    """Whether a graph is called many times in a step, each time for little of the device's work."""
    known = part.device_time_s is not None and part.calls >= MANY_CALLS
    return known and (part.device_time_s or 0.0) < SHORT_CALL_S * part.calls


def find_gaps_between_kernels(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports the idle time between kernels that were launched early enough.

    It is advice if the gaps are as short as a device needs from one kernel to the next. Otherwise it is a note, because
    it is not known what happens in longer gaps: other programs may use the device in them.
    """
    run = evidence.run
    time_s = sum_idle_by_label(run).get(QUEUED, 0.0)
    if runs_on_host(run) or time_s < GAPS * evidence.whole.time_s:
        return
    launches = sum(part.launches for part in list_parts(run, *WORKING))
    mean = f", {units.seconds(time_s / launches)} after each of {units.count(launches)}" if launches else ""
    text = (
        f"the device is idle for {format_share(run, time_s)} of a step between kernels that were launched in time{mean}"
    )
    if time_s <= LONGEST_GAP_S * launches:
        text += ": fewer and larger kernels have fewer gaps"
        yield Finding("kernel-gaps", text, gain_s=time_s, assumed=RemovedWork(gaps=True))
    else:
        text += (
            f". A device needs at most {units.seconds(LONGEST_GAP_S)} from one kernel to the next; what the device "
            "did in the rest of the time was not measured, and may be work of other programs"
        )
        yield Finding("kernel-gaps", text, level=NOTE, gain_s=time_s)


# Rules about CUDA graphs in the program: in use, not in use, refused, and the copies of their inputs.


MOST_NAMED = 3
LIVE = "live"  # the method of a module that was profiled in the program
LEAST_LAUNCHES = 4  # launches of a graph's call from which one replay is expected to be faster


def find_cuda_graphs_in_use(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports the graphs whose calls replay CUDA graphs."""
    run = evidence.run
    replayed = [part for part in list_parts(run, GRAPH) if part.replays]
    if replayed:
        calls, replays = sum(part.calls for part in replayed), sum(part.replays for part in replayed)
        names = join_words(list(dict.fromkeys(part.label for part in replayed)), MOST_NAMED)
        of = "each call" if replays >= calls else f"{units.count(replays)} of {units.count(calls)} calls a step"
        found = tuple(dict.fromkeys(part.graph for part in replayed if part.graph))
        yield Finding("cuda-graphs-in-use", f"CUDA graphs replay {names} ({of})", found, level=FINE)


def find_unused_cuda_graphs(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports graphs that a replay would make faster, in a program whose host sets the pace.

    It holds for graphs of fixed sizes. A graph with symbolic sizes is recorded again for each new size, which costs
    more than a replay saves if each step has a new size. A graph that was profiled in the program was not replayed
    alone: it counts if it has several launches. A graph that writes into inputs whose address changes is refused. There
    is no advice if gradients accumulate over several calls: the next replay overwrites them, which torch reports as an
    error.
    """
    run = evidence.run
    if not host_sets_pace(run) or run.request.mode in CUDA_GRAPH_MODES:
        return
    refused = {part.graph for part in list_parts(run, GRAPH) if part.refusal or part.writes_inputs}
    fixed = [module for module in run.modules if module.slug not in refused and not module.dynamic]
    launched = [module for module in fixed if _is_launched(evidence, module)]
    faster = [module for module in launched if _is_faster_as_one(evidence, module)]
    gain = min(compute_host_idle_share(run) * evidence.whole.time_s, replay_limit_s(run, list_slugs(faster)))
    known = find_prediction(run, "cuda-graphs-unused")
    if not faster or min(gain, known.saving_s if known else gain) < LEAST_SHARE * evidence.whole.time_s:
        return
    faster.sort(key=lambda module: -_compute_gain_s(evidence, module))
    if repeats := _count_accumulated_calls(run):
        text = (
            f"CUDA graphs would spare launches, at most {format_share(run, gain)} of a step, "
            "but mode='reduce-overhead' "
            f"fails with gradients that accumulate, here over {units.count(repeats)} calls: each replay overwrites "
            "the gradients of the previous one"
        )
        yield Finding("cuda-graphs-unused", text, list_slugs(faster), level=CAUTION)
        return
    # A simulation is better: a run of the graph alone does not show what the rest of the step hides.
    less = "" if known else f", which saves at most {format_share(run, gain)}"
    measured = [module for module in faster if module.times.graph_time_s]
    details = f", {units.count(sum(find_graph_use(run, module).launches for module in faster))} launches a step"
    if measured:
        times = join_words([describe_replay(module) for module in measured], MOST_NAMED)
        details = f"; by itself, as one CUDA graph, a call takes {times}"
    are = "is" if len(faster) == 1 else "are"
    text = (
        f"the host sets the pace, and {join_labels(faster)} {are} launched kernel by kernel{details}: try "
        f"mode='reduce-overhead'{less}"
    )
    yield Finding(
        "cuda-graphs-unused",
        text,
        list_slugs(faster),
        gain_s=gain,
        assumed=RemovedWork(graphs=list_slugs(faster)),
        changes=(ProgramChange("compile", "mode", "'reduce-overhead'"),),
    )


def _is_launched(evidence: RunEvidence, module: ModuleRecord) -> bool:
    use = find_graph_use(evidence.run, module)
    return use.calls > 0 and not use.replays


def _is_faster_as_one(evidence: RunEvidence, module: ModuleRecord) -> bool:
    """Whether a replay of a graph is faster, as far as is known; false if the graph could not be recorded alone."""
    times, use = module.times, find_graph_use(evidence.run, module)
    if times.graph_time_s and times.wall_time_s:
        return times.graph_time_s <= GRAPH_GAIN * times.wall_time_s
    return module.measurement.method == LIVE and use.launches >= LEAST_LAUNCHES * use.calls


def _compute_gain_s(evidence: RunEvidence, module: ModuleRecord) -> float:
    """Returns the seconds of the step that replays of a graph save at most, according to the graph's own run."""
    times = module.times
    replayed_s = times.graph_time_s or times.busy_time_s or 0.0
    return ((times.wall_time_s or 0.0) - replayed_s) * find_graph_use(evidence.run, module).calls


def _count_accumulated_calls(run: Run) -> int:
    """Counts how often a step calls the same graphs forward and backward before the optimizer's step; 0 for once."""
    roles = {module.label: module.role for module in run.modules}
    steps = sum(part.calls for part in list_parts(run, OPTIMIZER)) or 1.0
    repeats = 0.0
    for one in run.program.stretches if run.program else ():
        if {roles.get(label) for label in one.labels} == {"forward", "backward"} and one.repetitions > steps:
            repeats = max(repeats, one.repetitions)
    return round(repeats)


def find_replay_input_copies(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports the time in which inputs are copied for replays.

    ``mark_static_address`` is not advised: it needs an input whose address never changes, which is not observed.
    """
    run = evidence.run
    copies = [part for part in list_parts(run, COPY) if part.label == GRAPH_INPUTS]
    time_s = sum(part.time_s for part in copies)
    if time_s < LEAST_SHARE * evidence.whole.time_s:
        return
    moved = sum(part.moved_bytes or 0.0 for part in copies)
    amount = f" of {units.size(moved)}" if moved else ""
    text = (
        f"{units.count(sum(part.calls for part in copies))} copies{amount} bring inputs to CUDA graphs, "
        f"{format_share(run, time_s)} a step"
    )
    replayed = [module for module in run.modules if find_graph_use(run, module).replays]
    names = f" ({join_labels(replayed)})" if 0 < len(replayed) <= MOST_NAMED else ""
    yield Finding(
        "replay-inputs", text + names, list_slugs(replayed), gain_s=time_s, assumed=RemovedWork(parts=tuple(copies))
    )


# Rules about what compilation took, and whether it has paid off.


LEAST_COMPILATION_S = 1.0
"""The shortest compile time in seconds that is reported."""

LEAST_PHASE = 0.05
"""Share of the compilation's time from which a phase is named."""


def find_compile_time(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports the time of compilation by phase."""
    phases = evidence.run.capture.compile_phases
    whole = total_s(phases)
    if whole < LEAST_COMPILATION_S:
        return
    named = [phase for phase in phases if phase.time_s >= LEAST_PHASE * whole]
    words = join_words([f"{phase.name} {units.whole_percent(phase.time_s / whole)}" for phase in named])
    text = (
        f"{_describe_earlier_compilation(evidence)}compilation with empty caches took {units.seconds(whole)}: {words}"
    )
    program = find_step(evidence.run)
    if program is not None and program.step_source != PATTERN and not evidence.run.request.eager:
        text += ". --eager also times the steps without compilation, and says when compilation has paid off"
    yield Finding("compile-time", text, level=NOTE)


def _describe_earlier_compilation(evidence: RunEvidence) -> str:
    """Says which modules an earlier run compiled, and when; empty if this run compiled all modules."""
    capture = evidence.run.capture
    if not capture.compiled_earlier:
        return ""
    day = f", {capture.compiled_at[:10]}" * bool(capture.compiled_at)
    if capture.compiled_earlier < capture.structured:
        return f"compiled earlier ({capture.compiled_earlier} of {capture.structured} modules{day}): "
    return f"compiled earlier{day}: "


def find_eager_comparison(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports how compiled steps compare with eager ones, and after how many of them compilation has paid off."""
    program = find_step(evidence.run)
    ratio = compute_eager_ratio(program) if program else None
    if program is None or program.eager_step_time_s is None or ratio is None:
        return
    compiled_s = find_time_beside_eager(program)
    eager, compiled = units.seconds(program.eager_step_time_s), units.seconds(compiled_s)
    whole = total_s(evidence.run.capture.compile_phases)
    cost = f"the {units.seconds(whole)} of compilation, with empty caches," if whole else "compilation"
    if ratio > 1:
        text = (
            f"in one run of each a compiled step is {ratio:.2f}x faster than an eager one ({compiled}, eager {eager})"
        )
        steps = whole / (program.eager_step_time_s - compiled_s)
        text += f": {cost} pays off after about {units.count(_round_steps(steps))} steps" if whole else ""
        yield Finding("against-eager", text, level=FINE)
    elif ratio == 1:
        varies = f"steps vary by {units.percent(compute_step_spread(program))}"
        if medians := compute_median_steps(program):
            compiled, eager = (f"{units.seconds(median_s)} in the median" for median_s in medians)
        text = f"compiled and eager steps show no difference ({compiled}, eager {eager}; {varies})"
        yield Finding("against-eager", f"{text}: {cost} has not paid off", level=CAUTION)
    else:
        text = f"in one run of each a compiled step takes longer than an eager one ({compiled}, eager {eager}): "
        text += f"at these times {cost} does not pay off"
        yield Finding("against-eager", text, level=CAUTION)


def _round_steps(steps: float) -> int:
    """Rounds the number of steps up to two significant digits, because it comes from a difference of two times."""
    unit = 10 ** max(0, math.floor(math.log10(steps)) - 1) if steps >= 1 else 1
    return math.ceil(steps / unit) * unit


STEP_RULES = (
    Rule(("host-pace",), find_host_work),
    Rule(("synchronisations",), find_synchronisations, names_host_work=True),
    Rule(("allocations",), find_allocations, names_host_work=True),
    Rule(("small-graphs",), find_small_graphs, names_host_work=True),
    Rule(("kernel-gaps",), find_gaps_between_kernels),
    Rule(("cuda-graphs-unused",), find_unused_cuda_graphs, names_host_work=True),
    Rule(("replay-inputs",), find_replay_input_copies),
    Rule(("against-eager",), find_eager_comparison, is_measurement=True),
    Rule(("compile-time",), find_compile_time, is_measurement=True),
    Rule(("cuda-graphs-in-use",), find_cuda_graphs_in_use),
)

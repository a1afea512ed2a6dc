"""Findings about the step: its times, launches and gaps, and what the host does meanwhile."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from ... import units
from ...records.run import (
    COLLECTING,
    COLLECTIVE,
    COPY,
    CPU_OPERATORS,
    DATA_LOADING,
    EAGER,
    FOR_FILE,
    FOR_LOCK,
    FOR_PROCESS,
    FOR_RANKS,
    FOR_SOCKET,
    GRAPH,
    IDLE,
    LONGER_LOOP,
    PYTHON,
    QUEUED,
    SLEEPING,
    Part,
    Peaks,
    Program,
    ProgramChange,
    RankSteps,
    Run,
)
from ..statistics import find_groups, vary_widely
from ..step_costs import (
    compute_alone_ratio,
    compute_exposed_s,
    compute_work_s,
    find_idle_s,
    find_longest_profile,
    find_pace_setter,
    find_step,
    has_idle_kinds,
    host_sets_pace,
    is_far_off,
    list_parts,
    runs_on_host,
)
from .doubts import MEASURE_AGAIN, are_delayed, describe_load, find_busiest, find_disturbed_step, find_step_load
from .finding import (
    ADVICE,
    CAUTION,
    LEAST_SHARE,
    NOTE,
    CostedKernel,
    Finding,
    RemovedWork,
    Rows,
    Rule,
    RunEvidence,
    join_words,
    make_finding,
    plural,
    repeat_command,
    sum_times,
)
from .program_findings import list_idle_parts
from .step_phrases import (
    find_differing_kinds,
    find_long_other_steps,
    format_sampled_share,
    format_share,
    has_few_samples,
    is_as_profiled,
    name_kinds,
    name_line,
    say_difference,
)

# Rules about the steps' times: the first one, changes from step to step, and what limits the figures.


COLD = 2.0  # ratio of the first step to a settled one from which it is reported
SPREAD = 0.1  # width of the middle half of the steps, as a share of their median, from which it is reported
DRIFT = 0.05  # change from the first to the last third of the steps, as a share of the mean
OFTEN = 0.2  # number of other steps, as a share of the timed ones, from which they are a caution
MOST_NAMED_KINDS = 6  # number of kinds of steps up to which each has its time
SAME_CLOCK = 0.02  # difference of two clocks up to which they count as the same
FEW_STEPS = 5  # number of steps below which their mean is uncertain
LONGER_PROFILE = 1.2  # ratio of a profiled step to a timed one on a CPU from which it is reported
UNTIED = 0.005  # share of the graphs' device time without a kernel from which it is reported


def find_long_first_step(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports the time of the first step, which compiles."""
    program = find_step(evidence.run)
    if program is None or not program.first_step_time_s or program.first_step_time_s < COLD * program.step_time_s:
        return
    times = program.first_step_time_s / program.step_time_s
    after = f"; the timed window begins after {plural(program.settled_after, 'step')}" if program.settled_after else ""
    text = (
        f"the first step took {units.seconds(program.first_step_time_s)}, as long as {units.count(round(times))} "
        f"settled steps: it compiles{after}"
    )
    yield Finding("first-step", text, level=NOTE)


def find_busy_step(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports a machine that was busy while modules ran outside the program, if the host's time matters to the step."""
    run, load = evidence.run, find_busiest(evidence.run.modules)
    if load is None or not (runs_on_host(run) or host_sets_pace(run)) or find_disturbed_step(run):
        return
    again = repeat_command(run)
    where = f" ({again})" if again else ""
    step = "the step, which was timed shortly before, may take less on an idle machine"
    if (known := find_step_load(run)) is not None:
        share = units.whole_percent(known.delayed_share)
        step = f"while the step was timed, the program waited for a core {share} of its time"
    text = f"{describe_load(load)} when the modules ran by themselves: {step}. {MEASURE_AGAIN}{where}"
    yield Finding("busy-step", text, level=CAUTION)


def find_unsteady_steps(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports steps whose times change their level, come in groups, drift, or vary."""
    program = find_step(evidence.run)
    times = program.step_times_s if program else ()
    if program is None or len(times) < FEW_STEPS:
        return
    steady = times[slice(*program.level)] if program.level[1] else times
    groups, change = find_groups(steady), _compute_drift(steady)
    low, middle, high = statistics.quantiles(steady, n=4) if len(steady) > 1 else steady * 3
    kinds = list(_describe_kinds(evidence.run, program))
    medians = program.level[1] and not (vary_widely(steady) or find_differing_kinds(program))
    figures = "the figures are medians" if medians else "the figures are their means"
    if is_as_profiled(program):
        whole_s = statistics.fmean(times)
        figures = (
            f"the figures are means over the profiled steps; the mean of all timed steps is {units.seconds(whole_s)}"
        )
    elif kinds:
        figures = "the figures are means over this mix"
    if len(steady) < len(times):
        text = _describe_level(program)
    elif kinds:
        text = f"the timed steps are of {len(kinds)} kinds: {join_words(kinds)}; {figures}"
    elif len(groups) == 2:
        words = " and ".join(f"{len(one)} of about {units.seconds(statistics.median(one))}" for one in groups)
        text = f"the timed steps come in groups, {words}; the figures are means over both groups"
    elif abs(change) >= DRIFT:
        third = len(times) // 3
        first, last = (statistics.median(some) for some in (times[:third], times[-third:]))
        text = (
            f"steps become {'longer' if change > 0 else 'shorter'}, from {units.seconds(first)} to "
            f"{units.seconds(last)} within the timed window; {figures}"
        )
    elif middle and (high - low) / middle >= SPREAD:
        text = (
            f"steps take different times: from {units.seconds(min(times))} to {units.seconds(max(times))}, the middle "
            f"half {units.seconds(low)} to {units.seconds(high)}; {figures}"
        )
    else:
        return
    yield Finding("unsteady-steps", text, level=CAUTION)


def _describe_kinds(run: Run, program: Program) -> Iterator[str]:
    """Each kind of the timed steps with its time; nothing if they are many, or take about the same time."""
    kinds = find_differing_kinds(program)
    for kind, name in zip(kinds, name_kinds(kinds, run), strict=True) if len(kinds) <= MOST_NAMED_KINDS else ():
        yield f"{kind.count} of {units.seconds(kind.time_s)} ({name})"


def _describe_level(program: Program) -> str:
    """Says which steps took another time than the steps that the figures describe."""
    begin, end = program.level
    others = [(times, words) for times, words in _list_other_levels(program.step_times_s, begin, end) if times]
    said = " and ".join(f"{units.seconds(statistics.median(times))} for the {words}" for times, words in others)
    return (
        f"the step's time changes: {units.seconds(program.step_time_s)} for {plural(end - begin, 'step')}, "
        f"{said}{_describe_clock(program)}; the figures describe the {plural(end - begin, 'step')}"
    )


def _describe_clock(program: Program) -> str:
    """Says how the GPU's clock differed between the steps that count and the other steps; empty if unknown."""
    begin, end = program.level
    near = [one for one in program.clocks if begin <= one.place < end]
    far = [one for one in program.clocks if one not in near]
    if not near or not far:
        return ""
    first, second = (statistics.median(one.mhz for one in some) for some in (near, far))
    if abs(second - first) < SAME_CLOCK * first:
        return f", at the same clock ({first:.0f} MHz)"
    limits = dict.fromkeys(limit for one in (far if second < first else near) for limit in one.limits)
    why = f": {', '.join(limits)}" if limits else ""
    return f", when the clock was {second:.0f} instead of {first:.0f} MHz{why}"


def _list_other_levels(times: Sequence[float], begin: int, end: int) -> Iterator[tuple[Sequence[float], str]]:
    yield times[:begin], f"{begin} before them"
    yield times[end:], f"{len(times) - end} after them"


def find_other_steps(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports steps that called other graphs than the profiled ones, as an evaluation does."""
    program = find_step(evidence.run)
    are_long = program is not None and find_long_other_steps(program) is not None
    timed, others = (program.step_kinds, program.other_steps) if program else ((), ())
    names = name_kinds((*timed, *others), evidence.run)[len(timed) :]
    for one, named in zip(others, names, strict=True):
        median = " in the median" if one.count > 1 else ""
        what = say_difference(one, program) if program else ""
        text = (
            f"{plural(one.count, 'step')} {what} than the timed steps ({named}), and took "
            f"{units.seconds(one.time_s)}{median}: the figures leave {'it' if one.count == 1 else 'them'} out"
        )
        often = program is not None and one.count >= OFTEN * len(program.step_times_s)
        yield Finding("other-steps", text, level=CAUTION if often or are_long else NOTE, about=named)


def _compute_drift(times: Sequence[float]) -> float:
    """The change from the first to the last third as a share of the mean; 0 if the thirds overlap."""
    third = len(times) // 3
    first, last = sorted(times[:third]), sorted(times[-third:])
    if third < 2 or not (first[-1] < last[0] or last[-1] < first[0]):
        return 0.0
    return (statistics.mean(last) - statistics.mean(first)) / statistics.mean(times)


def _find_longer_profile(program: Program) -> Iterator[Finding]:
    """Reports that the profiler slowed a device that is the host, which makes the parts less certain."""
    profiled_s, timed_s = find_longest_profile(program)
    if profiled_s >= LONGER_PROFILE * timed_s > 0:
        text = (
            f"profiled steps took {units.seconds(profiled_s)}, {units.whole_percent(profiled_s / timed_s - 1)} longer "
            "than the timed steps: all parts are scaled down by one factor, and parts with many short operators may be "
            "too large"
        )
        yield Finding("longer-profile", text, level=CAUTION)


def find_uncertainty(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports what limits the figures of the step, or why it was not profiled."""
    program = evidence.run.program
    if program is None:
        return
    if len(program.step_times_s) < FEW_STEPS:
        text = f"only {plural(len(program.step_times_s), 'step')} could be timed: the figures are uncertain"
        yield Finding("few-steps", text, level=CAUTION)
    if runs_on_host(evidence.run):
        yield from _find_longer_profile(program)
    tied = [rank.tied_share for rank in program.ranks if rank.tied_share is not None]
    if tied and min(tied) < 1 - UNTIED:
        text = (
            f"for {units.percent(1 - min(tied))} of the compiled graphs' device time the kernel is not known: the "
            "kernels' times in the step are lower bounds"
        )
        yield Finding("untied", text, level=CAUTION)
    for note in program.notes:
        loop = note.startswith(LONGER_LOOP)
        kind, level = ("longer-loop", CAUTION) if loop else ("step-note", NOTE)
        yield Finding(kind, note, level=level, about=note)


# Rules about programs of several processes: collectives, and differences between ranks.


ALONE = 0.9  # exposed share of a single reduction from which nothing hides it
EXPOSED = 0.03  # share of the step in exposed collectives from which they are advice
UNEVEN = 0.05  # difference of the ranks' times in exposed collectives, as a share of the step, that is reported
MAIN = 0.5  # share of that difference from which one reason explains it


def find_collectives(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports collectives, and how much of them other work hides.

    If each of several backward passes before an optimizer's step reduces gradients, one reduction in the last pass is
    enough. If nothing hides a single reduction, several buckets let it begin earlier.
    """
    run = evidence.run
    parts = list_parts(run, COLLECTIVE)
    exposed, hidden = sum(part.time_s for part in parts), sum(part.hidden_s for part in parts)
    if exposed + hidden < LEAST_SHARE * evidence.whole.time_s:
        return
    text = f"collectives take {format_share(run, exposed)} of a step while nothing is computed (exposed)"
    text += f", and {units.seconds(hidden)} beside computation"
    matters = exposed >= EXPOSED * evidence.whole.time_s
    if matters:
        text += f": {_advise_earlier_start(run, exposed / (exposed + hidden))}"
    assumed = RemovedWork(parts=tuple(parts)) if matters else RemovedWork()
    level = ADVICE if matters else NOTE
    yield Finding("collectives", text, level=level, gain_s=exposed if matters else 0.0, assumed=assumed)


def _advise_earlier_start(run: Run, exposed_share: float) -> str:
    """Advises how to have fewer collectives, or how to hide them."""
    reduced = sum(part.calls for part in list_parts(run, COLLECTIVE) if part.label == "AllReduce")
    backward = {module.slug for module in run.modules if module.role == "backward"}
    passes = min((part.calls for part in list_parts(run, GRAPH) if part.graph in backward), default=0.0)
    if passes >= 2 and reduced >= passes:
        return (
            f"{units.count(reduced)} reductions follow {units.count(passes)} backward passes of a step; "
            "DistributedDataParallel.no_sync() around all but the last one leaves only one reduction"
        )
    if round(reduced) == 1 and exposed_share >= ALONE:
        return (
            "all gradients are reduced at once, after the backward: a smaller bucket_cap_mb of "
            "DistributedDataParallel lets the first buckets be reduced during the backward"
        )
    return "start them earlier or in larger buckets, or let more work run beside them"


def find_gradient_copies(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports DDP's copies of gradients out of its buckets: as many copies as gradients, beside all-reduces."""
    run = evidence.run
    copies = [part for part in list_parts(run, COPY) if part.label == "device to device"]
    count, time_s = (sum(getattr(part, name) for part in copies) for name in ("calls", "time_s"))
    gradients = sum(part.calls for part in list_parts(run, EAGER) if part.label == "AccumulateGrad")
    reduced = any(part.label == "AllReduce" for part in list_parts(run, COLLECTIVE))
    if not reduced or not gradients or round(count) != round(gradients) or time_s < LEAST_SHARE * evidence.whole.time_s:
        return
    text = (
        f"DDP seems to copy each gradient out of its buckets, in {units.count(count)} copies that take "
        f"{format_share(run, time_s)} of a step: DistributedDataParallel(model, gradient_as_bucket_view=True) "
        "avoids them"
    )
    changes = (ProgramChange("argument", "DistributedDataParallel.gradient_as_bucket_view", "True"),)
    yield Finding("gradient-copies", text, gain_s=time_s, assumed=RemovedWork(parts=tuple(copies)), changes=changes)


def find_uneven_ranks(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports the rank that the others wait for in their collectives."""
    program = find_step(evidence.run)
    ranks = [rank for rank in program.ranks if rank.parts] if program else []
    if len(ranks) < 2:
        return
    awaited, waiting = find_pace_setter(ranks), max(ranks, key=compute_exposed_s)
    longer_s = compute_exposed_s(waiting) - compute_exposed_s(awaited)
    if longer_s < UNEVEN * awaited.step_time_s:
        return
    first, last = name_rank(waiting), name_rank(awaited)
    others = [rank for rank in ranks if rank is not awaited]
    late = [
        rank for rank in others if compute_exposed_s(rank) - compute_exposed_s(awaited) >= UNEVEN * awaited.step_time_s
    ]
    many = "all others wait" if len(late) == len(others) else f"{len(late)} of {len(others)} other ranks wait"
    who = f"{first} waits for {last}" if len(late) == 1 else f"{many} for {last}, {first} longest"
    text = (
        f"{who}: exposed collectives take {units.seconds(compute_exposed_s(waiting))} of the step of {first}, and "
        f"{units.seconds(compute_exposed_s(awaited))} of the step of {last}, "
        f"{_explain_uneven_ranks(awaited, waiting, longer_s)}"
    )
    yield Finding("uneven-ranks", text, level=CAUTION)


def _explain_uneven_ranks(awaited: RankSteps, waiting: RankSteps, longer_s: float) -> str:
    """Says why a rank is last at the collectives: its host, its device's work, or either if the trace cannot tell."""
    first, last = name_rank(waiting), name_rank(awaited)
    works, idle = units.seconds(compute_work_s(awaited)), units.seconds(find_idle_s(awaited))
    host_s = sum(part.time_s for part in awaited.parts if part.kind == IDLE and part.label != QUEUED)
    if compute_work_s(awaited) - compute_work_s(waiting) >= MAIN * longer_s:
        return f"whose device works {works} instead of {units.seconds(compute_work_s(waiting))}: give {last} less work"
    if host_s >= MAIN * longer_s:
        return (
            f"whose device works {works} and is idle {idle}: the host of {last} is late, not its device; because "
            f"{first} waits, the time of the host of {first} is not known"
        )
    return f"whose device works {works} and is idle {idle}"


def name_rank(rank: RankSteps) -> str:
    """Returns ``rank 3``, or the process if it has no rank."""
    return f"process {rank.pid}" if rank.rank is None else f"rank {rank.rank}"


# The rule about kernels whose time in the graph's own run says little about the program.


def find_different_by_themselves(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports kernels whose calls take a very different time in the module's own run, and says what differs."""
    far = [row for row in evidence.rows if is_far_off(compute_alone_ratio(evidence.run, row.kernel))]
    shorter = [row for row in far if (compute_alone_ratio(evidence.run, row.kernel) or 0.0) < 1]
    longer = [row for row in far if row not in shorter]
    both = " or more" if shorter and longer and are_delayed(evidence.run) else ""
    groups = ((far, f"less{both}"),) if both else ((shorter, "less"), (longer, "more"))
    for rows, how in groups:
        if rows:
            takes, runs = ("takes", "its graph runs") if len(rows) == 1 else ("take", "their graphs run")
            text = (
                f"{plural(len(rows), 'kernel')}, {evidence.whole.format(sum_times(rows))} of a step, "
                f"{takes} over 25% {how} time when {runs} alone than in the program: "
                f"{_explain_difference(rows, evidence, how)}"
            )
            matters = evidence.whole.part(sum_times(rows)) >= LEAST_SHARE
            yield make_finding(f"alone-{how.split()[0]}", text, rows, CAUTION if matters else NOTE)


def _explain_difference(rows: Rows, evidence: RunEvidence, how: str) -> str:
    """Says what is known to differ.

    Clocks, other streams and values are unknown: neither run records them for a kernel.
    """
    first, peaks = rows[0], evidence.run.peaks
    if are_delayed(evidence.run):
        return "how long each kernel waited for a core was not measured"
    if all(row.module.dynamic for row in rows):
        return (
            "its sizes are symbolic, so alone it runs with the sizes of its first compilation, not with those of "
            "the step"
        )
    if how == "less" and _fits(first, peaks):
        size = units.size((peaks.cache_bytes if peaks else None) or 0)
        cache = first.device.words.whole_cache
        return f"the data of a call fits into {cache} ({size}), and stays there between runs of the graph alone"
    return "the cause was not measured"


def _fits(row: CostedKernel, peaks: Peaks | None) -> bool:
    """Whether the bytes of one call fit into the cache."""
    kernel, cache = row.kernel, peaks.cache_bytes if peaks else None
    return bool(cache and kernel.work.moved_bytes and kernel.calls and kernel.work.moved_bytes / kernel.calls <= cache)


MOST_LINES = 3
WAITS = (SLEEPING, FOR_LOCK, FOR_FILE, FOR_SOCKET, FOR_PROCESS, FOR_RANKS)
WORKERS = "DataLoader workers"
UNSURE_SHARE = 0.1
"""The smallest share of the step for which idle time is reported if it was seen only in a profile that made the steps
much slower."""

PYTHON_SHARE = 0.05
"""Share of the step from which a function of the program is reported."""


def describe_spot(part: Part) -> str:
    """Returns where a part of the idle time comes from: ``tokenize at app/data.py:33``; empty if it is unknown."""
    line = name_line(part.source)
    return f"{part.function} at {line}" if line and part.function else line or part.function


def describe_spots(run: Run, labels: Sequence[str]) -> str:
    """Returns the places of idle parts, the longest first: `` (tokenize at app/data.py:33)``; empty without any."""
    found = [(describe_spot(part), part) for part in list_parts(run, IDLE) if part.label in labels]
    known = [(spot, part) for spot, part in found if spot]
    if not known:
        return ""
    if len(found) == 1:
        return f" ({known[0][0]})"
    return f" ({join_words([f'{spot} {units.seconds(part.time_s)}' for spot, part in known], MOST_LINES)})"


def _time_of(evidence: RunEvidence, *labels: str) -> float:
    """Returns the step's seconds with these labels; 0 if they are too few to report, or too few for their evidence."""
    parts = list_idle_parts(evidence.run, *labels)
    time_s = sum(part.time_s for part in parts)
    least = LEAST_SHARE if has_idle_kinds(evidence.run) else UNSURE_SHARE
    return time_s if time_s >= least * evidence.whole.time_s and not has_few_samples(evidence.run, parts) else 0.0


def _format_idle(run: Run, label: str) -> str:
    return format_sampled_share(run, list_idle_parts(run, label))


def _describe_idleness(run: Run) -> str:
    return "no operator runs" if runs_on_host(run) else "the device is idle"


def find_data_loading(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports the idle time in which the program waits for its data loader.

    Options of workers, such as ``prefetch_factor``, are advised if the samples show that the program waits for workers.
    """
    run = evidence.run
    time_s = _time_of(evidence, DATA_LOADING)
    if not time_s:
        return
    functions = {part.function for part in list_parts(run, IDLE) if part.label == DATA_LOADING and part.function}
    if not functions:
        advice = "more num_workers of the DataLoader, or batches that are prepared beforehand"
    elif functions == {WORKERS}:
        advice = "more num_workers, a larger prefetch_factor, or batches that are prepared beforehand"
    elif WORKERS in functions:
        advice = "more num_workers, or less work between the batches of its workers"
    else:
        advice = "let other processes load the data (num_workers=1 or more), not the thread that runs the steps"
    if (threads := _count_threads_on_all_cores(run)) and WORKERS not in functions:
        advice = (
            "prepare the batches beforehand; workers of the DataLoader would take cores from the step, which "
            f"uses all of them ({plural(threads, 'thread')})"
        )
    text = (
        f"{_describe_idleness(run)} for {_format_idle(run, DATA_LOADING)} of a step while data "
        f"is loaded{describe_spots(run, (DATA_LOADING,))}"
    )
    names = [name for name in ("num_workers", "prefetch_factor") if name in advice]
    changes = tuple(ProgramChange("argument", f"DataLoader.{name}", "") for name in names)
    assumed = RemovedWork(idle=list_idle_parts(run, DATA_LOADING))
    yield Finding("data-loading", f"{text}: {advice}", gain_s=time_s, assumed=assumed, changes=changes)


def _count_threads_on_all_cores(run: Run) -> int:
    """The number of threads of a step on a CPU whose graphs run on all cores; else 0."""
    threads = min((module.threads for module in run.modules if module.threads), default=0)
    return threads if runs_on_host(run) and threads >= run.environment.host.cpu_count > 0 else 0


def find_cpu_operators(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports operators that the host computes while the device waits."""
    run = evidence.run
    time_s = _time_of(evidence, CPU_OPERATORS)
    if time_s and not runs_on_host(run):
        text = (
            f"the device is idle for {_format_idle(run, CPU_OPERATORS)} of a step while the host computes operators on "
            f"the CPU{describe_spots(run, (CPU_OPERATORS,))}: compute them on the device, or in another thread"
        )
        assumed = RemovedWork(idle=list_idle_parts(run, CPU_OPERATORS))
        yield Finding("cpu-operators", text, gain_s=time_s, assumed=assumed)


def find_host_waits(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports sleeps, and waits of the host for a lock, a file, a socket, a process or other ranks."""
    run = evidence.run
    for label in WAITS:
        time_s = _time_of(evidence, label)
        if time_s:
            text = f"{_describe_idleness(run)} for {_format_idle(run, label)} of a step while the host is {label}"
            text += f"{describe_spots(run, (label,))}: let another thread or process do this"
            assumed = RemovedWork(idle=list_idle_parts(run, label))
            yield Finding("host-waits", text, gain_s=time_s, assumed=assumed, about=label)


def find_garbage_collection(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports the time of Python's garbage collector, which stops the host."""
    run = evidence.run
    time_s = _time_of(evidence, COLLECTING)
    if time_s:
        text = (
            f"{_describe_idleness(run)} for {format_share(run, time_s)} of a step while Python collects garbage"
            f"{describe_spots(run, (COLLECTING,))}: call gc.freeze() after the start, or "
            "gc.disable(), and gc.collect() when it costs no time"
        )
        assumed = RemovedWork(idle=list_idle_parts(run, COLLECTING))
        yield Finding("garbage-collection", text, gain_s=time_s, assumed=assumed)


def find_host_python(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports functions of the program that the host runs while the device waits, one finding for each function.

    It holds if :func:`has_few_samples` does not. Calls that are not operators, such as NumPy functions, count for the
    function that makes them.
    """
    run = evidence.run
    groups: dict[tuple[str, str], list[Part]] = {}
    for part in list_parts(run, IDLE):
        if part.label == PYTHON and part.source is not None and part.function:
            groups.setdefault((part.source.file, part.source.function), []).append(part)
    for place, parts in groups.items():
        time_s = sum(part.time_s for part in parts)
        if time_s < PYTHON_SHARE * evidence.whole.time_s or has_few_samples(run, parts):
            continue
        text = (
            f"{_describe_idleness(run)} for {format_sampled_share(run, parts)} of a step while the "
            f"host runs {_describe_places(parts)}"
        )
        text += ": shorten this function, call it less often, or run it in another thread"
        changes = (ProgramChange("line", "host", "", parts[0].source),)
        assumed = RemovedWork(idle=tuple(parts))
        yield Finding("host-python", text, gain_s=time_s, assumed=assumed, changes=changes, about=" ".join(place))


def _describe_places(parts: Sequence[Part]) -> str:
    """Names the function of the program, its line, and what takes most of its time."""
    first = parts[0]
    where = first.source.function if first.source is not None else ""
    inside = [part for part in parts if part.function != where]
    words = [f"{part.function} {units.seconds(part.time_s)}" for part in inside]
    most = f" ({join_words(words, MOST_LINES)})" if words else ""
    return f"{where} at {name_line(first.source)}{most}"


STEP_RULES = (
    Rule(("data-loading",), find_data_loading, names_host_work=True),
    Rule(("cpu-operators",), find_cpu_operators, names_host_work=True),
    Rule(("host-waits",), find_host_waits, names_host_work=True),
    Rule(("host-python",), find_host_python, names_host_work=True),
    Rule(("garbage-collection",), find_garbage_collection, names_host_work=True),
    Rule(("collectives",), find_collectives),
    Rule(("gradient-copies",), find_gradient_copies),
    Rule(("uneven-ranks",), find_uneven_ranks),
    Rule(("busy-step",), find_busy_step, is_measurement=True),
    Rule(("unsteady-steps",), find_unsteady_steps, is_measurement=True),
    Rule(("other-steps",), find_other_steps, is_measurement=True),
    Rule(("alone-less", "alone-more"), find_different_by_themselves, is_measurement=True),
    Rule(("first-step",), find_long_first_step, is_measurement=True),
)

"""Phrases about a program's step: its time, its loops, its lines and shares of it."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ... import units
from ...records.code import FIRST_LINE, SourceLine
from ...records.evidence import take_different_times
from ...records.run import COLLECTING, MARKS, OPTIMIZER_STEPS, PATTERN, CallStretch, Part, Program, Run, StepKind
from ..step_costs import compute_eager_ratio, compute_time_as_profiled, find_pace_setter
from .finding import Rows, join_words, plural

_SOURCES = {
    MARKS: "marked by the program",
    OPTIMIZER_STEPS: "optimizer steps",
    PATTERN: "found in the pattern of compiled calls",
}

MUCH_TIME = 0.1
"""Share of the time in steps that ran other calls from which the first line names them."""

MOST_STRETCHES = 4
"""Largest number of stretches of calls that the first line names."""


def describe_step(program: Program) -> str:
    """Returns ``12.4 ms a step (optimizer steps; 20 timed)``, with its loops and an eager step if they are known.

    Of several kinds of steps it says ``12.4 ms a step on average (optimizer steps; 20 timed, of 2 kinds)``.

    Steps that ran other calls are named if they take a large share of the time, as the rollouts of a training do.
    If the step's time changed, and the figure comes only from some of the timed steps, it says ``226 of 243 timed, the
    others took 14.1 ms``.
    """
    source = _SOURCES.get(program.step_source, f"delimited by {program.step_source}")
    kinds, mean = "", ""
    if found := find_differing_kinds(program):
        is_old = is_as_profiled(program)
        kinds = f", of {len(found)} kinds{', each weighted by its profiled steps' * is_old}"
        mean = "" if is_old else " on average"
    (begin, end), times = program.level, program.step_times_s
    others = (*times[:begin], *times[end:]) if begin < end else ()
    some, rest = f"{end - begin} of ", f", the others took {units.seconds(statistics.median(others))}" if others else ""
    timed = f"{some if others else ''}{len(times)} timed{kinds}{rest}"
    notes = "; ".join([source, timed, *_describe_other_steps(program), *_describe_eager_steps(program)])
    said = f"{units.seconds(program.step_time_s)} a step{mean} ({notes})"
    return f"{said} = {describe_loop(program)}" if 0 < len(program.stretches) <= MOST_STRETCHES else said


class OtherStepsTime(NamedTuple):
    """The time of the steps whose calls differ from those of the timed steps."""

    steps: int
    among: int  # the number of steps among which they were counted
    mean_s: float
    share: float  # of the time of all steps among which they were counted


def find_long_other_steps(program: Program) -> OtherStepsTime | None:
    """Returns the other steps if they take much of the time; ``None`` if they take little or an unknown time."""
    among = max((one.among or 0 for one in program.other_steps), default=0)
    if not among:
        return None
    count = sum(one.count for one in program.other_steps)
    others_s = sum(one.count * one.time_s for one in program.other_steps)
    timed_s = sum(one.count * one.time_s for one in program.step_kinds) or (among - count) * program.step_time_s
    share = others_s / (others_s + timed_s)
    return OtherStepsTime(count, among, others_s / count, share) if share >= MUCH_TIME else None


def _describe_other_steps(program: Program) -> Iterator[str]:
    found = find_long_other_steps(program)
    if found is not None:
        differ = {say_difference(one, program) for one in program.other_steps}
        other = OTHER_SIZES if differ == {OTHER_SIZES} else "ran other calls"
        other = "were of other kinds" if other != OTHER_SIZES and differ & {OTHER_SIZES, OTHER_KINDS} else other
        yield (
            f"{found.steps} of {plural(found.among, 'step')} {other} and took {units.seconds(found.mean_s)}"
            f"{' each' if found.steps > 1 else ''}, {units.whole_percent(found.share)} of the time"
        )


OTHER_SIZES, OTHER_KINDS = "had other sizes", "had other graphs or sizes"


def say_difference(kind: StepKind, program: Program) -> str:
    """How steps that were not profiled differ from the timed ones: ``called other graphs``, ``had other sizes``."""
    timed = {one.graphs for one in program.step_kinds}
    if kind.interrupted:
        return "ran other calls"
    if kind.graphs in timed if kind.graphs else kind.sizes:
        return OTHER_SIZES
    return OTHER_KINDS if kind.pooled and not kind.graphs else "called other graphs"


def find_differing_kinds(program: Program) -> tuple[StepKind, ...]:
    """The kinds of the timed steps, by the graphs that they called; empty if they take about the same time."""
    return program.step_kinds if take_different_times(program.step_kinds) else ()


def is_as_profiled(program: Program) -> bool:
    """Whether each of several kinds of steps has the weight of its profiled steps. This is so in older records, which
    do not say of which kind each profiled step was, and if a kind was not profiled."""
    if not program.parts or (program.ranks and find_pace_setter(program.ranks).step_weights):
        return False
    return compute_time_as_profiled(find_differing_kinds(program)) is not None


LEAST_OTHERS = 0.05
"""Share of the time in all kinds of steps but the longest one from which the kinds are shown."""

_SIZES = re.compile(r" \(([^()]+)\)$")  # what tells a graph from others of its function, at the end of its name


def list_shown_kinds(program: Program) -> tuple[StepKind, ...]:
    """All kinds of steps, those that take most time first, and the sums of rare kinds last.

    The result is empty if one kind takes nearly all of the time, or if all kinds take about the same time. How long
    the kinds in a sum take is unknown, so a sum is shown if it takes much time and no step of it was profiled.
    """
    kinds = (*program.step_kinds, *program.other_steps)
    shares = [kind.share or 0.0 for kind in kinds]
    differ = take_different_times(kinds) or any(kind.pooled and _is_missing(kind) for kind in kinds)
    if not differ or sum(shares) - max(shares) < LEAST_OTHERS:
        return ()
    return tuple(sorted(kinds, key=lambda kind: (bool(kind.pooled), -(kind.share or 0.0))))


def name_kinds(kinds: Sequence[StepKind], run: Run) -> list[str]:
    """Names kinds of steps by their graphs and sizes: ``[1] = 256``, ``size 64``, ``prefill (size 64)``.

    The function's name is left out if it is the same for all.
    """
    labels = {module.slug: module.label for module in run.modules}
    sized = [set(kind.sizes) for kind in kinds if kind.sizes]
    same = set.intersection(*sized) if sized else set()
    if any(sizes <= same for sizes in sized):
        same = set()
    dynamic = {kind.graphs for kind in kinds if kind.sizes}
    found = []
    for kind in kinds:
        graphs = kind.labels or tuple(labels[slug] for slug in kind.graphs if slug in labels)
        sizes = [size for size in kind.sizes if size not in same]
        ends = {str(end[1]) if (end := _SIZES.search(graph)) else "" for graph in graphs}
        words = ends.pop() if len(ends) == 1 else ""
        if sizes:
            words = f"size{'s' * (len(sizes) > 1)} {', '.join(map(str, sizes))}"
        elif kind.graphs and kind.graphs in dynamic:
            words = "other sizes"  # of which the tool kept no more than their time
        names = [_SIZES.sub("", graph) if words else graph for graph in graphs]
        words += ("; " if words else "") + "interrupted" if kind.interrupted else ""
        found.append((join_words(names) or "no graph", words, kind.pooled))
    own = [(graphs, words) for graphs, words, pooled in found if not pooled]
    short = all(words for _, words in own) and len({words for _, words in own}) == len(own)
    short = short and len({graphs for graphs, _ in own}) == 1
    if short:
        found = [(words, "", pooled) for _, words, pooled in found]
    named = [f"{graphs} ({words})" if words else graphs for graphs, words, _ in found]
    return [f"{one[2]} rare kinds" if one[2] else name for one, name in zip(found, named, strict=True)]


def find_unprofiled_kinds(program: Program) -> list[StepKind]:
    """The kinds of steps that take much of the time and are not among the profiled steps."""
    kinds = list_shown_kinds(program) if program.parts else ()
    return [kind for kind in kinds if _is_missing(kind)]


def _is_missing(kind: StepKind) -> bool:
    return kind.profiled == 0 and (kind.share or 0.0) >= MUCH_TIME


def count_steps_to_profile(kinds: Sequence[StepKind], steps: int | None) -> int:
    """The number of steps of which almost surely some are of each of these kinds; above ``steps``, the last number.

    Kinds that are summed up count as equally frequent.
    """
    rarest = min(kind.count / (kind.among * (kind.pooled or 1)) if kind.among else 1.0 for kind in kinds)
    needed = math.log(0.01) / math.log(1 - rarest) if rarest < 1 else 1.0
    return max(20, 10 * math.ceil(min(needed, 500) / 10), 2 * (steps or 0))


def describe_loop(program: Program) -> str:
    """Returns ``forward 2.70 ms + 24 x forward-2 0.684 ms + 0.21 ms between``."""
    parts = []
    for one in program.stretches:
        graphs = describe_unit(one) if len(one.labels) == 1 else f"({describe_unit(one)})"
        times = f"{units.count(one.repetitions)} x " if one.repetitions != 1 else ""
        parts.append(f"{times}{graphs} {units.seconds(one.time_s)}")
    between_s = program.step_time_s - sum(one.whole_s for one in program.stretches)
    return " + ".join([*parts, f"{units.seconds(between_s)} between"] if between_s > 0 else parts)


def describe_unit(stretch: CallStretch) -> str:
    """The graphs of one repetition: ``forward + backward``, and how often they follow each other."""
    named = [(label, len(list(group))) for label, group in itertools.groupby(stretch.labels)]
    return " + ".join(f"{count} x {label}" if count > 1 else label for label, count in named)


def _describe_eager_steps(program: Program) -> list[str]:
    ratio = compute_eager_ratio(program)
    if ratio is None:
        return []
    if ratio > 1:
        return [f"{ratio:.2f}x faster than eager"]
    return ["no measurable difference to eager" if ratio == 1 else f"eager: {units.seconds(program.eager_step_time_s)}"]


def format_share(run: Run, seconds: float) -> str:
    """Returns a time with its share of the step: ``1.20 ms (3.4%)``."""
    whole = run.program.step_time_s if run.program else 0.0
    return f"{units.seconds(seconds)} ({units.percent(seconds / whole)})" if whole else units.seconds(seconds)


FEWEST_SAMPLES = 3
"""The smallest number of samples that make a finding if no sample came late."""

LATE = 1.5
"""If the samples' share of the time is this many times their share of the number of samples, some of them came late."""

_NORMAL = 1.96  # the quantile of the normal distribution for 95%


def has_few_samples(run: Run, parts: Sequence[Part]) -> bool:
    """Whether idle time was seen only in samples, and in too few of them.

    A late sample stands for all moments that it missed, as during a call that keeps Python's interpreter for itself:
    then one sample is enough.
    """
    seen, (count_share, time_share) = sum(part.samples for part in parts), _compute_sampled_shares(run, parts)
    return 0 < seen < FEWEST_SAMPLES and time_share <= LATE * count_share


def format_sampled_share(run: Run, parts: Sequence[Part]) -> str:
    """Returns the time of idle parts with its share of the step, and the samples on which it rests, if any:
    ``0.221 ms (5.1%; from 5 of 17 samples: 0.101 to 0.396 ms)``.

    The interval is Wilson's for a share, 95%. It counts samples, so it is left out if these did not come evenly.
    """
    time_s, seen = math.fsum(part.time_s for part in parts), sum(part.samples for part in parts)
    host, said = run.program.host if run.program else None, format_share(run, time_s)
    if host is None or not 0 < seen <= host.samples:
        return said
    said = f"{said[:-1]}; from {seen} of {host.samples} samples"
    share, time_share = _compute_sampled_shares(run, parts)
    if not share <= LATE * time_share <= LATE**2 * share:
        return f"{said})"
    square = _NORMAL**2 / host.samples
    half = _NORMAL * math.sqrt(share * (1 - share) / host.samples + square / (4 * host.samples))
    low, high = ((share + square / 2 + side) / (1 + square) / share * time_s for side in (-half, half))
    return f"{said}: {units.seconds(low)} to {units.seconds(min(high, time_s / time_share))})"


def _compute_sampled_shares(run: Run, parts: Sequence[Part]) -> tuple[float, float]:
    """The share of idle parts in the number of samples, and in the idle time that these divide; 0 if unknown."""
    host = run.program.host if run.program else None
    if host is None or not host.samples:
        return 0.0, 0.0
    whole_s = math.fsum(one.time_s for one in host.stretches if one.label != COLLECTING)
    time_share = math.fsum(part.time_s for part in parts) / whole_s if whole_s else 0.0
    return sum(part.samples for part in parts) / host.samples, time_share


def name_line(source: SourceLine | None) -> str:
    """Returns the folder, file and line of a place: ``app/train.py:57``; empty if it is unknown.

    If only a function is known, its name follows its first line: ``app/train.py:50 main``.
    """
    if source is None:
        return ""
    line = f"{'/'.join(source.file.split('/')[-2:])}:{source.line}"
    return f"{line} {source.function}" if source.function and FIRST_LINE.match(source.code) else line


def describe_part_place(part: Part) -> str:
    """Returns where a part comes from: its line, else its module; empty if both are unknown."""
    return name_line(part.source) or part.module


def name_origins(rows: Rows) -> str:
    """Returns the layers and lines that take most of the time: `` (head at app/model.py:83)``."""
    layers = dict.fromkeys(_name_layer(layer) for row in rows for layer in row.kernel.origin.layers)
    lines = dict.fromkeys(name_line(line) for row in rows for line in row.kernel.origin.source_lines)
    words = [join_words(list(some), 2) for some in (layers, lines) if some]
    return f" ({' at '.join(words)})" if words else ""


def _name_layer(layer: str) -> str:
    """Returns the last word of a layer's path. If it is a number, the word before it comes with it."""
    words = layer.split(".")
    return ".".join(words[-2:]) if words[-1].isdigit() else words[-1]

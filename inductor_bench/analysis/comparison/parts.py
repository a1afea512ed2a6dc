"""The parts of the difference of two steps: by the cause of kernels, and by what is no kernel. They add up to it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from ... import units
from ...records.comparisons.run import (
    GRAPH_REST,
    KERNEL_CAUSES,
    REST,
    SAME,
    UNCHANGED,
    UNDECIDED,
    KernelChange,
    PartChange,
    StepChange,
)
from ...records.program import IDLE, OTHERS
from ..findings.phrases import join_words, short_paths
from .causes import COUNTED, Setting
from .environment import INTERPRETER, TORCH
from .noise import INTERRUPTION, SMALLEST_SHARE, Noise, judge, part_error_s
from .pairing import GraphPair
from .regrouping import LEFT
from .sides import Side, SideGraph, SidePart, has_other_calls, same_calls

NEGLIGIBLE = 1e-9
"""Share of the step below which what the parts leave is an error of rounding."""


LEFT_WORDS = "the unprofiled step without the profiled work, which leaves nothing in some run: known only roughly"


@dataclass(frozen=True)
class Limits:
    """What the verdicts on parts rest on.

    Attributes:
        idle_noise: the noise of idle time.
        least_s: the least difference that counts.
        step_s: the longer step.
        on_host: whether the device is the host itself.
    """

    setting: Setting
    idle_noise: Noise
    least_s: float
    step_s: float
    on_host: bool = False


def difference_parts(
    a: Side, b: Side, graphs: Sequence[GraphPair], kernels: Sequence[KernelChange], step: StepChange, setting: Setting
) -> list[PartChange]:
    """The parts, the largest difference first; what the records' parts leave comes last."""
    least = SMALLEST_SHARE * step.a_s
    idle_noise = replace(setting.noise, relative=step.noise)
    limits = Limits(setting, idle_noise, least, max(a.step_s, b.step_s), a.on_host)
    rows = [*_kernel_parts(kernels, limits), *_graph_rest(graphs, limits), *_others(a, b, limits)]
    rows = sorted((row for row in rows if row.a_s or row.b_s), key=lambda row: -abs(row.delta_s))
    a_s, b_s = step.a_s - sum(row.a_s for row in rows), step.b_s - sum(row.b_s for row in rows)
    least_rest = NEGLIGIBLE * limits.step_s
    if max(abs(a_s), abs(b_s)) > least_rest:
        a_s, b_s = (0.0 if abs(rest_s) <= least_rest else rest_s for rest_s in (a_s, b_s))
        delta = step.delta_s - sum(row.delta_s for row in rows)
        rows.append(PartChange(a_s, b_s, delta, None, None, UNDECIDED, REST))
    return rows


def _kernel_parts(kernels: Sequence[KernelChange], limits: Limits) -> Iterator[PartChange]:
    """A part for each cause. A kernel's own time stands in that of its main cause; see :func:`_time_in_a`."""
    for cause in KERNEL_CAUSES:
        rows = [change for change in kernels if cause in change.seconds]
        if not rows:
            continue
        a_s = sum(_time_in_a(change, cause) for change in rows)
        delta = sum(change.seconds[cause] for change in rows)
        own = math.hypot(*((change.high_s - change.low_s) / 2 for change in rows))
        error = math.hypot(own, limits.setting.noise.relative * max(a_s, a_s + delta))
        low, high, verdict = judge(a_s, a_s + delta, error, limits.least_s)
        detail = _around_words(limits.setting) if cause == UNCHANGED else ""
        if cause == UNCHANGED and verdict != SAME and not limits.setting.explains_equal_kernels:
            verdict = UNDECIDED
        run_calls = (side.calls for change in rows for side in (*change.a, *change.b))
        if cause in COUNTED and not limits.setting.shows_each_step(run_calls):
            verdict = UNDECIDED
        yield PartChange(a_s, a_s + delta, delta, low, high, verdict, cause, detail=detail, kernels=len(rows))


def _time_in_a(change: KernelChange, cause: str) -> float:
    """The seconds of A that a cause stands for: what it takes away, and for the main cause all that is left."""
    taken = {name: -seconds for name, seconds in change.seconds.items() if name != change.cause and seconds < 0}
    if cause != change.cause:
        return taken.get(cause, 0.0)
    return sum(side.time_s for side in change.a) - sum(taken.values())


def _around_words(setting: Setting) -> str:
    if not setting.around:
        return "clocks and noise"
    versions = any(row.name == TORCH for row in setting.around)
    rows = [row for row in setting.around if row.name != INTERPRETER or not versions]
    changes = (f"{row.name} {row.a or 'not set'} → {row.b or 'not set'}" for row in rows)
    return f"not the generated code: {join_words(list(changes), 2)}, or clocks and noise"


def _graph_rest(graphs: Sequence[GraphPair], limits: Limits) -> Iterator[PartChange]:
    rests = []
    for sides in ([pair.a for pair in graphs], [pair.b for pair in graphs]):
        found = [_outside_of_kernels(graph) for graph in sides if graph is not None]
        rest = [sum(times) for times in zip(*found, strict=True)] or [0.0]
        rests.append(rest if abs(fmean(rest)) > NEGLIGIBLE * limits.step_s else [0.0] * len(rest))
    a_s, b_s = rests
    if any(a_s) or any(b_s):
        row = _part(IDLE, a_s, b_s, limits, GRAPH_REST, "", "")
        yield row if _has_cause(row, (), limits) else _undecided(row)


def _outside_of_kernels(graph: SideGraph) -> list[float]:
    """The seconds of a graph by run, without those of its kernels."""
    return [
        whole - sum(kernel.times_s[number] for kernel in graph.kernels) for number, whole in enumerate(graph.times_s)
    ]


def _others(a: Side, b: Side, limits: Limits) -> Iterator[PartChange]:
    rows: tuple[dict[tuple[str, str], SidePart], ...] = tuple(
        {(part.kind, part.label): part for part in side.parts} for side in (a, b)
    )
    for kind, label in dict.fromkeys([*rows[0], *rows[1]]):
        one, other = (found.get((kind, label)) for found in rows)
        a_s, b_s = (part.times_s if part else (0.0,) * len(side.runs) for part, side in ((one, a), (other, b)))
        if label == LEFT:  # two windows of the program are compared, and not one change
            row = _part(kind, a_s, b_s, limits, kind, label, LEFT_WORDS)
            yield replace(row, low_s=min(0.0, row.delta_s), high_s=max(0.0, row.delta_s), verdict=UNDECIDED)
            continue
        row = _part(kind, a_s, b_s, limits, kind, label, _detail(kind, one, other))
        if kind != IDLE:
            calls = [part.calls if part else 0.0 for part in (one, other)]
            row = replace(row, a_calls=calls[0], b_calls=calls[1])
        run_calls = [calls for part in (one, other) if part for calls in part.run_calls]
        yield row if _has_cause(row, run_calls, limits) else _undecided(row)


def _has_cause(row: PartChange, run_calls: Sequence[float], limits: Limits) -> bool:
    """Whether something that both sides' records hold may make a part that is no kernel slower or faster.

    Where the device is the host, other programs' load and single interruptions make any part longer, so that time
    alone is no evidence: the calls have to differ, or something around the program that several runs show to matter.
    Calls differ if each profiled step makes as many: one that some steps make may fall between the few profiled ones.
    """
    around = limits.setting.several and limits.setting.explains_equal_kernels
    if not has_other_calls(row):
        return around or not limits.on_host
    if not limits.setting.shows_each_step(run_calls):
        return False
    more = ((row.b_calls or 0.0) - (row.a_calls or 0.0)) * row.delta_s > 0
    return around or more or not limits.on_host


def _undecided(row: PartChange) -> PartChange:
    """The part without a verdict on what makes it slower or faster."""
    return row if row.verdict == SAME else replace(row, verdict=UNDECIDED)


def _part(
    kind: str, a_s: Sequence[float], b_s: Sequence[float], limits: Limits, cause: str, label: str, detail: str
) -> PartChange:
    noise = limits.idle_noise if kind == IDLE else limits.setting.noise
    error_s = part_error_s(kind, a_s, b_s, noise, limits.step_s, on_host=limits.on_host)
    a, b = fmean(a_s), fmean(b_s)
    if label == OTHERS:  # what one side sums up, the other may list
        error_s = math.hypot(error_s, INTERRUPTION * limits.setting.noise.relative * limits.step_s)
    low, high, verdict = judge(a, b, error_s, limits.least_s)
    return PartChange(a, b, b - a, low, high, verdict, cause, label, detail)


def _detail(kind: str, a: SidePart | None, b: SidePart | None) -> str:
    """What is new or gone: the calls, and the lines of the program."""
    words = []
    calls = [part.calls if part else 0.0 for part in (a, b)]
    if kind != IDLE and not same_calls(*calls):
        words.append(f"{units.count(calls[0])} → {units.count(calls[1])} calls")
    places = [part.places if part else () for part in (a, b)]
    new = [place for place in places[1] if place not in places[0]]
    gone = [place for place in places[0] if place not in places[1]]
    if new:
        words.append(f"in B at {join_words(list(map(short_paths, new)), 2)}")
    elif gone and b is None:
        words.append(f"in A at {join_words(list(map(short_paths, gone)), 2)}")
    return ", ".join(words)

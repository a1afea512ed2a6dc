"""Pairs the graphs and kernels of two runs, even if the runs group kernels differently, and judges their differences.

Two runs of one program differ. The record of one run cannot say by how much. So a difference between single runs is
compared with an assumed noise, and with the change of kernels with the same code, config and calls: these should take
the same time, so their common change is noise (or the clock). If each side has several runs, the noise is measured.
Half-widths are those of 95% intervals; independent ones add in quadrature.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean, median, stdev

from .. import units
from ..records.comparison import FASTER, SAME, SLOWER, UNDECIDED
from ..records.run import EAGER, IDLE, OTHERS
from .comparison_sides import (
    Side,
    SideGraph,
    SideKernel,
    SidePart,
    Sources,
    compute_shared_work,
    compute_similarity,
    has_other_precision,
    has_same_configs,
    have_same_calls,
    is_library,
)
from .statistics import EFFECT, compute_median_interval, find_smallest_effect
from .step_costs import compute_idle_share

# Pairs the graphs and the kernels of two sides: first kernels with equal code, then kernels that do similar work.


LEAST_GRAPH = 0.5
"""Smallest similarity of two graphs that are paired. Equal labels are enough to reach it."""
ALIKE = 0.95
"""Two kernels with at least this similarity are counterparts for sure."""
SHARED = 0.5
"""Two kernels do parts of the same work if they have at least this share of the smaller kernel's origin in common."""
LOST = 0.95
"""If the ratio of the times of two counterparts is smaller, the faster one may have lost a part of its work."""
MOST_PAIRS = 40_000
"""Most pairs of unequal kernels whose similarity is computed; beyond that only equal code is paired."""

Texts = tuple[Sources, Sources]
"""The texts of A's kernels, and the texts of B's kernels."""
Scores = Mapping[tuple[int, int], float]
"""The similarity of a kernel of A and a kernel of B, by their identities."""


@dataclass(frozen=True)
class GraphPair:
    """A graph and its counterpart; ``alike`` is the share of their kernels' time in code that both have, 0 to 1."""

    a: SideGraph | None
    b: SideGraph | None
    alike: float = 0.0


@dataclass(frozen=True)
class Match:
    """Kernels of A, and the kernels of B with the same work; one list is empty if only one side does the work."""

    a: tuple[SideKernel, ...]
    b: tuple[SideKernel, ...]
    equal: bool = False


def pair_graphs(a: Side, b: Side) -> list[GraphPair]:
    """Pairs the graphs of both sides. Each graph is in one pair; the most similar pairs come first."""
    scored = sorted(
        (
            (_compute_graph_similarity(one, other), i, j)
            for (i, one), (j, other) in product(enumerate(a.graphs), enumerate(b.graphs))
        ),
        key=lambda row: (-row[0], row[1], row[2]),
    )
    free_a, free_b = dict(enumerate(a.graphs)), dict(enumerate(b.graphs))
    pairs = []
    for score, i, j in scored:
        if score >= LEAST_GRAPH and i in free_a and j in free_b:
            one, other = free_a.pop(i), free_b.pop(j)
            pairs.append(GraphPair(one, other, compute_common_share(one.kernels, other.kernels)))
    return [
        *pairs,
        *(GraphPair(one, None) for one in free_a.values()),
        *(GraphPair(None, one) for one in free_b.values()),
    ]


def keep_kernels_of_both(pairs: Sequence[GraphPair]) -> tuple[list[GraphPair], list[str]]:
    """Removes a graph's kernels if its counterpart's kernels are unknown.

    Returns the pairs and the labels of such graphs. A failed profile does not remove kernels from the program.
    """
    found, labels = [], []
    for pair in pairs:
        if pair.a and pair.b and bool(pair.a.kernels) != bool(pair.b.kernels) and pair.a.time_s and pair.b.time_s:
            labels.append(pair.a.label)
            pair = GraphPair(replace(pair.a, kernels=()), replace(pair.b, kernels=()))
        found.append(pair)
    return found, labels


def compute_common_share(a: Iterable[SideKernel], b: Iterable[SideKernel]) -> float:
    """Returns the share (0 to 1) of the kernels' time in code that both sides have: the smaller of the two shares."""
    times = [_sum_times_by_key(a), _sum_times_by_key(b)]
    common = times[0].keys() & times[1].keys()
    shares = [sum(one[key] for key in common) / sum(one.values()) for one in times if sum(one.values())]
    return min(shares, default=0.0) if len(shares) == 2 else 0.0


def _sum_times_by_key(kernels: Iterable[SideKernel]) -> dict[Hashable, float]:
    times: dict[Hashable, float] = {}
    for kernel in kernels:
        times[kernel.key] = times.get(kernel.key, 0.0) + kernel.time_s
    return times


def _compute_graph_similarity(a: SideGraph, b: SideGraph) -> float:
    common = compute_common_share(a.kernels, b.kernels)
    return common + 0.5 * (a.label == b.label) + 0.2 * (a.role == b.role)


def pair_kernels(graphs: Sequence[GraphPair], texts: Texts) -> list[Match]:
    """Matches the kernels of both sides. Each kernel is in exactly one match.

    Equal code is paired first, within paired graphs and then across graphs. The rest is matched by its work.
    """
    found: list[Match] = []
    rest: list[tuple[list[SideKernel], list[SideKernel]]] = []
    for pair in graphs:
        left = list(pair.a.kernels) if pair.a else [], list(pair.b.kernels) if pair.b else []
        found += _match_equal_code(*left)
        rest.append(left)
    across = [kernel for left, _ in rest for kernel in left], [kernel for _, left in rest for kernel in left]
    moved = _match_equal_code(*across)
    gone = {id(kernel) for match in moved for kernel in (*match.a, *match.b)}
    found += moved
    lone: tuple[list[SideKernel], list[SideKernel]] = ([], [])
    for left in rest:
        within = [[kernel for kernel in kernels if id(kernel) not in gone] for kernels in left]
        found += _match_similar_code(within[0], within[1], texts)
        lone[0].extend(within[0])
        lone[1].extend(within[1])
    found += _match_similar_code(*lone, texts)
    return [*found, *(Match((one,), ()) for one in lone[0]), *(Match((), (one,)) for one in lone[1])]


def _match_equal_code(a: list[SideKernel], b: list[SideKernel]) -> list[Match]:
    """Removes kernels with equal code from both lists and pairs them, first by equal name and then by time."""
    found = []
    for by_name in (True, False):
        waiting: dict[Hashable, list[SideKernel]] = {}
        for other in sorted(b, key=lambda kernel: kernel.time_s):
            waiting.setdefault((other.key, other.kernel.name if by_name else None), []).append(other)
        for one in sorted(a, key=lambda kernel: -kernel.time_s):
            others = waiting.get((one.key, one.kernel.name if by_name else None))
            if others:
                found.append(_take(one, others.pop(), a, b, equal=True))
    return found


def _match_similar_code(a: list[SideKernel], b: list[SideKernel], texts: Texts) -> list[Match]:
    """Matches unequal code, and removes it from both lists: sure counterparts first, then kernels that share work."""
    if not a or not b or len(a) * len(b) > MOST_PAIRS:
        return []
    scores = {(id(one), id(other)): compute_similarity(one, other, *texts) for one, other in product(a, b)}
    found = _take_counterparts(a, b, scores, ALIKE)
    for firsts, seconds in _group_matches(a, b, scores):
        if len(firsts) == len(seconds) > 1:
            found += _take_counterparts(firsts, seconds, scores, 0.0)
        else:
            found.append(Match(tuple(firsts), tuple(seconds)))
    gone = {id(kernel) for match in found for kernel in (*match.a, *match.b)}
    for kernels in (a, b):
        kernels[:] = [kernel for kernel in kernels if id(kernel) not in gone]
    return [_add_counterparts(match, a, b) for match in found]


def _add_counterparts(match: Match, a: list[SideKernel], b: list[SideKernel]) -> Match:
    """Moves kernels from the lists into a match if they compute only nodes of its kernel on the other side."""
    times = [sum(kernel.time_s for kernel in kernels) for kernels in (match.a, match.b)]
    if max(times) * LOST < min(times):
        return match
    shorter_a = times[0] < times[1]
    parts_a = _find_parts(match.b, match.a, a) if shorter_a else []
    parts_b = [] if shorter_a else _find_parts(match.a, match.b, b)
    _remove(a, parts_a)
    _remove(b, parts_b)
    return Match((*match.a, *parts_a), (*match.b, *parts_b))


def _find_parts(
    whole: Sequence[SideKernel], counterparts: Sequence[SideKernel], free: Iterable[SideKernel]
) -> list[SideKernel]:
    nodes = {node for kernel in whole for node in kernel.kernel.origin.source_nodes}
    graphs = {kernel.graph for kernel in counterparts}
    within = [kernel for kernel in free if kernel.graph in graphs and kernel.kernel.origin.source_nodes]
    return [kernel for kernel in within if nodes.issuperset(kernel.kernel.origin.source_nodes)]


def _take_counterparts(a: list[SideKernel], b: list[SideKernel], scores: Scores, least: float) -> list[Match]:
    pairs = sorted(product(a, b), key=lambda pair: (-scores[id(pair[0]), id(pair[1])], -pair[0].time_s))
    found: list[Match] = []
    gone: set[int] = set()
    for one, other in pairs:
        if scores[id(one), id(other)] >= least and not {id(one), id(other)} & gone:
            gone |= {id(one), id(other)}
            found.append(Match((one,), (other,)))
    for kernels in (a, b):
        kernels[:] = [kernel for kernel in kernels if id(kernel) not in gone]
    return found


def _group_matches(
    a: Sequence[SideKernel], b: Sequence[SideKernel], scores: Scores
) -> list[tuple[list[SideKernel], list[SideKernel]]]:
    """Groups kernels that share work: a kernel of the longer list joins the kernel with which it shares most work."""
    swapped = len(a) > len(b)
    few, many = (b, a) if swapped else (a, b)

    def find_closest(kernel: SideKernel, others: Sequence[SideKernel]) -> SideKernel | None:
        def closeness(other: SideKernel) -> float:
            pair = (id(kernel), id(other))
            return compute_shared_work(kernel, other) + scores.get(pair, scores.get((pair[1], pair[0]), 0.0))

        sharing = [other for other in others if compute_shared_work(kernel, other) >= SHARED]
        return max(sharing, key=closeness, default=None)

    groups: dict[int, tuple[list[SideKernel], list[SideKernel]]] = {}
    home: dict[int, int] = {}
    for other in many:
        center = find_closest(other, few)
        if center is not None:
            groups.setdefault(id(center), ([center], []))[1].append(other)
            home[id(other)] = id(center)
    members = [other for other in many if id(other) in home]
    for one in few:  # a kernel that no other joined may share work with one that joined another
        joined = find_closest(one, members) if id(one) not in groups else None
        if joined is not None:
            groups[home[id(joined)]][0].append(one)
    return [(others, centers) if swapped else (centers, others) for centers, others in groups.values()]


def _take(
    one: SideKernel, other: SideKernel, a: list[SideKernel], b: list[SideKernel], *, equal: bool = False
) -> Match:
    _remove(a, [one])
    _remove(b, [other])
    return Match((one,), (other,), equal)


def _remove(kernels: list[SideKernel], taken: Iterable[SideKernel]) -> None:
    gone = {id(kernel) for kernel in taken}
    kernels[:] = [kernel for kernel in kernels if id(kernel) not in gone]


# Joins parts that the records of the two sides divide differently, although the programs may do the same work.


SMALL = 0.004
"""Share of the longer step below which an eager operator may be one of :data:`OTHERS` in another run: the ledger lists
the operators of a line if they take at least 0.2%, so operators of about this time are listed only in some runs."""
LEFT = "unlabelled"
"""The label of a host's idle time if some run has none."""


def regroup_operators(a: Side, b: Side) -> tuple[Side, Side]:
    """Returns the two sides with eager operators and idle time divided in the same way."""
    if not a.lists_all or not b.lists_all:
        a, b = _fold_operators(_fold_unlisted(a), _fold_unlisted(b))
    return _join_idle(a, b)


def _fold_unlisted(side: Side) -> Side:
    """Moves short eager operators that only some runs of a side list into :data:`OTHERS`, if these vary as well."""
    others = _list_labels(side).get(OTHERS)
    if others is None or len({round(calls, 6) for calls in others.run_calls}) == 1:
        return side
    found = {part.label for part in side.parts if part.kind == EAGER and part.listed < len(side.runs)}
    return _fold_short_operators(
        side, {label for label in found if _list_labels(side)[label].time_s < SMALL * side.step_s}
    )


def _fold_operators(a: Side, b: Side) -> tuple[Side, Side]:
    """Moves eager operators into :data:`OTHERS` if one side lists more calls that may be among the other side's others.

    On an accelerator an operator stays listed if its time differs by more than the ledger's limit explains. On a CPU
    one interruption lifts an operator over the limit, however short it is.
    """
    listed = _list_labels(a), _list_labels(b)
    others = [_count_calls(parts, OTHERS) for parts in listed]
    least_s = SMALL * max(a.step_s, b.step_s)

    def may_be_hidden(label: str) -> bool:
        calls = [_count_calls(parts, label) for parts in listed]
        times = [parts[label].time_s if label in parts else 0.0 for parts in listed]
        is_short = a.on_host or abs(times[1] - times[0]) < least_s
        room = others[calls.index(min(calls))]
        return is_short and not have_same_calls(*calls) and room >= abs(calls[1] - calls[0])

    hidden = {label for label in {**listed[0], **listed[1]} if label != OTHERS and may_be_hidden(label)}
    return _fold_operators(_fold_short_operators(a, hidden), _fold_short_operators(b, hidden)) if hidden else (a, b)


def _count_calls(parts: Mapping[str, SidePart], label: str) -> float:
    """Returns the mean number of calls over all runs."""
    return fmean(parts[label].run_calls) if label in parts else 0.0


def _list_labels(side: Side) -> dict[str, SidePart]:
    return {part.label: part for part in side.parts if part.kind == EAGER}


def _fold_short_operators(side: Side, labels: Set[str]) -> Side:
    return _join_parts(side, EAGER, {*labels, OTHERS}, OTHERS) if labels else side


def _join_idle(a: Side, b: Side) -> tuple[Side, Side]:
    """Joins the host's idle time into one part if some run has no labels for it."""
    idle = [*_compute_idle_s(a), *_compute_idle_s(b)]
    if not a.on_host or not any(idle) or all(idle):
        return a, b
    first, second = (
        _join_parts(side, IDLE, {part.label for part in side.parts if part.kind == IDLE}, LEFT) for side in (a, b)
    )
    return first, second


def _compute_idle_s(side: Side) -> list[float]:
    """Returns the idle seconds of each run."""
    return [sum(part.times_s[number] for part in side.parts if part.kind == IDLE) for number in range(len(side.runs))]


def _join_parts(side: Side, kind: str, labels: Set[str], label: str) -> Side:
    """Joins the parts with these labels into one part, at the place of the first."""
    found = [part for part in side.parts if part.kind == kind and part.label in labels]
    if not found:
        return side
    times, calls = (
        tuple(map(sum, zip(*rows, strict=True)))
        for rows in ([part.times_s for part in found], [part.run_calls for part in found])
    )
    whole = SidePart(kind, label, calls, times, listed=len(side.runs))
    parts = [whole if part == found[0] else part for part in side.parts if part == found[0] or part not in found]
    return replace(side, parts=tuple(parts))


DEVICE_NOISE, HOST_NOISE = 0.04, 0.10
"""Relative difference between two runs of one program that is assumed for work on an accelerator, and for work of the
host: docs/measuring.md has runs of the same models at 0.98 to 1.04x, and processes on a CPU that differ by 8%."""
PACED_NOISE, PACED_FROM, PACED = 0.5, 0.1, 0.3
"""The noise assumed for steps that are host-bound on both sides.

It grows from the first share of idle time to the second. A program whose device waits took 18.8, 23.3 and 37.6 ms a
step in three runs on machines of one kind.
"""
DEVICE_PART_NOISE, HOST_PART_NOISE = 0.02, 0.25
"""The smallest noise of a part of the step that is not a kernel: in two runs of one program on a CPU an operator took
24 and 76 µs, and another 166 and 132 µs."""
IDLE_NOISE = 0.25
"""The noise assumed for a label of idle time: labels come from few profiled steps, and their limits are not sharp."""
IDLE_SOURCE = "the change of idle time included, which on a CPU is the unprofiled step minus the profiled work"
LEAST_MEASURED = 0.5
"""Measured noise counts as at least this share of the assumed noise: a few runs may agree by chance."""
UNEXPLAINED = "as large as the difference, because the differences of the parts do not explain it"
NO_CAUSE = "as large as the difference, because the records show no other difference between the programs"
DISTURBED = "as large as the difference, because a busy machine disturbed one of the runs"
SHARED_GPU = "as large as the difference, because other processes used the GPU during one of the runs"
INTERRUPTION = 0.1
"""The share of the step's noise that one part may have: an interruption lengthens the part that runs."""
DRIFT_FACTOR = 2.0
"""The half-width of the noise, as a multiple of the change of unchanged kernels, a random sample of the noise."""
HOST_DRIFT = 0.4
"""The largest change of unchanged kernels that counts as noise between single runs on a CPU even if something
differs around the program: two runs of one training program took 109 and 173 ms a step on two shared cores."""
ENOUGH = 0.2
"""If unchanged kernels take at least this share of the step, their change is the noise of the whole step."""
SMALLEST_SHARE = 0.002
"""Share of the step below which a part's difference gets no verdict."""

_T = {2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31}
"""The 97.5% quantile of Student's t by degrees of freedom. It is 2.2 for more degrees of freedom."""


@dataclass(frozen=True)
class Noise:
    """The relative half-width for the difference of two runs, and its source in words.

    ``measured``: whether it comes from several runs of each side, and so covers everything that makes runs differ.
    """

    relative: float
    source: str
    measured: bool = False


def is_unchanged(match: Match) -> bool:
    """Whether both sides run the same code in the same config equally often."""
    if not match.equal:
        return False
    (a,), (b,) = match.a, match.b
    return has_same_configs(a, b) and not has_other_precision(a, b) and have_same_calls(a.calls, b.calls)


def estimate_noise(
    a: Side,
    b: Side,
    matches: Sequence[Match],
    *,
    of_step: bool,
    same_machine: bool,
    same_libraries: bool,
    waited: float,
) -> Noise:
    """The noise between the runs of both sides, as a share of the time.

    Args:
        a, b: the sides.
        matches: their kernels.
        of_step: whether it is the noise of the step, which a slower host makes longer, or of the device's work.
        same_machine: whether the surroundings do not change the time of equal kernels. Else a change may be real.
        same_libraries: the same for the kernels of libraries.
        waited: the largest share of its time for which a process of the runs waited for a core.
    """
    alike = [match for match in matches if is_unchanged(match)]
    measures = [match for match in alike if same_machine and (same_libraries or not is_library(match.a[0]))]
    drift, weight = _compute_drift(a, measures)
    drifted = Noise(
        DRIFT_FACTOR * abs(drift) * weight, f"from the {units.percent(abs(drift))} by which unchanged kernels differ"
    )
    if of_step and drift * (b.step_s - a.step_s) < 0:  # it hides a part of the difference, and explains none of it
        drifted = Noise(0.0, "")
    if len(a.steps_s) > 1 and len(b.steps_s) > 1:
        return max(_measure_noise(a, b), drifted, key=lambda noise: noise.relative)
    relative = _assume_noise(a, b) + (_compute_host_pace(a, b) if of_step else 0.0)
    assumed = Noise(relative, "assumed for two runs of one program")
    if waited > assumed.relative:
        assumed = Noise(waited, "the share of its time for which a process waited for a core")
    left = (
        abs(_compute_idle_effect_s(b) - _compute_idle_effect_s(a)) / (max(a.step_s, b.step_s) or 1.0)
        if a.on_host
        else 0.0
    )
    if left > assumed.relative:
        assumed = Noise(assumed.relative + left, IDLE_SOURCE)
    drift, weight = _compute_drift(a, alike)
    unexplained = min(HOST_DRIFT, abs(drift) * weight) if a.on_host else 0.0
    if unexplained > assumed.relative:
        change = units.percent(unexplained)
        assumed = Noise(unexplained, f"from the {change} by which kernels with the same code take another time in B")
    return max(assumed, drifted, key=lambda noise: noise.relative)


def make_noise_of_whole_difference(noise: Noise, a: Side, b: Side, source: str) -> Noise:
    """Returns noise as large as the whole difference of two runs.

    For runs without another difference, with unexplained differences, or with one run that a busy machine disturbed.
    """
    difference = abs(b.step_s - a.step_s) / max(a.step_s, b.step_s)
    return replace(noise, relative=math.hypot(noise.relative, difference), source=source)


def _compute_drift(a: Side, alike: Sequence[Match]) -> tuple[float, float]:
    """Returns the relative change of the sum of these kernels, and how much it says about the step (0 to 1)."""
    before = sum(match.a[0].time_s for match in alike)
    change = sum(match.b[0].time_s - match.a[0].time_s for match in alike) / before if before else 0.0
    return change, min(1.0, before / (ENOUGH * a.step_s)) if a.step_s else 1.0


def _assume_noise(a: Side, b: Side) -> float:
    if a.on_host:
        return HOST_NOISE
    idle = max((compute_idle_share(run) for side in (a, b) for run in side.runs), default=0.0)
    return DEVICE_NOISE * (1 - idle) + HOST_NOISE * idle


def _compute_host_pace(a: Side, b: Side) -> float:
    """Returns the noise of steps that are host-bound on both sides. On a CPU all steps are host-bound."""
    idle = min(max(compute_idle_share(run) for run in side.runs) for side in (a, b))
    return 0.0 if a.on_host else PACED_NOISE * min(1.0, max(0.0, idle - PACED_FROM) / (PACED - PACED_FROM))


def _measure_noise(a: Side, b: Side) -> Noise:
    measured = spread_s(a.steps_s, b.steps_s) / (max(a.step_s, b.step_s) or 1.0)
    runs = f"{len(a.steps_s)} and {len(b.steps_s)} runs"
    least = LEAST_MEASURED * _assume_noise(a, b) * math.sqrt((1 / len(a.steps_s) + 1 / len(b.steps_s)) / 2)
    if measured >= least:
        return Noise(measured, f"measured, by {runs}", measured=True)
    return Noise(least, f"the least that is assumed for {runs}, which differ by less", measured=True)


def _compute_idle_effect_s(side: Side) -> float:
    return sum(part.time_s for part in side.parts if part.kind == IDLE)


def spread_s(a: Sequence[float], b: Sequence[float]) -> float:
    """Returns the half-width of the difference of two means; spreads are pooled, because runs share a machine."""
    freedom = len(a) + len(b) - 2
    pooled = sum((len(times) - 1) * stdev(times) ** 2 for times in (a, b)) / freedom
    return _T.get(freedom, 2.2) * math.sqrt(pooled * (1 / len(a) + 1 / len(b)))


def compute_step_error_s(side: Side) -> float:
    """Returns the half-width of a side's mean step, from the spread of its steps within each run."""
    errors = []
    for run in side.runs:
        times = (
            run.program.step_times_s
            if run.program is not None and side.in_step
            else max((module.times.wall_samples_s for module in run.modules), key=sum, default=())
        )
        if len(times) > 1 and fmean(times):
            share = 2 * stdev(times) / math.sqrt(len(times)) / fmean(times)
            errors.append(share * side.step_s)
    return math.hypot(*errors) / len(errors) if errors else 0.0


def compute_kernel_error_s(kernels: Sequence[SideKernel]) -> float:
    """Returns the half-width of the summed time of kernels, from the samples of their modules' own runs."""
    return math.hypot(*(_compute_one_kernel_error_s(kernel) for kernel in kernels))


def _compute_one_kernel_error_s(kernel: SideKernel) -> float:
    samples = [sample for row in kernel.runs for sample in row.samples_s if sample > 0]
    if not samples or not median(samples):
        return 0.0
    low, high = compute_median_interval(samples)
    return kernel.time_s * (high - low) / 2 / median(samples)


def compute_part_error_s(
    kind: str, a_s: Sequence[float], b_s: Sequence[float], noise: Noise, step_s: float, *, on_host: bool
) -> float:
    """Returns the half-width of the difference of a part of the step that is not a kernel.

    Idle time is the step minus the device's work, so it has the noise of the whole step. If no run of one side does
    some work, and each run of the other does, the difference is not noise: only the time of the work is uncertain.

    Args:
        kind: the kind of the part.
        a_s, b_s: its seconds by run.
        noise: the noise of the step.
        step_s: the longer step.
        on_host: whether the device is the host itself.
    """
    means = abs(fmean(a_s)), abs(fmean(b_s))
    longer, are_several = max(means), len(a_s) > 1 and len(b_s) > 1
    own = spread_s(a_s, b_s) if are_several else 0.0
    if kind == IDLE:
        return math.hypot(IDLE_NOISE * longer, noise.relative * step_s)
    least = DEVICE_PART_NOISE if not on_host else HOST_NOISE if are_several else HOST_PART_NOISE
    relative = max(noise.relative, least)
    if not min(means):
        is_in_each = all(a_s) or all(b_s)
        return math.hypot(0.0 if is_in_each else own, min(relative, 0.5) * longer)
    return math.hypot(own, relative * longer, INTERRUPTION * noise.relative * step_s)


def judge_difference(a_s: float, b_s: float, error_s: float, effect_s: float) -> tuple[float, float, str]:
    """Returns the interval of a difference, and the verdict on B.

    Args:
        a_s, b_s: seconds of both sides.
        error_s: the half-width of their difference.
        effect_s: the smallest difference that counts.

    Returns:
        The lower and the upper end of the interval, and ``slower``, ``faster``, ``same`` or ``undecided``. B's times
        are positive, so the interval never goes below minus A's time.
    """
    delta = b_s - a_s
    low, high = delta - error_s, delta + error_s
    if min(a_s, b_s) >= 0:
        low = max(low, -a_s)
    if low > 0 and delta >= effect_s:
        return low, high, SLOWER
    if high < 0 and delta <= -effect_s:
        return low, high, FASTER
    return low, high, SAME if max(abs(low), abs(high)) <= effect_s else UNDECIDED


def compute_step_effect_s(a_s: float) -> float:
    """Returns the smallest difference of a step that counts."""
    return EFFECT * a_s


def compute_kernel_effect_s(kernels: Sequence[SideKernel]) -> float:
    """Returns the smallest difference of kernels that counts: a sum over kernels, by the time of one call of each."""
    return sum(
        kernel.time_s * find_smallest_effect(kernel.time_s / kernel.calls if kernel.calls else kernel.time_s)
        for kernel in kernels
    )

"""Pairs the graphs and kernels of two runs, even if one side has them grouped otherwise."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean

from ..records.program import EAGER, IDLE, OTHERS
from .comparison_sides import Side, SideGraph, SideKernel, SidePart, Sources, same_calls, shared_work, similarity

# Pairs the graphs and the kernels of two sides: first equal code, then by what is known of the kernels' work.


LEAST_GRAPH = 0.5
"""Smallest similarity of two graphs that are paired. Equal labels are enough to reach it."""
ALIKE = 0.95
"""Likeness of two kernels from which each is reliably the other's counterpart."""
SHARED = 0.5
"""Share of the smaller kernel's origin that two kernels share, from which they do parts of the same work."""
LOST = 0.95
"""Ratio of the time of a kernel and its counterpart from which neither lost a part of its work."""
MOST_PAIRS = 40_000
"""Most pairs of unequal kernels whose similarity is computed; beyond that only equal code is paired."""

Texts = tuple[Sources, Sources]
"""The texts of the kernels of A, and of those of B."""
Scores = Mapping[tuple[int, int], float]
"""The similarity of a kernel of A and one of B, by their identities."""


@dataclass(frozen=True)
class GraphPair:
    """A graph and its counterpart; ``alike`` is the share of their kernels' time in code that both have, 0 to 1."""

    a: SideGraph | None
    b: SideGraph | None
    alike: float = 0.0


@dataclass(frozen=True)
class Match:
    """Kernels of A, and those of B that do their work; one of them is empty for work that only one side has."""

    a: tuple[SideKernel, ...]
    b: tuple[SideKernel, ...]
    equal: bool = False


def pair_graphs(a: Side, b: Side) -> list[GraphPair]:
    """Each graph of both sides once, the pairs that are most alike first."""
    scored = sorted(
        (
            (_graph_similarity(one, other), i, j)
            for (i, one), (j, other) in product(enumerate(a.graphs), enumerate(b.graphs))
        ),
        key=lambda row: (-row[0], row[1], row[2]),
    )
    free_a, free_b = dict(enumerate(a.graphs)), dict(enumerate(b.graphs))
    pairs = []
    for score, i, j in scored:
        if score >= LEAST_GRAPH and i in free_a and j in free_b:
            one, other = free_a.pop(i), free_b.pop(j)
            pairs.append(GraphPair(one, other, common_share(one.kernels, other.kernels)))
    return [
        *pairs,
        *(GraphPair(one, None) for one in free_a.values()),
        *(GraphPair(None, one) for one in free_b.values()),
    ]


def with_kernels_of_both(pairs: Sequence[GraphPair]) -> tuple[list[GraphPair], list[str]]:
    """The pairs without the kernels of graphs whose counterpart's kernels are unknown, and the labels of these graphs.

    A profile that failed does not remove kernels from the program.
    """
    found, labels = [], []
    for pair in pairs:
        if pair.a and pair.b and bool(pair.a.kernels) != bool(pair.b.kernels) and pair.a.time_s and pair.b.time_s:
            labels.append(pair.a.label)
            pair = GraphPair(replace(pair.a, kernels=()), replace(pair.b, kernels=()))
        found.append(pair)
    return found, labels


def common_share(a: Iterable[SideKernel], b: Iterable[SideKernel]) -> float:
    """The share of the kernels' time in code that both have, 0 to 1: the lower one of both sides."""
    times = [_times_by_key(a), _times_by_key(b)]
    common = times[0].keys() & times[1].keys()
    shares = [sum(one[key] for key in common) / sum(one.values()) for one in times if sum(one.values())]
    return min(shares, default=0.0) if len(shares) == 2 else 0.0


def _times_by_key(kernels: Iterable[SideKernel]) -> dict[Hashable, float]:
    times: dict[Hashable, float] = {}
    for kernel in kernels:
        times[kernel.key] = times.get(kernel.key, 0.0) + kernel.time_s
    return times


def _graph_similarity(a: SideGraph, b: SideGraph) -> float:
    common = common_share(a.kernels, b.kernels)
    return common + 0.5 * (a.label == b.label) + 0.2 * (a.role == b.role)


def pair_kernels(graphs: Sequence[GraphPair], texts: Texts) -> list[Match]:
    """Each kernel of both sides in exactly one match.

    Equal code is paired first, within paired graphs and then across graphs. What is left is matched by its work.
    """
    found: list[Match] = []
    rest: list[tuple[list[SideKernel], list[SideKernel]]] = []
    for pair in graphs:
        left = list(pair.a.kernels) if pair.a else [], list(pair.b.kernels) if pair.b else []
        found += _take_equal(*left)
        rest.append(left)
    across = [kernel for left, _ in rest for kernel in left], [kernel for _, left in rest for kernel in left]
    moved = _take_equal(*across)
    gone = {id(kernel) for match in moved for kernel in (*match.a, *match.b)}
    found += moved
    lone: tuple[list[SideKernel], list[SideKernel]] = ([], [])
    for left in rest:
        within = [[kernel for kernel in kernels if id(kernel) not in gone] for kernels in left]
        found += _take_alike(within[0], within[1], texts)
        lone[0].extend(within[0])
        lone[1].extend(within[1])
    found += _take_alike(*lone, texts)
    return [*found, *(Match((one,), ()) for one in lone[0]), *(Match((), (one,)) for one in lone[1])]


def _take_equal(a: list[SideKernel], b: list[SideKernel]) -> list[Match]:
    """The pairs of equal code, taken out of both lists; of several equal ones those of equal name, then by time."""
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


def _take_alike(a: list[SideKernel], b: list[SideKernel], texts: Texts) -> list[Match]:
    """The matches of unequal code, taken out of both lists: sure counterparts first, then kernels that share work."""
    if not a or not b or len(a) * len(b) > MOST_PAIRS:
        return []
    scores = {(id(one), id(other)): similarity(one, other, *texts) for one, other in product(a, b)}
    found = _take_counterparts(a, b, scores, ALIKE)
    for firsts, seconds in _groups(a, b, scores):
        if len(firsts) == len(seconds) > 1:
            found += _take_counterparts(firsts, seconds, scores, 0.0)
        else:
            found.append(Match(tuple(firsts), tuple(seconds)))
    gone = {id(kernel) for match in found for kernel in (*match.a, *match.b)}
    for kernels in (a, b):
        kernels[:] = [kernel for kernel in kernels if id(kernel) not in gone]
    return [_with_parts(match, a, b) for match in found]


def _with_parts(match: Match, a: list[SideKernel], b: list[SideKernel]) -> Match:
    """The match with the kernels that compute only nodes of its kernel on the other side, taken out of the lists."""
    times = [sum(kernel.time_s for kernel in kernels) for kernels in (match.a, match.b)]
    if max(times) * LOST < min(times):
        return match
    shorter_a = times[0] < times[1]
    parts_a = _parts_of(match.b, match.a, a) if shorter_a else []
    parts_b = [] if shorter_a else _parts_of(match.a, match.b, b)
    _remove(a, parts_a)
    _remove(b, parts_b)
    return Match((*match.a, *parts_a), (*match.b, *parts_b))


def _parts_of(
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


def _groups(
    a: Sequence[SideKernel], b: Sequence[SideKernel], scores: Scores
) -> list[tuple[list[SideKernel], list[SideKernel]]]:
    """Groups of kernels that share work: each kernel of the longer list joins the one that it shares most with."""
    swapped = len(a) > len(b)
    few, many = (b, a) if swapped else (a, b)

    def closest(kernel: SideKernel, others: Sequence[SideKernel]) -> SideKernel | None:
        def closeness(other: SideKernel) -> float:
            pair = (id(kernel), id(other))
            return shared_work(kernel, other) + scores.get(pair, scores.get((pair[1], pair[0]), 0.0))

        sharing = [other for other in others if shared_work(kernel, other) >= SHARED]
        return max(sharing, key=closeness, default=None)

    groups: dict[int, tuple[list[SideKernel], list[SideKernel]]] = {}
    home: dict[int, int] = {}
    for other in many:
        center = closest(other, few)
        if center is not None:
            groups.setdefault(id(center), ([center], []))[1].append(other)
            home[id(other)] = id(center)
    members = [other for other in many if id(other) in home]
    for one in few:  # a kernel that none joined may share its work with one that joined another
        joined = closest(one, members) if id(one) not in groups else None
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


# Joins parts that the records of two sides divide differently although the programs may do the same.


SMALL = 0.004
"""Share of the longer step below which an eager operator may be one of :data:`OTHERS` in another run: the ledger lists
operators of a line from 0.2% on, so that one of about that time is listed in some runs only."""
LEFT = "unlabelled"
"""The label of a host's idle time if some run has none."""


def regrouped(a: Side, b: Side) -> tuple[Side, Side]:
    """Both sides with the same division of eager operators and of idle time."""
    if not a.lists_all or not b.lists_all:
        a, b = _fold_operators(_fold_unlisted(a), _fold_unlisted(b))
    return _join_idle(a, b)


def _fold_unlisted(side: Side) -> Side:
    """Counts short eager operators that only some runs of a side list to the others, if these vary as well."""
    others = _listed(side).get(OTHERS)
    if others is None or len({round(calls, 6) for calls in others.run_calls}) == 1:
        return side
    found = {part.label for part in side.parts if part.kind == EAGER and part.listed < len(side.runs)}
    return _folded(side, {label for label in found if _listed(side)[label].time_s < SMALL * side.step_s})


def _fold_operators(a: Side, b: Side) -> tuple[Side, Side]:
    """Counts eager operators to the others that one side lists for more calls, if they may be among the other's others.

    On an accelerator an operator stays listed if its time differs by more than the ledger's limit explains. On a CPU
    one interruption lifts an operator over the limit, however short it is.
    """
    listed = _listed(a), _listed(b)
    others = [_calls_of(parts, OTHERS) for parts in listed]
    least_s = SMALL * max(a.step_s, b.step_s)

    def may_be_hidden(label: str) -> bool:
        calls = [_calls_of(parts, label) for parts in listed]
        times = [parts[label].time_s if label in parts else 0.0 for parts in listed]
        is_short = a.on_host or abs(times[1] - times[0]) < least_s
        room = others[calls.index(min(calls))]
        return is_short and not same_calls(*calls) and room >= abs(calls[1] - calls[0])

    hidden = {label for label in {**listed[0], **listed[1]} if label != OTHERS and may_be_hidden(label)}
    return _fold_operators(_folded(a, hidden), _folded(b, hidden)) if hidden else (a, b)


def _calls_of(parts: Mapping[str, SidePart], label: str) -> float:
    """The mean over all runs."""
    return fmean(parts[label].run_calls) if label in parts else 0.0


def _listed(side: Side) -> dict[str, SidePart]:
    return {part.label: part for part in side.parts if part.kind == EAGER}


def _folded(side: Side, labels: Set[str]) -> Side:
    return _joined(side, EAGER, {*labels, OTHERS}, OTHERS) if labels else side


def _join_idle(a: Side, b: Side) -> tuple[Side, Side]:
    """Joins the labels of a host's idle time if a run has none."""
    idle = [*_idle_s(a), *_idle_s(b)]
    if not a.on_host or not any(idle) or all(idle):
        return a, b
    first, second = (
        _joined(side, IDLE, {part.label for part in side.parts if part.kind == IDLE}, LEFT) for side in (a, b)
    )
    return first, second


def _idle_s(side: Side) -> list[float]:
    """The idle seconds of each run."""
    return [sum(part.times_s[number] for part in side.parts if part.kind == IDLE) for number in range(len(side.runs))]


def _joined(side: Side, kind: str, labels: Set[str], label: str) -> Side:
    """The side with one part for those of these labels, in the place of the first one."""
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

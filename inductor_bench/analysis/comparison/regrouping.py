"""Joins parts that the records of two sides divide differently although the programs may do the same."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from statistics import fmean

from ...records.program import EAGER, IDLE, OTHERS
from .sides import Side, SidePart, same_calls

SMALL = 0.004
"""Share of the longer step below which an eager operator may be one of :data:`OTHERS` in another run: the ledger lists
operators of a line from 0.2% on, so that one of about that time is listed in some runs only."""
LEFT = "unlabelled"
"""The label of a host's idle time where some run has none."""


def regrouped(a: Side, b: Side) -> tuple[Side, Side]:
    """Both sides with the same division of eager operators and of idle time."""
    if not a.lists_all or not b.lists_all:
        a, b = _fold_operators(_fold_unlisted(a), _fold_unlisted(b))
    return _join_idle(a, b)


def _fold_unlisted(side: Side) -> Side:
    """Counts short eager operators that only some runs of a side list to the others, where these vary as well."""
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
    """Joins the labels of a host's idle time where a run has none.

    On a host the idle time is what the profiled work leaves of the unprofiled step. Where the work took longer under
    the profiler nothing is left, and the labels of another run have no counterpart.
    """
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

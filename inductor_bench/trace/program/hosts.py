"""Says what the host did at each moment of a program's trace, in the words of the idle parts."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...records.program import ALLOCATING, DATA_LOADING, GUARDS, LAUNCHING, PYTHON, SYNCHRONISING
from ...records.traced.program import HostActivity, ProgramTrace
from .owners import NODE

_SYNCHRONISING = re.compile(r"\w*Synchronize|\w*QueueFinish")
_ALLOCATING = re.compile(
    r"(?:cuda|hip)(?:Malloc|Free|HostAlloc|HostFree|HostRegister|HostUnregister)\w*"
    r"|cuMem(?:Alloc|Create|Map|Unmap|Release|SetAccess|AddressReserve|AddressFree)\w*"
)
_READS = ("aten::item", "aten::_local_scalar_dense")
"""Operators that read a value. They wait for the device where the value lies there; then they call its runtime."""

_GUARDS = ("TorchDynamo Cache Lookup", "Torch-Compiled Region", "Pregraph bytecode")
DATA_LOADING_RANGE = "enumerate(DataLoader)#"


class _Span(NamedTuple):
    """A stretch of one thread. An empty label leaves the label of the stretch around it."""

    start_s: float
    end_s: float
    label: str
    op: int
    lasting: bool  # its label holds for everything in it


class HostTimeline:
    """What the thread of the steps did; while it recorded nothing, what the threads of the backward did.

    Args:
        program: the trace.
        thread: the thread that crosses the boundaries.
        tops: for each host operator the outermost operator around it.
        boundary: the name of the boundaries' ranges, which are no activity.

    """

    def __init__(self, program: ProgramTrace, thread: str, tops: Sequence[int], boundary: str) -> None:
        backward = {op.thread for op in program.trace.host_ops if op.name.startswith(NODE)} - {thread}
        self._main = _Thread(program, thread, tops, boundary)
        self._others = [_Thread(program, other, tops, boundary) for other in sorted(backward)]

    def between(self, start_s: float, end_s: float) -> Iterator[HostActivity]:
        """The host's activities in a stretch of time, in order and without holes."""
        for one in self._main.between(start_s, end_s):
            if one.label != PYTHON or not self._others:
                yield one
                continue
            yield from _first_active(self._others, one.start_s, one.end_s)


def _first_active(threads: Sequence[_Thread], start_s: float, end_s: float) -> Iterator[HostActivity]:
    for one in threads[0].between(start_s, end_s):
        if one.label == PYTHON and len(threads) > 1:
            yield from _first_active(threads[1:], one.start_s, one.end_s)
        else:
            yield one


class _Thread:
    """The activities of one thread, disjoint and in order; times without one are Python."""

    def __init__(self, program: ProgramTrace, thread: str, tops: Sequence[int], boundary: str) -> None:
        self._activities = list(_flatten(_spans(program, thread, tops, boundary)))
        self._ends = [one.end_s for one in self._activities]

    def between(self, start_s: float, end_s: float) -> Iterator[HostActivity]:
        now = start_s
        for place in range(bisect_right(self._ends, start_s), len(self._ends)):
            one = self._activities[place]
            if one.start_s >= end_s:
                break
            if one.start_s > now:
                yield HostActivity(now, one.start_s, PYTHON)
                now = one.start_s
            yield HostActivity(now, min(one.end_s, end_s), one.label, one.op)
            now = one.end_s
        if now < end_s:
            yield HostActivity(now, end_s, PYTHON)


def _spans(program: ProgramTrace, thread: str, tops: Sequence[int], boundary: str) -> list[_Span]:
    spans = []
    called = [one.start_s for one in program.runtime if one.thread == thread]
    for index, op in enumerate(program.trace.host_ops):
        if op.thread == thread and not op.name.startswith(boundary):
            end = op.start_s + op.duration_s
            waits = op.name in _READS and bisect_left(called, op.start_s) < bisect_left(called, end)
            label = SYNCHRONISING if waits else GUARDS if op.name.startswith(_GUARDS) else LAUNCHING
            spans.append(_Span(op.start_s, end, label, tops[index], waits))
    for one in program.annotations:
        if one.thread == thread:
            label = (
                DATA_LOADING
                if one.name.startswith(DATA_LOADING_RANGE)
                else GUARDS
                if one.name.startswith(_GUARDS)
                else ""
            )
            spans.append(_Span(one.start_s, one.end_s, label, -1, label == DATA_LOADING))
    for one in program.runtime:
        if one.thread == thread:
            spans.append(_Span(one.start_s, one.end_s, _runtime_label(one.name), -1, False))
    return sorted(spans, key=lambda span: (span.start_s, -span.end_s))


def _runtime_label(name: str) -> str:
    if _SYNCHRONISING.fullmatch(name):
        return SYNCHRONISING
    return ALLOCATING if _ALLOCATING.fullmatch(name) else LAUNCHING


def _flatten(spans: Iterable[_Span]) -> Iterator[HostActivity]:
    """The innermost label at each time. ``spans`` are sorted, an enclosing one first."""
    open_spans: list[_Span] = []
    now = float("-inf")

    def until(time_s: float) -> Iterator[HostActivity]:
        nonlocal now
        if open_spans and time_s > now:
            top = open_spans[-1]
            if top.label:
                yield HostActivity(now, time_s, top.label, top.op if top.label == SYNCHRONISING else -1)
        now = max(now, time_s)

    for span in spans:
        while open_spans and open_spans[-1].end_s <= span.start_s:
            yield from until(open_spans[-1].end_s)
            open_spans.pop()
        yield from until(span.start_s)
        around = open_spans[-1] if open_spans else None
        if around is not None:
            lasting = around.lasting
            label = around.label if lasting or not span.label else span.label
            # A span that reaches beyond the one around it is cut, so that stretches stay nested.
            end = min(span.end_s, around.end_s)
            span = _Span(span.start_s, end, label, span.op if span.op >= 0 else around.op, lasting or span.lasting)
        open_spans.append(span)
    while open_spans:
        yield from until(open_spans[-1].end_s)
        open_spans.pop()

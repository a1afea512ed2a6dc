"""Which host operator stands inside which: outermost operators, what they launched, what time is their own.

Relies on what ``reader`` guarantees: an enclosing operator comes before what it encloses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..records.trace import HostOp, Trace

_OPERATOR = re.compile(r"\w+::[\w.]+")
_COMPILED = re.compile(r"(graph_\d+_)?cpp_|triton_")


def is_operator(name: str) -> bool:
    """Whether a host operation is a dispatcher operator (``aten::mm``, ``mkldnn::_linear_pointwise``)."""
    return _OPERATOR.fullmatch(name) is not None


def is_compiled_kernel(op: HostOp) -> bool:
    """Whether a host operation is the launch of a kernel that Inductor generated, or that it launches for the user."""
    return op.kernel_file is not None or op.kernel_kwargs is not None or _COMPILED.match(op.name) is not None


def outermost_operator(trace: Trace, index: int) -> int:
    """The outermost dispatcher operator around host operation ``index``, or itself where there is none.

    Ranges that are not operators (``## Call CompiledFxGraph …``, autograd nodes) are looked through, not returned.
    """
    found = index
    while (index := trace.host_ops[index].parent) >= 0:
        if is_operator(trace.host_ops[index].name):
            found = index
    return found


def top_level(trace: Trace) -> tuple[int, ...]:
    """The outermost operations, in the order of their start. A range that only encloses others is not one of them."""
    return tuple(index for index, top in enumerate(top_of_each(trace)) if top == index)


def top_of_each(trace: Trace) -> tuple[int, ...]:
    """For each host operation the outermost operation around it (itself where it is one), or -1 for mere ranges."""
    ops = trace.host_ops
    enclosing = {op.parent for op in ops}
    tops: list[int] = []
    for index, op in enumerate(ops):
        above = tops[op.parent] if op.parent >= 0 else -1
        if above < 0 and not (index in enclosing and _is_range(op)):
            above = index
        tops.append(above)
    return tuple(tops)


def _is_range(op: HostOp) -> bool:
    return not is_operator(op.name) and not is_compiled_kernel(op)


def children(trace: Trace) -> tuple[tuple[int, ...], ...]:
    """For each host operation what stands directly inside it, in order."""
    lists: list[list[int]] = [[] for _ in trace.host_ops]
    for index, op in enumerate(trace.host_ops):
        if op.parent >= 0:
            lists[op.parent].append(index)
    return tuple(map(tuple, lists))


def device_events_by_top(trace: Trace) -> dict[int, tuple[int, ...]]:
    """Top-level operation to the device events that it launched, itself or through what it encloses.

    Events that no operation launched are under -1.
    """
    tops = top_of_each(trace)
    groups: dict[int, list[int]] = {}
    for index, event in enumerate(trace.device_events):
        groups.setdefault(tops[event.host_op] if event.host_op >= 0 else -1, []).append(index)
    return {top: tuple(events) for top, events in groups.items()}


def device_events_below(trace: Trace, index: int) -> tuple[int, ...]:
    """The device events that host operation ``index``, or anything it encloses, launched."""
    inside = set(operations_below(trace, index))
    return tuple(number for number, event in enumerate(trace.device_events) if event.host_op in inside)


def operations_below(trace: Trace, index: int) -> tuple[int, ...]:
    """Host operation ``index`` and all that it encloses, in order."""
    inside = {index}
    end = trace.host_ops[index].start_s + trace.host_ops[index].duration_s
    found = [index]
    for later in range(index + 1, len(trace.host_ops)):
        op = trace.host_ops[later]
        if op.start_s > end:
            break
        if op.parent in inside:
            inside.add(later)
            found.append(later)
    return tuple(found)


def self_times(trace: Trace) -> tuple[float, ...]:
    """For each host operation its duration less that of the operations directly inside it, in seconds, at least 0."""
    own = [op.duration_s for op in trace.host_ops]
    for op in trace.host_ops:
        if op.parent >= 0:
            own[op.parent] -= op.duration_s
    return tuple(max(0.0, time) for time in own)


def self_time_by_name(trace: Trace, index: int, own: Sequence[float]) -> dict[str, float]:
    """How the duration of host operation ``index`` divides among the names at and below it.

    Args:
        own: what ``self_times`` gave for this trace.

    Returns:
        seconds by name; they add up to the operation's duration.
    """
    totals: dict[str, float] = {}
    for inside in operations_below(trace, index):
        name = trace.host_ops[inside].name
        totals[name] = totals.get(name, 0.0) + own[inside]
    return totals

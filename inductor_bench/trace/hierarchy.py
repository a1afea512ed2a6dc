"""The nesting of host operations, and which of them are operators or launches of compiled kernels.

``reading.reader`` sorts an enclosing operation before the operations that it encloses; this file relies on it.
"""

from __future__ import annotations

import re

from ..records.traced.trace import HostOp, Trace

_OPERATOR = re.compile(r"\w+::[\w.]+")
_COMPILED = re.compile(r"(graph_\d+_)?cpp_|triton_")


def is_operator(name: str) -> bool:
    """Whether a host operation is a dispatcher operator (``aten::mm``, ``mkldnn::_linear_pointwise``)."""
    return _OPERATOR.fullmatch(name) is not None


def is_compiled_kernel(op: HostOp) -> bool:
    """Whether a host operation launches a kernel that Inductor generated, or the user's own Triton kernel."""
    return op.kernel_file is not None or op.kernel_kwargs is not None or _COMPILED.match(op.name) is not None


def top_of_each(trace: Trace) -> tuple[int, ...]:
    """For each host operation the index of the outermost operation around it, or its own; -1 for annotation ranges."""
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
    """For each host operation the indices of the operations directly inside it, in order."""
    lists: list[list[int]] = [[] for _ in trace.host_ops]
    for index, op in enumerate(trace.host_ops):
        if op.parent >= 0:
            lists[op.parent].append(index)
    return tuple(map(tuple, lists))

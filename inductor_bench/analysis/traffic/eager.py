"""Counts the bytes that eager operators touch between the graph calls of a step, as far as a profile shows them.

The count is a lower bound, so that the model of the cache never evicts what the program keeps there. A profile shows
the sizes of an operator's arguments, but not their places in memory:

- Results count where another operator takes them as arguments.
- Tensors of one size may be one tensor: of each size, only as many count as a single operator takes.
- Tensors with the size of a graph's argument or result may be it, and that one is in the model already.
- A list of tensors is recorded without its element type, and a long one without its sizes. It does not count.
- A tensor that is read in part does not count: a table whose rows are taken by index, and whatever is larger than the
  device can read in the operator's time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...records.traced.program import GraphCall, ProgramTrace, Work
from ...records.traced.trace import DeviceEvent, HostOp, TensorArguments
from .kernel_bytes import stored_elements

ELEMENT_BYTES = {
    **dict.fromkeys(("bool", "unsigned char", "signed char", "c10::Float8_e4m3fn", "c10::Float8_e5m2"), 1),
    **dict.fromkeys(("short", "short int", "c10::Half", "c10::BFloat16"), 2),
    **dict.fromkeys(("int", "float"), 4),
    **dict.fromkeys(("long", "long int", "long long", "double", "c10::complex<float>"), 8),
    "c10::complex<double>": 16,
}
"""Bytes of an element by the name that the profiler records."""

BY_INDEX = frozenset(
    f"aten::{name}"
    for name in (
        *("embedding", "gather", "index", "index_select", "nll_loss_forward", "nll_loss2d_forward", "take"),
        *("_index_put_impl_", "index_add_", "index_copy_", "index_put_", "scatter_", "scatter_add_"),
    )
)
"""Operators that access in their first tensor only what an index selects."""


@dataclass(frozen=True)
class EagerOperator:
    """An eager operator that ran on the device in the step, or a copy.

    Attributes:
        before: the number of the graph call before which it ran; after the last call the number of calls.
        time_s: seconds on the device.
        tensors: the bytes of each tensor that it takes.
    """

    before: int
    time_s: float
    tensors: tuple[int, ...]


@dataclass(frozen=True)
class EagerOperators:
    """The eager operators of one step, and the graph of each graph call in it, in order."""

    graphs: tuple[int, ...]
    operators: tuple[EagerOperator, ...]


def find_operators(
    program: ProgramTrace, works: Sequence[Work], calls: Sequence[GraphCall], start_s: float, end_s: float
) -> EagerOperators:
    """The eager operators of the step that the host ran from ``start_s`` to ``end_s``.

    Args:
        program: the trace.
        works: the works of its device events.
        calls: all calls of graphs, in order.
    """
    within = [call for call in calls if start_s <= call.start_s < end_s]
    launched: dict[int, list[Work]] = defaultdict(list)
    for work in works:
        if work.call < 0 and work.event >= 0 and start_s <= work.launch_start_s < end_s:
            op = program.trace.device_events[work.event].host_op
            launched[op if op >= 0 else -1 - work.event].append(work)
    operators = []
    for op, of_operator in launched.items():
        before = sum(call.start_s <= of_operator[0].launch_start_s for call in within)
        events = [program.trace.device_events[work.event] for work in of_operator]
        tensors = tuple(_tensors(program.trace.host_ops[op] if op >= 0 else None, events))
        if tensors:
            operators.append(EagerOperator(before, sum(event.duration_s for event in events), tensors))
    return EagerOperators(tuple(call.graph for call in within), tuple(operators))


def _tensors(op: HostOp | None, events: Sequence[DeviceEvent]) -> Iterator[int]:
    """The bytes of each tensor of an operator; of a mere copy those that the profiler counted."""
    if all(event.moved_bytes is not None for event in events):
        for event in events:
            yield from [event.moved_bytes or 0] * (2 if "DtoD" in event.name else 1)
    elif op is not None and op.arguments is not None:
        sizes = list(_sizes(op.arguments))
        yield from sizes[1:] if op.name in BY_INDEX else sizes


def _sizes(arguments: TensorArguments) -> Iterator[int]:
    for dims, strides, kind in zip(arguments.dims, arguments.strides, arguments.types, strict=True):
        element = ELEMENT_BYTES.get(kind)
        # A scalar and a list of tensors have no element type; a tensor of one element has no sizes.
        if element is not None:
            yield element * stored_elements(dims, strides)


def eager_bytes(found: EagerOperators, known: Sequence[tuple[int, int]], bandwidth: float) -> dict[int, int]:
    """The bytes that eager operators touch before the graph call of each number, beside the memory of the graphs.

    Args:
        found: the operators of the step.
        known: address and bytes of each argument and result of the step's graph calls.
        bandwidth: the bytes per second that the device reads at most.
    """
    touched: dict[int, Counter[int]] = defaultdict(Counter)
    for operator in found.operators:
        touched[operator.before] |= Counter(size for size in operator.tensors if size <= operator.time_s * bandwidth)
    of_graphs = Counter(size for _, size in set(known))
    sizes = {before: (tensors - of_graphs).items() for before, tensors in touched.items()}
    return {before: sum(size * count for size, count in items) for before, items in sizes.items() if items}

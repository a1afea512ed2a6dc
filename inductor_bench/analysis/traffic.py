"""The bytes that generated kernels and eager operators move."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..records.code import Argument, BufferUse
from ..records.traced import Activity, DeviceEvent, GraphCall, HostOp, ProgramTrace, TensorArguments, Work

# Counts the elements of each buffer that a C++ kernel accesses, from the kernel's source text.
#
# A kernel may receive a whole table and read a few of its rows, or a whole tensor and read a slice of it. The number of
# accesses is the product of the lengths of the surrounding loops. Inductor writes their bounds as literals if sizes
# are static.


_POINTER = re.compile(r"\b(?:in_out|in|out)_ptr\d+\b")
_ACCESS = re.compile(r"\b((?:in_out|in|out)_ptr\d+)\s*(?:\[|\+)\s*static_cast<int64_t>\(")
_ALIAS = re.compile(r"^\s*auto (\w+_ptr\d+) = (\w+_ptr\d+);")
_BODY = re.compile(r"\bkernel\s*\([^)]*\)")
_LOOP = re.compile(r"\bfor\s*\(\s*(?:int64_t|long|int)\s+(\w+)\s*=([^;]*);\s*\w+\s*<([^;]*);")
_LITERAL = re.compile(r"^\s*(?:static_cast<int64_t>\()?\s*(\d+)L?\s*\)?\s*$")
_VARIABLE = re.compile(r"\bx\d+\b")
_LOADED = re.compile(r"\btmp\d+\b")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_KNOWN_NAME = re.compile(r"x\d+|tmp\d+|static_cast|int64_t|c10|div_floor_integer|div_mod|at|std")


def accessed_elements(source: str) -> dict[str, int]:
    """Counts the elements that a kernel accesses through each pointer.

    Args:
        source: the C++ text of the kernel.

    Returns:
        An upper bound of the number of elements by parameter name. An index expression that occurs several times in
        the same loops counts once; an access at a loaded index counts in every iteration. A parameter is missing if
        the text does not determine its number.
    """
    signature = _BODY.search(source)
    if signature is None:
        return {}
    accesses = _Accesses()
    for line in source[signature.end() :].splitlines():
        accesses.read(line)
    return accesses.totals()


class _Accesses:
    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._loops: list[tuple[int, str, int | None]] = []  # depth of the loop's own braces, variable, length
        self._depth = 0
        self._seen: dict[str, dict[tuple[str, tuple[int | None, ...]], int]] = defaultdict(dict)
        self._unknown: set[str] = set()

    def read(self, line: str) -> None:
        alias = _ALIAS.match(line)
        if alias:
            self._names[alias.group(1)] = self._names.get(alias.group(2), alias.group(2))
            return
        loop = _LOOP.search(line)
        if loop:
            self._loops.append((self._depth, loop.group(1), _length(loop.group(2), loop.group(3))))
        found = list(_ACCESS.finditer(line))
        for access in found:
            self._add(access.group(1), _index_text(line, access.end()))
        for name in _POINTER.findall(line):
            if sum(access.group(1) == name for access in found) < len(re.findall(rf"\b{name}\b", line)):
                self._unknown.add(self._names.get(name, name))
        for brace in re.findall(r"[{}]", line):
            self._depth += 1 if brace == "{" else -1
            if brace == "}":
                self._loops = [one for one in self._loops if one[0] < self._depth]

    def _add(self, name: str, index: str) -> None:
        used = set(_VARIABLE.findall(index))
        lengths = tuple(
            length
            for _, variable, length in self._loops
            if _VARIABLE.fullmatch(variable) and (variable in used or _LOADED.search(index))
        )
        name = self._names.get(name, name)
        if None in lengths or not used <= {variable for _, variable, _ in self._loops} or not _has_known_names(index):
            self._unknown.add(name)
        self._seen[name][index, lengths] = math.prod(length for length in lengths if length is not None)

    def totals(self) -> dict[str, int]:
        return {name: sum(seen.values()) for name, seen in self._seen.items() if name not in self._unknown}


def _has_known_names(index: str) -> bool:
    """Whether an index consists of loop variables and loaded values only."""
    names = set(_NAME.findall(index))
    inner = {name for name in names if name.endswith("_inner") and name.removesuffix("_inner") in names}
    return all(_KNOWN_NAME.fullmatch(name) for name in names - inner)


def _length(start: str, end: str) -> int | None:
    first, last = _LITERAL.match(start), _LITERAL.match(end)
    return int(last.group(1)) - int(first.group(1)) if first and last else None


def _index_text(line: str, start: int) -> str:
    """The text from ``start`` to the closing parenthesis that matches the one before ``start``."""
    depth = 1
    for place in range(start, len(line)):
        depth += {"(": 1, ")": -1}.get(line[place], 0)
        if depth == 0:
            return line[start:place]
    return line[start:]


# Counts the bytes that a generated kernel reads and writes, from its signature and the arguments of a launch.


CPP_SIGNATURE = re.compile(r"\bkernel\s*\(([^)]*)\)")
TRITON_SIGNATURE = re.compile(r"'signature': \{([^}]*)\}")
_BUFFER = re.compile(r"(in|out|in_out)_ptr\d+")
_ELEMENTS = re.compile(r"^    ([xyz]|r\d?_?)numel = (\d+)$", re.MULTILINE)


def touched_bytes(language: str, source: str, arguments: Sequence[Argument]) -> int | None:
    """Counts the bytes that one launch reads and writes. Each buffer counts once, an in-out buffer twice.

    This is Inductor's way of counting. If a C++ kernel uses a part of a buffer (rows of a table, a slice), only that
    part counts; a buffer of a Triton kernel always counts whole.

    Args:
        language: ``cpp`` or ``triton``.
        source: the kernel's text. Its signature names the pointers ``in_ptr*``, ``out_ptr*`` and ``in_out_ptr*``; the
            pointers of a user-defined kernel may have any name and count once.
        arguments: the arguments of one launch, in order.

    Returns:
        The number of bytes, or ``None`` if the signature does not match the arguments.
    """
    names = _cpp_pointers(source) if language == "cpp" else _triton_pointers(source)
    tensors = [argument.tensor for argument in arguments if argument.tensor is not None]
    if names is None or len(names) != len(tensors):
        return None
    accessed = accessed_elements(source) if language == "cpp" else {}
    total = 0
    for name, tensor in zip(names, tensors, strict=True):
        size = stored_elements(tensor.shape, tensor.stride)
        size = min(size, accessed.get(name, size)) * tensor.itemsize
        total += 2 * size if name.startswith("in_out_ptr") else size
    return total


def least_bytes(source: str, arguments: Sequence[Argument]) -> int | None:
    """The least that Inductor means to count of one launch: of each buffer no more than the kernel has elements.

    Inductor leaves out buffers that it knows by another name because they were changed in place before: by an atomic
    addition, a user's kernel, or a collective. Its count is then less than this one.

    Args:
        source: the text of a generated Triton kernel.
        arguments: the arguments of one launch, in order.

    Returns:
        The number of bytes, or ``None`` if the text does not tell the number of elements.
    """
    names, tensors = _triton_pointers(source), [one.tensor for one in arguments if one.tensor is not None]
    sizes = dict(_ELEMENTS.findall(source))
    if names is None or len(names) != len(tensors) or "x" not in sizes:
        return None
    elements = math.prod(int(size) for size in sizes.values())
    total = 0
    for name, tensor in zip(names, tensors, strict=True):
        size = min(stored_elements(tensor.shape, tensor.stride), elements) * tensor.itemsize
        total += size * (2 if name.startswith("in_out_ptr") else 1) if _BUFFER.fullmatch(name) else 0
    return total


def _cpp_pointers(source: str) -> list[str] | None:
    match = CPP_SIGNATURE.search(source)
    if match is None:
        return None
    parameters = [parameter for parameter in match.group(1).split(",") if "*" in parameter]
    return [parameter.split()[-1].lstrip("*&") for parameter in parameters]


def _triton_pointers(source: str) -> list[str] | None:
    match = TRITON_SIGNATURE.search(source)
    return re.findall(r"'(\w+)': '\*", match.group(1)) if match else None


def stored_elements(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The number of stored elements of a view: an expanded dimension (stride 0) is stored once."""
    return math.prod(size if stride else min(size, 1) for size, stride in zip(shape, strides, strict=True))


def fit_uses(uses: Sequence[BufferUse], moved_bytes: float | None) -> tuple[BufferUse, ...]:
    """The uses of a generated kernel, limited to the parts of large buffers that it accesses.

    A kernel that takes rows of a table, or a slice, is given the whole buffer. Inductor counts no more of a buffer than
    the kernel has elements, so its count tells the largest possible access.

    Args:
        uses: whole buffers.
        moved_bytes: Inductor's count for one call; ``None`` if there is none.
    """
    # Inductor's count leaves out the second access of some buffers that are updated in place.
    if not moved_bytes or sum(use.touched for use in uses) <= moved_bytes:
        return tuple(uses)
    level = _common_limit([size for use in uses for size in (use.read, use.written)], moved_bytes)
    return tuple(
        replace(
            use,
            touched=min(use.touched, max(min(use.read, level), min(use.written, level))),
            read=min(use.read, level),
            written=min(use.written, level),
        )
        for use in uses
    )


def _common_limit(sizes: Sequence[int], total: float) -> int:
    """The limit of each size with which the sizes add up to ``total``."""
    left = total
    for number, size in enumerate(ordered := sorted(sizes)):
        if size * (len(ordered) - number) > left:
            return round(left / (len(ordered) - number))
        left -= size
    return max(sizes, default=0)


def transferred_bytes(activities: Iterable[Activity]) -> float | None:
    """The bytes of copies and memsets, from the profiler. A copy within the device counts them twice."""
    total = 0.0
    for activity in activities:
        if activity.event is None or activity.event.moved_bytes is None:
            return None
        total += activity.event.moved_bytes * (2 if "DtoD" in activity.name else 1)
    return total


# Counts the bytes that eager operators touch between the graph calls of a step, as far as a profile shows them.
#
# The count is a lower bound, so that the model of the cache never evicts what the program keeps there. A profile shows
# the sizes of an operator's arguments, but not their places in memory:
#
# - Results count if another operator takes them as arguments.
# - Tensors of one size may be one tensor: of each size, only as many count as a single operator takes.
# - Tensors with the size of a graph's argument or result may be it, and that one is in the model already.
# - A list of tensors is recorded without its element type, and a long one without its sizes. It does not count.
# - A tensor that is read in part does not count: a table whose rows are taken by index, and whatever is larger than the
#   device can read in the operator's time.


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
    """An eager operator that ran on the device in the step, or a copy."""

    before: int  # the number of the graph call before which it ran; after the last call the number of calls
    time_s: float  # seconds on the device
    tensors: tuple[int, ...]  # the bytes of each tensor that it takes


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

"""The work of calls: their categories, the kernels of a library call, and the bytes that kernels and operators move."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..records.base import Category
from ..records.code import Argument, BufferUse
from ..records.traced import Activity, DeviceEvent, GraphCall, HostOp, ProgramTrace, TensorArguments, Work

# Assigns each activity to a category.
#
# The evidence in order of precedence: the kind of device activity, the kernel's definition, the operator that launched
# the activity, and last its name.


GEMM_OPERATORS = frozenset(
    {
        "mm",
        "addmm",
        "bmm",
        "baddbmm",
        "addbmm",
        "matmul",
        "linear",
        "_scaled_mm",
        "_scaled_grouped_mm",
        "_grouped_mm",
        "_int_mm",
        "addmv",
        "mv",
        "dot",
        "vdot",
        "_addmm_activation",
        "_weight_int8pack_mm",
        "_weight_int4pack_mm",
        "_linear_pointwise",
        "_mkl_linear",
        "mkl_linear",
        "qlinear_pointwise",
        "qlinear_unary",
        "qlinear_binary",
    }
)
COPY_OPERATORS = frozenset({"copy_", "clone", "_to_copy", "contiguous", "_foreach_copy_", "to"})

LIBRARY_NAMES = (
    (re.compile(r"flash_(fwd|bwd)|fmha|attention|_sdpa_", re.I), Category.EXTERN_ATTENTION),
    (re.compile(r"conv|fprop|dgrad|wgrad|winograd|implicit_gemm", re.I), Category.EXTERN_CONV),
    (re.compile(r"gemm|gemv|cublas|nvjet|splitKreduce|cutlass", re.I), Category.EXTERN_GEMM),
    (re.compile(r"^nccl|^ncclDev|all_?reduce|reduce_scatter|all_?gather", re.I), Category.COLLECTIVE),
    (re.compile(r"at::native::|at_cuda_detail|cub::|thrust::"), Category.EXTERN_ATEN),
)


def classify(activity: Activity) -> Category:
    """Returns the category of an activity; ``other`` if its name is unfamiliar and all other evidence is missing."""
    if activity.kind == "memcpy":
        return Category.COPY
    if activity.kind == "memset":
        return Category.MEMSET
    if activity.kernel is not None:
        return activity.kernel.category
    if activity.name.startswith("nccl") or (activity.operator or "").startswith(("c10d::", "_c10d_functional::")):
        return Category.COLLECTIVE
    if activity.operator is not None:
        return classify_operator(activity.operator)
    for pattern, category in LIBRARY_NAMES:
        if pattern.search(activity.name):
            return category
    return Category.OTHER


def classify_operator(operator: str) -> Category:
    """Returns the category of a library operator by its name, such as ``aten::mm`` or ``mkldnn::_linear_pointwise``."""
    name = operator.split("::", 1)[-1].split(".", 1)[0]
    if "attention" in name or name.startswith("_flash_"):
        return Category.EXTERN_ATTENTION
    if "conv" in name and "convert" not in name:
        return Category.EXTERN_CONV
    if name in GEMM_OPERATORS or "_mm" in name or "linear" in name:
        return Category.EXTERN_GEMM
    if name in COPY_OPERATORS:
        return Category.COPY
    return Category.EXTERN_ATEN


# Short notation for the recorded arguments of an operator, as tables show them.


DTYPES = {
    "float": ("f32", "float32"),
    "double": ("f64", "float64"),
    "c10::Half": ("f16", "float16"),
    "c10::BFloat16": ("bf16", "bfloat16"),
    "c10::Float8_e4m3fn": ("f8e4m3", "float8_e4m3fn"),
    "c10::Float8_e5m2": ("f8e5m2", "float8_e5m2"),
    "int": ("i32", "int32"),
    "long int": ("i64", "int64"),
    "long": ("i64", "int64"),
    "short": ("i16", "int16"),
    "short int": ("i16", "int16"),
    "signed char": ("i8", "int8"),
    "unsigned char": ("u8", "uint8"),
    "short unsigned int": ("u16", "uint16"),
    "unsigned int": ("u32", "uint32"),
    "long unsigned int": ("u64", "uint64"),
    "c10::complex<float>": ("c64", "complex64"),
    "c10::complex<double>": ("c128", "complex128"),
    "bool": ("b8", "bool"),
}
"""Names of element types: for the profiler's name, the name in tables and torch's name."""


def describe_arguments(arguments: TensorArguments) -> str:
    """Lists the tensors among the arguments, for example ``f16[128,32,112,112] f16[32,1,3,3]``."""
    parts = []
    for dims, kind in zip(arguments.dims, arguments.types, strict=False):
        if kind in DTYPES and (dims or kind not in ("int", "bool", "long", "double")):
            parts.append(f"{DTYPES[kind][0]}{_format_brackets(dims)}")
        elif kind == "TensorList":
            parts.append(f"{len(dims)} tensors")
    return " ".join(parts)


def find_dtype(arguments: TensorArguments) -> str | None:
    """Returns torch's name of the element type of the first floating-point argument, or ``None``."""
    for kind in arguments.types:
        if kind in DTYPES and "loat" in DTYPES[kind][1]:
            return DTYPES[kind][1]
    return None


def _format_brackets(dims: Any) -> str:
    return "[" + ",".join(str(size) for size in dims) + "]"


# Divides the work of a library call among the kernels that the call launches.
#
# One call may launch several kernels. The two gradients of a convolution are two parts with the same amount of work. A
# copy into another layout is a separate part, which the profiler records as an inner operator. Helper kernels prepare
# inputs or combine results and do no counted work. All other kernels of a call share one part.


MOVES = frozenset({"aten::copy_", "aten::fill_", "aten::zero_"})
"""Inner operators that only move data."""

HELPER_KERNELS = re.compile(
    r"splitk_?reduce|[a-z0-9]_reduce(_kernel)?$|reduce_wgrad|helper_kernel|tensortransform|nchwtonhwc|nhwctonchw"
    r"|nhwcslice|addpadding|generictranspose|converttensor|scalepackedtensor|computeoffsets|winogradtiles|dot_do_o"
    r"|convert_dq|splitkv_combine|lean_reduction|direct_copy_kernel",
    re.IGNORECASE,
)
"""Matches the names of helper kernels, which libraries launch before or after the kernel that does the work.

Copies without an inner operator are among them: ``addmm`` copies its addend into its output.
"""

_MASK = 10  # index of output_mask among the arguments of aten::convolution_backward
_INPUT = re.compile(r"dgrad|backward_data|depthwise\dd_backward_kernel", re.IGNORECASE)
_WEIGHT = re.compile(r"wgrad|backward_filter|grad_weight", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class OperatorPart:
    """A part of the work of a library call, written as the operator call that does this part alone.

    ``label`` names the part in a table; it is empty for the whole call.
    """

    operator: str
    arguments: TensorArguments
    label: str = ""


def find_parts(activities: Sequence[Activity]) -> tuple[OperatorPart | None, ...]:
    """Returns the part of each activity, in order; ``None`` for helper kernels and for activities of other kinds."""
    calls: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, activity in enumerate(activities):
        if activity.kind == "kernel" and activity.kernel is None and activity.operator and activity.arguments:
            calls[activity.iteration, activity.instance].append(index)
    parts: list[OperatorPart | None] = [None] * len(activities)
    for places in calls.values():
        for place, part in zip(places, _divide([activities[place] for place in places]), strict=True):
            parts[place] = part
    return tuple(parts)


def _divide(members: Sequence[Activity]) -> list[OperatorPart | None]:
    """Returns the part of each kernel of one call. The kernels come in the order in which they ran."""
    whole = _count_whole_call(members[0])
    parts = [_find_inner_part(member) for member in members]
    rest = [place for place, part in enumerate(parts) if part is None]
    if not rest:
        return [whole] * len(members)
    workers = [place for place in rest if not HELPER_KERNELS.search(members[place].name)] or rest
    for place, part in zip(workers, _list_gradients(whole, [members[place].name for place in workers]), strict=True):
        parts[place] = part
    return parts


def _count_whole_call(activity: Activity) -> OperatorPart | None:
    if activity.operator is None or activity.arguments is None:
        return None
    return OperatorPart(activity.operator, activity.arguments)


def _find_inner_part(activity: Activity) -> OperatorPart | None:
    if activity.inner is None or activity.inner[0] not in MOVES:
        return None
    operator, arguments = activity.inner
    return OperatorPart(operator, arguments, operator.partition("::")[2])


def _list_gradients(whole: OperatorPart | None, names: Sequence[str]) -> Sequence[OperatorPart | None]:
    """Returns the gradient of a convolution that each kernel computes.

    If the kernels' names do not tell, each kernel gets the whole call.
    """
    shared = [whole] * len(names)
    if whole is None or whole.operator != "aten::convolution_backward" or len(whole.arguments.concrete) <= _MASK:
        return shared
    mask = [word == "True" for word in re.findall("True|False", whole.arguments.concrete[_MASK])]
    sides = _name_sides(names) if len(mask) == 3 and mask[0] and mask[1] else None
    if sides is None:
        return shared
    narrow = {
        "input": _apply_output_mask(whole, [True, False, False], "input gradient"),
        "weight": _apply_output_mask(whole, [False, True, mask[2]], "weight gradient"),
    }
    return [narrow[side] for side in sides]


def _name_sides(names: Sequence[str]) -> list[str] | None:
    """Returns ``input`` or ``weight`` for each kernel, by its name or else by its position; ``None`` in doubt."""
    inputs = [place for place, name in enumerate(names) if _INPUT.search(name)]
    weights = [place for place, name in enumerate(names) if _WEIGHT.search(name)]
    if not inputs and not weights:
        return ["input", "weight"] if len(names) == 2 else None
    if inputs and weights and len(inputs) + len(weights) == len(names):
        return ["input" if place in inputs else "weight" for place in range(len(names))]
    # The kernels of the input's gradient come first. If the names leave open where they end, the result is ``None``.
    end = inputs[-1] + 1 if inputs else weights[0]
    start = weights[0] if weights else end
    if not 0 < end == start < len(names):
        return None
    return ["input"] * end + ["weight"] * (len(names) - end)


def _apply_output_mask(whole: OperatorPart, mask: list[bool], label: str) -> OperatorPart:
    concrete = list(whole.arguments.concrete)
    concrete[_MASK] = str(mask)
    return replace(whole, arguments=replace(whole.arguments, concrete=tuple(concrete)), label=label)


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


def count_accessed_elements(source: str) -> dict[str, int]:
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
            self._loops.append((self._depth, loop.group(1), _compute_length(loop.group(2), loop.group(3))))
        found = list(_ACCESS.finditer(line))
        for access in found:
            self._add(access.group(1), _write_index(line, access.end()))
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


def _compute_length(start: str, end: str) -> int | None:
    first, last = _LITERAL.match(start), _LITERAL.match(end)
    return int(last.group(1)) - int(first.group(1)) if first and last else None


def _write_index(line: str, start: int) -> str:
    """Returns the text from ``start`` to the parenthesis that closes the one before ``start``."""
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


def count_touched_bytes(language: str, source: str, arguments: Sequence[Argument]) -> int | None:
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
    names = _list_cpp_pointers(source) if language == "cpp" else _list_triton_pointers(source)
    tensors = [argument.tensor for argument in arguments if argument.tensor is not None]
    if names is None or len(names) != len(tensors):
        return None
    accessed = count_accessed_elements(source) if language == "cpp" else {}
    total = 0
    for name, tensor in zip(names, tensors, strict=True):
        size = count_stored_elements(tensor.shape, tensor.stride)
        size = min(size, accessed.get(name, size)) * tensor.itemsize
        total += 2 * size if name.startswith("in_out_ptr") else size
    return total


def count_least_bytes(source: str, arguments: Sequence[Argument]) -> int | None:
    """Counts the bytes that Inductor finds for one launch at least: each buffer counts up to the kernel's elements.

    Inductor leaves out buffers that it knows by another name because they were changed in place before: by an atomic
    addition, a user's kernel, or a collective. Its count is then less than this one.

    Args:
        source: the text of a generated Triton kernel.
        arguments: the arguments of one launch, in order.

    Returns:
        The number of bytes, or ``None`` if the text does not tell the number of elements.
    """
    names, tensors = _list_triton_pointers(source), [one.tensor for one in arguments if one.tensor is not None]
    sizes = dict(_ELEMENTS.findall(source))
    if names is None or len(names) != len(tensors) or "x" not in sizes:
        return None
    elements = math.prod(int(size) for size in sizes.values())
    total = 0
    for name, tensor in zip(names, tensors, strict=True):
        size = min(count_stored_elements(tensor.shape, tensor.stride), elements) * tensor.itemsize
        total += size * (2 if name.startswith("in_out_ptr") else 1) if _BUFFER.fullmatch(name) else 0
    return total


def _list_cpp_pointers(source: str) -> list[str] | None:
    match = CPP_SIGNATURE.search(source)
    if match is None:
        return None
    parameters = [parameter for parameter in match.group(1).split(",") if "*" in parameter]
    return [parameter.split()[-1].lstrip("*&") for parameter in parameters]


def _list_triton_pointers(source: str) -> list[str] | None:
    match = TRITON_SIGNATURE.search(source)
    return re.findall(r"'(\w+)': '\*", match.group(1)) if match else None


def count_stored_elements(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Counts the stored elements of a view. An expanded dimension (stride 0) is stored once."""
    return math.prod(size if stride else min(size, 1) for size, stride in zip(shape, strides, strict=True))


def fit_uses(uses: Sequence[BufferUse], moved_bytes: float | None) -> tuple[BufferUse, ...]:
    """Limits the buffer uses of a generated kernel to the parts of large buffers that it accesses.

    A kernel that reads some rows of a table, or a slice, gets the whole buffer as argument. Inductor counts at most as
    many elements of a buffer as the kernel has, so its count limits what the kernel can access.

    Args:
        uses: whole buffers.
        moved_bytes: Inductor's count for one call; ``None`` if there is none.
    """
    # Inductor's count leaves out the second access of some buffers that are updated in place.
    if not moved_bytes or sum(use.touched for use in uses) <= moved_bytes:
        return tuple(uses)
    level = _find_common_limit([size for use in uses for size in (use.read, use.written)], moved_bytes)
    return tuple(
        replace(
            use,
            touched=min(use.touched, max(min(use.read, level), min(use.written, level))),
            read=min(use.read, level),
            written=min(use.written, level),
        )
        for use in uses
    )


def _find_common_limit(sizes: Sequence[int], total: float) -> int:
    """Returns the number to which each size must be limited so that the sizes add up to ``total``."""
    left = total
    for number, size in enumerate(ordered := sorted(sizes)):
        if size * (len(ordered) - number) > left:
            return round(left / (len(ordered) - number))
        left -= size
    return max(sizes, default=0)


def count_transferred_bytes(activities: Iterable[Activity]) -> float | None:
    """Returns the bytes of copies and memsets, from the profiler. Bytes of a copy within the device count twice."""
    total = 0.0
    for activity in activities:
        if activity.event is None or activity.event.moved_bytes is None:
            return None
        total += activity.event.moved_bytes * (2 if "DtoD" in activity.name else 1)
    return total


# Counts the bytes that eager operators touch between the graph calls of a step, as far as a profile shows them.
#
# The count is a lower bound, so that the model of the cache never evicts data that the program still has in it. A
# profile shows the sizes of an operator's arguments, but not their places in memory:
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
"""Operators that access only the indexed part of their first tensor."""


@dataclass(frozen=True)
class EagerOperator:
    """An eager operator, or a memory copy, that ran on the device during the step."""

    before: int  # the number of the graph call before which it ran; after the last call the number of calls
    time_s: float  # seconds on the device
    tensors: tuple[int, ...]  # the bytes of each tensor that it takes


@dataclass(frozen=True)
class EagerOperators:
    """The eager operators of one step in order. ``graphs`` has the graph of each graph call of the step, in order."""

    graphs: tuple[int, ...]
    operators: tuple[EagerOperator, ...]


def find_operators(
    program: ProgramTrace, works: Sequence[Work], calls: Sequence[GraphCall], start_s: float, end_s: float
) -> EagerOperators:
    """Returns the eager operators of the step that the host ran from ``start_s`` to ``end_s``.

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
        tensors = tuple(_list_tensors(program.trace.host_ops[op] if op >= 0 else None, events))
        if tensors:
            operators.append(EagerOperator(before, sum(event.duration_s for event in events), tensors))
    return EagerOperators(tuple(call.graph for call in within), tuple(operators))


def _list_tensors(op: HostOp | None, events: Sequence[DeviceEvent]) -> Iterator[int]:
    """Yields the bytes of each tensor of an operator.

    For a copy without operator, yields the bytes that the profiler counted.
    """
    if all(event.moved_bytes is not None for event in events):
        for event in events:
            yield from [event.moved_bytes or 0] * (2 if "DtoD" in event.name else 1)
    elif op is not None and op.arguments is not None:
        sizes = list(_list_sizes(op.arguments))
        yield from sizes[1:] if op.name in BY_INDEX else sizes


def _list_sizes(arguments: TensorArguments) -> Iterator[int]:
    for dims, strides, kind in zip(arguments.dims, arguments.strides, arguments.types, strict=True):
        element = ELEMENT_BYTES.get(kind)
        # A scalar and a list of tensors have no element type; a tensor of one element has no sizes.
        if element is not None:
            yield element * count_stored_elements(dims, strides)


def count_eager_bytes(found: EagerOperators, known: Sequence[tuple[int, int]], bandwidth: float) -> dict[int, int]:
    """Counts, by number of graph call, the bytes that eager operators touch before it, without the graphs' own memory.

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

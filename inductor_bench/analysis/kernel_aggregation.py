"""Aggregates the activities of a trace into kernels and categories. Each activity is counted exactly once.

``roofline`` adds the shares of peak and the gain limits.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ..records.category import Category
from ..records.code import CompiledKernel, KernelDefinition, SourceLine
from ..records.kernel import Kernel, LaunchShape, LeastWork, Origin, ShapeGroup
from ..records.module import CategoryTotal
from ..records.traced import Activity, DeviceEvent, OperatorCost, TensorArguments
from .residence import dram_part
from .traffic import transferred_bytes

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
    """Returns the category of an activity; ``other`` where its name is unfamiliar and all other evidence is missing."""
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
"""Names of element types: the profiler's name to the name in tables and torch's name."""


def describe_arguments(arguments: TensorArguments) -> str:
    """Lists the tensors among the arguments, for example ``f16[128,32,112,112] f16[32,1,3,3]``."""
    parts = []
    for dims, kind in zip(arguments.dims, arguments.types, strict=False):
        if kind in DTYPES and (dims or kind not in ("int", "bool", "long", "double")):
            parts.append(f"{DTYPES[kind][0]}{_brackets(dims)}")
        elif kind == "TensorList":
            parts.append(f"{len(dims)} tensors")
    return " ".join(parts)


def dtype_of(arguments: TensorArguments) -> str | None:
    """Returns torch's name of the element type of the first floating-point argument, or ``None``."""
    for kind in arguments.types:
        if kind in DTYPES and "loat" in DTYPES[kind][1]:
            return DTYPES[kind][1]
    return None


def _brackets(dims: Any) -> str:
    return "[" + ",".join(str(size) for size in dims) + "]"


# Divides the work of a library call among the kernels that the call launches.
#
# One call may launch several kernels. The two gradients of a convolution are two parts with the same amount of work. A
# copy into another layout is a separate part, which the profiler records as an inner operator. Helper kernels prepare
# inputs or combine results and do no counted work. All other kernels of a call share one part.


MOVES = frozenset({"aten::copy_", "aten::fill_", "aten::zero_"})
"""Inner operators that only move data."""

HELPERS = re.compile(
    r"splitk_?reduce|[a-z0-9]_reduce(_kernel)?$|reduce_wgrad|helper_kernel|tensortransform|nchwtonhwc|nhwctonchw"
    r"|nhwcslice|addpadding|generictranspose|converttensor|scalepackedtensor|computeoffsets|winogradtiles|dot_do_o"
    r"|convert_dq|splitkv_combine|lean_reduction|direct_copy_kernel",
    re.IGNORECASE,
)
"""Matches the names of helper kernels, which libraries launch before or after the kernel that does the work.

Among them are copies without an inner operator: ``addmm`` copies what it adds into its output.
"""

_MASK = 10  # index of output_mask among the arguments of aten::convolution_backward
_INPUT = re.compile(r"dgrad|backward_data|depthwise\dd_backward_kernel", re.IGNORECASE)
_WEIGHT = re.compile(r"wgrad|backward_filter|grad_weight", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class OperatorPart:
    """A part of a library call, written as the operator call that would do only this part.

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
    """The parts of the kernels of one call, given in the order in which they ran."""
    whole = _whole_call(members[0])
    parts = [_inner_part(member) for member in members]
    rest = [place for place, part in enumerate(parts) if part is None]
    if not rest:
        return [whole] * len(members)
    workers = [place for place in rest if not HELPERS.search(members[place].name)] or rest
    for place, part in zip(workers, _gradients(whole, [members[place].name for place in workers]), strict=True):
        parts[place] = part
    return parts


def _whole_call(activity: Activity) -> OperatorPart | None:
    if activity.operator is None or activity.arguments is None:
        return None
    return OperatorPart(activity.operator, activity.arguments)


def _inner_part(activity: Activity) -> OperatorPart | None:
    if activity.inner is None or activity.inner[0] not in MOVES:
        return None
    operator, arguments = activity.inner
    return OperatorPart(operator, arguments, operator.partition("::")[2])


def _gradients(whole: OperatorPart | None, names: Sequence[str]) -> Sequence[OperatorPart | None]:
    """The gradient of a convolution that each kernel computes; the whole call for all where the names leave doubt."""
    shared = [whole] * len(names)
    if whole is None or whole.operator != "aten::convolution_backward" or len(whole.arguments.concrete) <= _MASK:
        return shared
    mask = [word == "True" for word in re.findall("True|False", whole.arguments.concrete[_MASK])]
    sides = _sides(names) if len(mask) == 3 and mask[0] and mask[1] else None
    if sides is None:
        return shared
    narrow = {
        "input": _narrow(whole, [True, False, False], "input gradient"),
        "weight": _narrow(whole, [False, True, mask[2]], "weight gradient"),
    }
    return [narrow[side] for side in sides]


def _sides(names: Sequence[str]) -> list[str] | None:
    """Returns ``input`` or ``weight`` for each kernel, by its name or else by its position; ``None`` in doubt.

    PyTorch asks cuDNN for the input's gradient first. Checked with torch 2.11 on an H200 for 72 calls (12 shapes, three
    types, two layouts): the result agreed with calls that computed one gradient at a time.
    """
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


def _narrow(whole: OperatorPart, mask: list[bool], label: str) -> OperatorPart:
    concrete = list(whole.arguments.concrete)
    concrete[_MASK] = str(mask)
    return replace(whole, arguments=replace(whole.arguments, concrete=tuple(concrete)), label=label)


OUTLIER_FACTOR = 1.5
"""Ratio to the lower quartile of the iteration times above which an iteration counts as disturbed."""

TF32_NAME = re.compile(r"tf32|tensorop_s?(1688|16816)")
"""Matches the names of library kernels that multiply float32 data on tensor cores."""

MATRIX_PRODUCT = re.compile(r"\btl\.dot(_scaled)?\(")

CostKey = tuple[str, TensorArguments]
KernelKey = tuple[Category, str, str]
UNKNOWN = OperatorCost()
Value = TypeVar("Value")
Member = tuple[Activity, OperatorPart | None]
PartKey = tuple[int, int, OperatorPart]


@dataclass(frozen=True)
class Evidence:
    """The facts that the aggregation uses beside the activities.

    Attributes:
        costs: FLOPs and bytes of library operators, by operator and arguments.
        kernel_bytes: bytes that one call of a kernel accesses, by its name, where its own count is missing or low.
        compiled: the properties of compiled kernels, by kernel name.
        source_lines: lines of the model's source, by provenance handle.
        dram_shares: DRAM's bytes per byte that a call site of the module touches in the program's step, by its index.
    """

    costs: Mapping[CostKey, OperatorCost] = field(default_factory=dict)
    kernel_bytes: Mapping[str, float] = field(default_factory=dict)
    compiled: Mapping[str, CompiledKernel] = field(default_factory=dict)
    source_lines: Mapping[str, Sequence[SourceLine]] = field(default_factory=dict)
    dram_shares: Mapping[int, float] = field(default_factory=dict)


def steady_iterations(activities: Iterable[Activity], count: int) -> tuple[int, ...]:
    """Selects the undisturbed iterations: their device time is at most :data:`OUTLIER_FACTOR` times the lower quartile.

    The reference is the quartile because half of the iterations, and with them the median, can be disturbed on a busy
    CPU.

    Args:
        activities: the activities of all iterations.
        count: the number of iterations.

    Returns:
        The indices of the undisturbed iterations.
    """
    totals = [0.0] * count
    for activity in activities:
        totals[activity.iteration] += activity.duration_s
    if not totals:
        return ()
    limit = OUTLIER_FACTOR * sorted(totals)[len(totals) // 4]
    return tuple(index for index, total in enumerate(totals) if total <= limit)


def aggregate_kernels(
    activities: Sequence[Activity], iterations: int, steady: Sequence[int], evidence: Evidence
) -> tuple[Kernel, ...]:
    """Aggregates activities into kernels, the most expensive first, with times per iteration and shares of device time.

    Args:
        activities: the activities of all iterations.
        iterations: the number of iterations.
        steady: the iterations that count (see :func:`steady_iterations`); empty only where there are no activities.
        evidence: the facts beside the activities.
    """
    groups: dict[KernelKey, list[Member]] = defaultdict(list)
    members = list(zip(activities, find_parts(activities), strict=True))
    for member in members:
        groups[_key(member[0])].append(member)
    context = _Context(iterations, frozenset(steady), _part_times(members), evidence)
    kernels = [_kernel(key[0], group, context) for key, group in groups.items()]
    total = sum(kernel.time_s for kernel in kernels)
    return tuple(
        replace(kernel, share=kernel.time_s / total if total else 0.0)
        for kernel in sorted(kernels, key=lambda kernel: (-kernel.time_s, kernel.name))
    )


def total_categories(kernels: Sequence[Kernel], wall_time_s: float | None) -> tuple[CategoryTotal, ...]:
    """Sums kernels by category, the most expensive first. ``wall_time_s`` (seconds) is the base of the wall shares."""
    groups: dict[Category, list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        groups[kernel.category].append(kernel)
    totals = [
        CategoryTotal(
            name=category,
            time_s=(time_s := sum(kernel.time_s for kernel in group)),
            share=sum(kernel.share for kernel in group),
            wall_share=time_s / wall_time_s if wall_time_s else None,
            calls=sum(kernel.calls for kernel in group),
            kernels=len(group),
        )
        for category, group in groups.items()
    ]
    return tuple(sorted(totals, key=lambda total: -total.time_s))


def _key(activity: Activity) -> KernelKey:
    category = classify(activity)
    if activity.kernel is not None and activity.kind == "kernel":
        return category, activity.name, activity.kernel.name
    return category, activity.name, activity.operator or ""


def _part_times(members: Iterable[Member]) -> dict[PartKey, float]:
    """The device time in seconds of each part of each library call, summed over the kernels that share the part."""
    times: dict[PartKey, float] = defaultdict(float)
    for activity, part in members:
        if part is not None:
            times[_part_key(activity, part)] += activity.duration_s
    return times


def _part_key(activity: Activity, part: OperatorPart) -> PartKey:
    # An operator called inside another operator is a separate call, even where two such calls have the same arguments.
    event = activity.event
    instance = event.host_op if event is not None and part.operator != activity.operator else activity.instance
    return activity.iteration, instance, part


@dataclass(frozen=True)
class _Context:
    """The facts that all kernels of a module share. ``part_times`` holds the seconds of the parts of library calls."""

    iterations: int
    steady: frozenset[int]
    part_times: Mapping[PartKey, float]
    evidence: Evidence


def _kernel(category: Category, members: Sequence[Member], context: _Context) -> Kernel:
    group = [activity for activity, _ in members]
    first = group[0]
    samples = [0.0] * context.iterations
    for activity in group:
        samples[activity.iteration] += activity.duration_s
    counted = [member for member in members if member[0].iteration in context.steady]
    calls = len(counted) / len(context.steady)
    definition = first.kernel if first.kind == "kernel" else None
    shapes = _shape_groups(counted, context) if definition is None else ()
    evidence = context.evidence
    moved, flops = _work(definition, shapes, calls, evidence) if counted else (None, None)
    compiled = evidence.compiled.get(definition.name, CompiledKernel()) if definition else CompiledKernel()
    events = [activity.event for activity in group if activity.event is not None]
    sites = list(dict.fromkeys(activity.call for activity in group if activity.call is not None))
    return Kernel(
        name=first.name,
        kernel_id=definition.kernel_id if definition else "",
        family_id=definition.family_id if definition else "",
        category=category,
        calls=calls,
        time_s=sum(activity.duration_s for activity, _ in counted) / len(context.steady),
        samples_s=tuple(samples),
        share=0.0,
        wall_share=None,
        work=LeastWork(moved, flops, _dtype(members, evidence)),
        line=definition.line if definition else None,
        kernel_hash=definition.kernel_hash if definition else None,
        compiled=replace(
            compiled,
            config=first.config or compiled.config,
            registers=compiled.registers or _common([event.registers for event in events]),
            shared_memory_bytes=_common([event.shared_memory_bytes for event in events])
            or compiled.shared_memory_bytes,
        ),
        launch=LaunchShape(
            occupancy=_occupancy(events),
            grid=_common([event.grid for event in events]) or (),
            block=_common([event.block for event in events]) or (),
        ),
        operator=first.operator.replace("::", ".", 1) if first.operator else None,
        shapes=shapes,
        origin=Origin(
            source_nodes=tuple(dict.fromkeys(node for site in sites for node in site.source_nodes)),
            aten_ops=tuple(dict.fromkeys(op for site in sites for op in site.aten_ops)),
            source_lines=tuple(
                dict.fromkeys(line for site in sites for line in evidence.source_lines.get(site.handle or "", ()))
            ),
            padded_sides=definition.padded_sides if definition else (),
        ),
        unjudged=_unjudged(definition, counted, evidence),
        dram_bytes=dram_part(moved, (activity for activity, _ in counted), evidence.dram_shares),
    )


def _work(
    definition: KernelDefinition | None, shapes: Sequence[ShapeGroup], calls: float, evidence: Evidence
) -> tuple[float | None, float | None]:
    """Moved bytes and FLOPs of all calls of one iteration; each is ``None`` where it is unknown for any call."""
    if definition is None:
        return _total(shape.moved_bytes for shape in shapes), _total(shape.flops for shape in shapes)
    per_call = evidence.kernel_bytes.get(definition.name, definition.moved_bytes)
    flops = definition.template_flops
    return (per_call * calls if per_call is not None else None), (flops * calls if flops is not None else None)


def _total(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return sum(value for value in known if value is not None) if known and None not in known else None


def _shape_groups(members: Sequence[Member], context: _Context) -> tuple[ShapeGroup, ...]:
    alike: dict[tuple[TensorArguments | None, OperatorPart | None], list[Activity]] = defaultdict(list)
    for activity, part in members:
        alike[activity.arguments, part].append(activity)
    groups = [_shape_group(arguments, part, group, context) for (arguments, part), group in alike.items()]
    return tuple(sorted(groups, key=lambda group: -group.time_s))


def _shape_group(
    arguments: TensorArguments | None, part: OperatorPart | None, group: Sequence[Activity], context: _Context
) -> ShapeGroup:
    iterations = len(context.steady)
    # Several kernels may share one part. Each gets a portion of its work by time, so that the work is counted once.
    portion = sum(_portion(activity, part, context) for activity in group) / iterations
    cost = context.evidence.costs.get((part.operator, part.arguments), UNKNOWN) if part else UNKNOWN
    moved = cost.moved_bytes * portion if cost.moved_bytes is not None else None
    if part is None:
        transferred = transferred_bytes(group)
        moved = transferred / iterations if transferred is not None else None
    return ShapeGroup(
        shapes=_describe(arguments, part),
        calls=len(group) / iterations,
        time_s=sum(activity.duration_s for activity in group) / iterations,
        operator_calls=portion,
        flops=cost.flops * portion if cost.flops is not None else None,
        moved_bytes=moved,
        dram_bytes=dram_part(moved, group, context.evidence.dram_shares),
    )


def _describe(arguments: TensorArguments | None, part: OperatorPart | None) -> str:
    shown = part.arguments if part else arguments
    return " ".join(text for text in (part.label if part else "", describe_arguments(shown) if shown else "") if text)


def _portion(activity: Activity, part: OperatorPart | None, context: _Context) -> float:
    whole = context.part_times[_part_key(activity, part)] if part else 0.0
    return activity.duration_s / whole if whole else 0.0


def _unjudged(definition: KernelDefinition | None, members: Sequence[Member], evidence: Evidence) -> str:
    """The reason why a kernel cannot be compared with a roof; empty where it can."""
    if definition is not None:
        has_products = definition.template_flops is None and MATRIX_PRODUCT.search(definition.source)
        return "how large its matrix products are is not known" if has_products else ""
    for activity, part in members:
        if activity.kind == "kernel" and activity.operator:
            if part is None:
                return f"it does none of the work that is counted for {activity.operator.replace('::', '.', 1)}"
            reason = evidence.costs.get((part.operator, part.arguments), UNKNOWN).reason
            if reason:
                return reason
    return ""


def _dtype(members: Sequence[Member], evidence: Evidence) -> str | None:
    if members[0][0].kind != "kernel":
        return None
    found = (evidence.costs.get((part.operator, part.arguments)) for _, part in members if part is not None)
    first = members[0][0]
    dtype = next((cost.dtype for cost in found if cost is not None and cost.dtype), None)
    dtype = dtype or (dtype_of(first.arguments) if first.arguments else None)
    return "tf32" if dtype == "float32" and first.kernel is None and TF32_NAME.search(first.name) else dtype


def _common(values: Sequence[Value | None]) -> Value | None:
    """The value if all are equal, otherwise ``None``."""
    return values[0] if values and all(value == values[0] for value in values) else None


def _occupancy(events: Sequence[DeviceEvent]) -> float | None:
    """The mean occupancy (0 to 1) weighted by time; ``None`` where the occupancy of any launch is unknown."""
    known = [(event.occupancy, event.duration_s) for event in events if event.occupancy is not None]
    time_s = sum(duration for _, duration in known)
    if len(known) < len(events) or not time_s:
        return None
    return round(sum(share * duration for share, duration in known) / time_s, 4)

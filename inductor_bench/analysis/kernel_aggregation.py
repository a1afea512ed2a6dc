"""Aggregates the activities of a trace into kernels and categories. Each activity is counted exactly once.

``roofline`` adds the shares of peak and the gain limits.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ..records.category import Category
from ..records.code.details import CompiledKernel
from ..records.code.source import KernelDefinition, SourceLine
from ..records.kernel import Kernel, LaunchShape, Origin, ShapeGroup, Work
from ..records.module import CategoryTotal
from ..records.traced.activity import Activity
from ..records.traced.operators import OperatorCost
from ..records.traced.trace import DeviceEvent, TensorArguments
from .classification import classify
from .parts import Part, find_parts
from .shapes import describe_arguments, dtype_of
from .traffic.kernel_bytes import transferred_bytes
from .traffic.residence import dram_part

OUTLIER_FACTOR = 1.5
"""Ratio to the lower quartile of the iteration times above which an iteration counts as disturbed."""

TF32_NAME = re.compile(r"tf32|tensorop_s?(1688|16816)")
"""Matches the names of library kernels that multiply float32 data on tensor cores."""

MATRIX_PRODUCT = re.compile(r"\btl\.dot(_scaled)?\(")

CostKey = tuple[str, TensorArguments]
KernelKey = tuple[Category, str, str]
UNKNOWN = OperatorCost()
Value = TypeVar("Value")
Member = tuple[Activity, Part | None]
PartKey = tuple[int, int, Part]


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


def _part_key(activity: Activity, part: Part) -> PartKey:
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
        work=Work(moved, flops, _dtype(members, evidence)),
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
    alike: dict[tuple[TensorArguments | None, Part | None], list[Activity]] = defaultdict(list)
    for activity, part in members:
        alike[activity.arguments, part].append(activity)
    groups = [_shape_group(arguments, part, group, context) for (arguments, part), group in alike.items()]
    return tuple(sorted(groups, key=lambda group: -group.time_s))


def _shape_group(
    arguments: TensorArguments | None, part: Part | None, group: Sequence[Activity], context: _Context
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


def _describe(arguments: TensorArguments | None, part: Part | None) -> str:
    shown = part.arguments if part else arguments
    return " ".join(text for text in (part.label if part else "", describe_arguments(shown) if shown else "") if text)


def _portion(activity: Activity, part: Part | None, context: _Context) -> float:
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

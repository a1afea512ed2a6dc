"""Aggregates the activities of a trace into kernels and categories. Each activity is counted exactly once."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from ..records.base import Category, sum_known
from ..records.code import CompiledKernel, KernelDefinition, LayerMap, SourceLine, is_users_line
from ..records.module import CategoryTotal, Kernel, LaunchShape, LeastWork, Origin, RooflineResult, ShapeGroup
from ..records.run import GRAPH, Peaks
from ..records.traced import Activity, DeviceEvent, OperatorCost, TensorArguments, Work
from ..source.generated_text import compute_operator_id
from ..trace.program_works import ProgramWorks
from .call_work import OperatorPart, classify, count_transferred_bytes, describe_arguments, find_dtype, find_parts
from .roofline import TimedWork, judge_groups

OUTLIER_FACTOR = 1.5
"""An iteration counts as disturbed if it takes more than this many times the lower quartile of all iterations."""

TF32_NAME = re.compile(r"tf32|tensorop_s?(1688|16816)")
"""Matches the names of library kernels that multiply float32 data on tensor cores."""

IN_BFLOAT16 = frozenset({Category.EXTERN_GEMM, Category.EXTERN_ATTENTION})
"""The operators that a processor computes in bfloat16 if float32 products may use it.

Convolutions have a setting of their own, and Inductor's templates multiply in float32. (torch 2.13, by the outputs)
"""

UNJUDGED = frozenset({Category.COLLECTIVE, Category.MEMSET})
"""Links have roofs of their own, which are not measured. The bytes of a memset may never reach the memory."""

TRANSFER = "Memcpy"
"""The profiler's names of copies that a copy engine does and no kernel. These engines have roofs of their own."""

MATRIX_PRODUCT = re.compile(r"\btl\.dot(_scaled)?\(")

DRAWS_ON_CPU = re.compile(r"\b(normalized_rand|randn|randint64)_cpu\(")
"""How a C++ kernel draws a random number, which takes many times as long as moving one. (torch 2.13)"""

MOST_VISITS = 8
"""If the loops of a C++ kernel visit more elements than this for each four bytes that it moves, its bytes do not limit
it. Of 340 kernels of 26 programs all but one visit at most 2.2. One sums over all pairs of 1,500 points: 321."""

_BOUNDS = r"(\w+)=static_cast<int64_t>\((\d+)L\); \1<static_cast<int64_t>\((\d+)L\); \1\+="
_LOOP = re.compile(rf"for\s*\(int64_t {_BOUNDS}|for\s*\(int64_t |[{{}}]")
"""A loop with its bounds, any other loop, or a brace of a C++ kernel as Inductor writes it. (torch 2.13)"""

CostKey = tuple[str, TensorArguments]
GroupKey = tuple[Category, str, str]  # category, name, and the kernel's variable or the operator
UNKNOWN = OperatorCost()
Value = TypeVar("Value")
Member = tuple[Activity, OperatorPart | None]
PartKey = tuple[int, int, OperatorPart]


KernelIdentity = tuple[Category, str, str]
"""Category, name, and the kernel's id; of a library kernel its operator."""


class OwnTime(NamedTuple):
    """A kernel's calls and seconds in one iteration of its module's own run."""

    key: KernelIdentity
    calls: float
    time_s: float
    of_library: bool


class StepUse(NamedTuple):
    """The calls and seconds of a kernel in one step; ``estimated`` if the step's trace does not show the kernel."""

    calls: float
    time_s: float
    estimated: bool = False


@dataclass(frozen=True)
class KernelFacts:
    """What is known of a module's kernels beside their activities."""

    costs: Mapping[CostKey, OperatorCost] = field(default_factory=dict)  # of library operators
    # Bytes that one call of a kernel accesses, by its name, if its own count is missing or low.
    kernel_bytes: Mapping[str, float] = field(default_factory=dict)
    compiled: Mapping[str, CompiledKernel] = field(default_factory=dict)  # by kernel name
    source_lines: Mapping[str, Sequence[SourceLine]] = field(default_factory=dict)  # by provenance handle
    layers: LayerMap = field(default_factory=LayerMap)
    # DRAM's bytes per byte that a call site of the module touches in the program's step, by its index.
    dram_shares: Mapping[int, float] = field(default_factory=dict)
    peaks: Peaks | None = None  # of the module's device
    tf32: bool = False  # whether all float32 products may use TF32
    bf16: bool = False  # whether those of library calls may use bfloat16
    whole_s: float | None = None  # the time to which shares of the wall time refer
    module_file: str | None = None  # the file that defines the module's own kernels
    files: Mapping[str, str] = field(default_factory=dict)  # standalone files by kernel id
    called_at: Sequence[SourceLine] = ()  # the lines of the program that call the module
    # The use of kernels in a step of the program; None if no step was observed.
    use_in_step: Callable[[Sequence[OwnTime]], Sequence[StepUse | None]] | None = None
    step_time_s: float = 0.0  # the time of that step
    call_times: Mapping[CostKey, float] = field(default_factory=dict)  # seconds of library calls in that step


def find_steady_iterations(activities: Iterable[Activity], count: int) -> tuple[int, ...]:
    """Selects the undisturbed iterations: their device time is at most :data:`OUTLIER_FACTOR` times the lower quartile.

    The lower quartile is the reference because on a busy CPU half of the iterations can be disturbed, and so the
    median.

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
    activities: Sequence[Activity], iterations: int, steady: Sequence[int], facts: KernelFacts
) -> tuple[Kernel, ...]:
    """Aggregates activities into kernels, the most expensive first, with times per iteration and shares of device time.

    Args:
        activities: the activities of all iterations.
        iterations: the number of iterations.
        steady: the iterations that count (see :func:`find_steady_iterations`); empty only if there are no activities.
        facts: what is known beside the activities.
    """
    found: dict[GroupKey, list[Member]] = defaultdict(list)
    members = list(zip(activities, find_parts(activities), strict=True))
    for member in members:
        found[_make_key(member[0])].append(member)
    groups = [_group(key[0], group, frozenset(steady), facts) for key, group in found.items()]
    context = _Context(
        iterations,
        len(steady),
        _sum_part_times(members),
        sum(group.time_s for group in groups),
        frozenset(group.category for group in groups if group.dtype == "tf32"),
        facts,
    )
    groups.sort(key=lambda group: (-group.time_s, group.name))
    uses = facts.use_in_step([group.own for group in groups]) if facts.use_in_step else [None] * len(groups)
    return tuple(_make_kernel(group, use, context) for group, use in zip(groups, uses, strict=True))


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


def _make_key(activity: Activity) -> GroupKey:
    category = classify(activity)
    if activity.kernel is not None and activity.kind == "kernel":
        return category, activity.name, activity.kernel.name
    return category, activity.name, activity.operator or ""


def _sum_part_times(members: Iterable[Member]) -> dict[PartKey, float]:
    """The device time in seconds of each part of each library call, summed over the kernels that share the part."""
    times: dict[PartKey, float] = defaultdict(float)
    for activity, part in members:
        if part is not None:
            times[_make_part_key(activity, part)] += activity.duration_s
    return times


def _make_part_key(activity: Activity, part: OperatorPart) -> PartKey:
    # An operator called inside another operator is a separate call, even if two such calls have the same arguments.
    event = activity.event
    instance = event.host_op if event is not None and part.operator != activity.operator else activity.instance
    return activity.iteration, instance, part


@dataclass(frozen=True)
class _Group:
    """The activities of one kernel; ``counted`` are those of the steady iterations. Figures are per iteration."""

    category: Category
    members: Sequence[Member]
    counted: Sequence[Member]
    definition: KernelDefinition | None
    calls: float
    time_s: float
    dtype: str | None

    @property
    def first(self) -> Activity:
        return self.members[0][0]

    @property
    def name(self) -> str:
        return self.first.name

    @property
    def operator(self) -> str | None:
        return self.first.operator.replace("::", ".", 1) if self.first.operator else None

    @property
    def own(self) -> OwnTime:
        identity = self.definition.kernel_id if self.definition else self.operator or ""
        return OwnTime((self.category, self.name, identity), self.calls, self.time_s, self.definition is None)


@dataclass(frozen=True)
class _Context:
    """What all kernels of a module share. ``part_times`` holds the seconds of the parts of library calls."""

    iterations: int
    steady: int
    part_times: Mapping[PartKey, float]
    total_s: float
    in_tf32: frozenset[Category]  # in which some kernel proves that float32 products use TF32
    facts: KernelFacts


def _group(category: Category, members: Sequence[Member], steady: frozenset[int], facts: KernelFacts) -> _Group:
    first = members[0][0]
    counted = [member for member in members if member[0].iteration in steady]
    return _Group(
        category=category,
        members=members,
        counted=counted,
        definition=first.kernel if first.kind == "kernel" else None,
        calls=len(counted) / len(steady),
        time_s=sum(activity.duration_s for activity, _ in counted) / len(steady),
        dtype=_find_dtype(members, facts),
    )


def _make_kernel(group: _Group, use: StepUse | None, context: _Context) -> Kernel:
    facts, definition = context.facts, group.definition
    samples = [0.0] * context.iterations
    for activity, _ in group.members:
        samples[activity.iteration] += activity.duration_s
    shapes = _list_shape_groups(group.counted, context) if definition is None else ()
    moved, flops = _describe_work(definition, shapes, group.calls, facts) if group.counted else (None, None)
    work = LeastWork(moved, flops, _find_product_type(group, context) if flops else group.dtype)
    dram_bytes = compute_dram_bytes(moved, (activity for activity, _ in group.counted), facts.dram_shares)
    unjudged = _explain_missing_roof(definition, group.counted, facts)
    is_judged = not (unjudged or group.category in UNJUDGED or group.name.startswith(TRANSFER))
    kernel_id, family_id = _compute_ids(group, shapes)
    events = [activity.event for activity, _ in group.members if activity.event is not None]
    return Kernel(
        name=group.name,
        kernel_id=kernel_id,
        family_id=family_id,
        category=group.category,
        calls=group.calls,
        time_s=group.time_s,
        samples_s=tuple(samples),
        share=group.time_s / context.total_s if context.total_s else 0.0,
        wall_share=group.time_s / facts.whole_s if facts.whole_s else None,
        work=work,
        roof=judge_in_step(group.own, use, work, shapes, dram_bytes, facts.peaks if is_judged else None),
        file=facts.files.get(kernel_id, facts.module_file if definition else None),
        line=definition.line if definition else None,
        kernel_hash=definition.kernel_hash if definition else None,
        compiled=_find_compiled(group, events, facts),
        launch=LaunchShape(
            occupancy=_average_occupancy(events),
            grid=_keep_common_values([event.grid for event in events]) or (),
            block=_keep_common_values([event.block for event in events]) or (),
        ),
        operator=group.operator,
        shapes=shapes,
        origin=_find_origin(group, facts),
        unjudged=unjudged,
        step_calls=use.calls if use else None,
        step_time_s=use.time_s if use else None,
        step_share=use.time_s / facts.step_time_s if use else None,
        dram_bytes=dram_bytes,
        bfloat16_ratio=_compute_bfloat16_ratio(group, facts) if definition is None else None,
    )


def _compute_bfloat16_ratio(group: _Group, facts: KernelFacts) -> float | None:
    """The time of a library kernel's calls in bfloat16, divided by their time in float32; ``None`` if none was timed.

    Calls that were not timed count as equally long in both.
    """
    times: dict[CostKey, float] = {
        key: time_s for key, time_s in facts.call_times.items() if key[0] == group.first.operator
    }
    if not times:
        times = defaultdict(float)
        for activity, part in group.counted:
            if part is not None:
                times[part.operator, part.arguments] += activity.duration_s
    ratios = {key: facts.costs.get(key, UNKNOWN).bfloat16_ratio for key in times}
    whole_s = sum(times.values())
    if not whole_s or all(ratio is None for ratio in ratios.values()):
        return None
    return (
        sum(
            time_s * (1.0 if ratio is None else ratio)
            for time_s, ratio in zip(times.values(), ratios.values(), strict=True)
        )
        / whole_s
    )


def _find_product_type(group: _Group, context: _Context) -> str | None:
    """The type that a group's matrix products are computed in."""
    if group.dtype != "float32":
        return group.dtype
    if context.facts.tf32 or group.category in context.in_tf32:
        return "tf32"
    return "bfloat16" if context.facts.bf16 and group.category in IN_BFLOAT16 else "float32"


def _compute_ids(group: _Group, shapes: Sequence[ShapeGroup]) -> tuple[str, str]:
    """The kernel's id and that of its family."""
    if group.definition is not None:
        return group.definition.kernel_id, group.definition.family_id
    operator = group.operator or ""
    named = "; ".join(sorted(shape.shapes for shape in shapes))
    alike = "; ".join(sorted({re.sub(r"\b\d+\b", "N", shape.shapes) for shape in shapes}))
    return compute_operator_id(f"{operator} {group.name}", named), compute_operator_id(
        f"{operator or group.name} family", alike
    )


def _find_compiled(group: _Group, events: Sequence[DeviceEvent], facts: KernelFacts) -> CompiledKernel:
    known = CompiledKernel()
    if group.definition is not None:
        known = facts.compiled.get(group.definition.name, known)
    return replace(
        known,
        config=group.first.config or known.config,
        registers=known.registers or _keep_common_values([event.registers for event in events]),
        shared_memory_bytes=_keep_common_values([event.shared_memory_bytes for event in events])
        or known.shared_memory_bytes,
    )


def _find_origin(group: _Group, facts: KernelFacts) -> Origin:
    sites = list(dict.fromkeys(activity.call for activity, _ in group.members if activity.call is not None))
    lines = [line for site in sites for line in facts.source_lines.get(site.handle or "", ())]
    shares = (one for site in sites for one in facts.layers.kernels.get(site.handle or "", ()))
    return Origin(
        source_nodes=tuple(dict.fromkeys(node for site in sites for node in site.source_nodes)),
        aten_ops=tuple(dict.fromkeys(op for site in sites for op in site.aten_ops)),
        source_lines=tuple(dict.fromkeys(lines)),
        called_at=() if any(map(is_users_line, lines)) else tuple(facts.called_at),
        layers=tuple(dict.fromkeys(one.layer for one in shares if one.layer)),
        padded_sides=group.definition.padded_sides if group.definition else (),
    )


def judge_in_step(
    own: OwnTime,
    use: StepUse | None,
    work: LeastWork,
    shapes: Sequence[ShapeGroup],
    dram_bytes: float | None,
    peaks: Peaks | None,
) -> RooflineResult:
    """Compares a kernel with its roof by the time of its calls in the step, for which the DRAM bytes are known.

    A kernel that the step does not run is compared by the module's own run. A library kernel is compared with its part
    of each call, because the kernels of one part share its bytes and FLOPs.
    """
    slowdown = 1.0
    if use and use.calls and use.time_s and own.calls and own.time_s:
        slowdown = use.time_s / use.calls / (own.time_s / own.calls)
    if not shapes:
        return judge_groups([_describe_timed_work(own.time_s * slowdown, own.calls, work, dram_bytes)], peaks)
    timed = [
        _describe_timed_work(
            shape.time_s * slowdown,
            shape.operator_calls,
            LeastWork(shape.moved_bytes, shape.flops, work.dtype),
            shape.dram_bytes,
        )
        for shape in shapes
    ]
    return judge_groups(timed, peaks)


def compute_dram_bytes(
    moved: float | None, activities: Iterable[Activity], shares: Mapping[int, float]
) -> float | None:
    """Returns DRAM's part of the bytes that activities move; ``None`` if the share of some call site is unknown.

    Args:
        moved: the bytes of all activities; ``None`` if they are unknown.
        activities: the activities. A call site counts by its time.
        shares: the shares of the module's call sites.
    """
    total = time_s = 0.0
    for activity in activities if moved is not None and shares else ():
        share = shares.get(activity.call.index) if activity.call is not None else None
        if share is None:
            return None
        total += share * activity.duration_s
        time_s += activity.duration_s
    return moved * total / time_s if moved is not None and time_s else None


def _describe_timed_work(time_s: float, calls: float, work: LeastWork, dram_bytes: float | None) -> TimedWork:
    known = work.moved_bytes is not None and dram_bytes is not None
    cached = max(0.0, (work.moved_bytes or 0.0) - (dram_bytes or 0.0)) if known else None
    return TimedWork(time_s, calls, work, dram_bytes=dram_bytes, cache_bytes=cached)


def _describe_work(
    definition: KernelDefinition | None, shapes: Sequence[ShapeGroup], calls: float, facts: KernelFacts
) -> tuple[float | None, float | None]:
    """Returns the moved bytes and the FLOPs of one iteration; a figure is ``None`` if it is unknown for any call."""
    if definition is None:
        return sum_known(shape.moved_bytes for shape in shapes), sum_known(shape.flops for shape in shapes)
    per_call = facts.kernel_bytes.get(definition.name, definition.moved_bytes)
    flops = definition.template_flops
    return (per_call * calls if per_call is not None else None), (flops * calls if flops is not None else None)


def _list_shape_groups(members: Sequence[Member], context: _Context) -> tuple[ShapeGroup, ...]:
    alike: dict[tuple[TensorArguments | None, OperatorPart | None], list[Activity]] = defaultdict(list)
    for activity, part in members:
        alike[activity.arguments, part].append(activity)
    groups = [_make_shape_group(arguments, part, group, context) for (arguments, part), group in alike.items()]
    return tuple(sorted(groups, key=lambda group: -group.time_s))


def _make_shape_group(
    arguments: TensorArguments | None, part: OperatorPart | None, group: Sequence[Activity], context: _Context
) -> ShapeGroup:
    iterations = context.steady
    # Several kernels may share one part. Each gets a portion of its work by time, so that the work is counted once.
    portion = sum(_compute_portion(activity, part, context) for activity in group) / iterations
    cost = context.facts.costs.get((part.operator, part.arguments), UNKNOWN) if part else UNKNOWN
    moved = cost.moved_bytes * portion if cost.moved_bytes is not None else None
    if part is None:
        transferred = count_transferred_bytes(group)
        moved = transferred / iterations if transferred is not None else None
    return ShapeGroup(
        shapes=describe_call(arguments, part),
        calls=len(group) / iterations,
        time_s=sum(activity.duration_s for activity in group) / iterations,
        operator_calls=portion,
        flops=cost.flops * portion if cost.flops is not None else None,
        moved_bytes=moved,
        dram_bytes=compute_dram_bytes(moved, group, context.facts.dram_shares),
    )


def describe_call(arguments: TensorArguments | None, part: OperatorPart | None) -> str:
    """Describes the arguments of a library call, or of the kernel's part of the call."""
    shown = part.arguments if part else arguments
    return " ".join(text for text in (part.label if part else "", describe_arguments(shown) if shown else "") if text)


def _compute_portion(activity: Activity, part: OperatorPart | None, context: _Context) -> float:
    whole = context.part_times[_make_part_key(activity, part)] if part else 0.0
    return activity.duration_s / whole if whole else 0.0


def _explain_missing_roof(definition: KernelDefinition | None, members: Sequence[Member], facts: KernelFacts) -> str:
    """The reason why a kernel cannot be compared with a roof; empty if it can."""
    if definition is not None:
        if definition.template_flops is not None:
            return ""
        if MATRIX_PRODUCT.search(definition.source):
            return "how large its matrix products are is not known"
        return _explain_cpp_work(definition, facts) if definition.language == "cpp" else ""
    for activity, part in members:
        if activity.kind == "kernel" and activity.operator:
            if part is None:
                return f"it does none of the work that is counted for {activity.operator.replace('::', '.', 1)}"
            reason = facts.costs.get((part.operator, part.arguments), UNKNOWN).reason
            if reason:
                return reason
    return ""


def _explain_cpp_work(definition: KernelDefinition, facts: KernelFacts) -> str:
    """Says why a C++ kernel is not limited by its bytes; empty if it may be."""
    if DRAWS_ON_CPU.search(definition.source):
        return "it draws random numbers one by one, so its bytes do not limit it"
    moved, visits = facts.kernel_bytes.get(definition.name, definition.moved_bytes), count_visits(definition.source)
    if moved and visits and 4 * visits > MOST_VISITS * moved:
        return f"it computes with each element about {round(4 * visits / moved):,} times, so its bytes do not limit it"
    return ""


def count_visits(source: str) -> int | None:
    """Counts how often the loops of a C++ kernel visit an element; ``None`` if a loop's bounds are not numbers."""
    visits, open_blocks, next_size, is_innermost = 0, [1], 1, False
    for found in _LOOP.finditer(source):
        if found[2]:
            next_size = int(found[3]) - int(found[2])
        elif found[0] == "{":
            is_innermost = is_innermost or next_size > 1
            open_blocks.append(open_blocks[-1] * next_size)
            next_size = 1
        elif found[0] == "}":
            size = open_blocks.pop() if len(open_blocks) > 1 else 1
            if is_innermost and size > open_blocks[-1]:
                visits += size
                is_innermost = False
        else:
            return None
    return visits


def _find_dtype(members: Sequence[Member], facts: KernelFacts) -> str | None:
    if members[0][0].kind != "kernel":
        return None
    found = (facts.costs.get((part.operator, part.arguments)) for _, part in members if part is not None)
    first = members[0][0]
    dtype = next((cost.dtype for cost in found if cost is not None and cost.dtype), None)
    dtype = dtype or (find_dtype(first.arguments) if first.arguments else None)
    return "tf32" if dtype == "float32" and first.kernel is None and TF32_NAME.search(first.name) else dtype


def _keep_common_values(values: Sequence[Value | None]) -> Value | None:
    """The value if all are equal, otherwise ``None``."""
    return values[0] if values and all(value == values[0] for value in values) else None


def _average_occupancy(events: Sequence[DeviceEvent]) -> float | None:
    """The mean occupancy (0 to 1) weighted by time; ``None`` if the occupancy of any launch is unknown."""
    known = [(event.occupancy, event.duration_s) for event in events if event.occupancy is not None]
    time_s = sum(duration for _, duration in known)
    if len(known) < len(events) or not time_s:
        return None
    return round(sum(share * duration for share, duration in known) / time_s, 4)


def compute_tied_share(found: ProgramWorks) -> float | None:
    """The share of the compiled graphs' device time in the window that is tied to a call of the graph."""
    works = [
        work for work in found.works if work.kind == GRAPH and found.window.contains_host_time(work.launch_start_s)
    ]
    whole = sum(work.duration_s for work in works)
    tied = sum(work.duration_s for work in works if is_tied(work))
    return tied / whole if whole else None


def is_tied(work: Work) -> bool:
    """Whether the kernel or the operator of a graph's device event is known."""
    one = work.activity
    return one is not None and (one.call is not None or one.kernel is not None or one.operator is not None)

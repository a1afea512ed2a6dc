"""Finds why matched kernels differ: the seconds of each cause, and the cause in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from .. import units
from ..records.comparison import (
    ADDED,
    CALLS,
    CODE,
    CONFIG,
    GRAPH_REST,
    KERNEL_CAUSES,
    LIBRARY,
    MERGED,
    PRECISION,
    REMOVED,
    REST,
    SAME,
    SPLIT,
    UNCHANGED,
    UNDECIDED,
    EnvironmentDifference,
    KernelChange,
    KernelSide,
    PartChange,
    StepChange,
)
from ..records.run import IDLE, OTHERS
from .comparison_pairs import (
    INTERRUPTION,
    LEFT,
    SMALLEST_SHARE,
    GraphPair,
    Match,
    Noise,
    compute_kernel_effect_s,
    compute_kernel_error_s,
    compute_part_error_s,
    judge_difference,
)
from .comparison_sides import (
    Side,
    SideGraph,
    SideKernel,
    SidePart,
    Sources,
    compute_text_similarity,
    has_other_calls,
    has_other_precision,
    has_same_configs,
    have_same_calls,
    is_library,
)
from .comparison_words import INTERPRETER, TORCH, name_type
from .findings.finding import join_words, plural, shorten_paths

COUNTED = (CALLS, ADDED, REMOVED)
"""The causes that are derived from the number of calls in the profiled steps."""


@dataclass(frozen=True)
class Setting:
    """The facts besides the kernels that decide which cause a difference has."""

    noise: Noise  # the noise between the runs
    texts: tuple[Sources, Sources] = ({}, {})  # the texts of the kernels of both sides
    same_compiler: bool = True  # whether both sides have the same torch, Triton and device
    around: tuple[EnvironmentDifference, ...] = ()  # differences that may change the time of equal kernels
    edited: bool = False  # whether the program's own file differs
    is_busy: bool = False  # whether the load of another program may explain a difference
    choices: tuple[EnvironmentDifference, ...] = ()  # the differences that may change which config Inductor chooses
    # the median seconds of a call by kernel id and config, from the records' retunes
    tuned: tuple[tuple[str, dict[str, int], float], ...] = ()
    several: bool = False  # whether each side has several runs
    single_step: bool = False  # whether the parts of some run come from one profiled step only

    @property
    def explains_equal_kernels(self) -> bool:
        """Whether a reason is known, likelier than clock and noise, for which equal kernels take different times."""
        return bool(self.around) and not self.is_busy

    def shows_each_step(self, run_calls: Iterable[float]) -> bool:
        """Whether the profiled steps show how often each step makes these calls.

        ``run_calls`` has the mean of each run. If only some steps make a call, the few profiled steps of the other side
        may miss it.
        """
        return not self.single_step and all(math.isclose(calls, round(calls), abs_tol=1e-6) for calls in run_calls)


def describe_kernel_change(match: Match, setting: Setting) -> KernelChange:
    """Returns the difference of one match with its cause, interval and verdict."""
    seconds, detail = _find_cause(match, setting)
    a_s, b_s = (sum(kernel.time_s for kernel in kernels) for kernels in (match.a, match.b))
    cause = max(seconds, key=lambda name: (abs(seconds[name]), name != UNCHANGED))
    kernels = (*match.a, *match.b)
    error_s = math.hypot(compute_kernel_error_s(kernels), setting.noise.relative * max(a_s, b_s))
    low, high, verdict = judge_difference(a_s, b_s, error_s, compute_kernel_effect_s(match.a or match.b))
    if cause == UNCHANGED and verdict != SAME and not setting.explains_equal_kernels:
        verdict = UNDECIDED  # the difference comes from the clock or noise, not from the program
    if cause in COUNTED and not setting.shows_each_step(kernel.calls for kernel in kernels):
        verdict = UNDECIDED
    return KernelChange(
        _list_shown_kernels(match.a),
        _list_shown_kernels(match.b),
        b_s - a_s,
        low,
        high,
        verdict,
        cause,
        seconds,
        detail,
    )


def _find_cause(match: Match, setting: Setting) -> tuple[dict[str, float], str]:
    """The seconds by cause, and the words."""
    a_s, b_s = (sum(kernel.time_s for kernel in kernels) for kernels in (match.a, match.b))
    if not match.a or not match.b:
        return {(REMOVED if match.a else ADDED): b_s - a_s}, ""
    if match.equal:
        return _compare_same_code(match.a[0], match.b[0], setting)
    if len(match.a) == 1 == len(match.b) and not is_library(match.a[0]) and not is_library(match.b[0]):
        if has_other_precision(match.a[0], match.b[0]):
            return {PRECISION: b_s - a_s}, _describe_products(match.a[0], match.b[0])
        return {CODE: b_s - a_s}, _describe_code_change(match.a[0], match.b[0], setting)
    if any(is_library(kernel) for kernel in (*match.a, *match.b)):
        return _describe_library_change(match, b_s - a_s)
    counts = f"{plural(len(match.a), 'kernel')} of A, {len(match.b)} of B"
    cause = SPLIT if len(match.a) < len(match.b) else MERGED if len(match.a) > len(match.b) else CODE
    return {cause: b_s - a_s}, f"{counts} for {_work(match.a, match.b)}"


def _compare_same_code(a: SideKernel, b: SideKernel, setting: Setting) -> tuple[dict[str, float], str]:
    """Divides the difference of one kernel.

    More or fewer calls count with A's time per call; the change of the time per call counts for all calls of B.
    """
    delta = b.time_s - a.time_s
    seconds: dict[str, float] = {}
    words = []
    if not have_same_calls(a.calls, b.calls) and a.calls and b.calls:
        seconds[CALLS] = _compute_further_calls_s(a, b)
        words.append(f"{units.count(a.calls)} → {units.count(b.calls)} calls")
    elif not a.calls or not b.calls:
        return {CALLS: delta}, f"{units.count(a.calls)} → {units.count(b.calls)} calls"
    rest = delta - sum(seconds.values())
    if has_other_precision(a, b):
        return {**seconds, PRECISION: rest}, "; ".join([*words, _describe_products(a, b)])
    if not has_same_configs(a, b):
        return {**seconds, CONFIG: rest}, "; ".join([*words, _describe_configs(a, b, setting)])
    return {**seconds, UNCHANGED: rest}, "; ".join(words)


def _compute_further_calls_s(a: SideKernel, b: SideKernel) -> float:
    """Returns the seconds of the calls that only B makes, at A's time per call.

    Each shape counts alone if the shapes are known.
    """
    groups = _group_by_shapes(a), _group_by_shapes(b)
    if not groups[0].keys() & groups[1].keys():
        return (b.calls - a.calls) * a.time_s / a.calls
    found = 0.0
    for shapes in {**groups[0], **groups[1]}:
        (calls, time_s), (others, other_s) = (group.get(shapes, (0.0, 0.0)) for group in groups)
        found += (others - calls) * time_s / calls if calls else other_s
    return found


def _group_by_shapes(side: SideKernel) -> dict[str, tuple[float, float]]:
    """The calls and the seconds of a kernel by the shapes of its calls."""
    groups = side.kernel.shapes
    calls, time_s = sum(group.calls for group in groups), sum(group.time_s for group in groups)
    if not calls or not time_s:
        return {}
    return {group.shapes: (group.calls * side.calls / calls, group.time_s * side.time_s / time_s) for group in groups}


def _describe_library_change(match: Match, delta: float) -> tuple[dict[str, float], str]:
    libraries = [kernel for kernel in (*match.a, *match.b) if is_library(kernel)]
    operators = join_words(list(dict.fromkeys(kernel.kernel.operator or "" for kernel in libraries)))
    a, b = ([kernel for kernel in kernels if is_library(kernel)] for kernels in (match.a, match.b))
    if a and b and has_other_precision(a[0], b[0]):
        return {PRECISION: delta}, f"{operators}: {_describe_products(a[0], b[0])}"
    if a and b:
        return {LIBRARY: delta}, f"{operators}: another kernel of the library"
    what = join_words(list(dict.fromkeys(kernel.kernel.category.title for kernel in (match.b if a else match.a))))
    return {LIBRARY: delta}, f"{operators}: {f'a library → {what}' if a else f'{what} → a library'}"


def _describe_products(a: SideKernel, b: SideKernel) -> str:
    return f"float32 products in {name_type(a.float32_products)} → {name_type(b.float32_products)}"


def _describe_configs(a: SideKernel, b: SideKernel, setting: Setting) -> str:
    own = [units.seconds(kernel.time_s / kernel.calls if kernel.calls else None) for kernel in (a, b)]
    words = f"{find_differing_config(a.configs, b.configs)}: {own[0]} → {own[1]} a call"
    tuned = [
        time_s
        for configs in (a.configs, b.configs)
        for kernel_id, config, time_s in setting.tuned
        if kernel_id == a.kernel.kernel_id and config in configs
    ]
    if len(tuned) >= 2:
        words += f", timed side by side in a retune {units.seconds(tuned[0])} and {units.seconds(tuned[1])}"
    repeated = any(config in b.configs for config in a.configs)
    if repeated:
        return f"{words}; this may be chance: runs of the same side differ in this config, too"
    if setting.choices:
        return f"{words}; by {join_words([row.name for row in setting.choices])}, or chance"
    if setting.same_compiler:
        return f"{words}; chance"
    return f"{words}; another compiler's choice, or chance"


def find_differing_config(a: Sequence[dict[str, int]], b: Sequence[dict[str, int]]) -> str:
    """Returns the settings that differ: ``XBLOCK 512, num_warps 4 → XBLOCK 1024, num_warps 8``."""
    first, second = (configs[0] if configs else {} for configs in (a, b))
    if len(a) > 1 or len(b) > 1:
        first = next((config for config in a if config not in b), first)
        second = next((config for config in b if config not in a), second)
    names = [name for name in {**first, **second} if first.get(name) != second.get(name)]
    sides = (", ".join(f"{name} {config[name]}" for name in names if name in config) for config in (first, second))
    return " → ".join(side or "unknown" for side in sides)


def _describe_code_change(a: SideKernel, b: SideKernel, setting: Setting) -> str:
    first, second = a.kernel, b.kernel
    words = []
    if first.category != second.category:
        words.append(f"{first.category.title} → {second.category.title}")
    if first.family_id and first.family_id == second.family_id:
        words.append("the same structure with other sizes")
    texts = setting.texts[0].get((a.graph, first.name)), setting.texts[1].get((b.graph, second.name))
    if texts[0] and texts[1]:
        words.append(f"{units.whole_percent(compute_text_similarity(texts[0], texts[1]))} of the lines are equal")
    return "; ".join(words)


def _work(*sides: Iterable[SideKernel]) -> str:
    operators = dict.fromkeys(op for kernels in sides for kernel in kernels for op in kernel.kernel.origin.aten_ops)
    return join_words(list(operators)) or "the same work"


def _list_shown_kernels(kernels: Iterable[SideKernel]) -> tuple[KernelSide, ...]:
    return tuple(
        KernelSide(
            one.kernel.name,
            one.kernel.kernel_id,
            one.kernel.category,
            one.graph,
            one.calls,
            one.time_s,
            one.configs,
            one.kernel.file,
            one.kernel.operator,
        )
        for one in kernels
    )


# The parts of the difference of two steps. Kernels are grouped by cause; the other parts are not kernels. The parts add
# up to the difference.


NEGLIGIBLE = 1e-9
"""The largest difference between a step and the sum of its parts that counts as a rounding error, as a share of the
step."""


LEFT_WORDS = "only roughly known: it is the unprofiled step minus the profiled work, and in some run nothing is left"


@dataclass(frozen=True)
class VerdictBasis:
    """The figures with which the verdicts on parts are made."""

    setting: Setting
    idle_noise: Noise  # the noise of idle time
    least_s: float  # the least difference that counts
    step_s: float  # the longer step
    on_host: bool = False  # whether the device is the host itself


def divide_difference(
    a: Side, b: Side, graphs: Sequence[GraphPair], kernels: Sequence[KernelChange], step: StepChange, setting: Setting
) -> list[PartChange]:
    """Returns the parts, the largest difference first. The time that belongs to no part comes last."""
    least = SMALLEST_SHARE * step.a_s
    idle_noise = replace(setting.noise, relative=step.noise)
    limits = VerdictBasis(setting, idle_noise, least, max(a.step_s, b.step_s), a.on_host)
    rows = [
        *_make_kernel_parts(kernels, limits),
        *_make_rest_of_graphs(graphs, limits),
        *_make_other_parts(a, b, limits),
    ]
    rows = sorted((row for row in rows if row.a_s or row.b_s), key=lambda row: -abs(row.delta_s))
    a_s, b_s = step.a_s - sum(row.a_s for row in rows), step.b_s - sum(row.b_s for row in rows)
    least_rest = NEGLIGIBLE * limits.step_s
    if max(abs(a_s), abs(b_s)) > least_rest:
        a_s, b_s = (0.0 if abs(rest_s) <= least_rest else rest_s for rest_s in (a_s, b_s))
        delta = step.delta_s - sum(row.delta_s for row in rows)
        rows.append(PartChange(a_s, b_s, delta, None, None, UNDECIDED, REST))
    return rows


def _make_kernel_parts(kernels: Sequence[KernelChange], limits: VerdictBasis) -> Iterator[PartChange]:
    """Yields a part for each cause. The time of a kernel belongs to its main cause; see :func:`_time_in_a`."""
    for cause in KERNEL_CAUSES:
        rows = [change for change in kernels if cause in change.seconds]
        if not rows:
            continue
        a_s = sum(_time_in_a(change, cause) for change in rows)
        delta = sum(change.seconds[cause] for change in rows)
        own = math.hypot(*((change.high_s - change.low_s) / 2 for change in rows))
        error = math.hypot(own, limits.setting.noise.relative * max(a_s, a_s + delta))
        low, high, verdict = judge_difference(a_s, a_s + delta, error, limits.least_s)
        detail = _describe_surroundings(limits.setting) if cause == UNCHANGED else ""
        if cause == UNCHANGED and verdict != SAME and not limits.setting.explains_equal_kernels:
            verdict = UNDECIDED
        run_calls = (side.calls for change in rows for side in (*change.a, *change.b))
        if cause in COUNTED and not limits.setting.shows_each_step(run_calls):
            verdict = UNDECIDED
        yield PartChange(a_s, a_s + delta, delta, low, high, verdict, cause, detail=detail, kernels=len(rows))


def _time_in_a(change: KernelChange, cause: str) -> float:
    """Returns the seconds of A that belong to a cause.

    These are the seconds that the cause removes and, for the main cause, all that remain.
    """
    taken = {name: -seconds for name, seconds in change.seconds.items() if name != change.cause and seconds < 0}
    if cause != change.cause:
        return taken.get(cause, 0.0)
    return sum(side.time_s for side in change.a) - sum(taken.values())


def _describe_surroundings(setting: Setting) -> str:
    if not setting.around:
        return "clocks and noise"
    versions = any(row.name == TORCH for row in setting.around)
    rows = [row for row in setting.around if row.name != INTERPRETER or not versions]
    changes = (f"{row.name} {row.a or 'not set'} → {row.b or 'not set'}" for row in rows)
    return f"not the generated code: {join_words(list(changes), 2)}, or clocks and noise"


def _make_rest_of_graphs(graphs: Sequence[GraphPair], limits: VerdictBasis) -> Iterator[PartChange]:
    rests = []
    for sides in ([pair.a for pair in graphs], [pair.b for pair in graphs]):
        found = [_compute_time_outside_of_kernels(graph) for graph in sides if graph is not None]
        rest = [sum(times) for times in zip(*found, strict=True)] or [0.0]
        rests.append(rest if abs(fmean(rest)) > NEGLIGIBLE * limits.step_s else [0.0] * len(rest))
    a_s, b_s = rests
    if any(a_s) or any(b_s):
        row = _make_part(IDLE, a_s, b_s, limits, GRAPH_REST, "", "")
        yield row if _has_cause(row, (), limits) else _make_undecided_row(row)


def _compute_time_outside_of_kernels(graph: SideGraph) -> list[float]:
    """Returns the seconds of a graph in each run, without those of its kernels."""
    return [
        whole - sum(kernel.times_s[number] for kernel in graph.kernels) for number, whole in enumerate(graph.times_s)
    ]


def _make_other_parts(a: Side, b: Side, limits: VerdictBasis) -> Iterator[PartChange]:
    rows: tuple[dict[tuple[str, str], SidePart], ...] = tuple(
        {(part.kind, part.label): part for part in side.parts} for side in (a, b)
    )
    for kind, label in dict.fromkeys([*rows[0], *rows[1]]):
        one, other = (found.get((kind, label)) for found in rows)
        a_s, b_s = (part.times_s if part else (0.0,) * len(side.runs) for part, side in ((one, a), (other, b)))
        if label == LEFT:  # two windows of the program are compared, not a single change
            row = _make_part(kind, a_s, b_s, limits, kind, label, LEFT_WORDS)
            yield replace(row, low_s=min(0.0, row.delta_s), high_s=max(0.0, row.delta_s), verdict=UNDECIDED)
            continue
        detail = _describe_part(kind, one, other, same_file=a.runs[0].program_file == b.runs[0].program_file)
        row = _make_part(kind, a_s, b_s, limits, kind, label, detail)
        if kind != IDLE:
            calls = [part.calls if part else 0.0 for part in (one, other)]
            row = replace(row, a_calls=calls[0], b_calls=calls[1])
        run_calls = [calls for part in (one, other) if part for calls in part.run_calls]
        yield row if _has_cause(row, run_calls, limits) else _make_undecided_row(row)


def _has_cause(row: PartChange, run_calls: Sequence[float], limits: VerdictBasis) -> bool:
    """Whether the records of the two sides show a reason why a part that is not a kernel becomes slower or faster."""
    setting = limits.setting
    around = (setting.edited and not setting.is_busy) or (setting.several and setting.explains_equal_kernels)
    if not has_other_calls(row):
        return around or not limits.on_host
    if not limits.setting.shows_each_step(run_calls):
        return False
    more = ((row.b_calls or 0.0) - (row.a_calls or 0.0)) * row.delta_s > 0
    return around or more or not limits.on_host


def _make_undecided_row(row: PartChange) -> PartChange:
    """Returns the part, marked as undecided."""
    return row if row.verdict == SAME else replace(row, verdict=UNDECIDED)


def _make_part(
    kind: str, a_s: Sequence[float], b_s: Sequence[float], limits: VerdictBasis, cause: str, label: str, detail: str
) -> PartChange:
    noise = limits.idle_noise if kind == IDLE else limits.setting.noise
    error_s = compute_part_error_s(kind, a_s, b_s, noise, limits.step_s, on_host=limits.on_host)
    a, b = fmean(a_s), fmean(b_s)
    if label == OTHERS:  # one side may list what the other side sums up
        error_s = math.hypot(error_s, INTERRUPTION * limits.setting.noise.relative * limits.step_s)
    low, high, verdict = judge_difference(a, b, error_s, limits.least_s)
    return PartChange(a, b, b - a, low, high, verdict, cause, label, detail)


def _describe_part(kind: str, a: SidePart | None, b: SidePart | None, *, same_file: bool = True) -> str:
    """Says which calls and which lines of the program are new or gone.

    Lines of two files have nothing in common, so they are said only of a part of one side.
    """
    words = []
    calls = [part.calls if part else 0.0 for part in (a, b)]
    if kind != IDLE and not have_same_calls(*calls):
        words.append(f"{units.count(calls[0])} → {units.count(calls[1])} calls")
    places = [part.places if part else () for part in (a, b)]
    new = [place for place in places[1] if place not in places[0]]
    gone = [place for place in places[0] if place not in places[1]]
    if new and (same_file or a is None):
        words.append(f"in B at {join_words(list(map(shorten_paths, new)), 2)}")
    elif gone and b is None:
        words.append(f"in A at {join_words(list(map(shorten_paths, gone)), 2)}")
    return ", ".join(words)

"""Divides the device time and the work of a step among the modules of the model and the lines of the program.

The modules make a tree, and so do the lines.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..records.base import Category
from ..records.code import BACKWARD, FORWARD, RECOMPUTED, LayerMap, LayerShare, SourceLine, is_users_line
from ..records.evidence import CallPlace, GraphCallers
from ..records.module import Kernel, ModuleRecord
from ..records.run import EAGER, GRAPH, LayerTime, LayerWork, LineTime, Peaks
from ..records.traced import Activity, GraphCall, Work
from .call_work import classify, classify_operator, find_parts
from .kernel_aggregation import KernelIdentity, describe_call
from .ledger import Steps, make_activity_key, make_kernel_key
from .roofline import find_matrix_roof

PRODUCTS = frozenset({Category.EXTERN_GEMM, Category.EXTERN_CONV, Category.EXTERN_ATTENTION, Category.TEMPLATE})
"""The categories of matrix products, convolutions and attention."""

_BACKWARD_PRODUCT = re.compile(r"(\w*mm|mv|dot|linear|matmul|\w*convolution|\w*attention\w*)backward\d*", re.IGNORECASE)


class LaunchWork(NamedTuple):
    """The FLOPs and bytes of one launch, and the peak for its type."""

    is_product: bool = False  # whether it computes a matrix product, a convolution or an attention
    flops: float | None = None
    moved_bytes: float | None = None  # the least that it reads and writes
    peak: float | None = None  # FLOPs per second of the device for the type of its products


def is_product_operator(label: str) -> bool:
    """Whether an eager operator, or a function of autograd, is a matrix product, a convolution or an attention."""
    return _BACKWARD_PRODUCT.fullmatch(label) is not None or classify_operator(label) in PRODUCTS


class KernelWork:
    """The rows of the kernels of a run's modules, for the launches in its step."""

    def __init__(self, modules: Iterable[ModuleRecord], peaks: Peaks | None) -> None:
        self._rows: dict[str, dict[KernelIdentity, Kernel]] = {
            module.slug: {make_kernel_key(kernel): kernel for kernel in module.kernels} for module in modules
        }
        self._peaks = peaks

    def of_launches(self, slugs: Mapping[int, str], activities: Mapping[int, Sequence[Activity]]) -> list[LaunchWork]:
        """The work of each activity of each graph, in order; empty fields for what no row knows.

        Args:
            slugs: the module of each graph.
            activities: of each graph in the profiled steps.
        """
        return [one for graph, own in activities.items() for one in self._of_graph(slugs.get(graph, ""), own)]

    def _of_graph(self, slug: str, activities: Sequence[Activity]) -> Iterable[LaunchWork]:
        rows, known = self._rows.get(slug, {}), dict[object, LaunchWork]()
        for activity, part in zip(activities, find_parts(activities), strict=True):
            key = make_activity_key(activity)
            alike = key, activity.arguments, part
            if alike not in known:
                shapes = describe_call(activity.arguments, part)
                known[alike] = self._of_row(key[0], _find_row(rows, key), shapes)
            yield known[alike]

    def _of_row(self, category: Category, row: Kernel | None, shapes: str) -> LaunchWork:
        if row is None:
            return LaunchWork(category in PRODUCTS)
        calls, flops, moved = row.calls, row.work.flops, row.work.moved_bytes
        if row.shapes:  # a library kernel: its launches differ
            group = next((one for one in row.shapes if one.shapes == shapes), None)
            group = group or (row.shapes[0] if len(row.shapes) == 1 else None)
            calls, flops, moved = (group.calls, group.flops, group.moved_bytes) if group else (0, None, None)
        return LaunchWork(
            category in PRODUCTS or bool(flops),
            flops / calls if flops and calls else None,
            moved / calls if moved is not None and calls else None,
            find_matrix_roof(row.work.dtype, self._peaks) if self._peaks is not None else None,
        )


def _find_row(rows: Mapping[KernelIdentity, Kernel], key: KernelIdentity) -> Kernel | None:
    """Finds the row of a kernel.

    If a library call ran another kernel in the module's own run, finds its operator's row.
    """
    alike = (row for other, row in rows.items() if key[2] and (other[0], other[2]) == (key[0], key[2]))
    return rows.get(key) or next(alike, None)


BACKWARD_NODE = "autograd::engine::evaluate_function"
"""What the profiler calls the work of autograd for one operator."""


MOVES = (Category.COPY, Category.MEMSET)
"""The work of a call outside of its kernels, without FLOPs."""


@dataclass(frozen=True)
class GraphLayers:
    """What is known of the modules of a compiled graph."""

    found: LayerMap = field(default_factory=LayerMap)
    direction: str = FORWARD  # of the kernels of which nothing is known

    def shares(self, activity: Activity | None) -> tuple[LayerShare, ...]:
        """Returns the layers to which an activity of the graph belongs, with shares that add up to 1."""
        call = activity.call if activity is not None else None
        known = self.found.kernels.get(call.handle) if call is not None and call.handle else None
        return known or (LayerShare("", self.direction, -1, 1.0),)


def find_direction(role: str) -> str:
    """Returns the direction of a compiled module's kernels by its role: ``forward`` unless it is a backward."""
    return BACKWARD if role == BACKWARD else FORWARD


class _PieceOwner(NamedTuple):
    """The owner of a piece of device time."""

    kind: str
    layer: str
    direction: str
    line: SourceLine | None
    called_at: SourceLine | None = None


class _Piece(NamedTuple):
    """A piece of device time, of one call."""

    owner: _PieceOwner
    time_s: float
    share: float  # of the call
    is_shared: bool = False  # whether other layers, or lines, have a part of the call
    work: LaunchWork = LaunchWork()  # its part of the call's


@dataclass
class _RowSums:
    times: list[float] = field(default_factory=list)
    shared: list[float] = field(default_factory=list)
    launches: float = 0.0
    flops: float = 0.0
    products: list[float] = field(default_factory=list)
    uncounted: list[float] = field(default_factory=list)
    peak_s: float | None = 0.0
    moved_bytes: float | None = None
    unmeasured: list[float] = field(default_factory=list)

    def add(self, piece: _Piece) -> None:
        self.times.append(piece.time_s)
        self.launches += piece.share
        if piece.is_shared:
            self.shared.append(piece.time_s)
        self._add_work(piece.work, piece.time_s)

    def _add_work(self, work: LaunchWork, time_s: float) -> None:
        if work.is_product:
            self.products.append(time_s)
        if work.is_product and work.flops is None:
            self.uncounted.append(time_s)
        if work.flops:
            self.flops += work.flops
            self.peak_s = self.peak_s + work.flops / work.peak if work.peak and self.peak_s is not None else None
        if work.moved_bytes is None:
            self.unmeasured.append(time_s)
        else:
            self.moved_bytes = (self.moved_bytes or 0.0) + work.moved_bytes

    def figures(self, scale: float, count: int) -> tuple[float, float, float, float]:
        """The time, launches, shared time and FLOPs in a step."""
        return scale * math.fsum(self.times), self.launches / count, scale * math.fsum(self.shared), self.flops / count

    def work(self, scale: float, count: int) -> LayerWork:
        """The rest of the work in a step."""
        return LayerWork(
            scale * math.fsum(self.products),
            scale * math.fsum(self.uncounted),
            None if self.peak_s is None else self.peak_s / count,
            None if self.moved_bytes is None else self.moved_bytes / count,
            scale * math.fsum(self.unmeasured),
        )


@dataclass(frozen=True)
class StepLayers:
    """The device time of a step, the longest row first."""

    layers: tuple[LayerTime, ...] = ()
    classes: dict[str, str] = field(default_factory=dict)  # the class of each layer
    lines: tuple[LineTime, ...] = ()


@dataclass(frozen=True)
class DividedSteps:
    """Profiled steps, and the facts that say to which layer and line their works belong."""

    steps: Steps
    activities: Mapping[int, Sequence[Activity]]  # of each graph within the steps
    graphs: Mapping[int, GraphLayers]  # the modules of each graph
    # the line of the program that makes each call of a graph; empty if all are unknown
    call_lines: Sequence[SourceLine | None] = ()

    @classmethod
    def of(
        cls,
        steps: Steps,
        activities: Mapping[int, Sequence[Activity]],
        graphs: Mapping[int, GraphLayers],
        callers: Iterable[GraphCallers],
    ) -> DividedSteps:
        """Returns the steps with the lines that call their graphs; ``callers`` has the lines that were seen."""
        backwards = [number for number, one in graphs.items() if one.direction == BACKWARD]
        forwards = pair_backwards({number: name.label for number, name in steps.names.items()}, backwards)
        return cls(steps, activities, graphs, find_call_lines(steps.calls, callers, forwards, is_cut=steps.is_cut))

    def find_call_line(self, number: int) -> SourceLine | None:
        """Returns the line of the program that makes a call; ``None`` if it is unknown."""
        return self.call_lines[number] if 0 <= number < len(self.call_lines) else None

    def list_call_lines(self) -> dict[str, tuple[SourceLine, ...]]:
        """Returns by the slug of each module the lines that call its graphs, those with most calls first."""
        lines: dict[str, list[SourceLine | None]] = defaultdict(list)
        for number, call in enumerate(self.steps.calls):
            name = self.steps.names.get(call.graph)
            if name is not None and name.slug is not None:
                lines[name.slug].append(self.find_call_line(number))
        return {slug: rank_lines(found) for slug, found in lines.items()}


def sum_times_by_layer(divided: DividedSteps, works: Sequence[LaunchWork] = ()) -> StepLayers:
    """The device time of a step by layer and by line.

    The rows of each add up to the device time of all works of a step. On a CPU these are the parts of its ledger: the
    kernels of a graph have their own time, and its rest belongs to no layer.

    Args:
        divided: the profiled steps.
        works: what each activity of each graph works, in order; empty if that is not known yet.
    """
    steps = divided.steps
    every = (one for own in divided.activities.values() for one in own)
    known = {id(activity): work for activity, work in zip(every, works, strict=True)} if works else {}
    pieces = list(_list_host_pieces(divided, known) if steps.on_host else _list_device_pieces(divided, known))
    by_layer: dict[tuple[str, str, str], _RowSums] = defaultdict(_RowSums)
    by_line: dict[tuple[SourceLine | None, str, str, SourceLine | None], _RowSums] = defaultdict(_RowSums)
    for piece in pieces:
        kind, layer, direction, line, called_at = piece.owner
        by_layer[layer, direction, kind].add(piece)
        by_line[line, direction, kind, called_at].add(piece)
    count = steps.window.step_count
    scale = 1 / count
    if steps.on_host:
        scale *= steps.step_time_s / steps.window.step_time_s
    layers = [LayerTime(*key, *one.figures(scale, count), work=one.work(scale, count)) for key, one in by_layer.items()]
    lines = [
        LineTime(*key[:3], *one.figures(scale, count), work=one.work(scale, count), called_at=key[3])
        for key, one in by_line.items()
    ]
    layers.sort(key=lambda one: (-one.time_s, one.layer, one.direction))
    lines.sort(key=lambda one: (-one.time_s, str(one.source), one.direction, str(one.called_at)))
    classes = {layer: name for one in divided.graphs.values() for layer, name in one.found.classes.items()}
    return StepLayers(tuple(layers), classes, tuple(lines))


def _list_device_pieces(divided: DividedSteps, known: Mapping[int, LaunchWork]) -> Iterator[_Piece]:
    steps, graphs, again = divided.steps, divided.graphs, _list_repeated_calls(divided.steps.calls)
    counted: set[object] = set()
    for work in steps.works:
        weight = steps.window.weigh(work.launch_start_s)
        if not weight:
            continue
        if work.kind == GRAPH and work.graph is not None:
            own = graphs.get(work.graph, GraphLayers())
            launch = known.get(id(work.activity), LaunchWork())
            parts = _divided(own, launch, work.activity, work.duration_s, work.call, counted)
            pieces = _add_call_line((_weigh(one, weight) for one in parts), divided.find_call_line(work.call))
            yield from map(_mark_recomputed, pieces) if work.call in again else pieces
        else:
            yield _weigh(_make_other_piece(work, steps), weight)


def _list_host_pieces(divided: DividedSteps, known: Mapping[int, LaunchWork]) -> Iterator[_Piece]:
    steps, again = divided.steps, _list_repeated_calls(divided.steps.calls)
    inside: dict[int, list[int]] = defaultdict(list)
    weights: dict[int, float] = {-1: 1.0}  # of the step of each call
    for number, call in enumerate(steps.calls):
        if steps.window.contains_host_time(call.start_s):
            inside[call.graph].append(number)
            weights[number] = steps.window.weigh(call.start_s)
    rests: dict[int, list[float]] = defaultdict(list)
    for work in steps.works:
        if not (weight := steps.window.weigh(work.start_s)):
            continue
        if work.kind == GRAPH and work.graph is not None:
            rests[work.graph].append(weight * work.duration_s)
        else:
            yield _weigh(_make_other_piece(work, steps), weight)
    for graph, times in rests.items():
        layers, whole_s = divided.graphs.get(graph, GraphLayers()), math.fsum(times)
        numbers = dict(enumerate(inside[graph]))
        own = [(one, numbers.get(one.iteration, -1)) for one in divided.activities.get(graph, ())]
        kernels_s = math.fsum(weights[made] * one.duration_s for one, made in own)
        fit = min(1.0, whole_s / kernels_s) if kernels_s else 1.0  # kernels of several threads may overlap
        counted: set[object] = set()
        for activity, made in own:
            launch = known.get(id(activity), LaunchWork())
            parts = _divided(layers, launch, activity, fit * activity.duration_s, activity.iteration, counted)
            pieces = _add_call_line((_weigh(one, weights[made]) for one in parts), divided.find_call_line(made))
            yield from map(_mark_recomputed, pieces) if made in again else pieces
        yield _Piece(_PieceOwner(GRAPH, "", "", None), max(0.0, whole_s - kernels_s), 0.0)


def _list_repeated_calls(calls: Sequence[GraphCall]) -> frozenset[int]:
    """The calls by which the backward computes again what other calls of the same graph have computed."""
    first = {call.graph for call in calls if not call.in_backward}
    return frozenset(number for number, call in enumerate(calls) if call.in_backward and call.graph in first)


def _add_call_line(pieces: Iterable[_Piece], line: SourceLine | None) -> Iterable[_Piece]:
    """Adds the line that calls the graph to the pieces of a kernel, if none of the kernel's lines is the program's."""
    found = list(pieces)
    if line is None or any(is_users_line(one.owner.line) for one in found):
        return found
    return [one._replace(owner=one.owner._replace(called_at=line)) for one in found]


def _weigh(piece: _Piece, weight: float) -> _Piece:
    """The piece of a call whose step has this weight."""
    if weight == 1:
        return piece
    work = piece.work._replace(flops=_part(piece.work.flops, weight), moved_bytes=_part(piece.work.moved_bytes, weight))
    return piece._replace(time_s=weight * piece.time_s, share=weight * piece.share, work=work)


def _mark_recomputed(piece: _Piece) -> _Piece:
    is_forward = piece.owner.direction == FORWARD
    return piece._replace(owner=piece.owner._replace(direction=RECOMPUTED)) if is_forward else piece


def _divided(
    known: GraphLayers,
    launch: LaunchWork,
    activity: Activity | None,
    time_s: float,
    run: int,
    counted: set[object],
) -> Iterator[_Piece]:
    """Yields the pieces of an activity. ``counted`` has the calls whose FLOPs are already counted, because one call may
    launch several kernels, and memsets before them.
    """
    found, shares = known.found, known.shares(activity)
    is_shared = len({one.layer for one in shares}) > 1
    call = (run, activity.instance, activity.call) if activity is not None else None
    computes = activity is None or classify(activity) not in MOVES
    is_new = computes and call not in counted
    if is_new:
        counted.add(call)
    by_node = any(one.flops for one in shares)  # the graph's figure for a node counts before the sum of the row
    for one in shares:
        flops = (one.flops if is_new else 0.0) if by_node else _part(launch.flops, one.share)
        work = LaunchWork(
            (by_node and computes) or launch.is_product, flops, _part(launch.moved_bytes, one.share), launch.peak
        )
        line = found.lines[one.line] if 0 <= one.line < len(found.lines) else None
        owner = _PieceOwner(GRAPH, one.layer, one.direction, line)
        yield _Piece(owner, one.share * time_s, one.share, is_shared, work)


def _part(value: float | None, share: float) -> float | None:
    return None if value is None else value * share


def _make_other_piece(work: Work, steps: Steps) -> _Piece:
    place = steps.places.get(work.op, CallPlace()) if work.op >= 0 else CallPlace()
    direction = ""
    if work.kind == EAGER:
        direction = BACKWARD if work.label.startswith(BACKWARD_NODE) or "Backward" in work.label else FORWARD
    owner = _PieceOwner(work.kind, place.module if work.kind == EAGER else "", direction, place.source)
    launch = LaunchWork(work.kind == EAGER and is_product_operator(work.label), None, work.moved_bytes)
    return _Piece(owner, work.duration_s, 1.0, work=launch)


def is_between_kernels(row: LayerTime) -> bool:
    """Whether a row is what a CPU did in the calls of compiled graphs between their kernels."""
    return row.kind == GRAPH and not row.layer and not row.direction


def compute_layer_share(rows: Sequence[LayerTime]) -> float | None:
    """The share of the time of the compiled graphs' kernels that has a module; ``None`` if they have none."""
    graphs = [row for row in rows if row.kind == GRAPH and not is_between_kernels(row)]
    whole_s = math.fsum(row.time_s for row in graphs)
    return math.fsum(row.time_s for row in graphs if row.layer) / whole_s if whole_s else None


# The line of the program that makes each call of a graph.


def find_call_lines(
    calls: Sequence[GraphCall],
    callers: Iterable[GraphCallers],
    forwards: Mapping[int, Sequence[int]],
    *,
    is_cut: bool = False,
) -> tuple[SourceLine | None, ...]:
    """Returns the line that makes each call; ``None`` if it is unknown.

    A call in the backward belongs to the line that calls the forward, if this is one line. Otherwise it has the line
    that was seen: the one that begins the backward.

    Args:
        calls: the calls of the profiled steps.
        callers: the lines that were seen.
        forwards: by the number of a backward graph, the numbers of the graphs whose gradients it computes.
        is_cut: whether the trace lost its last steps, so that more calls were seen than it holds.
    """
    found: list[SourceLine | None] = [None] * len(calls)
    numbers: dict[int, list[int]] = defaultdict(list)
    for number, call in enumerate(calls):
        numbers[call.graph].append(number)
    for one in callers:
        own = sorted(numbers[one.graph], key=lambda number: calls[number].start_s)
        for number, line in zip(own, _list_lines(one, len(own), is_cut=is_cut), strict=True):
            found[number] = line
    first: dict[int, set[SourceLine | None]] = defaultdict(set)
    for line, call in zip(found, calls, strict=True):
        if not call.in_backward:
            first[call.graph].add(line)
    for number, call in enumerate(calls):
        if call.in_backward:
            graphs = (call.graph,) if call.graph in first else forwards.get(call.graph, ())
            lines = {line for graph in graphs for line in first.get(graph, {None})}
            found[number] = next(iter(lines)) if len(lines) == 1 and None not in lines else found[number]
    return tuple(found)


def _list_lines(seen: GraphCallers, count: int, *, is_cut: bool) -> Iterator[SourceLine | None]:
    """The line of each of the ``count`` calls that the trace holds.

    If the trace lost its last steps, these calls are the first ones. If it misses other calls, the line is known only
    if all calls have the same.
    """
    places = seen.calls[:count] if is_cut else seen.calls
    if len(places) != count:
        places = seen.calls[:1] * count if len(set(seen.calls)) == 1 else (-1,) * count
    return (seen.lines[place] if place >= 0 else None for place in places)


def pair_backwards(labels: Mapping[int, str], backwards: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """Returns for each backward graph the forward graphs of its label: ``forward-2`` for ``backward-2``.

    Args:
        labels: the label of each graph.
        backwards: the numbers of the backward graphs.
    """
    named: dict[str, tuple[int, ...]] = {}
    for number, label in labels.items():
        named[label] = (*named.get(label, ()), number)
    found = {}
    for number in backwards:
        before, role, after = labels.get(number, "").rpartition("backward")
        found[number] = named.get(f"{before}forward{after}", ()) if role else ()
    return found


def rank_lines(lines: Iterable[SourceLine | None]) -> tuple[SourceLine, ...]:
    """Returns the known lines of a graph's calls, those with most calls first."""
    counts = Counter(line for line in lines if line is not None)
    return tuple(sorted(counts, key=lambda one: (-counts[one], one.file, one.line)))

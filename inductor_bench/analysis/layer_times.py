"""Divides the device time and the work of a step among the modules of the model and the lines of the program.

The modules make a tree, and so do the lines.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..records.base import Category
from ..records.code import BACKWARD, FORWARD, RECOMPUTED, LayerMap, LayerShare, SourceLine
from ..records.evidence import CallPlace
from ..records.module import Kernel, ModuleRecord
from ..records.run import COLLECTIVE, COPY, EAGER, GRAPH, OPTIMIZER, LayerTime, LayerWork, LineTime, Peaks
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
    by_line: dict[tuple[SourceLine | None, str, str], _RowSums] = defaultdict(_RowSums)
    for piece in pieces:
        kind, layer, direction, line = piece.owner
        by_layer[layer, direction, kind].add(piece)
        by_line[line, direction, kind].add(piece)
    scale = 1 / steps.window.step_count
    if steps.on_host:
        scale = steps.step_time_s / (steps.window.bounds[-1] - steps.window.bounds[0])
    count = steps.window.step_count
    layers = [LayerTime(*key, *one.figures(scale, count), work=one.work(scale, count)) for key, one in by_layer.items()]
    lines = [LineTime(*key, *one.figures(scale, count), work=one.work(scale, count)) for key, one in by_line.items()]
    layers.sort(key=lambda one: (-one.time_s, one.layer, one.direction))
    lines.sort(key=lambda one: (-one.time_s, str(one.source), one.direction))
    classes = {layer: name for one in divided.graphs.values() for layer, name in one.found.classes.items()}
    return StepLayers(tuple(layers), classes, tuple(lines))


def _list_device_pieces(divided: DividedSteps, known: Mapping[int, LaunchWork]) -> Iterator[_Piece]:
    steps, graphs, again = divided.steps, divided.graphs, _list_repeated_calls(divided.steps.calls)
    counted: set[object] = set()
    for work in steps.works:
        if not steps.window.contains_host_time(work.launch_start_s):
            continue
        if work.kind == GRAPH and work.graph is not None:
            own = graphs.get(work.graph, GraphLayers())
            launch = known.get(id(work.activity), LaunchWork())
            pieces = _divided(own, launch, work.activity, work.duration_s, work.call, counted)
            yield from map(_mark_recomputed, pieces) if work.call in again else pieces
        else:
            yield _make_other_piece(work, steps)


def _list_host_pieces(divided: DividedSteps, known: Mapping[int, LaunchWork]) -> Iterator[_Piece]:
    steps, again = divided.steps, _list_repeated_calls(divided.steps.calls)
    inside: dict[int, list[int]] = defaultdict(list)
    for number, call in enumerate(steps.calls):
        if steps.window.contains_host_time(call.start_s):
            inside[call.graph].append(number)
    rests: dict[int, list[float]] = defaultdict(list)
    for work in steps.works:
        if not steps.window.contains_host_time(work.start_s):
            continue
        if work.kind == GRAPH and work.graph is not None:
            rests[work.graph].append(work.duration_s)
        else:
            yield _make_other_piece(work, steps)
    for graph, times in rests.items():
        layers, whole_s = divided.graphs.get(graph, GraphLayers()), math.fsum(times)
        own = divided.activities.get(graph, ())
        kernels_s = math.fsum(one.duration_s for one in own)
        fit = min(1.0, whole_s / kernels_s) if kernels_s else 1.0  # kernels of several threads may overlap
        counted: set[object] = set()
        for activity in own:
            launch = known.get(id(activity), LaunchWork())
            pieces = _divided(layers, launch, activity, fit * activity.duration_s, activity.iteration, counted)
            calls = inside[graph]
            is_again = activity.iteration < len(calls) and calls[activity.iteration] in again
            yield from map(_mark_recomputed, pieces) if is_again else pieces
        yield _Piece(_PieceOwner(GRAPH, "", "", None), max(0.0, whole_s - kernels_s), 0.0)


def _list_repeated_calls(calls: Sequence[GraphCall]) -> frozenset[int]:
    """The calls by which the backward computes again what other calls of the same graph have computed."""
    first = {call.graph for call in calls if not call.in_backward}
    return frozenset(number for number, call in enumerate(calls) if call.in_backward and call.graph in first)


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


ALIKE = 1.5
"""Layers of one class are folded if the ratio of each time to the median is at most this."""

NO_MODULE, NO_LINE, BETWEEN = "no module", "no known line", "between the graphs' kernels"
"""Names of time without a module, time without a line, and CPU time between the kernels of a graph."""

KIND_WORDS = {EAGER: "eager operators", OPTIMIZER: "optimizer", COLLECTIVE: "collectives", COPY: "copies"}


@dataclass(frozen=True)
class Figures:
    """Sums over rows; seconds and FLOPs of a step."""

    forward_s: float = 0.0
    backward_s: float = 0.0
    recomputed_s: float = 0.0
    other_s: float = 0.0  # of no known direction, as an optimizer
    shared_s: float = 0.0  # from kernels that several layers share
    flops: float = 0.0
    launches: float = 0.0
    uncounted_s: float = 0.0  # in matrix products, convolutions and attention whose FLOPs are unknown
    peak_s: float = 0.0  # the time that FLOPs would take at the peak of their type
    without_peak: float = 0.0  # FLOPs whose peak is unknown
    moved_bytes: float = 0.0
    unmeasured_s: float = 0.0  # in kernels whose bytes are unknown

    @property
    def time_s(self) -> float:
        """The seconds of all directions."""
        return self.forward_s + self.backward_s + self.recomputed_s + self.other_s


@dataclass(frozen=True)
class TreeNode:
    """A node of the tree."""

    name: str  # its part of the path: ``layers.0-11``; of a line its number and function
    whole: Figures  # with all that is below it
    own: Figures = Figures()  # without
    class_name: str = ""  # of a module; empty if it is unknown
    children: tuple[TreeNode, ...] = ()
    count: int = 1  # the number of layers that are folded to it
    code: str = ""  # the text of a line


def build_tree_by_layer(rows: Iterable[LayerTime], classes: Mapping[str, str]) -> tuple[TreeNode, ...]:
    """The objects at the roots with their modules, the longest first, and with equal layers folded.

    Eager operators stand below the class of their module in a node of their own, because its path is not known. Time
    of compiled graphs without a module is a node, and so is every other kind of work.

    Args:
        rows: the time of each layer and direction.
        classes: the class of each layer.
    """
    found: dict[tuple[str, ...], list[LayerTime]] = {}
    for row in rows:
        if is_between_kernels(row):
            path: tuple[str, ...] = (BETWEEN,)
        elif row.kind == GRAPH:
            path = tuple(row.layer.split(".")) if row.layer else (NO_MODULE,)
        else:
            path = (KIND_WORDS.get(row.kind, row.kind), *filter(None, [row.layer]))
        found.setdefault(path, []).append(row)
    return tuple(_fold(one) for one in _grow(list(found.items()), classes, ()))


def build_tree_by_line(rows: Iterable[LineTime]) -> tuple[TreeNode, ...]:
    """The files with their lines, the longest first; other work by its kind where the line is unknown."""
    lines: dict[tuple[str, SourceLine | None], list[LineTime]] = {}
    for row in rows:
        kind = "" if row.source is not None else KIND_WORDS.get(row.kind, "" if row.direction else BETWEEN)
        lines.setdefault((kind, row.source), []).append(row)
    files: dict[str, list[TreeNode]] = {}
    unknown = []
    for (kind, source), found in lines.items():
        figures = _sum(found)
        if source is None:
            name = kind if kind == BETWEEN else f"{kind}, {NO_LINE}" if kind else NO_LINE
            unknown.append(TreeNode(name, figures, figures))
        else:
            name = f"{source.line} in {source.function}"
            files.setdefault(source.file, []).append(TreeNode(name, figures, figures, code=source.code))
    made = [TreeNode(file, _total(found), children=_sort_nodes(found)) for file, found in files.items()]
    return _sort_nodes([*made, *unknown])


def walk(nodes: Iterable[TreeNode], depth: int = 0) -> Iterator[tuple[int, TreeNode]]:
    """The nodes with their depths, each before what is below it."""
    for node in nodes:
        yield depth, node
        yield from walk(node.children, depth + 1)


# --- growing ----------------------------------------------------------------------------------------------------------


def _grow(
    items: Sequence[tuple[tuple[str, ...], list[LayerTime]]], classes: Mapping[str, str], above: tuple[str, ...]
) -> tuple[TreeNode, ...]:
    """The nodes of one level. ``items`` are the rest of each path, which is not empty, and its rows."""
    groups: dict[str, list[tuple[tuple[str, ...], list[LayerTime]]]] = {}
    for path, rows in items:
        groups.setdefault(path[0], []).append((path[1:], rows))
    made = []
    for name, group in groups.items():
        own = _sum([row for path, rows in group if not path for row in rows])
        children = _grow([one for one in group if one[0]], classes, (*above, name))
        class_name = classes.get(".".join((*above, name)), "")
        made.append(TreeNode(name, _add(own, _total(children)), own, class_name, children))
    return _sort_nodes(made)


def _sort_nodes(nodes: Sequence[TreeNode]) -> tuple[TreeNode, ...]:
    """The longest first; numbered layers in their order."""
    if all(node.name.isdecimal() for node in nodes):
        return tuple(sorted(nodes, key=lambda node: int(node.name)))
    return tuple(sorted(nodes, key=lambda node: (-node.whole.time_s, node.name)))


def _sum(rows: Sequence[LayerTime] | Sequence[LineTime]) -> Figures:
    def of(direction: str) -> float:
        return math.fsum(row.time_s for row in rows if row.direction == direction)

    known = (FORWARD, BACKWARD, RECOMPUTED)
    return Figures(
        forward_s=of(FORWARD),
        backward_s=of(BACKWARD),
        recomputed_s=of(RECOMPUTED),
        other_s=math.fsum(row.time_s for row in rows if row.direction not in known),
        shared_s=math.fsum(row.shared_s for row in rows),
        flops=math.fsum(row.flops for row in rows),
        launches=math.fsum(row.launches for row in rows),
        uncounted_s=math.fsum(row.work.uncounted_s for row in rows),
        peak_s=math.fsum(row.work.peak_time_s or 0.0 for row in rows),
        without_peak=math.fsum(row.flops for row in rows if row.work.peak_time_s is None),
        moved_bytes=math.fsum(row.work.moved_bytes or 0.0 for row in rows),
        unmeasured_s=math.fsum(row.work.unmeasured_s for row in rows),
    )


def _add(one: Figures, other: Figures) -> Figures:
    return Figures(*(a + b for a, b in zip(vars(one).values(), vars(other).values(), strict=True)))


def _total(nodes: Iterable[TreeNode]) -> Figures:
    whole = Figures()
    for node in nodes:
        whole = _add(whole, node.whole)
    return whole


# --- folding ----------------------------------------------------------------------------------------------------------


def _fold(node: TreeNode) -> TreeNode:
    """The node with equal layers folded, and with a list of modules joined with them."""
    children = tuple(_shorten_path(_fold(_merge(run))) for run in _find_runs(node.children))
    return replace(node, children=children)


def _shorten_path(node: TreeNode) -> TreeNode:
    """A list of modules with one child as one node: ``layers.0-11``."""
    if len(node.children) != 1 or node.own.time_s or node.count > 1 or node.class_name:
        return node
    (child,) = node.children
    return replace(child, name=f"{node.name}.{child.name}")


def _find_runs(nodes: Sequence[TreeNode]) -> Iterator[list[TreeNode]]:
    """The siblings in runs of equal layers: numbered one after the other, of one class and about equal times."""
    run: list[TreeNode] = []
    for node in nodes:
        if run and not _is_next_layer(run[-1], node):
            yield from _equal_times(run)
            run = []
        run.append(node)
    yield from _equal_times(run)


def _is_next_layer(one: TreeNode, other: TreeNode) -> bool:
    numbered = one.name.isdecimal() and other.name.isdecimal() and int(other.name) == int(one.name) + 1
    return numbered and one.class_name == other.class_name


def _equal_times(run: Sequence[TreeNode]) -> Iterator[list[TreeNode]]:
    middle = statistics.median(node.whole.time_s for node in run) if run else 0.0
    usual = [middle <= ALIKE * node.whole.time_s and node.whole.time_s <= ALIKE * middle for node in run]
    for is_usual, group in itertools.groupby(zip(usual, run, strict=True), key=lambda pair: pair[0]):
        nodes = [node for _, node in group]
        yield from [nodes] if is_usual else [[node] for node in nodes]


def _merge(nodes: Sequence[TreeNode]) -> TreeNode:
    """Several equal layers as one, their modules of the same name together."""
    if len(nodes) == 1:
        return nodes[0]
    by_name: dict[str, list[TreeNode]] = {}
    for node in nodes:
        for child in node.children:
            by_name.setdefault(child.name, []).append(child)
    children = [replace(_merge(found), name=name, count=1) for name, found in by_name.items()]
    own = Figures()
    for node in nodes:
        own = _add(own, node.own)
    name = f"{nodes[0].name}-{nodes[-1].name}"
    return TreeNode(name, _total(nodes), own, nodes[0].class_name, _sort_nodes(children), len(nodes))


# --- names of several layers -----------------------------------------------------------------------------------------


def fold_names(layers: Iterable[str]) -> tuple[str, ...]:
    """The layers with those folded that differ in one number: ``Net.layers.0-11.mlp``.

    Numbers with gaps are ranges one after the other: ``layers.0,2-3``.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for layer in dict.fromkeys(layers):
        parts = layer.split(".")
        place = next((at for at, part in enumerate(parts) if part.isdecimal()), -1)
        key = tuple("#" if at == place else part for at, part in enumerate(parts))
        groups.setdefault(key, []).append(int(parts[place]) if place >= 0 else -1)
    return tuple(
        ".".join(part if part != "#" else _list_ranges(numbers) for part in key) for key, numbers in groups.items()
    )


def _list_ranges(numbers: Iterable[int]) -> str:
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][-1] == number - 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in found)

"""Divides the device time of a step among the modules of the model and the lines of the program."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...records.base import Category
from ...records.code import BACKWARD, FORWARD, RECOMPUTED, LayerMap, LayerShare, SourceLine
from ...records.evidence import CallPlace
from ...records.run import EAGER, GRAPH, LayerTime, LayerWork, LineTime
from ...records.traced import Activity, GraphCall, Work
from ..call_work import classify
from ..ledger import Steps
from .launch_work import LaunchWork, is_product_operator

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
        """Whose an activity of the graph is; the shares add up to 1."""
        call = activity.call if activity is not None else None
        known = self.found.kernels.get(call.handle) if call is not None and call.handle else None
        return known or (LayerShare("", self.direction, -1, 1.0),)


def find_direction(role: str) -> str:
    """The direction of a compiled module's kernels by its role: ``forward`` if it is no backward."""
    return BACKWARD if role == BACKWARD else FORWARD


class _PieceOwner(NamedTuple):
    """Whose a piece of device time is."""

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
    """Profiled steps, and what says whose their works are."""

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
    scale = 1 / steps.window.steps
    if steps.on_host:
        scale = steps.step_time_s / (steps.window.bounds[-1] - steps.window.bounds[0])
    count = steps.window.steps
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
        if not steps.window.launched(work.launch_start_s):
            continue
        if work.kind == GRAPH and work.graph is not None:
            own = graphs.get(work.graph, GraphLayers())
            launch = known.get(id(work.activity), LaunchWork())
            pieces = _divide_launch(own, launch, work.activity, work.duration_s, work.call, counted)
            yield from map(_mark_recomputed, pieces) if work.call in again else pieces
        else:
            yield _make_other_piece(work, steps)


def _list_host_pieces(divided: DividedSteps, known: Mapping[int, LaunchWork]) -> Iterator[_Piece]:
    steps, again = divided.steps, _list_repeated_calls(divided.steps.calls)
    inside: dict[int, list[int]] = defaultdict(list)
    for number, call in enumerate(steps.calls):
        if steps.window.launched(call.start_s):
            inside[call.graph].append(number)
    rests: dict[int, list[float]] = defaultdict(list)
    for work in steps.works:
        if not steps.window.launched(work.start_s):
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
            pieces = _divide_launch(layers, launch, activity, fit * activity.duration_s, activity.iteration, counted)
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


def _divide_launch(
    known: GraphLayers,
    launch: LaunchWork,
    activity: Activity | None,
    time_s: float,
    run: int,
    counted: set[object],
) -> Iterator[_Piece]:
    """The pieces of an activity.

    ``counted`` has the calls whose FLOPs are counted: one may launch several kernels, and set memory before them.
    """
    found, shares = known.found, known.shares(activity)
    is_shared = len({one.layer for one in shares}) > 1
    call = (run, activity.instance, activity.call) if activity is not None else None
    computes = activity is None or classify(activity) not in MOVES
    is_new = computes and call not in counted
    if is_new:
        counted.add(call)
    by_node = any(one.flops for one in shares)  # what the graph says of each node goes before the sum of the row
    for one in shares:
        flops = (one.flops if is_new else 0.0) if by_node else _take_share(launch.flops, one.share)
        work = LaunchWork(
            (by_node and computes) or launch.is_product, flops, _take_share(launch.moved_bytes, one.share), launch.peak
        )
        line = found.lines[one.line] if 0 <= one.line < len(found.lines) else None
        owner = _PieceOwner(GRAPH, one.layer, one.direction, line)
        yield _Piece(owner, one.share * time_s, one.share, is_shared, work)


def _take_share(value: float | None, share: float) -> float | None:
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

"""Divides the device time of a step among the modules of the model and the lines of the program."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...records.code import BACKWARD, FORWARD, LayerMap, LayerShare, SourceLine
from ...records.evidence import CallPlace
from ...records.layers import LayerTime, LineTime
from ...records.program import EAGER, GRAPH
from ...records.traced import Activity, Work
from ..ledger import Steps

BACKWARD_NODE = "autograd::engine::evaluate_function"
"""What the profiler calls the work of autograd for one operator."""


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


def direction_of_role(role: str) -> str:
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
    flops: float
    is_shared: bool  # whether other layers, or lines, have a part of the call


@dataclass
class _RowSums:
    times: list[float] = field(default_factory=list)
    shared: list[float] = field(default_factory=list)
    launches: float = 0.0
    flops: float = 0.0

    def add(self, piece: _Piece) -> None:
        self.times.append(piece.time_s)
        self.launches += piece.share
        self.flops += piece.flops
        if piece.is_shared:
            self.shared.append(piece.time_s)


@dataclass(frozen=True)
class StepLayers:
    """The device time of a step, the longest row first."""

    layers: tuple[LayerTime, ...] = ()
    classes: dict[str, str] = field(default_factory=dict)  # the class of each layer
    lines: tuple[LineTime, ...] = ()


def times_by_layer(
    steps: Steps, activities: Mapping[int, Sequence[Activity]], graphs: Mapping[int, GraphLayers]
) -> StepLayers:
    """The device time of a step by layer and by line.

    The rows of each add up to the device time of all works of a step. On a CPU these are the parts of its ledger: the
    kernels of a graph have their own time, and its rest belongs to no layer.

    Args:
        steps: the profiled steps.
        activities: on a CPU the activities of each graph in these steps; else they are those of the works.
        graphs: the modules of each graph.
    """
    pieces = list(_host_pieces(steps, activities, graphs) if steps.on_host else _device_pieces(steps, graphs))
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
    layers = [LayerTime(*key, *_figures(sums, scale, count)) for key, sums in by_layer.items()]
    lines = [LineTime(*key, *_figures(sums, scale, count)) for key, sums in by_line.items()]
    layers.sort(key=lambda one: (-one.time_s, one.layer, one.direction))
    lines.sort(key=lambda one: (-one.time_s, str(one.source), one.direction))
    classes = {layer: name for one in graphs.values() for layer, name in one.found.classes.items()}
    return StepLayers(tuple(layers), classes, tuple(lines))


def _figures(sums: _RowSums, scale: float, count: int) -> tuple[float, float, float, float]:
    """The time, launches, shared time and FLOPs of a row."""
    return scale * math.fsum(sums.times), sums.launches / count, scale * math.fsum(sums.shared), sums.flops / count


def _device_pieces(steps: Steps, graphs: Mapping[int, GraphLayers]) -> Iterator[_Piece]:
    counted: set[object] = set()
    for work in steps.works:
        if not steps.window.launched(work.launch_start_s):
            continue
        if work.kind == GRAPH and work.graph is not None:
            known = graphs.get(work.graph, GraphLayers())
            yield from _divided(known, work.activity, work.duration_s, work.call, counted)
        else:
            yield _other_piece(work, steps)


def _host_pieces(
    steps: Steps, activities: Mapping[int, Sequence[Activity]], graphs: Mapping[int, GraphLayers]
) -> Iterator[_Piece]:
    rests: dict[int, list[float]] = defaultdict(list)
    for work in steps.works:
        if not steps.window.launched(work.start_s):
            continue
        if work.kind == GRAPH and work.graph is not None:
            rests[work.graph].append(work.duration_s)
        else:
            yield _other_piece(work, steps)
    for graph, times in rests.items():
        known, whole_s = graphs.get(graph, GraphLayers()), math.fsum(times)
        own = activities.get(graph, ())
        kernels_s = math.fsum(one.duration_s for one in own)
        fit = min(1.0, whole_s / kernels_s) if kernels_s else 1.0  # kernels of several threads may overlap
        counted: set[object] = set()
        for activity in own:
            yield from _divided(known, activity, fit * activity.duration_s, activity.iteration, counted)
        yield _Piece(_PieceOwner(GRAPH, "", "", None), max(0.0, whole_s - kernels_s), 0.0, 0.0, False)


def _divided(
    known: GraphLayers, activity: Activity | None, time_s: float, run: int, counted: set[object]
) -> Iterator[_Piece]:
    """The pieces of an activity. ``counted`` has the calls whose FLOPs are counted: one may launch several kernels."""
    found, shares = known.found, known.shares(activity)
    is_shared = len({one.layer for one in shares}) > 1
    call = (run, activity.instance, activity.call) if activity is not None else None
    is_new = call not in counted
    counted.add(call)
    for one in shares:
        line = found.lines[one.line] if 0 <= one.line < len(found.lines) else None
        owner = _PieceOwner(GRAPH, one.layer, one.direction, line)
        yield _Piece(owner, one.share * time_s, one.share, one.flops if is_new else 0.0, is_shared)


def _other_piece(work: Work, steps: Steps) -> _Piece:
    place = steps.places.get(work.op, CallPlace()) if work.op >= 0 else CallPlace()
    direction = ""
    if work.kind == EAGER:
        direction = BACKWARD if work.label.startswith(BACKWARD_NODE) or "Backward" in work.label else FORWARD
    owner = _PieceOwner(work.kind, place.module if work.kind == EAGER else "", direction, place.source)
    return _Piece(owner, work.duration_s, 1.0, 0.0, False)


def is_between_kernels(row: LayerTime) -> bool:
    """Whether a row is what a CPU did in the calls of compiled graphs between their kernels."""
    return row.kind == GRAPH and not row.layer and not row.direction


def layer_share(rows: Sequence[LayerTime]) -> float | None:
    """The share of the time of the compiled graphs' kernels that has a module; ``None`` if they have none."""
    graphs = [row for row in rows if row.kind == GRAPH and not is_between_kernels(row)]
    whole_s = math.fsum(row.time_s for row in graphs)
    return math.fsum(row.time_s for row in graphs if row.layer) / whole_s if whole_s else None

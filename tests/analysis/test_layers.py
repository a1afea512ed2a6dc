"""The device time of a step by layer and by line, and the tree that is made of it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from inductor_bench.analysis.layer_times import (
    DividedSteps,
    GraphLayers,
    LaunchWork,
    compute_layer_share,
    find_call_lines,
    pair_backwards,
    rank_lines,
    sum_times_by_layer,
)
from inductor_bench.analysis.ledger import Steps
from inductor_bench.records.code import CallSite, LayerMap, LayerShare, SourceLine
from inductor_bench.records.evidence import CallPlace, GraphCallers
from inductor_bench.records.run import EAGER, GRAPH, OPTIMIZER, LayerTime, LayerWork, LineTime
from inductor_bench.records.traced import Activity, GraphCall, StepWindow, Work
from inductor_bench.report.names import fold_names
from inductor_bench.report.run.layers_document import TreeNode, build_tree_by_layer, build_tree_by_line, walk

UP, NORM = SourceLine("m.py", 4, "forward", "up"), SourceLine("m.py", 9, "forward", "norm")
MAP = LayerMap(
    classes={"Net": "Net", "Net.up": "Linear"},
    lines=(UP, NORM),
    kernels={
        "mm:1": (LayerShare("Net.up", "forward", 0, 1.0, 64.0),),
        "fused:2": (LayerShare("Net.norm", "forward", 1, 0.75), LayerShare("Net", "recomputed", -1, 0.25)),
    },
)


def activity(handle: str, instance: int = 0, run: int = 0, duration_s: float = 0.0) -> Activity:
    site = CallSite(instance, 1, "", None, None, handle=handle)
    return Activity(run, handle, "kernel", duration_s, site, None, None, instance, None)


def work(start_s: float, duration_s: float, **fields: Any) -> Work:
    values = {"kind": GRAPH, "label": "", "graph": 0, "call": 0, **fields}
    return Work(start_s=start_s, end_s=start_s + duration_s, launch_start_s=start_s, launch_end_s=start_s, **values)


def steps_of(works: list[Work], *, on_host: bool = False, places: dict[int, CallPlace] | None = None) -> Steps:
    """Two profiled steps from 0 to 20 s; without a profiler a step takes 5 s."""
    window = StepWindow("main", (0.0, 10.0, 20.0), (0.0, 10.0, 20.0))
    return Steps(5.0, window, works, (), None, {}, places or {}, on_host=on_host)  # type: ignore[arg-type]


def test_each_event_is_divided_and_all_of_them_add_up() -> None:
    place = CallPlace("Embedding", SourceLine("m.py", 2, "forward", "embed"))
    works = [
        work(1, 2.0, activity=activity("mm:1", 0)),
        work(3, 1.0, activity=activity("mm:1", 0)),  # a second kernel of the same call
        work(5, 4.0, activity=activity("fused:2", 1)),
        work(9, 1.0, activity=activity("unknown:3", 2)),
        work(11, 2.0, activity=activity("mm:1", 0), call=1),
        work(14, 0.5, kind=EAGER, label="aten::embedding", graph=None, op=7),
        work(15, 0.5, kind=OPTIMIZER, label="SGD", graph=None),
        work(21, 9.0, activity=activity("mm:1", 0), call=2),  # after the profiled steps
    ]
    step = sum_times_by_layer(DividedSteps(steps_of(works, places={7: place}), {}, {0: GraphLayers(MAP, "backward")}))
    layers, lines = step.layers, step.lines
    found = {(one.kind, one.layer, one.direction): one for one in layers}
    assert {key: one.time_s for key, one in found.items()} == {
        (GRAPH, "Net.up", "forward"): 2.5,
        (GRAPH, "Net.norm", "forward"): 1.5,
        (GRAPH, "Net", "recomputed"): 0.5,
        (GRAPH, "", "backward"): 0.5,
        (EAGER, "Embedding", "forward"): 0.25,
        (OPTIMIZER, "", ""): 0.25,
    }
    assert found[GRAPH, "Net.up", "forward"].flops == 64.0, "once for each call, however many kernels it launches"
    assert found[GRAPH, "Net.norm", "forward"].shared_s == 1.5 and not found[GRAPH, "Net.up", "forward"].shared_s
    assert [one.time_s for one in layers] == sorted((one.time_s for one in layers), reverse=True)
    assert {(one.source, one.direction): one.time_s for one in lines if one.kind == GRAPH} == {
        (UP, "forward"): 2.5,
        (NORM, "forward"): 1.5,
        (None, "recomputed"): 0.5,
        (None, "backward"): 0.5,
    }
    whole_s = sum(one.duration_s for one in works[:-1]) / 2
    assert math.fsum(one.time_s for one in layers) == math.fsum(one.time_s for one in lines) == whole_s
    assert compute_layer_share(layers) == pytest.approx(4.5 / 5.0)


def call(start_s: float, *, in_backward: bool = False, graph: int = 0) -> GraphCall:
    return GraphCall(graph, -1, start_s, start_s + 1, "main", in_backward)


@pytest.mark.parametrize("on_host", [False, True])
def test_a_forward_that_the_backward_calls_again_is_recomputed(on_host: bool) -> None:
    own = [activity("mm:1", 0, 0, 2.0), activity("mm:1", 0, 1, 3.0)]
    works = [work(1, 2.0, activity=own[0]), work(12, 3.0, activity=own[1], call=1)]
    steps = replace(steps_of(works, on_host=on_host), calls=(call(1), call(12, in_backward=True)))
    found = sum_times_by_layer(DividedSteps(steps, {0: own}, {0: GraphLayers(MAP)})).layers
    scale = 5 / 20 if on_host else 1 / 2
    rows = {(one.layer, one.direction): one.time_s for one in found if one.layer}
    assert rows == {("Net.up", "forward"): 2 * scale, ("Net.up", "recomputed"): 3 * scale}
    # A graph that only the backward calls computes nothing again.
    steps = replace(steps, calls=(call(1, in_backward=True), call(12, in_backward=True)))
    found = sum_times_by_layer(DividedSteps(steps, {0: own}, {0: GraphLayers(MAP)})).layers
    assert {one.direction for one in found if one.layer} == {"forward"}


def test_on_a_cpu_the_rest_of_a_graph_belongs_to_no_layer() -> None:
    works = [work(1, 6.0), work(11, 6.0, call=1)]
    own = [activity("mm:1", 0, 0, 4.0), activity("fused:2", 1, 0, 1.0), activity("mm:1", 0, 1, 5.0)]
    step = sum_times_by_layer(DividedSteps(steps_of(works, on_host=True), {0: own}, {0: GraphLayers(MAP)}))
    layers, lines = step.layers, step.lines
    found = {one.layer: one for one in layers}
    scale = 5.0 / 20.0  # the unprofiled step is the measure
    assert found["Net.up"].time_s == 9.0 * scale and found["Net.norm"].time_s == 0.75 * scale
    assert found[""].time_s == (12.0 - 10.0) * scale and found[""].direction == ""
    assert compute_layer_share(step.layers) == 1.0, "it is in no kernel"
    assert [node.name for node in build_tree_by_layer(step.layers, step.classes)] == [
        "Net",
        "between the graphs' kernels",
    ]
    assert found["Net.up"].flops == 64.0
    assert found["Net.up"].work.unmeasured_s == found["Net.up"].time_s and found["Net.up"].work.moved_bytes is None
    assert math.fsum(one.time_s for one in layers) == math.fsum(one.time_s for one in lines) == 12.0 * scale


def test_the_work_of_launches_is_added_up_and_what_is_unknown_is_said() -> None:
    works = [
        work(1, 2.0, activity=activity("mm:1", 0)),  # FLOPs by its node
        work(3, 1.0, activity=activity("mm:1", 0)),  # of the same call
        work(5, 4.0, activity=activity("fused:2", 1)),  # not a product; its bytes are known
        work(9, 1.0, activity=activity("unknown:3", 2)),  # FLOPs by its row only
        work(11, 2.0, activity=activity("unknown:4", 3)),  # a product of unknown FLOPs
        work(14, 0.5, kind=EAGER, label="aten::addmm", graph=None),
        work(15, 0.5, kind=EAGER, label="AddmmBackward0", graph=None),
        work(16, 0.5, kind=EAGER, label="aten::embedding", graph=None),
    ]
    own = [one.activity for one in works if one.activity is not None]
    known = [
        LaunchWork(True, 1.0, 10.0, 16.0),
        LaunchWork(True, 1.0, 2.0, 16.0),
        LaunchWork(False, None, 8.0, None),
        LaunchWork(True, 6.0, None, None),
        LaunchWork(True, None, 4.0, 16.0),
    ]
    found = sum_times_by_layer(DividedSteps(steps_of(works), {0: own}, {0: GraphLayers(MAP)}), known).layers
    rows = {(one.kind, one.layer, one.direction): one for one in found}
    up = rows[GRAPH, "Net.up", "forward"]
    assert (up.flops, up.work) == (32.0, LayerWork(1.5, 0.0, 2.0, 6.0, 0.0)), "64 FLOPs at 16 FLOP/s, in 2 steps"
    assert rows[GRAPH, "Net.norm", "forward"].work.moved_bytes == 8.0 * 0.75 / 2
    rest = rows[GRAPH, "", "forward"]
    assert (rest.flops, rest.work) == (3.0, LayerWork(1.5, 1.0, None, 2.0, 0.5)), "a peak, and FLOPs, are unknown"
    assert rows[EAGER, "", "forward"].work == LayerWork(0.25, 0.25, 0.0, None, 0.5)
    assert rows[EAGER, "", "backward"].work.uncounted_s == 0.25
    tree = {node.name: node.whole for node in build_tree_by_layer(found, {})}
    assert tree["no module"].without_peak == 3.0 and tree["eager operators"].uncounted_s == 0.5
    assert tree["Net"].peak_s == 2.0 and tree["Net"].moved_bytes == 10.0


def test_memory_that_a_call_sets_before_its_kernel_has_none_of_its_flops() -> None:
    """cuBLAS sets a workspace to zeros, and whoever sets memory has no peak."""
    kernel = activity("mm:1")
    works = [
        work(1, 0.5, activity=replace(kernel, kind="memset", name="Memset (Device)")),
        work(2, 2.0, activity=kernel),
    ]
    divided = DividedSteps(steps_of(works), {0: [one.activity for one in works]}, {0: GraphLayers(MAP)})
    launches = [LaunchWork(), LaunchWork(is_product=True, flops=64.0, peak=16.0)]
    (up,) = sum_times_by_layer(divided, launches).layers
    assert (up.time_s, up.flops) == (1.25, 32.0) and (up.work.product_time_s, up.work.peak_time_s) == (1.0, 2.0)


def test_kernels_that_overlap_on_a_cpu_fit_into_their_graph() -> None:
    own = [activity("mm:1", 0, 0, 4.0), activity("fused:2", 1, 0, 4.0)]
    step = sum_times_by_layer(DividedSteps(steps_of([work(1, 4.0)], on_host=True), {0: own}, {0: GraphLayers(MAP)}))
    assert math.fsum(one.time_s for one in step.layers) == pytest.approx(4.0 * 5 / 20)


def layer(name: str, time_s: float, direction: str = "forward", kind: str = GRAPH, **fields: float) -> LayerTime:
    return LayerTime(name, direction, kind, time_s, 1.0, **fields)


def text_of(tree: tuple[TreeNode, ...]) -> list[str]:
    return [
        f"{'  ' * depth}{node.name}{f' ({node.count}x)' * (node.count > 1)} {node.whole.time_s:g}"
        for depth, node in walk(tree)
    ]


CLASSES = {f"Net.layers.{number}": "Block" for number in range(12)} | {"Net": "Net"}


def test_equal_layers_are_folded_with_their_modules() -> None:
    rows = [
        layer(f"Net.layers.{number}.{name}", time_s) for number in range(4) for name, time_s in (("up", 2), ("norm", 1))
    ]
    rows += [layer("Net.head", 3, flops=6.0), layer("Net", 0.5, "backward"), layer("", 0.25)]
    rows += [layer("", 2, "", OPTIMIZER), layer("Embedding", 1, kind=EAGER)]
    tree = build_tree_by_layer(rows, CLASSES)
    assert text_of(tree) == [
        "Net 15.5",
        "  layers.0-3 (4x) 12",
        "    up 8",
        "    norm 4",
        "  head 3",
        "optimizer 2",
        "eager operators 1",
        "  Embedding 1",
        "no module 0.25",
    ]
    net = tree[0]
    assert (net.whole.forward_s, net.whole.backward_s, net.own.backward_s, net.whole.flops) == (15, 0.5, 0.5, 6.0)
    assert net.children[0].class_name == "Block"


def test_a_layer_of_another_class_or_time_stands_by_itself() -> None:
    times = {0: 9.0, 1: 1.0, 2: 1.1, 3: 0.9, 5: 1.0, 6: 1.0}
    rows = [layer(f"Net.layers.{number}.up", time_s) for number, time_s in times.items()]
    names = [node.name for node in build_tree_by_layer(rows, CLASSES)[0].children[0].children]
    assert names == ["0", "1-3", "5-6"]
    other = {**CLASSES, "Net.layers.2": "Sparse"}
    names = [node.name for node in build_tree_by_layer(rows, other)[0].children[0].children]
    assert names == ["0", "1", "2", "3", "5-6"]


def test_lines_stand_below_their_files() -> None:
    rows = [
        LineTime(UP, "forward", GRAPH, 2.0, 1.0),
        LineTime(UP, "backward", GRAPH, 3.0, 1.0),
        LineTime(NORM, "forward", GRAPH, 6.0, 1.0),
        LineTime(None, "", OPTIMIZER, 1.0, 1.0),
        LineTime(None, "forward", GRAPH, 0.5, 1.0),
    ]
    tree = build_tree_by_line(rows)
    assert text_of(tree) == [
        "m.py 11",
        "  9 in forward 6",
        "  4 in forward 5",
        "optimizer, no known line 1",
        "no known line 0.5",
    ]
    assert tree[0].children[1].whole.backward_s == 3.0 and tree[0].children[0].code == "norm"


def test_lines_of_libraries_stand_below_the_line_that_calls_their_graph() -> None:
    rows = [
        LineTime(None, "forward", GRAPH, 2.0, 1.0, called_at=CALL),
        LineTime(LIBRARY, "forward", GRAPH, 3.0, 1.0, called_at=CALL),
        LineTime(LIBRARY, "backward", GRAPH, 4.0, 1.0, called_at=CALL),
        LineTime(CALL, "forward", EAGER, 0.5, 1.0),
        LineTime(LIBRARY, "forward", GRAPH, 1.0, 1.0),
        LineTime(BACKWARD, "forward", EAGER, 0.25, 1.0),
    ]
    tree = build_tree_by_line(rows)
    assert text_of(tree) == [
        "train.py 9.75",
        "  31 in main, call 9.5",
        "    vit.py:98 in forward 7",
        "  32 in main 0.25",
        "/venv/site-packages/timm/vit.py 1",
        "  98 in forward 1",
    ]
    line = tree[0].children[0]
    assert (line.own.time_s, line.whole.backward_s, line.code) == (2.5, 4.0, "loss = model(x)")


CALL, OTHER = (SourceLine("train.py", line, "main", "loss = model(x)") for line in (31, 33))
BACKWARD = SourceLine("train.py", 32, "main", "loss.backward()")
LIBRARY = SourceLine("/venv/site-packages/timm/vit.py", 98, "forward", "x = self.attn(x)")


@pytest.mark.parametrize(
    ("seen", "calls", "lines"),
    [
        # The backward, 1, belongs to the line that calls the forward, 0.
        ([(0, (CALL,), (0, 0)), (1, (BACKWARD,), (0, 0))], "0b0b", [CALL, CALL, CALL, CALL]),
        # If several lines call the forward, it has the line that was seen.
        ([(0, (CALL, OTHER), (0, 1)), (1, (BACKWARD,), (0, 0))], "00bb", [CALL, OTHER, BACKWARD, BACKWARD]),
        # The same, if one of the forward's lines is unknown, or the forward was not called.
        ([(0, (CALL,), (0, -1)), (1, (BACKWARD,), (0, 0))], "00bb", [CALL, None, BACKWARD, BACKWARD]),
        ([(1, (BACKWARD,), (0,))], "b", [BACKWARD]),
        # A forward that the backward calls again belongs to the line of its first call.
        ([(0, (CALL, BACKWARD), (0, 1)), (1, (BACKWARD,), (0,))], "0rb", [CALL, CALL, CALL]),
        # If the trace misses calls, the line of all of them is known only if it is one line.
        ([(0, (CALL,), (0, 0, 0))], "00", [CALL, CALL]),
        ([(0, (CALL, OTHER), (0, 1, 0))], "00", [None, None]),
        ([(0, (CALL,), (-1, -1))], "00", [None, None]),
        # Nothing is known of the calls of an older record, of graphs without a call, and of calls without a graph.
        ([], "0b", [None, None]),
        ([(0, (), ())], "0", [None]),
        ([(7, (CALL,), (0,))], "0", [None]),
    ],
)
def test_each_call_has_its_line(
    seen: list[tuple[int, tuple[SourceLine, ...], tuple[int, ...]]], calls: str, lines: list[SourceLine | None]
) -> None:
    made = [call(at, in_backward=kind != "0", graph=int(kind == "b")) for at, kind in enumerate(calls)]
    found = find_call_lines(made, [GraphCallers(*one) for one in seen], {1: (0,)})
    assert list(found) == lines


@pytest.mark.parametrize(
    ("is_cut", "places", "lines"),
    [
        (True, (0, 1, 1, 0, 1, 1), [CALL, OTHER, OTHER]),  # of two steps the first is left
        (True, (0, 1), [None] * 3),
        (False, (0, 1, 1, 0, 1, 1), [None] * 3),  # any calls may be missing
        (False, (1, 1, 1, 1), [OTHER] * 3),
    ],
)
def test_a_trace_that_lost_its_last_steps_holds_the_first_calls(
    is_cut: bool, places: tuple[int, ...], lines: list[SourceLine | None]
) -> None:
    seen = GraphCallers(0, (CALL, OTHER), places)
    steps = replace(steps_of([]), calls=tuple(call(at) for at in range(3)), is_cut=is_cut)
    assert list(DividedSteps.of(steps, {}, {}, [seen]).call_lines) == lines


def test_a_backward_belongs_to_the_forward_of_its_label() -> None:
    labels = {
        **{0: "forward", 1: "backward", 2: "forward-2", 3: "backward-2", 4: "G · backward", 5: "G · forward"},
        **{6: "backward (7 rows)", 7: "forward (7 rows)", 8: "backward-3"},
    }
    pairs = pair_backwards(labels, [1, 3, 4, 6, 8, 9])
    assert pairs == {1: (0,), 3: (2,), 4: (5,), 6: (7,), 8: (), 9: ()}


def test_the_line_with_most_calls_comes_first() -> None:
    assert rank_lines([OTHER, None, CALL, CALL, None, None]) == (CALL, OTHER)
    assert rank_lines([None]) == ()


@pytest.mark.parametrize("on_host", [False, True])
def test_only_a_kernel_without_a_line_of_the_program_has_the_line_of_the_call(on_host: bool) -> None:
    found = replace(
        MAP,
        lines=(*MAP.lines, LIBRARY),
        kernels={**MAP.kernels, "conv:3": (LayerShare("", "forward", 2, 1.0),)},
    )
    own = [activity(name, at, 0, 1.0) for at, name in enumerate(("mm:1", "fused:2", "conv:3", "unknown:4"))]
    works = [work(at, 1.0, activity=one) for at, one in enumerate(own, 1)]
    steps = replace(steps_of(works, on_host=on_host), calls=(call(0.5),))
    rows = sum_times_by_layer(DividedSteps(steps, {0: own}, {0: GraphLayers(found)}, (CALL,))).lines
    kernels = {(one.source, one.called_at) for one in rows if one.direction}
    assert kernels == {(UP, None), (NORM, None), (None, None), (LIBRARY, CALL), (None, CALL)}
    unknown = sum_times_by_layer(DividedSteps(steps, {0: own}, {0: GraphLayers(found)}, (None,))).lines
    assert {one.called_at for one in unknown} == {None}


@pytest.mark.parametrize(
    ("layers", "names"),
    [
        (["N.l.0.up", "N.l.1.up", "N.l.2.up", "N.head"], ("N.l.0-2.up", "N.head")),
        (["N.l.0.up", "N.l.2.up", "N.l.3.up"], ("N.l.0,2-3.up",)),
        (["N.l.0.up", "N.l.0.down"], ("N.l.0.up", "N.l.0.down")),
        (["N"], ("N",)),
        ([], ()),
    ],
)
def test_names_of_layers_are_folded(layers: list[str], names: tuple[str, ...]) -> None:
    assert fold_names(layers) == names

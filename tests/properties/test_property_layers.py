"""Device time by layer and by line: whatever is divided, grown and folded adds up to what came in."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inductor_bench.analysis.layer_times import DividedSteps, GraphLayers, sum_times_by_layer
from inductor_bench.analysis.ledger import Steps
from inductor_bench.records.code import DIRECTIONS, CallSite, LayerMap, SourceLine
from inductor_bench.records.run import EAGER, GRAPH, OPTIMIZER, LayerTime, LineTime
from inductor_bench.records.traced import Activity, StepWindow, Work
from inductor_bench.report.run.layers_document import TreeNode, build_tree_by_layer, build_tree_by_line, walk
from inductor_bench.source.layers import divide_call, read_layers, read_path

seconds = st.floats(0, 10)
names = st.sampled_from(["Net", "layers", "0", "1", "2", "3", "up", "norm"])
layers = st.lists(names, max_size=5).map(".".join)
kinds = st.sampled_from([GRAPH, EAGER, OPTIMIZER])
directions = st.sampled_from([*DIRECTIONS, ""])
layer_rows = st.builds(LayerTime, layers, directions, kinds, seconds, seconds, st.just(0.0), seconds)
sources = st.none() | st.builds(SourceLine, st.sampled_from("ab"), st.integers(1, 3), st.just("f"), st.just("x"))
line_rows = st.builds(LineTime, sources, directions, kinds, seconds, seconds, called_at=sources)
classes = st.dictionaries(layers, st.sampled_from(["Block", "Other"]))


def check_nodes(tree: tuple[TreeNode, ...], time_s: float) -> None:
    assert math.fsum(node.whole.time_s for node in tree) == pytest.approx(time_s)
    assert math.fsum(node.own.time_s for _, node in walk(tree)) == pytest.approx(time_s)
    for _, node in walk(tree):
        below = math.fsum(child.whole.time_s for child in node.children)
        assert node.whole.time_s == pytest.approx(node.own.time_s + below)
        assert math.fsum(child.whole.flops for child in node.children) <= node.whole.flops * (1 + 1e-9)


@given(st.lists(layer_rows, max_size=40), classes)
def test_a_tree_of_layers_adds_up_to_its_rows(rows: list[LayerTime], known: dict[str, str]) -> None:
    tree = build_tree_by_layer(rows, known)
    check_nodes(tree, math.fsum(row.time_s for row in rows))
    assert math.fsum(node.whole.flops for node in tree) == pytest.approx(math.fsum(row.flops for row in rows))


@given(st.lists(line_rows, max_size=40))
def test_a_tree_of_lines_adds_up_to_its_rows(rows: list[LineTime]) -> None:
    check_nodes(build_tree_by_line(rows), math.fsum(row.time_s for row in rows))


@given(st.lists(st.tuples(st.integers(0, 2**40), st.floats(0, 1e18)), min_size=1))
def test_the_shares_of_a_call_add_up_to_1(nodes: list[tuple[int, float]]) -> None:
    shares = divide_call(nodes)
    assert math.fsum(shares) == pytest.approx(1.0) and min(shares) >= 0


nodes = st.tuples(
    st.integers(-1, 3), st.sampled_from(DIRECTIONS), st.integers(-1, 0), st.integers(0, 9), st.floats(0, 9)
)


@given(
    st.lists(nodes, min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 9), st.booleans(), seconds), max_size=30),
    st.booleans(),
)
def test_the_step_is_divided_without_a_rest(
    found: list[tuple[int, str, int, int, float]], events: list[tuple[int, bool, float]], known: bool
) -> None:
    note = {
        "modules": [[f"L['self'].layers.{number}", "Block"] for number in range(4)],
        "lines": [["m.py", 1, "forward", "x"]],
        "nodes": {str(number): list(node) for number, node in enumerate(found)},
        "kernels": {f"k:{number}": [str(number), str(number + 1)] for number in range(len(found))},
    }
    layer_map = read_layers(note, note["kernels"].keys(), "Net") if known else LayerMap()
    assert not known or len(layer_map.kernels) == len(found)
    works = [
        Work(
            GRAPH if of_graph else EAGER,
            "",
            place,
            place + time_s,
            place,
            place,
            0 if of_graph else None,
            activity=of(kernel, time_s),
        )
        for place, (kernel, of_graph, time_s) in enumerate(events)
    ]
    window = StepWindow("main", (0.0, 100.0), (0.0, 100.0))
    steps = Steps(1.0, window, works, (), None, {})  # type: ignore[arg-type]
    found_times = sum_times_by_layer(DividedSteps(steps, {}, {0: GraphLayers(layer_map)}))
    by_layer, by_line = found_times.layers, found_times.lines
    whole_s = math.fsum(work.duration_s for work in works)
    assert math.fsum(row.time_s for row in by_layer) == pytest.approx(whole_s)
    assert math.fsum(row.time_s for row in by_line) == pytest.approx(whole_s)
    assert all(row.shared_s <= row.time_s * (1 + 1e-9) for row in by_layer)


def of(kernel: int, time_s: float) -> Activity:
    return Activity(
        0, "k", "kernel", time_s, CallSite(kernel, 1, "k", None, None, handle=f"k:{kernel}"), None, None, 0, None
    )


@given(st.text(max_size=60))
def test_any_text_is_read_as_a_path(text: str) -> None:
    found = read_path(text)
    assert all(found.names)

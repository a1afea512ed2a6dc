"""Which work each kernel of a library call is credited with, held against formulas of our own on recorded calls."""

from __future__ import annotations

import ast
import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from h200 import FOLDER, activities_of, text_of

from inductor_bench.analysis.call_work import HELPER_KERNELS, OperatorPart, _name_sides, find_parts
from inductor_bench.analysis.kernel_aggregation import KernelFacts, aggregate_kernels
from inductor_bench.records.module import Kernel
from inductor_bench.records.traced import Activity, OperatorCall, OperatorCost
from inductor_bench.source.module_reader import read_module
from inductor_bench.trace.attribution import attribute_activities
from inductor_bench.trace.iterations import split_iterations
from inductor_bench.trace.rows import read_trace
from inductor_bench.worker.survey import count_operator_costs

BACKWARD = "mixnet_l_p10/backward"
BYTES = {"c10::Half": 2, "float": 4}


@cache
def first_iteration() -> tuple[Activity, ...]:
    return tuple(activity for activity in activities_of(BACKWARD) if activity.iteration == 0)


def replayed(name: str) -> tuple[Activity, ...]:
    """One run of a module by itself, of those that programs replay."""
    folder, number = name.split("/")
    source = read_module(text_of(f"programs/{folder}/{number}.py"))
    trace = read_trace(FOLDER / "programs" / folder / f"{number}.trace.json.gz")
    return attribute_activities(trace, split_iterations(trace, expected=1), source)


@cache
def counted() -> tuple[Kernel, ...]:
    parts = dict.fromkeys(part for part in find_parts(first_iteration()) if part)
    calls = [OperatorCall(part.operator, part.arguments, "cuda") for part in parts]
    costs = {(call.name, call.arguments): cost for call, cost in zip(calls, count_operator_costs(calls), strict=True)}
    return aggregate_kernels(first_iteration(), 1, [0], KernelFacts(costs=costs))


def kernels_named(text: str) -> list[Kernel]:
    return [kernel for kernel in counted() if text in kernel.name]


def one_gradient(dims: Any) -> int:
    """Multiply-adds of one gradient of a convolution, twice: as many as of the convolution itself."""
    gradient, _, weight = dims[:3]
    return 2 * math.prod(gradient) * math.prod(weight[1:])


def calls_of(activities: Iterable[Activity], operator: str) -> dict[int, list[Activity]]:
    calls: dict[int, list[Activity]] = defaultdict(list)
    for activity in activities:
        if activity.operator == operator:
            calls[activity.instance].append(activity)
    return calls


def test_all_flops_of_the_graph_are_credited_once() -> None:
    expected = 0
    for members in calls_of(first_iteration(), "aten::convolution_backward").values():
        arguments = members[0].arguments
        assert arguments is not None
        mask = ast.literal_eval(arguments.concrete[10])
        expected += one_gradient(arguments.dims) * (mask[0] + mask[1])
    for members in calls_of(first_iteration(), "aten::mm").values():
        assert members[0].arguments is not None
        (rows, inner), (_, columns) = members[0].arguments.dims[:2]
        expected += 2 * rows * inner * columns
    assert sum(kernel.work.flops or 0 for kernel in counted()) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("mark", "place"), [("dgrad", 0), ("wgrad", 1)])
def test_a_kernel_named_after_a_gradient_gets_the_flops_of_that_gradient(mark: str, place: int) -> None:
    expected: Counter[str] = Counter()
    for members in calls_of(first_iteration(), "aten::convolution_backward").values():
        named = [one for one in members if mark in one.name and not HELPER_KERNELS.search(one.name)]
        time_s = sum(one.duration_s for one in named)
        for one in named:
            assert one.arguments is not None and ast.literal_eval(one.arguments.concrete[10])[place]
            expected[one.name] += one_gradient(one.arguments.dims) * one.duration_s / time_s
    assert len(expected) >= 5
    found = {kernel.name: kernel.work.flops for kernel in counted() if kernel.name in expected}
    assert found == {name: pytest.approx(flops) for name, flops in expected.items()}


def test_layout_copies_are_counted_by_their_own_sizes_and_have_no_flops() -> None:
    (copies,) = kernels_named("direct_copy_kernel")
    sizes = []
    for activity in first_iteration():
        if activity.name == copies.name:
            assert activity.inner is not None and activity.inner[0] == "aten::copy_"
            arguments = activity.inner[1]
            sizes += [math.prod(arguments.dims[place]) * BYTES[arguments.types[place]] for place in (0, 1)]
    assert (copies.operator, copies.calls, len(sizes)) == ("aten.convolution_backward", 180, 360)
    assert copies.work.moved_bytes == pytest.approx(sum(sizes))
    assert copies.work.flops is None and copies.unjudged == ""
    assert all(group.operator_calls == pytest.approx(group.calls) for group in copies.shapes)
    assert all(group.shapes.startswith("copy_ f16[") for group in copies.shapes)


def test_equal_copies_within_one_call_are_counted_each() -> None:
    calls = calls_of(first_iteration(), "aten::convolution_backward").values()
    twins = [
        inner
        for members in calls
        for inner, number in Counter(one.inner for one in members if one.inner).items()
        if number > 1
    ]
    assert twins, "the recorded run has calls that copy two tensors of one size"


@pytest.mark.parametrize("text", ["tensorTransformGeneric", "splitKreduce", "wgrad2d_c1_k1_nhwc_reduce"])
def test_helpers_have_time_but_no_work(text: str) -> None:
    for kernel in kernels_named(text):
        assert kernel.time_s > 0
        assert (kernel.work.flops, kernel.work.moved_bytes) == (None, None)
        assert "aten.convolution_backward" in kernel.unjudged
        assert all(group.operator_calls == 0 for group in kernel.shapes)


def test_every_two_sided_gradient_call_is_divided() -> None:
    parts = find_parts(first_iteration())
    labels: dict[int, set[str]] = defaultdict(set)
    for activity, part in zip(first_iteration(), parts, strict=True):
        if activity.operator == "aten::convolution_backward" and part is not None:
            labels[activity.instance].add(part.label)
    whole = [place for place, found in labels.items() if "" in found]
    assert len(labels) == 155 and len(whole) == 1, "only the first convolution needs no gradient of its input"
    assert all({"input gradient", "weight gradient"} <= found for place, found in labels.items() if place not in whole)


@pytest.mark.parametrize(
    ("names", "sides"),
    [
        (["nvjet_a", "nvjet_b"], ["input", "weight"]),
        (["x_dgrad_a", "gemm"], ["input", "weight"]),
        (["gemm", "x_wgrad_a", "stage"], ["input", "weight", "weight"]),
        (["x_dgrad_a", "between", "x_wgrad_b"], None),
        (["gemm", "gemm", "gemm"], None),
        (["conv_depthwise2d_grad_weight_kernel<>", "conv_depthwise2d_backward_kernel<>"], ["weight", "input"]),
        (["x_wgrad_a", "between", "x_dgrad_b"], None),
        (["x_dgrad_a", "x_dgrad_b"], None),
    ],
)
def test_sides_of_a_gradient_call(names: list[str], sides: list[str] | None) -> None:
    assert _name_sides(names) == sides


def test_kernels_that_cannot_be_told_apart_share_the_call_by_time() -> None:
    members = next(iter(calls_of(first_iteration(), "aten::mm").values()))
    first = replace(members[0], name="first", duration_s=1e-6)
    second = replace(members[0], name="second", duration_s=3e-6)
    assert first.operator is not None and first.arguments is not None
    parts = find_parts([first, second])
    assert parts == (OperatorPart(first.operator, first.arguments),) * 2
    costs = {(first.operator, first.arguments): OperatorCost(flops=400, moved_bytes=40, dtype="float16")}
    found = {kernel.name: kernel for kernel in aggregate_kernels([first, second], 1, [0], KernelFacts(costs=costs))}
    assert (found["first"].work.flops, found["second"].work.flops) == (pytest.approx(100), pytest.approx(300))
    assert sum(group.operator_calls for kernel in found.values() for group in kernel.shapes) == pytest.approx(1)


def test_the_copy_of_an_addend_has_no_part_of_the_product() -> None:
    graph = replayed("graphs/0")
    members = [one for calls in calls_of(graph, "aten::addmm").values() for one in calls]
    parts = find_parts(members)
    copies = [part for one, part in zip(members, parts, strict=True) if "direct_copy_kernel" in one.name]
    products = [part for one, part in zip(members, parts, strict=True) if "direct_copy_kernel" not in one.name]
    assert copies == [None] * 8, "one for each of the four linear layers in two blocks"
    assert len(products) == 8 and all(part is not None and part.operator == "aten::addmm" for part in products)

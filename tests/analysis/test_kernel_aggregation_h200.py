"""The aggregation of real H200 traces, held against what the modules' own harness printed of the same trace."""

from __future__ import annotations

from collections import Counter

import pytest
from h200 import RECORDED, activities_of, iterations_of, module_record, source_of, text_of, trace_of
from p_text import disagreements, read_p_text

from inductor_bench.analysis.kernel_aggregation import (
    KernelFacts,
    aggregate_kernels,
    find_steady_iterations,
    total_categories,
)
from inductor_bench.records.base import Category
from inductor_bench.records.module import Kernel
from inductor_bench.records.traced import OperatorCost

NOTHING = KernelFacts()


def aggregated(name: str, facts: KernelFacts = NOTHING) -> tuple[Kernel, ...]:
    activities = activities_of(name)
    return aggregate_kernels(activities, 10, find_steady_iterations(activities, 10), facts)


@pytest.mark.parametrize("name", RECORDED)
def test_times_agree_with_the_harness_within_one_percent(name: str) -> None:
    kernels = aggregated(name)
    record = module_record(kernels, total_categories(kernels, None))
    assert disagreements(record, read_p_text(text_of(f"{name}.p.txt")), tolerance=0.01) == []


@pytest.mark.parametrize("name", RECORDED)
def test_nothing_is_left_out_or_counted_twice(name: str) -> None:
    activities, trace = activities_of(name), trace_of(name)
    inside = [index for iteration in iterations_of(name) for index in iteration.device_events]
    assert len(inside) == len(set(inside)) == len(activities) == len(trace.device_events)
    total = sum(event.duration_s for event in trace.device_events)
    kernels = aggregated(name)
    assert sum(kernel.time_s for kernel in kernels) * 10 == pytest.approx(total)
    assert sum(kernel.share for kernel in kernels) == pytest.approx(1)
    assert sum(sum(kernel.samples_s) for kernel in kernels) == pytest.approx(total)


@pytest.mark.parametrize("name", RECORDED)
def test_every_activity_has_its_call_and_a_category(name: str) -> None:
    for activity in activities_of(name):
        assert activity.call is not None, activity.name
        assert activity.kernel is not None or activity.operator is not None, activity.name
    assert all(kernel.category is not Category.OTHER for kernel in aggregated(name))


@pytest.mark.parametrize("name", RECORDED)
def test_a_triton_kernel_is_the_one_that_its_call_names(name: str) -> None:
    for activity in activities_of(name):
        if activity.kernel is not None:
            assert activity.call is not None and activity.call.kernel == activity.kernel.name
            assert activity.name == activity.kernel.event_name
            assert activity.config["num_warps"] >= 1


def test_every_conv_and_gemm_of_mixnet_has_its_aten_call() -> None:
    operators = Counter()
    for activity in activities_of("mixnet_l_p10/forward"):
        if activity.operator and activity.iteration == 0 and activity.kind == "kernel":
            operators[activity.operator, activity.instance] += 1
    calls = Counter(operator for operator, _ in operators)
    assert calls == {"aten::convolution": 155, "aten::addmm": 1}


def test_mixnet_categories_have_the_known_calls() -> None:
    totals = {total.name: total for total in total_categories(aggregated("mixnet_l_p10/forward"), None)}
    assert totals[Category.EXTERN_CONV].calls == 163  # eight of the 155 convolutions launch a second kernel
    assert totals[Category.POINTWISE].kernels == 185
    assert totals[Category.MEMSET].calls == 1
    assert sum(total.calls for total in totals.values()) == 795


def test_flops_of_a_call_that_launches_two_kernels_count_once() -> None:
    costs = {
        (activity.operator, activity.arguments): OperatorCost(flops=1000, moved_bytes=10, dtype="float16")
        for activity in activities_of("mixnet_l_p10/forward")
        if activity.operator
    }
    kernels = aggregated("mixnet_l_p10/forward", KernelFacts(costs=costs))
    convolutions = [kernel for kernel in kernels if kernel.category is Category.EXTERN_CONV]
    assert sum(kernel.work.flops or 0 for kernel in convolutions) == pytest.approx(155 * 1000)


def test_origins_come_from_the_call_not_from_the_definition() -> None:
    kernel = next(k for k in aggregated("mixnet_l_p10/forward") if k.name == "triton_poi_fused_cat_81")
    calls = [call for call in source_of("mixnet_l_p10/forward").calls if call.kernel == "triton_poi_fused_cat_81"]
    assert kernel.calls == len(calls) == 6
    assert set(kernel.origin.source_nodes) == {node for call in calls for node in call.source_nodes}
    assert len(kernel.origin.source_nodes) >= 6


def test_a_slow_iteration_does_not_count() -> None:
    from dataclasses import replace

    activities = [
        replace(activity, duration_s=activity.duration_s * (3 if activity.iteration == 4 else 1))
        for activity in activities_of("gpu_kinds/0_forward")
    ]
    steady = find_steady_iterations(activities, 10)
    assert steady == (0, 1, 2, 3, 5, 6, 7, 8, 9)
    disturbed = aggregate_kernels(activities, 10, steady, KernelFacts())
    undisturbed = {kernel.name: kernel for kernel in aggregated("gpu_kinds/0_forward")}
    for kernel in disturbed:
        assert len(kernel.samples_s) == 10, "raw samples are never dropped"
        assert kernel.time_s == pytest.approx(sum(kernel.samples_s[i] for i in steady) / 9)
        assert kernel.time_s == pytest.approx(undisturbed[kernel.name].time_s, rel=0.1)


def test_a_launch_whose_id_the_profiler_lost_is_placed_by_its_time() -> None:
    from dataclasses import replace

    from inductor_bench.trace.attribution import attribute_activities

    name = "mixnet_l_p10/forward"
    trace = trace_of(name)
    lost = next(i for i, event in enumerate(trace.device_events) if event.name.startswith("conv2d_c1_k1"))
    events = list(trace.device_events)
    events[lost] = events[lost]._replace(host_op=-1)
    damaged = replace(trace, device_events=tuple(events))
    activities = attribute_activities(damaged, iterations_of(name), source_of(name))
    assert [a.operator for a in activities] == [a.operator for a in activities_of(name)]

"""Figures that once were wrong, or could be without anybody noticing, on recorded traces and modules."""

from __future__ import annotations

import gzip
import math
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from h200 import FOLDER, RECORDED, activities_of, iterations_of, source_of, trace_of

from inductor_bench.analysis.analyse import ModuleFacts, count_input_shapes, describe_module, read_kernel_facts
from inductor_bench.analysis.evidence_files import AttributedModule
from inductor_bench.analysis.kernel_aggregation import KernelFacts, aggregate_kernels, count_visits
from inductor_bench.records.base import Category
from inductor_bench.records.code import Details, KernelDefinition, ModuleInput, ModuleSource
from inductor_bench.records.evidence import ModuleEvidence
from inductor_bench.records.module import InputShape, Kernel, Method, ModuleRecord
from inductor_bench.records.run import Peaks
from inductor_bench.records.traced import Activity, DeviceEvent, OperatorCall, OperatorCost, TensorArguments
from inductor_bench.source.module_reader import read_module
from inductor_bench.trace.attribution import attribute_activities
from inductor_bench.trace.iterations import split_iterations
from inductor_bench.trace.rows import read_trace
from inductor_bench.worker.survey import count_operator_costs

PEAKS = Peaks(
    device="made-up",
    memory_bandwidth=4e12,
    matmul_flops={"float16": 7e14, "bfloat16": 7e14, "float32": 5e13, "tf32": 3e14},
    cache_bytes=60_000_000,
    cache_bandwidth=1e13,
    launch_floor_s=7e-7,
)
SAMPLES = sorted(path.parent.name for path in (FOLDER / "samples").glob("*/trace_*.json.gz"))
F32 = TensorArguments(((64, 64, 56, 56), (64, 64, 1, 1)), ((1,), (1,)), ("float", "float"), ("", ""))


@cache
def recorded(trace: Path) -> tuple[tuple[Activity, ...], ModuleSource]:
    module = trace.with_name(trace.name.replace("trace", "module").replace(".json.gz", ".py.gz"))
    source = read_module(gzip.decompress(module.read_bytes()).decode())
    read = read_trace(trace)
    return attribute_activities(read, split_iterations(read), source), source


def aggregated(activities: Any, costs: dict[Any, OperatorCost] | None = None, **facts: Any) -> tuple[Kernel, ...]:
    iterations = 1 + max(activity.iteration for activity in activities)
    return aggregate_kernels(activities, iterations, range(iterations), KernelFacts(costs=costs or {}, **facts))


def judged(activities: Any, costs: dict[Any, OperatorCost] | None = None, **facts: Any) -> dict[str, Kernel]:
    return {kernel.name: kernel for kernel in aggregated(activities, costs, **{"peaks": PEAKS, **facts})}


def activity(name: str, operator: str | None = "aten::convolution", **fields: Any) -> Activity:
    event = DeviceEvent(name, fields.get("kind", "kernel"), 0.0, 1e-4, 0, 7, 1, 0, **fields.pop("event", {}))
    values = {"kind": "kernel", "instance": 0, "arguments": F32, **fields}
    return Activity(
        iteration=0, name=name, duration_s=1e-4, call=None, kernel=None, operator=operator, event=event, **values
    )


def test_calls_in_bfloat16_count_with_the_shapes_of_the_step() -> None:
    small = replace(F32, concrete=("small", ""))
    calls = [activity("aten::mm", "aten::mm"), activity("aten::mm", "aten::mm", arguments=small, instance=2)]
    costs = {
        ("aten::mm", F32): OperatorCost(dtype="float32", bfloat16_ratio=0.4),
        ("aten::mm", small): OperatorCost(dtype="float32", bfloat16_ratio=1.2),
    }

    def ratio(costs: dict[Any, OperatorCost], **facts: Any) -> float | None:
        (kernel,) = aggregated(calls, costs, **facts)
        return kernel.bfloat16_ratio

    assert ratio(costs) == pytest.approx(0.8), "both took as long in the module's own run"
    times = {("aten::mm", F32): 1.0, ("aten::mm", small): 3.0, ("aten::bmm", F32): 9.0}
    assert ratio(costs, call_times=times) == pytest.approx((0.4 + 3 * 1.2) / 4)
    times["aten::mm", replace(F32, concrete=("untimed", ""))] = 4.0
    assert ratio(costs, call_times=times) == pytest.approx((0.4 + 3 * 1.2 + 4.0) / 8), "it counts as equally long"
    assert ratio({}, call_times=times) is None


@pytest.mark.parametrize("name", SAMPLES)
def test_every_device_event_of_every_kind_of_module_has_its_call(name: str) -> None:
    for trace in sorted((FOLDER / "samples" / name).glob("trace_*.json.gz")):
        activities, _ = recorded(trace)
        assert activities
        for one in activities:
            assert one.call is not None, one.name
            assert one.kernel is not None or one.operator is not None or name == "wrapper", one.name


def test_launches_without_recorded_operators_are_placed_by_order() -> None:
    activities, source = recorded(FOLDER / "samples" / "wrapper" / "trace_0.json.gz")
    assert source.calls[0].operator == "aten.mm"
    found = [(one.call.operator if one.call else None, one.kernel is not None) for one in activities]
    assert found[:3] == [("aten.mm", False), ("aten.mm", False), (None, True)], "the product takes two kernels"
    assert found == found[:3] * 4


@pytest.mark.parametrize("name", RECORDED)
def test_grid_and_registers_are_given_only_if_all_launches_agree(name: str) -> None:
    launches: dict[str, set[Any]] = {}
    for one in activities_of(name):
        if one.kind == "kernel" and one.event is not None:
            launches.setdefault(one.name, set()).add(one.event.grid)
    for kernel in aggregated(activities_of(name)):
        if kernel.name in launches:
            grids = launches[kernel.name]
            assert kernel.launch.grid == (next(iter(grids)) if len(grids) == 1 else ())


def test_the_direct_copies_of_mixnet_have_no_grid_of_their_own() -> None:
    kernel = next(k for k in aggregated(activities_of("mixnet_l_p10/backward")) if "direct_copy" in k.name)
    assert kernel.launch.grid == () and kernel.launch.block == (128, 1, 1)
    assert kernel.launch.occupancy is not None and 0.7 < kernel.launch.occupancy <= 1


def test_a_float32_convolution_is_held_against_tf32_if_one_ran_in_it() -> None:
    """cuDNN may use TF32 unless it is told not to, whatever is set for matrix products."""
    first, second = activity("sm90_xmma_fprop_f32f32_tf32f32_f32"), activity("convolve_common_engine_float", instance=1)
    cost = {("aten::convolution", F32): OperatorCost(flops=30_000_000_000, moved_bytes=10, dtype="float32")}
    product = activity("sgemm_128x64", "aten::mm", instance=2)
    cost["aten::mm", F32] = OperatorCost(flops=3_000_000_000, moved_bytes=10, dtype="float32")
    found = judged([first, second, product], cost)
    for name in (first.name, second.name):
        assert (found[name].work.dtype, found[name].roof.peak_share) == ("tf32", pytest.approx(1.0))
    assert (found[product.name].work.dtype, found[product.name].roof.peak_share) == ("float32", pytest.approx(0.6))
    allowed = judged([product], cost, tf32=True)
    assert (allowed[product.name].work.dtype, allowed[product.name].roof.peak_share) == ("tf32", pytest.approx(0.1))


def test_products_of_a_processor_in_bfloat16_are_held_against_its_peak() -> None:
    """Convolutions and Inductor's templates stay in float32."""
    product, image = activity("aten::mm", "aten::mm"), activity("mkldnn_convolution", instance=1)
    cost = {
        ("aten::mm", F32): OperatorCost(flops=30_000_000_000, moved_bytes=10, dtype="float32"),
        ("aten::convolution", F32): OperatorCost(flops=3_000_000_000, moved_bytes=10, dtype="float32"),
    }
    found = judged([product, image], cost)
    assert (found[product.name].work.dtype, found[product.name].roof.peak_share) == ("float32", None), "beyond it"
    found = judged([product, image], cost, bf16=True)
    assert (found[product.name].work.dtype, found[product.name].roof.peak_share) == ("bfloat16", pytest.approx(3 / 7))
    assert found[image.name].work.dtype == "float32"


def test_half_precision_on_tensor_cores_is_not_taken_for_tf32() -> None:
    name = "cutlass_75_tensorop_f16_s1688gemm_f16_64x64"
    cost = {("aten::convolution", F32): OperatorCost(flops=1, moved_bytes=1, dtype="float16")}
    assert judged([activity(name)], cost)[name].work.dtype == "float16"


def test_copies_and_memsets_have_the_bytes_of_the_profiler_and_no_roof() -> None:
    sized = {"kind": "memcpy", "event": {"moved_bytes": 1_000_000}}
    inside = activity("Memcpy DtoD (Device -> Device)", "aten::sort", **sized)
    across = activity("Memcpy HtoD (Pageable -> Device)", "aten::copy_", instance=1, **sized)
    zeros = activity("Memset (Device)", instance=2, kind="memset", event={"moved_bytes": 500})
    found = judged([inside, across, zeros])
    assert [found[one.name].work.moved_bytes for one in (inside, across, zeros)] == [2_000_000, 1_000_000, 500]
    for kernel in found.values():
        assert kernel.roof.bandwidth == pytest.approx((kernel.work.moved_bytes or 0) / 1e-4)
        assert (kernel.roof.bound, kernel.roof.gain_limit_s, kernel.work.dtype) == ("unknown", None, None)


def test_a_copy_by_a_kernel_is_held_against_memory() -> None:
    copy = activity("direct_copy_kernel", "aten::copy_")
    cost = {("aten::copy_", F32): OperatorCost(moved_bytes=200_000_000, dtype="float32")}
    found = judged([copy], cost)[copy.name]
    assert (found.category, found.roof.bound, found.roof.peak_share) == (Category.COPY, "memory", pytest.approx(0.5))


def test_a_template_whose_products_are_not_counted_is_not_called_memory_bound() -> None:
    activities, _ = recorded(FOLDER / "flex" / "trace_0.json.gz")
    flex = next(kernel for kernel in judged(activities).values() if kernel.category is Category.TEMPLATE)
    assert flex.work.moved_bytes and flex.work.flops is None
    assert (flex.roof.bound, flex.roof.peak_share, flex.roof.gain_limit_s) == ("unknown", None, None)
    assert "matrix products" in flex.unjudged
    activities, _ = recorded(FOLDER / "tem" / "trace_0.json.gz")
    product = next(kernel for kernel in judged(activities).values() if kernel.category is Category.TEMPLATE)
    assert product.work.flops and product.unjudged == "" and product.roof.bound in ("compute", "latency", "cache")


def test_a_kernel_that_draws_random_numbers_on_a_cpu_has_no_roof() -> None:
    for source, unjudged in (("out[i] = in[i] * 2;", False), ("out[i] = normalized_rand_cpu(seed, i);", True)):
        kernel = KernelDefinition("cpp_0", "cpp_0", "id", Category.CPP, "cpp", source, 1, moved_bytes=10**6)
        found = judged([replace(activity("cpp_0", None), kernel=kernel)])["cpp_0"]
        assert found.roof.bandwidth == pytest.approx(1e10)
        assert (found.roof.gain_limit_s is None, "random numbers" in found.unjudged) == (unjudged, unjudged)


def loop(name: str, end: str, body: str, step: int = 1) -> str:
    cast = "static_cast<int64_t>"
    return f"for(int64_t {name}={cast}(0L); {name}<{cast}({end}); {name}+={cast}({step}L)) {{ {body} }}"


def test_the_innermost_loops_of_a_cpp_kernel_visit_elements() -> None:
    pairs = loop(
        "x0", "1500L", "double sum = 0;" + loop("x1", "1500L", "if (x1 < 3) { sum += in[x1]; }") + "out[x0] = sum;"
    )
    assert count_visits(pairs) == 1500 * 1500
    rows = loop("x0", "64L", loop("x1", "100L", "max;", 16) + loop("x1", "100L", "exp;", 16) + "one;")
    assert count_visits(rows) == 2 * 64 * 100
    assert count_visits("{ out[0] = in[0]; }") == 0
    assert count_visits(loop("x0", "ks0", "out[x0] = 1;")) is None


def test_a_cpp_kernel_that_computes_with_each_element_many_times_has_no_roof() -> None:
    for length, unjudged in (("3000L", False), ("1500L", True)):
        inner = loop("x1", length, "sum += in[x1];")
        source = inner if not unjudged else loop("x0", length, inner)
        kernel = KernelDefinition("cpp_0", "cpp_0", "id", Category.CPP, "cpp", source, 1, moved_bytes=12_000)
        found = judged([replace(activity("cpp_0", None), kernel=kernel)])["cpp_0"]
        assert (found.roof.gain_limit_s is None, "about 750 times" in found.unjudged) == (unjudged, unjudged)


def test_a_sort_has_no_share_of_any_peak() -> None:
    arguments = TensorArguments(
        ((128, 65536), (), ()), ((65536, 1), (), ()), ("float", "Scalar", "Scalar"), ("", "1", "False")
    )
    (cost,) = count_operator_costs([OperatorCall("aten::sort", arguments, "cuda")])
    assert cost.moved_bytes is None and "algorithm" in cost.reason
    found = judged([activity("radix", "aten::sort", arguments=arguments)], {("aten::sort", arguments): cost})["radix"]
    assert found.roof.bound == "unknown" and found.unjudged == cost.reason


def test_an_operator_without_a_formula_is_not_called_memory_bound() -> None:
    cost = {("aten::convolution", F32): OperatorCost(None, 10**8, "float32", "no FLOP formula is known for it")}
    found = judged([activity("k")], cost)["k"]
    assert (found.roof.bound, found.roof.gain_limit_s, found.work.moved_bytes) == ("unknown", None, 10**8)


ATTENTION = {
    "aten::_scaled_dot_product_flash_attention_backward": (
        ["h", "h", "h", "h", "h", "s", "", "", "512", "512", "0.", "True", "seed", "none", "0.125"]
    ),
    "aten::_scaled_dot_product_efficient_attention_backward": (
        ["h", "h", "h", "h", "", "h", "s", "i", "i", "0.", "[True, True, True, False]", "True", ""]
    ),
    "aten::_scaled_dot_product_cudnn_attention_backward": (
        ["h", "h", "h", "h", "h", "s1", "i", "i", "", "", "", "512", "512", "0.", "True", ""]
    ),
}
KINDS = {
    "h": ((2, 8, 512, 64), (262144, 32768, 64, 1), "c10::Half"),
    "s": ((2, 8, 512), (4096, 512, 1), "float"),
    "s1": ((2, 8, 512, 1), (4096, 512, 1, 1), "float"),
    "i": ((), (), "long int"),
    "seed": ((2,), (1,), "long unsigned int"),
    "none": ((), (), "long unsigned int"),
    "": ((), (), ""),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_gradients_of_causal_attention_take_five_half_products(name: str) -> None:
    """As recorded on an H200, with the optional tensors undefined."""
    columns = [KINDS.get(text, ((), (), "ScalarList" if "[" in text else "Scalar")) for text in ATTENTION[name]]
    concrete = tuple("" if text in KINDS else text for text in ATTENTION[name])
    dims, strides, types = (tuple(column[place] for column in columns) for place in range(3))
    (cost,) = count_operator_costs([OperatorCall(name, TensorArguments(dims, strides, types, concrete), "cuda")])
    product = 2 * (2 * 8) * 512 * 512 * 64
    assert cost.flops == pytest.approx(5 * product * 513 / 1024), cost.reason
    half, statistics = 2 * 8 * 512 * 64 * 2, 2 * 8 * 512 * 4
    # Gradient, three inputs and the output are read, three gradients are written.
    assert cost.moved_bytes == pytest.approx(8 * half + statistics, abs=64)


@pytest.mark.parametrize("name", RECORDED)
def test_no_two_library_kernels_of_a_graph_share_an_id(name: str) -> None:
    kernels = aggregated(activities_of(name))
    ids = Counter(kernel.kernel_id for kernel in kernels if kernel.line is None)
    assert set(ids.values()) <= {1}


def attributed(wall_s: float) -> AttributedModule:
    name = "gpu_kinds/0_forward"
    module = ModuleEvidence("m", "m", "m.py", tf32=True, measurement=Method("-p"))
    iterations = iterations_of(name)
    steady, activities = tuple(range(len(iterations))), activities_of(name)
    details = Details((wall_s,) * 3)
    return AttributedModule(module, source_of(name), details, {}, trace_of(name), iterations, steady, activities)


def described(wall_s: float) -> ModuleRecord:
    return describe_module(attributed(wall_s), ModuleFacts())


def test_tf32_of_the_program_counts_if_the_device_has_it() -> None:
    found = attributed(1.0)
    assert read_kernel_facts(found, ModuleFacts(), None).tf32 and describe_module(found, ModuleFacts()).tf32
    on_cpu = replace(found, source=replace(found.source, device="cpu"))
    assert not read_kernel_facts(on_cpu, ModuleFacts(), None).tf32


def test_bfloat16_of_the_program_counts_on_a_processor_that_has_it() -> None:
    found = attributed(1.0)
    module = replace(found.module, bf16=True)
    on_gpu = replace(found, module=module)
    on_cpu = replace(on_gpu, source=replace(found.source, device="cpu"))
    peaks = Peaks("cpu", memory_bandwidth=1e10, matmul_flops={"float32": 1e11, "bfloat16": 6e11})
    emulated = replace(peaks, matmul_flops={"float32": 1e11})
    for known, has_it in ((peaks, True), (None, True), (emulated, False)):
        facts = ModuleFacts(peaks=known)
        assert read_kernel_facts(on_cpu, facts, None).bf16 is describe_module(on_cpu, facts).bf16 is has_it
        assert not read_kernel_facts(on_gpu, facts, None).bf16
    assert describe_module(on_cpu, ModuleFacts()).float32_products == "bfloat16"
    assert describe_module(found, ModuleFacts()).float32_products == "tf32"


def test_shares_of_wall_and_idle_time_make_up_the_whole() -> None:
    module = described(4e-4)
    assert sum(kernel.share for kernel in module.kernels) == pytest.approx(1)
    covered = sum(kernel.wall_share for kernel in module.kernels) * module.times.wall_time_s
    assert covered + module.times.idle.time_s == pytest.approx(module.times.wall_time_s)
    assert module.notes == ()


def test_a_wall_time_far_beyond_the_profiled_one_is_not_passed_off_as_idle() -> None:
    """A neighbour on the machine made ten times as much of unprofiled runs once, and the host was blamed for it."""
    profiled = described(1e-3).times.profiled_time_s
    (note,) = described(10 * profiled).notes
    assert "10.0 times" in note and f"{profiled * 9e3:.2f} ms of the time shown as idle" in note


def test_a_graph_has_the_types_and_shapes_of_its_inputs() -> None:
    found = described(1.0).inputs
    tensors = [one for one in source_of("gpu_kinds/0_forward").inputs if one.kind == "tensor"]
    assert sum(one.count for one in found) == len(tensors) > len(found)
    assert {(one.dtype, one.shape) for one in found} == {(one.dtype, one.shape) for one in tensors}
    sizes = [math.prod(one.shape) for one in found if not one.dtype.startswith("int")]
    assert sizes == sorted(sizes, reverse=True)
    number = ModuleInput("n", "tensor", "int64", (8, 512))
    source = replace(source_of("gpu_kinds/0_forward"), inputs=(*tensors, number, ModuleInput("s0", "int", value=3)))
    assert count_input_shapes(source) == (InputShape("int64", (8, 512)), *found)

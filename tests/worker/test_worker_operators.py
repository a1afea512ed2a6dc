"""Costs of recorded library calls: ``data/operator_calls.json`` holds calls as an H200's and a CPU's profiler wrote
them. Expected figures are worked out here from the shapes, not taken from the code under test."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import pytest
import torch
from operator_calls import RECORDED, to_call

from inductor_bench.records.traced import OperatorCall, OperatorCost, TensorArguments
from inductor_bench.worker import survey
from inductor_bench.worker.survey import count_operator_costs, time_in_bfloat16


def recorded(name: str, dtype: str = "") -> list[OperatorCall]:
    return [to_call(row) for row in RECORDED if row["name"] == name and dtype in row["types"][0]]


def make(name: str, *arguments: Any, device: str = "cpu", dtype: str = "float") -> OperatorCall:
    """A call as a profiler would record it: tuples are contiguous tensors, ``None`` and text stand for themselves."""
    dims, strides, types, concrete = [], [], [], []
    for item in arguments:
        tensor = isinstance(item, tuple)
        dims.append(item if tensor else ())
        strides.append(tuple(prod(item[axis + 1 :]) for axis in range(len(item))) if tensor else ())
        scalar = "ScalarList" if str(item).startswith("[") else "Scalar"
        types.append(dtype if tensor else "" if item is None else scalar)
        concrete.append("" if tensor or item is None else item)
    return OperatorCall(name, TensorArguments(tuple(dims), tuple(strides), tuple(types), tuple(concrete)), device)


def cost(call: OperatorCall) -> OperatorCost:
    return count_operator_costs([call])[0]


def test_calls_are_timed_in_float32_and_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call whose layout is not recorded is left out, and so is the rest when the time is over."""
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    first, second = (make("aten::mm", (size, 64), (64, 32)) for size in (16, 32))
    packed = replace(first, arguments=replace(first.arguments, strides=((64, 1), ())))
    found = time_in_bfloat16([packed, first, second], threads)
    assert set(found) == {first, second} and all(ratio > 0 for ratio in found.values())
    assert torch.get_float32_matmul_precision() == precision
    monkeypatch.setattr(survey, "TIMING_S", 0.0)
    assert not time_in_bfloat16([first], threads)


def test_mixnet_forward_has_the_flops_of_its_155_convolutions() -> None:
    rows = [row for row in RECORDED if row["source"].startswith("mixnet_l")]
    costs = count_operator_costs([to_call(row) for row in rows])
    total: dict[str, int] = {}
    for row, each in zip(rows, costs, strict=True):
        assert each.reason == "" and each.flops is not None and each.moved_bytes
        assert each.dtype == "float16"
        total[row["name"]] = total.get(row["name"], 0) + row["count"] * each.flops
    assert sum(row["count"] for row in rows if row["name"] == "aten::convolution") == 155
    assert total["aten::convolution"] / 1e9 == pytest.approx(141.75, abs=0.005)
    assert total["aten::addmm"] == 2 * 128 * 1536 * 1000


def test_a_strided_convolution_moves_its_tensors_once() -> None:
    stem = next(call for call in recorded("aten::convolution") if call.arguments.dims[0] == (128, 3, 224, 224))
    elements = 128 * 3 * 224 * 224 + 32 * 3 * 3 * 3 + 128 * 32 * 112 * 112
    expected = OperatorCost(2 * 128 * 32 * 112 * 112 * 27, 2 * elements, "float16")
    assert cost(stem) == expected
    assert cost(recorded("aten::cudnn_convolution")[0]) == expected


def test_a_depthwise_convolution_is_counted_by_its_groups() -> None:
    calls = [call for call in recorded("aten::convolution") if call.arguments.dims[1][1] == 1]
    call = next(call for call in calls if call.arguments.concrete[8] == str(call.arguments.dims[0][1]))
    batch, channels, height, width = call.arguments.dims[0]
    stride = int(call.arguments.concrete[3].strip("[]").split(",")[0])
    kernel = prod(call.arguments.dims[1][2:])
    assert cost(call).flops == 2 * batch * channels * (height // stride) * (width // stride) * kernel


@pytest.mark.parametrize("mask", ["[True, True, False]", "[False, True, False]", "[True, False, False]"])
def test_a_convolution_backward_costs_a_forward_for_each_gradient(mask: str) -> None:
    call = recorded("aten::convolution_backward")[0]
    arguments = TensorArguments(
        call.arguments.dims, call.arguments.strides, call.arguments.types, (*call.arguments.concrete[:-1], mask)
    )
    masked = OperatorCall(call.name, arguments, "cpu")
    for_input, for_weight = "[True" in mask, ", True" in mask
    # Groups of 2: torch's counter would double the gradient of the weight.
    forward = 2 * 2 * 12 * 16 * 16 * (4 * 3 * 3)
    data, weight, gradient = 2 * 8 * 256, 12 * 4 * 9, 2 * 12 * 256
    elements = gradient + for_input * (weight + data) + for_weight * (data + weight)
    assert cost(masked) == OperatorCost(forward * (for_input + for_weight), 4 * elements, "float32")


def test_onednn_names_are_counted_as_their_aten_equivalents() -> None:
    forward = 2 * 2 * 12 * 16 * 16 * 36
    elements = 2 * 8 * 256 + 12 * 36 + 12 + 2 * 12 * 256
    expected = OperatorCost(forward, 4 * elements, "float32")
    assert cost(recorded("aten::mkldnn_convolution")[0]) == expected
    assert cost(recorded("mkldnn::_convolution_pointwise")[0]) == expected
    opaque = recorded("mkldnn::_linear_pointwise", "BFloat16")[0]
    assert cost(opaque) == OperatorCost(2 * 4 * 2048 * 64, 2 * (4 * 2048 + 64 * 2048 + 64 + 4 * 64), "bfloat16")
    batched = cost(recorded("mkldnn::_linear_pointwise", "float")[0])
    assert batched == OperatorCost(2 * 28 * 32 * 64, 4 * (28 * 32 + 64 * 32 + 28 * 64), "float32")


@pytest.mark.skipif("not __import__('torch').backends.mkl.is_available()", reason="this torch is built without MKL")
def test_a_packed_weight_is_read_once() -> None:
    call = recorded("mkl::_mkl_linear")[0]
    assert cost(call) == OperatorCost(2 * 4 * 2048 * 64, 4 * (4 * 2048 + 64 * 2048 + 4 * 64), "float32")


def test_the_out_argument_of_a_product_is_written_and_not_read() -> None:
    elements = 2048 * 1024 + 1024 * 4096 + 2048 * 4096
    assert cost(recorded("aten::mm")[0]) == OperatorCost(2 * 2048 * 1024 * 4096, 2 * elements, "float16")


def test_cuda_attention_is_counted_without_a_gpu() -> None:
    shape = (2, 4, 128, 64)
    name = "aten::_scaled_dot_product_flash_attention"
    full = cost(make(name, shape, shape, shape, "0.", "False", "False", None, device="cuda", dtype="c10::Half"))
    causal = cost(make(name, shape, shape, shape, "0.", "True", "False", None, device="cuda", dtype="c10::Half"))
    products = 2 * 2 * (2 * 4) * 128 * 128 * 64
    assert (full.flops, full.dtype, full.reason) == (products, "float16", "")
    assert causal.flops == products * 129 // 256
    assert full.moved_bytes is not None and full.moved_bytes >= 4 * 2 * prod(shape)


def test_cpu_attention_is_counted_like_any_other() -> None:
    forward = cost(recorded("aten::_scaled_dot_product_flash_attention_for_cpu")[0])
    tensor, rows = 2 * 4 * 32 * 16, 2 * 4 * 32
    assert forward == OperatorCost(2 * 2 * 8 * 32 * 32 * 16 * 33 // 64, 4 * (4 * tensor + rows), "float32")
    shape = (2, 4, 32, 16)
    name = "aten::_scaled_dot_product_flash_attention_for_cpu_backward"
    backward = cost(make(name, shape, shape, shape, shape, shape, shape[:-1], "0.", "False", None, None))
    assert backward.flops == 5 * 2 * 8 * 32 * 32 * 16


def test_integer_products_are_counted() -> None:
    call = make("aten::_int_mm", (32, 64), (64, 16), dtype="signed char")
    assert cost(call) == OperatorCost(2 * 32 * 64 * 16, 32 * 64 + 64 * 16 + 4 * 32 * 16, "int8")


def test_an_operator_without_a_product_has_bytes_and_needs_no_reason() -> None:
    elements = 2 * 8 * 256
    assert cost(recorded("aten::native_layer_norm")[0]) == OperatorCost(None, 4 * (2 * elements + 2 * 2 * 8), "float32")
    assert cost(recorded("aten::copy_")[0]) == OperatorCost(None, 4 * 2 * elements, "float32")
    assert cost(recorded("aten::upsample_bilinear2d")[0]) == OperatorCost(None, 4 * 5 * elements, "float32")


def test_views_move_nothing() -> None:
    assert cost(recorded("aten::transpose")[0]).moved_bytes == 0


def test_expanded_inputs_are_read_once() -> None:
    arguments = TensorArguments(
        ((8, 64), (8, 64), ()), ((64, 1), (0, 1), ()), ("float", "float", "Scalar"), ("", "", "1")
    )
    assert cost(OperatorCall("aten::add", arguments, "cpu")).moved_bytes == 4 * (8 * 64 + 64 + 8 * 64)


def test_a_gather_reads_the_rows_it_needs_and_not_the_table() -> None:
    assert cost(recorded("aten::embedding")[0]) == OperatorCost(None, 2 * 2 * 16 * 4 + 2 * 8, "float32")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (recorded("aten::cat")[0], "element type"),
        (recorded("aten::index")[0], "no overload"),
        (recorded("aten::scatter_add")[0], "indices"),
        (make("mylib::fused_thing", (2, 2)), "no operator mylib::fused_thing"),
        (make("graph_0_cpp_fused_add_0", (2, 2)), "no operator"),
        (make("aten::mm", (2, 3), (4, 5)), ""),
        (make("aten::convolution", (2, 3), (4, 5), None, "[nonsense", "[1]", "[1]", "False", "[0]", "1"), "nonsense"),
        (make("aten::_cudnn_rnn"), "no overload"),
    ],
)
def test_what_cannot_be_counted_says_why_and_raises_nothing(call: OperatorCall, words: str) -> None:
    found = cost(call)
    assert (found.flops, found.moved_bytes) == (None, None)
    assert found.reason and words in found.reason


def test_matrix_work_without_a_formula_is_not_taken_for_none() -> None:
    found = cost(make("aten::_weight_norm_interface", (4, 4), (4, 1), "0"))
    assert (found.flops, found.reason) == (None, "")
    counted = cost(make("aten::conv_tbc", (8, 2, 4), (3, 4, 6), (6,), "0"))
    assert counted.flops is None and "no FLOP formula" in counted.reason


def test_costs_come_in_order_and_equal_calls_cost_the_same() -> None:
    first, second = make("aten::mm", (2, 4), (4, 8)), make("aten::mm", (2, 4), (4, 16))
    costs = count_operator_costs([first, second, first])
    assert [each.flops for each in costs] == [128, 256, 128]
    assert count_operator_costs([]) == []

"""Standalone files of library calls: each kind runs, agrees with a more precise run, and notices what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import forking_python
import pytest
import torch

from inductor_bench.records.base import Category
from inductor_bench.records.code import Argument, Launch, Storage, TensorView, Values
from inductor_bench.source.harness import operator_main
from inductor_bench.source.standalone_header import StandaloneHeader, UnwritableKernelError
from inductor_bench.source.standalone_writer import find_device_type, write_operator_file
from inductor_bench.store.codec import encode

NORMAL = Values("normal")


class Call:
    """Builds a launch of an operator, one argument after another."""

    def __init__(self, operator: str) -> None:
        self.launch = Launch("", operator, 1, (0,), (), ())

    def tensor(self, *shape: int, dtype: str = "float32", values: Values = NORMAL, out: bool = False) -> Call:
        itemsize = getattr(torch, dtype).itemsize
        strides = [prod(shape[place + 1 :]) for place in range(len(shape))]
        view = TensorView(len(self.launch.storages), 0, shape, tuple(strides), dtype, itemsize)
        storage = Storage(prod(shape) * itemsize, dtype, "cpu", 64, values)
        self.launch = replace(self.launch, storages=(*self.launch.storages, storage))
        argument = Argument("tensor", tensor=view)
        if not out:
            return self.add(argument)
        written = (*self.launch.mutated, len(self.launch.arguments) + len(self.launch.keywords))
        keywords = {**self.launch.keywords, "out": argument}
        self.launch = replace(self.launch, keywords=keywords, mutated=written)
        return self

    def add(self, *arguments: Argument) -> Call:
        self.launch = replace(self.launch, arguments=(*self.launch.arguments, *arguments))
        return self

    def integers(self, *numbers: int) -> Call:
        return self.add(Argument("list", items=tuple(Argument("int", integer=number) for number in numbers)))

    def integer(self, number: int) -> Call:
        return self.add(Argument("int", integer=number))

    def truth(self, value: bool) -> Call:
        return self.add(Argument("bool", integer=int(value)))

    def keywords(self, **arguments: Argument) -> Call:
        self.launch = replace(self.launch, keywords={**self.launch.keywords, **arguments})
        return self

    def none(self) -> Call:
        return self.add(Argument("none"))


def text_of(launch: Launch, **recorded: Any) -> str:
    header = StandaloneHeader(str(launch.operator), "1" * 16, Category.EXTERN_ATEN)
    facts = {"name": header.name, "kernel_id": header.kernel_id, "launch": encode(launch), "threads": 1, **recorded}
    return write_operator_file(header, launch, facts)


def load(launch: Launch, folder: Path, **recorded: Any) -> dict[str, Any]:
    path = folder / "operator.py"
    path.write_text(text_of(launch, **recorded))
    namespace: dict[str, Any] = {"__name__": "operator", "__file__": str(path), "__doc__": ""}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    return namespace


CONVOLUTION = (
    Call("aten.convolution.default")
    .tensor(2, 4, 9, 9)
    .tensor(6, 2, 3, 3)
    .none()
    .integers(2, 2)
    .integers(1, 1)
    .integers(1, 1)
    .truth(False)
    .integers(0, 0)
    .integer(2)
    .launch
)
ADDMM = Call("aten.addmm.out").tensor(5).tensor(7, 3).tensor(3, 5).tensor(7, 5, out=True).launch
HALF = Call("aten.mm.out").tensor(64, 96, dtype="bfloat16").tensor(96, 32, dtype="bfloat16")
ATTENTION = Call("aten._scaled_dot_product_flash_attention_for_cpu.default")
SORT = Call("aten.sort.stable").tensor(8, 40)
INDICES = Values("integers", 0, 9)
SCATTER = Call("aten.index_add.default").tensor(10, 4).integer(0).tensor(50, dtype="int64", values=INDICES)
RANDOM = Call("aten.randint.low_out").integer(-5).integer(5).integers(6).tensor(6, dtype="int64", out=True).launch
BITS = Call("aten.bitwise_and.Tensor").tensor(9, dtype="int64", values=INDICES)
PRECISE = {
    "convolution": CONVOLUTION,
    "addmm": ADDMM,
    "half": HALF.tensor(64, 32, dtype="bfloat16", out=True).launch,
    "attention": ATTENTION.tensor(1, 2, 8, 16).tensor(1, 2, 8, 16).tensor(1, 2, 8, 16).launch,
    "sort": SORT.keywords(stable=Argument("bool", integer=1), dim=Argument("int", integer=1)).launch,
    "scatter": SCATTER.tensor(50, 4).launch,
}


@pytest.mark.parametrize("name", PRECISE)
def test_a_call_agrees_with_a_more_precise_one(name: str, tmp_path: Path) -> None:
    operator = load(PRECISE[name], tmp_path)
    passed, why = operator["check"]()
    assert passed and "the same call in float64" in why
    arguments = operator["make_arguments"]()
    operator["call"](arguments)
    assert operator["outputs"](arguments)


def test_a_wrong_result_is_noticed() -> None:
    right = torch.randn(100)
    wrong = right.clone()
    wrong[7] += 0.01
    wide = [right.double(), torch.arange(3)]
    assert operator_main._compare([right, torch.arange(3)], wide, operator_main.TOLERANCES) == ""
    assert "1 of 100 elements" in operator_main._compare([wrong, torch.arange(3)], wide, operator_main.TOLERANCES)
    assert operator_main._compare([right, torch.arange(3) + 1], wide, operator_main.TOLERANCES) == "integers"


def test_whole_numbers_are_compared_with_the_reference(tmp_path: Path) -> None:
    launch = BITS.tensor(9, dtype="int64", values=INDICES).launch
    operator = load(launch, tmp_path)
    assert operator["check"]()[0] is None
    arguments = operator["make_arguments"]()
    result = operator["call"](arguments)
    reference = operator["fingerprint"]([result])
    assert load(launch, tmp_path, reference=reference)["check"]()[0] is True
    reference = operator["fingerprint"]([result + 1])
    assert load(launch, tmp_path, reference=reference)["check"]()[0] is False


def test_random_results_are_compared_by_shape_only(tmp_path: Path) -> None:
    operator = load(RANDOM, tmp_path)
    assert operator["check"]() == (True, "random: only shapes and types are compared")
    reference = operator["fingerprint"]([torch.zeros(5, dtype=torch.int64)])
    assert load(RANDOM, tmp_path, reference=reference)["check"]()[0] is False
    assert not operator_main.Operator({"launch": encode(PRECISE["attention"]), "device_type": "cpu"}).is_random()


def test_work_is_counted_on_the_real_call(tmp_path: Path) -> None:
    operator = load(CONVOLUTION, tmp_path)
    arguments = operator["make_arguments"]()
    assert operator["count_flops"](operator["OPERATOR"], arguments) == 2 * (2 * 6 * 5 * 5) * (2 * 3 * 3)
    inputs, outputs = 2 * 4 * 81 + 6 * 2 * 9, 2 * 6 * 25
    assert operator["count_bytes"](operator["OPERATOR"], arguments) == 4 * (inputs + outputs)


@pytest.mark.parametrize(
    ("operator", "why"),
    [
        ("_c10d_functional.all_reduce.default", "a collective"),
        ("higher_order.cond", "a higher-order operator"),
        ("aten.mm", "no overload"),
        ("aten.mm.out'); import os", "no overload"),
    ],
)
def test_what_a_file_cannot_carry_has_a_reason(operator: str, why: str) -> None:
    with pytest.raises(UnwritableKernelError, match=why):
        text_of(Call(operator).tensor(2).launch)


def test_the_device_is_that_of_tensors_and_of_device_arguments() -> None:
    on_gpu = replace(ADDMM.storages[0], device="cuda")
    assert find_device_type(replace(ADDMM, storages=(on_gpu, *ADDMM.storages[1:]))) == "cuda"
    assert find_device_type(Call("aten.rand.default").add(Argument("device", text="cuda:0")).launch) == "cuda"
    with pytest.raises(UnwritableKernelError, match="xpu"):
        find_device_type(replace(ADDMM, storages=(replace(on_gpu, device="xpu"),)))


def test_a_file_runs_alone(tmp_path: Path) -> None:
    path = tmp_path / "addmm.py"
    path.write_text(text_of(ADDMM))
    done = subprocess.run(
        [sys.executable, path, "--check", "--json"], capture_output=True, text=True, timeout=600, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["check"] is True and result["flops"] == 2 * 7 * 3 * 5 and result["cold"]["median_s"] > 0

    unknown = replace(ADDMM, operator="aten.no_such_operator.default")
    path.write_text(text_of(unknown))
    failed = forking_python.run([str(path)])
    assert failed.returncode == 1 and failed.stderr.count("\n") == 1 and "has no operator" in failed.stderr

"""References of launches: the values with which kernels are called, and what their outputs hold."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from inductor_bench.records.code import Argument, Details, Launch, Storage, TensorView, Values
from inductor_bench.worker.profile.module_profile import with_references

COUNT = 64


def launch_of(*values: Values) -> Launch:
    """A launch of ``kernel`` with one vector for each of the values, and one for its output."""
    storages = tuple(Storage(4 * COUNT, "float32", "cpu", 64, one) for one in (*values, Values("zeros")))
    views = [TensorView(place, 0, (COUNT,), (1,), "float32", 4) for place in range(len(storages))]
    arguments = tuple(Argument("tensor", tensor=view) for view in views)
    return Launch("kernel", None, 1, (0,), storages, arguments, mutated=(len(views) - 1,))


def made(kernel: Callable[..., Any], *values: Values) -> tuple[list[str], dict[str, Any]]:
    """The kinds of the values of the launch, and what its reference says of the output."""
    module = ModuleType("compiled")
    vars(module)["kernel"] = kernel
    found = with_references(Details(launches=(launch_of(*values),)), module, "cpu")
    (launch,), (reference,) = found.launches, found.references
    assert reference.fingerprint is not None, reference.error
    return [storage.values.kind for storage in launch.storages], reference.fingerprint["tensors"][0]


def normalise(x: torch.Tensor, variance: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(x / torch.sqrt(variance + 1e-5))


def test_a_variance_is_drawn_positive() -> None:
    kinds, output = made(normalise, Values("normal"), Values("normal"))
    assert kinds == ["positive", "positive", "zeros"]
    assert output["nan"] == 0 and output["mean"] > 0


def test_a_kernel_without_nans_keeps_its_signs() -> None:
    kinds, output = made(lambda x, out: out.copy_(x), Values("normal"))
    assert kinds == ["normal", "zeros"] and output["nan"] == 0


def test_nans_of_any_values_change_nothing() -> None:
    kinds, output = made(lambda x, out: out.copy_(x * torch.nan), Values("normal"))
    assert kinds == ["normal", "zeros"] and output["nan"] == COUNT


def test_a_kernel_that_wants_negative_numbers_gets_normal_ones() -> None:
    """The square root of what is negative holds more NaNs with positive numbers."""
    kinds, output = made(lambda x, out: out.copy_(torch.sqrt(-x)), Values("normal"))
    assert kinds == ["normal", "zeros"] and 0 < output["nan"] < COUNT


def recorded(*numbers: float) -> Values:
    data = torch.tensor(numbers).repeat(COUNT // len(numbers)).numpy().tobytes()
    return Values("recorded", data=base64.b64encode(zlib.compress(data)).decode())


def test_a_short_variance_that_a_module_drew_itself_is_made_positive() -> None:
    kinds, output = made(normalise, Values("normal"), recorded(4.0, -4.0))
    assert kinds == ["positive", "recorded", "zeros"]
    assert output["nan"] == 0 and output["mean"] > 0


def test_recorded_values_that_are_not_to_blame_are_kept() -> None:
    kinds, output = made(lambda x, y, out: out.copy_(torch.sqrt(x) * y), Values("normal"), recorded(-2.0, -1.0))
    assert kinds == ["positive", "recorded", "zeros"]
    assert output["nan"] == 0 and output["mean"] < 0


def test_values_that_are_known_are_kept() -> None:
    kinds, output = made(normalise, Values("normal"), Values("zeros"))
    assert kinds == ["normal", "zeros", "zeros"] and output["nan"] == 0

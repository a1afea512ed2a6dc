"""References of launches: the values with which kernels are called, and what their outputs hold."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from inductor_bench.records.code import Argument, Details, Launch, Storage, TensorView, Values
from inductor_bench.source.generated_text import wants_positive
from inductor_bench.worker.profile.module_profile import add_references
from inductor_bench.worker.profile.recorder import remove_nans

COUNT = 64
NORMALISE = """
normalise = async_compile.cpp_pybinding(['const float*'], r'''
extern "C" void kernel(const float* in_ptr0) { auto tmp1 = 1 / std::sqrt(in_ptr0[0]); }
''')
copy = async_compile.cpp_pybinding(['const float*'], r'''
extern "C" void kernel(const float* in_ptr0) { auto tmp1 = in_ptr0[0]; }
''')
"""


def launch_of(*values: Values, kernel: str = "normalise", operator: str | None = None) -> Launch:
    """A launch with one vector for each of the values, and one for its output."""
    storages = tuple(Storage(4 * COUNT, "float32", "cpu", 64, one) for one in (*values, Values("zeros")))
    views = [TensorView(place, 0, (COUNT,), (1,), "float32", 4) for place in range(len(storages))]
    arguments = tuple(Argument("tensor", tensor=view) for view in views)
    return Launch(kernel, operator, 1, (0,), storages, arguments, mutated=(len(views) - 1,))


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    made = ModuleType("compiled")
    made.__file__ = str(tmp_path / "compiled.py")
    Path(made.__file__).write_text(NORMALISE)
    return made


def kinds(module: ModuleType, launch: Launch, *, with_recorded: bool = True) -> list[str]:
    (found,) = remove_nans([launch], module, with_recorded=with_recorded)
    return [storage.values.kind for storage in found.storages]


def test_a_variance_is_drawn_positive(module: ModuleType) -> None:
    assert kinds(module, launch_of(Values("normal"), Values("normal"))) == ["positive", "positive", "zeros"]


def test_a_kernel_without_roots_keeps_its_signs(module: ModuleType) -> None:
    assert kinds(module, launch_of(Values("normal"), kernel="copy")) == ["normal", "zeros"]


def test_values_that_are_known_are_kept(module: ModuleType) -> None:
    assert kinds(module, launch_of(Values("normal"), Values("integers", 0, 3))) == ["positive", "integers", "zeros"]


def recorded(*numbers: float) -> Values:
    data = torch.tensor(numbers).repeat(COUNT // len(numbers)).numpy().tobytes()
    return Values("recorded", data=base64.b64encode(zlib.compress(data)).decode())


def test_a_short_variance_is_made_positive_if_a_module_drew_it_itself(module: ModuleType) -> None:
    launch = launch_of(recorded(4.0, -4.0))
    (own,) = remove_nans([launch], module, with_recorded=True)
    (of_program,) = remove_nans([launch], module, with_recorded=False)
    held = zlib.decompress(base64.b64decode(own.storages[0].values.data or ""))
    assert torch.frombuffer(bytearray(held), dtype=torch.float32).eq(4.0).all()
    assert of_program == launch


@pytest.mark.parametrize(
    ("operator", "source", "wants"),
    [
        ("", "tmp3 = libdevice.rsqrt(tmp2)", True),
        ("", "auto tmp3 = tmp2.log();", True),
        ("", "auto tmp3 = std::pow(tmp2, tmp1);", True),
        ("", "tmp3 = tl_math.exp(tmp2)  # aten._log_softmax", False),
        ("", "sqrtf_table[tmp2] + catalog(tmp1)", False),
        ("aten.cudnn_batch_norm.default", "", True),
        ("aten.pow.Tensor_Scalar", "", True),
        ("aten.logical_and.default", "", False),
        ("aten.mm.default", "", False),
    ],
)
def test_roots_logarithms_and_powers_want_positive_numbers(operator: str, source: str, wants: bool) -> None:
    assert wants_positive(operator, source) is wants


def made(kernel: Callable[..., Any], *values: Values) -> dict[str, Any]:
    """What the reference of a launch says of its output."""
    module = ModuleType("compiled")
    vars(module)["normalise"] = kernel
    (reference,) = add_references(Details(launches=(launch_of(*values),)), module, "cpu").references
    assert reference.fingerprint is not None, reference.error
    tensor: dict[str, Any] = reference.fingerprint["tensors"][0]
    return tensor


def test_the_reference_is_what_the_kernel_computes_from_the_values_of_the_launch() -> None:
    output = made(lambda x, out: out.copy_(torch.sqrt(x)), Values("positive"))
    assert output["nan"] == 0 and output["mean"] > 0
    assert 0 < made(lambda x, out: out.copy_(torch.sqrt(x)), Values("normal"))["nan"] < COUNT

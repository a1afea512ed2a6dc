"""The element types of a kernel's pointers, as its signature has them."""

from __future__ import annotations

import pytest
import torch

from inductor_bench.records.base import Category
from inductor_bench.records.code import KernelDefinition
from inductor_bench.source.static_wrapper import is_drawn, read_pointers


def test_every_type_that_inductor_writes_in_cpp_is_read() -> None:
    codegen = pytest.importorskip("torch._inductor.codegen.cpp_utils")
    kinds = {dtype: kind for dtype, kind in codegen.DTYPE_TO_CPP.items() if dtype != torch.complex32}
    parameters = ", ".join(f"const {kind}* in_ptr{number}" for number, kind in enumerate(kinds.values()))
    source = f'extern "C"  void  kernel({parameters}, half* out_ptr0, bfloat16* out_ptr1, const int64_t ks0)'
    pointers = read_pointers(KernelDefinition("k", "k", "0", Category.CPP, "cpp", source, 1))
    assert pointers is not None
    wanted = [str(dtype).removeprefix("torch.") for dtype in kinds]
    assert [pointer.dtype for pointer in pointers] == [*wanted, "float16", "bfloat16"]


def test_values_are_drawn_of_what_is_no_index() -> None:
    assert all(map(is_drawn, ("float32", "bfloat16", "float8_e5m2", "complex64")))
    assert not any(map(is_drawn, ("int64", "uint8", "bool")))

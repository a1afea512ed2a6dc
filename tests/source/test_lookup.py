"""Keys of Triton kernels in Inductor's lookup table, from the text of a kernel."""

from __future__ import annotations

import ast
import gzip
import re

import pytest
from breakdown_runs import H200

from inductor_bench.errors import InductorBenchError
from inductor_bench.source.calls import find_kernel_key, format_types, lookup_key
from inductor_bench.source.module_reader import read_module

KEY = "054b69b18b638e096098ec9257b5dfe08389a1e2fc28280147e3d369603f6aa9"
"""What ``generate_lookup_hash_from_source_code`` of torch 2.11.0 returns for the loaded kernel."""


def reduction() -> str:
    text = gzip.decompress((H200 / "programs" / "breaks" / "6.py.gz").read_bytes()).decode()
    return read_module(text).kernels[0].source


def test_the_key_is_inductors() -> None:
    found = find_kernel_key(reduction())
    assert found is not None
    assert found.key == KEY
    assert found.name == "triton_red_fused_gelu_gelu_backward_sum_0"
    assert found.is_looked_up
    assert found.types.startswith("R0_BLOCK:constexpr,XBLOCK:constexpr,in_out_ptr0:*fp32")


def test_the_name_does_not_count_and_sizes_and_types_do() -> None:
    source = reduction()
    known = find_kernel_key(source)
    renamed = find_kernel_key(source.replace("def triton_red_fused_gelu_gelu_backward_sum_0", "def triton_red_fused_7"))
    other_size = find_kernel_key(source.replace("'r0_': 128", "'r0_': 256"))
    other_type = find_kernel_key(source.replace("'in_ptr0': '*fp32'", "'in_ptr0': '*fp16'"))
    assert known is not None and renamed is not None and other_size is not None and other_type is not None
    assert renamed.key == known.key != other_size.key
    assert other_type.key == known.key and other_type.types != known.types, "Inductor's key has no types"


def test_a_kernel_without_size_hints_has_the_key_of_none() -> None:
    text = (
        "@triton_heuristics.foreach(\n    num_warps=8,\n    triton_meta={'signature': {'in_ptr0': '*fp32'}},\n)\n"
        "@triton.jit\ndef triton_for_fused_0(in_ptr0):\n    pid = tl.program_id(0)\n"
    )
    found = find_kernel_key(text)
    assert found is not None
    assert found.key == lookup_key("None", "def anything(in_ptr0):\n    pid = tl.program_id(0)\n")
    assert found.types == format_types({"in_ptr0": "*fp32"})


def test_a_reduction_without_an_x_dimension_has_the_key_that_its_heuristics_leave() -> None:
    """They set the size hint of ``x`` to 1 before Inductor computes the key."""
    source = reduction()
    hints = re.search(r"size_hints=(\{.*?\})", source)
    with_x = find_kernel_key(source)
    without_x = find_kernel_key(source.replace("inductor_meta={", "inductor_meta={'no_x_dim': True, "))
    ones = find_kernel_key(source.replace(hints[1], str({**ast.literal_eval(hints[1]), "x": 1})) if hints else "")
    assert with_x is not None and without_x is not None and ones is not None
    assert without_x.key == ones.key != with_x.key


def test_text_without_a_kernel_and_text_that_is_none() -> None:
    assert find_kernel_key("x = 1\n") is None
    with pytest.raises(InductorBenchError):
        find_kernel_key("@triton_heuristics.pointwise(\ndef (:\n")

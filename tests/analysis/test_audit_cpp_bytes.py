"""Bytes of C++ kernels counted by hand from their text, against what the record says."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

import pytest

from inductor_bench.analysis.call_work import count_accessed_elements, count_touched_bytes
from inductor_bench.records.code import Argument, TensorView
from inductor_bench.source.module_reader import read_module

FOLDER = Path(__file__).resolve().parent.parent / "data" / "cpu_torch2.13"

LOOPS = """extern "C" void kernel({parameters})
{{
    for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>({rows}); x0+=static_cast<int64_t>(1L))
    {{
        for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(256L); x1+=static_cast<int64_t>(16L))
        {{
            {{
{body}
            }}
        }}
    }}
}}
"""
EMBEDDING = """
                auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];
                auto tmp4 = at::vec::Vectorized<float>::loadu(in_ptr1 + static_cast<int64_t>(x1 + 256L*tmp0), 16);
                tmp4.store(out_ptr0 + static_cast<int64_t>(x1 + 256L*x0));"""
THREE = "const int64_t* in_ptr0, const float* in_ptr1, float* out_ptr0"


def tensor(*shape: int, itemsize: int = 4) -> Argument:
    return Argument("tensor", tensor=TensorView(0, 0, shape, (1,) * len(shape), "", itemsize))


@cache
def sources(name: str) -> dict[str, str]:
    text = gzip.decompress((FOLDER / f"{name}.py.gz").read_bytes()).decode()
    return {kernel.name: kernel.source for kernel in read_module(text).kernels}


def test_a_gather_counts_the_rows_that_are_read_and_not_the_table() -> None:
    source = LOOPS.format(parameters=THREE, rows="512L", body=EMBEDDING)
    table = [tensor(512, itemsize=8), tensor(50_000, 256), tensor(512, 256)]
    assert count_touched_bytes("cpp", source, table) == 512 * 8 + 2 * 512 * 256 * 4
    small = [tensor(512, itemsize=8), tensor(10, 256), tensor(512, 256)]
    assert count_touched_bytes("cpp", source, small) == 512 * 8 + 10 * 256 * 4 + 512 * 256 * 4


def test_sizes_that_are_not_literal_leave_the_whole_buffer() -> None:
    source = LOOPS.format(parameters=THREE, rows="ks0", body=EMBEDDING)
    table = [tensor(512, itemsize=8), tensor(1000, 256), tensor(512, 256)]
    assert count_touched_bytes("cpp", source, table) == 512 * 8 + 1000 * 256 * 4 + 512 * 256 * 4


def test_a_slice_counts_its_own_elements_once_however_often_it_is_read() -> None:
    body = """
                auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(512L + x1 + 768L*x0), 16);
                auto tmp1 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(512L + x1 + 768L*x0), 16);
                tmp1.store(out_ptr0 + static_cast<int64_t>(x1 + 256L*x0));"""
    source = LOOPS.format(parameters="const float* in_ptr0, float* out_ptr0", rows="8L", body=body)
    assert count_touched_bytes("cpp", source, [tensor(8, 768), tensor(8, 256)]) == 2 * 8 * 256 * 4


def test_what_is_not_understood_counts_whole() -> None:
    body = """
                auto tmp0 = in_ptr0[static_cast<int64_t>(x1_tail + 768L*x0)];
                atomic_add_vec<float, int64_t, 1, 1, 0>(out_ptr0, tmp0, tmp1);"""
    source = LOOPS.format(parameters="const float* in_ptr0, float* out_ptr0", rows="8L", body=body)
    assert count_accessed_elements(source) == {}
    assert count_touched_bytes("cpp", source, [tensor(8, 768), tensor(8, 256)]) == 4 * (8 * 768 + 8 * 256)


def test_a_buffer_by_another_name_is_the_same_buffer() -> None:
    body = """
                auto tmp0 = in_ptr0[static_cast<int64_t>(x1)];
                out_ptr1[static_cast<int64_t>(x1)] = tmp0;"""
    source = LOOPS.format(parameters="float* in_out_ptr0, const float* in_ptr0", rows="8L", body=body)
    source = source.replace("{\n", "{\n    auto out_ptr1 = in_out_ptr0;\n", 1)
    assert count_accessed_elements(source) == {"in_out_ptr0": 256, "in_ptr0": 256}
    assert count_touched_bytes("cpp", source, [tensor(256), tensor(256)]) == 3 * 256 * 4


@pytest.mark.parametrize(
    ("module", "kernel", "expected"),
    [
        # Two transpositions: weights 16x3x3x3 and images 8x3x64x64, each read and written.
        ("forward", "cpp_fused_0", {"in_ptr0": 432, "out_ptr0": 432, "in_ptr1": 98304, "out_ptr1": 98304}),
    ],
)
def test_recorded_kernels(module: str, kernel: str, expected: dict[str, int]) -> None:
    assert count_accessed_elements(sources(module)[kernel]) == expected


@pytest.mark.parametrize("module", ["forward", "backward", "inference"])
def test_no_recorded_kernel_is_counted_beyond_what_it_names(module: str) -> None:
    for source in sources(module).values():
        assert all(count > 0 for count in count_accessed_elements(source).values())

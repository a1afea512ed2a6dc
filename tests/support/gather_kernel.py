"""The source of a C++ kernel that gathers rows, its launch, and its standalone file."""

from __future__ import annotations

from typing import Any

from inductor_bench.records.base import Category
from inductor_bench.records.code import Argument, KernelDefinition, Launch, Storage, TensorView, Values
from inductor_bench.source.standalone_header import StandaloneHeader
from inductor_bench.source.standalone_writer import write_cpp_file
from inductor_bench.store.codec import encode

SOURCE = """
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const int64_t* in_ptr0,
                       const float* in_ptr1,
                       float* out_ptr0,
                       const int64_t ks0)
{
    for (int64_t i = 0; i < ks0; i++)
        out_ptr0[i] = in_ptr1[in_ptr0[i]] * 2.0f;
}
"""


ROWS, PICKED = 50, 4096


def gather_launch() -> Launch:
    index = TensorView(0, 0, (PICKED,), (1,), "int64", 8)
    table, out = TensorView(1, 0, (ROWS,), (1,), "float32", 4), TensorView(2, 0, (PICKED,), (1,), "float32", 4)
    return Launch(
        "cpp_gather",
        None,
        1,
        (0,),
        (
            Storage(PICKED * 8, "int64", "cpu", 64, Values("integers", 0, ROWS - 1)),
            Storage(ROWS * 4, "float32", "cpu", 64, Values("normal")),
            Storage(PICKED * 4, "float32", "cpu", 64, Values("zeros")),
        ),
        (*(Argument("tensor", tensor=view) for view in (index, table, out)), Argument("int", integer=PICKED)),
    )


def gather_text(source: str = SOURCE, **recorded: Any) -> str:
    launch = gather_launch()
    kernel = KernelDefinition("cpp_gather", "cpp_gather", "0" * 16, Category.CPP, "cpp", source, 1)
    header = StandaloneHeader("cpp_gather", "0" * 16, Category.CPP)
    facts = {"name": header.name, "kernel_id": header.kernel_id, "launch": encode(launch), **recorded}
    return write_cpp_file(header, kernel, launch, {"threads": 1, **facts})

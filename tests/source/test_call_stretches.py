"""Calls that follow each other as one: what goes in and out, their id, one call in their place, and kernels for it."""

from __future__ import annotations

import ast
import gzip
import re
from collections.abc import Iterator
from functools import cache

import pytest
from breakdown_runs import H200

from inductor_bench.errors import InductorBenchError, UsageError
from inductor_bench.source.edit_rules import check_triton
from inductor_bench.source.module_reader import read_module
from inductor_bench.source.stretch_texts import (
    find_triton_name,
    launch_facts,
    write_launched_source,
    write_triton_start,
)
from inductor_bench.source.stretches import CallGroup, Replaced, StretchReader, find_code, replace_calls

KINDS = H200 / "gpu_kinds"

PRODUCT = '''
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()

triton_poi_fused_relu_0 = async_compile.triton('triton_poi_fused_relu_0', """
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math

@triton_heuristics.pointwise(
    size_hints={'x': 8192},
    filename=__file__,
    triton_meta={'signature': {'in_out_ptr0': '*fp32', 'xnumel': 'i32', 'XBLOCK': 'constexpr'}},
    inductor_meta={'grid_type': 'Grid1D', 'mutated_arg_names': ['in_out_ptr0']},
)
@triton.jit
def triton_poi_fused_relu_0(in_out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xnumel = 8192
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    tmp0 = tl.load(in_out_ptr0 + (xindex), None)
    tmp1 = triton_helpers.maximum(tl.full([1], 0, tl.int32), tmp0)
    tl.store(in_out_ptr0 + (xindex), tmp1, None)
""", device_str='cuda')

class Runner:
    def call(self, args):
        arg0_1, arg1_1, arg2_1 = args
        args.clear()
        assert_size_stride(arg0_1, (64, 32), (32, 1))
        assert_size_stride(arg1_1, (128, 32), (32, 1))
        assert_size_stride(arg2_1, (128, ), (1, ))
        with torch.cuda._DeviceGuard(0):
            torch.cuda.set_device(0)
            buf0 = empty_strided_cuda((64, 128), (128, 1), torch.float32)
            extern_kernels.addmm(arg2_1, arg0_1, WEIGHT, alpha=1, beta=2, out=buf0)
            del arg0_1
            buf1 = buf0; del buf0  # reuse
            stream0 = get_raw_stream(0)
            triton_poi_fused_relu_0.run(buf1, 8192, stream=stream0)
            buf2 = empty_strided_cuda((64, 64), (64, 1), torch.float32)
            extern_kernels.mm(buf1, reinterpret_tensor(buf1, (128, 64), (1, 128), 0), out=buf2)
            del buf1
        return (buf2, )

runner = Runner()
def get_args():
    from torch._dynamo.testing import rand_strided
    arg0_1 = rand_strided((64, 32), (32, 1), device='cuda:0', dtype=torch.float32)
    arg1_1 = rand_strided((128, 32), (32, 1), device='cuda:0', dtype=torch.float32)
    arg2_1 = rand_strided((128, ), (1, ), device='cuda:0', dtype=torch.float32)
    return [arg0_1, arg1_1, arg2_1]

def benchmark_compiled_module(args, times=10, repeat=10):
    return None
'''.replace("WEIGHT", "reinterpret_tensor(arg1_1, (32, 128), (1, 32), 0)")
CONFIGS = ({}, {"XBLOCK": 256, "num_warps": 4}, {})


def stretch_of(text: str, first: int, last: int) -> tuple[CallGroup, int, int]:
    """The stretch between two of the calls of a module, and their lines."""
    reader = StretchReader(text, read_module(text))
    lines = reader.sites[first].line, reader.sites[last].line
    return reader.read(*lines), *lines


def function_in(tree: ast.Module, name: str, line: int) -> str:
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return ast.unparse(next(node for node in nodes if (node.name, node.lineno) == (name, line)))


def start_of(stretch: CallGroup) -> str:
    sources = [part.kernel.source if part.kernel else "" for part in stretch.parts]
    count = len(stretch.parts)
    return write_triton_start(stretch, sources, CONFIGS[:count] if count > 1 else [{}])


@cache
def modules() -> dict[str, str]:
    return {path.name: gzip.decompress(path.read_bytes()).decode() for path in sorted(KINDS.glob("*.py.gz"))}


def test_what_goes_in_and_what_comes_out_are_arguments_and_what_stays_inside_comes_last() -> None:
    stretch, _, _ = stretch_of(PRODUCT, 0, 2)
    assert stretch.expressions == (
        "arg2_1",
        "arg0_1",
        "reinterpret_tensor(arg1_1, (32, 128), (1, 32), 0)",
        "buf2",
        "buf0",
        "reinterpret_tensor(buf1, (128, 64), (1, 128), 0)",
    )
    assert (stretch.required, stretch.output_only, stretch.launch.mutated) == (4, (3, 4, 5), (3, 4))
    assert stretch.fresh == ("buf0", "buf1")
    first, _, _ = stretch_of(PRODUCT, 0, 0)
    assert (first.required, first.launch.mutated, first.fresh) == (4, (3,), ())


def test_the_id_is_that_of_the_calls_and_their_sizes_whatever_their_numbers_are() -> None:
    known = stretch_of(PRODUCT, 0, 1)[0].id
    renumbered = re.sub(r"\bbuf(\d)\b", r"buf1\1", PRODUCT).replace("fused_relu_0", "fused_relu_7")
    assert stretch_of(renumbered, 0, 1)[0].id == known
    for old, new in (("(64, 32), (32, 1)", "(64, 32), (1, 64)"), ("beta=2", "beta=3"), ("float32)\n", "float16)\n")):
        assert stretch_of(PRODUCT.replace(old, new), 0, 1)[0].id != known, old


def test_one_call_stands_in_the_place_of_a_stretch() -> None:
    stretch, first, last = stretch_of(PRODUCT, 0, 1)
    tree, name, line = replace_calls(PRODUCT, [Replaced(first, last, stretch, "mine", 4)])
    assert name == "call" and find_code(tree, "module.py", name, line).co_names.count("mine") == 1
    text = function_in(tree, name, line)
    body = text[text.index("buf0 =") : text.index("buf2 =")]
    assert [line.strip() for line in body.splitlines() if line.strip()] == [
        "buf0 = empty_strided_cuda((64, 128), (128, 1), torch.float32)",
        "buf1 = buf0",
        "stream0 = get_raw_stream(0)",
        "mine(arg2_1, arg0_1, reinterpret_tensor(arg1_1, (32, 128), (1, 32), 0), buf0)",
        "del arg0_1",
        "del buf0",
    ]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("            stream0 =", "            foo(buf0)\n            stream0 =", "stands between these calls"),
        (
            "            stream0 =",
            "            buf3 = buf1; buf3 = arg2_1\n            stream0 =",
            "is assigned more than once",
        ),
        (
            "            stream0 =",
            "            buf3 = extern_kernels.convolution(arg0_1)\n            stream0 =",
            "allocates",
        ),
        ("(64, 32), (32, 1))\n", "(s0, 32), (32, 1))\n", "not in the text"),
    ],
)
def test_calls_that_cannot_be_one_are_named_with_the_reason(old: str, new: str, words: str) -> None:
    text = PRODUCT.replace(old, new, 1)
    if "not in the text" in words:
        text = re.sub(r"^    arg0_1 = rand_strided.*\n", "", text, flags=re.MULTILINE)
    reader = StretchReader(text, read_module(text))
    with pytest.raises(InductorBenchError, match=words):
        reader.read(reader.sites[0].line, next(one.line for one in reader.sites if one.kernel is not None))


def stretches(text: str) -> Iterator[tuple[CallGroup, int, int]]:
    """All of up to three calls of a module that can be one."""
    reader = StretchReader(text, read_module(text))
    for first in range(len(reader.sites)):
        for last in range(first, min(first + 3, len(reader.sites))):
            lines = reader.sites[first].line, reader.sites[last].line
            try:
                yield reader.read(*lines), *lines
            except InductorBenchError as error:
                assert error.message


@pytest.mark.parametrize("name", modules())
def test_in_modules_of_a_gpu_each_stretch_is_found_again_and_leaves_a_module_that_compiles(name: str) -> None:
    text, count = modules()[name], 0
    reader = StretchReader(text, read_module(text))
    for stretch, first, last in stretches(text):
        count += 1
        assert (first, last) in list(reader.find([part.target for part in stretch.parts]))
        for passed in {stretch.required, len(stretch.expressions)}:
            tree, function, line = replace_calls(text, [Replaced(first, last, stretch, "mine", passed)])
            assert "mine" in find_code(tree, "module.py", function, line).co_names
    assert count >= 2


# Kernels to begin with.


def test_a_group_begins_with_a_kernel_that_runs_its_parts_one_after_the_other() -> None:
    stretch, _, _ = stretch_of(PRODUCT, 0, 1)
    text = start_of(stretch)
    check_triton(text, text, stretch.required)
    assert "GRID = (1, 1, 1)" in text
    kernel = text[text.index(f"def {find_triton_name(stretch)}(") :]
    assert [line.strip() for line in kernel.splitlines()[1:]] == [
        "for y_block in range(2):",
        "part_0(in_ptr0, in_ptr1, in_ptr2, out_ptr3, 0, y_block, 0)",
        "tl.debug_barrier()",
        "for x_block in range(32):",
        "part_1(out_ptr3, 8192, 256, x_block, 0, 0)",
    ]
    assert "2 * tl.load(bias + (n) + tl.zeros_like(m * n)" in text
    assert "xindex = x_block * XBLOCK" in text and "import triton_helpers" in text


def test_a_library_call_begins_with_a_program_for_each_tile() -> None:
    stretch, _, _ = stretch_of(PRODUCT, 0, 0)
    text = start_of(stretch)
    assert "GRID = (1, 2, 1)" in text and "tl.program_id(1)" in text
    launched = write_launched_source(text, launch_facts(stretch), 3)
    decorator = next(
        each
        for node in ast.parse(launched).body
        if isinstance(node, ast.FunctionDef) and node.name == find_triton_name(stretch)
        for each in node.decorator_list
        if isinstance(each, ast.Call)
    )
    meta = {str(each.arg): ast.unparse(each.value) for each in decorator.keywords}
    assert ast.unparse(decorator.func) == "triton_heuristics.template"
    assert "'fixed_grid': ['1', '2', '1']" in meta["inductor_meta"]
    assert "{'in_ptr0': '*fp32', 'in_ptr1': '*fp32', 'in_ptr2': '*fp32', 'out_ptr3': '*fp32'}" in meta["triton_meta"]
    assert "torch.device('cuda', 3)" in meta["triton_meta"] and "(3,): [['tt.divisibility', 16]]" in meta["triton_meta"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("GRID = (1, 2, 1)", "GRID = (1, 2)", "GRID has to be three numbers of programs"),
        ("GRID = (1, 2, 1)", "GRID = (1, 70000, 1)", "cannot be launched"),
        ("NUM_WARPS = 4", "NUM_WARPS = 3", "NUM_WARPS is not 1, 2, 4"),
        ("NUM_STAGES = 1", "NUM_STAGES = 0", "NUM_STAGES is no number"),
        ("NUM_STAGES = 1", "NUM_STAGES = print(1)", "is no constant"),
        ("(in_ptr0, in_ptr1, in_ptr2, out_ptr3):", "(in_ptr0, in_ptr1, in_ptr2):", "another signature"),
        ("def triton_edited_", "def triton_other_", "there is no function triton_edited_"),
        ("import triton\n", "import triton\nimport torch\n", "an import of torch"),
        (
            "@triton.jit\ndef part_0",
            "@triton_heuristics.template(num_stages=1)\n@triton.jit\ndef part_0",
            "a decorator of",
        ),
    ],
)
def test_what_an_edit_in_the_place_of_calls_may_not_change(old: str, new: str, words: str) -> None:
    stretch, _, _ = stretch_of(PRODUCT, 0, 0)
    text = start_of(stretch)
    assert old in text
    with pytest.raises(InductorBenchError, match=re.escape(words)):
        check_triton(text.replace(old, new), text, stretch.required)


def test_memory_for_the_kernel_itself_may_be_left_out() -> None:
    stretch, _, _ = stretch_of(PRODUCT, 0, 2)
    text = write_triton_start(stretch, [part.kernel.source if part.kernel else "" for part in stretch.parts], CONFIGS)
    head = re.search(r"def triton_edited_\w+\((.*)\):", text)
    assert head is not None
    less = text.replace(head[1], ", ".join(head[1].split(", ")[: stretch.required]))
    check_triton(less, text, stretch.required)
    with pytest.raises(InductorBenchError, match="another signature"):
        check_triton(text.replace(head[1], head[1].split(", ")[0]), text, stretch.required)


def test_in_modules_of_a_gpu_parts_that_have_no_plain_form_are_named() -> None:
    made, refused = 0, set()
    for text in modules().values():
        for stretch, _, _ in stretches(text):
            sources = [part.kernel.source if part.kernel else "" for part in stretch.parts]
            try:
                start = write_triton_start(stretch, sources, [{"XBLOCK": 8, "YBLOCK": 8, "R0_BLOCK": 8}] * len(sources))
            except UsageError as error:
                refused.add(error.message)
                continue
            made += 1
            check_triton(start, start, stretch.required)
            ast.parse(write_launched_source(start, launch_facts(stretch)))
    assert made > 20
    assert any("only pointwise kernels, reductions and products can" in words for words in refused)

"""Kernel ids: what changes them and what does not."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from source_data import CPU, GPU, gpu_sample, module_of

from inductor_bench.records.code import Argument, KernelDefinition, Launch, Storage, TensorView, Values
from inductor_bench.source.generated_text import (
    compute_cpp_kernel_id,
    compute_operator_id,
    compute_triton_kernel_id,
    launch_key,
)

NAME = "triton_red_fused__native_batch_norm_legit_functional_2"
"""The name of ``kernel``."""


@pytest.fixture(scope="module")
def kernel() -> KernelDefinition:
    return module_of(GPU / "mixnet_l_train" / "forward.py").kernels[2]


@pytest.fixture(scope="module")
def helped() -> KernelDefinition:
    return module_of(GPU / "scan_combo" / "module_0.py").kernels[2]


@pytest.fixture(scope="module")
def user() -> KernelDefinition:
    return gpu_sample("user").kernels[1]


@pytest.fixture(scope="module")
def cpp() -> KernelDefinition:
    return module_of(CPU / "forward.py").kernels[1]


def test_ids_are_sixteen_hexadecimal_digits(
    kernel: KernelDefinition, helped: KernelDefinition, user: KernelDefinition, cpp: KernelDefinition
) -> None:
    for one in (kernel, helped, user, cpp):
        assert re.fullmatch(r"[0-9a-f]{16}", one.kernel_id)


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (NAME, NAME.rsplit("_", 1)[0] + "_17"),
        (NAME, "triton_"),
        (r"multi_processor_count=132, cc=90, major=9", "multi_processor_count=108, cc=80, major=8"),
        (r"DeviceProperties\(type='cuda'.*?\)", "DeviceProperties(type='hip', cc='gfx942', warp_size=64)"),
        (r"'launch_pdl': False, 'disable_ftz': False, ", ""),
        (r"\(\n    size_hints=(.*),\n", r"(size_hints=\1,\n    "),
        (r"'backend_hash': '\w+'", "'backend_hash': 'ABC'"),
        (r"'spill_threshold': 16, ", ""),
        (r"'kernel_num_gb': [0-9.e-]+", "'kernel_num_gb': 1"),
        (r"rand_strided\(\(", "rand_strided((1, "),
        (r"'native_matmul': False, ", ""),
        (r"(?s)\n\ndef get_args\(\):.*", "\n"),
        (r"    rnumel = r0_numel\n", "    # a comment\n\n    rnumel = r0_numel\n"),
    ],
)
def test_names_devices_and_settings_do_not_count(pattern: str, replacement: str, kernel: KernelDefinition) -> None:
    changed = re.sub(pattern, replacement, kernel.source)
    assert changed != kernel.source
    assert compute_triton_kernel_id(changed) == kernel.kernel_id


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r"triton_heuristics\.reduction", "triton_heuristics.persistent_reduction"),
        (r"'r0_': 2048", "'r0_': 4096"),
        (r"ReductionHint\.OUTER", "ReductionHint.INNER"),
        (r"'in_ptr0': '\*fp16'", "'in_ptr0': '*bf16'"),
        (r"'constants': \{\}", "'constants': {'xnumel': 1}"),
        (r"    x1 = xindex // 32\n", "    x1 = xindex // 64\n"),
        (r"'enable_fp_fusion': True", "'enable_fp_fusion': False"),
        (r"'launch_pdl': False", "'launch_pdl': True"),
        (r"0\.0", "1.0"),
        (r"\.to\(tl\.float32\)", ".to(tl.float64)"),
        (r"\(0,\): \[\['tt\.divisibility', 16\]\], ", ""),
    ],
)
def test_kind_sizes_types_and_body_count(pattern: str, replacement: str, kernel: KernelDefinition) -> None:
    changed = re.sub(pattern, replacement, kernel.source)
    assert changed != kernel.source
    assert compute_triton_kernel_id(changed) != kernel.kernel_id


def test_helpers_count_on_either_side_of_the_kernel(helped: KernelDefinition, user: KernelDefinition) -> None:
    assert compute_triton_kernel_id(helped.source.replace("arg0_0 + arg1_0", "arg0_0 * arg1_0")) != helped.kernel_id
    assert compute_triton_kernel_id(user.source.replace("return x * 2", "return x * 3")) != user.kernel_id


def test_grids_and_constants_of_user_and_combo_kernels_count(user: KernelDefinition) -> None:
    (tuned,) = [one for one in module_of(GPU / "gpu_kinds" / "2_inference.py").kernels if one.name == "mul_kernel_1"]
    for kernel, pattern, replacement in (
        (tuned, r"'python': \['4096'", "'python': ['8192'"),
        (tuned, r"configs=\[\{'BLOCK': 256", "configs=[{'BLOCK': 512"),
        (user, r"'BLOCK': 512|'BLOCK': 256", "'BLOCK': 128"),
        (
            gpu_sample("foreach").kernels[0],
            r"'default_config': \{'XBLOCK': 1024\}",
            "'default_config': {'XBLOCK': 512}",
        ),
    ):
        changed = re.sub(pattern, replacement, kernel.source)
        assert changed != kernel.source, pattern
        assert compute_triton_kernel_id(changed) != kernel.kernel_id, pattern
    spelled = re.sub(r", 'cpp': \[.*?\], 'python_slow': \[.*?\]", "", tuned.source)
    assert spelled != tuned.source and compute_triton_kernel_id(spelled) == tuned.kernel_id


def test_a_library_call_has_the_same_id_whatever_values_it_was_given() -> None:
    drawn = Storage(24, "int64", "cuda", 256, Values("integers", low=0, high=9))
    held = replace(drawn, alignment=64, values=Values("recorded", data="eJw="))
    view = TensorView(0, 0, (3,), (1,), "int64", 8)
    launch = Launch("", "aten.sum.default", 1, (0,), (drawn,), (Argument("tensor", tensor=view),))
    other = replace(launch, calls=7, positions=(3, 4), storages=(held,))
    assert launch_key(launch) == launch_key(other)
    for changed in (
        replace(launch, arguments=(Argument("tensor", tensor=replace(view, shape=(2,))),)),
        replace(launch, keywords={"dtype": Argument("dtype", text="float32")}),
        replace(launch, storages=(replace(drawn, dtype="int32"),)),
        replace(launch, operator="aten.prod.default"),
    ):
        assert launch_key(changed) != launch_key(launch)


def test_own_file_of_a_kernel_has_the_id_of_its_definition() -> None:
    path = GPU / "tem" / "kernels" / "c2apcuku3enejoo43cfytuyxvus57jcaw4bq2igcpwddhd66a7ql.py"
    kernel = module_of(GPU / "tem" / "module_0.py").kernels[0]
    assert kernel.kernel_hash == path.stem
    assert compute_triton_kernel_id(path.read_text()) == kernel.kernel_id


def test_same_code_under_two_names_is_one_kernel_and_different_code_is_not() -> None:
    kernels = module_of(GPU / "mixnet_l_train" / "backward.py").kernels
    bodies = {}
    for kernel in kernels:
        body = kernel.source[kernel.source.index("@triton.jit") :].split("def get_args")[0]
        bodies.setdefault(kernel.kernel_id, set()).add(body.replace(kernel.name, "kernel"))
    assert all(len(seen) == 1 for seen in bodies.values())
    assert 250 < len(bodies) < len(kernels)


def test_cpp_id_ignores_marks_names_includes_and_layout(cpp: KernelDefinition) -> None:
    source = cpp.source
    unmarked = re.sub(r".*RAIIAtenRecordFunctionHandle.*\n", "", source)
    older = unmarked.replace("#include <torch/csrc/inductor/cpp_prefix.h>", '#include "/tmp/x/2r/c2rn.h"')
    renamed = older.replace('extern "C"  void  kernel(', 'extern "C"  void  cpp_fused_other_17(')
    assert len({source, unmarked, older, renamed}) == 4
    assert {compute_cpp_kernel_id(text) for text in (source, unmarked, older, renamed)} == {cpp.kernel_id}
    assert compute_cpp_kernel_id(source.replace("tid < 2", "tid < 4")) != cpp.kernel_id


def test_operator_id_depends_on_operator_and_arguments() -> None:
    same = compute_operator_id("aten.mm", "f16[2, 3]  f16[3, 4]")
    assert same == compute_operator_id("aten.mm", "f16[2, 3] f16[3, 4]")
    assert same != compute_operator_id("aten.bmm", "f16[2, 3] f16[3, 4]")
    assert same != compute_operator_id("aten.mm", "f16[2, 3] f16[3, 5]")


def test_unparsable_source_still_has_an_id() -> None:
    assert compute_triton_kernel_id("@triton_heuristics.pointwise(\n") != compute_triton_kernel_id("nothing")

"""Names as tables show them: one line, short, distinct."""

from __future__ import annotations

import pytest
import run_builder as build
from inline import change

from inductor_bench.records.base import Category
from inductor_bench.records.code import SourceLine
from inductor_bench.records.module import ShapeGroup
from inductor_bench.report import names


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("two\nlines\tand tabs", "two lines and tabs"),
        ("\x1b[31mred\x1b[0m \x1b]0;title\x07 end \x9b2Jx", "red end x"),
        ("a\u202eb\x00c\udcffd", "a?b?c?d"),
        ("", ""),
    ],
)
def test_clean(text: str, shown: str) -> None:
    assert names.clean(text) == shown


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (
            "void cudnn::cnn::conv2d_grouped_direct_kernel<false, int>(Params, int)",
            "cudnn::cnn::conv2d_grouped_direct_kernel",
        ),
        ("void cutlass::Kernel2<cutlass_80_gemm_tn>(cutlass_80_gemm_tn::Params)", "cutlass_80_gemm_tn"),
        ("triton_poi_fused_cat_12", "triton_poi_fused_cat_12"),
        (
            "void at::native::elementwise_kernel<128, 4, x<at::native::direct_copy_kernel_cuda(T&)::{lambda()#3}>>",
            "at::native elementwise: direct_copy",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)",
            "at::native elementwise: CUDAFunctor_add",
        ),
        (
            "void at_cuda_detail::cub::detail::radix_sort::DeviceSegmentedRadixSortKernel<policy<int>>(int const*)",
            "cub::DeviceSegmentedRadixSortKernel",
        ),
        (
            "at::native::(anonymous namespace)::fill_reverse_indices_kernel(long*, int)",
            "at::native::fill_reverse_indices_kernel",
        ),
        (
            "sm80_xmma_wgrad_gemm_f16f16_nhwc_tilesize64x64x64_stage4_warpsize1x1x4_g1_tensor16x8x16_execute_kernel__5x_cudnn",
            "sm80_xmma_wgrad_gemm_f16f16_nhwc_tilesize64x64x64",
        ),
        ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD (Device -> Device)"),
        ("<script>alert('x')</script>", "<script>alert('x')</script>"),
        ("", "(no name)"),
    ],
)
def test_plain(name: str, shown: str) -> None:
    assert names.strip_kernel_name(name) == shown


def test_middle_keeps_both_ends_within_the_width() -> None:
    for width in range(1, 30):
        assert names.count_columns(names.cut_middle("triton_red_fused_native_batch_norm_82", width)) <= width
        assert names.count_columns(names.cut_middle("核函数核函数核函数核函数核函数核函数", width)) <= width
    assert names.cut_middle("triton_red_fused_native_batch_norm_82", 20) == "triton_red…h_norm_82"


def test_padding_counts_wide_characters_twice() -> None:
    assert names.pad("核", 4) == "核  " and names.pad("ab", 4, right=True) == "  ab"


def test_short_names_stay_distinct() -> None:
    full = [f"void kernel<{i}>(int)" for i in range(12)] + list(build.HOSTILE_NAMES)
    for width in (12, 30, 80):
        shorts = names.make_names_unique(full, width)
        assert set(shorts) == set(full)
        assert len(set(shorts.values())) == len(full)
        assert all(names.count_columns(short) <= width for short in shorts.values())


def test_source_and_operation() -> None:
    run = build.mixnet()
    kernel, files = run.modules[0].kernels[0], names.name_files(run)
    assert names.describe_source_line(kernel, files) == "mixnet.py:88: x = self.conv_dw(x)"
    assert names.describe_source_place(kernel, files) == "mixnet.py:88"
    assert names.describe_operation(kernel) == "aten.convolution [128x156x14x14, 156x1x9x9] +3 shapes"
    bare = build.kernel("k", Category.POINTWISE, 1, 1e-6, aten_ops=("aten.add", "aten.mul"))
    assert (
        names.describe_source_line(bare, files) == names.describe_source_place(bare, files) == ""
        and names.describe_operation(bare) == "aten.add, aten.mul"
    )


def line(file: str, function: str = "forward") -> SourceLine:
    return SourceLine(file, 7, function, "x = f(x)")


def test_the_user_s_own_line_is_named_before_a_library_s() -> None:
    installed = "/v/lib/python3.12/site-packages/"
    lines = tuple(
        map(line, (f"{installed}torch/nn/functional.py", f"{installed}timm/layers/conv.py", "/home/me/model.py"))
    )
    kernel = build.kernel("k", Category.POINTWISE, 1, 1e-6, source_lines=lines)
    assert names.describe_source_place(kernel, {}) == "model.py:7 (+2 lines)"
    assert names.describe_source_place(change(kernel, source_lines=lines[:2]), {}) == "conv.py:7 (+1 line)"
    assert names.describe_source_place(change(kernel, source_lines=lines[:1]), {}) == "functional.py:7"


def test_a_line_of_a_torch_that_is_not_installed_is_named_last() -> None:
    files = (
        "/home/me/pytorch/torch/nn/functional.py",
        "/v/lib/python3.12/site-packages/timm/conv.py",
        "/home/me/model.py",
    )
    kernel = build.kernel("k", Category.POINTWISE, 1, 1e-6, source_lines=tuple(map(line, files)))
    assert names.describe_source_place(kernel, {}) == "model.py:7 (+2 lines)"
    assert names.describe_source_place(change(kernel, source_lines=tuple(map(line, files[:2]))), {}) == (
        "conv.py:7 (+1 line)"
    )


def test_a_kernel_without_a_line_has_the_line_that_calls_its_graph() -> None:
    called = (SourceLine("/home/me/train.py", 31, "main", "loss = model(x)"), line("/home/me/train.py"))
    kernel = build.kernel("k", Category.POINTWISE, 1, 1e-6, called_at=called)
    assert names.describe_source_place(kernel, {}) == "called at train.py:31 main (+1 line)"
    assert names.describe_source_line(change(kernel, called_at=called[:1]), {}) == (
        "called at train.py:31 main: loss = model(x)"
    )
    installed = line("/v/lib/python3.12/site-packages/timm/layers/conv.py")
    assert names.describe_source_place(change(kernel, source_lines=(installed,)), {}) == "conv.py:7"


def test_files_of_one_name_are_told_apart_by_their_folders() -> None:
    files = ("/a/one/model.py", "/a/two/model.py", "/b/two/model.py", "/c/train.py", "C:\\x\\y.py")
    kernel = build.kernel("k", Category.POINTWISE, 1, 1e-6, source_lines=tuple(map(line, files)))
    run = build.run("r", [build.module("forward", [kernel], 1e-5)])
    shown = names.name_files(run)
    assert shown == dict(
        zip(files, ("one/model.py", "a/two/model.py", "b/two/model.py", "train.py", "y.py"), strict=True)
    )


def test_a_generated_name_keeps_its_kind_and_its_number() -> None:
    name = "triton_red_fused__native_batch_norm_legit_functional_native_batch_norm_backward_126"
    assert names.shorten(name, 40) == "triton_red_…batch_norm_backward_126"
    for width in range(8, 90):
        assert names.count_columns(names.shorten(name, width)) <= width
    assert names.shorten("triton_poi_fused_cat_12", 40) == "triton_poi_fused_cat_12"
    assert names.shorten("triton_red_fused_native_layer_norm_0", 33) == "triton_red_…native_layer_norm_0"


def test_the_most_expensive_shape_is_named() -> None:
    groups = (ShapeGroup("2x2", 9, 1e-6), ShapeGroup("4x4", 1, 5e-6))
    assert (
        names.describe_shapes(groups) == "[4x4] +1 shape"
        and names.describe_shapes(groups[:1]) == "[2x2]"
        and names.describe_shapes(()) == ""
    )


def test_labels_of_graphs_keep_the_rank_and_the_role() -> None:
    assert names.shorten_label("forward", 21) == "forward"
    assert names.shorten_label("Block.forward · forward", 24) == "Block.forward · forward"
    assert names.shorten_label("MixNet.forward · backward", 21) == "MixNet · backward"
    assert names.shorten_label("TransformerBlock.forward · backward", 21) == "Trans…lock · backward"
    assert names.shorten_label("rank 0 Block.forward · backward", 21) == "rank 0 B…k · backward"
    assert names.shorten_label("Block.forward from line 24 · forward", 24) == "Block f…ine 24 · forward"
    assert names.shorten_label("Block.forward_features", 16) == "Block.fo…eatures"
    for width in range(1, 40):
        for label in (
            "Block.forward · backward-2 (dynamic) (recompile)",
            "rank 0 核函数核函数 · forward",
            "a\x1b[1m · b",
        ):
            assert names.count_columns(names.shorten_label(label, width)) <= width


def test_shortened_labels_of_graphs_stay_distinct() -> None:
    labels = [
        f"Transformer{part}coderBlock.forward · {role}" for part in ("En", "De") for role in ("forward", "backward")
    ]
    shorts = names.make_names_unique(labels, 21, names.shorten_label)
    assert len(set(shorts.values())) == 4 and all(names.count_columns(short) <= 21 for short in shorts.values())

"""Builds synthetic run records for the tests of reports: a large GPU run, a small CPU run, an empty and a hostile run.

The larger kernels of the GPU run have the times, calls and bytes of a mixnet_l training step recorded on an H200 (batch
128, fp16 autocast). The smaller kernels of each category are invented, so that the category totals are the recorded
ones.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache

from inline import change, make

from inductor_bench.records.base import Category as C
from inductor_bench.records.base import Failure
from inductor_bench.records.code import SourceLine
from inductor_bench.records.module import CategoryTotal, IdleTime, Kernel, ModuleRecord, ShapeGroup
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.records.run import Capture, Environment, Peaks, Run
from inductor_bench.store.codec import FORMAT

H200 = Peaks(
    device="NVIDIA H200",
    memory_bandwidth=4.38e12,
    matmul_flops={"float16": 742e12, "bfloat16": 751e12, "tf32": 371e12, "float32": 51e12},
    cache_bytes=50 * 2**20,
    cache_bandwidth=9.3e12,
    launch_floor_s=1.1e-6,
    torch="2.11.0",
    measured_at="2025-01-01T00:00:00Z",
)
GPU = make(
    Environment,
    python="3.12.3",
    torch="2.11.0",
    triton="3.6.0",
    platform="Linux-6.8-x86_64",
    cpu="Intel Xeon Platinum 8480C",
    cpu_count=16,
    accelerator="NVIDIA H200",
    accelerator_count=1,
    accelerator_memory_bytes=150_000_000_000,
    compute_capability="9.0",
    multiprocessors=132,
    cuda="13.0",
)
_BN = "triton_{}_fused__native_batch_norm_legit_functional_"
_GROUPED = (
    "void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, false, true, false, false, 0, 0, int, float, __half, "
    "__half, __half, true>(cudnnConvolutionStruct, __half const*, int, int)"
)
_CUTLASS = (
    "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_{}_align2>"
    "(cutlass_80_tensorop_f16_s16816gemm_f16_{}_align2::Params)"
)
_IMPLICIT = (
    "sm80_xmma_fprop_implicit_gemm_indexed_wo_smem_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x32x{}_stage1"
    "_warpsize4x1x1_g1_tensor16x8x16"
)
_DIRECT_COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const>>"
)

# name, category, calls, milliseconds of all calls, gigabytes of one call, teraflops of one call, (line, function, code)
_Row = tuple[str, C, int, float, float | None, float | None, SourceLine | None]


def _at(line: int, code: str, function: str = "forward") -> SourceLine:
    return SourceLine("/home/user/models/mixnet.py", line, function, code)


_FORWARD: list[_Row] = [
    (_GROUPED, C.EXTERN_CONV, 11, 3.9826, None, 0.00061, _at(88, "x = self.conv_dw(x)")),
    ("conv2d_c1_k1_nhwc_specialized", C.EXTERN_CONV, 43, 1.69108, None, 0.0002, _at(88, "x = self.conv_dw(x)")),
    (
        "nvjet_sm90_hsh_96x384_64x3_1x2_h_ssched_bz_coopA_TNN",
        C.EXTERN_GEMM,
        2,
        0.21624,
        None,
        0.0099,
        _at(91, "x = self.conv_pwl(x)"),
    ),
    (_CUTLASS.format("256x128_32x3_tn", "256x128_32x3_tn"), C.EXTERN_GEMM, 6, 0.172211, None, 0.004, None),
    (_CUTLASS.format("128x128_64x3_tn", "128x128_64x3_tn"), C.EXTERN_GEMM, 6, 0.130418, None, 0.003, None),
    (_IMPLICIT.format(64), C.EXTERN_CONV, 12, 0.174551, None, 0.0012, _at(85, "x = self.conv_pw(x)")),
    (_IMPLICIT.format(16), C.EXTERN_CONV, 1, 0.112382, None, 0.0007, _at(41, "x = self.conv_stem(x)")),
    (_BN.format("poi") + "relu_17", C.POINTWISE, 1, 0.309144, 1.233128, None, _at(42, "x = self.bn1(x)")),
    ("triton_poi_fused_cat_12", C.POINTWISE, 1, 0.291681, 1.233125, None, _at(52, "return torch.cat(x_out, 1)")),
    (_BN.format("poi") + "silu_85", C.POINTWISE, 4, 0.199973, 0.134878, None, _at(86, "x = self.bn1(x)")),
    ("triton_poi_fused_cat_81", C.POINTWISE, 6, 0.197323, 0.134873, None, _at(52, "return torch.cat(x_out, 1)")),
    (
        "triton_poi_fused_mul_sigmoid_silu_95",
        C.POINTWISE,
        3,
        0.156876,
        0.202396,
        None,
        _at(63, "return x * self.gate(x_se)"),
    ),
    ("triton_poi_fused__to_copy_1", C.POINTWISE, 1, 0.109646, 0.115606, None, _at(41, "x = self.conv_stem(x)")),
    (_BN.format("red") + "13", C.REDUCTION, 1, 0.291963, 0.618369, None, _at(42, "x = self.bn1(x)")),
    (_BN.format("red") + "mean_silu_90", C.REDUCTION, 3, 0.275777, 0.202401, None, _at(60, "x_se = x.mean((2, 3))")),
    (_BN.format("red") + "82", C.REDUCTION, 7, 0.23897, 0.069017, None, _at(86, "x = self.bn1(x)")),
    (_BN.format("red") + "125", C.REDUCTION, 8, 0.150019, 0.032777, None, _at(86, "x = self.bn1(x)")),
    (
        _BN.format("per") + "mean_silu_227",
        C.PERSISTENT_REDUCTION,
        3,
        0.096218,
        0.06004,
        None,
        _at(60, "x_se = x.mean((2, 3))"),
    ),
    (_BN.format("per") + "copy__84", C.PERSISTENT_REDUCTION, 7, 0.0151813, 2.4e-5, None, None),
    ("Memset (Device)", C.MEMSET, 1, 0.0012, 4e-9, None, None),
]
_BACKWARD: list[_Row] = [
    (_DIRECT_COPY, C.EXTERN_CONV, 180, 8.09357, None, None, _at(88, "x = self.conv_dw(x)")),
    ("dgrad2d_c1_k1_nhwc", C.EXTERN_CONV, 11, 5.66149, None, 0.00061, _at(88, "x = self.conv_dw(x)")),
    ("dgrad2d_c1_k1_nhwc_specialized", C.EXTERN_CONV, 33, 4.72644, None, 0.0002, _at(88, "x = self.conv_dw(x)")),
    (_IMPLICIT.replace("fprop", "wgrad").format(64), C.EXTERN_CONV, 10, 4.2227, None, 0.0007, None),
    (
        "void cudnn::cnn::wgrad2d_grouped_direct_kernel<false, true, int, __half, float, float>(WgradParams)",
        C.EXTERN_CONV,
        16,
        1.39073,
        None,
        0.0005,
        None,
    ),
    ("wgrad2d_c1_k1_nhwc", C.EXTERN_CONV, 36, 1.26973, None, 0.0002, None),
    (
        "void tensorTransformGeneric<__half, __half, float, true, false, false, (Type)0>(cudnnTensorTransformStruct)",
        C.EXTERN_CONV,
        30,
        0.997312,
        None,
        None,
        None,
    ),
    (
        _CUTLASS.format("64x256_32x4_nn", "64x256_32x4_nn"),
        C.EXTERN_GEMM,
        14,
        0.359175,
        None,
        0.002,
        _at(91, "x = self.conv_pwl(x)"),
    ),
    (
        _BN.format("red") + "native_batch_norm_backward_126",
        C.REDUCTION,
        3,
        1.04675,
        0.269753,
        None,
        _at(86, "x = self.bn1(x)"),
    ),
    (
        _BN.format("red") + "convolution_backward_native_batch_norm_backward_118",
        C.REDUCTION,
        1,
        0.517811,
        0.269753,
        None,
        _at(86, "x = self.bn1(x)"),
    ),
    (
        _BN.format("red") + "native_batch_norm_backward_180",
        C.REDUCTION,
        1,
        0.382037,
        1.23433,
        None,
        _at(42, "x = self.bn1(x)"),
    ),
    (
        _BN.format("poi") + "native_batch_norm_backward_183",
        C.POINTWISE,
        1,
        0.48265,
        1.849692,
        None,
        _at(42, "x = self.bn1(x)"),
    ),
    (
        _BN.format("poi") + "cat_relu_threshold_backward_179",
        C.POINTWISE,
        1,
        0.478871,
        1.849691,
        None,
        _at(42, "x = self.bn1(x)"),
    ),
    (_BN.format("poi") + "cat_silu_silu_backward_155", C.POINTWISE, 1, 0.290649, 1.156059, None, None),
    (
        _BN.format("per") + "cat_mul_sigmoid_sigmoid_backward_silu_sum_9",
        C.PERSISTENT_REDUCTION,
        2,
        0.0937785,
        0.080315,
        None,
        None,
    ),
]
_TOTALS = {  # category: milliseconds, calls, kernels
    "forward": {
        C.POINTWISE: (4.6663, 452, 185),
        C.REDUCTION: (2.0905, 116, 38),
        C.PERSISTENT_REDUCTION: (0.2507, 62, 22),
        C.EXTERN_CONV: (6.7712, 134, 21),
        C.EXTERN_GEMM: (0.8360, 31, 18),
        C.MEMSET: (0.0012, 1, 1),
    },
    "backward": {
        C.POINTWISE: (6.0673, 305, 168),
        C.REDUCTION: (6.4203, 191, 93),
        C.PERSISTENT_REDUCTION: (0.2097, 36, 15),
        C.EXTERN_CONV: (29.9836, 640, 50),
        C.EXTERN_GEMM: (1.4000, 75, 30),
    },
}


def kernel(name: str, category: C, calls: float, time_s: float, **fields: object) -> Kernel:
    """Makes a kernel with plausible details. ``fields`` override them; :func:`module` fills in the shares."""
    values: dict[str, object] = {
        "kernel_id": hashlib.sha256(name.encode("utf-8", "backslashreplace")).hexdigest()[:16],
        "samples_s": (time_s * 1.01, time_s, time_s * 0.99),
        "share": 0.0,
        "wall_share": None,
    }
    return make(Kernel, name=name, category=category, calls=calls, time_s=time_s, **{**values, **fields})


def roofed(one: Kernel, peaks: Peaks | None) -> Kernel:
    """Adds rates and the share of the roof to a kernel by simple rules."""
    bandwidth = one.work.moved_bytes / one.time_s if one.work.moved_bytes else None
    flop_rate = one.work.flops / one.time_s if one.work.flops else None
    one = change(one, bandwidth=bandwidth, flop_rate=flop_rate)
    if peaks is None:
        return one
    if one.time_s / one.calls < 5e-6:
        return change(one, bound="latency")
    if bandwidth and one.work.moved_bytes and one.work.moved_bytes / one.calls < (peaks.cache_bytes or 0):
        return change(one, bound="cache")
    roof = (bandwidth or 0.0) / peaks.memory_bandwidth
    bound = "memory"
    if flop_rate and one.work.dtype in peaks.matmul_flops:
        roof, bound = flop_rate / peaks.matmul_flops[one.work.dtype], "compute"
    if not roof:
        return one
    roof = min(roof, 1.0)
    return change(one, bound=bound, peak_share=roof, gain_limit_s=one.time_s * (1 - roof))


def module(
    label: str, kernels: list[Kernel], wall_time_s: float | None, peaks: Peaks | None = None, **fields: object
) -> ModuleRecord:
    """Makes a module whose shares, categories, busy and idle time follow from its kernels. ``fields`` override them."""
    total = sum(k.time_s for k in kernels)
    filled = [
        replace(roofed(k, peaks), share=k.time_s / total, wall_share=k.time_s / wall_time_s if wall_time_s else None)
        for k in kernels
    ]
    filled.sort(key=lambda k: -k.time_s)
    busy = min(total, wall_time_s) if wall_time_s else total
    slug = label.replace(" ", "-").replace("(", "").replace(")", "")
    values: dict[str, object] = {
        "slug": slug,
        "role": label.split("-")[0].split(" ")[0],
        "file": f"modules/{slug}.py",
        "device": "cuda",
        "method": "-p",
        "wall_time_s": wall_time_s,
        "wall_samples_s": tuple(wall_time_s * (1 + 0.002 * ((i * 7) % 5 - 2)) for i in range(30))
        if wall_time_s
        else (),
        "profiled_time_s": wall_time_s * 1.1 if wall_time_s else None,
        "busy_time_s": busy,
        "busy_share": busy / wall_time_s if wall_time_s else None,
        "idle": IdleTime(wall_time_s - busy, 148, 1.09e-6, 52e-6) if wall_time_s else None,
        "launches": sum(k.calls for k in kernels),
        "iterations": 10,
        "steady_iterations": tuple(range(10)),
        "categories": categories(filled, total, wall_time_s),
        "kernels": tuple(filled),
        "trace": f"traces/{slug}.trace.json.gz",
        "log": f"logs/{slug}.txt",
    }
    return make(ModuleRecord, label=label, **{**values, **fields})


def categories(kernels: list[Kernel], total: float, wall: float | None) -> tuple[CategoryTotal, ...]:
    groups: dict[C, list[Kernel]] = {}
    for one in kernels:
        groups.setdefault(one.category, []).append(one)
    rows = [(name, sum(k.time_s for k in ks), sum(k.calls for k in ks), len(ks)) for name, ks in groups.items()]
    rows.sort(key=lambda row: -row[1])
    return tuple(CategoryTotal(n, t, t / total, t / wall if wall else None, c, k) for n, t, c, k in rows)


def run(title: str, modules: list[ModuleRecord], **fields: object) -> Run:
    values: dict[str, object] = {
        "format": FORMAT,
        "tool_version": "0.1.0",
        "run_id": "0123456789abcdef",
        "created": "2025-01-01T00:00:00Z",
        "command": f"inductor-bench breakdown {title}.py",
        "target": f"{title}.py",
        "request": BreakdownRequest(target=f"{title}.py", kind="script"),
        "environment": GPU,
        "capture": Capture(printed=len(modules), structured=len(modules), exit_code=0, time_s=61.0),
        "modules": tuple(modules),
    }
    return Run(title=title, **{**values, **fields})  # type: ignore[arg-type]


@cache
def mixnet() -> Run:
    """Builds mixnet_l training on an H200: two graphs with 285 and 356 kernels."""
    forward = module("forward", _kernels("forward", _FORWARD), 15.737e-3, H200, peak_memory_bytes=11_344_190_000)
    backward = module("backward", _kernels("backward", _BACKWARD), 45.888e-3, H200, peak_memory_bytes=10_632_186_000)
    request = BreakdownRequest(
        target="timm:mixnet_l", kind="timm", training=True, batch_size=128, amp="float16", device="cuda"
    )
    return run(
        "mixnet_l",
        [forward, backward],
        request=request,
        target="timm:mixnet_l",
        command="inductor-bench breakdown timm:mixnet_l --training --batch-size 128 --amp float16",
        peaks=H200,
    )


@cache
def densenet() -> Run:
    """Builds a launch-bound inference graph with a measured CUDA graph replay."""
    rows = [(f"triton_poi_fused_cat_convolution_relu_{i}", C.POINTWISE, 1, 2.1e-6 + i * 1e-8) for i in range(120)]
    kernels = [kernel(n, c, k, t, moved_bytes=4e5, samples_s=(t, t)) for n, c, k, t in rows]
    kernels += [
        kernel(
            f"sm80_xmma_fprop_implicit_gemm_{i}",
            C.EXTERN_CONV,
            4,
            34e-6,
            dtype="float32",
            flops=2e8,
            samples_s=(34e-6,),
        )
        for i in range(30)
    ]
    only = module("inference", kernels, 4.1e-3, H200, graph_time_s=1.4e-3, peak_memory_bytes=310_000_000)
    request = BreakdownRequest(target="timm:densenet121", kind="timm", training=False, batch_size=1)
    return run(
        "densenet121",
        [only],
        request=request,
        peaks=H200,
        command="inductor-bench breakdown timm:densenet121 --batch-size 1",
    )


def cpu() -> Run:
    """Builds a small training step on a CPU, profiled live, with graph breaks and a host share."""
    peaks = Peaks(
        device="cpu", memory_bandwidth=38e9, matmul_flops={"float32": 410e9}, cache_bytes=60_000_000, threads=8
    )
    lines = (SourceLine("examples/step.py", 17, "forward", "return F.softmax(self.fc(x), -1)"),)
    forward = [
        kernel("cpp_fused_convolution_relu_0", C.CPP, 1, 310e-6, moved_bytes=9e6, dtype="float32", source_lines=lines),
        kernel(
            "mkldnn_convolution",
            C.EXTERN_CONV,
            4,
            2.9e-3,
            flops=0.7e9,
            dtype="float32",
            operator="aten.convolution",
            shapes=(
                ShapeGroup("8x3x224x224, 32x3x3x3", 1, 1.9e-3, 0.5e9),
                ShapeGroup("8x32x112x112, 64x32x3x3", 3, 1e-3, 0.2e9),
            ),
        ),
        kernel("addmm", C.EXTERN_GEMM, 2, 0.8e-3, flops=0.2e9, dtype="float32", operator="aten.addmm"),
        kernel("cpp_fused__softmax_3", C.CPP, 2, 55e-6, moved_bytes=7e5, dtype="float32", source_lines=lines),
    ]
    backward = [
        kernel(
            "convolution_backward",
            C.EXTERN_CONV,
            4,
            5.2e-3,
            flops=1.4e9,
            dtype="float32",
            operator="aten.convolution_backward",
        ),
        kernel("cpp_fused_native_batch_norm_backward_5", C.CPP, 3, 335e-6, moved_bytes=8e6, dtype="float32"),
    ]
    common = {
        "device": "cpu",
        "threads": 8,
        "method": "live",
        "method_reason": "it was compiled for 8 threads",
        "peak_memory_bytes": 81_000_000,
    }
    environment = change(
        GPU,
        accelerator=None,
        accelerator_count=0,
        compute_capability=None,
        triton=None,
        cuda=None,
        threads=8,
        vector_isa="avx512",
    )
    return run(
        "step",
        [module("forward", forward, 5.9e-3, peaks, **common), module("backward", backward, 5.7e-3, peaks, **common)],
        environment=environment,
        peaks=peaks,
        capture=Capture(
            2, 2, "", 0, 22.0, graph_breaks=("step.py:31: print",), recompiles=("forward: x.size(0) was 8, is 16",)
        ),
    )


def empty() -> Run:
    """Builds a run of a program that compiled nothing: no modules, one failure."""
    failure = Failure(
        "capture",
        "nothing-compiled",
        "the program compiled nothing",
        "call torch.compile in it",
        "line 1\nline 2\nhello",
    )
    return run("empty", [], failures=(failure,), capture=Capture())


HOSTILE_NAMES = (
    "<script>alert('x')</script>",
    "</script><img src=x onerror=alert(1)>",
    "[bold red]not markup[/bold red] [/]",
    "a|b `c` \"quoted\" 'single' \\| {{ 7*7 }} {% raw %}",
    "two\nlines\r\nand\ttabs",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J",
    "$\\frac{1}{0}$ _leading $",
    "=cmd|' /C calc'!A0",
    "核函数 ядро 🚀 \u202eright-to-left",
    "lone surrogate \udcff end",
    "",
    "cutlass_" + "tensorop_f16_s16816gemm_" * 20 + "A",
    "cutlass_" + "tensorop_f16_s16816gemm_" * 20 + "B",
)


def hostile() -> Run:
    """Builds a run whose text fields all hold characters that break a careless renderer."""
    nasty = HOSTILE_NAMES[0]
    kernels = [
        kernel(
            name,
            C.OTHER if i % 3 else C.POINTWISE,
            1,
            (40 - i) * 1e-6,
            moved_bytes=1e8,
            source_nodes=HOSTILE_NAMES,
            operator=name,
            source_lines=(SourceLine(f"/x/{name}.py", 3, name, name),),
            shapes=(ShapeGroup(name, 1, 1e-6),),
            spills=i,
            aten_ops=(name,),
        )
        for i, name in enumerate(HOSTILE_NAMES)
    ]
    modules = [
        module(
            name,
            kernels,
            2e-3,
            H200,
            slug=f"m{i}",
            method="live",
            method_reason=name,
            notes=(name,),
            file=None,
            trace=None,
        )
        for i, name in enumerate(HOSTILE_NAMES[:3])
    ]
    return run(
        nasty,
        modules,
        target=HOSTILE_NAMES[5],
        command="inductor-bench breakdown '" + HOSTILE_NAMES[5] + "' <script>",
        environment=change(GPU, accelerator=HOSTILE_NAMES[2], variables={"TORCH_<b>": nasty}),
        peaks=H200,
        capture=Capture(3, 2, HOSTILE_NAMES[5], 1, 2.0, graph_breaks=HOSTILE_NAMES, recompiles=HOSTILE_NAMES),
        failures=tuple(Failure("profile", "exit", name, name, name, name) for name in HOSTILE_NAMES),
    )


def without_peaks() -> Run:
    """Builds the mixnet run without measured peaks."""
    full = mixnet()
    bare = [
        replace(m, kernels=tuple(change(k, peak_share=None, bound="unknown", gain_limit_s=None) for k in m.kernels))
        for m in full.modules
    ]
    return replace(full, peaks=None, modules=tuple(bare))


def _kernels(label: str, rows: list[_Row]) -> list[Kernel]:
    kernels = [_detailed(*row) for row in rows]
    for category, (milliseconds, calls, number) in _TOTALS[label].items():
        mine = [k for k in kernels if k.category is category]
        kernels += _tail(
            category,
            milliseconds * 1e-3 - sum(k.time_s for k in mine),
            calls - sum(k.calls for k in mine),
            number - len(mine),
        )
    return kernels


def _detailed(
    name: str, category: C, calls: int, ms: float, gigabytes: float | None, tera: float | None, line: SourceLine | None
) -> Kernel:
    library = category in (C.EXTERN_CONV, C.EXTERN_GEMM)
    operator = {C.EXTERN_CONV: "aten.convolution", C.EXTERN_GEMM: "aten.convolution"}.get(category)
    sizes = ("128x156x14x14, 156x1x9x9", "128x120x14x14, 120x1x9x9", "128x60x56x56, 60x1x9x9", "128x396x7x7, 396x1x9x9")
    groups = tuple(ShapeGroup(text, calls / 4, ms * 1e-3 / 4) for text in sizes) if library and calls >= 4 else ()
    return kernel(
        name,
        category,
        calls,
        ms * 1e-3,
        moved_bytes=gigabytes * 1e9 * calls if gigabytes else None,
        flops=tera * 1e12 * calls if tera else None,
        dtype="float16",
        operator=operator,
        shapes=groups,
        source_lines=(line,) if line else (),
        source_nodes=() if library else ("bn1", "silu"),
        aten_ops=() if library else ("aten._native_batch_norm_legit_functional", "aten.silu"),
        file=None if library else f"modules/{name[:20]}.py",
        config={} if library else {"XBLOCK": 16, "YBLOCK": 64, "num_warps": 4},
        registers=32,
        occupancy=0.62,
        grid=(2048, 1, 1),
        block=(128, 1, 1),
    )


def _tail(category: C, seconds: float, calls: float, number: int) -> list[Kernel]:
    if number <= 0:
        return []
    weights = [1.0 / (i + 3) for i in range(number)]
    scale = seconds / sum(weights)
    most = int(calls) - number + 1  # the first kernel takes the calls that the others, with one call each, leave
    stem = "triton_tail" if not category.value.startswith("extern") else "library_tail"
    return [
        kernel(f"{stem}_{category.value}_{i}", category, most if i == 0 else 1, w * scale, grid=(512, 1, 1))
        for i, w in enumerate(weights)
    ]

"""Every recorded GPU module is extracted without a GPU, and its text tells the launches that were really made."""

from __future__ import annotations

import ast
import functools
import gzip
import importlib.util
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from source_data import CPU, GPU, module_of, text_of

from inductor_bench.records.code import Launch, ModuleSource
from inductor_bench.records.module import ExtractedKernel
from inductor_bench.source.module_reader import read_module
from inductor_bench.source.standalone_header import HARNESS_END, HARNESS_TITLE
from inductor_bench.source.standalone_writer import read_recorded_facts
from inductor_bench.source.static_calls import read_static_launches
from inductor_bench.worker.profile.recorder import watch_launches
from inductor_bench.workflows.modules.extraction import ModuleKernels, list_candidates
from inductor_bench.workflows.modules.kernel_files import write_kernels

MODULES = sorted(str(path.relative_to(GPU))[: -len(".py.gz")] for path in GPU.rglob("*.py.gz"))
TRACES = {
    name: trace
    for name in MODULES
    for trace in (GPU / f"{name}.trace.json.gz", GPU / f"{name.replace('module_', 'trace_')}.json.gz")
    if trace.is_file()
}
UNTRACED = {
    "samples/multi/module_0": {
        "triton_red_fused__softmax_exp_mul_prepare_softmax_online_sub_0"
    },  # the other was faster
    "samples/partition/module_0": {"cpp_fused_sin_2"},
    "samples/wrapper/module_0": {"triton_per_fused__softmax_exp_prepare_softmax_online_sub_0"},  # launched from C++
}
TYPES = {
    "float": "float32",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "long int": "int64",
    "int": "int32",
    "unsigned char": "uint8",
    "unsigned int": "uint32",
}
LOST = {"samples/collective/module_0": 1, "samples/wrapper/module_0": 1, "programs/norms/1": 4}
"""Library calls whose arguments only a run tells: one waits for what another process sends, one is made from C++, four
are sums in plain Python."""

UNREAD = {"programs/norms/1": "the module's text does not hold its arguments; only a run shows them"}
"""Modules whose kernels take results of plain Python: ``buf3 = workspace_0[…].view(512, 1024).sum(dim=0)``."""

OTHER_CONFIGS = "mixnet_l_p10/"
"""The kernels of ``mixnet_l_train`` once more, with other configs."""

SWITCHES = {"matmul_tf32": True, "cudnn_tf32": True, "cudnn_benchmark": True, "cudnn_deterministic": False}


@functools.cache
def launches_of(name: str) -> tuple[Launch, ...]:
    return read_static_launches(text_of(GPU / f"{name}.py"), module_of(GPU / f"{name}.py"))


def kernel_launches_of(name: str) -> tuple[Launch, ...]:
    return tuple(launch for launch in launches_of(name) if launch.operator is None)


def rows_of(source: ModuleSource, launches: tuple[Launch, ...], folder: Path) -> list[ExtractedKernel]:
    return list(write_kernels(list_candidates(ModuleKernels("graph", "model", source, launches)), folder, {}))


def aggregated(source: ModuleSource) -> set[str]:
    return {name for call in source.calls for name in ((call.kernel,) if call.kernel else call.alternatives)}


@pytest.mark.parametrize("name", [name for name in MODULES if not name.startswith(OTHER_CONFIGS)])
def test_every_kernel_that_ran_has_a_file_that_parses(name: str, tmp_path: Path) -> None:
    source = module_of(GPU / f"{name}.py")
    rows = rows_of(source, launches_of(name), tmp_path)
    reasons = {"a collective needs the processes of its group", UNREAD.get(name)}
    assert {row.reason for row in rows if row.file is None} <= reasons
    assert Counter(row.name for row in rows if row.name in aggregated(source)) == Counter(aggregated(source))
    library = [call for call in source.calls if call.operator]
    assert sum(row.calls for row in rows if row.name not in aggregated(source)) == len(library) - LOST.get(name, 0)
    assert name in UNREAD or sum(row.calls for row in rows) >= sum(call.kernel is not None for call in source.calls)
    assert {path.name for path in tmp_path.iterdir()} == {row.file for row in rows if row.file is not None}
    harnesses = set()
    for path in tmp_path.iterdir():
        own, _, rest = path.read_text(encoding="utf-8").partition(HARNESS_TITLE)
        harness, end, last = rest.partition(HARNESS_END)
        ast.parse(own)
        ast.parse(last)
        assert end
        harnesses.add(harness)
    for harness in harnesses:
        ast.parse(harness)
    assert len(harnesses) <= 3, "one for Triton's kernels, and one for library calls of each device"


def test_a_library_call_carries_the_switches_of_its_program_and_keeps_its_id(tmp_path: Path) -> None:
    name = next(name for name in MODULES if any(launch.operator == "aten.mm.out" for launch in launches_of(name)))
    source, launches = module_of(GPU / f"{name}.py"), launches_of(name)
    unknown = ModuleKernels("graph", "model", source, launches)
    known = replace(unknown, switches=SWITCHES)
    on_cpu = replace(known, source=replace(source, device="cpu"))
    written: dict[Any, ExtractedKernel] = {}
    modules = (unknown, known, known, on_cpu)
    rows = [list(write_kernels(list_candidates(module), tmp_path, written)) for module in modules]
    assert len({tuple(row.kernel_id for row in each) for each in rows}) == 1
    for first, second, third, fourth in zip(*rows, strict=True):
        assert (second.file, first.file) == (third.file, fourth.file)
        assert (first.file == second.file) == (first.name in aggregated(source))
    product = next(row.file for row in rows[1] if row.name.startswith("aten_mm_out"))
    recorded = read_recorded_facts((tmp_path / str(product)).read_text(encoding="utf-8"))
    assert {key: recorded[key] for key in SWITCHES} == SWITCHES
    other = next(row.file for row in rows[0] if row.name.startswith("aten_mm_out"))
    assert not SWITCHES.keys() & read_recorded_facts((tmp_path / str(other)).read_text(encoding="utf-8")).keys()


def described(launch: Launch) -> tuple[Any, ...]:
    """A launch as the profiler describes it: no aliasing, numbers as text."""
    return tuple(
        (item.tensor.dtype, item.tensor.shape, item.tensor.stride) if item.tensor else str(item.integer)
        for item in launch.arguments
    )


def traced(arguments: dict[str, Any]) -> tuple[Any, ...]:
    parts = ("Input type", "Input Dims", "Input Strides", "Concrete Inputs")
    return tuple(
        text if kind == "Scalar" else (TYPES.get(kind, kind), tuple(shape), tuple(stride))
        for kind, shape, stride, text in zip(*(arguments[part] for part in parts), strict=True)
    )


@pytest.mark.parametrize("name", TRACES)
def test_the_text_tells_the_launches_that_the_profiler_saw(name: str) -> None:
    told: dict[str, Counter[tuple[Any, ...]]] = defaultdict(Counter)
    for launch in kernel_launches_of(name):
        told[launch.kernel][described(launch)] += launch.calls
    seen: dict[str, Counter[tuple[Any, ...]]] = defaultdict(Counter)
    for event in json.loads(gzip.decompress(TRACES[name].read_bytes()))["traceEvents"]:
        if event.get("cat") == "cpu_op" and event["name"] in told and "Input Dims" in event["args"]:
            seen[event["name"]][traced(event["args"])] += 1
    assert told.keys() - seen.keys() == UNTRACED.get(name, set())
    runs = sum(sum(calls.values()) for calls in seen.values())
    calls = sum(sum(told[kernel].values()) for kernel in seen)
    for kernel, of_kernel in seen.items():
        assert {key: count * calls for key, count in of_kernel.items()} == {
            key: count * runs for key, count in told[kernel].items()
        }, kernel


@pytest.mark.parametrize(
    "name",
    ["backward", "forward", "inference", "samples/brk/module_0", "samples/opt/module_0",
     *(f"samples/{name}/module_{number}" for name in ("dyn", "fall") for number in (0, 1))],
)  # fmt: skip
def test_the_text_tells_the_launches_that_a_run_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, source = text_of(CPU / f"{name}.py"), module_of(CPU / f"{name}.py")
    (tmp_path / "module.py").write_text(text, encoding="utf-8")
    module = without_kernels(tmp_path / "module.py", monkeypatch)
    watched = watch_launches(module, lambda: module.call(list(module.get_args())))
    told = read_static_launches(text, source)
    seen = {layout(launch): launch.calls for launch in watched if launch.operator is None}
    assert seen and {layout(launch): launch.calls for launch in told if launch.operator is None} == seen
    seen_operators = Counter({library_call(launch): launch.calls for launch in watched if launch.operator})
    assert not Counter({library_call(launch): launch.calls for launch in told if launch.operator}) - seen_operators


def library_call(launch: Launch) -> tuple[Any, ...]:
    """What the text can tell of a library call; a run leaves away keywords that have their defaults."""
    tensors = [item.tensor for item in (*launch.arguments, *launch.keywords.values()) if item.tensor]
    storages = tuple((storage.size_bytes, storage.dtype, storage.device) for storage in launch.storages)
    return launch.operator, tuple(tensors), storages


def without_kernels(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A compiled module whose C++ kernels do nothing, so that any CPU can run it and nothing is compiled."""
    from torch._inductor.async_compile import AsyncCompile

    nothing: Callable[..., None] = lambda *arguments: None  # noqa: E731
    monkeypatch.setattr(AsyncCompile, "cpp_pybinding", lambda *arguments: nothing)
    spec = importlib.util.spec_from_file_location("recorded", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def layout(launch: Launch) -> tuple[Any, ...]:
    """What the text can tell of a launch: all but alignment and values."""
    storages = tuple((storage.size_bytes, storage.dtype, storage.device) for storage in launch.storages)
    return launch.kernel, launch.arguments, storages, launch.mutated


def test_what_depends_on_data_has_no_file_and_says_so(tmp_path: Path) -> None:
    source = module_of(CPU / "samples" / "unb" / "module_0.py")
    rows = rows_of(source, read_static_launches(text_of(CPU / "samples" / "unb" / "module_0.py"), source), tmp_path)
    kernels = [row for row in rows if row.name.startswith("cpp_")]
    assert len(kernels) == 2 and all("only a run shows them" in row.reason for row in kernels)
    assert {path.name for path in tmp_path.iterdir()} == {"aten_nonzero_0.py"}


def test_a_multi_kernel_counts_as_both_and_a_cpp_wrapper_as_its_own_tuning_launches() -> None:
    several = launches_of("samples/multi/module_0")
    assert len({launch.kernel for launch in several}) == 2
    assert {(launch.calls, launch.positions, launch.mutated) for launch in several} == {(1, (0,), (1,))}
    (wrapped,) = launches_of("samples/wrapper/module_0")
    assert described(wrapped) == (("float32", (100, 128), (128, 1)), "100", "128")
    assert (wrapped.calls, wrapped.mutated) == (1, (0,))


def test_partitions_are_followed_with_what_they_are_given_and_give_back() -> None:
    launches = {launch.kernel: launch for launch in launches_of("samples/partition/module_0")}
    assert launches["cpp_fused_sin_2"].storages[0].device == "cpu"
    assert {launch.storages[0].device for name, launch in launches.items() if "cpp" not in name} == {"cuda"}
    last = launches["triton_red_fused_add_exp_relu_sum_3"]
    assert [one.tensor.storage for one in last.arguments if one.tensor] == [0, 1, 2]


MODULE = '''
async_compile = AsyncCompile()
triton_k = async_compile.triton('triton_k', """
@triton_heuristics.pointwise(
    triton_meta={'signature': {'in_ptr0': '*fp16', 'in_ptr1': '*fp16', 'out_ptr0': '*fp16', 'ws_ptr': '*fp32',
        'scale': 'fp32', 'xnumel': 'i32'}}, inductor_meta={'mutated_arg_names': []})
@triton.jit
def triton_k(in_ptr0, in_ptr1, out_ptr0, ws_ptr, scale, xnumel):
    pass
""", device_str='cuda')

def call(args):
    args.clear()
    buf0 = empty_strided_cuda((4, 1000000), (1000000, 1), torch.float16)
    buf1 = empty_strided_cuda((8, ), (1, ), torch.float32)
    triton_k.run(reinterpret_tensor(buf0, (1000, ), (1, ), FIRST), reinterpret_tensor(buf0, (1000, ), (1, ), 2000128),
                 reinterpret_tensor(buf0, (1000, ), (1, ), 2000640), buf1, -0.5, 1000, stream=stream0)
    return (buf0, )
'''


@pytest.mark.parametrize(
    ("first", "storages", "offsets"),
    [(1000, [0, 1, 1, 2], [104, 0, 512, 0]), (2000000, [0, 0, 0, 1], [0, 128, 640, 0])],
)
def test_views_that_overlap_share_a_storage_and_disjoint_ones_do_not(
    first: int, storages: list[int], offsets: list[int]
) -> None:
    text = MODULE.replace("FIRST", str(first))
    (launch,) = read_static_launches(text, read_module(text))
    views = [item.tensor for item in launch.arguments if item.tensor]
    assert [view.storage for view in views] == storages
    assert [view.offset for view in views] == offsets
    assert launch.mutated == (2, 3) and launch.arguments[4].number == -0.5
    assert [storage.values.kind for storage in launch.storages][-1] == "zeros"  # a workspace is cleared
    assert launch.storages[0].values.kind == "normal"
    assert all(
        (view.offset + 1000 if view.dtype == "float16" else 8) * view.itemsize
        <= launch.storages[view.storage].size_bytes
        for view in views
    )


def test_what_user_kernels_and_templates_write_is_read_from_their_stores() -> None:
    for name in ("samples/user/module_0", "tem/module_0", "flex/module_0"):
        source = module_of(GPU / f"{name}.py")
        kernels = {kernel.name: kernel for kernel in source.kernels}
        for launch in kernel_launches_of(name):
            assert launch.mutated, launch.kernel
            if kernels[launch.kernel].event_name == "add_kernel":  # (x_ptr, y_ptr, out_ptr, n)
                assert launch.mutated == (2,)


@pytest.mark.parametrize("name", ["mixnet_l_train/forward", "mixnet_l_p10/backward", "samples/attention/module_0"])
def test_the_text_tells_the_library_calls_that_the_profiler_saw(name: str) -> None:
    told: dict[str, set[tuple[Any, ...]]] = defaultdict(set)
    for launch in launches_of(name):
        if launch.operator is not None:
            operator = launch.operator.rpartition(".")[0].replace(".", "::")
            items = (*launch.arguments, *launch.keywords.values())
            tensors = [item.tensor for item in items if item.tensor is not None]
            told[operator].add(tuple((one.dtype, one.shape, one.stride) for one in tensors))
    seen: dict[str, set[tuple[Any, ...]]] = defaultdict(set)
    for event in json.loads(gzip.decompress(TRACES[name].read_bytes()))["traceEvents"]:
        if event.get("cat") == "cpu_op" and event["name"] in told and "Input Dims" in event["args"]:
            seen[event["name"]].add(tuple(each for each in traced(event["args"]) if isinstance(each, tuple)))
    assert told and {name: {tuple(call) for call in calls} for name, calls in told.items()} == {
        name: {tuple(each for each in call if each[0] in TYPES.values()) for call in calls}
        for name, calls in seen.items()
    }


def test_library_calls_have_one_spelling_whoever_tells_them() -> None:
    """A running module passes by place what its text names, and leaves out defaults; ``kernel_id`` must not tell."""
    launches = [launch for launch in launches_of("mixnet_l_train/forward") if launch.operator]
    convolutions = [launch for launch in launches if launch.operator == "aten.convolution.default"]
    assert len(convolutions) == 70
    assert {(len(launch.arguments), tuple(launch.keywords)) for launch in convolutions} == {(9, ())}
    (product,) = [launch for launch in launches if launch.operator == "aten.addmm.out"]
    assert tuple(product.keywords) == ("out",) and product.mutated == (3,)

"""Watched launches: what a module is seen to call, with which arguments, and that it is left as it was.

The modules are compiled here, on the CPU, or stand in for one: what matters then is the call, not who wrote it.
"""

from __future__ import annotations

import base64
import json
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from h200 import source_of

from inductor_bench.errors import InductorBenchError
from inductor_bench.records.code import Argument, Details, Launch, Storage, TensorView, Values
from inductor_bench.records.evidence import GraphCallTouches, ObservedTouches
from inductor_bench.source.generated_text import (
    find_stored_parameters,
    get_triton_buffers,
    list_cpp_buffers,
    wants_positive,
)
from inductor_bench.source.module_reader import read_module
from inductor_bench.store import codec
from inductor_bench.store.codec import decode, encode_sparse
from inductor_bench.store.files import read_json
from inductor_bench.worker.capture.step_recording import Touches, number_values
from inductor_bench.worker.profile.module_profile import add_references
from inductor_bench.worker.profile.recorder import LaunchContents, remove_nans, watch_launches
from inductor_bench.worker.upstream import inductor

INPUT = torch.randn(64, 64)


def watch(run: Callable[[], Any], module: ModuleType | None = None, **options: Any) -> list[Launch]:
    return watch_launches(module or ModuleType("compiled"), run, **options)


def only(run: Callable[[], Any], **options: Any) -> Launch:
    (launch,) = watch(run, **options)
    return launch


def held(launch: Launch, storage: int, dtype: torch.dtype) -> list[Any]:
    data = launch.storages[storage].values.data
    assert data is not None
    return torch.frombuffer(bytearray(zlib.decompress(base64.b64decode(data))), dtype=dtype).tolist()


def module_of(**kernels: Callable[..., Any]) -> ModuleType:
    module = ModuleType("compiled")
    vars(module).update(kernels)
    return module


def test_out_variants_carry_their_output_as_a_keyword() -> None:
    launch = only(lambda: torch.mm(INPUT, INPUT.t(), out=torch.empty(64, 64)))
    assert launch.operator == "aten.mm.out" and list(launch.keywords) == ["out"]
    assert launch.mutated == (2,)
    assert [storage.values.kind for storage in launch.storages] == ["normal", "zeros"]
    left, right = (argument.tensor for argument in launch.arguments)
    assert left is not None and right is not None and left.storage == right.storage == 0
    assert (left.stride, right.stride) == ((64, 1), (1, 64))


def test_views_and_allocations_are_no_launches_and_calls_inside_calls_are_not_seen() -> None:
    def run() -> None:
        made = torch.empty_strided((4, 4), (4, 1))
        made.view(16).as_strided((2, 2), (4, 1)).copy_(INPUT[:2, :2])
        torch.ops.aten.convolution.default(
            INPUT.view(1, 1, 64, 64), INPUT[:1, :9].reshape(1, 1, 3, 3), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1
        )

    assert [launch.operator for launch in watch(run)] == ["aten.copy_.default", "aten.convolution.default"]


def test_equal_calls_are_one_launch_with_their_positions_and_data_make_no_difference() -> None:
    other = torch.full((64, 64), 3.0)

    def run() -> None:
        for factor in (2.0, 2.0, float("inf")):
            torch.mul(INPUT, factor)
            torch.mul(other, 2.0)

    assert [(launch.calls, launch.positions) for launch in watch(run)] == [(5, (0, 1, 2, 3, 5)), (1, (4,))]


def test_every_kind_of_argument() -> None:
    launch = only(lambda: torch.ops.aten._to_copy.default(INPUT, dtype=torch.float16, device=torch.device("cpu")))
    assert launch.keywords["dtype"] == Argument("dtype", text="float16")
    assert launch.keywords["device"] == Argument("device", text="cpu")
    launch = only(lambda: INPUT.clone(memory_format=torch.contiguous_format))
    assert launch.keywords["memory_format"] == Argument("memory_format", text="contiguous_format")
    launch = only(lambda: torch.ops.aten.index.Tensor(INPUT, [None, torch.tensor([5, 1, 63])]))
    assert launch.arguments[1].items[0] == Argument("none")
    assert held(launch, 1, torch.int64) == [5, 1, 63]
    launch = only(lambda: torch.ops.aten.fill.Scalar(INPUT, -float("inf")))
    assert launch.arguments[1] == Argument("float", text="-inf")
    launch = only(lambda: torch.ops.aten.cumsum.default(INPUT, 1))
    assert launch.arguments[1] == Argument("int", integer=1)


def test_overlapping_views_share_a_storage_and_disjoint_ones_do_not() -> None:
    pool = torch.zeros(4_000_000)
    launch = only(lambda: torch.add(pool[10:20], pool[15:25]))
    first, second = (argument.tensor for argument in launch.arguments[:2])
    assert first is not None and second is not None
    assert (first.storage, first.offset, second.storage, second.offset) == (0, 10, 0, 15)
    assert launch.storages[0].size_bytes == 100
    launch = only(lambda: torch.add(pool[1000:1010], pool[3_000_000:3_000_010]))
    first, second = (argument.tensor for argument in launch.arguments[:2])
    assert first is not None and second is not None and (first.storage, second.storage) == (0, 1)
    for view, storage in zip((first, second), launch.storages, strict=True):
        assert storage.size_bytes == (view.offset + 10) * 4 and storage.alignment == 64


def test_alignment_of_what_no_allocator_made() -> None:
    buffer = bytearray(64 * 5)
    odd = torch.frombuffer(buffer, dtype=torch.uint8)
    start = -odd.data_ptr() % 64 + 4
    launch = only(lambda: torch.frombuffer(buffer, dtype=torch.float32, count=8, offset=start) * 2)
    assert launch.storages[0].alignment == 4


def test_integers_are_exact_when_small_and_bounds_when_large() -> None:
    small, large = torch.tensor([7, -3, 5]), torch.arange(-5, 20_000)
    mask = torch.arange(80_000) % 4 == 0
    assert held(only(lambda: small + 1), 0, torch.int64) == [7, -3, 5]
    values = only(lambda: large + 1).storages[0].values
    assert (values.kind, values.low, values.high) == ("integers", -5, 19_999)
    values = only(lambda: ~mask).storages[0].values
    assert (values.kind, values.low, values.high, values.share) == ("integers", 0, 1, 0.25)
    assert only(lambda: small + 1, limit_bytes=23).storages[0].values.high == 7
    unsigned = torch.tensor([1, 2**32 - 1], dtype=torch.uint32)
    values = only(lambda: unsigned.clone(), limit_bytes=0).storages[0].values
    assert (values.low, values.high) == (1, 2**32 - 1)


def test_values_are_those_before_the_launch() -> None:
    counter = torch.tensor([1, 2, 3])
    launch = only(lambda: counter.add_(10))
    assert launch.mutated == (0,) and held(launch, 0, torch.int64) == [1, 2, 3]
    assert counter.tolist() == [11, 12, 13]


def test_what_was_just_cleared_is_zeros_until_it_is_written() -> None:
    work = torch.randn(100)

    def run() -> None:
        work.zero_()
        torch.sin(work)
        work.add_(1)
        torch.cos(work)

    kinds = [launch.storages[0].values.kind for launch in watch(run)]
    assert kinds == ["zeros", "zeros", "zeros", "normal"]


def test_tensors_with_a_layout_of_their_own_are_opaque() -> None:
    dense = torch.randn(8, 8).to_mkldnn()
    launch = only(lambda: dense.to_dense())
    assert launch.arguments[0] == Argument("opaque", text="mkldnn float32[8, 8]")


def test_custom_operators_and_higher_order_operators_that_run_another() -> None:
    from torch._prims.rng_prims import run_with_rng_state

    with torch.library._scoped_library("launch_test", "FRAGMENT") as library:
        library.define("scale(Tensor x, Tensor(a!) y, str how) -> Tensor")
        library.impl("scale", lambda x, y, how: y.add_(x) * 2, "CompositeExplicitAutograd")
        target = torch.ones(64, 64)
        launch = only(lambda: torch.ops.launch_test.scale.default(INPUT, target, "up"))
    assert (launch.operator, launch.mutated) == ("launch_test.scale.default", (1,))
    assert launch.arguments[2] == Argument("text", text="up")
    state = torch.get_rng_state()
    launch = only(lambda: run_with_rng_state(state, torch.ops.aten.bernoulli.p, INPUT, 0.3))
    assert launch.operator == "aten.bernoulli.p" and len(launch.arguments) == 2


def test_cpp_kernels_without_text_count_every_buffer_as_written_and_the_module_is_restored() -> None:
    calls: list[Any] = []

    def cpp_fused_0(*arguments: Any) -> None:
        calls.append(arguments)
        torch.add(arguments[0], 1, out=arguments[1])

    module = module_of(cpp_fused_0=cpp_fused_0)
    made = torch.empty(64, 64)
    launch = only_kernel(module, lambda: module.cpp_fused_0(INPUT, made, 7))
    assert (launch.kernel, launch.operator, launch.mutated) == ("cpp_fused_0", None, (0, 1))
    assert launch.arguments[2] == Argument("int", integer=7)
    assert module.cpp_fused_0 is cpp_fused_0 and len(calls) == 1

    def fail() -> None:
        module.cpp_fused_0(INPUT, made, 7)
        raise InductorBenchError("stop")

    with pytest.raises(InductorBenchError):
        watch(fail, module)
    assert module.cpp_fused_0 is cpp_fused_0
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()


def only_kernel(module: ModuleType, run: Callable[[], Any]) -> Launch:
    (launch,) = watch(run, module)
    return launch


def test_in_another_thread_under_no_grad_and_with_parameters() -> None:
    weight = torch.nn.Parameter(torch.randn(64, 64))
    found: list[Launch] = []

    def work() -> None:
        with torch.no_grad():
            found.extend(watch(lambda: torch.mm(weight, weight)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [launch.operator for launch in found] == ["aten.mm.default"]
    assert len(found[0].storages) == 1


def test_what_is_not_exact_is_shown_once_before_each_distinct_launch() -> None:
    state, index = torch.randn(100), torch.zeros(20_000, dtype=torch.int64)
    before, shown = state.clone(), []

    def keep(contents: LaunchContents) -> dict[int, Values]:
        shown.append((contents.launch.operator, {key: held.clone() for key, held in contents.storages.items()}))
        return {0: Values("recorded", file="mine")} if contents.launch.operator == "aten.add_.Tensor" else {}

    def run() -> None:
        state.add_(1.0)
        state.add_(1.0)
        torch.index_select(state, 0, index)
        torch.neg(torch.tensor([1.0]))

    added, selected, negated = watch(run, keep=keep)
    assert [name for name, _ in shown] == ["aten.add_.Tensor", "aten.index_select.default"]
    assert torch.equal(shown[0][1][0].view(torch.float32), before) and list(shown[1][1]) == [0, 1]
    assert added.storages[0].values == Values("recorded", file="mine") and added.calls == 2
    assert [storage.values.kind for storage in selected.storages] == ["normal", "integers"]
    assert negated.storages[0].values.data is not None


def test_encoded_launches_are_read_back() -> None:
    launches = watch(lambda: torch.ops.aten.index.Tensor(INPUT, [None, torch.tensor([5, 1])]))
    text = json.dumps(encode_sparse(launches))
    assert [decode(Launch, one) for one in json.loads(text)] == launches
    assert "null" not in text.replace('"operator": null', "")


def test_triton_launches_are_seen_in_front_of_the_kernel() -> None:
    heuristics = pytest.importorskip("torch._inductor.runtime.triton_heuristics")
    kernel = object.__new__(heuristics.CachingAutotuner)
    kernel.triton_meta = {"signature": {"in_ptr0": "*fp32", "out_ptr0": "*fp32", "ws_ptr": "*u8", "xnumel": "i32"}}
    kernel.mutated_arg_names = ["ws_ptr"]
    seen: list[Any] = []

    def run(self: Any, *arguments: Any, stream: Any, **more: Any) -> None:
        seen.append(torch.clone(arguments[0]))

    original = heuristics.CachingAutotuner.run
    heuristics.CachingAutotuner.run = run
    try:
        module = module_of(triton_poi_fused_0=kernel)
        arguments = (INPUT, torch.empty(64, 64), torch.ones(256, dtype=torch.uint8), 4096)
        launch = only_kernel(module, lambda: kernel.run(*arguments, stream=0))
        assert heuristics.CachingAutotuner.run is run
    finally:
        heuristics.CachingAutotuner.run = original
    assert len(seen) == 1
    assert (launch.kernel, launch.mutated) == ("triton_poi_fused_0", (1, 2))
    assert [storage.values.kind for storage in launch.storages] == ["normal", "zeros", "zeros"]
    assert launch.arguments[3] == Argument("int", integer=4096)


CPP = """
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(float* in_out_ptr0,
                       const float* in_ptr0,
                       const int64_t* in_ptr1,
                       float* out_ptr0,
                       const int64_t ks0)
{ %s }"""


def test_buffers_of_a_cpp_kernel() -> None:
    buffers = list_cpp_buffers(CPP % "")
    assert buffers is not None
    assert [(one.name, one.written, one.output_only) for one in buffers] == [
        ("in_out_ptr0", True, False),
        ("in_ptr0", False, False),
        ("in_ptr1", False, False),
        ("out_ptr0", True, True),
    ]
    added = list_cpp_buffers(CPP % "atomic_add(&out_ptr0[0], 1.f);")
    assert added is not None and not added[3].output_only
    assert list_cpp_buffers("int main() {}") is None


def test_buffers_of_recorded_triton_kernels() -> None:
    scan = next(kernel for kernel in source_of("gpu_kinds/3_inference").kernels if "spl" in kernel.name)
    signature = {"in_ptr0": "*i64", "out_ptr0": "*i64", "ws_ptr": "*u8", "xnumel": "constexpr"}
    flags = [
        (b.written, b.output_only, b.cleared) for b in get_triton_buffers(signature, frozenset({"ws_ptr"}), scan.source)
    ]
    assert flags == [(False, False, False), (True, True, False), (True, False, True)]
    for kernel in source_of("gpu_kinds/2_inference").kernels:
        if kernel.event_name == "add_kernel":
            pointers = dict.fromkeys(("x_ptr", "y_ptr", "out_ptr"), "*fp32")
            written = [one.written for one in get_triton_buffers(pointers, frozenset(), kernel.source)]
            assert written == [False, False, True]
    template = next(kernel for kernel in source_of("flex/module_0").kernels if "tem" in kernel.name)
    pointers = dict.fromkeys(("arg_Q", "arg_K", "arg_V", "arg_LSE", "arg_MAX", "arg_KV_IDX", "out_ptr0"), "*fp16")
    written = {buffer.name for buffer in get_triton_buffers(pointers, frozenset(), template.source) if buffer.written}
    assert written == {"arg_LSE", "arg_MAX", "out_ptr0"}


def test_stores_through_helpers_and_assigned_pointers() -> None:
    source = """
def put(where, what):
    at = where + 1
    tl.store(at, what)

def kernel(a, b, c, d, index, n):
    where = b + tl.load(index)
    put(what=tl.load(a), where=where)
    tl.atomic_add(c, 1)
    unknown(d)
"""
    names = frozenset({"a", "b", "c", "d", "index", "n"})
    assert find_stored_parameters(source, names) == {"b", "c", "d"}
    assert find_stored_parameters(source, frozenset({"other"})) is None
    everything = get_triton_buffers({"a": "*fp32", "n": "i32"}, frozenset(), None)
    assert [(one.name, one.written) for one in everything] == [("a", True)]


class Watched:
    """Watches each module that is compiled meanwhile on its first call, with copies of its inputs."""

    def __init__(self) -> None:
        self.modules: list[tuple[str, list[Launch]]] = []

    def on_load(self, module: ModuleType, path: str, constants: Any) -> None:
        call = module.call

        def first(arguments: list[Any]) -> Any:
            vars(module)["call"] = call
            inputs = [inductor.clone_input(value) for value in arguments]
            launches = watch_launches(module, lambda: call(list(inputs)))
            self.modules.append((Path(path).read_text(), launches))
            return call(arguments)

        vars(module)["call"] = first


def in_order(launches: list[Launch]) -> list[str]:
    names = {place: launch.kernel or str(launch.operator) for launch in launches for place in launch.positions}
    return [_bare(names[place]) for place in sorted(names)]


def _bare(name: str) -> str:
    if name == "aten._local_scalar_dense.default":
        return "aten.item"
    return ".".join(name.split(".")[:2])


@pytest.fixture
def watched() -> Iterator[Watched]:
    from torch._inductor import codecache, config

    torch._dynamo.reset()
    original = vars(codecache.PyCodeCache)["load_by_key_path"]
    found = Watched()
    inductor.watch_compiled_modules(codecache, found.on_load)
    with config.patch(fx_graph_cache=False):
        yield found
    codecache.PyCodeCache.load_by_key_path = original


@pytest.mark.slow
def test_compiled_fallbacks_and_dynamic_shapes_are_seen_whole(watched: Watched) -> None:
    def work(x: Any, index: Any) -> Any:
        ranked, order = torch.sort(x, stable=True)
        summed = torch.zeros_like(x).scatter_add(1, index, x)
        return torch.gather(ranked @ summed.t(), 1, order[:, : x.shape[0]] % x.shape[0])

    torch.compile(work, dynamic=True)(torch.randn(6, 9), torch.randint(0, 9, (6, 9)))
    ((text, launches),) = watched.modules
    assert in_order(launches) == [call.kernel or call.operator for call in read_module(text).calls]
    scalars = [
        argument for launch in launches if launch.kernel for argument in launch.arguments if argument.kind == "int"
    ]
    assert {argument.integer for argument in scalars} <= {6, 9, 54, 36}
    sort = next(launch for launch in launches if launch.operator == "aten.sort.stable")
    assert sort.arguments[0].tensor is not None and sort.arguments[0].tensor.shape == (6, 9)


# References of launches: the values with which kernels are called, and what their outputs hold.


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


# The places of a graph call's arguments and results.


def test_each_call_notes_its_arguments_before_it_empties_their_list(tmp_path: Path) -> None:
    first, second = torch.zeros(8), torch.zeros(4, dtype=torch.float16)
    given = [(first.data_ptr(), 32), (0, 0), (second.data_ptr(), 8)]

    def call(compiled: object, inputs: list[Any]) -> tuple[Any, ...]:
        kept = inputs[0]
        inputs.clear()
        return kept[4:], None

    touches = Touches()
    result = touches.call(3, call, object(), [first, 7, second])
    assert result[0].data_ptr() == first.data_ptr() + 16
    touches.call(4, lambda compiled, inputs: second, object(), [])
    touches.write(tmp_path / "1.touches.json")
    found = codec.decode(ObservedTouches, read_json(tmp_path / "1.touches.json"))
    assert found.calls == (
        GraphCallTouches(3, tuple(given), ((first.data_ptr() + 16, 16), (0, 0))),
        GraphCallTouches(4, (), ((second.data_ptr(), 8),)),
    )


def test_a_tensor_without_memory_has_no_place() -> None:
    sparse = torch.eye(3).to_sparse()
    assert number_values([sparse, None, 1.5]) == ((0, 0),) * 3

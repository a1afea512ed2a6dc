"""Kernels as the worker holds them: what it sets before it times one, what it compares, what it tells."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gather_kernel import SOURCE, gather_launch

from inductor_bench.errors import InductorBenchError
from inductor_bench.messages.kernel_requests import (
    Begun,
    Checked,
    CompareOutputs,
    CompiledResources,
    Prepare,
    Sample,
    Variant,
    VariantChange,
    Vary,
)
from inductor_bench.source.harness import common, timing_cpu
from inductor_bench.source.harness.common import PATTERN_ELEMENTS, Arguments, draw_normal
from inductor_bench.source.harness.operator_main import CallRefusedError
from inductor_bench.source.harness.triton_main import TritonKernel
from inductor_bench.store import codec
from inductor_bench.worker.bench import bench, loaded_kernel
from inductor_bench.worker.bench import bench as bench_module
from inductor_bench.worker.bench import library_kernel as library_variants
from inductor_bench.worker.bench import loaded_kernel as kernel_module
from inductor_bench.worker.bench.bench import Bench, _Loaded, describe_difference
from inductor_bench.worker.bench.library_kernel import OperatorBenchKernel
from inductor_bench.worker.bench.loaded_kernel import CppBenchKernel, LoadedKernel, TritonBenchKernel
from inductor_bench.worker.device import nvidia_runtime
from inductor_bench.worker.profile.module_profile import read_precision_switches, set_switches
from inductor_bench.worker.profile.recorder import watch_launches
from inductor_bench.worker.upstream import triton_compiler

LEFT = torch.randn(8, 8)
HALF = LEFT.half()
INDEX = torch.arange(200) * 7 % 50
TABLE = torch.randn(50, 16)


@pytest.fixture(autouse=True)
def quick_on_two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(kernel_module, "OWN_THREADS", 2)
    monkeypatch.setattr(timing_cpu, "BUDGET_S", 0.01)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


NAMED = {"name": "x", "kernel_id": "0", "category": "library"}


def operator(run: Any, **recorded: Any) -> OperatorBenchKernel:
    (launch,) = watch_launches(torch, run)
    facts = {**NAMED, "launch": codec.encode(launch), "device_type": "cpu", **recorded}
    return OperatorBenchKernel(facts, ".")


def gather(**needs: Any) -> CppBenchKernel:
    cpp = {"argument_types": [], "threads": None, "literal_threads": None, "vector_bits": None, **needs}
    return CppBenchKernel({**NAMED, "launch": codec.encode(gather_launch()), "cpp": cpp}, SOURCE, ".")


def test_a_kernel_of_unknown_threads_is_not_timed_on_those_of_the_one_before() -> None:
    product = operator(lambda: torch.mm(LEFT, LEFT))
    fewer = product.make_variant(VariantChange(threads=1))
    generated = gather()
    for kernel, threads in ((fewer, 1), (product, 2), (fewer, 1), (generated, 2), (gather(threads=1), 1)):
        each: LoadedKernel = kernel
        each.prepare()
        assert torch.get_num_threads() == threads
    assert product.facts().recorded.threads == generated.facts().recorded.cpp["threads"] == 2
    assert operator(lambda: torch.mm(LEFT, LEFT), threads=1).facts().recorded.threads == 1


def test_a_call_that_reads_by_index_is_timed_with_zeros_too() -> None:
    times = operator(lambda: torch.ops.aten.embedding.default(TABLE, INDEX)).measure()
    assert times.cold and times.warm and times.method
    assert times.with_zeros.keys() == {"cold", "warm"} and all(times.with_zeros["cold"])
    assert operator(lambda: torch.mm(LEFT, LEFT)).measure().with_zeros == {}


TRITON_LAUNCH = {
    "storages": [
        {"size_bytes": 64, "alignment": 256, "dtype": dtype, "device": "cuda", "values": {"kind": kind}}
        for dtype, kind in (("int64", "integers"), ("float32", "normal"))
    ],
    "arguments": [
        {
            "kind": "tensor",
            "tensor": {"dtype": dtype, "itemsize": size, "shape": [8], "stride": [1], "offset": 0, "storage": storage},
        }
        for storage, (dtype, size) in enumerate((("int64", 8), ("float32", 4)))
    ],
    "mutated": [1],
}


def test_a_triton_kernel_that_was_compiled_is_timed_with_zeros_too(monkeypatch: pytest.MonkeyPatch) -> None:
    config = SimpleNamespace(kwargs={"XBLOCK": 64}, num_warps=4, num_stages=1)
    meta = {"signature": {"in_ptr0": "*i64", "out_ptr0": "*fp32"}}
    kernel = SimpleNamespace(
        configs=[config], device_props=SimpleNamespace(index=0), triton_meta=meta, fn=SimpleNamespace(src="")
    )
    file = TritonKernel(kernel, {"launch": TRITON_LAUNCH, "category": "pointwise"})
    seen = []

    def measure(launch: dict[str, Any], *_: Any, **more: Any) -> dict[str, Any]:
        kernel.configs = None  # as Inductor does once a kernel is compiled
        seen.append((launch["storages"][0]["values"]["kind"], more["kept"]))
        return {state: {"samples_s": [1e-6]} for state in ("cold", "warm")} | {"method": "graphs"}

    monkeypatch.setattr(nvidia_runtime, "measure_cuda", measure)
    monkeypatch.setattr(TritonKernel, "make_arguments", lambda self: None)
    times = TritonBenchKernel(SimpleNamespace(FILE=file)).measure()  # type: ignore[arg-type]
    assert times.with_zeros == {"cold": (1e-6,), "warm": (1e-6,)} and times.method == "graphs"
    assert seen == [("integers", []), ("zeros", [])]


def test_of_a_table_the_rows_count_that_are_gathered() -> None:
    rows = operator(lambda: torch.ops.aten.embedding.default(TABLE, INDEX[:4])).describe()
    assert rows.moved_bytes == 4 * 8 + 2 * 4 * 16 * 4
    out = operator(lambda: torch.index_select(TABLE, 0, INDEX[:4], out=torch.empty(4, 16))).describe()
    assert out.moved_bytes == rows.moved_bytes
    every = operator(lambda: torch.ops.aten.embedding.default(TABLE, INDEX)).describe()
    assert every.moved_bytes == 200 * 8 + 50 * 16 * 4 + 200 * 16 * 4


def test_random_numbers_are_the_same_in_each_variant() -> None:
    drawn = operator(lambda: torch.ops.aten.bernoulli.p(TABLE, 0.5))
    ours, theirs = (one.compute(one.make_arguments()) for one in (drawn, drawn.make_variant(VariantChange(threads=1))))
    assert describe_difference(ours, theirs) == ""
    assert "elements differ" in describe_difference([1 - ours[0]], theirs)


def test_nothing_is_not_the_same_as_nothing() -> None:
    assert describe_difference([], []) == "it computes no tensors that could be compared"


def test_kernels_of_other_arguments_are_not_compared() -> None:
    bench = Bench(lambda part: None)
    pair = (operator(lambda: torch.mm(LEFT, LEFT)), operator(lambda: torch.mm(TABLE.t(), TABLE)))
    bench._kernels = {number: _Loaded(kernel) for number, kernel in enumerate(pair)}
    with pytest.raises(InductorBenchError, match="they take different arguments"):
        bench.check(CompareOutputs(1, against=0))
    assert bench.check(CompareOutputs(0, against=0)).difference == ""


def test_what_fills_up_the_end_of_a_binary_is_no_instruction() -> None:
    listing = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;     /* 0x00000a00ff017b82 */
                                                              /* 0x000e240000000800 */
        /*0010*/              @!P0 STG.E desc[UR4][R4.64], R2 ; /* 0x0000000204008986 */
        /*0020*/                   BRA 0x20;                  /* 0xfffffffc00fc7947 */
        /*0030*/                   NOP;                       /* 0x0000000000007918 */
        /*10040*/                  NOP;                       /* 0x0000000000007918 */
"""
    assert len(triton_compiler._INSTRUCTION.findall(listing)) == 3


@pytest.mark.parametrize(("precision", "in_tf32"), [("tf32", True), ("ieee", False)])
def test_switches_are_read_however_the_program_set_them(precision: str, in_tf32: bool) -> None:
    products = torch.backends.cuda.matmul
    before = products.fp32_precision
    products.fp32_precision = precision  # ``allow_tf32`` refuses to be read if this is not what it says
    try:
        assert read_precision_switches()["matmul_tf32"] is in_tf32
    finally:
        products.fp32_precision = before


@pytest.mark.parametrize("by", [lambda: torch.set_float32_matmul_precision("medium"), lambda: set_bfloat16("bf16")])
def test_products_of_a_processor_in_bfloat16_are_read_and_set_in_another_process(by: Any) -> None:
    before, here = read_precision_switches(), torch.backends.mkldnn.matmul.fp32_precision  # type: ignore[attr-defined]
    try:
        by()
        of_program = read_precision_switches()
        assert of_program["mkldnn_bf16"] and not before["mkldnn_bf16"]
        set_switches(before)
        assert not read_precision_switches()["mkldnn_bf16"]
        set_switches(of_program)
        assert read_precision_switches() == of_program
        older = {name: value for name, value in of_program.items() if name != "mkldnn_bf16"}
        set_switches(older)
        assert read_precision_switches() == {**of_program, "mkldnn_bf16": False}
    finally:
        set_switches(before)
        torch.set_float32_matmul_precision("highest")
        set_bfloat16(here)


def set_bfloat16(precision: str) -> None:
    torch.backends.mkldnn.matmul.fp32_precision = precision  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("run", "convolution", "product", "dtype"),
    [
        (lambda: torch.mm(LEFT, LEFT), True, False, "float32"),
        (lambda: torch.mm(LEFT, LEFT), False, True, "tf32"),
        (lambda: torch.conv1d(LEFT[None], LEFT[:, :, None]), True, False, "tf32"),
        (lambda: torch.mm(HALF, HALF), True, True, "float16"),
    ],
)
def test_products_on_a_gpu_are_in_tf32_if_that_is_allowed(
    run: Any, convolution: bool, product: bool, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = operator(run)
    common = kernel.operator.make_arguments()
    monkeypatch.setattr(torch.backends, "cudnn", SimpleNamespace(allow_tf32=convolution))
    monkeypatch.setattr(torch.backends.cuda, "matmul", SimpleNamespace(allow_tf32=product))
    assert library_variants.find_product_type(kernel.operator, common) == dtype.replace("tf32", "float32")
    kernel.operator.device = "cuda"
    assert library_variants.find_product_type(kernel.operator, common) == dtype


# Several workers on one device


class _Turn:
    """A bench whose device is shared: ``held`` says whether this process has it while something runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.held = 0
        monkeypatch.setattr(bench_module, "using_device_alone", self.exclusive)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        self.held += 1
        yield
        self.held -= 1


class _Timer:
    method, retaken = "graphs", 0

    def __init__(self, turn: _Turn) -> None:
        self.turn, self.seen = turn, list[tuple[str, int]]()

    def bind(self, bind: Any) -> object:
        return object()

    def run_first(self, call: Any, state: str) -> None:
        self.seen.append(("first", self.turn.held))

    def get_ready(self, call: Any, state: str) -> None:
        self.seen.append(("ready", self.turn.held))

    def cold(self, call: Any) -> float:
        self.seen.append(("sample", self.turn.held))
        return 1e-6


def _loaded(timer: _Timer) -> Any:
    kernel = SimpleNamespace(launch={}, timer_key=lambda: "", bind=None, prepare=lambda: None)
    kernel.make_timer = lambda arguments: timer
    kernel.make_arguments = lambda: Arguments([], {}, [])
    return _Loaded(kernel)  # type: ignore[arg-type]


def test_a_device_is_held_for_all_samples_and_not_while_graphs_are_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    turn, told = _Turn(monkeypatch), list[Begun]()
    bench, timer = Bench(told.append), _Timer(turn)
    bench._kernels = {number: _loaded(timer) for number in (1, 2)}
    found = bench.sample(Sample((1, 2, 2, 1), "cold"))
    assert found.samples_s == (1e-6,) * 4
    captures = [("ready", 0), ("ready", 0)]  # beside the samples of others
    assert timer.seen == [("first", 1), ("first", 1), *captures, *[("sample", 1)] * 4]
    assert [part.number for part in told] == [1, 2, 1, 2, 1, 2, 1], "once for two samples of a kernel in turn"


def test_a_wait_for_the_device_is_told_with_the_kernel_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    listeners: list[Any] = []
    monkeypatch.setattr(bench_module, "on_wait", listeners.append)
    told: list[Begun] = []
    bench = Bench(told.append)
    (listener,) = listeners
    listener(True)
    bench._begin(7)
    listener(True)
    listener(False)
    assert told == [Begun(None, waits=True), Begun(7), Begun(7, waits=True), Begun(7)]


def test_where_memory_runs_out_other_kernels_are_freed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(lambda part: None)
    bench._timers, attempts = {"other": object()}, []  # type: ignore[dict-item, var-annotated]

    def work() -> str:
        attempts.append(len(bench._timers))
        if len(attempts) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return "done"

    assert bench._use_memory(work) == "done" and attempts == [1, 0]
    with pytest.raises(torch.OutOfMemoryError):
        bench._use_memory(lambda: (_ for _ in ()).throw(torch.OutOfMemoryError("CUDA out of memory")))


def test_kernels_of_a_gpu_share_their_random_numbers_whatever_their_language() -> None:
    count = PATTERN_ELEMENTS - 7
    first, second = (loaded_kernel.draw_on("cuda:0") for _ in range(2))
    assert first.func is second.func and loaded_kernel.draw_on("cpu") is draw_normal  # type: ignore[attr-defined]
    shared = loaded_kernel._draw_shared("cpu", count, 3)
    assert torch.equal(shared, draw_normal(PATTERN_ELEMENTS, 3)[:count])
    assert torch.equal(loaded_kernel._draw_shared("cpu", PATTERN_ELEMENTS + 2, 3), draw_normal(PATTERN_ELEMENTS + 2, 3))


def test_candidates_are_made_beside_other_workers_and_compared_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turn, told, seen = _Turn(monkeypatch), list[Begun](), list[tuple[str, int, int]]()
    bench = Bench(told.append)

    def vary(request: Vary) -> CompiledResources:
        seen.append(("made", request.number, turn.held))
        if request.number == 2:
            raise InductorBenchError("it does not compile")
        return CompiledResources(registers=request.number)

    def check(request: CompareOutputs) -> Checked:
        seen.append(("compared", request.number, turn.held))
        if request.number == 3:
            raise CallRefusedError("it needs 9 GB")
        return Checked("output 0: 1 of 2 elements differ")

    monkeypatch.setattr(bench, "vary", vary)
    monkeypatch.setattr(bench, "check", check)
    found = bench.prepare(Prepare(7, tuple(Variant(number, VariantChange()) for number in (1, 2, 3)))).variants
    assert seen == [("made", 1, 0), ("made", 2, 0), ("made", 3, 0), ("compared", 1, 1), ("compared", 3, 1)]
    assert [part.number for part in told] == [1, 2, 3, 1, 3]
    assert [one.refusal for one in found] == ["", "it does not compile", "it needs 9 GB"]
    assert found[0].difference == "output 0: 1 of 2 elements differ" and found[0].compiled == CompiledResources(
        registers=1
    )


def test_a_kernel_on_a_cpu_is_prepared_before_each_of_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, timer, prepared = Bench(lambda part: None), _Timer(_Turn(monkeypatch)), list[int]()
    bench._kernels = {number: _loaded(timer) for number in (1, 2)}
    for number, loaded in bench._kernels.items():
        monkeypatch.setattr(loaded.kernel, "prepare", partial(prepared.append, number))
    bench.sample(Sample((1, 2, 2, 1), "cold"))
    assert prepared == [1, 2, 2, 1], "each has a number of threads of its own"


def test_what_arguments_are_filled_with_is_drawn_ahead_by_one_thread() -> None:
    common._long_pattern.cache_clear()
    threads = torch.get_num_threads()
    loaded_kernel.draw_ahead()
    assert torch.get_num_threads() == threads
    misses = common._long_pattern.cache_info().misses
    launch = {
        "storages": [
            {"size_bytes": 8, "alignment": 256, "dtype": "float32", "device": "cuda", "values": {"kind": "random"}}
        ]
        * loaded_kernel.USUAL_STORAGES,
        "arguments": [],
    }
    common.build_arguments(launch, "cpu", draw=partial(loaded_kernel._draw_shared, "cpu"))
    assert common._long_pattern.cache_info().misses == misses


def test_operators_of_comparisons_run_ahead_on_any_device(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    describe = bench.describe_difference
    monkeypatch.setattr(bench, "describe_difference", lambda *pair: found.append(describe(*pair)))
    bench.compare_ahead(torch.device("cpu"))
    assert found == ["output 0: 8 of 8 elements differ"] * 3

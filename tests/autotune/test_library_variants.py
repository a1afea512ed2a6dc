"""Library calls on a GPU: what Inductor would make in their place, and how cuDNN's search is asked for."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from late import Late

from inductor_bench.autotune.kernel_variants import LibraryVariants, find_variants
from inductor_bench.autotune.kernel_variants import library_variants as library_variants_of
from inductor_bench.autotune.methods import METHODS, FixedKernel
from inductor_bench.errors import InductorBenchError
from inductor_bench.messages.kernel_requests import (
    CompareOutputs,
    LibraryConfigs,
    ListLibraryConfigs,
    RecordedFacts,
    VariantChange,
    VariantFacts,
    Vary,
)
from inductor_bench.source.harness import operator_main
from inductor_bench.source.harness.common import Arguments, build_arguments
from inductor_bench.store import codec
from inductor_bench.worker.bench import library_kernel as library_variants
from inductor_bench.worker.bench.bench import Bench, _Loaded
from inductor_bench.worker.bench.library_kernel import OperatorBenchKernel
from inductor_bench.worker.profile.recorder import watch_launches
from inductor_bench.worker.upstream.pinning import name_choices

library_lowering = Late("inductor_bench.worker.bench.library_choices")
select_algorithm = Late("torch._inductor.select_algorithm")
aten = torch.ops.aten
LEFT, RIGHT = torch.randn(3, 96, 64), torch.randn(3, 64, 80)
IMAGE = torch.randn(2, 8, 6, 6).to(memory_format=torch.channels_last)
WEIGHT = torch.randn(4, 8, 1, 1).to(memory_format=torch.channels_last)
MM = {"backend": "aten", "call": "mm"}
TEMPLATE = {"backend": "cpp", "template": "CppMicroGemmFP32Vec"}
NOTHING = Arguments([], {}, [])
GPU = VariantFacts("operator", "cuda", RecordedFacts("k", "0", "operator"))


def kernel_of(run: Any, **recorded: Any) -> OperatorBenchKernel:
    (launch,) = watch_launches(torch, run)
    facts = {"name": "x", "kernel_id": "0", "launch": codec.encode(launch), "device_type": "cpu", **recorded}
    return OperatorBenchKernel(facts, ".")


def convolve(padding: int = 0) -> torch.Tensor:
    return aten.convolution.default(IMAGE, WEIGHT, None, [1, 1], [padding] * 2, [1, 1], False, [0, 0], 1)


def test_a_call_can_be_another_call_on_views_of_its_tensors() -> None:
    kernel = kernel_of(convolve)
    found = kernel.configs()
    assert found == LibraryConfigs({"backend": "aten"}, (MM,))
    (choice,) = kernel.others._max if kernel.others else ()
    assert choice.inputs == (
        library_lowering.ArgumentView(0, (72, 8), (8, 1), 0),
        library_lowering.ArgumentView(1, (8, 4), (1, 8), 0),
    )
    bench = Bench(lambda part: None)
    bench._kernels = {0: _Loaded(kernel)}
    bench.vary(Vary(1, of=0, change=VariantChange(MM)))
    assert bench.check(CompareOutputs(1, against=0)).difference == ""
    chosen = bench._kernels[1].kernel
    assert chosen.compute(chosen.make_arguments())[0].stride() == convolve().stride()


@pytest.mark.usefixtures("with_vectors")
def test_a_template_writes_what_the_call_writes_and_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = select_algorithm.AlgorithmSelectorCache
    monkeypatch.setattr(cache, "do_autotuning", lambda *args, **more: pytest.fail("Inductor times its choices"))
    hooks = list(select_algorithm.get_algorithm_selector_cache().preprocessing_fns)
    kernel = kernel_of(lambda: torch.bmm(LEFT, RIGHT, out=torch.empty(3, 96, 80)))
    assert kernel.configs().max == (TEMPLATE,)
    assert select_algorithm.get_algorithm_selector_cache().preprocessing_fns == hooks
    varied = kernel.make_variant(VariantChange(TEMPLATE))
    arguments = varied.operator.make_arguments()
    out = arguments.keywords["out"].fill_(7.0)
    assert varied.bind(arguments)() is out
    torch.testing.assert_close(out, torch.bmm(*arguments.args))
    returned = kernel_of(lambda: torch.bmm(LEFT, RIGHT)).make_variant(VariantChange(TEMPLATE))
    run = returned.bind(returned.operator.make_arguments())
    assert run() is run()  # allocated once, before it is timed


@pytest.mark.usefixtures("with_vectors")
def test_a_choice_that_computes_something_else_is_found_out() -> None:
    kernel = kernel_of(lambda: torch.bmm(LEFT, RIGHT))
    kernel.configs()
    assert kernel.others is not None
    (choice,) = kernel.others._max
    kernel.others._max = [library_lowering.Choice(choice.config, choice.caller, choice.inputs[:1] * 2, choice.output)]
    bench = Bench(lambda part: None)
    bench._kernels = {0: _Loaded(kernel)}
    bench.vary(Vary(1, of=0, change=VariantChange(TEMPLATE)))
    assert "elements differ" in bench.check(CompareOutputs(1, against=0)).difference


@pytest.mark.parametrize(("dtype", "unwritten"), [(torch.float32, torch.nan), (torch.int32, -(2**31))])
def test_a_choice_that_writes_nothing_is_found_out(dtype: torch.dtype, unwritten: float) -> None:
    kernel = kernel_of(lambda: torch.mm(LEFT[0], RIGHT[0]))
    shared = library_variants.SharedResults(torch.zeros(96, 80, dtype=dtype))
    lazy = SimpleNamespace(bind=lambda tensors, result: lambda: result)
    chosen = [library_variants.ChosenOperator(kernel.operator, lazy, shared) for _ in range(2)]  # type: ignore[arg-type]
    arguments, others = kernel.operator.make_arguments(), kernel.operator.make_arguments()
    result = chosen[0].bind(arguments)().zero_()
    assert chosen[1].bind(arguments)() is result
    torch.testing.assert_close(result, torch.full_like(result, unwritten), equal_nan=True)
    assert chosen[1].bind(others)() is not result
    assert len(shared._made) == 2
    del arguments
    assert len(shared._made) == 1
    kernel.others = library_variants.LibraryCandidates(kernel.operator)
    kernel.others._max = [SimpleNamespace(config=MM, compile=lambda: None, bind=lazy.bind)]  # type: ignore[list-item]
    bench = Bench(lambda part: None)
    bench._kernels = {0: _Loaded(kernel)}
    bench.vary(Vary(1, of=0, change=VariantChange(MM)))
    assert "elements differ" in bench.check(CompareOutputs(1, against=0)).difference


@pytest.fixture
def own_switches(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Stand-ins for those of torch, which the other tests keep."""
    product = SimpleNamespace(allow_tf32=False)
    library = SimpleNamespace(allow_tf32=True, benchmark=False, deterministic=False)
    monkeypatch.setattr(torch.backends.cuda, "matmul", product)
    monkeypatch.setattr(torch.backends, "cudnn", library)
    return SimpleNamespace(read=lambda: (product.allow_tf32, *vars(library).values()))


PROGRAM = {"matmul_tf32": True, "cudnn_tf32": False, "cudnn_benchmark": True, "cudnn_deterministic": True}


def test_a_call_is_made_under_the_switches_of_its_program(
    own_switches: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    kernel = kernel_of(lambda: torch.mm(LEFT[0], RIGHT[0]), **PROGRAM)
    inner = kernel.operator.find()
    monkeypatch.setattr(
        operator_main.Operator, "find", lambda self: Seen(inner, lambda: seen.append(own_switches.read()))
    )
    arguments = kernel.operator.make_arguments()
    kernel.bind(arguments)()
    kernel.operator.device = kernel.operator.recorded["device_type"] = "cuda"
    kernel.bind(arguments)()
    assert seen == [(False, True, False, False), (True, False, True, True)]
    assert own_switches.read() == (False, True, False, False)
    assert library_variants.find_product_type(kernel.operator, arguments) == "tf32"
    seen.clear()
    monkeypatch.setattr(operator_main.Operator, "make_arguments", lambda self, seed: arguments)
    assert operator_main.check_operator(kernel.operator, 0) == (True, "1 output agree with the same call in float64")
    assert seen == [(True, False, True, True), (False, False, False, True)]  # the second is what it is compared with
    with pytest.raises(RuntimeError), operator_main.switched(PROGRAM):
        raise RuntimeError
    assert own_switches.read() == (False, True, False, False)


def test_a_call_on_a_cpu_is_made_in_the_precision_of_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    products: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    seen: list[str] = []
    kernel = kernel_of(lambda: torch.mm(LEFT[0], RIGHT[0]), mkldnn_bf16=True, matmul_tf32=True)
    inner, before = kernel.operator.find(), products.fp32_precision
    look = Seen(inner, lambda: seen.append(products.fp32_precision))
    monkeypatch.setattr(operator_main.Operator, "find", lambda self: look)
    assert library_variants.find_product_type(kernel.operator, kernel.operator.make_arguments()) == "bfloat16"
    assert operator_main.check_operator(kernel.operator, 0) == (True, "1 output agree with the same call in float64")
    assert seen == ["bf16", "none"] and products.fp32_precision == before, "the second is what it is compared with"
    assert kernel.tolerances["float32"] == operator_main.TOLERANCES["bfloat16"]
    older = kernel_of(lambda: torch.mm(LEFT[0], RIGHT[0]))
    assert library_variants.find_product_type(older.operator, older.operator.make_arguments()) == "float32"
    assert older.tolerances == operator_main.TOLERANCES


class Seen:
    """An operator that says when it is called."""

    def __init__(self, inner: Any, tell: Any) -> None:
        self._inner, self._tell = inner, tell

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        self._tell()
        return self._inner(*args, **keywords)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_choices_are_found_and_made_under_the_switches_of_the_program(
    own_switches: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def look(*args: Any) -> Any:
        seen.append(own_switches.read())
        return [], "none"

    monkeypatch.setattr(library_lowering, "find_choices", look)
    kernel = kernel_of(convolve, **PROGRAM)
    kernel.operator.device = "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        operator_main, "build_arguments", lambda launch, device, *more: build_arguments(launch, "cpu", *more)
    )
    library_variants.LibraryCandidates(kernel.operator, wide=True)
    choice = SimpleNamespace(bind=lambda tensors, result: own_switches.read)
    recorded = SimpleNamespace(recorded={**kernel.recorded, "device_type": "cuda"}, folder=".")
    shared = library_variants.SharedResults(torch.zeros(2))
    chosen = library_variants.ChosenOperator(recorded, choice, shared)  # type: ignore[arg-type]
    seen.append(chosen.bind(kernel.operator.make_arguments())())
    assert seen == [(True, False, True, True)] * 3


@pytest.fixture
def background(monkeypatch: pytest.MonkeyPatch) -> Iterator[library_variants.LibraryCandidates]:
    """A product whose choices compile on one thread."""
    kernel = kernel_of(lambda: torch.mm(LEFT[0], RIGHT[0]))
    threads = ThreadPoolExecutor(1)
    monkeypatch.setattr(library_lowering, "_count_threads", lambda: threads)
    monkeypatch.setattr(library_lowering, "PARSES_IN_THREADS", True)
    yield library_variants.LibraryCandidates(kernel.operator)
    threads.shutdown(cancel_futures=True)


def slow_choice(number: int, compile: Callable[[], None]) -> Any:
    return SimpleNamespace(config={"number": number}, caller=None, compile=compile)


def test_choices_compile_ahead_while_others_are_timed(background: library_variants.LibraryCandidates) -> None:
    begun: list[int] = []
    go_on = threading.Event()

    def compiling(number: int) -> Callable[[], None]:
        def compile() -> None:
            if threading.current_thread() is not threading.main_thread():
                begun.append(number)
                go_on.wait(600 if number == 1 else 0)

        return compile

    background._max = [slow_choice(0, compiling(0)), *(slow_choice(number, compiling(number)) for number in (1, 2))]
    background._begin(background._max)
    background.operator({"number": 0})
    while len(begun) < 2:
        time.sleep(0.001)
    assert begun == [0, 1], "the first can be timed, and the next is being compiled"
    go_on.set()
    background.operator({"number": 2})
    assert begun == [0, 1, 2]
    with pytest.raises(InductorBenchError, match="lists no such choice"):
        background.operator({"number": 3})


@pytest.mark.parametrize(("allowed", "count"), [(3, 3), (16, 6), (1, 1)])
def test_one_pool_of_processes_is_made_for_all_threads(
    allowed: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[threading.Thread] = []
    pool = SimpleNamespace(use_process_pool=lambda: made.append(threading.current_thread()))
    monkeypatch.setattr(library_lowering, "AsyncCompile", pool)
    monkeypatch.setattr(library_lowering, "get_compile_threads", lambda: allowed)
    monkeypatch.setattr(library_lowering.os, "sched_getaffinity", lambda _: range(8))
    threads = library_lowering._count_threads.__wrapped__()
    assert made == [threading.main_thread()] and threads._max_workers == count


def test_a_choice_that_waits_for_its_turn_is_not_late(
    background: library_variants.LibraryCandidates, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, dropped, looks = threading.Event(), threading.Event(), itertools.count(1)

    def look(compilations: Any, timeout: float) -> Any:
        """Looks as often as it takes to spend more than the limit, and lets the first choice end only then."""
        if timeout == library_variants.QUEUE_S and next(looks) * library_variants.QUEUE_S > library_variants.COMPILE_S:
            first.set()
        return wait(compilations, timeout=0.001 if timeout == library_variants.QUEUE_S else timeout)

    monkeypatch.setattr(library_variants, "wait", look)
    background._max = [slow_choice(0, lambda: first.wait(600) and None), slow_choice(1, lambda: None)]
    background._begin(background._max)
    others = library_variants.LibraryCandidates(background._operator)
    others._max = [slow_choice(3, lambda: None), slow_choice(4, lambda: None)]
    others._begin(others._max)
    others.operator({"number": 4})
    assert next(looks) * library_variants.QUEUE_S > library_variants.COMPILE_S
    pending = others._compilations
    others._begin([slow_choice(5, lambda: dropped.wait(600) and None), slow_choice(6, lambda: None)])
    del others
    assert pending and [one.cancelled() for one in pending.values()][-1], "nothing compiles for a call that is dropped"
    dropped.set()


def test_many_choices_compile_no_further_ahead_than_a_screen_of_them(
    background: library_variants.LibraryCandidates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_variants, "AHEAD", 3)
    begun: list[int] = []
    background._max = []
    background._wide = [slow_choice(number, lambda number=number: begun.append(number)) for number in range(9)]  # type: ignore[misc]
    background.operator({"number": 2})
    for compilation in background._compilations.values():
        compilation.result()
    assert sorted(set(begun)) == [2, 3, 4]


def test_a_choice_that_does_not_compile_says_so_itself(
    background: library_variants.LibraryCandidates, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        here = threading.current_thread() is threading.main_thread()
        raise InductorBenchError("refused here" if here else "refused in a process")

    go_on = threading.Event()
    background._max = [slow_choice(0, fail), slow_choice(1, lambda: go_on.wait(600) and None)]
    with pytest.raises(InductorBenchError, match="refused here"):
        background.operator({"number": 0})
    monkeypatch.setattr(library_variants, "COMPILE_S", 0.01)
    with pytest.raises(InductorBenchError, match="does not compile within 0 s"):
        background.operator({"number": 1})
    go_on.set()


def test_the_same_call_in_a_wider_type_stays_a_library_call() -> None:
    kernel = kernel_of(convolve)
    kernel.configs()
    assert kernel.make_variant(VariantChange(MM)).verify() == (True, "1 output agree with the same call in float64")


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (lambda: torch.sort(LEFT), "Inductor has no template for aten.sort"),
        (lambda: torch.tanh(LEFT), "Inductor has no template for aten.tanh"),
        (lambda: torch.mm(LEFT[0], RIGHT[0]), "Inductor has no template for aten.mm with these arguments"),
        (lambda: convolve(padding=1), "Inductor has no template for aten.convolution with these arguments"),
        (
            lambda: torch.bmm(LEFT, RIGHT, out=torch.empty(3, 96, 96)[:, :, :80]),
            "Inductor's choices for aten.bmm would write a result with another memory layout",
        ),
    ],
)
def test_a_call_without_choices_says_why(run: Any, why: str) -> None:
    found = kernel_of(run).configs()
    assert (found.max, found.limits) == ((), why)
    variants = library_variants_of(found)
    assert isinstance(variants, FixedKernel) and variants.no_variants_reason == why


def test_what_takes_several_kernels_is_not_replaced_by_one_of_them() -> None:
    step = SimpleNamespace(get_outputs=lambda: [SimpleNamespace(get_name=lambda: "buf0")])
    product = SimpleNamespace(get_name=lambda: "buf0", get_size=lambda: [2], get_stride=lambda: [1])
    total = SimpleNamespace(get_name=lambda: "buf1")
    callers = [SimpleNamespace(name="mm_0", description="", layout=SimpleNamespace(size=[2], stride=[1], offset=0))]
    callers[0].input_nodes = []
    for operations, final, count in (([step], product, 1), ([step, step], product, 0), ([step], total, 0)):
        lowered = SimpleNamespace(operations=operations, graph_outputs=[final])
        choices, why = library_lowering._keep_usable_choices(lowered, callers, [], torch.zeros(2), "aten.mm")
        assert len(choices) == count
        assert why == (
            "" if count else "Inductor computes aten.mm with several kernels here: no single template does the same"
        )


def test_what_tells_templates_apart_is_their_tile_if_that_will_do() -> None:
    def template(number: int, **fields: Any) -> Any:
        made = object.__new__(select_algorithm.TritonTemplateCaller)
        description = ", ".join(f"{name}={value!r}" for name, value in fields.items())
        vars(made).update(name=f"triton_mm_{number}", description=description)
        return made

    callers = [
        template(7, ACC_TYPE="tl.float32", BLOCK_M=32, num_warps=4),
        template(8, ACC_TYPE="tl.float32", BLOCK_M=64, num_warps=4),
        template(9, ACC_TYPE="tl.float16", BLOCK_M=64, num_warps=4),
        template(10, ACC_TYPE="tl.float32", BLOCK_M=32, num_warps=4),
    ]
    found = name_choices(callers)
    kind = {"backend": "triton", "template": "mm"}
    assert [config for config, _ in found] == [
        {**kind, "BLOCK_M": 32, "num_warps": 4},
        {**kind, "ACC_TYPE": "tl.float32", "BLOCK_M": 64, "num_warps": 4},
        {**kind, "ACC_TYPE": "tl.float16", "BLOCK_M": 64, "num_warps": 4},
    ]
    assert [caller for _, caller in found] == callers[:3]


def test_a_choice_that_does_not_compile_says_why() -> None:
    def refuse() -> None:
        raise RuntimeError("a long story\n  out of resource: shared memory\n^^^")

    choice = library_lowering.Choice(
        {}, SimpleNamespace(bmreq=SimpleNamespace(precompile=refuse)), (), library_lowering.ArgumentView(0)
    )
    with pytest.raises(InductorBenchError, match=r"^does not compile: out of resource: shared memory$"):
        choice.compile()
    kernel = kernel_of(convolve)
    with pytest.raises(InductorBenchError, match="Inductor lists no such choice here"):
        kernel.make_variant(VariantChange(TEMPLATE))


def test_a_view_of_a_tensor_begins_where_the_tensor_begins() -> None:
    tensor = torch.arange(12)[2:]
    assert library_lowering.ArgumentView(1, (2, 2), (3, 1), 1).of([LEFT, tensor]).tolist() == [[3, 4], [6, 7]]
    assert library_lowering.ArgumentView(1).of([LEFT, tensor]) is tensor


def test_cudnn_searches_for_its_algorithm_in_a_thread_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def call() -> int:
        seen.append((torch.backends.cudnn.benchmark, threading.current_thread() is threading.main_thread()))
        return 5

    monkeypatch.setattr(operator_main.Operator, "find", lambda self: call)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "the stream that captures")
    entered = []

    class Stream:
        def __init__(self, stream: str) -> None:
            entered.append((stream, threading.current_thread() is threading.main_thread()))

        def __enter__(self) -> None: ...
        def __exit__(self, *error: object) -> None: ...

    monkeypatch.setattr(torch.cuda, "stream", Stream)
    recorded = {"launch": {"operator": "aten.convolution.default"}, "device_type": "cuda"}
    for change in ({}, {"cudnn_benchmark": True}, {"cudnn_benchmark": False}, {"cudnn_benchmark": True}):
        assert library_variants.open_operator({**recorded, **change}, ".").bind(NOTHING)() == 5
    assert seen == [(False, True), (True, False)] * 2
    product = {"launch": {"operator": "aten.mm.default"}, "device_type": "cuda", "cudnn_benchmark": True}
    assert type(library_variants.open_operator(product, ".")) is operator_main.Operator
    assert entered == [("the stream that captures", False)] * 2
    assert torch.backends.cudnn.benchmark is False


@pytest.mark.parametrize(("searched", "other"), [(None, True), (False, True), (True, False)])
def test_a_convolution_on_a_gpu_can_be_searched_for_and_saved_so(searched: bool | None, other: bool) -> None:
    recorded = {} if searched is None else {"cudnn_benchmark": searched}
    kernel = kernel_of(convolve, **recorded)
    kernel.configs()
    assert kernel.others is not None
    kernel.operator.device = "cuda"
    listed = kernel.others.list_configs()
    variants = find_variants(GPU, lambda _: listed)  # type: ignore[arg-type, return-value]
    assert isinstance(variants, LibraryVariants)
    configs = [library_variants.make_library_config(other), MM]
    assert (variants.now, variants.listed_by_max_autotune()) == (
        library_variants.make_library_config(not other),
        configs,
    )
    assert [variants.change(config) for config in configs] == [VariantChange(cudnn_benchmark=other), VariantChange(MM)]
    assert variants.save_refusal(configs[0]) == "" and "max-autotune" in variants.save_refusal(MM)
    assert variants.opening_requests(4) == [ListLibraryConfigs(4)]


def test_what_cannot_be_tried_is_said_beside_what_can() -> None:
    why = "Inductor has no template for aten.convolution_backward"
    found = LibraryConfigs({"backend": "aten"}, ({"backend": "aten", "cudnn_benchmark": True},), limits=why)
    variants = library_variants_of(found)
    assert variants.notes(METHODS["max"]) == [
        "Inductor has no template for aten.convolution_backward; only cudnn.benchmark was left to try"
    ]
    wide = library_variants_of(replace(found, wide=(MM,), limits=""))
    assert (wide.notes(METHODS["max"]), list(wide.nearest_first(wide.now))) == ([], [MM])
    assert wide.opening_requests(0) == [ListLibraryConfigs(0, wide=True)]


@pytest.mark.parametrize(
    ("dtype", "device", "off"), [("float16", "cuda", 0), ("float16", "cpu", 4), ("float32", "cuda", 0)]
)
def test_libraries_on_a_gpu_may_sum_up_in_16_bits(dtype: str, device: str, off: int) -> None:
    kind = getattr(torch, dtype)
    right = torch.tensor([1.0, -1.0, 2.0, -2.0], dtype=torch.float64)
    error = 8e-3 if dtype == "float16" else 2e-3
    limits = operator_main.Operator({"device_type": device, "launch": {}}).tolerances()
    why = operator_main._compare([(right * (1 + 2.2 * error)).to(kind)], [right], limits)
    assert why == (f"output 0: {off} of 4 elements are other" if off else "")
    assert operator_main._compare([(right * 1.2).to(kind)], [right], limits)

"""What the variants of a graph compute is compared with the original, and leaves no trace in the program."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from inductor_bench.messages.observed import (  # noqa: E402
    INCOMPARABLE,
    CheckedCallable,
    ProgramVariant,
    VariantsRequest,
    VariantSwitch,
)
from inductor_bench.records.optimization import ATTENTION, COMPILE, INDUCTOR, LOADER, MEMORY_FORMAT, OPTIMIZER, TORCH  # noqa: E402
from inductor_bench.worker.capture import pin_comparison  # noqa: E402
from inductor_bench.worker.capture.output_comparison import find_coarsest_eps  # noqa: E402
from inductor_bench.worker.capture.variants import settings as variant_settings  # noqa: E402
from inductor_bench.worker.capture.variants import turns as variant_turns  # noqa: E402
from inductor_bench.worker.capture.variants.checks import check_graph, find_coarse_eps  # noqa: E402
from inductor_bench.worker.capture.variants.process_variants import HeldSettings  # noqa: E402
from inductor_bench.worker.capture.variants.turns import Turns, VariantGraph  # noqa: E402
from inductor_bench.worker.upstream import graph_variants as upstream  # noqa: E402
from inductor_bench.worker.upstream.graph_variants import list_values_within  # noqa: E402

Function = Callable[..., Any]


def turns_of(folder: Path, *switches: VariantSwitch) -> Turns:
    """The turns of one variant."""
    return Turns(VariantsRequest((ProgramVariant("other", switches),), True), folder)


def compare(folder: Path, own: Function, other: Function, *inputs: Any, **facts: Any) -> CheckedCallable:
    """The comparison of two functions that stand for the compiled graph of the original and of a variant."""
    graph = VariantGraph(0, "0/0", own, [own, other], {1: other}, **facts)
    (found,) = check_graph(turns_of(folder), graph, inputs)
    return found


def parameter(*shape: int) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.randn(*shape, generator=torch.Generator().manual_seed(0)))


def test_equal_functions_agree_in_outputs_and_gradients(tmp_path: Path) -> None:
    weight, values = parameter(8, 8), torch.ones(4, 8)
    found = compare(tmp_path, lambda w, v: (v @ w,), lambda w, v: (torch.matmul(v, w),), weight, values, changed=())
    assert (found.reason, found.outputs, found.gradients, found.is_compared) == ("", 1, 1, True)
    assert weight.grad is None and values.grad is None and found.graph == "0/0"


def test_what_the_program_replays_is_compared_kernel_by_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import compile_fx

    monkeypatch.setattr(compile_fx, "cudagraphify", lambda model, **_: lambda inputs: [inputs[0] * 0])
    turns = turns_of(tmp_path)
    turns.replays = upstream.ReplaySwitch()
    replayed = compile_fx.cudagraphify(lambda inputs: [inputs[0] * 2], static_input_idxs=())

    def own(*inputs: Any) -> Any:
        return replayed(list(inputs))

    values = torch.ones(3)
    for other, worst in ((lambda v: (v * 2,), 0.0), (lambda v: (v * 0,), 1.0)):
        graph = VariantGraph(0, "0/0", own, [own, other], {1: other}, uses_cuda_graphs=True)
        (found,) = check_graph(turns, graph, (values,))
        assert found.is_compared and (found.worst > 1) == bool(worst)
    assert own(values)[0].tolist() == [0, 0, 0]


def test_a_wrong_output_a_wrong_gradient_and_a_dropped_one_are_told_apart(tmp_path: Path) -> None:
    weight, bias = parameter(8, 8), parameter(8)

    def own(w: Any, b: Any) -> tuple[Any, ...]:
        return ((w * 2).sum(0) + b,)

    wrong = compare(tmp_path, own, lambda w, b: ((w * 2.1).sum(0) + b,), weight, bias)
    assert wrong.where == "output 0" and wrong.reason.startswith("output 0 differs") and wrong.worst > 1
    gradient = compare(
        tmp_path,
        own,
        lambda w, b: (own(w, b)[0].detach() + 3 * w.sum(0) - 3 * w.detach().sum(0) + b * 0,),
        weight,
        bias,
    )
    assert gradient.where == "gradient of input 1"
    dropped = compare(tmp_path, own, lambda w, b: (own(w, b.detach()),)[0], weight, bias)
    assert dropped.where == "gradient of input 1" and dropped.worst == INCOMPARABLE


def attention(keys: Any, queries: Any, shift: Any, *, apart: bool) -> tuple[Any, ...]:
    """Attention in bfloat16, as within autocast. The shift of the keys changes nothing: its gradient is rounding."""
    keys, queries, shift = (one.bfloat16() for one in (keys, queries, shift))
    scores = queries @ keys.T + (queries @ shift)[:, None] if apart else queries @ (keys + shift).T
    return ((scores.float().softmax(-1).bfloat16() @ keys).float(),)


def test_a_gradient_that_is_nothing_but_rounding_is_no_difference(tmp_path: Path) -> None:
    inputs = [parameter(64, 32), parameter(48, 32), parameter(32)]
    own, other = partial(attention, apart=False), partial(attention, apart=True)
    eps = torch.finfo(torch.bfloat16).eps
    found = compare(tmp_path, own, other, *inputs, coarsest_eps=eps)
    assert found.reason == "" and found.gradients == 3
    assert compare(tmp_path, own, other, *inputs).where == "gradient of input 2", "it moves by more than its type says"

    def doubled(keys: Any, queries: Any, shift: Any) -> tuple[Any, ...]:
        return own(keys, queries.detach() + 2 * (queries - queries.detach()), shift)

    wrong = compare(tmp_path, own, doubled, *inputs, coarsest_eps=eps)
    assert wrong.where == "gradient of input 1" and wrong.worst > 1


def test_rounding_is_known_of_a_program_that_sets_tf32_by_its_newer_name() -> None:
    with FakeTensorMode():
        on_gpu = torch.empty(2, 2, device="cuda")
    matmul, conv = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    former = matmul.fp32_precision, conv.fp32_precision
    try:
        matmul.fp32_precision, conv.fp32_precision = "tf32", "ieee"
        assert pin_comparison._find_coarsest_eps([on_gpu]) == pin_comparison.TF32_EPS
        matmul.fp32_precision = "ieee"
        assert pin_comparison._find_coarsest_eps([on_gpu]) == torch.finfo(torch.float32).eps
    finally:
        matmul.fp32_precision, conv.fp32_precision = former


def test_rounding_is_known_of_a_program_whose_products_are_in_bfloat16_on_a_cpu() -> None:
    products: Any = torch.backends.mkldnn.matmul
    before = products.fp32_precision
    try:
        products.fp32_precision = "bf16"
        assert pin_comparison._find_coarsest_eps([torch.ones(2, 2)]) == torch.finfo(torch.bfloat16).eps
        assert pin_comparison._find_coarsest_eps([torch.ones(2, dtype=torch.int64)]) == 0.0
    finally:
        products.fp32_precision = before
    assert pin_comparison._find_coarsest_eps([torch.ones(2, 2)]) == torch.finfo(torch.float32).eps


@pytest.mark.parametrize(
    ("path", "value", "eps"),
    [
        ("torch.set_float32_matmul_precision", "medium", torch.finfo(torch.bfloat16).eps),
        ("torch.set_float32_matmul_precision", "high", pin_comparison.TF32_EPS),
        ("torch.backends.cuda.matmul.allow_tf32", True, pin_comparison.TF32_EPS),
        ("torch.backends.cudnn.benchmark", True, 0.0),
    ],
)
def test_a_variant_is_known_by_the_type_of_its_products(path: str, value: object, eps: float) -> None:
    settings = variant_settings.VariantSettings(1, "one", changes=[variant_settings.TorchChange(path, value)])
    assert find_coarse_eps(settings) == eps


def test_what_differs_where_the_original_is_compiled_once_more_is_not_compared(tmp_path: Path) -> None:
    inputs = [parameter(64, 32), parameter(48, 32), parameter(32)]
    own, other = partial(attention, apart=False), partial(attention, apart=True)
    request = VariantsRequest((ProgramVariant("placebo", ()), ProgramVariant("other", ())), True)
    graph = VariantGraph(0, "0/0", own, [own, other, other], {1: other, 2: other})
    assert [one.reason for one in check_graph(Turns(request, tmp_path), graph, inputs)] == ["", ""]


def test_autocast_within_a_graph_is_seen() -> None:
    found = []

    def compile_with(module: Any, inputs: Any) -> Any:
        found.append(find_coarsest_eps(list_values_within(module)))
        return module.forward

    linear = torch.nn.Linear(4, 4)

    @torch.compile(backend=compile_with)
    def forward(values: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            made = linear(values)
        return made.float().sum()

    forward(torch.ones(3, 4))
    torch.compile(linear, backend=compile_with)(torch.ones(3, 4))
    assert found == [torch.finfo(torch.bfloat16).eps, torch.finfo(torch.float32).eps]


def test_inputs_that_a_graph_changes_are_compared_and_restored(tmp_path: Path) -> None:
    buffer = torch.zeros(6)[::2]

    def count(by: float) -> Function:
        return lambda one, value: (one.add_(by * value), value * 1)[1:]

    assert compare(tmp_path, count(1), count(1), buffer, torch.ones(3)).reason == ""
    wrong = compare(tmp_path, count(1), count(2), buffer, torch.ones(3))
    assert wrong.where == "input 0 after the call"
    assert buffer.tolist() == [0, 0, 0] and buffer._version == 0


def test_an_input_with_a_history_is_copied_and_its_history_stays(tmp_path: Path) -> None:
    weight = parameter(4)
    hidden = weight * 2
    called: list[str] = []
    hidden.register_hook(lambda gradient: called.append("hook"))
    found = compare(tmp_path, lambda v: (v.mul_(3),), lambda v: (v.mul_(3),), hidden, changed=(0,))
    assert (found.reason, found.gradients, called) == ("", 1, [])
    assert torch.equal(hidden, weight * 2)
    hidden.sum().backward()
    assert weight.grad is not None and called == ["hook"]


def test_random_numbers_are_the_same_in_all_variants_and_in_the_program(tmp_path: Path) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    found = compare(tmp_path, lambda v: (v * torch.rand(3),), lambda v: (torch.rand(3) * v,), torch.ones(3))
    assert found.reason == "" and torch.equal(torch.rand(3), expected)


def test_outputs_that_the_original_does_not_repeat_are_not_compared(tmp_path: Path) -> None:
    counter = iter(range(100))
    found = compare(tmp_path, lambda v: (v * next(counter),), lambda v: (v,), torch.ones(3))
    assert not found.is_compared and "random" in found.reason


def test_a_variant_that_fails_is_given_up_and_the_original_takes_its_place(tmp_path: Path) -> None:
    def fails(value: Any) -> Any:
        raise RuntimeError("no kernel")

    turns = turns_of(tmp_path)
    graph = VariantGraph(0, "0/0", torch.neg, [torch.neg, fails], {1: fails})
    turns._graphs.append(graph)
    (found,) = check_graph(turns, graph, [torch.ones(2)])
    assert not found.is_compared and turns.settings[1].failure == "RuntimeError: no kernel"
    assert graph.callables == [torch.neg, torch.neg] and turns.alive == []


def test_a_variant_without_memory_beside_the_original_is_not_compared_and_stays(tmp_path: Path) -> None:
    def takes_all(value: Any) -> Any:
        raise torch.OutOfMemoryError("all of it")

    turns = turns_of(tmp_path)
    graph = VariantGraph(0, "0/0", torch.neg, [torch.neg, takes_all], {1: takes_all})
    (found,) = check_graph(turns, graph, [torch.ones(2)])
    assert not found.is_compared and "memory" in found.reason and turns.settings[1] in turns.alive


def test_a_graph_with_collectives_or_an_original_that_fails_is_not_compared(tmp_path: Path) -> None:
    found = compare(tmp_path, torch.neg, torch.neg, torch.ones(2), calls_collectives=True)
    assert not found.is_compared and "collectives" in found.reason
    found = compare(tmp_path, lambda: None, torch.neg, torch.ones(2))
    assert not found.is_compared and "failed" in found.reason


def test_settings_change_with_the_turn_and_come_back(tmp_path: Path) -> None:
    before = torch.backends.cudnn.benchmark
    turns = turns_of(
        tmp_path,
        VariantSwitch(TORCH, "torch.backends.cudnn.benchmark", not before),
        VariantSwitch(TORCH, "torch.set_float32_matmul_precision", "high"),
        VariantSwitch(ATTENTION, "backends", "MATH,EFFICIENT_ATTENTION"),
    )
    turns.activate(1)
    assert torch.backends.cudnn.benchmark is not before and torch.get_float32_matmul_precision() == "high"
    assert not torch.backends.cuda.flash_sdp_enabled() and torch.backends.cuda.math_sdp_enabled()
    with turns.in_place_of(0):
        assert torch.backends.cudnn.benchmark is before and torch.backends.cuda.flash_sdp_enabled()
    assert torch.backends.cudnn.benchmark is not before
    turns.activate(0)
    assert torch.backends.cudnn.benchmark is before and torch.get_float32_matmul_precision() == "highest"
    assert torch.backends.cuda.flash_sdp_enabled()


def test_what_the_program_sets_after_its_start_gives_way_to_what_holds(tmp_path: Path) -> None:
    switch = VariantSwitch(TORCH, "torch.backends.cudnn.benchmark", True)
    turns = Turns(VariantsRequest((ProgramVariant("other", (switch,)),), False), tmp_path)
    before = torch.backends.cudnn.benchmark
    try:
        turns.activate_held()
        torch.backends.cudnn.benchmark = False
        turns._prepare()
        assert torch.backends.cudnn.benchmark
    finally:
        torch.backends.cudnn.benchmark = before


def test_what_makes_dynamo_begin_a_frame_again_is_no_failure_of_the_variant_that_holds(tmp_path: Path) -> None:
    turns = Turns(
        VariantsRequest((ProgramVariant("any", (VariantSwitch(COMPILE, "dynamic", True),)),), False), tmp_path
    )
    turns.activate_held()
    raised: list[Exception] = []

    def compile_graph(*arguments: Any, **keywords: Any) -> Any:
        if raised:
            raise raised.pop()
        return "made"

    graph = torch.fx.symbolic_trace(torch.nn.Identity())
    backend = torch._TorchCompileInductorWrapper("default", None, None)
    raised.append(torch._dynamo.exc.TensorifyScalarRestartAnalysis())
    with pytest.raises(torch._dynamo.exc.TensorifyScalarRestartAnalysis):
        turns._compile_held(compile_graph, backend, graph, [])
    assert turns.settings[1].failure == ""
    raised.append(RuntimeError())
    assert turns._compile_held(compile_graph, backend, graph, []) == "made"
    assert turns.settings[1].failure == "RuntimeError", "an error without a message has no colon"


def test_what_this_torch_lacks_or_what_cannot_alternate_is_refused(tmp_path: Path) -> None:
    switches = (
        VariantSwitch(TORCH, "torch.backends.nothing.benchmark", True),
        VariantSwitch(INDUCTOR, "no_option", 1),
        VariantSwitch(LOADER, "num_workers", 2),
    )
    for switch in switches:
        (settings,) = turns_of(tmp_path, switch).settings[1:]
        variant_settings.try_changes(settings)
        assert settings.failure.startswith(switch.setting) and settings.failure == settings.refused[0]


def optimizer_of(kind: Any = torch.optim.AdamW, **options: Any) -> Any:
    weight = parameter(3)
    optimizer = kind([weight], lr=0.1, **options)
    weight.grad = torch.ones(3)
    return optimizer


def test_the_flags_of_an_optimizer_change_and_come_back(tmp_path: Path) -> None:
    turns = turns_of(tmp_path, VariantSwitch(OPTIMIZER, "fused", True))
    optimizer = optimizer_of(foreach=True)
    reference = optimizer_of(foreach=True)
    turns.optimizers._known.add(optimizer)
    for number in (0, 1, 0, 1):
        turns.activate(number)
        (group,) = optimizer.param_groups
        assert (group["fused"], group["foreach"]) == ((True, False) if number else (None, True))
        optimizer.step()
        reference.step()
    turns.activate(0)
    one, other = (each.param_groups[0]["params"][0] for each in (optimizer, reference))
    assert torch.allclose(one, other) and optimizer.state[one]["step"] == 4
    assert "_step_supports_amp_scaling" not in vars(optimizer)


def test_counts_of_steps_are_the_same_tensors_each_time_that_they_move() -> None:
    """What is compiled has guards on them. Nothing can be copied from the device ``meta``."""
    weight = torch.nn.Parameter(torch.zeros(2, device="meta"))
    optimizer = torch.optim.AdamW([weight], capturable=True)
    state = optimizer.state[weight]
    on_host, beside = torch.zeros(()), []
    for _ in range(2):
        state["step"] = on_host
        variant_settings._place_step_counts(optimizer)
        beside.append(state["step"])
    assert beside[0] is beside[1] and beside[0].device.type == "meta"
    kept = vars(optimizer)[variant_settings.COUNTS]
    assert kept[id(state), torch.device("cpu")] is on_host


def test_an_optimizers_step_is_compiled_without_cuda_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def compiled(module: Any, inputs: Any, options: dict[str, Any], surround: Any) -> Any:
        asked.append(options)
        return module.forward

    monkeypatch.setattr(variant_turns.upstream, "compile_own_graph", compiled)
    turns = turns_of(tmp_path, VariantSwitch(INDUCTOR, "triton.cudagraphs", True))
    module = torch.fx.symbolic_trace(lambda values: values + 1)
    turns.compile_own(1, "the step of AdamW", module, [torch.ones(2)], with_graphs=False)
    turns.compile_own(1, "loss", module, [torch.ones(2)])
    assert [one["triton.cudagraphs"] for one in asked] == [False, True]


def test_a_flag_that_no_optimizer_has_is_refused(tmp_path: Path) -> None:
    flags = {"fused": True}
    assert variant_settings.why_not(optimizer_of(torch.optim.RMSprop), flags) == "RMSprop has no fused"
    assert "differentiable" in variant_settings.why_not(optimizer_of(differentiable=True), flags)

    class Own(torch.optim.AdamW):
        pass

    assert variant_settings.why_not(optimizer_of(Own), flags) == "Own is no class of torch.optim"
    turns = turns_of(tmp_path, VariantSwitch(OPTIMIZER, "fused", True))
    turns.refuse_optimizers()
    assert turns.settings[1].failure == "fused: the program has no optimizer"


def test_launches_cost_the_same_at_each_depth_of_the_programs_calls(tmp_path: Path) -> None:
    def launch() -> None:
        pass

    def own() -> None:
        for _ in range(400):
            launch()

    turns = turns_of(tmp_path)
    call = turns._dispatcher(VariantGraph(0, "0/0", own, [own, own], {1: own}))

    def page_faults(depth: int) -> int:
        """Page faults of the graph's call at a depth: each piece of Python's stack from the system costs one."""
        if depth:
            return page_faults(depth - 1)
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        call()
        return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before

    assert max(map(page_faults, range(300))) < 400


def test_the_journal_names_the_variant_that_runs(tmp_path: Path) -> None:
    turns = turns_of(tmp_path)
    turns.activate(1)
    (journal,) = tmp_path.glob("*.journal")
    assert journal.read_text().split() == ["other", "runs"]
    turns.activate(0)
    assert journal.read_text().split() == ["-"]


@pytest.mark.parametrize("from_cpp", [False, True])
def test_launches_from_cpp_have_their_options_in_backward_graphs_too(
    from_cpp: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch 2.11 enters them around the backward graph only if the option is a global one."""
    import torch._inductor.compile_fx as compile_fx
    import torch._inductor.config as config

    monkeypatch.setattr(compile_fx, "compile_fx_inner", lambda: config.triton.store_cubin)
    around = contextlib.nullcontext
    with config.patch(cpp_wrapper=from_cpp):
        assert upstream._inner_compile(around)() is from_cpp
    assert not config.triton.store_cubin


def test_a_layout_holds_if_the_arguments_of_compile_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = variant_settings.VariantSettings(1, "layout")
    monkeypatch.setattr(torch, "compile", lambda model, **keywords: (model, keywords))
    HeldSettings(settings, (VariantSwitch(MEMORY_FORMAT, "channels_last", True),)).change_torch(torch)
    net = torch.nn.Conv2d(4, 4, 3)
    assert torch.compile(net, dynamic=False) == (net, {"dynamic": False})
    assert net.weight.is_contiguous(memory_format=torch.channels_last) and settings.applied == ["channels_last=True"]

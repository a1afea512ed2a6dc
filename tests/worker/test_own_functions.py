"""Functions and optimizers' steps that one variant compiles: found in memory, called in its turn, and compared."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from inductor_bench.messages.observed import ProgramVariant, VariantsRequest, VariantSwitch  # noqa: E402
from inductor_bench.records.optimization import FUNCTION, OPTIMIZER  # noqa: E402
from inductor_bench.worker.capture.variants import settings as variant_settings  # noqa: E402
from inductor_bench.worker.capture.variants.checks import check_graph  # noqa: E402
from inductor_bench.worker.capture.variants.own_functions import find_functions  # noqa: E402
from inductor_bench.worker.capture.variants.turns import Turns  # noqa: E402
from inductor_bench.worker.upstream import graph_variants as upstream  # noqa: E402

Compile = Callable[..., Any]


def penalty(values: Any, wanted: Any, *, scale: float = 2.0) -> Any:
    return scale * (values - wanted).square().mean()


class Scale:
    def __init__(self, by: float) -> None:
        self.by = by

    def apply(self, values: Any) -> Any:
        return values * self.by


def place_of(function: Any) -> str:
    lines, first = inspect.getsourcelines(function)
    return f"{__file__}:{first + len(lines) - 1}:{function.__name__}"


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The graphs that stand for those of Inductor, by the targets of their nodes; they run eagerly."""
    found: list[str] = []

    def compile_own_graph(module: Any, inputs: Any, options: Any, surround: Any) -> Any:
        found.append(" ".join(str(node.target) for node in module.graph.nodes))
        return module.forward

    monkeypatch.setattr(upstream, "compile_own_graph", compile_own_graph)
    torch._dynamo.reset()
    yield found
    torch._dynamo.reset()


def turns_of(folder: Path, *switches: VariantSwitch, alternates: bool = True) -> Turns:
    made = Turns(VariantsRequest((ProgramVariant("other", switches),), alternates), folder)
    made.check = check_graph
    return made


def test_a_function_is_compiled_in_its_turn_and_has_its_code_again_afterwards(
    tmp_path: Path, compiled: list[str]
) -> None:
    own, other = penalty.__code__, penalty
    turns = turns_of(tmp_path, VariantSwitch(FUNCTION, place_of(penalty), True))
    one, two = torch.ones(3, requires_grad=True), torch.zeros(3)
    for number in (0, 1, 0, 1):
        turns.activate(number)
        assert other(one, two, scale=3.0).item() == 3.0 and other(one, wanted=two).requires_grad
        assert (penalty.__code__ is own) is (number == 0)
    turns.activate(0)
    assert penalty.__code__ is own and not any("__inductor_bench_call" in name for name in globals())
    assert len(compiled) == 2 and not turns.settings[1].failure and turns.settings[1].graphs == 2
    assert {(one.reason, one.gradients, one.is_compared) for one in turns.checks} == {("", 1, True)}


def test_a_local_function_with_free_variables_and_a_method_are_found(tmp_path: Path, compiled: list[str]) -> None:
    by = 3.0

    def local(values: Any, *more: Any) -> Any:
        return values * by + sum(more)

    switches = [VariantSwitch(FUNCTION, place_of(one), True) for one in (local, Scale.apply)]
    turns = turns_of(tmp_path, *switches)
    turns.activate(1)
    assert local(torch.ones(2), 1, 2).tolist() == [6, 6] and Scale(4.0).apply(torch.ones(1)).tolist() == [4]
    turns.activate(0)
    assert len(compiled) == 2 and not turns.settings[1].failure


def test_a_function_of_torch_is_found_by_its_path(tmp_path: Path, compiled: list[str]) -> None:
    turns = turns_of(tmp_path, VariantSwitch(FUNCTION, "torch.nn.functional.cross_entropy", True))
    values, classes = torch.randn(4, 3, requires_grad=True), torch.tensor([0, 1, 2, 0])
    expected = torch.nn.CrossEntropyLoss()(values, classes)
    turns.activate(1)
    assert torch.allclose(torch.nn.CrossEntropyLoss()(values, classes), expected)
    turns.activate(0)
    assert len(compiled) == 1 and [check.gradients for check in turns.checks] == [1]


def test_a_dropped_gradient_and_a_wrong_output_of_a_function_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = VariantSwitch(FUNCTION, place_of(penalty), True)
    for wrong, said in (
        (lambda forward: lambda *values: forward(*(one.detach() for one in values)), "outputs and gradients instead"),
        (lambda forward: lambda *values: forward(values[0].detach() + 0 * values[0], values[1]), "gradient of input 0"),
        (lambda forward: lambda *values: [1.01 * one for one in forward(*values)], "output 0 differs"),
    ):
        torch._dynamo.reset()
        monkeypatch.setattr(
            upstream, "compile_own_graph", lambda module, *_, wrong=wrong: wrong(upstream.copy_graph(module).forward)
        )
        turns = turns_of(tmp_path, place)
        turns.activate(1)
        penalty(torch.ones(3, requires_grad=True), torch.zeros(3))
        turns.activate(0)
        (check,) = turns.checks
        assert said in check.reason and check.is_compared and turns.alive == []


def test_random_numbers_of_a_function_are_not_compared(tmp_path: Path) -> None:
    def drop(values: Any) -> Any:
        return torch.nn.functional.dropout(values, 0.5)

    turns = turns_of(tmp_path, VariantSwitch(FUNCTION, place_of(drop), True))
    turns.activate(1)
    drop(torch.ones(100))
    turns.activate(0)
    (check,) = turns.checks
    assert not check.is_compared and "random" in check.reason


def test_a_function_that_is_not_there_or_not_called_gives_the_variant_up(tmp_path: Path) -> None:
    turns = turns_of(tmp_path, VariantSwitch(FUNCTION, f"{__file__}:1:missing", True))
    turns.activate(1)
    assert turns.settings[1].failure == "the program has no function missing that can be compiled"
    turns = turns_of(tmp_path, VariantSwitch(FUNCTION, place_of(penalty), True))
    turns.activate(1)
    turns.activate(0)
    assert turns.settings[1].failure == "no step calls penalty outside of compiled graphs"


def test_a_function_that_is_compiled_again_gives_the_variant_up_and_goes_on(tmp_path: Path) -> None:
    turns = turns_of(tmp_path, VariantSwitch(FUNCTION, place_of(penalty), True))
    for turn in range(3):
        turns.activate(1)
        assert float(penalty(torch.ones(3), torch.zeros(3), scale=float(turn + 2))) == turn + 2
        turns.activate(0)
    assert "penalty is compiled again in its call" in turns.settings[1].failure


def test_a_generator_is_no_function_to_be_compiled(tmp_path: Path) -> None:
    def counting(values: Any) -> Any:
        yield values

    (found,) = find_functions(place_of(counting))
    assert isinstance(found, types.FunctionType)
    turns = turns_of(tmp_path, VariantSwitch(FUNCTION, place_of(counting), True))
    turns.activate(1)
    assert "that can be compiled" in turns.settings[1].failure


def trained(kind: Any = torch.optim.AdamW, **options: Any) -> tuple[Any, Any, Any]:
    """A parameter, its optimizer, and a scheduler of its learning rate."""
    weight = torch.nn.Parameter(torch.linspace(-1, 1, 5))
    optimizer = kind([weight], lr=0.1, **options)
    return weight, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_an_optimizer_compiles_its_step_in_turn_on_the_same_state(
    kind: Any, tmp_path: Path, compiled: list[str]
) -> None:
    turns = turns_of(tmp_path, VariantSwitch(OPTIMIZER, "compiled", True))
    pairs = [trained(kind), trained(kind)]
    turns.optimizers._known.add(pairs[0][1])
    for number in (0, 0, 1, 1, 0, 1, 1, 0):
        turns.activate(number)
        for weight, optimizer, scheduler in pairs:
            weight.square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
    turns.activate(0)
    (one, ours, _), (two, theirs, _) = pairs
    assert torch.allclose(one, two, atol=1e-5) and compiled
    assert not turns.settings[1].failure and all(not check.reason for check in turns.checks)
    rates = [each.param_groups[0]["lr"] for each in (ours, theirs)]
    assert isinstance(rates[0], float) and rates[0] == pytest.approx(rates[1])
    assert vars(ours)["step"]._wrapped_by_lr_sched and set(ours.param_groups[0]) == set(theirs.param_groups[0])


def test_a_step_of_an_optimizer_with_wrong_numbers_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "compile_own_graph", lambda module, *_: lambda *values: ())  # it changes nothing
    turns = turns_of(tmp_path, VariantSwitch(OPTIMIZER, "compiled", True))
    weight, optimizer, _ = trained()
    turns.optimizers._known.add(optimizer)
    turns.activate(1)
    weight.square().sum().backward()
    optimizer.step()
    turns.activate(0)
    assert any("after the call differs" in check.reason for check in turns.checks) and turns.alive == []


def test_a_learning_rate_that_the_program_sets_stays(tmp_path: Path) -> None:
    weight, optimizer, _ = trained()
    undo = variant_settings._change_optimizer(optimizer, {"compiled": True})
    (group,) = optimizer.param_groups
    assert isinstance(group["lr"], torch.Tensor)
    undo()
    assert group["lr"] == 0.1
    undo = variant_settings._change_optimizer(optimizer, {"compiled": True})
    group["lr"] = 0.05
    undo()
    assert group["lr"] == 0.05
    assert "SparseAdam" in variant_settings.why_not(torch.optim.SparseAdam([weight]), {"compiled": True})


def test_what_should_hold_from_the_start_and_is_not_there_is_refused(tmp_path: Path) -> None:
    turns = turns_of(tmp_path, VariantSwitch(FUNCTION, f"{__file__}:1:missing", True), alternates=False)
    turns.activate_held()
    turns.end()
    assert turns.settings[1].refused == ["the program has no function of this name that can be compiled"]


def test_what_holds_from_the_start_is_compiled_once_it_is_there(tmp_path: Path, compiled: list[str]) -> None:
    switches = VariantSwitch(FUNCTION, place_of(penalty), True), VariantSwitch(OPTIMIZER, "compiled", True)
    turns = turns_of(tmp_path, *switches, alternates=False)
    own = penalty.__code__
    turns.activate_held()
    weight, optimizer, _ = trained()
    try:
        weight.grad = torch.ones(5)
        turns.optimizers._note(optimizer)  # as its first step does
        penalty(torch.ones(3), torch.zeros(3))
        optimizer.step()
        assert len(compiled) >= 2 and penalty.__code__ is not own and not turns.settings[1].failure
    finally:
        penalty.__code__ = own
        for name in [name for name in globals() if "__inductor_bench_call" in name]:
            del globals()[name]  # what holds from the start is never undone


def test_keys_of_torchs_caches_hold_the_backends_of_attention_unless_they_are_torchs_default() -> None:
    """pytorch #185449: torch's own keys lack them."""
    details = type("Details", (), {"__init__": lambda self: None})
    upstream.key_by_attention(types.SimpleNamespace(FxGraphHashDetails=details))
    assert vars(details()) == {}
    from torch.nn.attention import SDPBackend, sdpa_kernel

    usual = upstream.read_attention()
    with sdpa_kernel([SDPBackend.MATH]):
        only_math = vars(details())
    assert only_math == {"inductor_bench_attention": ((False, False, True, False), usual[1])}
    by_cudnn = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    with sdpa_kernel(by_cudnn, set_priority=True):
        assert vars(details()) == {}, "torch sets this order itself on an H100"
    with sdpa_kernel(by_cudnn[::-1], set_priority=True):
        assert vars(details())["inductor_bench_attention"][1][:4] == (0, 2, 1, 3)

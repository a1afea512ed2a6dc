"""Findings about compilation: recompilations and their limit, guards in words, and refused CUDA graphs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import step_runs
from quiet_runs import quiet, run_of

from inductor_bench.analysis.findings.compile_findings import GUARDS_SHARE, describe_refusal, read_guard
from inductor_bench.analysis.findings.finding import ADVICE, CAUTION, NOTE, Finding
from inductor_bench.analysis.findings.rule_table import list_findings
from inductor_bench.records.code import CompiledFunction
from inductor_bench.records.run import GRAPH, GUARDS, IDLE, Capture, Part, Run

GNN = "/home/user/project/gnn.py:12 forward"
SIZES = tuple(f"{GNN}: 0/{n}: tensor 'x' size mismatch at index 0. expected {n + 7}, actual {n + 8}" for n in range(8))


def of(run: Run, kind: str) -> list[Finding]:
    return [finding for finding in list_findings(run) if finding.kind == kind]


def captured(*recompiles: str, functions: tuple[CompiledFunction, ...] = ()) -> Run:
    return run_of(quiet(), capture=Capture(1, 1, recompiles=recompiles, functions=functions))


@pytest.mark.parametrize(
    ("said", "words", "kind"),
    [
        (
            "0/0: tensor 'x' size mismatch at index 0. expected 8, actual 7",
            "x has 7 rows instead of the compiled 8",
            "size",
        ),
        ("tensor 'x' size mismatch at index 0. expected 8, actual 1", "x has 1 row instead of the compiled 8", "size"),
        (
            "tensor 'x' size mismatch at index 1. expected 8, actual 7",
            "x.size(1) is 7 instead of the compiled 8",
            "size",
        ),
        (
            "tensor 'L['x']' dtype mismatch. expected Float, actual BFloat16",
            "x is BFloat16 instead of the compiled Float",
            "",
        ),
        ("tensor 'x' rank mismatch. expected 2, actual 3", "x has 3 dimensions instead of the compiled 2", ""),
        (
            "tensor 'x' requires_grad mismatch. expected requires_grad=1",
            "x has requires_grad=False, but was compiled with requires_grad=True",
            "",
        ),
        ("tensor 'x' stride mismatch at index 0. expected 8, actual 1", "the strides of x differ", ""),
        (
            "2 <= x.size()[0] <= 4096  # return F.linear(input)  # nn/modules/linear.py:134 in forward (user)",
            "x.size(0) was compiled for 2 to 4096, and is another number",
            "size",
        ),
        ("L['x'].size()[0] == 8  # y = x[:8]", "x.size(0) was compiled as 8, and is another number", "size"),
        ("k == 'aaaa'     # def f(x, k): return x  # e.py:27 in f", "k is no longer 'aaaa'", ""),
        ("L['self'].training == True  # if self.training", "self.training is no longer True", ""),
        ("GLOBAL_STATE changed: autocast_state", "autocast differs", ""),
        ("len(L['blocks']) == 3  # for block in blocks", "blocks has another length than 3", ""),
        ("___check_obj_id(L['f'], 1402)  # f(x)", "f is another object", ""),
        (
            "tensor 'self._modules['a']._parameters['w']' size mismatch at index 0. expected 8, actual 16",
            "self.a.w has",
            "",
        ),
        ("something nobody knows", "something nobody knows", "other"),
    ],
)
def test_a_guard_is_said_in_words_without_torchs_comment(said: str, words: str, kind: str) -> None:
    guard = read_guard(f"{GNN}: {said}")
    assert guard.place == "project/gnn.py:12 forward"
    assert guard.words.startswith(words) and "#" not in guard.words
    assert not kind or guard.kind == kind
    assert guard.kind != "size" or kind == "size"


def test_dynamic_shapes_are_advised_for_sizes() -> None:
    for functions in ((), (CompiledFunction(GNN, 8),)):
        (found,) = of(captured(*SIZES, functions=functions), "recompiles")
        assert found.level == CAUTION and "x has 8 rows instead of the compiled 7" in found.text
        assert found.text.endswith("dynamic=True or torch._dynamo.mark_dynamic compiles once for all sizes")


@pytest.mark.parametrize(
    "function",
    [
        CompiledFunction(GNN, 8, dynamic=True),
        CompiledFunction(GNN, 8, dynamic=False),
        CompiledFunction(GNN, 8, wrapped=2),
    ],
    ids=["it is set", "the program says otherwise", "compiled apart on purpose"],
)
def test_dynamic_shapes_are_not_advised(function: CompiledFunction) -> None:
    (found,) = of(captured(*SIZES, functions=(function,)), "recompiles")
    assert "dynamic=True" not in found.text and "rows" in found.text


def test_dynamic_shapes_are_not_advised_to_a_request_that_has_them() -> None:
    run = captured(*SIZES)
    for dynamic in (True, False):
        (found,) = of(replace(run, request=replace(run.request, dynamic=dynamic)), "recompiles")
        assert "dynamic=True" not in found.text


def test_dynamic_shapes_are_not_advised_if_a_graph_for_any_size_serves_the_calls() -> None:
    """Called with sizes 16, 64, 64, 256 torch compiles a second graph, and it takes 256 rows as well."""
    function = CompiledFunction(GNN, 1, wrapped=1)
    run = captured(SIZES[0], functions=(function,))
    served = replace(run, modules=(*run.modules, replace(run.modules[0], slug="any", label="any", dynamic=True)))
    (found,) = of(served, "recompiles")
    assert found.text.endswith("instead of the compiled 7; since then any takes other sizes, too") and not found.changes
    again = replace(served, capture=replace(served.capture, recompiles=SIZES))
    (found,) = of(again, "recompiles")
    assert found.changes, "seven sizes of the same dimension were compiled, and one graph for any size"


def test_another_object_is_no_recompilation() -> None:
    wrapper = "/opt/lib/python3.12/site-packages/torch/_dynamo/external_utils.py:67 inner"
    other = f"{wrapper}: D is another object than G, and has its own graph"
    (found,) = of(captured(other), "recompiles")
    assert found.level == NOTE and found.text == (
        "the same code was compiled for 1 more object: D is another object than G, and has its own graph. These do not "
        "count as recompilations"
    )
    (both,) = of(captured(other, *SIZES), "recompiles")
    assert both.level == CAUTION and both.text.startswith("8 recompilations: ")
    assert "besides 1 first compilation of other objects" in both.text


def test_the_limit_of_recompilations_is_advice_with_the_last_reason() -> None:
    limited = CompiledFunction(GNN, 8, reached_limit=True)
    (found,) = of(captured(*SIZES, functions=(limited,)), "recompile-limit")
    assert found.level == ADVICE and found.text == (
        "Dynamo no longer compiles project/gnn.py:12 forward (recompiled 8 times): it runs uncompiled in each call "
        "that fits none of its graphs; the last reason: x has 15 rows instead of the compiled 14. "
        "torch._dynamo.mark_dynamic(tensor, dimension) makes one graph for all sizes"
    )
    (fixed,) = of(captured(*SIZES, functions=(replace(limited, dynamic=False),)), "recompile-limit")
    assert fixed.text.endswith("The program compiles with dynamic=False: without it, one graph takes all sizes")
    (value,) = of(captured(f"{GNN}: 0/7: k == 3", functions=(limited,)), "recompile-limit")
    assert value.text.endswith("torch._dynamo.config.recompile_limit raises the limit")
    assert not of(captured(*SIZES, functions=(replace(limited, reached_limit=False),)), "recompile-limit")
    assert not of(captured(*SIZES), "recompile-limit"), "an older record"


def guarded(share: float, device: str = "cuda") -> Run:
    parts = [Part(GRAPH, "forward", 1, 5e-3, 0, 5e-3, 0, 9, "forward"), Part(IDLE, GUARDS, 1, share * 10e-3, 0)]
    run = step_runs.host_paced()
    program = step_runs.program(parts, step_s=10e-3, device=device)
    return replace(run, program=program, capture=Capture(functions=(CompiledFunction(GNN, 0, 4321),)), modules=())


def test_slow_guards_have_their_number() -> None:
    (found,) = of(guarded(GUARDS_SHARE * 2), "slow-guards")
    assert found.gain_s == pytest.approx(GUARDS_SHARE * 2 * 10e-3)
    assert "checks the guards of 1 call of forward; project/gnn.py:12 forward has 4,321" in found.text
    assert not of(guarded(GUARDS_SHARE / 2), "slow-guards")
    assert not of(guarded(GUARDS_SHARE * 2, "cpu"), "slow-guards")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (
            'skipping cudagraphs due to cpu device (arg3_1). Found from : \n   File "/home/user/app/unet.py", line 12, '
            "in forward\n    t = self.embed(timestep)\n",
            "an input or a constant lies on the CPU (app/unet.py:12: t = self.embed(timestep)); move it to the device",
        ),
        ("cpu device (timestep)", "timestep lies on the CPU; move it to the device"),
        (
            "skipping cudagraphs due to mutated inputs (2 instances)",
            "the graph writes into its inputs; return new values",
        ),
        (
            "skipping cudagraphs due to multiple devices: cpu, cuda:0",
            "the graph has tensors on several devices (cpu, cuda:0)",
        ),
        ("skipping cudagraphs due to incompatible op aten.foo", "CUDA graphs cannot hold aten.foo"),
        ("skipping cudagraphs due to something new", "something new"),
    ],
)
def test_a_refusal_is_said_with_what_to_change(reason: str, words: str) -> None:
    assert describe_refusal(reason).startswith(words)

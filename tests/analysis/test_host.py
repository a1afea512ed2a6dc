"""What samples of the host's thread say: kinds, functions and lines, and the idle time that they divide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from inductor_bench.analysis.host_time import (
    HostShares,
    LineKinds,
    compute_sampling_cost,
    find_kinds_of_lines,
    list_host_stretches,
    list_sampled_waits,
)
from inductor_bench.errors import InductorBenchError
from inductor_bench.records.code import SourceLine
from inductor_bench.records.evidence import (
    GENERATED,
    LIBRARY,
    OWN,
    PYTHON_LIBRARY,
    TORCH,
    CallPlace,
    HostSamples,
    SampledFrame,
    SampledStack,
)
from inductor_bench.records.run import (
    BACKWARD,
    COLLECTING,
    CPU_OPERATORS,
    DATA_LOADING,
    DISPATCHING,
    FOR_FILE,
    FOR_LOCK,
    FOR_RANKS,
    FOR_SOCKET,
    GUARDS,
    LAUNCHING,
    OPTIMIZING,
    PYTHON,
    SLEEPING,
    SYNCHRONISING,
    HostStretch,
)
from inductor_bench.records.traced import HostActivity
from inductor_bench.store import codec

SITE = "/venv/lib/python3.12/site-packages"
STDLIB = "/usr/lib/python3.12"
NO_LINES = LineKinds({})


def own(function: str, line: int, called: str = "", file: str = "/app/train.py") -> SampledFrame:
    return SampledFrame(file, function, line, OWN, bool(called), (line, line, 0, 9), f"code of line {line}", called)


def torch(file: str, function: str) -> SampledFrame:
    return SampledFrame(f"{SITE}/torch/{file}", function, 7, TORCH, is_call=True)


def library(file: str, function: str) -> SampledFrame:
    return SampledFrame(f"{SITE}/{file}", function, 7, LIBRARY)


def python(file: str, function: str) -> SampledFrame:
    return SampledFrame(f"{STDLIB}/{file}", function, 7, PYTHON_LIBRARY, is_call=True)


MAIN = own("main", 10, "step")
MODULE = torch("nn/modules/module.py", "Module._call_impl")
GRAPH = SampledFrame("forward", "Runner.call", 95, GENERATED, is_call=True)
Stack = tuple[Sequence[SampledFrame], float, float]


def sampled(*stacks: Stack, sees_device: bool = True, collected: float = 0.0) -> HostSamples:
    """Samples of stacks (the outermost frame first) with seconds of waiting and of work; a sample is 5 ms."""
    frames: dict[SampledFrame, int] = {}
    nodes: dict[tuple[int, int], int] = {}
    found = []
    for stack, waiting_s, working_s in stacks:
        node = -1
        for frame in stack:
            key = node, frames.setdefault(frame, len(frames))
            node = nodes.setdefault(key, len(nodes))
        counts = round(waiting_s / 5e-3), round(working_s / 5e-3)
        found.append(SampledStack(node, waiting_s, working_s, *counts))
    if collected:
        found.append(SampledStack(0, collected, 0.0, 6, 0, is_collection=True))
    whole_s = math.fsum(waiting + working for _, waiting, working in stacks) + collected
    return HostSamples(
        frames=tuple(frames),
        parents=tuple(parent for parent, _ in nodes),
        frame_of=tuple(frame for _, frame in nodes),
        stacks=tuple(found),
        steps=100,
        steps_s=whole_s,
        blocks=((0.01,), (0.0101,), (0.01,)),
        sees_device=sees_device,
    )


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("parents", (-1,), "1 parents of 2 nodes"),
        ("parents", (-1, 1), "does not follow its parent"),
        ("frame_of", (0, 2), "has no frame"),
        ("stacks", (SampledStack(2),), "has no node"),
    ],
)
def test_a_tree_of_stacks_that_does_not_fit_together_is_refused(field: str, value: object, words: str) -> None:
    samples = sampled(((MAIN, own("busy", 20)), 1.0, 0.0))
    with pytest.raises(ValueError, match=words):
        replace(samples, **{field: value})
    data = {**codec.encode(samples), field: codec.encode(value)}
    with pytest.raises(InductorBenchError, match=words):
        codec.decode(HostSamples, data)


def only(*stack: SampledFrame, lines: LineKinds = NO_LINES) -> HostStretch:
    """What a single stack says."""
    (stretch,) = list_host_stretches(sampled((stack, 1.0, 0.0)), lines, {"forward": "Net.forward"}, 0.01).stretches
    return stretch


@pytest.mark.parametrize(
    ("stack", "label", "function"),
    [
        ([MAIN, own("busy", 20)], PYTHON, "busy"),
        ([MAIN, torch("nn/modules/module.py", "Module.named_modules")], PYTHON, "Module.named_modules"),
        (
            [MAIN, replace(torch("nn/modules/module.py", "Module.zero_grad"), called="p.grad.zero_")],
            DISPATCHING,
            "p.grad.zero_",
        ),
        ([MAIN, own("busy", 20, "json.loads")], PYTHON, "json.loads"),
        ([MAIN, own("pause", 21, "time.sleep")], SLEEPING, "time.sleep"),
        ([MAIN, own("pause", 22, "lock.acquire")], FOR_LOCK, "lock.acquire"),
        ([MAIN, own("write", 22, "self.lock.__enter__")], FOR_LOCK, "self.lock.__enter__"),
        ([MAIN, own("read", 23, "file.read")], FOR_FILE, "file.read"),
        ([MAIN, own("join", 24, ".join")], PYTHON, ".join"),
        ([MAIN, python("threading.py", "Condition.wait")], FOR_LOCK, "Condition.wait"),
        ([MAIN, library("requests/api.py", "get"), python("ssl.py", "SSLSocket.read")], FOR_SOCKET, "SSLSocket.read"),
        ([MAIN, torch("distributed/distributed_c10d.py", "barrier")], FOR_RANKS, "barrier"),
        ([MAIN, torch("distributed/distributed_c10d.py", "all_reduce")], DISPATCHING, "all_reduce"),
        ([MAIN, torch("cuda/__init__.py", "synchronize")], SYNCHRONISING, "synchronize"),
        ([MAIN, torch("optim/adamw.py", "AdamW.step"), torch("optim/adam.py", "_fused")], OPTIMIZING, "AdamW.step"),
        ([MAIN, torch("optim/sgd.py", "step"), torch("_ops.py", "__call__")], OPTIMIZING, "step"),  # before Python 3.11
        ([MAIN, torch("optim/lr_scheduler.py", "LRScheduler.step")], DISPATCHING, "LRScheduler.step"),
        ([MAIN, torch("_dynamo/eval_frame.py", "compile_wrapper")], GUARDS, "guards"),
        ([MAIN, torch("_dynamo/eval_frame.py", "compile_wrapper"), own("net", 30)], PYTHON, "net"),
        ([MAIN, torch("_functorch/_aot_autograd/runtime_wrappers.py", "wrap")], LAUNCHING, "entering a graph"),
        ([MAIN, torch("_inductor/output_code.py", "CompiledFxGraph.__call__"), GRAPH], LAUNCHING, "Net.forward"),
        ([MAIN, GRAPH, torch("_inductor/runtime/triton_heuristics.py", "run")], LAUNCHING, "Net.forward"),
        ([MAIN, torch("autograd/graph.py", "_engine_run_backward")], BACKWARD, "backward"),
        ([MAIN, torch("autograd/graph.py", "_engine_run_backward"), GRAPH], LAUNCHING, "Net.forward"),
        ([MAIN, MODULE], DISPATCHING, "Module._call_impl"),
        ([MAIN, torch("utils/data/dataloader.py", "_next_data"), own("decode", 40)], DATA_LOADING, "decode"),
        ([MAIN, library("tokenizers/__init__.py", "encode")], DATA_LOADING, "encode"),
    ],
)
def test_the_innermost_frame_that_says_something_names_the_kind(
    stack: list[SampledFrame], label: str, function: str
) -> None:
    found = only(*stack)
    assert (found.label, found.function) == (label, function)
    users = next(frame for frame in reversed(stack) if frame.owner == OWN)
    assert found.source == SourceLine(users.file, users.line, users.function, users.code)


def test_waiting_for_workers_is_told_from_loading_in_the_step() -> None:
    loader = [torch("utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._try_get_data")]
    found = only(MAIN, *loader, python("multiprocessing/queues.py", "Queue.get"))
    assert (found.label, found.function) == (DATA_LOADING, "DataLoader workers")
    assert found.source is not None and found.source.line == MAIN.line


def test_a_line_is_what_the_profile_says_of_its_operators() -> None:
    place = CallPlace("Net", SourceLine("/app/train.py", 10, "main", ""))
    activities = [
        HostActivity(0.0, 3.0, CPU_OPERATORS, 4),
        HostActivity(3.0, 4.0, DISPATCHING, 5),
        HostActivity(4.0, 9.0, PYTHON),
        HostActivity(9.0, 20.0, DISPATCHING, 6),  # on a line that is unknown
    ]
    lines = find_kinds_of_lines(activities, {4: place, 5: place})
    assert only(MAIN, lines=lines).label == CPU_OPERATORS
    assert only(own("main", 11, "step"), lines=lines).label == PYTHON
    assert only(own("main", 10, "time.sleep"), lines=lines).label == SLEEPING
    long = replace(MAIN, line=9, span=(9, 12, 0, 4))
    assert only(long, lines=lines).label == CPU_OPERATORS, "a call over several lines"


def test_the_rest_of_a_function_after_a_graph_break_has_its_name() -> None:
    found = only(MAIN, own("torch_dynamo_resume_in_forward_at_31", 33))
    assert found.source is not None and (found.function, found.source.function) == ("forward", "forward")
    assert only(MAIN, own("main.<locals>.tokenize", 5)).function == "tokenize"


def test_a_program_without_code_of_its_own_has_the_line_of_a_library() -> None:
    found = only(library("transformers/trainer.py", "Trainer.train"), torch("_ops.py", "__call__"))
    assert found.source is not None and found.source.file.endswith("transformers/trainer.py")
    assert only(torch("_ops.py", "__call__")).source is None
    generated = SampledFrame("<string>", "made", 3, GENERATED)
    assert only(MAIN, generated).source is not None and only(MAIN, generated).function == "made"


def test_shares_are_those_of_the_moments_in_which_the_device_waits() -> None:
    busy, sleeping = [MAIN, own("busy", 20)], [MAIN, own("pause", 21, "time.sleep")]
    found = list_host_stretches(sampled((busy, 0.3, 0.2), (sleeping, 0.1, 0.4)), NO_LINES, {}, 0.01)
    assert [(one.function, round(one.time_s, 9), one.samples) for one in found.stretches] == [
        ("busy", 0.003, 60),
        ("time.sleep", 0.001, 20),
    ]
    assert (found.samples, found.every, found.is_enough(0.004)) == (80, 200, True)


def test_twelve_samples_divide_the_idle_time_and_eleven_do_not() -> None:
    found = [
        list_host_stretches(sampled(([MAIN], count * 5e-3, 3.0)), NO_LINES, {}, 0.01).is_enough(0.001)
        for count in (12, 11)
    ]
    assert found == [True, False]


def test_measured_collections_divide_the_idle_time_without_samples() -> None:
    samples = sampled(([MAIN], 5e-3, 0.0), collected=1.0)
    found = list_host_stretches(samples, NO_LINES, {}, 0.1)
    assert found.stretches[0].label == COLLECTING and found.is_enough(found.stretches[0].time_s)
    assert not found.is_enough(2 * found.stretches[0].time_s)
    once = replace(samples, stacks=tuple(replace(one, waiting=one.waiting // 3) for one in samples.stacks))
    assert all(one.label != COLLECTING for one in list_host_stretches(once, NO_LINES, {}, 0.1).stretches)


def test_a_call_that_takes_much_longer_than_the_operators_of_its_line_is_none_of_them() -> None:
    line = LineKinds({("/app/train.py", 20): {DISPATCHING: 0.001}})
    stacks: list[Stack] = [
        ([MAIN, own("decode", 20, "zlib.decompress")], 0.5, 0.0),
        ([MAIN, own("decode", 20, ".view")], 0.05, 0.0),
    ]
    found = list_host_stretches(sampled(*stacks), line, {}, 0.01)
    assert [(one.function, one.label) for one in found.stretches] == [
        ("zlib.decompress", PYTHON),
        (".view", DISPATCHING),
    ]


def test_the_step_of_any_optimizer_is_the_optimizers() -> None:
    around = SampledFrame(f"{SITE}/torch/optim/optimizer.py", "Optimizer.profile_hook_step.<locals>.wrapper", 9, TORCH)
    found = only(MAIN, around, own("Momentum.step", 20, "average.mul_"))
    assert (found.label, found.function) == (OPTIMIZING, "Momentum.step")
    assert only(MAIN, own("Momentum.step", 20, "average.mul_")).label == DISPATCHING


def test_garbage_collections_have_the_time_that_was_measured() -> None:
    found = list_host_stretches(sampled(([MAIN], 0.6, 0.2), collected=0.2), NO_LINES, {}, 0.01)
    times = {one.label: one.time_s for one in found.stretches}
    assert times == {COLLECTING: pytest.approx(0.002), PYTHON: pytest.approx(0.006)}


def test_on_a_cpu_operators_are_no_idle_time() -> None:
    stacks: list[Stack] = [
        ([MAIN, GRAPH], 0.5, 0.0),
        ([MAIN, torch("nn/functional.py", "relu")], 0.2, 0.0),
        ([MAIN, torch("optim/adam.py", "_fused_adam")], 0.1, 0.0),
        ([MAIN, own("busy", 20)], 0.3, 0.0),
    ]
    found = list_host_stretches(sampled(*stacks, sees_device=False), NO_LINES, {"forward": "Net.forward"}, 0.01)
    assert [one.function for one in found.stretches] == ["busy"]


def test_the_cost_is_that_of_blocks_beside_each_other() -> None:
    cost = compute_sampling_cost([(1.0, 1.0), (1.02, 1.02), (1.0,), (1.03,), (1.06,)])
    assert cost.pairs == 2 and cost.median == pytest.approx((1.02 + 1.0) / 2)
    assert (cost.low, cost.high) == (pytest.approx(1.0), pytest.approx(1.02))
    assert compute_sampling_cost([(1.0,), (1.01,)]).median == pytest.approx(1.01)
    assert compute_sampling_cost([(1.0,)]).pairs == 0


def test_the_shares_of_no_samples_are_none() -> None:
    assert list_host_stretches(sampled(), NO_LINES, {}, 0.01) == HostShares((), 0, True)


def test_the_lines_that_wait_for_the_device_are_known_whether_it_works_or_not() -> None:
    waiting = [MAIN, own("step", 30, "torch.cuda.synchronize"), torch("cuda/__init__.py", "synchronize")]
    found = list_sampled_waits(sampled(([MAIN], 0.5, 0.5), (waiting, 0.0, 0.3)), NO_LINES, {}, 0.002)
    assert [(one.source and one.source.line, one.time_s, one.samples) for one in found] == [(30, 0.002, 60)]


def test_at_the_head_of_a_compiled_function_dynamo_checks_guards_or_enters_a_graph() -> None:
    head = replace(own("scale", 20), code="def scale(x):")
    guards = only(MAIN, head)
    assert (guards.label, guards.function) == (GUARDS, "guards of scale")
    assert guards.source is not None and (guards.source.line, guards.source.function) == (MAIN.line, "main"), "the call"
    assert only(MAIN, replace(head, is_call=True)).label == LAUNCHING
    assert only(MAIN, replace(head, code="@torch.compile"), torch("_functorch/x.py", "f")).label == LAUNCHING


def test_a_call_within_torch_is_an_operator_however_long_it_takes() -> None:
    line = LineKinds({("/app/train.py", 20): {DISPATCHING: 1e-6}})
    inside = only(own("step", 20, "loss.backward"), torch("somewhere.py", "ones"), lines=line)
    assert inside.label == DISPATCHING


def test_a_generator_expression_is_a_part_of_its_function() -> None:
    found = only(MAIN, own("train.<locals>.prepare.<locals>.<genexpr>", 20, "math.sin"))
    assert found.source is not None and found.source.function == "prepare"


def test_torchs_own_python_is_no_function_of_the_program() -> None:
    inside = SampledFrame(f"{SITE}/torch/nn/modules/module.py", "Module.__getattr__", 7, TORCH)
    assert only(MAIN, own("step", 20), inside).label == DISPATCHING
    on_cpu = list_host_stretches(
        sampled(([MAIN, own("step", 20), inside], 1.0, 0.0), sees_device=False), NO_LINES, {}, 0.01
    )
    assert [one.label for one in on_cpu.stretches] == [PYTHON], "no operator runs yet"
    backward = SampledFrame(f"{SITE}/torch/_tensor.py", "Tensor.backward", 7, TORCH)
    assert only(MAIN, own("step", 21), backward).label == BACKWARD

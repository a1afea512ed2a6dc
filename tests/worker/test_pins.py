"""Pins in the kernels of a process: with fakes, for a GPU that is missing, and if they change outputs."""

from __future__ import annotations

import functools
import gzip
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import forking_python
import pytest
from breakdown_runs import H200

from inductor_bench.messages.observed import (
    APPLY,
    COMPARE,
    PINNED,
    REFUSED,
    REPLACED,
    UNUSED,
    PinnedProcess,
    Pins,
    PinState,
)
from inductor_bench.records.edit import EditPin
from inductor_bench.records.retune import Config, CppPin, TritonPin
from inductor_bench.source.calls import find_kernel_key
from inductor_bench.source.module_reader import read_module
from inductor_bench.store import codec
from inductor_bench.worker.capture.boundaries import Boundaries, CalledGraphs, Pattern
from inductor_bench.worker.capture.pin_comparison import TIMED_COUNTS, PinComparison
from inductor_bench.worker.capture.pinned import PinnedAutotuner, PinnedCppKernel
from inductor_bench.workflows.pins import join_states, read_states

OWN: Config = {"XBLOCK": 16, "R0_BLOCK": 32, "num_warps": 4, "num_stages": 1}
TUNED: Config = {"XBLOCK": 4, "R0_BLOCK": 32, "num_warps": 2, "num_stages": 1}


def launcher(config: Config) -> Any:
    launch = {name: config[name] for name in ("num_warps", "num_stages")}
    kwargs = {name: value for name, value in config.items() if name not in launch}
    return SimpleNamespace(config=SimpleNamespace(kwargs=kwargs, **launch))


@dataclass
class Autotuner:
    launchers: list[Any]
    fn: Any = field(default_factory=lambda: SimpleNamespace(__name__="triton_red_fused_0"))
    _cached_launcher: Any = "fast"


def pinned(own: list[Config], tuned: Config | None, reason: str = "") -> PinnedAutotuner:
    pin = TritonPin("k" * 64, "", "triton_red_fused_0", "r" * 16, TUNED)
    return PinnedAutotuner(Autotuner([launcher(one) for one in own]), pin, launcher(tuned) if tuned else None, reason)


def test_a_kernel_changes_its_launcher_and_back() -> None:
    kernel = pinned([OWN], TUNED)
    assert kernel.state().state == REPLACED
    kernel.switch_config(True)
    assert kernel.state().state == PINNED and kernel.state().config == TUNED
    assert kernel.autotuner._cached_launcher is None, "torch 2.13 keeps the last launcher for its fast path"
    kernel.switch_config(True)
    assert kernel.state().own_config == OWN
    kernel.switch_config(False)
    assert kernel.state().config == OWN and kernel.state().own_config == {}


def test_a_kernel_that_has_not_chosen_yet_stays_as_it_is() -> None:
    kernel = pinned([OWN, {**OWN, "num_warps": 8}], TUNED)
    kernel.switch_config(True)
    assert len(kernel.autotuner.launchers) == 2
    assert kernel.state().state == UNUSED


def test_a_pin_that_did_not_compile_is_refused_with_its_reason() -> None:
    kernel = pinned([OWN], None, "it did not compile here: OutOfResources: shared memory")
    kernel.switch_config(True)
    assert kernel.state() == PinState(
        "r" * 16,
        "triton_red_fused_0",
        REFUSED,
        OWN,
        "it did not compile here: OutOfResources: shared memory",
        "triton_red_fused_0",
    )


def test_a_cpp_kernel_changes_its_function_and_back() -> None:
    pin = CppPin("c" * 16, "cpp_fused_0", {"threads": 1}, "")
    kernel = PinnedCppKernel(pin, tuned=lambda: "tuned", own=lambda: "own")
    assert kernel() == "own" and kernel.state().state == REPLACED
    kernel.switch_config(True)
    assert kernel() == "tuned" and kernel.state().state == PINNED
    kernel.switch_config(False)
    assert kernel() == "own"
    broken = PinnedCppKernel(pin, tuned=None, own=lambda: "own", reason="it did not compile here")
    broken.switch_config(True)
    assert broken() == "own" and broken.state().state == REFUSED


def test_of_several_processes_the_one_that_is_not_pinned_counts() -> None:
    states = [PinState("a", "a", state) for state in (PINNED, REPLACED, PINNED)]
    processes = [PinnedProcess(number, (state,)) for number, state in enumerate(states)]
    assert join_states(processes)["a"].state == REPLACED


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton")
@pytest.mark.parametrize(("mode", "config"), [(APPLY, TUNED), (COMPARE, TUNED), (COMPARE, OWN)])
def test_a_pin_goes_with_its_kernel_from_the_compile_worker_to_the_program(
    mode: str, config: Config, tmp_path: Path
) -> None:
    """Coordinate descent is on, as with mode="max-autotune", and goes on from no pin."""
    text = gzip.decompress((H200 / "programs" / "breaks" / "6.py.gz").read_bytes()).decode()
    kernel = read_module(text).kernels[0]
    key = find_kernel_key(kernel.source)
    assert key is not None
    versions = [importlib.metadata.version(name) for name in ("torch", "triton")]
    import torch

    pin = TritonPin(key.key, key.types, key.name, kernel.kernel_id, config)
    pins = Pins(mode, "digest", torch.__version__, versions[1], (pin,))
    (tmp_path / "pins.json").write_text(json.dumps(codec.encode(pins)))
    source = kernel.source.replace("inductor_meta={", "inductor_meta={'coordinate_descent_tuning': True, ")
    (tmp_path / "kernel.py").write_text(source)
    variables = {
        "CUDA_VISIBLE_DEVICES": "",
        "TRITON_CACHE_DIR": str(tmp_path / "triton"),
        "INDUCTOR_BENCH_CAPTURE": str(tmp_path),
        "INDUCTOR_BENCH_OBSERVE": "nothing",
        "INDUCTOR_BENCH_PINS": str(tmp_path / "pins.json"),
    }
    script = Path(__file__).parent.parent / "support" / "pinned_offline.py"
    command = [sys.executable, str(script), str(tmp_path / "kernel.py")]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables}, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    stages = json.loads(ended.stdout.splitlines()[-1])
    assert stages["with a flag"]["EVEN"] == 1 and stages["with a flag"]["EVEN"] is not True
    assert stages["as elsewhere"] == [{**stages["launched"][0], "num_warps": 2}], "it is compiled if it is missing"
    if mode == APPLY:
        assert stages["configs"] == stages["compiled"] == stages["launched"] == stages["own"] == [TUNED]
        assert stages["state of own"][0]["state"] == PINNED
        assert stages["launched is final"] == [True]
    else:
        both = [OWN] if config == OWN else [OWN, TUNED]
        assert stages["configs"] == stages["compiled"] == both, "both are compiled in the worker"
        assert stages["launched"] == stages["own"] == [OWN], "Inductor chooses among its own configs"
        assert stages["tuned"] == [config]
        assert stages["tuned is final"] == [True] and stages["own is final"] == [False], (
            "Inductor searches from its own"
        )
        assert stages["state of tuned"][0]["state"] == PINNED


@dataclass
class Multiplying:
    """A kernel that multiplies by a factor with its pin; by ``None`` it fails."""

    name: str
    factor: float | None
    tuned: bool = False
    pin: Any = None

    def switch_config(self, tuned: bool) -> None:
        self.tuned = tuned

    def apply(self, value: Any) -> Any:
        if self.tuned and self.factor is None:
            raise RuntimeError("Triton Error [CUDA]: invalid argument")
        return value * (self.factor if self.tuned else 1.0)

    def state(self) -> PinState:
        return PinState(self.name, self.name, PINNED if self.tuned else REPLACED)


@dataclass
class MultiplyingKernels:
    kernels: list[Multiplying]

    def switch_config(self, tuned: bool) -> None:
        for kernel in self.kernels:
            kernel.switch_config(tuned)


@pytest.mark.slow
def test_a_kernel_that_fails_with_its_config_is_dropped_and_the_program_goes_on() -> None:
    import torch

    from inductor_bench.worker.capture.pin_comparison import OutputCheck

    good, failing = Multiplying("good", 1.0), Multiplying("failing", None)
    kernels: Any = MultiplyingKernels([good, failing])
    check = OutputCheck(kernels, "cpu")
    (result,) = check.call("graph.py", lambda _, inputs: (failing.apply(good.apply(inputs[0])),), None, [torch.ones(4)])
    assert torch.equal(result, torch.ones(4))
    assert check.dropped == ["failing"] and check.found[0].is_equal and not check.found[0].reason

    def without_memory(_: Any, inputs: list[Any]) -> Any:
        if inputs[0] is not given:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return "the program's own call"

    given = torch.ones(4)
    assert check.call("other.py", without_memory, None, [given]) == "the program's own call"
    assert check.found[1].reason.endswith("RuntimeError: DefaultCPUAllocator: can't allocate memory")


def test_a_program_that_ends_while_it_is_compared_says_what_its_kernels_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INDUCTOR_BENCH_CAPTURE", str(tmp_path))
    kernel = pinned([OWN], TUNED)

    class OneKernel:
        pins = Pins("", "", "", None)
        switch_config = staticmethod(kernel.switch_config)

        @staticmethod
        def describe() -> PinnedProcess:
            return PinnedProcess(os.getpid(), (kernel.state(),))

    kernels: Any = OneKernel()
    comparison = PinComparison(tmp_path, CalledGraphs(), kernels)
    comparison.finish(Boundaries(lambda number: None, lambda: None, Pattern()))
    assert not read_states(tmp_path), "a process without steps"
    boundaries = Boundaries(lambda number: None, lambda: None, Pattern())
    boundaries.source = "optimizer steps"
    comparison.finish(boundaries)
    (process,) = read_states(tmp_path)
    assert [state.state for state in process.states] == [PINNED]
    assert kernel.state().state == REPLACED, "the program ends with its own"


def test_a_comparison_on_a_cpu_counts_how_long_its_timed_steps_waited_for_a_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INDUCTOR_BENCH_CAPTURE", str(tmp_path))

    class NoKernel:
        def __init__(self, proof_s: float | None) -> None:
            self.pins = Pins("", "", "", None, proof_s=proof_s)

        def switch_config(self, tuned: bool) -> None:
            pass

        def describe(self) -> PinnedProcess:
            return PinnedProcess(os.getpid(), ())

    monkeypatch.setattr("inductor_bench.worker.capture.pin_comparison.MOST_TIMED", 200)
    counts = []
    for proof_s in (None, 1e-9, 3600.0):
        kernels: Any = NoKernel(proof_s)
        comparison = PinComparison(tmp_path, CalledGraphs(), kernels)
        boundaries = Boundaries(lambda number: None, lambda: None, Pattern())
        for number in range(300):
            comparison.cross_boundary(number, boundaries, number * 1e-3, other_profiler=False, cycle_s=None)
        found = comparison.found
        assert found.state == "done" and found.load is not None
        assert found.load.runs == len(found.steps) > 0 and found.load.cores >= 1
        counts.append(len(found.steps))
    assert counts == [TIMED_COUNTS[1], TIMED_COUNTS[0], 200], "and a proof takes as long as the user asks for"


@pytest.mark.slow
def test_outputs_are_compared_and_the_kernel_that_changes_them_is_found() -> None:
    import torch

    from inductor_bench.worker.capture.pin_comparison import OutputCheck

    good, bad = Multiplying("good", 1 + 1e-6), Multiplying("bad", 1.1)
    elsewhere = Multiplying("bad", 1.1)
    kernels: Any = MultiplyingKernels([good, bad, elsewhere])

    def call(_: Any, inputs: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        (value,) = inputs
        inputs.clear()  # as generated code does
        value.add_(1.0)  # and it may write into its inputs
        seed = torch.full((2,), next(unwritten))
        return bad.apply(good.apply(value)) + torch.rand(()), seed

    unwritten = iter(range(1000))
    torch.manual_seed(0)
    expected = torch.zeros(64) + 1.0 + torch.rand(())
    torch.manual_seed(0)
    check, given = OutputCheck(kernels, "cpu"), torch.zeros(64)
    result, _ = check.call("graph.py", call, None, [given])
    assert torch.equal(result, expected), "the program gets its own result, with its own random numbers"
    assert torch.equal(given, torch.ones(64)), "an input is changed once"
    assert check.dropped == ["bad"] and [kernel.name for kernel in kernels.kernels] == ["good"]
    (found,) = check.found
    assert found.is_equal and 0 < found.difference < 1e-5, "what is left was compared again"
    assert found.tensors == 2 and found.own_difference == 0
    assert found.unrepeatable == 1, "a tensor that differs from call to call says nothing of the pins"
    check.call("graph.py", call, None, [torch.zeros(64)])
    assert len(check.found) == 1, "each graph once"


def checked(kernels: list[Multiplying], call: Any, given: Any) -> Any:
    """The check of a graph whose kernels multiply."""
    from inductor_bench.worker.capture.pin_comparison import OutputCheck

    pinned: Any = MultiplyingKernels(kernels)
    check = OutputCheck(pinned, "cpu")
    check.call("graph.py", call, None, [given])
    return check


@pytest.mark.slow
def test_differences_that_are_no_larger_than_those_of_rounding_are_told_apart() -> None:
    import torch

    torch.manual_seed(1)
    values = torch.randn(63, 65)
    centred = values - values.mean(0)

    def total(kernel: Multiplying) -> Any:
        return lambda _, inputs: (inputs[0], kernel.apply(inputs[0]).sum(0), torch.arange(4))

    noise = Multiplying("good", 1.5)
    (found,) = checked([noise], total(noise), centred).found
    assert found.is_equal and found.rounding == 1, "the sums of centred columns are nothing but rounding errors"
    assert found.tensors == 3, "the input, the result that is an input, and the whole numbers"
    wrong = Multiplying("bad", 1.3)
    check = checked([wrong], total(wrong), values + 1)
    assert check.dropped == ["bad"], "the same sums of columns that are not centred"
    angles = Multiplying("bad", 1.3)
    frequencies = torch.arange(64.0)
    check = checked([angles], lambda _, inputs: (torch.cos(angles.apply(inputs[0])).bfloat16(),), frequencies)
    assert check.dropped == ["bad"], "a vector is not rounded to the graph's coarsest type"
    argmax = Multiplying("bad", -1.0)
    check = checked([argmax], lambda _, inputs: (argmax.apply(inputs[0]).argmax(1),), values.bfloat16())
    assert check.dropped == ["bad"], "few whole numbers are excused"
    close = torch.cat([torch.randn(4000), torch.full((8,), 0.5)]).bfloat16()
    mask = Multiplying("good", 1 - 2**-7)
    (found,) = checked([mask], lambda _, inputs: (mask.apply(inputs[0]) >= 0.5,), close).found
    assert found.is_equal and found.rounding == 1, "those of a mask that flip if values are close"


@pytest.mark.slow
def test_no_tensor_hides_the_difference_of_another() -> None:
    import torch

    from inductor_bench.worker.capture.pin_comparison import OutputCheck

    pinned: Any = MultiplyingKernels([Multiplying("bad", 3.0)])
    (bad,) = pinned.kernels
    check = OutputCheck(pinned, "cpu")
    call = lambda _, inputs: (bad.apply(inputs[1]),)  # noqa: E731
    check.call("graph.py", call, None, [torch.arange(4), torch.randn(32, 32)])
    assert check.dropped == ["bad"], "whole numbers that come first agree, and tolerate nothing"


@pytest.mark.slow
def test_a_lack_of_memory_for_other_roundings_is_no_difference() -> None:
    import torch

    torch.manual_seed(1)
    values = torch.randn(63, 65)
    centred = values - values.mean(0)
    noise = Multiplying("good", 1.5)

    def call(_: Any, inputs: list[torch.Tensor]) -> tuple[torch.Tensor]:
        if not torch.equal(inputs[0], centred):
            raise torch.OutOfMemoryError("out of memory")
        return (noise.apply(inputs[0]).sum(0),)

    check = checked([noise], call, centred)
    assert check.dropped == [] and check.found[0].reason == "no memory for a copy of the graph's inputs"


@pytest.mark.slow
def test_an_edit_that_drops_a_small_term_is_dropped_and_a_config_that_moves_as_much_is_kept() -> None:
    import torch

    edit = EditPin("kernel", "kernel", "family", "cpp", "source", "mine.py")
    given = torch.rand(64, 64, generator=torch.Generator().manual_seed(0))

    def check_of(*kernels: Multiplying) -> Any:
        def call(_: Any, inputs: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
            return (functools.reduce(lambda value, kernel: kernel.apply(value), kernels, inputs[0]),)

        return checked(list(kernels), call, given)

    config, wrong, right = (
        Multiplying("config", 1 + 2e-4),
        Multiplying("wrong", 1 + 2e-4),
        Multiplying("right", 1 + 1e-6),
    )
    wrong.pin = right.pin = edit
    assert check_of(config).dropped == [] and check_of(right).dropped == []
    check = check_of(config, wrong, right)
    assert check.dropped == ["wrong"] and "up to 5.0e-05 is rounding" in check.changes["wrong"]
    assert check.found[0].is_equal and check.found[0].difference > 1e-4, "the config is held to what configs may change"


@pytest.mark.slow
def test_outputs_without_a_finite_number_are_not_said_to_agree() -> None:
    import torch

    from inductor_bench.worker.capture.pin_comparison import NO_NUMBERS, OutputCheck

    good = Multiplying("good", 1 + 1e-6)
    kernels: Any = MultiplyingKernels([good])
    for value, reason in ((float("nan"), NO_NUMBERS), (float("inf"), NO_NUMBERS), (1.0, "")):
        check = OutputCheck(kernels, "cpu")

        def call(_: Any, inputs: list[torch.Tensor], value: float = value) -> tuple[torch.Tensor, ...]:
            return good.apply(inputs[0]) * value, torch.arange(3)

        check.call("graph.py", call, None, [torch.ones(8)])
        (found,) = check.found
        assert found.reason == reason and (found.tensors == 0) is bool(reason)


@pytest.mark.slow
def test_outputs_whose_shapes_depend_on_values() -> None:
    import torch

    given = torch.full((8, 8), 0.5).bfloat16()  # half of it is below 0.5 if it is rounded otherwise
    for factor, dropped in ((1.0, []), (0.5, ["kernel"])):
        kernel = Multiplying("kernel", factor)
        check = checked([kernel], lambda _, inputs, kernel=kernel: ((kernel.apply(inputs[0]) >= 0.5).nonzero(),), given)
        assert check.dropped == dropped, "another number of elements is a difference"

    def demanding(_: Any, inputs: list[torch.Tensor]) -> tuple[torch.Tensor]:
        if (inputs[0] != 0.5).any():
            raise RuntimeError("it takes halves only")
        return (kernel.apply(inputs[0]),)

    check = checked([kernel], demanding, given)
    assert check.dropped == ["kernel"] and not check.found[0].reason, "a graph that refuses rounded inputs excuses none"


@pytest.mark.slow
def test_half_of_the_numbers_are_rounded_otherwise() -> None:
    import torch

    from inductor_bench.worker.capture.pin_comparison import round_otherwise

    values = torch.randn(4096)
    for dtype, coarsest, shape in (
        (torch.float32, 2.0**-10, (64, 64)),
        (torch.float32, 2.0**-10, (4096,)),
        (torch.float16, 0.0, (64, 64)),
        (torch.bfloat16, 0.0, (4096,)),
        (torch.float64, 2.0**-7, (64, 64)),
    ):
        own = values.to(dtype).reshape(shape)
        copied = own.clone()
        round_otherwise(copied, coarsest)
        change = ((copied - own).abs() / own.abs()).double()
        unit = max(torch.finfo(dtype).eps, coarsest if len(shape) > 1 else 0.0)
        assert (copied.abs() <= own.abs()).all() and 0.3 < (change > 0).double().mean() < 0.7
        assert unit / 4 < float(change.max()) < 2 * unit
    for untouched in (torch.tensor([0.0, torch.inf]), torch.arange(3), torch.ones(2).to(torch.float8_e4m3fn)):
        copied = untouched.clone()
        round_otherwise(copied, 2.0**-7)
        assert torch.equal(copied.to(torch.float64), untouched.to(torch.float64))
    round_otherwise(3, 2.0**-7)


@pytest.mark.slow
def test_a_file_of_pins_that_is_gone_costs_the_pins_and_not_the_program(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import torch._inductor.async_compile\nprint('the program goes on')\n")
    variables = {"INDUCTOR_BENCH_OBSERVE": "nothing", "INDUCTOR_BENCH_PINS": tmp_path / "gone.json"}
    ended = forking_python.run([str(tmp_path / "program.py")], INDUCTOR_BENCH_CAPTURE=tmp_path, **variables)
    assert (ended.returncode, ended.stdout) == (0, "the program goes on\n")
    assert "gone.json" in ended.stderr

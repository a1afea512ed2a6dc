"""How a mode takes the place of the program's own settings, and how its outputs are compared with eager."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from inductor_bench.messages.observed import ModeChange, ModeReport  # noqa: E402
from inductor_bench.records.code import CompiledKernel  # noqa: E402
from inductor_bench.records.comparison import AGREES, DIFFERS, UNKNOWN, Agreement  # noqa: E402
from inductor_bench.store import codec  # noqa: E402
from inductor_bench.worker.capture.mode_setter import ModeSetter, read_value  # noqa: E402
from inductor_bench.worker.capture.output_comparison import OutputComparison  # noqa: E402
from inductor_bench.worker.device.cpu_runtime import CpuRuntime  # noqa: E402
from inductor_bench.worker.upstream import inductor  # noqa: E402


def compile_with(
    change: ModeChange, path: Path, *models: Any, **keywords: Any
) -> tuple[list[dict[str, Any]], ModeReport]:
    """What torch's function gets, and the report."""
    seen: list[dict[str, Any]] = []

    def original(model: Any = None, **given: Any) -> Any:
        if model is None:
            return lambda function: replaced(function, **given)
        seen.append(given)
        return model

    setter = ModeSetter(change, path)
    replaced = setter.wrap(original)
    for model in models:
        if model is None:
            replaced(**keywords)(abs)
        else:
            replaced(model, **keywords)
    setter.save()
    return seen, codec.decode(ModeReport, json.loads(path.read_text()))


def test_the_mode_is_replaced_and_other_arguments_stay(tmp_path: Path) -> None:
    change = ModeChange("max-autotune")
    seen, report = compile_with(change, tmp_path / "r", abs, None, mode="default", dynamic=True)
    assert seen == [{"mode": "max-autotune", "options": None, "dynamic": True}] * 2
    assert (report.calls, report.kept, report.notes) == (2, (), ())


def test_options_of_the_program_of_the_mode_and_of_the_set_are_joined(tmp_path: Path) -> None:
    change = ModeChange("reduce-overhead", {"epilogue_fusion": "false"})
    seen, report = compile_with(change, tmp_path / "r", abs, options={"max_fusion_size": 8})
    assert seen == [
        {"mode": None, "options": {"max_fusion_size": 8, "triton.cudagraphs": True, "epilogue_fusion": False}}
    ]
    assert report.notes == ("the program's own options are kept: max_fusion_size",)


def test_the_joined_settings_are_ones_that_torch_takes() -> None:
    setter = ModeSetter(ModeChange("max-autotune", {"epilogue_fusion": "false"}), Path("/dev/null"))
    setter.save = lambda: None  # type: ignore[method-assign]
    assert callable(setter.wrap(torch.compile)(torch.sin, mode="reduce-overhead"))
    assert callable(setter.wrap(torch.compile)(mode="reduce-overhead")(torch.sin))


def test_custom_backends_and_disabled_calls_are_left_as_they_are(tmp_path: Path) -> None:
    for keywords, reason in (({"backend": "aot_eager"}, "backend aot_eager"), ({"disable": True}, "disable=True")):
        seen, report = compile_with(ModeChange("max-autotune"), tmp_path / "r", abs, **keywords)
        assert (seen, report.calls, report.kept) == ([keywords], 0, (reason,))


def test_without_compilation_calls_stay_and_switches_are_set(tmp_path: Path) -> None:
    before = torch.get_float32_matmul_precision()
    try:
        seen, report = compile_with(ModeChange("eager", switches=("tf32",)), tmp_path / "r", abs, mode="default")
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
    assert (seen, report.calls) == ([{"mode": "default"}], 0)


def test_channels_last_changes_a_module_and_says_so_of_a_function(tmp_path: Path) -> None:
    change, convolution = ModeChange("default", switches=("channels-last",)), torch.nn.Conv2d(4, 4, 3)
    compile_with(change, tmp_path / "r", convolution)
    assert convolution.weight.is_contiguous(memory_format=torch.channels_last)
    _, report = compile_with(change, tmp_path / "r", abs)
    assert "changed nothing" in report.notes[0]


def test_the_hash_of_configs_is_that_of_all_kernels_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(namespace: Mapping[str, Any]) -> dict[str, CompiledKernel]:
        return {name: CompiledKernel(config) for name, config in namespace.items() if name.startswith("triton_")}

    monkeypatch.setattr(inductor, "list_compiled_kernels", found)

    def measured(*modules: dict[str, dict[str, int]]) -> str:
        setter = ModeSetter(ModeChange("default"), tmp_path / "r")
        for namespace in modules:
            module = ModuleType("compiled")
            vars(module).update(namespace)
            setter.modules.append(module)
        setter.note_measured("cpu")
        return setter.report.configs

    one, other = {"triton_a": {"XBLOCK": 64, "num_warps": 4}}, {"triton_b": {"XBLOCK": 8}}
    assert measured() == "" and len(measured(one)) == 16
    assert measured(one, other) == measured(other, {"triton_a": {"num_warps": 4, "XBLOCK": 64}})
    assert measured(one, other) != measured(one, {"triton_b": {"XBLOCK": 16}})


@pytest.mark.parametrize(("text", "value"), [("true", True), ("None", None), ("8", 8), ("ATEN,CPP", "ATEN,CPP")])
def test_values_of_options(text: str, value: object) -> None:
    assert read_value(text) == value


def compare(function: Any, compiled: Any, *inputs: Any, **how: Any) -> Agreement:
    comparison = OutputComparison(function, inputs, {}, CpuRuntime(), autocast=contextlib.nullcontext(), **how)
    comparison.keeping_first_outputs(compiled)(*inputs)
    return comparison.result()


def test_outputs_agree_within_the_tolerance_of_their_type() -> None:
    values = torch.rand(100)
    assert compare(torch.sin, torch.sin, values) == Agreement(AGREES, 0.0)
    near = compare(torch.sin, lambda x: torch.sin(x) * (1 + 1e-5), values)
    assert near.state == AGREES and near.error == pytest.approx(1e-5, rel=0.1)
    assert compare(torch.sin, lambda x: torch.sin(x) * 1.005, values).state == DIFFERS
    assert compare(torch.sin, lambda x: torch.sin(x) * 1.005, values, tf32=True).state == AGREES
    assert compare(torch.sin, lambda x: torch.sin(x) * 1.005, values, precision=torch.bfloat16).state == AGREES


def test_other_shapes_whole_numbers_and_places_of_nan_differ() -> None:
    values = torch.rand(100)
    assert compare(torch.sin, lambda x: torch.sin(x)[1:], values).state == DIFFERS
    assert compare(torch.sin, lambda x: (torch.sin(x), x), values).state == DIFFERS
    assert compare(torch.argsort, lambda x: torch.argsort(-x), values).state == DIFFERS
    assert compare(torch.sin, lambda x: torch.where(x > x.median(), torch.nan, x.sin()), values).state == DIFFERS


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_outputs_without_a_finite_number_are_not_called_equal(value: float) -> None:
    values = torch.rand(100)
    found = compare(lambda x: (x + value, x.argmax()), lambda x: (x + value, x.argmax()), values)
    assert (found.state, found.error) == (UNKNOWN, None) and "no finite number" in found.reason
    assert compare(lambda x: (x + value, x), lambda x: (x + value, x), values) == Agreement(AGREES, 0.0)
    assert compare(lambda x: x + value, torch.sin, values).state == DIFFERS


def test_a_program_that_draws_random_numbers_cannot_be_compared() -> None:
    random = compare(lambda x: torch.nn.functional.dropout(x), torch.sin, torch.rand(1000))
    assert random.state == UNKNOWN and "random" in random.reason


def test_the_reference_leaves_inputs_buffers_and_the_random_state_as_they_are() -> None:
    model = torch.nn.BatchNorm1d(3)
    values, mean, state = torch.rand(8, 3), model.running_mean.clone(), torch.get_rng_state()
    OutputComparison(lambda x: model(x.add_(1)), (values.clone(),), {}, CpuRuntime(), autocast=contextlib.nullcontext())
    comparison = OutputComparison(model, (values,), {}, CpuRuntime(), autocast=contextlib.nullcontext())
    assert torch.equal(torch.get_rng_state(), state) and comparison.result().state == UNKNOWN
    assert not torch.equal(model.running_mean, mean), "a function's buffers are unknown"
    model = torch.nn.BatchNorm1d(3)
    OutputComparison(model, (values,), {}, CpuRuntime(), autocast=contextlib.nullcontext())
    assert torch.equal(model.running_mean, mean)

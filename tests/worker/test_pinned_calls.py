"""Pinned library calls, in programs on a CPU: Inductor has a template for products of batches of matrices there."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import sympy
import torch

from inductor_bench.messages.pins import APPLY, PINNED, REFUSED, Pins, PinState
from inductor_bench.records.retunes.pins import InputLayout, LibraryPin, factors
from inductor_bench.worker.capture.pins.calls import _has_layouts
from inductor_bench.worker.upstream.choices import read_marks, settings_of
from inductor_bench.workflows.apply.pins import digest_pins
from inductor_bench.workflows.apply.program import join_states, pinned_environment, read_states

PROGRAM = """
import torch
torch.manual_seed(0)
a, b, bias = torch.randn(4, 64, 96), torch.randn(4, 96, 32), torch.randn(4, 64, 32)
compiled = torch.compile(FUNCTION)
assert torch.allclose(compiled(a, b, bias), FUNCTION(a, b, bias), atol=1e-3)
other = torch.compile(lambda a, b: a @ b)
assert torch.allclose(other(a[:2], b[:2]), a[:2] @ b[:2], atol=1e-3)
"""
PRODUCT = "(lambda a, b, bias: (a.abs() @ b).relu())"
"""Without ``sin``: that of MKL was off by 1.5e-4 in one of 120 processes, without compilation."""

A = InputLayout.of("float32", (4, 64, 96), (6144, 96, 1))
B = InputLayout.of("float32", (4, 96, 32), (3072, 32, 1))
TEMPLATE = {"backend": "cpp", "template": "CppMicroGemmFP32Vec"}
PIN = LibraryPin("aten_bmm_0", "b" * 16, "aten.bmm", (A, B), {}, TEMPLATE)


def run_with(
    pin: LibraryPin | tuple[LibraryPin, ...], folder: Path, cache: Path, function: str = PRODUCT, first: str = ""
) -> dict[str, PinState]:
    """The states of pins after a program ran with them, whose first lines are ``first``."""
    folder.mkdir(exist_ok=True)
    torch_version = str(torch.__version__)
    library = pin if isinstance(pin, tuple) else (pin,)
    pins = Pins(APPLY, digest_pins(library), torch_version, _triton_version(), library_pins=library)
    program = folder / "program.py"
    program.write_text(first + PROGRAM.replace("FUNCTION", function))
    variables = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache), "TORCHINDUCTOR_FX_GRAPH_CACHE": "1"}
    environment = pinned_environment(pins, folder / "work", variables, "nothing")
    ended = subprocess.run([sys.executable, program], env=environment, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    (folder / "out.txt").write_text(ended.stdout)
    return join_states(read_states(folder / "work"))


def _triton_version() -> str | None:
    try:
        import triton
    except ImportError:
        return None
    return str(triton.__version__)


def modules_in(cache: Path) -> list[str]:
    """The generated code that holds marks."""
    return [text for file in cache.rglob("*.py") if read_marks(text := file.read_text())]


def test_inductor_takes_the_choice_of_a_pin_and_its_caches_tell_it_too(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for name in ("first", "again"):
        assert run_with(PIN, tmp_path / name, cache) == {
            PIN.kernel_id: PinState(PIN.kernel_id, PIN.name, PINNED, TEMPLATE)
        }
        (code,) = modules_in(cache)
        assert "extern_kernels.bmm" not in code and f"{PIN.kernel_id} {PINNED}" in code
    with_extern = [text for file in cache.rglob("*.py") if "extern_kernels.bmm(" in (text := file.read_text())]
    assert with_extern, "the product of other sizes stays a library call"


def test_a_choice_that_inductor_does_not_list_is_refused_and_the_call_stays(tmp_path: Path) -> None:
    states = run_with(replace(PIN, config={**TEMPLATE, "template": "gone"}), tmp_path, tmp_path / "cache")
    state = states[PIN.kernel_id]
    assert (state.state, state.reason) == (REFUSED, "Inductor listed no such choice for the call")
    (code,) = modules_in(tmp_path / "cache")
    assert "extern_kernels.bmm(" in code


def test_a_call_whose_inputs_lie_otherwise_in_memory_stays(tmp_path: Path) -> None:
    transposed = replace(PIN, inputs=(A, InputLayout.of("float32", B.shape, (3072, 1, 96))))
    assert not run_with(transposed, tmp_path, tmp_path / "cache")
    assert not modules_in(tmp_path / "cache")


@pytest.mark.parametrize("state", [PINNED, REFUSED])
def test_the_wrapper_in_cpp_runs_with_pins_too(state: str, tmp_path: Path) -> None:
    pin = PIN if state == PINNED else replace(PIN, config={"backend": "gone"})
    first = "from torch._inductor import config\nconfig.cpp_wrapper = True\n"
    states = run_with(pin, tmp_path, tmp_path / "cache", first=first)
    assert [one.state for one in states.values()] == [state]


def test_a_wrapper_that_is_no_text_has_no_mark(tmp_path: Path) -> None:
    first = "from torch._inductor import config\nconfig.fx_wrapper = True\n"
    refused = replace(PIN, config={"backend": "gone"})
    states = run_with(refused, tmp_path, tmp_path / "cache", "(lambda a, b, bias: a @ b)", first)
    assert states[PIN.kernel_id].state == REFUSED, "the lowering tells it"
    assert not modules_in(tmp_path / "cache")


def test_a_package_that_is_compiled_ahead_of_time_has_the_choice(tmp_path: Path) -> None:
    first = """
import torch
def compile(function):
    class Module(torch.nn.Module):
        def forward(self, *inputs):
            return function(*inputs)
    def call(*inputs):
        path = torch._inductor.aoti_compile_and_package(torch.export.export(Module(), inputs))
        return torch._inductor.aoti_load_package(path)(*inputs)
    return call
torch.compile = compile
"""
    assert run_with(PIN, tmp_path, tmp_path / "cache", first=first)[PIN.kernel_id].state == PINNED


TABLE = "compile = torch.compile\ntorch.compile = lambda f: compile(f, options={'autotune_lookup_table': {}})\n"
TAG = "torch.compiler.config.cache_key_tag = 'of the program'\n"


@pytest.mark.parametrize("own", [TABLE, TAG])
def test_programs_with_settings_of_their_own_share_no_cache_with_those_without_pins(own: str, tmp_path: Path) -> None:
    first = f"import torch\n{own}"
    other = replace(PIN, kernel_id="o" * 16, operator="aten.nothing")
    for name, pin, expected in (("with", PIN, [PINNED]), ("without", other, [])):
        states = run_with(pin, tmp_path / name, tmp_path / "cache", first=first)
        assert [state.state for state in states.values()] == expected
    made = [text for file in (tmp_path / "cache").rglob("*.py") if "extern_kernels.bmm(" in (text := file.read_text())]
    assert len(made) >= 2, "without the pin it is a library call"


def test_settings_decide_too(tmp_path: Path) -> None:
    pin = replace(PIN, operator="aten.baddbmm", settings={"beta": 2})
    function = "(lambda a, b, bias: torch.baddbmm(bias, a, b))"
    assert not run_with(pin, tmp_path, tmp_path / "cache", function), "beta is 1"
    assert settings_of("aten.convolution", {"3": (2, 2), "transposed": 0}) == {"stride": [2, 2], "transposed": 0}
    assert settings_of("aten.mm", {"layout": None}) == {}
    typed = settings_of("aten.mm", {"2": torch.float32, "device": torch.device("cpu"), "size": sympy.Integer(3)})
    assert typed == {"2": "float32", "device": "cpu", "size": 3}


def test_of_two_pins_for_one_call_the_first_is_taken(tmp_path: Path) -> None:
    same, other = replace(PIN, kernel_id="s" * 16), replace(PIN, kernel_id="o" * 16, config={"backend": "aten"})
    states = run_with((PIN, same, other), tmp_path, tmp_path / "cache")
    assert [states[pin.kernel_id].state for pin in (PIN, same, other)] == [PINNED, PINNED, REFUSED]
    assert PIN.name in states[other.kernel_id].reason


def test_a_choice_of_the_exhaustive_search_is_found_in_the_usual_list_too(tmp_path: Path) -> None:
    first = """
from torch._inductor import config, select_algorithm
from inductor_bench.worker.upstream import choices
autotuned = choices.autotuned
def watched(choose, *, exhaustive):
    print("exhaustive", exhaustive)
    return autotuned(choose, exhaustive=exhaustive)
choices.autotuned = watched
"""
    pin = replace(PIN, exhaustive=True)
    states = run_with(pin, tmp_path / "usual", tmp_path / "cache", first=first)
    assert states[pin.kernel_id].state == PINNED
    assert (tmp_path / "usual" / "out.txt").read_text() == "exhaustive False\n"
    gone = replace(pin, config={"backend": "gone"})
    states = run_with(gone, tmp_path / "all", tmp_path / "cache", first=first)
    assert states[pin.kernel_id].reason == "Inductor listed no such choice for the call"
    assert (tmp_path / "all" / "out.txt").read_text() == "exhaustive False\nexhaustive True\n"


def test_a_graph_that_does_not_compile_with_its_choice_is_compiled_without(tmp_path: Path) -> None:
    """A template with its neighbours is compiled after its call was lowered."""
    first = """
from torch._inductor import compile_fx
from torch._inductor.codegen.cpp_template_kernel import CppTemplateKernel
store_output = CppTemplateKernel.store_output
def wrong(self, target, source, original=None, epilogue_nodes=None, *rest, **keywords):
    text = store_output(self, target, source, original, epilogue_nodes, *rest, **keywords)
    return f"this is no C++; {text}" if epilogue_nodes else text
CppTemplateKernel.store_output = wrong
"""
    for name in ("first", "again"):
        state = run_with(PIN, tmp_path / name, tmp_path / "cache", first=first)[PIN.kernel_id]
        assert state.state == REFUSED and state.reason.startswith("the code with it failed here: ")
    assert [code.count("extern_kernels.bmm(") for code in modules_in(tmp_path / "cache") if REFUSED in code] == [1]


def test_a_failure_of_the_program_is_its_own(tmp_path: Path) -> None:
    first = """
import torch
from torch._inductor import compile_fx
def fail(*_, **__):
    raise NotImplementedError("of the program")
compile_fx._InProcessFxCompile.codegen_and_compile = fail
compile = torch.compile
def compile_and_go_on(function):
    def call(*inputs):
        try:
            return compile(function)(*inputs)
        except Exception as error:
            print(type(error).__name__)
            return function(*inputs)
    return call
torch.compile = compile_and_go_on
"""
    assert not run_with(PIN, tmp_path, tmp_path / "cache", first=first)
    assert (tmp_path / "out.txt").read_text().split() == ["InductorError", "InductorError"]


def test_a_failure_after_the_choice_is_told(tmp_path: Path) -> None:
    first = """
from torch._inductor import lowering
from torch._inductor.codegen.cpp_template_kernel import CppTemplateCaller
def fail(_):
    raise NotImplementedError("no such kernel")
CppTemplateCaller.output_node = fail
"""
    state = run_with(PIN, tmp_path, tmp_path / "cache", first=first)[PIN.kernel_id]
    assert (state.state, state.reason) == (REFUSED, "it failed here: NotImplementedError: no such kernel")
    (code,) = modules_in(tmp_path / "cache")
    assert "extern_kernels.bmm(" in code


def test_a_failure_of_ours_costs_the_pin_and_not_the_program(tmp_path: Path) -> None:
    first = """
from inductor_bench.worker.capture.pins import calls
def fail(*_):
    raise AttributeError("as an unknown node of Inductor does")
calls.choices.layouts_of = fail
"""
    state = run_with(PIN, tmp_path, tmp_path / "cache", first=first)[PIN.kernel_id]
    assert state.reason == "it failed here: AttributeError: as an unknown node of Inductor does"
    assert "extern_kernels.bmm(" in modules_in(tmp_path / "cache")[0]


def test_a_graph_with_many_pinned_calls_is_marked_once(tmp_path: Path) -> None:
    sums = " + ".join(f"(a + {place}) @ b" for place in range(12))
    assert run_with(PIN, tmp_path, tmp_path / "cache", f"(lambda a, b, bias: {sums})")
    (code,) = modules_in(tmp_path / "cache")
    assert len(read_marks(code)) == 1


def test_single_pixels_with_adjacent_channels_are_a_product() -> None:
    pixels = InputLayout.of("float16", (8, 64, 56, 56), (200704, 1, 3584, 64))
    weight = InputLayout.of("float16", (64, 64, 1, 1), (64, 1, 1, 1))
    pin = LibraryPin("aten_convolution_0", "c" * 16, "aten.convolution", (pixels, weight), {}, TEMPLATE)
    flat = [InputLayout.of("float16", (25088, 64), (64, 1)), InputLayout.of("float16", (64, 64), (1, 64))]
    assert _has_layouts(pin, flat) and _has_layouts(pin, [pixels, weight])
    assert not _has_layouts(pin, [replace(flat[0], stride=(1, 25088)), flat[1]])
    planes = replace(pixels, stride=(200704, 3136, 56, 1))
    assert not _has_layouts(replace(pin, inputs=(planes, weight)), flat)


def test_what_is_added_to_a_product_decides_nothing(tmp_path: Path) -> None:
    pin = replace(PIN, operator="aten.baddbmm")
    states = run_with(pin, tmp_path, tmp_path / "cache", "(lambda a, b, bias: torch.baddbmm(bias, a, b))")
    assert states[pin.kernel_id].state == REFUSED, "the call is found, and has no template on a CPU"
    assert factors("aten.addmm", ["bias", "a", "b"]) == factors("aten.mm", ["a", "b"]) == ["a", "b"]
    assert factors("aten.convolution", ["x", "weight", "bias"]) == ["x", "weight"]


def test_strides_of_single_elements_mean_nothing() -> None:
    assert InputLayout.of("bfloat16", (1, 2048), (0, 1)) == InputLayout.of("bfloat16", (1, 2048), (2048, 1))

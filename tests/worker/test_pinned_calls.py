"""Pinned library calls, in programs on a CPU: Inductor has a template for products of batches of matrices there."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import forking_python
import pytest
import torch

from inductor_bench.messages.observed import APPLY, PINNED, REFUSED, Pins, PinState
from inductor_bench.records.retune import InputLayout, LibraryPin, list_factors
from inductor_bench.worker.capture.pinned import _has_layouts
from inductor_bench.worker.upstream.pinning import list_settings, read_marks
from inductor_bench.workflows.pins import digest_pins, join_states, make_pinned_environment, read_states

PROGRAM = """
import torch
torch.manual_seed(0)
for batch, function in FUNCTIONS.items():
    torch.compiler.reset()
    a, b, bias = torch.randn(batch, 64, 96), torch.randn(batch, 96, 32), torch.randn(batch, 64, 32)
    assert torch.allclose(torch.compile(function)(a, b, bias), function(a, b, bias), atol=1e-3)
"""
PRODUCT = "(lambda a, b, bias: (a.abs() @ b).relu())"
"""Without ``sin``: that of MKL was off by 1.5e-4 in one of 120 processes, without compilation."""

TEMPLATE = {"backend": "cpp", "template": "CppMicroGemmFP32Vec"}


def pin_of(batch: int, **changes: Any) -> LibraryPin:
    """The pin of a product of so many matrices."""
    a = InputLayout.of("float32", (batch, 64, 96), (6144, 96, 1))
    b = InputLayout.of("float32", (batch, 96, 32), (3072, 32, 1))
    pin = LibraryPin(f"aten_bmm_{batch}", f"{batch}" * 16, "aten.bmm", (a, b), {}, TEMPLATE)
    return replace(pin, **changes)


PIN = pin_of(4)


needs_template = pytest.mark.usefixtures("with_vectors")


def run_with(
    pin: LibraryPin | tuple[LibraryPin, ...],
    folder: Path,
    cache: Path,
    function: str | dict[int, str] = PRODUCT,
    first: str = "",
) -> dict[str, PinState]:
    """The states of pins after a program ran with them.

    Args:
        pin: the pins.
        folder: for the program and what its process writes.
        cache: Inductor's.
        function: what the program compiles, by the number of matrices; 4 if it is one function.
        first: its first lines.
    """
    folder.mkdir(exist_ok=True)
    functions = function if isinstance(function, dict) else {4: function}
    texts = ", ".join(f"{batch}: {text}" for batch, text in functions.items())
    torch_version = str(torch.__version__)
    library = pin if isinstance(pin, tuple) else (pin,)
    pins = Pins(APPLY, digest_pins(library), torch_version, _triton_version(), library_pins=library)
    program = folder / "program.py"
    program.write_text(first + PROGRAM.replace("FUNCTIONS", f"{{{texts}}}"))
    variables = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache), "TORCHINDUCTOR_FX_GRAPH_CACHE": "1"}
    environment = make_pinned_environment(pins, folder / "work", variables, "nothing")
    changed = {name: value for name, value in environment.items() if value != os.environ.get(name)}
    ended = forking_python.run([str(program)], **changed)
    if ended.returncode < 0 and forking_python.run([str(program)]).returncode == ended.returncode:
        pytest.skip(f"this torch dies of signal {-ended.returncode} without pins, too")
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


GONE = {"backend": "gone"}
UNLISTED = "Inductor listed no such choice for the call"


@needs_template
def test_inductor_takes_the_choice_of_a_pin_and_its_caches_tell_it_too(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for name in ("first", "again"):
        states = run_with(PIN, tmp_path / name, cache, {4: PRODUCT, 2: PRODUCT})
        assert states == {PIN.kernel_id: PinState(PIN.kernel_id, PIN.name, PINNED, TEMPLATE)}
        (code,) = modules_in(cache)
        assert "extern_kernels.bmm" not in code and f"{PIN.kernel_id} {PINNED}" in code
    with_extern = [text for file in cache.rglob("*.py") if "extern_kernels.bmm(" in (text := file.read_text())]
    assert with_extern, "the product of other sizes stays a library call"


@needs_template
def test_calls_are_told_apart_by_sizes_layouts_and_settings(tmp_path: Path) -> None:
    added = "(lambda a, b, bias: torch.baddbmm(bias, a, b))"
    sums = f"(lambda a, b, bias: {' + '.join(f'(a + {place}) @ b' for place in range(3))})"
    transposed = InputLayout.of("float32", (2, 96, 32), (3072, 1, 96))
    pins = {
        2: pin_of(2, inputs=(pin_of(2).inputs[0], transposed)),
        3: pin_of(3, config=GONE),
        5: pin_of(5, operator="aten.baddbmm", settings={"beta": 2}),
        6: pin_of(6, operator="aten.baddbmm"),
        7: pin_of(7),
        8: pin_of(8),
    }
    same, other = pin_of(8, kernel_id="s" * 16), pin_of(8, kernel_id="o" * 16, config={"backend": "aten"})
    functions = {2: PRODUCT, 3: PRODUCT, 5: added, 6: added, 7: sums, 8: PRODUCT}
    cache = tmp_path / "cache"
    states = run_with((*pins.values(), same, other), tmp_path, cache, functions)
    assert not {pins[2].kernel_id, pins[5].kernel_id} & states.keys(), "another layout, another setting"
    refused = states[pins[3].kernel_id], states[pins[6].kernel_id]
    assert [(one.state, one.reason) for one in refused] == [(REFUSED, UNLISTED)] * 2, "what is added decides nothing"
    codes = {batch: [code for code in modules_in(cache) if pin.kernel_id in code] for batch, pin in pins.items()}
    assert [len(found) for found in codes.values()] == [0, 1, 0, 1, 1, 1]
    assert "extern_kernels.bmm(" in codes[3][0], "the call stays"
    assert states[pins[7].kernel_id].state == PINNED and len(read_marks(codes[7][0])) == 1
    assert [states[one.kernel_id].state for one in (pins[8], same, other)] == [PINNED, PINNED, REFUSED]
    assert pins[8].name in states[other.kernel_id].reason, "of two pins for one call the first is taken"


@pytest.mark.corner
@needs_template
def test_the_wrapper_in_cpp_runs_with_pins_too(tmp_path: Path) -> None:
    first = "from torch._inductor import config\nconfig.cpp_wrapper = True\n"
    refused = pin_of(2, config=GONE)
    states = run_with((PIN, refused), tmp_path, tmp_path / "cache", {4: PRODUCT, 2: PRODUCT}, first)
    assert [states[pin.kernel_id].state for pin in (PIN, refused)] == [PINNED, REFUSED]


def test_a_wrapper_that_is_no_text_has_no_mark(tmp_path: Path) -> None:
    first = "from torch._inductor import config\nconfig.fx_wrapper = True\n"
    refused = replace(PIN, config=GONE)
    states = run_with(refused, tmp_path, tmp_path / "cache", "(lambda a, b, bias: a @ b)", first)
    assert states[PIN.kernel_id].state == REFUSED, "the lowering tells it"
    assert not modules_in(tmp_path / "cache")


@pytest.mark.corner
@needs_template
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


@needs_template
def test_programs_with_settings_of_their_own_share_no_cache_with_those_without_pins(tmp_path: Path) -> None:
    first = f"import torch\n{TABLE}{TAG}"
    other = replace(PIN, kernel_id="o" * 16, operator="aten.nothing")
    for name, pin, expected in (("with", PIN, [PINNED]), ("without", other, [])):
        states = run_with(pin, tmp_path / name, tmp_path / "cache", first=first)
        assert [state.state for state in states.values()] == expected
    made = [text for file in (tmp_path / "cache").rglob("*.py") if "extern_kernels.bmm(" in (text := file.read_text())]
    assert len(made) == 1, "without the pin it is a library call"


def test_settings_are_held_against_each_other_by_their_names() -> None:
    assert list_settings("aten.convolution", {"3": (2, 2), "transposed": 0}) == {"stride": [2, 2], "transposed": 0}
    assert list_settings("aten.mm", {"layout": None}) == {}
    import sympy

    typed = list_settings("aten.mm", {"2": torch.float32, "device": torch.device("cpu"), "size": sympy.Integer(3)})
    assert typed == {"2": "float32", "device": "cpu", "size": 3}


@needs_template
def test_a_choice_of_the_exhaustive_search_is_found_in_the_usual_list_too(tmp_path: Path) -> None:
    first = """
from torch._inductor import config, select_algorithm
from inductor_bench.worker.upstream import pinning
autotuned = pinning.lowering_with_max_autotune
def watched(choose, *, exhaustive):
    print("exhaustive", exhaustive)
    return autotuned(choose, exhaustive=exhaustive)
pinning.lowering_with_max_autotune = watched
"""
    usual, gone = pin_of(4, exhaustive=True), pin_of(2, exhaustive=True, config=GONE)
    states = run_with((usual, gone), tmp_path, tmp_path / "cache", {4: PRODUCT, 2: PRODUCT}, first)
    assert states[usual.kernel_id].state == PINNED and states[gone.kernel_id].reason == UNLISTED
    listed = (tmp_path / "out.txt").read_text().split("\n")[:-1]
    assert listed == ["exhaustive False", "exhaustive False", "exhaustive True"]


@needs_template
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
        assert state.state == REFUSED and state.reason.startswith("the code with this config failed here: ")
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
    assert (tmp_path / "out.txt").read_text().split() == ["InductorError"]


@needs_template
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
from inductor_bench.worker.capture import pinned
def fail(*_):
    raise AttributeError("as an unknown node of Inductor does")
pinned.pinning.list_layouts = fail
"""
    state = run_with(PIN, tmp_path, tmp_path / "cache", first=first)[PIN.kernel_id]
    assert state.reason == "it failed here: AttributeError: as an unknown node of Inductor does"
    assert "extern_kernels.bmm(" in modules_in(tmp_path / "cache")[0]


def test_single_pixels_with_adjacent_channels_are_a_product() -> None:
    pixels = InputLayout.of("float16", (8, 64, 56, 56), (200704, 1, 3584, 64))
    weight = InputLayout.of("float16", (64, 64, 1, 1), (64, 1, 1, 1))
    pin = LibraryPin("aten_convolution_0", "c" * 16, "aten.convolution", (pixels, weight), {}, TEMPLATE)
    flat = [InputLayout.of("float16", (25088, 64), (64, 1)), InputLayout.of("float16", (64, 64), (1, 64))]
    assert _has_layouts(pin, flat) and _has_layouts(pin, [pixels, weight])
    assert not _has_layouts(pin, [replace(flat[0], stride=(1, 25088)), flat[1]])
    planes = replace(pixels, stride=(200704, 3136, 56, 1))
    assert not _has_layouts(replace(pin, inputs=(planes, weight)), flat)


def test_what_is_added_to_a_product_is_no_factor() -> None:
    assert list_factors("aten.addmm", ["bias", "a", "b"]) == list_factors("aten.mm", ["a", "b"]) == ["a", "b"]
    assert list_factors("aten.convolution", ["x", "weight", "bias"]) == ["x", "weight"]


def test_strides_of_single_elements_mean_nothing() -> None:
    assert InputLayout.of("bfloat16", (1, 2048), (0, 1)) == InputLayout.of("bfloat16", (1, 2048), (2048, 1))

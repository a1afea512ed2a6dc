"""Edited kernels in the kernels of a process: what they replace, what they say, and what is launched."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from breakdown_runs import H200

from inductor_bench.messages.observed import COMPARE, PINNED, REFUSED, REPLACED, UNUSED, Pins
from inductor_bench.records.edit import CPP, TRITON, EditPin
from inductor_bench.source.edit_rules import find_template_choice
from inductor_bench.source.edited import read_passed_form
from inductor_bench.source.generated_text import compute_cpp_kernel_id, compute_family_id, compute_triton_kernel_id
from inductor_bench.source.module_reader import read_module
from inductor_bench.store import codec
from inductor_bench.worker.capture.edited_kernels import (
    NOT_RUN,
    UNLIKE,
    EditedAutotuner,
    EditedSources,
    compile_triton,
    compile_words,
    make_source,
)
from inductor_bench.worker.capture.pinned import PinnedCppKernel

BREAKS = H200 / "programs" / "breaks" / "6.py.gz"
KERNEL = next(iter(read_module(gzip.decompress(BREAKS.read_bytes()).decode()).kernels))
SOURCE = read_passed_form(TRITON, KERNEL.source)
TEMPLATE = H200 / "tem" / "module_0.py.gz"
DESCRIBED = (
    "ACC_TYPE='tl.float32', ALLOW_TF32=False, BLOCK_K=64, BLOCK_M=128, BLOCK_N=128, EVEN_K=True, GROUP_M=8, "
    "USE_FAST_ACCUM=False, num_stages=5, num_warps=8"
)
ELSEWHERE = KERNEL.name.replace("_0", "_7")
"""The kernel's name in a program in which it has another number."""

CPP_SOURCE = """
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const float* in_ptr0, float* out_ptr0)
{
    for (int64_t x0 = 0; x0 < 1024L; x0 += 1L) out_ptr0[x0] = in_ptr0[x0] + 1.0f;
}
"""


def edit_of(language: str, name: str, source: str, edited: str) -> EditPin:
    kernel_id = compute_triton_kernel_id(source) if language == TRITON else compute_cpp_kernel_id(source)
    return EditPin(name, kernel_id, compute_family_id(language, source, name), language, edited, "mine.py")


EDIT = edit_of(TRITON, KERNEL.name, SOURCE, SOURCE.replace("libdevice.erf(", "tl.cos("))


@dataclass
class Autotuner:
    """Notes what runs."""

    name: str
    ran: list[str] = field(default_factory=list)
    launchers: list[Any] = field(default_factory=list)

    def run(self, *arguments: Any, stream: int) -> None:
        self.ran.append(self.name)


def test_a_kernel_is_known_by_its_source_whatever_its_name_and_its_device() -> None:
    edits = EditedSources([EDIT])
    elsewhere = SOURCE.replace(KERNEL.name, ELSEWHERE).replace("index=0", "index=3")
    assert edits.find(TRITON, elsewhere, ELSEWHERE) is EDIT
    assert edits.find(CPP, elsewhere) is None, "no C++ kernel is edited"
    assert edits.states([]) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "is_noted"),
    [
        (KERNEL.name, "libdevice.exp(", "libdevice.exp2(", True),  # the program has changed
        (ELSEWHERE, "2048", "4096", True),  # other sizes
        (ELSEWHERE, "libdevice.exp(", "libdevice.exp2(", False),  # any other kernel
    ],
)
def test_a_kernel_with_another_source_keeps_it_and_is_named(name: str, old: str, new: str, is_noted: bool) -> None:
    edits = EditedSources([EDIT])
    assert edits.find(TRITON, SOURCE.replace(KERNEL.name, name).replace(old, new), name) is None
    states = edits.states([])
    assert [(one.state, one.reason) for one in states] == ([(REFUSED, UNLIKE)] if is_noted else [])
    edits.find(TRITON, SOURCE, KERNEL.name)
    found = SimpleNamespace(kernel_id=EDIT.kernel_id)
    assert edits.states([found]) == [], "the program has the kernel, and another that is like it"  # type: ignore[list-item]


def test_another_choice_of_max_autotune_is_named_with_what_leaves_it_that_of_the_run() -> None:
    """``DESCRIBED`` is how Inductor describes the choice with which the kernel was recorded."""
    kernels = read_module(gzip.decompress(TEMPLATE.read_bytes()).decode()).kernels
    (kernel,) = (one for one in kernels if find_template_choice(one.source))
    source = read_passed_form(TRITON, kernel.source)
    edits = EditedSources(
        [replace(edit_of(TRITON, kernel.name, source, "edited"), choice=find_template_choice(source))]
    )
    here = source.replace("BLOCK_K : tl.constexpr = 64", "BLOCK_K : tl.constexpr = 32").replace("warps=8", "warps=4")
    assert edits.find(TRITON, here, kernel.name) is None
    (state,) = edits.states([])
    assert "here BLOCK_K=32, BLOCK_M=128, BLOCK_N=128, GROUP_M=8, num_stages=5, num_warps=4. " in state.reason
    found = re.search(r"autotune_choice_desc_regex = '(.+)' allows only", state.reason)
    assert found is not None
    others = [DESCRIBED.replace("BLOCK_K=64", "BLOCK_K=32"), DESCRIBED.replace("num_warps=8", "num_warps=4")]
    assert [bool(re.search(found[1], one)) for one in (DESCRIBED, "", *others)] == [True, True, False, False]
    assert edits.find(TRITON, source.replace("4096", "2048"), kernel.name) is None
    assert [one.reason for one in edits.states([])] == [UNLIKE], "the same choice for other sizes"


def test_a_cpp_kernel_of_other_sizes_is_named() -> None:
    edits = EditedSources([edit_of(CPP, "cpp_fused_add_0", CPP_SOURCE, CPP_SOURCE.replace("1.0f", "2.0f"))])
    assert edits.find(CPP, CPP_SOURCE.replace("1024L", "2048L")) is None
    (state,) = edits.states([])
    assert state.reason == UNLIKE
    assert edits.find(CPP, CPP_SOURCE) is not None


def test_the_edited_source_takes_the_name_and_what_the_caller_relies_on() -> None:
    """The caller's module knows the kernel by its name; its device, and its settings, are those of this process."""
    own = SOURCE.replace(KERNEL.name, ELSEWHERE).replace("index=0", "index=3").replace("'num_load': 2", "'num_load': 9")
    text = make_source(EDIT, ELSEWHERE, own)
    assert text == own.replace("libdevice.erf(", "tl.cos("), "nothing else differs"
    unchanged = edit_of(TRITON, KERNEL.name, SOURCE, SOURCE)
    assert make_source(unchanged, ELSEWHERE, own) == own


def test_a_kernel_runs_its_edit_and_inductors_source_in_turn() -> None:
    own, tuned = Autotuner("own"), Autotuner("edited")
    kernel = EditedAutotuner(EDIT, ELSEWHERE, tuned, own)
    own.run(stream=0)
    assert kernel.state().state == REPLACED
    kernel.switch_config(True)
    assert kernel.state().state == UNUSED and kernel.state().reason == NOT_RUN
    own.run(stream=0)
    own.run(stream=0)
    assert kernel.state().state == PINNED and kernel.state().event_name == ELSEWHERE
    assert own.run == tuned.run, "later launches take no detour"
    kernel.switch_config(True)
    assert own.run == tuned.run
    kernel.switch_config(False)
    own.run(stream=0)
    assert own.ran == ["own", "own"] and tuned.ran == ["edited"] * 2


def launcher(warps: int) -> Any:
    return SimpleNamespace(config=SimpleNamespace(kwargs={"XBLOCK": 8}, num_warps=warps, num_stages=1))


@pytest.mark.parametrize(("keeps", "chosen", "warps"), [(True, [4], [4]), (False, [4], [2, 4]), (True, [2, 4], [2, 4])])
def test_an_edit_with_the_same_hints_takes_the_config_that_inductor_has_chosen(
    keeps: bool, chosen: list[int], warps: list[int]
) -> None:
    """Else two configs that take equally long would be a difference between the sources."""
    own, tuned = Autotuner("own", launchers=list(map(launcher, chosen))), Autotuner("edited")
    tuned.launchers = [launcher(2), launcher(4)]
    kernel = EditedAutotuner(EDIT, ELSEWHERE, tuned, own, keeps_config=keeps)
    kernel.switch_config(True)
    own.run(stream=0)
    assert tuned.ran == ["edited"]
    assert [one.config.num_warps for one in tuned.launchers] == warps


def test_other_hints_let_inductor_choose() -> None:
    hinted = SOURCE.replace("    filename=__file__", "    min_elem_per_thread=4,\n    filename=__file__")
    for source, keeps in ((EDIT.source, True), (hinted, False)):
        edit = edit_of(TRITON, KERNEL.name, SOURCE, source)
        _, join = compile_triton(edit, Compiler(), KERNEL.name, SOURCE, compares=True)
        assert join().keeps_config is keeps


@pytest.mark.parametrize("compares", [False, True])
def test_an_unchanged_source_is_the_same_object_and_runs_once_a_launch(compares: bool) -> None:
    same = Autotuner("same")
    kernel = EditedAutotuner(EDIT, ELSEWHERE, same, same if compares else None)
    for tuned in (False, True, False, True):
        kernel.switch_config(tuned)
        same.run(stream=0)
        assert kernel.state().state == (PINNED if tuned or not compares else REPLACED)
    assert same.ran == ["same"] * 4


@dataclass
class Compiler:
    """Compiles each source to an autotuner of its name; an edited one fails now, later or not."""

    fails: str = ""
    compiled: list[str] = field(default_factory=list)

    def __call__(self, source: str) -> Any:
        what = "edited" if "tl.cos(" in source else "own"
        self.compiled.append(what)
        if what == "edited" and self.fails == "now":
            raise SyntaxError("invalid syntax")
        return SimpleNamespace(result=lambda: self._result(what), future="work")

    def _result(self, what: str) -> Autotuner:
        if what == "edited" and self.fails:
            raise RuntimeError(
                "A worker failed:\n  triton.CompilationError: at 3:7:\nNameError('tmp99 is not defined')\n"
            )
        return Autotuner(what)


@pytest.mark.parametrize("compares", [False, True])
@pytest.mark.parametrize("fails", ["", "now", "later"])
def test_an_edit_that_does_not_compile_leaves_the_original(fails: str, compares: bool) -> None:
    compiler = Compiler(fails)
    future, join = compile_triton(EDIT, compiler, KERNEL.name, SOURCE, compares=compares)
    kernel = join()
    assert (kernel.own is not None) is bool(compares or fails)
    assert compiler.compiled == (["edited", "own"] if compares or fails else ["edited"])
    if fails:
        kernel.switch_config(True)
        assert kernel.state().state == REFUSED
        assert ("SyntaxError: invalid syntax" if fails == "now" else "tmp99 is not defined") in kernel.state().reason
    else:
        assert future == "work", "Inductor may wait for it"


def test_an_edited_cpp_kernel_says_whether_it_was_called() -> None:
    edit = edit_of(CPP, "cpp_fused_add_0", CPP_SOURCE, CPP_SOURCE)
    kernel = PinnedCppKernel(edit, tuned=lambda: "edited")
    assert kernel.state().state == UNUSED
    assert kernel() == "edited" and kernel.state().state == PINNED


def test_the_words_of_a_compiler_are_those_of_its_first_error() -> None:
    said = "C++ compile error\n\nOutput:\nx.cpp:3:1: warning: w\nx.cpp:7:2: error: no member 'a'\nx.cpp:9:2: error: b"
    assert compile_words(RuntimeError(said)) == "it did not compile here: RuntimeError: error: no member 'a'"
    assert compile_words(ValueError()) == "it did not compile here: ValueError"
    assert len(compile_words(ValueError("x" * 9999))) < 300


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton")
def test_inductor_compiles_an_edited_triton_kernel_in_the_place_of_its_own(tmp_path: Path) -> None:
    import torch
    import triton

    pins = Pins(COMPARE, "digest", torch.__version__, triton.__version__, edits=(EDIT,))
    (tmp_path / "pins.json").write_text(json.dumps(codec.encode(pins)))
    (tmp_path / "kernel.py").write_text(SOURCE.replace(KERNEL.name, ELSEWHERE).replace("index=0", "index=3"))
    variables = {
        "CUDA_VISIBLE_DEVICES": "",
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "INDUCTOR_BENCH_CAPTURE": str(tmp_path),
        "INDUCTOR_BENCH_OBSERVE": "nothing",
        "INDUCTOR_BENCH_PINS": str(tmp_path / "pins.json"),
    }
    script = Path(__file__).parent.parent / "support" / "edited_offline.py"
    command = [sys.executable, str(script), str(tmp_path / "kernel.py"), ELSEWHERE]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables}, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    stages = json.loads(ended.stdout.splitlines()[-1])
    assert stages["name"] == ELSEWHERE and stages["device"] == 3
    assert stages["first"] == stages["own"] == ["own"] * 2 and stages["tuned"] == ["edited"] * 2
    assert stages["state of tuned"]["state"] == PINNED and stages["state of tuned"]["event_name"] == ELSEWHERE
    assert stages["state of own"]["state"] == REPLACED

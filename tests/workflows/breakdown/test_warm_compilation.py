"""A second breakdown takes what the first one compiled, and says the same. On a CPU, with real compilations."""

from __future__ import annotations

import functools
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import breakdown_runs as runs
import forking_python
import pytest

from inductor_bench.records.code import AOT_AUTOGRAD, DYNAMO, KERNELS, LOWERING, CompilePhase
from inductor_bench.source.compile_log import FrameCompilation
from inductor_bench.source.structured_trace import StructuredTrace
from inductor_bench.workflows.modules.compile_environment import CompileTimes, choose_cache_place, compile_times

TINY = """\
import torch


def tiny(x):
    return torch.softmax(x.sin() * 2, -1)


compiled = torch.compile(tiny)
for _ in range(3):
    compiled(torch.ones(128, 512))
print("ended well")
"""


def break_down(name: str, cache: Path, *words: str | Path) -> runs.Done:
    """Breaks a program down, with a folder of its own for what the tool keeps for later runs."""
    if not cache.exists():
        cache.mkdir()
        (cache / "peaks").symlink_to(runs.tool_cache() / "peaks")
    return runs.breakdown(cache.parent / name, *words, INDUCTOR_BENCH_CACHE=cache)


def compiled_files(cache: Path) -> list[Path]:
    """What torch compiled into the places of a cache."""
    return [path for path in (cache / "compiled").rglob("*") if path.is_file() and path.parent.name != "compiled"]


def observed(done: runs.Done) -> dict[str, Any]:
    """All that a record says, apart from what was timed."""
    kernel_keys = ("name", "kernel_id", "family_id", "category", "line", "file", "source_lines", "source_nodes")
    module_keys = ("label", "slug", "role", "device", "method", "method_reason", "dynamic", "program_calls", "file")
    capture_keys = ("printed", "structured", "disagreement", "exit_code", "graph_breaks", "recompiles")
    return {
        "failures": done.record["failures"],
        "capture": [done.record["capture"][key] for key in capture_keys],
        "modules": [[module[key] for key in module_keys] for module in done.record["modules"]],
        "kernels": sorted(
            [module["label"], *(str(kernel[key]) for key in kernel_keys)]
            for module in done.record["modules"]
            for kernel in module["kernels"]
        ),
        "texts": {path.name: path.read_text() for path in (done.folder / "modules").iterdir()},
        "files": sorted(path.name for path in (done.folder / "kernels").iterdir()),
    }


@functools.cache
def training() -> tuple[runs.Done, runs.Done]:
    """The first and a second breakdown of a training program with a graph break and recompilations."""
    return runs.training(), runs.training_again()


makes_training = pytest.mark.xdist_group("captures")
"""For tests that look at runs which this group makes."""


@makes_training
@pytest.mark.slow
def test_the_second_breakdown_says_what_the_first_one_said() -> None:
    first, second = training()
    assert first.code == second.code == 0
    assert observed(first)["capture"][:3] == [6, 6, ""] and len(first.record["modules"]) == 6
    assert observed(second) == observed(first)
    assert first.record["capture"]["compiled_earlier"] == 0 and first.record["capture"]["compiled_at"] == ""


@makes_training
@pytest.mark.slow
def test_the_second_breakdown_compiles_nothing_and_tells_the_times_of_the_first() -> None:
    first, second = training()
    log = (second.folder / "logs" / "program.log").read_text()
    assert "Compiled module path" not in log and "loss is finite: True" in log
    capture = second.record["capture"]
    assert capture["compiled_earlier"] == 6 and capture["compiled_at"] > first.record["created"]
    before, after = (
        {phase["name"]: phase["time_s"] for phase in done.record["capture"]["compile_phases"]}
        for done in (first, second)
    )
    for phase in (KERNELS, LOWERING, AOT_AUTOGRAD):
        assert after[phase] == pytest.approx(before[phase])


@makes_training
@pytest.mark.slow
def test_no_file_of_a_run_depends_on_the_cache() -> None:
    first, cache = runs.training(), runs.tool_cache()
    for folder in ("kernels", "modules"):
        assert not [path.name for path in (first.folder / folder).iterdir() if str(cache) in path.read_text()]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "tiny.py").write_text(TINY)
    return tmp_path / "tiny.py"


@pytest.mark.slow
def test_lines_that_have_moved_are_those_of_the_program_as_it_is(program: Path, tmp_path: Path) -> None:
    lines = []
    for name in ("before", "after"):
        done = break_down(name, tmp_path / "cache", program)
        assert done.record["capture"]["compiled_earlier"] == 0
        (module,) = done.record["modules"]
        lines.append({line["line"] for kernel in module["kernels"] for line in kernel["source_lines"]})
        program.write_text(f"# a comment\n{TINY}")
    assert lines == [{5}, {6}]


@pytest.mark.corner
@pytest.mark.slow
def test_two_breakdowns_at_once_write_one_cache_and_damaged_files_are_compiled_again(
    program: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "peaks").symlink_to(runs.tool_cache() / "peaks")
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda name: break_down(name, cache, program), ("first", "second"))
    third = break_down("third", cache, program)
    files = compiled_files(cache)
    assert {path.suffix for path in files} >= {".so", ".py", ".cpp"}
    for path in files:
        path.write_bytes(bytes(path.stat().st_size))
    fourth = break_down("fourth", cache, program)
    assert [done.code for done in (first, second, third, fourth)] == [0] * 4
    assert observed(first) == observed(second) == observed(third) == observed(fourth)
    assert [done.record["capture"]["compiled_earlier"] for done in (third, fourth)] == [1, 0]
    assert third.record["capture"]["compiled_earlier"] == 1


@pytest.mark.slow
def test_a_cold_breakdown_and_one_without_a_usable_cache_compile_everything(program: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cold = break_down("cold", cache, program, "--cold")
    assert cold.code == 0 and cold.record["request"]["cold"] is True
    assert not (cache / "compiled").exists()
    (cache / "compiled").touch()
    without = break_down("without", cache, program)
    assert without.code == 0 and "everything is compiled:" in without.stderr
    assert observed(without) == observed(cold) and cold.record["capture"]["compiled_earlier"] == 0


@pytest.mark.slow
def test_a_folder_that_the_program_chose_is_used_as_ever(program: Path, tmp_path: Path) -> None:
    chosen = tmp_path / "chosen"
    words = ("--", "env", f"TORCHINDUCTOR_CACHE_DIR={chosen}", forking_python.interpreter(), program)
    done = break_down("run", tmp_path / "cache", *words)
    assert done.code == 0 and done.record["modules"][0]["source_path"].startswith(str(chosen))
    assert not (chosen / "fxgraph").exists() and not (chosen / "aotautograd").exists()


def trace(*compilations: FrameCompilation) -> StructuredTrace:
    return StructuredTrace(compilations=compilations, compile_phases=(CompilePhase(DYNAMO, 99.0),))


def compilation(compiled: str, cached: str, process: int = 0, **seconds: float) -> FrameCompilation:
    """A compilation whose modules have names of one letter."""
    phases = tuple(CompilePhase(name, time_s) for name, time_s in seconds.items())
    return FrameCompilation(
        process, *(tuple(f"/c/{name}.py" for name in names) for names in (compiled, cached)), phases
    )


def times_of(found: CompileTimes) -> dict[str, float]:
    return {phase.name: phase.time_s for phase in found.phases}


def test_a_compilation_takes_what_it_took_when_it_was_made(tmp_path: Path) -> None:
    first = compile_times(trace(compilation("ab", "", Dynamo=1, K=5), compilation("", "", Dynamo=2)), tmp_path)
    assert times_of(first) == {"Dynamo": 3, "K": 5} and first.cached == () and first.compiled_at == ""
    again = compile_times(trace(compilation("", "ba", Dynamo=3, K=1), compilation("", "", Dynamo=1)), tmp_path)
    assert times_of(again) == {"Dynamo": 2, "K": 5} and again.cached == ("/c/b.py", "/c/a.py") and again.compiled_at


def test_a_module_that_this_run_compiled_was_not_compiled_earlier(tmp_path: Path) -> None:
    one = compile_times(trace(compilation("a", "", K=5), compilation("", "a", K=1)), tmp_path)
    assert times_of(one) == {"K": 6} and one.cached == ()
    again = compile_times(trace(compilation("", "a", K=1), compilation("", "a", K=1)), tmp_path)
    assert times_of(again) == {"K": 6} and again.cached == ("/c/a.py",)


def test_a_backward_graph_that_is_new_adds_to_its_forward_graph(tmp_path: Path) -> None:
    compile_times(trace(compilation("f", "", K=5)), tmp_path)
    for compiled, cached in (("b", "f"), ("", "fb")):
        found = compile_times(trace(compilation(compiled, cached, K=2)), tmp_path)
        assert times_of(found) == {"K": 7} and found.cached[0] == "/c/f.py"


def test_the_process_counts_that_compiled_longest(tmp_path: Path) -> None:
    both = (compilation("a", "", 0, K=5), compilation("b", "", 1, K=2), compilation("c", "", 1, L=4))
    assert times_of(compile_times(trace(*both), tmp_path)) == {"L": 4, "K": 2}


def test_times_that_are_not_known_are_not_told(tmp_path: Path) -> None:
    found = compile_times(trace(compilation("", "a", K=1), compilation("b", "", K=1)), tmp_path)
    assert found == CompileTimes((), ("/c/a.py",), "")
    compile_times(trace(compilation("a", "", K=1)), tmp_path)
    for path in (tmp_path / "known").iterdir():
        path.write_text("{")
    assert compile_times(trace(compilation("", "a", K=1)), tmp_path).phases == ()


def test_without_a_cache_the_trace_tells_the_times(tmp_path: Path) -> None:
    assert times_of(compile_times(trace(compilation("a", "", K=5)), None)) == {"Dynamo": 99.0}


def test_a_place_is_named_by_torch_and_by_what_decides_about_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    place = choose_cache_place(sys.executable, tmp_path, {})
    assert place.startswith(f"torch-{torch.__version__.replace('+', '-')}-")
    assert choose_cache_place(sys.executable, tmp_path, {"TORCH_TRACE": "x", "SEED": "3"}) == place
    assert choose_cache_place(sys.executable, tmp_path, {"TORCHINDUCTOR_MAX_AUTOTUNE": "1"}) != place
    monkeypatch.setenv("CXX", "another-compiler")
    assert choose_cache_place(sys.executable, tmp_path, {}) != place
    assert choose_cache_place("/bin/false", tmp_path, {}) == ""

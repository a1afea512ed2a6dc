"""Blocks of a real process that are observed from within: their RUNs, and the process after them."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from typing import Any

import breakdown_runs as runs
import forking_python
import pytest

import inductor_bench
from inductor_bench.cli.main import main
from inductor_bench.records.run import GRAPH
from inductor_bench.store.folder import RunFolder

pytestmark = pytest.mark.slow


@functools.cache
def blocks() -> tuple[Path, dict[str, Any]]:
    """The folder of ``tests/programs/blocks.py``, and what it saw."""
    folder = runs.scratch() / "blocks"
    folder.mkdir()
    variables = {**runs.forks(), "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    ended = forking_python.run([str(runs.PROGRAMS / "blocks.py"), str(folder)], **variables)
    assert ended.returncode == 0 and "Traceback" not in ended.stderr, ended.stderr
    assert "Compiled module path" not in ended.stderr
    return folder, json.loads((folder / "seen.json").read_text())


def test_a_block_gives_what_a_breakdown_gives() -> None:
    folder, seen = blocks()
    run = RunFolder(folder / "whole").load()
    assert seen["measured"] and run.failures == ()
    assert run.program is not None and run.program.step_source == "optimizer" and run.program.parts
    assert [module.label for module in run.modules] == ["forward", "backward"]
    assert seen["step_time_s"] == run.program.step_time_s > 0
    assert seen["cpp"] >= 2 and seen["products"] == 5 and seen["all"] > 0
    kernels = [kernel for module in run.modules for kernel in module.kernels]
    assert {"Sequential.0", "Sequential.3"} <= {layer for kernel in kernels for layer in kernel.origin.layers}
    assert run.program.layers and run.capture.compile_phases
    places = [one.source for one in (*run.program.parts, *run.program.lines) if one.source is not None]
    assert any(one.file.endswith("blocks.py") for one in places), "which line has a part of its own depends on the load"
    assert run.command == "inductor_bench.observe(…)" and not (folder / "whole" / ".work").exists()


def test_a_model_of_torchs_own_modules_has_the_line_that_calls_it() -> None:
    folder, _ = blocks()
    run, code = RunFolder(folder / "whole").load(), "compiled(inputs).pow(2).mean().backward()"
    assert run.program is not None
    rows = [one for one in run.program.lines if one.kind == GRAPH and one.direction]
    assert {one.called_at.code for one in rows if one.called_at} == {code} and all(one.called_at for one in rows)
    assert {one.direction for one in rows} >= {"forward", "backward"}
    kernels = [kernel for module in run.modules for kernel in module.kernels]
    assert {tuple(line.function for line in one.origin.called_at) for one in kernels} == {("train",)}


def test_a_run_shows_itself() -> None:
    _, seen = blocks()
    assert seen["headline"].rstrip(".") in " ".join(seen["screen"].split())
    assert "Where the step goes" in seen["screen"] and "cpp_fused" in seen["screen"]
    assert seen["headline"] in seen["page"].replace("&#x27;", "'") and "<td>backward</td>" in seen["page"]
    assert "has not come to its end" in seen["early"]


def test_the_run_of_a_block_is_read_like_any_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, _ = blocks()
    copy = shutil.copytree(folder / "whole", tmp_path / "run")
    assert main(["report", str(copy), "--brief"]) == 0 and main(["breakdown", str(copy), "--brief"]) == 0
    assert capsys.readouterr().out.count("## Where the step goes") == 2
    compared = inductor_bench.compare(folder / "whole", copy)
    assert compared.comparable and compared.step.delta_s == 0 and compared.verdict != "slower"


def test_the_process_is_as_it_was_before() -> None:
    _, seen = blocks()
    assert seen["undone"] and seen["undone again"]


def test_a_block_within_another_is_refused() -> None:
    folder, seen = blocks()
    assert "another observe() has not ended" in seen["nested"] and not (folder / "nested").exists()


def test_the_programs_own_profiler_and_its_exception_are_left_alone() -> None:
    folder, seen = blocks()
    assert seen["raised"] == "the training failed" and seen["own events"] > 100
    said = " ".join(seen["profiled"])
    assert "no step was timed: the program's own profiler ran, which may slow its steps; leave it out" in said
    assert "the block ended with RuntimeError: the training failed" in said
    assert RunFolder(folder / "profiled").load().program is None


def test_what_was_compiled_before_is_told() -> None:
    _, seen = blocks()
    (warning,) = [text for text in seen["warned"] if "compiled before observe() began" in text]
    assert warning.startswith("2 of 2 graphs")


def test_a_kernel_that_dies_leaves_a_run_that_says_so() -> None:
    _, seen = blocks()
    message, hint = seen["in use"]
    assert "holds an earlier run" in message and hint == "replace it with force=True, or choose another folder"


def test_a_block_that_an_exception_left_gives_way() -> None:
    _, seen = blocks()
    left, following = seen["left"]
    assert "another block began before its end" in left and "KeyError" in following


def test_only_the_first_rank_is_observed() -> None:
    folder, seen = blocks()
    assert seen["other rank"] == ["rank 1 is not observed: observe() measures rank 0 of a program", False, None]
    assert not (folder / "other").exists()

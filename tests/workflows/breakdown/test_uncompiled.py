"""Programs without a compiled graph: their steps, and the reason why nothing was compiled."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import breakdown_runs as runs
import forking_python
import pytest

from inductor_bench.messages.observed import UNCOMPILED, CompileCall, CompileUse
from inductor_bench.records.evidence import DONE, TIMING, ObservedSteps
from inductor_bench.records.run import MARKS, OPTIMIZER_STEPS
from inductor_bench.source.compile_log import SkippedFrame, read_skipped_frame
from inductor_bench.store import codec
from inductor_bench.workflows.modules import observed_files
from inductor_bench.workflows.modules.compile_environment import SITE
from inductor_bench.workflows.modules.observed_files import (
    PATIENCE_S,
    SETTLE_S,
    StepWatch,
    explain_uncompiled,
    read_steps,
    read_uses,
)

PROGRAM = runs.PROGRAMS / "uncompiled.py"


def in_one_line(text: str) -> str:
    return " ".join(text.split())


@functools.cache
def broken_loop() -> runs.Done:
    return runs.breakdown(runs.scratch() / "broken-loop", PROGRAM, "--", "loop", "120")


@pytest.mark.slow
def test_the_first_line_says_the_step_and_the_construct_that_dynamo_skips() -> None:
    done = broken_loop()
    first = in_one_line(done.stdout).partition(" The step: ")[0]
    assert done.code == 0 and "Failed" not in done.stdout and done.record["failures"] == []
    assert " a step (optimizer steps; " in first
    assert (
        "nothing is compiled: Dynamo skips forward (programs/uncompiled.py:17): graph break in a loop at "
        "programs/uncompiled.py:21: Call to `torch._dynamo.graph_break()`." in first
    )


@pytest.mark.slow
def test_the_step_of_a_program_without_graphs_has_a_ledger() -> None:
    program = broken_loop().record["program"]
    kinds = {part["kind"] for part in program["parts"]}
    assert {"eager", "optimizer", "idle"} <= kinds and "graph" not in kinds
    assert sum(part["share"] for part in program["parts"]) == pytest.approx(1)
    assert program["first_step_time_s"] is None and broken_loop().record["modules"] == []
    assert (broken_loop().folder / "traces" / "step.trace.json.gz").is_file()


@pytest.mark.slow
def test_what_to_type_next_shows_the_graph_breaks() -> None:
    assert re.search(r"TORCH_LOGS=graph_breaks \S*python ", in_one_line(broken_loop().stdout)), "or what stands for it"
    again = runs.run(runs.command("breakdown", broken_loop().folder, "--no-plots"), broken_loop().folder)
    assert again.code == 0 and in_one_line(again.stdout).count("nothing is compiled: Dynamo skips forward") == 1


@pytest.mark.slow
def test_a_program_without_steps_fails_and_names_the_mark(tmp_path: Path) -> None:
    done = runs.breakdown(tmp_path / "run", PROGRAM, "--", "stepless", "20")
    (failure,) = done.record["failures"]
    assert done.code == 1 and failure["kind"] == "nothing-compiled"
    assert failure["message"] == "the program ended well but compiled nothing: torch.compile is never called"
    assert "inductor_bench.step()" in failure["hint"]


@pytest.mark.slow
def test_a_program_of_too_few_steps_fails_and_says_how_many_there_were(tmp_path: Path) -> None:
    done = runs.breakdown(tmp_path / "run", PROGRAM, "--", "never", "3")
    (failure,) = done.record["failures"]
    assert done.code == 1 and "none of its 3 steps was profiled" in failure["message"]
    assert "--skip 0 --steps 1" in failure["hint"]
    why = "a profile needs 7 steps after the last step that compiles, and there were 3; run 4 more steps"
    assert f"not profiled ({why}); nothing is compiled: torch.compile is never called" in in_one_line(done.stdout)


def observe(kind: str, steps: int, folder: Path, **variables: str) -> tuple[tuple[ObservedSteps, ...], str]:
    """The steps of a program without graphs, and why it has none, as its process tells it."""
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(runs.scratch() / "uncompiled-cache")}
    words = [str(PROGRAM), kind, str(steps)]
    ended = forking_python.run(words, INDUCTOR_BENCH_CAPTURE=folder, **cache, **variables)
    assert ended.returncode == 0 and "Traceback" not in ended.stderr, ended.stderr
    found = folder / UNCOMPILED
    return read_steps(found), explain_uncompiled(read_uses(found), (), ())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "variable", "why"),
    [
        ("never", "", "torch.compile is never called"),
        ("disable", "", "disable=True disables torch.compile at programs/uncompiled.py:35"),
        ("plain", "TORCHDYNAMO_DISABLE", "TORCHDYNAMO_DISABLE=1 disables torch.compile at programs/uncompiled.py:35"),
        ("plain", "TORCH_COMPILE_DISABLE", "TORCH_COMPILE_DISABLE=1 disables torch.compile"),
        ("config", "", "torch._dynamo.config.disable disables torch.compile"),
        ("stance", "", 'torch.compiler.set_stance("force_eager") leaves everything uncompiled'),
        (
            "backend",
            "",
            'torch.compile has backend="aot_eager" at programs/uncompiled.py:35, and not Inductor',
        ),
        ("uncalled", "", "Dynamo saw no call of what torch.compile returns at programs/uncompiled.py:35"),
        ("loop", "", ""),
    ],
)
def test_why_nothing_was_compiled(kind: str, variable: str, why: str, tmp_path: Path) -> None:
    (steps,), said = observe(kind, 12, tmp_path, INDUCTOR_BENCH_PROFILES="0", **({variable: "1"} if variable else {}))
    assert (steps.source, said, steps.graphs) == (OPTIMIZER_STEPS, why, ())


@pytest.mark.slow
def test_marks_delimit_the_steps_of_a_program_without_graphs(tmp_path: Path) -> None:
    (steps,), _ = observe("marks", 120, tmp_path)
    assert (steps.state, steps.source, steps.device) == (DONE, MARKS, "cpu") and steps.profiled_steps > 0


@pytest.mark.slow
def test_a_program_that_compiles_later_is_observed_by_its_graphs(tmp_path: Path) -> None:
    observe("late", 40, tmp_path, INDUCTOR_BENCH_PROFILES="0")
    (steps,) = read_steps(tmp_path)
    assert len(steps.graphs) == 2 and not list((tmp_path / UNCOMPILED).glob("*.compile.json"))


@pytest.mark.slow
def test_a_program_that_compiles_nothing_does_not_import_the_compiler(tmp_path: Path) -> None:
    program = "import sys, torch\nprint(sorted(n for n in sys.modules if n.startswith(('torch._dyn', 'torch._ind'))))\n"
    (tmp_path / "program.py").write_text(program)
    path = os.pathsep.join([str(SITE), runs.environment()["PYTHONPATH"]])
    settings = runs.environment(PYTHONPATH=path, INDUCTOR_BENCH_CAPTURE=tmp_path)
    ended = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=settings, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "[]\n", "")


METRICS = {"co_name": "forward", "co_filename": "/home/user/model.py", "co_firstlineno": 5, "graph_op_count": None}
SKIPPED = SkippedFrame("forward", "/home/user/model.py:5", "/home/user/model.py:8", "Call to `print`", in_loop=True)
USE = CompileUse(7, (CompileCall("/home/user/train.py:12", "inductor"),), frames=2)


def test_a_frame_with_a_graph_is_not_skipped() -> None:
    assert read_skipped_frame({**METRICS, "graph_op_count": 3}) is None
    assert read_skipped_frame({"co_name": None}) is None


def test_the_metrics_of_a_skipped_frame_name_the_construct() -> None:
    said = "Unsupported thing\n  Explanation: Dynamo does not support it.\n\ngraph break in loop"
    found = read_skipped_frame(
        METRICS
        | {"fail_type": "Unsupported", "fail_reason": said}
        | {"fail_user_frame_filename": "/home/user/model.py", "fail_user_frame_lineno": 8}
    )
    assert found == replace(SKIPPED, reason="Dynamo does not support it")


def test_damaged_metrics_are_no_frame_and_damaged_text_can_be_saved() -> None:
    assert read_skipped_frame({**METRICS, "co_firstlineno": "5"}) is None
    found = read_skipped_frame(METRICS | {"co_name": "f\ud800\0", "fail_type": 3, "fail_reason": ["x"]})
    assert found == SkippedFrame("f?", "/home/user/model.py:5")


def test_a_suppressed_error_of_the_compiler_keeps_its_kind() -> None:
    found = read_skipped_frame(METRICS | {"fail_type": "InductorError", "fail_reason": "KeyError: 'x'"})
    assert found is not None and (found.reason, found.cause) == ("InductorError: KeyError: 'x'", "")


def test_metrics_without_a_reason_take_it_from_the_graph_break() -> None:
    text = (
        "Graph break in user code at /home/user/model.py:8\nGraph Break Reason: Call to `print`\n  Explanation: No.\n"
    )
    found = read_skipped_frame(METRICS, text)
    assert found == replace(SKIPPED, in_loop=False)


def test_a_reason_is_only_given_if_it_was_observed() -> None:
    assert explain_uncompiled((), (), ()) == ""
    assert explain_uncompiled((USE,), (), ()) == ""
    assert explain_uncompiled((replace(USE, calls=(), frames=None),), (), ()) == ""
    assert explain_uncompiled((replace(USE, frames=None),), (), ()) == ""


def test_the_process_with_steps_tells_the_reason() -> None:
    helper = CompileUse(8, frames=0)
    assert explain_uncompiled((helper, USE), (SKIPPED,), {7}).startswith("Dynamo skips forward (user/model.py:5)")
    assert explain_uncompiled((helper, USE), (), {8}) == "torch.compile is never called"


def test_several_skipped_functions_are_counted_and_the_users_is_named() -> None:
    inner = SkippedFrame("inner", "/usr/lib/site-packages/torch/_dynamo/external_utils.py:3")
    assert explain_uncompiled((USE,), (inner, SKIPPED), ()) == (
        "Dynamo skips forward (user/model.py:5) and 1 more function: graph break in a loop at user/model.py:8: "
        "Call to `print`"
    )


def test_a_damaged_file_counts_as_missing(tmp_path: Path) -> None:
    (tmp_path / "7.compile.json").write_text("{")
    (tmp_path / "8.compile.json").write_text(json.dumps(codec.encode(replace(USE, pid=8))))
    assert [use.pid for use in read_uses(tmp_path)] == [8]


def test_a_program_without_graphs_is_ended_later_because_it_may_still_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr(observed_files.time, "monotonic", lambda: now_s)
    watch = StepWatch(tmp_path, stops=True, tell=lambda: None)
    measured = json.dumps(codec.encode(ObservedSteps(7, "cpu", DONE)))
    (tmp_path / UNCOMPILED).mkdir()
    (tmp_path / UNCOMPILED / "7.steps.json").write_text(measured)
    ended = []
    for now_s in (1.0, 1.0 + SETTLE_S, 0.9 + PATIENCE_S, 1.0 + PATIENCE_S):  # noqa: B007
        ended.append(watch.is_finished())
    assert ended == [False, False, False, True]
    (tmp_path / "7.steps.json").write_text(json.dumps(codec.encode(ObservedSteps(7, "cpu", TIMING))))
    assert not watch.is_finished(), "it compiles, and its steps are being timed"
    (tmp_path / "7.steps.json").write_text(measured)
    assert not watch.is_finished()
    now_s += SETTLE_S
    assert watch.is_finished()

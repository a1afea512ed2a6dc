"""The program's step without compilation: which runs tell it, what is said if none does, and a real one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import breakdown_runs as runs
import forking_python
import pytest
import step_runs

from inductor_bench.analysis.program_step import add_notes
from inductor_bench.launch.process import ProcessResult
from inductor_bench.records.base import Failure
from inductor_bench.records.evidence import DONE, WAITING, EagerSteps, ObservedSteps
from inductor_bench.records.run import MARKS, OPTIMIZER_STEPS, PATTERN, Run
from inductor_bench.store.folder import RunFolder
from inductor_bench.workflows import single_run
from inductor_bench.workflows.progress import Silent
from inductor_bench.workflows.single_run import NO_EAGER_STEPS, NO_PATTERN, list_eager_step_times_s, time_eager


def observed(*times_s: float, source: str = OPTIMIZER_STEPS) -> ObservedSteps:
    state = DONE if times_s else WAITING
    return ObservedSteps(1, "cuda", state, source=source, step_times_s=times_s, window_s=sum(times_s))


def timed(
    run: Run, folder: Path, patch: pytest.MonkeyPatch, ended: ProcessResult, found: Sequence[ObservedSteps]
) -> tuple[EagerSteps | None, tuple[Failure, ...]]:
    """Times a run without compilation, with the end of the program and what its processes observed."""
    patch.setattr(single_run, "run_program", lambda *arguments, **keywords: ended)
    patch.setattr(single_run, "read_steps", lambda place: tuple(found))
    made = RunFolder(folder)
    made.work.mkdir(parents=True)
    return time_eager(run.program, replace(run.request, kind="script"), made, {}, sys.executable, Silent())


def result(exit_code: int = 0, *, stopped: bool = False) -> ProcessResult:
    return ProcessResult(exit_code, None, False, 2.0, Path("eager.log"), stopped)


def test_the_slowest_process_tells_the_time() -> None:
    program = step_runs.transformer().program
    assert program is not None
    ranks = [observed(0.05, 0.06), observed(0.052, 0.062), observed()]
    assert list_eager_step_times_s(ranks, program) == pytest.approx((0.057, 0.057))
    assert list_eager_step_times_s([observed(0.05, source=MARKS)], program) is None, (
        "other steps than the compiled ones"
    )


def test_steps_without_compilation_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = step_runs.transformer()
    found, failures = timed(run, tmp_path, monkeypatch, result(stopped=True), [observed(0.05, 0.06)])
    assert found is not None and found.step_time_s == pytest.approx(0.055) and failures == ()
    assert run.program is not None and add_notes(run.program, 0, found).eager_step_time_s == found.step_time_s


@pytest.mark.parametrize(("code", "message"), [(0, NO_EAGER_STEPS), (3, "without compilation exited with code 3")])
def test_a_run_without_steps_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, message: str
) -> None:
    run = step_runs.transformer()
    found, (failure,) = timed(run, tmp_path, monkeypatch, result(code), [observed()])
    assert found is None and failure.stage == "eager" and failure.kind == "exit" and message in failure.message


def test_a_pattern_of_compiled_calls_has_no_steps_without_compilation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = step_runs.decode()
    assert run.program is not None and run.program.step_source == PATTERN
    found, failures = timed(run, tmp_path, monkeypatch, result(), [observed(0.05)])
    assert found == EagerSteps(note=NO_PATTERN) and failures == ()
    assert add_notes(run.program, 0, found).notes == (NO_PATTERN,)
    assert timed(replace(run, program=None), tmp_path / "none", monkeypatch, result(), [])[0] is None


ENDLESS = """
import time, inductor_bench, torch
torch.set_num_threads(1)
compiled, values = torch.compile(lambda values: values.sin().sum(-1)), torch.rand(512, 512)
while True:
    compiled(values)
    inductor_bench.step()
    time.sleep(0.002)  # leaves the cores to other tests
"""


@pytest.mark.slow
def test_a_program_is_timed_with_and_without_compilation_and_stopped(tmp_path: Path) -> None:
    endless = tmp_path / "endless.py"
    endless.write_text(ENDLESS)
    done = runs.breakdown(tmp_path / "run", "--stop", "--eager", "-v", "--", forking_python.interpreter(), endless)
    assert done.code == 0 and done.record["failures"] == [] and done.record["capture"]["exit_code"] == 0
    assert done.record["request"]["stop"] is True and done.record["request"]["eager"] is True
    assert [module["program_calls"] > 50 for module in done.record["modules"]] == [True]
    assert 0 < done.record["program"]["eager_step_time_s"] < 1
    phases = {phase["name"]: phase["time_s"] for phase in done.record["capture"]["compile_phases"]}
    assert {"Dynamo", "AOTAutograd", "Inductor's lowering", "compilers of kernels"} <= set(phases)
    assert 0 < sum(phases.values()) < done.record["capture"]["time_s"]
    assert "eager" in done.stdout
    assert "the steps are measured; the program is ended\n" in done.stderr and "goes on" not in done.stderr
    answer = " ".join(done.stderr.partition("Where the step goes")[2].split())
    assert "The program is ended now, and its graphs and kernels are measured; Ctrl-C leaves them out." in answer
    assert "when the program has ended" not in answer

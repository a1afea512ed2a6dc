"""Real programs in several modes: commands without a compiler, and a factory and a script that compile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import breakdown_runs as runs
import forking_python
import pytest
from program_traces import ProgramTraceBuilder

from inductor_bench.launch.process import ProcessResult
from inductor_bench.messages.observed import ModeReport
from inductor_bench.records.base import Failure, OtherProcess
from inductor_bench.records.comparison import ModeSet
from inductor_bench.records.evidence import DONE, GpuSharing, ObservedSteps
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.store.folder import ModesFolder
from inductor_bench.store.redaction import Redaction
from inductor_bench.workflows.progress import Silent
from inductor_bench.workflows.single_run import ProcessTurn, ProgramRunner, describe_process

SHARED = "another process used the GPU during its steps (python, pid 7, 35% of the time)"


@pytest.mark.parametrize(("round", "graphs", "said"), [(0, 2, ""), (1, 0, ""), (1, 2, "compiled 2 graphs again")])
def test_a_later_round_that_compiles_again_says_so(round: int, graphs: int, said: str, tmp_path: Path) -> None:
    steps = ObservedSteps(1, "cpu", DONE, step_times_s=(0.1, 0.1), window_s=0.2)
    place = ProcessTurn(0, "default", ModeSet("default"), round)
    ended = ProcessResult(0, None, False, 9.0, tmp_path / "log")
    found = describe_process(place, steps, ModeReport(calls=1, compiled_graphs=graphs), ended)
    assert said in " ".join(found.notes) and bool(found.notes) == bool(said)


def test_a_process_on_a_shared_gpu_says_so(tmp_path: Path) -> None:
    other = OtherProcess(7, "python", None, 0.35)
    ended = ProcessResult(0, None, False, 9.0, tmp_path / "log")
    for sharing, said in (
        (None, ()),
        (GpuSharing((replace(other, busy=0.01),)), ()),
        (GpuSharing((other,)), (SHARED,)),
    ):
        steps = ObservedSteps(1, "cuda", DONE, step_times_s=(0.1, 0.1), window_s=0.2, sharing=sharing)
        place = ProcessTurn(0, "default", ModeSet("default"), 0)
        assert describe_process(place, steps, ModeReport(calls=1), ended).notes == said


def test_the_compile_time_is_that_of_the_steps_that_compile(tmp_path: Path) -> None:
    settling = {"settled_after": 3, "settling_time_s": 10.0, "settling_steps_s": 4.0, "compiling_steps": 2}
    steps = ObservedSteps(1, "cpu", DONE, step_times_s=(0.1, 0.1), window_s=0.2, **settling)  # type: ignore[arg-type]
    ended = ProcessResult(0, None, False, 9.0, tmp_path / "log")
    found = describe_process(ProcessTurn(0, "default", ModeSet("default"), 0), steps, ModeReport(calls=1), ended)
    assert found.compile_time_s == pytest.approx(10 - 4 - 2 * 0.1)


@pytest.mark.parametrize(("step_s", "share"), [(100e-6, 0.4), (50e-6, 0.8), (30e-6, 1.0)])
def test_the_busy_share_is_that_of_the_timed_step(step_s: float, share: float, tmp_path: Path) -> None:
    """The profiled step takes 100 µs; the device works for 40 µs of it, and for 40 µs of the timed one."""
    trace = ProgramTraceBuilder()
    for number in range(4):
        trace.boundary(number, 100 * number)
        if number < 3:
            trace.launch("kernel", 100 * number + 5, 100 * number + 10, 40)
    path = str(trace.write(tmp_path / "t.json"))
    steps = ObservedSteps(1, "cuda", DONE, step_times_s=(step_s, step_s), window_s=2 * step_s, trace=path)
    ended = ProcessResult(0, None, False, 9.0, tmp_path / "log")
    work = describe_process(ProcessTurn(0, "eager", ModeSet("eager"), 0), steps, ModeReport(), ended).work
    assert work is not None and work.busy_share == pytest.approx(share)


def run_command(tmp_path: Path, code: str, timeout_s: float | None = None) -> Failure:
    request = BreakdownRequest("python", "command", (sys.executable, "-c", code), timeout_s=timeout_s, stop=True)
    folder = ModesFolder(tmp_path)
    folder.processes.mkdir()
    runner = ProgramRunner(request, folder, os.environ, sys.executable, Redaction(), Silent(), profiles=False)
    found = runner.run(ProcessTurn(0, "default", ModeSet("default"), 0), 2, None)
    assert isinstance(found, Failure)
    return found


def test_a_program_that_hangs_is_ended_and_says_how_long_it_had(tmp_path: Path) -> None:
    found = run_command(tmp_path, "import time; time.sleep(600)", timeout_s=1)
    assert found.kind == "timeout" and "time limit" in found.message and "--timeout" in found.hint


def test_a_program_that_fails_has_its_exception(tmp_path: Path) -> None:
    found = run_command(tmp_path, "raise ValueError('no data')")
    assert found.kind == "exit" and found.message.endswith("ValueError: no data")


def test_a_program_that_compiles_nothing_says_so(tmp_path: Path) -> None:
    found = run_command(tmp_path, "print('done')")
    assert (found.kind, found.message) == ("uncompiled", "the program never calls torch.compile")


@pytest.mark.slow
def test_a_factory_is_measured_in_two_modes_and_its_outputs_agree(tmp_path: Path) -> None:
    words = ["modes", f"{runs.PROGRAMS / 'factories.py'}:mlp", "--mode", "eager", "--mode", "default"]
    words += ["--inference", "--device", "cpu", "--rounds", "2", "--format", "json", "-o", str(tmp_path / "out")]
    variables = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
    ended = runs.run(runs.command(*words), tmp_path, **runs.forks(), **variables)
    assert ended.code == 0, ended.stderr
    eager, default = json.loads(ended.stdout)["rows"]
    assert len(eager["processes"]) == len(default["processes"]) == 2
    assert default["figures"]["agreement"]["state"] == "agrees" and eager["figures"]["agreement"] is None
    first, second = default["processes"]
    assert (first["calls"], first["source"], first["threads"]) == (1, "marks", 1)
    assert first["codes"] == second["codes"] != [], "the second round reads the first one's caches"
    assert (first["compiled_graphs"], second["compiled_graphs"]) == (1, 0), "whatever the user sets"
    assert first["compile_time_s"] > 0 and second["compile_time_s"] > 0
    assert eager["processes"][0]["calls"] == 0 and eager["processes"][0]["codes"] == []
    assert not (tmp_path / "out" / ".work").exists()


@pytest.mark.slow
def test_a_command_that_is_ended_shows_the_rows_that_it_has(tmp_path: Path) -> None:
    words = ["modes", f"{runs.PROGRAMS / 'factories.py'}:mlp", "--mode", "default", "--mode", "max-autotune"]
    words += ["--inference", "--device", "cpu", "--format", "json", "-q", "-o", str(tmp_path / "out")]
    settings = runs.environment(**runs.forks())
    command = forking_python.forked(runs.command(*words), settings)
    with subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, text=True) as process:
        folder = ModesFolder(tmp_path / "out")
        for _ in range(3000):
            if process.poll() is not None or (folder.exists() and folder.load().rows[0].processes):
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate(timeout=600)
    assert process.returncode == 143
    measured, other = json.loads(printed)["rows"]
    assert measured["figures"]["step_time_s"] > 0 and measured["figures"]["compile_time_s"] > 0
    assert len(measured["processes"]) == 1 and other["processes"] == [] and other["failure"] is None
    assert (tmp_path / "out" / "report.html").is_file()


@pytest.mark.slow
def test_a_script_is_ended_and_its_calls_of_torch_compile_are_replaced(tmp_path: Path) -> None:
    words = ["modes", "--mode", "max-autotune", "--mode", "eager", "--rounds", "1", "--format", "json"]
    python = runs.forks()[forking_python.PYTHON] or sys.executable
    words += ["-o", str(tmp_path / "out"), "--", python, str(runs.PROGRAMS / "steps.py"), "plain", "1000000"]
    ended = runs.run(runs.command(*words), tmp_path, **runs.forks())
    assert ended.code == 0, ended.stderr
    tuned, eager = json.loads(ended.stdout)["rows"]
    assert tuned["processes"][0]["calls"] == 4, "one for each block"
    assert tuned["processes"][0]["source"] == eager["processes"][0]["source"] == "optimizer"
    assert tuned["figures"]["to_eager"] is None, "one round gives no interval"

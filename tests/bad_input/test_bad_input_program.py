"""Programs that go wrong: what happened, why and what to do, as a row of the record; exit code 1; nobody survives."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from pathlib import Path

import breakdown_runs as runs
import psutil
import pytest

FAMILY = """
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
with open("pids.part", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename("pids.part", "pids")
print("the family is up", flush=True)
"""
STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(300)"


def write(folder: Path, text: str) -> Path:
    path = folder / "program.py"
    path.write_text(text)
    return path


def failed(
    folder: Path, text: str, *words: str, own_program: bool = True, **variables: str | Path
) -> tuple[runs.Done, dict[str, str]]:
    program = write(folder, text)
    done = runs.breakdown(folder / "run", program, *words, cwd=folder, own_program=own_program, **variables)
    assert done.code == 1 and done.record["modules"] == []
    (failure,) = done.record["failures"]
    assert failure["stage"] == "capture" and failure["message"] in " ".join(done.stderr.split("\n"))
    assert failure["hint"], "what to do next"
    assert sorted(os.listdir(folder / "run")) == ["logs", "record.json", "report.html", "tables"]
    return done, failure


def is_gone(pid: str) -> bool:
    return not psutil.pid_exists(int(pid)) or psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE


def everybody_is_gone(folder: Path) -> bool:
    return all(is_gone(pid) for pid in (folder / "pids").read_text().split())


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("raise ValueError('bad config')", "exit", "exited with code 1 after .* s: ValueError: bad config"),
        ("import os; os.kill(os.getpid(), 11)", "signal", "was killed by SIGSEGV"),
        ("print('done')", "nothing-compiled", "the program ended well but compiled nothing"),
    ],
)
def test_how_a_program_ended(text: str, kind: str, words: str, tmp_path: Path) -> None:
    done, failure = failed(tmp_path, text)
    assert failure["kind"] == kind
    assert re.search(words, failure["message"]), failure["message"]
    assert failure["message"].split(":")[0] in " ".join(done.stdout.split())


def test_a_program_that_hangs(tmp_path: Path) -> None:
    _, failure = failed(tmp_path, FAMILY + STUBBORN, "--timeout", "14.6")
    assert failure["kind"] == "timeout" and "time limit after 15 s" in failure["message"]
    assert "--timeout" in failure["hint"] and failure["log_tail"] == "the family is up"
    assert everybody_is_gone(tmp_path)


def test_what_a_killed_program_leaves_behind_is_ended_too(tmp_path: Path) -> None:
    _, failure = failed(tmp_path, FAMILY + "os.kill(os.getpid(), signal.SIGKILL)")
    assert failure["kind"] == "signal" and "SIGKILL" in failure["message"]
    assert everybody_is_gone(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_being_stopped_while_the_program_runs(number: signal.Signals, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    target = write(tmp_path, FAMILY + "time.sleep(300)")
    up = tmp_path / "pids"
    done = runs.interrupt(tmp_path / "run", target, when=lambda said: up.exists(), number=number, own_program=True)
    assert done.code == (143 if number == signal.SIGTERM else 130) and done.stdout == ""
    assert f"interrupted; what was measured until then is in {tmp_path / 'run'}" in done.stderr
    assert [failure["kind"] for failure in done.record["failures"]] == ["interrupted"]
    assert sorted(os.listdir(tmp_path / "run")) == ["logs", "record.json"]
    assert everybody_is_gone(tmp_path)
    shown = runs.run(runs.command("report", tmp_path / "run", "--no-plots"), tmp_path / "run")
    assert shown.code == 0 and "interrupted by Ctrl-C or a signal" in shown.stdout


def test_an_impatient_ctrl_c_ends_what_resists(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    target = write(tmp_path, FAMILY + STUBBORN)
    up = tmp_path / "pids"
    done = runs.interrupt(tmp_path / "run", target, when=lambda said: up.exists(), times=2, own_program=True)
    assert done.code == 130 and everybody_is_gone(tmp_path) and not (tmp_path / "run" / ".work").exists()


@pytest.mark.slow
@pytest.mark.xdist_group("captures")  # which make this run
def test_being_stopped_during_a_profile_keeps_what_was_measured(tmp_path: Path) -> None:
    modules = runs.factory().folder / "modules"
    words = (modules / "forward.py", modules / "backward.py")
    done = runs.interrupt(tmp_path / "run", *words, when=lambda said: "profiling backward" in said)
    assert done.code == 130
    (row,) = done.record["modules"]
    assert row["label"] == "forward" and row["kernels"]
    (failure,) = done.record["failures"]
    assert (failure["stage"], failure["kind"]) == ("profile", "interrupted")
    assert "when 1 of 2 graphs was measured" in failure["message"] and str(tmp_path / "run") in failure["hint"]
    assert not (tmp_path / "run" / ".work").exists()


COMPILED = """
import os, subprocess, sys, torch
from torch._inductor import cpp_builder, cpu_vec_isa
if "child" not in sys.argv:
    BEFORE
    torch._inductor.config.cpp.cxx = (None, "g++")  # whatever CXX says
    cpu_vec_isa.valid_vec_isa_list = WIDTHS
torch.compile(lambda x: x.sin())(torch.ones(9))
"""
WIDTHS = {
    "a trial compilation tells the vector width": "cpp_builder.get_cpp_compiler",
    "the vector width is known, and the module is written": "lambda: [cpu_vec_isa.VecAVX2()]",
}
"""How a processor's vector width is found: it decides when a compiler that is missing is missed."""


@pytest.mark.slow
@pytest.mark.parametrize("widths", WIDTHS.values(), ids=WIDTHS)
def test_without_a_compiler(widths: str, tmp_path: Path) -> None:
    program = COMPILED.replace("BEFORE", "pass").replace("WIDTHS", widths)
    done, failure = failed(tmp_path, program, own_program=False, PATH=without_compiler(tmp_path))
    assert "C++ compiler" in failure["message"] and failure["hint"].startswith("install a C++ compiler (g++)")
    assert "is measured" not in failure["message"]
    assert done.record["capture"]["printed"] == done.record["capture"]["structured"] == 0
    assert done.record["capture"]["disagreement"] == ""


UNSEEN_CHILD = """
    child = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([sys.executable, __file__, "child"], env=child, stderr=subprocess.DEVNULL, check=True)
    os.environ["PATH"] = PATH
"""


def without_compiler(folder: Path) -> Path:
    """A folder for ``PATH`` with what torch calls beside a compiler."""
    path = folder / "bin"
    path.mkdir()
    if (openssl := shutil.which("openssl")) is not None:
        (path / "openssl").symlink_to(openssl)
    return path


@pytest.mark.corner
@pytest.mark.slow
def test_a_module_of_a_process_that_nobody_observed_is_profiled(tmp_path: Path) -> None:
    """It is known from the structured trace alone; the module that did not compile is written after it."""
    text = COMPILED.replace("x.sin()", "x.sin() if 'child' in sys.argv else x.cos()")
    text = text.replace(
        "BEFORE", UNSEEN_CHILD.strip().replace('PATH"] = PATH', f'PATH"] = {str(without_compiler(tmp_path))!r}')
    ).replace("WIDTHS", WIDTHS[list(WIDTHS)[1]])
    done = runs.breakdown(tmp_path / "run", write(tmp_path, text), cwd=tmp_path)
    (failure,) = done.record["failures"]
    assert done.code == 1 and "C++ compiler" in failure["message"] and "is measured" in failure["message"]
    (row,) = done.record["modules"]
    assert row["kernels"] and row["program_calls"] is None
    assert "sin" in (done.folder / row["file"]).read_text()
    assert done.record["capture"]["disagreement"] == "1 only in the structured trace"


@pytest.mark.slow
def test_a_factory_that_is_not_there(tmp_path: Path) -> None:
    """What else a worker refuses is tested in ``test_worker_programs.py``."""
    (tmp_path / "factories.py").write_text("def small(): pass\n")
    done = runs.breakdown(tmp_path / "run", f"{tmp_path / 'factories.py'}:absent", "--device", "cpu")
    assert done.code == 1 and done.record["modules"] == []
    (failure,) = done.record["failures"]
    assert "has no function absent" in failure["message"] and failure["hint"] == "it has: small"


def test_a_torch_in_the_current_folder_does_no_harm(tmp_path: Path) -> None:
    """Workers are started with ``-m``, which would look there first."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise RuntimeError('a source tree')")
    if sys.version_info < (3, 11):
        pytest.skip("Python cannot leave the current folder out")
    module = tmp_path / "module.py"
    module.write_text("# AOT ID: ['0_inference']\nimport torch\ndef call(args):\n    return ()\n")
    done = runs.breakdown(tmp_path / "run", module, cwd=tmp_path)
    assert "a source tree" not in done.printed and done.record["environment"]["torch"]

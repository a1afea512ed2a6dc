"""The guardian: however the tool ends, what it started ends too, and nothing else does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import breakdown_runs as runs
import psutil
import pytest
from conftest import ROOT

from inductor_bench.launch.guardian import IGNORED

FAMILY = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
wait = [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"]
members = [
    subprocess.Popen(wait, start_new_session=True),
    subprocess.Popen(wait, env={}),
    subprocess.Popen(["sleep", "300"], start_new_session=True),
]
with open("pids.part", "w") as file:
    print(os.getpid(), *(member.pid for member in members), file=file)
os.rename("pids.part", "pids")
time.sleep(300)
"""


def await_file(path: Path) -> list[psutil.Process]:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return [psutil.Process(int(pid)) for pid in path.read_text().split()]


def are_gone(processes: list[psutil.Process], within_s: float) -> bool:
    """Whether they are, or are zombies that nobody waits for."""

    def is_gone(process: psutil.Process) -> bool:
        try:
            return process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    deadline = time.monotonic() + within_s
    while not all(map(is_gone, processes)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize(
    ("verb", "target", "number"),
    [
        ("breakdown", "program.py", signal.SIGKILL),
        ("breakdown", "program.py", signal.SIGQUIT),
        ("kernel", "program.py", signal.SIGKILL),
        ("batch", "list.txt", signal.SIGKILL),
    ],
)
def test_nothing_outlives_a_command_by_three_seconds(
    verb: str, target: str, number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(f"RECORDED = {{}}\n{FAMILY}")  # for `kernel` a standalone file by its looks
    (tmp_path / "list.txt").write_text("program.py\n")
    words = runs.command(verb, target, *([] if verb == "kernel" else ["-o", "run"]))
    with subprocess.Popen(words, cwd=tmp_path, env=runs.environment(), stderr=subprocess.PIPE) as tool:
        family = await_file(tmp_path / "pids")
        everybody = {*family, *psutil.Process(tool.pid).children(recursive=True)}
        assert len(everybody) > len(family), "and the guardian"
        try:
            tool.send_signal(number)
            tool.wait(timeout=10)
        finally:
            tool.kill()
        assert are_gone([*everybody], within_s=3.0)


LIBRARY = """
import multiprocessing, os, signal, subprocess, sys, time
from pathlib import Path
from inductor_bench.launch.process import ChildProcess, run_process, tool_mark

def fork(function=time.sleep, argument=300):
    process = multiprocessing.get_context("fork").Process(target=function, args=(argument,))
    process.start()
    return process

def child(name="ours"):
    process = ChildProcess(["sleep", "300"], environment=os.environ, log=Path("log"))
    Path(name).write_text(str(process._child.pid))
    return process
"""


def start(program: str, folder: Path) -> subprocess.Popen[bytes]:
    """A user's program that uses the library."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", LIBRARY + textwrap.dedent(program)]
    return subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.DEVNULL)


def test_a_program_that_uses_the_library_keeps_what_it_started_itself(tmp_path: Path) -> None:
    """Its forks live on, and would hold the pipe open, too."""
    program = """
        before = dict(os.environ)
        early, _ = fork(), child()
        theirs = [early.pid, fork().pid, subprocess.Popen(["sleep", "300"]).pid]
        Path("theirs.part").write_text(" ".join(map(str, theirs)))
        assert dict(os.environ) == before
        os.rename("theirs.part", "theirs")
        time.sleep(300)
    """
    with start(program, tmp_path) as tool:
        theirs, ours = await_file(tmp_path / "theirs"), await_file(tmp_path / "ours")
        try:
            tool.kill()
            tool.wait()
            assert are_gone(ours, within_s=3.0)
            assert not any(are_gone([process], within_s=0.0) for process in theirs)
        finally:
            for process in theirs:
                process.kill()


def test_a_fork_has_a_guardian_of_its_own(tmp_path: Path) -> None:
    program = """
        def work(mark):
            assert tool_mark() != mark
            child("of_fork")
            os.kill(os.getpid(), signal.SIGKILL)
        child()
        fork(work, tool_mark()).join()
        Path("up").touch()
        time.sleep(300)
    """
    with start(program, tmp_path) as tool:
        await_file(tmp_path / "up")
        assert are_gone([psutil.Process(int(pid)) for pid in pids_that_are_there(tmp_path / "of_fork")], within_s=3.0)
        (ours,) = await_file(tmp_path / "ours")
        assert not are_gone([ours], within_s=0.0)
        tool.kill()
        tool.wait()
        assert are_gone([ours], within_s=3.0)


def pids_that_are_there(path: Path) -> list[str]:
    return [pid for pid in path.read_text().split() if psutil.pid_exists(int(pid))]


@pytest.mark.parametrize("ending", ["", "sys.exit(3)", "raise ValueError"])
def test_at_a_good_end_it_is_gone_at_once_and_holds_no_output_open(ending: str, tmp_path: Path) -> None:
    program = LIBRARY + textwrap.dedent(
        f"""
        import psutil
        run_process(["true"], environment=os.environ, log=Path("log"), timeout_s=None)
        (guardian,) = psutil.Process().children()
        print(guardian.pid, flush=True)
        {ending}
        """
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert not psutil.pid_exists(int(ended.stdout))
    assert ended.returncode == {"": 0, "sys.exit(3)": 3, "raise ValueError": 1}[ending]
    assert ("ValueError" in ended.stderr) == bool(ended.stderr)


def test_it_holds_nothing_of_the_tools_and_hears_nothing(tmp_path: Path) -> None:
    """Whoever reads the output of a tool that was killed sees its end; signals for everybody are not for it."""
    with start("child()\ntime.sleep(300)", tmp_path) as tool:
        await_file(tmp_path / "ours")
        (guardian,) = [one for one in psutil.Process(tool.pid).children() if "guardian.py" in " ".join(one.cmdline())]
        deadline = time.monotonic() + 10
        while "SigIgn" in (status := Path(f"/proc/{guardian.pid}/status").read_text()):
            ignored = int(status.split("SigIgn:")[1].split()[0], 16)
            if all(ignored >> (number - 1) & 1 for number in IGNORED):
                break
            assert time.monotonic() < deadline
        files = {os.readlink(path) for path in Path(f"/proc/{guardian.pid}/fd").iterdir()}
        assert {file.split(":")[0] for file in files} == {"/dev/null", "pipe"} and len(files) == 2
        assert os.getsid(guardian.pid) == guardian.pid and guardian.cwd() == "/"
        tool.kill()
        assert are_gone([guardian], within_s=3.0)

"""The guardian: however the tool ends, what it started ends too, and nothing else does."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import breakdown_runs as runs
import psutil
import pytest
from conftest import ROOT

from inductor_bench.launch.guardian import IGNORED

FAMILY = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(900)"
wait = [sys.executable, "-S", "-c", stubborn]
orphan = f'''
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        os.close(1)
        exec({stubborn!r})
'''
members = [
    subprocess.Popen(wait, start_new_session=True),
    subprocess.Popen(wait, env={}),
    subprocess.Popen(["sleep", "900"], start_new_session=True),
]
daemon = subprocess.run([*wait[:3], orphan], stdout=subprocess.PIPE, text=True).stdout
if "own group" in sys.argv and os.getsid(0) != os.getpid():
    os.setpgid(0, 0)
with open("pids.part", "w") as file:
    print(os.getpid(), *(member.pid for member in members), daemon, file=file)
os.rename("pids.part", "pids")
time.sleep(900)
"""
"""A program that ignores SIGTERM, with children in groups and separate sessions, one without a parent, and one
without an environment."""

LIMIT_S = 300.0
"""Seconds to wait for what takes less than two on an idle machine; who is not ended lives for 900."""


def await_file(path: Path, writer: psutil.Process | None = None) -> list[psutil.Process]:
    deadline = time.monotonic() + 300
    while not path.exists():
        assert time.monotonic() < deadline and (writer is None or writer.is_running())
        time.sleep(0.02)
    return [psutil.Process(int(pid)) for pid in path.read_text().split()]


def are_gone(processes: list[psutil.Process], within_s: float = LIMIT_S) -> bool:
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


TOOLS = """
import contextlib, json, os, signal, sys
from inductor_bench.cli import apply, batch, breakdown, compare, kernel, main, modes
from inductor_bench.records.run import Environment
from inductor_bench.workflows import apply
apply.read_environment = lambda python: Environment()  # a worker would import torch for it
sys.executable = os.environ["INDUCTOR_BENCH_TESTS_PYTHON"] or sys.executable
signal.signal(signal.SIGCHLD, lambda *_: reap())
def reap():
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
for line in sys.stdin:
    folder, words = json.loads(line)
    tool = os.fork()
    if tool == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number in (1, 2):
            os.dup2(os.open("said", os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
        sys.exit(main.main(words))
    print(tool, flush=True)
"""
"""Runs commands, each in a folder, as forks of this process, which has imported the tool."""


@pytest.fixture(scope="module")
def starter() -> Iterator[Callable[[Path, Sequence[str]], psutil.Process]]:
    """Starts a command in a folder, and returns its process."""
    environment = runs.environment(**runs.forks(own_program=True))
    words = [sys.executable, "-c", TOOLS]
    with subprocess.Popen(words, env=environment, stdin=-1, stdout=-1, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        read, write = process.stdout, process.stdin

        def start_tool(folder: Path, command: Sequence[str]) -> psutil.Process:
            write.write(json.dumps([str(folder), command]) + "\n")
            write.flush()
            return psutil.Process(int(read.readline()))

        yield start_tool
        write.close()


STARTS = {
    "breakdown": ("breakdown", "program.py", "-o", "run"),
    "a command": ("breakdown", "-o", "run", "--", sys.executable, "program.py", "own group"),
    "batch": ("batch", "list.txt", "-o", "batch"),
    "modes": ("modes", "program.py", "-o", "modes"),
    "compare": ("compare", "program.py", "-o", "compared"),
    "kernel": ("kernel", "program.py"),
    "apply": ("apply", "--known", "--", sys.executable, "program.py"),
    "apply, own group": ("apply", "--known", "--", sys.executable, "program.py", "own group"),
    "apply --verify": ("apply", "--known", "--verify", "--", sys.executable, "program.py"),
}
"""Each verb that starts a user's program."""

STOPS = (signal.SIGINT, signal.SIGKILL)
OTHER_STOPS = dict.fromkeys(("breakdown", "apply"), (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT))
"""Signals that all verbs take alike, and by which a terminal's program ends otherwise."""


@pytest.mark.parametrize("name", STARTS)
def test_however_a_command_is_stopped_nothing_that_it_started_lives_on(
    name: str, tmp_path: Path, starter: Callable[[Path, Sequence[str]], psutil.Process]
) -> None:
    folders = {number: tmp_path / number.name for number in (*STOPS, *OTHER_STOPS.get(name, ()))}
    for folder in folders.values():
        folder.mkdir()
        (folder / "program.py").write_text(f"RECORDED = {{}}\n{FAMILY}")  # `kernel` takes it for a kernel's file
        (folder / "list.txt").write_text("program.py\n")
    with contextlib.ExitStack() as ends:
        tools = {number: starter(folder, STARTS[name]) for number, folder in folders.items()}
        for tool in tools.values():
            ends.callback(end, tool)
        started = {number: started_by(tool, folders[number]) for number, tool in tools.items()}
        for number, tool in tools.items():
            tool.send_signal(number)
        for number, tool in tools.items():
            tool.wait(timeout=LIMIT_S)
            assert are_gone(started[number]), number.name
            said = (folders[number] / "said").read_text()
            assert said.count("Traceback") == 0 or name.startswith("apply"), "the program's own, after Ctrl-C"
            if number not in (signal.SIGQUIT, signal.SIGKILL):
                assert not (folders[number] / "run" / ".work").exists()


def started_by(tool: psutil.Process, folder: Path) -> list[psutil.Process]:
    """A tool's descendants, and its program's family, which it waits for."""
    family = await_file(folder / "pids", tool)
    everybody = {*family, *tool.children(recursive=True)}
    assert len(everybody) > len(family), "and the guardian"
    return [*everybody]


def end(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


LIBRARY = """
import multiprocessing, os, signal, subprocess, sys, time
from pathlib import Path
from inductor_bench.launch.marks import find_tool_mark
from inductor_bench.launch.process import ChildProcess, run_process

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
            assert are_gone(ours)
            assert not any(are_gone([process], within_s=0.0) for process in theirs)
        finally:
            for process in theirs:
                process.kill()


def test_a_fork_has_a_guardian_of_its_own(tmp_path: Path) -> None:
    program = """
        def work(mark):
            assert find_tool_mark() != mark
            child("of_fork")
            os.kill(os.getpid(), signal.SIGKILL)
        child()
        fork(work, find_tool_mark()).join()
        Path("up").touch()
        time.sleep(300)
    """
    with start(program, tmp_path) as tool:
        await_file(tmp_path / "up")
        assert are_gone([psutil.Process(int(pid)) for pid in pids_that_are_there(tmp_path / "of_fork")])
        (ours,) = await_file(tmp_path / "ours")
        assert not are_gone([ours], within_s=0.0)
        tool.kill()
        tool.wait()
        assert are_gone([ours])


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
        deadline = time.monotonic() + 300
        while "SigIgn" in (status := Path(f"/proc/{guardian.pid}/status").read_text()):
            ignored = int(status.split("SigIgn:")[1].split()[0], 16)
            if all(ignored >> (number - 1) & 1 for number in IGNORED):
                break
            assert time.monotonic() < deadline
        files = {os.readlink(path) for path in Path(f"/proc/{guardian.pid}/fd").iterdir()}
        assert {file.split(":")[0] for file in files} == {"/dev/null", "pipe"} and len(files) == 2
        assert os.getsid(guardian.pid) == guardian.pid and guardian.cwd() == "/"
        tool.kill()
        assert are_gone([guardian])

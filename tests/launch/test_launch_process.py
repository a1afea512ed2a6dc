"""Child processes: their outcome, their log, and that nothing of them survives."""

from __future__ import annotations

import collections
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import forking_python
import psutil
import pytest

from inductor_bench.errors import InductorBenchError
from inductor_bench.launch import guardian, marks, process
from inductor_bench.launch.process import ProcessResult, run_in_terminal, run_process
from inductor_bench.launch.worker import WorkerPool
from inductor_bench.messages.job_requests import ProfileModule, WorkerJob

FULL = Path("/dev/full")


def run(code: str, tmp_path: Path, timeout_s: float | None = 600.0, **more) -> ProcessResult:
    return run_process(
        [sys.executable, "-c", code],
        environment=dict(os.environ),
        log=tmp_path / "log.txt",
        timeout_s=timeout_s,
        **more,
    )


def test_both_outputs_reach_the_log_and_the_listener(tmp_path) -> None:
    lines: list[str] = []
    ended = run("import sys; print('out'); print('err', file=sys.stderr)", tmp_path, on_line=lines.append)
    assert ended.ok and sorted(lines) == ["err", "out"]
    assert sorted(ended.tail().splitlines()) == ["err", "out"]


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("raise SystemExit(7)", "exit", "exited with code 7"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "signal", "killed by SIGSEGV"),
    ],
)
def test_the_outcome_is_told(code: str, kind: str, words: str, tmp_path) -> None:
    ended = run(code, tmp_path)
    assert not ended.ok and ended.kind == kind and words in ended.outcome


def wait_until_gone(pid: int) -> bool:
    for _ in range(6000):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.1)
    return False


FAMILY = """
import subprocess, sys, time, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""


def test_a_time_limit_ends_the_whole_family_even_if_it_resists(tmp_path) -> None:
    pids: list[str] = []
    ended = run(FAMILY, tmp_path, timeout_s=6.0, on_line=pids.append)
    assert ended.timed_out and ended.kind == "timeout"
    assert wait_until_gone(int(pids[0])), "a child in a separate session survived"


def test_ctrl_c_ends_the_child_and_is_passed_on(tmp_path) -> None:
    pids: list[str] = []

    def interrupt() -> None:
        while not pids:
            time.sleep(0.05)
        os.kill(os.getpid(), 2)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run("import os, time; print(os.getpid(), flush=True); time.sleep(600)", tmp_path, on_line=pids.append)
    thread.join()
    assert wait_until_gone(int(pids[0]))


def test_a_signal_that_came_while_it_was_stopped_ends_a_wait_for_a_child(tmp_path: Path) -> None:
    """Another thread may be the first to run again, and the signal is delivered to that one."""
    child = "import time; print('up', flush=True); time.sleep(600); print('over', flush=True)"
    said: list[str] = []

    def terminate_while_stopped(line: str) -> None:
        said.append(line)
        me = os.getpid()
        subprocess.run(["sh", "-c", f"kill -STOP {me}; kill -TERM {me}; kill -CONT {me}"], check=True)

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        for _ in range(5):
            with pytest.raises(KeyboardInterrupt):
                run(child, tmp_path, timeout_s=None, on_line=terminate_while_stopped)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert said == ["up"] * 5


@pytest.mark.parametrize("where", ["in Popen", "after Popen"])
def test_ctrl_c_while_a_child_starts_leaves_none(where: str, tmp_path, monkeypatch) -> None:
    started: list[int] = []

    class Interrupted(subprocess.Popen):
        def __init__(self, *command, **more) -> None:
            super().__init__(*command, **more)
            started.append(self.pid)
            if where == "in Popen":
                raise KeyboardInterrupt

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(process.subprocess, "Popen", Interrupted)
    if where == "after Popen":
        monkeypatch.setattr(process, "_LogReader", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run("import time; time.sleep(600)", tmp_path)
    assert not psutil.pid_exists(started[0])


def sleeping(mark: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"], env={**os.environ, marks.MARK: mark})


A, B = "a" * 32, "b" * 32


def test_one_whose_environment_is_not_there_yet_is_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel lets go of whoever waits for ``exec`` before the arguments and the environment can be read."""
    with sleeping(A) as child, sleeping(B) as other:
        reads: collections.Counter[str] = collections.Counter()
        read = guardian.read_process_file

        def not_yet(pid: int, what: str) -> bytes:
            reads[what] += pid == child.pid
            unreadable = pid == child.pid and what != "stat" and reads[what] <= 3
            return b"" if unreadable else read(pid, what)

        monkeypatch.setattr(guardian, "read_process_file", not_yet)
        marks.end_marked(A)
        assert reads["environ"] == 4
        assert not psutil.pid_exists(child.pid) and other.poll() is None
        other.kill()


def test_what_is_started_while_the_others_are_ended_is_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    kill, more = psutil.Process.kill, []

    def start_another(self: psutil.Process) -> None:
        if not more:
            more.append(sleeping(f"{A} more"))
        kill(self)

    monkeypatch.setattr(psutil.Process, "kill", start_another)
    with sleeping(A) as child:
        marks.end_marked(A)
        assert not psutil.pid_exists(child.pid) and not psutil.pid_exists(more[0].pid)


@pytest.mark.parametrize("text", ["", "a", "a" * 31, f"{A}\n"])
def test_a_text_that_is_no_mark_ends_nothing(text: str) -> None:
    with sleeping(A) as child:
        marks.end_marked(text)
        assert child.poll() is None
        child.kill()


def test_a_program_that_is_not_there_is_one_clear_line(tmp_path) -> None:
    with pytest.raises(InductorBenchError, match="cannot start"):
        run_process(["/nowhere/python"], environment={}, log=tmp_path / "log", timeout_s=1)


def test_bytes_that_are_not_utf8_do_no_harm(tmp_path) -> None:
    ended = run("import sys; sys.stdout.buffer.write(b'\\xff\\xfe ok\\n')", tmp_path)
    assert ended.ok and "ok" in ended.tail()


def pool(tmp_path: Path) -> WorkerPool:
    return WorkerPool(forking_python.interpreter(), tmp_path, dict(os.environ), timeout_s=600)


def test_the_error_is_seen_above_what_tritons_bindings_print_after_it(tmp_path) -> None:
    leaks = "".join(f' - leaked function "create_{number}"\\n' for number in range(40))
    said = (
        f"nanobind: leaked 40 functions!\\n{leaks}nanobind: see https://nanobind.readthedocs.io/en/latest/refleaks.html"
    )
    done = run(f"import os; os.write(2, b'ValueError: no data\\n{said}'); os._exit(1)", tmp_path)
    assert done.tail() == "ValueError: no data"


def test_a_worker_that_fails_says_why(tmp_path) -> None:
    job = ProfileModule(
        module=str(tmp_path / "absent.py"),
        label="forward",
        device="cpu",
        repeat=3,
        trace=str(tmp_path / "t.json"),
        text=str(tmp_path / "p.txt"),
    )
    answer = pool(tmp_path).call(job, name="forward", log=tmp_path / "log.txt")
    assert answer.result is None and answer.failure is not None
    assert answer.failure.kind == "raised" and answer.failure.subject == "forward"
    assert "absent" in answer.failure.message


@dataclass(frozen=True)
class Unknown(WorkerJob[None]):
    """A job that no worker does."""

    verb = "dance"


def test_a_job_that_no_worker_does_is_refused_in_words(tmp_path: Path) -> None:
    answer = pool(tmp_path).call(Unknown(), name="forward", log=tmp_path / "log.txt")
    assert answer.result is None and answer.failure is not None
    assert (answer.failure.kind, answer.failure.message) == ("invalid", "the worker knows no job dance")


def test_a_log_that_does_not_fit_is_named() -> None:
    with pytest.raises(InductorBenchError, match="cannot write /dev/full: No space left on device"):
        run_process([sys.executable, "-c", "print(1)"], environment=dict(os.environ), log=FULL, timeout_s=600)


@pytest.mark.parametrize(
    ("start", "program", "code"),
    [
        ("{ready}; time.sleep(600)", "pass", 130),  # Python ends with 1 if Ctrl-C comes while it starts
        ("", "{ready}; time.sleep(600)", 130),
        ("", "signal.signal(2, lambda *_: sys.exit(7)); {ready}; time.sleep(600)", 7),
    ],
)
def test_a_command_that_ctrl_c_ends_has_an_exit_code_that_says_so(
    start: str, program: str, code: int, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    texts = [
        f"import signal, sys, time; {text}".format(ready=f"open({str(ready)!r}, 'w')") for text in (start, program)
    ]
    (tmp_path / "sitecustomize.py").write_text(texts[0])

    def interrupt() -> None:
        while not ready.exists():
            time.sleep(0.01)
        signal.raise_signal(signal.SIGINT)

    waiting = threading.Thread(target=interrupt)
    waiting.start()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert run_in_terminal([sys.executable, "-c", texts[1]], environment) == code
    waiting.join()

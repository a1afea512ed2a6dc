"""Workers that stay: what they answer, how they are lost, and that none is left behind."""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from inductor_bench.errors import InductorBenchError
from inductor_bench.launch import worker as session_module
from inductor_bench.launch.worker import WorkerLostError, WorkerSession
from inductor_bench.messages.job_requests import WorkerRequest
from inductor_bench.messages.kernel_requests import Begun

BENCH = '''
"""Stands in for the worker's bench: it does what the request says, with no torch in sight."""
import os, signal, sys, time
from inductor_bench.errors import InductorBenchError
from inductor_bench.messages.kernel_requests import Begun

class Bench:
    def __init__(self, tell):
        self.tell, self.fatal = tell, False

    def answer(self, request):
        print("not an answer", flush=True)
        print('{"result": "nor is this"}', flush=True)
        return getattr(self, request.pop("do").lower())(**request)

    def is_device_broken(self):
        return self.fatal

    def echo(self, value): return value
    def pid(self): return os.getpid()
    def parts(self, values):
        for value in values: self.tell(Begun(value))
        return len(values)
    def queue(self, pause_s):
        self.tell(Begun(4))
        self.tell(Begun(4, waits=True))
        time.sleep(pause_s)
        self.tell(Begun(4))
        return 1
    def slowparts(self, count, pause_s):
        for number in range(count):
            time.sleep(pause_s)
            self.tell(Begun(number))
        return count
    def heldpart(self, until):
        self.tell(Begun(0))
        self.tell(Begun(1))
        while not os.path.exists(until):
            time.sleep(0.02)
        self.tell(Begun(2))
        return 3
    def refuse(self): raise InductorBenchError("it cannot be", "do something else")
    def fail(self): raise ValueError("first line\\nsecond line")
    def breakdevice(self):
        self.fatal = True
        raise RuntimeError("illegal memory access")
    def crash(self, part):
        self.tell(Begun(part))
        os.kill(os.getpid(), signal.SIGSEGV)
    def leave(self): os._exit(3)
    def hang(self, unread=""): time.sleep(600)
    def child(self):
        import subprocess
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True).pid
'''


@dataclass(frozen=True)
class Echo(WorkerRequest[Any]):
    value: Any


@dataclass(frozen=True)
class HeldPart(WorkerRequest[int]):
    until: str


@dataclass(frozen=True)
class Queue(WorkerRequest[int]):
    """Waits for others, and says so."""

    pause_s: float


@dataclass(frozen=True)
class Pid(WorkerRequest[int]):
    """Asks for the worker's process."""


@dataclass(frozen=True)
class SlowParts(WorkerRequest[int]):
    """Asks for parts with a pause before each."""

    count: int
    pause_s: float


@dataclass(frozen=True)
class Child(WorkerRequest[int]):
    """Asks for a process that the worker starts."""


@dataclass(frozen=True)
class Parts(WorkerRequest[int]):
    values: tuple[int, ...]


@dataclass(frozen=True)
class Crash(WorkerRequest[None]):
    part: int


@dataclass(frozen=True)
class Hang(WorkerRequest[None]):
    unread: str = ""


@dataclass(frozen=True)
class Refuse(WorkerRequest[None]):
    """Is refused."""


@dataclass(frozen=True)
class Fail(WorkerRequest[None]):
    """Raises something."""


@dataclass(frozen=True)
class BreakDevice(WorkerRequest[None]):
    """Leaves a device that cannot be used."""


@dataclass(frozen=True)
class Leave(WorkerRequest[None]):
    """Ends the process."""


@pytest.fixture
def session(tmp_path: Path) -> Iterator[WorkerSession]:
    """A session with a worker whose bench is the one above."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import importlib.util, sys\n"
        "spec = importlib.util.spec_from_file_location('inductor_bench.worker.bench.bench', "
        f"{str(site / 'pretended_bench.py')!r})\n"
        "class Finder:\n"
        "    @staticmethod\n"
        "    def find_spec(name, path=None, target=None):\n"
        "        return spec if name == spec.name else None\n"
        "sys.meta_path.insert(0, Finder)\n"
    )
    (site / "pretended_bench.py").write_text(BENCH)
    variables = {**os.environ, "PYTHONPATH": str(site)}
    with WorkerSession(sys.executable, tmp_path, variables, log=tmp_path / "log.txt") as started:
        yield started


def is_gone(pid: int) -> bool:
    for _ in range(12_000):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def test_requests_are_answered_one_after_the_other_whatever_is_printed(session: WorkerSession, tmp_path: Path) -> None:
    assert [session.ask(Echo(value)) for value in (1, "é\n", None, [1.5])] == [1, "é\n", None, [1.5]]
    session.close()
    assert (tmp_path / "log.txt").read_text().splitlines().count("not an answer") == 4


def test_requests_and_answers_may_be_larger_than_a_pipe(session: WorkerSession) -> None:
    value = "x" * 1_000_000
    assert session.ask(Echo(value)) == value


def test_the_last_part_is_known_and_forgotten_with_the_next_request(session: WorkerSession) -> None:
    assert session.ask(Parts((3, 1, 2))) == 3
    assert session.part == Begun(2)
    session.ask(Echo(0))
    assert session.part is None


def test_each_part_starts_the_time_limit_anew(session: WorkerSession) -> None:
    session.ask(Echo(0), 600.0)
    session.post(SlowParts(count=60, pause_s=0.1), 5.0)
    assert not session.is_answered()
    assert session.collect() == 60, "it took longer than the limit, and no part of it did"
    session.post(SlowParts(count=2, pause_s=0.1), 600.0)
    while not session.is_answered():
        time.sleep(0.02)
    assert session.part == Begun(1) and session.collect() == 2


def test_a_wait_for_others_does_not_count(session: WorkerSession) -> None:
    session.ask(Echo(0), 600.0)
    assert session.ask(Queue(6.0), 5.0) == 1, "its own work took no time"
    assert session.part == Begun(4)


def test_what_arrived_before_a_late_look_counts(session: WorkerSession, tmp_path: Path) -> None:
    session.ask(Echo(0), 600.0)
    session.post(HeldPart(str(tmp_path / "go on")), 5.0)
    time.sleep(5.5)  # its parent was busy elsewhere: two parts are there, and the limit has passed since the request
    assert not session.is_answered()
    (tmp_path / "go on").touch()
    assert session.collect() == 3


def test_a_worker_is_asked_one_thing_at_a_time(session: WorkerSession) -> None:
    session.post(Echo(1), 600.0)
    with pytest.raises(AssertionError, match="was not collected"):
        session.post(Echo(2), 600.0)
    assert session.collect() == 1


def test_after_a_failure_it_goes_on(session: WorkerSession) -> None:
    with pytest.raises(InductorBenchError) as refused:
        session.ask(Refuse())
    assert (refused.value.message, refused.value.hint) == ("it cannot be", "do something else")
    with pytest.raises(InductorBenchError, match=r"^ValueError: first line$"):
        session.ask(Fail())
    assert session.alive and session.ask(Echo(1)) == 1


def test_a_worker_whose_device_is_broken_is_asked_no_more(session: WorkerSession) -> None:
    pid = session.ask(Pid())
    with pytest.raises(InductorBenchError, match="illegal memory access"):
        session.ask(BreakDevice())
    assert not session.alive and is_gone(pid)


def test_a_crash_is_told_with_what_it_was_doing(session: WorkerSession) -> None:
    pid = session.ask(Pid())
    with pytest.raises(WorkerLostError) as lost:
        session.ask(Crash(7))
    assert lost.value.kind == "crashed" and "was killed by SIGSEGV" in lost.value.message
    assert session.part == Begun(7) and not session.alive and is_gone(pid)
    assert "not an answer" in lost.value.tail


def test_an_exit_is_a_crash_too(session: WorkerSession) -> None:
    with pytest.raises(WorkerLostError, match="exited with code 3") as lost:
        session.ask(Leave())
    assert lost.value.kind == "crashed"


def test_a_request_to_a_worker_that_died_meanwhile_is_a_crash(session: WorkerSession) -> None:
    psutil.Process(session.ask(Pid())).kill()
    with pytest.raises(WorkerLostError, match="SIGKILL"):
        session.ask(Echo("x" * 1_000_000), 600)


@pytest.mark.parametrize("next_request", [Hang(), Hang("x" * 1_000_000)])
def test_one_that_hangs_is_ended_in_time(session: WorkerSession, next_request: Hang) -> None:
    pid = session.ask(Pid())
    if next_request.unread:
        psutil.Process(pid).suspend()
    with pytest.raises(WorkerLostError, match="was stopped by the time limit") as lost:
        session.ask(next_request, 0.3)
    assert lost.value.kind == "hung" and is_gone(pid)


def test_several_are_waited_for_together(session: WorkerSession) -> None:
    session.post(Echo(5), 600)
    assert select.select([session], [], [], 600)[0] == [session]
    assert 0 < (session.left_s or 0) <= 600
    assert session.collect() == 5


def test_closing_takes_what_it_started_along(session: WorkerSession) -> None:
    pids = [session.ask(Pid()), session.ask(Child())]
    session.close()
    session.close()
    assert all(map(is_gone, pids))


def test_ctrl_c_leaves_nothing_behind_and_does_not_wait_for_the_answer(
    session: WorkerSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "CLOSE_S", 1e6)
    pid = session.ask(Pid())
    timer = threading.Timer(0.3, os.kill, (os.getpid(), 2))
    with pytest.raises(KeyboardInterrupt), session:
        timer.start()
        session.ask(Hang())
    assert is_gone(pid)


def test_closing_does_not_wait_for_an_answer_that_nobody_collects(
    session: WorkerSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "CLOSE_S", 1e6)
    session.ask(Pid())
    session.post(Hang())
    session.close()
    assert session._child.end().signal_name == "SIGTERM"


def test_no_descriptor_is_left_open(session: WorkerSession, tmp_path: Path) -> None:
    session.ask(Pid())
    session.close()
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(InductorBenchError, match="cannot start"):
        WorkerSession("/nowhere/python", tmp_path, {}, log=tmp_path / "log.txt")
    with WorkerSession(sys.executable, tmp_path, {**os.environ}, log=tmp_path / "log.txt"):
        pass
    assert sorted(os.listdir("/proc/self/fd")) == before

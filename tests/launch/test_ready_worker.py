"""Workers that are started before there is work for them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from conftest import ROOT

from inductor_bench.errors import InductorBenchError
from inductor_bench.launch import executors, guardian, worker
from inductor_bench.launch.worker import MOST_READY, ReadyWorker, WorkerPool
from inductor_bench.messages.job_requests import SurveyMachine, WorkerJob

PRETENDED = f"""#!{sys.executable}
import json, os, sys, time
words = sys.argv[4:]
how = os.environ.get("HOW", "")
print("started", *words[:1], os.getpid(), flush=True)
if words[0] == "await":
    if how == "fails":
        sys.exit(1)
    if how == "hangs":
        time.sleep(600)
    os.write(int(words[2]), b"1")
    order = os.fdopen(int(words[1])).readline()
    if not order:
        sys.exit(0)
    words = json.loads(order)
verb, job, result = words
time.sleep(json.load(open(job)).get("seconds", 0))
json.dump({{"result": {{"pid": os.getpid()}}}}, open(result, "w"))
"""


@pytest.fixture
def many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "cores_of_this_process", lambda: 64)


@pytest.fixture
def python(tmp_path: Path) -> str:
    path = tmp_path / "python"
    path.write_text(PRETENDED)
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def pool(tmp_path: Path, python: str, many_cores: None) -> Iterator[WorkerPool]:
    with pool_of(python, tmp_path) as pool:
        yield pool


def pool_of(python: str, folder: Path, how: str = "", timeout_s: float | None = 60) -> WorkerPool:
    return WorkerPool(python, folder, {**os.environ, "HOW": how}, timeout_s)


EARLIER: set[psutil.Process] = set()
"""The processes that tests before this one have started."""


@pytest.fixture(autouse=True)
def earlier() -> None:
    EARLIER.update(psutil.Process().children(recursive=True))


def children() -> list[psutil.Process]:
    """The processes that this test has started; not the guardian, which ends with this process."""
    found = set(psutil.Process().children(recursive=True)) - EARLIER
    return [child for child in found if guardian.__file__ not in child.cmdline()]


@dataclass(frozen=True)
class Process:
    pid: int


@dataclass(frozen=True)
class Wait(WorkerJob[Process]):
    """What a pretended worker does."""

    verb = "profile"

    seconds: float = 0.0


def call(pool: WorkerPool, name: str = "forward") -> int:
    answer = pool.call(Wait(), name=name, log=pool.folder / "logs" / f"{name}.log")
    assert answer.failure is None and answer.result is not None
    return answer.result.pid


def test_the_next_calls_are_answered_by_those_that_are_ready(pool: WorkerPool) -> None:
    pool.get_ready(2)
    ready = {child.pid for child in children()}
    assert len(ready) == 2
    pids = [call(pool, name) for name in ("forward", "backward", "survey")]
    assert set(pids[:2]) == ready and pids[2] not in ready
    logs = [(pool.folder / "logs" / f"{name}.log").read_text() for name in ("forward", "backward", "survey")]
    assert logs == [f"started {word} {pid}\n" for word, pid in zip(("await", "await", "profile"), pids, strict=True)]
    assert not list(pool.folder.glob("ready-*")) and not children()


def test_no_more_get_ready_than_are_wanted_or_fit(pool: WorkerPool) -> None:
    pool.get_ready(1)
    pool.get_ready(2)
    assert len(children()) == 2
    pool.get_ready(100)
    assert len(children()) == MOST_READY


@pytest.mark.parametrize(("cores", "ready"), [(1, 0), (2, 0), (3, 3)])
def test_none_get_ready_if_the_program_needs_all_cores(
    cores: int, ready: int, python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "cores_of_this_process", lambda: cores)
    with pool_of(python, tmp_path) as pool:
        pool.get_ready(3)
        assert len(children()) == ready


def test_beside_others_a_process_has_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "usable_cores", lambda: 16)
    for share, number in (("", 16), ("3", 3), ("64", 16), ("0", 16), ("many", 16)):
        monkeypatch.setenv(executors.COMPILE_THREADS, share)
        assert executors.cores_of_this_process() == number


@pytest.mark.usefixtures("many_cores")
@pytest.mark.parametrize("how", ["fails", "hangs"])
def test_one_that_does_not_get_ready_is_done_without(how: str, python: str, tmp_path: Path) -> None:
    with pool_of(python, tmp_path, how, timeout_s=6) as pool:
        pool.get_ready(1)
        assert call(pool) and not children()


def test_one_that_was_killed_is_done_without(pool: WorkerPool) -> None:
    pool.get_ready(2)
    first = call(pool)
    (other,) = children()
    other.kill()
    other.wait()
    assert call(pool) not in (first, other.pid)


def test_a_call_fails_if_its_worker_cannot_start(tmp_path: Path, many_cores: None) -> None:
    with pool_of(str(tmp_path / "none"), tmp_path) as pool:
        pool.get_ready(2)
        with pytest.raises(InductorBenchError, match="cannot start"):
            call(pool)


def test_who_waits_in_vain_waits_once(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(ReadyWorker, "wait", lambda self, timeout_s: waits.append(timeout_s))
    pool.get_ready(3)
    assert call(pool) and waits == [60] and not children()


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next end of a process is interrupted."""
    ends = iter([True])

    def interrupt(*_: object) -> None:
        if next(ends, False):
            raise KeyboardInterrupt

    monkeypatch.setattr("inductor_bench.launch.process.end_marked", interrupt)


def test_a_second_interrupt_leaves_none_and_nothing_open(
    python: str, tmp_path: Path, many_cores: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(KeyboardInterrupt), pool_of(python, tmp_path) as pool:
        pool.get_ready(3)
        impatient(monkeypatch)
    assert not children() and sorted(os.listdir("/proc/self/fd")) == before
    with pool_of(python, tmp_path) as pool:
        pool.get_ready(1)
        impatient(monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            call(pool)
    assert not children() and sorted(os.listdir("/proc/self/fd")) == before


def test_a_scratch_folder_that_went_away_ends_the_call_and_the_worker(pool: WorkerPool) -> None:
    pool.get_ready(1)
    (log,) = pool.folder.glob("ready-*")
    log.unlink()
    with pytest.raises(InductorBenchError, match="cannot write"):
        call(pool)
    assert not children()


def test_none_outlives_the_pool(python: str, tmp_path: Path, many_cores: None) -> None:
    with pytest.raises(KeyboardInterrupt), pool_of(python, tmp_path) as pool:
        pool.get_ready(3)
        raise KeyboardInterrupt
    assert not children()


def test_none_outlives_a_parent_that_is_killed(python: str, tmp_path: Path) -> None:
    program = f"""
        import os, signal
        from pathlib import Path
        from inductor_bench.launch import worker
        worker.cores_of_this_process = lambda: 64
        pool = worker.WorkerPool({python!r}, Path({str(tmp_path)!r}), dict(os.environ))
        pool.get_ready(1)
        pool._ready[0].wait(600)
        print(pool._ready[0]._child._child.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, timeout=600)
    deadline = time.monotonic() + 600
    while psutil.pid_exists(int(ended.stdout)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_its_time_begins_with_its_job(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("inductor_bench.launch.process.time.monotonic", lambda: now[0])
    pool.get_ready(1)
    now[0] = 100.0
    job = pool.folder / "job.json"
    job.write_text("{}")
    ended = pool._ready.pop().run(["v", str(job), str(pool.folder / "r")], log=pool.folder / "log", timeout_s=600)
    assert ended.ok and ended.time_s == 0


def test_one_that_takes_too_long_for_its_job_is_ended(python: str, tmp_path: Path, many_cores: None) -> None:
    with pool_of(python, tmp_path, timeout_s=1) as pool:
        pool.get_ready(1)
        answer = pool.call(Wait(600), name="slow", log=tmp_path / "log")
        assert answer.failure is not None and answer.failure.kind == "timeout" and not children()


def test_a_real_one_answers_as_one_does_that_is_started_then(
    tmp_path: Path, many_cores: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SurveyMachine((), "cpu", "none")
    with WorkerPool(sys.executable, tmp_path, dict(os.environ), timeout_s=600) as pool:
        later = pool.call(job, name="later", log=tmp_path / "later.log")
        pool.get_ready(1)
        monkeypatch.setattr(worker, "run_process", None)
        first = pool.call(job, name="first", log=tmp_path / "first.log")
    assert first == later and first.result is not None and first.result.environment.versions.torch

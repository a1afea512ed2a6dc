"""A worker that is started before there is work for it, and does each job in a fork."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from conftest import ROOT

from inductor_bench.errors import InductorBenchError
from inductor_bench.launch import guardian, worker
from inductor_bench.launch.worker import ForkingWorker, WorkerPool
from inductor_bench.messages.job_requests import ProfileModule, SurveyMachine, WorkerJob
from inductor_bench.store import codec
from inductor_bench.worker.__main__ import BY_NVML, _needs_vectors, asking_nvml, has_looked_at_devices

SECRET = "a-token-of-the-users"
PRETENDED = f"""#!{sys.executable}
import json, os, signal, sys, threading, time
words = sys.argv[4:]
how = os.environ.get("HOW", "")
def work(verb, job, result):
    print("started", verb, os.getpid(), os.environ["A_SECRET_TOKEN"], flush=True)
    asked = json.load(open(job))
    time.sleep(asked.get("seconds", 0))
    for place, file in enumerate(asked.get("meets", ())):
        if place == 0:
            open(file, "w").close()
        while not os.path.exists(file):
            time.sleep(0.01)
    if asked.get("crashes"):
        os.kill(os.getpid(), signal.SIGSEGV)
    json.dump({{"result": {{"pid": os.getpid(), "parent": os.getppid()}}}}, open(result, "w"))
if words[0] == "fork":
    if how == "fails":
        sys.exit(1)
    if how == "hangs":
        time.sleep(600)
    ends = os.fdopen(int(words[2]), "w", 1)
    ends.write("ready\\n")
    children = {{}}
    def tell(child, output):
        ends.write(f"{{os.waitpid(child, 0)[1]}} {{output}}\\n")
    for line in os.fdopen(int(words[1])):
        order, output, variables = json.loads(line)
        if not order:
            os.kill(children[output], signal.SIGKILL)
            continue
        children[output] = child = os.fork()
        if child == 0:
            os.environ.update(variables)
            os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT), 1)
            work(*order)
            os._exit(0)
        threading.Thread(target=tell, args=(child, output), daemon=True).start()
else:
    work(*words)
"""


@pytest.fixture
def many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "count_cores_of_this_process", lambda: 64)


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
    return WorkerPool(python, folder, {**os.environ, "HOW": how, "A_SECRET_TOKEN": SECRET}, timeout_s)


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
    parent: int


@dataclass(frozen=True)
class Wait(WorkerJob[Process]):
    """What a pretended worker does."""

    verb = "profile"

    seconds: float = 0.0
    crashes: bool = False
    meets: tuple[str, ...] = ()  # a file that it makes, and one for which it waits


def call(pool: WorkerPool, name: str = "forward", job: Wait = Wait()) -> Process:
    answer = pool.call(job, name=name, log=pool.folder / "logs" / f"{name}.log")
    assert answer.failure is None and answer.result is not None
    return answer.result


def test_each_call_is_answered_by_a_fork_of_its_own(pool: WorkerPool) -> None:
    pool.get_ready(beside_program=True)
    (forking,) = children()
    found = [call(pool, name) for name in ("forward", "backward", "survey")]
    assert {one.parent for one in found} == {forking.pid} and len({one.pid for one in found}) == 3
    logs = [(pool.folder / "logs" / f"{name}.log").read_text() for name in ("forward", "backward", "survey")]
    assert logs == [f"started profile {one.pid} ***\n" for one in found], "without the secret"
    assert sorted(path.name for path in (pool.folder / "logs").iterdir()) == sorted(
        f"{name}.log" for name in ("forward", "backward", "survey")
    )


def test_a_listener_gets_the_output_of_a_job(python: str, tmp_path: Path) -> None:
    lines: list[str] = []
    with WorkerPool(python, tmp_path, {**os.environ, "A_SECRET_TOKEN": SECRET}, 60, lines.append) as pool:
        assert lines == [f"started profile {call(pool).pid} {SECRET}"]


def test_one_worker_is_started_at_most(pool: WorkerPool) -> None:
    for _ in range(3):
        pool.get_ready()
    assert len(children()) == 1


def test_a_crash_ends_its_job_alone(pool: WorkerPool) -> None:
    answer = pool.call(Wait(crashes=True), name="crash", log=pool.folder / "crash.log")
    assert answer.failure is not None and answer.failure.kind == "signal" and "SIGSEGV" in answer.failure.message
    (forking,) = children()
    assert call(pool).parent == forking.pid


@pytest.mark.parametrize(("cores", "started"), [(1, 0), (2, 0), (3, 1)])
def test_none_is_started_where_the_program_needs_all_cores(
    cores: int, started: int, python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "count_cores_of_this_process", lambda: cores)
    with pool_of(python, tmp_path) as pool:
        pool.get_ready(beside_program=True)
        assert len(children()) == started
        pool.get_ready()
        assert len(children()) == 1


def test_beside_others_a_process_has_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "count_usable_cores", lambda: 16)
    for share, number in (("", 16), ("3", 3), ("64", 16), ("0", 16), ("many", 16)):
        monkeypatch.setenv(worker.COMPILE_THREADS, share)
        assert worker.count_cores_of_this_process() == number


@pytest.mark.parametrize("how", ["fails", "hangs"])
def test_one_that_does_not_get_ready_is_done_without(how: str, python: str, tmp_path: Path) -> None:
    with pool_of(python, tmp_path, how, timeout_s=6) as pool:
        assert call(pool).parent == os.getpid() and not children()


def test_one_that_was_killed_is_replaced(pool: WorkerPool) -> None:
    first = call(pool)
    (other,) = children()
    other.kill()
    other.wait()
    assert call(pool).parent not in (first.parent, os.getpid())


def test_one_that_cannot_be_started_is_missed_by_the_call(tmp_path: Path) -> None:
    with pool_of(str(tmp_path / "none"), tmp_path) as pool:
        pool.get_ready()
        with pytest.raises(InductorBenchError, match="cannot start"):
            call(pool)


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next end of a process is interrupted."""
    ends = iter([True])

    def interrupt(*_: object) -> None:
        if next(ends, False):
            raise KeyboardInterrupt

    monkeypatch.setattr("inductor_bench.launch.process.end_marked", interrupt)


def test_a_second_interrupt_leaves_none_and_nothing_open(
    python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(KeyboardInterrupt), pool_of(python, tmp_path) as pool:
        pool.get_ready()
        impatient(monkeypatch)
    assert not children() and sorted(os.listdir("/proc/self/fd")) == before


def test_an_interrupted_job_ends(python: str, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), pool_of(python, tmp_path) as pool:
        pool.get_ready()
        assert pool._forking[0].wait(600)
        threading.Timer(0.5, lambda: signal.raise_signal(signal.SIGINT)).start()
        call(pool, job=Wait(600))
    assert not children()


def test_a_place_for_logs_that_cannot_be_made_ends_the_call(pool: WorkerPool) -> None:
    (pool.folder / "logs").write_text("a file")
    with pytest.raises(InductorBenchError, match="cannot write"):
        call(pool)
    assert not children()


def test_none_outlives_the_pool(python: str, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), pool_of(python, tmp_path) as pool:
        pool.get_ready()
        raise KeyboardInterrupt
    assert not children()


def test_none_outlives_a_parent_that_is_killed(python: str, tmp_path: Path) -> None:
    program = f"""
        import os, signal
        from pathlib import Path
        from inductor_bench.launch import worker
        pool = worker.WorkerPool({python!r}, Path({str(tmp_path)!r}), dict(os.environ))
        pool.get_ready()
        pool._forking[0].wait(600)
        print(pool._forking[0]._child._child.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, timeout=600)
    deadline = time.monotonic() + 600
    while psutil.pid_exists(int(ended.stdout)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_job_that_takes_too_long_is_ended(python: str, tmp_path: Path) -> None:
    with pool_of(python, tmp_path) as pool:
        call(pool)
    with pool_of(python, tmp_path, timeout_s=3) as pool:
        answer = pool.call(Wait(600), name="slow", log=tmp_path / "log")
        assert answer.failure is not None and answer.failure.kind == "timeout"
        (forking,) = children()
        assert not forking.children(), "it alone was ended"
        assert call(pool).parent == forking.pid


def test_several_jobs_are_under_way_at_once(pool: WorkerPool, tmp_path: Path) -> None:
    met = [tmp_path / "first", tmp_path / "second"]
    with ThreadPoolExecutor(2) as threads:
        calls = [
            threads.submit(call, pool, one.name, Wait(meets=(str(one), str(other)))) for one, other in (met, met[::-1])
        ]
        found = [one.result() for one in calls]
    assert found[0].parent == found[1].parent and found[0].pid != found[1].pid


def test_a_job_that_is_ended_leaves_the_others(pool: WorkerPool, tmp_path: Path) -> None:
    begun, goes_on = tmp_path / "begun", tmp_path / "goes on"
    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(call, pool, "other", Wait(meets=(str(begun), str(goes_on))))
        while not begun.exists():
            time.sleep(0.01)
        assert replace(pool, timeout_s=1).call(Wait(600), name="slow", log=tmp_path / "log").failure is not None
        goes_on.touch()
        assert other.result()


def test_none_is_started_once_the_pool_has_ended(python: str, tmp_path: Path, many_cores: None) -> None:
    with pool_of(python, tmp_path) as pool:
        call(pool)
    with pytest.raises(InductorBenchError, match="ended"):
        call(pool)
    assert not children()


@pytest.mark.slow
def test_a_fork_answers_as_the_new_process_does_that_one_becomes_in_which_no_gpu_can_be_used(tmp_path: Path) -> None:
    job = SurveyMachine((), "cpu", "none")
    with WorkerPool(sys.executable, tmp_path, dict(os.environ), timeout_s=600) as pool:
        forked = pool.call(job, name="forked", log=tmp_path / "forked.log")
    assert forked.failure is None and forked.result is not None and forked.result.environment.versions.torch
    code = """
        import sys
        from inductor_bench.worker import __main__ as worker
        worker.has_looked_at_devices = lambda: True
        print("begins", *sys.argv[1:2], flush=True)
        sys.exit(worker.main(sys.argv[1:]))
    """
    command = [sys.executable, "-c", textwrap.dedent(code), "fork"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    (tmp_path / "job.json").write_text(json.dumps(codec.encode(job)))
    forking = ForkingWorker(command, environment=environment, log=tmp_path / "forking.log")
    try:
        assert forking.wait(600)
        words = ("survey", str(tmp_path / "job.json"), str(tmp_path / "result.json"))
        assert forking.run(words, log=tmp_path / "log", timeout_s=600).ok
    finally:
        forking.end()
    assert (tmp_path / "log").read_text() == "begins survey\n"
    new = codec.decode(type(forked.result), json.loads((tmp_path / "result.json").read_text())["result"])
    assert replace(forked.result, phases_s={}) == replace(new, phases_s={}), "beside what each took"


@pytest.mark.parametrize(
    ("job", "needs"),
    [
        (ProfileModule("m.py", "m", "cpu", 1, "m.json", "m.txt"), True),
        (ProfileModule("m.py", "m", "cuda", 1, "m.json", "m.txt"), False),
        (SurveyMachine((), "cpu", "cached"), True),
        (SurveyMachine((), "cuda", "cached"), False),
        (SurveyMachine((), "cpu", "none"), False),
        (SurveyMachine((), describes=False), False),
    ],
)
def test_vectors_are_looked_up_only_for_jobs_that_use_them(job: WorkerJob[Any], needs: bool, tmp_path: Path) -> None:
    """On a machine with a GPU that takes 30 s, once for each run."""
    (tmp_path / "job.json").write_text(json.dumps(codec.encode_sparse(job)))
    assert _needs_vectors(job.verb, str(tmp_path / "job.json")) is needs


@pytest.mark.parametrize(("file", "is_used"), [("/dev/dri/renderD128", True), ("/dev/nvidiactl", False)])
def test_a_gpu_that_is_used_is_seen(file: str, is_used: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not has_looked_at_devices()
    with open(os.devnull) as opened:
        monkeypatch.setattr(os, "readlink", lambda path: file if path.endswith(f"/{opened.fileno()}") else "")
        assert has_looked_at_devices() == is_used


@pytest.mark.parametrize(("answer", "is_used"), [(0, True), (3, False)])
def test_cuda_is_asked_whether_it_was_initialised(answer: int, is_used: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = SimpleNamespace(cuDeviceGetCount=lambda count: answer)
    monkeypatch.setattr(ctypes, "CDLL", lambda name, mode: driver)
    assert has_looked_at_devices() == is_used


def test_torch_asks_nvml_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    for before in (None, "0"):
        monkeypatch.delenv(BY_NVML, raising=False) if before is None else monkeypatch.setenv(BY_NVML, before)
        with asking_nvml():
            assert os.environ[BY_NVML] == "1"
        assert os.environ.get(BY_NVML) == before

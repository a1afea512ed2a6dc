"""Models that overlap on one GPU: who has the turn when, and how they are given to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import breakdown_runs as runs
import forking_python
import pytest
import torch
from conftest import RARE_COLLECTION, ROOT

from inductor_bench.launch import batch_executors
from inductor_bench.launch.batch_executors import (
    OMP_THREADS,
    Job,
    JobBegan,
    LocalExecutor,
    compile_threads,
    count_jobs_at_once,
)
from inductor_bench.launch.worker import COMPILE_THREADS
from inductor_bench.records.batch_record import BatchModel
from inductor_bench.records.request import BatchRequest, BreakdownRequest
from inductor_bench.store.folder import RunFolder
from inductor_bench.store.lock import TURN, WAITING, DeviceTurn
from inductor_bench.worker.capture import programs
from inductor_bench.worker.device.runtime import SharedDevice
from inductor_bench.workflows import batch as batch_devices
from inductor_bench.workflows.batch import run_batch
from inductor_bench.workflows.progress import Silent


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(TURN, str(tmp_path / "turn"))
    monkeypatch.setenv(WAITING, str(tmp_path / "waiting"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(RARE_COLLECTION)]))
    return tmp_path


def start(code: str) -> subprocess.Popen[str]:
    code = f"from inductor_bench.store.lock import DeviceTurn\n{textwrap.dedent(code)}"
    return subprocess.Popen([sys.executable, "-c", code], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


HOLDER = "turn = DeviceTurn(); turn.take(); print('has it', flush=True); input(); turn.give_up(); input()"


def test_one_has_the_turn_and_the_other_waits(shared: Path) -> None:
    other = start(HOLDER)
    assert other.stdout is not None and other.stdin is not None and other.stdout.readline() == "has it\n"
    waiter = start("with DeviceTurn(): print('had it', flush=True)")
    wait_for((shared / "waiting").exists)
    assert waiter.poll() is None
    other.stdin.write("\n")
    other.stdin.flush()
    assert waiter.communicate(timeout=600)[0] == "had it\n"
    assert not (shared / "waiting").exists() and other.poll() is None
    other.kill()
    other.communicate()


def test_a_killed_holder_has_the_turn_no_longer(shared: Path) -> None:
    other = start(HOLDER)
    assert other.stdout is not None and other.stdout.readline() == "has it\n"
    other.kill()
    with DeviceTurn() as turn:
        assert turn.held
    assert not turn.held
    other.communicate()


def test_a_waiter_that_was_killed_counts_as_waiting_no_longer(shared: Path) -> None:
    (shared / "waiting").touch()
    with DeviceTurn():
        assert not (shared / "waiting").exists()


def test_where_nobody_shares_there_are_no_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TURN, raising=False)
    with DeviceTurn() as turn:
        assert not turn.is_shared and not turn.held


@pytest.mark.parametrize(
    ("cores", "devices", "at_once", "threads"),
    [
        (2, ("0",), 1, None),
        (7, ("0",), 1, None),
        (8, ("0",), 2, 3),
        (16, ("0",), 4, 3),
        (16, ("0", "1", "2"), 1, 5),
        (64, ("0", "1"), 4, 7),
        (2, ("0", "1", "2"), 1, 1),
        (64, ("cpu",), 1, None),
    ],
)
def test_there_must_be_cores_for_it(cores: int, devices: tuple[str, ...], at_once: int, threads: int | None) -> None:
    assert count_jobs_at_once(cores, devices) == at_once
    assert compile_threads(cores, len(devices), at_once) == threads


PROGRAM = """
    import os, sys, torch
    from inductor_bench.worker.device.runtime import SharedDevice
    from torch._inductor.runtime.benchmarking import benchmarker
    def other_may(what):
        lock = os.open(os.environ["INDUCTOR_BENCH_DEVICE_TURN"], os.O_RDWR | os.O_CREAT)
        import fcntl
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            print(what, "free", flush=True)
        except BlockingIOError:
            print(what, "ours", flush=True)
        os.close(lock)
    def backend(graph, inputs):
        other_may("forward compiles")
        type(benchmarker).benchmark_gpu(benchmarker, lambda: other_may("benchmark"))
        def compile_backward(graph, inputs):
            other_may("backward compiles")
            return graph
        from functorch.compile import make_boxed_func
        from torch._dynamo.backends.common import aot_autograd
        return aot_autograd(
            fw_compiler=lambda g, i: make_boxed_func(g),
            bw_compiler=lambda g, i: (other_may("backward compiles"), make_boxed_func(g))[1],
        )(graph, inputs)
    for name in ("InductorBenchmarker", "TritonBenchmarker"):
        kind = getattr(torch._inductor.runtime.benchmarking, name)
        kind.benchmark_gpu = lambda self, run, **_: run()
    torch.cuda.is_initialized = lambda: False
    shared = SharedDevice()
    other_may("before")
    shared.take_turn()
    shared.release_turn_while_compiling(sys.argv[1])
    model = torch.nn.Linear(2, 2)
    def step(x):
        return model(x).sum()
    compiled = torch.compile(step, backend=backend)
    other_may("placed")
    loss = compiled(torch.randn(1, 2))
    other_may("forward ran")
    loss.backward()
    other_may("backward ran")
"""


@pytest.mark.parametrize(
    ("mode", "variables", "while_compiling"),
    [
        ("default", {}, ["free", "ours", "free"]),
        ("max-autotune", {}, ["ours", "ours", "ours"]),
        ("default", {"TORCHINDUCTOR_MAX_AUTOTUNE": "1"}, ["ours", "ours", "ours"]),
    ],
)
def test_a_program_leaves_the_turn_while_it_compiles(
    shared: Path, mode: str, variables: dict[str, str], while_compiling: list[str]
) -> None:
    (shared / "program.py").write_text(textwrap.dedent(PROGRAM))
    words = [forking_python.interpreter(), str(shared / "program.py"), mode]
    ran = subprocess.run(words, text=True, capture_output=True, env={**os.environ, **variables})
    assert ran.returncode == 0, ran.stderr
    forward, benchmark, backward = while_compiling
    assert ran.stdout.splitlines() == [
        "before free",
        "placed ours",
        f"forward compiles {forward}",
        f"benchmark {benchmark}",
        "forward ran ours",
        f"backward compiles {backward}",
        "backward ran ours",
    ]


def run(tmp_path: Path, lines: str, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, BatchModel], list[str]]:
    """The models of a batch whose pretended children overlap on one pretended GPU, and what happened."""
    monkeypatch.setattr(sys, "executable", forking_python.interpreter())
    monkeypatch.setattr(batch_executors, "ENTRY", (str(ROOT / "tests" / "support" / "batch_child.py"),))
    monkeypatch.setattr("inductor_bench.workflows.batch_state.LOOK_S", 0.01)
    monkeypatch.setattr(batch_devices, "list_visible_gpus", lambda: ("0",))
    monkeypatch.setattr(
        "inductor_bench.workflows.batch.count_usable_cores", lambda: 2
    )  # with more, three models overlap
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, [ROOT, ROOT / "tests" / "support", RARE_COLLECTION])))
    (tmp_path / "list.txt").write_text("\n".join(lines.split("|")))
    batch = run_batch(BatchRequest(tmp_path / "list.txt", tmp_path / "b", overlap=True), Silent()).batch
    events = [line.removesuffix(" 0") for line in (tmp_path / "b" / "events").read_text().splitlines()]
    return {model.request.name: model for model in batch.models}, events


def test_two_models_overlap_and_are_timed_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, events = run(tmp_path, "shares1|shares2|good", monkeypatch)
    assert {row.status for row in found.values()} == {"done"}
    assert {events.index("begin shares1"), events.index("begin shares2")} == {0, 1}, "each waited for the other"
    timing = [event for event in events if event.startswith("time")]
    assert [event.split()[0] for event in timing] == ["times", "timed"] * 2, "and neither was timed beside the other"
    assert events.index("begin good") > min(events.index("end shares1"), events.index("end shares2"))


def test_a_model_that_ran_out_of_memory_beside_another_is_tried_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, events = run(tmp_path, "crowded 8|neighbour|other", monkeypatch)
    row = found["crowded"]
    assert (row.status, row.batch_size, row.attempts) == ("done", None, 1)
    assert row.notes == ("there was too little memory beside another model: tried alone",)
    second = len(events) - 1 - events[::-1].index("begin crowded")
    assert events[second + 1] == "end crowded", "nothing began while it was tried again"
    assert events[:second].count("begin neighbour") == events[:second].count("end neighbour")


@pytest.mark.parametrize("name", ["idles", "cores"])
def test_a_model_whose_time_cores_decide_is_timed_again_alone_at_the_end(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, events = run(tmp_path, f"{name}|good|other", monkeypatch)
    row = found[name]
    assert (row.status, row.attempts) == ("done", 1)
    assert row.notes == ("its time depends on the host: measured again without another model on its GPU",)
    assert events[-2:] == [f"begin {name}", f"end {name}"] and events.count(f"begin {name}") == 2
    assert [found[other].notes for other in ("good", "other")] == [(), ()], "their GPU is kept busy"


def test_one_that_is_to_be_timed_alone_is_so_at_once_when_the_batch_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, "idles|good|other", monkeypatch)
    state = tmp_path / "b" / "batch.json"
    batch = json.loads(state.read_text())
    for model in batch["models"][:2]:
        model["status"] = "waiting"
    state.write_text(json.dumps(batch))
    found, events = run(tmp_path, "idles|good|other", monkeypatch)
    assert events[-4:] == ["begin good", "end good", "begin idles", "end idles"]
    assert found["idles"].status == "done" and len(found["idles"].notes) == 1 and found["good"].notes == ()


def test_a_model_that_nothing_ran_beside_is_timed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, events = run(tmp_path, "idles_alone", monkeypatch)
    assert found["idles_alone"].notes == () and events == ["begin idles_alone", "end idles_alone"]


def job_of(folder: Path, device: str | None = None) -> Job:
    return Job("m", "timm:m", (), (), device, 10.0, folder / "run", folder / "log")


def test_a_job_has_its_share_of_the_cores_unless_it_times_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inductor_bench.launch.batch_executors.count_usable_cores", lambda: 16)
    for name in (COMPILE_THREADS, OMP_THREADS):
        monkeypatch.delenv(name, raising=False)
    executor = LocalExecutor(("0",), 4, lambda line: None)
    executor.settle(tmp_path, ())
    try:
        environment = executor._environment("0", tmp_path, job_of(tmp_path))
        assert (environment[COMPILE_THREADS], environment[OMP_THREADS]) == ("3", "3")
        assert OMP_THREADS not in executor._environment("0", tmp_path, job_of(tmp_path, "cpu"))
        alone = executor._environment("0", tmp_path, replace(job_of(tmp_path), alone=True))
        assert COMPILE_THREADS not in alone and OMP_THREADS not in alone
        monkeypatch.setenv(OMP_THREADS, "5")
        assert executor._environment("0", tmp_path, job_of(tmp_path))[OMP_THREADS] == "5", "the user's own"
    finally:
        executor.close()


def test_waiting_for_its_turn_takes_none_of_a_models_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("inductor_bench.launch.batch_executors.time.monotonic", lambda: now[0])
    (tmp_path / "child.py").write_text("import time; time.sleep(600)")
    monkeypatch.setattr(batch_executors, "ENTRY", (str(tmp_path / "child.py"),))
    executor = LocalExecutor(("0",), 2, lambda line: None)
    executor.settle(tmp_path, ())
    executor.start(job_of(tmp_path))
    try:
        assert executor.events() == [JobBegan("m", "0")]
        (tmp_path / "m.waiting").touch()
        now[0] = 100.0
        assert executor.events() == []
        (tmp_path / "m.waiting").unlink()
        now[0] = 109.0
        assert executor.events() == []
        now[0] = 111.0
        (ended,) = executor.events()
        assert ended.name == "m" and ended.result.timed_out  # type: ignore[union-attr]
    finally:
        executor.close()


def test_a_process_without_a_turn_does_not_use_a_gpu_that_may_be_full(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.delenv(TURN, raising=False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", fail)
    SharedDevice().release_turn()


MODULE = """
import sys, os, fcntl
LOCK = os.open(os.environ["INDUCTOR_BENCH_DEVICE_TURN"], os.O_RDWR | os.O_CREAT)
def tell(what):
    try:
        fcntl.flock(LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(LOCK, fcntl.LOCK_UN)
        print(what, "free", flush=True)
    except BlockingIOError:
        print(what, "ours", flush=True)
tell("begins")
from torch._inductor.runtime.benchmarking import TritonBenchmarker, benchmarker
TritonBenchmarker.benchmark_gpu(benchmarker, lambda: tell("uses the GPU"))
tell("goes on")
BEFORE = set(sys.modules)
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.codegen.memory_planning import _align as align
from torch._inductor.runtime import triton_helpers
from torch._inductor.select_algorithm import extern_kernels
print("imported", *set(sys.modules) - BEFORE, flush=True)
"""


@pytest.mark.parametrize("may_leave", [True, False])
def test_the_turn_is_left_for_a_while_if_it_may_be(may_leave: bool, shared: Path) -> None:
    device = SharedDevice()
    with device.release_turn_inside(lambda: pytest.fail("it has no turn")):
        pass
    with device.hold_turn():
        with device.release_turn_inside(lambda: may_leave):
            assert device._turn.held != may_leave
        assert device._turn.held


def test_a_fork_with_an_environment_of_its_own_takes_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker makes its turns when it imports, before it forks a process for a job whose device is shared."""
    monkeypatch.delenv(TURN, raising=False)
    turn = DeviceTurn()
    assert not turn.is_shared
    monkeypatch.setenv(TURN, str(tmp_path / "turn"))
    with turn:
        assert turn.held


def test_a_module_leaves_the_gpu_to_others_until_it_is_loaded(shared: Path) -> None:
    (shared / "compiled.py").write_text(MODULE)
    program = f"""
        from pathlib import Path
        from inductor_bench.worker.device.runtime import load_in_turn
        from torch._inductor.runtime.benchmarking import TritonBenchmarker
        TritonBenchmarker.benchmark_gpu = lambda self, run, **_: run()
        load_in_turn(Path({str(shared / "compiled.py")!r}))
        print("loaded", flush=True)
        input()
    """
    child = start(program)
    assert child.stdout is not None and child.stdin is not None
    assert [child.stdout.readline() for _ in range(5)] == [
        "begins free\n",
        "uses the GPU ours\n",
        "goes on free\n",
        "imported\n",
        "loaded\n",
    ]
    other = start("with DeviceTurn(): print('had it', flush=True)")
    wait_for((shared / "waiting").exists)
    assert other.poll() is None, "the turn lasts as long as the process"
    child.communicate("\n", timeout=600)
    assert other.communicate(timeout=600)[0] == "had it\n"


def test_a_named_model_takes_its_turn_when_the_compiler_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def take_turn(device: SharedDevice) -> None:
        done.append("turn")
        raise KeyboardInterrupt

    example = programs.Example(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
    monkeypatch.setattr(programs, "build_model", lambda *_: example)
    monkeypatch.setattr(programs, "import_compiler", lambda: done.append("compiler"))
    monkeypatch.setattr(SharedDevice, "take_turn", take_turn)
    with pytest.raises(KeyboardInterrupt):
        programs.run_program(BreakdownRequest("timm:x", "timm", batch_size=1, device="cpu"))
    assert done == ["compiler", "turn"]


SMALL = """
import os, torch
assert "INDUCTOR_BENCH_DEVICE_TURN" not in os.environ, "a command of this tool in here would wait for who runs this"
torch.compile(lambda x: x.sin().sum(-1))(torch.randn(64, 512))
"""


@pytest.mark.corner
def test_a_breakdown_with_a_retune_gets_by_with_one_turn_at_a_time(shared: Path) -> None:
    (shared / "small.py").write_text(SMALL)
    words = runs.command("breakdown", "small.py", "-o", "run", "--no-plots", "--autotune", "--top", "1")
    settings = runs.environment(**runs.forks())
    done = subprocess.run(
        forking_python.forked([*words, "--budget", "600"], settings),
        cwd=shared,
        env=settings,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr
    (retune,) = RunFolder(shared / "run").load().retunes
    assert retune.kernel is not None and retune.kernel.tuning is not None
    assert not (shared / "waiting").exists()

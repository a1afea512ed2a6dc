"""A batch on a Ray cluster of two nodes, both on this machine: what comes back, and what happens when a node goes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import RARE_COLLECTION, ROOT
from late import Late

from inductor_bench.errors import UsageError
from inductor_bench.launch import batch_executors
from inductor_bench.launch.batch_executors import Event, Job, JobBegan, JobLost, Order
from inductor_bench.records.batch_record import BatchModel
from inductor_bench.records.request import BatchRequest
from inductor_bench.store.folder import BatchFolder
from inductor_bench.workflows import batch
from inductor_bench.workflows.batch import run_batch
from inductor_bench.workflows.progress import Silent

ray_cluster = Late("inductor_bench.launch.ray_cluster")
pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")


class Listener(Silent):
    """Keeps what it is told, and does something when a word is said for the first time."""

    def __init__(self, word: str = "", act: Callable[[], None] = lambda: None) -> None:
        self.notes: list[str] = []
        self.printed: list[str] = []
        self._word, self._act = word, act

    def note(self, text: str) -> None:
        self.notes.append(text)

    def stage(self, text: str) -> None:
        if self._word and all(word in text for word in self._word.split()):
            self._word = ""
            self._act()

    def output(self, line: str) -> None:
        self.printed.append(line)


SMALL: dict[str, Any] = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 80_000_000}
QUICK_TO_SEE_LOSSES = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500}


class TwoNodes:
    """A cluster, and the folder that its models write what happens to."""

    def __init__(self, folder: Path) -> None:
        from ray.cluster_utils import Cluster

        self._folder = folder
        head = {**SMALL, "include_dashboard": False, "_system_config": QUICK_TO_SEE_LOSSES}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self._second = self._cluster.add_node(**SMALL)
        self.address: str = self._cluster.address

    @property
    def events(self) -> list[list[str]]:
        path = self._folder / "events"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def running(self) -> list[tuple[str, int]]:
        """The models that are awaiting something, and their processes."""
        there = [(words[1], int(words[2])) for words in self.events if words[0] == "at"]
        return [(name, pid) for name, pid in there if name.startswith("awaits") and psutil.pid_exists(pid)]

    def await_two(self) -> None:
        """Until both nodes run a model."""
        deadline = time.monotonic() + 600
        while len(self.running()) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def forget(self) -> None:
        for name in ("events", "go"):
            (self._folder / name).unlink(missing_ok=True)

    def allow_device_use(self) -> None:
        (self._folder / "go").touch()

    def lose_second(self) -> str:
        """Kills a node as a power cut would, and gives the name of the model that ran there."""
        self.await_two()
        raylet = next(iter(self._second.all_processes["raylet"])).process.pid
        ((name, model),) = [(name, pid) for name, pid in self.running() if raylet in _line_of(pid)]
        self._cluster.remove_node(self._second, allow_graceful=False)
        psutil.wait_procs([psutil.Process(model)] if psutil.pid_exists(model) else [], timeout=600)
        return name

    def replace_second(self) -> None:
        """Adds a node in the place of one that was lost, for the tests that follow."""
        self._second = self._cluster.add_node(**SMALL)

    def shutdown(self) -> None:
        self._cluster.shutdown()


def _line_of(pid: int) -> list[int]:
    return [parent.pid for parent in psutil.Process(pid).parents()]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    folder = tmp_path_factory.mktemp("nodes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("BATCH_EVENTS", str(folder / "events"))
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, [ROOT, ROOT / "tests" / "support", RARE_COLLECTION])))
        cluster = TwoNodes(folder)
        try:
            yield cluster
        finally:
            cluster.shutdown()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_executors, "ENTRY", (str(ROOT / "tests" / "support" / "batch_child.py"),))


def run(
    tmp_path: Path, nodes: TwoNodes, lines: str, listener: Silent | None = None, **more: Any
) -> dict[str, BatchModel]:
    (tmp_path / "list.txt").write_text("\n".join(lines.split("|")))
    nodes.forget()
    address = more.pop("address", nodes.address)
    options = BatchRequest(tmp_path / "list.txt", tmp_path / "b", executor="ray", address=address, **more)
    return {model.request.name: model for model in run_batch(options, listener or Silent()).batch.models}


def statuses(found: dict[str, BatchModel]) -> dict[str, str]:
    return {name: row.status for name, row in found.items()}


@pytest.mark.xdist_group("ray")
def test_results_come_back_to_the_one_folder(nodes: TwoNodes, tmp_path: Path) -> None:
    found = run(tmp_path, nodes, "good|large 4|refused")
    assert statuses(found) == {"good": "done", "large": "done", "refused": "failed"}
    folder = BatchFolder(tmp_path / "b")
    assert folder.run("good").load().modules and folder.log("refused").read_text().startswith("Error: it cannot be")
    assert found["large"].batch_size == 2 and found["good"].device.endswith(":cpu")
    refused = found["refused"].failure
    assert refused is not None and (refused.message, refused.hint) == ("it cannot be", "do something else")
    listener = Listener()
    assert statuses(run(tmp_path, nodes, "good|other", listener))["other"] == "done"
    assert listener.notes[1] == "1 of 2 are there already", "and it goes on where it was"
    assert not folder.work.exists()


@pytest.mark.corner
@pytest.mark.xdist_group("ray")
def test_an_interruption_leaves_nothing_on_the_cluster(nodes: TwoNodes, tmp_path: Path) -> None:
    def stop() -> None:
        nodes.await_two()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="0 of 2 models are in"):
        run(tmp_path, nodes, "awaits-1|awaits-2", Listener("awaits-1 awaits-2", stop))
    assert nodes.running() == []
    stored = {model.request.name: model for model in BatchFolder(tmp_path / "b").load().models}
    assert statuses(stored) == {"awaits-1": "waiting", "awaits-2": "waiting"}


@pytest.mark.corner
@pytest.mark.xdist_group("ray")
def test_a_model_of_a_lost_node_runs_elsewhere(nodes: TwoNodes, tmp_path: Path) -> None:
    lost: list[str] = []

    def lose() -> None:
        lost.append(nodes.lose_second())
        nodes.allow_device_use()

    listener = Listener("awaits-1 awaits-2", lose)
    try:
        found = run(tmp_path, nodes, "awaits-1|awaits-2", listener)
    finally:
        nodes.replace_second()
    assert set(statuses(found).values()) == {"done"}
    (name,) = lost
    begun = [words[1] for words in nodes.events if words[0] == "begin"]
    assert begun.count(name) == 2 and len(begun) == 3
    assert {row.attempts for row in found.values()} == {1}
    assert "was lost: begun again" in found[name].notes[0]
    assert any("was lost: begun again" in line for line in listener.notes) and "it waits" in listener.printed


@pytest.mark.xdist_group("ray")
def test_a_cluster_without_a_gpu(nodes: TwoNodes, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the Ray cluster has no GPU"):
        run(tmp_path, nodes, "good", overrides={"device": "cuda"})
    assert not (tmp_path / "b").exists()


def test_an_address_where_nothing_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_executors, "CONNECT_S", 3.0)
    (tmp_path / "list.txt").write_text("good")
    options = BatchRequest(tmp_path / "list.txt", tmp_path / "b", executor="ray", address="127.0.0.1:9")
    with pytest.raises(UsageError, match=r"no Ray cluster answers at 127\.0\.0\.1:9 within 3 s"):
        run_batch(options, Silent())
    assert not (tmp_path / "b").exists()


def test_without_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_executors.importlib.util, "find_spec", lambda name: None)
    (tmp_path / "list.txt").write_text("good")
    with pytest.raises(UsageError, match="not installed") as refused:
        run_batch(BatchRequest(tmp_path / "list.txt", tmp_path / "b", executor="ray"), Silent())
    assert refused.value.hint == "pip install 'inductor-bench[ray]'"


@pytest.mark.parametrize("silent", [True, False])
def test_a_batch_that_was_killed_leaves_nothing(silent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scratch").mkdir()
    (requests, theirs), (their_answers, answers) = os.pipe(), os.pipe()
    os.close(their_answers)
    if silent:
        os.close(theirs)
    closed: list[Any] = []
    monkeypatch.setattr(ray_cluster.Cluster, "connect", lambda self, address: None)
    monkeypatch.setattr(ray_cluster.Cluster, "poll", lambda self: self._say("began"))
    monkeypatch.setattr(ray_cluster.Cluster, "close", lambda self: closed.append(self))
    assert ray_cluster.main(["auto", str(tmp_path / "scratch"), str(requests), str(answers)]) == 0
    assert len(closed) == 1 and not (tmp_path / "scratch").exists()
    for end in (requests, theirs)[: 1 if silent else 2]:
        os.close(end)


class LosesEverything:
    """An executor whose machines do not live long."""

    slots = 1

    def __init__(self) -> None:
        self._news: list[Event] = []

    def settle(self, work: Path, inherited: object) -> None:
        pass

    def takes(self, job: Job) -> bool:
        return True

    def start(self, job: Job) -> None:
        self._news += [JobBegan(job.name, "far:0"), JobLost(job.name, "it does not answer")]

    def events(self) -> list[Event]:
        news, self._news = self._news, []
        return news

    def close(self) -> None:
        pass


def test_a_model_that_takes_its_machines_down_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "RayExecutor", lambda address, on_line: LosesEverything())
    monkeypatch.setattr(LosesEverything, "gpus", 1, raising=False)
    (tmp_path / "list.txt").write_text("good")
    options = BatchRequest(tmp_path / "list.txt", tmp_path / "b", executor="ray", retries=9)
    (row,) = run_batch(options, Silent()).batch.models
    assert (row.status, row.attempts, row.notes) == ("failed", 1, ("far was lost: begun again",) * 2)
    assert row.failure is not None and row.failure.kind == "lost"
    assert row.failure.message == "3 machines were lost while they ran it; the last one: it does not answer"


def test_a_job_on_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "entry.py").write_text(
        "import os, sys\nfrom pathlib import Path\nfrom model import name\nrun = Path(sys.argv[-1])\n"
        "print(name, sys.argv[1:-1], os.environ.get('OMP_NUM_THREADS'), os.environ['A'], flush=True)\n"
        "(run / 'new').write_text((run / 'old').read_text() + ' and new')\nsys.exit(3)\n"
    )
    monkeypatch.setenv("PYTHONPATH", ".")
    job = ray_cluster.NodeJob()
    job.put([("old", b"what was there")])
    order = Order((str(tmp_path / "entry.py"),), ("breakdown", "{run}"), {"A": "b"}, timeout_s=60)
    assert job.begin(order, {"model.py": b"name = 'my model'"}, gpu=False).endswith(":cpu")
    printed, ended = b"", None
    while ended is None:
        more, ended = job.look()
        printed += more
    assert printed.decode().split("\n")[0] == "my model ['breakdown'] None b" and ended.exit_code == 3
    assert job.piece() == [("new", b"what was there and new"), ("old", b"what was there")] and job.piece() == []
    job.close()
    assert list((tmp_path / "scratch").glob("*/*")) == []


def test_scratch_that_nobody_uses_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (left, lock), (used, _) = ray_cluster.make_scratch(), ray_cluster.make_scratch()
    os.close(lock)
    ray_cluster.make_scratch()
    assert used.is_dir() and not left.exists() and len(list(used.parent.glob("*.lock"))) == 2


def test_scratch_that_others_could_reach_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    known = tmp_path / f"inductor-bench-nodes-{os.getuid()}"
    victim = tmp_path / "victim"
    victim.mkdir()
    known.symlink_to(victim)
    path, lock = ray_cluster.make_scratch()
    assert path.parent == tmp_path and path.stat().st_mode & 0o777 == 0o700 and not list(victim.iterdir())
    os.close(lock)
    ray_cluster.remove_scratch(path)
    known.unlink()
    assert list(tmp_path.iterdir()) == [victim]

    known.mkdir()
    known.chmod(0o777)
    path, lock = ray_cluster.make_scratch()
    assert path.parent == known and known.stat().st_mode & 0o777 == 0o700  # ours: its mode is mended
    os.close(lock)

    other = os.getuid() + 1
    monkeypatch.setattr("os.getuid", lambda: other)
    (tmp_path / f"inductor-bench-nodes-{os.getuid()}").mkdir(mode=0o777)
    path, lock = ray_cluster.make_scratch()
    assert path.parent == tmp_path and path.is_dir()
    os.close(lock)


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/out", "", "."])
def test_a_machine_of_the_cluster_writes_within_its_folder(name: str, tmp_path: Path) -> None:
    name = f"{tmp_path}{name}" if name.startswith("/") else name
    with pytest.raises(ValueError, match="not the name of a file"):
        ray_cluster.append_to_files(tmp_path / "a" / "b", [("good", b"x"), (name, b"x")])
    assert not list(tmp_path.rglob("out"))
    job = ray_cluster.NodeJob()
    try:
        with pytest.raises(ValueError, match="not the name of a file"):
            job.begin(Order((), (), {}, None), {name: b"x"}, gpu=False)
    finally:
        job.close()
    assert not list(tmp_path.rglob("out"))


def test_a_folder_arrives_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inductor_bench.launch.ray_cluster.PIECE_BYTES", 10)
    contents = {"record.json": b"0123456789" * 3, "modules/a.py": b"", "modules/b.py": b"12345", "kernels/k.py": b"12"}
    for name, data in {**contents, ".work/cache/x": b"scratch"}.items():
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).write_bytes(data)
    pieces = list(ray_cluster.read_pieces(tmp_path / "run"))
    assert len(pieces) == 3 and max(sum(len(data) for _, data in piece) for piece in pieces) < 20
    for piece in pieces:
        ray_cluster.append_to_files(tmp_path / "copy", piece)
    files = [path for path in (tmp_path / "copy").rglob("*") if path.is_file()]
    assert {path.relative_to(tmp_path / "copy").as_posix(): path.read_bytes() for path in files} == contents


def test_a_program_takes_its_neighbours_along(tmp_path: Path) -> None:
    for name in ("model.py", "parts.py", "nets/__init__.py", "nets/deep/net.py", "runs/kernels/k.py", "data.bin"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert sorted(ray_cluster.read_program(tmp_path / "model.py")) == [
        "model.py",
        "nets/__init__.py",
        "nets/deep/net.py",
        "parts.py",
    ]

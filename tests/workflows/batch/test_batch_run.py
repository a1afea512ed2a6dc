"""A batch over models that take no time: what becomes of each, what is kept, and what is done again."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import time
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from batch_runs import Listener, begun, quick, rows, run, statuses

from inductor_bench.errors import InductorBenchError, UsageError
from inductor_bench.records.batch_record import BatchModel
from inductor_bench.records.request import BatchRequest, BreakdownRequest, ModelRequest, SearchRequest
from inductor_bench.store.folder import BatchFolder
from inductor_bench.store.redaction import Redaction
from inductor_bench.workflows import batch as batch_devices
from inductor_bench.workflows import batch_state
from inductor_bench.workflows import batch_state as attempt
from inductor_bench.workflows.batch import default_folder, find_devices, find_jobs_at_once, run_batch
from inductor_bench.workflows.batch_state import BatchState
from inductor_bench.workflows.progress import Silent

__all__ = ["quick"]


def test_every_model_has_a_row_whatever_becomes_of_it(tmp_path: Path) -> None:
    listener = Listener()
    found = run(tmp_path, "good|fails|crashes|half|elsewhere|offline|unreachable|refused|unknown", listener)
    assert statuses(found) == {
        "good": "done",
        "fails": "failed",
        "crashes": "failed",
        "half": "partial",
        "elsewhere": "skipped",
        "offline": "skipped",
        "unreachable": "skipped",
        "refused": "failed",
        "unknown": "failed",
    }
    failures = {name: (row.failure.stage, row.failure.kind) for name, row in found.items() if row.failure}
    assert failures["fails"] == ("capture", "exit") and failures["crashes"] == ("breakdown", "signal")
    assert failures["offline"] == ("capture", "download") and failures["half"] == ("profile", "signal")
    refused = found["refused"].failure
    assert refused is not None and (refused.message, refused.hint) == ("it cannot be", "do something else")
    assert "the process was killed by SIGKILL" in (found["crashes"].failure or pytest.fail()).message
    for name, row in found.items():
        assert row.log == f"logs/{name}.log" and (tmp_path / "b" / row.log).is_file()
    assert BatchFolder(tmp_path / "b").load().models == tuple(found.values())
    assert any(line.startswith("good: ") and "per iteration" in line for line in listener.notes)
    assert "2 of 9 done, 4 failed" in listener.stages[-1] and "left" in listener.stages[2]
    assert not (tmp_path / "b" / ".work").exists()


def test_the_next_turn_does_what_is_missing_or_failed(tmp_path: Path) -> None:
    run(tmp_path, "good|fails|half|elsewhere|good 8")
    before = (tmp_path / "b" / "models" / "good" / "record.json").stat().st_mtime_ns
    listener = Listener()
    found = run(tmp_path, "good|fails|half|elsewhere|good 8|other", listener)
    assert begun(tmp_path)[5:] == ["fails", "other"] and listener.notes[0] == "4 of 6 are there already"
    assert statuses(found)["other"] == "done" and found["fails"].attempts == 1
    assert (tmp_path / "b" / "models" / "good" / "record.json").stat().st_mtime_ns == before


def test_what_is_stored_stays_though_fewer_are_asked_for(tmp_path: Path) -> None:
    run(tmp_path, "good|fails")
    assert statuses(run(tmp_path, "good|fails", filters=("good",))) == {"good": "done", "fails": "failed"}
    assert begun(tmp_path) == ["good", "fails"]


@pytest.mark.parametrize("damage", ["", "{", '{"format": 1, "modules": 3}'])
def test_a_record_that_was_damaged_is_made_again(damage: str, tmp_path: Path) -> None:
    run(tmp_path, "good|other")
    (tmp_path / "b" / "models" / "good" / "record.json").write_text(damage)
    assert set(statuses(run(tmp_path, "good|other")).values()) == {"done"}
    assert begun(tmp_path) == ["good", "other", "good"]


def test_a_record_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    run(tmp_path, "good|other")
    record = tmp_path / "b" / "models" / "good" / "record.json"
    record.write_text('{"format": 99}')
    assert statuses(run(tmp_path, "good|other|fails")) == {"good": "done", "other": "done", "fails": "failed"}
    assert begun(tmp_path) == ["good", "other", "fails"] and record.read_text() == '{"format": 99}'


def test_other_options_do_not_replace_what_was_measured(tmp_path: Path) -> None:
    run(tmp_path, "good 8|fails 8")
    with pytest.raises(UsageError, match="has measured good with another batch size: 8, and now 4"):
        run(tmp_path, "good 4|fails 8")
    with pytest.raises(UsageError, match=r"another training: ., and now True") as caught:
        run(tmp_path, "good 8", overrides={"training": True})
    assert "--force" in caught.value.hint and begun(tmp_path) == ["good", "fails"]
    run(tmp_path, "good 4", force=True)
    assert begun(tmp_path) == ["good", "fails", "good"]
    assert run(tmp_path, "good 4|fails 2")["fails"].request.batch_size == 2, "what failed may be asked otherwise"


def test_the_batch_is_halved_if_memory_runs_out(tmp_path: Path) -> None:
    listener = Listener()
    row = run(tmp_path, "large 8", listener)["large"]
    assert (row.status, row.request.batch_size, row.batch_size, row.attempts) == ("done", 8, 2, 1)
    assert row.notes == ("batch 8 ran out of memory: tried with 4", "batch 4 ran out of memory: tried with 2")
    assert any("batch 8 ran out of memory: tried with 4; once more" in line for line in listener.notes)
    assert begun(tmp_path) == ["large"] * 3


def test_memory_that_one_sample_does_not_have_is_a_failure() -> None:
    failure = attempt.Failure("capture", "memory", "out of memory")
    request = attempt.ModelRequest("timm:m", name="m", batch_size=1)
    assert attempt.try_again(BatchModel(request, "failed", 1, failure=failure), 5) is None


def test_retries(tmp_path: Path) -> None:
    found = run(tmp_path, "flaky|fails|unknown|half", retries=2)
    assert statuses(found) == {"flaky": "done", "fails": "failed", "unknown": "failed", "half": "partial"}
    assert begun(tmp_path) == ["flaky"] * 2 + ["fails"] * 3 + ["unknown", "half"]
    assert found["flaky"].attempts == 2 and found["fails"].attempts == 3


def test_a_time_limit_ends_a_model_and_not_the_batch(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("models: [{target: hangs, timeout: 0.5}, good]")
    found = rows(run_batch(BatchRequest(tmp_path / "list.yaml", tmp_path / "b"), Silent()).batch)
    failure = found["hangs"].failure
    assert failure is not None and failure.kind == "timeout" and "time limit after" in failure.message
    assert "--timeout" in failure.hint and found["good"].status == "done"


@pytest.mark.parametrize("stop_at", ["fails failed: ", "hangs on the CPU"])
def test_an_interruption_keeps_what_was_measured(stop_at: str, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt, match=r"1 of 3 models are in .*the same command continues"):
        run(tmp_path, "good|fails|hangs", Listener(stop_at))
    stored = rows(BatchFolder(tmp_path / "b").load())
    assert statuses(stored) == {"good": "done", "fails": "failed", "hangs": "waiting"}
    assert statuses(run(tmp_path, "good|fails|other"))["other"] == "done"
    assert begun(tmp_path).count("good") == 1


def test_one_model_at_a_time_on_each_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_devices, "list_visible_gpus", lambda: ("0", "3"))
    found = run(tmp_path, "a|b|c|d|e")
    assert {row.device for row in found.values()} == {"0", "3"} and set(statuses(found).values()) == {"done"}
    running: dict[str, str] = {}
    for line in (tmp_path / "b" / "events").read_text().splitlines():
        event, name, device = line.split()
        if event == "begin":
            assert device not in running, "two on one device"
            running[device] = name
        else:
            assert running.pop(device) == name


def test_two_batches_on_one_folder(tmp_path: Path) -> None:
    folder = BatchFolder(tmp_path / "b")
    with (
        folder.locked(),
        pytest.raises(UsageError, match=f"another .* is writing .*process {os.getpid()}"),
    ):
        run(tmp_path, "good")
    assert statuses(run(tmp_path, "good")) == {"good": "done"}


def test_a_batch_that_was_killed_before_it_began(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for left in (".lock", ".batch.json.x1y2z3"):
        (tmp_path / "b" / left).touch()
    assert statuses(run(tmp_path, "good")) == {"good": "done"}
    assert not list((tmp_path / "b").glob(".batch.json.*"))


def test_a_batch_that_was_killed_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["true"]) as killed:
        while psutil.Process(killed.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        (tmp_path / "b").mkdir()
        with (tmp_path / "b" / ".lock").open("w") as model_in_flight:
            print(killed.pid, file=model_in_flight, flush=True)
            fcntl.flock(model_in_flight, fcntl.LOCK_EX)
            monkeypatch.setattr("inductor_bench.store.lock.time.sleep", lambda _: model_in_flight.close())
            with BatchFolder(tmp_path / "b").locked():
                assert model_in_flight.closed


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("inductor_bench.store.lock.fcntl.flock", refuse)
    with pytest.raises(InductorBenchError, match=r"cannot lock .*Function not implemented"):
        run(tmp_path, "good")


@pytest.mark.parametrize("text", ["{", "[1]", '{"format": 1}'])
def test_a_damaged_batch_says_what_is_left(text: str, tmp_path: Path) -> None:
    run(tmp_path, "good")
    (tmp_path / "b" / "batch.json").write_text(text)
    with pytest.raises(InductorBenchError) as caught:
        run(tmp_path, "good")
    assert "RUN folders under models/ are whole" in caught.value.hint


def test_folders_that_are_not_a_batch(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("mine")
    with pytest.raises(UsageError, match="is not a folder"):
        run(tmp_path, "good")
    (tmp_path / "b").unlink()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.tex").write_text("mine")
    with pytest.raises(UsageError, match="is not empty and is not a batch"):
        run(tmp_path, "good")
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["thesis.tex"]


def test_what_a_model_started_ends_with_it(tmp_path: Path) -> None:
    assert statuses(run(tmp_path, "orphans")) == {"orphans": "failed"}
    (worker,) = [line for line in (tmp_path / "b" / "events").read_text().splitlines() if line.startswith("worker")]
    pid = int(worker.split()[1])
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_an_earlier_batch_is_refused_if_that_is_wished(tmp_path: Path) -> None:
    run(tmp_path, "good")
    with pytest.raises(UsageError, match="holds an earlier batch"):
        run(tmp_path, "good", resume=False)


def test_the_folder_is_the_same_each_time() -> None:
    assert default_folder(BatchRequest(Path("configs/timm.txt"))) == Path("batches/timm")
    assert default_folder(BatchRequest(Path("a.txt"), overrides={"training": True})) == Path("batches/a-training")


@pytest.mark.parametrize(
    ("there", "asked", "devices"),
    [
        ((), (), ("cpu",)),
        ((), ("cpu",), ("cpu",)),
        (("0", "1", "2"), (), ("0", "1", "2")),
        (("0", "1", "2"), ("2", "0"), ("2", "0")),
    ],
)
def test_devices(
    there: tuple[str, ...], asked: tuple[str, ...], devices: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_devices, "list_visible_gpus", lambda: there)
    assert find_devices(asked, ()) == devices


@pytest.mark.parametrize(
    ("there", "asked", "message"),
    [
        ((), ("0",), "there is no GPU 0"),
        (("0", "1"), ("2",), "there is no GPU 2"),
        (("0", "1"), ("0", "0"), "twice"),
        ((), ("cpu", "cpu"), "twice"),
    ],
)
def test_devices_that_cannot_be(
    there: tuple[str, ...], asked: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_devices, "list_visible_gpus", lambda: there)
    with pytest.raises(UsageError, match=message):
        find_devices(asked, ())


@pytest.mark.parametrize(
    ("devices", "cores", "models", "jobs", "overlap", "at_once"),
    [
        (("0",), 16, 9, None, None, 4),
        (("0",), 16, 9, 3, None, 3),
        (("0",), 16, 1, None, None, 1),
        (("0",), 16, 9, None, False, 1),
        (("0",), 2, 9, None, True, 2),
        (("0", "1"), 16, 9, 4, None, 2),
        (("0", "1"), 32, 5, None, None, 3),
        (("0", "1"), 2, 9, 2, None, 1),
        (("cpu",), 64, 9, 1, None, 1),
        (("cpu",), 64, 9, None, True, 1),
    ],
)
def test_how_many_models_overlap(
    devices: tuple[str, ...], cores: int, models: int, jobs: int | None, overlap: bool | None, at_once: int
) -> None:
    assert find_jobs_at_once(devices, cores, models, jobs, overlap) == at_once


@pytest.mark.parametrize(
    ("devices", "jobs", "overlap", "message"),
    [
        (("0", "1"), 3, False, "--jobs 3 with 2 devices"),
        (("0", "1"), 5, None, "--jobs 5 with 2 devices"),
        (("cpu",), 2, True, "--jobs 2 with 1 device:"),
    ],
)
def test_models_that_would_share_their_time(
    devices: tuple[str, ...], jobs: int, overlap: bool | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        find_jobs_at_once(devices, 16, 9, jobs, overlap)


def test_the_gpus_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1, 3")
    assert batch_devices.list_visible_gpus() == ("1", "3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert batch_devices.list_visible_gpus() == ()


def test_the_time_left_counts_on_models_that_take_longer_than_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = cast(Any, None)
    state = BatchState(
        batch, batch, [], common=BreakdownRequest(), retries=0, jobs=None, progress=Listener(), redaction=Redaction()
    )
    state._slots, state._times = 2, [100.0]
    monkeypatch.setattr(batch_state.time, "monotonic", lambda: 1000.0)
    state._began = {"late": 500.0}
    late, new, following = (BatchModel(ModelRequest(f"timm:{name}", name=name)) for name in ("late", "new", "next"))
    state._given = {"late": late}
    assert state._left_s() == 20.0, "it has begun, so it is not over"
    state._began = {"late": 500.0, "new": 970.0}
    state._given = {"late": late, "new": new, "next": following}
    assert state._left_s() == (100.0 + 20.0 + 70.0) / 2
    state._search = SearchRequest(optimize=True, budget_s=900.0)
    state._waiting = [BatchModel(ModelRequest("timm:a", name="a"), "unoptimized")]
    assert state._left_s() == (100.0 + 20.0 + 70.0 + 4 * 900.0) / 2, "a search takes its budget, as far as is known"

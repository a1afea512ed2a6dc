"""``scripts/benchmark_batch.py``: what it makes of what batches leave, and that a killed one is started again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

import benchmark_batch
from benchmark_batch import Driver, pace, read_arguments, report, run


def leave(folder: Path, devices: str, kernels: dict[str, list[str]], wall_s: float = 1e-3) -> Driver:
    for name, ids in kernels.items():
        rows = [{"name": each, "kernel_id": each, "category": "pointwise", "calls": 1.0} for each in ids]
        (folder / "models" / name).mkdir(parents=True)
        modules = [{"label": "inference", "kernels": rows, "wall_time_s": wall_s}]
        (folder / "models" / name / "record.json").write_text(json.dumps({"modules": modules}))
    return Driver(folder.name, devices, [], folder)


def test_the_pace_is_that_of_each_gpu_from_its_first_model_on() -> None:
    driver = Driver("two", "0,1", [], Path())
    driver.done_s = {"a": 100.0, "b": 140.0, "c": 150.0, "d": 190.0, "e": 200.0}
    driver.places = {"a": "0", "b": "1", "c": "0", "d": "1", "e": "0"}
    assert pace(driver, driver.done_s) == pytest.approx(1 / 25)
    assert pace(driver, {"a", "b", "c", "d"}) == pytest.approx(2 / 50)
    assert pace(driver, {"a", "b", "c"}) is None


def test_the_report_holds_the_batches_against_each_other(tmp_path: Path) -> None:
    alike = {name: [name] for name in ("vit", "nfnet", "beit")}
    one = leave(tmp_path / "one", "0", {"vgg": ["b", "a"], **alike})
    two = leave(tmp_path / "two", "1,2", {"vgg": ["a", "b"], **alike, "vit": ["other"]}, 1.01e-3)
    one.done_s = {"vgg": 90.0, "vit": 140.0, "nfnet": 190.0, "beit": 240.0}
    one.places = dict.fromkeys(one.done_s, "0")
    two.done_s = {"vgg": 90.0, "vit": 95.0, "nfnet": 140.0, "beit": 145.0, "deit": 60.0}
    two.places = {"vgg": "1", "vit": "2", "nfnet": "1", "beit": "2", "deit": "2"}
    one.ended_s, two.ended_s = 241.0, 301.0
    late = Driver("killed", "0,1", [], tmp_path / "killed")
    assert list(report(one, two, late))[2] == "killed   GPU 0,1        0 done, was not begun"
    lines = list(report(one, two, None))
    assert lines == [
        "one      GPU 0          4 done, ended after 241 s",
        "two      GPU 1,2        5 done, ended after 301 s",
        "two GPUs against one, pace: 2.00x (target 1.8x), 50.0 s and 25.0 s from one of 4 models to the next",
        "one and two: beit: the same kernels, wall time 1.010x",
        "one and two: nfnet: the same kernels, wall time 1.010x",
        "one and two: vgg: the same kernels, wall time 1.010x",
        "one and two: vit: OTHER KERNELS, wall time 1.010x",
    ]
    del two.done_s["deit"], two.places["deit"]
    two.ended_s = 150.0
    whole = list(report(one, two, None))[2]
    assert whole == "two GPUs against one, the whole list: 1.61x (target 1.8x)  NOT REACHED"


PRETENDED = """
import json, sys, time
from pathlib import Path
folder, device = Path(sys.argv[sys.argv.index("-o") + 1]), sys.argv[4]
if len((folder / "starts").read_text()) < 3:
    time.sleep(600)
rows = [{"status": "done", "device": device, "request": {"name": "vgg"}}]
(folder / "unfinished").write_text(json.dumps({"models": rows}))
(folder / "unfinished").rename(folder / "batch.json")
"""
"""Does nothing when it is started for the first two times."""


def count_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts them before the process is there: one that is killed early, on a slow machine, counts too."""
    start = Driver.start

    def counted(driver: Driver) -> None:
        driver.folder.mkdir(exist_ok=True)
        with (driver.folder / "starts").open("a") as starts:
            starts.write("x")
        start(driver)

    monkeypatch.setattr(Driver, "start", counted)


@pytest.fixture
def pretended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "inductor_bench"
    program.mkdir()
    (program / "__init__.py").touch()
    (program / "__main__.py").write_text(PRETENDED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(benchmark_batch, "ROOT", tmp_path)
    monkeypatch.setattr(benchmark_batch, "LOOK_S", 0.05)
    count_starts(monkeypatch)
    return tmp_path


def test_a_batch_is_killed_and_continued(pretended: Path) -> None:
    driver = Driver("killed", "0", ["list"], pretended / "killed", [1.0, 1.0])
    run([driver], 600.0)
    assert driver.ended_s is not None
    assert (driver.folder / "starts").read_text() == "xxx" and list(driver.done_s) == ["vgg"]


def test_batches_run_beside_each_other_but_for_those_that_share_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    left = {"one": 3, "two": 2, "killed": 1, "beside": 1}

    def start(driver: Driver) -> None:
        driver.began = 0.0
        begun.append(driver.name)

    def look(driver: Driver) -> bool:
        left[driver.name] -= 1
        begun.extend([f"/{driver.name}"] * (not left[driver.name]))
        return bool(left[driver.name])

    monkeypatch.setattr(Driver, "start", start)
    monkeypatch.setattr(Driver, "look", look)
    monkeypatch.setattr(benchmark_batch, "LOOK_S", 0.0)
    gpus = {"one": "0", "two": "0,1", "killed": "1", "beside": "2"}
    run([Driver(name, devices, [], tmp_path) for name, devices in gpus.items()], 60.0)
    assert begun == ["one", "beside", "/beside", "/one", "two", "/two", "killed", "/killed"]


def test_what_the_time_does_not_last_for_is_stopped_or_not_begun(pretended: Path) -> None:
    one, two = Driver("one", "0", ["list"], pretended / "one"), Driver("two", "0,1", ["list"], pretended / "two")
    run([one, two], 3.0)
    assert one.process is not None and one.process.wait(600) != 0 and one.ended_s is None
    assert two.process is None


def test_a_model_done_just_before_the_end_is_seen(tmp_path: Path) -> None:
    """What is done is read after the process is known to have ended, not before."""
    driver = Driver("two", "0", ["list"], tmp_path, began=time.monotonic() - 7.0)
    rows = [{"status": "done", "device": "0", "request": {"name": "vgg"}}]

    class EndsNow:
        def poll(self) -> int:
            (tmp_path / "batch.json").write_text(json.dumps({"models": rows}))
            return 0

    driver.process = cast("subprocess.Popen[bytes]", EndsNow())
    assert not driver.look() and driver.done_s == {"vgg": pytest.approx(7.0, abs=1.0)} == {"vgg": driver.ended_s}


def test_the_options_of_batch_stand_at_the_end() -> None:
    given = read_arguments(["list", "--one", "0", "--two", "1,2", "--seconds", "9", "--", "--inference", "--jobs", "2"])
    assert (given.list, given.seconds, given.options) == (Path("list"), 9.0, ["--inference", "--jobs", "2"])
    assert read_arguments(["list", "--one", "0", "--two", "1,2"]).options == []


def test_its_help_is_for_people() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "benchmark_batch.py"), "--help"]
    assert (
        "those of a third, which is killed"
        in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    )

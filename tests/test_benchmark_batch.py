"""``scripts/benchmark_batch.py``: what it makes of what batches leave, and that a killed one is started again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

import benchmark_batch
from benchmark_batch import Driver, pace, report, run


def leave(folder: Path, kernels: dict[str, list[str]], wall_s: float = 1e-3) -> Driver:
    for name, ids in kernels.items():
        rows = [{"name": each, "kernel_id": each, "category": "pointwise", "calls": 1.0} for each in ids]
        (folder / "models" / name).mkdir(parents=True)
        modules = [{"label": "inference", "kernels": rows, "wall_time_s": wall_s}]
        (folder / "models" / name / "record.json").write_text(json.dumps({"modules": modules}))
    return Driver(folder.name, "0", [], folder)


def test_the_pace_begins_with_the_first_model() -> None:
    assert pace({"a": 100.0, "b": 150.0, "c": 200.0}) == pytest.approx(1 / 50)
    assert pace({"a": 100.0}) is None and pace({}) is None


def test_the_report_holds_the_batches_against_each_other(tmp_path: Path) -> None:
    one = leave(tmp_path / "one", {"vgg": ["b", "a"], "vit": ["c"]})
    two = leave(tmp_path / "two", {"vgg": ["a", "b"], "vit": ["d"]}, 1.01e-3)
    one.done_s, two.done_s = {"vgg": 90.0, "vit": 140.0}, {"vgg": 90.0, "vit": 115.0}
    lines = list(report(one, two, None))
    assert "50.0 s for each after the first" in lines[0] and "25.0 s" in lines[1]
    assert lines[2] == "two GPUs against one: 2.00x (target 1.8x)"
    assert lines[3:] == [
        "one and two: vgg: the same kernels, wall time 1.010x",
        "one and two: vit: OTHER KERNELS, wall time 1.010x",
    ]


def test_a_batch_is_killed_and_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "inductor_bench"
    program.mkdir()
    (program / "__init__.py").touch()
    (program / "__main__.py").write_text(
        "import json, sys, time\n"
        "from pathlib import Path\n"
        "folder = Path(sys.argv[sys.argv.index('-o') + 1])\n"
        "folder.mkdir(exist_ok=True)\n"
        "starts = folder / 'starts'\n"
        "starts.write_text((starts.read_text() if starts.exists() else '') + 'x')\n"
        "if len(starts.read_text()) < 3:\n"
        "    time.sleep(60)\n"
        "rows = [{'status': 'done', 'request': {'name': 'vgg'}}]\n"
        "(folder / 'batch.json').write_text(json.dumps({'models': rows}))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(benchmark_batch, "ROOT", tmp_path)
    monkeypatch.setattr(benchmark_batch, "LOOK_S", 0.05)
    driver = Driver("killed", "0", ["list"], tmp_path / "killed", [1.0, 1.0])
    assert run([driver], 60.0) < 50
    assert (driver.folder / "starts").read_text() == "xxx" and list(driver.done_s) == ["vgg"]


def test_its_help_is_for_people() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "benchmark_batch.py"), "--help"]
    assert "--finish" in subprocess.run(command, capture_output=True, text=True, check=True).stdout

"""The verb ``batch``: what is refused, what is listed, and a batch of real models that is killed and continued."""

from __future__ import annotations

import csv
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import breakdown_runs as runs
import psutil
import pytest
from documented import documented, with_options

from inductor_bench.cli import main as entry


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "models.txt"
    path.write_text("resnet18 128\nvit_a 8\nBertForMaskedLM,4\n")
    return path


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ("", "resnet18 --batch-size 128|vit_a --batch-size 8|BertForMaskedLM --batch-size 4"),
        ("--filter vit --training --amp bf16", "vit_a --training --amp bfloat16 --batch-size 8"),
        ("--shard 2/2 --batch-size 2 --no-dynamic", "vit_a --no-dynamic --batch-size 2"),
        ("--exclude vit --exclude Bert --inference", "resnet18 --inference --batch-size 128"),
    ],
)
def test_what_would_be_measured_is_listed(
    words: str, lines: str, models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry.main(["batch", str(models), "--list", *words.split()]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split(":", 1)[1] for line in out] == lines.split("|")
    assert [path.name for path in models.parent.iterdir()] == ["models.txt"], "nothing was written"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("gone.txt", "gone.txt does not exist"),
        (".", "is a folder, not a list"),
        ("models.txt --shard 3/2", "is not I/N"),
        ("models.txt --shard half", "is not I/N"),
        ("models.txt --filter nothing", "leave none of the 3 models"),
        ("models.txt --device cuda:1", "cuda:1"),
        ("models.txt --jobs 2 --device cpu", "--jobs 2 with 1 device"),
        ("models.txt --devices 7 --device cpu", "there is no GPU 7"),
        ("models.txt --address host:6379", "--address is that of a Ray cluster"),
        ("models.txt --executor ray --devices 0", "--devices names GPUs of this machine"),
        ("models.txt --executor ray --overlap", "--overlap is for the GPUs of this machine"),
        ("models.txt --python no-such-python", "no-such-python is not a program"),
        ("models.txt -o models.txt", "exists and is not a folder"),
        ("models.txt --values-limit 3MB", "--values-limit limits recorded values"),
    ],
)
def test_an_impossible_request_is_refused(
    words: str, message: str, models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry.main(["batch", *words.split()]) == 2
    err = capsys.readouterr().err
    assert message in err and "Traceback" not in err
    assert [path.name for path in models.parent.iterdir()] == ["models.txt"], "nothing was written"


LIST = f"""timm:test_vit 1
{runs.PROGRAMS / "factories.py"}:mlp
{runs.PROGRAMS / "factories.py"}:absent
"""


@pytest.mark.slow
@pytest.mark.usefixtures("timm_imports")
def test_a_batch_killed_and_continued(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(LIST)
    batch = tmp_path / "batch"
    typed = documented("inductor-bench batch configs/timm.txt --inference", {"configs/timm.txt": "list.txt"})
    words = runs.command(*with_options(typed, "-o", batch, "--no-plots", "--repeat", "3"))
    child = subprocess.Popen(words, cwd=tmp_path, env=runs.environment(**runs.forks()), stdin=subprocess.DEVNULL)
    try:
        wait_for((batch / "models" / "factories-mlp" / ".work" / "program.job.json").is_file)
        started = psutil.Process(child.pid).children(recursive=True)
        assert len(started) >= 2, "the second model's process, and its program"
    finally:
        child.kill()
        child.wait()
    first = batch / "models" / "test_vit" / "record.json"
    measured = first.read_bytes()
    assert_is_the_timm_model(json.loads(measured))
    done = runs.run(words, batch, cwd=tmp_path, **runs.forks())
    assert done.code == 1 and "Failed or skipped" in done.stdout
    assert not [process for process in started if process.is_running()], "nothing of the killed batch is left"
    assert first.read_bytes() == measured, "what was done is not done again"
    rows = {row["request"]["name"]: row for row in json.loads((batch / "batch.json").read_text())["models"]}
    real = ("test_vit", "factories-mlp")
    assert [rows[name]["status"] for name in (*real, "factories-absent")] == ["done", "done", "failed"]
    failure = rows["factories-absent"]["failure"]
    assert failure["stage"] == "capture" and "has no function absent" in failure["message"]
    with (batch / "summary.csv").open() as stream:
        summary = {row["model"]: row for row in csv.DictReader(stream)}
    for name in real:
        assert float(summary[name]["time_s"]) > 0 and name in done.stdout
    again = runs.run([*words, "--filter", "test_vit"], batch, cwd=tmp_path)
    assert "1 of 1 are there already" in again.stderr


def assert_is_the_timm_model(record: dict[str, Any]) -> None:
    (module,) = record["modules"]
    assert module["label"] == "VisionTransformer.forward" and record["title"] == "test_vit · inference · batch 1"
    library = [kernel for kernel in module["kernels"] if kernel["category"] in ("extern_conv", "extern_gemm")]
    assert {kernel["category"] for kernel in library} == {"extern_conv", "extern_gemm"}
    assert all(kernel["operator"] and kernel["flops"] and kernel["shapes"] for kernel in library)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)

"""Traces, records and disks that fail: said in words, and what is there is kept."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import breakdown_runs as runs
import pytest
from full_disks import full_disk

from inductor_bench.cli import main as entry
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.workflows.breakdown import run_breakdown
from inductor_bench.workflows.progress import Silent

KINDS = runs.H200 / "gpu_kinds"


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "module.py"
    path.write_bytes(gzip.decompress((KINDS / "0_forward.py.gz").read_bytes()))
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"hello", "is not a Chrome trace"),
        (b'{"a": 1}', "holds no traceEvents"),
        (b"[1, 2", "is not a Chrome trace"),
        (b'{"traceEvents": []}', "holds no activity of forward"),
        (b'{"traceEvents": [null, 3, {"ph": "X", "ts": "a", "args": []}]}', "no events"),
        (gzip.compress(b'{"traceEvents": [', mtime=0)[:-6], "cut short"),
        (b"\x1f\x8b rubbish", "damaged from the start"),
    ],
)
def test_a_trace_that_is_none(content: bytes, message: str, module: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_bytes(content)
    options = BreakdownRequest(str(module), trace=trace, output=tmp_path / "run", plots=False)
    run = run_breakdown(options, Silent()).run
    assert not run.modules and message in run.failures[0].message and run.failures[0].hint
    assert trace.read_bytes() == content


def test_a_trace_of_another_module(module: Path, tmp_path: Path) -> None:
    done = runs.breakdown(tmp_path / "run", module, "--trace", KINDS / "0_backward.trace.json.gz")
    assert done.code == 1 and done.record["modules"] == []
    assert "is not of this module: it holds 0 of its 8 kernels" in done.record["failures"][0]["message"]


def test_a_trace_of_something_else(module: Path, tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2, "pid": 1, "tid": 1}
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"traceEvents": [event]}))
    done = runs.breakdown(tmp_path / "run", module, "--trace", trace)
    assert done.code == 1 and done.record["modules"] == []


def test_a_truncated_trace_counts_as_far_as_it_goes(module: Path, tmp_path: Path) -> None:
    content = gzip.decompress((KINDS / "0_forward.trace.json.gz").read_bytes())
    trace = tmp_path / "cut.json"
    trace.write_bytes(content[: len(content) * 2 // 3])
    done = runs.breakdown(tmp_path / "run", module, "--trace", trace)
    assert done.code == 1
    (failure,) = done.record["failures"]
    assert (failure["stage"], failure["kind"]) == ("trace", "truncated") and failure["hint"]
    (row,) = done.record["modules"]
    (full,) = runs.recorded().record["modules"]
    assert 0 < row["iterations"] < full["iterations"] == 10
    assert any("truncated" in note for note in row["notes"])
    assert row["launches"] == full["launches"], "half an iteration is not counted as one"
    assert row["busy_time_s"] == pytest.approx(full["busy_time_s"], rel=0.1)


def cut(record: dict[str, Any]) -> str:
    return json.dumps(record)[:5000]


def newer(record: dict[str, Any]) -> str:
    return json.dumps({**record, "format": record["format"] + 7})


def incomplete(record: dict[str, Any]) -> str:
    return json.dumps({key: value for key, value in record.items() if key != "run_id"})


def damaged(record: dict[str, Any]) -> str:
    record["modules"][0]["kernels"][0]["time_s"] = "fast"
    return json.dumps(record)


def endless(record: dict[str, Any]) -> str:
    record["modules"][0]["kernels"][0]["time_s"] = float("inf")
    return json.dumps(record)


@pytest.mark.parametrize("verb", ["report", "breakdown"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (cut, "is not valid JSON"),
        (newer, "newer than the"),
        (incomplete, "Run.run_id is missing"),
        (damaged, "modules[0].kernels[0].time_s should be float"),
        (endless, "modules[0].kernels[0].time_s should be a finite number but is inf"),
        (lambda record: "[]", "is not a record of inductor-bench"),
    ],
)
def test_a_broken_record(
    verb: str, change: Callable[..., str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    content = change(runs.recorded().record)
    (folder / "record.json").write_text(content)
    assert entry.main([verb, str(folder), "--no-plots"]) == 1
    said = capsys.readouterr().err
    assert message in said and "record.json" in said and "Hint: " in said and "Traceback" not in said
    assert [path.name for path in folder.iterdir()] == ["record.json"]
    assert (folder / "record.json").read_text() == content


def test_a_run_whose_files_are_gone_keeps_its_rows(tmp_path: Path) -> None:
    folder = runs.copy_of(runs.recorded(), "without-traces")
    (folder / "traces" / "forward.trace.json.gz").unlink()
    done = runs.run(runs.command("breakdown", folder, "--no-plots"), folder)
    assert done.code == 1
    assert done.record["modules"] == runs.recorded().record["modules"]
    assert {failure["stage"] for failure in done.record["failures"]} == {"analysis"}
    assert all("is gone" in failure["message"] for failure in done.record["failures"])


def test_a_full_disk_costs_pictures_and_not_the_answer() -> None:
    folder = runs.copy_of(runs.recorded(), "full")
    words = runs.command("report", folder, "--no-plots")
    done = runs.run([*full_disk(2000), *words], folder)
    assert done.code == 1 and "forward" in done.stdout and "kernel" in done.stdout
    assert "cannot write" in done.stderr and "free some space" in done.stderr
    assert not [path for path in folder.rglob("*") if path.name.startswith(".")]


def test_a_full_disk_ends_a_breakdown_in_words(module: Path, tmp_path: Path) -> None:
    words = ["breakdown", module, "--trace", KINDS / "0_forward.trace.json.gz", "-o", tmp_path / "run", "--no-plots"]
    done = runs.run([*full_disk(1000), *runs.command(*words)], tmp_path / "run")
    assert done.code == 1 and "cannot" in done.stderr and "space" in done.stderr
    assert not (tmp_path / "run" / ".work").exists()


def test_a_folder_that_cannot_be_made(module: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = runs.run(runs.command("breakdown", module, "-o", tmp_path / "file" / "run"), tmp_path)
    assert done.code == 1 and "cannot create" in done.stderr
    nowhere = Path("/proc/run")
    done = runs.run(runs.command("breakdown", module, "-o", nowhere), nowhere)
    assert done.code == 1 and "cannot create /proc/run" in done.stderr

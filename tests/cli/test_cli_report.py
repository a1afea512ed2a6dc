"""The verb ``report``: a RUN folder in, each format out, and nothing that measures loaded on the way."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import mode_rows
import pytest
import run_builder
from conftest import Tool
from printed import recorded
from tried_programs import optimization, two_winners

from inductor_bench.cli import main as entry
from inductor_bench.records.run import Run
from inductor_bench.store.codec import decode, encode
from inductor_bench.store.folder import ModesFolder, OptimizationFolder, RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "a run"
    path.mkdir()
    # What was read once is saved as it is read again: the builder's whole numbers have become floats by then.
    RunFolder(path).save(decode(Run, encode(run_builder.cpu())))
    return path


def report(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert entry.main(["report", *map(str, arguments), "--no-plots"]) == 0
    return capsys.readouterr().out


def test_the_table_leads_with_the_graphs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = report(capsys, folder)
    for module in run_builder.cpu().modules:
        assert module.label in out
    assert max(map(len, out.splitlines())) <= 100 + len(str(folder))


@pytest.mark.parametrize("verb", ["report", "query", "apply"])
@pytest.mark.parametrize(("name", "problem"), [("absent", "does not exist, or"), ("file", "is a file, not a folder")])
def test_no_folder_of_results(
    verb: str, name: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert entry.main([verb, str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert f"Error: {tmp_path / name} {problem}" in error and "Hint: give a folder that" in error


def test_json_is_the_record_on_disk(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = report(capsys, folder, "--format", "json")
    assert recorded(printed) == json.loads((folder / "record.json").read_text())
    assert list(json.loads(printed))[:2] == ["schema", "summary"], "what is read first comes first"


def test_a_brief_report_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(folder.rglob("*"))
    assert report(capsys, folder, "--brief").startswith(json.loads((folder / "record.json").read_text())["title"])
    assert sorted(folder.rglob("*")) == before
    assert entry.main(["report", str(folder), "--brief", "--format", "md"]) == 2
    assert "--brief is not for --format md" in capsys.readouterr().err


def test_csv_has_every_kernel_however_few_are_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(report(capsys, folder, "--format", "csv", "--top", "1"))))
    kernels = [kernel for module in run_builder.cpu().modules for kernel in module.kernels]
    assert sorted(row["name"] for row in rows) == sorted(kernel.name for kernel in kernels)


def test_markdown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(capsys, folder, "--format", "md").startswith("# ")


@pytest.mark.parametrize("sort", ["time", "gain", "calls"])
def test_sorting_is_passed_on(sort: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from inductor_bench.report.run.run_tables import write_kernels_csv

    assert report(capsys, folder, "--format", "csv", "--sort", sort) == write_kernels_csv(
        RunFolder(folder).load(), sort
    )


def test_a_folder_that_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["report", str(tmp_path)]) == 1
    err = capsys.readouterr().err
    assert "record.json" in err and "Hint:" in err and "Traceback" not in err


def test_a_damaged_record(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = folder / "record.json"
    record.write_text(record.read_text()[:100])
    assert entry.main(["report", str(folder)]) == 1
    assert "not valid JSON" in capsys.readouterr().err


def test_torch_is_not_needed(folder: Path, tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('torch must not be loaded')")
    (tmp_path / "triton.py").write_text("raise ImportError('triton must not be loaded')")
    ended = tool("report", folder, PYTHONPATH=str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout


def test_a_search_and_a_comparison_of_modes_are_drawn_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    search = OptimizationFolder(tmp_path / "optimized")
    search.make()
    search.save(optimization(two_winners()), str)
    shown = report(capsys, search.path)
    assert "train.py" in shown and "What each setting saves" in shown and (search.path / "report.html").is_file()
    (search.path / "report.html").unlink()
    brief = report(capsys, search.path, "--brief")
    assert "setting | by itself | taken out" in brief and brief.rstrip().endswith("README.md") and len(brief) < 8000
    assert json.loads(report(capsys, search.path, "--brief", "--format", "json"))["next_commands"]
    assert entry.main(["report", str(search.path), "--brief", "--format", "csv"]) == 2
    assert "--brief is not for --format csv" in capsys.readouterr().err
    assert not (search.path / "report.html").exists(), "a brief report writes nothing"
    assert recorded(report(capsys, search.path, "--format", "json")) == json.loads(search.record.read_text())
    assert entry.main(["report", str(search.path), "--sort", "gain"]) == 2
    assert "--sort gain is for a run" in capsys.readouterr().err
    modes = ModesFolder(tmp_path / "modes")
    modes.make()
    modes.save(mode_rows.comparison(mode_rows.row("default", [0.2] * 4), mode_rows.row("eager", [0.3] * 4)), str)
    assert "default" in report(capsys, modes.path)


def test_a_search_of_a_newer_version_and_a_damaged_one_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search = OptimizationFolder(tmp_path / "optimized")
    search.make()
    found = optimization(two_winners())
    search.save(replace(found, rows=tuple(replace(row, state="a state of tomorrow") for row in found.rows)), str)
    assert "a state of tomorrow" in report(capsys, search.path)
    search.record.write_text("")
    assert entry.main(["report", str(search.path)]) == 1
    error = capsys.readouterr().err
    assert "is not valid JSON" in error and "Hint: restore it from a copy, or search again with --force" in error

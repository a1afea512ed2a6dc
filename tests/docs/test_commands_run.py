"""Every command of the documentation is run by a test: here those that compile nothing, on recorded RUNs."""

from __future__ import annotations

import ast
import gzip
import shutil
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import h200
import pytest
import test_output_blocks as blocks
from conftest import ROOT
from documented import commands, documented

from inductor_bench.cli.main import main
from inductor_bench.errors import UsageError
from inductor_bench.records.batch_record import Batch, BatchModel
from inductor_bench.records.request import ModelRequest
from inductor_bench.store.folder import BatchFolder
from inductor_bench.workflows import batch

RECORDED = blocks.outputs.RECORDED


# Which tests run which command


def run_commands(folder: Path) -> Iterator[tuple[str, Path]]:
    """The commands that the tests below a folder take from the documentation, with the file of each."""
    for path in folder.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "documented(" in text else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "documented":
                yield from ((word.value, path) for word in node.args[:1] if isinstance(word, ast.Constant))


def typed_by_scripts_tutorial() -> frozenset[str]:
    """The commands of the tutorial, which ``tests/gpu/test_gpu_documented.py`` runs through ``scripts/tutorial``."""
    return commands([ROOT / "docs" / "tutorial.md"])


def test_every_command_is_run_by_a_test() -> None:
    run = {command for command, _ in run_commands(ROOT / "tests")}
    assert sorted(commands() - run - typed_by_scripts_tutorial()) == []


def test_the_tests_on_a_gpu_run_commands_that_a_page_shows() -> None:
    run = {command for command, _ in run_commands(ROOT / "tests" / "gpu")}
    assert run and sorted(run - commands()) == []


def test_a_command_that_no_page_shows_is_seen() -> None:
    with pytest.raises(AssertionError, match="no page shows 'inductor-bench report runs/other'"):
        documented("inductor-bench " + "report runs/other")
    assert documented("inductor-bench report batches/timm", {"batches/timm": Path("x/y")}) == ["report", "x/y"]


def test_the_tests_that_take_a_command_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("run(documented('inductor-bench doctor'), documented(name), other('x'))\n")
    assert list(run_commands(tmp_path)) == [("inductor-bench doctor", tmp_path / "a.py")]


# The commands


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the RUNs that the pages name."""
    for name in ("train", "loss", "tuned"):
        with ZipFile(RECORDED / f"{name}.zip") as archive:
            archive.extractall(tmp_path / "runs" / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


Captured = pytest.CaptureFixture[str]


def test_a_run_of_an_earlier_version_says_that_it_has_no_lines(runs: Path, capsys: Captured) -> None:
    assert main([*documented("inductor-bench report runs/train --by line"), "--no-plots"]) == 0
    assert "has no times by layer and line" in " ".join(capsys.readouterr().out.split())


def test_a_run_is_shown_in_brief_and_its_findings_are_asked_for(runs: Path, capsys: Captured) -> None:
    assert main([*documented("inductor-bench report runs/train --brief"), "--no-plots"]) == 0
    brief = capsys.readouterr()
    assert "  Try: inductor-bench modes --mode default" in brief.out and len(brief.out) < 8000 and not brief.err
    pytest.importorskip("duckdb")
    query = documented(
        "inductor-bench query runs/train \"SELECT id, text, command FROM findings WHERE level = 'advice'\""
    )
    assert main(query) == 0
    assert "eager-operators " in capsys.readouterr().out


def test_a_run_is_shown_again(runs: Path, capsys: Captured) -> None:
    assert main([*documented("inductor-bench report runs/train --sort gain"), "--no-plots"]) == 0
    assert "that could save most" in capsys.readouterr().out


def test_two_runs_are_compared(runs: Path, capsys: Captured) -> None:
    sides = {"runs/train-1": "runs/train", "runs/train-2": "runs/loss", "A": "runs/train", "B": "runs/loss"}
    assert main(documented("inductor-bench compare runs/train-1 runs/train-2", sides)) == 0
    assert "B is 6.7% faster" in capsys.readouterr().out
    assert main(documented("inductor-bench compare A B --fail-above 5%", sides)) == 0
    assert main(documented("inductor-bench compare A B --fail-above 5%", {"A": "runs/loss", "B": "runs/train"})) == 5
    assert main(["compare", "runs/loss", "runs/train", "--fail-above", "1%"]) == 4
    capsys.readouterr()
    assert main(documented("inductor-bench compare A B --format md", sides)) == 0
    assert "| MseLossBackward0<br>" in capsys.readouterr().out
    assert main(documented("inductor-bench compare A B --bundle difference.zip", sides)) == 0
    assert "comparison.json" in ZipFile("difference.zip").namelist()


def test_a_gate_lets_a_faster_run_pass_and_no_slower_one(runs: Path, capsys: Captured) -> None:
    for baseline, new, code in (("runs/train", "runs/loss", 0), ("runs/loss", "runs/train", 5)):
        places = {"baseline": baseline, "new": new}
        command = documented("inductor-bench compare baseline new --fail-above 5% --format md", places)
        assert main(command) == code
    assert capsys.readouterr().out.startswith("#")


def test_what_a_run_found_is_written_for_inductor(runs: Path, capsys: Captured) -> None:
    assert main(documented("inductor-bench apply runs/train", {"runs/train": "runs/tuned"})) == 0
    assert (
        "A faster config was found for 4 kernels" in capsys.readouterr().out
        and Path("runs/tuned/tuned/README.md").is_file()
    )


def test_kernels_are_listed_and_written_from_the_text(runs: Path, capsys: Captured) -> None:
    command = documented("inductor-bench extract runs/train --list --category reduction --top 20")
    assert main(command) == 1, "the recorded RUN has no traces, which tell the times of library calls"
    assert "triton_red_fused_gelu_native_layer_norm_0" in capsys.readouterr().out
    shutil.copy("runs/train/modules/forward.py", "c….py")
    assert main(documented("inductor-bench extract c….py -o kernels --static")) == 0
    assert Path("kernels/triton_red_fused_gelu_native_layer_norm_0.py").is_file()


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a batch of two models that were recorded on an H200."""
    folder = BatchFolder(tmp_path / "batches" / "timm")
    names = ("mobilenetv2_100", "repvgg_a2")
    for name in names:
        folder.run(name).path.mkdir(parents=True)
        record = gzip.decompress((h200.FOLDER / "batch_two" / f"{name}.json.gz").read_bytes())
        folder.run(name).record.write_bytes(record)
    rows = (BatchModel(ModelRequest(f"timm:{name}", name=name), "done", run=f"models/{name}") for name in names)
    folder.save(Batch(1, "0", "", "", "", tuple(rows)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_batch_is_shown_and_asked(models: Path, capsys: Captured) -> None:
    assert main([*documented("inductor-bench report batches/timm"), "--no-plots"]) == 0
    assert "2 of 2 models measured" in capsys.readouterr().out
    pytest.importorskip("duckdb")
    command = documented(
        'inductor-bench query batches/timm "SELECT name, model, time_s FROM kernels '
        'ORDER BY gain_limit_s DESC LIMIT 10"'
    )
    assert main(command) == 0
    assert len(capsys.readouterr().out.splitlines()) == 11


def test_a_batch_goes_to_the_cluster_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a cluster does with it is in ``tests/workflows/batch/test_batch_ray.py``."""
    asked = []

    def executor(address: str, on_line: object) -> None:
        asked.append(address)
        raise UsageError("no cluster here")

    monkeypatch.setattr(batch, "RayExecutor", executor)
    monkeypatch.chdir(tmp_path)
    Path("list.txt").write_text("timm:test_vit 1\n")
    command = documented(
        "inductor-bench batch configs/timm.txt --inference --executor ray --address head:6379",
        {"configs/timm.txt": "list.txt"},
    )
    assert main(command) == 2 and asked == ["head:6379"]

"""What a batch says of models whose own RUN says that its figures do not count."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import run_builder
import step_runs
from inline import change

from inductor_bench.analysis.findings.first_line import write_first_line
from inductor_bench.cli import main as entry
from inductor_bench.records.base import OtherProcess
from inductor_bench.records.batch_record import Batch, BatchModel
from inductor_bench.records.code import MachineLoad
from inductor_bench.records.request import ModelRequest
from inductor_bench.records.run import OtherWork, Run
from inductor_bench.store.folder import BatchFolder

BUSY = MachineLoad(60, 2, 4.1, 0.5, cpu_time_s=0.4, waited_s=0.6, stolen_s=0.0, switches=312)
SAID = "its figures do not count, so its gain limits are left out: the machine was busy"


def with_gain(run: Run, load: MachineLoad | None) -> Run:
    """The run with a gain limit for each kernel, and with the load of its machine."""
    modules = []
    for module in run.modules:
        kernels = tuple(change(kernel, gain_limit_s=kernel.time_s / 2) for kernel in module.kernels)
        modules.append(change(module, kernels=kernels, wall_load=load, profile_load=load))
    return replace(run, modules=tuple(modules))


def batch_of(tmp_path: Path, **runs: Run) -> Path:
    folder = BatchFolder(tmp_path / "batch")
    rows = tuple(BatchModel(ModelRequest(f"timm:{name}", name=name), "done", run=f"models/{name}") for name in runs)
    for name, run in runs.items():
        folder.run(name).path.mkdir(parents=True)
        folder.run(name).save(run)
    folder.save(Batch(1, "0.1.0", "2026-11-25T12:00:00+00:00", "inductor-bench batch list.txt", "list.txt", rows))
    return folder.path


def gains(folder: Path, capsys: pytest.CaptureFixture[str], table: str, name: str, columns: str) -> dict[str, float]:
    pytest.importorskip("duckdb")
    words = ["query", str(folder), f"SELECT {columns} FROM {table} WHERE gain_limit_s > 0", "--format", "json"]
    assert entry.main(words) == 0
    return {row[name]: row["gain_limit_s"] for row in json.loads(capsys.readouterr().out)["rows"]}


@pytest.mark.parametrize("make", [run_builder.cpu, step_runs.cpu])
def test_gain_limits_of_figures_that_do_not_count_are_left_out_of_every_table_and_ranking(
    make: type[Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    busy, quiet = (with_gain(make(), load) for load in (BUSY, None))
    folder = batch_of(tmp_path, busy=busy, quiet=quiet)
    assert set(gains(folder, capsys, "models", "model", "model, gain_limit_s")) == {"quiet"}
    quiet_alone = batch_of(tmp_path / "alone", quiet=quiet)
    both = gains(folder, capsys, "families", "family_id", "family_id, gain_limit_s")
    assert both == pytest.approx(gains(quiet_alone, capsys, "families", "family_id", "family_id, gain_limit_s"))
    assert both, "the rest of the batch keeps its gain limits"


@pytest.mark.parametrize("form", ["table", "md", "html", "csv"])
def test_a_batch_says_which_models_have_no_gain_limits_and_why(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = with_gain(run_builder.cpu(), BUSY)
    lead = write_first_line(run)
    assert lead is not None and "do not count: the machine was busy" in lead.text
    folder = batch_of(tmp_path, small=run)
    assert entry.main(["report", str(folder), "--no-plots", "--format", form]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert (SAID in text) if form != "csv" else ("the machine was busy (load 4.1 on 2 cores" in text)
    for file in ("summary.md", "summary.csv"):
        assert "the machine was busy" in (folder / file).read_text()


def test_models_whose_gpu_was_shared_have_no_gain_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = with_gain(step_runs.transformer(), None)
    assert alone.program is not None
    others = OtherWork(0.35, (OtherProcess(1234, "python"),))
    folder = batch_of(tmp_path, alone=alone, shared=replace(alone, program=replace(alone.program, others=others)))
    assert set(gains(folder, capsys, "models", "model", "model, gain_limit_s")) == {"alone"}
    assert entry.main(["report", str(folder), "--no-plots"]) == 0
    said = "gain limits are left out: another process used the GPU during its steps (python, pid 1234, 35% of the time)"
    assert said in " ".join(capsys.readouterr().out.split())


def test_a_gpu_keeps_the_gain_limits_of_its_kernels_while_its_wall_times_do_not_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = with_gain(run_builder.densenet(), BUSY)
    lead = write_first_line(run)
    assert lead is not None and "kernel times do" in lead.text
    folder = batch_of(tmp_path, small=run)
    assert entry.main(["report", str(folder), "--no-plots"]) == 0
    assert "gain limits are left out" not in capsys.readouterr().out

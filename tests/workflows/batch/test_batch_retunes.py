"""A batch whose most expensive kernels are retuned: what is done when, and what its results say of it."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from batch_runs import Listener, begun, quick, rows, run, statuses
from conftest import ROOT
from inline import change
from printed import printed
from retune_fakes import Engine, make_run, retuned

from inductor_bench.analysis.batch_aggregation import group_kernels, key_by_family, key_by_id, summarize_model
from inductor_bench.cli import main as entry
from inductor_bench.launch import batch_executors
from inductor_bench.launch.batch_executors import Order
from inductor_bench.records.batch_record import Batch, BatchModel
from inductor_bench.records.request import BreakdownRequest, ModelRequest, RetuneRequest
from inductor_bench.records.request_fields import list_option_words
from inductor_bench.records.retune import Saving, Verification
from inductor_bench.report.batch.batch_document import FORMATS
from inductor_bench.report.batch.batch_tables import BatchView
from inductor_bench.report.formats import View
from inductor_bench.store.digest import read_results
from inductor_bench.store.folder import BatchFolder, RunFolder
from inductor_bench.workflows import batch as batch_run
from inductor_bench.workflows.kernels import retuning
from inductor_bench.workflows.progress import Silent

__all__ = ["quick"]
ONE, TWO, SLOW = RetuneRequest("max", 1), RetuneRequest("max", 2), RetuneRequest("exhaustive", 1)


@pytest.fixture(autouse=True)
def children(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_executors, "ENTRY", (str(ROOT / "tests" / "support" / "retune_fakes.py"),))


def done(tmp_path: Path) -> list[str]:
    lines = (tmp_path / "b" / "events").read_text().splitlines()
    return [line.removeprefix("retune ") for line in lines if line.startswith("retune")]


def test_only_retunes_that_are_missing_are_made(tmp_path: Path) -> None:
    run(tmp_path, "good")
    assert statuses(run(tmp_path, "good|other", retune=ONE)) == {"good": "done", "other": "done"}
    assert begun(tmp_path) == ["good", "other"], "what was measured is not measured again"
    assert sorted(done(tmp_path)) == ["good triton_red_1 max", "other triton_red_1 max"]
    listener = Listener()
    run(tmp_path, "good|other", listener, retune=ONE)
    assert listener.notes == ["2 of 2 are there already"] and len(done(tmp_path)) == 2
    run(tmp_path, "good|other", retune=TWO, filters=("good",))
    assert done(tmp_path)[2:] == ["good triton_poi_2 max"]
    run(tmp_path, "good|other", retune=SLOW, filters=("good",))
    assert done(tmp_path)[3:] == ["good triton_red_1 exhaustive"]
    assert len(begun(tmp_path)) == 2 and run(tmp_path, "good|other")["good"].status == "done"


def test_a_model_that_was_lost_in_its_retune_is_not_measured_again(tmp_path: Path) -> None:
    found = run(tmp_path, "stopped", retune=ONE)
    assert found["stopped"].status == "partial" and found["stopped"].failure is not None
    found = run(tmp_path, "stopped", retune=ONE)
    assert found["stopped"].status == "done" and begun(tmp_path) == ["stopped"]
    assert done(tmp_path) == ["stopped triton_red_1 max"]


def test_what_was_not_begun_comes_before_retunes_that_go_on(tmp_path: Path) -> None:
    run(tmp_path, "stopped", retune=ONE)
    run(tmp_path, "stopped|good", retune=ONE)
    assert done(tmp_path) == ["good triton_red_1 max", "stopped triton_red_1 max"]


def test_a_model_whose_proof_is_missing_is_done_only_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, "good", retune=ONE)
    asked: list[str] = []
    monkeypatch.setattr(batch_run, "is_without_proof", lambda run, folder: not asked.append(folder.path.name))
    listener = Listener()
    assert run(tmp_path, "good", listener, retune=ONE)["good"].status == "done"
    assert asked == ["good"] and "1 of 1 are there already" not in listener.notes
    listener = Listener()
    run(tmp_path, "good", listener, retune=replace(ONE, verify=False))
    assert asked == ["good"] and "1 of 1 are there already" in listener.notes


def test_a_batch_that_was_killed_meanwhile_goes_on_there(tmp_path: Path) -> None:
    run(tmp_path, "stopped", retune=ONE)
    folder = BatchFolder(tmp_path / "b")
    batch = folder.load()
    folder.save(replace(batch, models=tuple(replace(model, status="running") for model in batch.models)))
    assert run(tmp_path, "stopped")["stopped"].status == "done", "even if no retune is asked for any more"
    assert begun(tmp_path) == ["stopped"] and done(tmp_path) == []


def test_what_did_not_come_to_its_retunes_is_measured_again(tmp_path: Path) -> None:
    run(tmp_path, "good")
    folder = BatchFolder(tmp_path / "b")
    batch = folder.load()
    folder.save(replace(batch, models=tuple(replace(model, status="running") for model in batch.models)))
    run(tmp_path, "good", retune=ONE)
    assert begun(tmp_path) == ["good", "good"]
    (folder.run("good").record).write_text("{")
    run(tmp_path, "good", retune=ONE)
    assert begun(tmp_path) == ["good"] * 3
    run(tmp_path, "good", retune=ONE, force=True)
    assert begun(tmp_path) == ["good"] * 4 and len(done(tmp_path)) == 3


def test_a_run_that_goes_on_elsewhere_is_sent_there_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    from inductor_bench.launch.ray_cluster import NodeJob, append_to_files, read_pieces

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run(tmp_path, "good")
    node, place, back = NodeJob(), BatchFolder(tmp_path / "b").run("good").path, RunFolder(tmp_path / "back")
    try:
        for piece in read_pieces(place):
            node.put(piece)
        words = ("breakdown", "{run}", *list_option_words(ONE))
        node.begin(Order(tuple(batch_executors.ENTRY), words, {}, 60.0), {}, gpu=False)
        while node.look()[1] is None:
            pass
        while piece := node.piece():
            append_to_files(back.path, piece)
    finally:
        node.close()
    assert [one.name for one in back.load().retunes] == ["triton_red_1"]
    assert {path.name for path in (place / "kernels").iterdir()} == {path.name for path in back.kernels.iterdir()}


@pytest.fixture
def batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BatchFolder:
    """Two models that were retuned, one of which waits for its host, and one that was not."""
    folder = BatchFolder(tmp_path / "b")
    models = []
    monkeypatch.setattr(retuning, "list_visible_gpus", lambda: ("0",))
    for name, wall_s in (("one", (10.8e-3, 2.2e-3)), ("waits", (200e-3, 50e-3)), ("plain", (10.8e-3, 2.2e-3))):
        place = folder.run(name)
        made = make_run(place, wall_s)
        if name != "plain":
            monkeypatch.setattr(retuning, "run_kernel", Engine(lambda *of: replace(retuned(*of), advice=("busy",))))
            options = BreakdownRequest(str(place.path), retune=RetuneRequest("max"))
            retuning.autotune_run(made, place, options, Silent(), place.save)
        models.append(BatchModel(ModelRequest(f"timm:{name}", name=name), "done", run=f"models/{name}"))
    folder.save(Batch(1, "0.1.0", "2025-01-01T00:00:00+00:00", "", "suite.txt", tuple(models)))
    return folder


def test_the_corpus_has_the_retunes_as_the_records_have_them(batch: BatchFolder) -> None:
    results = read_results(batch, batch.load())
    one, _, plain = results.models
    assert one.retunes == tuple(retune.row for retune in batch.run("one").load().retunes)
    assert plain.retunes == () and all(
        kernel.retune.speedup is None for graph in plain.graphs for kernel in graph.kernels
    )
    forward, backward = one.graphs
    found = {kernel.name: kernel.retune[2:] for kernel in forward.kernels}
    assert found["triton_red_1"] == (2.0, "faster", pytest.approx(2e-3))
    assert found["sgemm"] == (1.0, "same", None), "a library kernel has that of its call, and no saving of its own"
    assert backward.kernels[0].retune.saving_s == pytest.approx(1e-3), "the same kernel in another graph"
    summaries = {name: summarize_model(model).retunes for name, model in zip("owp", results.models, strict=True)}
    assert summaries["p"] is None and summaries["o"] is not None and summaries["w"] is not None
    assert (summaries["o"].saving_s, summaries["o"].faster) == (pytest.approx(4e-3), 2)
    assert (summaries["w"].saving_s, summaries["w"].waiting) == (0.0, 4)
    reduction = next(group for group in group_kernels(results, key_by_id) if group.key == "r" * 16)
    assert (reduction.speedup, reduction.saving_s) == (2.0, pytest.approx(3e-3)), "nothing is won if the host waits"
    assert {group.speedup for group in group_kernels(results, key_by_family)} == {2.0, 1.25, 1.0}


def test_what_was_proven_in_the_steps_is_summed(batch: BatchFolder, capsys: pytest.CaptureFixture[str]) -> None:
    savings = {
        "one": Saving(20e-3, 18e-3, 2e-3, 1.9e-3, 2.1e-3, 20, "saves"),
        "waits": Saving(10e-3, 10.1e-3, -1e-4, -2e-4, 0.0, 20, "no difference"),
        "plain": Saving(10e-3, 10.5e-3, -5e-4, -6e-4, -4e-4, 20, "slower"),
    }
    shown = []
    for name in ("waits", "one", "plain"):
        folder = batch.run(name)
        folder.save(replace(folder.load(), verification=Verification("steps", 2e-3, savings[name])))
        assert entry.main(["report", str(batch.path), "--no-plots"]) == 0
        shown.append(" ".join(capsys.readouterr().out.split()))
    assert (
        "Compared in the steps of 1 model: none was found to save, 1 without a difference; none was found slower."
        in shown[0]
    )
    said = "of 2 models: 1 saves 2.00 ms (6.7% of all 2 steps), 1 without a difference; none was found slower."
    assert said in shown[1]
    assert "of 3 models: 1 saves 2.00 ms (5.0% of all 3 steps), 1 without a difference; slower: plain." in shown[2]
    with (batch.path / "summary.csv").open() as stream:
        models = {row["model"]: row for row in csv.DictReader(stream)}
    assert (models["one"]["proof"], float(models["one"]["proven_saving_s"])) == ("saves", pytest.approx(2e-3))


@pytest.mark.parametrize("status", ["running", "waiting"])
def test_a_model_in_its_retune_is_shown_as_measured(batch: BatchFolder, status: str) -> None:
    stored = batch.load()
    batch.save(replace(stored, models=tuple(replace(model, status=status) for model in stored.models)))
    results = read_results(batch, batch.load())
    assert [model.model.status for model in results.models] == ["measured", "measured", status]
    assert [bool(model.graphs) for model in results.models] == [True, True, False], "the last may be half written"
    assert results.batch.count("measured") == 2


def test_every_form_shows_them(batch: BatchFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["report", str(batch.path), "--no-plots"]) == 0
    shown = capsys.readouterr().out
    words = "Retuned: 8 kernels of 2 models: 4 faster, which would save 4.00 ms"
    assert words in " ".join(shown.split()) and "2 without a result" in shown
    assert (
        "no saving is projected for 4 retuned kernels" in " ".join(shown.split()) and "measured poorly: busy" in shown
    )
    kernels = [line for line in shown.splitlines() if "triton_red_1" in line or "triton_poi_2" in line]
    assert any(line.endswith("2.00x") for line in kernels) and any(line.endswith("1.25x") for line in kernels)
    page = (batch.path / "summary.md").read_text()
    assert words in page and "| best retune |" in page and "| retune saves |" in page
    with (batch.path / "kernels.csv").open() as stream:
        table = {row["name"]: row for row in csv.DictReader(stream)}
    assert (table["triton_poi_2"]["speedup"], float(table["triton_poi_2"]["saving_s"])) == ("1.25", pytest.approx(1e-3))
    with (batch.path / "summary.csv").open() as stream:
        models = {row["model"]: row for row in csv.DictReader(stream)}
    assert (models["one"]["retuned"], models["one"]["retuned_faster"], models["plain"]["retuned"]) == ("4", "2", "")
    assert float(models["one"]["saving_s"]) == pytest.approx(4e-3)


def test_a_batch_without_them_says_nothing_of_them(batch: BatchFolder) -> None:
    whole = batch.load()
    batch.save(replace(whole, models=whole.models[2:]))
    view = BatchView(read_results(batch, batch.load()))
    shown = printed(FORMATS.get("table"), view, View(batch.path))
    assert "etune" not in shown and "retune" not in printed(FORMATS.get("md"), view, View(top=20))


def test_a_model_under_the_profiler_for_longer_than_it_takes_is_noted(batch: BatchFolder) -> None:
    run = batch.run("plain").load()
    stretched = change(run.modules[0], busy_time_s=12e-3)
    batch.run("plain").save(replace(run, modules=(stretched, *run.modules[1:])))
    view = BatchView(read_results(batch, batch.load()))
    note = "plain: shares are of 14.2 ms under the profiler, more than its wall time"
    shown = printed(FORMATS.get("table"), view, View(batch.path))
    assert f"- {note}" in shown and f"- {note}" in printed(FORMATS.get("md"), view, View(top=20))
    assert "one: shares" not in shown


def test_rows_of_a_batch_that_is_to_be_retuned(batch: BatchFolder) -> None:
    whole = batch.load()
    batch.save(replace(whole, models=tuple(replace(model, status="measured") for model in whole.models)))
    view = BatchView(read_results(batch, batch.load()))
    assert len([model for model in view.models if model.parts]) == 3 and "3 still to be retuned" in printed(
        FORMATS.get("md"), view
    )
    assert rows(batch.load())["one"].status == "measured"

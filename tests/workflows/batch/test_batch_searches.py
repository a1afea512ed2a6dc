"""A batch whose models are searched for settings that make them faster: what is run when, and what fails."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from batch_runs import Listener, begun, quick, rows, run, statuses
from conftest import ROOT
from documented import documented
from search_child import search

from inductor_bench.cli import main as entry
from inductor_bench.errors import UsageError
from inductor_bench.launch import batch_executors
from inductor_bench.records.batch_record import BatchModel
from inductor_bench.records.request import BreakdownRequest, ModelRequest, RetuneRequest, SearchRequest
from inductor_bench.store.folder import OPTIMIZED, BatchFolder, OptimizationFolder
from inductor_bench.workflows.batch_state import make_job, read_view

__all__ = ["quick"]
SEARCH = SearchRequest(optimize=True)


@pytest.fixture(autouse=True)
def children(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_executors, "ENTRY", (str(ROOT / "tests" / "support" / "search_child.py"),))


def searched(tmp_path: Path, name: str = "b") -> list[str]:
    """The searches that were begun, with their options."""
    lines = (tmp_path / name / "events").read_text().splitlines()
    return [line.removeprefix("optimize ") for line in lines if line.startswith("optimize")]


def test_each_model_is_measured_and_then_searched(tmp_path: Path) -> None:
    listener = Listener()
    found = run(tmp_path, "good|other", listener, search=SEARCH)
    assert statuses(found) == {"good": "done", "other": "done"}
    assert begun(tmp_path) == ["good", "other"] == searched(tmp_path), "all are measured before the first search"
    assert any(note.startswith("good: ") and "a step with 2 settings" in note for note in listener.notes)
    assert found["good"].attempts == 1


def test_a_result_that_was_not_run_from_the_start_is_no_failure_and_says_so(tmp_path: Path) -> None:
    listener = Listener()
    assert statuses(run(tmp_path, "unconfirmed", listener, search=SEARCH)) == {"unconfirmed": "done"}
    assert any(
        "with 2 settings, not yet confirmed in new processes that start with the settings" in note
        for note in listener.notes
    )


def test_what_was_searched_is_not_searched_again(tmp_path: Path) -> None:
    run(tmp_path, "good", search=SEARCH)
    listener = Listener()
    assert statuses(run(tmp_path, "good|other", listener, search=SEARCH)) == {"good": "done", "other": "done"}
    assert searched(tmp_path) == ["good", "other"] == begun(tmp_path)
    assert "1 of 2 are there already" in listener.notes


def test_models_that_were_measured_before_are_only_searched(tmp_path: Path) -> None:
    run(tmp_path, "good")
    assert statuses(run(tmp_path, "good", search=SEARCH)) == {"good": "done"}
    assert begun(tmp_path) == ["good"] == searched(tmp_path)
    run(tmp_path, "good", search=replace(SEARCH, budget_s=3000.0))
    assert searched(tmp_path)[1:] == ["good --budget 3000"], "more time goes on"
    run(tmp_path, "good", search=SEARCH)
    assert len(searched(tmp_path)) == 2
    run(tmp_path, "good", search=SEARCH, force=True)
    assert begun(tmp_path) == ["good"] * 2 and searched(tmp_path)[2:] == ["good"]


def test_a_search_with_other_groups_is_refused(tmp_path: Path) -> None:
    run(tmp_path, "good", search=replace(SEARCH, denied=("cudagraphs",)))
    with pytest.raises(UsageError, match="was searched with --deny cudagraphs"):
        run(tmp_path, "good", search=SEARCH)
    assert searched(tmp_path) == ["good --deny cudagraphs"]


def test_models_that_cannot_be_measured_are_not_searched(tmp_path: Path) -> None:
    found = run(tmp_path, "fails|good|half", search=SEARCH)
    assert statuses(found) == {"fails": "failed", "good": "done", "half": "partial"}
    assert searched(tmp_path) == ["good", "half"]
    assert found["half"].failure is not None and found["half"].failure.stage == "profile", "the search did not fail"


def test_a_search_that_fails_is_a_row_with_its_reason(tmp_path: Path) -> None:
    found = run(tmp_path, "stepless|dies|good", search=SEARCH)
    assert statuses(found) == {"stepless": "partial", "dies": "partial", "good": "done"}
    refused, died = found["stepless"].failure, found["dies"].failure
    assert refused is not None and (refused.stage, refused.hint) == ("optimize", "mark the ends of its steps")
    assert died is not None and died.stage == "optimize" and "ValueError: no" in died.message
    run(tmp_path, "stepless|dies|good", search=SEARCH)
    assert searched(tmp_path)[3:] == ["stepless"], "what ended with a reason is not run again, what did not begin is"
    assert len(begun(tmp_path)) == 3


def test_a_search_that_was_killed_goes_on(tmp_path: Path) -> None:
    found = run(tmp_path, "stops", search=SEARCH)["stops"]
    assert found.status == "partial" and found.failure is not None and "SIGKILL" in found.failure.message
    assert run(tmp_path, "stops", search=SEARCH)["stops"].status == "done"
    assert begun(tmp_path) == ["stops"] and searched(tmp_path) == ["stops", "stops"]


class SecondTurn(Listener):
    """Interrupts the batch when the search of a model has begun."""

    def stage(self, text: str) -> None:
        super().stage(text)
        if sum("stopslater on the CPU" in one for one in self.stages) == 2:
            raise KeyboardInterrupt


def test_a_batch_that_is_interrupted_in_a_search_goes_on_there(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt, match=r"1 of 2 models are in .*the same command continues"):
        run(tmp_path, "good|stopslater", SecondTurn(), search=SEARCH)
    stored = rows(BatchFolder(tmp_path / "b").load())
    assert statuses(stored) == {"good": "done", "stopslater": "unoptimized"}
    place = OptimizationFolder(tmp_path / "b" / "models" / "stopslater" / OPTIMIZED)
    place.path.mkdir(exist_ok=True)
    place.save(replace(search("good"), is_complete=False), str)
    assert statuses(run(tmp_path, "good|stopslater", search=SEARCH))["stopslater"] == "done"
    assert begun(tmp_path) == ["good", "stopslater"]


@pytest.mark.parametrize(("options", "begins"), [({"search": SEARCH}, 1), ({}, 1)])
def test_a_batch_that_was_killed_in_a_search_measures_nothing_again(
    options: dict[str, SearchRequest], begins: int, tmp_path: Path
) -> None:
    run(tmp_path, "stops", search=SEARCH)
    folder = BatchFolder(tmp_path / "b")
    batch = folder.load()
    folder.save(replace(batch, models=tuple(replace(model, status="running") for model in batch.models)))
    assert run(tmp_path, "stops", **options)["stops"].status == "done"
    assert len(begun(tmp_path)) == begins and len(searched(tmp_path)) == 1 + bool(options)


def test_a_training_step_is_searched_with_an_optimizer(tmp_path: Path) -> None:
    training = {"training": True}
    run(tmp_path, "good", overrides=training)
    assert run(tmp_path, "good", search=SEARCH, overrides=training)["good"].status == "done"
    assert begun(tmp_path) == ["good", "good"], "its step had no optimizer"
    run(tmp_path, "good", search=SEARCH, overrides=training)
    run(tmp_path, "good", overrides=training)
    assert len(begun(tmp_path)) == 2 and len(searched(tmp_path)) == 1


@pytest.mark.parametrize(
    ("target", "training", "optimizer", "words"),
    [
        ("timm:a", True, None, ["--training", "--optimizer", "AdamW"]),
        ("timm:a", True, "SGD", ["--training", "--optimizer", "SGD"]),
        ("timm:a", None, None, []),
        ("timm:a", False, None, ["--inference"]),
        ("/a.py:made", None, None, ["--optimizer", "AdamW"]),
        ("/a.py", None, None, []),
    ],
)
def test_which_models_get_an_optimizer(
    target: str, training: bool | None, optimizer: str | None, words: list[str], tmp_path: Path
) -> None:
    request = ModelRequest(target, name="a", training=training, optimizer=optimizer)
    job = make_job(BatchModel(request), BatchFolder(tmp_path), BreakdownRequest(), SEARCH, alone=False)
    assert list(job.options) == words and job.verb == "breakdown"


def test_a_search_is_alone_on_its_device_and_has_its_own_limit(tmp_path: Path) -> None:
    row = BatchModel(ModelRequest("timm:a", name="a", timeout_s=5.0), "unoptimized")
    search = SearchRequest(True, 300.0, ("tf32",), ("cudagraphs", "loader"), 70 * 10**9)
    common = BreakdownRequest(redact=("KEY",), retune=RetuneRequest("max"))
    job = make_job(row, BatchFolder(tmp_path), common, search, alone=False)
    assert job.alone and job.timeout_s is None
    assert job.words("timm:a", Path("run")) == [
        *("optimize", "run", "--budget", "300", "--allow", "tf32", "--deny", "cudagraphs,loader"),
        *("--max-memory", str(70 * 10**9), "--redact", "KEY"),
    ]


def test_caches_of_a_search_are_not_sent_to_other_machines(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from inductor_bench.launch.ray_cluster import read_pieces

    for name in ("record.json", "optimized/optimization.json", "optimized/.work/cache/large", ".work/a"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    sent = [name for piece in read_pieces(tmp_path) for name, _ in piece]
    assert sent == ["optimized/optimization.json", "record.json"]


def test_the_tables_are_written_and_shown_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, "good|other|none|dies|fails", search=SEARCH)
    assert entry.main(["report", str(tmp_path / "b"), "--no-plots"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Settings: 2 of 4 models are faster" in shown and "1 search failed." in shown
    assert "settings.csv" in shown
    for name in ("report.html", "summary.md"):
        text = (tmp_path / "b" / name).read_text()
        assert "Which settings help" in text and "What each model gains" in text and "no such kernel" in text
    with (tmp_path / "b" / "settings.csv").open() as stream:
        table = {row["setting"]: row for row in csv.DictReader(stream)}
    assert [table[name]["helps"] for name in ("a", "b", "crash", "wrong")] == ["2", "1", "0", "0"]
    assert (table["a"]["tried"], table["a"]["helped_models"]) == ("3", "good; other")
    assert (table["crash"]["failed"], table["wrong"]["wrong"]) == ("3", "3")
    with (tmp_path / "b" / "summary.csv").open() as stream:
        models = {row["model"]: row for row in csv.DictReader(stream)}
    assert models["good"]["settings"] == "a; b" and models["none"]["settings"] == ""
    assert float(models["other"]["optimized_saving"]) == pytest.approx(0.2, abs=0.02)


def test_a_damaged_search_leaves_the_figures_of_the_model(tmp_path: Path) -> None:
    run(tmp_path, "good|other", search=SEARCH)
    (tmp_path / "b" / "models" / "good" / OPTIMIZED / "optimization.json").write_text("{")
    view = read_view(tmp_path / "b")
    assert [name for name, _ in view.searches] == ["other"] and all(one.parts for one in view.models)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--allow tf32", "--allow is for a search"),
        ("--deny cudagraphs", "--deny is for a search"),
        ("--max-memory 3GB", "--max-memory is for a search"),
        ("--budget 5m", "--budget is for a retune or a search"),
        ("--optimize --allow tf33", "no group has this name"),
        ("--optimize --allow tf32 --deny tf32", "--allow tf32 and --deny tf32"),
        ("--optimize --overlap", "--overlap and --optimize"),
    ],
)
def test_contradicting_options_are_refused(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("list.txt").write_text("timm:good\n")
    assert entry.main(["batch", "list.txt", *words.split()]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert [path.name for path in tmp_path.iterdir()] == ["list.txt"], "nothing was written"


def test_the_documented_command_searches_all_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("list.txt").write_text("timm:good\n")
    typed = documented(
        "inductor-bench batch configs/timm.txt --inference --optimize --budget 10m", {"configs/timm.txt": "list.txt"}
    )
    assert entry.main(typed) == 0
    assert searched(tmp_path, "batches/list") == ["good --budget 600"]

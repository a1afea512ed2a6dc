"""Retuning the dearest kernels of a run: which these are, what is kept of it and when, and what it comes to."""

from __future__ import annotations

import csv
import os
from dataclasses import replace
from pathlib import Path

import h200
import pytest
import step_runs
from breakdown_runs import command, copy_of, factory, forks
from breakdown_runs import run as run_command
from documented import documented
from printed import run_markdown, run_screen
from retune_fakes import Engine, make_run, retuned

from inductor_bench.analysis.batch_aggregation import list_retunes
from inductor_bench.autotune.methods import METHODS
from inductor_bench.cli import main as entry
from inductor_bench.errors import InductorBenchError, UsageError
from inductor_bench.records.base import Failure
from inductor_bench.records.module import ShapeGroup
from inductor_bench.records.request import BreakdownRequest, RetuneRequest
from inductor_bench.records.retune import EDITED, INTERRUPTED, UNREACHED, MeasuredKernel
from inductor_bench.records.run import GRAPH, Part, Run
from inductor_bench.report.run.run_document import write_report
from inductor_bench.store.files import read_json, write_json
from inductor_bench.store.folder import RunFolder
from inductor_bench.store.lock import hold_lock
from inductor_bench.workflows.breakdown import run_breakdown
from inductor_bench.workflows.kernels import retuning
from inductor_bench.workflows.modules.kernel_files import extract_run
from inductor_bench.workflows.pins import make_pins
from inductor_bench.workflows.progress import Silent


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    make_run(made)
    return made


def retune(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, engine: Engine, method: str = "max", top: int = 10
) -> Run:
    monkeypatch.setattr(retuning, "run_kernel", engine)
    monkeypatch.setattr(retuning, "list_visible_gpus", lambda: ("0",))
    options = BreakdownRequest(str(folder.path), retune=RetuneRequest(method, top, 7.0), python="python3")
    found = retuning.autotune_run(folder.load(), folder, options, Silent(), folder.save)
    assert folder.load() == found, "all of it is in the record"
    return found


def text_of(run: Run, width: int = 100) -> str:
    return run_screen(run, width)


def test_the_dearest_are_retuned_each_once(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    run = retune(folder, monkeypatch, engine, top=2)
    assert engine.begun == ["triton_red_1", "triton_poi_2"]
    (request,) = engine.requests
    assert (request.budget_s, request.python, request.autotune) == (7.0, "python3", "max")
    red, poi = run.retunes
    assert (red.graphs, red.calls, red.time_s) == (("forward", "backward"), 3.0, pytest.approx(6e-3))
    assert red.kernel is not None and red.kernel.file == red.file == "kernels/triton_red_1.py"
    assert red.row.saving_s == pytest.approx(3e-3) and poi.row.saving_s == pytest.approx(1e-3)


def test_a_kernel_without_a_file_is_a_row_with_its_reason(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    run = retune(folder, monkeypatch, Engine())
    assert [one.name for one in run.retunes] == ["triton_red_1", "triton_poi_2", "aten_mm_0", "aten_bad_0"]
    assert run.retunes[-1].row.problem == "it has no standalone file: no arguments"
    assert run.retunes[2].row.saving_s == 0.0, "what stays as it was saves nothing"
    assert not run.failures


def test_what_is_there_is_not_done_again(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    retune(folder, monkeypatch, Engine(), top=1)
    engine = Engine()
    retune(folder, monkeypatch, engine, top=2)
    assert engine.begun == ["triton_poi_2"]
    retune(folder, monkeypatch, engine, "exhaustive", top=1)
    assert engine.begun[1:] == ["triton_red_1"]
    run = retune(folder, monkeypatch, engine, top=2)
    assert len(engine.begun) == 2 and len(run.retunes) == 3
    summary = list_retunes(run)
    assert summary is not None and [row.speedup for row in summary.rows] == [3.0, 1.25], "the best of each kernel"


def test_a_file_that_somebody_edited_is_not_the_models_kernel(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, options = folder.kernels / "triton_poi_2.py", RetuneRequest("max", 2)
    file.write_text("# tl.store(p, x, mask, eviction_policy='evict_first')\n")
    engine = Engine()
    run = retune(folder, monkeypatch, engine, top=2)
    red, poi = run.retunes
    assert engine.begun == ["triton_red_1"] and red.row.saving_s is not None and not run.failures
    assert (poi.file, poi.kernel, poi.row.problem) == ("kernels/triton_poi_2.py", None, EDITED)
    assert poi.failure is not None
    assert poi.failure.hint == f"inductor-bench kernel {file} --autotune retunes it as it is"
    assert f"triton_poi_2: {EDITED}" in " ".join(text_of(run).replace("\n   ", "").split())
    assert not retuning.has_retunes_left((one.row for one in run.retunes), folder, options), "a batch is done"
    file.write_text("")
    assert retuning.has_retunes_left((one.row for one in run.retunes), folder, options)
    run = retune(folder, monkeypatch, engine, top=2)
    assert engine.begun[1:] == ["triton_poi_2"] and run.retunes[1].row.speedup == 1.25
    file.write_text("# edited once more\n")
    assert retune(folder, monkeypatch, engine, top=2) == run and len(engine.begun) == 2, "what was found stays true"


def test_a_run_of_an_older_version_does_not_tell_what_was_edited(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = folder.kernels / "kernels.json"
    write_json(index, [{key: value for key, value in row.items() if key != "sha256"} for row in read_json(index)])
    (folder.kernels / "triton_poi_2.py").write_text("# edited\n")
    engine = Engine()
    assert not retune(folder, monkeypatch, engine, top=2).failures
    assert engine.begun == ["triton_red_1", "triton_poi_2"]


@pytest.mark.parametrize("text", ["{", "5", '[{"name": 1}]', ""])
def test_a_damaged_index_is_written_again(text: str, folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    index = folder.kernels / "kernels.json"
    whole = index.read_text()
    index.write_text(text)
    options = RetuneRequest("max", 1, None)
    assert retuning.has_retunes_left((), folder, options), "a batch goes on with it"

    def write(folder: RunFolder, values: str) -> None:
        index.write_text(whole)
        raise InductorBenchError("written")  # what comes after it needs modules

    monkeypatch.setattr(retuning, "extract_run", write)
    (failure,) = retune(folder, monkeypatch, Engine()).failures
    assert failure.message == "written"
    assert [row.name for row in retune(folder, monkeypatch, Engine(), top=1).retunes] == ["triton_red_1"]


def test_a_narrow_terminal_has_a_row_for_each_retune(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    run = retune(folder, monkeypatch, Engine(), top=2)
    lines = text_of(run, 60).splitlines()
    begin = next(index for index, line in enumerate(lines) if line.startswith("kernel  "))
    assert lines[begin].split() == ["kernel", "calls", "time", "alone", "retuned", "result", "saves"]
    assert all(len(line) <= 60 for line in lines[begin : begin + 3])
    assert lines[begin + 1].split()[:4] == ["triton_red_1", "3", "6.00", "ms"]
    assert lines[begin + 1].split()[-3:] == ["2.00x", "3.00", "ms"]


def test_an_interruption_keeps_what_was_retuned(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Engine(lambda file, method: KeyboardInterrupt() if "poi" in file else retuned(file, method))
    with pytest.raises(KeyboardInterrupt):
        retune(folder, monkeypatch, stop)
    kept = {one.name: one.row.problem for one in folder.load().retunes}
    assert kept["triton_red_1"] == "" and kept["triton_poi_2"] == kept["aten_mm_0"] == INTERRUPTED
    engine = Engine()
    retune(folder, monkeypatch, engine)
    assert engine.begun == ["triton_poi_2", "aten_mm_0"]


def test_what_comes_to_nothing_has_its_reason(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome(file: str, method: str) -> MeasuredKernel | Failure:
        if "red" in file:
            return Failure("kernel", "invalid", "nothing else to try", subject=file)
        found = retuned(file, method)
        return replace(found, tuning=None) if "mm" in file else found

    run = retune(folder, monkeypatch, Engine(outcome))
    problems = {one.name: one.row.problem for one in run.retunes}
    assert problems["triton_red_1"] == "nothing else to try"
    assert problems["triton_poi_2"] == ""
    assert problems["aten_mm_0"] == UNREACHED, "the budget did not last: it is tried again"
    engine = Engine()
    retune(folder, monkeypatch, engine)
    assert engine.begun == ["aten_mm_0"]


def test_what_a_budget_did_not_last_for_on_an_h200_says_so() -> None:
    problems = [one.row.problem for one in h200.run_of("albert_bf16").retunes]
    assert problems == ["", UNREACHED, UNREACHED, UNREACHED]


def test_on_another_machine_nothing_is_final(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    run = retune(folder, monkeypatch, Engine(lambda file, method: retuned(file, method, "NVIDIA L4")))
    (failure,) = run.failures
    assert "was measured on NVIDIA H200, and this is NVIDIA L4" in failure.message and "measured on" in failure.hint
    assert {one.row.problem for one in run.retunes if one.file} == {INTERRUPTED}
    monkeypatch.setattr(retuning, "list_visible_gpus", tuple)
    options = BreakdownRequest(str(folder.path), retune=RetuneRequest("max", 2))
    (failure,) = retuning.autotune_run(run, folder, options, Silent(), folder.save).failures
    assert failure.message == "the run was measured on NVIDIA H200, and there is no GPU here"
    assert failure.kind == run.failures[0].kind == "elsewhere"
    engine = Engine()
    assert not retune(folder, monkeypatch, engine).failures and len(engine.begun) == 3


def test_two_at_once_on_one_run(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    monkeypatch.setattr(retuning, "run_kernel", engine)
    options = BreakdownRequest(str(folder.path), retune=RetuneRequest("max", 2), plots=False)
    with hold_lock(folder.path), pytest.raises(UsageError, match=f"another .* is writing .*process {os.getpid()}"):
        run_breakdown(options, Silent())
    assert not engine.begun and not retune(folder, monkeypatch, engine).failures


def test_what_is_another_thing_by_itself_saves_nothing(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(file: str, method: str) -> MeasuredKernel:
        found = retuned(file, method)
        assert found.tuning is not None
        return replace(found, tuning=replace(found.tuning, default_s=0.1, best_s=0.05))

    run = retune(folder, monkeypatch, Engine(slow), top=1)
    (row,) = [one.row for one in run.retunes]
    assert (row.verdict, row.speedup, row.saving_s) == ("undecided", 2.0, 0.0)
    unlike = "by itself it takes 50 times what it takes in the model"
    assert row.caution.startswith(unlike)
    pinned = make_pins(run, folder)
    assert not pinned.pinned and [left.reason for left in pinned.unpinned] == [
        f"{unlike}, so its winner says nothing about the model"
    ]


def test_what_the_budget_did_not_reach_is_told_from_failures(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(lambda file, method: Failure("kernel", "budget", UNREACHED, subject=file))
    words = "4 kernels retuned: 3 not reached within the budget, 1 without a result"
    assert words in " ".join(text_of(retune(folder, monkeypatch, engine)).split())


def test_an_engine_that_cannot_work_is_a_failure_until_it_can(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Engine(lambda file, method: InductorBenchError("there is no torch", "install it"))
    run = retune(folder, monkeypatch, broken)
    assert [(failure.stage, failure.message) for failure in run.failures] == [("retune", "there is no torch")]
    assert not retune(folder, monkeypatch, Engine()).failures


def test_all_forms_say_what_it_came_to(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = text_of(folder.load())
    assert "retune" not in plain.replace("retuned", ""), "the title apart, nothing is said of what was not asked for"
    run = retune(folder, monkeypatch, Engine())
    words = "4 kernels retuned: 2 faster, 1 as they were, 1 without a result; an iteration would save 4.00 ms (30.8%)"
    shown = text_of(run)
    assert words in " ".join(shown.split()) and "aten_bad_0: it has no standalone file" in shown
    row = next(line for line in shown.splitlines() if "sgemm" in line)
    assert row.endswith("stays"), "a library kernel has the retune of its only call"
    assert next(line for line in shown.splitlines() if "1  triton_poi_2" in line).endswith("1.25x")
    forward, backward = run.modules
    several = replace(forward.kernels[-1], shapes=(ShapeGroup("f32[1]", 1, 1e-4), ShapeGroup("f32[2]", 2, 9e-4)))
    several_run = replace(run, modules=(replace(forward, kernels=(*forward.kernels[:-1], several)), backward))
    row = next(line for line in text_of(several_run).splitlines() if "sgemm" in line)
    assert not row.endswith("stays"), "one call of several says nothing of the others"
    assert all(len(line) <= 80 for line in text_of(run, 80).splitlines())
    page = run_markdown(run)
    assert words in page and "a projection" in page
    write_report(run, folder.path, plots=False)
    assert words in (folder.path / "report.html").read_text()
    with (folder.path / "tables" / "retunes.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert (rows[0]["name"], rows[0]["graphs"], float(rows[0]["speedup"])) == ("triton_red_1", "forward; backward", 2.0)
    assert rows[-1]["problem"].startswith("it has no standalone file")


def test_nothing_is_won_in_a_graph_that_waits(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(folder, wall_s=(200e-3, 2.2e-3))
    run = retune(folder, monkeypatch, Engine())
    summary = list_retunes(run)
    assert summary is not None and summary.waiting == 2, "the product and the pointwise kernel"
    assert summary.saving_s == pytest.approx(3e-3), "the reduction also runs in the graph that does not wait"


def test_a_poor_measurement_is_said_to_be_one(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    run = retune(folder, monkeypatch, Engine(lambda file, method: replace(retuned(file, method), advice=("busy",))))
    assert "3 were measured poorly: busy" in text_of(run)
    assert retune(folder, monkeypatch, Engine()).retunes[0].row.caution == "busy"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("RUN --budget 3", "--budget is for a retune"),
        ("RUN --autotune slowly", f"'slowly' is not one of {', '.join(map(repr, METHODS))}"),
        ("c.py --trace t.json --autotune", "--autotune needs a run that was measured here"),
    ],
)
def test_an_impossible_request_is_refused(
    words: str, message: str, folder: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder.path.parent)
    Path("c.py").write_text("# AOT ID: ['0_inference']\n")
    Path("t.json").write_text("{}")
    assert entry.main(["breakdown", *words.replace("RUN", "run").split()]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.xdist_group("captures")  # which make the run
def test_real_kernels_of_an_earlier_run_are_retuned_where_they_lie() -> None:
    run = copy_of(factory(), "retuned")
    before = RunFolder(run).load()
    words = documented("inductor-bench breakdown runs/train --autotune", {"runs/train": run})
    done = run_command(command(*words, "--top", "1", "--no-plots"), run, **forks())
    after = RunFolder(run).load()
    (row,) = [one.row for one in after.retunes]
    assert done.code == 0 and row.over and "1 kernel retuned" in done.stdout
    was_tried = row.verdict in ("faster", "same", "slower", "undecided") and (row.tuned_default_s or 0.0) > 0
    assert was_tried or "has nothing else to try for this kernel" in row.problem, "a product on one core has no other"
    assert after.modules == before.modules, "nothing was measured again"
    again = run_command(command("report", run, "--no-plots"), run)
    assert "1 kernel retuned" in again.stdout


@pytest.mark.xdist_group("captures")  # which make the run
def test_what_is_written_again_leaves_edited_files_alone() -> None:
    folder = RunFolder(copy_of(factory(), "edited"))
    index = read_json(folder.kernels / "kernels.json")
    edited, gone, *_ = sorted(row["file"] for row in index)
    texts = {file.name: file.read_text() for file in folder.kernels.glob("*.py")}
    (folder.kernels / edited).write_text("# an idea\n")
    (folder.kernels / gone).unlink()
    assert not extract_run(folder).failures
    after = {file.name: file.read_text() for file in folder.kernels.glob("*.py")}
    assert after == {**texts, edited: "# an idea\n"}
    assert read_json(folder.kernels / "kernels.json") == index, "it tells of the model's kernels, as they were written"
    (folder.kernels / edited).rename(folder.path / edited)
    extract_run(folder)
    assert (folder.kernels / edited).read_text() == texts[edited]


def test_a_program_s_step_tells_which_kernels_are_the_most_expensive(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = folder.load()
    often = {"triton_poi_2": 50.0}
    modules = tuple(
        replace(
            module,
            kernels=tuple(
                replace(k, step_calls=k.calls * often.get(k.name, 2.0), step_time_s=k.time_s * often.get(k.name, 2.0))
                for k in module.kernels
            ),
        )
        for module in run.modules
    )
    parts = [Part(GRAPH, module.label, 2, 0.1, 0, graph=module.slug) for module in modules]
    folder.save(replace(run, modules=modules, program=step_runs.program(parts, step_s=0.2)))
    engine = Engine()
    found = retune(folder, monkeypatch, engine, top=2)
    assert engine.begun == ["triton_poi_2", "triton_red_1"]
    poi = next(one for one in found.retunes if one.name == "triton_poi_2")
    before = next(k for module in run.modules for k in module.kernels if k.name == "triton_poi_2")
    assert (poi.calls, poi.time_s) == (50 * before.calls, pytest.approx(50 * before.time_s))
    assert "; a step would save" in text_of(found)

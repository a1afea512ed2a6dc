"""``compare`` from records on disk, zipped ones, batches, and programs that it runs itself."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path

import compared_runs as pairs
import pytest
import run_builder as build
from click.testing import CliRunner
from documented import documented

import inductor_bench
from inductor_bench.analysis.comparison_words import write_headline
from inductor_bench.analysis.limits import Slowdown, judge_limit
from inductor_bench.cli.compare import command, exit_code
from inductor_bench.cli.main import main
from inductor_bench.errors import InductorBenchError, UsageError
from inductor_bench.records.batch_record import DONE, FAILED, Batch, BatchModel
from inductor_bench.records.comparison import RunComparison
from inductor_bench.records.optimization import TIMED, StepDigest, Trial, TrialVariant
from inductor_bench.records.request import BreakdownRequest, CompareRequest, ModelRequest
from inductor_bench.records.run import Environment, Run
from inductor_bench.store import codec
from inductor_bench.store.folder import RECORD, BatchFolder, OptimizationFolder, RunFolder
from inductor_bench.store.run_files import unpack_run
from inductor_bench.workflows import compare as pair_workflow
from inductor_bench.workflows import timed_turns
from inductor_bench.workflows.breakdown import BreakdownOutcome
from inductor_bench.workflows.compare import compare_program, compare_records, interleave_runs, run_pair
from inductor_bench.workflows.progress import Silent
from inductor_bench.workflows.timed_turns import TimedTurns

GELU = "triton_poi_fused_gelu_mul_sigmoid_tanh_1"


def save(path: Path, run: Run) -> Path:
    """A RUN folder with the record, and a text as the file of each kernel."""
    (path / "kernels").mkdir(parents=True, exist_ok=True)
    RunFolder(path).save(run)
    for kernel in run.modules[0].kernels:
        if kernel.file:
            (path / kernel.file).write_text(f"# {path.name}: {kernel.name}\n")
    return path


@pytest.fixture
def a(tmp_path: Path) -> Path:
    return save(tmp_path / "a", pairs.run())


@pytest.fixture
def b(tmp_path: Path) -> Path:
    return save(tmp_path / "b", slower())


def slower() -> Run:
    return pairs.run(pairs.changed(GELU, time_s=2.4e-3, config=pairs.OTHER_CONFIG, samples_s=(2.4e-3,) * 12))


def zipped(folder: Path, inside: str = "") -> Path:
    path = folder.with_suffix(".zip")
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, f"{inside}{file.relative_to(folder)}")
    return path


def test_runs_and_zipped_runs_give_the_same_comparison(a: Path, b: Path) -> None:
    plain = compare_records(a, b).comparison
    assert plain.verdict == "slower"
    for inside in ("", "runs/b/"):
        found = compare_records(a, zipped(b, inside)).comparison
        assert replace(found, b=plain.b) == plain and found.b.name == str(b.with_suffix(".zip"))
    assert inductor_bench.compare(a, str(b)) == plain
    assert compare_records(a / RECORD, b).comparison.parts == plain.parts


def test_a_record_of_an_older_format_is_compared(a: Path, tmp_path: Path) -> None:
    data = codec.encode(pairs.without_step(pairs.run()))
    data["format"] = 1
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / RECORD).write_text(json.dumps(data))
    found = compare_records(tmp_path / "old", a).comparison
    assert found.step.currency == "iteration" and any("no step was profiled in A" in note for note in found.notes)


def break_record(path: Path, what: str) -> Path:
    data = json.loads((path / RECORD).read_text())
    if what == "newer":
        data["format"] = 99
    elif what == "edited":
        data["modules"][0]["kernels"][0]["time_s"] = "fast"
    text = "{" if what == "cut" else json.dumps(data)
    (path / RECORD).write_text(text)
    return path


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("newer", "has format 99, newer than"),
        ("edited", "time_s should be float"),
        ("cut", "is not valid JSON"),
    ],
)
@pytest.mark.parametrize("as_zip", [False, True])
def test_a_record_that_cannot_be_read_is_one_sentence(a: Path, b: Path, what: str, message: str, as_zip: bool) -> None:
    broken = break_record(b, what)
    with pytest.raises(InductorBenchError, match=message) as caught:
        compare_records(a, zipped(broken) if as_zip else broken)
    assert "\n" not in caught.value.message
    assert str(b) in caught.value.message and "inductor-bench-" not in caught.value.message


def test_what_is_no_run_is_refused_in_words(a: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "train.py").write_text("")
    (tmp_path / "text.zip").write_text("no zip file")
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("x/record.json", "{}")
        archive.writestr("y/record.json", "{}")
    with zipfile.ZipFile(tmp_path / "none.zip", "w") as archive:
        archive.writestr("x.txt", "")
    for name, message in (
        ("missing", "there is no"),
        ("train.py", "is a program, not a run"),
        ("empty", "holds no record.json"),
        ("text.zip", "is not a readable zip file"),
        ("two.zip", "holds 2 files record.json"),
        ("none.zip", "holds no record.json"),
    ):
        with pytest.raises(InductorBenchError, match=message):
            compare_records(a, tmp_path / name)


def test_a_large_file_of_a_zipped_run_is_not_held_in_memory(tmp_path: Path) -> None:
    size = 64_000_000
    path = tmp_path / "run.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("record.json", "{}")
        archive.writestr("kernels/values.safetensors", bytes(size))
    tracemalloc.start()
    try:
        with unpack_run(path) as folder:
            assert (folder / "kernels" / "values.safetensors").stat().st_size == size
        assert tracemalloc.get_traced_memory()[1] < size / 4
    finally:
        tracemalloc.stop()


def test_a_zip_file_writes_nothing_outside_of_its_folder(a: Path, tmp_path: Path) -> None:
    path = tmp_path / "evil.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(a / RECORD, RECORD)
        archive.writestr("kernels/../../escaped.py", "no")
        archive.writestr("/kernels/absolute.py", "no")
    assert compare_records(a, path).comparison.step.delta_s == 0
    assert not list(tmp_path.rglob("escaped.py"))


def invoke(*words: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(command, [str(word) for word in words], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.return_value or 0, result.output


def test_fail_above_decides_the_exit_code(a: Path, b: Path, tmp_path: Path) -> None:
    assert invoke(a, b, "-q")[0] == 0
    assert invoke(a, b, "-q", "--fail-above", "5%")[0] == 4
    assert invoke(a, b, "-q", "--fail-above", "500")[0] == 0
    assert invoke(a, a, "-q", "--fail-above", "0%")[0] == 5, "that nothing differs is not proven"
    other = save(tmp_path / "cpu", pairs.each_module(pairs.run(), lambda module: replace(module, device="cpu")))
    assert invoke(a, other, "-q", "--fail-above", "5%")[0] == 1
    for form in ("table", "md"):
        for limit, word in (("5%", "Limit of 5%: failed, because"), ("500.25%", "Limit of 500.25%: passed, because")):
            assert word in " ".join(invoke(a, b, "-q", "--format", form, "--fail-above", limit)[1].split())
        assert "Limit of" not in invoke(a, b, "-q", "--format", form)[1]


def test_a_limit_passes_only_if_the_whole_interval_is_below_it(a: Path, b: Path) -> None:
    comparison = compare_records(a, b).comparison

    def found(low: float, high: float, verdict: str) -> RunComparison:
        step = replace(comparison.step, a_s=1.0, low_s=low, high_s=high)  # times are shares without a rounding
        return replace(comparison, step=step, verdict=verdict)

    slower, undecided = found(0.1, 0.2, "slower"), found(-0.1, 0.2, "undecided")
    faster, same = found(-0.2, -0.1, "faster"), found(-0.003, 0.002, "same")
    for one, limit, code in (
        (slower, 0.05, 4),
        (slower, 0.15, 5),
        (slower, 0.2, 0),
        (undecided, 0.05, 5),
        (undecided, 0.2, 0),
        (faster, 0.0, 0),
        (same, 0.05, 0),
        (same, 0.0, 5),
        (replace(slower, verdict="not comparable"), 0.9, 1),
        (replace(slower, step=replace(slower.step, low_s=None, high_s=None)), 0.9, 5),
    ):
        assert exit_code([one], limit) == code and exit_code([one], None) == 0, (one.step, limit)
    assert exit_code([undecided, slower], 0.05) == 4
    assert write_headline(undecided, 0.05).endswith(
        "undecided, because the interval, -10.0% to +20.0%, includes the limit."
    )


def test_a_difference_too_small_to_count_never_decides_at_no_slowdown(a: Path) -> None:
    for low, high in ((-0.001, 0.001), (0.001, 0.003), (-0.003, -0.001)):
        assert judge_limit(Slowdown(low, high, effect=0.01), 0.0) == "undecided"
        assert judge_limit(Slowdown(low, high), 0.0) == ("slower" if low > 0 else "" if high < 0 else "undecided")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a", "b", "--fail-above", "fast"], "'fast' is no percentage"),
        (["a", "b", "--fail-above", "-5%"], "'-5%' is no percentage"),
        (["a.py", "--env", "=1"], "is not of the form NAME=VALUE"),
        (["a", "b", "--env", "X=1"], "--env is for a program that this command runs, not for results"),
        (["a", "b", "--runs", "3"], "--runs is for a program that this command runs, not for results"),
        (["a", "b", "c"], "3 targets were given"),
        (["a.zip"], "there is nothing to compare a.zip with"),
        (["a.py", "--python", "x", "--python", "y", "--python", "z"], "--python is given more than twice"),
        (["a.py", "--env", "TORCHINDUCTOR_FX_GRAPH_CACHE=1"], "the measurement itself sets it"),
    ],
)
def test_a_wrong_request_is_a_usage_error(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_bundle_holds_the_report_and_both_versions(a: Path, b: Path, tmp_path: Path) -> None:
    path = tmp_path / "out" / "bundle.zip"
    assert invoke(a, b, "--bundle", path)[0] == 0
    with zipfile.ZipFile(path) as archive:
        assert sorted(archive.namelist()) == [
            *(f"a/{GELU}.py", f"b/{GELU}.py"),
            *("comparison.html", "comparison.json", "comparison.md"),
        ]
        assert archive.read(f"b/{GELU}.py").decode() == f"# b: {GELU}\n"
        page = archive.read("comparison.html").decode()
        assert re.findall('data-file="([^"]*)"', page) == [f"a/{GELU}.py", f"b/{GELU}.py"] and 'id="files"' in page
        assert archive.read("comparison.md").decode().startswith("# ")
        assert json.loads(archive.read("comparison.json"))["verdict"] == "slower"


def test_a_path_that_no_file_can_have_is_refused_in_words(a: Path) -> None:
    for sides in ((a, "x" * 300), ("x" * 300, a)):
        with pytest.raises(UsageError, match="cannot be looked up: File name too long"):
            invoke(*sides)


def test_a_bundle_is_written_of_runs_whose_names_hold_half_of_a_surrogate_pair(
    a: Path, b: Path, tmp_path: Path
) -> None:
    record = b / RECORD
    data = json.loads(record.read_text()) | {"title": "\ud800", "target": "\ud800"}
    for kernel in data["modules"][0]["kernels"]:
        kernel["name"] += "\ud800"
    record.write_text(json.dumps(data))
    assert invoke(a, b, "--bundle", tmp_path / "bundle.zip")[0] == 0


def test_a_bundle_takes_the_place_of_nothing_but_a_bundle(a: Path, b: Path, tmp_path: Path) -> None:
    path, run = tmp_path / "bundle.zip", zipped(a)
    link, before = tmp_path / "link.zip", run.read_bytes()
    assert invoke(a, b, "--bundle", path)[0] == 0 and invoke(a, b, "--bundle", path)[0] == 0
    link.symlink_to(path)
    for other in (run, a, a / RECORD, link, Path("/dev/null")):
        with pytest.raises(UsageError, match="exists and is no bundle"):
            invoke(a, b, "--bundle", other)
    assert run.read_bytes() == before


def save_batch(path: Path, **runs: Run | None) -> Path:
    folder = BatchFolder(path)
    models = []
    for name, run in runs.items():
        place = f"models/{name}"
        if run is not None:
            save(path / place, run)
        request = ModelRequest(f"timm:{name}", name=name)
        models.append(BatchModel(request, DONE if run else FAILED, run=place if run else None))
    path.mkdir(exist_ok=True)
    folder.save(Batch(1, "0", "", "", "list.txt", tuple(models)))
    return path


def test_batches_are_compared_model_by_model(tmp_path: Path) -> None:
    a = save_batch(tmp_path / "a", one=pairs.run(), two=pairs.run(), three=pairs.run(), four=None)
    b = save_batch(tmp_path / "b", two=slower(), one=pairs.run(), four=pairs.run())
    code, text = invoke(a, b, "-q", "--fail-above", "5%")
    assert code == 1, "a model that B lacks stands before one that is slower"
    assert "Of 4 models: 1 slower, 1 undecided, 2 not compared." in " ".join(text.split())
    found = json.loads(invoke(a, b, "-q", "--format", "json")[1])
    assert [model["name"] for model in found["models"]] == ["one", "two", "three", "four"]
    assert found["models"][2]["problem"] == "no run of it in B" and found["ratio"] > 1.05
    assert "| two | " in invoke(a, b, "-q", "--format", "md")[1]
    assert invoke(a, b, "-q", "--format", "csv")[1].splitlines()[0].startswith("model,a_s,b_s")
    assert "not compared" in invoke(a, b, "-q", "--format", "html")[1]
    with pytest.raises(UsageError, match="is a batch, and"):
        invoke(a, a / "models" / "one")


def test_a_model_that_b_lost_fails_above_any_limit(tmp_path: Path) -> None:
    a = save_batch(tmp_path / "a", one=pairs.run(), two=pairs.run())
    b = save_batch(tmp_path / "b", one=pairs.run(), two=None)
    assert invoke(a, b, "-q", "--fail-above", "5%")[0] == 1
    assert invoke(b, a, "-q", "--fail-above", "500%")[0] == 0
    assert invoke(a, b, "-q")[0] == 0


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``train.py``, whose processes time no step, and whose machine is unknown."""
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pair_workflow, "read_machine", lambda *_: (Environment(), None))
    monkeypatch.setattr(pair_workflow, "time_in_turn", lambda *_: TimedTurns())
    return tmp_path / "train.py"


@pytest.mark.usefixtures("program")
def test_runs_are_interleaved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "".join(interleave_runs(3)) == "abbaab"
    asked: list[BreakdownRequest] = []

    def measure(options: BreakdownRequest, progress: object) -> BreakdownOutcome:
        asked.append(options)
        run = pairs.run(longer=1.3 if options.variables else 1.0)
        assert options.output is not None
        return BreakdownOutcome(run, save(options.output, run))

    monkeypatch.setattr(pair_workflow, "run_breakdown", measure)
    monkeypatch.setenv("X", "old")
    pythons = tuple(str(tmp_path / name) for name in ("p", "q"))
    for python in pythons:
        Path(python).symlink_to(sys.executable)
    options = CompareRequest(
        pythons,
        (("X", "1"),),
        breakdown=BreakdownRequest("train.py", arguments=("--fast",), output=tmp_path / "out"),
    )
    found = compare_program(options, Silent()).comparison
    assert [str(one.output)[-3:] for one in asked] == ["a-1", "b-1", "b-2", "a-2"]
    assert [one.python for one in asked] == [pythons[number] for number in (0, 1, 1, 0)]
    assert [one.variables for one in asked] == [(), (("X", "1"),), (("X", "1"),), ()]
    assert all(one.stop and one.arguments == ("--fast",) for one in asked)
    assert [(row.name, row.a, row.b) for row in found.environment_differences] == [
        ("interpreter", *pythons),
        ("X", "old", "1"),
    ]
    assert found.verdict == "slower" and found.step.delta_s == pytest.approx(0.3 * found.step.a_s)
    with pytest.raises(UsageError, match="is not empty") as refused:
        run_pair(options, Silent())
    assert "compare its finished runs" in (refused.value.hint or "")
    (tmp_path / "out" / "notes.txt").write_text("mine")
    again = replace(options, breakdown=replace(options.breakdown, force=True), runs=1)
    assert compare_program(again, Silent()).comparison.a.runs == 1
    assert sorted(path.parent.name for path in (tmp_path / "out").glob("*/record.json")) == ["a-1", "b-1"]
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"
    (tmp_path / "out" / "b-7").symlink_to(save(tmp_path / "elsewhere", pairs.run()))
    with pytest.raises(InductorBenchError, match="is a symbolic link"):
        compare_program(again, Silent())
    assert (tmp_path / "elsewhere" / RECORD).is_file()


@pytest.mark.usefixtures("program")
def test_the_runs_of_an_interrupted_comparison_are_compared_without_running_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(options: BreakdownRequest, progress: object) -> BreakdownOutcome:
        assert options.output is not None
        if options.output.name == "a-2":
            raise KeyboardInterrupt
        run = pairs.run(longer=1.3 if options.variables else 1.0)
        return BreakdownOutcome(run, save(options.output, run))

    monkeypatch.setattr(pair_workflow, "run_breakdown", measure)
    monkeypatch.setenv("API_TOKEN", "hunter2hunter2")
    folder = tmp_path / "out"
    variables = (("API_TOKEN", "swordfish99"), ("X", "1"))
    with pytest.raises(KeyboardInterrupt, match=rf"`inductor-bench compare {folder}` compares what had finished"):
        run_pair(CompareRequest(breakdown=BreakdownRequest("train.py", output=folder), variables=variables), Silent())
    assert re.findall("hunter2|swordfish", (folder / "pair.json").read_text()) == []
    code, text = invoke(folder, "-q", "--format", "json")
    found = json.loads(text)
    assert code == 0 and (found["a"]["runs"], found["b"]["runs"]) == (1, 2)
    assert [row["name"] for row in found["environment_differences"]] == ["API_TOKEN", "X"]
    assert "<table" in (folder / "report.html").read_text()
    with pytest.raises(UsageError, match="--runs is for a program"):
        invoke(folder, "--runs", "3")
    shutil.rmtree(folder / "a-1")
    with pytest.raises(InductorBenchError, match="has no finished run of A"):
        invoke(folder)


@pytest.mark.usefixtures("program")
def test_a_run_that_measures_nothing_ends_the_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = BreakdownOutcome(build.run("train", []), tmp_path)
    monkeypatch.setattr(pair_workflow, "run_breakdown", lambda options, progress: empty)
    with pytest.raises(InductorBenchError, match=r"the run of A in .*a-1 measured nothing"):
        run_pair(CompareRequest(breakdown=BreakdownRequest("train.py", output=tmp_path / "out")), Silent())


TIMES = {"A": 0.010, "B": 0.007}


def time_process(side: str, number: int, factor: float = 1.0) -> Trial:
    """A process of a side whose steps take about :data:`TIMES`."""
    times = tuple(factor * TIMES[side] * (1 + 0.002 * (number % 3)) for _ in range(30))
    return Trial(f"{number:02}-{side}", TIMED, False, (side,), (TrialVariant(side, times, tuple(range(30)), (1,)),))


class FakeSide:
    """Times its steps without a process; ``events`` gets the side of each call."""

    events: list[str]
    factor = 1.0

    def __init__(self, program: BreakdownRequest, folder: OptimizationFolder, progress: object) -> None:
        self.folder, self.program = folder, program

    def run(self, number: int, side: str, left_s: float, budget_s: float) -> Trial:
        self.events.append(f"{side} {self.program.target}")
        trial = time_process(side, number, self.factor if side == "B" else 1.0)
        self.folder.save_process(trial.name, trial, str)
        return trial


@pytest.fixture
def two_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """``before.py`` and ``after.py``; returns the list of the processes that are started."""
    for name in ("before.py", "after.py"):
        (tmp_path / name).write_text(f"# {name}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pair_workflow, "read_machine", lambda *_: (build.run("train", []).environment, None))
    monkeypatch.setattr(timed_turns, "_TimedSide", FakeSide)
    monkeypatch.setattr(FakeSide, "events", [], raising=False)
    monkeypatch.setattr(FakeSide, "factor", 1.0)
    return FakeSide.events


def test_two_programs_run_in_turn_until_it_is_decided(two_programs: list[str]) -> None:
    words = documented("inductor-bench compare before.py after.py --runs 0 --fail-above 0%")
    code, text = invoke(*words[1:], "-q")
    assert code == 0 and two_programs == [f"{side} {'before' if side == 'A' else 'after'}.py" for side in "ABBAAB"]
    assert re.search(r"B is (29|30)\.\d% faster: a step takes 10\.0 ms in A and 7\.0\d ms in B", text)
    assert "3 and 3 processes ran in turn, without a profile" in text and "Where the difference" not in text
    assert re.search(r"program +before.py +after.py", text) and "No kernel" not in text
    found = json.loads(invoke("runs/compare-before-1", "-q", "--format", "json")[1])
    assert found["verdict"] == "faster" and len(found["proof"]["b_steps_s"]) == 3 and len(two_programs) == 6
    assert "% faster: a step" in Path("runs/compare-before-1/report.html").read_text()


def test_equal_programs_run_until_the_budget_is_over(two_programs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeSide, "factor", 10 / 7)
    clock = iter(range(0, 10_000, 5))
    monkeypatch.setattr(timed_turns.time, "monotonic", lambda: float(next(clock)))
    words = documented("inductor-bench compare before.py after.py --runs 0 --budget 2m")
    code, text = invoke(*words[1:], "--fail-above", "0%", "-q")
    assert 18 <= len(two_programs) <= 26 and code == 5 and "B takes as long as A, within 1%" in text


def test_profiled_runs_say_where_a_proven_difference_comes_from(
    two_programs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(options: BreakdownRequest, progress: object) -> BreakdownOutcome:
        assert options.output is not None
        run = pairs.run() if options.target == "before.py" else slower()
        return BreakdownOutcome(run, save(options.output, run))

    monkeypatch.setattr(pair_workflow, "run_breakdown", measure)
    monkeypatch.setattr(FakeSide, "factor", 2.0)
    words = documented("inductor-bench compare before.py after.py")
    code, text = invoke(*words[1:], "-q", "--fail-above", "5%", "-o", "out")
    assert code == 4 and re.search(r"B is (39|40)\.\d% slower: a step takes 10\.0 ms in A and 14\.0 ms in B", text)
    assert "Where the difference comes from" in text and GELU in text and "the profiled runs' steps take" in text
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir()) == [
        "a-1", "b-1", "steps"
    ]  # fmt: skip
    found = json.loads(invoke("out", "-q", "--format", "json")[1])
    assert sum(part["delta_s"] for part in found["parts"]) == pytest.approx(found["step"]["delta_s"])


def test_a_faster_program_that_computes_something_else_does_not_pass(
    two_programs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = FakeSide.run

    def run(self: FakeSide, number: int, side: str, left_s: float, budget_s: float) -> Trial:
        norm = 1.0 if side == "A" else 0.1
        digests = tuple(StepDigest(step, norm, (norm,), norm) for step in range(20))
        return replace(plain(self, number, side, left_s, budget_s), digests=digests)

    monkeypatch.setattr(FakeSide, "run", run)
    code, text = invoke("before.py", "after.py", "--runs", "0", "--fail-above", "0%", "-q")
    text = " ".join(text.split())
    assert code == 5 and "Limit of 0%: undecided, because B computes something else than A" in text
    assert "B computes something else than A: the norm of the gradients differs in 20 of the first 20 steps" in text


def test_a_profile_that_fails_leaves_the_verdict(two_programs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    empty = BreakdownOutcome(build.run("train", []), Path("x"))
    monkeypatch.setattr(pair_workflow, "run_breakdown", lambda options, progress: empty)
    code, text = invoke("before.py", "after.py", "--fail-above", "0%", "-q")
    assert code == 0 and "% faster: a step takes" in text and "Where the difference" not in text


def test_a_difference_that_the_profiled_runs_do_not_show_has_no_cause(
    two_programs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(options: BreakdownRequest, progress: object) -> BreakdownOutcome:
        assert options.output is not None
        return BreakdownOutcome(pairs.run(), save(options.output, pairs.run()))

    monkeypatch.setattr(pair_workflow, "run_breakdown", measure)
    text = invoke("before.py", "after.py", "-q")[1]
    assert "The parts do not say where this difference comes from: the profiled runs' steps take" in " ".join(
        text.split()
    )
    assert "Most of it" not in text and re.search(r"\n *rest ", text)


def test_a_factory_is_compared_and_not_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[BreakdownRequest] = []

    def measure(options: BreakdownRequest, progress: object) -> BreakdownOutcome:
        asked.append(options)
        assert options.output is not None
        return BreakdownOutcome(pairs.run(), save(options.output, pairs.run()))

    (tmp_path / "model.py").write_text("def make():\n    return None, ()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pair_workflow, "run_breakdown", measure)
    monkeypatch.setattr(pair_workflow, "read_machine", lambda *_: (Environment(), None))
    monkeypatch.setattr(pair_workflow, "time_in_turn", lambda *_: TimedTurns())
    assert invoke("model.py:make", "-q")[0] == 0 and len(asked) == 4 and not any(one.stop for one in asked)


@pytest.mark.usefixtures("program")
def test_a_comparison_without_a_profile_needs_steps(tmp_path: Path) -> None:
    with pytest.raises(InductorBenchError, match="no step was timed"):
        invoke("train.py", "--runs", "0", "-q")
    (tmp_path / "module.py").write_text("async_compile = AsyncCompile()\ndef call(args):\n    pass\n")
    with pytest.raises(UsageError, match="is a program, not a run"):
        invoke("train.py", tmp_path, "-q")


def test_comparing_needs_no_torch(a: Path, b: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; from inductor_bench.cli.main import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, "compare", str(a), str(b)], capture_output=True, text=True)
    assert done.returncode == 0 and "slower" in done.stdout, done.stderr

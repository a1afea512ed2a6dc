"""The view over many models: their rows, their kernels put together, and all forms in which that is shown."""

from __future__ import annotations

import csv
import io
import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import run_builder
import step_runs
from h200 import unpack_batch
from inline import change
from printed import recorded
from retune_fakes import retuned as retuned_kernel
from source_data import GPU, module_of

from inductor_bench import units
from inductor_bench.analysis.batch_aggregation import (
    KernelGroup,
    compute_suite_time_s,
    group_kernels,
    key_by_family,
    key_by_id,
    summarize_model,
)
from inductor_bench.analysis.findings.first_line import write_first_line
from inductor_bench.cli import main as entry
from inductor_bench.records.base import Category as C
from inductor_bench.records.base import Failure, OtherProcess
from inductor_bench.records.batch_record import Batch, BatchModel, BatchResults
from inductor_bench.records.code import MachineLoad
from inductor_bench.records.request import ModelRequest
from inductor_bench.records.retune import Retune
from inductor_bench.records.run import OtherWork, Run
from inductor_bench.report import names
from inductor_bench.report.batch import batch_document
from inductor_bench.report.batch.batch_document import describe_place, format_peak_share, name_family
from inductor_bench.source.generated_text import compute_family_id
from inductor_bench.store import digest
from inductor_bench.store.codec import FORMAT
from inductor_bench.store.folder import BatchFolder


def layer_norm(number: int, time_s: float, kernel_id: str, **fields: object) -> object:
    name = f"triton_per_fused_native_layer_norm_{number}"
    values = {"kernel_id": kernel_id, "family_id": "norms", "moved_bytes": 1e9, **fields}
    return run_builder.kernel(name, C.PERSISTENT_REDUCTION, 3, time_s, **values)


def tiny(scale: float, wall_s: float | None = None, **fields: object) -> Run:
    """A run of one graph: a layer norm of its own and one that all have, and a matrix product."""
    kernels = [
        layer_norm(4, 1e-3, "all" + "0" * 13),
        layer_norm(9, scale * 1e-3, f"{round(scale * 10):016d}"),
        run_builder.kernel("sgemm", C.EXTERN_GEMM, 2, 2e-3, operator="aten.mm", family_id="mm", kernel_id="m" * 16),
    ]
    total = sum(kernel.time_s for kernel in kernels)  # type: ignore[attr-defined]
    module = run_builder.module("inference", kernels, wall_s or total * 1.1, run_builder.H200)  # type: ignore[arg-type]
    return run_builder.run("tiny", [module], peaks=run_builder.H200, **fields)


FAILURE = Failure("capture", "program", "timm has no model bad | <b>", "near names: bat", "a log")
RETUNED = ("triton_poi_2", "all" + "0" * 13, C.POINTWISE, ("inference",), 3.0, 1e-3, "kernels/triton_poi_2.py", "max")
RUNS = {"one": tiny(1), "two": tiny(2), "waits": tiny(3, 0.1)}


@pytest.fixture
def batch(tmp_path: Path) -> BatchFolder:
    """Three models that were measured, one that failed, one that is missing, and one whose record is damaged."""
    folder = BatchFolder(tmp_path / "b")
    rows = []
    for line, name in enumerate([*RUNS, "bad", "missing", "damaged"], 1):
        status = {"bad": "failed", "missing": "waiting"}.get(name, "done")
        row = BatchModel(ModelRequest(f"timm:{name}", name=name, line=line, batch_size=8), status, run=f"models/{name}")
        rows.append(replace(row, failure=FAILURE) if name == "bad" else row)
        if status == "done":
            folder.run(name).path.mkdir(parents=True)
            folder.run(name).save(RUNS.get(name, RUNS["one"]))
    rows[1] = replace(rows[1], batch_size=4, notes=("batch 8 ran out of memory: tried with 4",))
    folder.run("damaged").record.write_text('{"format": 1, "modules": [{}]}')
    folder.save(
        Batch(1, "0.1.0", "2025-01-01T00:00:00+00:00", "inductor-bench batch x", "lists/suite.txt", tuple(rows))
    )
    return folder


@pytest.fixture
def results(batch: BatchFolder) -> BatchResults:
    return digest.read_results(batch, batch.load())


def test_a_digest_is_what_the_record_says(results: BatchResults) -> None:
    (graph,) = results.models[0].graphs
    (module,) = RUNS["one"].modules
    times = module.times
    assert (graph.label, graph.wall_time_s, graph.busy_share) == ("inference", times.wall_time_s, times.busy_share)
    assert [kernel.name for kernel in graph.kernels] == [kernel.name for kernel in module.kernels]
    assert [kernel.gain_limit_s for kernel in graph.kernels] == [kernel.roof.gain_limit_s for kernel in module.kernels]
    assert results.models[0].machine == "NVIDIA H200 · torch 2.11.0 · triton 3.6.0"
    assert [bool(model.problem) for model in results.models] == [False] * 5 + [True]
    problem = results.models[5].problem
    assert problem is not None and problem.kind == "damaged" and "is damaged" in problem.message


def test_a_file_of_many_kernels_is_the_same(
    batch: BatchFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copy of the process writes it, unless it fails there."""
    report(capsys, batch.path)
    file = batch.path / "kernels.csv"
    text, forked = file.read_text(), []
    monkeypatch.setattr(batch_document, "MANY_GROUPS", 0)
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    monkeypatch.setattr(os, "fork", lambda fork=os.fork: forked.append(fork()) or forked[-1])
    file.unlink()
    report(capsys, batch.path)
    assert file.read_text() == text and len(forked) == 1
    file.unlink()
    file.mkdir()
    assert entry.main(["report", str(batch.path)]) == 1
    assert f"cannot write {file}" in capsys.readouterr().err and len(forked) == 2


def test_kernels_are_put_together_by_id_and_by_family(results: BatchResults) -> None:
    ids = {group.key: group for group in group_kernels(results, key_by_id)}
    families = {group.key: group for group in group_kernels(results, key_by_family)}
    shared, norms = ids["all" + "0" * 13], families["norms"]
    assert shared.models == ("one", "two", "waits") and shared.launches == 9 and shared.ids == 1
    assert shared.time_s == pytest.approx(3e-3) and len(ids) == 5 and len(families) == 2
    assert norms.ids == 4 and norms.launches == 18 and norms.time_s == pytest.approx(9e-3)
    assert norms.share == pytest.approx(9e-3 / compute_suite_time_s(results)) and norms.model == "waits"
    known = [k for run in RUNS.values() for k in run.modules[0].kernels if k.name.startswith("triton")]
    mean = sum((k.roof.peak_share or 0) * k.time_s for k in known) / sum(k.time_s for k in known)
    assert norms.peak_share == pytest.approx(mean)
    assert name_family(norms) == "triton_per_fused_native_layer_norm" and name_family(families["mm"]) == "aten.mm"


def test_a_model_that_waits_for_its_host_has_nothing_to_win(results: BatchResults) -> None:
    one, _, waits = (summarize_model(model) for model in results.models[:3])
    tunable = [k for k in RUNS["one"].modules[0].kernels if k.category is C.PERSISTENT_REDUCTION]
    assert one.gain_limit_s == pytest.approx(sum(k.roof.gain_limit_s or 0 for k in tunable))
    assert waits.gain_limit_s is None
    norms = {group.key: group for group in group_kernels(results, key_by_family)}["norms"]
    counted = [k for name in ("one", "two") for k in RUNS[name].modules[0].kernels if k.name.startswith("triton")]
    assert norms.gain_limit_s == pytest.approx(sum(k.roof.gain_limit_s or 0 for k in counted))


def test_the_parts_of_a_model_are_its_whole(results: BatchResults) -> None:
    for model in results.models[:3]:
        summary = summarize_model(model)
        assert sum(share for _, share in summary.parts) == pytest.approx(1.0)
    assert summarize_model(results.models[3]).parts == ()


def test_kernels_of_older_records_have_their_names_as_families(batch: BatchFolder) -> None:
    record = batch.run("one").record
    record.write_text(record.read_text().replace('"family_id": "norms"', '"family_id": ""'))
    (graph,) = digest.read_results(batch, batch.load()).models[0].graphs
    families = {kernel.family_id for kernel in graph.kernels if kernel.name.startswith("triton")}
    assert families == {"persistent_reduction triton_per_fused_native_layer_norm"}


def report(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert entry.main(["report", *map(str, words)]) == 0
    return capsys.readouterr().out


def test_the_console_text(batch: BatchFolder, capsys: pytest.CaptureFixture[str]) -> None:
    out = report(capsys, batch.path, "--no-plots")
    assert "3 of 6 models measured, 1 failed, 1 damaged, 1 still to be measured" in out
    assert "the family of triton_per_fused_native_layer_norm could save most: 18 launches in 3 models" in " ".join(
        out.split()
    )
    assert "bad (capture, program): timm has no model bad" in out and "near names: bat" in out
    assert "4*" in out and "- two: batch 8 ran out of memory: tried with 4" in out
    assert max(map(names.count_columns, lines_of(out, batch))) <= 100
    assert f"inductor-bench kernel '{batch.path}/models/two#triton_per_fused_native_layer_norm_" in out


def lines_of(out: str, batch: BatchFolder) -> list[str]:
    """The lines of a screen, but for those with a path, which stays in one piece."""
    return [line for line in out.splitlines() if str(batch.path) not in line]


@pytest.mark.parametrize("columns", [60, 80, 100, 120])
@pytest.mark.parametrize("retuned", [False, True])
def test_it_fits(
    columns: int,
    retuned: bool,
    batch: BatchFolder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    long = replace(tiny(2), modules=tuple(replace(tiny(2).modules[0], slug=slug) for slug in "fb"))
    retune = Retune(*RETUNED, kernel=retuned_kernel("triton_poi_2.py", "max"))
    batch.run("two").save(replace(long, retunes=(retune,)) if retuned else long)
    out = report(capsys, batch.path, "--no-plots")
    assert max(map(names.count_columns, lines_of(out, batch))) <= columns
    for title in ("model", "gain limit", "family", "time", "of suite", *(["saves", "retune"] if retuned else [])):
        assert f" {title} " in f" {out} ".replace("\n", " "), f"there is no column {title}"
    families = next(line for line in out.splitlines() if "# " in line and " family " in line)
    assert ("kernels" in families) >= (columns > 90), "the least important goes first"


@pytest.mark.parametrize(
    ("place", "number", "words"),
    [
        ("wall_time_s", "NaN", "is not a finite number"),
        ("kernels 1 time_s", "Infinity", "is not a finite number"),
        ("kernels 1 gain_limit_s", "-Infinity", "is not a finite number"),
        ("kernels 1 peak_share", "1e-200", "is not a number that can be measured"),
        ("categories 0 time_s", "1e999", "is not a finite number"),
        ("idle time_s", '"nan"', "is not a finite number"),
        ("kernels 1 time_s", '"nan"', "Run.modules[0].kernels[1].time_s should be float but is 'nan'"),
    ],
)
def test_a_number_that_is_none_is_damage(
    place: str, number: str, words: str, batch: BatchFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    record = batch.run("one").record
    data = json.loads(record.read_text())
    inner, (*steps, last) = data["modules"][0], place.split()
    for step in steps:
        inner = inner[int(step) if step.isdigit() else step]
    assert isinstance(inner[last], float)
    inner[last] = "NUMBER"
    record.write_text(json.dumps(data).replace('"NUMBER"', number))
    out = " ".join(report(capsys, batch.path, "--no-plots").split())
    assert "2 of 6 models measured, 1 failed, 2 damaged" in out
    assert "one (record, damaged):" in out and words in out


def test_a_record_of_a_newer_version(batch: BatchFolder, capsys: pytest.CaptureFixture[str]) -> None:
    record = batch.run("one").record
    record.write_text(record.read_text().replace(f'"format": {FORMAT}', f'"format": {FORMAT + 1}'))
    out = " ".join(report(capsys, batch.path, "--no-plots").split())
    assert "2 of 6 models measured, 1 failed, 1 damaged, 1 of a newer format" in out
    problem, _, hint = out.partition("one (record, newer): ")[2].partition("Hint: ")
    assert f"newer than the {FORMAT} that this version reads" in problem and hint.startswith("update inductor-bench")
    assert "newer" in report(capsys, batch.path, "--format", "csv", "--no-plots").splitlines()[1].split(",")


def test_what_was_running_when_the_batch_was_killed(batch: BatchFolder, capsys: pytest.CaptureFixture[str]) -> None:
    stored = batch.load()
    rows = [replace(row, status="running") if row.request.name == "missing" else row for row in stored.models]
    batch.save(replace(stored, models=tuple(rows)))
    assert "1 still to be measured" in report(capsys, batch.path, "--no-plots")
    with batch.locked():
        assert "1 running" in report(capsys, batch.path, "--no-plots")


def test_the_tables(batch: BatchFolder, capsys: pytest.CaptureFixture[str]) -> None:
    printed = report(capsys, batch.path, "--format", "csv", "--no-plots")
    assert printed == (batch.path / "summary.csv").read_text()
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert [row["model"] for row in rows] == ["one", "two", "waits", "bad", "missing", "damaged"]
    assert [row["status"] for row in rows] == ["done", "done", "done", "failed", "waiting", "damaged"]
    assert rows[1]["batch_size"] == "4" and rows[1]["batch_size_asked"] == "8" and rows[3]["kind"] == "program"
    shares = [float(value) for key, value in rows[0].items() if key in ("extern_gemm_share", "idle_share")]
    shares.append(float(rows[0]["persistent_reduction_share"]))
    assert sum(shares) == pytest.approx(1.0) and rows[3]["idle_share"] == ""
    with (batch.path / "families.csv").open() as stream:
        norms = next(row for row in csv.DictReader(stream) if row["family_id"] == "norms")
    assert norms["models"] == "3" and norms["model_names"] == "one; two; waits" and norms["kernels"] == "4"
    assert norms["category"] == "persistent_reduction" and float(norms["launches"]) == 18
    with (batch.path / "kernels.csv").open() as stream:
        assert len(list(csv.DictReader(stream))) == 5


def test_markdown_and_json(batch: BatchFolder, capsys: pytest.CaptureFixture[str]) -> None:
    text = report(capsys, batch.path, "--format", "md", "--no-plots")
    assert text.startswith("# suite · 6 models\n") and "timm has no model bad \\| \\<b\\>" in text
    printed = report(capsys, batch.path, "--format", "json", "--no-plots")
    assert recorded(printed) == json.loads(batch.record.read_text())


def test_sorting_is_for_runs(batch: BatchFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["report", str(batch.path), "--sort", "gain"]) == 2
    assert "is a batch" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "[]", '{"format": 99}', '{"format": 1, "models": 3}'])
def test_a_batch_that_cannot_be_read(text: str, batch: BatchFolder, capsys: pytest.CaptureFixture[str]) -> None:
    batch.record.write_text(text)
    assert entry.main(["report", str(batch.path)]) == 1
    err = capsys.readouterr().err
    assert "batch.json" in err and "Traceback" not in err


def test_sizes_make_no_other_family() -> None:
    kernels = module_of(GPU / "mixnet_l_train" / "forward.py").kernels
    copies = [kernel for kernel in kernels if kernel.name.startswith("triton_poi_fused__to_copy_")]
    families = {kernel.family_id for kernel in copies}
    assert len({kernel.kernel_id for kernel in copies}) > 5 * len(families)
    one = kernels[2]
    assert compute_family_id("triton", one.source.replace("fp16", "bf16"), one.name) != one.family_id
    assert compute_family_id("triton", one.source.replace("// 32", "// 64"), one.name) == one.family_id
    assert compute_family_id("triton", one.source.replace(" + ", " - "), one.name) != one.family_id


def test_a_group_says_where_it_is_and_how_near_its_roof() -> None:
    conv = KernelGroup(
        *("id", "sm90_conv", "id", C.EXTERN_CONV.value, "aten.convolution", "memory", 3, ("vgg", "resnet"), "vgg"),
        *(12, 1e-3, 0.2, 0.61, 4e-4),
    )
    assert describe_place(conv) == "vgg and 1 more model · aten.convolution"
    assert describe_place(conv._replace(models=("vgg",), operator=None)) == "vgg"
    assert format_peak_share(conv) == "61% DRAM"
    assert format_peak_share(conv._replace(bound="unknown")) == "61%", "its kernels have several roofs"
    assert format_peak_share(conv._replace(bound="unknown", peak_share=None)) == units.MISSING


def test_a_batch_of_an_h200_adds_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two models, the batch of which was killed three times: what is shown is what their records say."""
    batch = unpack_batch(tmp_path / "b")
    texts = [path.read_text() for path in batch.glob("models/*/record.json")]
    modules = [module for text in texts for module in json.loads(text)["modules"]]
    kernels = [kernel for module in modules for kernel in module["kernels"]]
    whole_s = sum(module["wall_time_s"] for module in modules)
    out = report(capsys, batch, "--no-plots", "--top", "3")
    assert f"2 of 2 models measured; {whole_s * 1e3:.1f} ms in all" in out
    with (batch / "families.csv").open() as stream:
        families = list(csv.DictReader(stream))
    convolutions = [kernel for kernel in kernels if kernel["operator"] == "aten.convolution"]
    (found,) = [row for row in families if row["operator"] == "aten.convolution"]
    assert float(found["time_s"]) == pytest.approx(sum(kernel["time_s"] for kernel in convolutions))
    assert float(found["share"]) == pytest.approx(float(found["time_s"]) / whole_s)
    assert float(found["launches"]) == sum(kernel["calls"] for kernel in convolutions) and found["models"] == "2"
    total = sum(float(row["time_s"]) for row in families)
    assert total == pytest.approx(sum(kernel["time_s"] for kernel in kernels))
    assert "repvgg_a2 · aten.convolution" in out


# What a batch says of models whose own RUN says that its figures do not count.


BUSY = MachineLoad(60, 2, 4.1, 0.5, cpu_time_s=0.4, waited_s=0.6, stolen_s=0.0, switches=312)
SAID = "its figures do not count, and its gain limits are left out: the machine was busy"


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

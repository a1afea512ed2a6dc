"""The record of a real run: the interface that it is, what its figures add up to, and every way of looking at it."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import breakdown_runs as runs
import pytest
from printed import recorded

pytestmark = pytest.mark.slow

MEASURED = [runs.training, runs.factory, runs.frozen]


def modules() -> list[dict[str, Any]]:
    return [module for make in MEASURED for module in make().record["modules"]]


def test_the_record_has_what_the_interface_names() -> None:
    record = runs.factory().record
    assert record["format"] >= 1 and record["tool_version"] and record["run_id"]
    assert record["command"].startswith("inductor-bench breakdown ") and "--seed 3" in record["command"]
    assert record["target"].endswith("factories.py:mlp") and record["failures"] == []
    assert record["environment"]["torch"] and record["environment"]["cpu"]
    assert runs.training().record["run_id"] != record["run_id"]


def test_every_module_has_what_the_interface_names() -> None:
    for module in modules():
        assert module["label"] and module["label"] != "None" and module["device"] == "cpu"
        assert module["wall_time_s"] > 0 and module["busy_time_s"] > 0
        assert 1e8 < module["peak_memory_bytes"] < 1e11
        assert {"name", "time_s", "share", "calls"} <= module["categories"][0].keys()
        assert module["wall_load"]["runs"] == len(module["wall_samples_s"])
        assert module["profile_load"]["runs"] == module["iterations"] and module["profile_load"]["cores"] > 0
        assert module["launches"] == pytest.approx(sum(kernel["calls"] for kernel in module["kernels"]))


def test_every_kernel_has_what_the_interface_names() -> None:
    measured = {"calls", "time_s", "share", "moved_bytes", "flops"}
    for kernel in (kernel for module in modules() for kernel in module["kernels"]):
        assert measured | {"name", "kernel_id", "category", "source_nodes", "file"} <= kernel.keys()
        assert kernel["name"] and kernel["kernel_id"] and kernel["time_s"] >= 0 and kernel["calls"] > 0


def test_files_and_traces_of_the_record_are_there_and_relative() -> None:
    for make in MEASURED:
        done = make()
        for module in done.record["modules"]:
            logs = [module["log"]] if module["method"] != "live" else []
            for name in (module["file"], module["trace"], *logs):
                assert not Path(name).is_absolute() and (done.folder / name).is_file()
            files = {kernel["file"] for kernel in module["kernels"]} - {None}
            assert all(not Path(name).is_absolute() and (done.folder / name).is_file() for name in files)
            assert all(kernel["file"] for kernel in module["kernels"] if kernel["category"] == "cpp")
            assert (done.folder / module["trace"]).stat().st_size < 10_000_000


def test_all_of_the_wall_time_has_a_name() -> None:
    for module in modules():
        whole = max(module["wall_time_s"], module["busy_time_s"])
        kernels = sum(kernel["time_s"] for kernel in module["kernels"])
        assert kernels + module["idle"]["time_s"] == pytest.approx(whole, rel=0.05), module["label"]
        others = sum(category["time_s"] for category in module["categories"] if category["name"] == "other")
        assert others <= 0.005 * whole


def test_categories_add_up_to_the_kernels() -> None:
    for module in modules():
        for category in module["categories"]:
            kernels = [kernel for kernel in module["kernels"] if kernel["category"] == category["name"]]
            assert sum(kernel["time_s"] for kernel in kernels) == pytest.approx(category["time_s"])
            assert sum(kernel["calls"] for kernel in kernels) == pytest.approx(category["calls"])
        assert sum(category["share"] for category in module["categories"]) == pytest.approx(1.0)


def test_work_is_counted() -> None:
    forward = runs.factory().module("forward")
    kernels = [kernel for module in runs.factory().record["modules"] for kernel in module["kernels"]]
    (gemm,) = [kernel for kernel in forward["kernels"] if kernel["category"] == "extern_gemm"]
    assert gemm["flops"] == 2 * 128 * 256 * 512 + 2 * 128 * 512 * 64 and gemm["calls"] == 2
    (fused,) = [kernel for kernel in forward["kernels"] if kernel["category"] == "cpp"]
    assert fused["moved_bytes"] == 2 * 128 * 512 * 4, "tanh, in place"
    peaks = runs.factory().record["peaks"]  # none, or too low, if the machine was busy when they were measured
    fastest = max(one["flop_rate"] or 0.0 for one in kernels if one["category"] == "extern_gemm")
    if gemm["gain_limit_s"] is None:
        assert peaks is None or fastest > peaks["matmul_flops"]["float32"]
    else:
        assert peaks is not None
    assert gemm["bandwidth"] > 0


def test_analysing_a_run_again_changes_nothing() -> None:
    for make in (runs.training, runs.factory):
        folder = runs.copy_of(make(), f"again-{make.__name__}")
        done = runs.run(runs.command("breakdown", folder, "--no-plots"), folder)
        assert done.code == 0 and done.record == make().record
        assert "analysing" in done.stderr and "profiling" not in done.stderr


@pytest.mark.parametrize("make", [runs.training, runs.factory], ids=["training", "factory"])
def test_all_of_a_record_follows_from_its_evidence(make: Callable[[], runs.Done]) -> None:
    """Rows, kernels and the step are made anew if the record has none of them."""
    folder = runs.copy_of(make(), f"bare-{make.__name__}")
    record = make().record
    assert record["modules"] and bool(record["program"]) == (make is runs.factory)
    (folder / "record.json").write_text(json.dumps({**record, "modules": [], "program": None}))
    pictures = sorted((folder / "traces").glob("step.*"))
    before = [path.read_bytes() for path in pictures]
    for path in pictures:
        if path.name == "step.timeline.json":
            path.unlink()
    done = runs.run(runs.command("breakdown", folder, "--no-plots"), folder)
    assert done.code == 0 and done.record == record
    assert [path.read_bytes() for path in pictures] == before


def show(*words: str, name: str = "shown") -> runs.Done:
    folder = runs.scratch() / name
    if not folder.exists():
        runs.copy_of(runs.factory(), name)
    return runs.run(runs.command("report", folder, "--no-plots", *words), folder)


def test_formats_of_a_report() -> None:
    record = runs.factory().record
    assert recorded(show("--format", "json").stdout) == record
    rows = list(csv.DictReader(io.StringIO(show("--format", "csv").stdout)))
    assert len(rows) == sum(len(module["kernels"]) for module in record["modules"])
    assert {row["graph"] for row in rows} == {"forward", "backward"}
    markdown = show("--format", "md").stdout
    assert markdown.startswith("# ") and "| aten::mm" in markdown.replace("\\", "")
    table = show().stdout
    assert "forward" in table and "backward" in table and max(map(len, table.splitlines())) <= 100


def test_breakdown_prints_the_same_formats() -> None:
    folder = runs.copy_of(runs.factory(), "printed")
    printed = runs.run(runs.command("breakdown", folder, "--no-plots", "--format", "json", "-q"), folder)
    assert recorded(printed.stdout) == printed.record and printed.stderr == ""


@pytest.mark.parametrize(("sort", "key"), [("time", "step_time_s"), ("gain", "gain_limit_s"), ("calls", "step_calls")])
def test_sorting(sort: str, key: str) -> None:
    rows = csv.DictReader(io.StringIO(show("--format", "csv", "--sort", sort).stdout))
    values = []
    for row in rows:
        in_step = float(row["step_calls"]) / float(row["calls"]) if sort == "gain" else 1
        values.append(float(row[key] or 0) * in_step)
    # What other work did to the peaks of a busy machine may leave no kernel a limit to gain.
    assert len(set(values)) > 1 or (sort == "gain" and not any(values))
    assert all(after <= before * (1 + 1e-9) for before, after in itertools.pairwise(values))


def test_a_report_needs_no_torch() -> None:
    poison = runs.scratch() / "poison"
    for name in ("torch", "triton"):
        (poison / name).mkdir(parents=True)
        (poison / name / "__init__.py").write_text("raise RuntimeError('it was imported')")
    folder = runs.copy_of(runs.factory(), "no-torch")
    (folder / "report.html").unlink()
    done = runs.run(runs.command("report", folder), folder, PYTHONPATH=poison)
    assert done.code == 0, done.printed
    assert (folder / "report.html").is_file()


def test_python_gets_the_same_record() -> None:
    folder = runs.copy_of(runs.factory(), "api")
    code = (
        "import sys, inductor_bench\n"
        f"run = inductor_bench.breakdown({str(folder)!r}, plots=False)\n"
        "print(run.run_id, len(run.modules), 'torch' in sys.modules)"
    )
    done = runs.run([runs.sys.executable, "-c", code], folder)
    assert done.stdout.split() == [runs.factory().record["run_id"], "2", "False"]

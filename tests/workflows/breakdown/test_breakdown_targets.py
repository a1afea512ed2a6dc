"""What stands for a program that is not run: modules, logs, structured traces, traces recorded elsewhere."""

from __future__ import annotations

import gzip
import shutil
import sys
from pathlib import Path

import breakdown_runs as runs
import pytest
from breakdown_runs import H200


def unpack(name: str, folder: Path) -> Path:
    target = folder / Path(name).name
    target.write_bytes(gzip.decompress((H200 / f"{name}.gz").read_bytes()))
    return target


def test_a_module_with_a_trace_recorded_elsewhere() -> None:
    done = runs.recorded()
    assert done.code == 0 and done.record["failures"] == []
    (row,) = done.record["modules"]
    assert row["label"] == "forward" and row["method"] == "trace" and row["device"] == "cuda"
    assert row["wall_time_s"] is None and row["iterations"] == 10 and row["launches"] == 15
    assert row["busy_time_s"] == pytest.approx(68.4e-6, rel=0.02)
    assert done.record["environment"]["accelerator"] == "NVIDIA H200"
    assert not {"other", "unknown"} & {category["name"] for category in row["categories"]}
    gemms = [kernel for kernel in row["kernels"] if kernel["category"] == "extern_gemm"]
    assert gemms and all(kernel["operator"] and kernel["flops"] for kernel in gemms), "counted without a GPU"
    assert "NVIDIA H200" in done.stdout and not (done.folder / ".work").exists()


def test_it_does_not_matter_whether_the_trace_is_gzipped(tmp_path: Path) -> None:
    module, trace = (unpack(f"gpu_kinds/0_forward.{name}", tmp_path) for name in ("py", "trace.json"))
    done = runs.breakdown(tmp_path / "run", module, "--trace", trace)
    (plain,), (packed,) = done.record["modules"], runs.recorded().record["modules"]
    assert done.code == 0 and plain["kernels"] == packed["kernels"]


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """Copies of the modules of the factory run."""
    return Path(shutil.copytree(runs.factory().folder / "modules", tmp_path / "modules"))


@pytest.mark.slow
def test_several_modules_under_another_interpreter_of_which_one_fails(modules: Path, tmp_path: Path) -> None:
    python = tmp_path / "other python"
    python.write_text(f'#!/bin/sh\necho "$@" >> "{tmp_path}/started"\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    broken = tmp_path / "broken.py"
    text = (modules / "backward.py").read_text()
    assert text.count("async_compile = AsyncCompile()\n") == 1
    broken.write_text(text.replace("async_compile = AsyncCompile()\n", "raise KeyError(7)\n"))
    good = modules / "forward.py"
    done = runs.breakdown(tmp_path / "run", broken, good, good, "--python", python, "--repeat", "7")
    assert done.code == 1
    (failure,) = done.record["failures"]
    assert (failure["stage"], failure["subject"]) == ("profile", "backward") and "KeyError: 7" in failure["message"]
    assert "KeyError: 7" in done.stdout and "aten::addmm" in done.stdout
    (row,) = done.record["modules"]
    assert row["label"] == "forward" and row["method"] == "-p" and row["iterations"] == 7
    kernels = {kernel["name"]: kernel["kernel_id"] for kernel in row["kernels"]}
    before = {kernel["name"]: kernel["kernel_id"] for kernel in runs.factory().module("forward")["kernels"]}
    assert kernels == before, "the same kernels have the same ids in another run"
    assert "inductor_bench.worker fork" in (tmp_path / "started").read_text()


@pytest.mark.slow
def test_a_log_of_which_one_path_is_gone(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text((runs.plain() / "run.log").read_text() + "\nCompiled module path: /nowhere/xy/cxyz.py\n")
    done = runs.breakdown(tmp_path / "run", log)
    assert done.code == 1
    (failure,) = done.record["failures"]
    assert failure["kind"] == "missing" and failure["subject"] == "/nowhere/xy/cxyz.py"
    (row,) = done.record["modules"]
    (kernel,) = row["kernels"]
    assert kernel["category"] == "cpp", "its C++ kernels carry no marks for the profiler, and still are seen"
    assert "from Python" in row["method_reason"]


@pytest.mark.slow
def test_a_structured_trace_whose_modules_are_gone(tmp_path: Path) -> None:
    trace = Path(shutil.copytree(runs.plain() / "trace", tmp_path / "trace"))
    (file,) = trace.iterdir()
    file.write_text(file.read_text().replace(str(runs.plain()), "/nowhere"))
    done = runs.breakdown(tmp_path / "run", trace)
    assert done.code == 0, done.printed
    (row,) = done.record["modules"]
    assert row["label"] == "<lambda>" and row["kernels"][0]["category"] == "cpp"

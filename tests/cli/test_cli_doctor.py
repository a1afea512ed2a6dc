"""What ``doctor`` prints: the checks with what to do about them, and the peaks."""

from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path

import pytest
from inline import make

from inductor_bench.launch.worker import WorkerPool
from inductor_bench.records.base import Failure
from inductor_bench.records.request import DoctorRequest
from inductor_bench.records.run import Check, DoctorReport, Environment, Peaks
from inductor_bench.report.formats import show_as_json
from inductor_bench.report.table_documents import make_doctor_document
from inductor_bench.report.terminal import render_text
from inductor_bench.store.caches import make_peaks_key, open_compile_cache, save_peaks
from inductor_bench.workflows.doctor import check_compile_cache, check_package, check_packages, run_doctor
from inductor_bench.workflows.progress import Silent

PEAKS = Peaks(
    device="NVIDIA H200",
    memory_bandwidth=4.1e12,
    matmul_flops={"bfloat16": 7.8e14, "float32": 5.0e13},
    cache_bytes=60_000_000,
    cache_bandwidth=8e12,
    launch_floor_s=1.3e-6,
)


def doctor_text(report: DoctorReport) -> str:
    return render_text(make_doctor_document(report), 120)


def test_a_healthy_machine() -> None:
    report = DoctorReport((Check("torch", "ok", "2.13.0"), Check("GPU", "ok", "1 x H200")), Environment(), PEAKS)
    text = doctor_text(report)
    assert report.healthy and "\nAll that is needed is there.\n" in text
    assert "\nok      torch  2.13.0\nok      GPU    1 x H200\n" in text
    rows = dict(re.findall(r"^(\S.*?)  +(\d\S+ \S+)(?:  |$)", text, re.MULTILINE))
    assert rows == {
        "DRAM": "4.10 TB/s",
        "L2": "8.00 TB/s",
        "compute bfloat16": "780 TFLOP/s",
        "compute float32": "50.0 TFLOP/s",
        "latency": "1.30 µs",
    }


def test_peaks_tell_their_age_their_file_and_how_to_measure_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INDUCTOR_BENCH_CACHE", str(tmp_path))
    seen = make(Environment, torch="2.13.0", accelerator="NVIDIA H200", multiprocessors=132, driver="580.1")
    then = datetime.now(timezone.utc) - timedelta(days=3, hours=2)
    peaks = replace(PEAKS, measured_at=then.isoformat(timespec="seconds"))
    assert "Kept in" not in doctor_text(DoctorReport((), seen, peaks))
    key = make_peaks_key(seen, "cuda")
    assert save_peaks(key, peaks)
    text = doctor_text(DoctorReport((), seen, peaks))
    assert f"Measured  {then.strftime('%Y-%m-%d %H:%M UTC')} (3 days ago)\n" in text
    assert f"Kept in   {tmp_path}/peaks/{key}.json\n" in text
    assert "idle machine" in text and "  inductor-bench doctor --remeasure\n" in text
    on_cpu = replace(peaks, launch_floor_s=None, threads=1)
    text = doctor_text(DoctorReport((), seen, on_cpu))
    assert "with 1 thread:" in text and "doctor --remeasure --device cpu\n" in text


def test_what_is_missing_says_how_to_get_it() -> None:
    report = DoctorReport(
        (Check("C++ compiler", "missing", "none on the PATH", "install g++"),),
        Environment(),
        failure=Failure("peaks", "exit", "the worker exited with code 1", "see below", log_tail="Boom\nBang"),
    )
    lines = [line.strip() for line in doctor_text(report).splitlines()]
    assert not report.healthy
    assert lines[2] == "Missing: C++ compiler."
    assert lines[4:6] == ["missing  C++ compiler  none on the PATH", "→ install g++"]
    assert lines[7:] == ["Failed", "- the worker exited with code 1", "Hint: see below", "| Boom", "| Bang"]


def test_the_cache_of_compiled_code_has_a_place_and_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INDUCTOR_BENCH_CACHE", str(tmp_path))
    cache = open_compile_cache("place")
    (cache.folder / "a").write_bytes(bytes(2_000_000))
    cache.close()
    check = check_compile_cache()
    assert (check.status, check.found) == ("ok", f"{tmp_path}/compiled, 2.00 MB of at most 5.00 GB")
    shutil.rmtree(tmp_path / "compiled")
    (tmp_path / "compiled").touch()
    check = check_compile_cache()
    assert check.status == "broken" and "compiled is no folder" in check.found
    assert "INDUCTOR_BENCH_CACHE" in check.hint and DoctorReport((check,), Environment()).healthy


@pytest.mark.parametrize(
    ("text", "status", "found"),
    [
        ("__version__ = '1.2'", "ok", "1.2"),
        ("", "ok", "of an unknown version"),
        ("raise RuntimeError('too old')", "broken", "importing it fails (NAME targets): RuntimeError: too old"),
        (None, "optional", "not installed (NAME targets)"),
    ],
)
def test_an_optional_package_is_imported(tmp_path: Path, text: str | None, status: str, found: str) -> None:
    if text is not None:
        (tmp_path / "optional_one.py").write_text(text)
        (tmp_path / "optional_one-1.2.dist-info").mkdir()
        (tmp_path / "optional_one-1.2.dist-info" / "METADATA").write_text("Name: optional_one\nVersion: 1.2\n")
    pool = WorkerPool(sys.executable, tmp_path, {"PYTHONPATH": str(tmp_path)})
    check = check_package("optional_one", "NAME targets", "pip install optional_one", pool)
    assert check.status == status and check.found.startswith(found)


PAIR = "raise RuntimeError('operator torchvision::nms does not exist')"
CHAINED = "try:\n    from . import a\nexcept RuntimeError as error:\n    raise ImportError('Set DEBUG') from error"


def test_libraries_of_models_beside_a_torchvision_of_another_torch_are_called_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for path, text in (
        ("torchvision/__init__.py", PAIR),
        ("timm/__init__.py", "import torchvision"),
        ("transformers/__init__.py", "__version__ = '5.0'"),
        ("transformers/modeling_utils.py", CHAINED),
        *((f"transformers/{name}.py", f"from . import {after}") for name, after in pairwise("abcdefgh")),
        ("transformers/h.py", "import torchvision"),
    ):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    found = check_packages(sys.executable)
    checks = {check.name: check for check in found}
    assert list(checks) == ["timm", "torchvision", "transformers", "duckdb", "ray"]
    reasons = {
        "timm": "(targets like timm:mobilenetv3_small_050): RuntimeError: operator torchvision::nms does not exist",
        "torchvision": "(targets like torchvision:resnet18): RuntimeError: operator torchvision::nms does not exist",
        "transformers": "(targets like transformers:BertForMaskedLM): ImportError: Set DEBUG",
    }
    for name, reason in reasons.items():
        assert (checks[name].status, checks[name].found) == ("broken", f"importing it fails {reason}")
        assert checks[name].hint.startswith("torchvision does not fit this torch: install both")
    report = DoctorReport((), Environment(), packages=found)
    assert report.healthy and re.search(r"^broken +torchvision +importing it fails", doctor_text(report), re.MULTILINE)


def test_an_interpreter_that_is_no_python_is_named() -> None:
    report = run_doctor(DoctorRequest(python="true"), Silent())
    assert not report.healthy and report.failure is not None
    assert report.failure.message == "true is no Python interpreter"
    assert report.failure.hint == "name an interpreter that has torch with --python"
    assert [check.name for check in report.packages] == ["duckdb", "ray"], "which this command imports itself"


def test_json_is_the_whole_report() -> None:
    data = json.loads(
        show_as_json(DoctorReport((Check("torch", "ok", "2.13.0"),), make(Environment, torch="2.13.0"), PEAKS))
    )
    assert data["checks"] == [{"name": "torch", "status": "ok", "found": "2.13.0", "hint": ""}]
    assert data["peaks"]["matmul_flops"]["bfloat16"] == 7.8e14
    assert data["environment"]["torch"] == "2.13.0"

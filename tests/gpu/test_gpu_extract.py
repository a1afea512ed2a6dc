"""Every kernel of the program of many kinds, as a file that runs by itself on the GPU and agrees with its reference."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def outcomes(gpu_run: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    files, lines = tmp_path_factory.mktemp("files"), tmp_path_factory.mktemp("outcomes") / "outcomes.jsonl"
    extract = [sys.executable, "-m", "inductor_bench", "extract", str(gpu_run), "--references", "-o", str(files)]
    ended = subprocess.run(extract, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    command = [sys.executable, "scripts/benchmark_kernels.py", str(files), "--json", str(lines)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert lines.is_file(), ended.stdout + ended.stderr
    last = {one["file"]: one for one in map(json.loads, lines.read_text().splitlines())}
    return list(last.values())


def test_every_kernel_that_ran_has_a_file(gpu_run: Path) -> None:
    rows = json.loads((gpu_run / "kernels" / "kernels.json").read_text())
    assert [row["name"] for row in rows if row["reason"]] == []


def test_every_file_runs_and_agrees(gpu_run: Path, outcomes: list[dict[str, object]]) -> None:
    rows = json.loads((gpu_run / "kernels" / "kernels.json").read_text())
    assert {one["file"] for one in outcomes} == {row["file"] for row in rows}
    assert [one["file"] for one in outcomes if not one["ran"]] == []
    assert [(one["file"], one["why"]) for one in outcomes if one["agreed"] is not True] == []


def test_a_file_runs_by_itself_without_this_package(gpu_run: Path, tmp_path: Path) -> None:
    file = next((gpu_run / "kernels").glob("triton_per_fused*.py"))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, str(file), "--json"]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert 0 < result["warm"]["median_s"] <= result["cold"]["median_s"] * 1.1


def test_indices_of_a_gather_are_those_that_it_had(gpu_run: Path) -> None:
    rows = json.loads((gpu_run / "kernels" / "kernels.json").read_text())
    row = next(row for row in rows if "index_add" in row["name"])
    file = gpu_run / "kernels" / row["file"]
    ended = subprocess.run([sys.executable, str(file), "--json"], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert result["with_zeros"] is not None
    assert result["with_zeros"]["warm"]["median_s"] > 0

"""Blocks, trainings of libraries and tests on a GPU, which keep their memory there while their graphs run alone."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import breakdown_runs as runs
import pytest
from conftest import ROOT

from inductor_bench.records.run import Program
from inductor_bench.store.folder import RunFolder

pytestmark = pytest.mark.gpu

PROGRAM = """
import sys

import torch

import inductor_bench

device = sys.argv[1]
model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.LayerNorm(1024), torch.nn.GELU()).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(4096, 256, device=device)
with inductor_bench.observe("run", samples=False) as run:
    compiled = torch.compile(model)
    for _ in range(3000):
        optimizer.zero_grad()
        compiled(inputs).pow(2).mean().backward()
        optimizer.step()
        if run.is_measured:
            break
print("ENDED", run.step_time_s, run.kernels["*"].time_s, run.is_measured)
"""


TESTS = """
import torch

model = torch.compile(torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU()).cuda())
inputs = torch.randn(4096, 256, device="cuda")


def test_step(inductor_bench):
    run = inductor_bench.step(lambda: model(inputs).sum().backward())
    assert 0 < run.kernels["triton_*"].time_s < run.step_time_s < 0.1
    assert inductor_bench.compare(run.folder, run).verdict != "slower"
"""


def python(folder: Path, *words: str) -> str:
    """Runs Python in a folder, and returns what it printed."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    variables |= {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ended = subprocess.run(
        [sys.executable, *words], cwd=folder, env=variables, capture_output=True, text=True, timeout=600
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_a_block_has_its_triton_kernels_in_the_step(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    assert "ENDED" in python(tmp_path, "train.py", "cuda")
    check(tmp_path)


@pytest.mark.parametrize("library", ["transformers", "lightning", "accelerate"])
def test_a_training_with_a_library_has_the_step_of_its_own_clock(library: str, tmp_path: Path) -> None:
    pytest.importorskip(library)
    printed = python(tmp_path, str(runs.PROGRAMS / "measured_trainings.py"), library, "cuda")
    ((_, is_measured, own),) = [line.split(maxsplit=2) for line in printed.splitlines() if line.startswith("ENDED")]
    program = check(tmp_path)
    timed, own_s = slice(*program.level), json.loads(own)
    own_s = [own_s[number] for number in program.ranks[0].step_numbers[timed]]
    low_s, *_, high_s = statistics.quantiles(own_s, n=20)
    assert is_measured == "True" and low_s <= statistics.median(program.step_times_s[timed]) <= high_s


def test_a_test_that_uses_the_fixture_measures_on_the_device(tmp_path: Path) -> None:
    (tmp_path / "test_step.py").write_text(TESTS)
    plugin = ["-p", "inductor_bench.integrations.pytest_plugin", "-p", "no:cacheprovider"]
    assert "1 passed" in python(tmp_path, "-m", "pytest", "-q", *plugin, "test_step.py")


def check(folder: Path) -> Program:
    """Checks that a RUN has its kernels in the step, and that the step has the sum of its parts."""
    run = RunFolder(folder / "run").load()
    assert run.failures == () and run.program is not None and run.program.busy_time_s
    kernels = [kernel for module in run.modules for kernel in module.kernels if kernel.name.startswith("triton_")]
    assert kernels and all(kernel.step_time_s for kernel in kernels)
    assert sum(part.time_s for part in run.program.parts) == pytest.approx(run.program.step_time_s)
    return run.program

"""A block of a process on a GPU, which keeps its memory there while its graphs run by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

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


def observed(folder: Path, device: str) -> str:
    """Runs the program in a folder, and returns what it printed."""
    (folder / "train.py").write_text(PROGRAM)
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    words = [sys.executable, "train.py", device]
    ended = subprocess.run(
        words, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=900
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_block_has_its_triton_kernels_in_the_step(tmp_path: Path) -> None:
    assert "ENDED" in observed(tmp_path, "cuda")
    run = RunFolder(tmp_path / "run").load()
    assert run.failures == () and run.program is not None and run.program.busy_time_s
    kernels = [kernel for module in run.modules for kernel in module.kernels if kernel.name.startswith("triton_")]
    assert kernels and all(kernel.step_time_s for kernel in kernels)
    assert sum(part.time_s for part in run.program.parts) == pytest.approx(run.program.step_time_s)

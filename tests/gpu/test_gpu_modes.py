"""``modes`` on a GPU: the sum of a product of large matrices, and the training of a small model."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu

PRODUCT = """
    import torch

    def product_and_sum():
        a, b, c = (torch.rand(16000, 16000, device="cuda") for _ in range(3))
        return (lambda a, b, c: a * b + c), (a, b, c)
"""

MODEL = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512), nn.LayerNorm(512)) for _ in range(8)]
    model = nn.Sequential(*blocks).cuda()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters())
    values = torch.randn(256, 512, device="cuda")

    def step(run):
        optimizer.zero_grad()
        run(values).square().mean().backward()
        optimizer.step()
"""

TRAINING = f"""{MODEL}
    for _ in range(100000):
        step(compiled)
"""

PROFILING = f"""{MODEL}
    from torch.autograd import DeviceType
    from torch.profiler import profile

    for run in (model, compiled):
        for _ in range(5):
            step(run)
        torch.cuda.synchronize()
        with profile() as seen:
            step(run)
            torch.cuda.synchronize()
        on_device = [each for each in seen.events() if each.device_type == DeviceType.CUDA]
        print(sum(not each.is_user_annotation for each in on_device))
"""


def compare(folder: Path, code: str, target: str, *words: str) -> dict[str, dict[str, Any]]:
    """The rows of a comparison by their names."""
    (folder / "program.py").write_text(textwrap.dedent(code))
    command = [sys.executable, "-m", "inductor_bench", "modes", target, "--format", "json", "-o", "out", *words]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1800, check=False)
    assert ended.returncode == 0, ended.stderr
    return {row["name"]: row for row in json.loads(ended.stdout)["rows"]}


def test_a_product_and_a_sum_are_two_kernels_uncompiled_and_one_compiled(tmp_path: Path) -> None:
    rows = compare(tmp_path, PRODUCT, "program.py:product_and_sum", "--rounds", "2")
    assert all(row["failure"] is None for row in rows.values())
    work = {name: row["figures"]["work"] for name, row in rows.items()}
    assert (work["eager"]["launches"], work["default"]["launches"]) == (2, 1)
    steps = {name: row["figures"]["step_time_s"] for name, row in rows.items()}
    # eager moves 6 arrays (two kernels of two reads and a write), the fused kernel 4
    assert steps["default"] / steps["eager"] == pytest.approx(4 / 6, rel=0.1)
    assert work["default"]["busy_share"] > 0.9
    for name, row in rows.items():
        assert name == "eager" or row["figures"]["agreement"]["state"] == "agrees"
    graphs = rows["reduce-overhead"]
    assert graphs["processes"][0]["replays"] == 1
    assert steps["reduce-overhead"] > 1.2 * steps["default"], "CUDA graphs copy the three inputs"
    assert graphs["figures"]["peak_memory_bytes"] > rows["default"]["figures"]["peak_memory_bytes"]


def test_training_has_launches_memory_and_a_winner_that_a_stopwatch_confirms(tmp_path: Path) -> None:
    words = ("--mode", "eager", "--mode", "default", "--with", "tf32", "--rounds", "2")
    rows = compare(tmp_path, TRAINING, "program.py", *words)
    assert all(row["failure"] is None for row in rows.values())
    figures = {name: row["figures"] for name, row in rows.items()}
    assert {row["processes"][0]["source"] for row in rows.values()} == {"optimizer"}
    assert {row["processes"][0]["device"] for row in rows.values()} == {"cuda"}
    profiling = [sys.executable, "-c", textwrap.dedent(PROFILING)]
    counted = subprocess.run(profiling, capture_output=True, text=True, timeout=600, check=True).stdout.split()
    assert [figures[name]["work"]["launches"] for name in ("eager", "default")] == list(map(float, counted))
    assert all(one["peak_memory_bytes"] > 30_000_000 for one in figures.values())
    assert figures["default"]["compile_time_s"] > 1
    assert figures["default + tf32"]["work"]["time_s"] < figures["default"]["work"]["time_s"]

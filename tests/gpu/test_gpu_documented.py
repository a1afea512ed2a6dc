"""The documented commands that compile, typed on a GPU as the pages have them, in a folder with the files they name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from breakdown_runs import environment
from conftest import ROOT
from documented import documented, with_options

from inductor_bench.records.base import Category
from inductor_bench.store.folder import RunFolder

pytestmark = pytest.mark.gpu

# With several GPUs each group runs on one of them.
RETUNED = pytest.mark.xdist_group("gpu_documented_retuned")
SCRIPTS = pytest.mark.xdist_group("gpu_documented_scripts")
SETTINGS = pytest.mark.xdist_group("gpu_documented_settings")

MODEL = """
import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def factory():
    torch.manual_seed(0)
    layers = nn.Linear(512, 2048), nn.GELU(), nn.LayerNorm(2048), nn.Linear(2048, 512), nn.LayerNorm(512)
    return nn.Sequential(*layers).to(DEVICE), (torch.randn(4096, 512, device=DEVICE),)
"""

TRAIN = """
import torch
from model import factory

model, (values,) = factory()
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(600):
    compiled(values).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print("done")
"""
"""A training script that takes any arguments."""

SHORT_COMPARISON = ("--budget", "40s", "--runs", "1")
SHORT_MODES = ("--rounds", "1", "--mode", "eager", "--mode", "default")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``train.py``, ``decode.py``, ``model.py``, a list of models, and two interpreters."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "model.py").write_text(MODEL)
    (folder / "train.py").write_text(TRAIN)
    for name in ("decode.py", "stopwatch.py"):
        shutil.copy(ROOT / "scripts" / "programs" / name, folder)
    (folder / "configs").mkdir()
    (folder / "configs" / "timm.txt").write_text(f"{folder / 'model.py'}:factory\n")
    for side in ("old", "new"):
        python = folder / side / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
    return folder


def typed(folder: Path, words: list[str], code: int = 0) -> str:
    """Runs a command in a folder, and returns what it printed."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ended = subprocess.run(
        [sys.executable, "-m", "inductor_bench", *words],
        cwd=folder,
        env=environment(PATH=path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def retuned(desk: Path) -> Path:
    """The folder with ``runs/train``: broken down, retuned, proven."""
    words = documented("inductor-bench breakdown --autotune coordesc --top 30 -o runs/train -- python train.py")
    typed(desk, with_options(words, "--force"))
    return desk


@pytest.fixture(scope="module")
def kernels(retuned: Path) -> Path:
    """The folder with ``kernels``, and the files in it that the pages name."""
    typed(retuned, documented("inductor-bench extract runs/train -o kernels --top 20"))
    run = RunFolder(retuned / "runs" / "train").load()
    rows = {kernel.category: kernel.file for module in run.modules for kernel in module.kernels if kernel.file}
    folder = retuned / "kernels"
    reduction = RunFolder(retuned / "runs" / "train").path / str(rows[Category.REDUCTION])
    for name in ("kernels/triton_red_fused_native_layer_norm_0.py", "edited.py", "k.py"):
        shutil.copy(reduction, retuned / name)
    other = next(
        rows[one] for one in (Category.POINTWISE, Category.PERSISTENT_REDUCTION, Category.REDUCTION) if one in rows
    )
    pointwise = RunFolder(retuned / "runs" / "train").path / str(other)
    shutil.copy(pointwise, folder / "triton_poi_fused__to_copy_1.py")
    return retuned


# Breakdowns


@SETTINGS
def test_a_tutorial_is_typed_and_each_command_succeeds(tmp_path: Path) -> None:
    words = [str(ROOT / "scripts" / "tutorial"), "--work", str(tmp_path / "work")]
    variables = environment(INDUCTOR_BENCH_PYTHON=sys.executable)
    ended = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=1200, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@SCRIPTS
def test_a_script_is_broken_down(desk: Path) -> None:
    printed = typed(desk, documented("inductor-bench breakdown --stop -o runs/train train.py -- --lr 1e-3"))
    assert "a step (optimizer steps;" in printed
    places = {"baseline": "gate/baseline", "new": "gate/new"}
    typed(desk, documented("inductor-bench breakdown --stop --steps 50 -o baseline train.py", places))
    typed(desk, documented("inductor-bench breakdown --stop --steps 50 -o new train.py", places))
    for name in places.values():
        program = RunFolder(desk / name).load().program
        assert program is not None and len(program.step_times_s) == 50


@SCRIPTS
def test_decoding_is_broken_down_and_compared_in_two_modes(desk: Path) -> None:
    printed = typed(desk, documented("inductor-bench breakdown --stop -o runs/decode decode.py"))
    assert "CUDA graphs replay" in printed
    words = documented("inductor-bench modes decode.py --mode default --mode reduce-overhead")
    assert "reduce-overhead" in typed(desk, with_options(words, "--rounds", "1"))


@SCRIPTS
def test_ranks_of_one_machine_are_broken_down(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "programs" / "ranks.py", tmp_path / "train.py")
    words = documented("inductor-bench breakdown --stop -o runs/ddp -- torchrun --nproc-per-node 2 train.py")
    typed(tmp_path, [*words, "300"])
    program = RunFolder(tmp_path / "runs" / "ddp").load().program
    assert program is not None and len(program.ranks) == 2


# Better configs


@RETUNED
def test_winners_are_applied_and_proven(retuned: Path) -> None:
    words = documented("inductor-bench apply runs/train --verify -- python train.py")
    found = json.loads(typed(retuned, with_options(words, "--format", "json")))["verification"]
    assert found["outputs"]["difference"] <= found["outputs"]["tolerance"]
    assert typed(retuned, documented("inductor-bench apply --known -- python train.py")) == "done\n"


@RETUNED
def test_kernels_are_written_timed_and_retuned(kernels: Path) -> None:
    typed(kernels, documented("inductor-bench extract runs/train -o kernels", {"kernels": "all"}))
    assert any((kernels / "all").glob("triton_*.py"))
    assert "of peak" in typed(kernels, documented("inductor-bench kernel kernels/triton_poi_fused__to_copy_1.py"))
    assert "configs in" in typed(kernels, documented("inductor-bench kernel 'runs/train#triton_red_*' --autotune"))
    words = documented("inductor-bench kernel kernels/ --autotune coordesc --save tuned/", {"kernels/": "few"})
    (kernels / "few").mkdir()
    shutil.copy(kernels / "k.py", kernels / "few")
    assert "coordesc" in typed(kernels, words)
    words = documented("inductor-bench kernel k.py --autotune exhaustive --budget 60")
    assert "exhaustive" in typed(kernels, words)


@RETUNED
def test_two_files_of_a_kernel_are_compared(kernels: Path) -> None:
    words = documented(
        "inductor-bench kernel kernels/triton_red_fused_native_layer_norm_0.py --compare edited.py",
    )
    assert json.loads(typed(kernels, with_options(words, "--format", "json")))["alike"] is True


@RETUNED
@pytest.mark.skipif(shutil.which("ncu") is None, reason="Nsight Compute is not installed")
def test_a_kernel_has_the_counters_of_nsight_compute(kernels: Path) -> None:
    assert "counted: " in typed(kernels, documented("inductor-bench kernel k.py --ncu"))


# Side by side


@SETTINGS
def test_a_program_is_compared_with_itself_in_two_settings(desk: Path) -> None:
    words = documented("inductor-bench compare train.py --env TORCHINDUCTOR_MAX_AUTOTUNE=1")
    assert "TORCHINDUCTOR_MAX_AUTOTUNE" in typed(desk, with_options(words, *SHORT_COMPARISON))


@SETTINGS
def test_a_program_is_compared_in_two_interpreters_and_bundled(desk: Path) -> None:
    words = documented("inductor-bench compare train.py --python old/bin/python --python new/bin/python")
    assert "Where the difference comes from" in typed(desk, with_options(words, *SHORT_COMPARISON))
    words = documented(
        "inductor-bench compare train.py --python old/bin/python --python new/bin/python --bundle regression.zip"
    )
    typed(desk, with_options(words, *SHORT_COMPARISON))
    assert (desk / "regression.zip").is_file()


@SCRIPTS
def test_a_program_is_compared_with_itself_without_a_profile(desk: Path) -> None:
    words = documented("inductor-bench compare train.py --runs 0")
    screen = " ".join(typed(desk, with_options(words, *SHORT_COMPARISON[:2])).split())
    assert "processes ran in turn, without a profile" in screen and "B is" not in screen


@SCRIPTS
def test_modes_are_compared(desk: Path) -> None:
    assert modes_of(desk, documented("inductor-bench modes train.py")) == {"eager", "default"}
    words = documented("inductor-bench modes model.py:factory --with tf32 --with max-autotune,channels-last")
    assert {"default + tf32", "max-autotune + channels-last"} <= modes_of(desk, [*words, "--inference"])
    words = documented(
        "inductor-bench modes train.py --env OMP_NUM_THREADS=8 --option inductor.epilogue_fusion=false -- --lr 1"
    )
    rows = modes_of(desk, with_options(words, "-o", "modes/other"))
    assert {"default + OMP_NUM_THREADS=8", "default + inductor.epilogue_fusion=false"} <= rows
    words = documented("inductor-bench modes configs/timm.txt --inference")
    assert "model-factory" in typed(desk, with_options(words, *SHORT_MODES))


def modes_of(folder: Path, words: list[str]) -> set[str]:
    """The rows of a comparison of modes in one round."""
    found = json.loads(typed(folder, with_options(words, *SHORT_MODES, "--format", "json")))
    return {row["name"] for row in found["rows"]}


@RETUNED
def test_a_list_is_measured_and_retuned(desk: Path) -> None:
    words = documented("inductor-bench batch configs/timm.txt --inference --autotune --top 20")
    assert "1 of 1 model measured" in typed(desk, words)

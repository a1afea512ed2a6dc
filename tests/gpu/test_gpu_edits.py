"""Edited Triton kernels on a real GPU: put in cold, from warm caches and into CUDA graphs, compared, and refused."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from breakdown_runs import PROGRAMS, Done, apply, breakdown, command, run
from documented import documented, with_options
from edited_files import kernels_of, write_edit

from inductor_bench.records.code import KernelDefinition
from inductor_bench.store.folder import RunFolder

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group("gpu_edits")]

TRAINING = """
import os
import torch
from torch import nn

torch.manual_seed(0)
device = int(os.environ.get("LOCAL_RANK", "0"))
torch.cuda.set_device(device)
model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.LayerNorm(4096), nn.Linear(4096, 1024))
model = model.cuda().half()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
compiled = torch.compile(model, mode=os.environ.get("MODE") or None)
inputs = torch.randn(8192, 1024, device="cuda", dtype=torch.float16)
for step in range(int(os.environ.get("STEPS", "400"))):
    loss = compiled(inputs).float().square().mean()
    if step == 2:
        print("loss", loss.item())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
print("hits", torch._dynamo.utils.counters["inductor"]["fxgraph_cache_hit"])
"""

STORE = re.compile(r"^(( *)tl\.store\(.+, )(\w+)(, [^\n]+\)\n)", re.MULTILINE)
"""A line that stores a value."""


def slower(source: str) -> str:
    """Stores each result many times: the same outputs, bit by bit. Without barriers the compiler would store once."""
    return STORE.sub(r"\g<0>\2tl.debug_barrier()\n" * 24, source)


def wrong(source: str) -> str:
    """Doubles what is stored."""
    return STORE.sub(r"\1\3 * 2\4", source)


def broken(source: str) -> str:
    """Stores what there is not."""
    return STORE.sub(r"\1absent\4", source)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "training.py"
    path.write_text(TRAINING)
    return path


@pytest.fixture(scope="module")
def trained(program: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    done = breakdown(tmp_path_factory.mktemp("trained") / "run", "--stop", "--", sys.executable, program)
    assert done.code == 0, done.printed
    return RunFolder(done.folder)


@pytest.fixture(scope="module")
def forward(trained: RunFolder) -> KernelDefinition:
    """The kernel of the forward pass that computes the layer norm of what comes out of the GELU."""
    kernels = [one for one in kernels_of(trained) if "libdevice.erf(" in one.source and "backward" not in one.name]
    (kernel,) = kernels
    assert isinstance(kernel, KernelDefinition)
    return kernel


def losses(done: Done) -> list[float]:
    """What each rank printed in a step that replays a CUDA graph, if there is one."""
    assert done.code == 0, done.printed
    return [float(found) for found in re.findall(r"^loss (.+)$", done.stdout, re.MULTILINE)]


@pytest.mark.parametrize("mode", ["", "reduce-overhead"])
def test_the_edited_kernel_is_what_the_program_computes(
    mode: str, trained: RunFolder, forward: KernelDefinition, program: Path, tmp_path: Path
) -> None:
    """The second process finds the graphs in Inductor's caches, where the first one, without the edit, has put them."""
    edit = write_edit(trained, forward, tmp_path / "wrong.py", wrong)
    variables = {"MODE": mode, "STEPS": "12", "TORCHINDUCTOR_CACHE_DIR": tmp_path / "cache"}
    (own,) = losses(run([sys.executable, str(program)], tmp_path, **variables))
    done = apply(trained.path, "--kernel", edit.path, "--", sys.executable, program, **variables)
    assert "1 of 1 edited kernel ran its edit" in done.stderr, done.printed
    assert "hits 2" in done.stdout, "the forward and the backward graph"
    (edited,) = losses(done)
    assert edited > 2 * own
    (again,) = losses(run([sys.executable, str(program)], tmp_path, **variables))
    assert again == pytest.approx(own, rel=1e-2), "the caches hold nothing of the edit"


def test_a_slower_edit_is_compared_in_the_steps_of_one_process(
    trained: RunFolder, forward: KernelDefinition, program: Path, tmp_path: Path
) -> None:
    edit = write_edit(trained, forward, tmp_path / "slower.py", slower)
    words = ("--verify", "--stop", "--format", "json", "--fail-above", "0%", "--", sys.executable, program)
    done = apply(trained.path, "--kernel", edit.path, *words, STEPS="100000")
    assert done.code in (4, 5), done.printed  # 5 if the host sets the pace, so that the step is as long as before
    found = json.loads(done.stdout)["verification"]
    (kernel,) = found["kernels"]
    assert (kernel["state"], kernel["edit"]) == ("pinned", str(edit.path))
    assert found["way"] == "steps" and found["device"]["verdict"] == "slower"
    assert found["step"]["verdict"] == ("slower" if done.code == 4 else "no difference")
    assert kernel["saving_s"] == pytest.approx(found["device"]["saving_s"], rel=0.2, abs=20e-6)
    assert found["outputs"]["graphs"] == 2 and found["outputs"]["difference"] <= found["outputs"]["tolerance"]


def test_cuda_graphs_are_compared_by_whole_processes(
    trained: RunFolder, forward: KernelDefinition, program: Path, tmp_path: Path
) -> None:
    edit = write_edit(trained, forward, tmp_path / "slower.py", slower)
    words = ("--verify", "--stop", "--format", "json", "--", sys.executable, program)
    done = apply(trained.path, "--kernel", edit.path, *words, MODE="reduce-overhead", STEPS="100000")
    assert done.code == 0, done.printed
    found = json.loads(done.stdout)["verification"]
    assert found["way"] == "processes" and found["device"]["pairs"] == 2
    assert [kernel["state"] for kernel in found["kernels"]] == ["pinned"]
    assert found["device"]["saving_s"] < 0 and found["kernels"][0]["saving_s"] < 0


def test_a_wrong_edit_is_dropped_and_one_that_does_not_compile_leaves_the_original(
    trained: RunFolder, forward: KernelDefinition, program: Path, tmp_path: Path
) -> None:
    others = [one for one in kernels_of(trained) if one.kernel_id != forward.kernel_id and STORE.search(one.source)]
    first = write_edit(trained, forward, tmp_path / "wrong.py", wrong)
    second = write_edit(trained, others[0], tmp_path / "broken.py", broken)
    places = {"runs/train": trained.path, "mine.py": first.path, "python": sys.executable, "train.py": program}
    words = documented("inductor-bench apply runs/train --kernel mine.py --verify -- python train.py", places)
    words = with_options(words, "--kernel", second.path, "--stop", "--format", "json")
    done = run(command(*words), trained.path, STEPS="100000")
    assert done.code == 1, done.printed
    found = json.loads(done.stdout)["verification"]
    reasons = {Path(kernel["edit"]).name: (kernel["state"], kernel["reason"]) for kernel in found["kernels"]}
    assert reasons["wrong.py"][0] == "dropped" and "of a tensor's norm" in reasons["wrong.py"][1]
    assert reasons["broken.py"][0] == "refused" and "absent" in reasons["broken.py"][1]


def test_kernels_with_unchanged_sources_make_no_difference(trained: RunFolder, program: Path, tmp_path: Path) -> None:
    files = [write_edit(trained, one, tmp_path / f"{one.kernel_id}.py").path for one in kernels_of(trained)]
    words = [word for path in files for word in ("--kernel", path)]
    more = ("--verify", "--stop", "--format", "json", "--", sys.executable, program)
    done = apply(trained.path, *words, *more, STEPS="100000")
    assert done.code == 0, done.printed
    found = json.loads(done.stdout)["verification"]
    assert {kernel["state"] for kernel in found["kernels"]} == {"pinned"}
    assert {found["step"]["verdict"], found["device"]["verdict"]} <= {"no difference", "undecided"}
    assert found["outputs"]["difference"] <= found["outputs"]["tolerance"]


def test_a_kernel_of_every_kind_goes_through_an_edit_unchanged_and_back(gpu_run: Path, tmp_path: Path) -> None:
    folder = RunFolder(gpu_run)
    ran = {
        kernel.kernel_id
        for module in folder.load().modules
        for kernel in module.kernels
        if kernel.compiled.config and kernel.file
    }
    kernels = [one for one in kernels_of(folder) if one.language == "triton" and one.kernel_id in ran]
    assert len(kernels) > 5
    files = [write_edit(folder, one, tmp_path / f"{one.kernel_id}.py").path for one in kernels]
    words = [word for path in files for word in ("--kernel", path)]
    done = apply(gpu_run, *words, "--", sys.executable, PROGRAMS / "gpu_kinds.py")
    assert done.code == 0, done.printed
    autotuned = {
        kernel.kernel_id
        for module in folder.load().modules
        if any(kernel.name.startswith("triton_tem_") for kernel in module.kernels)
        for kernel in module.kernels
    }
    left_out = re.findall(
        r"^ *- (\S+): (?:its source differs from the source|the program did not compile the kernel)", done.stderr, re.M
    )
    names = {one.name for one in kernels if one.kernel_id in autotuned}
    assert set(left_out) <= names, "only autotuning may choose other kernels than those of the RUN"
    assert f"{len(files) - len(left_out)} of {len(files)} edited kernels ran their edits" in done.stderr, done.printed


def test_each_rank_runs_the_edit_on_its_own_device(
    trained: RunFolder, forward: KernelDefinition, program: Path, tmp_path: Path
) -> None:
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    edit = write_edit(trained, forward, tmp_path / "wrong.py", wrong)
    launcher = (sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", program)
    own = losses(run([*map(str, launcher)], tmp_path, STEPS="4"))
    done = apply(trained.path, "--kernel", edit.path, "--", *launcher, STEPS="4")
    assert "1 of 1 edited kernel ran its edit" in done.stderr, done.printed
    assert len(losses(done)) == len(own) == 2 and min(losses(done)) > 2 * max(own)

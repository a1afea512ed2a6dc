"""One Triton kernel in the place of a product or of several kernels, on a real GPU: checked, put in, and proven."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from breakdown_runs import Done, apply, breakdown, command, run

from inductor_bench.records.request import DRAWN
from inductor_bench.source.edited import BEGIN, END
from inductor_bench.store.folder import RunFolder
from inductor_bench.workflows.modules.extraction import list_candidates, read_modules_of_run

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group("gpu_edit_calls")]

PROGRAM = """
import os
import torch

torch.manual_seed(0)
x = torch.randn(1024, 512, device="cuda", dtype=torch.float16)
w = torch.randn(512, 768, device="cuda", dtype=torch.float16)
bias = torch.randn(768, device="cuda", dtype=torch.float16)
scale = torch.randn(768, device="cuda")

@torch.compile(mode=os.environ.get("MODE") or None)
def step(x, w, bias, scale):
    hidden = torch.nn.functional.gelu(torch.addmm(bias, x, w)).float()
    total = hidden.sum(0)
    return torch.softmax(hidden * scale + total, -1), total

for number in range(int(os.environ.get("STEPS", "400"))):
    torch.compiler.cudagraph_mark_step_begin()
    out, total = step(x, w, bias, scale)
    if number == 5:
        print("sum", total.double().abs().sum().item(), flush=True)
torch.cuda.synchronize()
"""

ZERO = ("sum = tl.zeros([64, 64], dtype=tl.float32)", "sum = tl.full([64, 64], 9.0, tl.float32)")
"""A change after which a product is another one."""

SLOWER = re.compile(r"^( *)sum = tl\.dot\(left, right, sum, .+\)$", re.MULTILINE)
"""The line that multiplies two tiles."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "products.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture(scope="module")
def ran(program: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    done = breakdown(tmp_path_factory.mktemp("ran") / "run", "--stop", "--", sys.executable, program)
    assert done.code == 0, done.printed
    return RunFolder(done.folder)


def names_of(ran: RunFolder) -> list[str]:
    """The kernels and library calls of the RUN, in the order in which they run."""
    (module,) = read_modules_of_run(ran, DRAWN)[0]
    candidates = [one for one in list_candidates(module) if one.launch is not None]
    candidates.sort(key=lambda one: min(one.launch.positions) if one.launch is not None else 0)
    names = [one.header.name for one in candidates]
    assert names[0].startswith("aten_addmm_out_0") and all(one.startswith("triton_") for one in names[1:]), names
    return names


def write(ran: RunFolder, name: str, path: Path, *changes: tuple[str, str]) -> Path:
    """Writes the file of calls, with changes between its marks."""
    done = run(command("kernel", f"{ran.path}#{name}", "--edit", path), path.parent)
    assert done.code == 0, done.printed
    before, begin, rest = path.read_text().partition(BEGIN)
    kernel, end, after = rest.partition(END)
    for old, new in changes:
        assert old in kernel, kernel
        kernel = kernel.replace(old, new)
    path.write_text(before + begin + kernel + end + after)
    return path


def verdict_on(path: Path) -> Any:
    done = run(command("kernel", path, "--check", "--force", "--format", "json", "-q"), path.parent)
    assert done.stdout and "Traceback" not in done.stderr, done.printed
    return json.loads(done.stdout)


def printed_sum(done: Done) -> float:
    assert done.code == 0, done.printed
    found = re.search(r"^sum (.+)$", done.stdout, re.MULTILINE)
    assert found is not None, done.printed
    return float(found[1])


def test_a_product_in_triton_is_checked_like_any_edit(ran: RunFolder, tmp_path: Path) -> None:
    found = verdict_on(write(ran, "aten_addmm_out_0", tmp_path / "right.py"))
    assert found["verdict"] != "refused" and found["language"] == "triton", found
    assert {check["outcome"] for check in found["checks"]} == {"passed"}
    assert "float64" in {check["against"] for check in found["checks"]}
    assert found["ratio"]["pairs"] >= 20
    wrong = verdict_on(write(ran, "aten_addmm_out_0", tmp_path / "wrong.py", ZERO))
    assert wrong["verdict"] == "refused" and wrong["reason"] in ("wrong", "precision"), wrong
    fewer = ("tl.store(out +", "pass  # tl.store(out +")
    idle = verdict_on(write(ran, "aten_addmm_out_0", tmp_path / "idle.py", fewer))
    assert idle["verdict"] == "refused" and idle["reason"] == "not-written", idle


def test_a_group_of_kernels_begins_with_one_that_is_right(ran: RunFolder, tmp_path: Path) -> None:
    names = names_of(ran)
    assert len(names) >= 3, "a product, and two kernels that could not be fused"
    for number, (first, last) in enumerate([(names[0], names[1]), (names[1], names[-1])]):
        found = verdict_on(write(ran, f"{first}..{last}", tmp_path / f"group_{number}.py"))
        assert found["verdict"] != "refused", (first, last, found["words"], found["checks"])
        assert {check["outcome"] for check in found["checks"]} <= {"passed", "skipped"}


@pytest.mark.parametrize("mode", ["", "reduce-overhead"])
def test_the_program_computes_what_the_kernel_in_the_place_of_calls_does(
    mode: str, ran: RunFolder, program: Path, tmp_path: Path
) -> None:
    """The second process finds the graph in Inductor's caches, where the first one, without the edit, has put it."""
    variables = {"MODE": mode, "STEPS": "12", "TORCHINDUCTOR_CACHE_DIR": tmp_path / "cache"}
    own = printed_sum(run([sys.executable, str(program)], tmp_path, **variables))
    names = names_of(ran)
    right = write(ran, f"{names[0]}..{names[1]}", tmp_path / "right.py")
    done = apply(ran.path, "--kernel", right, "--", sys.executable, program, **variables)
    assert "1 of 1 edited kernel ran its edit" in done.stderr, done.printed
    assert printed_sum(done) == pytest.approx(own, rel=1e-3)
    wrong = write(ran, "aten_addmm_out_0", tmp_path / "wrong.py", ZERO)
    variables["INDUCTOR_BENCH_CACHE"] = tmp_path / "kept"  # another test has checked this source, and refused it
    done = apply(ran.path, "--kernel", wrong, "--", sys.executable, program, **variables)
    assert "1 of 1 edited kernel ran its edit" in done.stderr, done.printed
    assert printed_sum(done) > 1.1 * own
    again = printed_sum(run([sys.executable, str(program)], tmp_path, **variables))
    assert again == pytest.approx(own, rel=1e-3), "the caches hold nothing of the edit"


def test_a_slower_kernel_in_the_place_of_calls_is_found_in_the_steps(
    ran: RunFolder, program: Path, tmp_path: Path
) -> None:
    path = write(ran, "aten_addmm_out_0", tmp_path / "slower.py")
    text = path.read_text()
    before, begin, rest = text.partition(BEGIN)
    kernel, end, after = rest.partition(END)
    line = SLOWER.search(kernel)
    assert line is not None
    # So slow that the device sets the pace: a launch of Triton takes the host less than one of ATen.
    again = f"{line[1]}for again in range(3000):\n    {line[0].replace('(left,', '(left * 0,')}\n"
    path.write_text(before + begin + kernel.replace(line[0], again + line[0]) + end + after)
    words = ("--verify", "--stop", "--format", "json", "--fail-above", "0%", "--", sys.executable, program)
    done = apply(ran.path, "--kernel", path, *words, STEPS="100000")
    assert done.code == 4, done.printed
    found = json.loads(done.stdout)["verification"]
    (kernel_state,) = found["kernels"]
    assert (kernel_state["state"], kernel_state["edit"]) == ("pinned", str(path))
    assert found["way"] == "steps" and found["device"]["verdict"] == "slower"
    assert found["outputs"]["difference"] <= found["outputs"]["tolerance"]


def test_a_wrong_kernel_in_the_place_of_calls_is_dropped_and_one_that_does_not_compile_leaves_them(
    ran: RunFolder, program: Path, tmp_path: Path
) -> None:
    names = names_of(ran)
    wrong = write(ran, "aten_addmm_out_0", tmp_path / "wrong.py", ZERO)
    broken = write(ran, f"{names[1]}..{names[-1]}", tmp_path / "broken.py", ("tl.debug_barrier()", "absent()"))
    words = ("--kernel", broken, "--verify", "--stop", "--format", "json", "--", sys.executable, program)
    # Not the cache of the other tests: one of them has checked this source, and refused it.
    done = apply(ran.path, "--kernel", wrong, *words, STEPS="100000", INDUCTOR_BENCH_CACHE=tmp_path / "kept")
    assert done.code == 1, done.printed
    found = json.loads(done.stdout)["verification"]
    states = {Path(one["edit"]).name: (one["state"], one["reason"]) for one in found["kernels"]}
    assert states["wrong.py"][0] == "dropped" and "of a tensor's norm" in states["wrong.py"][1]
    assert states["broken.py"][0] == "refused" and "absent" in states["broken.py"][1]

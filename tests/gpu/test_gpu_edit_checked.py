"""Edited Triton kernels under check on a real GPU: honest edits pass, wrong ones are refused, and harmful ones end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from inductor_bench.source.edited import BEGIN, END

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group("gpu_edit_checked")]

PROGRAM = """
import torch

torch.manual_seed(0)
x = torch.randn(4096, 1024, device="cuda", dtype=torch.bfloat16)
w = torch.randn(1024, device="cuda")
places = torch.randint(0, 4096, (3000,), device="cuda")

@torch.compile
def step(x, w, places):
    y = torch.nn.functional.layer_norm(x.float(), (1024,), w)
    return torch.softmax(y, -1).bfloat16(), torch.sin(x) * 2 + 1, x[places] + 1

for _ in range(60):
    step(x, w, places)
torch.cuda.synchronize()
"""
STORE = re.compile(r"^( *)tl\.store\((\w+) \+ ([^,]+(?:\([^)]*\))?[^,]*), (\w+), ([^\n]+)\)$", re.MULTILINE)

HINTS = ("ReductionHint.DEFAULT,", "min_elem_per_thread=4")
HONEST: dict[str, Callable[[str], str]] = {
    "unchanged": str,
    "another name": lambda text: re.sub(r"\btmp(\d+)\b", r"value\1", text),
    "another hint": lambda text: re.sub(
        r"ReductionHint\.\w+,|min_elem_per_thread=0", lambda found: HINTS[found[0] == "min_elem_per_thread=0"], text
    ),
}
WRONG: dict[str, tuple[str, Callable[[str], str]]] = {
    "zeros": ("wrong", lambda text: STORE.sub(r"\1tl.store(\2 + \3, \4 * 0, \5)", text)),
    "nothing": ("not-written", lambda text: STORE.sub(r"\1pass", text)),
    "behind the end": ("outside", lambda text: STORE.sub(r"\g<0>\n\1tl.store(\2 + 1000 * 1024 * 1024, 0.0)", text)),
    "out of memory's bounds": ("crashed", lambda text: STORE.sub(r"\1tl.store(\2 + 10**12 + \3, \4, \5)", text)),
    "no name": ("no-compile", lambda text: STORE.sub(r"\1tl.store(\2 + \3, absent, \5)", text)),
}


def tool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "inductor_bench", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("edits")
    (folder / "program.py").write_text(PROGRAM)
    done = tool("breakdown", "--force", "-q", "-o", folder / "run", "--", sys.executable, folder / "program.py")
    assert done.returncode == 0, done.stderr
    return folder / "run"


def names(run: Path) -> list[str]:
    rows = json.loads((run / "kernels" / "kernels.json").read_text())
    return [row["file"].removesuffix(".py") for row in rows if row["file"] and row["name"].startswith("triton")]


def checked(run: Path, name: str, change: Callable[[str], str], place: Path) -> dict[str, Any]:
    """The verdict on an edit of a kernel."""
    assert tool("kernel", f"{run}#{name}", "--edit", place).returncode == 0
    before, begin, rest = place.read_text().partition(BEGIN)
    kernel, end, after = rest.partition(END)
    assert change is str or change(kernel) != kernel
    place.write_text(before + begin + change(kernel) + end + after)
    done = tool("kernel", place, "--check", "--force", "--format", "json", "-q")
    assert done.stdout and "Traceback" not in done.stderr, done.stderr
    verdict: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if verdict["verdict"] == "refused" else 0)
    return verdict


@pytest.mark.parametrize("edit", HONEST)
def test_an_honest_edit_of_each_kernel_is_right(run: Path, edit: str, tmp_path: Path) -> None:
    for name in names(run):
        verdict = checked(run, name, HONEST[edit], tmp_path / f"{name}.py")
        assert verdict["verdict"] != "refused", (name, verdict["words"])
        assert verdict["ratio"]["pairs"] >= 20
        assert verdict["registers"] or edit == "another hint"  # with other hints, Inductor chooses among configs


@pytest.mark.parametrize("edit", WRONG)
def test_a_wrong_edit_of_each_kernel_is_refused(run: Path, edit: str, tmp_path: Path) -> None:
    reason, change = WRONG[edit]
    for name in names(run):
        verdict = checked(run, name, change, tmp_path / f"{name}.py")
        assert verdict["verdict"] == "refused", name
        assert verdict["reason"] in (reason, "outside", "crashed", "raised"), (name, verdict["words"])


def test_results_are_compared_with_float64_where_the_module_tells_its_graph(run: Path, tmp_path: Path) -> None:
    against = {
        check["against"]
        for name in names(run)
        for check in checked(run, name, str, tmp_path / f"{name}.py")["checks"]
        if check["values"] == "recorded"
    }
    assert "float64" in against

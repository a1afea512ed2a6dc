"""Standalone files that cannot be measured: one clear line each, the good ones beside them are measured, and no process
is left behind."""

from __future__ import annotations

import gzip
import importlib.util
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from breakdown_runs import own_processes
from kernel_files import LEAN, LOOP, MARK, changed, gather, gather_text, kernel, left_over, measured
from source_data import CPU, GPU, text_of

import inductor_bench
from inductor_bench.source.harness import triton_definition

pytestmark = pytest.mark.slow

OWN = "from torch._inductor.runtime import triton_heuristics\ndef get_args(): ...\ndef call(args): ...\n"
TEXTS = {
    "binary": ("\x00", "is not a standalone kernel file"),
    "train": ("print('a program')\nraise SystemExit('it was run')\n", "is not a standalone kernel file"),
    "inductor": (OWN, "is Inductor's code, without the arguments that kernels had"),
    "raises": ("RECORDED = {}\nraise ValueError('no good')\n", "ValueError: no good"),
    "needs": ("RECORDED = {}\nimport a_package_of_nobody\n", "No module named 'a_package_of_nobody'"),
    "exits": ("RECORDED = {}\nraise SystemExit(4)\n", "ended the process when it was imported (4)"),
    "leaves": ("RECORDED = {}\nimport os; os._exit(5)\n", "exited with code 5"),
    "killed": ("RECORDED = {}\nimport os; os.kill(os.getpid(), 9)\n", "killed by SIGKILL"),
    "starved": ("RECORDED = {}\nraise MemoryError\n", "out of memory"),
    "syntax": ("RECORDED = {\n", "SyntaxError"),
    "empty": ("RECORDED = {}\n", "is not a standalone kernel file"),
    "two": (gather_text() * 2, "holds 2 kernels"),
    "cut": (gather_text().partition("\nSOURCE = ")[0], "is not a standalone kernel file"),
    "crashes": (gather_text(LEAN.replace(LOOP, f"*(volatile int*)8 = 1; {LOOP}")), "killed by SIGSEGV"),
    "uncompilable": (gather_text(LEAN.replace("2.0f", "oops")), "does not compile here"),
}
HINTS = {
    "inductor": "extract MODULE",
    "needs": "install a_package_of_nobody",
    "killed": "more memory than there is",
    "starved": "run it on a machine with more",
    "huge": "run it on a machine with more",
    "crashes": "crashes.py may say more",
    "triton": "install triton",
    "call": "doctor",
}


@pytest.fixture
def no_triton(tmp_path: Path) -> dict[str, str]:
    """The variables of a process that finds neither a GPU nor triton, whatever there is."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import rare_collection, sys\nsys.modules['triton'] = None\n")
    return {"PYTHONPATH": str(site), "CUDA_VISIBLE_DEVICES": "", **own_processes()}


@pytest.fixture
def nobody_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(MARK, str(tmp_path))
    yield
    monkeypatch.delenv(MARK)
    assert left_over(str(tmp_path)) == []


def bad_files(folder: Path) -> dict[Path, str]:
    """Files, and what is said of each."""
    found = {folder / f"{name}.py": why for name, (_, why) in TEXTS.items()}
    for path in found:
        path.write_text(TEXTS[path.stem][0])
    latin = folder / "latin.py"
    latin.write_bytes(b"\xff\xfe\x00")
    module = folder / "module.py"
    module.write_text(text_of(CPU / "forward.py"))
    huge = changed(gather(folder, "huge"), "'size_bytes': 200", f"'size_bytes': {1 << 50}")
    wide = changed(gather(folder, "wide"), "'vector_bits': None", "'vector_bits': 4096")
    return {
        **found,
        latin: "is not a Python file",
        module: "is Inductor's code",
        huge: "out of memory: ",
        wide: "is written for vectors of 4096 bits; this machine has: ",
    }


def gpu_files(folder: Path) -> dict[Path, str]:
    """A Triton kernel and a library call, both recorded on a GPU."""
    module = folder / "gpu_module.txt"
    module.write_bytes(gzip.decompress((GPU / "gpu_kinds" / "0_forward.py.gz").read_bytes()))
    found = {}
    for name, category, why in (
        ("triton", "pointwise", "triton.py: this Triton kernel needs triton, which is not installed"),
        ("call", "extern_gemm", "the operator ran on a GPU, and this torch finds none"),
    ):
        rows = inductor_bench.extract(module, folder / "of_gpu" / name, category=category, static=True)
        assert rows[0].path is not None
        found[Path(shutil.copy(rows[0].path, folder / f"{name}.py"))] = why
    return found


def assert_each_has_its_line(found: dict[str, Any], expected: dict[Path, str]) -> None:
    assert [failure["subject"] for failure in found["failures"]] == list(map(str, expected))
    for failure in found["failures"]:
        path = Path(failure["subject"])
        assert expected[path] in failure["message"], failure
        assert "\n" not in failure["message"] + failure["hint"] and "Traceback" not in failure["message"]
        assert HINTS.get(path.stem, "") in failure["hint"], failure
        assert "RefusedError" not in failure["message"] and "standalone_" not in failure["message"]


@pytest.mark.usefixtures("nobody_is_left")
def test_each_bad_file_gets_one_clear_line_and_the_good_ones_are_measured(tmp_path: Path) -> None:
    expected, good = bad_files(tmp_path), gather(tmp_path, "good")
    done, found = measured(*expected, good)
    assert done.code == 1 and [each["file"] for each in found["kernels"]] == [str(good)]
    assert_each_has_its_line(found, expected)


@pytest.mark.usefixtures("nobody_is_left")
def test_files_that_need_a_gpu_get_one_clear_line_without_one(tmp_path: Path, no_triton: dict[str, str]) -> None:
    expected = gpu_files(tmp_path)
    done, found = measured(*expected, **no_triton)
    assert done.code == 1 and found["kernels"] == []
    assert_each_has_its_line(found, expected)


@pytest.mark.usefixtures("nobody_is_left")
def test_what_takes_too_long_is_ended_and_said_on_the_screen(tmp_path: Path) -> None:
    asleep = tmp_path / "asleep.py"
    asleep.write_text("RECORDED = {}\nimport time\ntime.sleep(1000)\n")
    sleep = "while (sleep(1000)) continue;"
    hanging = gather(tmp_path, "hanging", LEAN.replace(LOOP, f"{sleep} {LOOP}"))
    done = kernel(asleep, hanging, "--timeout", "4")
    assert done.code == 1 and "Traceback" not in done.printed
    said = " ".join(done.stdout.split())  # lines are as long as the terminal
    assert said.count("was stopped by the time limit") == 2
    assert said.count("Hint: give it more time with --timeout SECONDS") == 2
    assert f"-{hanging}:theworker" in "".join(done.stdout.split()), "a long path is divided, too"


def test_wrong_outputs_and_nans_are_said(tmp_path: Path) -> None:
    of_nan = gather(tmp_path, "nan", LEAN.replace("2.0f", "NAN"))
    reference = {"tensors": [{"shape": [4096], "dtype": "float32", "nan": 0, "inf": 0}]}
    wrong = gather(tmp_path, "wrong", LEAN.replace("2.0f", "NAN"), reference=reference)
    done, found = measured(of_nan, wrong)
    assert done.code == 1
    without, against = found["kernels"]
    assert without["checked"] is None and against["checked"] is False
    assert any("hold NaNs" in advice for advice in without["advice"])
    assert any("4096 NaNs, the reference has 0" in advice for advice in against["advice"])


def test_a_comparison_says_which_of_the_two_cannot_be_measured(tmp_path: Path) -> None:
    crashing = tmp_path / "crashes.py"
    crashing.write_text(TEXTS["crashes"][0])
    done = kernel(crashing, "--compare", gather(tmp_path), "-q")
    assert done.code == 1 and done.stdout == ""
    message, hint = done.stderr.splitlines()
    assert message.startswith(f"Error: {crashing}: the worker was killed by SIGSEGV")
    assert hint == f"Hint: python {crashing} may say more"


def test_an_interpreter_that_is_not_there_or_has_no_torch(tmp_path: Path) -> None:
    good, bare = gather(tmp_path), tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    reasons = ((tmp_path / "none", "cannot start"), ("true", "is no Python"), (bare, "No module named 'torch'"))
    for python, why in reasons:
        done = kernel(good, "--python", python, "-q", PYTHONPATH="")
        assert done.code == 1 and done.stdout == "" and "Traceback" not in done.stderr
        assert done.stderr.startswith("Error: ") and why in done.stderr
    assert done.stderr.endswith(
        "Hint: install torch 2.9 or newer beside it, or name an interpreter that has torch with --python\n"
    )


def test_a_triton_kernel_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name == "torch" else None)
    with pytest.raises(RuntimeError, match="k: this Triton kernel needs triton, which is not installed"):
        triton_definition.require_gpu("k")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="k: this Triton kernel needs a GPU, and torch sees none"):
        triton_definition.require_gpu("k")

"""Requests that cannot be carried out: one line with what and why, one with what to do, exit code 2 (1 if the fault
is in what lies there and not in the request), no RUN folder, and nothing that was there is touched."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import breakdown_runs as runs
import pytest
import run_builder

from inductor_bench.cli import main as entry
from inductor_bench.store.folder import RunFolder

SCRIPT = "print('hello')\n"
MODULE = "# AOT ID: ['0_inference']\nasync_compile = AsyncCompile()\n"


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder with one of everything that may be named by mistake."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "module.py").write_text(MODULE)
    (tmp_path / "binary.bin").write_bytes(b"\x7fELF\x00\x01\x02")
    (tmp_path / "empty.log").write_text("")
    (tmp_path / "gone.log").write_text("".join(f"Compiled module path: /nowhere/{name}.py\n" for name in "ab"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "torch_trace").mkdir()
    (tmp_path / "torch_trace" / "dedicated_log_torch_trace_x.log").write_text("nothing of use\n")
    (tmp_path / "trace.json").write_text('{"traceEvents": []}')
    (tmp_path / "factory.py").write_text("def make():\n    return None\n")
    return tmp_path


Refused = Callable[..., runs.Done]


@pytest.fixture
def refused(desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Breaks down in this process, in the desk's folder, what is refused before anything is written."""
    monkeypatch.chdir(desk)

    def run(*words: str) -> runs.Done:
        before = sorted(desk.rglob("*"))
        code = entry.main(["breakdown", *words])
        out, err = capsys.readouterr()
        assert sorted(desk.rglob("*")) == before, "something was written"
        assert out == "" and "Traceback" not in err
        return runs.Done(code, out, err, desk)

    return run


@pytest.mark.parametrize(
    ("words", "code", "message", "hint"),
    [
        ("absent.py", 2, "absent.py does not exist", "give a script"),
        ("absent.py:make", 2, "absent.py:make does not exist", "FILE.py:FUNCTION"),
        ("folder", 2, "neither a RUN (no record.json) nor a TORCH_TRACE folder", "give a script"),
        ("timm:", 2, "timm: needs a model name", "timm:mobilenetv3"),
        ("binary.bin", 2, "neither a Python file nor a log, but binary data", "give a script"),
        ("empty.log", 1, "empty.log holds no `Compiled module path:` line", "TORCHINDUCTOR_BENCHMARK_KERNEL=1"),
        ("gone.log", 1, "no longer exist: /nowhere/a.py and 1 more", "run the program again"),
        ("torch_trace", 1, "torch_trace", ""),
        ("module.py absent.py", 2, "absent.py does not exist", ""),
        ("module.py script.py", 2, "script.py is not a compiled module", "only for compiled modules"),
        ("module.py -- --steps 3", 2, "arguments after -- are for a script", ""),
        ("module.py --live", 2, "--live needs a program to run", "give the script"),
        ("script.py --training", 2, "--training is for a factory or a timm model", "arguments of the script after --"),
        ("script.py --device cuda", 2, "--device is for a factory or a timm model", "arguments of the script"),
        ("module.py --amp fp16", 2, "--amp is for a factory or a timm model", ""),
        ("script.py --optimizer SGD", 2, "--optimizer is for a factory or a timm model", "arguments of the script"),
        ("factory.py:make --inference --optimizer SGD", 2, "--optimizer is for a training step", "add --training"),
        ("factory.py:make --batch-size 8", 2, "--batch-size is for a timm model", "make their own inputs"),
        ("script.py --trace trace.json", 2, "--trace goes with one compiled module", "c….py --trace FILE"),
        ("module.py --trace absent.json", 2, "absent.json", ""),
        ("script.py --python no-such-python", 2, "no-such-python is not a program that can be run", "interpreter"),
        ("script.py --timeout 0", 2, "--timeout", ""),
        ("script.py --format xml", 2, "xml", ""),
        ("script.py -o script.py", 2, "script.py exists and is not a folder", "choose another folder"),
        ("script.py -o folder/../torch_trace", 2, "is not a run of inductor-bench", "choose another folder"),
    ],
)
def test_a_request_is_refused_in_words(words: str, code: int, message: str, hint: str, refused: Refused) -> None:
    done = refused(*words.split())
    assert done.code == code, done.stderr
    lines = done.stderr.splitlines()
    errors = [line for line in lines if line.startswith("Error: ")]
    assert len(errors) == 1 and message in errors[0]
    assert hint in " ".join(line for line in lines if line.startswith("Hint: "))


@pytest.fixture
def earlier(desk: Path) -> Path:
    """An earlier run, with nothing but a record and a module in it."""
    run = desk / "earlier"
    run.mkdir()
    RunFolder(run).save(run_builder.empty())
    (run / "modules").mkdir()
    (run / "modules" / "forward.py").write_text(MODULE)
    return run


@pytest.mark.usefixtures("earlier")
def test_an_earlier_run_is_kept_without_force(refused: Refused) -> None:
    done = refused("script.py", "-o", "earlier")
    assert done.code == 2 and "earlier holds an earlier run" in done.stderr and "--force" in done.stderr


@pytest.mark.parametrize("target", ["earlier/modules/forward.py", "gone.log", "absent.py", "script.py --mode default"])
@pytest.mark.usefixtures("earlier")
def test_force_deletes_nothing_for_a_request_that_is_refused(target: str, refused: Refused) -> None:
    done = refused(*target.split(), "-o", "earlier", "--force")
    assert done.code in (1, 2)
    if target.startswith("earlier"):
        assert "--force would delete" in done.stderr


def test_with_force_an_earlier_run_is_replaced(desk: Path, earlier: Path) -> None:
    done = runs.run(runs.command("breakdown", "script.py", "-o", "earlier", "--force"), earlier, cwd=desk)
    assert done.code == 1 and done.record["target"] == "script.py" and not (earlier / "modules").exists()


def test_a_file_that_cannot_be_read(desk: Path, refused: Refused) -> None:
    (desk / "script.py").chmod(0)
    if os.access(desk / "script.py", os.R_OK):
        pytest.skip("root, or whoever has its right, can read everything")
    done = refused("script.py")
    assert done.code == 2 and "cannot read script.py" in done.stderr


def test_names_are_never_read_as_anything_else(desk: Path) -> None:
    hostile = desk / "[bold red]$(touch pwned)\n;`touch pwned` ..%s{0}.py"
    hostile.write_text("import sys\nprint(len(sys.argv))\n")
    done = runs.run(runs.command("breakdown", hostile, "--no-plots", "--", "--help", "; touch pwned"), desk, cwd=desk)
    assert done.code == 1 and "compiled nothing" in done.printed and "[bold red]$(touch pwned)" in done.stdout
    assert not list(desk.rglob("pwned"))
    (run,) = (desk / "runs").iterdir()
    assert run.parent == desk / "runs" and (run / "logs" / "program.log").read_text() == "3\n"


def test_a_hostile_label_stays_in_its_folder(desk: Path) -> None:
    text = MODULE.replace("0_inference", "../../../0_forward") + "\ndef call(args):\n    return ()\n"
    (desk / "module.py").write_text(text)
    done = runs.breakdown(desk / "run", desk / "module.py", cwd=desk)
    assert done.code == 1
    outside = [path for path in desk.rglob("*.py") if "run" not in path.parts]
    assert sorted(path.name for path in outside) == ["factory.py", "module.py", "script.py"]
    assert [path.name for path in (desk / "run" / "modules").iterdir()] == ["forward.py"]


def test_an_interpreter_without_torch_is_named(desk: Path) -> None:
    python = desk / "bare"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    (desk / "script.py").write_text("import torch\n")
    done = runs.breakdown(desk / "run", desk / "script.py", "--python", python, cwd=desk)
    assert done.code == 1 and "No module named 'torch'" in done.stdout
    assert (
        done.record["failures"][0]["hint"]
        == "install torch 2.9 or newer beside it, or name an interpreter that has torch with --python"
    )


@pytest.mark.parametrize("name", ["true", "false"])
def test_an_interpreter_that_is_no_python_is_named(desk: Path, name: str) -> None:
    (desk / "script.py").write_text("import torch\n")
    done = runs.breakdown(desk / "run", desk / "script.py", "--python", name, cwd=desk)
    (failure,) = done.record["failures"]
    assert done.code == 1 and failure["kind"] == "no-python" and "compiled nothing" not in done.stdout
    assert failure["message"] == f"{name} did not load this tool's hook, so the program was not observed"
    assert failure["hint"].startswith("name an interpreter that has torch with --python")

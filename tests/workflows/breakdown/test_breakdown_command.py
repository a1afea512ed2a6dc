"""A command line as the target: what it runs, how it is named, and what is said if it cannot be measured."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path

import breakdown_runs as runs
import pytest

from inductor_bench.errors import UsageError
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.workflows.modules.program_run import find_arguments, find_interpreter, find_program
from inductor_bench.workflows.modules.targets import make_folder_title, make_title, resolve_target


@pytest.mark.parametrize(
    ("command", "program", "arguments"),
    [
        ("torchrun --nproc-per-node 2 train.py --lr 1", "train.py", "--lr 1"),
        ("python -m pkg.train --steps 3", "pkg.train", "--steps 3"),
        ("python -m torch.distributed.run --nproc-per-node 2 src/train.py", "src/train.py", ""),
        ("torchrun --nproc-per-node 2 -m pkg.train", "pkg.train", ""),
        ("accelerate launch --num_processes 2 train.py -m x", "train.py", "-m x"),
        ("my-train --lr 1", "my-train", "--lr 1"),
    ],
)
def test_the_program_in_a_command(command: str, program: str, arguments: str) -> None:
    words = shlex.split(command)
    assert find_program(words) == program and find_arguments(words) == tuple(shlex.split(arguments))


def test_a_command_is_named_after_its_program() -> None:
    asked = BreakdownRequest(arguments=(sys.executable, "-m", "pkg.train", "--lr", "1"), steps=3, skip=0, stop=True)
    request = resolve_target(asked).resolved(asked)
    assert request == replace(asked, kind="command", target="pkg.train")
    assert make_title(request) == "pkg.train --lr 1" and make_folder_title(request) == "train"


def test_the_interpreter_of_a_command(tmp_path: Path) -> None:
    script = tmp_path / "my-train"
    script.write_text(f"#!{sys.executable}\nprint()\n")
    script.chmod(0o755)
    assert find_interpreter([sys.executable, "x.py"]) == sys.executable
    assert find_interpreter([str(script)]) == sys.executable
    assert find_interpreter(["sh", "-c", "true"]) is None


def test_a_command_without_the_dashes_is_told_how_to_type_it() -> None:
    with pytest.raises(UsageError, match="sh does not exist") as caught:
        resolve_target(BreakdownRequest("sh", arguments=("-c", "a b")))
    assert caught.value.hint == "a command is given after --: inductor-bench breakdown -- sh -c 'a b'"


def test_what_is_no_command_and_what_takes_no_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    with pytest.raises(UsageError, match=r"'train\.py' is not a command") as caught:
        resolve_target(BreakdownRequest(arguments=("train.py", "1")))
    assert caught.value.hint == "try: inductor-bench breakdown -- python train.py 1"
    with pytest.raises(UsageError, match="no target given"):
        resolve_target(BreakdownRequest())
    with pytest.raises(UsageError, match="--stop is for a script or a command"):
        resolve_target(BreakdownRequest("timm:resnet18", stop=True))
    Path("run.log").write_text("Compiled module path: x.py\n")
    with pytest.raises(UsageError, match="--eager needs a program to run"):
        resolve_target(BreakdownRequest("run.log", eager=True))


def test_a_command_that_starts_no_python(tmp_path: Path) -> None:
    done = runs.breakdown(tmp_path / "run", "--", "sh", "-c", "exit 0")
    (failure,) = done.record["failures"]
    assert done.code == 1 and failure["kind"] == "no-python" and "breakdown -- python train.py" in failure["hint"]
    assert done.record["request"]["kind"] == "command" and done.record["request"]["arguments"] == ["sh", "-c", "exit 0"]


def test_a_command_that_compiles_nothing_and_its_secrets(tmp_path: Path) -> None:
    done = runs.breakdown(tmp_path / "run", "--", sys.executable, "-c", "print(1)", "--api-key", "hunter2-secret")
    (failure,) = done.record["failures"]
    assert failure["kind"] == "nothing-compiled"
    assert "hunter2" not in (done.folder / "record.json").read_text() + done.printed

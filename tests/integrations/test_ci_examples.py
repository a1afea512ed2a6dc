"""The examples for pull requests: their YAML, the script that both call, and the commands in it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml
from conftest import ROOT
from documented import refusal

EXAMPLES = ROOT / "examples" / "ci"
SCRIPT = EXAMPLES / "compare.sh"

STAND_IN = """#!{python}
import pathlib, shutil, sys
sys.path.insert(0, {root!r})
from inductor_bench.cli.main import main

if sys.argv[1] == "breakdown":  # the program names the RUN that stands for its measurement
    recorded = pathlib.Path(sys.argv[-1]).read_text()
    if not recorded:
        sys.exit("error: the program compiled nothing")
    shutil.copytree(recorded, sys.argv[sys.argv.index("-o") + 1])
else:
    sys.exit(main(sys.argv[1:]))
"""


def read(name: str) -> Any:
    return yaml.safe_load((EXAMPLES / name).read_text())


def test_the_workflow_measures_keeps_comments_and_then_judges() -> None:
    workflow = read("github.yml")
    assert workflow[True] == "pull_request"  # YAML 1.1 reads the key "on" as true
    assert workflow["permissions"] == {"contents": "read", "pull-requests": "write"}
    (job,) = workflow["jobs"].values()
    steps = job["steps"]
    names = [one.get("name") or one.get("uses") or one["run"] for one in steps]
    assert names[-4:] == ["compare", "actions/upload-artifact@v4", "comment", "verdict"]
    assert "head/ci/compare.sh base head" in steps[-4]["run"] and "inductor-bench/comment.md" in steps[-2]["run"]
    assert [one["with"]["path"] for one in steps[:2]] == ["head", "base"]


@pytest.mark.parametrize(("code", "ends"), [(0, 0), (1, 1), (4, 4), (5, 0)])
def test_only_an_undecided_comparison_passes_without_a_proof(code: int, ends: int) -> None:
    (job,) = read("github.yml")["jobs"].values()
    ended = subprocess.run(["bash", "-e", "-c", job["steps"][-1]["run"]], env={**os.environ, "CODE": str(code)})
    assert ended.returncode == ends


def test_the_template_does_the_same() -> None:
    job = read("gitlab.yml")["step-time"]
    assert job["allow_failure"] == {"exit_codes": 5} and job["artifacts"]["when"] == "always"
    assert any("ci/compare.sh base ." in line for line in job["script"]) and job["script"][-1] == 'exit "$code"'
    for line in job["script"]:
        assert subprocess.run(["bash", "-n", "-c", line]).returncode == 0


def test_the_commands_of_the_script_can_be_typed() -> None:
    text = SCRIPT.read_text().replace("\\\n", " ")
    commands = re.findall(r"^[^#\n]*?\binductor-bench ((?:breakdown|compare) [^>)]*)", text, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["breakdown", "compare"]
    for command in commands:
        words = re.sub(r'"\$limit"', "5%", command)
        assert "is no such" not in refusal(words) and "No such option" not in refusal(words), command


@pytest.fixture
def compared(tmp_path: Path) -> Any:
    """Runs the script with recorded RUNs of two checkouts. Returns its exit code and its comment."""
    program = tmp_path / "bin" / "inductor-bench"
    program.parent.mkdir()
    program.write_text(STAND_IN.format(python=sys.executable, root=str(ROOT)))
    program.chmod(0o755)
    for name in ("train", "loss"):
        with ZipFile(ROOT / "tests" / "data" / "documented" / f"{name}.zip") as archive:
            archive.extractall(tmp_path / name)

    def run(base: str, head: str, limit: str) -> tuple[int, str]:
        for side, name in (("base", base), ("head", head)):
            (tmp_path / side).mkdir(exist_ok=True)
            (tmp_path / side / "train.py").write_text(str(tmp_path / name) if name else "")
        path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
        words = [str(SCRIPT), "base", "head", "train.py", limit]
        ended = subprocess.run(words, cwd=tmp_path, env={**os.environ, "PATH": path}, timeout=600)
        return ended.returncode, (tmp_path / "inductor-bench" / "comment.md").read_text()

    return run


def lines_of(comment: str) -> list[str]:
    return [line for line in comment.splitlines() if line]


def test_a_slower_change_is_told_in_ten_lines(compared: Any, tmp_path: Path) -> None:
    code, comment = compared("loss", "train", "1%")
    assert code == 4 and "slower" in comment and len(lines_of(comment)) <= 10
    assert "**B is " in comment and "Limit of 1%" in comment
    assert "comparison.md" in ZipFile(tmp_path / "inductor-bench" / "difference.zip").namelist()


def test_a_program_that_cannot_be_measured_is_told(compared: Any) -> None:
    code, comment = compared("train", "", "5%")
    assert code == 1 and "compared nothing (exit code 1)" in comment and "compiled nothing" in comment

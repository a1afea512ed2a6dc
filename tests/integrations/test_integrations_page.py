"""The examples of ``docs/integrations.md`` in a process without torch: what they show of a run is a recorded one's."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import markdown_pages
import pytest
import yaml
from conftest import ROOT
from documented import documented, refusal

import inductor_bench
from inductor_bench.cli.main import main
from inductor_bench.errors import InductorBenchError
from inductor_bench.integrations import step_bench
from inductor_bench.report.run.observed_run import ObservedRun
from inductor_bench.store.folder import RunFolder

PAGE = markdown_pages.read((ROOT / "docs" / "integrations.md").read_text(encoding="utf-8"))


def example(words: str) -> str:
    """The example of the page with these words."""
    (found,) = [block for block in PAGE.blocks if words in block]
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with recorded RUNs."""
    for name, place in (("train", "stored/train"), ("train", "base"), ("loss", "head")):
        with ZipFile(ROOT / "tests" / "data" / "documented" / f"{name}.zip") as archive:
            archive.extractall(tmp_path / place)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def recorded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ObservedRun:
    """What a block gives at its end: the recorded run, whose steps are measured after the second one."""
    answers = iter([False, True])
    run = ObservedRun(folder / "base", is_measured=lambda: next(answers))

    @contextlib.contextmanager
    def observe(*_: object, **__: object) -> Iterator[ObservedRun]:
        yield run
        run.finish(RunFolder(folder / "base").load())

    monkeypatch.setattr(inductor_bench, "observe", observe)
    monkeypatch.setattr(step_bench, "observe", observe)
    return run


def test_a_block_in_a_script(recorded: ObservedRun, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[int] = []
    exec(example('with inductor_bench.observe("runs/mine")'), {"loader": range(9), "train_step": seen.append})
    printed = capsys.readouterr().out
    assert seen == [0, 1] and "Where the step goes" in printed
    assert f"{recorded.headline} {recorded.step_time_s}\n{recorded.kernels['triton_red*'].time_s}\n" in printed
    assert "inductor-bench modes" in printed


def test_a_fixture_in_a_test(recorded: ObservedRun, folder: Path) -> None:
    names: dict[str, Any] = {"train_step": lambda: None}
    exec(example("def test_step(inductor_bench)"), names)
    names["test_step"](step_bench.StepBench(folder / "runs", "test_step"))


def test_a_comparison_in_a_pull_request(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = documented("inductor-bench compare base head --fail-above 5% --format md --bundle difference.zip")
    assert main(words) == 0
    assert "**B is 6.7% faster" in capsys.readouterr().out and (folder / "difference.zip").is_file()


def test_kernels_are_found_by_name_and_glob(recorded: ObservedRun) -> None:
    with pytest.raises(InductorBenchError, match="has not come to its end"):
        _ = recorded.kernels
    with inductor_bench.observe():
        pass
    kernels = recorded.kernels
    first = next(iter(kernels))
    assert first in kernels and kernels[first].calls == 2 and first.startswith("nvjet")
    assert kernels["*"].time_s == pytest.approx(sum(one.time_s for one in kernels.values()))
    assert kernels["*"].share == pytest.approx(kernels["*"].time_s / recorded.step_time_s)
    assert "triton_nothing*" not in kernels
    with pytest.raises(KeyError, match="no kernel fits 'triton_nothing\\*'; there are nvjet"):
        _ = kernels["triton_nothing*"]


def test_a_notebook_shows_words_and_no_markup_of_a_name(recorded: ObservedRun) -> None:
    assert "has not come to its end" in recorded._repr_html_()
    with inductor_bench.observe():
        pass
    page = recorded._repr_html_()
    assert page.startswith("<p><b>3.57 ms a step") and "<td>backward</td><td>1.81 ms</td><td>50.8%</td>" in page
    assert 'href="base/report.html"' in page and "Try: <code>inductor-bench" in page
    assert len(page) < 10_000


# The examples for pull requests: their YAML, the script that both call, and the commands in it.


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

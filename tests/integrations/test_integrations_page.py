"""The examples of ``docs/integrations.md`` in a process without torch: what they show of a run is a recorded one's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import markdown_pages
import pytest
from conftest import ROOT
from documented import documented

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

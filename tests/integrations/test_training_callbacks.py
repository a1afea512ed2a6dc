"""The callbacks in trainings of the real libraries, and the block of a training by itself."""

from __future__ import annotations

import functools
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import breakdown_runs as runs
import forking_python
import markdown_pages
import pytest
from conftest import ROOT

import inductor_bench
from inductor_bench.integrations.training import ObservedTraining

PACKAGES = {"transformers": ("transformers", "accelerate"), "lightning": ("lightning",)}
PAGE = markdown_pages.read((ROOT / "docs" / "integrations.md").read_text(encoding="utf-8"))


@functools.cache
def notes(library: str, *words: str) -> list[Any]:
    """What the blocks of ``tests/programs/trainings.py`` noted."""
    for package in PACKAGES.get(library, (library,)):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    ended = forking_python.run([str(runs.PROGRAMS / "trainings.py"), library, *words])
    assert ended.returncode == 0, ended.stderr
    line = next(line for line in ended.stdout.splitlines() if line.startswith("NOTES "))
    return json.loads(line.removeprefix("NOTES "))


@pytest.mark.parametrize("library", PACKAGES)
def test_a_training_is_observed_until_its_steps_are_measured(library: str) -> None:
    (first, *_), is_run = notes(library)
    assert first == ["runs/mine", {"name": "", "force": True, "samples": True}, 3, "whole", True] and is_run


@pytest.mark.parametrize("library", PACKAGES)
def test_a_second_training_is_not_observed_and_one_that_fails_is_told(library: str) -> None:
    (_, *others), _ = notes(library)
    ((output, options, steps, ended, yields),) = others
    assert output is None and options == {"name": "other", "force": False, "samples": False} and yields
    assert steps == 1  # two batches make a step
    assert ended == {"transformers": None, "lightning": "RuntimeError"}[library]


def test_a_loop_with_accelerate_marks_a_step_where_the_gradients_are_complete(tmp_path: Path) -> None:
    (loop,) = [block for block in PAGE.blocks if "accelerator.sync_gradients" in block]
    (tmp_path / "loop.py").write_text(loop)
    ((output, _, steps, ended, _),), _ = notes("accelerate", str(tmp_path / "loop.py"))
    assert (output, steps, ended) == ("runs/accelerate", 2, "whole")


@pytest.mark.parametrize("library", PACKAGES)
def test_the_page_shows_the_callback_that_the_trainings_have(library: str) -> None:
    line = f"from inductor_bench.integrations.{library} import InductorBenchCallback"
    (block,) = [block for block in PAGE.blocks if line in block.splitlines()]
    assert line in (runs.PROGRAMS / "trainings.py").read_text() and "callbacks=[InductorBenchCallback()]" in block


class Block:
    """A block, and what it gives, whose steps are measured when it is told so."""

    def __init__(self, folder: Path | None) -> None:
        self.folder, self.is_measured, self.run, self.yields = folder, False, self, False
        self.ends: list[Any] = []

    def __enter__(self) -> Block:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.ends.append(kind)

    def __str__(self) -> str:
        return "the screen"


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Block]]:
    waiting: list[Block] = []
    monkeypatch.setattr(inductor_bench, "observe", lambda *_, **__: waiting.pop(0))
    yield waiting


def training() -> ObservedTraining:
    return ObservedTraining(None, name="", force=False, samples=True)


def test_the_screen_is_printed_once(blocks: list[Block], capsys: pytest.CaptureFixture[str]) -> None:
    block = Block(Path("run"))
    blocks.append(block)
    observed = training()
    observed.begin()
    observed.step()
    assert block.ends == [] and block.yields
    block.is_measured = True
    observed.step()
    observed.step()
    observed.end()
    assert block.ends == [None] and capsys.readouterr().out == "the screen\n"


def test_a_process_that_is_not_observed_trains_in_silence(
    blocks: list[Block], capsys: pytest.CaptureFixture[str]
) -> None:
    block = Block(None)  # as on another rank
    blocks.append(block)
    observed = training()
    observed.begin()
    observed.step()
    observed.end(ValueError())
    assert block.ends == [] and capsys.readouterr().out == ""

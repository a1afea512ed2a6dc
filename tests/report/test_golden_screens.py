"""Whole screens and Markdown of results, word by word. No other test pins their English."""

from __future__ import annotations

from pathlib import Path

import compared_runs
import mode_rows
import pytest
import run_builder as build
import step_runs
import tried_programs
from golden import golden
from h200 import unpack_batch
from printed import printed, run_markdown, run_screen

from inductor_bench.analysis.comparison_run import compare_runs
from inductor_bench.report import comparison_document, modes_document, optimization_document
from inductor_bench.report.batch import batch_document
from inductor_bench.report.batch.batch_tables import BatchView
from inductor_bench.report.formats import View
from inductor_bench.workflows.batch_state import read_view

RUNS = {"mixnet": build.mixnet, "cpu": build.cpu, "empty": build.empty, "host_paced": step_runs.host_paced}
RUNS["simulated"] = step_runs.simulated


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("width", [60, 100])
def test_a_run_on_a_terminal(name: str, width: int) -> None:
    golden(f"run-{name}-{width}.txt", run_screen(RUNS[name](), width))


def test_a_run_in_markdown() -> None:
    golden("run-host_paced.md", run_markdown(step_runs.host_paced()))


def test_a_comparison() -> None:
    other = compared_runs.run(compared_runs.changed("triton_poi_fused_relu_2", kernel_id="other"), longer=1.4)
    found = compare_runs([compared_runs.run()], [other], ("runs/a", "runs/b"))
    golden("comparison-100.txt", printed(comparison_document.FORMATS.get("table"), found, View(limit=0.05)))


def test_modes() -> None:
    eager = mode_rows.row("eager", [0.100, 0.101, 0.099, 0.100])
    found = mode_rows.comparison(eager, mode_rows.row("default", [0.050, 0.0501, 0.0499, 0.050], 10.0))
    golden("modes-100.txt", printed(modes_document.FORMATS.get("table"), found))


def test_a_search_for_settings() -> None:
    found = tried_programs.optimization(tried_programs.two_winners())
    shown = printed(optimization_document.FORMATS.get("table"), found, View(Path("runs/train-optimize/optimized")))
    golden("optimization-100.txt", shown)


def test_a_batch_with_searches() -> None:
    view = BatchView(tried_programs.searched_batch())
    golden("batch-searches-100.txt", printed(batch_document.FORMATS.get("table"), view, View(Path("batches/suite"))))
    golden("batch-searches.md", printed(batch_document.FORMATS.get("md"), view, View(top=3)))


def test_a_batch(tmp_path: pytest.TempPathFactory) -> None:
    view = read_view(unpack_batch(tmp_path / "batch"))  # type: ignore[operator]
    shown = printed(batch_document.FORMATS.get("md"), view, View(top=3))
    golden("batch.md", shown)

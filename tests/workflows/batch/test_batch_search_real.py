"""A batch of two real models that are searched for settings: one is found to help the one, and the other fails."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from batch_runs import quick, run, statuses
from conftest import ROOT
from forking_python import interpreter

from inductor_bench.launch import batch_executors
from inductor_bench.records.optimization import KEPT
from inductor_bench.records.request import SearchRequest
from inductor_bench.workflows.batch_state import report_batch

__all__ = ["quick"]
MODELS = ROOT / "tests" / "programs" / "many_parameters.py"


def test_a_setting_that_helps_is_told_with_the_models_that_it_helps(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_executors, "ENTRY", (str(ROOT / "tests" / "support" / "real_search_child.py"),))
    lines = f"{MODELS}:many|{MODELS}:broken"
    found = run(
        tmp_path,
        lines,
        search=SearchRequest(optimize=True, budget_s=3600.0),
        overrides={"training": True},
        python=interpreter(),
    )
    many, broken = "many_parameters-many", "many_parameters-broken"
    assert statuses(found) == {many: "done", broken: "partial"}, found[many].failure
    failure = found[broken].failure
    assert failure is not None and failure.stage == "optimize" and "no such size" in failure.message
    view = report_batch(tmp_path / "b").view
    search = dict(view.searches)[many]
    assert search.winner is not None and search.winner.gain.share > 0.1
    (kept,) = [row for row in search.rows if row.state == KEPT]
    with (tmp_path / "b" / "settings.csv").open() as stream:
        table = {row["setting"]: row for row in csv.DictReader(stream)}
    assert kept.group == "optimizer"
    assert (table[kept.slug]["tried"], table[kept.slug]["helped_models"]) == ("2", many)
    assert table[kept.slug]["failed"] == "1" and "no such size" in table[kept.slug]["reasons"]

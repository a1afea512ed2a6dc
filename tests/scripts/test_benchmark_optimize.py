"""The table of searches: what a saving by the stopwatch says of the interval, and which programs are searched."""

from __future__ import annotations

import argparse
import ast
import difflib
import math
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from inductor_bench.records.optimization import GROUPS
from scripts import benchmark_optimize
from scripts.benchmark_optimize import (
    PLANTED,
    PROGRAMS,
    WRONG,
    Job,
    cells_of,
    changes_of,
    is_mended,
    more_columns,
    patched,
    reached,
    reproduced,
    same_searches,
    summary,
)


def options(folder: Path, **fields: Any) -> argparse.Namespace:
    usual = {"same": False, "planted": False, "wrong": False, "exhaustive": False, "options": "", "budget": 60.0}
    return argparse.Namespace(**{**usual, "output": folder, "pairs": 2, **fields})


def searched(saved: float, **fields: Any) -> dict[str, Any]:
    found = {"settings": ["fused-optimizer"], "groups": ["optimizer"], "before_s": 0.01, "after_s": 0.01 * (1 - saved)}
    found |= {"saved": saved, "low": saved - 0.02, "high": saved + 0.02, "tried": 4, "spent_s": 60.0, "rows": []}
    return {"program": "foreach_off", "kind": "foreach off", "note": "", "search": {**found, "seemed": []}, **fields}


def test_a_saving_by_the_stopwatch_is_held_against_the_interval() -> None:
    def said(*changed: float) -> str:
        found: str = reproduced({"A": [1.0, 1.0], "B": changed}, "B", 0.18, 0.22)["said"]
        return found

    assert [said(0.8, 0.8), said(0.7, 0.82), said(0.9, 0.9), said(0.6, 0.6)] == ["yes", "noise", "less", "more"]


def test_the_share_of_a_long_search_is_that_of_the_logarithms() -> None:
    row = searched(0.1, long=searched(0.19)["search"])
    assert reached(row) == pytest.approx(math.log(0.9) / math.log(0.81)) and reached(searched(0.1)) is None
    assert reached(searched(0.0, long=searched(0.0)["search"])) == 1.0


def test_each_line_has_a_cell_for_each_column(tmp_path: Path) -> None:
    times = {"A": [1.0, 1.0], "B": [0.8, 0.8], "C": [0.8, 0.9]}
    for kind in ("", "same", "planted", "wrong"):
        asked = options(tmp_path, **{kind: True} if kind else {})
        count = len(benchmark_optimize.COLUMNS) + len(more_columns(asked))
        for row in (searched(0.2, processes=times), {"program": "x", "kind": "y", "note": "failed"}):
            assert len(cells_of(row, asked)) == count, kind


def test_the_last_lines_say_how_much_was_saved_and_mended(tmp_path: Path) -> None:
    rows = [searched(0.19, processes={"A": [1.0], "B": [0.81]}), searched(0.0)]
    said = list(summary(rows, options(tmp_path, planted=True)))
    assert said[0].startswith("together: 10.0% less time") and said[1] == "mended: 2 of 2"
    assert said[2] == "with apply.py: 1 of 1 in the interval" and is_mended(rows[0])


def test_a_change_in_the_form_of_a_diff_is_made(tmp_path: Path) -> None:
    before = "".join(f"line {number}\n" for number in range(30))
    after = before.replace("line 3\n", "line three\nand more\n").replace("line 27\n", "")
    change = "".join(difflib.unified_diff(before.splitlines(True), after.splitlines(True), "a/x", "b/x"))
    ((name, own), (other, _)) = changes_of(change + change.replace("/x", "/folder/y"))
    assert (name, other) == ("x", "folder/y") and patched(before, own) == after
    with pytest.raises(AssertionError):
        patched(after, own)


def test_the_programs_are_there_and_their_groups_are_those_of_the_menu() -> None:
    for program in (*PROGRAMS, *PLANTED, *WRONG):
        file = ROOT / "scripts" / program.file
        assert file.is_file() and set(program.mends) <= set(GROUPS)
        names = {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)}
        assert set(program.words) <= names
    assert len({program.kind for program in PROGRAMS}) >= 7 and len(PROGRAMS) == len(PLANTED) == 10
    assert all(len({one.name for one in programs}) == len(programs) for programs in (PROGRAMS, PLANTED, WRONG))


def test_a_search_that_changes_nothing_sets_options_to_what_they_are() -> None:
    config = pytest.importorskip("torch._inductor.config").get_config_copy()
    found = same_searches(PROGRAMS, 12)
    assert [one.name for one in found[9:]] == ["loader-1", "accumulation-2", "trainer-2"]
    asked = [word.partition("=") for word in found[0].options if word.startswith("inductor.")]
    assert len(asked) >= 4
    assert all(str(config[name.removeprefix("inductor.")]) == value for name, _, value in asked)


def test_what_a_row_has_is_not_measured_again(tmp_path: Path) -> None:
    asked = options(tmp_path, planted=True)
    job = Job(PLANTED[0], asked, 0.0)
    job.measure({})
    assert job.row["note"] == "search: no time was left" and "search" not in job.row
    job.row |= searched(0.2, twin=0.008, processes={"A": [0.01], "B": [0.008]})
    job.note("")
    again = Job(PLANTED[0], asked, 0.0)
    again.measure({})
    assert again.row == {**job.row, "note": ""}

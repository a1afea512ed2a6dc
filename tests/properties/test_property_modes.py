"""Any comparison of modes that a file may hold is concluded and shown in each format."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import drawn_records
import mode_rows
import pytest
from hypothesis import assume, given, settings
from printed import printed

from inductor_bench.analysis.mode_conclusion import conclude
from inductor_bench.errors import InductorBenchError
from inductor_bench.records.comparison import ModeComparison
from inductor_bench.report.formats import View
from inductor_bench.report.modes_document import FORMATS
from inductor_bench.store import codec


@settings(max_examples=15)
@given(comparison=drawn_records.records(ModeComparison))
def test_any_comparison_of_modes_is_shown(comparison: ModeComparison) -> None:
    assume(comparison.rows)  # a comparison without rows is begun anew
    names = (str(number) for number in itertools.count())
    rows = tuple(replace(row, name=name) for row, name in zip(comparison.rows, names, strict=False))
    found = conclude(replace(comparison, rows=rows))
    assert all(printed(form, found) for form in FORMATS.rows)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("processes", 0, "step_time_s"), 0.0, "the time of a step"),
        (("processes", 0, "step_time_s"), -1.0, "the time of a step"),
    ],
)
def test_a_comparison_that_cannot_be_concluded_is_refused_in_words(place: Any, value: Any, said: str) -> None:
    data = codec.encode(mode_rows.comparison(mode_rows.row("default", [0.05, 0.05])))
    parent = data["rows"][0]
    for step in place[:-1]:
        parent = parent[step]
    parent[place[-1]] = value
    with pytest.raises(InductorBenchError, match=said):
        codec.decode(ModeComparison, data)


def test_a_graph_break_without_a_reason_is_shown() -> None:
    compared = mode_rows.comparison(mode_rows.row("default", [0.05, 0.05], graph_breaks=(" \n",)))
    assert "1 graph break, the first one: without a reason" in FORMATS.get("md").render(compared, View())

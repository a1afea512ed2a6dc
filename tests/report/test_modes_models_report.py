"""The report of a list of models: which mode for which model."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest
from mode_rows import comparison, row
from printed import printed

from inductor_bench.records.base import Failure
from inductor_bench.records.comparison import ModelModes, ModesByModel
from inductor_bench.report.formats import View
from inductor_bench.report.table_documents import LIST_FORMATS as FORMATS

EAGER = row("eager", [0.100, 0.101, 0.099, 0.100])
DEFAULT = row("default", [0.050, 0.0501, 0.0499, 0.050], 10.0, codes=("a",))
SLOW = row("default", [0.200, 0.201, 0.199, 0.200], 10.0, codes=("a",))
WILD = row("default", [0.02, 0.09, 0.03, 0.08], 10.0, codes=("a",))
HUNG = replace(row("max-autotune", []), failure=Failure("mode", "timeout", "it hung"))
MODELS = ModesByModel(
    "configs/smoke.txt",
    (
        ModelModes("fast", comparison(EAGER, DEFAULT, HUNG)),
        ModelModes("also-fast", comparison(EAGER, DEFAULT)),
        ModelModes("small", comparison(EAGER, SLOW)),
        ModelModes("noisy", comparison(EAGER, WILD)),
        ModelModes("broken", failure=Failure("mode", "invalid", "no such model")),
    ),
)


def screen(columns: int = 100) -> str:
    return printed(FORMATS.get("table"), MODELS, View(columns=columns))


def test_each_mode_names_its_models_and_what_to_type() -> None:
    text = screen()
    assert 'Take default for fast and also-fast.\nType      torch.compile(model, mode="default")' in text
    said = ("Take default for fast", "Leave uncompiled: small", "Undecided: noisy", "Without advice: broken")
    places = [text.index(words) for words in said]
    assert places[:2] == sorted(places[:2]) and max(places[:2]) < min(places[2:])


def test_what_went_wrong_is_said_once() -> None:
    text = screen()
    assert (
        "fast, max-autotune: it hung" in text
        and "broken: no such model" in text
        and "noisy: the differences may be noise. Run more" in text
    )


@pytest.mark.parametrize("columns", [60, 100, 120])
def test_no_line_is_wider_than_the_console(columns: int) -> None:
    assert max(map(len, screen(columns).splitlines())) <= columns


def test_csv_json_and_markdown_hold_each_model() -> None:
    text = FORMATS.get("csv").render(MODELS, View())
    assert isinstance(text, str)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(one["model"], one["take"], one["decided"]) for one in rows[:4]] == [
        ("fast", "default", "True"),
        ("also-fast", "default", "True"),
        ("small", "eager", "True"),
        ("noisy", "eager", "False"),
    ]
    assert rows[4]["failure"] == "no such model" and float(rows[0]["ratio_to_eager"]) == pytest.approx(0.5, rel=1e-2)
    shown = FORMATS.get("json").render(MODELS, View())
    assert isinstance(shown, str) and json.loads(shown)["models"][0]["comparison"]["winner"]["name"] == "default"
    page = FORMATS.get("md").render(MODELS, View())
    assert isinstance(page, str) and "| model |" in page and "broken: no such model" in page

"""What a batch says of the searches of its models."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from printed import printed
from tried_programs import DrawnProgram, menu_row, optimization, searched, searched_batch

from inductor_bench.cli import main as entry
from inductor_bench.records.batch_record import BatchResults
from inductor_bench.records.optimization import NOT_YET, Optimization
from inductor_bench.report.batch.batch_document import FORMATS
from inductor_bench.report.batch.batch_tables import BatchView
from inductor_bench.report.formats import View
from inductor_bench.store.folder import OPTIMIZED, BatchFolder, OptimizationFolder


def batch(*searches: Optimization | None) -> BatchView:
    """A batch with these searches; ``None`` is a model that was not searched."""
    whole = searched_batch()
    models = tuple(replace(one, search=search) for one, search in zip(whole.models, searches, strict=False))
    return BatchView(BatchResults(replace(whole.batch, models=tuple(one.model for one in models)), models))


def shown(view: BatchView) -> str:
    return " ".join(printed(FORMATS.get("table"), view, View(Path("b"), columns=140)).split())


def search(seed: int = 0, **fields: object) -> Optimization:
    rows = [menu_row("a"), menu_row("b")]
    return optimization(searched(DrawnProgram(seed, **fields), rows))  # type: ignore[arg-type]


def test_a_batch_without_searches_says_nothing_of_them() -> None:
    text = shown(batch(None, None))
    assert "Settings" not in text and "settings" not in text


def test_one_model_is_told_in_the_singular() -> None:
    text = shown(batch(search(savings={"a": 0.2})))
    assert "Settings: 1 of 1 model is faster, by 19.8%." in text and "geometric mean" not in text
    assert "too few models" in text and "needs 6 models" in text


def test_models_whose_settings_were_all_refused() -> None:
    refused = search(failures={"a": "refused by Inductor", "b": "refused by Inductor"})
    text = shown(batch(refused, refused))
    assert "Settings: 0 of 2 models are faster; all" not in text and "Settings: 0 of 2 models are faster." in text
    assert "failed in model_0, model_1: refused by Inductor" in text and text.count("no setting is faster") == 2


def test_what_was_not_proven_is_no_saving() -> None:
    found = search(savings={"a": 0.2})
    rows = tuple(replace(row, state="unproven") if row.slug == "a" else row for row in found.rows)
    text = shown(batch(replace(found, rows=rows, winner=None)))
    assert "0 of 1 model are faster" in text and "no setting is proven to be faster; 1 setting may be" in text


def test_a_setting_with_many_reasons_tells_the_most_frequent_ones() -> None:
    failures = ("no a", "no a", "no b", "no c", "no d", "no e")
    view = batch(*(search(failures={"a": f"{reason}"}) for reason in failures))
    text = shown(view)
    assert "failed in model_0, model_1: no a" in text and "and 2 more reasons in settings.csv" in text
    assert "no e" not in text
    (one,) = [setting for setting in view.settings if setting.slug == "a"]
    assert [failure.reason for failure in one.failures] == ["no a", "no b", "no c", "no d", "no e"]


@pytest.mark.parametrize("form", ["table", "md", "html"])
def test_each_format_has_both_tables(form: str) -> None:
    text = printed(FORMATS.get(form), BatchView(searched_batch()), View(Path("b"), columns=160)).replace("<wbr>", "")
    for said in ("Which settings help", "What each model gains", "fused-optimizer", "not finished", "no such kernel"):
        assert said in text, (form, said)


def test_a_query_has_the_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb")
    folder, whole = BatchFolder(tmp_path / "b"), searched_batch()
    from run_builder import cpu

    for one in whole.models:
        run = folder.run(one.model.request.name)
        run.path.mkdir(parents=True)
        run.save(cpu())
        if one.search is not None:
            OptimizationFolder(run.path / OPTIMIZED).make()
            OptimizationFolder(run.path / OPTIMIZED).save(one.search, str)
    folder.save(whole.batch)
    sql = "SELECT setting, tried, helps, failed, wrong, low IS NULL AS few FROM settings ORDER BY helps DESC, tried"
    assert entry.main(["query", str(folder.path), sql, "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [tuple(row.values()) for row in rows[:2]] == [
        ("fused-optimizer", 8, 7, 0, 0, False),
        ("cudagraphs", 9, 7, 0, 0, False),
    ]


def test_a_result_that_was_not_run_from_the_start_has_that_beside_its_settings() -> None:
    found = search(savings={"a": 0.2})
    assert found.winner is not None
    unconfirmed = replace(found, winner=replace(found.winner, from_start=NOT_YET))
    assert "a (not yet confirmed in new processes that start with the settings)" in shown(batch(unconfirmed))
    assert "not yet run" not in shown(batch(found))

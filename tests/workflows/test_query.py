"""The tables of a batch as Parquet and under SQL: what is in them, how answers look, and what a query may not do."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import run_builder

from inductor_bench import units
from inductor_bench.cli import main as entry
from inductor_bench.records.base import Answer, Failure
from inductor_bench.records.base import Category as C
from inductor_bench.records.batch_record import Batch, BatchModel
from inductor_bench.records.request import ModelRequest
from inductor_bench.records.run import Run
from inductor_bench.report.batch.batch_tables import SUMMARY_TABLES
from inductor_bench.report.table_documents import MOST_ROWS, make_answer_table, write_answer_json
from inductor_bench.report.terminal import render_text
from inductor_bench.store import codec
from inductor_bench.store import tables as queries
from inductor_bench.store.folder import BatchFolder, RunFolder
from inductor_bench.workflows.query import open_tables

TABLES = ("models", "graphs", "categories", "kernels", "families", "retunes", "settings", *SUMMARY_TABLES)

Ask = Callable[..., str]


def rows_of(printed: str) -> list[dict[str, Any]]:
    """The rows of a query's JSON."""
    found: list[dict[str, Any]] = json.loads(printed)["rows"]
    return found


def test_ctrl_c_stops_a_query_that_would_take_hours() -> None:
    pytest.importorskip("duckdb")
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        queries.query_tables(
            [], "SELECT count(*) FROM range(10000000000) a, range(10000000000) b WHERE a.range % 7 = b.range % 11"
        )
    timer.join()
    assert queries.query_tables([], "SELECT 1").rows == [(1,)]


def test_a_query_starts_as_many_threads_on_each_machine() -> None:
    pytest.importorskip("duckdb")
    wanted = "name IN ('threads', 'async_threads')"  # DuckDB 2.0 has async threads, by default four for each core
    assert set(queries.query_tables([], f"SELECT value FROM duckdb_settings() WHERE {wanted}").rows) == {("4",)}


def tiny(scale: float) -> Run:
    """A run of one graph: a reduction whose cost depends on the model, and a matrix product that all have."""
    name = f"triton_red_fused_mean_{scale:.0f}"
    kernels = [
        run_builder.kernel(name, C.REDUCTION, 3, scale * 1e-3, family_id="means", moved_bytes=1e9, registers=32),
        run_builder.kernel("sgemm", C.EXTERN_GEMM, 2, 2e-3, operator="aten.mm", family_id="mm", dtype="tf32"),
    ]
    module = run_builder.module("inference", kernels, (scale + 2) * 1.1e-3, run_builder.H200)
    return run_builder.run("tiny", [module], peaks=run_builder.H200)


RUNS = {"one": tiny(1), "two": tiny(2)}


@pytest.fixture
def batch(tmp_path: Path) -> Path:
    """Two models that were measured, one that failed, one that is missing."""
    folder = BatchFolder(tmp_path / "a batch")
    rows = []
    for line, name in enumerate([*RUNS, "bad", "missing"], 1):
        status = {"bad": "failed", "missing": "waiting"}.get(name, "done")
        row = BatchModel(ModelRequest(f"timm:{name}", name=name, line=line, training=False, batch_size=8), status)
        rows.append(replace(row, failure=Failure("capture", "program", "no such model")) if name == "bad" else row)
        if name in RUNS:
            folder.run(name).path.mkdir(parents=True)
            folder.run(name).save(RUNS[name])
    folder.save(Batch(1, "0.1.0", "2025-01-01T00:00:00+00:00", "inductor-bench batch x", "suite.txt", tuple(rows)))
    return folder.path


@pytest.fixture
def ask(batch: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    pytest.importorskip("duckdb")

    def run(sql: str, form: str = "json", folder: Path = batch) -> str:
        assert entry.main(["query", str(folder), sql, "--format", form]) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def without_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)


def test_every_column_is_typed_and_explained(batch: Path) -> None:
    tables = open_tables(batch).tables
    assert tuple(table.name for table in tables) == TABLES
    assert [len(table) for table in tables] == [4, 2, 6, 4, 2, 0, 0, 2, 0, 6, 4]
    for table in tables:
        assert len({column.name for column in table.columns}) == len(table.columns)
        assert {len(column.values) for column in table.columns} == {len(table)}
        assert all(column.about for column in table.columns)


def test_a_row_is_what_the_record_says(ask: Ask) -> None:
    rows = rows_of(ask("SELECT * FROM kernels ORDER BY model, time_s"))
    assert [(row["model"], row["graph"]) for row in rows] == [
        (name, "inference") for name in ("one", "one", "two", "two")
    ]
    recorded = {(name, kernel.kernel_id): kernel for name, run in RUNS.items() for kernel in run.modules[0].kernels}
    suite = sum(run.modules[0].times.wall_time_s or 0 for run in RUNS.values())
    for row in rows:
        kernel = recorded[row["model"], row["kernel_id"]]
        assert row["category"] == kernel.category.value and row["time_s"] == kernel.time_s
        for field in ("name", "family_id", "calls", "peak_share", "bound", "gain_limit_s", "operator", "moved_bytes"):
            assert row[field] == codec.encode(kernel)[field], field
        assert (row["dtype"], row["registers"], row["speedup"]) == (kernel.work.dtype, kernel.compiled.registers, None)
        assert row["share"] == pytest.approx(kernel.time_s / suite)


def test_the_tables_agree_with_each_other(ask: Ask) -> None:
    joined = """
        SELECT m.model, m.time_s AS model_s, sum(c.time_s) AS parts_s, sum(c.share) AS share, any_value(g.share) AS g
        FROM models m JOIN graphs g USING (model) JOIN categories c USING (model, graph) GROUP BY ALL
    """
    for row in rows_of(ask(joined)):
        assert row["parts_s"] == pytest.approx(row["model_s"]) and row["share"] == pytest.approx(row["g"])
    families = """
        SELECT f.family_id, f.launches, sum(k.calls) AS calls, f.share, sum(k.share) AS of_kernels, f.gain_limit_s,
               sum(k.gain_limit_s) AS gains, f.models, count(DISTINCT k.model) AS names
        FROM families f JOIN kernels k USING (family_id) GROUP BY ALL ORDER BY ALL
    """
    means, products = rows_of(ask(families))
    for row in (means, products):
        assert row["launches"] == row["calls"] and row["share"] == pytest.approx(row["of_kernels"])
        assert row["models"] == row["names"] == 2
    assert means["gain_limit_s"] == pytest.approx(means["gains"]) and products["gain_limit_s"] is None


def test_what_is_not_known_is_null(ask: Ask) -> None:
    rows = rows_of(ask("SELECT model, status, time_s, stage, training, mode, batch_size FROM models ORDER BY model"))
    bad, missing, one, _ = rows
    assert (bad["status"], bad["time_s"], bad["stage"]) == ("failed", None, "capture")
    assert (missing["status"], missing["time_s"], missing["stage"]) == ("waiting", None, None)
    assert one["training"] is False and one["mode"] is None and one["batch_size"] == 8
    assert rows_of(ask("SELECT count(*) AS n FROM kernels WHERE operator = ''")) == [{"n": 0}]


def test_parquet_has_the_same_rows(batch: Path, ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    import duckdb

    assert entry.main(["report", str(batch), "--brief"]) == 0
    assert "2 of 4 models measured" in capsys.readouterr().out
    assert not (batch / "summary.csv").exists(), "it writes nothing"
    assert entry.main(["report", str(batch), "--no-plots"]) == 0
    capsys.readouterr()
    for name in TABLES[: -len(SUMMARY_TABLES)]:
        stored = duckdb.sql(f"FROM '{batch / name}.parquet'")
        types = dict(zip(stored.columns, map(str, stored.types), strict=True))
        table = next(table for table in open_tables(batch).tables if table.name == name)
        assert types == {column.name: column.type for column in table.columns}
        assert stored.fetchall() == [tuple(row.values()) for row in rows_of(ask(f"FROM {name}"))]


def test_without_duckdb_all_else_is_there(
    batch: Path, capsys: pytest.CaptureFixture[str], without_duckdb: None
) -> None:
    (batch / "kernels.parquet").write_bytes(b"of an earlier report")
    assert entry.main(["report", str(batch), "--no-plots"]) == 0
    assert "pip install 'inductor-bench[query]'" in capsys.readouterr().err
    assert not list(batch.glob("*.parquet")) and (batch / "kernels.csv").is_file()
    assert entry.main(["query", str(batch)]) == 0
    assert "moved_bytes" in capsys.readouterr().out
    assert entry.main(["query", str(batch), "FROM kernels"]) == 1
    assert "Hint: pip install 'inductor-bench[query]'" in capsys.readouterr().err


def test_tables_and_columns_are_listed(batch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["query", str(batch)]) == 0
    out = capsys.readouterr().out
    assert "kernels   4 rows, one for each kernel" in out and f"inductor-bench query '{batch}' \"SELECT" in out
    assert max(len(line) for line in out.splitlines() if str(batch) not in line) <= 100
    assert entry.main(["query", str(batch), "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["table"] for row in rows} == set(TABLES)
    assert next(row["type"] for row in rows if row["column"] == "registers") == "BIGINT"


def test_the_examples_of_the_listing_work(batch: Path, ask: Ask) -> None:
    from inductor_bench.report.table_documents import EXAMPLES

    for example in EXAMPLES:
        assert rows_of(ask(example))


def test_a_run_is_a_batch_of_one(tmp_path: Path, ask: Ask) -> None:
    path = tmp_path / "mine"
    path.mkdir()
    RunFolder(path).save(replace(run_builder.mixnet(), failures=(Failure("profile", "exit", "a graph failed"),)))
    (row,) = rows_of(ask("SELECT model, status, batch_size, amp, graphs, message FROM models", folder=path))
    assert tuple(row.values()) == ("mine", "partial", 128, "float16", 2, "a graph failed")
    assert rows_of(ask("SELECT count(*) AS n, round(sum(share), 2) AS s FROM kernels", folder=path))[0]["n"] == 641


def test_forms(ask: Ask) -> None:
    sql = "SELECT model, 'a|b' AS pipe, [1, 2] AS list, NULL AS nothing, 1.25 AS exact, 1e-5 / 3 AS small FROM graphs"
    first = ask(sql, "table").splitlines()
    assert first[0].split() == ["model", "pipe", "list", "nothing", "exact", "small"]
    assert first[1].split() == ["one", "a|b", "1;", "2", units.MISSING, "1.25", "3.33333e-06"]
    assert ask(sql, "csv").splitlines()[1] == f"one,a|b,1; 2,,1.25,{1e-5 / 3!r}"
    assert ask(sql, "md").splitlines()[2].startswith("| one | a\\|b | 1; 2 |")
    assert rows_of(ask(sql))[0] == {
        "model": "one", "pipe": "a|b", "list": [1, 2], "nothing": None, "exact": 1.25, "small": 1e-5 / 3
    }  # fmt: skip


@pytest.mark.parametrize("form", ["table", "csv", "json", "md"])
@pytest.mark.parametrize("sql", ["-- nothing", "SELECT model FROM models WHERE false", "CREATE TABLE mine (a INT)"])
def test_queries_without_rows(sql: str, form: str, batch: Path, ask: Ask) -> None:
    assert "one" not in ask("/* */" + sql, form)


@pytest.mark.parametrize(
    ("sql", "message", "hint"),
    [
        ("SELEC 1", 'syntax error at or near "SELEC"', "the tables and their columns are listed"),
        ("SELECT categori FROM kernels", '"categori" not found', '"category"'),
        ("FROM kernel", "Table with name kernel does not exist", '"kernels"'),
        ("FROM nosuch", "Table with name nosuch does not exist", "the tables are models, graphs, "),
        ("SELECT model::INT FROM models", "Could not convert", ""),
        ("SELECT $1", "parameters", ""),
        ("SELECT INTERVAL 100000000 YEAR", "too large", ""),
        ("SET threads = 1", "has been locked", ""),
    ],
)
def test_what_is_no_query(sql: str, message: str, hint: str, batch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb")
    assert entry.main(["query", str(batch), sql]) == 2
    first, *more = capsys.readouterr().err.splitlines()
    assert message in first and len(more) == 1 and hint in more[0]


@pytest.mark.parametrize(
    "sql",
    [
        "COPY kernels TO '{}/models/x.csv'",
        "EXPORT DATABASE '{}'",
        "ATTACH '{}/x.db'",
        "FROM '{}/batch.json'",
        "DELETE FROM kernels; DROP TABLE models; COPY graphs TO '{}/batch.json'",
    ],
)
def test_a_query_reaches_no_file(sql: str, batch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb")
    before = {path: path.read_bytes() for path in batch.rglob("*") if path.is_file()}
    assert entry.main(["query", str(batch), sql.format(batch)]) == 2
    assert "a query only reads the tables" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in batch.rglob("*") if path.is_file()} == before


def test_a_folder_of_something_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["query", str(tmp_path), "FROM kernels"]) == 1
    err = capsys.readouterr().err
    assert "neither batch.json nor record.json" in err and "Hint: give a folder" in err
    assert entry.main(["query", str(tmp_path / "gone")]) == 2


def test_a_damaged_record_is_left_out(batch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb")
    record = batch / "models" / "one" / "record.json"
    record.write_text(record.read_text().replace('"registers": 32', '"registers": "many"'))
    assert entry.main(["query", str(batch), "SELECT DISTINCT model FROM kernels", "--format", "csv"]) == 0
    out, err = capsys.readouterr()
    assert out.split() == ["model", "two"] and err.count("\n") == 1 and f"left out: {record} is damaged" in err


def test_a_number_that_cannot_be_is_left_out(batch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb")
    record = batch / "models" / "one" / "record.json"
    record.write_text(record.read_text().replace('"registers": 32', '"registers": Infinity'))
    assert entry.main(["query", str(batch), "SELECT DISTINCT model FROM kernels", "--format", "csv"]) == 0
    out, err = capsys.readouterr()
    assert out.split() == ["model", "two"] and f"left out: {record} is damaged" in err


def test_names_that_are_no_utf8_and_numbers_beyond_all_types(batch: Path, ask: Ask) -> None:
    stored = BatchFolder(batch).load()
    odd = replace(stored.models[0].request, target="caf\udce9.py", batch_size=10**19)
    BatchFolder(batch).save(replace(stored, models=(replace(stored.models[0], request=odd), *stored.models[1:])))
    (row,) = rows_of(ask("SELECT target, batch_size FROM models WHERE model = 'one'"))
    assert row == {"target": "caf\\udce9.py", "batch_size": None}
    assert entry.main(["report", str(batch), "--no-plots"]) == 0 and (batch / "models.parquet").is_file()


def test_a_query_typed_in_another_locale(ask: Ask) -> None:
    typed = "SELECT 'Käse' AS word".encode().decode("ascii", "surrogateescape")
    assert rows_of(ask(typed)) == [{"word": "Käse"}]


def test_a_batch_with_nothing_measured(batch: Path, ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    stored = BatchFolder(batch).load()
    waiting = tuple(replace(row, status="waiting") for row in stored.models)
    BatchFolder(batch).save(replace(stored, models=waiting))
    assert rows_of(ask("SELECT count(*) AS n, sum(time_s) AS s FROM kernels")) == [{"n": 0, "s": None}]
    assert entry.main(["query", str(batch), "FROM kernels"]) == 0
    out, err = capsys.readouterr()
    assert out == "no rows\n" and "nothing is measured" in err
    assert entry.main(["report", str(batch), "--no-plots"]) == 0 and (batch / "kernels.parquet").is_file()


def drawn(answer: Answer, width: int) -> list[str]:
    return render_text(make_answer_table(answer), width).splitlines()


def test_long_names_are_cut_and_wide_rows_are_blocks() -> None:
    answer = Answer(("name", "time_s"), [("n" * 300, 1.5), ("short", None)])
    lines = drawn(answer, 60)
    assert [len(line) for line in lines] == [60, 60, 60] and lines[1].endswith("   1.5") and "…" in lines[1]
    wide = Answer(tuple(f"column_{index}" for index in range(9)), [tuple("x" * 40 for _ in range(9))])
    assert drawn(wide, 100)[:2] == ["row 1", f"  column_0  {'x' * 40}"]
    many = drawn(Answer(("n",), [(number,) for number in range(MOST_ROWS + 20)]), 80)
    assert len(many) == MOST_ROWS + 2 and many[-1].startswith("and 20 more rows")


def test_columns_of_one_name_keep_their_values() -> None:
    rows = rows_of(write_answer_json(Answer(("a", "a", "a_2"), [(1, 2, float("nan"))])))
    assert rows == [{"a": 1, "a_2": 2, "a_2_2": None}]

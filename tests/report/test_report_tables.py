"""CSV and Markdown: SI units, full names, sums that hold, and nothing that a name can break."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import click
import pytest
import run_builder as build
from click.testing import CliRunner
from printed import RESULTS, printed, run_markdown

from inductor_bench.cli.presentation import add_format_option
from inductor_bench.errors import UsageError
from inductor_bench.records.base import Answer
from inductor_bench.records.run import Run
from inductor_bench.report import kernel_document
from inductor_bench.report.formats import Format, Formats, View, write_csv
from inductor_bench.report.run import run_document as run
from inductor_bench.report.run.run_tables import write_kernels_csv, write_tables
from inductor_bench.report.table_documents import write_answer_csv
from inductor_bench.units import printable


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def tables(run: Run, folder: Path) -> dict[str, list[dict[str, str]]]:
    return {path.stem: read(path.read_bytes().decode()) for path in write_tables(run, folder)}


def test_kernels_keep_full_names_and_exact_figures() -> None:
    run = build.mixnet()
    rows = read(write_kernels_csv(run))
    assert len(rows) == 641
    by_name = {(row["graph"], row["name"]): row for row in rows}
    for module in run.modules:
        for kernel in module.kernels:
            row = by_name[module.label, kernel.name]
            assert float(row["time_s"]) == kernel.time_s and row["kernel_id"] == kernel.kernel_id
            assert row["moved_bytes"] == ("" if kernel.work.moved_bytes is None else str(kernel.work.moved_bytes))
    assert [float(row["time_s"]) for row in rows] == sorted((float(row["time_s"]) for row in rows), reverse=True)


def test_a_spreadsheet_reads_no_text_as_a_formula() -> None:
    texts = ["=1+1", "@SUM(A1)", "+1", "-1", "\tx", "\rx", "a\r=1", "'x", ""]
    (header, *rows) = csv.reader(io.StringIO(write_csv(["=name", "n"], [[text, -1.5] for text in texts]), newline=""))
    assert header == ["'=name", "n"]
    assert [row[0] for row in rows] == [f"'{printable(text)}" for text in texts[:6]] + list(map(printable, texts[6:]))
    assert all(row[1] == "-1.5" for row in rows)
    run = build.cpu()
    first, *others = run.modules
    run = replace(run, modules=(replace(first, label="=cmd|' /C calc'!A0"), *others))
    assert {row["graph"] for row in read(write_kernels_csv(run))} == {"'=cmd|' /C calc'!A0", "backward"}
    assert write_answer_csv(Answer(("=a", "b"), [("@x", -1)])) == "'=a,b\n'@x,-1\n"


def test_kernels_can_be_sorted() -> None:
    calls = [float(row["calls"]) for row in read(write_kernels_csv(build.mixnet(), "calls"))]
    assert calls == sorted(calls, reverse=True) and calls[0] > calls[-1]
    with pytest.raises(UsageError):
        write_kernels_csv(build.mixnet(), "name")


def test_categories_and_idle_time_sum_to_the_wall_time(tmp_path: Path) -> None:
    rows = tables(build.mixnet(), tmp_path)["categories"]
    for label, wall in (("forward", 15.737e-3), ("backward", 45.888e-3)):
        mine = [row for row in rows if row["graph"] == label]
        assert sum(float(row["time_s"]) for row in mine) == pytest.approx(wall)
        assert sum(float(row["wall_share"]) for row in mine) == pytest.approx(1)
        assert mine[-1]["category"] == "idle" and mine[-1]["calls"] == ""
    assert {row["category"] for row in tables(build.cpu(), tmp_path)["categories"]} >= {"host", "cpp"}


def test_modules_and_shapes(tmp_path: Path) -> None:
    written = tables(build.cpu(), tmp_path)
    assert [row["graph"] for row in written["modules"]] == ["forward", "backward"]
    assert float(written["modules"][0]["wall_time_s"]) == 5.9e-3 and written["modules"][0]["method"] == "live"
    shapes = [row for row in written["shapes"] if row["name"] == "mkldnn_convolution"]
    assert [float(row["calls"]) for row in shapes] == [1, 3] and shapes[0]["operator"] == "aten.convolution"


def test_an_empty_run_writes_headers_only(tmp_path: Path) -> None:
    assert all(rows == [] for rows in tables(build.empty(), tmp_path).values())
    assert (tmp_path / "tables" / "kernels.csv").read_text().startswith("graph,slug,name,")


def test_names_stand_in_csv_without_what_steers_a_terminal(tmp_path: Path) -> None:
    rows = read(write_kernels_csv(build.hostile()))
    formula = "=cmd|' /C calc'!A0"
    assert {row["name"] for row in rows} == {*map(printable, build.HOSTILE_NAMES), f"'{formula}"} - {formula}
    assert len(tables(build.hostile(), tmp_path)["kernels"]) == len(rows)  # what has no UTF-8 form is spelt out


def test_markdown_tables_have_one_width() -> None:
    for name in ("mixnet", "cpu", "hostile", "without_peaks", "empty", "densenet"):
        text = run_markdown(getattr(build, name)())
        block: list[int] = []
        for line in [*text.splitlines(), ""]:
            if line.startswith("|"):
                block.append(len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)))
            else:
                assert len(set(block)) <= 1, line
                block = []


def test_markdown_says_what_the_screen_says() -> None:
    text = run_markdown(build.mixnet(), top=3)
    assert text.startswith("# mixnet\\_l · training")
    assert "| conv (library) | 6.77 ms | 46.3% | 43.0% | 134 | 21 |" in text
    assert "## Kernels" in text and "| 3 | dgrad2d\\_c1" in text and "\n| 4 |" not in text
    assert "aten.convolution calls spend 9.09 ms" in text


def test_markdown_leads_with_failures_and_the_answer() -> None:
    text = run_markdown(build.densenet())
    assert text.index("**inference is launch-bound") < text.index("| graph |") and text.count("is launch-bound") == 1
    assert "## Failed\n\n- Capture: the program compiled nothing. Hint: call torch.compile in it" in run_markdown(
        build.empty()
    )


def test_no_name_is_read_as_html_or_a_link() -> None:
    text = run_markdown(build.hostile(), top=100).replace("<br>", "")  # between the lines of a cell
    assert not re.search(r"(?<!\\)<", text) and "\x1b" not in text and not re.search(r"(?<!\\)\[", text)


# The tables of formats: what stands in each of them, and that a row is all that a new format needs.


def _title(result: Run, view: View) -> str:
    return f"{result.title} in {view.columns} columns"


@pytest.mark.parametrize("table", RESULTS.values(), ids=RESULTS)
def test_each_result_has_a_table_by_default_and_json_and_finds_each_row_by_its_name(table: Formats[object]) -> None:
    assert table.names[0] == "table" and "json" in table.names
    assert [table.get(name) for name in table.names] == list(table.rows)


def test_the_tables_behind_one_option_have_the_same_names() -> None:
    assert kernel_document.MEASURED.names == kernel_document.COMPARED.names


def test_a_row_is_all_that_a_format_needs() -> None:
    table: Formats[Run] = Formats((*run.FORMATS.rows, Format("title", _title, "the title")), run.FORMATS.about)
    shown = ", ".join(row.shows for row in run.FORMATS.rows)
    assert table.help == f"What is printed: {shown}, or the title."

    @click.command()
    @add_format_option(table)
    def command(format: str) -> None:
        click.echo(table.get(format).render(build.cpu(), View(columns=80)))

    shown = CliRunner().invoke(command, ["--format", "title"]).output
    assert shown == f"{build.cpu().title} in 80 columns\n"
    assert "|".join(table.names) in CliRunner().invoke(command, ["--help"]).output


def test_a_format_of_another_kind_of_result_is_refused_with_those_of_this_one() -> None:
    title: Formats[Run] = Formats((*run.FORMATS.rows, Format("title", _title, "the title")), run.FORMATS.about)
    both = run.FORMATS.extended_by(title)
    assert both.names == [*run.FORMATS.names, "title"] and both.help.endswith(", or the title.")
    assert title.extended_by(run.FORMATS).rows == title.rows
    with pytest.raises(UsageError, match="--format title is not for a run") as refused:
        run.FORMATS.get("title")
    assert refused.value.hint == f"give one of: {', '.join(run.FORMATS.names)}"


@pytest.mark.parametrize("row", run.FORMATS.rows, ids=lambda row: row.name)
def test_every_format_of_a_run_renders(row: Format[Run]) -> None:
    shown = printed(row, build.mixnet())
    assert "mixnet" in shown or "triton_" in shown

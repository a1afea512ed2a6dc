"""The tables of formats: what stands in each of them, and that a row is all that a new format needs."""

from __future__ import annotations

import click
import pytest
import run_builder as build
from click.testing import CliRunner
from printed import RESULTS, printed

from inductor_bench.cli.presentation import add_format_option
from inductor_bench.errors import UsageError
from inductor_bench.records.run import Run
from inductor_bench.report import kernel_document
from inductor_bench.report.formats import Format, Formats, View
from inductor_bench.report.run import run_document as run


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

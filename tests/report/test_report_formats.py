"""The tables of formats: what stands in each of them, and that a row is all that a new format needs."""

from __future__ import annotations

import click
import pytest
import run_builder as build
from click.testing import CliRunner

from inductor_bench.cli.output.presentation import format_option
from inductor_bench.records.run import Run
from inductor_bench.report import doctor, extraction
from inductor_bench.report.batch import formats as batch
from inductor_bench.report.kernel import formats as kernel
from inductor_bench.report.query import formats as query
from inductor_bench.report.renderer import Format, Formats, View
from inductor_bench.report.run import formats as run


def _title(result: Run, view: View) -> str:
    return f"{result.title} in {view.columns} columns"


@pytest.mark.parametrize(
    ("table", "names"),
    [
        (run.FORMATS, ["table", "json", "csv", "md"]),
        (batch.FORMATS, ["table", "json", "csv", "md"]),
        (query.FORMATS, ["table", "json", "csv", "md"]),
        (kernel.MEASURED, ["table", "json"]),
        (kernel.COMPARED, ["table", "json"]),
        (kernel.COMPILED, ["table", "json"]),
        (extraction.FORMATS, ["table", "json"]),
        (doctor.FORMATS, ["table", "json"]),
    ],
)
def test_the_rows_of_a_table_in_their_order(table: Formats[object], names: list[str]) -> None:
    assert table.names == names
    assert [table.get(name).name for name in names] == names


def test_a_row_is_all_that_a_format_needs() -> None:
    table: Formats[Run] = Formats((*run.FORMATS.rows, Format("title", _title, "the title")), run.FORMATS.about)
    assert table.help == "What is printed: the summary, the record, every kernel as CSV, Markdown, or the title."

    @click.command()
    @format_option(table)
    def command(format: str) -> None:
        click.echo(table.get(format).render(build.cpu(), View(columns=80)))

    shown = CliRunner().invoke(command, ["--format", "title"]).output
    assert shown == f"{build.cpu().title} in 80 columns\n"
    assert "table|json|csv|md|title" in CliRunner().invoke(command, ["--help"]).output


@pytest.mark.parametrize("row", run.FORMATS.rows, ids=lambda row: row.name)
def test_every_format_of_a_run_renders(row: Format[Run]) -> None:
    text = row.render(build.mixnet(), View())
    shown = text if isinstance(text, str) else "".join(word.text for line in text for word in line)
    assert "mixnet" in shown or "triton_" in shown

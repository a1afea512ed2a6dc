"""The table of formats of a comparison of modes."""

from __future__ import annotations

from collections.abc import Iterator

from ...analysis.findings.phrases import join_words
from ...records.modes.comparison import ModeComparison, ModeRow
from ...records.modes.models import ModesByModel
from ..csvs import table_text
from ..renderer import Format, Formats, View, json_row
from ..run.markdown import escaped, table
from . import models
from .console import console
from .phrases import advice, grouped_failures, machine, notes
from .rows import cells_of, titles_of

COLUMNS = (
    *("mode", "step_time_s", "low_s", "high_s", "rounds", "ratio_to_eager", "ratio_low", "ratio_high", "verdict"),
    *("compile_time_s", "recompile_time_s", "pays_after_steps", "shorter_compile", "pays_after_steps_vs_shorter"),
    *("device_time_s", "launches", "busy_share", "peak_memory_bytes", "graph_breaks", "compile_calls", "outputs"),
    *("output_error", "same_code_as", "failure"),
)


def markdown(comparison: ModeComparison, view: View) -> str:
    """Renders the advice, the table, failures and notes as Markdown."""
    return "\n".join(_markdown_lines(comparison)) + "\n"


def _markdown_lines(comparison: ModeComparison) -> Iterator[str]:
    yield f"# {escaped(comparison.title)}"
    yield ""
    yield escaped(machine(comparison))
    yield ""
    yield f"**{escaped(advice(comparison))}**"
    yield ""
    if comparison.winner is not None and comparison.winner.decided and comparison.winner.lines:
        yield from ("```", *comparison.winner.lines, "```", "")
    titles = titles_of(comparison)
    cells = [cells_of(row) for row in comparison.rows]
    alignment = "".join("l" if title == "mode" else "r" for title in titles)
    yield from table(titles, alignment, [[row[title] for title in titles] for row in cells])
    yield ""
    for failure, named in grouped_failures(comparison.rows).items():
        yield f"- {escaped(f'{join_words(named)}: {failure.message}')}"
    yield from (f"- {escaped(note)}" for note in notes(comparison))


def csv_text(comparison: ModeComparison, view: View) -> str:
    """Renders a row for each mode, with SI base units. Cells of unknown values are empty."""
    return table_text(COLUMNS, map(_csv_row, comparison.rows))


def _csv_row(row: ModeRow) -> list[object]:
    figures, failure = row.figures, row.failure.message if row.failure else None
    if figures is None:
        return [row.name, *[None] * (len(COLUMNS) - 2), failure]
    ratio, work, agreement = figures.to_eager, figures.work, figures.agreement
    return [
        *(row.name, figures.step_time_s, figures.low_s, figures.high_s, len(row.processes)),
        *((ratio.ratio, ratio.low, ratio.high, ratio.verdict) if ratio else [None] * 4),
        *(figures.compile_time_s, figures.recompile_time_s, figures.pays_after),
        *(figures.cheaper or None, figures.pays_after_cheaper),
        *((work.time_s, work.launches, work.busy_share) if work else [None] * 3),
        *(figures.peak_memory_bytes, figures.graph_breaks, row.processes[0].calls),
        *((agreement.state, agreement.error) if agreement else [None] * 2),
        *(figures.same_code_as or None, failure),
    ]


def _html(comparison: ModeComparison, view: View) -> str:
    from .page import modes_html  # loads jinja2

    return modes_html(comparison)


FORMATS: Formats[ModeComparison] = Formats(
    (
        Format("table", console, "a summary for the terminal", names_folder=True),
        json_row("what modes.json holds"),
        Format("csv", csv_text, "a row for each mode"),
        Format("md", markdown, "Markdown"),
        Format("html", _html, "a page"),
    ),
    "What is printed:",
)


def _list_html(found: ModesByModel, view: View) -> str:
    from .page import models_html  # loads jinja2

    return models_html(found)


LIST_FORMATS: Formats[ModesByModel] = Formats(
    (
        Format("table", models.console, "which mode for which model, for the terminal", names_folder=True),
        json_row("what each modes.json holds"),
        Format("csv", models.csv_text, "a row for each model"),
        Format("md", models.markdown, "Markdown"),
        Format("html", _list_html, "a page"),
    ),
    of="a list of models",
)

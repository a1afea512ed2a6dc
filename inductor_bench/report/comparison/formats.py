"""The tables of formats of a comparison: of two runs, and of two batches."""

from __future__ import annotations

from collections.abc import Iterator

from ...records.comparison import BatchComparison, RunComparison
from ..renderer import Format, Formats, View, json_row
from ..text.layout import Line
from .batch import batch_csv, batch_lines, batch_markdown
from .console import comparison_lines
from .csvs import comparison_csv
from .markdown import comparison_markdown


def _lines(comparison: RunComparison, view: View) -> Iterator[Line]:
    return comparison_lines(comparison, view.width, view.top, view.limit)


def _csv(comparison: RunComparison, view: View) -> str:
    return comparison_csv(comparison)


def _markdown(comparison: RunComparison, view: View) -> str:
    return comparison_markdown(comparison, view.top, view.limit)


def _html(comparison: RunComparison, view: View) -> str:
    from .page import comparison_html  # loads jinja2

    return comparison_html(comparison, view.files, view.limit)


FORMATS: Formats[RunComparison] = Formats(
    (
        Format("table", _lines, "the summary"),
        json_row("the record"),
        Format("csv", _csv, "parts and kernels as CSV"),
        Format("md", _markdown, "Markdown for an issue"),
        Format("html", _html, "a page", shows_files=True),
    ),
    "What is printed:",
    of="a comparison of two runs",
)


def _batch_lines(batch: BatchComparison, view: View) -> Iterator[Line]:
    return batch_lines(batch, view.width)


def _batch_csv(batch: BatchComparison, view: View) -> str:
    return batch_csv(batch)


def _batch_markdown(batch: BatchComparison, view: View) -> str:
    return batch_markdown(batch)


def _batch_html(batch: BatchComparison, view: View) -> str:
    from .page import batch_comparison_html  # loads jinja2

    return batch_comparison_html(batch)


BATCH_FORMATS: Formats[BatchComparison] = Formats(
    (
        Format("table", _batch_lines, "the summary"),
        json_row("the record"),
        Format("csv", _batch_csv, "a row for each model as CSV"),
        Format("md", _batch_markdown, "Markdown for an issue"),
        Format("html", _batch_html, "a page"),
    ),
    "What is printed:",
    of="a comparison of two batches",
)

"""The table of formats of a comparison of two runs."""

from __future__ import annotations

from collections.abc import Iterator

from ...records.comparisons.run import RunComparison
from ..renderer import Format, Formats, View, json_row
from ..text.layout import Line
from .console import comparison_lines
from .csvs import comparison_csv
from .html import comparison_html
from .markdown import comparison_markdown


def _lines(comparison: RunComparison, view: View) -> Iterator[Line]:
    return comparison_lines(comparison, view.width, view.top)


def _csv(comparison: RunComparison, view: View) -> str:
    return comparison_csv(comparison)


def _markdown(comparison: RunComparison, view: View) -> str:
    return comparison_markdown(comparison, view.top)


def _html(comparison: RunComparison, view: View) -> str:
    return comparison_html(comparison)


FORMATS: Formats[RunComparison] = Formats(
    (
        Format("table", _lines, "the summary"),
        json_row("the record"),
        Format("csv", _csv, "parts and kernels as CSV"),
        Format("md", _markdown, "Markdown for an issue"),
        Format("html", _html, "a page"),
    ),
    "What is printed:",
    of="a comparison of two runs",
)

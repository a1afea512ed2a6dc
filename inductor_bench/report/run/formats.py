"""The table of formats of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...records.run import Run
from ..renderer import Format, Formats, View, json_row
from ..text.layout import Line
from .console import run_lines
from .csvs import csv_text
from .folder import Drawing
from .markdown import markdown


def _lines(run: Run, view: View) -> Iterator[Line]:
    return run_lines(run, view.folder, view.width, view.sort, view.top)


def _csv(run: Run, view: View) -> str:
    return csv_text(run, sort=view.sort)


def _markdown(run: Run, view: View) -> str:
    return markdown(run, sort=view.sort, top=view.top)


def _html(run: Run, view: View) -> str:
    return Drawing(run, True, view.folder or Path()).page


FORMATS: Formats[Run] = Formats(
    (
        Format("table", _lines, "the summary", names_folder=True),
        json_row("the record"),
        Format("csv", _csv, "every kernel as CSV"),
        Format("md", _markdown, "Markdown"),
        Format("html", _html, "the page of report.html"),
    ),
    "What is printed:",
    of="a run",
)

"""The table of formats of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..renderer import Format, Formats, View, as_json
from ..text.layout import Line
from .console import batch_lines
from .csvs import models_csv
from .markdown import batch_markdown
from .view import BatchView


def _lines(batch: BatchView, view: View) -> Iterator[Line]:
    return batch_lines(batch, view.folder or Path(), view.width, view.top)


def _json(batch: BatchView, view: View) -> str:
    return as_json(batch.results.batch)


def _csv(batch: BatchView, view: View) -> str:
    return models_csv(batch.models)


def _markdown(batch: BatchView, view: View) -> str:
    return batch_markdown(batch, view.top)


def _html(batch: BatchView, view: View) -> str:
    from .page import batch_html  # loads jinja2

    return batch_html(batch)


FORMATS: Formats[BatchView] = Formats(
    (
        Format("table", _lines, "the summary", names_folder=True),
        Format("json", _json, "batch.json"),
        Format("csv", _csv, "a row for each model as CSV"),
        Format("md", _markdown, "Markdown"),
        Format("html", _html, "a page"),
    ),
    "What is printed:",
    of="a batch",
)

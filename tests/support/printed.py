"""What a result looks like in a format, as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductor_bench.records.run import Run, Timeline
from inductor_bench.report import (
    comparison_document,
    edit_document,
    kernel_document,
    modes_document,
    optimization_document,
    table_documents,
)
from inductor_bench.report.batch import batch_document
from inductor_bench.report.document import Document
from inductor_bench.report.formats import Format, Formats, View
from inductor_bench.report.html import render_page
from inductor_bench.report.markdown import render_markdown
from inductor_bench.report.run import proof_document
from inductor_bench.report.run import run_document as run_formats
from inductor_bench.report.run.run_document import PageParts, run_document
from inductor_bench.report.terminal import render_text

RESULTS: Mapping[str, Formats[Any]] = {
    "run": run_formats.FORMATS,
    "batch": batch_document.FORMATS,
    "comparison": comparison_document.FORMATS,
    "batch comparison": comparison_document.BATCH_FORMATS,
    "modes": modes_document.FORMATS,
    "modes of a list": table_documents.LIST_FORMATS,
    "optimization": optimization_document.FORMATS,
    "query": table_documents.QUERY_FORMATS,
    "measured": kernel_document.MEASURED,
    "compared": kernel_document.COMPARED,
    "checked edit": edit_document.CHECKED,
    "written edit": edit_document.WRITTEN,
    "extraction": table_documents.EXTRACTION_FORMATS,
    "doctor": table_documents.DOCTOR_FORMATS,
    "what apply did": proof_document.APPLIED_FORMATS,
}
"""The table of formats of each result."""


def printed(form: Format[Any], result: Any, view: View | None = None) -> str:
    """A result in a format, on a terminal as plain text."""
    view = view or View()
    shown = form.render(result, view)
    if isinstance(shown, Document):
        return render_text(shown, view.columns)
    assert isinstance(shown, str)
    return shown


def recorded(text: str) -> Any:
    """The record in what ``--format json`` prints, without the schema's name and the summary."""
    data = json.loads(text)
    return {name: value for name, value in data.items() if name not in ("schema", "summary")}


def run_screen(run: Run, width: int = 100, folder: Path | None = None, **options: Any) -> str:
    """A run on a terminal."""
    return render_text(run_document(run, View(folder, **options)), width)


def run_markdown(run: Run, **options: Any) -> str:
    """A run as Markdown."""
    return render_markdown(run_document(run, View(**options)))


def run_page(
    run: Run,
    plots: Mapping[str, bytes] | None = None,
    timeline: Timeline | None = None,
    files: Mapping[str, str] | None = None,
) -> str:
    """The page of a run."""
    return render_page(run_document(run, View(), PageParts(plots or {}, timeline, files or {})))

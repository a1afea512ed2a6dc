"""Prints a batch, for the verbs ``batch`` and ``report``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...report.batch.formats import FORMATS
from ...report.renderer import View
from .console import Console
from .presentation import place_view, show

if TYPE_CHECKING:
    from ...workflows.batch.view import BatchReport


def show_batch(report: BatchReport, console: Console, form: str, view: View) -> None:
    """Prints a batch in the format ``form``."""
    if not report.with_parquet:
        from ...store.formats.tables import INSTALL

        console.note(f"kernels.parquet and `query` need DuckDB ({INSTALL}); the CSV tables are there")
    show(FORMATS.get(form), report.view, place_view(view, report.folder, console), console)

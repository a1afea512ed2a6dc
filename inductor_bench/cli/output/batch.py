"""Prints a batch, for the verbs ``batch`` and ``report``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...report.formats import Format, View
from .console import Console
from .presentation import place_view, show

if TYPE_CHECKING:
    from ...report.batch_tables import BatchView
    from ...workflows.batch_state import BatchReport


def show_batch(report: BatchReport, console: Console, form: Format[BatchView], view: View) -> None:
    """Prints a batch as a result."""
    if not report.with_parquet:
        from ...store.tables import INSTALL

        console.note(f"kernels.parquet and `query` need DuckDB ({INSTALL}); the CSV tables are there")
    show(form, report.view, place_view(view, report.folder, console), console)

"""The files of a batch's report, and the function that writes them."""

from __future__ import annotations

from pathlib import Path

from ..store.batch import BATCH
from ..store.files import write_text
from ..store.folder import PAGE
from ..store.formats.tables import write_parquet
from .batch_tables import BatchView, groups_csv, models_csv
from .renderer import View, as_markdown, as_page

TOP = 20
"""Number of families and of kernels in ``summary.md``."""

BATCH_FILES = (BATCH, "summary.csv", "kernels.csv", "families.csv", "kernels.parquet", "summary.md", PAGE)
"""The files in the order in which ``Written`` lists them. ``kernels.parquet`` represents all Parquet tables."""


def write_batch(view: BatchView, folder: Path) -> bool:
    """Writes the texts of :data:`BATCH_FILES` and, if DuckDB is installed, all tables as Parquet.

    Returns:
        Whether DuckDB is installed.

    Raises:
        InductorBenchError: a file cannot be written.
    """
    from .batch_document import FORMATS

    write_text(folder / "summary.csv", models_csv(view.models))
    write_text(folder / "kernels.csv", groups_csv(view.kernels, "kernel_id"))
    write_text(folder / "families.csv", groups_csv(view.families, "family_id"))
    write_text(folder / "summary.md", as_markdown(FORMATS, view, View(folder, top=TOP)))
    write_text(folder / PAGE, as_page(FORMATS, view, View(folder)))
    return write_parquet(view.tables(), folder)

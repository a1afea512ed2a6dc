"""The table of the files in a batch folder, and the function that writes the report's files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ...analysis.batch_aggregation import ModelSummary, without_kernels
from ...store.digest import FEW
from ...store.files import own_folder, write_bytes, write_text
from ...store.folder import BATCH, PAGE
from ...store.tables import write_parquet
from .csvs import groups_csv, models_csv
from .markdown import batch_markdown
from .phrases import heading, suite_machine
from .view import BatchView

TOP = 20
"""Number of families and of kernels in ``summary.md``."""

PICTURE = "plots/categories.png"


class BatchFile(NamedTuple):
    """A file in a batch folder.

    Attributes:
        path: path relative to the folder.
        text: renders the content; ``None`` where other code writes the file.
    """

    path: str
    text: Callable[[BatchView], str] | None = None


def _page(view: BatchView) -> str:
    from .page import batch_html  # loads jinja2

    return batch_html(view)


BATCH_FILES = (
    BatchFile(BATCH),
    BatchFile("summary.csv", lambda view: models_csv(view.models)),
    BatchFile("kernels.csv", lambda view: groups_csv(view.kernels, "kernel_id")),
    BatchFile("families.csv", lambda view: groups_csv(view.families, "family_id")),
    BatchFile("kernels.parquet"),
    BatchFile("summary.md", lambda view: batch_markdown(view, TOP)),
    BatchFile(PAGE, _page),
    BatchFile(PICTURE),
)
"""The files in the order in which ``Written`` lists them. ``kernels.parquet`` represents all Parquet tables."""


def write_batch(view: BatchView, folder: Path, *, plots: bool = True) -> bool:
    """Writes the texts of :data:`BATCH_FILES` and the plot and, if DuckDB is installed, all tables as Parquet.

    Args:
        view: the results.
        folder: the batch folder.
        plots: whether to draw the plot.

    Returns:
        Whether DuckDB is installed.

    Raises:
        InductorBenchError: a file cannot be written.
    """
    with _drawing(view, plots) as picture:
        for file in BATCH_FILES:
            if file.text is not None:
                write_text(folder / file.path, file.text(view))
        with_parquet = write_parquet(view.tables(), folder)
        data = picture()
    if data is not None:
        path = folder / PICTURE
        write_bytes(own_folder(path.parent) / path.name, data)
    return with_parquet


@contextlib.contextmanager
def _drawing(view: BatchView, plots: bool) -> Iterator[Callable[[], bytes | None]]:
    """Starts drawing and yields a function that returns the picture. Another process draws a batch of many models."""
    if not plots:
        yield lambda: None
        return
    about = f"{heading(view.results)}   ({suite_machine(view.results)})"
    rows = [without_kernels(summary) for summary in view.models]
    if len(rows) <= FEW:
        yield partial(_draw, about, rows)
        return
    with ProcessPoolExecutor(1) as pool:
        yield pool.submit(_draw, about, rows).result


def _draw(about: str, summaries: list[ModelSummary]) -> bytes | None:
    from .plot import draw_models  # loads matplotlib

    return draw_models(about, summaries)

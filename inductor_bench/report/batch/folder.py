"""Everything that is drawn from a batch into its folder: tables as CSV and Parquet, Markdown, one plot."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from ...analysis.batch_aggregation import (
    KernelGroup,
    ModelSummary,
    by_family,
    by_id,
    group_kernels,
    suite_time_s,
    summarize_model,
    without_kernels,
)
from ...records.batch_results import Corpus
from ...records.table import Table
from ...store.digest import FEW
from ...store.files import own_folder, write_bytes, write_text
from ...store.formats.tables import write_parquet
from ..text.layout import Line
from .console import corpus_screen
from .csvs import groups_csv, models_csv
from .markdown import corpus_markdown
from .phrases import heading, suite_machine
from .tables import corpus_tables

TOP = 20
"""Families and kernels in ``summary.md``."""


@dataclass(frozen=True)
class CorpusView:
    """A corpus as it is shown: what is worked out once for all forms."""

    corpus: Corpus

    @cached_property
    def models(self) -> list[ModelSummary]:
        return [summarize_model(model) for model in self.corpus.models]

    @cached_property
    def families(self) -> list[KernelGroup]:
        return group_kernels(self.corpus, by_family)

    @cached_property
    def kernels(self) -> list[KernelGroup]:
        return group_kernels(self.corpus, by_id)

    def tables(self) -> tuple[Table, ...]:
        """What can be queried: models, graphs, categories, kernels, families, retunes."""
        return corpus_tables(self.models, self.families, suite_time_s(self.corpus))

    def markdown(self, top: int = TOP) -> str:
        return corpus_markdown(self.corpus, self.models, self.families, self.kernels, top)

    def csv(self) -> str:
        """The models, one row each."""
        return models_csv(self.models)

    def screen(self, folder: Path, width: int, top: int) -> Iterator[Line]:
        return corpus_screen(self.corpus, self.models, self.families, self.kernels, folder, width, top)

    def write(self, folder: Path, *, plots: bool = True) -> bool:
        """Writes ``summary.csv``, ``kernels.csv``, ``families.csv``, ``summary.md`` and ``plots/categories.png``, and
        with DuckDB all :meth:`tables` as Parquet.

        Returns:
            Whether there was DuckDB for that.

        Raises:
            InductorBenchError: a file cannot be written.
        """
        with self._drawing(plots) as picture:
            write_text(folder / "summary.csv", self.csv())
            write_text(folder / "kernels.csv", groups_csv(self.kernels, "kernel_id"))
            write_text(folder / "families.csv", groups_csv(self.families, "family_id"))
            write_text(folder / "summary.md", self.markdown())
            with_parquet = write_parquet(self.tables(), folder)
            data = picture()
        if data is not None:
            write_bytes(own_folder(folder / "plots") / "categories.png", data)
        return with_parquet

    @contextlib.contextmanager
    def _drawing(self, plots: bool) -> Iterator[Callable[[], bytes | None]]:
        """What gives the picture; of many models it is drawn by another process meanwhile."""
        if not plots:
            yield lambda: None
            return
        about = f"{heading(self.corpus)}   ({suite_machine(self.corpus)})"
        rows = [without_kernels(summary) for summary in self.models]
        if len(rows) <= FEW:
            yield partial(_draw, about, rows)
            return
        with ProcessPoolExecutor(1) as pool:
            yield pool.submit(_draw, about, rows).result


def _draw(about: str, summaries: list[ModelSummary]) -> bytes | None:
    from .plot import draw_models  # loads matplotlib

    return draw_models(about, summaries)

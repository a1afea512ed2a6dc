"""The results of a batch with the aggregations that its reports show."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ...analysis.batch_aggregation import (
    KernelGroup,
    ModelSummary,
    by_family,
    by_id,
    group_kernels,
    suite_time_s,
    summarize_model,
)
from ...records.base import Table
from ...records.batch import BatchResults
from .tables import batch_tables


@dataclass(frozen=True)
class BatchView:
    """The results of a batch. Each aggregation is computed once for all formats."""

    results: BatchResults

    @cached_property
    def models(self) -> list[ModelSummary]:
        return [summarize_model(model) for model in self.results.models]

    @cached_property
    def families(self) -> list[KernelGroup]:
        return group_kernels(self.results, by_family)

    @cached_property
    def kernels(self) -> list[KernelGroup]:
        return group_kernels(self.results, by_id)

    @cached_property
    def suite_s(self) -> float:
        """Seconds of one step or iteration of all measured models."""
        return suite_time_s(self.results)

    def tables(self) -> tuple[Table, ...]:
        """Returns the tables for queries: models, graphs, categories, kernels, families, retunes."""
        return batch_tables(self.models, self.families, self.suite_s)

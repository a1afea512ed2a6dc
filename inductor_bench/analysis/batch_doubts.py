"""Leaves the gain limits out of a batch that rest on figures that do not count, as the reports of runs do."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ..devices.table import device_of
from ..records.batches.results import BatchResults, GraphResult, ModelResult
from .findings.rules.busy_machine import disturbed_graphs, reasons


def without_uncounted_gains(results: BatchResults) -> BatchResults:
    """The results, of which models whose figures do not count have a ``doubt`` in the place of gain limits."""
    return replace(results, models=tuple(map(_without_uncounted, results.models)))


def _without_uncounted(model: ModelResult) -> ModelResult:
    concerned = disturbed_graphs(model.outline) if model.outline is not None else ()
    on_host = [module for module in concerned if device_of(module.device).runs_on_host]  # a GPU's kernel times count
    if model.outline is None or not on_host:
        return model
    labels = {module.label for module in on_host}
    graphs = tuple(_without_gains(graph, labels) for graph in model.graphs)
    return replace(model, graphs=graphs, doubt=reasons(model.outline, on_host))


def _without_gains(graph: GraphResult, labels: Collection[str]) -> GraphResult:
    if graph.label not in labels:
        return graph
    kernels = (kernel._replace(limit=kernel.limit._replace(gain_limit_s=None)) for kernel in graph.kernels)
    return replace(graph, kernels=tuple(kernels))

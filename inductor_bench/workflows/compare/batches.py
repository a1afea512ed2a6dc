"""Compares two batches, model by model."""

from __future__ import annotations

from pathlib import Path
from statistics import geometric_mean

from ...errors import InductorBenchError
from ...records.batches.batch import Batch
from ...records.comparisons.batch import BatchComparison, ModelComparison
from ...store.batch import BatchFolder
from ..progress import Progress
from .run import compare_records


def compare_batches(a: Path, b: Path, progress: Progress) -> BatchComparison:
    """Compares the models that two batches have in common, and names the others.

    Raises:
        InductorBenchError: a batch cannot be read.
    """
    batches = BatchFolder(a).load(), BatchFolder(b).load()
    places = [_places(batch, path) for batch, path in zip(batches, (a, b), strict=True)]
    models = []
    for name in dict.fromkeys([*places[0], *places[1]]):
        progress.stage(f"comparing {name}")
        models.append(_model(name, places[0].get(name), places[1].get(name)))
    ratios = [
        model.comparison.step.b_s / model.comparison.step.a_s
        for model in models
        if model.comparison is not None and model.comparison.comparable and model.comparison.step.a_s
    ]
    positive = [ratio for ratio in ratios if ratio > 0]
    return BatchComparison(str(a), str(b), geometric_mean(positive) if positive else None, tuple(models))


def _places(batch: Batch, folder: Path) -> dict[str, Path | None]:
    """The RUN folder of each model; ``None`` where it has none."""
    return {model.request.name: folder / model.run if model.run else None for model in batch.models}


def _model(name: str, a: Path | None, b: Path | None) -> ModelComparison:
    missing = " and ".join(side for side, path in (("A", a), ("B", b)) if path is None)
    if a is None or b is None:
        return ModelComparison(name, problem=f"no run of it in {missing}", lost=a is not None)
    try:
        return ModelComparison(name, compare_records(a, b).comparison)
    except InductorBenchError as error:
        return ModelComparison(name, problem=error.message, lost=True)

"""The comparison of two batches, model by model."""

from __future__ import annotations

from dataclasses import dataclass

from .run import RunComparison


@dataclass(frozen=True)
class ModelComparison:
    """A model of both batches.

    Attributes:
        name: the name of the model.
        comparison: the comparison of its runs; ``None`` where there is none.
        problem: why there is no comparison.
        lost: whether A has a run of a model that cannot be compared: B may have broken it.
    """

    name: str
    comparison: RunComparison | None = None
    problem: str = ""
    lost: bool = False


@dataclass(frozen=True)
class BatchComparison:
    """The comparison of two batches.

    Attributes:
        a: the path of A, as it was typed.
        b: the path of B, as it was typed.
        ratio: the geometric mean of the ratios of B's steps to A's; ``None`` where no model is comparable.
        models: the models of A in order, then those that only B has.
    """

    a: str
    b: str
    ratio: float | None
    models: tuple[ModelComparison, ...]

    def count(self, verdict: str) -> int:
        """The number of models with a verdict."""
        return sum(model.comparison is not None and model.comparison.verdict == verdict for model in self.models)

"""The record of a comparison of modes for each model of a list."""

from __future__ import annotations

from dataclasses import dataclass

from ..failure import Failure
from .comparison import ModeComparison


@dataclass(frozen=True)
class ModelModes:
    """One model.

    Attributes:
        name: unique in the list; also the name of the folder of its comparison.
        comparison: the comparison of its modes; ``None`` where nothing could be compared.
        failure: why there is no comparison; ``None`` where there is one.
    """

    name: str
    comparison: ModeComparison | None = None
    failure: Failure | None = None


@dataclass(frozen=True)
class ModesByModel:
    """All models of a list.

    Attributes:
        source: the list.
        models: the models, in the list's order.
    """

    source: str
    models: tuple[ModelModes, ...]

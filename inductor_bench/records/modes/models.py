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
        comparison: ``None`` where nothing could be compared, for the reason of ``failure``.
    """

    name: str
    comparison: ModeComparison | None = None
    failure: Failure | None = None


@dataclass(frozen=True)
class ModesByModel:
    """All models of a list, in its order. ``source`` names the list."""

    source: str
    models: tuple[ModelModes, ...]

"""Many runs at once: of each record only what is compared over models, so that hundreds fit in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .batch import Batch, BatchModel
from .category import Category


class CorpusKernel(NamedTuple):
    """A kernel of one graph; see ``records.run.Kernel`` for the fields."""

    name: str
    kernel_id: str
    family_id: str
    category: Category
    calls: float
    time_s: float
    peak_share: float | None
    bound: str
    gain_limit_s: float | None
    operator: str | None


@dataclass(frozen=True)
class CorpusGraph:
    """A graph of a model, as one iteration; ``time_s`` is its wall time, or its busy time where that is longer."""

    label: str
    device: str
    time_s: float
    wall_time_s: float | None
    busy_share: float | None
    launches: float | None
    idle_s: float | None
    categories: tuple[tuple[Category, float], ...]  # seconds
    kernels: tuple[CorpusKernel, ...]


@dataclass(frozen=True)
class CorpusModel:
    """A model of a batch: its row there, and what was measured. ``problem`` says why its record cannot be read."""

    model: BatchModel
    graphs: tuple[CorpusGraph, ...] = ()
    machine: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Corpus:
    """All models of a batch, in its order."""

    batch: Batch
    models: tuple[CorpusModel, ...]

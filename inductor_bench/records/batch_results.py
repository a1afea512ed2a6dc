"""Many runs at once: of each record only what is compared over models, so that hundreds fit in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .batch import Batch, BatchModel
from .category import Category
from .failure import Failure
from .retune import RetuneRow

DAMAGED, NEWER = "damaged", "newer"
"""What may be wrong with a record: it cannot be read, or not by this version of the tool."""


class KernelResult(NamedTuple):
    """A kernel of one graph; see ``records.run.Kernel`` for the fields.

    The last five are of its retune, if there was one; a library kernel has that of the call that it spends most time
    in, and no saving of its own, for that call runs other kernels too.
    """

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
    moved_bytes: float | None = None
    flops: float | None = None
    dtype: str | None = None
    registers: int | None = None
    spills: int | None = None
    occupancy: float | None = None
    tuned_default_s: float | None = None
    tuned_best_s: float | None = None
    speedup: float | None = None
    verdict: str = ""
    saving_s: float | None = None


@dataclass(frozen=True)
class GraphResult:
    """A graph of a model, as one iteration; ``time_s`` is its wall time, or its busy time where that is longer."""

    label: str
    device: str
    time_s: float
    wall_time_s: float | None
    busy_share: float | None
    launches: float | None
    idle_s: float | None
    categories: tuple[tuple[Category, float], ...]  # seconds
    kernels: tuple[KernelResult, ...]


@dataclass(frozen=True)
class ModelResult:
    """A model of a batch: its row there, and what was measured. ``problem`` says why its record cannot be read:
    it is ``DAMAGED`` or of a ``NEWER`` format.

    ``retunes`` are those of its most expensive kernels, each once for all graphs, where that was asked for.
    """

    model: BatchModel
    graphs: tuple[GraphResult, ...] = ()
    machine: str = ""
    problem: Failure | None = None
    retunes: tuple[RetuneRow, ...] = ()


@dataclass(frozen=True)
class BatchResults:
    """All models of a batch, in its order."""

    batch: Batch
    models: tuple[ModelResult, ...]

"""A batch: the requested models, the state of each, and the figures of all; see ``batch.json``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from .base import Category, Failure, Place
from .optimization import Optimization
from .request import ModelRequest
from .retune import RetuneRow, Saving
from .run import Run

# A batch: the requested models and the state of each. ``batch.json`` is the JSON of :class:`Batch`.


WAITING, RUNNING, DONE, PARTIAL, FAILED, SKIPPED = "waiting", "running", "done", "partial", "failed", "skipped"
MEASURED, UNOPTIMIZED = "measured", "unoptimized"
WITHOUT_FIGURES = frozenset({WAITING, RUNNING, FAILED, SKIPPED})
"""States of a model whose record is missing or says nothing yet."""
FINISHED = frozenset({DONE, PARTIAL, SKIPPED})
"""States after which a model is not attempted again."""


@dataclass(frozen=True)
class BatchModel:
    """A model of a batch and its state."""

    request: ModelRequest  # the request for the model
    # ``waiting``, ``running``, ``measured`` (autotuning is left to do), ``unoptimized`` (the search for settings is
    # left to do), ``done``, ``partial`` (measured with failures), ``failed``, or ``skipped`` (it needs a download)
    status: str = WAITING
    attempts: int = 0  # the number of attempts so far
    # the reduced batch size of the measurement, if memory ran out with the requested one
    batch_size: int | None = None
    device: str = ""  # the device of the last attempt
    time_s: float | None = None  # duration of the last attempt in seconds
    run: Place | None = None  # the path of its RUN in the batch folder
    log: Place | None = None  # the path of its log in the batch folder
    failure: Failure | None = None  # the first failure of the last attempt
    notes: tuple[str, ...] = ()  # what the user should know about the measurement, in words


@dataclass(frozen=True)
class Batch:
    """The record of a run over a list of models."""

    format: int  # the schema number
    tool_version: str  # the version of inductor-bench that wrote the file
    created: str  # the time at which the batch began (ISO 8601)
    command: str  # the command line, without secrets
    source: str  # the list of models
    models: tuple[BatchModel, ...] = field(default=())  # all models that were ever requested for the batch, in order

    def count(self, *states: str) -> int:
        """The number of models in one of these states."""
        return sum(model.status in states for model in self.models)


# The figures of all models of a batch: the compared part of each record, so that hundreds fit in memory.


DAMAGED, NEWER = "damaged", "newer"
"""Problems of a record: it cannot be read, or a newer version of the tool wrote it."""


OUTSIDE = "outside of graphs"
"""The label of the row for the rest of the step: eager operators, optimizer, collectives, copies and idle time."""


class RetuneResult(NamedTuple):
    """The result of a kernel's retune; see ``records.retune.RetuneRow``.

    For a library kernel it is the retune of its most expensive call, without a saving, because this call runs other
    kernels, too.
    """

    tuned_default_s: float | None = None
    tuned_best_s: float | None = None
    speedup: float | None = None
    verdict: str = ""
    saving_s: float | None = None


class KernelResult(NamedTuple):
    """A kernel of one graph. All fields but the last have the names that they have in the record.

    ``calls``, ``time_s``, the amounts and the gain are per step of the program if it was profiled; ``step_calls`` and
    ``step_time_s`` then repeat the first two. It is one flat tuple, because a batch may have a hundred thousand.
    """

    name: str
    kernel_id: str
    family_id: str
    category: Category
    calls: float
    time_s: float
    operator: str | None
    peak_share: float | None
    bound: str
    gain_limit_s: float | None
    moved_bytes: float | None
    flops: float | None
    dtype: str | None
    registers: int | None
    spills: int | None
    occupancy: float | None
    step_calls: float | None = None
    step_time_s: float | None = None
    step_share: float | None = None
    retune: RetuneResult = RetuneResult()


@dataclass(frozen=True)
class GraphResult:
    """A graph of a model, or the rest of the program's step. Figures are per step if one was profiled.

    Otherwise they are per iteration, and ``time_s`` is the longer of its wall time and its busy time. ``wall_time_s``
    is always from the run of the graph by itself. ``host_idle_share`` is the share of the step in which the device
    waits for the host; ``None`` without a step.
    """

    label: str
    device: str
    time_s: float
    wall_time_s: float | None
    busy_share: float | None
    launches: float | None
    idle_s: float | None
    categories: tuple[tuple[Category, float], ...]  # seconds
    kernels: tuple[KernelResult, ...]
    host_idle_share: float | None = None


@dataclass(frozen=True)
class ModelResult:
    """A model of a batch and its figures."""

    model: BatchModel  # its row in the batch
    # its graphs, and the rest of its step (:data:`OUTSIDE`); empty if nothing was measured
    graphs: tuple[GraphResult, ...] = ()
    machine: str = ""  # device and versions, as one line
    problem: Failure | None = None  # the reason why its record cannot be read; its kind is ``DAMAGED`` or ``NEWER``
    # the retunes of its most expensive kernels, if they were requested; one for all graphs of a kernel
    retunes: tuple[RetuneRow, ...] = ()
    in_step: bool = False  # whether its figures are those of a step of the program
    proven: Saving | None = None  # what its winners save in its step, measured; ``None`` if that was not measured
    # the program and the graphs of its run without their kernels, which tell whether the figures count
    outline: Run | None = field(default=None, hash=False)
    search: Optimization | None = None  # the search for settings that help it, without its processes
    doubt: str = ""  # why its figures do not count, so that gain limits are left out; empty if they count

    @property
    def compiled_graphs(self) -> tuple[GraphResult, ...]:
        """The graphs without the row for the rest of the step."""
        return tuple(graph for graph in self.graphs if graph.label != OUTSIDE)


@dataclass(frozen=True)
class BatchResults:
    """All models of a batch, in the batch's order."""

    batch: Batch
    models: tuple[ModelResult, ...]

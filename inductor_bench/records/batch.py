"""A batch: the models that were asked for, and how far each has come. ``batch.json`` is exactly this."""

from __future__ import annotations

from dataclasses import dataclass, field

from .forms import FileName, Place
from .run import Failure

WAITING, RUNNING, DONE, PARTIAL, FAILED, SKIPPED = "waiting", "running", "done", "partial", "failed", "skipped"
MEASURED = "measured"
FINISHED = frozenset({DONE, PARTIAL, SKIPPED})
"""What is not tried again."""


@dataclass(frozen=True)
class ModelRequest:
    """One model as it was asked for. ``None`` means: not said, ``breakdown`` decides.

    Attributes:
        name: unique in the batch; its RUN folder is called so.
        target: as ``breakdown`` takes it.
        line: where it stands in the list.
        timeout_s: the limit of one attempt, all its processes together.
    """

    name: FileName
    target: str
    line: int = 0
    arguments: tuple[str, ...] = ()
    training: bool | None = None
    batch_size: int | None = None
    amp: str | None = None
    mode: str | None = None
    dynamic: bool | None = None
    device: str | None = None
    seed: int | None = None
    live: bool | None = None
    repeat: int | None = None
    values: str | None = None
    timeout_s: float | None = None


@dataclass(frozen=True)
class BatchModel:
    """A model of a batch and its state.

    ``status`` is ``waiting``, ``running``, ``measured`` (and still to be retuned), ``done``, ``partial`` (measured, and
    something failed), ``failed``, or ``skipped`` (it would have to be downloaded). ``batch_size`` is what it was
    measured with where memory ran out with more. ``failure`` is the first of its last attempt; ``run`` and ``log`` are
    paths in the batch folder.
    """

    request: ModelRequest
    status: str = WAITING
    attempts: int = 0
    batch_size: int | None = None
    device: str = ""
    time_s: float | None = None
    run: Place | None = None
    log: Place | None = None
    failure: Failure | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Batch:
    """A batch: ``source`` is the list as it was given, ``models`` all that it was ever asked for, in order."""

    format: int
    tool_version: str
    created: str
    command: str
    source: str
    models: tuple[BatchModel, ...] = field(default=())

    def count(self, *states: str) -> int:
        """How many models have one of these states."""
        return sum(model.status in states for model in self.models)

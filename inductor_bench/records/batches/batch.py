"""A batch: the requested models and the state of each. ``batch.json`` is the JSON of :class:`Batch`."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..forms import FileName, Place
from ..failure import Failure

WAITING, RUNNING, DONE, PARTIAL, FAILED, SKIPPED = "waiting", "running", "done", "partial", "failed", "skipped"
MEASURED = "measured"
WITHOUT_FIGURES = frozenset({WAITING, RUNNING, FAILED, SKIPPED})
"""States of a model whose record is missing or says nothing yet."""
FINISHED = frozenset({DONE, PARTIAL, SKIPPED})
"""States after which a model is not attempted again."""


@dataclass(frozen=True)
class ModelRequest:
    """The request for one model. ``breakdown`` decides each option that is ``None``.

    Attributes:
        name: unique in the batch; also the name of the model's RUN folder.
        target: the target of ``breakdown``.
        line: line number in the list, from 1.
        arguments: the arguments of a program.
        training: whether the model gets a loss and a backward pass.
        batch_size: the batch size of a library's model.
        amp: the dtype of autocast.
        mode: the ``mode`` of ``torch.compile``.
        dynamic: the ``dynamic`` of ``torch.compile``.
        device: the device.
        seed: the seed of random weights and inputs.
        live: whether it is profiled inside the program.
        repeat: the number of profiled iterations.
        values: ``recorded`` or ``drawn``: the values in the kernels' files.
        timeout_s: limit in seconds of one attempt with all its processes.
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

    Attributes:
        request: the request for the model.
        status: ``waiting``, ``running``, ``measured`` (autotuning is left to do), ``done``, ``partial`` (measured with
            failures), ``failed``, or ``skipped`` (it needs a download).
        attempts: the number of attempts so far.
        batch_size: the reduced batch size of the measurement, where memory ran out with the requested one.
        device: the device of the last attempt.
        time_s: duration of the last attempt in seconds.
        run: the path of its RUN in the batch folder.
        log: the path of its log in the batch folder.
        failure: the first failure of the last attempt.
        notes: what the user should know about the measurement, in words.
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
    """A batch.

    Attributes:
        format: the schema number.
        tool_version: the version of inductor-bench that wrote the file.
        created: the time at which the batch began (ISO 8601).
        command: the command line, without secrets.
        source: the list of models.
        models: all models that were ever requested for it, in order.
    """

    format: int
    tool_version: str
    created: str
    command: str
    source: str
    models: tuple[BatchModel, ...] = field(default=())

    def count(self, *states: str) -> int:
        """The number of models in one of these states."""
        return sum(model.status in states for model in self.models)

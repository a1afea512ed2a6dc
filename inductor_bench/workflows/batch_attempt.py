"""One attempt at a model of a batch: ``breakdown`` in a process group of its own, and what became of it."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ..errors import EXIT_FAILURE, EXIT_OK, InductorBenchError
from ..launch.process import ChildProcess, ProcessResult
from ..launch.worker import expose_package, join_paths
from ..records.batch import DONE, FAILED, PARTIAL, RUNNING, SKIPPED, BatchModel, ModelRequest
from ..records.run import Failure, Run
from ..store.batch import BatchFolder
from .capture import DEFAULT_BATCH_SIZE
from .targets import MODEL_SOURCES

ENTRY = (sys.executable, "-m", "inductor_bench.cli.batched")
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
CPU = "cpu"
"""The device of a machine without a GPU."""

LASTING = frozenset({"download", "program", "nothing-compiled", "missing"})
"""Kinds of failures that another attempt would meet again."""

_MEMORY = re.compile(r"[Oo]ut of memory|OutOfMemoryError|MemoryError|can't allocate memory")
_DOWNLOAD = re.compile(r"OfflineModeIsEnabled|LocalEntryNotFoundError|HF_HUB_OFFLINE|[Oo]ffline mode")


@dataclass(frozen=True)
class Launcher:
    """What all attempts of a batch have in common.

    Attributes:
        folder: of the batch.
        words: options of ``breakdown`` that all get.
        lifeline: the reading end of a pipe that breaks when this process ends.
        lock: the descriptor that holds the folder's lock.
        on_line: is given each line that a model's processes print.
    """

    folder: BatchFolder
    words: tuple[str, ...]
    lifeline: int
    lock: int
    on_line: Callable[[str], None]

    def start(self, model: BatchModel, device: str) -> Attempt:
        """Raises: InductorBenchError: the process cannot be started."""
        name = model.request.name
        model = replace(
            model,
            status=RUNNING,
            attempts=model.attempts + 1,
            device=device,
            time_s=None,
            failure=None,
            run=self.folder.relative(self.folder.run(name).path),
            log=self.folder.relative(self.folder.log(name)),
        )
        words = ["breakdown", *breakdown_words(model), *self.words, "-o", str(self.folder.run(name).path)]
        words += ["--", *model.request.arguments] if model.request.arguments else []
        shutil.rmtree(self.folder.run(name).path, ignore_errors=True)  # what an earlier attempt left
        child = ChildProcess(
            [*ENTRY, str(self.lifeline), *words],
            environment=self._environment(device),
            log=self.folder.log(name),
            on_line=self.on_line,
            inherited=(self.lifeline, self.lock),
        )
        return Attempt(model, child, time.monotonic())

    def _environment(self, device: str) -> dict[str, str]:
        path = join_paths(expose_package(self.folder.work), os.environ.get("PYTHONPATH"))
        environment: Mapping[str, str] = {**os.environ, **OFFLINE, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
        return dict(environment) if device == CPU else {**environment, "CUDA_VISIBLE_DEVICES": device}


@dataclass(frozen=True)
class Attempt:
    """An attempt in progress. ``model`` is its row while it runs."""

    model: BatchModel
    child: ChildProcess
    began: float

    @property
    def over(self) -> bool:
        """Whether it has ended, or its time has."""
        return self.child.wait(0) or self._out_of_time

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began

    def finish(self, folder: BatchFolder) -> tuple[BatchModel, Run | None]:
        """Ends what is left of it and says what became of the model."""
        timed_out = not self.child.wait(0)
        ended = self.child.end(timed_out)
        try:
            run: Run | None = folder.run(self.model.request.name).load()
        except InductorBenchError:
            run = None
        status, failure = judge(run, ended)
        return replace(self.model, status=status, failure=failure, time_s=round(ended.time_s, 1)), run

    @property
    def _out_of_time(self) -> bool:
        limit = self.model.request.timeout_s
        return limit is not None and self.elapsed_s > limit


def breakdown_words(model: BatchModel) -> list[str]:
    """The target and the options of a model as one would type them; arguments of a script come last, after ``--``."""
    request = model.request
    words = [request.target]
    if request.training is not None:
        words.append("--training" if request.training else "--inference")
    if request.dynamic is not None:
        words.append("--dynamic" if request.dynamic else "--no-dynamic")
    if request.live:
        words.append("--live")
    batch_size = model.batch_size or request.batch_size
    for option, value in (
        ("--batch-size", batch_size),
        ("--amp", request.amp),
        ("--mode", request.mode),
        ("--device", request.device),
        ("--seed", request.seed),
        ("--repeat", request.repeat),
        ("--values", request.values),
    ):
        words += [option, str(value)] if value is not None else []
    return words


def judge(run: Run | None, ended: ProcessResult) -> tuple[str, Failure | None]:
    """The status of a model whose attempt ended so, and its first failure."""
    failures = run.failures if run is not None else ()
    stopped = next((failure for failure in failures if failure.kind == "interrupted"), None)
    if ended.timed_out:
        stage = stopped.stage if stopped is not None else "breakdown"
        hint = "give it more time with --timeout SECONDS"
        return FAILED, Failure(stage, "timeout", f"it {ended.outcome}", hint, ended.tail())
    if stopped is not None:
        return FAILED, stopped
    if run is None or ended.exit_code not in (EXIT_OK, EXIT_FAILURE):
        return FAILED, _last_words(ended)
    if ended.ok:
        return DONE, None
    failure = _most_telling(failures) if failures else _last_words(ended)
    if failure.stage == "capture" and _DOWNLOAD.search(f"{failure.message}\n{failure.log_tail}"):
        failure = replace(failure, kind="download", hint="nothing is fetched: download it before, or write a factory")
    if any(module.kernels for module in run.modules):
        return PARTIAL, failure
    return (SKIPPED if failure.kind == "download" else FAILED), failure


def _last_words(ended: ProcessResult) -> Failure:
    """The failure of a process that left no row of its own: the error that it printed, else how it ended."""
    tail = ended.tail()
    printed = {key: text for key, colon, text in (line.partition(": ") for line in tail.splitlines()) if colon}
    message = printed.get("Error", f"the process {ended.outcome}")
    return Failure("breakdown", ended.kind, message, printed.get("Hint", f"read {ended.log}"), tail)


def _most_telling(failures: tuple[Failure, ...]) -> Failure:
    return next((failure for failure in failures if ran_out_of_memory(failure)), failures[0])


def ran_out_of_memory(failure: Failure | None) -> bool:
    """Whether a smaller batch may help."""
    return failure is not None and (failure.kind == "memory" or bool(_MEMORY.search(failure.message)))


def try_again(model: BatchModel, retries: int) -> BatchModel | None:
    """The row with which a model that failed is tried once more, or ``None``.

    Where memory ran out the batch is halved, which takes none of the retries.
    """
    request = model.request
    if ran_out_of_memory(model.failure) and request.target.partition(":")[0] in MODEL_SOURCES:
        size = model.batch_size or request.batch_size or DEFAULT_BATCH_SIZE
        if size == 1:
            return None
        note = f"batch {size} ran out of memory: tried with {size // 2}"
        return replace(model, batch_size=size // 2, attempts=model.attempts - 1, notes=(*model.notes, note))
    again = model.status == FAILED and model.failure is not None and model.failure.kind not in LASTING
    return model if again and model.attempts <= retries else None


def plain_request(request: ModelRequest) -> ModelRequest:
    """What of a request decides its result: not where it stands, nor how long it may take."""
    return replace(request, line=0, timeout_s=None)

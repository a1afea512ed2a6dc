"""The state of a batch in progress: the attempts at each model, their outcome, and the tables of the whole."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from .. import units
from ..analysis.batch_aggregation import leave_out_uncounted_gains
from ..analysis.findings.finding import plural
from ..analysis.step_costs import compute_whole_time_s, find_step
from ..errors import EXIT_FAILURE, EXIT_OK, InductorBenchError
from ..launch.batch_executors import Event, Executor, Job, JobBegan, JobEnded, JobLost, is_host
from ..launch.process import ProcessResult
from ..records.base import Failure
from ..records.batch_record import (
    DONE,
    FAILED,
    FINISHED,
    MEASURED,
    PARTIAL,
    RUNNING,
    SKIPPED,
    UNOPTIMIZED,
    WAITING,
    Batch,
    BatchModel,
)
from ..records.module import ModuleRecord
from ..records.optimization import UNPROVEN, Optimization
from ..records.request import DEFAULT_BATCH_SIZE, BreakdownRequest, ModelRequest, SearchRequest
from ..records.request_fields import LIBRARIES, list_option_words
from ..records.run import Run
from ..report.batch.batch_document import write_batch
from ..report.batch.batch_tables import BatchView
from ..store.digest import pause_garbage_collection, read_results
from ..store.files import refuse_link
from ..store.folder import BatchFolder
from ..store.redaction import Redaction
from .optimizing.batch_search import describe_optimizer, finish_search, list_search_options, read_printed_failure
from .progress import Progress

# One attempt at a model of a batch: its job, the judgement of its outcome, and the decision whether to try again.


LASTING = frozenset({"download", "program", "nothing-compiled", "missing"})
"""Kinds of failures after which another attempt would fail in the same way."""

MOST_LOSSES = 3
"""If this many machines were lost while they ran a model, it is not started again: the model may be the cause."""

KEPT_BUSY = 0.9
"""Busy share below which a GPU waits for its host."""

MEASURED_ALONE = "its time depends on the host: measured again without another model on its GPU"
"""The note of a model whose time depends on the host. A continued batch reads it."""

_MEMORY = re.compile(r"[Oo]ut of memory|OutOfMemoryError|MemoryError|can't allocate memory")
_TAKEN = re.compile(r"CUDA-capable device\(s\) is/are busy")
"""The error of a GPU that admits one process at a time."""

_DOWNLOAD = re.compile(
    r"OfflineModeIsEnabled|LocalEntryNotFoundError|HF_HUB_OFFLINE|[Oo]ffline mode|urllib\.error\.URLError"
)


def make_job(
    model: BatchModel,
    folder: BatchFolder,
    common: BreakdownRequest,
    search: SearchRequest | None = None,
    *,
    alone: bool,
) -> Job:
    """Makes the job that measures a model, tunes the kernels of a measured one, or searches for settings that help it.

    Args:
        model: the row of the model.
        folder: the batch folder.
        common: the options of ``breakdown`` for all models.
        search: the search for settings; ``None`` for none.
        alone: whether the job shares its device with no other job.
    """
    request = model.request
    options = (*list_breakdown_words(model), *describe_optimizer(request, search), *list_option_words(common))
    if goes_on := model.status in (MEASURED, UNOPTIMIZED):
        options = list_option_words(BreakdownRequest(retune=common.retune, redact=common.redact, plots=common.plots))
    if searches := model.status == UNOPTIMIZED and search is not None:
        options = list_search_options(search, common)
    return Job(
        name=request.name,
        target=request.target,
        options=options,
        arguments=() if goes_on else request.arguments,
        device=request.device,
        timeout_s=None if searches else request.timeout_s,  # a search has its budget
        run=folder.run(request.name).path,
        log=folder.log(request.name),
        alone=alone or searches,
        goes_on=goes_on,
        verb="optimize" if searches else "breakdown",
    )


def finish_row(model: BatchModel, ended: JobEnded, folder: BatchFolder) -> tuple[BatchModel, Run | None]:
    """Returns the row of a model after its job has ended, and its RUN, if there is one."""
    try:
        run: Run | None = folder.run(model.request.name).load()
    except InductorBenchError:
        run = None
    status, failure = judge_model(run, ended.result)
    if status == FAILED and run is not None and run.retunes:
        status = PARTIAL  # tunings begin only after all modules are measured
    return replace(model, status=status, failure=failure, time_s=round(ended.result.time_s, 1)), run


def make_row_after_loss(given: BatchModel, device: str, losses: int, reason: str, log: Path) -> BatchModel:
    """Makes the row of a model whose machine was lost.

    It is the row before the attempt, so that a loss costs no retry; after :data:`MOST_LOSSES` losses it is a failure.

    Args:
        given: the row before the attempt.
        device: the device of the attempt; empty if it had not begun.
        losses: the number of machines that were lost with this model.
        reason: the reason for the last loss.
        log: the log of the model.
    """
    machine = device.partition(":")[0] or "a machine"
    if losses < MOST_LOSSES:
        return replace(given, notes=(*given.notes, f"{machine} was lost: begun again"))
    message = f"{losses} machines were lost while they ran it; the last one: {reason}"
    hint = f"read {log}; a machine that runs out of memory is lost as well"
    failure = Failure("breakdown", "lost", message, hint)
    status = PARTIAL if given.status == UNOPTIMIZED else FAILED
    return replace(given, status=status, attempts=given.attempts + 1, device=device, failure=failure)


def list_breakdown_words(model: BatchModel) -> tuple[str, ...]:
    """Returns the options of a model for the command line. Its time limit is that of the whole process."""
    batch_size = model.batch_size or model.request.batch_size
    return list_option_words(replace(model.request, batch_size=batch_size, timeout_s=None))


def judge_model(run: Run | None, ended: ProcessResult) -> tuple[str, Failure | None]:
    """Returns the status of a model after its process has ended, and its first failure."""
    failures = run.failures if run is not None else ()
    stopped = next((failure for failure in failures if failure.kind == "interrupted"), None)
    if ended.timed_out:
        stage = stopped.stage if stopped is not None else "breakdown"
        hint = "give it more time with --timeout SECONDS"
        return FAILED, Failure(stage, "timeout", f"it {ended.outcome}", hint, ended.tail())
    if stopped is not None:
        return FAILED, stopped
    if run is None or ended.exit_code not in (EXIT_OK, EXIT_FAILURE):
        return FAILED, read_printed_failure(ended)
    if ended.ok:
        return DONE, None
    failure = _choose_failure(failures) if failures else read_printed_failure(ended)
    if failure.stage == "capture" and _DOWNLOAD.search(f"{failure.message}\n{failure.log_tail}"):
        failure = replace(failure, kind="download", hint="this tool downloads nothing: download it, or write a factory")
    if any(module.kernels for module in run.modules):
        return PARTIAL, failure
    return (SKIPPED if failure.kind == "download" else FAILED), failure


def _choose_failure(failures: tuple[Failure, ...]) -> Failure:
    """The first failure for lack of memory; otherwise the first failure."""
    return next((failure for failure in failures if is_out_of_memory(failure)), failures[0])


def is_out_of_memory(failure: Failure | None) -> bool:
    """Whether the failure is a lack of memory, so that a smaller batch size may help."""
    return failure is not None and (failure.kind == "memory" or bool(_MEMORY.search(failure.message)))


def _failed_for_sharing(failure: Failure | None) -> bool:
    """Whether the failure may come from another job on the same device."""
    return failure is not None and (is_out_of_memory(failure) or bool(_TAKEN.search(failure.message)))


def measure_alone(model: BatchModel, run: Run | None) -> BatchModel | None:
    """Returns a row that measures a model again alone, because it was timed next to another model.

    This is needed if the CPU decides the time: for modules on the CPU, and if the GPU waits for its host. Otherwise
    returns ``None``.
    """
    if run is None or not any(_needs_cores(module) for module in run.modules):
        return None
    return replace(model, status=WAITING, attempts=model.attempts - 1, notes=(*model.notes, MEASURED_ALONE))


def reset_row(model: BatchModel) -> BatchModel:
    """Returns the row with which an unfinished model of an earlier command begins again; it keeps
    :data:`MEASURED_ALONE`."""
    return BatchModel(model.request, notes=(MEASURED_ALONE,) if MEASURED_ALONE in model.notes else ())


def _needs_cores(module: ModuleRecord) -> bool:
    """Whether the CPU decides the time of a module."""
    return is_host(module.device) or (module.times.busy_share is not None and module.times.busy_share < KEPT_BUSY)


def try_again(model: BatchModel, retries: int, *, shared: bool = False) -> BatchModel | None:
    """Returns the row with which a failed model is tried again; ``None`` if it is not tried again.

    If memory ran out and the model ``shared`` its device, it is tried alone. If it ran out without sharing, it is tried
    with half its batch size. Neither of these attempts counts as a retry.
    """
    request = model.request
    if shared and _failed_for_sharing(model.failure):
        note = "there was too little memory beside another model: tried alone"
        return replace(model, attempts=model.attempts - 1, notes=(*model.notes, note))
    if is_out_of_memory(model.failure) and request.target.partition(":")[0] in LIBRARIES:
        size = model.batch_size or request.batch_size or DEFAULT_BATCH_SIZE
        if size == 1:
            return None
        note = f"batch {size} ran out of memory: tried with {size // 2}"
        return replace(model, batch_size=size // 2, attempts=model.attempts - 1, notes=(*model.notes, note))
    again = model.status == FAILED and model.failure is not None and model.failure.kind not in LASTING
    return model if again and model.attempts <= retries else None


def make_plain_request(request: ModelRequest) -> ModelRequest:
    """Returns the part of a request that decides its result: without its line in the list and its time limit."""
    return replace(request, line=0, timeout_s=None)


# The state of a batch in progress: the row of each model, saved after every change, and reported in words.


LOOK_S = 0.2
"""Seconds between two polls of an executor's events; long, so that polling does not disturb the measurements."""

OVERTIME = 0.2
"""Minimum estimate of a running model's remaining time, as a share of the mean time of a model."""

MOST_SHOWN = 4
"""Maximum number of running models that the progress names."""


class BatchState:
    """The models that one command runs of a batch.

    ``batch`` holds the rows of ``batch.json``, with unredacted arguments.

    Args:
        batch: the batch, with a row for each model.
        folder: the batch folder.
        names: the names of the requested models.
        common: the options of ``breakdown`` for all models.
        search: the search for settings that help each model; ``None`` for none.
        retries: maximum number of further attempts at a failed model.
        jobs: maximum number of models at once; ``None`` for no maximum.
        progress: the listener for stages and notes.
        redaction: the values that are not written.
    """

    def __init__(
        self,
        batch: Batch,
        folder: BatchFolder,
        names: Sequence[str],
        *,
        common: BreakdownRequest,
        search: SearchRequest | None = None,
        retries: int,
        jobs: int | None,
        progress: Progress,
        redaction: Redaction,
    ) -> None:
        self.batch, self._redaction = batch, redaction
        self._folder, self._names, self._common, self._search = folder, names, common, search
        self._retries, self._jobs, self._progress = retries, jobs, progress
        self._waiting: list[BatchModel] = []
        self._given: dict[str, BatchModel] = {}
        self._began: dict[str, float] = {}
        self._losses: dict[str, int] = {}
        self._alone: set[str] = set()
        self._times: list[float] = []
        self._search_times: list[float] = []
        self._slots = 1

    def run(self, executor: Executor) -> None:
        """Measures the unfinished models.

        Raises:
            InductorBenchError: the executor can start no more jobs.
        """
        unfinished = [self._row(name) for name in self._names if self._row(name).status not in FINISHED]
        kept = len(self._names) - len(unfinished)
        if kept:
            self._progress.note(f"{kept} of {len(self._names)} are there already")
        for model in unfinished:
            if model.status not in (MEASURED, UNOPTIMIZED):
                with contextlib.suppress(OSError):
                    self._folder.log(model.request.name).unlink()
        self._alone = {model.request.name for model in unfinished if MEASURED_ALONE in model.notes}
        begun = [model if model.status in (MEASURED, UNOPTIMIZED) else reset_row(model) for model in unfinished]
        self._waiting = sorted(begun, key=self._rank)
        try:
            while self._waiting or self._given:
                self._start_waiting(executor)
                time.sleep(LOOK_S)
                self._slots = executor.slots
                for event in executor.events():
                    self._apply_event(event)
        finally:
            self._reset_running()

    def _rank(self, model: BatchModel) -> tuple[bool, bool, bool]:
        """Returns the place of a model in the order: first measurements, then retunes that go on, then searches, which
        take longest."""
        return model.status == UNOPTIMIZED, model.request.name in self._alone, model.status == MEASURED

    def save(self) -> None:
        """Writes ``batch.json``."""
        self._folder.save(self._redaction.batch(self.batch))

    def _start_waiting(self, executor: Executor) -> None:
        """Starts waiting models while the executor takes them."""
        while self._waiting and (self._jobs is None or len(self._given) < self._jobs):
            model = self._waiting[0]
            name = model.request.name
            job = make_job(model, self._folder, self._common, self._search, alone=name in self._alone)
            if not executor.takes(job):
                return
            executor.start(job)
            self._given[name] = self._waiting.pop(0)

    def _apply_event(self, event: Event) -> None:
        """Updates the rows for an event of the executor."""
        if isinstance(event, JobBegan):
            self._begin(event)
        elif isinstance(event, JobLost):
            self._on_job_lost(event)
        else:
            self._end(event)
        self._progress.stage(self._describe_progress())

    def _begin(self, event: JobBegan) -> None:
        folder, name = self._folder, event.name
        run, log = folder.relative(folder.run(name).path), folder.relative(folder.log(name))
        model = self._given[name]
        self._began[name] = time.monotonic()
        model = replace(model, status=RUNNING, attempts=model.attempts + 1, device=event.device, run=run, log=log)
        self._put(replace(model, time_s=None, failure=None))

    def _end(self, event: JobEnded) -> None:
        if self._given[event.name].status == UNOPTIMIZED:
            self._end_search(event)
            return
        model, run = finish_row(self._row(event.name), event, self._folder)
        timed_shared = event.shared and self._given[event.name].status != MEASURED
        self._forget(event.name)
        self._times.append(event.result.time_s)
        if timed_shared and (again := measure_alone(model, run)) is not None:
            self._put(again)
            self._progress.note(f"{event.name}: {again.notes[-1]}")
            self._alone.add(event.name)
            self._waiting.append(again)  # it waits behind the other models
            return
        again = try_again(model, self._retries, shared=event.shared)
        self._put(again or model)
        if again is None:
            self._progress.note(_read_result(model, run))
            self._await_search(model)
            return
        if event.shared and again.notes != model.notes:
            self._alone.add(event.name)
        why = again.notes[-1] if again.notes != model.notes else _describe_reason(model.failure)
        self._progress.note(f"{event.name}: {why}; once more")
        self._waiting.insert(0, again)

    def _await_search(self, model: BatchModel) -> None:
        """Lets a measured model wait for its search, behind the measurements of the other models."""
        if self._search is not None and model.status in (DONE, PARTIAL):
            waiting = replace(model, status=UNOPTIMIZED)
            self._put(waiting)
            self._waiting.append(waiting)

    def _end_search(self, event: JobEnded) -> None:
        name = event.name
        model, found = finish_search(self._row(name), event.result, self._folder.run(name))
        self._forget(name)
        self._search_times.append(event.result.time_s)
        self._put(model)
        said = _search_result(found) if found is not None and found.is_complete else _describe_reason(model.failure)
        self._progress.note(f"{name}: {said} ({_format_duration(event.result.time_s)})")

    def _on_job_lost(self, event: JobLost) -> None:
        self._losses[event.name] = losses = self._losses.get(event.name, 0) + 1
        device = self._row(event.name).device if event.name in self._began else ""
        log = self._folder.log(event.name)
        model = make_row_after_loss(self._given[event.name], device, losses, event.reason, log)
        self._forget(event.name)
        self._put(model)
        if losses < MOST_LOSSES:
            self._progress.note(f"{event.name}: {model.notes[-1]}")
            self._waiting.insert(0, model)
        else:
            self._progress.note(_read_result(model, None))

    def _forget(self, name: str) -> None:
        del self._given[name]
        self._began.pop(name, None)

    def _reset_running(self) -> None:
        """Marks running models as waiting, or as waiting for their search: the next command starts them again."""
        if self._given:
            searched = [name for name, given in self._given.items() if given.status == UNOPTIMIZED]
            models = tuple(
                replace(m, status=UNOPTIMIZED if m.request.name in searched else WAITING) if m.status == RUNNING else m
                for m in self.batch.models
            )
            self.batch = replace(self.batch, models=models)
            self.save()

    def _row(self, name: str) -> BatchModel:
        return next(model for model in self.batch.models if model.request.name == name)

    def _put(self, model: BatchModel) -> None:
        models = tuple(model if old.request.name == model.request.name else old for old in self.batch.models)
        self.batch = replace(self.batch, models=models)
        self.save()

    def _describe_progress(self) -> str:
        """Returns the progress in words: ``3 of 18 done, 1 failed · mixnet_l on GPU 0 · about 12 min left``."""
        rows = [self._row(name) for name in self._names]
        failed = sum(row.status == FAILED for row in rows)
        parts = [f"{sum(row.status in (DONE, PARTIAL) for row in rows)} of {len(rows)} done"]
        parts[0] += f", {failed} failed" if failed else ""
        now = [f"{name} on {_name_device(self._row(name).device)}" for name in self._began]
        more = [f"{len(now) - MOST_SHOWN} more"] if len(now) > MOST_SHOWN else []
        parts += [", ".join([*now[:MOST_SHOWN], *more])] if now else []
        if (self._times or self._search_times) and (self._waiting or self._given):
            parts.append(f"about {_format_duration(self._left_s())} left")
        return " · ".join(parts)

    def _left_s(self) -> float:
        """Estimates the seconds until the last model ends."""
        now = time.monotonic()
        measured, searched = self._usual_s(searches=False), self._usual_s(searches=True)
        running, to_come = [], []
        for model in (*self._waiting, *self._given.values()):
            searches, began = model.status == UNOPTIMIZED, self._began.get(model.request.name)
            usual = searched if searches else measured
            if began is None:
                to_come.append(usual)
            else:
                running.append(max(usual - (now - began), OVERTIME * usual))
            if not searches and self._search is not None:
                to_come.append(searched)
        if not to_come:
            return max(running, default=0.0)
        return (sum(to_come) + sum(running)) / min(self._slots, self._jobs or self._slots)

    def _usual_s(self, *, searches: bool) -> float:
        """Returns the usual seconds of a model's measurement, or of its search, as far as they are known now."""
        times = self._search_times if searches else self._times
        return fmean(times) if times else self._search.budget_s if searches and self._search is not None else 0.0


def _name_device(device: str) -> str:
    machine, colon, device = device.rpartition(":")
    called = "the CPU" if is_host(device) else f"GPU {device}"
    return f"{called} of {machine}" if colon else called


def _format_duration(time_s: float) -> str:
    minutes = round(time_s / 60)
    return f"{time_s:.0f} s" if time_s < 90 else f"{minutes} min" if minutes < 90 else f"{time_s / 3600:.1f} h"


def _read_result(model: BatchModel, run: Run | None) -> str:
    """The result of a model in one line."""
    name, took = model.request.name, f" ({_format_duration(model.time_s or 0.0)})"
    if model.status in (DONE, PARTIAL) and run is not None:
        lost = f", but {_describe_reason(model.failure)}" if model.status == PARTIAL else ""
        what = "a step" if find_step(run) else "per iteration"
        return f"{name}: {units.seconds(compute_whole_time_s(run))} {what}{lost}{took}"
    return f"{name} {model.status}: {_describe_reason(model.failure)}{took}"


def _search_result(found: Optimization) -> str:
    """The result of a search in one line: ``19.8 → 16.4 ms a step with 2 settings``."""
    if found.winner is None:
        proven = "proven to be " * any(row.state == UNPROVEN for row in found.rows)
        return f"of {plural(len(found.tried), 'setting')} tried none is {proven}faster"
    gain, settings = found.winner.gain, plural(len(found.winner.slugs), "setting")
    caveat = f", {found.caveat}" if found.caveat else ""
    return f"{units.seconds(gain.before_s)} → {units.seconds(gain.after_s)} a step with {settings}{caveat}"


def _describe_reason(failure: Failure | None) -> str:
    return f"{failure.message} ({failure.stage})" if failure is not None else "no reason is known"


# Reads a batch from its records, and writes its tables, its summary and its plot.


@dataclass(frozen=True)
class BatchReport:
    """A batch with the results of its models, ready to be shown."""

    view: BatchView  # the batch and the results of its models
    folder: Path  # the batch folder
    with_parquet: bool = True  # whether Parquet tables were written, which needs DuckDB
    problem: InductorBenchError | None = None  # the error if the tables could not be written


def report_batch(path: Path, *, writes: bool = True) -> BatchReport:
    """Reads a batch folder's records, and, if it ``writes``, writes its tables, its summary and its page again.

    Raises:
        InductorBenchError: ``batch.json`` is missing or cannot be read.
    """
    with pause_garbage_collection():
        view = read_view(path)
        if not writes:
            return BatchReport(view, path)
        try:
            refuse_link(path)
            return BatchReport(view, path, write_batch(view, path))
        except InductorBenchError as error:
            return BatchReport(view, path, problem=error)


def read_view(path: Path) -> BatchView:
    """A batch from its present records.

    Raises:
        InductorBenchError: ``batch.json`` is missing or cannot be read.
    """
    folder = BatchFolder(path)
    batch = folder.load()
    if not folder.is_locked():  # no process runs this batch, so rows marked as running were cut off
        models = tuple(replace(m, status=WAITING) if m.status == RUNNING else m for m in batch.models)
        batch = replace(batch, models=models)
    return BatchView(leave_out_uncounted_gains(read_results(folder, batch)))

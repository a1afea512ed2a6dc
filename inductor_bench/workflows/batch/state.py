"""The state of a batch in progress: the row of each model, saved after every change, and reported in words."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from ... import units
from ...analysis.costs.step import step_of
from ...analysis.costs.times import whole_time_s
from ...launch.jobs import Began, Ended, Event, Executor, Lost, is_host
from ...records.batches.batch import DONE, FAILED, FINISHED, MEASURED, PARTIAL, RUNNING, WAITING, Batch, BatchModel
from ...records.run import Failure, Run
from ...store.batch import BatchFolder
from ...store.redaction import Redaction
from ..options import RetuneOptions
from ..progress import Progress
from .attempt import (
    MEASURED_ALONE,
    MOST_LOSSES,
    finish,
    make_job,
    make_row_after_loss,
    measure_alone,
    reset_row,
    try_again,
)

LOOK_S = 0.2
"""Seconds between two polls of an executor's events; long, so that polling does not disturb the measurements."""

OVERTIME = 0.2
"""Minimum estimate of a running model's remaining time, as a share of the mean time of a model."""

MOST_SHOWN = 4
"""Maximum number of running models that the progress names."""


class BatchState:
    """The models of one turn of a batch. ``batch`` holds the rows of ``batch.json``, with unredacted arguments.

    Args:
        batch: the batch, with a row for each model.
        folder: the batch folder.
        names: the names of the requested models.
        words: options of ``breakdown`` for all models.
        retune: the tuning of the most expensive kernels; ``None`` for none.
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
        words: tuple[str, ...],
        retune: RetuneOptions | None,
        retries: int,
        jobs: int | None,
        progress: Progress,
        redaction: Redaction,
    ) -> None:
        self.batch, self._redaction = batch, redaction
        self._folder, self._names, self._words = folder, names, words
        self._retune, self._retries, self._jobs, self._progress = retune, retries, jobs, progress
        self._waiting: list[BatchModel] = []
        self._given: dict[str, BatchModel] = {}
        self._began: dict[str, float] = {}
        self._losses: dict[str, int] = {}
        self._alone: set[str] = set()
        self._times: list[float] = []
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
            if model.status != MEASURED:
                with contextlib.suppress(OSError):
                    self._folder.log(model.request.name).unlink()
        self._alone = {model.request.name for model in unfinished if MEASURED_ALONE in model.notes}
        begun = [model if model.status == MEASURED else reset_row(model) for model in unfinished]
        self._waiting = sorted(begun, key=lambda model: (model.request.name in self._alone, model.status == MEASURED))
        try:
            while self._waiting or self._given:
                self._start_waiting(executor)
                time.sleep(LOOK_S)
                self._slots = executor.slots
                for event in executor.events():
                    self._apply_event(event)
        finally:
            self._reset_running()

    def save(self) -> None:
        """Writes ``batch.json``."""
        self._folder.save(self._redaction.batch(self.batch))

    def _start_waiting(self, executor: Executor) -> None:
        """Starts waiting models while the executor takes them."""
        while self._waiting and (self._jobs is None or len(self._given) < self._jobs):
            model = self._waiting[0]
            name = model.request.name
            job = make_job(model, self._folder, self._words, self._retune, alone=name in self._alone)
            if not executor.takes(job):
                return
            executor.start(job)
            self._given[name] = self._waiting.pop(0)

    def _apply_event(self, event: Event) -> None:
        """Updates the rows for an event of the executor."""
        if isinstance(event, Began):
            self._begin(event)
        elif isinstance(event, Lost):
            self._lose(event)
        else:
            self._end(event)
        self._progress.stage(self._describe_progress())

    def _begin(self, event: Began) -> None:
        folder, name = self._folder, event.name
        run, log = folder.relative(folder.run(name).path), folder.relative(folder.log(name))
        model = self._given[name]
        self._began[name] = time.monotonic()
        model = replace(model, status=RUNNING, attempts=model.attempts + 1, device=event.device, run=run, log=log)
        self._put(replace(model, time_s=None, failure=None))

    def _end(self, event: Ended) -> None:
        model, run = finish(self._row(event.name), event, self._folder)
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
            self._progress.note(_result(model, run))
            return
        if event.shared and again.notes != model.notes:
            self._alone.add(event.name)
        why = again.notes[-1] if again.notes != model.notes else _reason(model.failure)
        self._progress.note(f"{event.name}: {why}; once more")
        self._waiting.insert(0, again)

    def _lose(self, event: Lost) -> None:
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
            self._progress.note(_result(model, None))

    def _forget(self, name: str) -> None:
        del self._given[name]
        self._began.pop(name, None)

    def _reset_running(self) -> None:
        """Marks running models as waiting, so that the next turn starts them again."""
        if self._given:
            models = tuple(replace(m, status=WAITING) if m.status == RUNNING else m for m in self.batch.models)
            self.batch = replace(self.batch, models=models)
            self.save()

    def _row(self, name: str) -> BatchModel:
        return next(model for model in self.batch.models if model.request.name == name)

    def _put(self, model: BatchModel) -> None:
        models = tuple(model if old.request.name == model.request.name else old for old in self.batch.models)
        self.batch = replace(self.batch, models=models)
        self.save()

    def _describe_progress(self) -> str:
        """The progress in words: ``3 of 18 done, 1 failed · mixnet_l on GPU 0 · about 12 min left``."""
        rows = [self._row(name) for name in self._names]
        failed = sum(row.status == FAILED for row in rows)
        parts = [f"{sum(row.status in (DONE, PARTIAL) for row in rows)} of {len(rows)} done"]
        parts[0] += f", {failed} failed" if failed else ""
        now = [f"{name} on {_name_device(self._row(name).device)}" for name in self._began]
        more = [f"{len(now) - MOST_SHOWN} more"] if len(now) > MOST_SHOWN else []
        parts += [", ".join([*now[:MOST_SHOWN], *more])] if now else []
        if self._times and (self._waiting or self._given):
            parts.append(f"about {_duration(self._left_s())} left")
        return " · ".join(parts)

    def _left_s(self) -> float:
        """The estimated time in seconds until the last model ends."""
        usual, now = fmean(self._times), time.monotonic()
        to_come = len(self._waiting) + len(self._given) - len(self._began)
        running = [max(usual - (now - began), OVERTIME * usual) for began in self._began.values()]
        if to_come == 0:
            return max(running, default=0.0)
        return (to_come * usual + sum(running)) / min(self._slots, self._jobs or self._slots)


def _name_device(device: str) -> str:
    machine, colon, device = device.rpartition(":")
    called = "the CPU" if is_host(device) else f"GPU {device}"
    return f"{called} of {machine}" if colon else called


def _duration(time_s: float) -> str:
    minutes = round(time_s / 60)
    return f"{time_s:.0f} s" if time_s < 90 else f"{minutes} min" if minutes < 90 else f"{time_s / 3600:.1f} h"


def _result(model: BatchModel, run: Run | None) -> str:
    """The result of a model in one line."""
    name, took = model.request.name, f" ({_duration(model.time_s or 0.0)})"
    if model.status in (DONE, PARTIAL) and run is not None:
        lost = f", but {_reason(model.failure)}" if model.status == PARTIAL else ""
        what = "a step" if step_of(run) else "per iteration"
        return f"{name}: {units.seconds(whole_time_s(run))} {what}{lost}{took}"
    return f"{name}: {model.status}: {_reason(model.failure)}{took}"


def _reason(failure: Failure | None) -> str:
    return f"{failure.stage}: {failure.message}" if failure is not None else "no reason is known"

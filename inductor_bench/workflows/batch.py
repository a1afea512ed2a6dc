"""A batch: every model of a list broken down, each in a process group of its own, one at a time on each device."""

from __future__ import annotations

import contextlib
import datetime
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from .. import __version__, units
from ..analysis.times import whole_time_s
from ..errors import InductorBenchError, UsageError
from ..records.batch import DONE, FAILED, FINISHED, PARTIAL, RUNNING, SKIPPED, WAITING, Batch, BatchModel, ModelRequest
from ..records.run import Failure, Run
from ..store.batch import FORMAT, BatchFolder
from ..store.digest import read_digest
from .batch_attempt import Attempt, Launcher, plain_request, try_again
from .batch_devices import find_devices
from .batch_list import merge, read_list, select
from .progress import Progress

LOOK_S = 0.2
"""How often the processes are looked at. Seldom, for the machine is being measured."""


@dataclass(frozen=True)
class BatchOptions:
    """The request of a batch.

    Attributes:
        source: the list.
        output: the batch folder; ``batches/NAME`` where it is not said.
        bare: whose the names without a source are.
        overrides: options for all models, by the fields' names of ``ModelRequest``; they go before the list's own.
        words: further options of ``breakdown`` for all, as typed.
        filters, excludes, shard: which models of the list, see ``batch_list.select``.
        resume: whether an earlier batch in the folder is continued, rather than refused.
        force: whether what was measured already is measured again.
        retries: how often a model that failed is tried again.
        devices: GPUs, as ``CUDA_VISIBLE_DEVICES`` names them; all where none is named.
        jobs: the most models at once.
    """

    source: Path
    output: Path | None = None
    bare: str | None = None
    overrides: Mapping[str, object] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    shard: tuple[int, int] | None = None
    resume: bool = True
    force: bool = False
    retries: int = 0
    devices: tuple[str, ...] = ()
    jobs: int | None = None


@dataclass(frozen=True)
class BatchOutcome:
    """A batch whose turn is over, and its folder."""

    batch: Batch
    folder: BatchFolder


def plan_batch(options: BatchOptions) -> tuple[ModelRequest, ...]:
    """The models that are asked for, with all their options.

    Raises:
        UsageError: the list cannot be read, or nothing of it is left.
    """
    requests = read_list(options.source, options.bare)
    return tuple(merge(select(requests, options.filters, options.excludes, options.shard), options.overrides))


def run_batch(options: BatchOptions, progress: Progress) -> BatchOutcome:
    """Runs what is asked for and not done yet.

    Raises:
        UsageError: the request cannot be carried out, or another batch writes the folder.
        InductorBenchError: the folder cannot be written.
        KeyboardInterrupt: the user stopped it; what was measured until then is in the folder.
    """
    requests = plan_batch(options)
    devices = find_devices(options.devices, options.jobs, requests)
    folder = BatchFolder(options.output or default_folder(options))
    _check_folder(folder, options)
    with folder.locked() as lock:
        batch = _open(folder, options, requests)
        folder.save(batch)
        running = _Batch(batch, folder, options, requests, devices, progress)
        try:
            running.run(lock)
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(_stopped(running.batch, folder, requests)) from stop
        finally:
            shutil.rmtree(folder.work, ignore_errors=True)
    return BatchOutcome(running.batch, folder)


def default_folder(options: BatchOptions) -> Path:
    """The folder of a list, the same each time, so that the same words continue the batch."""
    return Path("batches") / (options.source.stem + ("-training" if options.overrides.get("training") else ""))


def _check_folder(folder: BatchFolder, options: BatchOptions) -> None:
    path = folder.path
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} exists and is not a folder", "choose another folder with -o")
    if folder.exists() and not options.resume:
        raise UsageError(f"{path} holds an earlier batch", "leave --no-resume away, or choose another folder with -o")
    ours = folder.exists() or not path.exists() or not {item.name for item in path.iterdir()} - {".lock"}
    if not ours:
        raise UsageError(f"{path} is not empty and is not a batch", "choose another folder with -o")


def _open(folder: BatchFolder, options: BatchOptions, requests: Sequence[ModelRequest]) -> Batch:
    """The batch with all that is asked for in it, what is done kept.

    Raises:
        UsageError: a model of that name was measured with other options.
    """
    if not folder.exists():
        created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        command = shlex.join(["inductor-bench", *sys.argv[1:]])
        batch = Batch(FORMAT, __version__, created, command, str(options.source))
    else:
        batch = folder.load()
    known = {model.request.name: model for model in batch.models}
    for request in requests:
        earlier = known.get(request.name)
        same = earlier is not None and plain_request(earlier.request) == plain_request(request)
        if earlier is not None and earlier.status in FINISHED and not same and not options.force:
            raise UsageError(
                f"{folder.path} has measured {request.name} with {_difference(earlier.request, request)}",
                "choose another folder with -o, or measure again with --force",
            )
        kept = earlier is not None and same and not options.force and earlier.status != RUNNING
        if earlier is None or not kept or (earlier.status in FINISHED and not _is_whole(earlier, folder)):
            known[request.name] = BatchModel(request)
        else:
            known[request.name] = replace(earlier, request=request)
    return replace(batch, models=tuple(known.values()))


def _difference(earlier: ModelRequest, request: ModelRequest) -> str:
    for name in ("target", "training", "batch_size", "amp", "mode", "dynamic", "device", "seed", "arguments"):
        was, now = getattr(earlier, name), getattr(request, name)
        if was != now:
            words = [units.MISSING if value in (None, ()) else str(value) for value in (was, now)]
            return f"another {name.replace('_', ' ')}: {words[0]}, and now {words[1]}"
    return "other options"


def _is_whole(model: BatchModel, folder: BatchFolder) -> bool:
    """Whether the record of a model that is finished can be read; one that was damaged since is made again."""
    try:
        return model.status == SKIPPED or bool(read_digest(model, folder.run(model.request.name).record).graphs)
    except InductorBenchError:
        return False


def _stopped(batch: Batch, folder: BatchFolder, requests: Sequence[ModelRequest]) -> str:
    names = {request.name for request in requests}
    done = sum(model.status in FINISHED for model in batch.models if model.request.name in names)
    return f"interrupted; {done} of {len(names)} models are in {folder.path}, and the same command continues"


class _Batch:
    """The state of a batch in progress. ``batch`` is what ``batch.json`` holds."""

    def __init__(
        self,
        batch: Batch,
        folder: BatchFolder,
        options: BatchOptions,
        requests: Sequence[ModelRequest],
        devices: Sequence[str],
        progress: Progress,
    ) -> None:
        self.batch = batch
        self._folder, self._options, self._progress = folder, options, progress
        self._names = [request.name for request in requests]
        self._devices = devices
        self._times: list[float] = []
        self._running: dict[str, Attempt] = {}

    def run(self, lock: int) -> None:
        """Measures what is not finished, and leaves no process behind."""
        waiting = [self._row(name) for name in self._names if self._row(name).status not in FINISHED]
        kept = len(self._names) - len(waiting)
        if kept:
            self._progress.note(f"{kept} of {len(self._names)} are there already")
        for model in waiting:
            with contextlib.suppress(OSError):
                self._folder.log(model.request.name).unlink()
        waiting = [BatchModel(model.request) for model in waiting]
        self._folder.work.mkdir(exist_ok=True)
        with _lifeline() as lifeline:
            launcher = Launcher(self._folder, self._options.words, lifeline, lock, self._progress.output)
            try:
                while waiting or self._running:
                    self._start(waiting, launcher)
                    time.sleep(LOOK_S)
                    self._collect(waiting)
            finally:
                self._abandon()

    def _start(self, waiting: list[BatchModel], launcher: Launcher) -> None:
        """Gives every idle device the next model."""
        for device in self._devices:
            if waiting and device not in self._running:
                attempt = launcher.start(waiting.pop(0), device)
                self._running[device] = attempt
                self._put(attempt.model)
                self._progress.stage(self._situation(len(waiting)))

    def _collect(self, waiting: list[BatchModel]) -> None:
        """Takes the results of what has ended; what is to be tried again comes next."""
        for device, attempt in [(device, attempt) for device, attempt in self._running.items() if attempt.over]:
            model, run = attempt.finish(self._folder)
            del self._running[device]
            self._times.append(attempt.elapsed_s)
            again = try_again(model, self._options.retries)
            self._put(again or model)
            if again is not None:
                why = again.notes[-1] if again.notes != model.notes else _reason(model.failure)
                self._progress.note(f"{model.request.name}: {why}; once more")
                waiting.insert(0, again)
            else:
                self._progress.note(_result(model, run))
            self._progress.stage(self._situation(len(waiting)))

    def _abandon(self) -> None:
        """Ends what still runs; it will be done again."""
        for attempt in self._running.values():
            attempt.child.end()
        models = tuple(replace(m, status=WAITING) if m.status == RUNNING else m for m in self.batch.models)
        if self._running:
            self.batch = replace(self.batch, models=models)
            self._folder.save(self.batch)

    def _row(self, name: str) -> BatchModel:
        return next(model for model in self.batch.models if model.request.name == name)

    def _put(self, model: BatchModel) -> None:
        models = tuple(model if old.request.name == model.request.name else old for old in self.batch.models)
        self.batch = replace(self.batch, models=models)
        self._folder.save(self.batch)

    def _situation(self, waiting: int) -> str:
        """``3 of 18 done, 1 failed · mixnet_l on GPU 0 · about 12 min left``."""
        rows = [self._row(name) for name in self._names]
        failed = sum(row.status == FAILED for row in rows)
        parts = [f"{sum(row.status in (DONE, PARTIAL) for row in rows)} of {len(rows)} done"]
        parts[0] += f", {failed} failed" if failed else ""
        now = [f"{attempt.model.request.name} on {_called(device)}" for device, attempt in self._running.items()]
        parts += [", ".join(now)] if now else []
        if self._times and (waiting or self._running):
            parts.append(f"about {_duration(self._left_s(waiting))} left")
        return " · ".join(parts)

    def _left_s(self, waiting: int) -> float:
        usual = fmean(self._times)
        running = sum(max(usual - attempt.elapsed_s, 0.0) for attempt in self._running.values())
        return (waiting * usual + running) / len(self._devices)


@contextlib.contextmanager
def _lifeline() -> Iterator[int]:
    """The reading end of a pipe that breaks when this process ends, however it does."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(reading)
        os.close(writing)


def _called(device: str) -> str:
    return f"GPU {device}" if device != "cpu" else "the CPU"


def _duration(time_s: float) -> str:
    minutes = round(time_s / 60)
    return f"{time_s:.0f} s" if time_s < 90 else f"{minutes} min" if minutes < 90 else f"{time_s / 3600:.1f} h"


def _result(model: BatchModel, run: Run | None) -> str:
    """What a model came to, in one line."""
    name, took = model.request.name, f" ({_duration(model.time_s or 0.0)})"
    if model.status in (DONE, PARTIAL) and run is not None:
        lost = f", but {_reason(model.failure)}" if model.status == PARTIAL else ""
        return f"{name}: {units.seconds(whole_time_s(run))} per iteration{lost}{took}"
    return f"{name}: {model.status}: {_reason(model.failure)}{took}"


def _reason(failure: Failure | None) -> str:
    return f"{failure.stage}: {failure.message}" if failure is not None else "no reason is known"

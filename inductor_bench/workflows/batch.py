"""Runs a batch: breaks down each model of a list in a separate process group, on this machine or on a Ray cluster."""

from __future__ import annotations

import datetime
import math
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from .. import units
from ..devices.nvidia import list_visible_gpus
from ..devices.protocol import CPU
from ..errors import ANOTHER_FOLDER, InductorBenchError, UsageError
from ..launch.batch_executors import Executor, LocalExecutor, RayExecutor, count_jobs_at_once, is_host
from ..launch.marks import end_marked, find_tool_mark
from ..launch.worker import count_usable_cores
from ..records.batch_record import (
    FAILED,
    FINISHED,
    MEASURED,
    SKIPPED,
    UNOPTIMIZED,
    WAITING,
    Batch,
    BatchModel,
    ModelResult,
)
from ..records.request import BatchRequest, ModelRequest, SearchRequest
from ..store.codec import NewerFormatError
from ..store.digest import read_digest
from ..store.files import own_folder, refuse_link
from ..store.folder import FORMAT, BatchFolder, RunFolder
from ..store.redaction import Redaction
from ..version import __version__
from .batch_state import BatchState, make_plain_request
from .kernels.retuning import has_retunes_left, is_without_proof
from .model_list import merge_batch_options, read_list, select_requests
from .optimizing.batch_search import check_search, is_step_searchable, is_without_search
from .progress import Progress

# Chooses the devices of a batch: every GPU that this process may use, or the CPU.


def find_devices(asked: Sequence[str], requests: Sequence[ModelRequest]) -> tuple[str, ...]:
    """Returns the devices on which models are timed, one model at a time on each.

    Args:
        asked: the requested devices; empty for all devices.
        requests: the models; a batch of models for the CPU needs no GPU.

    Raises:
        UsageError: a device is missing or requested twice.
    """
    if len(set(asked)) < len(asked):
        raise UsageError("--devices names a device twice", "two models on one device would share its time", "bad-word")
    there = () if requests and all(is_host(request.device) for request in requests) else list_visible_gpus()
    if asked and there:
        strange = [device for device in asked if device not in there]
        if strange:
            raise UsageError(
                f"there is no GPU {strange[0]}",
                f"there are {', '.join(there)}; for the CPU, type --device cpu",
                "no-such-device",
            )
    elif not all(map(is_host, asked)):
        raise UsageError(f"there is no GPU {asked[0]}", "leave out --devices to measure on the CPU", "no-such-device")
    return tuple(asked) or there or (CPU.type,)


def find_jobs_at_once(devices: Sequence[str], cores: int, models: int, jobs: int | None, overlap: bool | None) -> int:
    """Returns the number of models that overlap on each device.

    Args:
        devices: the devices of the batch.
        cores: the number of cores of this machine.
        models: the number of models.
        jobs: maximum number of models at once; ``None`` for no maximum.
        overlap: whether models overlap; ``None`` for an overlap if there are enough cores.

    Raises:
        UsageError: ``jobs`` exceeds the number of models that can run at once.
    """
    at_once = 1 if overlap is False else count_jobs_at_once(cores, devices)
    if overlap and not any(map(is_host, devices)):
        at_once = max(2, at_once)
    most = len(devices) * at_once
    if jobs is not None and jobs > most:
        number = f"{len(devices)} device{'s' * (len(devices) > 1)}"
        raise UsageError(
            f"--jobs {jobs} with {number}: models would share its time", f"give at most {most}", "bad-word"
        )
    return min(at_once, math.ceil(min(models, jobs or models) / len(devices)))


LOCAL, RAY = "local", "ray"


@dataclass(frozen=True)
class BatchOutcome:
    """A batch at the end of a command that ran it, and its folder."""

    batch: Batch
    folder: BatchFolder


def plan_batch(request: BatchRequest) -> tuple[ModelRequest, ...]:
    """Returns the selected models with all their options.

    Raises:
        UsageError: the list cannot be read, or no model is selected.
    """
    python = request.models.python
    if python is not None and request.executor == LOCAL and shutil.which(python) is None:
        raise UsageError(
            f"--python {python} is not a program that can be run", "give an interpreter's path", "no-python"
        )
    if request.search is not None:
        check_search(request, request.search)
    requests = read_list(request.source, request.bare)
    return tuple(
        merge_batch_options(
            select_requests(requests, request.filters, request.excludes, request.shard), request.overrides
        )
    )


def find_secrets(request: BatchRequest, requests: Sequence[ModelRequest]) -> Redaction:
    """Returns the values that are kept out of the batch.

    Raises:
        UsageError: a name of ``redact`` matches nothing.
    """
    commands = [sys.argv[1:], *(model.arguments for model in requests)]
    return Redaction.find(commands, os.environ, request.models.redact)


def run_batch(request: BatchRequest, progress: Progress) -> BatchOutcome:
    """Measures the selected models that are unfinished.

    Raises:
        UsageError: the request is invalid, or another batch writes the folder.
        InductorBenchError: the folder cannot be written.
        KeyboardInterrupt: the user stopped the batch; the folder holds the models that were measured before.
    """
    requests = plan_batch(request)
    redaction = find_secrets(request, requests)
    folder = BatchFolder(request.output or default_folder(request))
    with closing(_find_executor(request, requests, progress)) as executor:
        _check_folder(folder, request)
        with folder.locked(find_tool_mark()) as lock:
            end_marked(lock.left)
            state = BatchState(
                _open_batch(folder, request, requests, redaction),
                folder,
                [model.name for model in requests],
                common=request.models,
                search=request.search,
                retries=request.retries,
                jobs=request.jobs,
                progress=progress,
                redaction=redaction,
            )
            state.save()
            for own in (folder.work, folder.models, folder.logs):
                own_folder(own)
            executor.settle(folder.work, (lock.descriptor,))
            try:
                state.run(executor)
            except KeyboardInterrupt as stop:
                raise KeyboardInterrupt(_describe_interrupt(state.batch, folder, requests)) from stop
            finally:
                executor.close()
                shutil.rmtree(folder.work, ignore_errors=True)
    return BatchOutcome(redaction.batch(state.batch), folder)


def _find_executor(request: BatchRequest, requests: Sequence[ModelRequest], progress: Progress) -> Executor:
    """Returns the executor that measures the models."""
    if request.executor == RAY:
        return _find_cluster(request, requests, progress)
    if request.address is not None:
        raise UsageError("--address is that of a Ray cluster", "add --executor ray", "missing-option")
    devices = find_devices(request.devices, requests)
    overlap = request.overlap
    if overlap is None and (request.models.retune is not None or request.search is not None):
        overlap = False  # a tuning would report the other model as another job on its GPU
    at_once = find_jobs_at_once(devices, count_usable_cores(), len(requests), request.jobs, overlap)
    return LocalExecutor(devices[: request.jobs], at_once, progress.output)


def _find_cluster(request: BatchRequest, requests: Sequence[ModelRequest], progress: Progress) -> Executor:
    if request.devices:
        raise UsageError(
            "--devices names GPUs of this machine, and Ray chooses among its own",
            "leave it out",
            "conflicting-options",
        )
    if request.overlap:
        raise UsageError(
            "--overlap is for the GPUs of this machine; on a Ray cluster each model has its own GPU",
            name="conflicting-options",
        )
    progress.stage("looking for the Ray cluster")
    executor = RayExecutor(request.address or "", progress.output)
    if not executor.gpus and any(model.device and not is_host(model.device) for model in requests):
        executor.close()
        raise UsageError(
            "the Ray cluster has no GPU", "--device cpu measures on the CPUs of its machines", "no-such-device"
        )
    place = "GPU" if executor.gpus else "of its largest machines"
    progress.note(f"the Ray cluster measures {executor.slots} at once: one on each {place}")
    return executor


def default_folder(request: BatchRequest) -> Path:
    """Returns the folder of a list. It is the same each time, so that the same command continues the batch."""
    return Path("batches") / (request.source.stem + ("-training" if request.overrides.get("training") else ""))


def _check_folder(folder: BatchFolder, request: BatchRequest) -> None:
    path = folder.path
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} exists and is not a folder", ANOTHER_FOLDER, "folder-in-use")
    if folder.exists():
        refuse_link(path)
    if folder.exists() and not request.resume:
        raise UsageError(
            f"{path} holds an earlier batch", "leave out --no-resume, or choose another folder with -o", "folder-in-use"
        )
    if not (folder.exists() or folder.is_new()):
        raise UsageError(f"{path} is not empty and is not a batch", ANOTHER_FOLDER, "folder-in-use")


def _open_batch(
    folder: BatchFolder, request: BatchRequest, requests: Sequence[ModelRequest], redaction: Redaction
) -> Batch:
    """Returns the batch with a row for each requested model; finished rows of an earlier command are kept."""
    if not folder.exists():
        created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        command = shlex.join(["inductor-bench", *redaction.words(sys.argv[1:])])
        batch = Batch(FORMAT, __version__, created, command, str(request.source))
    else:
        batch = redaction.batch(folder.load())
    known = {model.request.name: model for model in batch.models}
    for model in requests:
        earlier = known.get(model.name)
        shown = replace(model, arguments=redaction.words(model.arguments))
        same = earlier is not None and make_plain_request(earlier.request) == make_plain_request(shown)
        if earlier is not None and earlier.status in FINISHED and not same and not request.force:
            raise UsageError(
                f"{folder.path} has measured {model.name} with {_describe_difference(earlier.request, shown)}",
                "choose another folder with -o, or measure again with --force",
                "other-request",
            )
        if earlier is None or not same or request.force:
            known[model.name] = BatchModel(model)
        else:
            known[model.name] = _check_earlier_row(replace(earlier, request=model), folder, request)
    return replace(batch, models=tuple(known.values()))


_OPTIONS = (
    *("target", "training", "optimizer", "batch_size", "amp", "mode", "dynamic", "device", "seed", "arguments"),
)


def _describe_difference(earlier: ModelRequest, request: ModelRequest) -> str:
    for name in _OPTIONS:
        was, now = getattr(earlier, name), getattr(request, name)
        if was != now:
            words = [units.MISSING if value in (None, ()) else str(value) for value in (was, now)]
            return f"another {name.replace('_', ' ')}: {words[0]}, and now {words[1]}"
    return "other options"


def _check_earlier_row(model: BatchModel, folder: BatchFolder, request: BatchRequest) -> BatchModel:
    """Returns the row of a model from an earlier command, after a check against its RUN.

    Raises:
        UsageError: its search had other options.
    """
    finished, retune = model.status in FINISHED, request.models.retune
    if model.status == SKIPPED or (model.run is None and not finished):
        return model
    run = folder.run(model.request.name)
    try:
        found = read_digest(model, run.record)
    except NewerFormatError:
        return model
    except InductorBenchError:
        found = ModelResult(model)
    begun = found.retunes or found.search is not None
    if not found.graphs or not (finished or model.status in (MEASURED, UNOPTIMIZED) or begun):
        return model if model.status in (FAILED, WAITING) else BatchModel(model.request)
    lacks = retune is not None and (
        has_retunes_left(found.retunes, run, retune) or (retune.verify and is_without_proof(run.load(), run))
    )
    if lacks or request.search is None:
        return model if finished and not lacks else replace(model, status=MEASURED)
    return _check_earlier_search(model, run, request.search)


def _check_earlier_search(model: BatchModel, run: RunFolder, search: SearchRequest) -> BatchModel:
    """Returns the row of a measured model for which settings are searched."""
    if not is_step_searchable(model.request, run):
        return BatchModel(model.request)
    if is_without_search(run, search):
        return replace(model, status=UNOPTIMIZED)
    return model if model.status in FINISHED else replace(model, status=MEASURED)


def _describe_interrupt(batch: Batch, folder: BatchFolder, requests: Sequence[ModelRequest]) -> str:
    names = {request.name for request in requests}
    done = sum(model.status in FINISHED for model in batch.models if model.request.name in names)
    return f"interrupted; {done} of {len(names)} models are in {folder.path}, and the same command continues"

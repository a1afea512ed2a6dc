"""One attempt at a model of a batch: its job, the judgement of its outcome, and the decision on another attempt."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from ...errors import EXIT_FAILURE, EXIT_OK, InductorBenchError
from ...launch.jobs import Ended, Job, is_host
from ...launch.process import ProcessResult
from ...records.batches.batch import DONE, FAILED, MEASURED, PARTIAL, SKIPPED, WAITING, BatchModel, ModelRequest
from ...records.model_sources import LIBRARIES
from ...records.module import ModuleRecord
from ...records.run import Failure, Run
from ...store.batch import BatchFolder
from ...store.redaction import OPTION as REDACT
from ..modules.program import DEFAULT_BATCH_SIZE
from ..options import RetuneOptions

LASTING = frozenset({"download", "program", "nothing-compiled", "missing"})
"""Kinds of failures for which another attempt would fail in the same way."""

MOST_LOSSES = 3
"""Losses of a machine after which its model is started no more: the model may be the cause."""

KEPT_BUSY = 0.9
"""Busy share below which a GPU waits for its host."""

MEASURED_ALONE = "its time depends on the host: measured again without another model on its GPU"
"""The note of such a model. A batch that is continued reads it."""

_MEMORY = re.compile(r"[Oo]ut of memory|OutOfMemoryError|MemoryError|can't allocate memory")
_TAKEN = re.compile(r"CUDA-capable device\(s\) is/are busy")
"""The error of a GPU that admits one process at a time."""

_DOWNLOAD = re.compile(
    r"OfflineModeIsEnabled|LocalEntryNotFoundError|HF_HUB_OFFLINE|[Oo]ffline mode|urllib\.error\.URLError"
)


def make_job(
    model: BatchModel, folder: BatchFolder, words: tuple[str, ...], retune: RetuneOptions | None, *, alone: bool
) -> Job:
    """The job that measures a model, or tunes the kernels of a measured one.

    Args:
        model: the row of the model.
        folder: the batch folder.
        words: options of ``breakdown`` for all models.
        retune: the tuning of the most expensive kernels; ``None`` for none.
        alone: whether the job shares its device with no other job.
    """
    request = model.request
    target, *options = [*breakdown_words(model), *words]
    if goes_on := model.status == MEASURED:
        target, options = (
            str(folder.run(request.name).path),
            [word for word in words if word == "--no-plots" or word.startswith(f"{REDACT}=")],
        )
    return Job(
        name=request.name,
        target=target,
        options=(*options, *(retune.words if retune is not None else ())),
        arguments=() if goes_on else request.arguments,
        device=request.device,
        timeout_s=request.timeout_s,
        run=folder.run(request.name).path,
        log=folder.log(request.name),
        alone=alone,
        goes_on=goes_on,
    )


def finish(model: BatchModel, ended: Ended, folder: BatchFolder) -> tuple[BatchModel, Run | None]:
    """The row of a model after its job has ended, and its RUN, if there is one."""
    try:
        run: Run | None = folder.run(model.request.name).load()
    except InductorBenchError:
        run = None
    status, failure = judge(run, ended.result)
    if status == FAILED and run is not None and run.retunes:
        status = PARTIAL  # tunings begin only after all modules are measured
    return replace(model, status=status, failure=failure, time_s=round(ended.result.time_s, 1)), run


def make_row_after_loss(given: BatchModel, device: str, losses: int, reason: str, log: Path) -> BatchModel:
    """The row of a model whose machine was lost.

    It is the row before the attempt, so that a loss costs no retry; after :data:`MOST_LOSSES` losses it is a failure.

    Args:
        given: the row before the attempt.
        device: the device of the attempt; empty where it had not begun.
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
    return replace(given, status=FAILED, attempts=given.attempts + 1, device=device, failure=failure)


def breakdown_words(model: BatchModel) -> list[str]:
    """The target and the options of a model for the command line, without the arguments of a script."""
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
    """The status of a model after its process has ended, and its first failure."""
    failures = run.failures if run is not None else ()
    stopped = next((failure for failure in failures if failure.kind == "interrupted"), None)
    if ended.timed_out:
        stage = stopped.stage if stopped is not None else "breakdown"
        hint = "give it more time with --timeout SECONDS"
        return FAILED, Failure(stage, "timeout", f"it {ended.outcome}", hint, ended.tail())
    if stopped is not None:
        return FAILED, stopped
    if run is None or ended.exit_code not in (EXIT_OK, EXIT_FAILURE):
        return FAILED, _find_printed_failure(ended)
    if ended.ok:
        return DONE, None
    failure = _choose_failure(failures) if failures else _find_printed_failure(ended)
    if failure.stage == "capture" and _DOWNLOAD.search(f"{failure.message}\n{failure.log_tail}"):
        failure = replace(failure, kind="download", hint="nothing is fetched: download it before, or write a factory")
    if any(module.kernels for module in run.modules):
        return PARTIAL, failure
    return (SKIPPED if failure.kind == "download" else FAILED), failure


def _find_printed_failure(ended: ProcessResult) -> Failure:
    """The failure of a process that recorded none: the error that it printed, or the way that it ended."""
    tail = ended.tail()
    printed = {key: text for key, colon, text in (line.partition(": ") for line in tail.splitlines()) if colon}
    message = printed.get("Error", f"the process {ended.outcome}")
    return Failure("breakdown", ended.kind, message, printed.get("Hint", f"read {ended.log}"), tail)


def _choose_failure(failures: tuple[Failure, ...]) -> Failure:
    """The first failure for lack of memory; otherwise the first failure."""
    return next((failure for failure in failures if ran_out_of_memory(failure)), failures[0])


def ran_out_of_memory(failure: Failure | None) -> bool:
    """Whether the failure is a lack of memory, so that a smaller batch size may help."""
    return failure is not None and (failure.kind == "memory" or bool(_MEMORY.search(failure.message)))


def _failed_for_sharing(failure: Failure | None) -> bool:
    """Whether the failure may come from another job on the same device."""
    return failure is not None and (ran_out_of_memory(failure) or bool(_TAKEN.search(failure.message)))


def measure_alone(model: BatchModel, run: Run | None) -> BatchModel | None:
    """The row with which a model that was timed beside another is measured again alone, where that is necessary.

    It is necessary where the CPU decides the time: for modules on the CPU, and where the GPU waits for its host.
    Returns ``None`` otherwise.
    """
    if run is None or not any(_needs_cores(module) for module in run.modules):
        return None
    return replace(model, status=WAITING, attempts=model.attempts - 1, notes=(*model.notes, MEASURED_ALONE))


def reset_row(model: BatchModel) -> BatchModel:
    """The row with which an unfinished model of an earlier turn begins anew; it keeps :data:`MEASURED_ALONE`."""
    return BatchModel(model.request, notes=(MEASURED_ALONE,) if MEASURED_ALONE in model.notes else ())


def _needs_cores(module: ModuleRecord) -> bool:
    """Whether the CPU decides the time of a module."""
    return is_host(module.device) or (module.times.busy_share is not None and module.times.busy_share < KEPT_BUSY)


def try_again(model: BatchModel, retries: int, *, shared: bool = False) -> BatchModel | None:
    """The row with which a failed model is tried again; ``None`` where it is not.

    After a failure for lack of memory a model that ``shared`` its device is tried alone, and then with half its batch
    size. Neither counts as a retry.
    """
    request = model.request
    if shared and _failed_for_sharing(model.failure):
        note = "no room beside another model: tried alone"
        return replace(model, attempts=model.attempts - 1, notes=(*model.notes, note))
    if ran_out_of_memory(model.failure) and request.target.partition(":")[0] in LIBRARIES:
        size = model.batch_size or request.batch_size or DEFAULT_BATCH_SIZE
        if size == 1:
            return None
        note = f"batch {size} ran out of memory: tried with {size // 2}"
        return replace(model, batch_size=size // 2, attempts=model.attempts - 1, notes=(*model.notes, note))
    again = model.status == FAILED and model.failure is not None and model.failure.kind not in LASTING
    return model if again and model.attempts <= retries else None


def plain_request(request: ModelRequest) -> ModelRequest:
    """The part of a request that decides its result: without its line in the list and its time limit."""
    return replace(request, line=0, timeout_s=None)

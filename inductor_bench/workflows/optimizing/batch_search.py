"""Searches of a batch for settings that make its models faster: which models lack a search, and how each ended."""

from __future__ import annotations

from dataclasses import replace

from ...errors import EXIT_UNDECIDED, InductorBenchError, UsageError
from ...launch.process import ProcessResult
from ...records.base import Failure
from ...records.batch_record import DONE, PARTIAL, BatchModel
from ...records.optimization import WARMING, Optimization, check_groups
from ...records.request import (
    BatchRequest,
    BreakdownRequest,
    ModelRequest,
    OptimizeRequest,
    SearchRequest,
    find_searched_optimizer,
)
from ...records.request_fields import list_option_words
from ...store.folder import RunFolder, load_search
from ..model_list import find_source
from .tried_program import STAGE


def check_search(request: BatchRequest, search: SearchRequest) -> None:
    """Checks the options of a batch with searches.

    Raises:
        UsageError: a group is unknown, or an option contradicts another one.
    """
    check_groups(search.allowed, search.denied)
    if request.overlap:
        raise UsageError(
            "--overlap and --optimize exclude each other: a search needs its GPU alone",
            "leave one out",
            "conflicting-options",
        )


def describe_optimizer(request: ModelRequest, search: SearchRequest | None) -> tuple[str, ...]:
    """Returns the words that give a model's training step the optimizer that a search needs."""
    if search is None or request.optimizer is not None:
        return ()
    return list_option_words(BreakdownRequest(optimizer=_find_optimizer(request)))


def _find_optimizer(request: ModelRequest) -> str | None:
    return find_searched_optimizer(request, find_source(request.target).kind)


def list_search_options(search: SearchRequest, common: BreakdownRequest) -> tuple[str, ...]:
    """Returns the options of ``optimize`` for the RUN of a model."""
    return list_option_words(
        OptimizeRequest(
            search.budget_s,
            search.allowed,
            search.denied,
            max_memory_bytes=search.max_memory_bytes,
            program=BreakdownRequest(redact=common.redact),
        )
    )


def is_step_searchable(request: ModelRequest, run: RunFolder) -> bool:
    """Whether a search can use the step of a RUN. A step that trains without an optimizer cannot be used.

    Raises:
        InductorBenchError: the record cannot be read.
    """
    return _find_optimizer(request) is None or run.load().request.optimizer is not None


def is_without_search(run: RunFolder, search: SearchRequest) -> bool:
    """Whether a measured model still needs its search, or its search has to go on.

    Raises:
        UsageError: it was searched with other groups or limits.
    """
    found = read_search(run)
    if found is None:
        return True
    for option, was, now in (
        ("--allow", ",".join(found.allowed), ",".join(search.allowed)),
        ("--deny", ",".join(found.denied), ",".join(search.denied)),
        ("--max-memory", found.max_memory_bytes or "", search.max_memory_bytes or ""),
    ):
        if was != now:
            raise UsageError(
                f"{run.path} was searched with {f'{option} {was}' if was else f'no {option}'}",
                "choose another folder with -o, or measure again with --force",
                "other-request",
            )
    return not found.is_complete or search.budget_s > found.budget_s


def read_search(run: RunFolder) -> Optimization | None:
    """Returns the search of a RUN; ``None`` if there is none that can be read."""
    try:
        return load_search(run.path)
    except InductorBenchError:
        return None


def finish_search(model: BatchModel, ended: ProcessResult, run: RunFolder) -> tuple[BatchModel, Optimization | None]:
    """Returns the row of a model after its search has ended, and the search, if there is one.

    A model whose search failed was measured before, so its row is ``partial``.
    """
    found = read_search(run)
    failure = _make_failure(found, ended) or _own_failure(run)
    status = DONE if failure is None else PARTIAL
    row = replace(model, status=status, failure=failure, attempts=model.attempts - 1, time_s=round(ended.time_s, 1))
    return row, found


def _make_failure(found: Optimization | None, ended: ProcessResult) -> Failure | None:
    if found is not None and found.is_complete and (ended.ok or (found.caveat and ended.exit_code == EXIT_UNDECIDED)):
        return None
    timed = [trial for trial in found.trials if trial.purpose != WARMING] if found is not None else []
    failed = next((trial.failure for trial in timed if trial.failure), None)
    if found is not None and found.is_complete and failed is not None:
        return failed
    return replace(read_printed_failure(ended), stage=STAGE)


def _own_failure(run: RunFolder) -> Failure | None:
    """What failed when the model was measured."""
    try:
        return next(iter(run.load().failures), None)
    except InductorBenchError:
        return None


def read_printed_failure(ended: ProcessResult) -> Failure:
    """Makes the failure of a process that recorded none: from the error that it printed, or from the way it ended."""
    tail = ended.tail()
    printed = {key: text for key, colon, text in (line.partition(": ") for line in tail.splitlines()) if colon}
    message = printed.get("Error", f"the process {ended.outcome}")
    return Failure("breakdown", ended.kind, message, printed.get("Hint", f"read {ended.log}"), tail)

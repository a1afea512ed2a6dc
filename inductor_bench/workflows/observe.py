"""Observes a block of the user's process, and measures at its end what it compiled, as a breakdown does.

Nothing here ends the user's program: a failure becomes a warning and is written into the RUN.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Protocol

from ..errors import InductorBenchError, UsageError
from ..launch.marks import end_marked, find_tool_mark
from ..launch.worker import WorkerPool
from ..messages.observed import COMPILE_CACHE
from ..records.base import Failure
from ..records.request import BreakdownRequest
from ..records.request_fields import COMMAND, PROCESS
from ..report.run.observed_run import ObservedRun
from ..store.files import write_text
from ..store.folder import RunFolder, make_run_folder, remove_run
from ..store.redaction import Redaction
from .breakdown import Breakdown, keep_stage_times, report_run
from .kernels.retuning import CAPTURE
from .modules.compile_environment import capture_environment
from .modules.program_run import STEPLESS, CapturedProgram, read_program
from .modules.targets import find_secrets, make_folder_title
from .progress import Silent, StageTimes

OBSERVED = "inductor_bench.observe(…)"
"""The command of a run of a block."""

BY_COMMAND = "inductor-bench observes this program already, so observe() does nothing in it"
OTHER_RANK = "rank {rank} is not observed: observe() measures rank 0 of a program"
NESTED = "this process is observed already: the block of another observe() has not ended"
NOTEBOOK = "ipykernel"

active: list[ObservedBlock] = []
"""The block of this process that is observed now."""


class BlockObserver(Protocol):
    """The observer in the process; see ``worker.capture.in_process.ProcessObserver``."""

    @property
    def is_measured(self) -> bool: ...
    def begin(self) -> None: ...
    def end(self) -> str: ...


class MakeObserver(Protocol):
    """Makes the observer of a block."""

    def __call__(self, observed: Path, trace: Path, *, samples: bool) -> BlockObserver: ...


class BlockBreakdown(Breakdown):
    """The breakdown of a block, whose observation was written into the RUN's scratch folder."""

    def __init__(self, request: BreakdownRequest, folder: RunFolder, redaction: Redaction, stages: StageTimes) -> None:
        super().__init__(request, None, folder, redaction, stages, command=OBSERVED)
        self.captured: CapturedProgram | None = None
        self._cache = ""

    def read(self, time_s: float, cache: str, *, is_whole: bool) -> CapturedProgram:
        """Reads what was observed in the block.

        Args:
            time_s: the seconds that the block took.
            cache: the folder in which torch keeps what this process compiled.
            is_whole: whether the block came to its end.
        """
        work, self._cache = self._folder.work, cache
        printed = work / "printed.log"
        write_text(printed, "")
        known = {COMPILE_CACHE: str(work / "known")}  # torch's own caches may have modules: what those took is unknown
        found = read_program(work, printed, known, is_whole=is_whole)
        capture = replace(found.capture, disagreement="", exit_code=0 if is_whole else None, time_s=time_s)
        self.captured = replace(found, capture=capture, failures=(*found.failures, *_describe_missing(found)))
        return self.captured

    def measure(self) -> None:
        """Measures what the block compiled; each module runs in a process of its own."""
        environment = capture_environment(self._folder.work)
        if self._cache:
            environment["TORCHINDUCTOR_CACHE_DIR"] = self._cache
        with self.pool(environment) as pool:
            self.measure_with(pool)

    def capture(self, pool: WorkerPool) -> CapturedProgram:
        """What was observed."""
        assert self.captured is not None
        return self.captured

    def note(self, problem: Exception) -> None:
        """Keeps a failure of the measurement itself."""
        message, hint = str(problem), getattr(problem, "hint", "")
        if not isinstance(problem, InductorBenchError):
            traceback.print_exc()
            message = f"{type(problem).__name__}: {message}"
        warnings.warn(f"the observed block is not measured completely: {message}", stacklevel=4)
        self._fail(Failure(self._stage, "invalid", message, hint))

    def stop(self, captured: CapturedProgram, failure: Failure) -> None:
        """Keeps what is known of the steps of a block that did not come to its end."""
        failures = (*self.run.failures, failure, *captured.failures)
        self.run = replace(self.run, capture=captured.capture, failures=failures)
        if captured.steps:
            self._keep(captured, early=True)
            self._analyse()
            self._draw_step()


def _describe_missing(found: CapturedProgram) -> Iterator[Failure]:
    """Says what a block lacked so that its step was not measured; empty if it was measured."""
    if any(one.trace or one.step_times_s for one in found.steps):
        return
    said = next((one.unprofiled for one in found.steps if one.unprofiled), "")
    if found.modules:
        hint = "mark the end of each step with inductor_bench.step()" if not found.steps else ""
        yield Failure(CAPTURE, "no-steps", f"no step was timed: {said or 'no step came to its end'}", hint)
        return
    why = found.capture.uncompiled
    causes = "; ".join(filter(None, [why, said]))
    message = f"the block called no compiled graph{f': {causes}' if causes else ''}"
    yield Failure(CAPTURE, "nothing-compiled", message, "" if said else STEPLESS)


class ObservedBlock:
    """A block of this process that is observed; a context manager, which gives an ``ObservedRun``.

    Args:
        request: what is observed, and the folder.
        make: makes the observer of this process.
        cache: tells the folder in which torch keeps what this process compiles.
        is_observed: whether a command of this tool observes this process, so that nothing is done here.
    """

    def __init__(
        self, request: BreakdownRequest, make: MakeObserver, cache: Callable[[], str], *, is_observed: bool = False
    ) -> None:
        self._request, self._make, self._cache = request, make, cache
        self.yields = False
        """Whether the next block may end this one, for example after an exception in a training loop."""
        rank = os.environ.get("RANK", "")
        other_rank = OTHER_RANK.format(rank=rank) if rank not in ("", "0") else ""
        self._reason = BY_COMMAND if is_observed else other_rank
        self._redaction = find_secrets(request)
        self._ends = contextlib.ExitStack()
        self._stages = StageTimes(Silent())
        self._begin_s = 0.0
        self._breakdown: BlockBreakdown | None = None
        self._observer: BlockObserver | None = None
        self.run = ObservedRun(None, self._reason)

    def __enter__(self) -> ObservedRun:
        """Begins the observation.

        Raises:
            UsageError: another block is observed, or the folder is in use.
            InductorBenchError: the folder cannot be made.
        """
        if self._reason:
            if self._reason == BY_COMMAND:
                warnings.warn(BY_COMMAND, stacklevel=2)
            return self.run
        if active and active[0].yields:
            active[0].give_up()
        if active:
            raise UsageError(NESTED, "end it, and begin this one after it")
        folder = self._new_folder()
        try:
            self._begin(folder)
        except InductorBenchError:
            self._ends.close()
            raise
        except Exception as error:  # what torch lacks must not end the program
            traceback.print_exc()
            self.run = ObservedRun(None, f"this process cannot be observed: {type(error).__name__}: {error}")
            warnings.warn(str(self.run), stacklevel=2)
            remove_run(folder)
            self._ends.close()
        return self.run

    def _new_folder(self) -> RunFolder:
        request = self._request
        try:
            made = make_run_folder(
                request.output, make_folder_title(request), force=request.force, mark=find_tool_mark()
            )
            folder, left = self._ends.enter_context(made)
        except UsageError as error:
            hint = error.hint.replace("--force", "force=True").replace(" with -o", "")
            raise UsageError(error.message, hint, error.id) from error
        end_marked(left)
        return folder

    def _begin(self, folder: RunFolder) -> None:
        breakdown = BlockBreakdown(self._request, folder, self._redaction, self._stages)
        capture_environment(folder.work)  # makes the folders
        observer = self._make(folder.work / "observed", folder.work / "torch_trace", samples=self._request.samples)
        observer.begin()
        self._breakdown, self._observer = breakdown, observer
        self._folder, self._begin_s = folder, time.monotonic()
        self.run = ObservedRun(folder.path, is_measured=lambda: observer.is_measured)
        active.append(self)

    def give_up(self) -> None:
        """Ends the observation of a block that will not reach its end."""
        self.__exit__(RuntimeError, RuntimeError("another block began before its end"), None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the observation. Measures what was compiled, unless the block ended with an exception.

        It raises nothing of its own. Ctrl-C leaves out what is not measured yet.
        """
        breakdown, observer = self._breakdown, self._observer
        if breakdown is None or observer is None:
            return
        self._breakdown = self._observer = None
        time_s = time.monotonic() - self._begin_s
        active.remove(self)
        with self._ends:
            try:
                if lacks := observer.end():
                    warnings.warn(lacks, stacklevel=2)
                captured = breakdown.read(time_s, self._cache(), is_whole=error is None)
                if error is None:
                    breakdown.measure()
                else:
                    breakdown.stop(captured, _find_failure(error))
            except KeyboardInterrupt:
                self.run.finish(breakdown.record_interruption().run)
                raise
            except Exception as problem:  # a training may have taken hours
                breakdown.note(problem)
            self._conclude(breakdown)

    def _conclude(self, breakdown: BlockBreakdown) -> None:
        """Writes the record and the reports."""
        try:
            breakdown.conclude()
            self._stages.stage("writing the report")
            outcome = report_run(breakdown.run, self._folder, plots=False)
            keep_stage_times(self._stages, self._folder, self._redaction)
        except InductorBenchError as problem:
            warnings.warn(f"the RUN is not complete: {problem.message}", stacklevel=4)
            outcome = None
        self.run.finish(outcome.run if outcome is not None else breakdown.run)


def _find_failure(error: BaseException) -> Failure:
    kept = "its steps until then are measured, but its graphs and kernels are not"
    return Failure(CAPTURE, "exit", f"the block ended with {type(error).__name__}: {str(error)[:200]}; {kept}")


def request_of_block(
    output: str | os.PathLike[str] | None, name: str, *, force: bool, samples: bool
) -> BreakdownRequest:
    """The request of a block; the arguments are those of ``inductor_bench.observe``."""
    folder = Path(output) if output is not None else None
    request = _request_of(name)
    return replace(request, output=folder, force=force, samples=samples, plots=False, python=sys.executable)


def _request_of(name: str) -> BreakdownRequest:
    """Makes the request for this process: its command line if that runs it again, otherwise a block."""
    main = sys.modules.get("__main__")
    script, several = str(getattr(main, "__file__", None) or ""), os.environ.get("WORLD_SIZE", "1") != "1"
    if script.endswith(".py") and getattr(main, "__spec__", None) is None and not several and not name:
        return BreakdownRequest(sys.argv[0], COMMAND, tuple(sys.orig_argv))
    shown = "notebook" if NOTEBOOK in sys.modules else Path(script).name or "python"
    return BreakdownRequest(name or shown, PROCESS)

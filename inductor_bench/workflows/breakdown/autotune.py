"""Tunes the most expensive kernels of a RUN by their standalone files; each outcome is saved at once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from ...autotune.stake import Stake, find_least
from ...devices.nvidia.visible import visible_gpus
from ...devices.table import device_of
from ...errors import InductorBenchError
from ...records.failure import ELSEWHERE
from ...records.retune import EDITED, UNFINISHED, Retune, RetuneRow
from ...records.run import Environment, Failure, Run
from ...records.tuning import MeasuredKernel
from ...store.device_turn import DeviceTurn
from ...store.folder import RunFolder
from ...store.kernel_index import rows_in
from ..extract.into_run import extract_run
from ..kernel.run import run_kernel
from ..options import DRAWN, RECORDED, BreakdownOptions, KernelOptions, RetuneOptions
from ..progress import Progress
from .known import KnownTunings
from .most_expensive import STAGE, are_written, find_stake, most_expensive

SAVES_SHARE = 0.02
"""Maximum share of the time that is spent on saving the record after each outcome. The last outcomes are saved at the
end, also after an interruption."""


class _ElsewhereError(InductorBenchError):
    """This machine is another one than that of the run."""


def autotune_run(
    run: Run, folder: RunFolder, options: BreakdownOptions, progress: Progress, keep: Callable[[Run], None]
) -> Run:
    """Tunes the most expensive kernels that are not tuned yet, where the options ask for a tuning.

    Args:
        run: the record of the measured run.
        folder: the folder of the run, which no other process writes.
        options: the number of kernels, the method and the interpreter; ``None`` means the interpreter of the run.
        progress: the listener for stages and notes.
        keep: called with the record after each outcome, and first with a row for each requested kernel.
    """
    if options.retune is None or not any(module.kernels for module in run.modules):
        return run
    return _autotune(run, folder, options, options.retune, progress, keep)


def _autotune(
    run: Run,
    folder: RunFolder,
    options: BreakdownOptions,
    wanted: RetuneOptions,
    progress: Progress,
    keep: Callable[[Run], None],
) -> Run:
    run = replace(run, failures=tuple(failure for failure in run.failures if failure.stage != STAGE))
    state = _Retunes(run, folder, wanted, keep)
    try:
        _check_gpu(run)
        state.ask(progress)
        state.take_known(progress)
        if state.files:
            request = KernelOptions(
                state.files,
                wanted.method,
                budget_s=wanted.budget_s,
                timeout_s=options.timeout_s,
                python=options.python or run.request.python,
                force=True,  # as a breakdown does: the record of each kernel names another job on its GPU
                stakes=state.stakes,
            )
            with DeviceTurn(), state.saved_at_end(progress):
                run_kernel(request, progress, state.put)
    except InductorBenchError as error:
        kind = ELSEWHERE if isinstance(error, _ElsewhereError) else "invalid"
        state.fail(Failure(STAGE, kind, error.message, error.hint))
    return state.run


def has_retunes_left(known: Iterable[RetuneRow], folder: RunFolder, options: RetuneOptions) -> bool:
    """Whether some of the most expensive kernels have no complete tuning by this method.

    Raises:
        InductorBenchError: the record cannot be read.
    """
    run = folder.load()
    return not are_written(run, folder, options) or bool(_left(run, known, folder, options))


def _left(run: Run, known: Iterable[RetuneRow], folder: RunFolder, options: RetuneOptions) -> list[Retune]:
    problems = {row.kernel_id: row.problem for row in known if row.method == options.method}
    return [
        retune for retune in most_expensive(run, folder, options) if _is_left(retune, problems.get(retune.kernel_id))
    ]


def _is_left(retune: Retune, problem: str | None) -> bool:
    """Whether a kernel is tuned again in spite of its earlier problem; ``problem`` is ``None`` for a new kernel."""
    return problem in (None, *UNFINISHED) or (problem == EDITED and retune.failure is None)


class _Retunes:
    """A record with the rows of its tunings, and the updates to them."""

    def __init__(self, run: Run, folder: RunFolder, options: RetuneOptions, keep: Callable[[Run], None]) -> None:
        self.run = run
        self.stakes: dict[str, Stake] = {}
        self._folder, self._options, self._keep = folder, options, keep
        self._waiting: dict[str, Retune] = {}
        self._keeper, self._kept = ThreadPoolExecutor(1), list[Future[bool]]()
        self._saved, self._saving_s = time.monotonic(), 0.0

    @contextlib.contextmanager
    def saved_at_end(self, progress: Progress) -> Iterator[None]:
        """Saves the last outcomes at the end of the block, also after an interruption."""
        try:
            yield
        finally:
            self._save()
            self._keeper.shutdown()
            if not all(kept.result() for kept in self._kept):
                progress.note("the tunings could not be kept for other runs: the cache folder cannot be written")

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(self._waiting)

    @property
    def _known(self) -> KnownTunings:
        return KnownTunings(self.run, self._folder, KernelOptions.state)

    def ask(self, progress: Progress) -> None:
        """Adds rows for the requested kernels that have none."""
        if not are_written(self.run, self._folder, self._options):
            progress.stage("writing the kernels as files")
            values = RECORDED if any(row.values for row in rows_in(self._folder.kernels)) else DRAWN
            self.run = extract_run(self._folder, values).named_in(self.run)
        asked = _left(self.run, (retune.row for retune in self.run.retunes), self._folder, self._options)
        files = {row.file: row for row in asked if row.file is not None and row.failure is None}
        self._waiting = {str(self._folder.path / file): row for file, row in files.items()}
        self.stakes = {file: find_stake(row, self.run) for file, row in self._waiting.items()}
        self._store(*asked)
        self._save()

    def take_known(self, progress: Progress) -> None:
        """Takes over the tunings that are known from other runs."""
        if self._options.remeasure:
            return
        among_many = find_least(self.stakes.values()) > 0
        found = {file: self._known.find(row, among_many=among_many) for file, row in self._waiting.items()}
        taken = {file: row for file, row in found.items() if row is not None}
        if taken:
            self._waiting = {file: row for file, row in self._waiting.items() if file not in taken}
            titles = dict.fromkeys(row.known_from.title for row in taken.values() if row.known_from is not None)
            progress.note(f"{len(taken)} of {len(found)} kernels are known from {', '.join(titles)}")
            self._store(*taken.values())
            self._save()

    def put(self, found: MeasuredKernel | Failure, environment: Environment) -> None:
        """Updates the row of a kernel with its outcome, and keeps the tuning for other runs.

        Args:
            found: the outcome.
            environment: the environment of the worker that measured.

        Raises:
            InductorBenchError: this machine is another one than that of the run.
        """
        row = self._waiting[found.subject if isinstance(found, Failure) else found.file]
        if isinstance(found, Failure):
            row = replace(row, failure=replace(found, stage=STAGE, subject=row.name))
        else:
            _check_device(found.device, self.run.environment)
            row = replace(row, kernel=replace(found, file=row.file or ""))
        self._kept.append(self._keeper.submit(self._known.keep, row, environment))  # in a thread: it takes up to 15 ms
        self._store(row)

    def fail(self, failure: Failure) -> None:
        self.run = replace(self.run, failures=(*self.run.failures, failure))
        self._keep(self.run)

    def _store(self, *rows: Retune) -> None:
        known = {(retune.kernel_id, retune.method): retune for retune in self.run.retunes}
        known.update({(row.kernel_id, row.method): row for row in rows})
        verification = None if rows else self.run.verification  # it says nothing of other configs
        retunes = tuple(sorted(known.values(), key=lambda row: -row.time_s))
        self.run = replace(self.run, retunes=retunes, verification=verification)
        if (time.monotonic() - self._saved) * SAVES_SHARE > self._saving_s:
            self._save()

    def _save(self) -> None:
        began = time.monotonic()
        self._keep(self.run)
        self._saved = time.monotonic()
        self._saving_s = self._saved - began


def _check_device(device: str, measured: Environment) -> None:
    there = [name for name in (measured.device.accelerator, measured.host.cpu) if name]
    if there and device not in there:
        message = f"the run was measured on {there[0]}, and this is {device}: a retune here says nothing about it"
        raise _ElsewhereError(message, "retune it where it was measured")


def _check_gpu(run: Run) -> None:
    launched = any(not device_of(module.device).runs_on_host for module in run.modules if module.kernels)
    if launched and not visible_gpus():
        message = f"the run was measured on {run.environment.device.accelerator or 'a GPU'}, and there is no GPU here"
        raise _ElsewhereError(message, "retune it where it was measured")

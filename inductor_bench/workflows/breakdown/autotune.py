"""Tunes the most expensive kernels of a RUN by their standalone files; each outcome is saved at once."""

from __future__ import annotations

import shlex
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...analysis.costs.step import cost_of, step_factors
from ...autotune.stake import Stake, find_least
from ...devices.nvidia.visible import visible_gpus
from ...devices.table import device_of
from ...errors import InductorBenchError
from ...records.code.extraction import ExtractedKernel
from ...records.failure import ELSEWHERE
from ...records.retune import EDITED, UNFINISHED, Retune, RetuneRow
from ...records.run import Environment, Failure, Run
from ...records.tuning import MeasuredKernel
from ...store.device_turn import DeviceTurn
from ...store.folder import RunFolder
from ...store.kernel_index import is_edited, read_index, rows_in
from ..extract.into_run import extract_run
from ..kernel.run import run_kernel
from ..kernel.session import KernelOptions
from ..options import DRAWN, RECORDED, BreakdownOptions, RetuneOptions
from ..progress import Progress

STAGE = "retune"

SAVES_SHARE = 0.05
"""Maximum share of the time that is spent on saving the record after each outcome. The last outcomes are saved at the
end, also after an interruption."""


class _Use(NamedTuple):
    """A kernel of one module, and its calls and seconds in the program's step or in one iteration of its graph."""

    kernel: ExtractedKernel
    calls: float
    time_s: float


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
    state = _Retunes(run, folder, keep)
    try:
        _check_gpu(run)
        state.ask(wanted, progress)
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
            with DeviceTurn(), state:
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
    return not _are_written(run, folder, options) or bool(_left(run, known, folder, options))


def _left(run: Run, known: Iterable[RetuneRow], folder: RunFolder, options: RetuneOptions) -> list[Retune]:
    problems = {row.kernel_id: row.problem for row in known if row.method == options.method}
    return [
        retune for retune in _most_expensive(run, folder, options) if _is_left(retune, problems.get(retune.kernel_id))
    ]


def _is_left(retune: Retune, problem: str | None) -> bool:
    """Whether a kernel is tuned again in spite of its earlier problem; ``problem`` is ``None`` for a new kernel."""
    return problem in (None, *UNFINISHED) or (problem == EDITED and retune.failure is None)


def _most_expensive(run: Run, folder: RunFolder, options: RetuneOptions) -> list[Retune]:
    """The kernels with the most time in the program's step, or in one iteration of all graphs, without duplicates.

    Of many kernels those are left out that can win next to nothing, all together; see ``stake.find_least``.

    Raises:
        InductorBenchError: the index of the standalone files is missing or damaged.
    """
    groups: dict[str, list[_Use]] = defaultdict(list)
    for kernel in read_index(folder.kernels):
        calls, time = step_factors(run, kernel.module, kernel.kernel_id)
        if kernel.time_s and time:
            groups[kernel.kernel_id].append(_Use(kernel, kernel.calls * calls, kernel.time_s * time))
    ranked = sorted(groups.values(), key=lambda uses: -_time_s(uses))
    rows = [_row(uses, folder, options.method) for uses in ranked[: options.top]]
    stakes = [_find_stake(row, run) for row in rows]
    least_s = find_least(stakes)
    kept = (stake.is_library_call or stake.most_s >= least_s for stake in stakes)
    return [row for row, is_kept in zip(rows, kept, strict=True) if is_kept]


def _time_s(uses: Sequence[_Use]) -> float:
    return sum(use.time_s for use in uses)


def _row(uses: Sequence[_Use], folder: RunFolder, method: str) -> Retune:
    first = max(uses, key=lambda use: (use.kernel.file is not None, use.time_s)).kernel
    return Retune(
        first.name,
        first.kernel_id,
        first.category,
        tuple(dict.fromkeys(use.kernel.module for use in uses)),
        float(sum(use.calls for use in uses)),
        _time_s(uses),
        f"kernels/{first.file}" if first.file else None,
        method,
        failure=_find_refusal(first, folder),
    )


def _find_stake(row: Retune, run: Run) -> Stake:
    """What is at stake with a kernel: its time in the step, and the gain limit of all its launches."""
    limits = [
        cost_of(run, module, kernel).gain_limit_s
        for module in run.modules
        if module.label in row.graphs
        for kernel in module.kernels
        if kernel.kernel_id == row.kernel_id
    ]
    known = [limit for limit in limits if limit is not None]
    gain_limit_s = sum(known) if known and len(known) == len(limits) else None
    return Stake(row.time_s, gain_limit_s, is_library_call=row.category.value.startswith("extern_"))


def _find_refusal(kernel: ExtractedKernel, folder: RunFolder) -> Failure | None:
    """The failure of a kernel that cannot be tuned by its standalone file; ``None`` where it can."""
    if kernel.file is None:
        return Failure(STAGE, "missing", f"it has no standalone file: {kernel.reason}", subject=kernel.name)
    if is_edited(kernel, folder.kernels):
        by_itself = f"inductor-bench kernel {shlex.quote(str(folder.kernels / kernel.file))} --autotune"
        return Failure(STAGE, "edited", EDITED, f"{by_itself} retunes it as it is", subject=kernel.name)
    return None


def _are_written(run: Run, folder: RunFolder, options: RetuneOptions) -> bool:
    try:
        return all((folder.path / row.file).is_file() for row in _most_expensive(run, folder, options) if row.file)
    except InductorBenchError:
        return False


class _Retunes:
    """A record with the rows of its tunings, and the updates to them."""

    def __init__(self, run: Run, folder: RunFolder, keep: Callable[[Run], None]) -> None:
        self.run = run
        self._folder, self._keep = folder, keep
        self._waiting: dict[str, Retune] = {}
        self._saved, self._saving_s = time.monotonic(), 0.0

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self._save()

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(self._waiting)

    @property
    def stakes(self) -> dict[str, Stake]:
        """What is at stake with each file, for the step."""
        return {file: _find_stake(row, self.run) for file, row in self._waiting.items()}

    def ask(self, options: RetuneOptions, progress: Progress) -> None:
        """Adds rows for the requested kernels that have none."""
        if not _are_written(self.run, self._folder, options):
            progress.stage("writing the kernels as files")
            values = RECORDED if any(row.values for row in rows_in(self._folder.kernels)) else DRAWN
            self.run = extract_run(self._folder, values).named_in(self.run)
        asked = _left(self.run, (retune.row for retune in self.run.retunes), self._folder, options)
        files = {row.file: row for row in asked if row.file is not None and row.failure is None}
        self._waiting = {str(self._folder.path / file): row for file, row in files.items()}
        self._store(*asked)
        self._save()

    def put(self, found: MeasuredKernel | Failure) -> None:
        """Updates the row of a kernel with its outcome.

        Raises:
            InductorBenchError: this machine is another one than that of the run.
        """
        row = self._waiting[found.subject if isinstance(found, Failure) else found.file]
        if isinstance(found, Failure):
            row = replace(row, failure=replace(found, stage=STAGE, subject=row.name))
        else:
            _check_device(found.device, self.run.environment)
            row = replace(row, kernel=replace(found, file=row.file or ""))
        self._store(row)

    def fail(self, failure: Failure) -> None:
        self.run = replace(self.run, failures=(*self.run.failures, failure))
        self._keep(self.run)

    def _store(self, *rows: Retune) -> None:
        known = {(retune.kernel_id, retune.method): retune for retune in self.run.retunes}
        known.update({(row.kernel_id, row.method): row for row in rows})
        self.run = replace(self.run, retunes=tuple(sorted(known.values(), key=lambda row: -row.time_s)))
        if (time.monotonic() - self._saved) * SAVES_SHARE > self._saving_s:
            self._save()

    def _save(self) -> None:
        began = time.monotonic()
        self._keep(self.run)
        self._saved = time.monotonic()
        self._saving_s = self._saved - began


def _check_device(device: str, measured: Environment) -> None:
    there = [name for name in (measured.accelerator, measured.cpu) if name]
    if there and device not in there:
        message = f"the run was measured on {there[0]}, and this is {device}: a retune here says nothing about it"
        raise _ElsewhereError(message, "retune it where it was measured")


def _check_gpu(run: Run) -> None:
    launched = any(not device_of(module.device).runs_on_host for module in run.modules if module.kernels)
    if launched and not visible_gpus():
        message = f"the run was measured on {run.environment.accelerator or 'a GPU'}, and there is no GPU here"
        raise _ElsewhereError(message, "retune it where it was measured")

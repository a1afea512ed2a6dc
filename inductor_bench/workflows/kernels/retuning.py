"""Tunes the most expensive kernels of a RUN or takes known tunings, proves the savings, and reports what is missing."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shlex
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from ...analysis.findings.finding import list_program_words, plural, write_apply_command, write_retune_command
from ...analysis.step_costs import compute_cost, is_worth_faster_kernels, list_step_factors
from ...autotune.methods import TuningPriority, find_least
from ...devices.nvidia import list_visible_gpus
from ...devices.table import find_device
from ...errors import InductorBenchError
from ...launch.process import SAFE_PATH
from ...launch.worker import default_python
from ...records.base import ELSEWHERE, NO_CANDIDATES, VERIFY, Failure
from ...records.module import ExtractedKernel
from ...records.request import DRAWN, RECORDED, BreakdownRequest, KernelRequest, RetuneRequest
from ...records.request_fields import COMPILED_HERE, PROGRAMS
from ...records.retune import (
    EDITED,
    FASTER,
    UNFINISHED,
    AnyPin,
    CppPin,
    LibraryPin,
    MeasuredKernel,
    ModelCalls,
    Retune,
    RetuneRow,
    TritonPin,
    TuningOrigin,
    group_pins_by_kind,
)
from ...records.run import Environment, Run
from ...source.standalone_writer import read_recorded_facts
from ...store.caches import KnownTuning, TuningKey, TuningPlace, load_tuning, save_tuning
from ...store.files import read_text
from ...store.folder import RunFolder, is_edited, read_index, read_rows
from ...store.lock import DeviceTurn
from ..apply import add_verification, delete_dropped_tunings, read_environment, require_same
from ..kernel import run_kernel
from ..modules.kernel_files import extract_run
from ..modules.program_run import make_program_command
from ..pins import make_pin, make_pins
from ..progress import Progress
from ..proof import ProofPlan, VerificationInterrupted, has_replayed_graphs, verify
from .kernel_timing import is_of_busy_machine

CAPTURE = "capture"
"""The stage in which the program runs."""

PROFILE = "profile"
"""The stage in which the modules are measured."""

UNFINISHED_RUN = "this run is not complete: it is still being measured, or was killed"


def describe_interruption(
    run: Run, stage: str, folder: RunFolder, retune: RetuneRequest | None, graphs: int = 0
) -> Failure:
    """Makes the failure of a run that was interrupted in a stage: what is missing, and what shows or finishes it.

    Args:
        run: what is known of it.
        stage: the stage.
        folder: the RUN.
        retune: what is retuned, if anything.
        graphs: the number of the program's graphs, as far as it is known.
    """
    count, place = len(run.modules), shlex.quote(str(folder.path))
    is_known = count or run.program is not None
    hint = f"inductor-bench report {place}" if is_known else ""
    if stage in (STAGE, VERIFY) and retune is not None:
        hint = _write_finishing_command(run, stage, place, retune)
    missing = ""
    if stage == CAPTURE:
        missing = " while the program ran: no step was measured"
        if run.program is not None:
            missing = " while the program ran: its step is known, its graphs and kernels were not measured"
    elif stage == PROFILE and count < graphs:
        missing = f" when {count} of {plural(graphs, 'graph')} {'was' if count == 1 else 'were'} measured"
    return Failure(stage, "interrupted", f"interrupted by Ctrl-C or a signal{missing}", hint)


def _write_finishing_command(run: Run, stage: str, place: str, retune: RetuneRequest) -> str:
    """Writes the command that finishes the retunes of an interrupted run, or their proof."""
    program = list_program_words(run.request)
    if stage == VERIFY and program:
        return write_apply_command(place, program, "--verify")
    return write_retune_command(place, retune)


# Takes over the tunings that are known from other runs, and keeps those of this run for others.


BUDGET = "budget"
_PLACES = ("storage", "offset")
"""Keys of a launch that say where a tensor lies in memory. They differ between runs."""


@dataclass(frozen=True)
class KnownTunings:
    """The tunings of the store that fit the kernels of a run."""

    run: Run  # the record of the run
    folder: RunFolder  # its folder
    state: str  # the times that are compared: ``cold`` or ``warm``

    def find(self, row: Retune, *, among_many: bool) -> Retune | None:
        """Returns the row with its known tuning; ``None`` if none is known.

        Args:
            row: a retune without a result.
            among_many: whether a search that ended because other kernels could win more counts as complete.
        """
        key = self._key(row, self.run.environment)
        known = load_tuning(key) if key is not None else None
        if known is None:
            return None
        if known.failure is not None:
            return replace(row, failure=replace(known.failure, subject=row.name), known_from=known.origin)
        if known.kernel is None or known.kernel.tuning is None or (known.kernel.tuning.cut_short and not among_many):
            return None
        kernel = replace(known.kernel, name=row.name, file=row.file or "")
        return replace(row, kernel=kernel, known_from=known.origin)

    def keep(self, row: Retune, environment: Environment) -> bool:
        """Keeps a tuning that was measured in an environment; returns ``False`` if it could not be written.

        A tuning that the budget cut short, or that was measured next to another job or on a busy machine, is not kept.
        A verdict replaces an earlier one, even if it is that nothing is decided.
        """
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        origin = TuningOrigin(self.run.run_id, self.run.title, now)
        kernel, failure = row.kernel, row.failure
        if failure is not None and failure.kind == NO_CANDIDATES:
            key = self._key(row, environment)
            return key is None or save_tuning(KnownTuning(key, None, origin, failure=failure))
        if kernel is None or kernel.tuning is None or kernel.shared_device or kernel.edited:
            return True
        if kernel.tuning.cut_short == BUDGET or is_of_busy_machine(kernel.tuning):
            return True
        key = self._key(row, environment)
        kept = replace(kernel, file="", original=ModelCalls())
        return key is None or save_tuning(KnownTuning(key, kept, origin, *self._pins(row)))

    def _pins(self, row: Retune) -> tuple[TritonPin | None, CppPin | None, LibraryPin | None]:
        """The pin of a winner, by its kind."""
        pins: list[AnyPin] = []
        if row.tuning is not None and row.tuning.verdict == FASTER:
            with contextlib.suppress(InductorBenchError):
                pins.append(make_pin(row, self.folder)[0])
        triton, cpp, library = group_pins_by_kind(pins)
        return next(iter(triton), None), next(iter(cpp), None), next(iter(library), None)

    def _key(self, row: Retune, environment: Environment) -> TuningKey | None:
        """Returns the key of a kernel in an environment; ``None`` if its file or the environment does not show it."""
        module = next((module for module in self.run.modules if module.label in row.graphs), None)
        if module is None or row.file is None or not environment.versions.torch:
            return None
        device = find_device(module.device)
        name = device.name_in(environment)
        try:
            launch = digest_launch(read_text(self.folder.path / row.file))
        except InductorBenchError:
            return None
        if name is None or launch is None:
            return None
        threads = f" {environment.host.threads} threads" if device.runs_on_host else ""
        place = TuningPlace(name + threads, environment.versions.torch, environment.versions.triton or "")
        return TuningKey(place, row.kernel_id, launch, row.method, self.state)


@functools.lru_cache(maxsize=1024)
def digest_launch(text: str) -> str | None:
    """Returns a hash of the sizes and scalars, and of the kinds of values, with which a standalone file launches its
    kernel.

    ``None`` if the file records none in a form that this function reads.
    """
    try:
        launch = read_recorded_facts(text).get("launch")
    except InductorBenchError:
        return None
    if not isinstance(launch, Mapping):
        return None
    sizes = _list_sizes([launch.get("arguments"), launch.get("keywords")])
    kinds = [one["values"]["kind"] for one in launch.get("storages") or ()]
    if "positive" in kinds:  # a tuning with NaNs says nothing about a launch without NaNs
        sizes.append(kinds)
    return hashlib.sha256(json.dumps(sizes, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _list_sizes(item: Any) -> Any:
    if isinstance(item, Mapping):
        return {str(key): _list_sizes(value) for key, value in item.items() if key not in _PLACES}
    if isinstance(item, Sequence) and not isinstance(item, str):
        return [_list_sizes(each) for each in item]
    return item


# Finds the kernels of a RUN that take most time, and what a retune of each can win.


STAGE = "retune"


class _Use(NamedTuple):
    """A kernel of one module, and its calls and seconds in the program's step or in one iteration of its graph."""

    kernel: ExtractedKernel
    calls: float
    time_s: float


def list_most_expensive(run: Run, folder: RunFolder, request: RetuneRequest) -> list[Retune]:
    """Returns the kernels with the most time in the program's step, or in one iteration of all graphs, without
    duplicates.

    If there are many, kernels that can win almost nothing, all of them together, are left out; see
    ``autotune.methods.find_least``.

    Raises:
        InductorBenchError: the index of the standalone files is missing or damaged.
    """
    groups: dict[str, list[_Use]] = defaultdict(list)
    for kernel in read_index(folder.kernels):
        calls, time = list_step_factors(run, kernel.module, kernel.kernel_id, kernel.category)
        if kernel.time_s and time:
            groups[kernel.kernel_id].append(_Use(kernel, kernel.calls * calls, kernel.time_s * time))
    ranked = sorted(groups.values(), key=lambda uses: -_time_s(uses))
    rows = [_make_row(uses, folder, request.method) for uses in ranked[: request.top]]
    stakes = [find_stake(row, run) for row in rows]
    least_s = find_least(stakes)
    kept = (stake.is_library_call or stake.largest_gain_s >= least_s for stake in stakes)
    return [row for row, is_kept in zip(rows, kept, strict=True) if is_kept]


def _time_s(uses: Sequence[_Use]) -> float:
    return sum(use.time_s for use in uses)


def _make_row(uses: Sequence[_Use], folder: RunFolder, method: str) -> Retune:
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


def find_stake(row: Retune, run: Run) -> TuningPriority:
    """Returns what a retune of a kernel can win: its time in the step, and the most that its launches can save of it.

    The gain is the simulated saving of the step. If the step saves nothing, because it waits for the host, the gain is
    the saving of the kernel itself.
    """
    costs = [
        compute_cost(run, module, kernel)
        for module in run.modules
        if module.label in row.graphs
        for kernel in module.kernels
        if kernel.kernel_id == row.kernel_id
    ]
    limits = [cost.gain_limit_s for cost in costs]
    known = [limit for limit in limits if limit is not None]
    gain_limit_s = sum(known) if known and len(known) == len(limits) else None
    if gain_limit_s is not None and is_worth_faster_kernels(run):
        gain_limit_s = sum(cost.gain_s or 0.0 for cost in costs)
    return TuningPriority(row.time_s, gain_limit_s, is_library_call=row.category.is_library)


def _find_refusal(kernel: ExtractedKernel, folder: RunFolder) -> Failure | None:
    """Returns the failure of a kernel that cannot be tuned by its standalone file; ``None`` if it can."""
    if kernel.file is None:
        return Failure(STAGE, "missing", f"it has no standalone file: {kernel.reason}", subject=kernel.name)
    if is_edited(kernel, folder.kernels):
        by_itself = f"inductor-bench kernel {shlex.quote(str(folder.kernels / kernel.file))} --autotune"
        return Failure(STAGE, "edited", EDITED, f"{by_itself} retunes it as it is", subject=kernel.name)
    return None


def are_written(run: Run, folder: RunFolder, request: RetuneRequest) -> bool:
    """Whether the files of the most expensive kernels are there."""
    try:
        return all((folder.path / row.file).is_file() for row in list_most_expensive(run, folder, request) if row.file)
    except InductorBenchError:
        return False


# Tunes the most expensive kernels of a RUN by their standalone files; each outcome is saved at once.


SAVES_SHARE = 0.02
"""Maximum share of the time that is spent on saving the record after each outcome. The last outcomes are saved at the
end, even after an interruption."""


class _ElsewhereError(InductorBenchError):
    """This machine is not the one on which the run was measured."""


def autotune_run(
    run: Run, folder: RunFolder, request: BreakdownRequest, progress: Progress, keep: Callable[[Run], None]
) -> Run:
    """Tunes the most expensive kernels that are not tuned yet, if the request asks for it.

    Args:
        run: the record of the measured run.
        folder: the folder of the run, which no other process writes.
        request: the number of kernels, the method and the interpreter; ``None`` means the interpreter of the run.
        progress: the listener for stages and notes.
        keep: called with the record after each outcome, and first with a row for each requested kernel.
    """
    if request.retune is None or not any(module.kernels for module in run.modules):
        return run
    return _autotune(run, folder, request, request.retune, progress, keep)


def _autotune(
    run: Run,
    folder: RunFolder,
    request: BreakdownRequest,
    wanted: RetuneRequest,
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
            kernel_request = KernelRequest(
                state.files,
                wanted.method,
                budget_s=wanted.budget_s,
                timeout_s=request.timeout_s,
                python=request.python or run.request.python,
                force=True,  # as a breakdown does: the record of each kernel names another job on its GPU
            )
            with DeviceTurn(), state.saved_at_end(progress):
                run_kernel(kernel_request, progress, state.put, state.stakes)
    except InductorBenchError as error:
        kind = ELSEWHERE if isinstance(error, _ElsewhereError) else "invalid"
        state.fail(Failure(STAGE, kind, error.message, error.hint))
    return state.run


def has_retunes_left(known: Iterable[RetuneRow], folder: RunFolder, request: RetuneRequest) -> bool:
    """Whether some of the most expensive kernels have no complete tuning by this method.

    Raises:
        InductorBenchError: the record cannot be read.
    """
    run = folder.load()
    return not are_written(run, folder, request) or bool(_list_kernels_left(run, known, folder, request))


def _list_kernels_left(run: Run, known: Iterable[RetuneRow], folder: RunFolder, request: RetuneRequest) -> list[Retune]:
    problems = {row.kernel_id: row.problem for row in known if row.method == request.method}
    return [
        retune
        for retune in list_most_expensive(run, folder, request)
        if _is_to_be_tuned(retune, problems.get(retune.kernel_id))
    ]


def _is_to_be_tuned(retune: Retune, problem: str | None) -> bool:
    """Whether a kernel is still to be tuned, in spite of its earlier problem; ``problem`` is ``None`` for a new
    kernel."""
    return problem in (None, *UNFINISHED) or (problem == EDITED and retune.failure is None)


class _Retunes:
    """A record with the rows of its tunings, and functions that update them."""

    def __init__(self, run: Run, folder: RunFolder, request: RetuneRequest, keep: Callable[[Run], None]) -> None:
        self.run = run
        self.stakes: dict[str, TuningPriority] = {}
        self._folder, self._request, self._keep = folder, request, keep
        self._waiting: dict[str, Retune] = {}
        self._keeper, self._kept = ThreadPoolExecutor(1), list[Future[bool]]()
        self._saved, self._saving_s = time.monotonic(), 0.0

    @contextlib.contextmanager
    def saved_at_end(self, progress: Progress) -> Iterator[None]:
        """Saves the last outcomes at the end of the block, even after an interruption."""
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
        return KnownTunings(self.run, self._folder, KernelRequest.state)

    def ask(self, progress: Progress) -> None:
        """Adds rows for the requested kernels that have none."""
        if not are_written(self.run, self._folder, self._request):
            progress.stage("writing the kernels as files")
            values = RECORDED if any(row.values for row in read_rows(self._folder.kernels)) else DRAWN
            self.run = extract_run(self._folder, values).named_in(self.run)
        asked = _list_kernels_left(self.run, (retune.row for retune in self.run.retunes), self._folder, self._request)
        files = {row.file: row for row in asked if row.file is not None and row.failure is None}
        self._waiting = {str(self._folder.path / file): row for file, row in files.items()}
        self.stakes = {file: find_stake(row, self.run) for file, row in self._waiting.items()}
        self._store(*asked)
        self._save()

    def take_known(self, progress: Progress) -> None:
        """Uses the tunings that are known from other runs."""
        if self._request.remeasure:
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
        """Updates the row of a kernel with its outcome, and keeps the tuning for other runs."""
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
        raise _ElsewhereError(message, "retune it on a machine with the device that it was measured on")


def _check_gpu(run: Run) -> None:
    launched = any(not find_device(module.device).runs_on_host for module in run.modules if module.kernels)
    if launched and not list_visible_gpus():
        message = f"the run was measured on {run.environment.device.accelerator or 'a GPU'}, and there is no GPU here"
        raise _ElsewhereError(message, "retune it on a machine with the device that it was measured on")


# Proves in the program of a breakdown what its retunes save.


PREDICTION = "the saving stays a projection"


def is_without_proof(run: Run, folder: RunFolder) -> bool:
    """Whether a run has winners that were never compared, although this tool can compare them in a program."""
    if run.request.kind not in COMPILED_HERE or run.program is None or run.verification is not None:
        return False
    if any(failure.stage == VERIFY and failure.kind != "interrupted" for failure in run.failures):
        return False
    return bool(make_pins(run, folder).pins.all)


def verify_retunes(
    run: Run, request: BreakdownRequest, folder: RunFolder, python: str, progress: Progress, keep: Callable[[Run], None]
) -> tuple[Failure, ...]:
    """Measures what the retunes of a run save in its program; returns what went wrong.

    The program is ended once its steps are compared. Without a step, or without a winner that can be pinned, nothing is
    measured.

    Args:
        run: the record with the retunes.
        request: the unredacted request.
        folder: the RUN.
        python: the interpreter of a script.
        progress: shows what is done.
        keep: called with the record and its verification, even if the user stops the program.
    """
    if request.kind not in PROGRAMS or run.program is None:
        return ()
    pinned = make_pins(run, folder)
    if not pinned.pins.all:
        return ()
    folder.work.mkdir(exist_ok=True)
    command = make_program_command(request, folder.work, python, folder.work / "refusal.json")
    environment = {**os.environ, **(SAFE_PATH if request.kind in COMPILED_HERE and request.kind != "factory" else {})}
    try:
        plan = ProofPlan(folder, command, environment, request.timeout_s, replays=has_replayed_graphs(run))
        found = verify(pinned, plan, progress)
    except VerificationInterrupted as stop:
        keep(add_verification(run, stop.found))
        raise
    except InductorBenchError as error:
        return (Failure(VERIFY, "invalid", f"{PREDICTION}: {error.message}", error.hint, subject=request.target),)
    delete_dropped_tunings(found, run.environment)
    keep(add_verification(run, found))
    return ()


def prove_retunes(
    run: Run, folder: RunFolder, asked: BreakdownRequest, progress: Progress, keep: Callable[[Run], None]
) -> Run:
    """Returns the run with the proof of its retunes, if they have no proof and this tool knows how to run the model."""
    found = replace(run, failures=tuple(failure for failure in run.failures if failure.stage != VERIFY))
    if asked.retune is None or not asked.retune.verify or not is_without_proof(found, folder):
        return run

    python = asked.python or run.request.python or default_python()
    request = replace(run.request, timeout_s=asked.timeout_s or run.request.timeout_s)
    try:
        if request.kind == "factory" and not Path(request.target.rpartition(":")[0]).is_file():
            raise InductorBenchError(f"{request.target} is not here", name="no-such-target")
        require_same(make_pins(found, folder).pins, found.environment, read_environment(python))
    except InductorBenchError as error:
        progress.note(f"{PREDICTION}: {error.message}")
        return run

    def keep_found(run: Run) -> None:
        nonlocal found
        found = run
        keep(run)

    failures = verify_retunes(found, request, folder, python, progress, keep_found)
    found = replace(found, failures=(*found.failures, *failures))
    keep(found)
    return found

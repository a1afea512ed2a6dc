"""Compares the modes of a program: each in separate processes, which take turns so that a drift cancels."""

from __future__ import annotations

import datetime
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..analysis.mode_conclusion import conclude
from ..devices.table import find_device
from ..errors import ANOTHER_FOLDER, InductorBenchError, StoppedInFolder, UsageError
from ..launch.marks import end_marked, find_tool_mark
from ..launch.worker import WorkerPool
from ..records.base import Failure
from ..records.comparison import (
    EAGER,
    NOT_TIMED,
    ModeComparison,
    ModelModes,
    ModeProcess,
    ModeRow,
    ModesByModel,
    ModeSet,
)
from ..records.request import BatchRequest, BreakdownRequest, ModelRequest, ModesRequest
from ..records.request_fields import PROGRAMS, as_recorded, list_options_by_field
from ..records.run import Environment
from ..store.files import hash_file, own_folder, refuse_link
from ..store.folder import PAGE, ModesFolder
from ..store.lock import hold_lock
from ..store.redaction import Redaction
from ..version import __version__
from .model_list import YAML, merge_batch_options, read_list
from .modules.module_measurements import take_survey
from .modules.program_run import find_python
from .modules.targets import is_command, make_folder_title, make_title, resolve_target
from .progress import Progress
from .single_run import CACHE, COMMON, HOPELESS, NOT_INHERITED, OWN, STAGE, ProcessTurn, ProgramRunner, read_sets

# The order of the processes: rows take turns, so that a drift of the machine cancels.


class ModeTurns:
    """The order in which the processes of a comparison run: A B C, C B A, A B C, …

    In the first round a row without compilation runs as soon as a compiled row is measured, which shows how the steps
    are found. If the comparison is interrupted then, it has a compiled row to compare with eager.

    Args:
        rows: the settings of the rows.
        rounds: the number of processes for each row.
        knows_steps: is called before each process; returns whether a compiled row is measured.
    """

    def __init__(self, rows: Sequence[ModeSet], rounds: int, knows_steps: Callable[[], bool]) -> None:
        self._rows, self._rounds, self._knows_steps = rows, rounds, knows_steps

    def turns(self) -> Iterator[ProcessTurn]:
        """All processes in their order."""
        first = []
        for number in self._first_round():
            first.append(number)
            yield self._place(number, 0)
        for round in range(1, self._rounds):
            for number in first if round % 2 == 0 else reversed(first):
                yield self._place(number, round)

    def _first_round(self) -> Iterator[int]:
        numbers = range(len(self._rows))
        compiled = [number for number in numbers if self._rows[number].mode != EAGER]
        waiting = [number for number in numbers if self._rows[number].mode == EAGER]
        for number in compiled:
            yield number
            if self._knows_steps():
                yield from waiting
                waiting = []
        yield from waiting

    def _place(self, number: int, round: int) -> ProcessTurn:
        return ProcessTurn(number, self._rows[number].name, self._rows[number], round)


CALLED = "inductor_bench.modes(…)"
ACCEPTED = "give a script, FILE.py:FACTORY, timm:NAME, or a command after --"


@dataclass(frozen=True)
class ModesOutcome:
    """A comparison without secrets, and its folder. ``measured`` says whether this command ran a process."""

    comparison: ModeComparison
    folder: Path
    measured: bool


def run_modes(request: ModesRequest, progress: Progress) -> ModesOutcome:
    """Compares modes, or goes on with a comparison that was interrupted.

    Raises:
        UsageError: the target is no program, or the folder holds another comparison.
        InductorBenchError: the folder cannot be written, or the program cannot be started.
        StoppedInFolder: the user stopped it; it holds what was measured before, and so does the folder.
    """
    rows, program = _list_rows(request), request.program
    target = resolve_target(program, ACCEPTED)
    if target.kind not in PROGRAMS:
        raise UsageError(f"modes runs a program, but the target is a {target.kind}", ACCEPTED, "wrong-target")
    program = target.resolved(program)
    variables = [variable for row in rows for variable in row.environment.items()]
    _check_variables(name for name, _ in variables)
    own = sys.argv[1:] if is_command() else ()
    words = [f"{name}={value}" for name, value in variables]  # rows may give several values to one name
    redaction = Redaction.find([own, program.arguments, words], os.environ | dict(program.variables), program.redact)
    folder = ModesFolder(program.output or Path("modes") / make_folder_title(program))
    refuse_link(folder.path)
    folder.make()
    with hold_lock(folder.path, find_tool_mark()) as lock:
        end_marked(lock.left)
        file = target.paths[0] if target.paths else Path(target.name)
        comparing = _Comparing(replace(request, program=program), rows, file, folder, redaction, progress)
        try:
            measured = comparing.measure()
        except KeyboardInterrupt as stop:
            if not folder.exists():
                raise
            outcome = ModesOutcome(conclude(folder.load()), folder.path, measured=True)
            raise StoppedInFolder(outcome, outcome.folder) from stop
        if comparing.comparison.is_complete:
            folder.remove_work()
        saved = conclude(folder.load())  # as it was written, without secrets
    return ModesOutcome(saved, folder.path, measured)


def _list_rows(request: ModesRequest) -> tuple[ModeSet, ...]:
    return read_sets(request.modes, request.withs, request.variables, request.inductor)


LATER = "a process ran in a later command than the processes of other rows with which it is paired"
"""The note of a process that ran after an interruption or a failure: changes in between are part of the difference."""


class _Comparing:
    """The state of one comparison in progress. ``comparison`` is saved after each process."""

    def __init__(
        self,
        request: ModesRequest,
        rows: tuple[ModeSet, ...],
        file: Path,
        folder: ModesFolder,
        redaction: Redaction,
        progress: Progress,
    ) -> None:
        program = request.program
        self._request, self._rows, self._folder = request, rows, folder
        self._redaction, self._progress = redaction, progress
        self._recorded = as_recorded(replace(program, mode=None, stop=True))
        self._python = find_python(program)
        self._environment = dict(os.environ) | dict(program.variables) | redaction.variables
        self.comparison = self._open(file)
        self._earlier_rounds = {one.round for row in self.comparison.rows for one in row.processes}

    def _open(self, file: Path) -> ModeComparison:
        """Opens the comparison with a row for each set.

        One of an earlier command goes on, and failed rows are tried again.
        """
        request, words = self._request, self._redaction.words
        fresh = ModeComparison(
            format=ModesFolder.FORMAT,
            tool_version=__version__,
            created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            command=shlex.join(["inductor-bench", *words(sys.argv[1:])]) if is_command() else CALLED,
            target=request.program.target,
            title=make_title(replace(request.program, arguments=words(request.program.arguments))),
            request=_request_without_secrets(self._recorded, self._redaction),
            environment=Environment(),
            rounds=request.rounds,
            rows=tuple(ModeRow(row.name, row) for row in map(self._settings_without_secrets, self._rows)),
            program_sha256=hash_file(file) or "",
        )
        earlier = self._folder.load() if self._folder.exists() and not request.program.force else None
        if earlier is not None and any(row.processes for row in earlier.rows):
            difference = _list_differences(earlier, fresh)
            if difference:
                hint = "choose another folder with -o, or measure again with --force"
                raise UsageError(f"{self._folder.path} holds a comparison {difference}", hint, "other-request")
            rounds = max(earlier.rounds, fresh.rounds)
            return replace(earlier, request=fresh.request, rows=_list_rows_to_retry(earlier.rows), rounds=rounds)
        self._folder.clear()
        return fresh

    def _settings_without_secrets(self, row: ModeSet) -> ModeSet:
        """The settings without secrets."""
        shown = self._redaction.words([f"{name}={value}" for name, value in row.environment.items()])
        return replace(row, environment=dict(word.split("=", 1) for word in shown))

    def measure(self) -> bool:
        """Runs the processes that are missing. Returns whether there were any."""
        missing = self.comparison
        if missing.is_complete:
            self.comparison = conclude(missing)
            return False
        self._folder.make_inside()
        self._note_machine()
        profiles = self._uses_accelerator()
        runner = ProgramRunner(
            self._recorded,
            self._folder,
            self._environment,
            self._python,
            self._redaction,
            self._progress,
            profiles=profiles,
        )
        for place in ModeTurns(self._rows, self.comparison.rounds, self._knows_steps).turns():
            row = self.comparison.rows[place.row]
            if row.failure is None and len(row.processes) == place.round:
                self._run(runner, replace(place, name=row.name))
        return True

    def _note_machine(self) -> None:
        """Notes the machine. An earlier part of the comparison must come from the same machine."""
        self._progress.stage("looking at the machine")
        log, work = self._folder.logs / "survey.log", self._folder.work
        environment = self._environment | {CACHE: str((work / COMMON).resolve())}
        with WorkerPool(self._python, work, environment, on_line=self._progress.output) as pool:
            survey = take_survey(pool, [], device="cpu", peaks="none", log=log)
        found, known = survey.environment, self.comparison.environment
        if known.versions.torch and _name_process_folder(known) != _name_process_folder(found):
            raise UsageError(
                f"{self._folder.path} was started with {', '.join(filter(None, _name_process_folder(known)))}",
                "choose another folder with -o, or measure again with --force",
                "other-request",
            )
        if known.versions.torch and known.variables != found.variables:
            names = sorted(name for name, _ in known.variables.items() ^ found.variables.items())
            raise UsageError(
                f"{self._folder.path} was started with other values of these variables: {', '.join(names)}",
                "set them as before, choose another folder with -o, or measure again with --force",
                "other-request",
            )
        self.comparison = replace(self.comparison, environment=found)
        self._save()

    def _uses_accelerator(self) -> bool:
        asked = self._recorded.device
        if asked is not None and find_device(asked.partition(":")[0]).runs_on_host:
            return False
        return self.comparison.environment.device.accelerator is not None

    def _run(self, runner: ProgramRunner, place: ProcessTurn) -> None:
        row = self.comparison.rows[place.row]
        try:
            found = runner.run(place, self.comparison.rounds, self._compiled_before())
        except InductorBenchError as error:
            found = Failure(STAGE, "invalid", error.message, error.hint)
        if isinstance(found, Failure):
            failure = self._redaction.failure(found)
            self._progress.note(f"{row.name}: {failure.message}")
            row = replace(row, failure=failure)
            if failure.kind in HOPELESS:
                self._give_up(failure)
        else:
            if place.round in self._earlier_rounds:
                found = replace(found, notes=(*found.notes, LATER))
            row = replace(row, processes=(*row.processes, found))
        rows = self.comparison.rows
        self.comparison = replace(self.comparison, rows=(*rows[: place.row], row, *rows[place.row + 1 :]))
        self._save()

    def _give_up(self, failure: Failure) -> None:
        """Gives the failure of a program without ``torch.compile`` to all rows that would have compiled it."""
        rows = self.comparison.rows
        waiting = [row.settings.mode != EAGER and not row.processes and row.failure is None for row in rows]
        rows = tuple(replace(row, failure=failure) if one else row for row, one in zip(rows, waiting, strict=True))
        self.comparison = replace(self.comparison, rows=rows)

    def _knows_steps(self) -> bool:
        return self._compiled_before() is not None

    def _compiled_before(self) -> ModeProcess | None:
        """The first process of a compiled row that is measured."""
        compiled = (row for row in self.comparison.rows if row.settings.mode != EAGER)
        return next((one for row in compiled for one in row.processes), None)

    def _save(self) -> None:
        self.comparison = conclude(self.comparison)
        self._folder.save(self.comparison, self._redaction.text)


def _check_variables(names: Iterable[str]) -> None:
    for name in names:
        if name in (*NOT_INHERITED, CACHE) or name.startswith(OWN):
            raise UsageError(f"{name} cannot be compared: the comparison itself sets it", "leave it out", "bad-word")


def _name_process_folder(environment: Environment) -> tuple[str, str, str]:
    """What must be the same for all processes: torch and the hardware."""
    return f"torch {environment.versions.torch}", environment.device.accelerator or "", environment.host.cpu


def _request_without_secrets(request: BreakdownRequest, redaction: Redaction) -> BreakdownRequest:
    return replace(request, target=redaction.text(request.target), arguments=redaction.words(request.arguments))


def _list_rows_to_retry(rows: tuple[ModeRow, ...]) -> tuple[ModeRow, ...]:
    """Returns the rows of an earlier command without their failures, unless none of the failed rows can be timed at
    all."""
    if all(row.failure is None or row.failure.kind == NOT_TIMED for row in rows):
        return rows
    return tuple(replace(row, failure=None) for row in rows)


def _list_differences(earlier: ModeComparison, fresh: ModeComparison) -> str:
    """Returns how an earlier comparison differs from the requested one; empty if it can go on."""
    if earlier.target != fresh.target or earlier.request.arguments != fresh.request.arguments:
        return f"of {earlier.title}"
    if [row.name for row in earlier.rows] != [row.name for row in fresh.rows]:
        return f"of other rows: {', '.join(row.name for row in earlier.rows)}"
    if replace(earlier.request, timeout_s=None) != replace(fresh.request, timeout_s=None):
        return "with other options"
    if earlier.program_sha256 != fresh.program_sha256:
        return "of an earlier version of the program's file"
    return ""


# Compares the modes of each model of a list, one model after the other.


LISTS = (".txt", *YAML)
_OF_LISTS = {one.name for one in list_options_by_field(BatchRequest)["overrides"]}
LISTED = tuple(one.name for one in list_options_by_field(ModesRequest)["program"] if one.name in _OF_LISTS)
"""The options of ``modes`` that the models of a list can have, too."""


def is_list(request: BreakdownRequest) -> bool:
    """Whether the target is a list of models."""
    return not request.others and Path(request.target).suffix in LISTS


def choose_folder(request: BreakdownRequest) -> Path:
    """The folder of all comparisons of a list."""
    return request.output or Path("modes") / Path(request.target).stem


def run_list(request: ModesRequest, progress: Progress) -> ModesByModel:
    """Compares the modes of each model, or goes on with an interrupted comparison. If one fails, the others still run.

    Raises:
        UsageError: the list cannot be read, or the folder holds other files.
        InductorBenchError: the folder cannot be made, or is a symbolic link.
        StoppedInFolder: the user stopped it; it holds what was measured before, and so do the folders.
    """
    program, _ = request.program, _list_rows(request)  # a wrong row is refused before the first model
    requests = merge_batch_options(read_list(Path(program.target)), _own_options(program))
    _make_folder(choose_folder(program), {Path(model.name).parts[0] for model in requests})
    found: list[ModelModes] = []
    try:
        for model in _compare_each(request, requests, progress):
            found.append(model)
    except KeyboardInterrupt as stop:
        raise StoppedInFolder(ModesByModel(program.target, tuple(found)), choose_folder(program)) from stop
    return ModesByModel(program.target, tuple(found))


def _make_folder(folder: Path, models: set[str]) -> None:
    """Makes the folder of the list's comparisons, which holds folders of comparisons and their page only."""
    others = [item for item in own_folder(folder).iterdir() if item.name not in {PAGE, *models}]
    if not all(ModesFolder(item).exists() for item in others):
        raise UsageError(
            f"{folder} is not empty and holds no comparison of modes of models", ANOTHER_FOLDER, "folder-in-use"
        )


def _own_options(program: BreakdownRequest) -> dict[str, object]:
    """The options of the command line that a list can have, too; they precede those of the list."""
    return {
        name: getattr(program, name) for name in LISTED if getattr(program, name) != getattr(BreakdownRequest, name)
    }


def _compare_each(request: ModesRequest, requests: list[ModelRequest], progress: Progress) -> Iterator[ModelModes]:
    folder = choose_folder(request.program)
    for number, model in enumerate(requests, 1):
        progress.note(f"model {number} of {len(requests)}: {model.name}")
        program = replace(
            request.program,
            target=model.target,
            arguments=model.arguments,
            **{name: getattr(model, name) for name in LISTED},
            output=folder / model.name,
        )
        try:
            yield ModelModes(model.name, run_modes(replace(request, program=program), progress).comparison)
        except StoppedInFolder as stop:
            yield ModelModes(model.name, stop.found.comparison)
            raise
        except InductorBenchError as error:
            progress.note(f"{model.name}: {error.message}")
            yield ModelModes(model.name, failure=Failure(STAGE, "invalid", error.message, error.hint))

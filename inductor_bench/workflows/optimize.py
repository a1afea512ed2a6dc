"""Runs the verb ``optimize``: finds the settings that make a program faster, and proves what they save."""

from __future__ import annotations

import datetime
import os
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from .. import units
from ..analysis.findings.doubts import find_disturbed_step
from ..analysis.optimization.judging import compute_original_step_s
from ..analysis.optimization.menu import make_menu
from ..analysis.optimization.search import OptimizationSearch
from ..analysis.optimization.step_facts import StepFacts
from ..analysis.optimization.trial_plans import CompileAhead, describe_long_compilations
from ..analysis.step_costs import runs_on_host
from ..devices.nvidia import VISIBLE_GPUS, list_gpu_models
from ..errors import InductorBenchError, StoppedInFolder, UsageError
from ..launch.batch_executors import is_host
from ..launch.marks import end_marked, find_tool_mark
from ..launch.worker import (
    WorkerLostError,
    WorkerPool,
    WorkerSession,
    count_cores_of_this_process,
    explain_loss_at_start,
    make_worker_environment,
)
from ..literals import MASK
from ..messages.job_requests import TellEnvironment, TellOptions
from ..messages.observed import APPLY
from ..messages.observed import PINS as PINS_VARIABLE
from ..records.optimization import (
    ENVIRONMENT,
    INDUCTOR,
    PINS,
    SUGGESTED,
    UNTRIED,
    MenuRow,
    Optimization,
    ProgramSetting,
    Trial,
    choose_groups,
)
from ..records.request import BreakdownRequest, OptimizeRequest, find_searched_optimizer
from ..records.request_fields import COMMAND, PROGRAMS, as_recorded
from ..records.run import Environment, Run
from ..store import codec
from ..store.files import refuse_link, write_json
from ..store.folder import OPTIMIZED, OptimizationFolder, RunFolder
from ..store.lock import hold_lock
from ..store.redaction import Redaction
from ..store.run_files import read_timeline
from ..version import __version__
from .batch import find_devices
from .breakdown import StoppedBreakdown, run_breakdown
from .modules.program_run import find_python, name_python
from .modules.targets import can_stop, is_command, make_folder_title, make_title, resolve_target
from .optimizing.optimized_files import write_optimized
from .optimizing.tried_program import STALLED_S, STALLED_SHARE, ProgramTrials, TrialRounds
from .pins import make_pins, set_mode
from .progress import Progress
from .single_run import read_option

CALLED = "inductor_bench.optimize(…)"
ACCEPTED = "give a RUN, a script, FILE.py:FACTORY, timm:NAME, or a command after --"

LOOK_S = 300.0
"""Limit in seconds for a look at the machine."""

LEAST_STALLED_S = 60.0


@dataclass(frozen=True)
class OptimizeOutcome:
    """A search without secrets, and its folder. ``measured`` says whether this command ran a process."""

    found: Optimization
    folder: Path
    measured: bool


def run_optimize(request: OptimizeRequest, progress: Progress) -> OptimizeOutcome:
    """Searches for settings that make a program faster, or goes on with a search that was interrupted.

    Raises:
        UsageError: the target is no program, a group is unknown, or the folder holds another search.
        InductorBenchError: the folder cannot be written, or the program cannot be started or has no steps.
        StoppedInFolder: the user stopped it; it holds what was judged before, and so does the folder.
    """
    allowed, denied = choose_groups(request.only, request.allowed, request.denied)
    request = replace(request, allowed=allowed, denied=denied, only=())
    own = read_own_settings(request)
    request = choose_devices(request)
    folder, program, before_s = _find_run(request, progress)
    run = folder.load()
    failed = next((failure for failure in run.failures if failure.stage == "capture"), None)
    if run.program is None and failed is not None:
        raise InductorBenchError(failed.message, failed.hint or f"read {folder.logs}", "program-failed")
    if run.program is None or not run.program.step_time_s:
        raise InductorBenchError(
            f"{folder.path} has no step of the program to compare variants with",
            "mark the ends of its steps with inductor_bench.step(), and run the command again with --force",
            "no-steps",
        )
    if why := find_disturbed_step(run):
        progress.note(
            f"the most that each setting can save is estimated from a step that other processes disturbed: {why}"
        )
    command = sys.argv[1:] if is_command() else ()
    redaction = Redaction.find([command, program.arguments], os.environ | dict(program.variables), program.redact)
    place = OptimizationFolder(folder.path / OPTIMIZED)
    refuse_link(place.path)
    place.make()
    with hold_lock(place.path, find_tool_mark()) as lock:
        end_marked(lock.left)
        gpus = spread_over(request, run, folder, progress)
        searching = _Searching(replace(request, program=program), own, run, place, gpus, redaction, progress, before_s)
        try:
            measured = searching.search()
        except KeyboardInterrupt as stop:
            if not place.exists():
                raise
            searching.conclude(is_complete=False)
            raise StoppedInFolder(OptimizeOutcome(place.load(), place.path, measured=True), place.path) from stop
        return OptimizeOutcome(place.load(), place.path, measured)


def choose_devices(request: OptimizeRequest) -> OptimizeRequest:
    """Returns the request for a program that sees only the GPUs that the user names.

    Raises:
        UsageError: a GPU is missing, named twice, or of another model than the others.
    """
    if not request.devices:
        return request
    devices = find_devices(request.devices, ())
    models = list_gpu_models(devices)
    if len(models) > 1:
        raise UsageError(
            f"--devices names GPUs of different models: {', '.join(models)}",
            "what a setting saves on one model says nothing about another model",
            "no-such-device",
        )
    if all(map(is_host, devices)):
        return request
    variables = (*request.program.variables, (VISIBLE_GPUS, ",".join(devices)))
    return replace(request, program=replace(request.program, variables=variables))


def spread_over(request: OptimizeRequest, run: Run, folder: RunFolder, progress: Progress) -> tuple[str, ...]:
    """Returns the GPUs over which the processes of a search are spread; one empty name if one process runs at a
    time."""
    together = ("",)
    if runs_on_host(run) or ":" in (request.program.device or ""):
        return together
    gpus = find_devices(request.devices, ())
    if len(gpus) < 2 or all(map(is_host, gpus)):
        return together
    ranks, timeline = run.program.ranks if run.program is not None else (), read_timeline(folder)
    if len(ranks) > 1:
        progress.note(f"the program has {len(ranks)} processes: they have all GPUs, and one trial runs at a time")
        return together
    if timeline is not None and any(one.lane.startswith("device ") for one in timeline.intervals):
        progress.note("the program uses several GPUs: one trial runs at a time")
        return together
    if timeline is None and not request.devices:
        progress.note("no step was profiled, so the program may use several GPUs: one trial runs at a time")
        return together
    models = list_gpu_models(gpus)
    if len(models) > 1:
        progress.note(
            f"the GPUs are of different models ({', '.join(models)}), so one trial runs at a time; name GPUs "
            "of one model with --devices"
        )
        return together
    progress.note(f"trials are spread over {len(gpus)} GPUs: {', '.join(gpus)}")
    return gpus


def read_own_settings(request: OptimizeRequest) -> tuple[ProgramSetting, ...]:
    """Returns the settings that the user adds to the menu.

    Raises:
        UsageError: an option has another form.
    """
    found = [item for text in request.inductor for item in read_option(text).options.items()]
    options = [ProgramSetting(INDUCTOR, name, _write_literal(value)) for name, value in found]
    return (*options, *(ProgramSetting(ENVIRONMENT, name, repr(value)) for name, value in request.variables))


def _write_literal(text: str) -> str:
    """Returns a value as Python writes it, from a user's text: ``true`` becomes ``True``, and ``0.5`` stays."""
    words = {"true": "True", "false": "False", "none": "None"}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return repr(int(text))
    except ValueError:
        pass
    try:
        return repr(float(text))
    except ValueError:
        return repr(text)


# The RUN whose step the search shortens: an earlier RUN, or a new one.


def _find_run(request: OptimizeRequest, progress: Progress) -> tuple[RunFolder, BreakdownRequest, float]:
    """Returns the RUN, the request of its program, and the seconds that it took to make the RUN now."""
    asked = request.program
    if asked.target and not asked.others and (Path(asked.target) / "record.json").is_file():
        if asked.output is not None:
            raise UsageError(
                f"-o {asked.output} has no use: the results of a search in a RUN go to {asked.target}/{OPTIMIZED}",
                "leave out -o, or give the program instead of the RUN",
                "conflicting-options",
            )
        return _find_earlier_run(RunFolder(Path(asked.target)), asked)
    target = resolve_target(asked, ACCEPTED)
    if target.kind not in PROGRAMS:
        raise UsageError(f"optimize runs a program, but the target is a {target.kind}", ACCEPTED, "wrong-target")
    asked = replace(asked, optimizer=find_searched_optimizer(asked, target.kind))
    program = target.resolved(asked)
    folder = RunFolder(program.output or Path("runs") / f"{make_folder_title(program)}-optimize")
    if not program.force and folder.record.is_file():
        run = folder.load()
        known = run.request
        if (run.target, known.arguments) != (program.target, _request_without_secrets(program).arguments):
            hint = "choose another folder with -o, or replace it with --force"
            raise UsageError(f"{folder.path} holds a run of {run.title}", hint, "other-request")
        if run.program is not None:
            return folder, program, 0.0
    began_s = time.monotonic()
    force = program.force or folder.record.is_file()
    making = replace(asked, output=folder.path, force=force, stop=can_stop(program.kind), plots=False)
    try:
        run_breakdown(making, progress)
    except StoppedBreakdown as stop:
        raise KeyboardInterrupt(str(stop)) from stop
    return folder, program, time.monotonic() - began_s


def _request_without_secrets(program: BreakdownRequest) -> BreakdownRequest:
    hidden = Redaction.find([program.arguments], os.environ | dict(program.variables), program.redact)
    return replace(program, arguments=hidden.words(program.arguments))


def _find_earlier_run(folder: RunFolder, asked: BreakdownRequest) -> tuple[RunFolder, BreakdownRequest, float]:
    """An earlier RUN: its program as it was typed then, or the command after ``--``."""
    run = folder.load()
    if asked.arguments:
        words = asked.arguments
        program = replace(
            run.request, kind=COMMAND, arguments=words, target=resolve_target(_make_target_request(asked)).name
        )
    else:
        program = run.request
    hint = f"give the command: inductor-bench optimize {shlex.quote(str(folder.path))} -- python train.py"
    if program.kind not in PROGRAMS:
        raise UsageError(
            f"{folder.path} is a run of a {program.kind}, which cannot be run again", hint, "not-repeatable"
        )
    if any(MASK in word for word in program.arguments):
        raise UsageError(
            f"{folder.path} does not hold the whole command: secrets were left out", hint, "not-repeatable"
        )
    program = replace(
        program,
        python=asked.python or program.python,
        timeout_s=asked.timeout_s or program.timeout_s,
        redact=asked.redact,
        force=asked.force,
        variables=(*program.variables, *asked.variables),
    )
    if not asked.arguments:
        try:
            resolve_target(_make_target_request(program))
        except UsageError as error:
            raise UsageError(
                f"the program of {folder.path} is not here: {error.message}", hint, "not-repeatable"
            ) from None
    return folder, program, 0.0


def _make_target_request(program: BreakdownRequest) -> BreakdownRequest:
    """A request for the target alone."""
    if program.kind == COMMAND or not program.kind:
        return BreakdownRequest("", arguments=program.arguments)
    return BreakdownRequest(program.target, arguments=program.arguments)


# The search.


class _Searching:
    """The state of one search in progress. ``found`` is saved after each process."""

    def __init__(
        self,
        request: OptimizeRequest,
        own: tuple[ProgramSetting, ...],
        run: Run,
        folder: OptimizationFolder,
        gpus: tuple[str, ...],
        redaction: Redaction,
        progress: Progress,
        before_s: float,
    ) -> None:
        program = request.program
        self._request, self._own, self._run, self._folder = request, own, run, folder
        self._gpus, self._redaction, self._progress, self._before_s = gpus, redaction, progress, before_s
        self._python = find_python(program)
        self._environment = dict(os.environ) | dict(program.variables) | redaction.variables
        self._found: Optimization | None = None
        self._search: OptimizationSearch | None = None

    def search(self) -> bool:
        """Runs the trials that are missing. Returns whether there were any."""
        earlier = self._folder.load() if self._folder.exists() and not self._request.program.force else None
        if earlier is not None:
            self._check_same(earlier)
            if earlier.is_complete and self._request.budget_s <= earlier.budget_s:
                return False
        else:
            self._folder.clear()
        self._folder.make_inside()
        self._found = self._begin(earlier)
        self._search = OptimizationSearch(
            self._found.rows,
            self._found.step_time_s,
            self._found.searched_s or self._request.budget_s,
            self._found.before_s,
            self._request.max_memory_bytes,
            len(self._gpus),
            CompileAhead.of(self._run, count_cores_of_this_process(), len(self._gpus)),
            self._request.budget_s,
        )
        self._save()
        self._run_trials(self._search)
        self.conclude(is_complete=True)
        if self._search.winner is None or self._search.winner.is_confirmed:
            self._folder.remove_work()  # otherwise a later command would find the compiled code in its caches
        return True

    def _run_trials(self, search: OptimizationSearch) -> None:
        program = self._request.program
        trials = ProgramTrials(
            replace(program, live=False, stop=can_stop(program.kind), repeat=1),
            self._folder,
            self._environment,
            self._python,
            self._redaction,
            self._progress,
            max(LEAST_STALLED_S, min(STALLED_S, STALLED_SHARE * self._request.budget_s)),
            len(self._gpus),
        )
        rounds = TrialRounds(trials, self._gpus, self._progress)
        plans, ended = search.plans(), None
        while True:
            try:
                asked = next(plans) if ended is None else plans.send(ended)
            except StopIteration:
                return
            ended = [self._trial_without_secrets(trial) for trial in rounds.run(asked, self._describe_time(search))]
            for trial in ended:
                self._tell(trial)
            self._save()

    def _describe_time(self, search: OptimizationSearch) -> str:
        """How much time is left: ``2 min 10 s left of 5 min``."""
        budget_s = self._request.budget_s
        return f"{units.duration(max(0.0, budget_s - search.spent_s))} left of {units.duration(budget_s)}"

    def _trial_without_secrets(self, trial: Trial) -> Trial:
        return replace(trial, failure=self._redaction.failure(trial.failure)) if trial.failure else trial

    def _tell(self, trial: Trial) -> None:
        caches = "empty caches" if trial.cold else "shared caches"
        compiled = f"{trial.compile_time_s:.1f} s of them compiling, with {caches}"
        self._progress.output(f"{trial.name}: {trial.time_s:.1f} s, {compiled}")
        if trial.failure is not None:
            self._progress.note(f"{trial.name}: {trial.failure.message}")
        for one in trial.variants:
            if one.failure:
                self._progress.note(f"{trial.name}: {one.slug}: {one.failure}")
        for said in describe_long_compilations(trial, self._request.budget_s):
            self._progress.note(said)

    def _check_same(self, earlier: Optimization) -> None:
        shown = self._recorded()
        if (earlier.target, earlier.request.arguments) != (shown.target, shown.arguments):
            raise UsageError(
                f"{self._folder.path} holds a search for {earlier.title}",
                "search again with --force, or choose another folder with -o (give the program, and not its RUN)",
                "other-request",
            )
        request = self._request
        if not (request.allowed or request.denied or request.max_memory_bytes):  # the command that the report names
            self._request = replace(
                request, allowed=earlier.allowed, denied=earlier.denied, max_memory_bytes=earlier.max_memory_bytes
            )
        asked = (self._request.allowed, self._request.denied, self._request.max_memory_bytes)
        if (earlier.allowed, earlier.denied, earlier.max_memory_bytes) != asked:
            raise UsageError(
                f"{self._folder.path} holds a search with other options", "search again with --force", "other-request"
            )

    def _recorded(self) -> BreakdownRequest:
        program: BreakdownRequest = as_recorded(self._request.program)
        return replace(
            program,
            target=self._redaction.text(program.target),
            arguments=self._redaction.words(program.arguments),
            python=name_python(program),
        )

    def _begin(self, earlier: Optimization | None) -> Optimization:
        """Begins the search with its menu. A search of an earlier command goes on with the menu that it had."""
        if earlier is not None:
            rows = tuple(map(reset_row, earlier.rows))
            searched_s, budget_s = find_limit(earlier), self._request.budget_s
            more = replace(earlier, rows=rows, winner=None, is_complete=False, budget_s=budget_s)
            return replace(more, searched_s=searched_s, devices=self._request.devices)
        self._progress.stage("looking at the machine")
        environment, options = read_machine(self._python, self._folder.work, self._environment)
        facts, pins = StepFacts(self._run), self._write_pins()
        rows = make_menu(facts, self._request.allowed, self._request.denied, options, self._own, pins)
        command = shlex.join(["inductor-bench", *self._redaction.words(sys.argv[1:])]) if is_command() else CALLED
        assert self._run.program is not None
        return Optimization(
            format=OptimizationFolder.FORMAT,
            tool_version=__version__,
            created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            command=command,
            target=self._recorded().target,
            title=make_title(self._recorded()),
            request=self._recorded(),
            environment=environment,
            step_time_s=self._run.program.step_time_s,
            budget_s=self._request.budget_s,
            before_s=self._before_s,
            allowed=self._request.allowed,
            denied=self._request.denied,
            devices=self._request.devices,
            max_memory_bytes=self._request.max_memory_bytes,
            rows=rows,
        )

    def _write_pins(self) -> tuple[ProgramSetting, float] | None:
        """Writes the configs of the RUN's retunes for the program's processes; returns how the processes get them."""
        if not self._run.retunes:
            return None
        pinned = make_pins(self._run, RunFolder(self._folder.path.parent))
        if not pinned.pinned:
            return None
        write_json(self._folder.pins, codec.encode(set_mode(pinned, APPLY)))
        return ProgramSetting(PINS, PINS_VARIABLE, repr(str(self._folder.pins.resolve()))), pinned.predicted_s

    def _save(self) -> None:
        assert self._found is not None
        if self._search is not None:
            self._found = replace(
                self._found,
                rows=self._search.rows,
                trials=tuple(self._search.trials),
                winner=self._search.winner,
                measured_step_s=compute_original_step_s(self._search.trials),
                spent_s=self._search.spent_s,
                notes=(*self._search.notes, *_list_notes(self._search.trials, self._request.budget_s)),
            )
        self._folder.save(self._found, self._redaction.text)

    def conclude(self, *, is_complete: bool) -> None:
        """Saves what is judged, and writes the files for the user."""
        if self._found is None:
            return
        if self._search is not None and not is_complete:
            self._search.stop()
        self._save()
        self._found = replace(self._found, is_complete=is_complete)
        program, optimizers = Path(self._run.target), StepFacts(self._run).optimizer_classes
        files = write_optimized(self._found, self._folder, program, optimizers) if is_complete else ()
        self._found = replace(self._found, files=files)
        self._folder.save(self._found, self._redaction.text)


def _list_notes(trials: list[Trial], budget_s: float) -> tuple[str, ...]:
    said = (note for trial in trials for note in (*describe_long_compilations(trial, budget_s), *trial.notes))
    return tuple(dict.fromkeys(said))


def find_limit(earlier: Optimization) -> float | None:
    """Returns the time limit of an earlier search's ranking and proofs, if it only lacks whole runs."""
    if earlier.is_complete and not earlier.caveat:
        return None
    return earlier.searched_s or (earlier.budget_s if earlier.is_complete else None)


def reset_row(row: MenuRow) -> MenuRow:
    """Returns a row of an earlier command as it was before it was tried."""
    if row.state == SUGGESTED or (row.state == UNTRIED and not row.needs_time):
        return row
    return replace(
        row,
        state=UNTRIED,
        reason="",
        screened=None,
        proven=None,
        own=None,
        compile_time_s=None,
        peak_memory_bytes=None,
    )


def read_machine(python: str, work: Path, environment: Mapping[str, str]) -> tuple[Environment, dict[str, str] | None]:
    """The machine as an interpreter sees it, and Inductor's options there; ``None`` if it does not tell them.

    Raises:
        InductorBenchError: the interpreter has no working torch.
    """
    pool, log = WorkerPool(python, work, environment), work / "environment.log"
    session = WorkerSession(python, work, make_worker_environment(work, environment), log=log, on_line=lambda _: None)
    try:
        found = session.ask(TellEnvironment(), LOOK_S)
        try:
            return found, session.ask(TellOptions(), LOOK_S)
        except InductorBenchError:  # torch's list of options has moved
            return found, None
    except WorkerLostError as lost:
        raise explain_loss_at_start(lost, pool) from None
    finally:
        session.close()

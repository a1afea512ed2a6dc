"""Runs a program once, in a mode or without compilation, and reads what its process measured."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import statistics
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from ..analysis.findings.finding import plural
from ..analysis.roofline import describe_other_work, list_named_work
from ..devices.table import find_device
from ..errors import InductorBenchError, UsageError
from ..launch.process import ProcessResult
from ..messages.observed import CAPTURE_FOLDER, MODE, OBSERVE, PROFILES, STEPS, ModeChange, ModeReport
from ..messages.observed import EAGER as EAGER_DEVICE
from ..records.base import NO_PYTHON, Failure
from ..records.comparison import DEFAULT, EAGER, MODES, NOT_TIMED, SWITCHES, DeviceWork, ModeProcess, ModeSet
from ..records.evidence import BOUNDARY, GRAPH_CALL, EagerSteps, ObservedSteps
from ..records.request import DRAWN, BreakdownRequest
from ..records.request_fields import COMPILED_HERE
from ..records.run import PATTERN, Program
from ..store import codec
from ..store.files import read_json
from ..store.folder import ModesFolder, RunFolder
from ..store.lock import DeviceTurn
from ..store.redaction import Redaction
from ..trace.program_trace import Markers, measure_work, read_program_trace
from .modules.compile_environment import make_observed_environment
from .modules.observed_files import StepWatch, read_steps
from .modules.program_run import explain_missing_python, list_program_failures, make_program_command, run_program
from .progress import Progress

NOT_COMPILED = {"TORCH_COMPILE_DISABLE": "1"}
"""The variable with which no function of a program is compiled, although it calls ``torch.compile`` (torch 2.9 to
2.15)."""

FOLDER = "eager"
"""Name of the observation's folder in the RUN's temporary folder."""

NO_PATTERN = (
    "the program was not timed without compilation: its steps were found by the pattern of its compiled calls, and "
    "without compilation there are none; mark the ends of steps with inductor_bench.step()"
)
NO_STEP = "the program was not timed without compilation, because no step of the compiled program was found"
NO_EAGER_STEPS = "no step was timed in the run without compilation"


def time_eager(
    program: Program | None,
    request: BreakdownRequest,
    folder: RunFolder,
    environment: Mapping[str, str],
    python: str,
    progress: Progress,
) -> tuple[EagerSteps | None, tuple[Failure, ...]]:
    """Times the program's step without compilation.

    Returns the time and what went wrong; ``None`` if it was not measured.

    The program is ended as soon as its steps are timed.

    Args:
        program: the step of the compiled program.
        request: the unredacted request.
        folder: the RUN; its temporary folder gets the observation.
        environment: the environment of the compiled program.
        python: the interpreter of a script.
        progress: shows what is done.
    """
    if program is None:
        progress.note(NO_STEP)
        return None, ()
    if program.step_source == PATTERN:
        return EagerSteps(note=NO_PATTERN), ()
    try:
        ended = _run_eager(program, request, folder, environment, python, progress)
        found = list_eager_step_times_s(read_steps(folder.work / FOLDER), program)
    except InductorBenchError as error:
        return None, (Failure("eager", "invalid", error.message, error.hint),)
    if found is None:
        return None, (_make_failure(request, ended),)
    return EagerSteps(*found), ()


def _run_eager(
    program: Program,
    request: BreakdownRequest,
    folder: RunFolder,
    environment: Mapping[str, str],
    python: str,
    progress: Progress,
) -> ProcessResult:
    work = folder.work / FOLDER
    work.mkdir(exist_ok=True)
    observed = make_observed_environment(replace(request, repeat=1, values=DRAWN), folder.work, environment)
    observed.pop("TORCH_TRACE", None)
    observed |= {
        CAPTURE_FOLDER: str(work.resolve()),
        EAGER_DEVICE: program.ranks[0].device,
        **NOT_COMPILED,
    }
    command = make_program_command(request, work, python, work / "refusal.json")
    watch = StepWatch(work, True, lambda: None)
    log = folder.logs / "eager.log"
    return run_program(request, command, observed, log, progress, watch.is_finished, how="without compilation: ")


def list_eager_step_times_s(observations: Sequence[ObservedSteps], program: Program) -> tuple[float, float] | None:
    """Returns the mean and the median step of the slowest process.

    They are ``None`` if no process found its steps in the same way as the compiled program.
    """
    times = [
        (one.window_s / len(one.step_times_s), statistics.median(one.step_times_s))
        for one in observations
        if one.step_times_s and one.source == program.step_source
    ]
    return max(times, default=None)


def _make_failure(request: BreakdownRequest, ended: ProcessResult) -> Failure:
    message = NO_EAGER_STEPS if ended.ok else f"the program without compilation {ended.outcome}"
    hint = "give it more time with --timeout SECONDS" if ended.timed_out else f"read {shlex.quote(str(ended.log))}"
    return Failure("eager", "exit" if ended.ok else ended.kind, message, hint, ended.tail(), request.target)


STAGE = "mode"

NOT_INHERITED = (
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES",
    "TORCHINDUCTOR_FX_GRAPH_CACHE",
    "TORCHINDUCTOR_AUTOGRAD_CACHE",
    "TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE",
    "TORCHINDUCTOR_AUTOGRAD_REMOTE_CACHE",
    "TORCHINDUCTOR_AUTOTUNE_REMOTE_CACHE",
    "TORCHINDUCTOR_BUNDLED_AUTOTUNE_REMOTE_CACHE",
    "TORCHINDUCTOR_FX_COMPILE_MODE",
    *NOT_COMPILED,
)
"""Variables that would share caches between modes, hide the compilation of the first round, repeat it in later rounds,
or forbid it."""

CACHE = "TORCHINDUCTOR_CACHE_DIR"
OWN = "INDUCTOR_BENCH_"
"""First letters of the variables of the observation."""

COMMON = "common"
"""The name of the cache with which each row begins. It holds what Inductor finds out about the processor when it is
first used."""

UNCOMPILED = "uncompiled"
"""The kind of the failure of a program that calls ``torch.compile`` in no mode."""

HOPELESS = (UNCOMPILED, NO_PYTHON)
"""Kinds of failures that all modes share."""

COMPILE_HINT = "call torch.compile on the model; the modes are put into that call"

NOTHING_COMPILED = "not run: its steps would be found as in the compiled rows, and no compiled row was measured"
NO_MODE_PATTERN = (
    "the program's steps are found by the pattern of its compiled calls, and without compilation there are no "
    "such calls: mark "
    "the ends of steps with inductor_bench.step()"
)


@dataclass(frozen=True)
class ProcessTurn:
    """One process of the comparison: the number of its row, its name and settings, and its round."""

    row: int
    name: str
    settings: ModeSet
    round: int

    @property
    def slug(self) -> str:
        """The name of its files."""
        words = "".join(letter if letter.isalnum() else "-" for letter in self.name.lower())
        return f"{self.row + 1}-{'-'.join(filter(None, words.split('-')))[:60]}"


class ProgramRunner:
    """Runs the program of one request.

    Args:
        request: the unredacted request.
        folder: the folder of the comparison.
        environment: the environment of this command.
        python: the interpreter of a script.
        profiles: whether the first round profiles steps; this has no effect without an accelerator.
        redaction: takes secrets out of what is written.
        progress: shows what is done.
    """

    def __init__(
        self,
        request: BreakdownRequest,
        folder: ModesFolder,
        environment: Mapping[str, str],
        python: str,
        redaction: Redaction,
        progress: Progress,
        *,
        profiles: bool,
    ) -> None:
        self._request, self._folder, self._python, self._progress = request, folder, python, progress
        self._environment, self._redaction, self._profiles = environment, redaction, profiles

    def run(self, place: ProcessTurn, rounds: int, other: ModeProcess | None) -> ModeProcess | Failure:
        """Runs one process.

        Args:
            place: the settings of the process, and its round.
            rounds: the number of rounds, for the shown line.
            other: a compiled process before it, whose steps this one's must resemble; without one, nothing is run
                without compilation, because its end would be unknown.

        Raises:
            InductorBenchError: the program cannot be started.
        """
        if place.settings.mode == EAGER and (other is None or other.source == PATTERN):
            return _make_failed_row(NOT_TIMED, NO_MODE_PATTERN if other else NOTHING_COMPILED)
        request, work = self._request, self._folder.work / place.slug
        observed, refusal = work / f"observed-{place.round}", work / "refusal.json"
        shutil.rmtree(observed, ignore_errors=True)
        observed.mkdir(parents=True)
        refusal.unlink(missing_ok=True)
        common, cache = self._folder.work / COMMON, work / "cache"
        if common.is_dir() and not cache.exists():
            shutil.copytree(common, cache)
        log = self._folder.logs / f"{place.slug}-{place.round + 1}.log"
        log.unlink(missing_ok=True)
        here = request.kind in COMPILED_HERE
        mode = None if place.settings.mode == EAGER else place.settings.mode
        command = make_program_command(replace(request, mode=mode), work, self._python, refusal)
        watch = StepWatch(observed, not here, lambda: None)
        how = f"{place.name}, round {place.round + 1} of {rounds}: "
        environment = self._environment_of(place, work, observed, other.device if other else "")
        with nullcontext() if here else DeviceTurn():
            ended = run_program(request, command, environment, log, self._progress, watch.is_finished, how=how)
        return self._read(place, ended, observed, refusal, other)

    def _environment_of(self, place: ProcessTurn, work: Path, observed: Path, device: str) -> dict[str, str]:
        """Returns the environment of a process: the caches of its row, its settings, and the observation."""
        settings, first = place.settings, place.round == 0
        environment = {name: value for name, value in self._environment.items() if name not in NOT_INHERITED}
        environment |= {variable: "1" for name in settings.switches if (variable := SWITCHES[name].variable)}
        environment |= settings.environment
        environment |= {CACHE: str((work / "cache").resolve()), "PYTHONUNBUFFERED": "1"}
        environment = make_observed_environment(replace(self._request, repeat=1), work, environment)
        change = ModeChange(settings.mode, settings.options, settings.switches, compares=first)
        environment |= {
            CAPTURE_FOLDER: str(observed.resolve()),
            OBSERVE: STEPS,
            MODE: json.dumps(codec.encode(change)),
            PROFILES: "1" if first and self._profiles else "0",
        }
        if settings.mode == EAGER:
            environment |= {**NOT_COMPILED, EAGER_DEVICE: device}
        return environment

    def _read(
        self, place: ProcessTurn, ended: ProcessResult, observed: Path, refusal: Path, other: ModeProcess | None
    ) -> ModeProcess | Failure:
        failure = explain_missing_python(self._request, ended, observed, self._python)
        if failure is None and not ended.ok:
            failure = list_program_failures(self._request, ended, refusal, explained=False)[0]
        if failure is not None:
            return _make_failed_row(failure.kind, failure.message, failure.hint, failure.log_tail)
        steps, reports = read_steps(observed), _read_reports(observed)
        self._folder.save_process(f"{place.slug}-{place.round + 1}", list(steps), self._redaction.text)
        hint = f"read {shlex.quote(str(ended.log))}"
        if place.settings.mode != EAGER and not any(report.calls for report in reports.values()):
            kept = sorted({reason for report in reports.values() for reason in report.kept})
            if not kept:
                return _make_failed_row(UNCOMPILED, "the program never calls torch.compile", COMPILE_HINT, ended.tail())
            message = f"no call of torch.compile could be changed: {', '.join(kept)}"
            return _make_failed_row("unchanged", message, hint, ended.tail())
        timed = [one for one in steps if one.step_times_s and one.window_s > 0]
        if not timed:
            said = next((text for one in steps for text in (one.error, *one.notes) if text), "")
            return _make_failed_row("no-steps", f"no step was timed{f': {said}' if said else ''}", hint, ended.tail())
        slowest = max(timed, key=_compute_step_time)
        if other is not None and slowest.source != other.source:
            message = f"its steps are found by {slowest.source}, the steps of the others by {other.source}"
            return _make_failed_row("other-steps", message, hint)
        return describe_process(place, slowest, _find_report(slowest, reports), ended)


def describe_process(place: ProcessTurn, steps: ObservedSteps, report: ModeReport, ended: ProcessResult) -> ModeProcess:
    """Describes what a process measured, from the steps of its slowest rank, its report and its end.

    Args:
        place: the settings of the process, and its round.
        steps: timed steps, at least one.
        report: that of the same rank.
        ended: the end of the program.
    """
    step_s = _compute_step_time(steps)
    if steps.settling_time_s is not None:
        compile_s: float | None = steps.settling_time_s - steps.settling_steps_s - steps.compiling_steps * step_s
    else:
        compile_s = None if steps.first_step_time_s is None else steps.first_step_time_s - step_s
    work, problem = _describe_device_work(steps, step_s)
    return ModeProcess(
        round=place.round,
        step_time_s=step_s,
        step_times_s=steps.step_times_s,
        source=steps.source,
        device=steps.device,
        compile_time_s=None if compile_s is None or place.settings.mode == EAGER else max(compile_s, 0.0),
        peak_memory_bytes=report.peak_memory_bytes,
        threads=report.threads,
        graph_breaks=report.graph_breaks,
        calls=report.calls,
        kept_calls=report.kept,
        codes=tuple(sorted(os.path.basename(graph.path) for graph in steps.graphs if graph.path)),
        configs=report.configs,
        compiled_graphs=report.compiled_graphs,
        replays=sum(graph.cuda_graphs for graph in steps.graphs),
        refusals=tuple(sorted({graph.cuda_graph_refusal for graph in steps.graphs} - {""})),
        work=work,
        agreement=report.agreement if place.settings != ModeSet(EAGER) else None,
        time_s=ended.time_s,
        notes=tuple(
            filter(
                None,
                (
                    *report.notes,
                    *steps.notes,
                    problem,
                    _note_compiled_again(place, report),
                    _describe_shared_gpu(steps),
                ),
            )
        ),
    )


def _describe_shared_gpu(steps: ObservedSteps) -> str:
    work = list_named_work(steps.sharing)
    return describe_other_work(work, "its steps") if work is not None else ""


def _note_compiled_again(place: ProcessTurn, report: ModeReport) -> str:
    if place.round == 0 or not report.compiled_graphs:
        return ""
    return (
        f"a later round compiled {plural(report.compiled_graphs, 'graph')} again, because "
        "torch's caches do not hold them"
    )


def _describe_device_work(steps: ObservedSteps, step_s: float) -> tuple[DeviceWork | None, str]:
    """Returns the device's work in a step, or why it is unknown. The profiler slows the host, but not the device."""
    if not steps.trace or find_device(steps.device).runs_on_host:
        return None, ""
    markers = Markers(BOUNDARY, GRAPH_CALL)
    try:
        found = measure_work(read_program_trace(Path(steps.trace), markers), markers)
    except InductorBenchError as error:
        return None, f"the profile cannot be read: {error.message}"
    if found is None:
        return None, ""
    return DeviceWork(found.time_s, found.launches, min(1.0, found.busy_time_s / step_s)), ""


def _compute_step_time(steps: ObservedSteps) -> float:
    return steps.window_s / len(steps.step_times_s)


def _read_reports(observed: Path) -> dict[int, ModeReport]:
    files = observed.glob("*.mode.json")
    return {int(file.name.split(".")[0]): codec.decode(ModeReport, read_json(file)) for file in files}


def _find_report(steps: ObservedSteps, reports: Mapping[int, ModeReport]) -> ModeReport:
    found: Sequence[ModeReport] = [*reports.values()]
    return reports.get(steps.pid) or (found[0] if found else ModeReport())


def _make_failed_row(kind: str, message: str, hint: str = "", tail: str = "") -> Failure:
    return Failure(STAGE, kind, message, hint, tail)


# Reads the settings of rows as a user types them.


"""The default number of rounds. It is even, so that each row runs early as often as late."""

OPTION = "inductor."
_VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_OPTION = re.compile(r"inductor\.([a-z_][\w.]*)=(.+)", re.DOTALL)


def read_set(text: str) -> ModeSet:
    """Reads the settings of one row: modes, switches, options and variables, separated by commas.

    ``tf32`` means ``default,tf32``; ``max-autotune,tf32,inductor.epilogue_fusion=false,OMP_NUM_THREADS=8`` has one of
    each.

    Raises:
        UsageError: a word is none of these, or two modes are named.
    """
    found = ModeSet("")
    for word in (part.strip() for part in text.split(",")):
        if word in MODES:
            if found.mode:
                raise UsageError(
                    f"{text!r} names two modes", "a row has one mode; give --with twice for two rows", "bad-word"
                )
            found = replace(found, mode=word)
        elif word in SWITCHES:
            found = replace(found, switches=(*dict.fromkeys((*found.switches, word)),))
        elif word.startswith(OPTION):
            found = replace(found, options=found.options | read_option(word).options)
        else:
            found = replace(found, environment=found.environment | dict([_read_variable(word)]))
    return _check_row(replace(found, mode=found.mode or DEFAULT), text)


def _read_variable(text: str) -> tuple[str, str]:
    match = _VARIABLE.fullmatch(text)
    if match is None:
        known = ", ".join((*MODES, *SWITCHES))
        raise UsageError(
            f"{text!r} is no setting", f"give {known}, inductor.OPTION=VALUE or VARIABLE=VALUE", "bad-word"
        )
    return match[1], match[2]


def read_option(text: str) -> ModeSet:
    """The row of an option ``inductor.NAME=VALUE``.

    Raises:
        UsageError: the text has another form.
    """
    match = _OPTION.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text!r} is no option of Inductor", "give inductor.NAME=VALUE: inductor.epilogue_fusion=false", "bad-word"
        )
    return ModeSet(DEFAULT, options={match[1]: match[2]})


def _check_row(found: ModeSet, text: str) -> ModeSet:
    compiled = [name for name in found.switches if SWITCHES[name].variable]
    if found.mode == EAGER and (found.options or compiled):
        raise UsageError(
            f"{text!r} compiles nothing, so options of the compiler have no effect",
            "name a mode that compiles",
            "bad-word",
        )
    return found


def read_sets(
    modes: Sequence[str], withs: Sequence[str], variables: Sequence[tuple[str, str]], options: Sequence[str]
) -> tuple[ModeSet, ...]:
    """Makes the rows of a comparison: the modes (all of them if none is named), and then the user's own sets.

    Args:
        modes: names of modes.
        withs: one set each; see :func:`read_set`.
        variables: one set each, with one environment variable: its name and its value.
        options: one set each, with one option of Inductor; see :func:`read_option`.

    Raises:
        UsageError: a set has another form.
    """
    own = [*map(read_set, withs), *(ModeSet(DEFAULT, environment=dict([one])) for one in variables)]
    own += map(read_option, options)
    rows = [*(ModeSet(mode) for mode in modes or MODES), *own]
    return tuple({row.name: row for row in rows}.values())

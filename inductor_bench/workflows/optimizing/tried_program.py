"""Runs the program with some variants of it, one timed process at a time on each device, and reads its measurements."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from ...analysis.findings.finding import plural
from ...analysis.optimization.trial_plans import GIVEN_UP, TrialCandidate, TrialPlan
from ...devices.nvidia import VISIBLE_GPUS, is_gpu_lost
from ...errors import InductorBenchError
from ...launch.batch_executors import compile_threads
from ...launch.process import WAKE_S, ChildProcess, ProcessResult, find_last_error
from ...launch.worker import COMPILE_THREADS, count_usable_cores
from ...messages.observed import (
    JOURNAL,
    OBSERVE,
    STEPS,
    TRIED,
    UNCOMPILED,
    VARIANTS,
    CheckedCallable,
    ProgramVariant,
    TriedVariants,
    VariantsRequest,
    VariantState,
    VariantSwitch,
)
from ...records.base import Failure
from ...records.evidence import DONE, FAILED
from ...records.optimization import (
    COMBINE,
    CONFIRM,
    ENVIRONMENT,
    ORIGINAL,
    PINS,
    PLACEBO,
    PROVE,
    RANKS,
    SCREEN,
    TIMED,
    WARMING,
    Trial,
    TrialVariant,
    VariantCheck,
    parse_value,
)
from ...records.request import BreakdownRequest
from ...records.request_fields import COMPILED_HERE
from ...store import codec
from ...store.caches import lend_probes
from ...store.files import read_json, read_text, write_json
from ...store.folder import OptimizationFolder
from ...store.lock import TURN, DeviceTurn
from ...store.redaction import Redaction
from ..modules.compile_environment import WARM, make_observed_environment
from ..modules.observed_files import PATIENCE_S
from ..modules.program_run import format_shown_command, make_program_command, remove_lock_variable
from ..progress import Progress
from ..single_run import CACHE, NOT_INHERITED

STAGE = "optimize"

REQUEST = "variants.json"
"""Name of the file with what a process is to try."""

STALLED_S, STALLED_SHARE = 240.0, 0.2
"""The limit in seconds for work that a variant does for the first time, such as compilation; and the same limit as a
share of the time limit, which counts if it is less."""

SETTLE_S = 0.2
"""Seconds after the last process has said that it is done, until the program is ended."""

LATE = "its process had no more time after {time_s:.0f} s, before all of its steps were timed"
NOT_TIMED = "the program ended before its steps were timed"
NOT_COMPILED = "the program ended before all of its variants were compiled"


class VariantWatch:
    """Checks, while the program runs, whether its variants are measured, or one of them hangs.

    Args:
        folder: the folder in which the processes write.
        stalled_s: seconds that a variant may take for one piece of work.
    """

    def __init__(self, folder: Path, stalled_s: float) -> None:
        self._folder, self._stalled_s = folder, stalled_s
        self._done_s: float | None = None
        self._doing: dict[str, tuple[str, float]] = {}
        self.stalled = ""

    def is_finished(self) -> bool:
        """Whether the program can be ended now."""
        now_s = time.monotonic()
        if self._has_stalled(now_s):
            return True
        results = read_trial_results(self._folder)
        states = [found.state for found in results or read_trial_results(self._folder / UNCOMPILED)]
        if not states or not all(state in (DONE, FAILED) for state in states):
            self._done_s = None
            return False
        self._done_s = self._done_s or now_s
        return now_s - self._done_s >= (SETTLE_S if results else PATIENCE_S)  # without any it may still compile

    def _has_stalled(self, now_s: float) -> bool:
        for name, doing in read_journals(self._folder).items():
            known = self._doing.get(name)
            if known is None or known[0] != doing:
                self._doing[name] = (doing, now_s)
            elif find_culprit(doing) and now_s - known[1] > self._stalled_s:
                self.stalled = doing
        return bool(self.stalled)


def read_trial_results(folder: Path) -> list[TriedVariants]:
    """Reads the results that the processes have written, by rank; a file that is being written counts as missing."""
    found = []
    for file in folder.glob(f"*{TRIED}"):
        try:
            found.append(codec.decode(TriedVariants, read_json(file)))
        except InductorBenchError:
            continue
    return sorted(found, key=lambda one: (one.rank or 0, one.pid))


def read_journals(folder: Path) -> dict[str, str]:
    """Returns the last line of each process's journal: the work that it does for the first time."""
    found = {}
    for file in folder.glob(f"*{JOURNAL}"):
        try:
            lines = read_text(file).split("\n")
        except InductorBenchError:
            continue
        found[file.name] = next((line.strip() for line in reversed(lines) if line.strip()), "-")
    return found


def find_culprit(line: str) -> str:
    """The variant that a line of a journal names; empty if the original ran."""
    slug = line.partition(" ")[0]
    return "" if slug in ("-", ORIGINAL) else slug


class StartedTrial:
    """A process of a trial that runs.

    Args:
        plan: what it tries.
        gpu: the GPU that it has; empty if it may use all.
        child: the process.
        watch: checks what its variants do.
        work: the folder of its files.
        limit_s: seconds until it is ended.
    """

    def __init__(
        self, plan: TrialPlan, gpu: str, child: ChildProcess, watch: VariantWatch, work: Path, limit_s: float | None
    ) -> None:
        self.plan, self.gpu, self.watch, self.work = plan, gpu, watch, work
        self._child, self._limit_s = child, limit_s
        self.began_s = self._asked_s = time.monotonic()
        self._is_finished = self._is_late = False

    def has_ended(self, wait_s: float = 0.0) -> bool:
        """Whether it has ended, or can be ended; waits at most ``wait_s`` seconds for this."""
        if self._child.wait(wait_s):
            return True
        now_s = time.monotonic()
        if now_s - self._asked_s >= WAKE_S:
            self._asked_s, self._is_finished = now_s, self.watch.is_finished()
        self._is_late = self._limit_s is not None and now_s - self.began_s > self._limit_s
        return self._is_finished or self._is_late

    @property
    def is_late(self) -> bool:
        """Whether the time of the search is over before everything was timed; ``False`` at a limit that the user
        gave."""
        is_searchs = self._limit_s == self.plan.limit_s and not self.plan.only_compiles
        return self._is_late and not self._is_finished and is_searchs

    def end(self) -> ProcessResult:
        """Ends the process and its descendants. May be called again."""
        timed_out = self._is_late and not self._is_finished
        return replace(self._child.end(timed_out), stopped=self._is_finished)


@dataclass(frozen=True)
class ProgramTrials:
    """Starts the trials of a search, and reads what they measured.

    ``request`` is the program with its secrets, ``environment`` that of this command, ``python`` the interpreter of a
    script, ``pins`` the folder of pins if there are any, ``gpus`` the number of GPUs that are used at once.
    """

    request: BreakdownRequest
    folder: OptimizationFolder
    environment: Mapping[str, str]
    python: str
    redaction: Redaction
    progress: Progress
    stalled_s: float = STALLED_S
    gpus: int = 1

    @property
    def takes_turns(self) -> bool:
        """Whether the program itself waits for its turn at the device."""
        return self.request.kind in COMPILED_HERE

    def find_finished(self, plan: TrialPlan) -> Trial | None:
        """Returns the trial if an earlier command has run it; ``None`` if none has, or if the trial now has more
        time."""
        known = self.folder.load_trial(plan.name)
        if known is not None and known.late and (plan.limit_s is None or plan.limit_s > known.time_s):
            return None
        asked = (plan.purpose, plan.slugs, plan.alternates)
        return known if known is not None and (known.purpose, known.slugs, known.alternates) == asked else None

    def start(self, plan: TrialPlan, gpu: str) -> StartedTrial:
        """Starts the process of a trial, on a GPU if one is named.

        Raises:
            InductorBenchError: the program cannot be started, or the folder cannot be written.
        """
        work = self.folder.work / plan.name
        shutil.rmtree(work, ignore_errors=True)
        observed, log = work / "observed", self.folder.logs / f"{plan.name}.log"
        observed.mkdir(parents=True)
        log.unlink(missing_ok=True)
        write_json(work / REQUEST, codec.encode(request_of(plan)))
        command = make_program_command(self.request, work, self.python, work / "refusal.json")
        environment = self._environment(plan, work, gpu)
        remove_lock_variable(self.request, environment)
        child = ChildProcess(command, environment=environment, log=log, on_line=self.progress.output)
        limit_s = min((one for one in (plan.limit_s, self.request.timeout_s) if one is not None), default=None)
        return StartedTrial(plan, gpu, child, VariantWatch(observed, self.stalled_s), work, limit_s)

    def read(self, started: StartedTrial) -> Trial:
        """Ends a process, and reads and keeps what it measured."""
        ended, watch = started.end(), started.watch
        stalled = f"{watch.stalled} for more than {self.stalled_s:.0f} s" if watch.stalled else ""
        time_s = time.monotonic() - started.began_s
        observed, late = started.work / "observed", started.is_late
        trial = read_trial(started.plan, observed, ended, time_s, stalled, late=late)
        trial = replace(trial, gpu=started.gpu)
        self.folder.save_process(trial.name, trial, self.redaction.text)
        shutil.rmtree(started.work, ignore_errors=True)
        return trial

    def report_begin(self, plans: Sequence[TrialPlan], left: str) -> None:
        """Reports which processes begin, and how much time is left."""
        what = f"{_describe_plans(plans)} ({left})" if left else _describe_plans(plans)
        self.progress.stage(f"running {what}: {format_shown_command(self.request, self.environment)}")

    def _environment(self, plan: TrialPlan, work: Path, gpu: str) -> dict[str, str]:
        environment = {name: value for name, value in self.environment.items() if name not in NOT_INHERITED}
        cache = work / "cache" if plan.cold else self.folder.work / "cache"
        cache.mkdir(parents=True, exist_ok=True)
        if not plan.cold:
            lend_probes(cache)
        environment |= {**WARM, CACHE: str(cache.resolve()), "PYTHONUNBUFFERED": "1"}
        environment = make_observed_environment(replace(self.request, samples=False), work, environment)
        environment |= {
            OBSERVE: STEPS,
            VARIANTS: str((work / REQUEST).resolve()),
        }
        threads = compile_threads(count_usable_cores(), self.gpus, plan.beside)
        if threads:
            environment = {COMPILE_THREADS: str(threads), **environment}
        if gpu:
            environment[VISIBLE_GPUS] = gpu
        if plan.only_compiles:
            environment.pop(TURN, None)
        return environment | list_variables(plan.candidates if not plan.alternates else ())


def list_variables(candidates: Sequence[TrialCandidate]) -> dict[str, str]:
    """The environment variables that variants set."""
    settings = (setting for one in candidates for setting in one.settings if setting.kind in (ENVIRONMENT, PINS))
    return {setting.setting: str(parse_value(setting.value)) for setting in settings}


def list_switches(candidate: TrialCandidate) -> tuple[VariantSwitch, ...]:
    """The settings of a variant as its process takes them."""
    return tuple(VariantSwitch(one.kind, one.setting, parse_value(one.value)) for one in candidate.settings)


def request_of(plan: TrialPlan) -> VariantsRequest:
    """Returns the request that tells the processes of the program what to try."""
    return VariantsRequest(
        variants=tuple(ProgramVariant(one.slug, list_switches(one), one.slug == PLACEBO) for one in plan.candidates),
        alternates=plan.alternates,
        timed_s=plan.timed_s,
        least=plan.least,
        checks=plan.alternates and not plan.only_compiles,
        losses=plan.losses,
        only_compiles=plan.only_compiles,
        times_uncompiled=plan.purpose == TIMED,
    )


DOING = {
    **{SCREEN: "ranking", PROVE: "proving", COMBINE: "combining", CONFIRM: "confirming"},
    WARMING: "compiling ahead",
    TIMED: "timing",
}
"""What processes of each purpose do, in words."""


def _describe_plans(plans: Sequence[TrialPlan]) -> str:
    what = DOING[plans[0].purpose]
    names = list(dict.fromkeys(slug for plan in plans for slug in plan.slugs if slug != PLACEBO))
    shown = names[0] if len(names) == 1 else "the original" if not names else plural(len(names), "variant")
    numbers = [plan.name.partition("-")[0] for plan in plans]
    if len(plans) == 1:
        return f"{numbers[0]}, {what} {shown}"
    gpus = len({plan.lane for plan in plans})
    where = f" on {gpus} GPUs" if gpus > 1 else ""
    together = f" in {len(plans)} processes" if len(plans) > gpus else ""
    return f"{numbers[0]} to {numbers[-1]}, {what} {shown}{together}{where}"


# Reads what the processes of one trial measured.


def read_trial(
    plan: TrialPlan, folder: Path, ended: ProcessResult, time_s: float, stalled: str = "", *, late: bool = False
) -> Trial:
    """Reads what one process measured, or the slowest rank of several.

    Args:
        plan: what was asked.
        folder: the folder in which the processes wrote.
        ended: the end of the program.
        time_s: how long it ran.
        stalled: what a variant was doing when it was given up; empty if none was.
        late: whether the program was ended because the time of the search was over, so that no variant caused this.
    """
    tried = read_trial_results(folder) or read_trial_results(folder / UNCOMPILED)
    leading = max(tried, key=_compute_median_step_s, default=None)
    apart = describe_disagreement(tried) if ended.ok and not stalled else ""
    if apart:
        failure = Failure(STAGE, RANKS, f"the ranks do not agree: {apart}")
        return Trial(plan.name, plan.purpose, plan.alternates, plan.slugs, time_s=time_s, failure=failure)
    failures = {} if late else _list_failures(plan, folder, ended, stalled, tried)
    variants = tuple(
        _make_variant(number, slug, plan, leading, tried, failures.get(slug, ""))
        for number, slug in enumerate([ORIGINAL, *plan.slugs] if plan.alternates else plan.slugs)
    )
    return Trial(
        name=plan.name,
        purpose=plan.purpose,
        alternates=plan.alternates,
        slugs=plan.slugs,
        variants=tuple(one for one in variants if one.times_s or one.failure or one.checks or plan.only_compiles),
        digests=leading.digests if leading else (),
        time_s=time_s,
        device=leading.device if leading else "",
        source=leading.source if leading else "",
        failure=_find_failure(plan, ended, tried, leading, late=late),
        cold=plan.cold,
        load=leading.load if leading else None,
        late=late,
        notes=tuple(dict.fromkeys(note for one in tried for note in one.notes)),
        kind_sizes=leading.kind_sizes if leading else (),
    )


def _compute_median_step_s(found: TriedVariants) -> float:
    times = [sample.time_s for sample in found.samples]
    return statistics.median(times) if times else 0.0


def _list_failures(
    plan: TrialPlan, folder: Path, ended: ProcessResult, stalled: str, tried: Sequence[TriedVariants]
) -> dict[str, str]:
    """Returns the reasons why variants failed that ended their process."""
    if stalled:
        slug, _, what = stalled.partition(" ")
        return {slug: GIVEN_UP.format(what=what)}
    if ended.ok:
        return {}
    culprits = [find_culprit(line) for line in read_journals(folder).values()]
    said = find_last_error(ended.tail()) or f"the program {ended.outcome}"
    found = {slug: said for slug in culprits if slug in plan.slugs}
    if not found and not plan.alternates and not any(one.samples for one in tried):
        found = dict.fromkeys(plan.slugs, said)
    return found


def _find_failure(
    plan: TrialPlan,
    ended: ProcessResult,
    tried: Sequence[TriedVariants],
    leading: TriedVariants | None,
    *,
    late: bool,
) -> Failure | None:
    if late:
        return Failure(STAGE, ended.kind, LATE.format(time_s=ended.time_s), f"read {ended.log}", ended.tail())
    if leading is not None and (leading.samples or (plan.only_compiles and leading.state == DONE)):
        return None
    error = next((one.error for one in tried if one.error), "")
    if not error and not ended.ok:
        said = find_last_error(ended.tail())
        error = f"the program {ended.outcome}{f': {said}' if said else ''}"
    unsaid = NOT_COMPILED if plan.only_compiles else NOT_TIMED
    return Failure(STAGE, ended.kind, error or unsaid, f"read {ended.log}", ended.tail())


def _make_variant(
    number: int,
    slug: str,
    plan: TrialPlan,
    leading: TriedVariants | None,
    tried: Sequence[TriedVariants],
    failure: str,
) -> TrialVariant:
    """Makes one variant: the times of the leading process, and failures that any process reports."""
    numbers = {number} if plan.alternates else {0, 1}
    samples = [one for one in leading.samples if one.variant in numbers] if leading else []
    kinds = tuple(one.kind for one in samples)
    states = [state for one in tried for state in one.variants if state.variant in numbers]
    checks = [check for one in tried for check in one.checks if check.variant in numbers]
    failed = failure or next((state.failure for state in states if state.failure), "")
    return TrialVariant(
        slug=slug,
        times_s=() if failed else tuple(one.time_s for one in samples),
        places=() if failed else tuple(one.place for one in samples),
        kinds=() if failed else kinds[:1] if len(set(kinds)) == 1 else kinds,
        compile_time_s=max((state.compile_s for state in states), default=0.0),
        peak_memory_bytes=_find_largest(states),
        refused=tuple(dict.fromkeys(said for state in states for said in state.refused)),
        failure=failed,
        checks=tuple(map(_check, checks)),
    )


def _find_largest(states: Sequence[VariantState]) -> int | None:
    return max((state.peak_memory_bytes for state in states if state.peak_memory_bytes is not None), default=None)


def _check(one: CheckedCallable) -> VariantCheck:
    return VariantCheck(
        one.graph, one.outputs, one.gradients, one.worst, one.own, one.reason, one.where, one.is_compared
    )


TOGETHER = "so the processes do not change between variants together"


def describe_disagreement(tried: Sequence[TriedVariants]) -> str:
    """Says why the ranks of a program did not change their variants together; empty if nothing shows this.

    The number of collectives that a rank has begun shows how far it has run. The numbers cannot be compared if ranks
    begin different numbers of collectives in the same steps, as pipelines do.
    """
    if not tried:
        return ""
    ranked = [one for one in tried if one.rank is not None and one.ranks > 1]
    distributed = [one for one in tried if one.collectives]
    if len(ranked) < 2 and len(distributed) > 1:
        return f"{len(distributed)} processes exchange data and have no LOCAL_RANK and LOCAL_WORLD_SIZE, {TOGETHER}"
    if not ranked:
        return ""
    first = ranked[0]
    if first.world > first.ranks:
        return f"{first.world - first.ranks} of {first.world} ranks run on other machines, {TOGETHER}"
    if len(ranked) < first.ranks:
        return f"only {len(ranked)} of {first.ranks} ranks ran steps with compiled graphs, {TOGETHER}"
    return next(filter(None, (_difference(first, one) for one in ranked[1:])), "")


def _difference(first: TriedVariants, other: TriedVariants) -> str:
    names = f"ranks {first.rank} and {other.rank}"
    if first.source and other.source and first.source != other.source:
        return f"the steps of {names} end in different ways: {first.source} and {other.source}"
    if None not in (first.begin, other.begin) and first.begin != other.begin:
        return f"{names} began to change variants at different steps, {first.begin} and {other.begin}"
    ours, theirs = dict(first.collectives), dict(other.collectives)
    apart = [theirs[place] - ours[place] for place in ours if place in theirs]
    if len(apart) > 1 and apart[0] and set(apart) == {apart[0]}:
        return f"{names} were {abs(apart[0])} collectives apart when they changed their variants"
    return ""


POLL_S = 0.1
"""Seconds between two looks at the processes that run."""


class TrialRounds:
    """Runs the rounds of a search.

    Args:
        trials: starts and reads the processes.
        gpus: the GPUs, as ``CUDA_VISIBLE_DEVICES`` names them; a single empty name leaves the choice to the program.
        progress: is told of lost devices.
    """

    def __init__(self, trials: ProgramTrials, gpus: Sequence[str], progress: Progress) -> None:
        self._trials, self._gpus, self._progress = trials, list(gpus), progress
        self._repeated: dict[str, str] = {}  # by the name of the trial, the GPU on which it failed

    def run(self, plans: Sequence[TrialPlan], left: str = "") -> list[Trial]:
        """Runs the trials of one round in their order, or takes those that an earlier command has run.

        Args:
            plans: the trials.
            left: how much time is left, in words; empty if nothing limits it.

        Raises:
            InductorBenchError: the program cannot be started, or the folder cannot be written.
            KeyboardInterrupt: the user interrupted it; all processes have ended.
        """
        found = {plan.name: known for plan in plans if (known := self._trials.find_finished(plan)) is not None}
        waiting = [plan for plan in plans if plan.name not in found]
        if waiting:
            self._trials.report_begin(waiting, left)
            compiling = any(plan.only_compiles for plan in waiting)  # its processes share this one's turn
            with nullcontext() if self._trials.takes_turns and not compiling else DeviceTurn():
                self._run_all(waiting, found)
        return [found[plan.name] for plan in plans]

    def _run_all(self, waiting: list[TrialPlan], found: dict[str, Trial]) -> None:
        running: dict[str, StartedTrial] = {}
        try:
            while waiting or running:
                for plan in list(waiting):
                    gpu = self._gpus[plan.lane % len(self._gpus)]
                    if plan.only_compiles or not any(one.gpu == gpu for one in running.values()):
                        waiting.remove(plan)
                        running[plan.name] = self._trials.start(plan, gpu)
                for name, started in list(running.items()):
                    if not started.has_ended(POLL_S / len(running)):
                        continue
                    trial = found[name] = self._trials.read(started)
                    del running[name]
                    if not started.plan.only_compiles and self._is_repeated(trial, started.gpu):
                        waiting.append(started.plan)
        finally:
            with ExitStack() as ends:  # ends all of them, also if ending one is interrupted
                for started in running.values():
                    ends.callback(started.end)

    def _is_repeated(self, trial: Trial, gpu: str) -> bool:
        """Whether a trial runs once more because its GPU was lost. The search then goes on without that GPU."""
        said = find_gpu_error(trial)
        first = self._repeated.pop(trial.name, None)
        if first is not None and said:  # the program is the cause, and not the device
            self._gpus.append(first)
        if first is not None or not said or len(self._gpus) < 2:
            return False
        self._gpus.remove(gpu)
        self._repeated[trial.name] = gpu
        self._progress.note(f"{trial.name}: GPU {gpu} failed, and the search goes on without it: {said}")
        return True


def find_gpu_error(trial: Trial) -> str:
    """Returns what a trial says about a GPU that cannot be used; empty if it says nothing like that."""
    failure = trial.failure
    texts = [*(one.failure for one in trial.variants), *([failure.message, failure.log_tail] if failure else [])]
    lines = (line.strip() for text in texts for line in text.splitlines())
    return next(filter(is_gpu_lost, lines), "")

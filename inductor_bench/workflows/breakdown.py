"""Runs a breakdown, from a target to a RUN folder with its record; the result of each step is saved at once."""

from __future__ import annotations

import datetime
import shlex
import sys
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ..analysis.analyse import STAGE as ANALYSIS
from ..analysis.analyse import analyse, read_step_ahead, trace_environment
from ..analysis.evidence_files import EvidenceFiles
from ..analysis.findings.finding import repeat_command
from ..analysis.findings.precision_findings import list_products_to_time
from ..analysis.program_step import describe_program, read_profiles
from ..analysis.step_costs import is_uncompiled
from ..errors import InductorBenchError
from ..interruption import uninterrupted
from ..launch.marks import end_marked, find_tool_mark
from ..launch.worker import CORES_OF_THE_PROGRAM, WorkerPool, count_cores_of_this_process
from ..records.base import VERIFY, Failure
from ..records.evidence import CountedCall, Evidence
from ..records.request import BreakdownRequest
from ..records.request_fields import COMPILED_HERE, PROGRAMS, as_recorded
from ..records.run import Capture, Environment, Run
from ..records.traced import OperatorCall
from ..report.run.run_document import load_libraries, write_report
from ..source.labels import ModuleLabel
from ..store.codec import FORMAT
from ..store.files import hash_file, own_folder, refuse_link, write_text
from ..store.folder import RunFolder, make_run_folder
from ..store.lock import DeviceTurn, hold_lock
from ..store.redaction import Redaction
from ..store.run_files import load_evidence, save_evidence
from ..version import __version__
from .kernels.retuning import (
    CAPTURE,
    PROFILE,
    UNFINISHED_RUN,
    autotune_run,
    describe_interruption,
    prove_retunes,
    verify_retunes,
)
from .kernels.retuning import STAGE as AUTOTUNE
from .modules.compile_environment import capture_environment, keep_for_later_runs, share_compile_cache
from .modules.extraction import RunInMaking
from .modules.keep_evidence import KeptTraces, add_profile, can_be_read_early, draw_step, keep_captured
from .modules.kernel_files import extract_run
from .modules.module_measurements import ModuleMeasurement, ModuleMeasurements, ProfiledModule, SideWork
from .modules.observed_files import describe_phase
from .modules.program_run import (
    CapturedProgram,
    FoundModule,
    RunListeners,
    capture_program,
    find_python,
    labelled,
    name_python,
    read_program,
)
from .modules.targets import (
    find_listed_modules,
    find_program_file,
    find_secrets,
    is_command,
    make_folder_title,
    make_title,
    resolve_target,
)
from .progress import Progress, StagePhases, StageTimes
from .single_run import time_eager

# The end of a breakdown: its record, its folder and its reports.


@dataclass(frozen=True)
class BreakdownOutcome:
    """A finished breakdown: its record, its folder, and the written reports."""

    run: Run
    folder: Path
    written: tuple[Path, ...] = ()


class StoppedBreakdown(KeyboardInterrupt):
    """The user stopped a breakdown; ``outcome`` holds what is known."""

    def __init__(self, outcome: BreakdownOutcome) -> None:
        super().__init__(f"interrupted; what was measured until then is in {outcome.folder}")
        self.outcome = outcome


def report_run(run: Run, folder: RunFolder, *, plots: bool) -> BreakdownOutcome:
    """Writes the reports. The record was saved before, so that a full disk only prevents the reports."""
    try:
        return BreakdownOutcome(run, folder.path, tuple(write_report(run, folder.path, plots=plots)))
    except InductorBenchError as error:
        failure = Failure("report", "write", error.message, error.hint)
        return BreakdownOutcome(replace(run, failures=(*run.failures, failure)), folder.path)


# Analyses a RUN again, from what it holds, and tunes what is not tuned yet.


def break_down_again(
    folder: RunFolder, request: BreakdownRequest, redaction: Redaction, progress: Progress
) -> BreakdownOutcome:
    """Breaks down an earlier RUN. It runs a factory or a named model again to prove its retunes, and no other program.

    Raises:
        InductorBenchError: the record cannot be read or written.
        KeyboardInterrupt: the user stopped it; the RUN holds what was tuned before.
    """

    def keep(run: Run) -> None:
        folder.save(redaction.run(run))

    refuse_link(folder.path)
    with hold_lock(folder.path, find_tool_mark()) as lock:
        end_marked(lock.left)
        progress.stage(f"analysing {folder.path} again")
        run = redaction.run(analyse_again(folder))
        folder.save(run)
        try:
            run = autotune_run(run, folder, request, progress, keep)
            run = prove_retunes(run, folder, request, progress, keep)
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(f"interrupted; what was retuned until then is in {folder.path}") from stop
        return report_run(redaction.run(run), folder, plots=request.plots)


def analyse_again(folder: RunFolder) -> Run:
    """Makes the record of a RUN again from its evidence, with this version of the analysis.

    Raises:
        InductorBenchError: the record cannot be read.
    """
    run, files = folder.load(), EvidenceFiles(folder)
    subject = "what was observed"
    try:
        evidence = load_evidence(folder, run)
        run = analyse(run, evidence, files)
        subject = "pictures of the step"
        step = describe_program(evidence, files)
        if step is not None:
            draw_step(step, folder)
    except InductorBenchError as error:
        failure = Failure(ANALYSIS, "invalid", error.message, error.hint, subject=subject)
        kept = (known for known in run.failures if known.stage != ANALYSIS or known.subject != subject)
        return replace(run, failures=(*kept, failure))
    return run


ENDS, GONE = "the program ends; reading what was observed", "waiting for the end of the program's process"
"""The stages between the end of the program's Python and the end of its process."""

GOES_ON, STOPS = "the steps are measured; the program goes on", "the steps are measured; the program is ended"
"""The stage from the answer to the program's end, without and with ``--stop``."""

Listed = tuple[tuple[FoundModule, ...], tuple[str, ...]]
"""Modules that a target names, and the paths of missing modules."""

Answer = Callable[[Run, bool], None]
"""Takes a record that holds the program's step, and nothing of its modules yet; and whether the program's Python has
ended."""

CALLED = "inductor_bench.breakdown(…)"
"""The command of a run that was started from Python."""


def run_breakdown(request: BreakdownRequest, progress: Progress, answer: Answer | None = None) -> BreakdownOutcome:
    """Breaks down a target of any kind.

    Args:
        request: what is broken down, and how.
        progress: is told what happens.
        answer: is called once the program's steps are measured, and before its graphs are.

    Raises:
        UsageError: the target is missing, or the options do not fit it.
        InductorBenchError: the RUN folder cannot be written.
        StoppedBreakdown: the user stopped the breakdown; the RUN folder holds what was measured before.
    """
    target, redaction = resolve_target(request), find_secrets(request)
    if target.kind == "run":
        return break_down_again(RunFolder(target.paths[0]), request, redaction, progress)
    request = target.resolved(request)
    listed = None if target.kind in PROGRAMS else find_listed_modules(target)
    stages, make = StageTimes(progress), partial(make_run_folder, mark=find_tool_mark(), tell=progress.note)
    with make(request.output, make_folder_title(request), force=request.force) as (folder, left):
        end_marked(left)
        breakdown = Breakdown(request, listed, folder, redaction, stages, answer)
        try:
            try:
                breakdown.measure()
            finally:
                breakdown.conclude()
            stages.stage("writing the report")
            outcome = report_run(breakdown.run, folder, plots=request.plots)
            keep_stage_times(stages, folder, redaction)
            return outcome
        except KeyboardInterrupt as stop:
            outcome = breakdown.record_interruption()
            keep_stage_times(stages, folder, redaction)
            raise StoppedBreakdown(outcome) from stop


def keep_stage_times(stages: StageTimes, folder: RunFolder, redaction: Redaction) -> None:
    """Writes into the RUN how long each stage of the breakdown took; a full disk costs only this."""
    with suppress(InductorBenchError):
        write_text(folder.logs / "stages.log", redaction.text(stages.close()))


class Breakdown:
    """The state of one breakdown in progress. ``run`` can be saved at any time."""

    def __init__(
        self,
        request: BreakdownRequest,
        listed: Listed | None,
        folder: RunFolder,
        redaction: Redaction,
        progress: StageTimes,
        answer: Answer | None = None,
        command: str = "",
    ) -> None:
        self._answer = answer
        self._request = request  # unredacted, because the program needs the secrets
        self._listed = listed
        self._folder = folder
        self._progress = progress
        self._python = find_python(request)
        self._stage = CAPTURE
        self._environment: Mapping[str, str] = {}
        self._redaction = redaction
        shown = as_recorded(replace(request, arguments=redaction.words(request.arguments), python=name_python(request)))
        self._evidence = Evidence()
        self._begun: ModuleMeasurements | None = None
        self._is_answered = self._is_concluded = False
        self._failures_before: tuple[Failure, ...] = ()
        self._texts: Mapping[str, object] = {}  # what was kept of each module, by its slug
        self._kept_traces = KeptTraces()
        self._files = EvidenceFiles(folder)
        own_folder(folder.work)
        file = find_program_file(request)
        typed = shlex.join(["inductor-bench", *redaction.words(sys.argv[1:])]) if is_command() else CALLED
        self.run = Run(
            format=FORMAT,
            tool_version=__version__,
            run_id=uuid.uuid4().hex[:16],
            created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            command=command or typed,
            target=request.target,
            title=make_title(shown),
            request=shown,
            environment=Environment(),
            program_file=str(file or ""),
            program_sha256=hash_file(file) or "" if file else "",
        )
        self.save()

    def _observe(self, evidence: Evidence) -> None:
        """Takes and stores new evidence."""
        self._evidence = self._redaction.evidence(evidence)
        save_evidence(self._folder, self._evidence)

    def _analyse(self, *, with_step: bool = True, in_brief: bool = False) -> None:
        """Makes the record from the evidence so far. The step is added after all modules have been measured."""
        known = set(self.run.failures)
        evidence = self._evidence if with_step else self._evidence.without_steps()
        self.run = analyse(self.run, evidence, self._files, in_brief=in_brief)
        for failure in self.run.failures:
            if failure not in known:
                self._progress.note(f"{failure.subject or failure.stage}: {failure.message}")

    def save(self) -> None:
        """Saves the record so far, marked as incomplete."""
        self.run = self._redaction.run(self.run)
        rerun = repeat_command(self.run) if is_command() else ""
        unfinished = Failure(self._stage, "unfinished", UNFINISHED_RUN, rerun)
        self._folder.save(replace(self.run, failures=(*self.run.failures, unfinished)))

    def conclude(self) -> None:
        """Saves the record at the end."""
        self.run = self._redaction.run(self.run)
        self._folder.save(self.run)

    def record_interruption(self) -> BreakdownOutcome:
        """Adds what was observed since the last record, and the interruption. A second one leaves both out."""
        if self._stage in (CAPTURE, PROFILE):
            self._progress.stage("adding what was observed until now (Ctrl-C leaves it out)")
            with suppress(KeyboardInterrupt, OSError, InductorBenchError):
                self._keep_captured_so_far()
                self._analyse()
                self._draw_step()
        with uninterrupted():
            graphs, retune = len(self._evidence.modules), self._request.retune
            failure = describe_interruption(self.run, self._stage, self._folder, retune, graphs)
            self.run = replace(self.run, failures=(*self.run.failures, failure))
            self.conclude()
        if self.run.program is None and not self.run.modules:
            return BreakdownOutcome(self.run, self._folder.path)
        return report_run(self.run, self._folder, plots=False)

    def _keep_captured_so_far(self) -> None:
        """Reads what an ended program left behind, unless its steps were read before."""
        if self._stage == CAPTURE and self._listed is None and self.run.program is None:
            captured = read_program(
                self._folder.work, self._folder.logs / "program.log", self._environment, is_whole=False
            )
            if captured.steps:
                self.run = replace(self.run, capture=captured.capture)
                self._keep(captured, early=True)

    def measure(self) -> None:
        with share_compile_cache(self._request, self._python, self._folder.work, self._progress) as cache:
            environment = capture_environment(self._folder.work, dict(self._request.variables), cache)
            with self.pool(environment) as pool:
                if self._request.trace is None:
                    pool.get_ready(beside_program=self._listed is None)
                if count_cores_of_this_process() > CORES_OF_THE_PROGRAM:
                    load = partial(load_libraries, plots=self._request.plots)
                    threading.Thread(target=load, daemon=True).start()
                self.measure_with(pool)
            keep_for_later_runs(environment)
            self._time_eager(self._environment)
        self._autotune()

    def pool(self, environment: Mapping[str, str]) -> WorkerPool:
        """Returns the workers, in an environment of ``compile_environment.capture_environment``."""
        self._environment = {**environment, **self._redaction.variables}
        limit_s, on_line = self._request.timeout_s, self._progress.output
        return WorkerPool(self._python, self._folder.work, self._environment, limit_s, on_line)

    def measure_with(self, pool: WorkerPool) -> None:
        """Runs the program, and measures what it compiled."""
        captured = self.capture(pool)
        self._progress.stage("reading what was observed")
        self.run = replace(self.run, capture=captured.capture)
        self._fail(*captured.failures)
        self.save()
        if not captured.modules and not captured.steps:
            return
        self._stage = PROFILE
        if self._begun is None or not self._begun.are_of(captured):
            if self._begun is not None:  # the program's process did more after its end had been told
                self._begun.close(waits=True)
                self.run = replace(self.run, failures=(*self._failures_before, *captured.failures))
            self._is_concluded, self._begun = False, self._begin_modules(captured, pool)
        self._begun.allow_device_use()
        if not self._is_concluded:
            self._measure_modules(self._begun)

    def _begin_modules(self, captured: CapturedProgram, pool: WorkerPool) -> ModuleMeasurements:
        """Keeps what was observed, and begins to measure the modules."""
        self._keep(captured)
        if self._request.trace is None:
            pool.get_ready()
        if self._answer is not None and captured.modules and not self._is_answered:
            phases = StagePhases()
            with suppress(InductorBenchError):  # the graphs are measured in any case
                self._show_answer(phases, has_ended=True)
            self._progress.divide(phases.times_s)
        step = describe_program(self._evidence, self._files)
        times = step.leading.call_times if step is not None else {}
        calls = tuple(dict.fromkeys(call for of_module in times.values() for call in of_module))
        return ModuleMeasurements(captured, pool, self._folder, self._request, calls)

    def _measure_modules(self, begun: ModuleMeasurements) -> None:
        """Profiles each module. A module that fails next to others is tried again alone."""
        again = []
        with SideWork(begun.is_beside) as aside, closing(begun):
            aside.do(partial(read_step_ahead, self._evidence, self._files))
            for module, label, measure in begun:
                if not self._measure_module(begun, module, label, measure, aside, is_last=begun.at_once == 1):
                    again.append((module, label))
            for one in again:
                self._measure_module(begun, *one, partial(begun.profiling.profile, *one), aside, is_last=True)
            self._progress.stage("reading what was profiled")
        self._conclude(begun)
        self._is_concluded = True

    def _end_of_program(self, captured: CapturedProgram, pool: WorkerPool) -> None:
        """Does, while the program is torn down, what needs neither its exit code nor the device."""
        self._stage, self._failures_before = PROFILE, self.run.failures
        self._progress.stage(ENDS)
        with suppress(InductorBenchError):  # what cannot be read or written now is tried again when it is gone
            self._begun = self._begin_modules(captured, pool)
            if self._begun.is_beside and not self._begun.need_device():
                self._measure_modules(self._begun)
        self._progress.stage(GONE)

    def capture(self, pool: WorkerPool) -> CapturedProgram:
        """Runs the program, or finds the modules that a target names."""
        if self._listed is None:
            what = (self._request, self._folder, pool.environment, self._python, self._progress)
            looks = RunListeners(
                self._prepare_answer, partial(self._answer_early, pool=pool), partial(self._end_of_program, pool=pool)
            )
            with self._program_turn():
                return capture_program(*what, looks)
        modules, missing = self._listed
        failures = tuple(
            Failure("capture", "missing", f"{path} no longer exists", "run the program again", subject=path)
            for path in missing
        )
        return CapturedProgram(modules, Capture(), failures)

    def _prepare_answer(self, captured: CapturedProgram) -> None:
        """Reads for the answer what was compiled, before the steps are profiled, and then the profile."""
        if not can_be_read_early(captured.steps):
            return
        with suppress(InductorBenchError):  # what cannot be read or written now is tried again for the answer
            self._keep(captured, early=True)
            read_profiles(self._evidence, self._files)

    def _answer_early(self, captured: CapturedProgram, pool: WorkerPool) -> None:
        """Adds the program's step while the program goes on, and passes the record to ``answer``."""
        pool.get_ready()
        if not can_be_read_early(captured.steps):
            return
        phases = StagePhases()
        with suppress(InductorBenchError):  # what cannot be read or written now is tried again at the program's end
            self.run = replace(self.run, capture=captured.capture)
            self._keep(captured, early=True)
            phases.end("reading the answer's evidence")
            self._show_answer(phases, has_ended=False)
            if self._is_answered:
                self._progress.divide(describe_phase(captured.steps) | phases.times_s)
                self._progress.stage(STOPS if self._request.stop else GOES_ON)

    def _show_answer(self, phases: StagePhases, *, has_ended: bool) -> None:
        """Analyses and saves the steps, and passes the record to ``answer`` if it has a step."""
        self._analyse(in_brief=True)
        phases.end("analysing it")
        self.save()
        phases.end("saving it")
        if self.run.program is not None:
            if self._answer is not None:
                self._answer(self.run, has_ended)
            phases.end("showing it")
            self._is_answered = True

    def _keep(self, captured: CapturedProgram, *, early: bool = False) -> None:
        """Keeps in the RUN what the program's processes observed."""
        texts = {label.slug: (module.text, module.code) for module, label in labelled(captured.modules)}
        if any(texts.get(slug) != text for slug, text in self._texts.items()):
            self._files.forget()  # a name is another module's now
        self._texts = texts
        self._observe(keep_captured(captured, self._request, self._folder, self._kept_traces, early=early))

    def _program_turn(self) -> AbstractContextManager[object]:
        """Returns the lock to hold while the program runs: that of the device, which it may use at any time."""
        return nullcontext() if self._request.kind in COMPILED_HERE else DeviceTurn()

    def _measure_module(
        self,
        begun: ModuleMeasurements,
        module: FoundModule,
        label: ModuleLabel,
        measure: Callable[[], ModuleMeasurement],
        aside: SideWork,
        *,
        is_last: bool,
    ) -> bool:
        """Profiles one module. Returns ``False`` if that failed and is to be tried again."""
        if text := begun.profiling.describe(module, label):
            self._progress.stage(text)
        try:
            measured = measure()
        except InductorBenchError as error:
            aside.do(partial(self._fail_to_profile, label, error))
            return True
        self._progress.divide(measured.phases_s)
        if measured.has_failed and not is_last:
            return False
        aside.do(partial(self._keep_module, measured.keep, label))
        return True

    def _fail_to_profile(self, label: ModuleLabel, error: InductorBenchError) -> None:
        self._fail(Failure("profile", "invalid", error.message, error.hint, subject=label.label))

    def _keep_module(self, keep: Callable[[], ProfiledModule], label: ModuleLabel) -> None:
        """Saves the row of a profiled module without costs and peaks."""
        try:
            profiled = keep()
        except InductorBenchError as error:
            self._fail_to_profile(label, error)
            return
        if profiled.failure is not None:
            self._fail(profiled.failure)
        (seen,) = (one for one in self._evidence.modules if one.slug == label.slug)
        self._observe(self._evidence.with_module(add_profile(seen, profiled, self._folder)))
        self._analyse(with_step=False)
        self.save()

    def _conclude(self, begun: ModuleMeasurements) -> None:
        """Adds the facts from a worker with torch: environment, costs of calls, and peaks; and the program's step."""
        attributed, elsewhere = self._files.attributed_modules(self._evidence.modules), begun.is_elsewhere
        if elsewhere and not attributed:
            return
        calls = list(dict.fromkeys(call for module in attributed for call in module.operator_calls))
        self._progress.stage("counting FLOPs" if elsewhere else "counting FLOPs, looking up the device's peaks")
        phases = StagePhases()
        found = begun.survey(calls, peaks=bool(attributed) and not elsewhere)
        phases.end("all of it")
        self._fail(*([found.failure] if found.failure is not None else []))
        environment = trace_environment(attributed[0].trace) if elsewhere else found.environment
        self.run = replace(self.run, environment=environment, peaks=found.peaks, no_peaks=found.no_peaks)
        costs = tuple(map(CountedCall, calls, found.costs))
        self._observe(replace(self._evidence, costs=costs))
        self._analyse()
        phases.end("analysing")
        self._time_in_bfloat16(begun, {one.module.slug: one.operator_calls for one in attributed})
        phases.end("timing products in bfloat16")
        self._stage = "extract"
        self._draw_step()
        phases.end("drawing the step")
        self.save()
        self._progress.divide({**found.phases_s, **phases.times_s})
        if self._evidence.modules:
            self._write_kernels()

    def _time_in_bfloat16(self, begun: ModuleMeasurements, calls: Mapping[str, Sequence[OperatorCall]]) -> None:
        """Times the float32 products that may be faster in bfloat16. A record without their times advises nothing."""
        step = describe_program(self._evidence, self._files)
        timed = list_products_to_time(self.run, calls, step.leading.call_times if step is not None else {})
        if timed:
            found = begun.time_in_bfloat16(timed, max(module.threads or 1 for module in self.run.modules))
            self._fail(*([found.failure] if found.failure is not None else []))
            self._observe(self._evidence.with_costs(map(CountedCall, timed, found.costs)))
            self._analyse()

    def _draw_step(self) -> None:
        try:
            step = describe_program(self._evidence, self._files)
            if step is not None:
                draw_step(step, self._folder)
        except InductorBenchError as error:
            self._fail(Failure("program", "write", error.message, error.hint))

    def _write_kernels(self) -> None:
        """Writes ``RUN/kernels``, and names each kernel's file in the record."""
        self._progress.stage("writing the kernels as files")
        making = RunInMaking(self.run, self._evidence, self._files)
        try:
            extracted = extract_run(self._folder, self._request.values, making)
        except InductorBenchError as error:
            self._fail(Failure("extract", "invalid", error.message, error.hint))
            return
        self._fail(*extracted.failures)
        self._observe(replace(self._evidence, kernel_files=extracted.places))
        self.run = extracted.named_in(self.run)

    def _time_eager(self, environment: Mapping[str, str]) -> None:
        if not self._request.eager:
            return
        if is_uncompiled(self.run):
            self._progress.note("nothing is compiled, so the program is not run again without compilation")
            return
        self._stage = "eager"
        what = (self.run.program, self._request, self._folder, environment, self._python, self._progress)
        with self._program_turn():
            eager, failures = time_eager(*what)
        self._observe(replace(self._evidence, eager=eager))
        self._analyse()
        self._fail(*failures)
        self.save()

    def _autotune(self) -> None:
        if self._request.retune is None:
            return
        self._stage = AUTOTUNE
        self.run = autotune_run(self.run, self._folder, self._request, self._progress, self._take)
        if self._request.retune.verify:
            self._verify()

    def _verify(self) -> None:
        self._stage = VERIFY
        with self._program_turn():
            what = (self.run, self._request, self._folder, self._python)
            self._fail(*verify_retunes(*what, self._progress, self._take))
        self.save()

    def _take(self, run: Run) -> None:
        self.run = run
        self.save()

    def _fail(self, *failures: Failure) -> None:
        for failure in map(self._redaction.failure, failures):
            self._progress.note(f"{failure.subject or failure.stage}: {failure.message}")
            self.run = replace(self.run, failures=(*self.run.failures, failure))

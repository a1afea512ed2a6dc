"""Measures a program's modules, each in its turn at the device: profiles, launch values, the machine's survey."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from ... import units
from ...devices.protocol import CPU
from ...devices.table import find_common_device, find_device
from ...errors import InductorBenchError
from ...launch.forking_worker import NO_VARIABLES
from ...launch.process import WAKE_S
from ...launch.worker import (
    CORES_OF_THE_PROGRAM,
    WorkerAnswer,
    WorkerPool,
    count_cores_of_this_process,
    count_timing_workers,
)
from ...messages.job_requests import MachineFacts, ProfileModule, SurveyMachine, WantedValues
from ...messages.observed import ModuleObservation
from ...records.base import Failure
from ...records.code import Details, Launch, ModuleSource, Reference
from ...records.request import BreakdownRequest
from ...records.run import Environment
from ...records.traced import OperatorCall, OperatorCost
from ...source.generated_text import launch_key
from ...source.labels import ModuleLabel
from ...source.module_reader import read_module
from ...store.codec import decode
from ...store.files import copy_file, write_text
from ...store.folder import RunFolder
from ...store.lock import LOADS_BESIDE, TURN, DeviceTurn
from ...store.run_files import save_module_details
from ...trace.stored_traces import store_trace
from .program_run import CapturedProgram, FoundModule, labelled


@dataclass(frozen=True)
class Survey(MachineFacts):
    """The answer of the survey worker, with the phases of its process. After a failure only these are known."""

    environment: Environment = field(default_factory=Environment)
    failure: Failure | None = None


def take_survey(
    pool: WorkerPool,
    calls: Sequence[OperatorCall],
    *,
    device: str,
    peaks: str,
    log: Path,
    variables: Mapping[str, str] = NO_VARIABLES,
) -> Survey:
    """Runs the survey worker, with further environment variables. ``peaks`` is as in the job."""
    return _survey_module(pool, SurveyMachine(tuple(calls), device, peaks), log, variables)


def count_costs(pool: WorkerPool, calls: Sequence[OperatorCall], *, log: Path) -> Survey:
    """Runs the survey worker only for the costs, which needs no device."""
    return _survey_module(pool, SurveyMachine(tuple(calls), describes=False), log)


def _survey_module(
    pool: WorkerPool, job: SurveyMachine, log: Path, variables: Mapping[str, str] = NO_VARIABLES
) -> Survey:
    answer = pool.call(job, name=log.stem, log=log, variables=variables)
    if answer.result is None:
        return Survey(failure=answer.failure)
    found, phases_s = answer.result, answer.phases_s(answer.result.phases_s)
    return Survey(found.environment, found.costs, found.peaks, found.no_peaks, phases_s, answer.failure)


# Recorded values of launches: files that a worker writes, and that later lie beside the kernels' standalone files.


SUFFIX = ".safetensors"


@dataclass(frozen=True)
class RecordedValues:
    """A launch with its recorded values, the reference of its outputs, and the file of the values.

    ``movable`` says whether the file may be moved from its place.
    """

    launch: Launch
    reference: Reference
    path: Path
    movable: bool

    def place(self, target: Path) -> None:
        """Puts the file where a kernel's standalone file expects it.

        Raises:
            InductorBenchError: the file is missing or a link, or the disk is full.
        """
        if self.path.is_symlink() or not self.path.is_file():
            raise InductorBenchError(f"its recorded values are gone: {self.path}")
        if self.movable:
            with contextlib.suppress(OSError):
                os.replace(self.path, target)
                return
        copy_file(self.path, target)

    def launch_from(self, file: str) -> Launch:
        """The launch with its values in a file of this name."""
        storages = tuple(
            replace(storage, values=replace(storage.values, file=file)) if storage.values.file else storage
            for storage in self.launch.storages
        )
        return replace(self.launch, storages=storages)


@dataclass(frozen=True)
class ModuleValues:
    """The launches of a module whose values were recorded.

    ``launches`` and their ``references`` are keyed by :func:`launch_key`. The files lie in ``folder``, under the names
    in the launches, or under the names in ``names`` for kernels whose standalone files they lie beside.
    """

    launches: Mapping[Hashable, Launch]
    references: Mapping[Hashable, Reference]
    folder: Path
    names: Mapping[str, str] | None = None

    def find(self, kernel: str, launch: Launch) -> RecordedValues | None:
        """Returns the recorded values of a launch of the kernel."""
        key = launch_key(launch)
        found = self.launches.get(key)
        if found is None:
            return None
        file = self.names.get(kernel) if self.names is not None else _name_file(found)
        if file is None:
            return None
        reference = self.references.get(key, Reference())
        return RecordedValues(found, reference, self.folder / file, movable=self.names is None)


def read_values(details: Details, folder: Path, names: Mapping[str, str] | None = None) -> ModuleValues:
    """Returns the recorded values of a module: its ``recorded`` launches and ``recorded_references``."""
    recorded = details.recorded or ()
    keys = [launch_key(launch) for launch in recorded]
    return ModuleValues(
        dict(zip(keys, recorded, strict=True)),
        dict(zip(keys, details.recorded_references, strict=False)),
        folder,
        names,
    )


def make_values_folder(folder: RunFolder) -> Path:
    """The folder in which the workers of an unfinished RUN write recorded values, one folder for each module."""
    return folder.work / "values"


def make_values_failure(details: Details, subject: str) -> Failure | None:
    """Makes the failure that stopped the recording of values, if there was one."""
    error = details.values_error
    return Failure("values", "write", error.message, error.hint, subject=subject) if error else None


def note_drawn_values(launch: Launch) -> str:
    """Returns a note on the share of a launch's values that is drawn instead of recorded; empty if all are recorded."""
    read = [storage for storage in launch.storages if storage.values.kind != "zeros"]
    drawn = sum(storage.size_bytes for storage in read if storage.values.kind != "recorded")
    whole = sum(storage.size_bytes for storage in read)
    return f"{units.size(drawn)} of the {units.size(whole)} that it reads are random" if drawn else ""


def _name_file(launch: Launch) -> str | None:
    return next((storage.values.file for storage in launch.storages if storage.values.file), None)


# Profiles each module: with its own harness in a fresh process, in the live program, or from an existing trace.


DEFAULT_REPEAT = 20
EVENTS_WANTED = 4000
"""The number of kernel calls that a profile should hold. With twice as many, each reader of the profile took seconds
longer."""

REPEAT_RANGE = (5, 50)


@dataclass(frozen=True)
class ProfiledModule:
    """What a profile of a module left in the RUN. ``trace`` and ``log`` are paths."""

    method: str
    reason: str
    trace: Path | None
    log: Path | None
    failure: Failure | None = None


@dataclass(frozen=True)
class ModuleMeasurement:
    """What a process measured of a module. ``keep`` saves it in the RUN; it may be called in another thread."""

    keep: Callable[[], ProfiledModule]
    phases_s: Mapping[str, float] = field(default_factory=dict)  # seconds of each phase of the process
    has_failed: bool = False


class Profiling:
    """Profiles the modules of one run. They share a device: one at a time uses it.

    Args:
        pool: the workers.
        folder: the RUN.
        repeat: the number of profiled iterations; ``None`` to choose it.
        trace: a trace that was recorded elsewhere.
        values_limit_bytes: the limit of the recorded values; ``None`` to record none.
        variables: further environment variables of the processes that run modules.
    """

    def __init__(
        self,
        pool: WorkerPool,
        folder: RunFolder,
        repeat: int | None,
        trace: Path | None,
        values_limit_bytes: int | None = None,
        variables: Mapping[str, str] = NO_VARIABLES,
    ) -> None:
        self._pool = pool
        self._folder = folder
        self._repeat = repeat
        self._trace = trace
        self._values_limit_bytes = values_limit_bytes
        self._variables = variables
        if values_limit_bytes is not None:
            make_values_folder(folder).mkdir(exist_ok=True)

    def describe(self, module: FoundModule, label: ModuleLabel) -> str:
        """Describes how a module is profiled; empty if that takes no time."""
        is_measured = self._trace is not None or module.live is not None
        return "" if is_measured else f"profiling {label.label} with -p"

    def profile(self, module: FoundModule, label: ModuleLabel) -> ModuleMeasurement:
        """Profiles one module. Several threads may profile one each.

        Raises:
            InductorBenchError: the module cannot be read or cannot be run.
        """
        source = read_module(module.text)
        if self._trace is not None:
            return ModuleMeasurement(partial(self._from_trace, label, self._trace))
        live = module.live
        if live is not None:
            return ModuleMeasurement(partial(self._from_live, label, live))
        return self._from_harness(module, label, source)

    def _from_trace(self, label: ModuleLabel, trace: Path) -> ProfiledModule:
        path = self._trace_path(label)
        truncated = store_trace(trace, path)
        reason = f"recorded elsewhere: {trace.name}"
        if not truncated:
            return ProfiledModule("trace", reason, path, None)
        self._keep_details(label, Details(truncated=True))
        failure = Failure(
            "trace",
            "truncated",
            f"the trace {trace.name} is cut short; only complete events are counted",
            "record it again, with fewer iterations or on a disk with more space",
            subject=label.label,
        )
        return ProfiledModule("trace", reason, path, None, failure)

    def _from_live(self, label: ModuleLabel, seen: ModuleObservation) -> ProfiledModule:
        stem, found = Path(seen.stem), decode(Details, seen.live)
        values = stem.with_suffix(".values")
        if found.recorded and values.is_dir():  # else it was moved before, when the program was about to end
            values.replace(make_values_folder(self._folder) / label.slug)
        details = self._keep_details(label, replace(found, switches=seen.switches))
        failure = make_values_failure(details, label.label)
        stored = self._store_trace(stem.with_suffix(".trace.json"), label, details)
        return ProfiledModule("live", seen.live_reason, stored, None, failure)

    def _from_harness(self, module: FoundModule, label: ModuleLabel, source: ModuleSource) -> ModuleMeasurement:
        if not source.has_harness:
            raise InductorBenchError(
                "the module has no benchmark harness, so it cannot run by itself",
                "break the program itself down (inductor-bench breakdown script.py): its modules have a harness",
            )
        kept = self._folder.modules / f"{label.slug}.py"
        text, trace = self._pool.folder / f"{label.slug}.p.txt", self._pool.folder / f"{label.slug}.trace.json"
        # A structured trace holds the text of each module, whose file may be missing.
        file = module.path if module.path.is_file() else kept
        job = ProfileModule(
            module=str(file.resolve()),
            label=label.label,
            device=source.device,
            repeat=self._repeat or _repeat_for(source),
            trace=str(trace),
            text=str(text),
            threads=module.threads or source.threads,
            switches=module.switches,
            vector_lanes=source.vector_lanes,
            compiled=bool(module.observations),
            configs=module.configs,
            values=self._wanted_values(label),
        )
        log = self._folder.logs / f"{label.slug}.log"
        answer = self._pool.call(job, name=label.slug, log=log, variables=self._variables)
        return ModuleMeasurement(
            partial(self._keep_profile, module, label, answer, trace, text),
            answer.phases_s(answer.result.phases_s if answer.result else {}),
            answer.failure is not None,
        )

    def _keep_profile(
        self, module: FoundModule, label: ModuleLabel, answer: WorkerAnswer[Details], trace: Path, text: Path
    ) -> ProfiledModule:
        details, stored = Details(), None
        if answer.result:
            details = self._keep_details(label, replace(answer.result, switches=module.switches or {}))
            stored = self._store_trace(trace, label, details) if trace.is_file() else None
        return ProfiledModule(
            "-p",
            self._harness_note(module, details),
            stored,
            self._keep_text(text, label),
            answer.failure or make_values_failure(details, label.label),
        )

    def _wanted_values(self, label: ModuleLabel) -> WantedValues | None:
        if self._values_limit_bytes is None:
            return None
        folder = make_values_folder(self._folder) / label.slug
        return WantedValues(str(folder.resolve()), self._values_limit_bytes)

    def _harness_note(self, module: FoundModule, details: Details) -> str:
        if module.live_error:
            return (
                f"a profile in the program's process was needed ({module.live_reason}) but failed: {module.live_error}"
            )
        if details.marked:
            return "compiled without marks for the profiler, so C++ kernels are timed from Python (about 1 µs more)"
        return ""

    def _store_trace(self, trace: Path, label: ModuleLabel, details: Details) -> Path:
        path = self._trace_path(label)
        store_trace(trace, path, iterations=details.iterations)
        return path

    def _keep_details(self, label: ModuleLabel, details: Details) -> Details:
        save_module_details(self._folder, label.slug, details)
        return details

    def _trace_path(self, label: ModuleLabel) -> Path:
        self._folder.traces.mkdir(exist_ok=True)
        return self._folder.traces / f"{label.slug}.trace.json.gz"

    def _keep_text(self, text: Path, label: ModuleLabel) -> Path | None:
        if not text.is_file():
            return None
        kept = self._folder.logs / f"{label.slug}.p.txt"
        write_text(kept, text.read_text(encoding="utf-8", errors="replace"))
        return kept


def _repeat_for(source: ModuleSource) -> int:
    """The number of profiled iterations: many samples of each kernel, within a trace of moderate size."""
    least, most = REPEAT_RANGE
    return max(least, min(most, EVENTS_WANTED // max(1, len(source.calls))))


T = TypeVar("T")

# Does work beside other work.


class SideWork:
    """Does one piece of work after the other, at the same time as the caller's work.

    It is a context manager. At its end it waits for the remaining work, and raises the first error.

    Args:
        is_beside: whether the caller goes on meanwhile. If not, each piece is done at once.
    """

    def __init__(self, is_beside: bool) -> None:
        self._threads = ThreadPoolExecutor(1) if is_beside else None
        self._left: list[Future[None]] = []

    def __enter__(self) -> SideWork:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=True)
        if kind is None:
            for one in self._left:
                one.result()

    def do(self, work: Callable[[], None]) -> None:
        """Does a piece of work; it may be done later, in another thread."""
        if self._threads is None:
            work()
        else:
            self._left.append(self._threads.submit(work))


def are_measured_beside(modules: Sequence[FoundModule]) -> bool:
    """Whether the results of one module's run can be read while the next module runs: a run on a CPU needs all
    cores."""
    if count_cores_of_this_process() <= CORES_OF_THE_PROGRAM:
        return False
    with contextlib.suppress(InductorBenchError):
        return not any(find_device(read_module(module.text).device).runs_on_host for module in modules)
    return False


class ConcurrentWorks(Generic[T]):
    """Pieces of work that are begun in their order, some of them at once.

    Args:
        works: the pieces.
        at_once: how many of them are under way at once; if it is 1, a piece is done when its result is asked for.

    Attributes:
        results: for each piece a function that waits for its end, and returns its result or raises its error.
    """

    def __init__(self, works: Sequence[Callable[[], T]], at_once: int) -> None:
        self._threads = ThreadPoolExecutor(at_once) if at_once > 1 else None
        self._futures = [self._threads.submit(work) for work in works] if self._threads else []
        self.results: list[Callable[[], T]] = [partial(_wait_for_result, one) for one in self._futures] or list(works)

    def close(self, *, waits: bool = False) -> None:
        """Begins no further piece. With ``waits``, waits for the end of the pieces that are under way."""
        if self._threads is not None:
            self._threads.shutdown(wait=waits, cancel_futures=True)


def _wait_for_result(future: Future[T]) -> T:
    while not future.done():  # many short waits: a signal may reach another thread while this process is stopped
        wait([future], WAKE_S)
    return future.result()


# The measurements of a program's modules, which may begin before the program's process is gone.


MOST_MODULES, CORES_OF_A_MODULE = 6, 2
"""The largest number of modules that load while one module uses the device, because loading takes several times as
long; and the cores for each."""


def count_modules_at_once(cores: int) -> int:
    """Returns the number of modules whose processes are under way at once. On an accelerator they take turns."""
    return 1 if count_timing_workers(cores) == 1 else min(MOST_MODULES, cores // CORES_OF_A_MODULE)


class ModuleMeasurements:
    """The runs of modules outside of the program, and the survey of the machine.

    On an accelerator, if there are cores, they are begun at once: processes start and load modules beside each other.
    Before :meth:`allow_device_use`, they use the device only to load kernels.

    Args:
        captured: the program.
        pool: the workers.
        folder: the RUN.
        request: what is broken down.
        calls: the library calls whose costs will be asked for, as far as they are known.
    """

    def __init__(
        self,
        captured: CapturedProgram,
        pool: WorkerPool,
        folder: RunFolder,
        request: BreakdownRequest,
        calls: Sequence[OperatorCall] = (),
    ) -> None:
        self._captured, self._pool, self._folder = captured, pool, folder
        self.modules = labelled(captured.modules)
        self.is_elsewhere = request.trace is not None
        self.is_beside = are_measured_beside(captured.modules)
        self.at_once = (
            count_modules_at_once(count_cores_of_this_process()) if self.is_beside and not self.is_elsewhere else 1
        )
        self._turn, variables = DeviceTurn(pool.folder / "device-turn"), {}
        if self.at_once > 1 and TURN not in pool.environment:  # a batch has turns of its own, for all of its models
            self._turn.take()
            variables = {TURN: str(pool.folder / "device-turn"), LOADS_BESIDE: "1"}
        of_request = request.repeat, request.trace, request.recorded_bytes
        self.profiling = Profiling(pool, folder, *of_request, variables)
        self._measured = ConcurrentWorks([partial(self.profiling.profile, *one) for one in self.modules], self.at_once)
        self._surveyed: ConcurrentWorks[Survey] | None = None
        if self.at_once > 1 and captured.modules:
            log, device = folder.logs / "survey.log", self.device
            peaks = "cached" if self._runs_module else "known"  # it measures them in its turn, as modules are
            take = partial(take_survey, pool, calls, device=device, peaks=peaks, log=log, variables=variables)
            self._surveyed = ConcurrentWorks([take], 2)
        self._calls = tuple(calls)

    @property
    def device(self) -> str:
        """Returns the type of the device for texts and peaks: the CPU only if nothing runs on another device."""
        of_modules = []
        for module, _ in self.modules:
            with contextlib.suppress(InductorBenchError):
                of_modules.append(read_module(module.text).device)
        return find_common_device([*of_modules, *(one.device for one in self._captured.steps)]).type or CPU.type

    @property
    def _runs_module(self) -> bool:
        return any(self.profiling.describe(*one) for one in self.modules)

    def need_device(self) -> bool:
        """Whether a module has to be run, or the device's peaks have to be measured."""
        if self._runs_module:
            return True
        self.allow_device_use()  # nothing is timed
        begun = self._begun_survey()
        return begun is None or begun.peaks is None

    def are_of(self, captured: CapturedProgram) -> bool:
        """Whether these measurements belong to this program."""
        mine = self._captured
        return (mine.modules, mine.steps, mine.touches) == (captured.modules, captured.steps, captured.touches)

    def allow_device_use(self) -> None:
        """Lets the modules use the device, because the program no longer uses it. May be called again."""
        self._turn.give_up()

    def close(self, *, waits: bool = False) -> None:
        """Begins nothing more. With ``waits``, waits for the end of what is under way."""
        self.allow_device_use()
        for one in (self._measured, self._surveyed):
            if one is not None:
                one.close(waits=waits)

    def __iter__(self) -> Iterator[tuple[FoundModule, ModuleLabel, Callable[[], ModuleMeasurement]]]:
        """Yields each module with a function that waits for its measurement."""
        for (module, label), measure in zip(self.modules, self._measured.results, strict=True):
            yield module, label, measure

    def _begun_survey(self) -> Survey | None:
        begun = self._surveyed.results[0]() if self._surveyed is not None else None
        is_whole = begun is not None and begun.failure is None and len(begun.costs) == len(self._calls)
        return begun if is_whole else None

    def time_in_bfloat16(self, calls: Sequence[OperatorCall], threads: int) -> Survey:
        """The survey with the costs of these calls, which it times on the CPU in float32 and bfloat16."""
        job = SurveyMachine(tuple(calls), describes=False, bfloat16_threads=threads)
        return _survey_module(self._pool, job, self._folder.logs / "bfloat16.log")

    def survey(self, calls: Sequence[OperatorCall], *, peaks: bool) -> Survey:
        """The survey with the costs of these calls.

        Args:
            calls: the calls.
            peaks: whether the device's peaks are wanted.
        """
        begun = self._begun_survey()
        if begun is None or (peaks and begun.peaks is None):
            log, wanted = self._folder.logs / "survey.log", "cached" if peaks else "none"
            return take_survey(self._pool, calls, device=self.device, peaks=wanted, log=log)
        costs = dict(zip(self._calls, begun.costs, strict=True))
        missing = [call for call in calls if call not in costs]
        more = Survey()
        if missing:
            more = count_costs(self._pool, missing, log=self._folder.logs / "costs.log")
            costs |= dict(zip(missing, more.costs, strict=False))
        found = tuple(costs.get(call, OperatorCost()) for call in calls)
        again = {f"{name}, {len(missing)} more calls": time_s for name, time_s in more.phases_s.items()}
        phases_s = {**begun.phases_s, **again}
        of_device = begun.peaks if peaks else None
        return replace(begun, costs=found, peaks=of_device, failure=more.failure, phases_s=phases_s)

"""Profiles each module, surveys the machine for it, and keeps the recorded values of its launches."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from ... import units
from ...devices.table import device_of
from ...errors import InductorBenchError
from ...launch.executors import cores_of_this_process, most_timing_workers
from ...launch.process import WAKE_S
from ...launch.worker import CORES_OF_THE_PROGRAM, WorkerAnswer, WorkerPool
from ...messages.job_requests import ProfileModule, SurveyMachine, WantedValues
from ...messages.observed import Observation
from ...records.base import Failure
from ...records.code import Details, Launch, ModuleSource, Reference
from ...records.run import Environment, Peaks
from ...records.traced import OperatorCall, OperatorCost
from ...source.labels import ModuleLabel
from ...source.module_reader import read_module
from ...source.syntax import launch_key
from ...store.codec import decode
from ...store.files import copy_file, write_text
from ...store.folder import RunFolder
from ...store.lock import LOADS_BESIDE, TURN
from ...store.run_files import save_details
from ...trace.compaction import store_trace
from .program_run import FoundModule

# Recorded values of launches: files that a worker writes, and that later lie beside the kernels' standalone files.


SUFFIX = ".safetensors"

T = TypeVar("T")


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
        """The recorded values of a launch of the kernel."""
        key = launch_key(launch)
        found = self.launches.get(key)
        if found is None:
            return None
        file = self.names.get(kernel) if self.names is not None else _file_of(found)
        if file is None:
            return None
        reference = self.references.get(key, Reference())
        return RecordedValues(found, reference, self.folder / file, movable=self.names is None)


def read_values(details: Details, folder: Path, names: Mapping[str, str] | None = None) -> ModuleValues:
    """The recorded values of a module: its ``recorded`` launches and ``recorded_references``."""
    recorded = details.recorded or ()
    keys = [launch_key(launch) for launch in recorded]
    return ModuleValues(
        dict(zip(keys, recorded, strict=True)),
        dict(zip(keys, details.recorded_references, strict=False)),
        folder,
        names,
    )


def values_work(folder: RunFolder) -> Path:
    """The folder in which the workers of an unfinished RUN write recorded values, one folder for each module."""
    return folder.work / "values"


def values_failure(details: Details, subject: str) -> Failure | None:
    """The failure that stopped the recording of values, if any."""
    error = details.values_error
    return Failure("values", "write", error.message, error.hint, subject=subject) if error else None


def drawn_note(launch: Launch) -> str:
    """A note on the share of a launch's values that is drawn instead of recorded; empty where all are recorded."""
    read = [storage for storage in launch.storages if storage.values.kind != "zeros"]
    drawn = sum(storage.size_bytes for storage in read if storage.values.kind != "recorded")
    whole = sum(storage.size_bytes for storage in read)
    return f"{units.size(drawn)} of the {units.size(whole)} that it reads are drawn" if drawn else ""


def _file_of(launch: Launch) -> str | None:
    return next((storage.values.file for storage in launch.storages if storage.values.file), None)


# Profiles each module: with its own harness in a fresh process, in the live program, or from an existing trace.


MEMORY = "memory"
"""The kind of the failure of a process that had too little memory."""

DEFAULT_REPEAT = 20
EVENTS_WANTED = 8000
REPEAT_RANGE = (5, 50)


@dataclass(frozen=True)
class ProfiledModule:
    """What a profile of a module left in the RUN. ``trace`` and ``log`` are paths."""

    method: str
    reason: str
    trace: Path | None
    log: Path | None
    failure: Failure | None = None


class Aside:
    """Does one piece of work after the other, beside what the caller does meanwhile.

    It is a context manager, which waits at its end for what is left, and raises the first error.

    Args:
        is_beside: whether the caller goes on meanwhile. If not, each piece is done at once.
    """

    def __init__(self, is_beside: bool) -> None:
        self._threads = ThreadPoolExecutor(1) if is_beside else None
        self._left: list[Future[None]] = []

    def __enter__(self) -> Aside:
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
    """Whether what one module's run left can be read while the next one runs: a run on a CPU needs all cores."""
    if cores_of_this_process() <= CORES_OF_THE_PROGRAM:
        return False
    with contextlib.suppress(InductorBenchError):
        return not any(device_of(read_module(module.text).device).runs_on_host for module in modules)
    return False


def modules_at_once(modules: Sequence[FoundModule]) -> int:
    """The number of modules that are loaded at once for profiles by themselves."""
    return most_timing_workers(cores_of_this_process()) if are_measured_beside(modules) else 1


@dataclass(frozen=True)
class ModuleMeasurement:
    """What a process measured of a module. ``keep`` saves it in the RUN; it may be called in another thread."""

    keep: Callable[[], ProfiledModule]
    phases_s: Mapping[str, float] = field(default_factory=dict)  # seconds of each phase of the process
    lacked_memory: bool = False


def begun_ahead(works: Sequence[Callable[[], T]], at_once: int) -> Generator[Callable[[], T]]:
    """For each piece of work what waits for its end, and returns or raises what it did.

    Args:
        works: the pieces, which are begun in their order.
        at_once: how many of them are under way at once; of one each is done when its end is waited for.
    """
    if at_once == 1:
        yield from works
        return
    threads = ThreadPoolExecutor(at_once)
    try:
        for future in [threads.submit(work) for work in works]:
            yield partial(_result_of, future)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _result_of(future: Future[T]) -> T:
    while not future.done():  # many short waits: a signal may reach another thread while this process is stopped
        wait([future], WAKE_S)
    return future.result()


class Profiling:
    """Profiles the modules of one run. They share a device, and take turns at it.

    Args:
        pool: the workers.
        folder: the RUN.
        repeat: the number of profiled iterations; ``None`` to choose it.
        trace: a trace that was recorded elsewhere.
        values_limit_bytes: the limit of the recorded values; ``None`` to record none.
        at_once: the number of modules that are loaded at once, of which one has its turn.
    """

    def __init__(
        self,
        pool: WorkerPool,
        folder: RunFolder,
        repeat: int | None,
        trace: Path | None,
        values_limit_bytes: int | None = None,
        at_once: int = 1,
    ) -> None:
        self.at_once = at_once
        self._pool = pool
        self._folder = folder
        self._repeat = repeat
        self._trace = trace
        self._values_limit_bytes = values_limit_bytes
        turn = str(pool.folder / "device-turn")
        # A batch has its own turns, in which more than this run's modules come.
        is_alone = at_once == 1 or TURN in pool.environment
        self._variables = {} if is_alone else {TURN: turn, LOADS_BESIDE: "1"}
        if values_limit_bytes is not None:
            values_work(folder).mkdir(exist_ok=True)

    def describe(self, module: FoundModule, label: ModuleLabel) -> str:
        """What is done to profile a module, in words; empty if that takes no time."""
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
            f"the trace {trace.name} is cut short; what was whole is counted",
            "record it again, with fewer iterations or where there is more room",
            subject=label.label,
        )
        return ProfiledModule("trace", reason, path, None, failure)

    def _from_live(self, label: ModuleLabel, seen: Observation) -> ProfiledModule:
        stem, found = Path(seen.stem), decode(Details, seen.live)
        if found.recorded:
            stem.with_suffix(".values").replace(values_work(self._folder) / label.slug)
        details = self._keep_details(label, replace(found, switches=seen.switches))
        failure = values_failure(details, label.label)
        stored = self._store_trace(stem.with_suffix(".trace.json"), label, details)
        log = self._keep_text(stem.with_suffix(".p.txt"), label)
        return ProfiledModule("live", seen.live_reason, stored, log, failure)

    def _from_harness(self, module: FoundModule, label: ModuleLabel, source: ModuleSource) -> ModuleMeasurement:
        if not source.has_harness:
            raise InductorBenchError(
                "the module carries no harness to run it with",
                "capture the program itself (inductor-bench breakdown script.py), which writes modules with one",
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
            answer.failure is not None and answer.failure.kind == MEMORY,
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
            answer.failure or values_failure(details, label.label),
        )

    def _wanted_values(self, label: ModuleLabel) -> WantedValues | None:
        if self._values_limit_bytes is None:
            return None
        folder = values_work(self._folder) / label.slug
        return WantedValues(str(folder.resolve()), self._values_limit_bytes)

    def _harness_note(self, module: FoundModule, details: Details) -> str:
        if module.live_error:
            return f"a live profile was wanted ({module.live_reason}) but failed: {module.live_error}"
        if details.marked:
            return "compiled without marks for the profiler, so C++ kernels are timed from Python, about 1 µs longer"
        return ""

    def _store_trace(self, trace: Path, label: ModuleLabel, details: Details) -> Path:
        path = self._trace_path(label)
        store_trace(trace, path, iterations=details.iterations)
        return path

    def _keep_details(self, label: ModuleLabel, details: Details) -> Details:
        save_details(self._folder, label.slug, details)
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


# Asks a worker for the environment, the peaks, and the costs of library calls.


@dataclass(frozen=True)
class Survey:
    """The answer of a worker. ``costs`` has one entry for each requested call; it is empty after a failure."""

    environment: Environment = field(default_factory=Environment)
    costs: tuple[OperatorCost, ...] = ()
    peaks: Peaks | None = None
    failure: Failure | None = None
    no_peaks: str = ""  # why measured peaks do not count
    phases_s: Mapping[str, float] = field(default_factory=dict)  # seconds of each phase of its process


def take_survey(pool: WorkerPool, calls: Sequence[OperatorCall], *, device: str, peaks: str, log: Path) -> Survey:
    """Runs the survey worker. ``peaks`` is ``none``, ``cached`` or ``measured``."""
    answer = pool.call(SurveyMachine(tuple(calls), device, peaks), name="survey", log=log)
    if answer.result is None:
        return Survey(failure=answer.failure)
    found, phases_s = answer.result, answer.phases_s(answer.result.phases_s)
    return Survey(found.environment, found.costs, found.peaks, answer.failure, found.no_peaks, phases_s)

"""Profiles each module, and keeps the recorded values of its launches."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ... import units
from ...errors import InductorBenchError
from ...launch.forking_worker import NO_VARIABLES
from ...launch.worker import WorkerAnswer, WorkerPool
from ...messages.job_requests import ProfileModule, WantedValues
from ...messages.observed import Observation
from ...records.base import Failure
from ...records.code import Details, Launch, ModuleSource, Reference
from ...source.generated_text import launch_key
from ...source.labels import ModuleLabel
from ...source.module_reader import read_module
from ...store.codec import decode
from ...store.files import copy_file, write_text
from ...store.folder import RunFolder
from ...store.run_files import save_details
from ...trace.stored_traces import store_trace
from .program_run import FoundModule

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


@dataclass(frozen=True)
class ModuleMeasurement:
    """What a process measured of a module. ``keep`` saves it in the RUN; it may be called in another thread."""

    keep: Callable[[], ProfiledModule]
    phases_s: Mapping[str, float] = field(default_factory=dict)  # seconds of each phase of the process
    has_failed: bool = False


class Profiling:
    """Profiles the modules of one run. They share a device, and take turns at it.

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
        values = stem.with_suffix(".values")
        if found.recorded and values.is_dir():  # else it was moved before, when the program was about to end
            values.replace(values_work(self._folder) / label.slug)
        details = self._keep_details(label, replace(found, switches=seen.switches))
        failure = values_failure(details, label.label)
        stored = self._store_trace(stem.with_suffix(".trace.json"), label, details)
        return ProfiledModule("live", seen.live_reason, stored, None, failure)

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

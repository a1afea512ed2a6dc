"""Runs compiled modules to record their launches, without measuring them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...devices.cpu import CPU
from ...devices.table import device_of
from ...launch.worker import WorkerPool, default_python
from ...messages.jobs import ListLaunches, RecordValues, WantedValues
from ...records.code.details import Details
from ...records.code.source import ModuleSource
from ...records.run import Environment, Failure
from ...source.capture.labels import ModuleLabel
from ...source.module.reader import read_module
from ...store.files import write_text
from ..modules.environment import capture_environment
from ..modules.observed import FoundModule, labelled
from ..modules.survey import Survey, take_survey
from ..modules.values import read_values, values_failure
from ..progress import Progress
from .candidates import Candidate
from .module import ModuleKernels

SEE_MORE = "-v shows what it prints"


class ModuleRuns:
    """Runs modules, each in a worker of its own.

    Args:
        work: a scratch folder.
        python: the interpreter of the workers; ``None`` for this one.
        timeout_s: limit of each worker in seconds; ``None`` for no limit.
        progress: the listener for stages and output.
    """

    def __init__(self, work: Path, python: str | None, timeout_s: float | None, progress: Progress) -> None:
        environment = capture_environment(work)
        self._work = work
        self._pool = WorkerPool(python or default_python(), work, environment, timeout_s, progress.output)
        self._progress = progress
        self._survey = Survey()

    def survey(self) -> Environment:
        """The environment of the workers."""
        self._progress.stage("looking at the machine")
        self._survey = take_survey(self._pool, (), device=CPU.type, peaks="none", log=self._work / "survey.log")
        return self._survey.environment

    def watch(self, module: FoundModule, label: ModuleLabel, kernels: ModuleKernels) -> tuple[ModuleKernels, str]:
        """Runs a module once. Returns its kernels with their launches, and a note on a failure.

        After a failure the kernels may have no launches.
        """
        obstacle = self._obstacle(kernels.source)
        if obstacle is not None:
            return kernels, _not_run(label, obstacle)
        self._progress.stage(f"running {label.label} once")
        file, source = self._file_of(module, label), read_module(module.text)
        job = ListLaunches(str(file.resolve()), source.device, source.threads, source.vector_lanes)
        answer = self._pool.call(job, name=label.slug, log=self._work / f"{label.slug}.log")
        if answer.result is None:
            return kernels, _not_run(label, answer.failure or Failure("launches", "exit", "it gave no answer"))
        details = answer.result
        watched = replace(
            kernels,
            launches=details.launches,
            references=details.references,
            compiled=details.compiled,
            watched=True,
        )
        return watched, f"{label.label}: {answer.failure.message}" if answer.failure else ""

    def _obstacle(self, source: ModuleSource) -> Failure | None:
        """The reason why a module cannot be run here, as far as it is known before a try."""
        if not (source.has_harness or source.cpp_wrapper):
            message = "it was compiled without the harness that makes its inputs"
            return Failure("launches", "missing", message, "give the program to `inductor-bench breakdown` instead")
        if self._survey.failure is not None:
            return self._survey.failure
        device = device_of(source.device)
        if device.name_in(self._survey.environment) is None:
            message = f"it is for a {device.words.family} GPU, and torch sees none here"
            return Failure("launches", "missing", message, "run this where the GPU is, or say --static")
        return None

    def record(
        self,
        found: Sequence[FoundModule],
        modules: Sequence[ModuleKernels],
        chosen: Sequence[Candidate],
        folder: Path,
        limit_bytes: int,
    ) -> tuple[list[ModuleKernels], tuple[Failure, ...]]:
        """Runs the modules again and records the values of the selected launches.

        Args:
            found: the modules.
            modules: their kernels, in the same order.
            chosen: the selected candidates.
            folder: the folder for the files of values.
            limit_bytes: maximum size of the values of one launch.

        Returns:
            The modules with their recorded values, and the failures.
        """
        recorded, failures = [], []
        for (module, label), kernels in zip(labelled(found), modules, strict=True):
            wanted = [one.launch for one in chosen if one.launch and one.header.module == kernels.label]
            details = Details()
            if kernels.watched and wanted:
                self._progress.stage(f"recording values of {label.label}")
                file, source = self._file_of(module, label), read_module(module.text)
                job = RecordValues(
                    module=str(file.resolve()),
                    device=source.device,
                    launches=tuple(wanted),
                    values=WantedValues(str((folder / label.slug).resolve()), limit_bytes),
                    threads=source.threads,
                    vector_lanes=source.vector_lanes,
                )
                name = f"{label.slug}.values"
                answer = self._pool.call(job, name=name, log=self._work / f"{name}.log")
                details = answer.result or Details()
                lost = values_failure(details, label.label) or answer.failure
                failures += [lost] if lost else []
            recorded.append(replace(kernels, values=read_values(details, folder / label.slug)))
        return recorded, tuple(failures)

    def _file_of(self, module: FoundModule, label: ModuleLabel) -> Path:
        if module.path.is_file():
            return module.path
        path = self._work / f"{label.slug}.py"  # a structured trace holds the text of a module whose file may be gone
        write_text(path, module.text)
        return path


def _not_run(label: ModuleLabel, failure: Failure) -> str:
    told = "the arguments are those that its text tells, with zeros for whole numbers"
    hint = SEE_MORE if failure.kind in ("exit", "signal") else failure.hint
    return f"{label.label} could not be run: {failure.message}{f' ({hint})' if hint else ''}; {told}"

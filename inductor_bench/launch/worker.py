"""Starting a worker: a verb, a job file in, a result file out. Nothing travels on stdout, because models print."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Generic

from ..errors import InductorBenchError
from ..messages.jobs import WorkerJob
from ..messages.request import Answer, decode_answer
from ..records.failure import NO_PYTHON
from ..records.run import Failure
from ..store.files import read_json, write_json
from ..store.formats import codec
from .cores import cores_of_this_process
from .diagnosis import ERROR_LINES, last_error, remedy, remedy_of_end
from .interpreter import ANOTHER_PYTHON, NOT_PYTHON, SAFE_PATH, module_words
from .process import ProcessResult, run_process
from .ready_worker import ReadyWorker

CORES_OF_THE_PROGRAM = 2
"""Cores that the program compiles with while workers get ready."""

MOST_READY = 4
"""Maximum of ready workers of one run; each holds half a gigabyte or more."""

IMPORT_S = 120.0
"""Limit in seconds for the import of a package."""

_SUM, _SUM_RESULT = "print(40000 + 2)", "40002"
"""A Python program of one line, and its output."""

PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class WorkerAnswer(Generic[Answer]):
    """What a worker measured, and how it failed: one of the two, or both where it failed half-way."""

    result: Answer | None
    failure: Failure | None


@dataclass(frozen=True)
class ImportedPackage:
    """Whether the workers' interpreter can import a package: its version, or else the error and a known hint."""

    version: str = ""
    error: str = ""
    hint: str = ""


@dataclass(frozen=True)
class WorkerPool:
    """Where and how workers of one run are started. As a context manager it leaves none behind.

    Args:
        python: the interpreter that has the user's torch.
        folder: a scratch folder for job and result files.
        environment: the environment that every worker gets.
        timeout_s: the limit of each worker, or ``None``.
        on_line: is given each line that a worker prints.
    """

    python: str
    folder: Path
    environment: Mapping[str, str]
    timeout_s: float | None = None
    on_line: Callable[[str], None] = lambda line: None
    _ready: list[ReadyWorker] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._dismiss()

    def get_ready(self, count: int) -> None:
        """Starts workers for the next calls, so that ``count`` are ready or will be; see :data:`MOST_READY`. On few
        cores it starts none.

        While they get ready nothing is measured by this pool; when they are, they use no core any more.
        """
        if cores_of_this_process() <= CORES_OF_THE_PROGRAM:
            return
        with contextlib.suppress(InductorBenchError):  # a worker that is started for a call reports the error
            for _ in range(min(count, MOST_READY) - len(self._ready)):
                log = self.folder / f"ready-{next(self._numbers)}.log"
                environment = worker_environment(self.folder, self.environment)
                command = [*self._command, "await"]
                self._ready.append(ReadyWorker(command, environment=environment, log=log, on_line=self.on_line))

    def call(self, job: WorkerJob[Answer], *, name: str, log: Path) -> WorkerAnswer[Answer]:
        """Has a worker do one job, in a process of its own, once no other is getting ready.

        Args:
            job: what it does.
            name: names the job's files, unique in the run.
            log: where the worker's output goes.
        """
        job_file = self.folder / f"{name}.job.json"
        result_file = self.folder / f"{name}.result.json"
        result_file.unlink(missing_ok=True)
        write_json(job_file, codec.encode_sparse(job))
        ended = self._run([job.verb, str(job_file), str(result_file)], log)
        if ended.ok and not result_file.is_file() and not self.is_python():
            message = NOT_PYTHON.format(python=self.python)
            return WorkerAnswer(None, Failure(job.verb, NO_PYTHON, message, ANOTHER_PYTHON, ended.tail(), name))
        return _read_result(job, ended, result_file, subject=name)

    def import_package(self, name: str, module: str = "") -> ImportedPackage:
        """Imports a package in a process of its own: one that is installed may not fit its torch.

        Args:
            name: the package.
            module: a module of it that is imported too.
        """
        log = self.folder / f"import-{name}.log"
        code = f"import {name}, {module or name}; print(getattr({name}, '__version__', 'of an unknown version'))"
        environment = worker_environment(self.folder, self.environment)
        ended = run_process([self.python, "-c", code], environment=environment, log=log, timeout_s=IMPORT_S)
        said = ended.tail(ERROR_LINES)
        if ended.ok and said.strip():
            return ImportedPackage(version=said.strip().splitlines()[-1])
        return ImportedPackage(error=last_error(said) or ended.outcome, hint=remedy_of_end(said))

    def is_python(self) -> bool:
        """Whether the workers' interpreter runs Python."""
        log = self.folder / "interpreter.log"
        environment = worker_environment(self.folder, self.environment)
        ended = run_process([self.python, "-c", _SUM], environment=environment, log=log, timeout_s=IMPORT_S)
        return _SUM_RESULT in ended.tail()

    def _run(self, words: list[str], log: Path) -> ProcessResult:
        if not all(worker.wait(self.timeout_s) for worker in self._ready):
            self._dismiss()  # the worker that is started now reports the error
        if self._ready:
            return self._ready.pop().run(words, log=log, timeout_s=self.timeout_s)
        return run_process(
            [*self._command, *words],
            environment=worker_environment(self.folder, self.environment),
            log=log,
            timeout_s=self.timeout_s,
            on_line=self.on_line,
        )

    def _dismiss(self) -> None:
        with contextlib.ExitStack() as ends:  # ends all workers even where ending one is interrupted
            while self._ready:
                ends.callback(self._ready.pop().end)

    @property
    def _command(self) -> list[str]:
        return [self.python, *module_words("inductor_bench.worker")]


def worker_environment(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which an interpreter finds this package, and nothing that it did not find before; nor does
    what it starts find anything in the current folder."""
    path = join_paths(expose_package(folder), environment.get("PYTHONPATH"))
    return {**environment, "PYTHONPATH": path, **SAFE_PATH}


def default_python() -> str:
    return sys.executable


def expose_package(folder: Path) -> str:
    """A folder for ``PYTHONPATH`` that holds this package and nothing else.

    Another interpreter must find the package without also finding the site-packages that it lies in.
    """
    path = folder / "path"
    link = path / "inductor_bench"
    path.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(PACKAGE, target_is_directory=True)
    return str(path.resolve())


def join_paths(first: str, rest: str | None) -> str:
    return f"{first}{os.pathsep}{rest}" if rest else first


def _read_result(
    job: WorkerJob[Answer], ended: ProcessResult, result_file: Path, *, subject: str
) -> WorkerAnswer[Answer]:
    data = read_json(result_file) if result_file.is_file() else {}
    result = decode_answer(job, data["result"]) if data.get("result") is not None else None
    said = data.get("failure")
    if said is not None:
        hint = said["hint"] or remedy(said["message"])
        failure = Failure(job.verb, said["kind"], said["message"], hint, ended.tail(), subject)
    elif result is not None and ended.ok:
        failure = None
    else:
        failure = Failure(
            job.verb, ended.kind, f"the worker {ended.outcome}", _HINTS[ended.kind], ended.tail(), subject
        )
    return WorkerAnswer(result, failure)


_HINTS = {
    "timeout": "give it more time with --timeout SECONDS",
    "signal": "an out-of-memory kill or a crash in native code is likely; the log may say more",
    "exit": "the log may say more",
}

"""Workers: some do one job, other workers take one request after the other; and the cores that they share."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic

from ..errors import InductorBenchError
from ..messages.job_requests import Answer, WorkerJob, WorkerRequest, decode_answer, encode_request
from ..messages.kernel_requests import Begun
from ..records.base import NO_PYTHON, Failure
from ..store import codec
from ..store.files import read_json, write_message
from .forking_worker import NO_VARIABLES, ForkingWorker, PipedProcess
from .process import (
    ANOTHER_PYTHON,
    ERROR_LINES,
    NOT_PYTHON,
    SAFE_PATH,
    ProcessResult,
    find_last_error,
    find_remedy,
    find_remedy_of_end,
    list_module_words,
    run_process,
)

# The cores that this process may use, and how many workers share them.


COMPILE_THREADS = "TORCHINDUCTOR_COMPILE_THREADS"

CORES_OF_A_TIMER = 4
MOST_TIMERS = 3
"""Cores for each of the workers that time candidates on one device in turn, and their maximum number."""

CORES_KEPT_FROM_A_RETUNE = 1
"""Cores that are reserved for the parent of a retune. Workers that time take precedence over workers that compile,
which have a low priority."""


def count_timing_workers(cores: int) -> int:
    """Returns the maximum number of workers that share a device to time candidates: while one times, the others
    load."""
    return max(1, min(MOST_TIMERS, cores // CORES_OF_A_TIMER))


def count_cores_of_this_process() -> int:
    """Returns the number of cores that this process may use; its share of them if other jobs compile at the same
    time."""
    share = os.environ.get(COMPILE_THREADS, "")
    return min(count_usable_cores(), int(share)) if share.isdecimal() and int(share) else count_usable_cores()


def count_usable_cores() -> int:
    return len(os.sched_getaffinity(0))


# Starting a worker: a verb, a job file in, a result file out. Nothing travels on stdout, because models print.


CORES_OF_THE_PROGRAM = 2
"""Cores that the program compiles with while workers get ready."""

IMPORT_S = 120.0
"""Limit in seconds for the import of a package."""

_SUM, _SUM_RESULT = "print(40000 + 2)", "40002"
"""A Python program of one line, and its output."""

PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class WorkerAnswer(Generic[Answer]):
    """What a worker measured, or how it failed; both if it failed after a part of the work."""

    result: Answer | None
    failure: Failure | None
    waited_s: float = 0.0  # seconds until a worker was ready
    time_s: float = 0.0  # seconds from the order of the job to the end of its process

    def phases_s(self, of_job: Mapping[str, float]) -> dict[str, float]:
        """Returns the seconds of each phase of the call; ``of_job`` are the phases within the job."""
        ending_s = max(0.0, self.time_s - math.fsum(of_job.values()))
        return {"waiting for a worker": self.waited_s, **of_job, "ending": ending_s}


@dataclass(frozen=True)
class ImportedPackage:
    """The result of the import of a package in the workers' interpreter: its version, or the error and a known hint."""

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
    _forking: list[ForkingWorker] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _closed: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()  # a thread of this process may still call
        self._dismiss()

    def get_ready(self, *, beside_program: bool = False) -> None:
        """Starts the worker that does the next calls in forks.

        It is not started next to a program that is being measured and needs all of a few cores. This pool measures
        nothing until the worker is ready; a ready worker uses no core.
        """
        if beside_program and count_cores_of_this_process() <= CORES_OF_THE_PROGRAM:
            return
        with self._lock:
            self._start_forking()

    def _start_forking(self) -> None:
        if self._forking and not self._forking[0].is_alive:
            self._dismiss()
        if not self._forking and not self._closed.is_set():
            environment = make_worker_environment(self.folder, self.environment)
            command = [*self._command, "fork"]
            with contextlib.suppress(InductorBenchError):  # a worker that is started for a call reports the error
                self._forking.append(ForkingWorker(command, environment=environment, log=self.folder / "forking.log"))

    def call(
        self, job: WorkerJob[Answer], *, name: str, log: Path, variables: Mapping[str, str] = NO_VARIABLES
    ) -> WorkerAnswer[Answer]:
        """Lets a worker do one job in a separate process. Several threads may call at once.

        Args:
            job: the job.
            name: the name of the job's files, unique in the run.
            log: the file for the worker's output.
            variables: further environment variables of the job.
        """
        job_file = self.folder / f"{name}.job.json"
        result_file = self.folder / f"{name}.result.json"
        result_file.unlink(missing_ok=True)
        write_message(job_file, codec.encode_sparse(job))
        ended, waited_s = self._run([job.verb, str(job_file), str(result_file)], log, variables)
        if ended.ok and not result_file.is_file() and not self.is_python():
            message = NOT_PYTHON.format(python=self.python)
            return WorkerAnswer(None, Failure(job.verb, NO_PYTHON, message, ANOTHER_PYTHON, ended.tail(), name))
        answer = _read_result(job, ended, result_file, subject=name)
        return replace(answer, waited_s=waited_s, time_s=ended.time_s)

    def import_package(self, name: str, module: str = "") -> ImportedPackage:
        """Imports a package in a separate process: an installed package may not fit the interpreter's torch.

        Args:
            name: the package.
            module: a module of it that is imported too.
        """
        log = self.folder / f"import-{name}.log"
        code = f"import {name}, {module or name}; print(getattr({name}, '__version__', 'of an unknown version'))"
        environment = make_worker_environment(self.folder, self.environment)
        ended = run_process([self.python, "-c", code], environment=environment, log=log, timeout_s=IMPORT_S)
        said = ended.tail(ERROR_LINES)
        if ended.ok and said.strip():
            return ImportedPackage(version=said.strip().splitlines()[-1])
        return ImportedPackage(error=find_last_error(said) or ended.outcome, hint=find_remedy_of_end(said))

    def is_python(self) -> bool:
        """Whether the workers' interpreter runs Python."""
        log = self.folder / "interpreter.log"
        environment = make_worker_environment(self.folder, self.environment)
        ended = run_process([self.python, "-c", _SUM], environment=environment, log=log, timeout_s=IMPORT_S)
        return _SUM_RESULT in ended.tail()

    def _run(self, words: list[str], log: Path, variables: Mapping[str, str]) -> tuple[ProcessResult, float]:
        """Returns the end of a job's process, and the seconds until a worker was ready for the job."""
        begin_s = time.monotonic()
        with self._lock:
            self._start_forking()
            forking = self._forking[0] if self._forking and self._forking[0].wait(self.timeout_s) else None
            if forking is None:
                self._dismiss()  # the worker that is started now reports the error
        waited_s = time.monotonic() - begin_s
        if forking is not None:
            limit_s, on_line = self.timeout_s, self.on_line
            return forking.run(words, log=log, timeout_s=limit_s, on_line=on_line, variables=variables), waited_s
        if self._closed.is_set():
            raise InductorBenchError("the run was ended before this was measured")
        ended = run_process(
            [*self._command, *words],
            environment={**make_worker_environment(self.folder, self.environment), **variables},
            log=log,
            timeout_s=self.timeout_s,
            on_line=self.on_line,
        )
        return ended, waited_s

    def _dismiss(self) -> None:
        with contextlib.ExitStack() as ends:  # ends all workers even if ending one is interrupted
            while self._forking:
                ends.callback(self._forking.pop().end)

    @property
    def _command(self) -> list[str]:
        return [self.python, *list_module_words("inductor_bench.worker")]


def make_worker_environment(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Makes an environment in which an interpreter also finds this package, but nothing else that it did not find
    before.

    Processes that it starts find nothing in the current folder, either.
    """
    path = join_paths(expose_package(folder), environment.get("PYTHONPATH"))
    return {**environment, "PYTHONPATH": path, **SAFE_PATH}


def default_python() -> str:
    return sys.executable


def expose_package(folder: Path) -> str:
    """Makes a folder for ``PYTHONPATH`` that holds only this package.

    Another interpreter must find the package, but not the other packages in the site-packages in which it lies.
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
        hint = said["hint"] or find_remedy(said["message"])
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


# A worker that keeps running: it takes one request after the other, and keeps loaded kernels.
#
# Requests and answers are lines of JSON on separate pipes, because models print.


CLOSE_S = 3.0


class WorkerLostError(Exception):
    """The worker is gone: it crashed, was killed, or gave no answer in time and was ended.

    Attributes:
        kind: ``crashed`` or ``hung``.
        message: how it ended, in words.
        tail: the end of its log.
    """

    def __init__(self, kind: str, ended: ProcessResult) -> None:
        super().__init__(ended.outcome)
        self.kind, self.message, self.tail = kind, ended.outcome, ended.tail()


def explain_loss_at_start(lost: WorkerLostError, pool: WorkerPool) -> InductorBenchError:
    """Explains why a worker gave no answer to its first question: its interpreter is no Python, or has no torch that
    works."""
    said = find_last_error(lost.tail)
    if not said and not pool.is_python():
        return InductorBenchError(NOT_PYTHON.format(python=pool.python), ANOTHER_PYTHON, "no-python")
    return InductorBenchError(
        said or f"the worker {lost.message}", find_remedy(said), "no-torch" if said else "worker-lost"
    )


class WorkerSession:
    """A running worker. It is a context manager; at its end the process and its descendants are gone.

    Args:
        python: the interpreter that has the user's torch.
        folder: a scratch folder.
        environment: the environment of the worker.
        log: where its output goes.
        on_line: is given each line of output.

    Attributes:
        part: the last part of an answer, before the answer itself or the worker's end.
    """

    def __init__(
        self,
        python: str,
        folder: Path,
        environment: Mapping[str, str],
        *,
        log: Path,
        on_line: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._child = PipedProcess(
            [python, *list_module_words("inductor_bench.worker"), "serve"],
            environment=make_worker_environment(folder, environment),
            log=log,
            on_line=on_line,
        )
        os.set_blocking(self._child.requests.fileno(), False)  # a worker that reads no more must not stop its parent
        self._open, self._is_at_work = True, False
        self._timeout_s: float | None = None
        self._deadline: float | None = None
        self._posted: WorkerRequest[Any] | None = None
        self._answer: dict[str, Any] | None = None
        self.part: Begun | None = None

    def __enter__(self) -> WorkerSession:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close() if kind is None else self.abort()

    def ask(self, request: WorkerRequest[Answer], timeout_s: float | None = None) -> Answer:
        """Sends a request and waits for its answer.

        Args:
            request: the request.
            timeout_s: the limit in seconds for the answer, and for each part before it; ``None`` for no limit.

        Raises:
            InductorBenchError: the worker could not do it; it goes on.
            WorkerLostError: the worker is gone, and the session with it.
        """
        self.post(request, timeout_s)
        answer: Answer = self.collect()
        return answer

    def post(self, request: WorkerRequest[Any], timeout_s: float | None = None) -> None:
        """Sends a request whose answer is collected later, before the next one is sent.

        Raises:
            WorkerLostError: the worker is gone, and the session with it.
        """
        assert self._open, "the session is closed"
        assert self._posted is None or self._answer is not None, "the last answer was not collected"
        self.part, self._posted, self._answer, self._is_at_work = None, request, None, True
        self._timeout_s = timeout_s
        self._restart_timeout()
        data = json.dumps(encode_request(request)).encode() + b"\n"
        while data:
            if not select.select([], [self._child.requests], [], self.left_s)[1]:
                raise self._lost("hung")
            try:
                data = data[os.write(self._child.requests.fileno(), data) :]
            except BrokenPipeError:
                raise self._lost("crashed") from None

    def collect(self) -> Any:
        """Waits for the answer to the posted request; raises the same errors as :meth:`ask`."""
        assert self._posted is not None, "nothing was asked"
        while self._answer is None:
            line = self._child.read_answer(self.left_s)
            if not line:
                raise self._lost("hung" if line is None else "crashed")
            self._take_line(line)
        answer, self._is_at_work = self._answer, False
        if answer.get("fatal"):
            self.close()
        if "failure" in answer:
            failure = answer["failure"]
            raise InductorBenchError(failure["message"], failure["hint"], failure.get("id", ""))
        return decode_answer(self._posted, answer["result"])

    def is_answered(self) -> bool:
        """Reads what has arrived, and returns whether :meth:`collect` would return or raise at once."""
        while self._answer is None:
            line = self._child.read_answer(0.0)
            if not line:  # empty if the worker is gone, which ``collect`` reports
                return line is not None or self.left_s == 0
            self._take_line(line)
        return True

    @property
    def left_s(self) -> float | None:
        """Returns the seconds that are left for the answer; ``None`` if there is no limit."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    @property
    def alive(self) -> bool:
        """Whether the worker can be asked again."""
        return self._open

    def fileno(self) -> int:
        """Returns a descriptor for ``select`` that is readable as soon as there is something to collect."""
        return self._child.answers.fileno()

    def close(self) -> None:
        """Lets the worker end. A worker that does not end, or is at work, is killed. May be called again."""
        self._end(0.0 if self._is_at_work else CLOSE_S)

    def abort(self) -> None:
        """Ends the worker at once. May be called again."""
        self._end(0.0)

    def _end(self, patience_s: float) -> None:
        if self._open:
            self._open = False
            self._child.close_requests()
            try:
                self._child.wait(patience_s)
            finally:
                self._child.end()

    def _take_line(self, line: bytes) -> None:
        """Keeps an answer or a part of one. A part restarts the time limit."""
        answer: dict[str, Any] = json.loads(line)
        if "part" in answer:
            self.part = part = codec.decode(Begun, answer["part"])
            self._restart_timeout()
            if part.waits:
                self._deadline = None
        else:
            self._answer = answer

    def _restart_timeout(self) -> None:
        self._deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s

    def _lost(self, kind: str) -> WorkerLostError:
        self._open = False
        if kind == "crashed":
            self._child.wait(CLOSE_S)
        return WorkerLostError(kind, self._child.end(timed_out=kind == "hung"))

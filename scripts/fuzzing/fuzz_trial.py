"""Damaged inputs: the command runs on each in a separate process, and is ended in time."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import io
import json
import math
import os
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import FileIO
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from inductor_bench.cli.main import main
from inductor_bench.launch.worker import ImportedPackage, WorkerAnswer, WorkerPool
from inductor_bench.messages.job_requests import MachineFacts, SurveyMachine, WorkerJob
from inductor_bench.records.base import Failure
from inductor_bench.records.traced import OperatorCost
from inductor_bench.store.caches import load_peaks, make_peaks_key
from inductor_bench.store.folder import RunFolder

from .fuzz_base import ENVIRONMENT

MEMORY_BYTES = 4 << 30
FILE_BYTES = 200_000_000
SIGNAL, SLOW, HUNG = "signal", "slow", "hang"
STARTING = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system")
Command = Callable[[list[str]], int]


@dataclass(frozen=True)
class Limits:
    """When a command is ended: after so many CPU seconds it is ``slow``, after so many seconds by the clock a ``hang``.

    The machine may be busy: only a command that waits for something that never comes takes as long as ``wall_s``.
    """

    cpu_s: int = 60  # a record of 5,000 graphs is an input, too
    wall_s: float = 900.0


LIMITS = Limits()


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, ``signal``, ``slow`` or ``hang``, and its CPU seconds."""

    outcome: str
    cpu_s: float
    number: int = 0


class Runner:
    """A process that runs one command after another; a new one is started after one that crashed or was ended."""

    def __init__(self) -> None:
        self._child = 0
        self._connection: Connection[Any, Any] | None = None
        self._spent_s = 0.0

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def execute(self, place: Path, words: Sequence[str], limits: Limits, command: Command = main) -> Ended:
        """Runs a command line in ``place/cwd``, with all that it may use for itself below ``place``, and ends it in
        time.

        It writes ``stdout``, ``stderr`` and, of one that crashed or was ended, ``stack`` in ``place``; ``started``
        names processes that it would have started.
        """
        connection = self._connection or self._start()
        connection.send((place, list(words), limits, command))
        hung = not connection.poll(limits.wall_s)
        if hung:
            os.kill(self._child, signal.SIGXCPU)  # writes its stack
            connection.poll(0.3)
        else:
            with contextlib.suppress(EOFError, ConnectionError):
                code, spent_s = connection.recv()
                cpu_s, self._spent_s = spent_s - self._spent_s, spent_s
                return Ended(str(code), cpu_s)
        before_s = self._spent_s
        status, spent_s = self._end()
        if hung:
            return Ended(HUNG, spent_s - before_s)
        if os.WIFSIGNALED(status):
            outcome = SLOW if spent_s - before_s >= limits.cpu_s else SIGNAL
            return Ended(outcome, spent_s - before_s, os.WTERMSIG(status))
        return Ended(str(os.waitstatus_to_exitcode(status)), spent_s - before_s)

    def _start(self) -> Connection[Any, Any]:
        sys.stdout.flush()
        sys.stderr.flush()
        self._connection, theirs = Pipe()
        self._child = os.fork()
        if self._child == 0:
            self._connection.close()
            try:
                _serve(theirs)
            finally:
                os._exit(70)
        theirs.close()
        with contextlib.suppress(OSError):
            os.setpgid(self._child, self._child)
        return self._connection

    def _end(self) -> tuple[int, float]:
        """Ends the process; its status, and all the CPU seconds that it took."""
        if self._connection is None:
            return 0, 0.0
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child, signal.SIGKILL)  # what has crashed keeps the signal of that
        _, status, used = os.wait4(self._child, 0)
        self._connection.close()
        self._connection, self._spent_s = None, 0.0
        return status, used.ru_utime + used.ru_stime


def execute(place: Path, words: Sequence[str], limits: Limits, command: Command = main) -> Ended:
    """Runs one command as :class:`Runner` does, in a process of its own."""
    with Runner() as runner:
        return runner.execute(place, words, limits, command)


def _serve(connection: Connection[Any, Any]) -> None:
    """Runs what is asked for until nobody asks any more."""
    variables = dict(os.environ)
    refusal = _settle_process()
    while True:
        try:
            place, words, limits, command = connection.recv()
        except EOFError:
            os._exit(0)
        os.environ.clear()
        os.environ.update(variables)
        code = _attempt(place, limits, refusal, lambda command=command, words=words: command(words))
        os.chdir("/")
        used = resource.getrusage(resource.RUSAGE_SELF)
        connection.send((code, used.ru_utime + used.ru_stime))


def _attempt(place: Path, limits: Limits, refusal: Refusal, work: Callable[[], int]) -> int:
    """The exit code that the command would end with."""
    _settle(place, limits)
    with (place / "started").open("ab", buffering=0) as refusal.started:
        try:
            code = work()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        except BaseException:
            traceback.print_exc()
            code = 1
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
    return code


class Refusal:
    """Refuses to start processes, and writes down which."""

    started: FileIO

    def hook(self, event: str, given: tuple[Any, ...]) -> None:
        """For ``sys.addaudithook``."""
        if event in STARTING:
            self.started.write(f"{event} {given[:2]!r}\n".encode(errors="replace"))
            raise PermissionError(1, f"{event}: no process is started while damaged inputs are tried")


def _settle_process() -> Refusal:
    """What stays as it is from one command to the next."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    for name, size in (("RLIMIT_AS", MEMORY_BYTES), ("RLIMIT_FSIZE", FILE_BYTES), ("RLIMIT_CORE", 0)):
        resource.setrlimit(getattr(resource, name), (size, size))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    refusal = Refusal()
    sys.addaudithook(refusal.hook)
    WorkerPool.call = _stand_in  # type: ignore[method-assign,assignment]
    WorkerPool.get_ready = lambda pool, **_: None  # type: ignore[method-assign,assignment]
    WorkerPool.import_package = lambda pool, name, module="": ImportedPackage("1.0")  # type: ignore[method-assign]
    WorkerPool.is_python = lambda pool: True  # type: ignore[method-assign]
    _drop_privileges()
    return refusal


def _settle(place: Path, limits: Limits) -> None:
    """What each command finds as if it were the first."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    folders = {"TMPDIR": "tmp", "HOME": "home", "XDG_CACHE_HOME": "xdg", "INDUCTOR_BENCH_CACHE": "cache"}
    os.environ.update({name: str(place / folder) for name, folder in folders.items()})
    os.environ["PWD"] = str(place / "cwd")
    os.environ.pop("COLUMNS", None)
    tempfile.tempdir = None
    os.chdir(place / "cwd")
    for number, name in ((1, "stdout"), (2, "stderr")):
        opened = os.open(place / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(opened, number)
        os.close(opened)
        stream = io.TextIOWrapper(io.FileIO(number, "w", closefd=False), encoding="utf-8", line_buffering=number == 2)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    stack = (place / "stack").open("w")
    faulthandler.enable(stack)
    faulthandler.register(signal.SIGXCPU, stack, chain=True)  # writes its stack and ends
    used = resource.getrusage(resource.RUSAGE_SELF)
    most_s = math.ceil(used.ru_utime + used.ru_stime + limits.cpu_s)
    resource.setrlimit(resource.RLIMIT_CPU, (most_s, resource.RLIM_INFINITY))


def _drop_privileges() -> None:
    """Takes from root what lets it read and write past the modes of files, so that a mode of 000 means something."""
    if os.geteuid() != 0:
        return
    data = (ctypes.c_uint32 * 6)()
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    library = ctypes.CDLL(None, use_errno=True)
    if library.capget(header, data) == 0:
        for word in (0, 1):  # effective, permitted
            data[word] &= ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        library.capset(header, data)


def _stand_in(pool: WorkerPool, job: WorkerJob[Any], *, name: str, log: Path, **_: object) -> WorkerAnswer[Any]:
    """Answers in the place of a worker, which would import torch: what the machine is, and no costs."""
    log.parent.mkdir(parents=True, exist_ok=True)
    log.touch()
    if not isinstance(job, SurveyMachine):
        return WorkerAnswer(None, Failure(job.verb, "exit", "no worker is started for damaged inputs", subject=name))
    peaks = load_peaks(make_peaks_key(ENVIRONMENT, job.device)) if job.peaks != "none" else None
    costs = tuple(OperatorCost(reason="not counted") for _ in job.calls)
    return WorkerAnswer(MachineFacts(ENVIRONMENT, costs, peaks), None)


def read_summary(runner: Runner, place: Path, run: Path) -> dict[str, Any] | None:
    """What of a RUN's record must not be lost, by module, read in a separate process; ``None`` of one that cannot be
    read."""
    answer = place / "summary"
    ended = runner.execute(place, (str(run), str(answer)), LIMITS, _write_summary)
    if ended.outcome != "0":
        return None
    found: dict[str, Any] = json.loads(answer.read_text())
    answer.unlink()
    return found


def _write_summary(words: list[str]) -> int:
    modules = RunFolder(Path(words[0])).load().modules
    slugs = [module.slug for module in modules]  # a label that was changed comes back from the evidence
    found = {
        module.slug: {
            "wall time": module.times.wall_time_s is not None,
            "peak memory": module.peak_memory_bytes is not None,
            "source lines": any(kernel.origin.source_lines for kernel in module.kernels),
            "kernels": bool(module.kernels),
        }
        for module in modules
        if slugs.count(module.slug) == 1
    }
    Path(words[1]).write_text(json.dumps(found))
    return 0

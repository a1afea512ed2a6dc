"""One damaged input: the command runs on it in a separate process, and what it did to the machine is looked at."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import io
import json
import os
import resource
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inductor_bench.cli.main import main
from inductor_bench.launch.worker import ImportedPackage, WorkerAnswer, WorkerPool
from inductor_bench.messages.job_requests import MachineFacts, SurveyMachine, WorkerJob
from inductor_bench.records.base import Failure
from inductor_bench.records.traced import OperatorCost
from inductor_bench.store.caches import load_peaks, peaks_key
from inductor_bench.store.folder import RunFolder

from .base import ENVIRONMENT

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

    cpu_s: int = 20
    wall_s: float = 900.0


LIMITS = Limits()


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, ``signal``, ``slow`` or ``hang``, and its CPU seconds."""

    outcome: str
    cpu_s: float
    number: int = 0


def execute(place: Path, words: Sequence[str], limits: Limits, command: Command = main) -> Ended:
    """Runs a command line in ``place/cwd``, with all that it may use for itself below ``place``, and ends it in time.

    It writes ``stdout``, ``stderr`` and, of one that crashed or was ended, ``stack`` in ``place``; ``started`` names
    processes that it would have started.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _become(place, limits, lambda: command(list(words)))
    with contextlib.suppress(OSError):
        os.setpgid(child, child)
    descriptor = os.pidfd_open(child)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        hung = not poll.poll(limits.wall_s * 1e3)
        if hung:
            os.kill(child, signal.SIGXCPU)  # writes its stack
            poll.poll(300)
    finally:
        os.close(descriptor)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        _, status, used = os.wait4(child, 0)
    cpu_s = used.ru_utime + used.ru_stime
    if hung:
        return Ended(HUNG, cpu_s)
    if os.WIFSIGNALED(status):
        return Ended(SLOW if cpu_s >= limits.cpu_s else SIGNAL, cpu_s, os.WTERMSIG(status))
    return Ended(str(os.waitstatus_to_exitcode(status)), cpu_s)


def _become(place: Path, limits: Limits, work: Callable[[], int]) -> None:
    """Turns this process into the command and ends it with the command's exit code."""
    code = 70
    try:
        _settle(place, limits)
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
    finally:
        os._exit(code)


def _settle(place: Path, limits: Limits) -> None:
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    for name, size in (("RLIMIT_AS", MEMORY_BYTES), ("RLIMIT_FSIZE", FILE_BYTES), ("RLIMIT_CORE", 0)):
        resource.setrlimit(getattr(resource, name), (size, size))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    folders = {"TMPDIR": "tmp", "HOME": "home", "XDG_CACHE_HOME": "xdg", "INDUCTOR_BENCH_CACHE": "cache"}
    os.environ.update({name: str(place / folder) for name, folder in folders.items()})
    os.environ["PWD"] = str(place / "cwd")
    os.environ.pop("COLUMNS", None)
    tempfile.tempdir = None
    os.chdir(place / "cwd")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(place / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        stream = io.TextIOWrapper(io.FileIO(number, "w", closefd=False), encoding="utf-8", line_buffering=number == 2)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    stack = (place / "stack").open("w")
    faulthandler.enable(stack)
    faulthandler.register(signal.SIGXCPU, stack)  # at the soft limit; at the hard one the kernel ends the process
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_s, limits.cpu_s + 1))
    started = os.open(place / "started", os.O_WRONLY | os.O_CREAT, 0o600)
    sys.addaudithook(lambda event, given: _refuse_process(event, given, started))
    WorkerPool.call = _stand_in  # type: ignore[method-assign,assignment]
    WorkerPool.get_ready = lambda pool, **_: None  # type: ignore[method-assign,assignment]
    WorkerPool.import_package = lambda pool, name, module="": ImportedPackage("1.0")  # type: ignore[method-assign]
    WorkerPool.is_python = lambda pool: True  # type: ignore[method-assign]
    _drop_privileges()


def _refuse_process(event: str, given: tuple[Any, ...], started: int) -> None:
    if event in STARTING:
        os.write(started, f"{event} {given[:2]!r}\n".encode(errors="replace"))
        raise PermissionError(1, f"{event}: no process is started while damaged inputs are tried")


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


def _stand_in(pool: WorkerPool, job: WorkerJob[Any], *, name: str, log: Path) -> WorkerAnswer[Any]:
    """Answers in the place of a worker, which would import torch: what the machine is, and no costs."""
    log.parent.mkdir(parents=True, exist_ok=True)
    log.touch()
    if not isinstance(job, SurveyMachine):
        return WorkerAnswer(None, Failure(job.verb, "exit", "no worker is started for damaged inputs", subject=name))
    peaks = load_peaks(peaks_key(ENVIRONMENT, job.device)) if job.peaks != "none" else None
    costs = tuple(OperatorCost(reason="not counted") for _ in job.calls)
    return WorkerAnswer(MachineFacts(ENVIRONMENT, costs, peaks), None)


def read_summary(place: Path, run: Path) -> dict[str, Any] | None:
    """What of a RUN's record must not be lost, by module, read in a separate process; ``None`` of one that cannot be
    read."""
    answer = place / "summary"
    ended = execute(place, (str(run), str(answer)), LIMITS, _write_summary)
    if ended.outcome != "0":
        return None
    found: dict[str, Any] = json.loads(answer.read_text())
    answer.unlink()
    return found


def _write_summary(words: list[str]) -> int:
    modules = RunFolder(Path(words[0])).load().modules
    labels = [module.label for module in modules]
    found = {
        module.label: {
            "wall time": module.times.wall_time_s is not None,
            "peak memory": module.peak_memory_bytes is not None,
            "source lines": any(kernel.origin.source_lines for kernel in module.kernels),
            "kernels": bool(module.kernels),
        }
        for module in modules
        if labels.count(module.label) == 1
    }
    Path(words[1]).write_text(json.dumps(found))
    return 0

"""A batch's executors: their interface, those of this machine's devices and of a Ray cluster, and each job's cores."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..devices.nvidia import VISIBLE_GPUS
from ..devices.table import find_device
from ..errors import InductorBenchError, UsageError
from ..store import codec
from ..store.folder import RunFolder, remove_run
from ..store.lock import TURN, WAITING
from .forking_worker import PipedProcess
from .process import ERROR_LINES, ChildProcess, ProcessResult, find_last_error, list_module_words
from .worker import COMPILE_THREADS, count_usable_cores, expose_package, join_paths, make_worker_environment

# The interface of a batch's executors: jobs and events.
#
# A job is a command of this tool that writes a RUN. An executor decides where and when a job runs, and reports its end.


ENTRY = list_module_words("inductor_bench")
"""The arguments with which an interpreter runs a job."""

OFFLINE = dict.fromkeys(
    ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE", "INDUCTOR_BENCH_OFFLINE"), "1"
)
"""Environment variables that forbid downloads during a batch."""


def is_host(device: str | None) -> bool:
    """Whether jobs on a device need all cores of the machine and no GPU; ``None`` is the best available device."""
    return find_device(device).runs_on_host


@dataclass(frozen=True)
class Job:
    """One attempt at a model."""

    name: str  # unique among the running jobs
    target: str  # the model, as ``breakdown`` takes it
    options: tuple[str, ...]  # the options of the verb
    arguments: tuple[str, ...]  # the arguments of the program, if the target is a script
    device: str | None  # ``cpu`` for a job that needs no GPU
    timeout_s: float | None  # limit of the whole job in seconds; ``None`` for no limit
    run: Path  # the paths of its RUN and of its output
    log: Path  # the paths of its RUN and of its output
    alone: bool = False  # whether no other job may share its device, even by turns
    # whether the job extends an existing RUN, which is its target; otherwise it makes the RUN
    goes_on: bool = False
    verb: str = "breakdown"  # the verb of its command

    def words(self, target: str, run: Path) -> list[str]:
        """Returns the arguments of ``inductor-bench`` for this job, with ``target`` and ``run`` as paths on its
        machine."""
        rest = ["--", *self.arguments] if self.arguments else []
        if self.goes_on:
            return [self.verb, str(run), *self.options]
        return [self.verb, target, *self.options, "-o", str(run), *rest]


@dataclass(frozen=True)
class JobBegan:
    """A job has started. ``device`` is ``cpu`` or a GPU's name, after ``HOST:`` on another machine."""

    name: str
    device: str


@dataclass(frozen=True)
class JobEnded:
    """A job has ended; its RUN and its log are in their places. ``shared``: whether another job used its device."""

    name: str
    result: ProcessResult
    shared: bool = False


@dataclass(frozen=True)
class JobLost:
    """The machine of a job is gone; the job itself did not fail."""

    name: str
    reason: str


Event = JobBegan | JobEnded | JobLost


# Divides the cores of a machine among the processes that compile and the process that is timed.


OMP_THREADS = "OMP_NUM_THREADS"
"""Environment variable: the number of threads of operators on the CPU."""

CORES_OF_A_JOB = 4
"""With fewer cores per device and job, compilation would take cores from the process that is timed."""

MOST_AT_ONCE = 4
"""Maximum number of jobs that overlap on a device. Each holds device memory, and its timing takes at least a fifth of
its duration."""

CORES_KEPT = 2
"""Cores of each device that are reserved for the process that is timed."""


def count_jobs_at_once(cores: int, devices: Sequence[str]) -> int:
    """The number of jobs that may overlap on each device; 1 on a CPU, where the timed model needs all cores."""
    if any(map(is_host, devices)):
        return 1
    return max(1, min(MOST_AT_ONCE, cores // len(devices) // CORES_OF_A_JOB))


def compile_threads(cores: int, devices: int, at_once: int) -> int | None:
    """Returns the number of compile threads with which a job leaves other jobs their cores; ``None`` for torch's
    choice."""
    share = cores // devices
    if at_once > 1:
        return max(1, (share - CORES_KEPT) // at_once)
    return max(1, share) if devices > 1 else None


@dataclass
class _Running:
    job: Job
    device: str
    child: ChildProcess
    waiting: Path
    begin_s: float
    checked_s: float
    waited_s: float = 0.0
    shared: bool = False

    def out_of_time(self) -> bool:
        """Whether its time limit has passed. The time in which it waited for its turn at the device does not count."""
        now_s = time.monotonic()
        if self.waiting.exists():
            self.waited_s += now_s - self.checked_s
        self.checked_s = now_s
        limit_s = self.job.timeout_s
        return limit_s is not None and now_s - self.begin_s - self.waited_s > limit_s


@dataclass
class LocalExecutor:
    """Runs ``at_once`` jobs on each device. Of several jobs on a device one is timed while the others compile."""

    devices: Sequence[str]  # GPUs, as ``CUDA_VISIBLE_DEVICES`` names them, or ``cpu``
    at_once: int  # the number of jobs that overlap on a device
    on_line: Callable[[str], None]  # called with each line that a job prints
    _work: Path = Path()
    _inherited: Sequence[int] = ()
    _running: list[_Running] = field(default_factory=list)
    _events: list[Event] = field(default_factory=list)

    @property
    def slots(self) -> int:
        """The number of jobs that can run at once."""
        return len(self.devices) * self.at_once

    def settle(self, work: Path, inherited: Sequence[int]) -> None:
        """Prepares the executor for jobs.

        Args:
            work: the folder for scratch files.
            inherited: descriptors that every process of a job holds open.
        """
        self._work, self._inherited = work, inherited

    def takes(self, job: Job) -> bool:
        """Whether the executor can start this job now."""
        return self._free_device(job) is not None

    def start(self, job: Job) -> None:
        """Starts a job.

        Raises:
            InductorBenchError: its process cannot be started.
        """
        device = self._free_device(job)
        assert device is not None, "start() was called without takes()"
        if not job.goes_on:
            remove_run(RunFolder(job.run))  # the RUN of an earlier attempt
        waiting = self._work / f"{job.name}.waiting"
        waiting.unlink(missing_ok=True)
        child = ChildProcess(
            [sys.executable, *ENTRY, *job.words(job.target, job.run)],
            environment=self._environment(device, waiting, job),
            log=job.log,
            on_line=self.on_line,
            inherited=self._inherited,
        )
        now = time.monotonic()
        running = _Running(job, device, child, waiting, now, now)
        for other in self._on(device):
            other.shared = running.shared = True
        self._running.append(running)
        self._events.append(JobBegan(job.name, device))

    def events(self) -> list[Event]:
        """Returns the events since the last call.

        Raises:
            InductorBenchError: no more jobs can run.
        """
        for running in [running for running in self._running if running.child.wait(0) or running.out_of_time()]:
            result = running.child.end(timed_out=not running.child.wait(0))
            self._running.remove(running)
            self._events.append(JobEnded(running.job.name, result, running.shared))
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Ends all running jobs. May be called again."""
        with contextlib.ExitStack() as ends:  # ends all jobs even if ending one is interrupted
            for running in self._running:
                ends.callback(running.child.end)

    def _on(self, device: str) -> list[_Running]:
        return [running for running in self._running if running.device == device]

    def _free_device(self, job: Job) -> str | None:
        """Returns the device with the fewest jobs among those with room for the job; ``None`` if none has room."""

        def has_room(device: str) -> bool:
            there = self._on(device)
            share = all(_divide_cores(one) for one in (job, *(running.job for running in there)))
            return len(there) < (self.at_once if share else 1)

        free = [device for device in self.devices if has_room(device)]
        return min(free, key=lambda device: len(self._on(device)), default=None)

    def _environment(self, device: str, waiting: Path, job: Job) -> dict[str, str]:
        path = join_paths(expose_package(self._work), os.environ.get("PYTHONPATH"))
        ours = {**OFFLINE, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
        environment: Mapping[str, str] = {**os.environ, **ours}
        if is_host(device):
            return dict(environment)
        turn = {
            TURN: str(self._work.resolve() / f"gpu-{device.replace('/', '-')}.turn"),
            WAITING: str(waiting.resolve()),
        }
        threads = compile_threads(count_usable_cores(), len(self.devices), self.at_once if _divide_cores(job) else 1)
        shared = (COMPILE_THREADS,) if is_host(job.device) else (COMPILE_THREADS, OMP_THREADS)
        share = {name: str(threads) for name in shared} if threads else {}
        return {
            **share,
            **environment,
            **(turn if self.at_once > 1 else {}),
            VISIBLE_GPUS: device,
        }


def _divide_cores(job: Job) -> bool:
    """Whether another job may compile while this one is timed. This is not so if the timed device is the CPU."""
    return not job.alone and not is_host(job.device)


# The messages between a batch, its connection to a cluster and a machine there (:mod:`.ray_cluster`).


@dataclass(frozen=True)
class Order:
    """The command that measures a model, for any machine: words, variables and time limit."""

    entry: tuple[str, ...]  # the arguments with which an interpreter runs a job
    words: tuple[str, ...]  # the command line, with ``{run}`` for the RUN's path
    variables: dict[str, str]  # environment variables
    timeout_s: float | None  # limit of the job in seconds; ``None`` for no limit


@dataclass(frozen=True)
class ClusterJob:
    """A job for the cluster. Paths are absolute, on the batch's machine."""

    name: str  # unique among the running jobs
    gpu: bool  # whether the job has a GPU; otherwise it has a whole machine
    program: str | None  # the path of its program, if it is a file
    goes_on: bool  # whether the job extends an existing RUN
    order: Order  # what a machine runs
    log: str  # the paths of its output and of its RUN
    run: str  # the paths of its output and of its RUN
    arriving: str  # the path at which the RUN's files are collected


@dataclass(frozen=True)
class JobEnd:
    """The end of a job's process: the fields of ``ProcessResult`` without the log."""

    exit_code: int | None
    signal_name: str | None
    timed_out: bool
    time_s: float


CONNECT_S = 20.0
"""Maximum seconds to wait for a cluster's answer."""

CLOSE_S = 15.0
"""Maximum seconds to wait for the end of Ray's process."""

ANY = "auto"
INSTALL = "pip install 'inductor-bench[ray]'"
START = "start one with `ray start --head`, or name it with --address HOST:PORT"

_SETTING = re.compile(r"(TORCHINDUCTOR|TORCHDYNAMO|TRITON|PYTORCH)_")


class RayExecutor:
    """Runs one job on each GPU of the cluster, or on each machine if all jobs are for the CPU.

    Args:
        address: the address of the cluster; empty for the cluster that Ray finds.
        on_line: called with each line that a job prints.

    Raises:
        UsageError: Ray is not installed, there is no cluster at the address, or it has another version.
    """

    def __init__(self, address: str, on_line: Callable[[str], None]) -> None:
        if importlib.util.find_spec("ray") is None:
            raise UsageError("--executor ray needs Ray, which is not installed", INSTALL, "missing-package")
        self._address, self._on_line = address or os.environ.get("RAY_ADDRESS") or ANY, on_line
        self._scratch = tempfile.TemporaryDirectory(prefix="inductor-bench-")
        self._work = Path()
        self._logs: dict[str, Path] = {}
        self._connected = False
        self.slots = 1
        self.gpus = 0
        folder = Path(self._scratch.name)
        self._child = PipedProcess(
            [sys.executable, *list_module_words(f"{__package__}.ray_cluster"), self._address, str(folder)],
            environment=make_worker_environment(folder, {**os.environ, "RAY_gcs_rpc_server_reconnect_timeout_s": "20"}),
            log=folder / "ray.log",
            guarded=False,  # when its pipes break it ends the jobs on other machines, and then itself
        )
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    def settle(self, work: Path, inherited: Sequence[int]) -> None:
        self._work = work

    def takes(self, job: Job) -> bool:
        return True  # Ray queues jobs

    def start(self, job: Job) -> None:
        file, _, function = job.target.rpartition(":") if ".py:" in job.target else (job.target, "", "")
        program = Path(file) if file.endswith(".py") else None
        target = job.target
        if program is not None:
            target = f"{program.name}{f':{function}' if function else ''}"
        message = ClusterJob(
            name=job.name,
            gpu=not is_host(job.device) and self.gpus > 0,
            program=str(program.absolute()) if program else None,
            goes_on=job.goes_on,
            order=Order(tuple(ENTRY), tuple(job.words(target, Path("{run}"))), _list_settings(), job.timeout_s),
            log=str(job.log.resolve()),
            run=str(job.run.resolve()),
            arriving=str((self._work / job.name).resolve()),
        )
        self._logs[job.name] = job.log
        line = json.dumps(codec.encode(message)).encode() + b"\n"
        requests = os.dup(self._child.requests.fileno())
        with contextlib.suppress(BrokenPipeError), os.fdopen(requests, "wb") as stream:
            stream.write(line)  # after a break, the next events() reports the reason

    def events(self) -> list[Event]:
        return [event for answer in self._read(0.0) if (event := self._understand(answer)) is not None]

    def close(self) -> None:
        try:
            self._child.close_requests()  # ends all jobs
            if self._connected:
                self._child.wait(CLOSE_S)
        finally:
            self._child.end()
            self._scratch.cleanup()

    def _connect(self) -> None:
        deadline = time.monotonic() + CONNECT_S
        while time.monotonic() < deadline:
            for answer in self._read(deadline - time.monotonic()):
                if answer["what"] == "refused":
                    message = " ".join(answer["message"].split())
                    raise UsageError(f"Ray finds no cluster at {self._called}: {message}", START, "no-cluster")
                self._understand(answer)
                self._connected = True
            if self._connected:
                return
        raise UsageError(f"no Ray cluster answers at {self._called} within {CONNECT_S:.0f} s", START, "no-cluster")

    @property
    def _called(self) -> str:
        return "any address" if self._address == ANY else self._address

    def _read(self, timeout_s: float) -> list[dict[str, Any]]:
        """Returns the answers that arrive within ``timeout_s`` seconds."""
        answers: list[dict[str, Any]] = []
        while line := self._child.read_answer(0.0 if answers else timeout_s):
            answers.append(json.loads(line))
        if line is None or answers:
            return answers
        self._child.wait(CLOSE_S)
        ended = self._child.end()
        why = find_last_error(ended.tail(ERROR_LINES)) or f"Ray's process {ended.outcome}"
        message = f"the Ray cluster does not answer any more: {why}"
        raise InductorBenchError(message, "the same command continues when the cluster answers again", "no-cluster")

    def _understand(self, answer: dict[str, Any]) -> Event | None:
        what = answer["what"]
        if what == "broken":
            raise InductorBenchError(answer["message"], answer["hint"], "no-cluster")
        if what == "machines":
            self.slots, self.gpus = answer["slots"], max(self.gpus, answer["gpus"])
        elif what == "output":
            for line in answer["lines"]:
                self._on_line(line)
        elif what == "began":
            return JobBegan(answer["name"], answer["device"])
        elif what == "lost":
            return JobLost(answer["name"], answer["reason"])
        elif what == "ended":
            return JobEnded(answer["name"], ProcessResult(**answer["result"], log=self._logs[answer["name"]]))
        return None


Executor = LocalExecutor | RayExecutor
"""Where jobs run. Both have the methods of :class:`LocalExecutor`, which documents them."""


def _list_settings() -> dict[str, str]:
    """Returns the variables of this process that configure torch's compiler, without paths, for a cluster's
    machines."""
    return {name: value for name, value in os.environ.items() if _SETTING.match(name) and os.sep not in value}

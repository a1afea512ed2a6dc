"""The session of the verb ``kernel``: its request, the worker that measures, and the compile pools."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ...autotune.candidates import NoCandidatesError
from ...autotune.compile_pool import COMPILE_S, LOAD_S, CompileJob, CompilePool
from ...autotune.timing_worker import Waiting, ask_worker
from ...devices.nvidia.architectures import Architecture
from ...devices.nvidia.device import NVIDIA
from ...devices.nvidia.visible import VISIBLE_GPUS, visible_gpus
from ...devices.table import device_of
from ...errors import InductorBenchError
from ...launch.cores import CORES_KEPT_FROM_A_RETUNE, most_timing_workers, usable_cores
from ...launch.diagnosis import last_error, remedy
from ...launch.interpreter import ANOTHER_PYTHON, NOT_PYTHON
from ...launch.session import WorkerLostError, WorkerSession
from ...launch.worker import WorkerPool
from ...messages.kernels import CompileTriton
from ...messages.machine import (
    COMPILES_TRITON,
    LAUNCH_GAP,
    LAUNCHES_TRITON,
    GetReady,
    Pretend,
    StartCompilers,
    TellArchitecture,
    TellEnvironment,
)
from ...messages.request import Answer, Request
from ...records.code.extraction import ExtractedKernel
from ...records.failure import NO_CANDIDATES
from ...records.run import Environment, Failure, Peaks
from ...source.standalone.recognition import holds_triton_kernel
from ...store.device_turn import TURN
from ...store.kernel_index import is_edited, rows_in
from ..options import KernelOptions
from ..progress import Progress
from .device_use import find_other_job
from .ncu import NsightCompute

MOST_COMPILE_WORKERS = 32
CANDIDATES_OF_KERNEL = 4
"""Least number of candidates that a kernel is expected to have."""

MEMORY_OF_A_WORKER = 16 << 30
"""Bytes of device memory for each of several workers that time on one device."""


@dataclass
class KernelSession:
    """The state that all files of a request share.

    Attributes:
        options: the request.
        pool: the interpreter, the scratch folder and the environment of the workers.
        progress: the listener for stages and output.
        environment: the environment of the worker that measures.
        peaks: the measured peaks, by the device.
        measuring: the workers that measure and time, by their number. Number 0 measures; it is there after
            :meth:`open`. The others share its device with it.
        readied: the numbers of the workers that have been asked to get ready.
        nsight: the reader of hardware counters, where the request asks for them.
        other_jobs: a description of the job that uses a device, by the device; empty where there is none.
        index_rows: the rows of a folder's kernel index, by the folder and the file.
        pools: the compile pools, by the device.
        architecture: the architecture of the GPU, once the worker that measures has told it.
        no_architecture: the failure of that request, once it has failed.
        numbers: yields numbers that no kernel has in the worker.
        began: the start of the budget on the monotonic clock, in seconds: that of the session, or of a later retune.
    """

    options: KernelOptions
    pool: WorkerPool
    progress: Progress
    environment: Environment = field(default_factory=Environment)
    peaks: dict[str, Peaks | None] = field(default_factory=dict)
    measuring: dict[int, WorkerSession] = field(default_factory=dict)
    readied: set[int] = field(default_factory=set)
    nsight: NsightCompute | None = None
    other_jobs: dict[str, str] = field(default_factory=dict)
    index_rows: dict[Path, dict[str | None, ExtractedKernel]] = field(default_factory=dict)
    pools: dict[str, CompilePool] = field(default_factory=dict)
    architecture: Architecture | None = None
    no_architecture: InductorBenchError | WorkerLostError | None = None
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    began: float = field(default_factory=time.monotonic)

    def start(self, name: str, **variables: str) -> WorkerSession:
        log = self.pool.folder / f"{name}.log"
        environment = {**self.pool.environment, **variables}
        return WorkerSession(self.pool.python, self.pool.folder, environment, log=log, on_line=self.pool.on_line)

    def open(self) -> None:
        """Starts the worker that measures, and reads its environment.

        Raises:
            InductorBenchError: the interpreter has no working torch.
        """
        self.progress.stage("looking at the machine")
        worker = self.measuring.get(0) or self._start_measuring(0)
        try:
            self.environment = worker.ask(TellEnvironment(), LOAD_S)
        except WorkerLostError as lost:
            said = last_error(lost.tail)
            if not said and not self.pool.is_python():
                raise InductorBenchError(NOT_PYTHON.format(python=self.pool.python), ANOTHER_PYTHON) from None
            raise InductorBenchError(said or f"the worker {lost.message}", remedy(said)) from None
        if self.options.ncu:
            self.nsight = NsightCompute(self.pool, self.environment, self.options.timeout_s)

    def find_other_jobs(self, device: str) -> str:
        """A description of the job that uses a device, as of the first measurement on the device.

        Raises:
            DeviceInUseError: another job uses the device, and the request does not insist.
        """
        if device not in self.other_jobs:
            on_host = device_of(device).runs_on_host
            self.other_jobs[device] = "" if on_host else find_other_job(self.ask, self.options.force)
        return self.other_jobs[device]

    def is_edited(self, file: Path) -> bool:
        """Whether a file was changed since ``extract`` wrote it."""
        folder = file.parent
        if folder not in self.index_rows:
            self.index_rows[folder] = {row.file: row for row in rows_in(folder)}
        row = self.index_rows[folder].get(file.name)
        return row is not None and is_edited(row, folder)

    def worker(self) -> WorkerSession:
        """The worker that measures; starts a new worker where the last was lost.

        A new worker is asked for its environment first, so that its start-up has a limit of its own.
        """
        if not self.has_worker(0):
            self._start_measuring(0).ask(TellEnvironment(), LOAD_S)
        return self.measuring[0]

    def has_worker(self, number: int) -> bool:
        """Whether the worker with a number is there."""
        return number in self.measuring and self.measuring[number].alive

    def _start_measuring(self, number: int) -> WorkerSession:
        """Starts a worker that takes turns at the device with the others."""
        folder = self.pool.folder.absolute()
        variables = {TURN: str(folder / "device-turn"), LAUNCH_GAP: str(folder / "launch-gap.json")}
        if number:  # the first worker is asked about the machine meanwhile
            variables[LAUNCHES_TRITON] = "1"
        worker = self.start(f"measure-{number}" if number else "measure", **variables)
        self.measuring[number] = worker
        return worker

    def ask(self, request: Request[Answer], limit_s: float) -> Answer:
        """Asks the worker that measures; ``options.timeout_s`` replaces the limit in seconds."""
        return self.worker().ask(request, self.options.timeout_s or limit_s)

    def timing_workers(
        self, kernels: int, devices: Collection[str], *, library: bool = False
    ) -> list[Callable[[], Waiting[WorkerSession]]]:
        """The workers that time, as the pipeline takes them: one for a CPU, and several that share a GPU.

        Args:
            kernels: the number of kernels.
            devices: the types of their devices, as far as they are known.
            library: whether library calls are among the kernels.
        """
        count = 1
        on_host = bool(devices) and all(device and device_of(device).runs_on_host for device in devices)
        if visible_gpus() and not on_host:
            memory = self.environment.device.accelerator_memory_bytes or 0
            count = max(1, min(most_timing_workers(usable_cores()), memory // MEMORY_OF_A_WORKER, kernels))
        ready: list[Request[Any]] = [StartCompilers(count)] if library and visible_gpus() else []
        if ready or any(device and not device_of(device).runs_on_host for device in devices):
            ready.append(GetReady())
            self._ask_ahead()
        return [partial(self._steps_to_worker, number, ready) for number in range(count)]

    def _ask_ahead(self) -> None:
        """Asks the first worker what it cannot be asked while it times. The measurement reports a failure."""
        with contextlib.suppress(InductorBenchError, WorkerLostError):
            self.find_other_jobs(NVIDIA.type)  # first: the driver's figures of the last second would include ours
        self.other_jobs.setdefault(NVIDIA.type, "")
        try:
            self._greeting()
        except (InductorBenchError, WorkerLostError) as error:
            self.no_architecture = error

    def _steps_to_worker(self, number: int, ready: Sequence[Request[Any]]) -> Waiting[WorkerSession]:
        """The steps to a worker that times. At its first call it gets ready; after a loss another is started."""
        requests: list[Request[Any]] = []
        if not self.has_worker(number):
            self._start_measuring(number)
            requests.append(TellEnvironment())
        if number not in self.readied:
            self.readied.add(number)
            requests += ready
        elif requests:  # the first kernel does the rest
            requests += [one for one in ready if isinstance(one, StartCompilers)]
        session = self.measuring[number]
        for request in requests:
            yield from ask_worker(session, request, max(self.options.timeout_s or LOAD_S, LOAD_S))
        return session

    def compile_pool(self, device: str) -> CompilePool:
        """The compile pool for a device. Its workers leave a GPU alone, and a core free; they have a low priority."""
        on_host = device_of(device).runs_on_host
        greeting = None if on_host else self._greeting()
        if device not in self.pools:
            self.pools[device] = self._make_pool(on_host)
        self.pools[device].greeting = greeting
        return self.pools[device]

    def _greeting(self) -> Pretend:
        if self.no_architecture is not None:
            raise self.no_architecture
        if self.architecture is None:
            limit_s = max(self.options.timeout_s or LOAD_S, LOAD_S)
            self.architecture = self.worker().ask(TellArchitecture(), limit_s)
        return Pretend(self.architecture)

    def _make_pool(self, on_host: bool) -> CompilePool:
        load_s, compile_s = self.options.timeout_s or LOAD_S, self.options.timeout_s or COMPILE_S
        if on_host:
            load_s = max(load_s, LOAD_S)  # these workers import torch when they load their first file
            return CompilePool(self.start, min(usable_cores(), MOST_COMPILE_WORKERS), load_s, compile_s)
        count = max(1, min(usable_cores() - CORES_KEPT_FROM_A_RETUNE, MOST_COMPILE_WORKERS))
        return CompilePool(self._start_without_gpu, count, load_s, compile_s)

    def start_ahead(self, files: Sequence[Path]) -> None:
        """Starts the workers that time and those that compile Triton kernels, so that they import torch together."""
        if not visible_gpus():
            return
        for number in range(min(most_timing_workers(usable_cores()), len(files))):
            self._start_measuring(number)
        if triton := sum(map(holds_triton_kernel, files)):
            pool = self.pools[NVIDIA.type] = self._make_pool(on_host=False)
            pool.start_workers(triton * CANDIDATES_OF_KERNEL)

    def compile_ahead(self, files: Sequence[Path]) -> None:
        """Compiles the Triton kernels among the files in parallel, into the cache of the worker that measures.

        Errors are ignored here, because the measurement of the same files reports them.
        """
        here = [file for file in files if holds_triton_kernel(file)] if self.environment.device.accelerator else []
        if not here:
            return
        self.progress.stage(f"compiling {len(here)} kernel{'s' * (len(here) != 1)}")
        jobs = [CompileJob(file, str(file.resolve()), partial(CompileTriton, read=False)) for file in here]
        with contextlib.suppress(InductorBenchError, WorkerLostError):
            self.find_other_jobs(NVIDIA.type)
            for _ in self.compile_pool(NVIDIA.type).compile(jobs, lambda: False):
                pass

    def _start_without_gpu(self, name: str) -> WorkerSession:
        return self.start(f"gpu-{name}", **{VISIBLE_GPUS: "", COMPILES_TRITON: "1"})

    def start_budget(self) -> None:
        """Starts the clock of the budget anew: the retune of a host's kernels, or after measurements, begins here."""
        self.began = time.monotonic()

    def left_s(self) -> float | None:
        """The seconds that are left of the budget; ``None`` without one."""
        return None if self.options.budget_s is None else self.options.budget_s - (time.monotonic() - self.began)

    def is_over(self) -> bool:
        """Whether the budget is spent."""
        left_s = self.left_s()
        return left_s is not None and left_s <= 0

    def close(self) -> None:
        with ThreadPoolExecutor(max(len(self.measuring), 1)) as threads:  # a worker takes a second to leave its GPU
            for worker in self.measuring.values():
                threads.submit(worker.close)
            for pool in self.pools.values():
                pool.end()


def failure_of(file: Path, error: InductorBenchError | WorkerLostError) -> Failure:
    """The failure of a file, with a hint."""
    if isinstance(error, WorkerLostError):
        message, hint = f"the worker {error.message}", _find_hint(error, file)
        return Failure("kernel", error.kind, message, hint, error.tail, str(file))
    kind = NO_CANDIDATES if isinstance(error, NoCandidatesError) else "invalid"
    return Failure("kernel", kind, error.message, error.hint or remedy(error.message), "", str(file))


def _find_hint(lost: WorkerLostError, file: Path) -> str:
    if lost.kind == "hung":
        return "give it more time with --timeout SECONDS"
    if "SIGKILL" in lost.message:
        return "it may have needed more memory than there is"
    return f"python {file} may say more"

"""What standalone files are measured with: the request, the worker that measures, and the compile pools."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ...autotune.compile_pool import COMPILE_S, LOAD_S, CompileJob, CompilePool
from ...devices.nvidia.device import NVIDIA
from ...devices.nvidia.visible import VISIBLE_GPUS
from ...devices.table import device_of
from ...errors import InductorBenchError
from ...launch.cores import usable_cores
from ...launch.diagnosis import last_error, remedy
from ...launch.session import WorkerLostError, WorkerSession
from ...launch.worker import WorkerPool
from ...messages.kernels import CompileTriton
from ...messages.machine import Pretend, TellArchitecture, TellEnvironment
from ...messages.request import Answer, Request
from ...records.code.extraction import ExtractedKernel
from ...records.run import Environment, Failure, Peaks
from ...source.standalone.recognition import holds_triton_kernel
from ...store.kernel_index import is_edited, rows_in
from ..progress import Progress
from .device_use import look_for_others
from .ncu import NsightCompute

MOST_COMPILE_WORKERS = 16


@dataclass(frozen=True)
class KernelOptions:
    """The request.

    Attributes:
        targets: standalone files, folders of them, or ``RUN#KERNEL``, where ``KERNEL`` may be a glob.
        autotune: ``max``, ``coordesc`` or ``exhaustive``; ``None`` to leave the kernels as they are.
        configs: whether all configurations that Inductor chooses from are timed, none of which wins.
        state: whether candidates are compared ``cold`` or ``warm``.
        budget_s: after which autotuning begins no further candidates, in seconds; ``None`` for no limit.
        save: where the winner is written as a standalone file; a folder where there are several kernels.
        check: whether outputs are compared with the reference in the file first.
        timeout_s: for each step of one kernel.
        python: the interpreter whose torch is used.
        ncu: whether Nsight Compute counts what each kernel does.
        force: whether a GPU is measured on that another job uses.
    """

    targets: tuple[str, ...]
    autotune: str | None = None
    state: str = "cold"
    budget_s: float | None = None
    save: Path | None = None
    check: bool = True
    timeout_s: float | None = None
    python: str | None = None
    ncu: bool = False
    force: bool = False
    configs: bool = False


@dataclass
class KernelSession:
    """What every file is measured with: the request, where workers start, and one that stays."""

    options: KernelOptions
    pool: WorkerPool
    progress: Progress
    environment: Environment = field(default_factory=Environment)
    peaks: dict[str, Peaks | None] = field(default_factory=dict)
    session: WorkerSession | None = None
    nsight: NsightCompute | None = None
    others: dict[str, str] = field(default_factory=dict)
    """What else uses a device, by its name; empty where nothing does."""
    rows: dict[Path, dict[str | None, ExtractedKernel]] = field(default_factory=dict)
    """Of each folder that was asked for, what is said of its files."""
    pools: dict[str, CompilePool] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    began: float = field(default_factory=time.monotonic)

    def start(self, name: str, **variables: str) -> WorkerSession:
        log = self.pool.folder / f"{name}.log"
        environment = {**self.pool.environment, **variables}
        return WorkerSession(self.pool.python, self.pool.folder, environment, log=log, on_line=self.pool.on_line)

    def look(self) -> None:
        """Starts the worker that measures, and takes down where it does.

        Raises:
            InductorBenchError: this interpreter has no torch that works.
        """
        self.progress.stage("looking at the machine")
        self.session = self.start("measure")
        try:
            self.environment = self.session.ask(TellEnvironment(), LOAD_S)
        except WorkerLostError as lost:
            said = last_error(lost.tail)
            raise InductorBenchError(said or f"the worker {lost.message}", remedy(said)) from None
        if self.options.ncu:
            self.nsight = NsightCompute(self.pool, self.environment, self.options.timeout_s)

    def others_on(self, device: str) -> str:
        """Which other job uses a device, asked before the first measurement there. Raises: DeviceInUseError."""
        if device not in self.others:
            on_host = device_of(device).runs_on_host
            self.others[device] = "" if on_host else look_for_others(self.ask, self.options.force)
        return self.others[device]

    def is_edited(self, file: Path) -> bool:
        """Whether a file was changed since it was written."""
        folder = file.parent
        if folder not in self.rows:
            self.rows[folder] = {row.file: row for row in rows_in(folder)}
        row = self.rows[folder].get(file.name)
        return row is not None and is_edited(row, folder)

    def worker(self) -> WorkerSession:
        """The worker that measures; a new one where it was lost, whose start is no part of what it is asked."""
        if self.session is None or not self.session.alive:
            self.session = self.start("measure")
            self.session.ask(TellEnvironment(), LOAD_S)
        return self.session

    def ask(self, request: Request[Answer], limit_s: float) -> Answer:
        """Asks the worker that measures; ``--timeout`` takes the place of the limit."""
        return self.worker().ask(request, self.options.timeout_s or limit_s)

    def compile_pool(self, device: str) -> CompilePool:
        """The workers that compile for a device: for a GPU they only pretend to have one, so that it is free."""
        if device not in self.pools:
            count = min(usable_cores(), MOST_COMPILE_WORKERS)
            load_s, compile_s = self.options.timeout_s or LOAD_S, self.options.timeout_s or COMPILE_S
            if device_of(device).runs_on_host:
                load_s = max(load_s, LOAD_S)  # torch is imported with the first file, which the other worker has loaded
                self.pools[device] = CompilePool(self.start, count, load_s, compile_s)
            else:
                architecture = self.worker().ask(TellArchitecture(), max(load_s, LOAD_S))
                greeting = Pretend(architecture)
                self.pools[device] = CompilePool(self._start_without_gpu, count, load_s, compile_s, greeting)
        return self.pools[device]

    def compile_ahead(self, files: Sequence[Path]) -> None:
        """Compiles the Triton kernels among files side by side, so that the worker that measures finds them compiled.

        What goes wrong with them is said where they are measured, and so is that another job uses the GPU.
        """
        here = [file for file in files if holds_triton_kernel(file)] if self.environment.accelerator else []
        if not here:
            return
        self.progress.stage(f"compiling {len(here)} kernel{'s' * (len(here) != 1)}")
        jobs = [CompileJob(file, str(file.resolve()), partial(CompileTriton, read=False)) for file in here]
        with contextlib.suppress(InductorBenchError, WorkerLostError):
            self.others_on(NVIDIA.type)
            for _ in self.compile_pool(NVIDIA.type).compile(jobs, lambda: False):
                pass

    def _start_without_gpu(self, name: str) -> WorkerSession:
        return self.start(f"gpu-{name}", **{VISIBLE_GPUS: ""})

    def start_budget(self) -> None:
        """From now on the budget is spent."""
        self.began = time.monotonic()

    def is_over(self) -> bool:
        """Whether the budget is spent."""
        return self.options.budget_s is not None and time.monotonic() - self.began > self.options.budget_s

    def close(self) -> None:
        for pool in self.pools.values():
            pool.end()
        if self.session is not None:
            self.session.close()


def failure_of(file: Path, error: InductorBenchError | WorkerLostError) -> Failure:
    """What went wrong with a file, and what to do."""
    if isinstance(error, WorkerLostError):
        message, hint = f"the worker {error.message}", _what_next(error, file)
        return Failure("kernel", error.kind, message, hint, error.tail, str(file))
    return Failure("kernel", "invalid", error.message, error.hint or remedy(error.message), "", str(file))


def _what_next(lost: WorkerLostError, file: Path) -> str:
    if lost.kind == "hung":
        return "give it more time with --timeout SECONDS"
    if "SIGKILL" in lost.message:
        return "it may have needed more memory than there is"
    return f"python {file} may say more"

"""Runs jobs on the devices of this machine, each in a separate process group that ends with this process."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..devices.nvidia import VISIBLE_GPUS
from ..store.folder import RunFolder, remove_run
from ..store.lock import TURN, WAITING
from . import executors
from .executors import (
    COMPILE_THREADS,
    OFFLINE,
    OMP_THREADS,
    Event,
    Job,
    JobBegan,
    JobEnded,
    compile_threads,
    is_host,
    usable_cores,
)
from .process import ChildProcess
from .worker import expose_package, join_paths


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
        """Whether its time limit has passed, without the time in which it waited for its turn at the device."""
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
        return len(self.devices) * self.at_once

    def settle(self, work: Path, inherited: Sequence[int]) -> None:
        self._work, self._inherited = work, inherited

    def takes(self, job: Job) -> bool:
        return self._free_device(job) is not None

    def start(self, job: Job) -> None:
        device = self._free_device(job)
        assert device is not None, "start() was called without takes()"
        if not job.goes_on:
            remove_run(RunFolder(job.run))  # the RUN of an earlier attempt
        waiting = self._work / f"{job.name}.waiting"
        waiting.unlink(missing_ok=True)
        child = ChildProcess(
            [sys.executable, *executors.ENTRY, *job.words(job.target, job.run)],
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
        for running in [running for running in self._running if running.child.wait(0) or running.out_of_time()]:
            result = running.child.end(timed_out=not running.child.wait(0))
            self._running.remove(running)
            self._events.append(JobEnded(running.job.name, result, running.shared))
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        with contextlib.ExitStack() as ends:  # ends all jobs even if ending one is interrupted
            for running in self._running:
                ends.callback(running.child.end)

    def _on(self, device: str) -> list[_Running]:
        return [running for running in self._running if running.device == device]

    def _free_device(self, job: Job) -> str | None:
        """Of the devices with room for the job the one with the fewest jobs; ``None`` if none has room."""

        def has_room(device: str) -> bool:
            there = self._on(device)
            share = all(_shares(one) for one in (job, *(running.job for running in there)))
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
        threads = compile_threads(usable_cores(), len(self.devices), self.at_once if _shares(job) else 1)
        shared = (COMPILE_THREADS,) if is_host(job.device) else (COMPILE_THREADS, OMP_THREADS)
        share = {name: str(threads) for name in shared} if threads else {}
        return {
            **share,
            **environment,
            **(turn if self.at_once > 1 else {}),
            VISIBLE_GPUS: device,
        }


def _shares(job: Job) -> bool:
    """Whether another job may compile while this one is timed; not if the timed device is the CPU."""
    return not job.alone and not is_host(job.device)

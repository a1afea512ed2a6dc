"""Times a call on the CPU: warm, with its data in the caches as the last call left them, and cold, without.

A sample is a window of at least a millisecond. Written data is restored between samples, outside of the timed windows.
"""

from __future__ import annotations

import functools
import glob
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .common import Arguments, copy_arguments, mutated_storages, restore, snapshot, summarize

WINDOW_S = 1e-3
SAMPLE_COUNT = 31
FEWEST_SAMPLES = 5
BUDGET_S = 1.0  # for each of warm and cold; the fewest samples are taken in any case
MOST_WAITING = 0.05
MOST_COPIES = 512
COPIES_LIMIT_BYTES = 2 << 30
UNKNOWN_CACHE_BYTES = 64 << 20
MOST_CACHE_BYTES = 1 << 30

Bind = Callable[[Arguments], Callable[[], Any]]


class BoundCpuCall:
    """One way to make the call: bound to the arguments and to each of their copies."""

    def __init__(self, runs: list[Callable[[], Any]]) -> None:
        self.runs = runs
        self.batch = 1  # calls in a warm window


class CpuTimer:
    """Takes samples of calls with the arguments of one recorded launch, which all ways to make the call share.

    Args:
        launch: the encoded ``Launch``.
        arguments: made for it.
        bind: turns arguments into a call that takes nothing; tells how many copies a cold sample needs.
    """

    def __init__(self, launch: dict[str, Any], arguments: Arguments, bind: Bind) -> None:
        written = mutated_storages(launch)
        self.saved = snapshot(arguments, written)
        first = BoundCpuCall([bind(arguments)])
        first.runs[0]()
        estimate = self._fill_window(first, arguments)
        footprint = max(sum(storage.numel() for storage in arguments.storages), 1)
        count = min(math.ceil(WINDOW_S / max(estimate, 1e-7)), MOST_COPIES, COPIES_LIMIT_BYTES // footprint)
        self.copies = [arguments, *(copy_arguments(launch, arguments, "cpu") for _ in range(count - 1))]
        _evict()
        singles = sorted(_window(bind(copy), 1) for copy in self.copies)
        # No longer than needed: on a busy machine a long window is sure to be interrupted.
        del self.copies[math.ceil(WINDOW_S / max(singles[len(singles) // 4], 1e-7)) :]
        self.restore()

    def bind(self, bind: Bind) -> BoundCpuCall:
        """Another way to make the call."""
        return BoundCpuCall([bind(copy) for copy in self.copies])

    def warm(self, call: BoundCpuCall) -> float:
        """Seconds of a call whose data lie where the one before left them."""
        if call.batch == 1:
            self._fill_window(call, self.copies[0])
        restore(self.copies[0], self.saved)
        call.runs[0]()
        return _window(call.runs[0], call.batch) / call.batch

    def cold(self, call: BoundCpuCall) -> float:
        """Seconds of a call that meets a copy of the arguments that left the caches before."""
        elapsed, calls = 0.0, 0
        while elapsed < WINDOW_S:
            self.restore()
            _evict()
            before = time.perf_counter()
            for run in call.runs:
                run()
            elapsed, calls = elapsed + time.perf_counter() - before, calls + len(call.runs)
        return elapsed / calls

    def restore(self) -> None:
        """Puts back what calls have written."""
        for copy in self.copies:
            restore(copy, self.saved)

    def _fill_window(self, call: BoundCpuCall, arguments: Arguments) -> float:
        """Finds how many calls fill a window; returns the seconds of one, roughly."""
        run, elapsed = call.runs[0], _window(call.runs[0], 1)
        while elapsed < WINDOW_S:
            call.batch = max(2 * call.batch, math.ceil(call.batch * WINDOW_S / max(elapsed, 1e-7)))
            restore(arguments, self.saved)
            run()
            elapsed = _window(run, call.batch)
        return elapsed / call.batch


def measure_cpu(launch: dict[str, Any], arguments: Arguments, bind: Bind) -> dict[str, Any]:
    """The time of a call in seconds: ``{"cold": …, "warm": …, "method": …}``, each with ``median_s``, ``low_s`` and
    ``high_s`` (10 and 90%), ``min_s`` and the number of ``samples``.

    Args:
        launch: the encoded ``Launch``.
        arguments: made for it.
        bind: turns arguments into the call to be timed, which takes nothing.
    """
    timer = CpuTimer(launch, arguments, bind)
    call = timer.bind(bind)
    began, waited = time.perf_counter(), waited_seconds()
    warm, cold = _samples(timer.warm, call), _samples(timer.cold, call)
    waiting = (waited_seconds() - waited) / (time.perf_counter() - began)
    timer.restore()
    method = describe_method(len(timer.copies), waiting)
    return {"cold": summarize(cold), "warm": summarize(warm), "method": method}


def describe_method(copies: int, waiting: float) -> str:
    """How the times of this process come about, and whether the machine is too busy for them.

    ``waiting`` is how many of its threads waited for a processor, on average, while they could have run.
    """
    method = f"{torch.get_num_threads()} threads; cold: {copies} copies in turn, evicted before"
    if waiting > MOST_WAITING:
        return f"{method}; unreliable: the machine is busy, threads waited for a CPU {waiting:.0%} of the time"
    processors, load = os.cpu_count() or 1, os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > 1.5 * processors:  # a parallel call waits for the last of its threads, which waits for a processor
        method += f"; unreliable: the machine is busy, load {load:.1f} on {processors} CPUs"
    return method


def waited_seconds() -> float:
    """How long the threads of this process could have run and did not, so far; 0 if Linux does not tell."""
    waited = 0
    for path in glob.glob("/proc/self/task/*/schedstat"):
        facts = _read_fact(os.path.dirname(path), "schedstat").split()
        waited += int(facts[1]) if len(facts) > 1 else 0
    return waited / 1e9


def _samples(sample: Callable[[BoundCpuCall], float], call: BoundCpuCall) -> list[float]:
    samples: list[float] = []
    started = time.perf_counter()
    while _wants_more(samples, started):
        samples.append(sample(call))
    return samples


def _window(run: Callable[[], Any], batch: int) -> float:
    before = time.perf_counter()
    for _ in range(batch):
        run()
    return time.perf_counter() - before


def _wants_more(samples: Sequence[float], started: float) -> bool:
    if len(samples) < FEWEST_SAMPLES:
        return True
    return len(samples) < SAMPLE_COUNT and time.perf_counter() - started < BUDGET_S


def _evict() -> None:
    """Reads so much that the caches hold nothing else."""
    _evictor().sum()


@functools.cache
def _evictor() -> torch.Tensor:
    """Three times the caches, 3 GiB at most. All timers of a process share it: its pages take seconds to make."""
    cache = min(last_level_cache_bytes() or UNKNOWN_CACHE_BYTES, MOST_CACHE_BYTES)
    return torch.ones(3 * cache // 8, dtype=torch.int64)


def last_level_cache_bytes(folder: str = "/sys/devices/system/cpu") -> int | None:
    """The bytes of all last-level caches that this process can use together; ``None`` if the system does not say."""
    found: dict[tuple[int, str], int] = {}
    for cpu in sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else ():
        for index in glob.glob(f"{folder}/cpu{cpu}/cache/index*"):
            facts = {name: _read_fact(index, name) for name in ("type", "level", "size", "shared_cpu_list")}
            if facts["type"] != "Instruction" and facts["level"].isdigit() and facts["size"][:-1].isdigit():
                unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(facts["size"][-1], 1)
                found[int(facts["level"]), facts["shared_cpu_list"]] = int(facts["size"][:-1]) * unit
    last = max((level for level, _ in found), default=0)
    return sum(size for (level, _), size in found.items() if level == last) or None


def _read_fact(folder: str, name: str) -> str:
    try:
        with open(os.path.join(folder, name)) as stream:
            return stream.read().strip()
    except OSError:
        return ""

"""Divides the cores of a machine among the processes that compile and the process that is timed."""

from __future__ import annotations

import os
from collections.abc import Sequence

from .jobs import is_host

COMPILE_THREADS = "TORCHINDUCTOR_COMPILE_THREADS"

OMP_THREADS = "OMP_NUM_THREADS"
"""Environment variable: the number of threads of operators on the CPU."""

CORES_OF_A_JOB = 4
"""Cores per device and job below which compiling would take cores from the process that is timed."""

MOST_AT_ONCE = 4
"""Maximum number of jobs that overlap on a device. Each holds device memory, and its timing takes at least a fifth of
its duration."""

CORES_OF_A_TIMER = 4
MOST_TIMERS = 3
"""Cores for each of the workers that time candidates on one device in turn, and their maximum number."""

CORES_KEPT_FROM_A_RETUNE = 1
"""Cores that are reserved for the parent of a retune. Its workers that time go before those that compile, which have a
low priority."""

CORES_KEPT = 2
"""Cores of each device that are reserved for the process that is timed."""


def jobs_at_once(cores: int, devices: Sequence[str]) -> int:
    """The number of jobs that may overlap on each device; 1 on a CPU, where the timed model needs all cores."""
    if any(map(is_host, devices)):
        return 1
    return max(1, min(MOST_AT_ONCE, cores // len(devices) // CORES_OF_A_JOB))


def compile_threads(cores: int, devices: int, at_once: int) -> int | None:
    """The number of compile threads of a job that leaves other jobs their cores; ``None`` for torch's choice."""
    share = cores // devices
    if at_once > 1:
        return max(1, (share - CORES_KEPT) // at_once)
    return max(1, share) if devices > 1 else None


def most_timing_workers(cores: int) -> int:
    """Maximum number of workers that share a device to time candidates: the others load while one of them times."""
    return max(1, min(MOST_TIMERS, cores // CORES_OF_A_TIMER))


def cores_of_this_process() -> int:
    """The number of cores that this process may use; its share of them where other jobs compile at the same time."""
    share = os.environ.get(COMPILE_THREADS, "")
    return min(usable_cores(), int(share)) if share.isdecimal() and int(share) else usable_cores()


def usable_cores() -> int:
    return len(os.sched_getaffinity(0))

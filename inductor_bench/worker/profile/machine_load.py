"""Measures how much other processes delay this one, from the system's counters before and after runs (Linux)."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

from inductor_bench.records.code.details import MachineLoad

from ..processor import usable_cpus

STOLEN = 8
"""Column of ``/proc/stat`` with the time that the hypervisor gave to other machines."""


@dataclass(frozen=True)
class Counters:
    """Readings of counters that only grow, with times in seconds; ``None`` where the system has no such counter."""

    time_s: float
    cpu_time_s: float
    waited_s: float | None
    stolen_s: float | None
    switches: int


def read_counters() -> Counters:
    """The counters of this process, all threads together, and of the processors that it may use."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu_time_s = usage.ru_utime + usage.ru_stime
    return Counters(time.perf_counter(), cpu_time_s, _waited_s(), _stolen_s(), usage.ru_nivcsw)


def load_since(begin: Counters, runs: int) -> MachineLoad:
    """The load of the machine during ``runs`` runs since ``begin``."""
    end = read_counters()
    load = None
    with contextlib.suppress(OSError):
        load = os.getloadavg()[0]
    return MachineLoad(
        runs=runs,
        cores=len(usable_cpus()),
        load=load,
        time_s=end.time_s - begin.time_s,
        cpu_time_s=end.cpu_time_s - begin.cpu_time_s,
        waited_s=_growth(begin.waited_s, end.waited_s),
        stolen_s=_growth(begin.stolen_s, end.stolen_s),
        switches=end.switches - begin.switches,
    )


def _growth(begin: float | None, end: float | None) -> float | None:
    """The growth of a counter; not below 0, because the counts of a thread disappear when it ends."""
    return None if begin is None or end is None else max(0.0, end - begin)


def _waited_s() -> float | None:
    """The time in seconds that runnable threads of this process waited for a CPU."""
    total = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # the thread has ended
            total += int(path.read_text().split()[1])
    return total / 1e9 or None


def _stolen_s() -> float | None:
    mine = {f"cpu{number}" for number in usable_cpus()}
    try:
        lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
        return sum(int(words[STOLEN]) for words in lines if words and words[0] in mine) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError):
        return None

"""How long each phase of a worker's job took."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

STARTING = "starting"
"""The phase before the job's first line: the start of its process, and its imports."""

_START = 19
"""Place of a process's start in ``/proc/self/stat`` after the name, in ticks since the machine's boot."""


class Phases:
    """The seconds of each phase of a job, from the start of its process on."""

    def __init__(self) -> None:
        self.times_s: dict[str, float] = {}
        self._began_s = time.monotonic() - _age_s()
        self.end(STARTING)

    def end(self, name: str) -> None:
        """Ends a phase, and begins the next one."""
        now_s = time.monotonic()
        self.times_s[name], self._began_s = round(now_s - self._began_s, 3), now_s


def _age_s() -> float:
    """The seconds since the start of this process, also of one that is a fork of another (Linux); else 0."""
    with suppress(OSError, ValueError, IndexError, AttributeError):
        ticks = int(Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[_START])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    return 0.0

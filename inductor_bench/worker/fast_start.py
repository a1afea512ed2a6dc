"""A fast start of a worker: torch imported without garbage collection, bytecode that is kept, and times of phases."""

from __future__ import annotations

import gc
import importlib.util
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..store.caches import find_cache_folder
from ..store.files import ensure_private_folder

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
    """Returns the seconds since the start of this process, or of this fork (Linux); else 0."""
    with suppress(OSError, ValueError, IndexError, AttributeError):
        ticks = int(Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[_START])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    return 0.0


# Imports of torch without Python's garbage collector, which takes a seventh of their time.


@contextmanager
def without_collection() -> Iterator[None]:
    """Pauses the garbage collector: imports make a million objects, which all stay."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


# Keeps the bytecode of a worker's imports if the interpreter would otherwise compile the modules again in each process.
#
# Images are often built without bytecode, and with ``PYTHONDONTWRITEBYTECODE`` set. In such a container image, each
# process spends at least 5 s on the imports of torch and its compiler, and a retune on 16 cores starts 16 processes.


def keep_bytecode(package: str = "torch") -> None:
    """Writes bytecode to the tool's cache, and reads it there, if ``package`` has no bytecode and would get none.

    Processes that this one starts do the same. Bytecode is executed, so the cache is made a folder that only its owner
    can write. If that is impossible, nothing changes.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.cached is None or os.path.exists(spec.cached):
        return
    folder = find_cache_folder().absolute() / "bytecode"  # a program may change its folder
    is_missing = sys.dont_write_bytecode or not _is_writable(Path(spec.cached).parent)
    if is_missing and ensure_private_folder(folder, forbidden_bits=0o022):
        sys.pycache_prefix, sys.dont_write_bytecode = str(folder), False
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def _is_writable(folder: Path) -> bool:
    return os.access(folder if folder.exists() else folder.parent, os.W_OK)

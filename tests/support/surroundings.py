"""What of the user's surroundings no test shall depend on: settings in variables, what lies in the home folder, and
the size of the processor's caches."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

OURS = ("INDUCTOR_BENCH_GPU_RUN", "INDUCTOR_BENCH_PYTHON", "INDUCTOR_BENCH_BASE_PYTHON")
"""The variables that are for the tests and scripts themselves."""

FAMILIES = ("INDUCTOR_BENCH_", "TORCH", "TRITON_", "XDG_", "HF_", "MPL", "OMP_NUM_", "MKL_NUM_", "RAY_", "RICH_")
SETTINGS = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TERM", "PAGER")


def settle(variables: MutableMapping[str, str], folder: str) -> None:
    """Removes the user's settings of the tool, torch, plots and terminal, and makes an empty folder the home.

    What decides how torch computes (``ATEN_CPU_CAPABILITY``), the locale and the time zone stay: the suite has to pass
    under any of them.
    """
    for name in list(variables):
        if name not in OURS and (name in SETTINGS or name.startswith(FAMILIES)):
            del variables[name]
    variables["HOME"] = os.path.join(folder, "home")
    os.makedirs(variables["HOME"], exist_ok=True)


def shrink_caches(folder: str) -> None:
    """Makes this process, and its forks, find a last-level cache of 4 MiB. Memory of several times the caches is
    written and read for cold calls and for peaks: of a host of many cores that is 1.5 GB each time."""
    index = Path(folder, "small-cache")
    if not index.exists():
        part = Path(f"{index}.{os.getpid()}")
        part.mkdir()
        for name, text in (("type", "Unified"), ("level", "3"), ("size", "4096K"), ("shared_cpu_list", "0")):
            (part / name).write_text(text)
        with contextlib.suppress(OSError):  # another process was first
            part.rename(index)
    everything = glob.glob

    def find(pattern: str, **how: Any) -> list[str]:
        is_cache = isinstance(pattern, str) and pattern.startswith("/sys/devices/system/cpu/") and "/cache/" in pattern
        return [str(index)] if is_cache else everything(pattern, **how)

    glob.glob = find

"""Makes standalone files of small C++ kernels and runs the verb ``kernel`` on them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from breakdown_runs import Done, command, forks, run, scratch
from gather_kernel import SOURCE, gather_text

from inductor_bench.records.base import Category

LOOP = "for (int64_t i = 0; i < ks0; i++)"
HEADERS = ("cmath", "cstdint", "omp.h", "unistd.h")
LEAN = SOURCE.replace("#include <torch/csrc/inductor/cpp_prefix.h>", "\n".join(f"#include <{one}>" for one in HEADERS))
"""The kernel without torch's headers, which compiles in a fraction of the time."""
MARK = "A_MARK_OF_THIS_TEST"


def compiler_cache() -> dict[str, str]:
    """Returns variables for a shared compiler cache. It precompiles no headers, which would take longer."""
    return {**shared_cache(), "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}


def shared_cache() -> dict[str, str]:
    return {"TORCHINDUCTOR_CACHE_DIR": str(scratch() / "kernel-files-cache")}


def kernel(*arguments: str | Path, cwd: Path | None = None, **variables: str) -> Done:
    return run(command("kernel", *arguments), scratch(), cwd=cwd, **(compiler_cache() | forks() | variables))


def measured(*arguments: str | Path, **variables: str) -> tuple[Done, dict[str, Any]]:
    done = kernel(*arguments, "--format", "json", "-q", **variables)
    return done, json.loads(done.stdout, parse_constant=pytest.fail)


def gather(folder: Path, name: str = "gather", source: str = LEAN, **recorded: Any) -> Path:
    """Writes the standalone file of a kernel that gathers rows."""
    path = folder / f"{name}.py"
    path.write_text(gather_text(source, category=Category.CPP.value, **recorded))
    return path


def changed(path: Path, old: str, new: str) -> Path:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


ENDED_S = 600.0
"""Seconds that what ends by itself, such as a guardian, has on a busy machine."""


def left_over(mark: str) -> list[str]:
    """Returns the commands of processes whose variable ``MARK`` has this value, and that do not end by themselves."""
    end_s = time.monotonic() + ENDED_S
    while (found := running(mark)) and time.monotonic() < end_s:
        time.sleep(0.05)
    return found


def running(mark: str) -> list[str]:
    """Returns the commands of running processes whose variable ``MARK`` has this value."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found

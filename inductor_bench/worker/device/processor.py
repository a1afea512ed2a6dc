"""Describes the processor of this machine: its name, the usable CPUs, its vector instructions and its memory."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from pathlib import Path

import torch

TOOL_LIMIT_S = 10.0


def cpu_name() -> str:
    """The processor's model name, or its architecture if the name is unknown."""
    for text in (_read("/proc/cpuinfo"), output_of("lscpu"), output_of("sysctl", "machdep.cpu.brand_string")):
        for line in text.splitlines():
            key, _, value = line.partition(":")
            if key.strip().lower() in ("model name", "machdep.cpu.brand_string") and value.strip(" -\t"):
                return value.strip()
    return platform.processor() or platform.machine()


def usable_cpus() -> tuple[int, ...]:
    """The numbers of the CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def clock_hz() -> float | None:
    """The lowest clock of the usable CPUs in Hz, as the kernel reports it now; ``None`` if it does not."""
    usable = set(usable_cpus())
    clocks: list[float] = []
    number = -1
    for line in _read("/proc/cpuinfo").splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        if key == "processor":
            number = int(value) if value.isdecimal() else -1
        elif key == "cpu MHz" and number in usable:
            with contextlib.suppress(ValueError):
                clocks.append(1e6 * float(value))
    return min(clocks, default=None)


def vector_isa() -> str:
    """The vector instructions that torch's kernels use here, for example ``avx512``; ``default`` for none.

    They follow from ``ATEN_CPU_CAPABILITY`` and the processor. Inductor's ``pick_vec_isa`` follows from the same, but
    is not used here, because it compiles and loads test programs first, which takes seconds.
    """
    return torch.backends.cpu.get_cpu_capability().lower()


def memory_bytes() -> int | None:
    """The size of the machine's memory in bytes; ``None`` if it is unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def output_of(*command: str) -> str:
    """The standard output of a system tool; empty if the tool is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_LIMIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""

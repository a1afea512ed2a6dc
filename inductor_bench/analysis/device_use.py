"""Describes the use of a GPU by another job, which would disturb the measured times."""

from __future__ import annotations

from collections.abc import Iterator

from .. import units
from ..records.device_use import DeviceUse, OtherProcess

BUSY = 0.1
"""Utilization (0 to 1) from which a GPU counts as used by another job."""

HELD_BYTES = 2 << 30
"""Allocated memory in bytes from which a GPU counts as used; an idle GPU with one context of this tool holds less."""

MOST_NAMED = 3
"""Largest number of processes that are named."""


def describe_use(use: DeviceUse) -> str:
    """Returns ``another job uses GPU 0: pid 1234 python, 34 GB, 97% busy``, or an empty string for an idle GPU."""
    busy, held = use.busy or 0.0, use.held_bytes or 0
    if not use.processes and busy < BUSY and held < HELD_BYTES:
        return ""
    gpu = "the GPU" if use.gpu is None else f"GPU {use.gpu}"
    return f"another job uses {gpu}: {', '.join(_describe_processes(use))}"


def _describe_processes(use: DeviceUse) -> Iterator[str]:
    for process in use.processes[:MOST_NAMED]:
        yield _describe_process(process)
    if len(use.processes) > MOST_NAMED:
        yield f"{len(use.processes) - MOST_NAMED} more"
    if not use.processes and use.held_bytes:
        yield f"{units.size(use.held_bytes)} taken"
    if use.busy is not None:
        yield f"{units.whole_percent(use.busy)} busy"


def _describe_process(process: OtherProcess) -> str:
    who = f"pid {process.pid} {process.name}".rstrip()
    return f"{who}, {units.size(process.memory_bytes)}" if process.memory_bytes else who

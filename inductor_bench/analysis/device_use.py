"""Whether another job uses a GPU, so that its times and ours would be mixed."""

from __future__ import annotations

from collections.abc import Iterator

from .. import units
from ..records.device_use import DeviceUse, OtherProcess

BUSY = 0.1
HELD_BYTES = 2 << 30
"""More than an idle GPU and a context of our own take."""

MOST_NAMED = 3


def describe_use(use: DeviceUse) -> str:
    """``another job uses GPU 0: pid 1234 python, 34 GB, 97% busy``; empty where none does."""
    busy, held = use.busy or 0.0, use.held_bytes or 0
    if not use.processes and busy < BUSY and held < HELD_BYTES:
        return ""
    gpu = "the GPU" if use.gpu is None else f"GPU {use.gpu}"
    return f"another job uses {gpu}: {', '.join(_signs(use))}"


def _signs(use: DeviceUse) -> Iterator[str]:
    for process in use.processes[:MOST_NAMED]:
        yield _named(process)
    if len(use.processes) > MOST_NAMED:
        yield f"{len(use.processes) - MOST_NAMED} more"
    if not use.processes and use.held_bytes:
        yield f"{units.size(use.held_bytes)} taken"
    if use.busy is not None:
        yield f"{units.whole_percent(use.busy)} busy"


def _named(process: OtherProcess) -> str:
    who = f"pid {process.pid} {process.name}".rstrip()
    return f"{who}, {units.size(process.memory_bytes)}" if process.memory_bytes else who

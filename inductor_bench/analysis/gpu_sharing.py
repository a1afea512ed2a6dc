"""Whether other programs worked on the GPU while the steps of one were measured, and the words for it."""

from __future__ import annotations

import math

from .. import units
from ..records.evidence import GpuSharing
from ..records.run import IDLE, QUEUED, OtherWork, RankSteps
from .roofline import HELD_BYTES

UNNAMED_BUSY = 0.25
"""If the driver's busy share of the GPU exceeds this program's busy share by this much, unnamed programs used the GPU.
The driver may count gaps between kernels as busy; the profile does not."""


def list_named_work(sharing: GpuSharing | None) -> OtherWork | None:
    """What other processes did on the GPU, if the driver tells the processes apart; else ``None``."""
    if sharing is None or not sharing.others_share:
        return None
    return OtherWork(sharing.others_share, tuple(one for one in sharing.others if one.busy))


def find_other_work(steps: RankSteps, sharing: GpuSharing | None, *, alone: bool) -> OtherWork | None:
    """What other programs did on the GPU of a process during its steps; ``None`` if nothing shows that they did.

    If the driver does not tell the processes apart, the GPU has to be busy for longer than with this program, by its
    profile, and somebody else has to hold memory on it.

    Args:
        steps: the step of the process.
        sharing: what the driver said meanwhile.
        alone: whether the program has no other process that makes steps, which may share the GPU with it.
    """
    if (named := list_named_work(sharing)) is not None:
        return named
    if sharing is None or sharing.busy is None or steps.busy_time_s is None or not alone:
        return None
    queued_s = math.fsum(part.time_s for part in steps.parts if part.kind == IDLE and part.label == QUEUED)
    unnamed = sharing.busy - max((steps.busy_time_s + queued_s) / steps.step_time_s, sharing.own_busy or 0.0)
    unknown = tuple(one for one in sharing.others if one.busy is None)
    if unnamed < UNNAMED_BUSY or not (unknown or (sharing.held_bytes or 0) >= HELD_BYTES):
        return None
    return OtherWork(unnamed, unknown)


MOST_PROCESSES = 3
"""Largest number of other processes that are named."""


def describe_other_work(work: OtherWork, when: str) -> str:
    """``another process used the GPU during these steps (python, pid 1234, 35% of the time)``."""
    many = len(work.processes) > 1
    named = [f"{one.name}, pid {one.pid}".removeprefix(", ") for one in work.processes[:MOST_PROCESSES]]
    if len(work.processes) > MOST_PROCESSES:
        named.append(f"{len(work.processes) - MOST_PROCESSES} more")
    who = f"{len(work.processes)} other processes" if many else "another process"
    words = ("; " if many else ", ").join([*named, f"{units.whole_percent(work.share)} of the time"])
    return f"{who} used the GPU during {when} ({words})"

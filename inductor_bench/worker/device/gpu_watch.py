"""Asks the driver about a GPU while the steps of a program are measured: its clock, and what other programs do on it.

Programs on one GPU have it in turn: the profile of each shows the GPU idle while kernels of another one run.
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

from ...messages.observed import PROCESS_MARK
from ...records.base import OtherProcess
from ...records.evidence import ClockSample, GpuSharing
from .machine import Driver, find_parents, name_of, own_bytes

CLOCKS_S = 0.1
"""Seconds between two readings of a GPU's clock."""

MARK_DIGITS = 32
"""Number of hexadecimal digits of one mark in ``PROCESS_MARK``."""


class GpuWatch:
    """Reads the clock of a GPU in the steps, and between the parts of their measurement how it is shared.

    Without a driver it reads nothing. Neither waits for the GPU.
    """

    def __init__(self) -> None:
        self.clocks: list[ClockSample] = []
        self.next_clock_s = math.inf
        """The time on the host's clock at which reading the GPU's clock begins."""
        self._driver: Driver | None = None
        self._begin_us = self._steady_us = 0

    def use(self, driver: Driver | None) -> None:
        """Asks this driver from now on."""
        self._driver = driver
        self.next_clock_s = math.inf if driver is None else 0.0

    def restart(self) -> None:
        """Forgets the clocks: other steps have the same numbers from now on."""
        self.clocks = []

    def begin(self) -> None:
        """The steps that are measured begin here."""
        self._begin_us = self._steady_us = time.time_ns() // 1000

    def begin_window(self) -> None:
        """The timed window begins here: from now on nothing of the observation lies between the steps."""
        self._steady_us = time.time_ns() // 1000
        self._begin_us = self._begin_us or self._steady_us

    def read_clock(self, number: int, arrived_s: float) -> None:
        """Reads the clock in the step of this number, at most every :data:`CLOCKS_S` seconds."""
        assert self._driver is not None
        mhz = self._driver.clock_mhz()
        self.next_clock_s = math.inf if mhz is None else arrived_s + CLOCKS_S
        if mhz is not None:
            self.clocks.append(ClockSample(number, mhz, self._driver.throttles()))

    def sharing(self) -> GpuSharing | None:
        """How the GPU was shared since the steps began; ``None`` without a driver, and before."""
        if self._driver is None or not self._begin_us:
            return None
        return find_sharing(self._driver, self._begin_us, self._steady_us)


def find_sharing(driver: Driver, begin_us: int, steady_us: int) -> GpuSharing:
    """What the driver says of all processes on a GPU.

    Ids of processes count if this process is among them: else they are those of another container.

    Args:
        driver: the driver's view of the GPU.
        begin_us: the begin of the time in which other processes count, in microseconds since the epoch.
        steady_us: the begin of the time in which this program only made steps.
    """
    shares, busy = driver.busy_by_process(begin_us), driver.busy_since(steady_us)
    held = {one.pid: one.memory_bytes for one in driver.compute_processes()}
    pids, used = dict.fromkeys((*(shares or {}), *held)), driver.used_bytes()
    if os.getpid() not in pids:
        pids, shares, held = {}, None, {}
    family = {pid for pid in pids if is_family(pid)}
    others = (
        OtherProcess(pid, name_of(pid), held.get(pid), None if shares is None else shares.get(pid, 0.0))
        for pid in pids
        if pid not in family
    )
    named = sum(size or 0 for pid, size in held.items() if pid != os.getpid())
    own = held.get(os.getpid()) or own_bytes()
    return GpuSharing(
        others=tuple(sorted(others, key=lambda one: -(one.busy or 0.0))),
        own_busy=None if shares is None else math.fsum(shares.get(pid, 0.0) for pid in family),
        busy=busy,
        held_bytes=None if used is None else max(used - driver.drawing_bytes() - named - own, 0),
    )


def is_family(pid: int) -> bool:
    """Whether a process belongs to this program, or is one that the same process of this tool started."""
    own = os.getpid()
    line = (pid, *find_parents(pid))
    mark = os.environ.get(PROCESS_MARK, "")[-2 * MARK_DIGITS :][:MARK_DIGITS]
    return own in line or (bool(mark) and any(mark in _find_mark(one) for one in line))


def _find_mark(pid: int) -> str:
    """The mark of a process; empty if it has none, or belongs to another user."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    begin = f"{PROCESS_MARK}=".encode()
    return next((one[len(begin) :].decode(errors="replace") for one in variables if one.startswith(begin)), "")

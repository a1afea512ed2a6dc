"""Whether other jobs use the GPU that this process is about to measure on, and how its clock goes while it does."""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from inductor_bench.records.device_use import DeviceUse, OtherProcess

from .nvml import Driver

LOOKS = 4
BETWEEN_LOOKS_S = 0.1
BETWEEN_CLOCKS_S = 0.02
FEWEST_CLOCKS = 6
RISEN = 0.95
HELD_BACK = 0.97
"""Of the highest clock: below it, a limit costs more than a measurement is unsure by."""

IDLE = 0x1
THROTTLES = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal limit",
    0x40: "thermal limit",
    0x80: "power brake",
}
"""By NVML's bits. Others are no trouble: the clock that the GPU has when idle, or that its owner chose."""


def find_use(driver: Driver, pause: Callable[[float], None] = time.sleep) -> DeviceUse:
    """What others do on the GPU while this process and those of the same parent let it idle.

    A program that calls this tool from Python may hold memory there; it waits meanwhile.
    """
    shares = []
    for _ in range(LOOKS):
        pause(BETWEEN_LOOKS_S)
        shares.append(driver.busy())
    known = [share for share in shares if share is not None]
    used = driver.used_bytes()
    processes, callers = driver.compute_processes(), set(_line_of(os.getpid()))
    waiting = [each for each in processes if each.pid in callers]
    others = [each for each in processes if each not in waiting and os.getppid() not in _line_of(each.pid)]
    ours = _own_bytes() + sum(each.memory_bytes or 0 for each in waiting)
    return DeviceUse(
        gpu=driver.number(),
        processes=tuple(OtherProcess(each.pid, _name_of(each.pid), each.memory_bytes) for each in others),
        busy=statistics.median(known) if known else None,
        held_bytes=None if used is None else max(used - driver.drawing_bytes() - ours, 0),
    )


def _line_of(pid: int) -> Iterator[int]:
    """The parents of a process, as far as they can be seen."""
    while pid > 1:
        try:
            status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return
        pid = int(status.rpartition(")")[2].split()[1])
        yield pid


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _own_bytes() -> int:
    torch: Any = sys.modules.get("torch")
    return int(torch.cuda.memory_reserved()) if torch is not None and torch.cuda.is_initialized() else 0


class Clock(NamedTuple):
    """The clock of the multiprocessors at one moment, and what kept it from being higher, as NVML's bits."""

    mhz: int
    limits: int


class ClockWatch:
    """Reads the clock of a GPU every few milliseconds, on a thread of its own, while something is measured.

    Args:
        driver: of that GPU; without one nothing is read.
    """

    def __init__(self, driver: Driver | None) -> None:
        self._driver, self._over = driver, threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self.clocks: list[Clock] = []
        self.highest_mhz = driver.highest_clock_mhz() if driver is not None else None

    def __enter__(self) -> ClockWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _read(self) -> None:
        while self._driver is not None:
            mhz = self._driver.clock_mhz()
            if mhz is None:
                return
            self.clocks.append(Clock(mhz, self._driver.clock_limits()))
            if self._over.wait(BETWEEN_CLOCKS_S):
                return


def describe_clocks(clocks: Sequence[Clock], highest_mhz: int | None = None) -> dict[str, Any]:
    """``clock_mhz``, ``clock_change`` from the first to the last third, and ``throttled``, the limits that were met.

    A limit is met that held the clock back half of the time. At nearly the highest clock it is no trouble;
    ``highest_mhz`` is the GPU's, where it is known. What was read before the clock had risen does not count: arguments
    were being made, and little was run.
    """
    working = [clock for clock in clocks if not clock.limits & IDLE]
    if not working:
        return {}
    usual = statistics.median(clock.mhz for clock in working)
    risen = next(index for index, clock in enumerate(working) if clock.mhz >= RISEN * usual)
    steady = working[risen:]
    highest = max([highest_mhz or 0, *(clock.mhz for clock in steady)])
    slow = [clock for clock in steady if clock.mhz < HELD_BACK * highest]
    met = [name for bit, name in THROTTLES.items() if 2 * sum(bool(one.limits & bit) for one in slow) >= len(steady)]
    found = {"clock_mhz": statistics.median(clock.mhz for clock in steady), "throttled": list(dict.fromkeys(met))}
    third = len(steady) // 3
    if len(steady) >= FEWEST_CLOCKS:
        first, last = (statistics.median(clock.mhz for clock in part) for part in (steady[:third], steady[-third:]))
        found["clock_change"] = last / first - 1
    return found

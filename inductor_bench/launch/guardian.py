"""Ends what a process of this tool started once that process is gone, however it ended: ``python guardian.py MARK``.

Standard input is the reading end of a pipe whose other end only that process holds, so that it breaks even after
SIGKILL. The guardian runs as a file and imports next to nothing, because the tool starts one before its first child.
"""

from __future__ import annotations

import os
import signal
import sys
import time

VARIABLE = "INDUCTOR_BENCH_PROCESS"
"""The environment variable that holds the marks of whoever started a process, each after that of its own parent."""

GRACE_S = 1.0
"""Seconds from SIGTERM to SIGKILL."""

LOOKS, BETWEEN_S = 6, 0.05
"""Consecutive scans that must find no process: a process has its environment some milliseconds after its start."""

LIMIT_S = 10.0
"""Seconds to wait for processes that were sent SIGKILL and are still in a system call."""

DEAF_TO = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT)


def main(mark: str) -> None:
    for number in DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 1):
        pass
    end_family(mark)


def end_family(mark: str) -> None:
    """Ends every process that bears a mark, and whatever these start meanwhile."""
    begin_s, quiet = time.monotonic(), 0
    told: set[int] = set()
    while quiet < LOOKS and time.monotonic() - begin_s < LIMIT_S:
        bearing, starting = look(processes(), mark)
        quiet = 0 if bearing or starting else quiet + 1
        impatient = time.monotonic() - begin_s > GRACE_S
        for pid in bearing if impatient else set(bearing) - told:
            send(pid, signal.SIGKILL if impatient else signal.SIGTERM)
        told.update(bearing)
        time.sleep(BETWEEN_S)


def processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def look(pids: list[int], mark: str) -> tuple[list[int], list[int]]:
    """Those that bear the mark, and those of which nobody can tell yet."""
    bearing, starting = [], []
    for pid in pids:
        environment = read(pid, "environ")
        entries = environment.split(b"\0")
        if any(mark.encode() in entry for entry in entries if entry.startswith(VARIABLE.encode() + b"=")):
            bearing.append(pid)
        elif not environment and is_starting(pid):
            starting.append(pid)
    return bearing, starting


def is_starting(pid: int) -> bool:
    """Whether it is within ``exec``: it has its program already, but neither arguments nor environment yet. A zombie
    and a thread of the kernel have no program either."""
    try:
        return bool(os.readlink(f"/proc/{pid}/exe")) and not read(pid, "cmdline")
    except OSError:
        return False


def read(pid: int, what: str) -> bytes:
    """A file that the kernel shows of a process; empty where it shows nothing, or not to this user."""
    try:
        with open(f"/proc/{pid}/{what}", "rb") as stream:
            return stream.read()
    except OSError:
        return b""


def send(pid: int, number: signal.Signals) -> None:
    """Sends a signal to a process, and to its group where it leads one, for members with another environment."""
    try:
        (os.killpg if os.getpgid(pid) == pid else os.kill)(pid, number)
    except (ProcessLookupError, PermissionError):
        return


if __name__ == "__main__":
    main(sys.argv[1])

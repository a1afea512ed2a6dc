"""Ends the descendants of a process of this tool after its end, even after SIGKILL: ``python guardian.py MARK``.

Standard input is the reading end of a pipe whose writing end only that process holds, so that it breaks at the end of
the process. The guardian runs as a file with few imports, because the tool starts it before its first child.
"""

from __future__ import annotations

import os
import signal
import sys
import time

VARIABLE = "INDUCTOR_BENCH_PROCESS"
"""Environment variable: the marks of a process's ancestors and its own, the oldest first, joined without separator."""

GRACE_S = 1.0
"""Seconds from SIGTERM to SIGKILL."""

SCANS, BETWEEN_S = 6, 0.05
"""Number of consecutive scans that must find no process, and the seconds between them. A process has its environment
some milliseconds after its start."""

LIMIT_S = 10.0
"""Seconds to wait for processes that were sent SIGKILL and are still in a system call."""

IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT)


def main(mark: str) -> None:
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 1):
        pass
    end_family(mark)


def end_family(mark: str) -> None:
    """Ends every process with a mark, and the processes that they start meanwhile: SIGTERM first, SIGKILL later."""
    begin_s, quiet_scans = time.monotonic(), 0
    signalled: set[int] = set()
    while quiet_scans < SCANS and time.monotonic() - begin_s < LIMIT_S:
        marked, starting = scan(processes(), mark)
        quiet_scans = 0 if marked or starting else quiet_scans + 1
        kill = time.monotonic() - begin_s > GRACE_S
        for pid in marked if kill else set(marked) - signalled:
            send(pid, signal.SIGKILL if kill else signal.SIGTERM)
        signalled.update(marked)
        time.sleep(BETWEEN_S)


def processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def scan(pids: list[int], mark: str) -> tuple[list[int], list[int]]:
    """The processes with the mark, and the processes that have no environment yet."""
    marked, starting = [], []
    for pid in pids:
        environment = read(pid, "environ")
        entries = environment.split(b"\0")
        if any(mark.encode() in entry for entry in entries if entry.startswith(VARIABLE.encode() + b"=")):
            marked.append(pid)
        elif not environment and is_starting(pid):
            starting.append(pid)
    return marked, starting


def is_starting(pid: int) -> bool:
    """Whether a process is within ``exec``: it has a program, but no arguments and no environment yet.

    A zombie and a thread of the kernel have no program.
    """
    try:
        return bool(os.readlink(f"/proc/{pid}/exe")) and not read(pid, "cmdline")
    except OSError:
        return False


def read(pid: int, name: str) -> bytes:
    """The file ``name`` of a process in ``/proc``; empty where it is gone, or this user may not read it."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as stream:
            return stream.read()
    except OSError:
        return b""


def send(pid: int, number: signal.Signals) -> None:
    """Sends a signal to a process; to its whole group where it leads one, because members may lack the mark."""
    try:
        (os.killpg if os.getpgid(pid) == pid else os.kill)(pid, number)
    except (ProcessLookupError, PermissionError):
        return


if __name__ == "__main__":
    main(sys.argv[1])

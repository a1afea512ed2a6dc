"""Ends the descendants of a process of this tool after its end, even after SIGKILL: ``python guardian.py MARK``.

Standard input is the reading end of a pipe whose writing end only that process holds, so that it breaks at the end of
the process. The guardian runs as a file with few imports, because the tool starts it before its first child.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Set

VARIABLE = "INDUCTOR_BENCH_PROCESS"
"""Environment variable: the marks of a process's ancestors and its own, the oldest first, joined without separator."""

NAME = VARIABLE.encode() + b"="

GRACE_S = 1.0
"""Seconds from SIGTERM to SIGKILL."""

SCANS, BETWEEN_S = 6, 0.05
"""Number of consecutive scans that must find no process, and the seconds between them. A process has its environment
some milliseconds after its start."""

LIMIT_S = 10.0
"""Seconds to wait for processes that were sent SIGKILL and are still in a system call."""

IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT)


Process = tuple[int, str]
"""A process: its id and its start time, which differs from that of a later process with the same id."""


def main(mark: str) -> None:
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 1):
        pass
    end_family(mark)


def end_family(mark: str) -> None:
    """Ends every process with a mark, and processes that they start meanwhile: first by SIGTERM, later by SIGKILL."""
    begin_s, quiet_scans = time.monotonic(), 0
    signalled: set[Process] = set()
    while quiet_scans < SCANS and time.monotonic() - begin_s < LIMIT_S:
        family, starting = find_marked(list_processes(), mark, signalled)
        quiet_scans = 0 if family or starting else quiet_scans + 1
        kill = time.monotonic() - begin_s > GRACE_S
        for process in family if kill else family - signalled:
            send_signal(process[0], signal.SIGKILL if kill else signal.SIGTERM)
        signalled |= family
        time.sleep(BETWEEN_S)


def list_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def find_marked(pids: list[int], mark: str, known: Set[Process]) -> tuple[set[Process], list[int]]:
    """Finds the processes that belong to a mark: those with it, the ``known`` ones, and the descendants of both.

    A process that cleared its environment has no mark. After the end of its parent, only a caller that has seen it
    before knows that it belongs to the family.

    Args:
        pids: the processes to look at.
        mark: the mark, in a variable of a process.
        known: processes that were found before.

    Returns:
        The processes, and the ids of those that have no environment yet.
    """
    family: set[Process] = set()
    starting: list[int] = []
    children: dict[int, list[Process]] = {}
    for pid in pids:
        parent, began = read_status(pid)
        if not began:
            continue
        process = pid, began
        children.setdefault(parent, []).append(process)
        environment = read_process_file(pid, "environ")
        entries = environment.split(b"\0")
        if process in known or any(mark.encode() in entry for entry in entries if entry.startswith(NAME)):
            family.add(process)
        elif not environment and is_starting(pid):
            starting.append(pid)
    new = [*family, *(process for process in known if read_status(process[0])[1] == process[1])]
    while new:
        new = [child for pid, _ in new for child in children.get(pid, ()) if child not in family]
        family.update(new)
    return family, starting


def read_status(pid: int) -> tuple[int, str]:
    """Returns the parent of a process and its start time; 0 and an empty text if the process has ended."""
    fields = read_process_file(pid, "stat").rpartition(b")")[2].split()  # the name before it may hold anything
    if len(fields) < 20 or fields[0] in b"ZX":
        return 0, ""
    return int(fields[1]), fields[19].decode()


def is_starting(pid: int) -> bool:
    """Whether a process is within ``exec``: it has a program, but no arguments and no environment yet.

    A zombie and a thread of the kernel have no program.
    """
    try:
        return bool(os.readlink(f"/proc/{pid}/exe")) and not read_process_file(pid, "cmdline")
    except OSError:
        return False


def read_process_file(pid: int, name: str) -> bytes:
    """Returns the file ``name`` of a process in ``/proc``; empty if it is gone, or this user may not read it."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as stream:
            return stream.read()
    except OSError:
        return b""


def send_signal(pid: int, number: signal.Signals) -> None:
    """Sends a signal to a process; to its whole group if it leads one, because members may lack the mark."""
    try:
        (os.killpg if os.getpgid(pid) == pid else os.kill)(pid, number)
    except (ProcessLookupError, PermissionError):
        return


if __name__ == "__main__":
    main(sys.argv[1])

"""The marks of processes: an environment variable by which this process finds and ends all of its descendants.

A program may start processes in separate sessions, which no group signal reaches, and may end before them. Then only
their environment shows who started them.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Set

import psutil

from ..errors import InductorBenchError
from . import guardian

MARK = guardian.VARIABLE
"""Environment variable: the mark of a process. It contains the marks of all its ancestors."""

END_S = 3.0
"""Seconds to wait for a process to be gone after SIGKILL."""

ROUNDS = 3
"""Maximum number of passes: a process may start another one while it is being ended."""

READS, BETWEEN_READS_S = 100, 0.01
"""Maximum number of reads of an environment, and the seconds between them. A starting process has no environment for
some milliseconds on a busy machine."""

_WHOLE_MARK = re.compile(r"[0-9a-f]{32,}")


class _Family:
    """The children of this process, and the guardian that ends them after the end of this process."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._members: set[str] = set()
        self._guardian: subprocess.Popen[bytes] | None = None
        self._lifeline = -1

    def add(self, mark: str) -> None:
        with self._lock:
            if self._guardian is None:
                self._start_guardian()
            self._members.add(mark)

    def remove(self, mark: str) -> None:
        with self._lock:
            self._members.discard(mark)

    def _start_guardian(self) -> None:
        reading, self._lifeline = os.pipe()
        try:
            self._guardian = subprocess.Popen(
                [sys.executable, "-I", "-S", guardian.__file__, self.mark],
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            os.close(self._lifeline)
            raise InductorBenchError(
                f"cannot start {sys.executable}: {error.strerror or error}", name="cannot-start"
            ) from error
        finally:
            os.close(reading)
        atexit.register(self._dismiss_guardian)

    def _dismiss_guardian(self) -> None:
        """Ends the guardian at a regular exit, when no child is left."""
        if self._guardian is not None and not self._members:
            self._guardian.kill()
            self._guardian.wait()

    def leave(self) -> None:
        """In a fork of this process: closes the pipe. The guardian stays with the parent."""
        atexit.unregister(self._dismiss_guardian)
        if self._guardian is not None:
            os.close(self._lifeline)
            self._guardian.returncode = 0  # prevents Popen from waiting for it


_family = _Family()


def _reset_family() -> None:
    global _family
    _family.leave()
    _family = _Family()


os.register_at_fork(after_in_child=_reset_family)


def find_tool_mark() -> str:
    """Returns the mark of this process, a hexadecimal number, which the marks of its children contain."""
    return _family.mark


def mark_child(environment: Mapping[str, str], *, guarded: bool = True) -> str:
    """Makes a mark for a child that is about to start; :func:`forget_child` revokes it.

    Args:
        environment: the environment of the child, which may hold marks of this process's ancestors.
        guarded: whether the guardian ends the child after the end of this process.

    Raises:
        InductorBenchError: the guardian cannot be started.
    """
    outer, own = environment.get(MARK, ""), uuid.uuid4().hex
    if not guarded:
        return outer + own
    mark = outer + find_tool_mark() + own
    _family.add(mark)
    return mark


def forget_child(mark: str) -> None:
    """Revokes a mark after the end of all processes with it."""
    _family.remove(mark)


def end_marked(mark: str, known: Set[guardian.Process] = frozenset()) -> None:
    """Ends by SIGKILL every process whose mark contains this one, the ``known`` processes, and all their descendants.

    A text that is no mark ends none.
    """
    if not _WHOLE_MARK.fullmatch(mark):
        return
    for _ in range(ROUNDS):
        family = []
        for pid, _ in find_family(mark, known):
            with contextlib.suppress(psutil.Error):
                family.append(psutil.Process(pid))
        if not family:
            return
        for process in family:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(family, timeout=END_S)


def find_family(mark: str, known: Set[guardian.Process] = frozenset()) -> set[guardian.Process]:
    """Returns the processes whose mark contains this one, the running ``known`` processes, and all their
    descendants."""
    family, unread = guardian.find_marked(guardian.list_processes(), mark, known)
    for _ in range(READS):
        if not unread:
            break
        time.sleep(BETWEEN_READS_S)
        more, unread = guardian.find_marked(unread, mark, family)
        family |= more
    return family

"""The marks of processes: by them everything that this process started, and what these started, is found and ended.

A program may start processes in sessions of their own, which no group signal reaches, and die before them, after which
nothing but their environment tells whose they are.
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
from collections.abc import Mapping

import psutil

from ..errors import InductorBenchError
from . import guardian

MARK = guardian.VARIABLE
"""Marks everything that one child started, and what these started: its value contains that of the child."""

END_S = 3.0
"""Seconds to wait for a process to be gone after SIGKILL."""

ROUNDS = 3
"""What is being ended may start something at that moment."""

READS, BETWEEN_READS_S = 100, 0.01
"""Of an environment that is not there yet: a process that starts has it after some milliseconds on a busy machine."""


_WHOLE_MARK = re.compile(r"[0-9a-f]{32,}")


class _Family:
    """What this process has started, and the guardian that ends it when this process cannot any more."""

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
            raise InductorBenchError(f"cannot start {sys.executable}: {error.strerror or error}") from error
        finally:
            os.close(reading)
        atexit.register(self._dismiss_guardian)

    def _dismiss_guardian(self) -> None:
        """At a regular end no process is left to be ended."""
        if self._guardian is not None and not self._members:
            self._guardian.kill()
            self._guardian.wait()

    def leave(self) -> None:
        """Has a fork of this process hold the pipe open no longer, and leave the guardian to its parent."""
        atexit.unregister(self._dismiss_guardian)
        if self._guardian is not None:
            os.close(self._lifeline)
            self._guardian.returncode = 0  # otherwise Popen would wait for it


_family = _Family()


def _begin_anew() -> None:
    global _family
    _family.leave()
    _family = _Family()


os.register_at_fork(after_in_child=_begin_anew)


def tool_mark() -> str:
    """What the marks of all that this process starts contain: a hexadecimal number, new for each process."""
    return _family.mark


def mark_child(environment: Mapping[str, str], *, guarded: bool = True) -> str:
    """A new mark for a child that is about to start; :func:`forget_child` takes it back.

    Args:
        environment: of the child, which may hold the mark of whoever started this process.
        guarded: whether it is ended when this process is gone, however that ended.

    Raises:
        InductorBenchError: the guardian that sees to it cannot be started.
    """
    outer, own = environment.get(MARK, ""), uuid.uuid4().hex
    if not guarded:
        return outer + own
    mark = outer + tool_mark() + own
    _family.add(mark)
    return mark


def forget_child(mark: str) -> None:
    """Takes note that everything with this mark is gone."""
    _family.remove(mark)


def end_marked(mark: str) -> None:
    """Ends every process whose mark contains this one, with SIGKILL. A text that is no mark ends none."""
    if not _WHOLE_MARK.fullmatch(mark):
        return
    for _ in range(ROUNDS):
        strays = _marked(mark)
        if not strays:
            return
        for process in strays:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(strays, timeout=END_S)


def _marked(mark: str) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    unread = guardian.processes()
    for _ in range(READS):
        bearing, unread = guardian.look(unread, mark)
        for pid in bearing:
            with contextlib.suppress(psutil.Error):
                found.append(psutil.Process(pid))
        if not unread:
            break
        time.sleep(BETWEEN_READS_S)
    return found

"""Turns at a device that several processes share: one process at a time uses it.

An environment variable names the file that the sharing processes lock; without it the device is not shared. The system
releases the lock of a process that ends in any way.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

TURN = "INDUCTOR_BENCH_DEVICE_TURN"
"""Environment variable: the file that all processes of one device lock."""

WAITING = "INDUCTOR_BENCH_DEVICE_WAITING"
"""Environment variable: a file that exists while this process waits for its turn."""


class DeviceTurn:
    """The turns of one process, configured by its environment. As a context manager it is one turn.

    Attributes:
        on_wait: called with ``True`` before a wait for the turn, and with ``False`` after it.
    """

    def __init__(self) -> None:
        self.on_wait: Callable[[bool], None] = lambda waits: None
        self._path, self._waiting = os.environ.get(TURN), os.environ.get(WAITING)
        self._lock: int | None = None

    def __enter__(self) -> DeviceTurn:
        self.take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_up()

    @property
    def is_shared(self) -> bool:
        """Whether other processes may share the device."""
        return self._path is not None

    @property
    def held(self) -> bool:
        return self._lock is not None

    def take(self) -> None:
        """Waits until no other process uses the device. Does nothing while this process has the turn."""
        if self._path is None or self._lock is not None:
            return
        lock = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            self._wait(lock)
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock

    def give_up(self) -> None:
        """Releases the device for other processes. All work that this process started on it must be over."""
        lock, self._lock = self._lock, None
        if lock is not None:
            fcntl.flock(lock, fcntl.LOCK_UN)  # releases it also for forks of this process that have it open
            os.close(lock)

    def _wait(self, lock: int) -> None:
        marker = Path(self._waiting) if self._waiting else None
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if marker is not None:
                    marker.touch()
                self.on_wait(True)
                fcntl.flock(lock, fcntl.LOCK_EX)
                self.on_wait(False)
        finally:
            if marker is not None:
                marker.unlink(missing_ok=True)  # may be that of an earlier process, killed while it waited

"""Taking turns at a device: of the processes that share one, a single one uses it at a time.

Which processes those are is said by an environment variable; without it there is nobody to share with. The turn is a
lock on a file, which the system gives up for a process that ends, however it does.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

TURN = "INDUCTOR_BENCH_DEVICE_TURN"
"""Names the file that all processes of one device lock."""

WAITING = "INDUCTOR_BENCH_DEVICE_WAITING"
"""Names the file that is there while this process waits for its turn."""


class DeviceTurn:
    """The turns of one process, as its environment says. As a context manager it is one turn."""

    def __init__(self) -> None:
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
        """Whether there may be others."""
        return self._path is not None

    @property
    def held(self) -> bool:
        return self._lock is not None

    def take(self) -> None:
        """Waits until no other process uses the device. Nothing happens where it is ours already."""
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
        """Lets others use the device. What was started on it must be over."""
        lock, self._lock = self._lock, None
        if lock is not None:
            fcntl.flock(lock, fcntl.LOCK_UN)  # for processes too that were forked meanwhile and have it open
            os.close(lock)

    def _wait(self, lock: int) -> None:
        marker = Path(self._waiting) if self._waiting else None
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if marker is not None:
                    marker.touch()
                fcntl.flock(lock, fcntl.LOCK_EX)
        finally:
            if marker is not None:
                marker.unlink(missing_ok=True)  # also one of a process of this model that was killed while it waited

"""Locks: one command at a time writes a folder, and one process at a time uses a device."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from ..errors import ANOTHER_FOLDER, FREE_SPACE, UnwritableError, UsageError
from ..interruption import uninterrupted

# The lock of a folder: one command at a time writes it.
#
# The lock is a system lock on a file in the folder, so that it ends with its holder's process. The file names the
# holder. It remains only if the holder was killed.


LOCK = ".lock"
PATIENCE_S = 20.0
"""Seconds to wait for the end of the processes that a killed command started."""

_LONGEST = 4096
_OWNER = re.compile(r"(\d{1,10})(?: ([0-9a-f]{32,}))?\n")
"""A process id and its mark. Another user may have written the file, and a short mark would match other processes."""


@dataclass(frozen=True)
class FolderLock:
    """A lock that this process holds."""

    descriptor: int  # the descriptor of the lock; a process that inherits it holds the lock too
    left: str = ""  # the mark of the processes of an earlier holder that was killed; empty if there was none


@contextlib.contextmanager
def hold_lock(folder: Path, mark: str = "") -> Iterator[FolderLock]:
    """Holds the lock of a folder in the block.

    Args:
        folder: an existing folder.
        mark: the mark of the processes that this process starts; the next holder reads it after a kill.

    Raises:
        UsageError: another command holds the lock; the message names its process.
        UnwritableError: the folder cannot be written, or its file system has no locks.
    """
    path = folder / LOCK
    descriptor = _take(path)
    try:
        owner = _read(descriptor)
        _sign(descriptor, path, mark)
        yield FolderLock(descriptor, owner.mark)
    finally:
        with uninterrupted():
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(descriptor)


def is_locked(folder: Path) -> bool:
    """Whether a running command holds the lock of the folder."""
    try:
        with (folder / LOCK).open() as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@dataclass(frozen=True)
class _Owner:
    pid: str = ""
    mark: str = ""

    def is_alive(self) -> bool:
        try:
            return bool(psutil.Process(int(self.pid)).status() != psutil.STATUS_ZOMBIE)  # a zombie was killed
        except psutil.AccessDenied:
            return True
        except (ValueError, OverflowError, psutil.Error):
            return False


def _take(path: Path) -> int:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(descriptor, path):
                return descriptor
        except BlockingIOError:
            owner = _read(descriptor)
            if owner.is_alive() or time.monotonic() > deadline:
                os.close(descriptor)
                raise _make_refusal(path.parent, owner) from None
        except OSError as error:
            os.close(descriptor)
            message = f"cannot lock {path}: {error.strerror or error}"
            raise UnwritableError(message, "choose a folder on another file system with -o") from error
        os.close(descriptor)
        time.sleep(0.1)


def _sign(descriptor: int, path: Path, mark: str) -> None:
    try:
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, (f"{os.getpid()} {mark}".strip() + "\n").encode(), 0)
    except OSError as error:
        raise UnwritableError.at(path, error, FREE_SPACE) from error


def _open(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        raise UnwritableError.at(path.parent, error, ANOTHER_FOLDER) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnwritableError(f"cannot write {path.parent}: {path} is not a file", ANOTHER_FOLDER)
    return descriptor


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the locked file is still at ``path``; its last holder may have removed it at its end."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _read(descriptor: int) -> _Owner:
    found = _OWNER.match(os.pread(descriptor, _LONGEST, 0).decode(errors="replace"))
    return _Owner(found[1], found[2] or "") if found else _Owner()


def _make_refusal(folder: Path, owner: _Owner) -> UsageError:
    who = f" (process {owner.pid})" if owner.pid else ""
    return UsageError(
        f"another inductor-bench command is writing {folder}{who}",
        "wait for it, or choose another folder",
        "folder-in-use",
    )


# Turns for a device that several processes share: one process at a time uses the device.
#
# An environment variable names the file that the sharing processes lock; without it the device is not shared. The
# system releases the lock of a process that ends in any way.


TURN = "INDUCTOR_BENCH_DEVICE_TURN"
"""Environment variable: the file that all processes of one device lock."""

WAITING = "INDUCTOR_BENCH_DEVICE_WAITING"
"""Environment variable: a file that exists while this process waits for its turn."""


LOADS_BESIDE = "INDUCTOR_BENCH_LOADS_BESIDE"
"""Environment variable: if set, a compiling process may load kernels onto the device during another process's turn."""


class DeviceTurn:
    """A lock for a device that several processes share: the process that holds it has its *turn* at the device.

    The environment names the file, and is read when the lock is taken. ``with`` takes the lock and releases it.

    Args:
        path: the file that the sharing processes lock, in place of the environment's.

    Attributes:
        on_wait: called with ``True`` before a wait for the turn, and with ``False`` after it.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.on_wait: Callable[[bool], None] = lambda waits: None
        self._own = str(path) if path else None
        self._lock: int | None = None

    def __enter__(self) -> DeviceTurn:
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        self.give_up()

    @property
    def is_shared(self) -> bool:
        """Whether other processes may share the device."""
        return self._path is not None

    @property
    def _path(self) -> str | None:
        return self._own or os.environ.get(TURN)  # a fork may get another environment

    @property
    def held(self) -> bool:
        return self._lock is not None

    def take(self) -> None:
        """Waits until no other process uses the device. Does nothing while this process has the turn."""
        path = self._path
        if path is None or self._lock is not None:
            return
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
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
        waiting = os.environ.get(WAITING)
        marker = Path(waiting) if waiting else None
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
                marker.unlink(missing_ok=True)  # the file may be of an earlier process that was killed while it waited

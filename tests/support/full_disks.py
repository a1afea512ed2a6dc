"""Simulates a full disk."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import breakdown_runs as runs


def full_disk(size: int) -> list[str]:
    """Returns the leading words of a command whose files cannot grow beyond ``size`` bytes, as on a full disk."""
    code = (  # of a module that is larger, Python would leave the begin
        "import os, resource, sys\n"
        "os.environ['PYTHONDONTWRITEBYTECODE'] = '1'\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))\n"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    return [runs.sys.executable, "-c", code]


class FullDisk:
    """A disk below a folder that is full from the n-th new file or folder on, within this process.

    Python tells each opening of a file before it happens (``sys.addaudithook``), and an exception prevents it.

    Attributes:
        asked: the number of files and folders that were to be written while it was watched.
    """

    def __init__(self, folder: Path) -> None:
        self.asked = 0
        self._folder, self._least = str(folder), 0
        sys.addaudithook(self._refuse)  # a hook stays for the life of the process, so it is off outside of `from_write`

    @contextlib.contextmanager
    def from_write(self, number: int) -> Iterator[None]:
        """In this block, the write with this number and all later ones fail; 0 only counts."""
        self.asked, self._least = 0, number or sys.maxsize
        try:
            yield
        finally:
            self._least = 0

    def _refuse(self, event: str, given: tuple[Any, ...]) -> None:
        if not self._least or event not in ("open", "os.mkdir", "os.rename", "os.link", "os.symlink"):
            return
        path = given[1] if event == "os.rename" else given[0]
        writes = event != "open" or (isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if not writes or not isinstance(path, str | bytes | os.PathLike) or self._folder not in os.fsdecode(path):
            return
        self.asked += 1
        if self.asked >= self._least and event != "os.rename":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fsdecode(path))

"""The layout of a batch folder: what was asked and how far it is, one RUN for each model, and who may write it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from ..errors import InductorBenchError, UsageError
from ..records.batch import Batch
from . import codec
from .files import read_json, unfinished, write_json
from .folder import RunFolder

BATCH = "batch.json"
FORMAT = 1
PATIENCE_S = 20.0
"""How long the model in flight of a batch that was killed may take to end."""

_DAMAGED = (
    "take it from a copy; the RUN folders under models/ are whole, each can be shown with `inductor-bench report`"
)


@dataclass(frozen=True)
class BatchFolder:
    """One batch on disk. Everything inside is referred to by paths relative to ``path``."""

    path: Path

    @property
    def record(self) -> Path:
        return self.path / BATCH

    @property
    def work(self) -> Path:
        """Scratch of the batch in progress; removed at its end."""
        return self.path / ".work"

    def run(self, name: str) -> RunFolder:
        """The RUN of a model."""
        return RunFolder(self.path / "models" / name)

    def log(self, name: str) -> Path:
        return self.path / "logs" / f"{name}.log"

    def relative(self, path: Path) -> str:
        return path.relative_to(self.path).as_posix()

    def exists(self) -> bool:
        return self.record.is_file()

    def is_new(self) -> bool:
        """Whether nothing is there but what a batch left that was killed before it began."""
        left = {self._lock, *unfinished(self.record)}
        return not self.path.exists() or left.issuperset(self.path.iterdir())

    def save(self, batch: Batch) -> None:
        """Writes ``batch.json`` atomically."""
        write_json(self.record, codec.encode(batch))

    def load(self) -> Batch:
        """Reads ``batch.json``.

        Raises:
            InductorBenchError: it is missing, damaged, or of a newer format.
        """
        if not self.exists():
            raise InductorBenchError(f"{self.path} holds no {BATCH}", "give a folder that `inductor-bench batch` wrote")
        try:
            data = read_json(self.record)
        except InductorBenchError as error:
            raise InductorBenchError(error.message, error.hint or _DAMAGED) from error
        number = data.get("format") if isinstance(data, dict) else None
        if not isinstance(number, int):
            raise InductorBenchError(f"{self.record} is not a batch of inductor-bench", _DAMAGED)
        if number > FORMAT:
            raise InductorBenchError(
                f"{self.record} has format {number}, newer than the {FORMAT} that this version reads",
                "update inductor-bench: pip install --upgrade inductor-bench",
            )
        try:
            return codec.decode(Batch, data)
        except InductorBenchError as error:
            raise InductorBenchError(f"{self.record}: {error.message}", _DAMAGED) from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """Makes the folder this process's own, or refuses; gives a file descriptor that holds the lock.

        The processes that measure inherit it, so that a batch that was killed counts as running until they have ended
        too. The lock itself cannot outlive them, whatever happens.

        Raises:
            UsageError: another batch writes this folder.
            InductorBenchError: the folder cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise InductorBenchError(f"cannot write {self.path}: {error.strerror or error}") from error
        try:
            self._take(descriptor)
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            for left in unfinished(self.record):
                left.unlink(missing_ok=True)
            yield descriptor
        finally:
            os.close(descriptor)

    def is_locked(self) -> bool:
        """Whether a batch writes this folder now."""
        try:
            with self._lock.open() as stream:
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    @property
    def _lock(self) -> Path:
        return self.path / ".lock"

    def _take(self, descriptor: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
                if _is_alive(owner) or time.monotonic() > deadline:
                    raise UsageError(
                        f"another batch is writing {self.path}" + (f" (process {owner})" if owner else ""),
                        "wait for it, or choose another folder with -o",
                    ) from None
                time.sleep(0.1)
            except OSError as error:
                message = f"cannot lock {self._lock}: {error.strerror or error}"
                raise InductorBenchError(message, "choose a folder on another file system with -o") from error


def _is_alive(pid: str) -> bool:
    try:
        return bool(psutil.Process(int(pid)).status() != psutil.STATUS_ZOMBIE)  # killed, and not yet collected
    except psutil.AccessDenied:
        return True
    except (ValueError, psutil.Error):
        return False

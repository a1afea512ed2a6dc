"""The layout of a batch folder: the batch's record, one RUN for each model, and the folder's lock."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import InductorBenchError
from ..records.batches.batch import Batch
from .files import leftovers_of, read_json, write_json
from .folder import RunFolder
from .formats import codec, schema
from .lock import LOCK, FolderLock, is_locked, locked

BATCH = "batch.json"
FORMAT = 1

_DAMAGED = (
    "take it from a copy; the RUN folders under models/ are whole, each can be shown with `inductor-bench report`"
)


@dataclass(frozen=True)
class BatchFolder:
    """One batch on disk. Its record holds paths relative to ``path``."""

    path: Path

    @property
    def record(self) -> Path:
        return self.path / BATCH

    @property
    def work(self) -> Path:
        """Scratch files of the running batch; removed at its end."""
        return self.path / ".work"

    @property
    def models(self) -> Path:
        return self.path / "models"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def run(self, name: str) -> RunFolder:
        """The RUN folder of a model."""
        return RunFolder(self.models / name)

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def relative(self, path: Path) -> str:
        return path.relative_to(self.path).as_posix()

    def exists(self) -> bool:
        return self.record.is_file()

    def is_new(self) -> bool:
        """Whether the folder is missing, or holds only files of a batch that was killed before its record was saved."""
        left = {self.path / LOCK, *leftovers_of(self.record)}
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
        schema.check_format(data, FORMAT, str(self.record), "a batch of inductor-bench", _DAMAGED)
        return schema.decode_record(Batch, data, str(self.record), _DAMAGED)

    @contextlib.contextmanager
    def locked(self, mark: str = "") -> Iterator[FolderLock]:
        """Makes the folder and holds its lock in the block; see :func:`.lock.locked`.

        The measuring processes inherit the descriptor, so that the folder stays locked until they have ended too.

        Args:
            mark: the mark of the processes that this process starts.

        Raises:
            UsageError: another command writes this folder.
            InductorBenchError: the folder cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InductorBenchError(f"cannot write {self.path}: {reason}") from error
        with locked(self.path, mark) as lock:
            for left in leftovers_of(self.record):
                left.unlink(missing_ok=True)
            yield lock

    def is_locked(self) -> bool:
        """Whether a running batch holds this folder's lock."""
        return is_locked(self.path)
